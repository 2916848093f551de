"""Meetings of the ranks of one attempt of a gang: barriers, and values that all of them gather. Pure.

The ranks number their meetings from 1. A meeting is held when all ranks have come; then each is told what all of them
brought, by rank.

Rule 1: what a rank says twice, because an answer may have been lost, is answered again. So the values of the last
meeting are kept until the next is held.
Rule 2: if a meeting does not take place, nor do all later ones of the gang, as with `threading.Barrier`: its ranks do
not agree any more about where they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgpack

from deskgrid.wire import MEETING_BYTES, Meet, Payload, payload_of

# How many ranks are named in a reason.
NAMED = 3
_DOING = ("is at a barrier", "gathers values")


@dataclass(frozen=True, slots=True)
class Told:
    """What a rank is told of a meeting; ``reason``: why the ranks do not meet, or empty."""

    rank: int
    serial: int
    reason: str = ""
    values: Payload = b""


@dataclass(slots=True)
class _Meeting:
    serial: int
    gathers: bool
    values: dict[int, bytes] = field(default_factory=dict)


class Meetings:
    """``held``: the number of the last meeting that was held. ``size``: bytes of values that are kept."""

    def __init__(self, places: Sequence[str], held: int = 0) -> None:
        """``places``: what each rank is called, "rank 3 on lab2-04". ``held``: before the broker was started again."""
        self.held = held
        self.size = 0
        self._places = places
        self._now: _Meeting | None = None
        # What the last meeting gathered; None: the broker was started again since.
        self._values: Payload | None = b"" if held == 0 else None
        self._broken = ""

    def come(self, meet: Meet, room: int) -> list[Told]:
        """A rank comes to a meeting; returns who is told what. ``room``: for so many bytes of values there is room."""
        if meet.serial <= self.held:
            return [self._before(meet)]
        if self._broken:
            return [Told(meet.rank, meet.serial, self._broken)]
        if self._now is None:
            self._now = _Meeting(self.held + 1, meet.gathers)
        if reason := self._objection(meet, self._now, room):
            return self._break(meet, self._now, reason)
        if meet.rank not in self._now.values:
            self._now.values[meet.rank] = meet.data
            self.size += len(meet.data)
        if len(self._now.values) == len(self._places):
            return self._hold(self._now)
        return self._break(meet, self._now, self._missing(self._now)) if meet.overdue else []

    def _before(self, meet: Meet) -> Told:
        """What somebody is told who did not hear that an earlier meeting was held."""
        if not meet.gathers:
            return Told(meet.rank, meet.serial)
        if meet.serial == self.held and self._values is not None:
            return Told(meet.rank, meet.serial, values=self._values)
        return Told(meet.rank, meet.serial, "the broker was started again, and what the others said is lost")

    def _objection(self, meet: Meet, now: _Meeting, room: int) -> str:
        """Why a rank cannot take part; empty when it can."""
        here = self._places[meet.rank]
        if meet.serial != now.serial:
            return f"{here} is at its meeting number {meet.serial}, and the others are at number {now.serial}"
        if now.values and meet.gathers != now.gathers:
            return f"{here} {_DOING[meet.gathers]} where {self._places[min(now.values)]} {_DOING[now.gathers]}"
        if sum(map(len, now.values.values())) + len(meet.data) > MEETING_BYTES:
            return f"the ranks gather more than {MEETING_BYTES // 2**20} MiB together"
        return "the broker has no room for what is gathered" if len(meet.data) > room else ""

    def _hold(self, now: _Meeting) -> list[Told]:
        values: Payload = b""
        if now.gathers:
            values = payload_of(msgpack.packb([now.values[rank] for rank in range(len(self._places))]))
        self.held, self._now, self._values, self.size = now.serial, None, values, len(values)
        return [Told(rank, now.serial, values=values) for rank in sorted(now.values)]

    def _break(self, meet: Meet, now: _Meeting, reason: str) -> list[Told]:
        self._broken, self._now, self.size = reason, None, len(self._values or b"")
        others = [Told(rank, now.serial, reason) for rank in sorted(now.values) if rank != meet.rank]
        return [*others, Told(meet.rank, meet.serial, reason)]

    def _missing(self, now: _Meeting) -> str:
        missing = [place for rank, place in enumerate(self._places) if rank not in now.values]
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        return f"{', '.join(missing[:NAMED])}{more} did not come"
