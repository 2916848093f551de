"""Packing in whole runs: with correct predictions no task is lost, and every task that fits a window ends."""

from hypothesis import given, settings
from hypothesis import strategies as st

from deskgrid.scheduler.simulation.simulator import Arrival, Conditions, SimulatedPC, Simulator, always, cycle
from deskgrid.scheduler.simulation.timetable import Timetable
from tests.scheduler.builders import packing
from tests.scheduler.test_optimum import Repeated


@st.composite
def timetables(draw: st.DrawFn) -> tuple[float, Timetable]:
    """The longest window of a PC, and all of them."""
    if draw(st.integers(0, 5)) == 0:
        return float("inf"), always
    if draw(st.booleans()):
        up = draw(st.floats(20.0, 500.0))
        return up, cycle(up, draw(st.floats(0.0, 60.0)))
    windows = draw(st.lists(st.tuples(st.integers(1, 60), st.integers(20, 500)), min_size=1, max_size=4))
    return max(up for _, up in windows), Repeated(tuple(windows))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(timetables(), st.integers(1, 3)), min_size=2, max_size=6),
    st.lists(st.lists(st.floats(0.001, 0.99), min_size=5, max_size=30), min_size=1, max_size=2),
    st.booleans(),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 0.9]),
)
def test_with_right_predictions_nothing_is_lost_and_everything_ends(
    known: list[tuple[tuple[float, Timetable], int]],
    bags: list[list[float]],
    announces: bool,
    margin: float,
    confidence: float,
) -> None:
    longest = min(600.0, max(up for (up, _), _ in known))
    arrivals = [
        # No task takes less than a second, nor so long that it and the margin fit no window.
        Arrival([1.0 + share * (longest - 3.0) for share in bag], at=40.0 * number)
        for number, bag in enumerate(bags)
    ]
    pcs = [SimulatedPC(f"pc{number}", windows, slots) for number, ((_, windows), slots) in enumerate(known)]
    policy = packing(margin=margin, queue_s=1.0, confidence=confidence)
    run = Simulator(policy, pcs, arrivals, Conditions(announces=announces)).run()
    assert (run.counters.kills, run.counters.planned_kills, run.counters.wasted_s) == (0, 0, 0)
    assert run.counters.done == run.counters.attempts == sum(map(len, bags))
