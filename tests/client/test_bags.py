"""Bags of a fake broker: what is sent, and what comes back."""

import gc
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.client import submission
from deskgrid.client.bag import Bag
from deskgrid.client.grid import Grid
from deskgrid.client.logs import TaskLog
from deskgrid.client.progress import Progress
from deskgrid.client.replies import ANSWER_S, Waiter
from deskgrid.client.task import task
from deskgrid.client.template import PYTHON
from deskgrid.client.whatif import Change
from deskgrid.errors import BagRejected, PicklingFailed, RemoteTraceback, RequestFailed, TaskCancelled
from deskgrid.wire import Outcome
from tests.client.fakebroker import FakeGrid
from tests.waiting import PATIENCE_S, eventually


def double(x: int) -> int:
    return 2 * x


def picky(x: int) -> int:
    if x < 0:
        raise ValueError(f"negative: {x}")
    return x


# --- results ---------------------------------------------------------------------------------------------------------


def test_results_are_in_the_order_of_the_items(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [10, 20, 30])
    fake.broker.run(bag.id, 2, 0, 1)
    assert bag.results() == [20, 40, 60]
    assert len(bag) == 3


def test_results_come_with_their_items_as_tasks_end(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [10, 20, 30])
    pairs = bag.as_completed()
    for item, pair in [(2, (30, 60)), (0, (10, 20)), (1, (20, 40))]:
        fake.broker.run(bag.id, item)
        assert next(pairs) == pair
    assert list(pairs) == []


def test_results_can_be_asked_for_again(grid: Grid) -> None:
    bag = grid.bag(double, [1, 2])
    assert bag.results() == bag.results() == [2, 4]
    assert list(bag.as_completed()) == [(1, 2), (2, 4)]


def test_items_that_were_not_held_are_given_by_their_index(grid: Grid) -> None:
    bag = grid.bag(double, (n for n in [10, 20]))
    assert list(bag.as_completed()) == [(0, 20), (1, 40)]


def test_a_failure_is_raised_when_all_others_have_come(grid: Grid) -> None:
    pairs = grid.bag(picky, [1, -1, 2, -2, 3]).as_completed()
    assert [next(pairs), next(pairs), next(pairs)] == [(1, 1), (2, 2), (3, 3)]
    with pytest.raises(ValueError, match="negative: -1") as caught:
        next(pairs)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert any("2 tasks failed" in note for note in caught.value.__notes__)


def test_failures_can_be_had_in_the_place_of_results(grid: Grid) -> None:
    bag = grid.bag(picky, [1, -1])
    (_, first), (item, second) = bag.as_completed(errors="return")
    assert (first, item, type(second)) == (1, -1, ValueError)
    assert [type(value) for value in bag.results(errors="return")] == [int, ValueError]


def test_the_list_of_results_fails_as_soon_as_a_task_does_and_the_rest_goes_on(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(picky, [1, -1])
    fake.broker.run(bag.id, 1)
    with pytest.raises(ValueError, match="negative"):
        bag.results()
    fake.broker.run(bag.id, 0)
    assert bag.results(errors="return")[0] == 1


def test_a_word_that_is_no_way_to_treat_errors_is_refused_at_once(grid: Grid) -> None:
    bag = grid.bag(double, [1])
    with pytest.raises(ValueError, match='errors is "raise" or "return", not'):
        bag.as_completed(errors="ignore")  # type: ignore[call-overload] # that is the test


def test_more_results_than_one_answer_carries_all_come(grid: Grid) -> None:
    count = 2 * wire.BATCH_ROWS + 5
    assert grid.bag(double, range(count)).results() == [2 * n for n in range(count)]


def test_a_loop_that_is_left_early_waits_for_nothing(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1, 2])
    fake.broker.run(bag.id, 0)
    for _ in bag.as_completed():
        break
    gc.collect()
    assert bag.progress().done == 1


def test_an_interrupted_wait_leaves_the_bag_usable(fake: FakeGrid, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1, 2])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Waiter, "get", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bag.results()
    assert fake.memory.asked("cancel") == []
    fake.broker.run(bag.id, 0, 1)
    assert bag.results() == [2, 4]


@pytest.mark.parametrize("sent", [0, 1])
def test_an_interrupted_submission_says_whether_tasks_were_sent(fake: FakeGrid, grid: Grid, sent: int) -> None:
    def items() -> Iterator[int]:
        yield from range(sent * (wire.BATCH_ROWS + 1))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        grid.bag(double, items())
    notes = ["the tasks that were already sent are cancelled"] * sent
    assert (getattr(stopped.value, "__notes__", []), len(fake.memory.asked("cancel"))) == (notes, sent)


def test_an_interrupted_submission_that_cannot_be_cancelled_says_how_to(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def items() -> Iterator[int]:
        yield from range(wire.BATCH_ROWS + 1)
        monkeypatch.setattr("deskgrid.client.submission.ask", interrupted)  # the second Ctrl-C
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        grid.bag(double, items())
    (note,) = stopped.value.__notes__
    assert note.startswith("the tasks that were already sent may run; cancel them with deskgrid cancel ")


def reachable_bytes(root: object) -> int:
    """The size of everything that ``root`` keeps alive, but for code, classes and threads' own."""
    sizes: dict[int, int] = {}
    to_see = [root]
    while to_see:
        thing = to_see.pop()
        if id(thing) not in sizes and not isinstance(thing, ModuleType | FunctionType | type | threading.Thread):
            sizes[id(thing)] = sys.getsizeof(thing)
            to_see += gc.get_referents(thing)
    return sum(sizes.values())


@pytest.mark.parametrize("make", [list, iter])
def test_a_handle_holds_next_to_nothing_for_each_task(grid: Grid, make: Any) -> None:
    def held(count: int) -> int:
        bag = grid.bag(double, make(range(1000, 1000 + count)))
        assert sum(1 for _ in bag.as_completed()) == count
        return reachable_bytes(bag)

    assert held(5_100) - held(100) < 50 * 5_000


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_a_bag_is_its_template_and_its_arguments(fake: FakeGrid, grid: Grid) -> None:
    bag = grid.bag(double, [3, 4], runtime=45, name="sweep", timeout=90, retries=2)
    (blob,), (submit,) = fake.memory.of(wire.Blob), fake.memory.of(wire.Submit)
    assert submit.template == blob.digest
    assert [pickle.loads(payload) for payload in submit.payloads] == [((3,), {}), ((4,), {})]
    assert (submit.bag, submit.name, submit.runtime, submit.runtimes) == (bag.id, "sweep", 45.0, ())
    assert (submit.options, submit.first, submit.last) == (wire.TaskOptions(90.0, 2, python=PYTHON), 0, True)


def test_a_bag_without_a_name_has_the_functions(grid: Grid) -> None:
    assert grid.bag(double, [1]).name == "double"


def test_a_name_may_be_as_long_as_brokers_take_it(fake: FakeGrid, grid: Grid) -> None:
    with pytest.raises(BagRejected, match="the name has more than 255 bytes: 'nnn"):
        grid.bag(double, [1], name="n" * 256)
    assert not fake.memory.of(wire.Submit)
    assert grid.bag(double, [1], name="é" * 127).name == "é" * 127


@pytest.mark.parametrize("runtime", [[1, 2, 3], lambda item: item / 10])
def test_runtimes_that_differ_go_with_the_items(fake: FakeGrid, grid: Grid, runtime: Any) -> None:
    grid.bag(double, [10, 20, 30], runtime=runtime)
    (submit,) = fake.memory.of(wire.Submit)
    assert (submit.runtime, submit.runtimes) == (None, (1.0, 2.0, 3.0))


def test_a_task_brings_its_prediction(fake: FakeGrid, grid: Grid) -> None:
    job = task(double, runtime=30, timeout=60, retries=1, copies=True)
    assert job(4) == 8
    assert grid.bag(job, [1]).results() == [2]
    grid.bag(job, [1], runtime=7, timeout=8, retries=0, copies=False)
    first, second = fake.memory.of(wire.Submit)
    assert (first.runtime, first.options) == (30.0, wire.TaskOptions(60.0, 1, copies=True, python=PYTHON))
    assert (second.runtime, second.options) == (7.0, wire.TaskOptions(8.0, 0, python=PYTHON))


def test_a_generator_is_taken_no_faster_than_the_broker_accepts(fake: FakeGrid, grid: Grid) -> None:
    taken = 0
    accepting = threading.Event()
    fake.broker.lose = lambda message: isinstance(message, wire.Accepted) and not accepting.wait(PATIENCE_S)

    def items() -> Iterator[int]:
        nonlocal taken
        for n in range(20 * wire.BATCH_ROWS):
            taken = n
            yield n

    fake.memory.hold = True
    submitting = threading.Thread(target=grid.bag, args=(double, items()))
    submitting.start()
    assert eventually(lambda: taken >= submission.WINDOW * wire.BATCH_ROWS)
    submitting.join(0.3)  # time enough to take them all, if it would
    ahead = taken
    accepting.set()
    submitting.join(PATIENCE_S)
    assert ahead <= (submission.WINDOW + 1) * wire.BATCH_ROWS
    assert taken == 20 * wire.BATCH_ROWS - 1


def test_a_command_goes_with_the_text_of_each_item(fake: FakeGrid, grid: Grid) -> None:
    bag = grid.command(["convert", "{}"], ["a.png", "b.png"], runtime=20)
    (submit,) = fake.memory.of(wire.Submit)
    assert submit.payloads == (b"a.png", b"b.png")
    assert (bag.name, submit.runtime) == ("convert", 20.0)
    assert list(bag.as_completed()) == [("a.png", "convert {} a.png"), ("b.png", "convert {} b.png")]


def test_what_the_broker_notes_is_kept_and_logged(fake: FakeGrid, grid: Grid, caplog: pytest.LogCaptureFixture) -> None:
    fake.memory.note = "1 task is longer than any window"
    assert grid.bag(double, [1]).note == "1 task is longer than any window"
    assert "longer than any window" in caplog.text


# --- what is refused -------------------------------------------------------------------------------------------------


def test_one_text_is_no_items_of_a_command(grid: Grid) -> None:
    with pytest.raises(BagRejected, match=r"are texts, such as \['abc'\], not one text"):
        grid.command(["echo"], "abc")


@pytest.mark.parametrize("explore", [False, True])
@pytest.mark.parametrize("items", [[], iter([])])
def test_an_empty_bag_has_ended(fake: FakeGrid, grid: Grid, items: Any, explore: bool) -> None:
    for bag in (grid.bag(double, items, explore=explore), grid.command(["true"], items)):
        assert (len(bag), bag.results(), list(bag.as_completed()), bag.wait(0), bag.fetch()) == (0, [], [], True, [])
        assert (bag.progress().total, bag.eta().high, bag.cancel(), list(bag.follow())) == (0, 0.0, 0, [])
        assert "empty" in bag.explain()
        assert str(bag.advise()) == bag.advise().line() == "it has ended"
        assert [str(row) for row in grid.whatif(bag, Change(more=1))] == ["it has ended"] * 2
        for order in (bag.pause, bag.resume, bag.forget, lambda bag=bag: bag.update_runtimes({})):
            order()
        questions: list[Callable[[], object]] = [
            partial(bag.logs, 0),
            partial(bag.explain, 0),
            partial(next, bag.follow(0)),
        ]
        for question in questions:
            with pytest.raises(RequestFailed, match="no item 0"):
                question()
        assert grid.bag(double, [1], after=bag).results() == [2]
    assert [submit.options.after for submit in fake.memory.of(wire.Submit)] == [(), ()]


def test_results_that_do_not_come_in_time_are_a_timeout_and_the_bag_goes_on(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1, 2])
    fake.broker.run(bag.id, 0)
    with pytest.raises(TimeoutError, match=r"1 of 2 tasks of .* have not ended"):
        bag.results(timeout=0.2)
    found = bag.as_completed(timeout=0.2)
    assert next(found) == (1, 2)
    with pytest.raises(TimeoutError):
        next(found)
    fake.broker.run(bag.id, 1)
    assert bag.results("1min") == [2, 4]


def test_seconds_may_be_texts(fake: FakeGrid, grid: Grid) -> None:
    grid.bag(task(double, runtime="1h", timeout="1h30min"), [1], checkpoint=True, min_piece="2min")
    grid.bag(double, [1, 2], runtime=["90s", 3])
    grid.bag(double, [1], runtime=lambda item: "2 min", timeout="1d")
    one, two, three = fake.memory.of(wire.Submit)
    assert (one.runtime, one.options.timeout, one.options.min_piece) == (3600.0, 5400.0, 120.0)
    assert (two.runtimes, three.runtimes, three.options.timeout) == ((90.0, 3.0), (120.0,), 86_400.0)
    with pytest.raises(BagRejected, match='such as "90s" or "1h30min": \'soon\''):
        grid.bag(double, [1], runtime="soon")


def test_what_cannot_be_called_is_refused(grid: Grid) -> None:
    with pytest.raises(TypeError, match="a task is something that can be called, not 3"):
        grid.bag(3, [1])  # type: ignore[call-overload] # that is the test


@pytest.mark.parametrize("endless", [False, True])
def test_a_bag_above_the_limit_is_refused(
    fake: FakeGrid, grid: Grid, monkeypatch: pytest.MonkeyPatch, endless: bool
) -> None:
    monkeypatch.setattr(wire, "BAG_LIMIT", 10)
    with pytest.raises(BagRejected, match="more than 10 items"):
        grid.bag(double, iter(range(11)) if endless else range(11))
    assert fake.memory.bags == {}


def test_an_unpicklable_item_is_named_before_anything_is_sent(fake: FakeGrid, grid: Grid) -> None:
    with pytest.raises(PicklingFailed, match="item 2 cannot be pickled"):
        grid.bag(bool, [1, 2, threading.Lock()])
    assert fake.memory.of(wire.Submit) == []


@pytest.mark.parametrize("bad", ["item", "runtime", "iterating", "interrupt"])
def test_what_goes_wrong_late_takes_back_what_was_sent(fake: FakeGrid, grid: Grid, bad: str) -> None:
    fake.memory.hold = True

    def items() -> Iterator[Any]:
        yield from range(2 * wire.BATCH_ROWS)
        assert eventually(lambda: bool(fake.memory.of(wire.Submit)))
        if bad == "iterating":
            raise OSError("the file ended")
        if bad == "interrupt":
            raise KeyboardInterrupt
        yield threading.Lock() if bad == "item" else -1

    def runtime(item: Any) -> float:
        return 1.0 if bad != "runtime" else item

    kinds = {"item": PicklingFailed, "runtime": BagRejected, "iterating": OSError, "interrupt": KeyboardInterrupt}
    with pytest.raises(kinds[bad]):
        grid.bag(bool, items(), runtime=runtime)
    (bag,) = fake.memory.bags.values()
    assert bag.closed
    assert {result.outcome for result in bag.results} == {Outcome.CANCELLED}
    assert len(bag.results) == len(bag.payloads)


def test_a_bag_that_the_broker_does_not_take_is_refused_in_its_words(fake: FakeGrid, grid: Grid) -> None:
    fake.broker.lose = lambda message: isinstance(message, wire.Blob)
    with pytest.raises(BagRejected, match="template: send it first") as refused:
        grid.bag(double, [1])
    assert not hasattr(refused.value, "__notes__")  # nothing is left to cancel


# --- questions and orders --------------------------------------------------------------------------------------------


def test_progress_is_counted(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(picky, [1, -1, 2])
    fake.broker.run(bag.id, 0, 1)
    assert bag.progress() == Progress(
        total=3, done=1, failed=1, cancelled=0, running=0, waiting=1, eta_s=None, left_s=12.5
    )


def test_cancelling_says_how_many_and_their_results_are_errors(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1, 2, 3])
    fake.broker.run(bag.id, 0)
    assert bag.cancel() == 2
    assert [type(value) for value in bag.results(errors="return")] == [int, TaskCancelled, TaskCancelled]
    with pytest.raises(TaskCancelled):
        bag.results()


def test_a_bag_can_be_attached_to_from_elsewhere(fake: FakeGrid, grid: Grid) -> None:
    bag = grid.bag(double, [10, 20], name="sweep")
    with Grid(fake.line) as other:
        attached = other.attach(bag.id)
        assert (attached.id, attached.name, len(attached)) == (bag.id, "sweep", 2)
        assert list(attached.as_completed()) == [(0, 20), (1, 40)]
        assert repr(attached) == f"<Bag {bag.id} 'sweep': 2 tasks>"


def test_a_bag_that_nobody_knows_is_told(grid: Grid) -> None:
    with pytest.raises(RequestFailed, match="no bag abc"):
        grid.attach("abc")


def test_why_a_task_waits_is_told_in_lines(fake: FakeGrid, grid: Grid) -> None:
    fake.broker.answers["explain"] = {"text": ["it waits", "for a PC"]}
    bag = grid.bag(double, [1])
    assert bag.explain() == "it waits\nfor a PC"
    bag.explain(0)
    assert [args["item"] for args in fake.memory.asked("explain")] == [None, 0]


def test_what_a_task_printed_is_told(fake: FakeGrid, grid: Grid) -> None:
    log = TaskLog("done", "pc1", 1.5, "out", "err", None)
    fake.broker.answers["logs"] = {name: getattr(log, name) for name in TaskLog.__slots__}
    assert grid.bag(double, [1]).logs(0) == log
    assert fake.memory.asked("logs")[0]["item"] == 0


@pytest.mark.parametrize(
    "ask", [Bag.logs, Bag.explain, lambda bag, item: bag.fetch(item=item), lambda *a: next(Bag.follow(*a))]
)
def test_what_is_no_index_of_a_task_is_refused_before_anything_is_asked(grid: Grid, ask: Callable[..., object]) -> None:
    bag = grid.bag(double, [1, 2])
    with pytest.raises(RequestFailed, match=f"bag {bag.id} has no item -1: items are numbered from 0, and it has 2"):
        ask(bag, -1)
    with pytest.raises(TypeError, match="item is the index of a task, counted from 0, not 'x'"):
        ask(bag, "x")


def test_runtimes_can_be_predicted_anew(fake: FakeGrid, grid: Grid) -> None:
    fake.broker.answers["runtimes"] = {}
    bag = grid.bag(double, [1, 2])
    bag.update_runtimes({1: 90})
    assert fake.memory.asked("runtimes") == [{"bag": bag.id, "items": [1], "runtimes": [90.0]}]
    with pytest.raises(BagRejected, match="the runtime of item 0"):
        bag.update_runtimes({0: float("nan")})


def test_a_bag_can_be_forgotten(fake: FakeGrid, grid: Grid) -> None:
    fake.broker.answers["forget"] = {}
    bag = grid.bag(double, [1])
    bag.forget()
    assert fake.memory.asked("forget") == [{"bag": bag.id}]


def test_the_grid_is_asked_and_told(fake: FakeGrid, grid: Grid) -> None:
    fake.broker.answers = {"status": {"schema": 1}, "bags": {"bags": [{"bag": "a"}]}, "policy": {"policy": "fcfs"}}
    fake.broker.answers["forget learned"] = {}
    assert grid.status()["schema"] == 1
    assert [row["bag"] for row in grid.bags()] == ["a"]
    grid.policy("fcfs", queue_length=2)
    assert fake.memory.asked("policy") == [{"name": "fcfs", "options": {"queue_length": 2}}]
    grid.forget_learned()
    assert fake.memory.asked("forget learned") == [{}]


def test_what_cannot_travel_in_a_question_is_refused_with_a_sentence(grid: Grid) -> None:
    for margin in (10**400, object()):
        with pytest.raises(RequestFailed, match="'policy' cannot be asked like that: "):
            grid.policy("pgs", margin=margin)


def test_an_answer_that_cannot_be_read_is_an_error_of_ours(fake: FakeGrid, grid: Grid) -> None:
    bag = grid.bag(double, [1])
    for what, call in (("progress", bag.progress), ("explain", bag.explain), ("cancel", bag.cancel)):
        fake.broker.answers[what] = {"nothing": "useful"}
        with pytest.raises(RequestFailed, match="cannot be read"):
            call()


def test_a_question_without_an_answer_ends_with_the_address(fake: FakeGrid, grid: Grid) -> None:
    fake.broker.lose = lambda message: True
    start = time.monotonic()
    with pytest.raises(Exception, match=rf"the broker at 127\.0\.0\.1:{fake.broker.port} has not answered for 0\.05 s"):
        grid.status(timeout=0.05)
    assert time.monotonic() - start < ANSWER_S
    fake.broker.lose = lambda message: False
    fake.restart()
    fake.broker.answers["bags"] = {"bags": []}
    assert grid.bags() == []
    assert fake.memory.asked("status") == [], "asked again, for nobody"


def test_fetched_files_are_listed_in_the_order_of_the_items(
    fake: FakeGrid, grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = grid.bag(double, [1, 2, 3])
    fake.broker.run(bag.id, 2, 0, 1)
    monkeypatch.setattr(Bag, "_fetched", lambda self, row, folder: [folder])
    assert bag.fetch("to") == [Path("to/0"), Path("to/1"), Path("to/2")]
    assert bag.fetch("to", 1) == [Path("to")]


def test_a_bag_is_paused_and_resumed_and_shares_are_told(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    first = grid.bag(double, [1])
    bag = grid.bag(double, [1], priority=3, limit=2, licences={"m": 2, "a": 1}, after=first, when="ended")
    fake.broker.answers |= {"pause": {}, "resume": {}, "shares": {"shares": [{"share": "ann"}]}}
    bag.pause()
    bag.resume()
    assert grid.shares() == [{"share": "ann"}]
    assert [len(fake.memory.asked(what)) for what in ("pause", "resume")] == [1, 1]
    options = fake.memory.of(wire.Submit)[-1].options
    assert (options.priority, options.limit, options.licences) == (3, 2, ("a=1", "m=2"))
    assert (options.after, options.when) == ((first.id,), "ended")
