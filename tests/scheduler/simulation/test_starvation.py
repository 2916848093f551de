"""No parallel task starves: one that needs a whole site starts within a bound, whatever else never stops coming."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, count
from math import inf
from random import Random

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.patience import PATIENCE
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, SimulatedPC, Simulator, cycle
from deskgrid.scheduler.simulation.timetable import RealWindow
from tests.scheduler.simulation.test_gangs import gang, pcs

SLOTS = 20
WHOLE_S = 600.0
COMES = 600.0
DUE_S = PATIENCE * WHOLE_S
FIRST_COME = ["easy", "ff", "bf", "tla", "cisne-uniform-easy", "rhap", "max"]
OVERTAKING = ["packing", "pgs", "longest", "nmin", "rigid", "scojo-p", "cirne-berman"]


class Enough(Exception):
    """All that were watched have started."""


def waits(
    policy: str, small: Sequence[Arrival], whole: Sequence[Arrival], grid: Sequence[SimulatedPC] | None = None
) -> list[float]:
    """How long these gangs wait beside a stream, which is longer than they may wait."""
    arrivals = sorted(chain(small, whole), key=lambda arrival: arrival.at)
    firsts: dict[int, Arrival] = {}
    tasks = 0
    for arrival in arrivals:
        firsts[tasks] = arrival
        tasks += len(arrival.runtimes)
    made = Simulator(make_policy(policy), grid or pcs(SLOTS), arrivals)
    began: dict[int, float] = {}

    def watch(event: ev.Event, now: float) -> Sequence[ev.Event]:
        if isinstance(event, ev.GangBegan) and any(firsts.get(event.attempt.task) is one for one in whole):
            began.setdefault(event.attempt.task, now)
        if len(began) == len(whole) or now > small[-1].at:
            raise Enough
        return ()

    made.beside = watch
    with pytest.raises(Enough):
        made.run()
    return [began.get(task, inf) - one.at for task, one in firsts.items() if any(one is each for each in whole)]


def stream(
    load: float, *, seconds: tuple[float, float] = (20.0, 100.0), late: float = 1.0, owner: str = ""
) -> list[Arrival]:
    """Gangs of 1 to 4 ranks that keep the site busy. ``late``: how many times longer they take than predicted."""
    chance, at, found = Random(f"stream {load}"), 0.0, list[Arrival]()
    mean = 2.5 * sum(seconds) / 2 * late
    while at < 12_000.0:
        ranks, runtime = chance.randint(1, 4), chance.uniform(*seconds)
        need = Need(ranks, ranks, gang=True)
        found.append(Arrival([runtime], [runtime * late], at, owner=owner, need=need))
        at += chance.expovariate(load * SLOTS / mean)
    return found


def singles(load: float, late: tuple[float, ...] = (1.0,)) -> list[Arrival]:
    """Single tasks of 20 to 100 s; each takes one of these times longer than predicted."""
    chance, at, found = Random(f"singles {load}"), 0.0, list[Arrival]()
    while at < 12_000.0:
        runtime = chance.uniform(20.0, 100.0)
        found.append(Arrival([runtime], [runtime * chance.choice(late)], at))
        at += chance.expovariate(load * SLOTS / 60.0 * len(late) / sum(late))
    return found


def whole(at: float = COMES, ranks: int = SLOTS) -> Arrival:
    return gang(ranks, WHOLE_S, at)


@pytest.mark.parametrize("policy", OVERTAKING)
@pytest.mark.parametrize("load", [0.95, 1.05])
def test_beside_small_gangs_it_starts_when_it_has_waited_five_times_its_runtime(policy: str, load: float) -> None:
    (wait,) = waits(policy, stream(load), [whole()])
    assert wait < DUE_S + 150.0


@pytest.mark.parametrize("policy", FIRST_COME)
def test_where_nobody_overtakes_it_starts_when_those_before_it_have_ended(policy: str) -> None:
    (wait,) = waits(policy, stream(0.95), [whole()])
    assert wait < 300.0


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", ["packing", "nmin", "scojo-p"])
def test_gangs_that_are_in_the_class_of_the_shortest_delay_it_no_longer(policy: str) -> None:
    (wait,) = waits(policy, stream(1.0, seconds=(10.0, 50.0)), [whole()])
    assert wait < DUE_S + 50.0


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", ["packing", "nmin"])
def test_several_that_are_large_start_one_after_the_other(policy: str) -> None:
    large = [whole(COMES + place, ranks) for place, ranks in enumerate((20, 16, 18, 12))]
    for place, wait in enumerate(sorted(waits(policy, stream(0.95), large))):
        assert wait < DUE_S + 400.0 + place * (WHOLE_S + 200.0)


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", ["packing", "easy", "nmin"])
def test_work_that_takes_twice_as_long_as_predicted_does_not_delay_it_for_ever(policy: str) -> None:
    (wait,) = waits(policy, stream(0.95, late=2.0), [whole()])
    assert wait < DUE_S + 700.0


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", ["packing", "easy", "tla", "nmin", "pgs", "fcfs"])
def test_single_tasks_delay_it_only_until_those_that_run_have_ended(policy: str) -> None:
    (wait,) = waits(policy, singles(0.97), [whole()])
    assert wait < 200.0


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", ["packing", "easy", "tla", "pgs"])
def test_nor_do_single_tasks_of_which_predictions_say_little(policy: str) -> None:
    (wait,) = waits(policy, singles(0.95, (0.5, 1.0, 1.5, 4.0)), [whole()])
    assert wait < DUE_S + 900.0


@pytest.mark.parametrize("policy", ["packing", "nmin"])
def test_small_gangs_of_somebody_who_has_used_more_of_the_grid_do_not_come_first(policy: str) -> None:
    (wait,) = waits(policy, stream(0.95, owner="bob"), [whole()])
    assert wait < 300.0


@pytest.mark.parametrize("policy", ["packing", "nmin", "easy"])
def test_with_windows_it_starts_where_they_are_long_enough(policy: str) -> None:
    grid = [
        SimulatedPC(f"pc{number}", cycle(3_000.0 + 500.0 * (number % 4), 60.0), site="A") for number in range(SLOTS)
    ]
    (wait,) = waits(policy, stream(0.85), [whole()], grid)
    assert wait < DUE_S + 2 * 4_500.0


def in_turn(first: bool) -> Iterator[RealWindow]:
    """Windows of a PC that is up whenever another one is not."""
    for number in count(int(not first), 2):
        yield RealWindow(600.0 * number, 600.0 * number + 599.0, 600.0 * number + 599.0)


@pytest.mark.parametrize("policy", ["packing", "rhap"])
def test_a_gang_that_fits_nowhere_keeps_no_other_waiting(policy: str) -> None:
    apart = [SimulatedPC(f"b{first}", partial(in_turn, first), slots=2, site="B") for first in (True, False)]
    wide = gang(SLOTS + 1, 10.0, 1.0), [*pcs(SLOTS)]
    never_together = gang(2, 10.0, 1.0, slots=2), [*pcs(SLOTS), *apart]
    for never, grid in (wide, never_together):
        (wait,) = waits(policy, [never, *stream(0.9)], [whole()], grid)
        assert wait < DUE_S + 100.0


@pytest.mark.parametrize("policy", ["packing", "fcfs"])
def test_slots_are_kept_for_ranks_of_several_slots(policy: str) -> None:
    grid = [SimulatedPC(f"pc{number}", slots=4, site="A") for number in range(5)]
    (wait,) = waits(policy, singles(0.97), [gang(5, WHOLE_S, COMES, slots=4)], grid)
    assert wait < 200.0
