"""The index of slots by remaining time, compared with a scan of a list of slots."""

import math

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deskgrid.scheduler.model import OPEN_ENDED, PlannedWindow, Windows
from deskgrid.scheduler.state.slot_index import SlotIndex
from deskgrid.scheduler.state.slots import LiveAttempt, Slot, SlotTable, Worker, announced

SECONDS = st.sampled_from([0.0, 0.25, 1.0, 2.0, 4.0, 7.5, 20.0])
UPTIMES = st.one_of(SECONDS, st.just(math.inf))


class IndexMachine(RuleBasedStateMachine):
    """Slots come, go, and change; time passes, and slots are looked at again when their task becomes overdue."""

    @initialize()
    def start(self) -> None:
        self.table = SlotTable()
        self.now = 0.0
        self.number = 0

    @rule(uptime=UPTIMES, slots=st.integers(1, 3), speed=st.sampled_from([1.0, 1.0, 0.5, 2.0]))
    def join(self, uptime: float, slots: int, speed: float) -> None:
        worker = Worker(f"w{self.number}", "", self.now, self.now + uptime, Windows(), speed=speed)
        self.number += 1
        self.table.join(worker, slots)
        for slot in worker.slots:
            self.table.index(slot, self.now)

    @rule(data=st.data(), runtime=SECONDS, ahead=SECONDS, queued=SECONDS)
    def change(self, data: st.DataObject, runtime: float, ahead: float, queued: float) -> None:
        """A slot gets other contents: nothing, something that runs, or more behind it."""
        if not self.table.slots:
            return
        slot = self.table.slots[data.draw(st.sampled_from(sorted(self.table.slots)))]
        self.table.unindex(slot)
        slot.sent.clear()
        slot.queue.clear()
        slot.started = self.now
        if runtime:
            slot.sent.append(LiveAttempt(0, slot, runtime))
        if runtime and ahead:
            slot.sent.append(LiveAttempt(1, slot, ahead))
        if queued:
            slot.queue.append(LiveAttempt(2, slot, queued))
        slot.ahead_s = ahead if len(slot.sent) > 1 else 0.0
        slot.queued_s = queued
        self.table.index(slot, self.now)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.table.workers:
            self.table.leave(data.draw(st.sampled_from(sorted(self.table.workers))))

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for slot in list(self.table.overdue(self.now)):
            self.table.unindex(slot)
            self.table.index(slot, self.now)

    @rule(limit=st.one_of(SECONDS, st.sampled_from([-100.0, 0.1, math.inf])))
    def ask(self, limit: float) -> None:
        idle = [slot for slot in self.table.slots.values() if not slot.sent and not slot.queue]
        busy = [slot for slot in self.table.slots.values() if slot.sent and not slot.queue]
        queued = [slot for slot in self.table.slots.values() if slot.queue]
        for index, slots in zip(self.table.indexes, (idle, busy, queued), strict=True):
            self._compare(index, slots, limit)

    def _compare(self, index: SlotIndex, slots: list[Slot], limit: float) -> None:
        rows = [
            (slot.left_s(self.now), max(self.now, slot.due) + slot.ahead_s + slot.queued_s, slot.number)
            for slot in slots
        ]
        assert index.tightest(limit, self.now) == min((row for row in rows if row[0] > limit), default=None)
        assert index.widest(self.now) == max((row[0] for row in rows), default=-math.inf)
        assert sorted(index.at(place) for place in range(len(index))) == sorted(slot.number for slot in slots)
        if index is self.table.idle:
            wide = sorted((left, number) for left, _, number in rows if left > limit)
            assert [left for left, _ in wide] == [
                self.table.slots[number].left_s(self.now) for number in index.above(limit, self.now)
            ]

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "table"):
            self.table.check(self.table.slots.values(), self.now)


TestIndexes = IndexMachine.TestCase


def test_removing_a_slot_that_is_not_there_is_no_mistake() -> None:
    table = SlotTable()
    table.join(Worker("a", "", 0.0, math.inf, Windows()), 1)
    table.unindex(table.slots[0])
    assert table.with_room == 0


@given(st.lists(SECONDS, min_size=1, max_size=30))
def test_a_slot_is_looked_out_for_once_for_each_task_it_runs(changes: list[float]) -> None:
    table, now = SlotTable(), 0.0
    table.join(Worker("a", "", 0.0, math.inf, Windows()), 1)
    slot = table.slots[0]
    slot.sent.append(LiveAttempt(0, slot, 1e6))
    for seconds in changes:
        now += seconds
        table.unindex(slot)
        slot.worker.ends_at = 2e6 - seconds
        table.index(slot, now)
    assert list(table.overdue(1e6 - 1)) == []
    assert list(table.overdue(1e6)) == [slot]
    assert list(table.overdue(1e7)) == []


def test_a_slot_whose_time_stands_still_may_be_the_tightest() -> None:
    table = SlotTable()
    table.join(Worker("a", "", 0.0, 20.0, Windows()), 2)
    busy, late = table.slots.values()
    busy.sent.append(LiveAttempt(0, busy, 15.0))
    late.sent.append(LiveAttempt(1, late, 0.0))
    for slot in (busy, late):
        table.index(slot, 0.0)
    assert table.spare.tightest(1.0, 0.0) == (5.0, 15.0, busy.number)
    assert table.spare.tightest(10.0, 0.0) == (20.0, 0.0, late.number)


# --- windows --------------------------------------------------------------------------------------------------------


def test_announced_windows_come_in_order_and_none_lies_in_another() -> None:
    given = [(300.0, 10.0), (0.0, 20.0), (5.0, 5.0), (15.0, 25.0), (40.0, 5.0), (60.0, 0.0)]
    assert announced(given, 1000.0) == Windows(
        [PlannedWindow(1000, 1020), PlannedWindow(1020, 1040), PlannedWindow(1040, 1045), PlannedWindow(1300, 1310)]
    )
    assert announced([], 1000.0) == Windows()


def test_an_announced_window_behind_one_without_end_is_none() -> None:
    assert announced([(5.0, OPEN_ENDED), (900.0, 9.0)], 1.0) == Windows([PlannedWindow(6, OPEN_ENDED)])
