"""What is kept of the past of PCs, and how often estimates held."""

from deskgrid.web.estimates import Estimates
from deskgrid.web.history import BINS, ROWS, Timelines
from tests.screen.builders import bag, slot, worker

BUSY = slot(1.0)


def rows(history: Timelines) -> dict[str, str]:
    found: dict[str, str] = history.rows()["pcs"]
    return found


def test_each_stretch_has_what_mattered_most_in_it() -> None:
    history = Timelines(20.0)
    history.add([worker("a", slot()), worker("b", BUSY, slot()), worker("c", state="away")], 0.0)
    history.add([worker("a", BUSY), worker("b", slot(), slot()), worker("c", slot())], 10.0)
    assert rows(history) == {"a": "9", "b": "5", "c": "0"}


def test_time_in_which_nothing_was_heard_is_not_known() -> None:
    history = Timelines(20.0)
    history.add([worker("a", state="lost")], 5.0)
    history.add([worker("a", paused="somebody is there"), worker("b", note="its tasks crash")], 70.0)
    assert rows(history) == {"a": "x..p", "b": "q"}


def test_a_short_silence_changes_nothing() -> None:
    history = Timelines(20.0)
    history.add([worker("a", BUSY), worker("b", BUSY)], 5.0)
    history.add([worker("a", slot())], 45.0)
    assert rows(history) == {"a": "990", "b": "99."}


def test_the_past_is_bounded() -> None:
    history = Timelines(1.0)
    for second in range(BINS + 10):
        history.add([worker("a", slot())], float(second))
    assert rows(history) == {"a": "0" * BINS}
    history.add([worker("b", slot())], 3.0 * BINS)
    history.add([worker("b", slot())], 3.0 * BINS + 1)
    assert rows(history) == {"b": "00"}


def test_made_up_names_do_not_fill_the_memory() -> None:
    history = Timelines(1.0)
    for first in range(0, 2 * ROWS, 1_000):
        history.add([worker(f"pc{first + number}") for number in range(1_000)], 0.0)
    assert len(rows(history)) == ROWS


def test_a_bag_counts_by_its_first_estimate() -> None:
    estimates = Estimates()
    under_way = [bag(id=name, eta_s=eta) for name, eta in (("a", 100.0), ("b", 100.0), ("c", 100.0), ("d", None))]
    estimates.add(under_way, 0.0)
    estimates.add([bag(id=name, eta_s=1_000.0) for name in "abc"], 10.0)
    ended = {name: bag(id=name, running=0, waiting=0) for name in "abcd"}
    estimates.add([ended["a"]], 79.0)
    estimates.add([ended["b"]], 90.0)
    estimates.add([ended["c"], ended["d"]], 151.0)
    estimates.add(list(ended.values()), 160.0)
    assert estimates.counts == {"early": 1, "within": 1, "late": 1}


def test_a_bag_that_was_cancelled_says_nothing_of_estimates() -> None:
    estimates = Estimates()
    estimates.add([bag()], 0.0)
    estimates.add([bag(cancelled=60, running=0, waiting=0)], 1.0)
    assert not estimates.counts
