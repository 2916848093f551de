"""The waiting queues, compared with slow lists, and `MinTree`, compared with a scan."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from deskgrid.scheduler.queues import longest_first
from deskgrid.scheduler.queues.by_arrival import NewestFirst, OldestFirst
from deskgrid.scheduler.queues.categories import ORDERS
from deskgrid.scheduler.queues.longest_first import PREDICTED_RUNS, LongestFirst
from deskgrid.scheduler.queues.merged import RegularQueues
from deskgrid.scheduler.queues.mintree import MinTree
from deskgrid.scheduler.queues.regular import Regular
from deskgrid.scheduler.queues.runtime_index import RuntimeIndex
from deskgrid.scheduler.queues.task_ranges import TaskRanges, drop_places, grouped, joined, spans_of
from deskgrid.scheduler.queues.waiting import Entry, WaitingQueue

# Few distinct values, so that many are equal and many equal the limit.
VALUES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0])
COUNTS = st.integers(1, 60)
LIMITS = st.one_of(VALUES, st.sampled_from([-math.inf, math.inf]))


@given(
    chunks=st.lists(st.lists(VALUES, max_size=400), max_size=4),
    gone=st.sets(st.integers(0, 700)),
    asked=st.lists(st.tuples(LIMITS, st.integers(0, 700)), min_size=1, max_size=20),
)
def test_a_tree_finds_what_a_scan_finds(
    chunks: list[list[float]], gone: set[int], asked: list[tuple[float, int]]
) -> None:
    tree, values = MinTree(), list[float]()
    for chunk in chunks:
        tree.extend(chunk)
        values += chunk
        for position in [position for position in gone if position < len(values)]:
            tree.clear(position)
            values[position] = math.inf
    tree.check()
    assert len(tree) == len(values)
    assert list(tree.levels[0]) == values
    assert tree.least() == min(values, default=math.inf)
    for limit, place in asked:
        below = [position for position, value in enumerate(values) if value < limit]
        assert tree.first_below(limit, place) == next((p for p in below if p >= place), -1)
        stop = min(place, len(values))
        assert tree.last_below(limit, stop) == next((p for p in reversed(below) if p < stop), -1)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 255, 256, 257, 4096, 4097, 70_000])
def test_a_tree_of_any_size_has_one_node_at_the_top_and_finds_its_ends(size: int) -> None:
    tree = MinTree()
    tree.extend([1.0] * size)
    tree.check()
    for position in (0, size // 2, size - 1):
        grown = MinTree()
        grown.extend([1.0] * position)
        grown.extend([0.5])
        grown.extend([1.0] * (size - position - 1))
        grown.check()
        assert (grown.first_below(1.0, 0), grown.last_below(1.0, size)) == (position, position)
        assert grown.least() == 0.5
        grown.clear(position)
        grown.check()
        assert grown.least() == (1.0 if size > 1 else math.inf)


class Slow:
    """A waiting queue as a list of (task, runtime) in the order of arrival."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.rows: list[tuple[int, float]] = []

    def in_order(self) -> list[tuple[int, float]]:
        if self.order == "longest-first":
            return sorted(self.rows, key=lambda row: -row[1])
        return self.rows[::-1] if self.order == "newest-first" else self.rows

    def in_front(self, runtime: float, entry: Entry) -> bool:
        """Whether a task that comes now is in front of ``entry``."""
        return self.order == "newest-first" or (self.order == "longest-first" and runtime > entry.runtime)

    def fits(self, limit: float) -> list[int]:
        return [task for task, runtime in self.in_order() if runtime < limit]

    def remove(self, task: int) -> None:
        self.rows = [row for row in self.rows if row[0] != task]


class QueueMachine(RuleBasedStateMachine):
    """Every operation of a waiting queue, in any order, on the queue and on the list."""

    gone = Bundle("gone")

    @initialize(
        order=st.sampled_from(sorted(ORDERS)), leaf=st.sampled_from([4, 8, 1024]), step=st.sampled_from([1, 2500])
    )
    def start(self, order: str, leaf: int, step: int) -> None:
        longest_first.PREDICTED_RUNS = step
        self.queue: WaitingQueue = ORDERS[order]()
        if isinstance(self.queue, LongestFirst):
            self.queue._runs = RuntimeIndex(leaf)
        self.slow = Slow(order)
        self.next = 0

    def settled(self) -> bool:
        """Whether each task has the runtime that it was last given, as the scheduler waits for it."""
        return not self.queue.predicting

    @precondition(settled)
    @rule(runtimes=st.lists(VALUES, max_size=40))
    def add(self, runtimes: list[float]) -> None:
        tasks = list(range(self.next, self.next + len(runtimes)))
        self.next += len(runtimes)
        self.queue.add(grouped(tasks, runtimes))
        self.slow.rows += zip(tasks, runtimes, strict=True)

    @precondition(settled)
    @rule(count=st.integers(1, 40), runtime=VALUES)
    def add_a_bag(self, count: int, runtime: float) -> None:
        self.add([runtime] * count)

    @precondition(settled)
    @rule(limit=LIMITS, share=st.integers(1, 4))
    def take_those_alike(self, limit: float, share: int) -> None:
        """Take the first, and with it some of those that are said to be like it, or all."""
        entry = self.queue.next_fit(limit)
        if entry is not None:
            together = range(entry.task, entry.task + -(-entry.alike // share))
            rows = [row for row in self.slow.in_order() if row[1] < limit][: len(together)]
            assert rows == [(task, entry.runtime) for task in together]
            self.queue.take(entry, len(together))
            for task in together:
                self.slow.remove(task)

    @precondition(settled)
    @rule(limit=LIMITS, data=st.data())
    def walk_and_take(self, limit: float, data: st.DataObject) -> None:
        """Walk from the front, as policies do, take some of what is met, and let others come meanwhile."""
        taken = data.draw(st.sets(st.sampled_from(self.slow.fits(limit)))) if self.slow.fits(limit) else set()
        comes = data.draw(st.integers(0, 20))
        passed: set[int] = set()
        entry: Entry | None = None
        while (entry := self.queue.next_fit(limit, entry)) is not None:
            assert entry.task == next(task for task in self.slow.fits(limit) if task not in passed)
            assert (entry.task, entry.runtime) in self.slow.rows
            passed.add(entry.task)
            if entry.task in taken:
                self.queue.take(entry)
                self.slow.remove(entry.task)
            if len(passed) == comes:
                first, runtimes = self.next, data.draw(st.lists(VALUES, max_size=10))
                self.add(runtimes)
                passed |= {task for task, new in enumerate(runtimes, first) if self.slow.in_front(new, entry)}
        assert passed.issuperset(self.slow.fits(limit))

    @rule(target=gone, data=st.data())
    def discard(self, data: st.DataObject) -> tuple[int, float]:
        """Some task leaves without having been met."""
        if not self.slow.rows:
            return (-1, 0.0)
        task, runtime = data.draw(st.sampled_from(self.slow.rows))
        self.queue.discard(task)
        self.slow.remove(task)
        return (task, runtime)

    @rule(first=st.integers(0, 400), many=COUNTS)
    def discard_many(self, first: int, many: int) -> None:
        """Those of a range of tasks that are here leave at once."""
        here = [task for task, _ in self.slow.rows if first <= task < first + many]
        for span in spans_of(sorted(here)):
            self.queue.discard(*span)
        for task in here:
            self.slow.remove(task)

    @rule(data=st.data())
    def predict_each(self, data: st.DataObject) -> None:
        """Tasks take runtimes of their own."""
        if not self.slow.rows:
            return
        tasks = data.draw(st.sets(st.sampled_from([task for task, _ in self.slow.rows]), min_size=1, max_size=12))
        news = {task: data.draw(VALUES) for task in sorted(tasks)}
        before = dict(self.slow.rows)
        old = {before[task] for task in news}
        self.queue.predict([(task, 1) for task in news], old, news.__getitem__)
        self.slow.rows = [(task, news.get(task, runtime)) for task, runtime in self.slow.rows]

    @precondition(settled)
    @rule(row=gone, runtime=VALUES)
    def come_back(self, row: tuple[int, float], runtime: float) -> None:
        """A task that was discarded is added again, to the end."""
        if row[0] >= 0 and row[0] not in [task for task, _ in self.slow.rows]:
            self.queue.add(grouped([row[0]], [runtime]))
            self.slow.rows.append((row[0], runtime))

    @rule(
        firsts=st.sets(st.integers(0, 100), min_size=1, max_size=4),
        old=st.sets(VALUES, max_size=2),
        new=VALUES,
        many=COUNTS,
    )
    def predict(self, firsts: set[int], old: set[float], new: float, many: int) -> None:
        spans = joined([(first, min(many, after - first)) for first, after in pairwise([*sorted(firsts), 1000])])
        self.queue.predict(spans, old, lambda task: new)
        chosen = {task for first, count in spans for task in range(first, first + count)}
        here = [runtime in old and task in chosen for task, runtime in self.slow.rows]
        pairs = zip(self.slow.rows, here, strict=True)
        self.slow.rows = [(task, new if changed else runtime) for (task, runtime), changed in pairs]

    @rule()
    def tidy(self) -> None:
        self.queue.tidy()

    @rule()
    def compact(self) -> None:
        """As `tidy` does where it pays."""
        if isinstance(self.queue, OldestFirst | NewestFirst):
            self.queue._compact()

    @rule(leaves=st.integers(1, 4))
    def sift(self, leaves: int) -> None:
        """The same of the longest first, a few leaves at a time; anything may happen in between."""
        if not isinstance(self.queue, LongestFirst):
            return
        if self.queue._gone and not self.queue._sifted:
            self.queue._begin_to_sift()
        if self.queue._sifted:
            self.queue._sift(leaves)

    @precondition(settled)
    @rule(limit=LIMITS)
    def pop_before(self, limit: float) -> None:
        """What was passed over goes to another queue."""
        if not isinstance(self.queue, OldestFirst):
            return
        entry = self.queue.next_fit(limit)
        end = len(self.slow.rows)
        if entry is not None:
            end = [task for task, _ in self.slow.rows].index(entry.task)
            assert self.queue.first_before(entry) or end == 0
        popped, self.slow.rows = self.slow.rows[:end], self.slow.rows[end:]
        rows = zip(*self.queue.pop_before(entry), strict=True)
        assert [(task, runtime) for first, held, runtime in rows for task in range(first, first + held)] == popped
        if entry is not None:
            self.queue.take(entry)
            self.slow.remove(entry.task)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "queue"):
            return
        self.queue.check()
        assert len(self.queue) == len(self.slow.rows)
        if not self.settled():
            assert [task for task, _ in self.queue.tasks()] == [task for task, _ in self.slow.rows]
            return
        assert list(self.queue.tasks()) == self.slow.rows
        ascending = sorted(runtime for _, runtime in self.slow.rows)
        assert self.queue.ascending(len(ascending)) == ascending
        assert self.queue.ascending(3) == ascending[:3]
        assert self.queue.shortest() <= min((runtime for _, runtime in self.slow.rows), default=math.inf)

    def teardown(self) -> None:
        longest_first.PREDICTED_RUNS = PREDICTED_RUNS


TestQueues = QueueMachine.TestCase


class RegularMachine(RuleBasedStateMachine):
    """The regular queue, whose tasks have ascending numbers, and from which ranges are dropped and predicted."""

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.slow, self.next = Regular(), dict[int, float](), 0

    @rule(runtimes=st.lists(VALUES, min_size=1, max_size=40), skipped=st.integers(0, 3))
    def add(self, runtimes: list[float], skipped: int) -> None:
        tasks = list(range(self.next + skipped, self.next + skipped + len(runtimes)))
        self.next = tasks[-1] + 1
        self.queue.add(grouped(tasks, runtimes))
        self.slow.update(zip(tasks, runtimes, strict=True))

    @rule(count=st.integers(1, 60), runtime=VALUES)
    def add_a_bag(self, count: int, runtime: float) -> None:
        self.add([runtime] * count, 0)

    @rule(first=st.integers(0, 300), many=st.integers(1, 80))
    def drop(self, first: int, many: int) -> None:
        """What was here is not; the ranges of the others are said, each once."""
        others = self.queue.drop(first, many)
        said = [task for begin, count in others for task in range(begin, begin + count)]
        assert sorted(said) == [task for task in range(first, first + many) if task not in self.slow]
        self.slow = {task: runtime for task, runtime in self.slow.items() if not first <= task < first + many}

    @rule(limit=LIMITS, walked=st.integers(0, 6))
    def take(self, limit: float, walked: int) -> None:
        """One from within a run, perhaps: that leaves a ghost."""
        entry = self.queue.next_fit(limit)
        for _ in range(walked):
            entry = entry and self.queue.next_fit(limit, entry)
        if entry is not None:
            self.queue.take(entry)
            assert self.slow.pop(entry.task) == entry.runtime

    @rule(data=st.data(), many=st.integers(1, 20))
    def predict(self, data: st.DataObject, many: int) -> None:
        if not self.slow:
            return
        first = data.draw(st.sampled_from(sorted(self.slow)))
        chosen = [task for task in range(first, first + many) if task in self.slow]
        news = {task: data.draw(VALUES) for task in chosen[:: data.draw(st.integers(1, 3))]}
        old = {self.slow[task] for task in news}
        self.queue.predict([(task, 1) for task in news], old, news.__getitem__)
        self.slow.update(news)

    @rule(first=st.integers(0, 300), many=st.integers(30, 200), new=VALUES)
    def predict_a_range(self, first: int, many: int, new: float) -> None:
        self.queue.predict([(first, many)], set(self.slow.values()), lambda task: new)
        self.slow.update({task: new for task in self.slow if first <= task < first + many})

    @rule()
    def behead(self) -> None:
        """As `tidy` does where it pays."""
        self.queue._behead()

    @invariant()
    def agrees(self) -> None:
        self.queue.check()
        assert dict(self.queue.tasks()) == self.slow
        assert len(self.queue) == len(self.slow)


TestRegular = RegularMachine.TestCase


def test_every_second_task_of_a_bag_leaves_without_cutting_it_into_runs() -> None:
    queue = Regular()
    queue.add(TaskRanges([0], [200_000], [5.0]))
    for task in range(1, 200_000, 2):
        assert queue.drop(task, 1) == []
    queue.tidy()
    queue.predict([(0, 200_000)], {5.0}, lambda task: 7.0)
    assert (len(queue), len(queue._firsts), queue.shortest()) == (100_000, 1, 7.0)
    popped = queue.pop_before(None, 1000)
    assert (popped.firsts, popped.runtimes) == ([*range(0, 2000, 2)], [7.0] * 1000)
    assert (len(queue), queue.next_fit(8.0)) == (99_000, Entry((0.0, 0), 2000, 7.0))
    queue.check()


def test_a_prediction_for_many_runs_goes_on_while_the_queue_is_tidied() -> None:
    queue = LongestFirst()
    queue.add(grouped(range(0, 20_000, 2), [5.0] * 10_000))
    queue.predict([(0, 20_000)], {5.0}, lambda task: 7.0)
    rounds = 1
    while queue.predicting:
        assert queue.tidy() is not queue.predicting
        queue.check()
        rounds += 1
    assert rounds > 3
    assert queue.ascending(20_000) == [7.0] * 10_000


def test_something_is_before_an_entry_of_the_second_queue_if_the_first_holds_a_task() -> None:
    queues = Regular(), Regular()
    queues[0].add(TaskRanges([0], [1], [9.0]))
    queues[1].add(TaskRanges([1], [2], [1.0]))
    both = RegularQueues(queues, lambda task: min(task, 1))
    entry, first = both.next_fit(2.0), queues[0].next_fit(math.inf)
    assert entry is not None
    assert first is not None
    assert both.first_before(entry)
    queues[0].take(first)
    assert not both.first_before(entry)


@pytest.mark.parametrize("size", [1, 16, 17, 5000, 70_000, 1_200_000])
def test_the_first_values_of_a_tree_are_dropped_in_thousands(size: int) -> None:
    tree = MinTree()
    tree.extend([float(value % 1000) for value in range(size)])
    for most in (0, size // 2, size):
        dropped = tree.behead(most)
        assert 0 <= most - dropped < 4096
        tree.check()
    assert len(tree) < 4096


def test_a_part_of_a_tree_is_filled() -> None:
    tree = MinTree()
    tree.extend([5.0] * 5000)
    tree.fill(17, [1.0] * 3001)
    tree.check()
    assert (tree.first_below(5.0, 0), tree.last_below(5.0, 5000)) == (17, 3017)


def test_a_queue_whose_first_half_is_cancelled_forgets_it_without_a_look_at_the_rest() -> None:
    queue = Regular()
    queue.add(grouped(range(20_000), [float(task % 7) for task in range(20_000)]))
    assert queue.drop(0, 12_000) == []
    queue.tidy()
    assert len(queue._firsts) < 13_000
    queue.check()
    assert [task for task, _ in queue.tasks()] == list(range(12_000, 20_000))


@given(held=st.sets(st.integers(0, 60)), gone=st.sets(st.integers(0, 60)))
def test_the_regular_queue_knows_which_tasks_it_holds(held: set[int], gone: set[int]) -> None:
    queue = Regular()
    queue.add(grouped(sorted(held), [1.0] * len(held)))
    for number, task in enumerate(sorted(gone & held)):
        if number % 2:
            queue.discard(task)
    met = None
    while (met := queue.next_fit(math.inf, met)) is not None:
        if met.task in gone:
            queue.take(met)
    assert [task for task in range(62) if queue.holds(task)] == sorted(held - gone)


def ghosts(queue: OldestFirst | NewestFirst | LongestFirst) -> int:
    """How many entries of discarded tasks there are."""
    return queue._ghosts if isinstance(queue, LongestFirst) else queue._gone.size


@pytest.mark.parametrize("kind", [OldestFirst, NewestFirst, LongestFirst])
def test_room_is_made_when_meeting_the_discarded_would_cost_more(
    kind: type[OldestFirst | NewestFirst | LongestFirst],
) -> None:
    queue = kind()
    queue.add(grouped(range(40_000), [float(task % 7) for task in range(40_000)]))
    for task in range(2500):
        queue.discard(task)
    queue.tidy()
    assert ghosts(queue) == 2500
    queue.discard(2500)
    for _ in range(4):
        queue.tidy()
    assert ghosts(queue) == 0
    queue.check()
    assert [task for task, _ in queue.tasks()] == list(range(2501, 40_000))


def test_tasks_that_come_and_are_discarded_over_and_over_leave_little_behind() -> None:
    queue = LongestFirst()
    queue.add(grouped(range(10), [9.0] * 10))
    for _ in range(1000):
        for task in range(5):
            queue.discard(task)
            queue.add(grouped([task], [1.0]))
        queue.tidy()
        assert ghosts(queue) <= 1024
    queue.check()
    assert sorted(queue.tasks()) == [(task, 1.0 if task < 5 else 9.0) for task in range(10)]


def test_tasks_in_a_row_between_which_another_came_keep_their_places() -> None:
    queue = LongestFirst()
    for task, runtime in ((1, 60.0), (7, 5.0), (2, 60.0)):
        queue.add(grouped([task], [runtime]))
    assert list(queue.tasks()) == [(1, 60.0), (7, 5.0), (2, 60.0)]


def test_what_is_known_of_the_discarded_is_forgotten_with_the_last_ghost() -> None:
    queue = LongestFirst()
    queue.add(grouped(range(4), [4.0, 3.0, 2.0, 1.0]))
    queue.discard(0)
    queue.discard(2)
    first = queue.next_fit(math.inf)
    assert first is not None
    assert (first.task, ghosts(queue), len(queue._gone)) == (1, 1, 2)
    second = queue.next_fit(math.inf, first)
    assert second is not None
    assert (second.task, ghosts(queue), len(queue._gone)) == (3, 0, 0)


def test_room_is_made_when_most_of_a_queue_was_taken() -> None:
    queue = OldestFirst()
    for batch in range(30):
        queue.add(grouped(range(1000 * batch, 1000 * batch + 1000), [1.0] * 1000))
        while (entry := queue.next_fit(math.inf)) is not None:
            queue.take(entry)
        queue.tidy()
        assert len(queue._firsts) <= 1024
    queue.check()


def test_a_cursor_stays_valid_for_the_longest_first_while_others_are_taken() -> None:
    queue = LongestFirst()
    queue.add(grouped(range(6), [5.0, 5.0, 3.0, 3.0, 1.0, 1.0]))
    entry = queue.next_fit(5.0)
    assert entry is not None
    assert entry.task == 2
    queue.take(entry)
    after = queue.next_fit(100.0, entry)
    assert after is not None
    assert after.task == 3
    shorter = queue.next_fit(3.0, after)
    assert shorter is not None
    assert shorter.task == 4


def test_what_is_in_front_of_a_task_met_within_a_run_is_taken_out_without_ghosts() -> None:
    queue = OldestFirst()
    queue.add(TaskRanges([0], [5], [1.0]))
    entry = None
    for _ in range(3):
        entry = queue.next_fit(math.inf, entry)
    queue.discard(1)
    assert entry is not None
    assert queue.first_before(entry)
    assert queue.pop_before(entry) == TaskRanges([0], [1], [1.0])
    queue.check()
    assert [task for task, _ in queue.tasks()] == [2, 3, 4]


@given(places=st.sets(st.integers(0, 400)))
def test_places_are_dropped_from_lists_however_scattered(places: set[int]) -> None:
    rows, others = list(range(401)), [str(number) for number in range(401)]
    drop_places(sorted(places), rows, others)
    assert rows == [number for number in range(401) if number not in places]
    assert others == [str(number) for number in rows]


def test_scattered_places_are_dropped_together() -> None:
    rows = list(range(1000))
    drop_places(range(0, 1000, 2), rows)
    assert rows == list(range(1, 1000, 2))


def test_a_range_is_dropped_that_begins_before_the_first_run_that_is_left() -> None:
    queue = Regular()
    queue.add(TaskRanges([0, 1, 2, 3, 4, 5], [1] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    assert queue.drop(0, 1) == []
    assert queue.drop(0, 5) == [(0, 1)]
    queue.check()
    assert [task for task, _ in queue.tasks()] == [5]
    entry = queue.next_fit(math.inf)
    assert entry is not None
    assert entry.task == 5


def test_tasks_in_the_middle_of_a_run_are_taken_out_of_the_regular_queue() -> None:
    queue = Regular()
    queue.add(TaskRanges([0], [10], [1.0]))
    assert queue.drop(3, 2) == []
    assert [task for task, _ in queue.tasks()] == [0, 1, 2, 5, 6, 7, 8, 9]
    queue.check()


@pytest.mark.parametrize("order", ORDERS)
def test_a_queue_takes_another_order_run_by_run_however_many_tasks_a_run_has(order: str) -> None:
    queue = ORDERS[order]()
    queue.add(TaskRanges([5, 10_000_005], [10_000_000, 3], [2.0, 4.0]))
    assert queue.rows() == TaskRanges([5, 10_000_005], [10_000_000, 3], [2.0, 4.0])
    few = ORDERS[order]()
    few.add(TaskRanges([5, 15], [10, 3], [2.0, 4.0]))
    few.discard(7, 2)
    assert few.rows() == TaskRanges([5, 9, 15], [2, 6, 3], [2.0, 2.0, 4.0])


@pytest.mark.parametrize("order", [OldestFirst, NewestFirst])
def test_a_prediction_for_tasks_that_are_all_discarded_leaves_the_others_as_they_are(
    order: type[OldestFirst | NewestFirst],
) -> None:
    queue = order()
    queue.add(TaskRanges([0], [10], [2.0]))
    queue.discard(3, 3)
    queue.predict([(3, 3)], {2.0}, lambda task: 5.0)
    assert sorted(task for task, _ in queue.tasks()) == [0, 1, 2, 6, 7, 8, 9]
    assert {runtime for _, runtime in queue.tasks()} == {2.0}
    queue.check()
