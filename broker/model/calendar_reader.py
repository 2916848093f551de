"""The interface to whoever reads calendars. Pure."""

from dataclasses import dataclass
from typing import Protocol

from deskgrid.windows.from_calendar import CalendarAnswer, CalendarRequest


@dataclass(slots=True, eq=False)
class CalendarTicket:
    """A calendar that is being read; there is an answer when that is done."""

    answer: CalendarAnswer | None = None


class CalendarReader(Protocol):
    """Reads one calendar after the other."""

    def read(self, request: CalendarRequest) -> CalendarTicket:
        """Ask for a calendar. The broker's loop looks for the answer."""
