"""The checks of the state find errors: each test breaks one thing in a consistent grid."""

import math
from collections.abc import Callable

import pytest

from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.model import Attempt, AttemptState, InvariantBroken, State, near
from deskgrid.scheduler.queues.by_arrival import NewestFirst, OldestFirst
from deskgrid.scheduler.queues.longest_first import LongestFirst
from deskgrid.scheduler.queues.mintree import MinTree
from deskgrid.scheduler.queues.task_ranges import TaskRanges
from deskgrid.scheduler.state.failures import _FailureRecord
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.quarantine import Quarantined
from deskgrid.scheduler.state.slots import NOWHERE, LiveAttempt, Owed, Slot
from tests.scheduler.builders import Grid, pgs
from tests.scheduler.builders import only as category

# The tasks of `grid` are where their names say. The first waits too, and an attempt of it may still be answered.
LOST, RUNNING, QUEUED, FIRST, AHEAD, DONE, HELD, REGULAR = range(8)


def grid() -> Scheduler:
    """Slot 1 runs a task and queues another; slot 2 runs a short one with one ahead; both have room for more."""
    made = Grid(pgs(queue_length=2, order="fifo"), first_attempt=50)
    made.pc("gone", 9000)
    made.tasks(5000)
    made.expect(gone=[LOST])
    made.leave("gone", planned=False)
    made.pc("a", 1000)
    made.tasks(5)
    made.expect(a=[RUNNING])
    made.tasks(2)
    made.expect()
    made.pc("b", 500)
    made.tasks(0.3, 0.1)
    made.expect(b=[FIRST, AHEAD])
    made.tasks(9, 8, done=[DONE], held=[Attempt(HELD, 42)])
    made.tasks(3)
    assert (made.priority(), made.regular(), made.queues()) == ([LOST], [REGULAR], {"a": [QUEUED]})
    return made.scheduler


def slot(state: SchedulerState, number: int) -> Slot:
    return state.slots.slots[number]


def hold_back(state: SchedulerState) -> None:
    """What runs and what is queued on slot 1 are short all along, but the queued one was not sent."""
    held = slot(state, 1)
    state.slots.unindex(held)
    for task in (RUNNING, QUEUED):
        state.tasks.predict({task: 0.1})
    held.sent[0].runtime = held.queue[0].runtime = held.queued_s = 0.1
    state.slots.index(held, 0.0)


def change_row(state: SchedulerState) -> None:
    """Slot 1 is indexed as if it had promised more."""
    changed, index = slot(state, 1), state.slots.queued
    key, load, number = changed.row
    changed.row = (key, load + 1, number)
    index.anchored.clear()
    index.anchored.append(changed.row)


def keep_entry(state: SchedulerState) -> None:
    """Slot 1 has changed, and is out of its index, but goes on as if it were there."""
    changed = slot(state, 1)
    rows = changed.rows
    state.change(changed)
    changed.rows = rows


def index_twice(state: SchedulerState) -> None:
    """Slot 1 is in another index, too."""
    state.slots.idle.falling.append(slot(state, 1).row)


def index_as_of(state: SchedulerState, now: float) -> None:
    """Slot 1 is indexed as it has to be at another time."""
    state.slots.unindex(slot(state, 1))
    state.slots.index(slot(state, 1), now)


def owe_at_work(state: SchedulerState) -> None:
    """Slot 1 is said to owe an answer, though it has work."""
    state.change(slot(state, 1))
    state.block(slot(state, 1), Attempt(LOST, 50))


def lost(task: int, number: int) -> LiveAttempt:
    return LiveAttempt(task, NOWHERE, 0.0, number, state=AttemptState.LOST)


def sent(state: SchedulerState, task: int) -> LiveAttempt:
    return LiveAttempt(task, state.bound[task].slot, 0.1, 7, state=AttemptState.SENT)


def swap_queue(state: SchedulerState) -> None:
    category(state).priority = NewestFirst()


# What is spoilt, what is said about it, and how.
SPOILT: list[tuple[str, str, Callable[[SchedulerState], object]]] = [
    # Bags and batches.
    ("a task too many", "counts of bag 0", lambda s: setattr(s.tasks.bags[0], "total", 9)),
    ("a task too many done", "counts of bag 0", lambda s: setattr(s.tasks.bags[0], "done", 2)),
    ("a task too many failed", "counts of bag 0", lambda s: setattr(s.tasks.bags[0], "failed", 1)),
    ("a task too many cancelled", "counts of bag 0", lambda s: setattr(s.tasks.bags[0], "cancelled", 1)),
    ("less work left", "work left of bag 0", lambda s: setattr(s.tasks.bags[0], "left_s", 5000.0)),
    ("a longest that is not", "longest of bag 0", lambda s: setattr(s.tasks.bags[0], "longest", 9.0)),
    ("a batch of no bag", "batches of bags", lambda s: s.tasks.bags.clear()),
    ("a batch under a wrong number", "first tasks", lambda s: s.tasks._firsts.__setitem__(1, 0)),
    ("a number to be given twice", "batches follow each other", lambda s: setattr(s.tasks, "_next", 7)),
    ("an error of what is done", "tries of ended tasks", lambda s: s.tasks.erred(DONE, "a")),
    ("a crash of what is done", "tries of ended tasks", lambda s: s.tasks.crashed(DONE, "pc")),
    (
        "a quarantine without crashes",
        "streaks of those in quarantine",
        lambda s: s.quarantine.workers.update(gone=Quarantined(9, 9, 0, 3, False)),
    ),
    (
        "crashes of a bag that is gone",
        "bags that failed and are not known",
        lambda s: s.failures._bags.update({99: _FailureRecord(False)}),
    ),
    (
        "work for one in quarantine",
        "work queued for a, which is in quarantine",
        lambda s: s.quarantine.workers.update(a=Quarantined(9, 9, 0, 3, False)),
    ),
    # Where tasks are.
    ("a task nowhere", f"places of task {REGULAR}", lambda s: category(s).regular.discard(REGULAR)),
    (
        "a task in both queues",
        f"places of task {REGULAR}",
        lambda s: category(s).priority.add(TaskRanges([REGULAR], [1], [3.0])),
    ),
    (
        "a done task that waits",
        f"places of task {DONE}",
        lambda s: category(s).priority.add(TaskRanges([DONE], [1], [9.0])),
    ),
    (
        "a running task that waits",
        f"places of task {RUNNING}",
        lambda s: category(s).priority.add(TaskRanges([RUNNING], [1], [5.0])),
    ),
    (
        "a held task that waits",
        f"places of task {HELD}",
        lambda s: category(s).priority.add(TaskRanges([HELD], [1], [8.0])),
    ),
    ("a queued task that waits", f"places of task {QUEUED}", lambda s: s.tasks.move(QUEUED, State.WAITING)),
    ("a queued task unbound", f"task {QUEUED}, QUEUED, is bound", lambda s: s.bound.pop(QUEUED)),
    ("a wrong slot", f"places of task {RUNNING}", lambda s: setattr(s.bound[RUNNING], "slot", slot(s, 2))),
    ("a waiting task bound", "bound tasks that are on no", lambda s: s.bound.__setitem__(LOST, lost(LOST, 7))),
    ("an unknown task", "places of unknown tasks", lambda s: category(s).priority.add(TaskRanges([99], [1], [1.0]))),
    # Attempts.
    ("two newest attempts", f"task {RUNNING}, SENT, awaits", lambda s: s.lost.__setitem__(RUNNING, lost(RUNNING, 7))),
    ("an attempt after the end", f"task {DONE}, DONE, awaits", lambda s: s.lost.__setitem__(DONE, lost(DONE, 7))),
    ("a held task without attempt", f"task {HELD}, HELD, awaits", lambda s: s.lost.pop(HELD)),
    ("an attempt of an unknown task", "attempts of unknown", lambda s: s.lost.__setitem__(99, lost(99, 7))),
    (
        "an attempt that says it is lost",
        f"of task {RUNNING}, LOST",
        lambda s: setattr(s.bound[RUNNING], "state", AttemptState.LOST),
    ),
    ("an attempt of another task", f"of task {HELD}, LOST", lambda s: setattr(s.lost[HELD], "task", LOST)),
    ("a number too early", f"of task {QUEUED} has a number", lambda s: setattr(s.bound[QUEUED], "number", 7)),
    ("a lost one on a slot", f"of task {HELD}, LOST, is on", lambda s: setattr(s.lost[HELD], "slot", slot(s, 1))),
    ("another attempt on its slot", "attempts on slots", lambda s: s.bound.__setitem__(AHEAD, sent(s, AHEAD))),
    ("a number given twice", "attempt numbers", lambda s: s.lost.__setitem__(LOST, lost(LOST, 42))),
    ("a number not given yet", "attempt numbers grow", lambda s: s.lost.__setitem__(LOST, lost(LOST, 54))),
    # Slots.
    ("seconds ahead", "seconds ahead on slot 2", lambda s: setattr(slot(s, 2), "ahead_s", 0.0)),
    ("seconds queued", "seconds queued on slot 1", lambda s: setattr(slot(s, 1), "queued_s", 0.0)),
    ("a start to come", "slot 1 began in the past", lambda s: setattr(slot(s, 1), "started", 1.0)),
    (
        "a slot swapped",
        "slot 2 is in its place on its worker",
        lambda s: setattr(slot(s, 2), "worker", slot(s, 1).worker),
    ),
    ("a slot of no worker", "slots", lambda s: s.slots.slots.__setitem__(9, Slot(9, slot(s, 1).worker, 0))),
    ("a worker renamed", "names", lambda s: setattr(slot(s, 1).worker, "name", "c")),
    ("an old prediction at the worker", f"prediction of task {AHEAD}", lambda s: s.tasks.predict({AHEAD: 0.2})),
    ("an old prediction in a slot's queue", f"prediction of task {QUEUED}", lambda s: s.tasks.predict({QUEUED: 3.0})),
    ("work held back", "slot 1 holds back", hold_back),
    # What is overdue.
    (
        "a slot that nobody will look at",
        "slot 1 is looked at too late",
        lambda s: setattr(slot(s, 1), "look_at", math.inf),
    ),
    ("a look that is not planned", "slots that are to be looked at", lambda s: s.deadlines.looks.entries.clear()),
    ("a debt of nobody", "slots that owe", lambda s: s.owed.update(a={Attempt(LOST, 50): Owed(slot(s, 1), ())})),
    ("a slot at work that owes", "work on slot 1", owe_at_work),
    ("a worker without debts", "workers that owe nothing", lambda s: s.owed.update(a={})),
    ("a task taken back when done", "tries of ended tasks", lambda s: s.tasks.taken(DONE)),
    # The indexes of slots.
    ("a slot not indexed", "slots with room", lambda s: s.slots.unindex(slot(s, 1))),
    ("a slot indexed twice", "slots with room", index_twice),
    ("a changed slot indexed", "slots with room", lambda s: s.dirty.__setitem__(1, slot(s, 1))),
    ("a changed slot that is gone", "changed slots", lambda s: s.dirty.__setitem__(0, slot(s, 1))),
    ("a window moved", "slot 1 closes after its worker", lambda s: setattr(slot(s, 1).worker, "ends_at", 999.0)),
    ("a slot that closes earlier", "tl of slot 1", lambda s: setattr(slot(s, 1), "closes", 999.0)),
    ("a load", "load of slot 1", change_row),
    ("a row lost", "rows of slot 1", lambda s: setattr(slot(s, 1), "row", (1, 2, 1))),
    ("a row in a wrong place", "rows in order", lambda s: s.slots.queued.anchored.append((-1.0, 0.0, 1))),
    ("all rows lost", "slots with room", lambda s: s.slots.queued.anchored.clear()),
    ("an entry that is gone", "slots with an entry", keep_entry),
    ("no alarm", "slot 2 moves without notice", lambda s: s.slots._due.clear()),
    ("slots with room miscounted", "how many slots have room", lambda s: setattr(s.slots, "with_room", 9)),
    ("a slot indexed as overdue", "slot 1 moves without notice", lambda s: index_as_of(s, 100.0)),
    # The waiting queues.
    ("another order", "order of the priority queue", swap_queue),
    ("an old prediction of a waiting task", f"prediction of task {REGULAR}", lambda s: s.tasks.predict({REGULAR: 4.0})),
    (
        "a ghost of nothing",
        "discarded tasks without an entry",
        lambda s: OldestFirst.discard(category(s).regular, LOST),
    ),
    (
        "a task twice in a queue",
        "entries of one task",
        lambda s: category(s).regular.add(TaskRanges([REGULAR], [1], [3.0])),
    ),
    ("entries miscounted", "tasks in runs", lambda s: setattr(category(s).regular, "_held", 2)),
    ("a front that is not", "the first run", lambda s: setattr(category(s).regular, "_head", 1)),
    ("a task without a runtime", "runs: ", lambda s: category(s).regular._firsts.append(9)),
]


@pytest.mark.parametrize(("said", "spoil"), [row[1:] for row in SPOILT], ids=[row[0] for row in SPOILT])
def test_the_check_finds(said: str, spoil: Callable[[SchedulerState], object]) -> None:
    scheduler = grid()
    scheduler.check(0.5)
    spoil(scheduler.grid)
    with pytest.raises(InvariantBroken, match=said):
        scheduler.check(0.0)


def test_the_check_of_a_tree_finds_a_wrong_node() -> None:
    tree = MinTree()
    tree.extend([float(number) for number in range(300)])
    tree.check()
    tree.levels[1][3] = 7.0
    with pytest.raises(InvariantBroken, match="nodes"):
        tree.check()


def test_the_check_of_a_tree_finds_that_it_is_not_high_enough() -> None:
    tree = MinTree()
    tree.extend([1.0] * 300)
    tree.levels.pop()
    with pytest.raises(InvariantBroken, match="one node at the top"):
        tree.check()


def test_the_check_of_the_longest_first_finds_a_number_that_will_be_given_again() -> None:
    queue = LongestFirst()
    queue.add(TaskRanges([1, 2], [1, 1], [1.0, 2.0]))
    queue.check()
    queue._arrived = 1
    with pytest.raises(InvariantBroken, match="arrival numbers"):
        queue.check()


def test_sums_may_drift_by_what_rounding_makes_of_them_and_no_more() -> None:
    near("sum", 1e12 + 0.5, 1e12)
    near("sum", 0.5, 0.0, largest=1e12)
    with pytest.raises(InvariantBroken, match=r"sum: 0\.5 is kept, 0\.0 is true"):
        near("sum", 0.5, 0.0)
