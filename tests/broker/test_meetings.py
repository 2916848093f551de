"""Meetings of the ranks of a gang: who is told what, also when something is said twice, or not at all."""

import msgpack
import pytest

from deskgrid.broker.gangs.meetings import MeetingAnswer, Meetings
from deskgrid.broker.gangs.table import places
from deskgrid.wire import MEETING_BYTES, SAID_AT_MEETING_BYTES, Meet

ROOM = 2**30


def meet(rank: int, serial: int = 1, data: bytes | None = None, *, overdue: bool = False) -> Meet:
    return Meet(7, 1, rank, serial, data is not None, overdue, data or b"")


def meetings(size: int = 3, held: int = 0) -> Meetings:
    return Meetings(places([f"pc{number}" for number in range(size)]), held)


def test_a_meeting_is_held_when_all_have_come_and_each_is_told() -> None:
    made = meetings()
    assert made.come(meet(2), ROOM) == made.come(meet(0), ROOM) == []
    assert made.come(meet(1), ROOM) == [MeetingAnswer(0, 1), MeetingAnswer(1, 1), MeetingAnswer(2, 1)]
    assert made.held == 1


def test_values_are_gathered_by_rank() -> None:
    made = meetings(2)
    made.come(meet(1, data=b"one"), ROOM)
    first, second = made.come(meet(0, data=b""), ROOM)
    assert first.values is second.values
    assert msgpack.unpackb(bytes(first.values)) == [b"", b"one"]
    assert made.come(meet(1, data=b"one"), ROOM) == [second]  # its answer was lost
    made.come(meet(0, 2), ROOM)
    made.come(meet(1, 2), ROOM)
    assert made.size == 0


def test_who_comes_twice_is_one() -> None:
    made = meetings(2)
    assert made.come(meet(0), ROOM) == made.come(meet(0), ROOM) == []
    assert len(made.come(meet(1), ROOM)) == 2
    assert made.come(meet(0), ROOM) == [MeetingAnswer(0, 1)]


def test_who_waits_no_longer_is_told_who_is_missing_and_so_are_all() -> None:
    made = meetings(6)
    made.come(meet(0), ROOM)
    made.come(meet(1), ROOM)
    reason = "rank 2 on pc2, rank 3 on pc3, rank 4 on pc4 and 1 more did not come"
    assert made.come(meet(0, overdue=True), ROOM) == [MeetingAnswer(1, 1, reason), MeetingAnswer(0, 1, reason)]
    assert made.come(meet(5), ROOM) == [MeetingAnswer(5, 1, reason)]
    assert made.come(meet(0, 2), ROOM) == [MeetingAnswer(0, 2, reason)]


def test_nobody_waits_for_a_rank_that_has_ended() -> None:
    made = meetings(3)
    assert made.end(2) == []
    reason = "rank 2 on pc2 ended without coming"
    assert made.come(meet(0), ROOM) == [MeetingAnswer(0, 1, reason)]
    assert made.come(meet(1), ROOM) == [MeetingAnswer(1, 1, reason)]


def test_who_waits_is_told_at_once_that_a_rank_has_ended() -> None:
    made = meetings(3)
    made.come(meet(0, data=b"zero"), ROOM)
    made.come(meet(1, data=b"one"), ROOM)
    reason = "rank 2 on pc2 ended without coming"
    assert made.end(2) == [MeetingAnswer(0, 1, reason), MeetingAnswer(1, 1, reason)]
    assert made.size == 0


def test_a_rank_may_end_that_has_come() -> None:
    made = meetings(2)
    made.come(meet(0), ROOM)
    assert made.end(0) == []
    assert made.come(meet(1), ROOM) == [MeetingAnswer(0, 1), MeetingAnswer(1, 1)]


def test_the_last_may_come_late_and_nobody_is_missing() -> None:
    made = meetings(2)
    made.come(meet(0), ROOM)
    assert made.come(meet(1, overdue=True), ROOM) == [MeetingAnswer(0, 1), MeetingAnswer(1, 1)]
    assert made.come(meet(0, overdue=True), ROOM) == [MeetingAnswer(0, 1)]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (meet(1, 2), "rank 1 on pc1 is at its meeting number 2, and the others are at number 1"),
        (meet(1, data=b"x"), "rank 1 on pc1 gathers values where rank 0 on pc0 is at a barrier"),
    ],
)
def test_ranks_that_do_not_agree_do_not_meet(other: Meet, reason: str) -> None:
    made = meetings()
    made.come(meet(0), ROOM)
    assert made.come(other, ROOM) == [MeetingAnswer(0, 1, reason), MeetingAnswer(1, other.serial, reason)]


def test_what_is_gathered_is_bounded() -> None:
    size = MEETING_BYTES // SAID_AT_MEETING_BYTES + 1
    made = meetings(size)
    for rank in range(size - 1):
        assert made.come(meet(rank, data=bytes(SAID_AT_MEETING_BYTES)), ROOM) == []
    assert made.size == MEETING_BYTES
    told = made.come(meet(size - 1, data=b"x"), ROOM)
    assert {each.reason for each in told} == {"the ranks gather more than 16 MiB together"}
    assert made.size == 0
    assert meetings(2).come(meet(0, data=b"xx"), 1)[0].reason == "the broker has no room for what is gathered"


def test_after_a_restart_an_earlier_barrier_is_known_and_earlier_values_are_lost() -> None:
    made = meetings(2, held=4)
    assert made.come(meet(0, 4), ROOM) == [MeetingAnswer(0, 4)]
    assert (
        made.come(meet(0, 4, b"x"), ROOM)[0].reason == "the broker was started again, and what the others said is lost"
    )
    made.come(meet(0, 5), ROOM)
    assert len(made.come(meet(1, 5), ROOM)) == 2
