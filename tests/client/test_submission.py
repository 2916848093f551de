"""Items become payloads, runtimes and batches; bad ones are refused by name."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.client.options import checked_licences, checked_options
from deskgrid.client.submission import BagRuntimes, SubmittedTasks, kept
from deskgrid.client.template import command_template, name_of
from deskgrid.errors import BagRejected
from deskgrid.wire import TaskOptions

NAN, INF = math.nan, math.inf


# --- runtimes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", [45, 45.0, Fraction(90, 2)])
def test_a_number_is_the_runtime_of_all(runtime: Any) -> None:
    runtimes = BagRuntimes(runtime, None)
    assert runtimes.same == 45.0
    assert runtimes.of(3, "item") is None


def test_nothing_said_is_no_runtime() -> None:
    runtimes = BagRuntimes(None, None)
    assert (runtimes.same, runtimes.of(0, "item")) == (None, None)


@pytest.mark.parametrize("make", [list, tuple, iter])
def test_a_list_has_one_for_each_item(make: Any) -> None:
    runtimes = BagRuntimes(make([1, 2.5, 3]), 3)
    assert [runtimes.of(index, None) for index in range(3)] == [1.0, 2.5, 3.0]


def test_a_function_gives_each_items() -> None:
    assert BagRuntimes(lambda item: item * 2, None).of(0, 21) == 42.0


@pytest.mark.parametrize("bad", [-1, -0.001, NAN, INF, -INF, 10**400])
def test_an_impossible_runtime_is_refused(bad: float) -> None:
    with pytest.raises(BagRejected, match="finite number, and not negative"):
        BagRuntimes(bad, None)


@pytest.mark.parametrize("bad", [-1, NAN, INF, 10**400, None, "soon", Decimal(3), [1]])
def test_an_impossible_runtime_of_one_item_is_refused_by_its_index(bad: Any) -> None:
    with pytest.raises(BagRejected, match="the runtime of item 1 "):
        BagRuntimes([1, bad, 3], 3)
    with pytest.raises(BagRejected, match="the runtime of item 7 "):
        BagRuntimes(lambda item: bad, None).of(7, "item")


def test_a_prediction_that_fails_is_refused_by_the_items_index_and_cause() -> None:
    with pytest.raises(BagRejected, match=r"the runtime of item 2 cannot be predicted: ZeroDivisionError") as caught:
        BagRuntimes(lambda item: 1 / item, None).of(2, 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("bad", [b"45", {"a": 1}, object()])
def test_what_is_no_runtime_at_all_is_refused(bad: Any) -> None:
    with pytest.raises(BagRejected, match=r"runtime is seconds, a text such as .*, a list of these or a function"):
        BagRuntimes(bad, None)


def test_runtimes_for_another_number_of_items_are_refused() -> None:
    with pytest.raises(BagRejected, match="2 runtimes came with 3 items"):
        BagRuntimes([1, 2], 3)


def test_runtimes_that_end_before_a_generators_items_are_refused() -> None:
    runtimes = BagRuntimes([1, 2], None)
    with pytest.raises(BagRejected, match="item 2 has no runtime: there are 2"):
        runtimes.of(2, "item")
    with pytest.raises(BagRejected, match="2 runtimes came with 1 items"):
        runtimes.check_length(1)


# --- options ---------------------------------------------------------------------------------------------------------


def test_a_timeout_is_in_seconds() -> None:
    timeout = checked_options(TaskOptions(timeout=30)).timeout
    assert (timeout, type(timeout)) == (30.0, float)


@pytest.mark.parametrize("bad", [0, -1, NAN, INF, "0s"])
def test_an_impossible_timeout_is_refused(bad: Any) -> None:
    with pytest.raises(BagRejected, match="the timeout is"):
        checked_options(TaskOptions(timeout=bad))


@pytest.mark.parametrize("bad", [-1, 1.5, "1", True])
def test_impossible_retries_are_refused(bad: Any) -> None:
    with pytest.raises(BagRejected, match="retries is a number of times"):
        checked_options(TaskOptions(retries=bad))


@pytest.mark.parametrize("bad", [1, "yes", None])
def test_copies_are_allowed_or_not(bad: Any) -> None:
    with pytest.raises(BagRejected, match="copies is True or False, not "):
        checked_options(TaskOptions(copies=bad))


@pytest.mark.parametrize("gate", [{"limit": 2}, {"licences": ("matlab=1",)}])
def test_copies_with_a_limit_or_licences_are_refused_because_there_would_be_none(gate: dict[str, Any]) -> None:
    with pytest.raises(BagRejected, match=f"a bag with {'a limit' if 'limit' in gate else 'licences'} gets no copies"):
        checked_options(TaskOptions(copies=True, **gate))
    assert checked_options(TaskOptions(**gate)) == TaskOptions(**gate)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"priority": 101}, "a priority is a whole number from -100 to 100, not 101"),
        ({"priority": 1.5}, "a priority is"),
        ({"limit": 0}, "the limit is a number of tasks from 1 up, not 0"),
        ({"limit": True}, "the limit is"),
        ({"after": ("a",) * 33}, "a bag can come after 32 bags at most, not 33"),
        ({"after": (3,)}, "after has bags or their ids, not 3"),
        ({"when": "later"}, 'when is "ok" or "ended"'),
    ],
)
def test_impossible_priorities_limits_and_orders_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BagRejected, match=said):
        checked_options(TaskOptions(**given))


@pytest.mark.parametrize("bad", [5, {"m": 0}, {"m": True}, {"a b": 1}, {3: 1}, dict.fromkeys(map(str, range(17)), 1)])
def test_impossible_licences_are_refused(bad: Any) -> None:
    with pytest.raises(BagRejected, match="licences are"):
        checked_licences(bad)


# --- batches ---------------------------------------------------------------------------------------------------------


def sent(count: int) -> list[tuple[int, bool]]:
    """The batches of so many rows: how many are in each, and whether it is known to be the last."""
    rows = SubmittedTasks(range(count), lambda item, what: b"", BagRuntimes(None, count))
    return [(len(batch), rows.ended) for batch in wire.in_batches(rows, lambda row: len(row.payload))]


def test_the_last_batch_is_known_when_it_is_sent_and_the_others_do_not_wait_for_it() -> None:
    most = wire.BATCH_ROWS
    assert sent(2 * most + 1) == [(most, False), (most, False), (1, True)]
    assert sent(most) == [(most, True)]


# --- which items are kept --------------------------------------------------------------------------------------------


def test_a_list_is_kept_as_it_is_now() -> None:
    items = [1, 2]
    held = kept(items)
    items.append(3)
    assert held == (1, 2)


@pytest.mark.parametrize("items", [{1: "a"}, {1}, {1: "a"}.keys(), range(1, 2), (1,)])
def test_whatever_is_a_collection_is_kept(items: Any) -> None:
    assert list(kept(items) or ()) == [1]


@pytest.mark.parametrize("items", [iter([1]), (n for n in [1]), zip([1]), map(abs, [1])])
def test_what_comes_one_by_one_is_not_kept(items: Any) -> None:
    assert kept(items) is None
    assert len(list(items)) == 1


def test_what_no_broker_would_take_is_refused_before_it_is_sent() -> None:
    with pytest.raises(BagRejected, match="retries is a number of times, 0 to 1,000,000, not 1000001"):
        checked_options(TaskOptions(retries=1_000_001))
    with pytest.raises(BagRejected, match="the command line has 10,001 words; the limit is 10,000"):
        command_template(["x"] * 10_001)


def test_a_function_with_a_name_that_is_too_long_is_called_by_its_beginning() -> None:
    def function() -> None: ...

    function.__qualname__ = "f" * 1000
    assert name_of(function) == "f" * 252 + "..."
