"""`concurrent.futures` on the grid, with a fake broker: submit, map and shutdown as documented."""

import gc
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ALL_COMPLETED, CancelledError, Future, as_completed, wait
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.client import call_stream
from deskgrid.client.bag_files import KnownFiles
from deskgrid.client.call_stream import WINDOW
from deskgrid.client.futures import OWN_BAGS
from deskgrid.client.grid import Grid
from deskgrid.client.payload import share
from deskgrid.client.task import task
from deskgrid.errors import (
    BagRejected,
    GridClosed,
    PicklingFailed,
    RemoteTraceback,
    RequestFailed,
    ResultUnreadable,
    TaskCrashed,
)
from deskgrid.wire import Outcome
from tests.client.fakebroker import FakeGrid
from tests.waiting import PATIENCE_S, eventually


def double(x: int) -> int:
    return 2 * x


def negated(x: int) -> int:
    return -x


def keyed(x: int, *, y: int) -> tuple[int, int]:
    return (x, y)


def failing(x: int) -> int:
    raise LookupError(x)


class Made:
    """What is made by ``make()`` when it is unpickled."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return self._make, ()


class Unpickled:
    """Knows on which thread it was made."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()


def unreadable() -> object:
    raise LookupError("nothing here")


def sent_calls(fake: FakeGrid) -> list[int]:
    """How many calls each message brought."""
    return [len(submit.payloads) for submit in fake.memory.of(wire.Submit)]


def fill(fake: FakeGrid, grid: Grid) -> list[Future[int]]:
    """As many batches of calls of `double` are on their way as may be, one call each; until the broker says more."""
    fake.broker.withhold = True
    futures: list[Future[int]] = []
    for n in range(WINDOW):
        futures.append(grid.submit(double, n))
        assert eventually(lambda: sent_calls(fake) == [1] * len(futures))
    return futures


# --- results ---------------------------------------------------------------------------------------------------------


def test_a_call_has_its_result(grid: Grid) -> None:
    assert grid.submit(double, 21).result(PATIENCE_S) == 42
    assert grid.submit(keyed, 1, y=2).result(PATIENCE_S) == (1, 2)


def test_an_exception_is_the_calls_own_with_its_remote_traceback(grid: Grid) -> None:
    error = grid.submit(failing, 3).exception(10)
    assert isinstance(error, LookupError)
    assert isinstance(error.__cause__, RemoteTraceback)


def test_what_befell_a_call_is_its_exception(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    future = grid.submit(double, 3)
    assert eventually(lambda: bool(fake.memory.bags))
    (bag,) = fake.memory.bags
    fake.broker.end(bag, 0, Outcome.CRASH, b"")
    assert isinstance(future.exception(10), TaskCrashed)


def test_futures_work_with_the_standard_librarys_functions(grid: Grid) -> None:
    futures = [grid.submit(double, n) for n in range(10)]
    assert sorted(future.result() for future in as_completed(futures, timeout=10)) == [2 * n for n in range(10)]
    assert wait(futures, timeout=10, return_when=ALL_COMPLETED).not_done == set()


def test_a_callback_may_ask_the_grid(fake: FakeGrid, grid: Grid) -> None:
    fake.broker.answers["status"] = {"schema": 1}
    told: list[Any] = []
    asked = threading.Event()

    def callback(future: Future[Any]) -> None:
        told.append((future.result(), grid.status()))
        asked.set()

    grid.submit(double, 1).add_done_callback(callback)
    assert asked.wait(PATIENCE_S)
    assert told == [(2, {"schema": 1})]


def test_a_callback_that_exits_leaves_the_other_futures_alone(
    fake: FakeGrid, grid: Grid, caplog: pytest.LogCaptureFixture
) -> None:
    def leave(future: Future[Any]) -> None:
        raise SystemExit

    # A future that has ended would call back at once, in this thread.
    added = threading.Event()
    fake.broker.lose = lambda message: isinstance(message, wire.Accepted) and not added.wait(PATIENCE_S)
    grid.submit(double, 1).add_done_callback(leave)
    added.set()
    assert grid.submit(negated, 1).result(PATIENCE_S) == -1
    assert eventually(lambda: "a callback of a future failed" in caplog.text)


def test_a_grid_that_only_its_future_holds_stays_open(fake: FakeGrid) -> None:
    fake.memory.hold = True
    future = Grid(fake.line).submit(double, 4)
    gc.collect()
    assert eventually(lambda: bool(fake.memory.bags))
    fake.broker.run(next(iter(fake.memory.bags)), 0)
    assert future.result(PATIENCE_S) == 8
    assert eventually(lambda: gc.collect() >= 0 and len(fake.memory.of(wire.Goodbye)) == 1)


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_the_first_calls_leave_at_once_and_those_that_follow_together(fake: FakeGrid, grid: Grid) -> None:
    futures = fill(fake, grid)
    futures += [grid.submit(double, n) for n in range(WINDOW, 100)]
    fake.broker.withhold = False
    assert [future.result(PATIENCE_S) for future in futures] == [2 * n for n in range(100)]
    assert sent_calls(fake) == [*[1] * WINDOW, 100 - WINDOW]
    assert [submit.first for submit in fake.memory.of(wire.Submit)] == [*range(WINDOW), WINDOW]


def test_calls_of_a_function_are_in_one_open_bag_that_closes_with_the_grid(fake: FakeGrid) -> None:
    with Grid(fake.line) as grid:
        for n in range(3):
            grid.submit(double, n).result(PATIENCE_S)
        (bag,) = fake.memory.bags.values()
        assert (len(bag.payloads), bag.name, bag.closed) == (3, "double", False)
    assert eventually(lambda: bag.closed)


def test_results_are_asked_for_once_and_no_more_after_the_last(fake: FakeGrid) -> None:
    with Grid(fake.line) as grid:
        for n in range(3):
            grid.submit(double, n).result(PATIENCE_S)
        asked = fake.memory.asked_for_results
        assert eventually(lambda: len(asked()) == 4)
    assert asked() == [0, 1, 2, 3]


def test_a_result_is_unpickled_once_and_by_whoever_wants_it(fake: FakeGrid, grid: Grid) -> None:
    future = grid.submit(Made, Unpickled)
    assert eventually(future.done)
    value = future.result(PATIENCE_S)
    assert value.thread is threading.current_thread()
    assert future.exception(10) is None
    assert future.result(PATIENCE_S) is value


def test_a_result_that_cannot_be_unpickled_is_an_error_whichever_way_one_asks(grid: Grid) -> None:
    future = grid.submit(Made, unreadable)
    with pytest.raises(ResultUnreadable, match="cannot be unpickled") as caught:
        future.result(PATIENCE_S)
    assert future.exception(10) is caught.value
    assert wait([future], 10).done == {future}


def test_callbacks_do_not_run_on_the_thread_that_talks_with_the_broker(fake: FakeGrid, grid: Grid) -> None:
    names: list[str] = []
    fake.memory.hold = True
    future = grid.submit(double, 2)
    assert eventually(lambda: bool(fake.memory.bags))
    future.add_done_callback(lambda done: names.append(threading.current_thread().name))
    (bag,) = fake.memory.bags
    fake.broker.run(bag, 0)
    assert future.result(PATIENCE_S) == 4
    assert eventually(lambda: len(names) == 1)
    assert names == ["deskgrid-futures"]


def test_a_callback_can_still_ask_when_the_last_future_is_settled_beside_it(fake: FakeGrid) -> None:
    fake.memory.hold = True
    grid = Grid(fake.line)
    bag, asking, told = grid.bag(double, [1]), threading.Event(), list[int]()

    def callback(_future: Future[Any]) -> None:
        asking.set()
        assert eventually(other.done)
        told.append(bag.progress().total)

    followed, other = grid.submit(double, 2), grid.submit(double, 3)
    followed.add_done_callback(callback)
    assert eventually(lambda: len(fake.memory.bags) == 2)
    grid.shutdown(wait=False)
    calls = list(fake.memory.bags)[1]
    fake.broker.run(calls, 0)
    assert asking.wait(PATIENCE_S)
    fake.broker.run(calls, 1)
    assert eventually(lambda: told == [1])
    assert eventually(lambda: len(fake.memory.of(wire.Goodbye)) == 1)


def test_a_prediction_goes_with_its_call(fake: FakeGrid, grid: Grid) -> None:
    for runtime in (10, 20, 30):
        grid.submit(task(double, runtime=runtime), 1).result(PATIENCE_S)
    (bag,) = fake.memory.bags.values()
    assert bag.runtimes == [10.0, 20.0, 30.0]


def test_other_options_make_another_bag(fake: FakeGrid, grid: Grid) -> None:
    for job in (double, task(double, 1), task(double, 1, timeout=9), task(double, 1, retries=2)):
        grid.submit(job, 1).result(PATIENCE_S)
    assert len(fake.memory.bags) == 4
    programs = {submit.options.program for submit in fake.memory.of(wire.Submit)}
    assert len(programs) == 1, "all calls of one Grid are of one program"
    assert [replace(submit.options, program=None, python=None) for submit in fake.memory.of(wire.Submit)] == [
        wire.TaskOptions(),
        wire.TaskOptions(),
        wire.TaskOptions(timeout=9.0),
        wire.TaskOptions(retries=2),
    ]


def test_what_a_function_refers_to_is_as_it_is_at_each_call(grid: Grid) -> None:
    factor = [1]

    def scaled(x: int) -> int:
        return x * factor[0]

    first = grid.submit(scaled, 10)
    factor[0] = 2
    assert (first.result(PATIENCE_S), grid.submit(scaled, 10).result(PATIENCE_S)) == (10, 20)


def test_a_function_made_for_each_call_makes_no_bag_for_each(fake: FakeGrid, grid: Grid) -> None:
    futures = [grid.submit(lambda n=n: n + 1) for n in range(OWN_BAGS + 30)]
    assert [future.result(PATIENCE_S) for future in futures] == [n + 1 for n in range(OWN_BAGS + 30)]
    more = [grid.submit(partial(double, n)) for n in range(5)]
    assert [future.result(PATIENCE_S) for future in more] == [2 * n for n in range(5)]
    assert len(fake.memory.bags) <= OWN_BAGS + 2


def test_a_bag_that_is_full_is_followed_by_another(fake: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stream, "BAG_CALLS", 3)
    with Grid(fake.line) as grid:
        assert [grid.submit(double, n).result(PATIENCE_S) for n in range(7)] == [2 * n for n in range(7)]
        assert [len(bag.payloads) for bag in fake.memory.bags.values()] == [3, 3, 1]
    assert eventually(lambda: all(bag.closed for bag in fake.memory.bags.values()))


def test_a_message_keeps_to_the_limits_of_a_batch(fake: FakeGrid, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deskgrid.wire.payload.BATCH_BYTES", 10_000)
    fill(fake, grid)
    numbers = [256**size for size in (4_000, 4_000, 4_000, 20_000, 1)]
    futures = [grid.submit(double, number) for number in numbers]
    fake.broker.withhold = False
    assert [future.result(PATIENCE_S) for future in futures] == [2 * number for number in numbers]
    assert sent_calls(fake) == [*[1] * WINDOW, 2, 1, 1, 1]


def test_what_cannot_travel_is_refused_at_the_call(fake: FakeGrid, grid: Grid) -> None:
    with pytest.raises(PicklingFailed, match="an argument of double cannot be pickled"):
        grid.submit(double, threading.Lock())
    with pytest.raises(TypeError, match="a task is something that can be called"):
        grid.submit("double", 1)  # type: ignore[arg-type] # that is the test
    assert fake.memory.bags == {}


@pytest.mark.parametrize("bad", [{"runtime": -1}, {"timeout": 0}, {"retries": -1}, {"runtime": float("nan")}])
def test_an_impossible_prediction_is_refused_when_it_is_made(bad: dict[str, Any]) -> None:
    with pytest.raises(BagRejected):
        task(double, **bad)


def test_a_bag_that_the_broker_does_not_take_fails_its_calls_and_the_next_makes_another(
    fake: FakeGrid, grid: Grid
) -> None:
    fake.broker.lose = lambda message: isinstance(message, wire.Blob)
    assert isinstance(grid.submit(double, 1).exception(10), BagRejected)
    fake.broker.lose = lambda message: False
    assert grid.submit(double, 1).result(PATIENCE_S) == 2


def test_a_bag_that_the_broker_no_longer_has_fails_its_calls(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True

    def forget(message: wire.Message) -> bool:
        if isinstance(message, wire.Accepted):
            fake.memory.bags.clear()
        return False

    fake.broker.lose = forget
    assert isinstance(grid.submit(double, 1).exception(10), RequestFailed)


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_a_call_that_was_sent_is_cancelled_on_the_grid(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    futures = [grid.submit(double, n) for n in range(3)]
    (bag_id,) = _bag_ids(fake, 3)
    assert futures[1].cancel()
    assert futures[1].cancelled()
    assert futures[1].cancel()
    with pytest.raises(CancelledError):
        futures[1].result()
    assert eventually(lambda: fake.memory.asked("cancel") == [{"bag": bag_id, "items": [1]}])
    fake.broker.run(bag_id, 0, 2)
    assert [futures[0].result(PATIENCE_S), futures[2].result(PATIENCE_S)] == [0, 4]
    assert not futures[0].cancel()


def _bag_ids(fake: FakeGrid, count: int) -> list[str]:
    """The bags' ids, when so many calls have arrived."""
    assert eventually(lambda: sum(len(bag.payloads) for bag in fake.memory.bags.values()) == count)
    return list(fake.memory.bags)


def test_a_call_that_waits_here_never_leaves(fake: FakeGrid, grid: Grid) -> None:
    before = fill(fake, grid)
    second, third = grid.submit(double, 8), grid.submit(double, 9)
    assert second.cancel()
    fake.broker.withhold = False
    assert [future.result(PATIENCE_S) for future in (*before, third)] == [*range(0, 2 * WINDOW, 2), 18]
    (bag,) = fake.memory.bags.values()
    assert len(bag.payloads) == WINDOW + 1
    assert fake.memory.asked("cancel") == []


def test_those_who_wait_for_a_future_hear_that_it_was_cancelled(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    future = grid.submit(double, 1)
    threading.Timer(0.05, future.cancel).start()
    assert wait([future], timeout=10).done == {future}
    assert future.cancelled()


def test_many_cancelled_calls_make_few_messages(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    futures = [grid.submit(double, n) for n in range(200)]
    _bag_ids(fake, 200)
    answered = threading.Event()
    fake.broker.lose = lambda message: isinstance(message, wire.Answer) and not answered.wait(PATIENCE_S)
    assert all(future.cancel() for future in futures)
    answered.set()
    assert eventually(lambda: sum(len(args["items"]) for args in fake.memory.asked("cancel")) == 200)
    assert len(fake.memory.asked("cancel")) == 2


def test_a_call_that_somebody_else_cancels_is_cancelled(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    future = grid.submit(double, 1)
    (bag_id,) = _bag_ids(fake, 1)
    grid.attach(bag_id).cancel()
    with pytest.raises(CancelledError):
        future.result(PATIENCE_S)


# --- map -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunksize", [1, 3, 100])
def test_map_gives_results_in_order(grid: Grid, chunksize: int) -> None:
    pairs = grid.map(lambda x, y: (x, y), range(10), "abcdefghij", chunksize=chunksize)
    assert list(pairs) == list(zip(range(10), "abcdefghij", strict=True))


def test_map_ends_with_the_shortest(grid: Grid) -> None:
    assert list(grid.map(lambda x, y: x, [1, 2, 3], [1, 2])) == [1, 2]


def test_map_takes_its_items_at_once_and_raises_where_a_call_did(grid: Grid) -> None:
    results = grid.map(lambda x: 1 // x, iter([1, 0, 1]))
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_map_takes_no_more_of_its_items_than_its_buffer_until_results_are_taken(fake: FakeGrid, grid: Grid) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in count():
            taken.append(item)
            yield item

    found = grid.map(double, items(), buffersize=4)
    assert taken == [0, 1, 2, 3]
    assert list(islice(found, 3)) == [0, 2, 4]
    assert taken == [0, 1, 2, 3, 4, 5, 6]
    found.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("chunksize", [1, 7])
def test_map_takes_endless_items(grid: Grid, monkeypatch: pytest.MonkeyPatch, chunksize: int) -> None:
    monkeypatch.setattr("deskgrid.client.grid.BUFFERED", 20)
    assert list(islice(grid.map(double, count(), chunksize=chunksize), 50)) == [2 * item for item in range(50)]


@pytest.mark.parametrize(("bad", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), ("2", TypeError)])
def test_a_buffer_that_is_none_is_refused(grid: Grid, bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="buffersize"):
        grid.map(double, [1], buffersize=bad)


def test_calls_whose_results_nobody_takes_any_more_are_cancelled(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    found = grid.map(double, count(), buffersize=3)
    (bag_id,) = _bag_ids(fake, 3)
    fake.broker.run(bag_id, 0)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]
    assert not grid._futures.open
    assert eventually(lambda: sum(len(args["items"]) for args in fake.memory.asked("cancel")) >= 2)


def test_map_keeps_no_result_that_was_taken(grid: Grid) -> None:
    for result in grid.map(frozenset, [[1], [2], [3]]):
        gone = weakref.ref(result)
        del result
        gc.collect()
        assert gone() is None


def test_map_raises_when_its_time_is_over(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    results = grid.map(double, [1, 2], timeout=0.5)
    with pytest.raises(TimeoutError):
        next(results)
    assert eventually(lambda: all(len(bag.ended) == 2 for bag in fake.memory.bags.values()))


def test_a_chunk_is_one_task_predicted_as_long_as_its_calls(fake: FakeGrid, grid: Grid) -> None:
    job = task(double, runtime=2, timeout=10)
    assert list(grid.map(job, range(10), chunksize=5)) == [2 * n for n in range(10)]
    assert list(grid.map(double, range(4), chunksize=4, runtime=0.5)) == [0, 2, 4, 6]
    first, second = fake.memory.bags.values()
    assert (first.runtimes, second.runtimes) == ([10.0, 10.0], [2.0])
    assert fake.memory.of(wire.Submit)[0].options.timeout == 50.0


def test_a_chunk_of_nothing_is_refused(grid: Grid) -> None:
    with pytest.raises(ValueError, match="chunksize must be >= 1"):
        grid.map(double, [1], chunksize=0)


# --- shutdown --------------------------------------------------------------------------------------------------------


def test_leaving_waits_for_the_futures(fake: FakeGrid) -> None:
    fake.memory.hold = True
    with Grid(fake.line) as grid:
        future = grid.submit(double, 2)
        (bag_id,) = _bag_ids(fake, 1)
        threading.Timer(0.1, fake.broker.run, (bag_id, 0)).start()
    assert future.done()
    assert future.result() == 4


def test_a_shut_grid_refuses_calls_as_a_runtime_error(fake: FakeGrid) -> None:
    grid = Grid(fake.line)
    grid.shutdown()
    grid.shutdown()
    with pytest.raises(RuntimeError, match="shut down") as caught:
        grid.submit(double, 1)
    assert isinstance(caught.value, GridClosed)


def test_shutdown_without_waiting_returns_and_closes_when_all_is_settled(fake: FakeGrid) -> None:
    fake.memory.hold = True
    grid = Grid(fake.line)
    future = grid.submit(double, 2)
    (bag_id,) = _bag_ids(fake, 1)
    grid.shutdown(wait=False)
    assert not future.done()
    assert fake.memory.of(wire.Goodbye) == []
    with pytest.raises(GridClosed):
        grid.bag(double, [1])
    fake.broker.run(bag_id, 0)
    assert future.result(PATIENCE_S) == 4
    assert eventually(lambda: len(fake.memory.of(wire.Goodbye)) == 1)


def test_shutdown_can_cancel_what_does_not_run_yet(fake: FakeGrid) -> None:
    fake.memory.hold = True
    grid = Grid(fake.line)
    futures = fill(fake, grid) + [grid.submit(double, n) for n in range(5)]

    def accept() -> None:
        fake.broker.withhold = False

    threading.Timer(0.05, accept).start()
    grid.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    (bag,) = fake.memory.bags.values()
    assert len(bag.payloads) == WINDOW
    assert [args["running"] for args in fake.memory.asked("cancel")] == [False]


def test_an_interrupt_does_not_wait_and_cancels_the_calls(fake: FakeGrid) -> None:
    fake.memory.hold = True
    grid = Grid(fake.line)
    bag = grid.bag(double, [1])
    future = grid.submit(double, 2)
    _bag_ids(fake, 2)
    with pytest.raises(KeyboardInterrupt), grid:
        raise KeyboardInterrupt
    assert future.cancelled()
    assert eventually(lambda: len(fake.memory.of(wire.Goodbye)) == 1)
    assert [args["bag"] == bag.id for args in fake.memory.asked("cancel")] == [False]


def test_calls_cancelled_one_by_one_are_cancelled_on_the_grid_before_the_connection_closes(fake: FakeGrid) -> None:
    """As `map` cancels its calls at an interrupt: all but the first wait for the answer to the order before."""

    def interrupted() -> None:
        for future in futures:
            future.cancel()
        raise KeyboardInterrupt

    fake.memory.hold = True
    grid = Grid(fake.line)
    futures = [grid.submit(double, n) for n in range(6)]
    (bag_id,) = _bag_ids(fake, 6)
    answered = threading.Event()
    fake.broker.lose = lambda message: isinstance(message, wire.Answer) and not answered.wait(PATIENCE_S)
    threading.Timer(0.05, answered.set).start()
    with pytest.raises(KeyboardInterrupt), grid:
        interrupted()
    assert eventually(lambda: len(fake.memory.of(wire.Goodbye)) == 1)
    assert sorted(item for args in fake.memory.asked("cancel") for item in args["items"]) == list(range(6))
    assert fake.memory.bags[bag_id].closed


def test_an_interrupt_waits_until_the_broker_has_answered_its_orders(fake: FakeGrid) -> None:
    """The broker may not read what a connection said just before its end."""
    fake.memory.hold = True
    grid = Grid(fake.line)
    grid.submit(double, 1)
    grid.submit(negated, 2)
    _bag_ids(fake, 2)
    answered = threading.Event()
    fake.broker.lose = lambda message: isinstance(message, wire.Answer) and not answered.wait(PATIENCE_S)
    threading.Timer(0.3, answered.set).start()
    with pytest.raises(KeyboardInterrupt), grid:
        raise KeyboardInterrupt
    assert answered.is_set()


def test_an_interrupt_does_not_wait_long_for_these_answers(fake: FakeGrid) -> None:
    fake.memory.hold = True
    grid = Grid(fake.line)
    future = grid.submit(double, 1)
    _bag_ids(fake, 1)
    fake.broker.lose = lambda message: isinstance(message, wire.Answer)
    with pytest.raises(KeyboardInterrupt), grid:
        raise KeyboardInterrupt
    assert future.cancelled()
    assert eventually(lambda: len(fake.memory.of(wire.Goodbye)) == 1)


def test_an_interrupt_while_leaving_waits_does_the_same(fake: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    fake.memory.hold = True
    monkeypatch.setattr("deskgrid.client.futures.wait_for", interrupted)
    grid = Grid(fake.line)
    future = grid.submit(double, 2)
    _bag_ids(fake, 1)
    with pytest.raises(KeyboardInterrupt), grid:
        pass
    assert future.cancelled()


def test_calls_that_have_not_left_when_the_program_ends_still_leave(fake: FakeGrid) -> None:
    fake.memory.hold = True
    grid = Grid(fake.line)
    answered = threading.Event()
    fake.broker.lose = lambda message: isinstance(message, wire.Accepted) and not answered.wait(PATIENCE_S)
    futures = [grid.submit(double, n) for n in range(5)]
    threading.Timer(0.05, answered.set).start()
    release: Callable[[], object] = grid._release
    release()  # what is called at the end of a program
    (bag,) = fake.memory.bags.values()
    assert len(bag.payloads) == 5
    assert all(isinstance(future.exception(10), GridClosed) for future in futures)


# --- many functions --------------------------------------------------------------------------------------------------


def numbered(number: int) -> Callable[[], int]:
    return lambda: number


def test_a_function_that_is_called_again_has_a_bag_of_its_own_however_many_there_are(
    fake: FakeGrid, grid: Grid
) -> None:
    for number in range(OWN_BAGS):
        grid.submit(numbered(number)).result(PATIENCE_S)
    late = numbered(-1)
    for _ in range(3):
        assert grid.submit(late).result(PATIENCE_S) == -1
    before = len(fake.memory.templates)
    for _ in range(5):
        assert grid.submit(late).result(PATIENCE_S) == -1
    assert len(fake.memory.templates) == before
    (bag,) = [bag for bag in fake.memory.bags.values() if len(bag.payloads) > 2]
    assert len(bag.payloads) == 7  # all but the first, which went with others of its kind


def test_the_bag_of_the_function_that_nobody_called_for_longest_is_closed(fake: FakeGrid, grid: Grid) -> None:
    functions = [numbered(number) for number in range(OWN_BAGS)]
    for function in [*functions, functions[0]]:
        grid.submit(function).result(PATIENCE_S)
    late = numbered(-1)
    for _ in range(2):
        grid.submit(late).result(PATIENCE_S)
    assert eventually(lambda: [bag.closed for bag in fake.memory.bags.values()].count(True) == 1)
    assert [bag.closed for bag in fake.memory.bags.values()][:2] == [False, True]


def test_a_large_function_that_changes_between_calls_is_named_with_its_size(
    grid: Grid, caplog: pytest.LogCaptureFixture
) -> None:
    data = bytearray(400_000)
    for place in range(10):
        data[place] = 1
        grid.submit(lambda: len(data)).result(PATIENCE_S)
    (warning,) = caplog.messages
    assert "is sent again and again, 391 K each time" in warning
    assert "changes between calls" in warning
    assert "grid.share" in warning


def test_more_large_functions_in_turn_than_have_bags_are_named(grid: Grid, caplog: pytest.LogCaptureFixture) -> None:
    data = bytes(200_000)
    functions = [lambda n=n: n + len(data) for n in range(OWN_BAGS + 4)]
    for n, function in enumerate(functions):
        function.__qualname__ = f"f{n}"
    for _ in range(10):
        for function in functions:
            grid.submit(function).result(PATIENCE_S)
    assert any(f"calls more than {OWN_BAGS} functions in turn" in message for message in caplog.messages)
    assert len(caplog.messages) <= len(functions)


def test_a_shared_object_goes_when_nobody_has_its_handle_any_more() -> None:
    known, array = KnownFiles(), bytearray(1_000)
    shared = share(pickle.PickleBuffer(array))
    assert known.shared(shared) is known.shared(shared)
    gone = weakref.ref(shared)
    del shared
    gc.collect()
    assert gone() is None
    array.append(1)  # nobody holds its memory


def test_a_call_that_cannot_be_sent_leaves_the_bag_of_its_function_open(
    fake: FakeGrid, grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert grid.submit(abs, -1).result() == 1
    with monkeypatch.context() as needing_more:
        needing_more.setattr("deskgrid.client.carried.Carried.lacks", lambda *_: True)
        needing_more.setattr("deskgrid.client.carried.Carried.template", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            grid.submit(abs, -2)
    assert grid.submit(abs, -3).result() == 3
    assert [bag.closed for bag in fake.memory.bags.values()] == [False]
