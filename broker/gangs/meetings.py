"""Meetings of the ranks of one attempt of a gang: barriers, and values that all of them gather. Pure.

The ranks number their meetings from 1. A meeting is held when all ranks have come; then each is told what all of them
brought, by rank.

Rule 1: what a rank says twice, because an answer may have been lost, is answered again. So the values of the last
meeting are kept until the next is held.
Rule 2: if a meeting does not take place, nor do all later ones of the gang, as with `threading.Barrier`: its ranks do
not agree any more about where they are.
Rule 3: nobody waits for a rank that has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgpack

from deskgrid.wire import MEETING_BYTES, Meet, Payload, payload_of

# How many ranks are named in a reason.
NAMED = 3
_DOING = ("is at a barrier", "gathers values")


@dataclass(frozen=True, slots=True)
class MeetingAnswer:
    """What a rank is told of a meeting; ``reason``: why the ranks do not meet, or empty."""

    rank: int
    serial: int
    reason: str = ""
    values: Payload = b""


@dataclass(slots=True)
class _OpenMeeting:
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
        self._now: _OpenMeeting | None = None
        # What the last meeting gathered; None: the broker was started again since.
        self._values: Payload | None = b"" if held == 0 else None
        self._broken = ""
        # Ranks that have ended: they come to no meeting any more.
        self._over: set[int] = set()

    def come(self, meet: Meet, room: int) -> list[MeetingAnswer]:
        """A rank comes to a meeting; returns who is told what. ``room``: for so many bytes of values there is room."""
        if meet.serial <= self.held:
            return [self._before(meet)]
        if self._broken:
            return [MeetingAnswer(meet.rank, meet.serial, self._broken)]
        if self._now is None:
            self._now = _OpenMeeting(self.held + 1, meet.gathers)
        if reason := self._objection(meet, self._now, room):
            return self._break(self._now, reason, meet)
        if meet.rank not in self._now.values:
            self._now.values[meet.rank] = meet.data
            self.size += len(meet.data)
        if len(self._now.values) == len(self._places):
            return self._hold(self._now)
        if meet.overdue:
            return self._break(self._now, f"{self._named(self._missing(self._now))} did not come", meet)
        return self._look(self._now)

    def end(self, rank: int) -> list[MeetingAnswer]:
        """A rank has ended; returns what those are told who wait for it."""
        self._over.add(rank)
        return [] if self._now is None else self._look(self._now)

    def _look(self, now: _OpenMeeting) -> list[MeetingAnswer]:
        """A meeting to which somebody cannot come does not take place."""
        never = [rank for rank in sorted(self._over) if rank not in now.values]
        return self._break(now, f"{self._named(never)} ended without coming") if never else []

    def _before(self, meet: Meet) -> MeetingAnswer:
        """What somebody is told who did not hear that an earlier meeting was held."""
        if not meet.gathers:
            return MeetingAnswer(meet.rank, meet.serial)
        if meet.serial == self.held and self._values is not None:
            return MeetingAnswer(meet.rank, meet.serial, values=self._values)
        return MeetingAnswer(meet.rank, meet.serial, "the broker was started again, and what the others said is lost")

    def _objection(self, meet: Meet, now: _OpenMeeting, room: int) -> str:
        """Why a rank cannot take part; empty when it can."""
        here = self._places[meet.rank]
        if meet.serial != now.serial:
            return f"{here} is at its meeting number {meet.serial}, and the others are at number {now.serial}"
        if now.values and meet.gathers != now.gathers:
            return f"{here} {_DOING[meet.gathers]} where {self._places[min(now.values)]} {_DOING[now.gathers]}"
        if sum(map(len, now.values.values())) + len(meet.data) > MEETING_BYTES:
            return f"the ranks gather more than {MEETING_BYTES // 2**20} MiB together"
        return "the broker has no room for what is gathered" if len(meet.data) > room else ""

    def _hold(self, now: _OpenMeeting) -> list[MeetingAnswer]:
        values: Payload = b""
        if now.gathers:
            values = payload_of(msgpack.packb([now.values[rank] for rank in range(len(self._places))]))
        self.held, self._now, self._values, self.size = now.serial, None, values, len(values)
        return [MeetingAnswer(rank, now.serial, values=values) for rank in sorted(now.values)]

    def _break(self, now: _OpenMeeting, reason: str, meet: Meet | None = None) -> list[MeetingAnswer]:
        """``meet``: of the rank that is told last, perhaps at another meeting."""
        self._broken, self._now, self.size = reason, None, len(self._values or b"")
        others = [rank for rank in sorted(now.values) if meet is None or rank != meet.rank]
        told = [MeetingAnswer(rank, now.serial, reason) for rank in others]
        return told if meet is None else [*told, MeetingAnswer(meet.rank, meet.serial, reason)]

    def _missing(self, now: _OpenMeeting) -> list[int]:
        return [rank for rank in range(len(self._places)) if rank not in now.values]

    def _named(self, ranks: Sequence[int]) -> str:
        more = f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else ""
        return ", ".join([self._places[rank] for rank in ranks[:NAMED]]) + more
