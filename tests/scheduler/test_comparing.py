"""PCs whose tasks show another speed than they state: what the scheduler makes of it, and what that is worth."""

from typing import Any

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.prediction.speeds import Speeds
from deskgrid.scheduler.simulation.simulator import Arrival, Run, SimulatedPC, Simulator, cycle
from tests.scheduler.builders import Grid, packing


class Believed(Speeds):
    """PCs are taken to be as fast as they state."""

    def corrected(self, pc: str, stated: float) -> float:
        return stated


def work(grid: Grid, rounds: int = 12, slow: str = "b", predicted: float = 10.0, **more: Any) -> None:
    """Three PCs do tasks of 10 s; on the slow one, they take 20 s."""
    for _ in range(rounds):
        tasks = grid.tasks(predicted, predicted, predicted, bag=grid._next, **more)
        (found,) = [grid.tell_pass()]
        grid.wait(20)
        for name, its in found.items():
            grid.end(*its, elapsed=20.0 if name == slow else 10.0)
        assert sum(map(len, found.values())) == len(tasks)
    grid.tell_pass()


def lab(**more: Any) -> Grid:
    grid = Grid(packing())
    for name in "abc":
        grid.pc(name, **more)
    return grid


def speed(grid: Grid, name: str = "b") -> float:
    return grid.inside.slots.workers[name].speed


def test_a_slow_pc_is_known_as_slow_after_some_tasks_and_gets_what_fits() -> None:
    grid = lab()
    work(grid)
    assert (speed(grid, "a"), speed(grid)) == (1.0, 0.5)
    assert grid.scheduler.speed("b") == pytest.approx(0.5)
    assert grid.scheduler.speed("nobody") == 1.0
    grid.leave("b")
    grid.pc("b", 15)
    assert speed(grid) == 0.5
    grid.leave("a")
    grid.leave("c")
    grid.tasks(10, bag=10_000)
    grid.expect()
    grid.tasks(7, bag=10_001)
    assert grid.tell_pass() == {"b": [grid._next - 1]}


def test_a_speed_that_its_user_has_given_holds() -> None:
    grid = lab(given=True)
    work(grid)
    assert speed(grid) == 1.0


def test_others_who_use_a_pc_explain_why_its_tasks_take_long() -> None:
    grid = lab()
    grid.tell(ev.WorkerMeasured("b", 1.0, 0.5))
    work(grid)
    assert speed(grid) == 1.0


@pytest.mark.parametrize("waited", [False, True])
def test_tasks_that_wait_say_nothing_about_pcs(waited: bool) -> None:
    grid = Grid(packing())
    for name, stated in (("a", 1.0), ("b", 0.5), ("c", 1.0)):
        grid.pc(name, speed=stated)
    for _ in range(12):
        grid.tasks(10, 10, 10, bag=grid._next)
        found = grid.tell_pass()
        grid.wait(20)
        for tasks in found.values():
            grid.end(*tasks, elapsed=10.0, waited=waited)
    grid.tell_pass()
    assert speed(grid) == (0.5 if waited else 1.0), "it looks twice as fast as it states, if its tasks compute"


def test_checkpointable_tasks_say_nothing() -> None:
    grid = lab()
    work(grid, min_piece=1.0)
    assert speed(grid) == 1.0


def test_killed_tasks_of_a_pc_with_much_load_say_nothing_either() -> None:
    grid = lab()
    grid.tell(ev.WorkerMeasured("b", 1.0, 0.5))
    grid.tasks(10, 10, 10)
    grid.tell_pass()
    grid.wait(50)
    grid.leave("b")
    assert grid.inside.speeds._bags == {}


def test_what_was_learned_and_is_forgotten_holds_from_the_next_pass_on() -> None:
    grid = lab()
    work(grid)
    grid.leave("c")
    grid.inside.speeds.forget()
    grid.tell_pass()
    assert (speed(grid), grid.inside.speeds.moved) == (1.0, {})


def test_the_pace_of_a_pc_and_its_speed_do_not_count_the_same_twice() -> None:
    grid = lab()
    work(grid, copies=True)
    worker = grid.inside.slots.workers["b"]
    assert worker.took_s / worker.usual_s == pytest.approx(1.0)


def test_gangs_go_by_the_corrected_speed() -> None:
    grid = lab()
    work(grid)
    (task,) = grid.tasks(30, bag=10_000, need=Need(3, 3, gang=True))
    (start,) = [command for command in grid.tell(ev.PassDue()) if isinstance(command, cmd.StartGang)]
    assert start.attempt.task == task
    assert grid.inside.gangs.running[task].seconds == pytest.approx(60.0)


def simulated(policy: str, speeds: list[float], believed: bool, tasks: int = 1000) -> Run:
    """A bag on PCs that all state a speed of 1, with windows of 5 to 11 minutes, closed for a minute."""
    pcs = [
        SimulatedPC(f"pc{place}", cycle(300.0 + 40.0 * place, 60.0), speed=speed) for place, speed in enumerate(speeds)
    ]
    runtimes = [20.0 + (37 * task) % 200 for task in range(tasks)]
    simulator = Simulator(make_policy(policy), pcs, [Arrival(runtimes)])
    if believed:
        simulator.scheduler.grid.speeds = Believed()
    return simulator.run()


@pytest.mark.no_cover
@pytest.mark.parametrize(("policy", "sooner"), [("packing", 1.0), ("pgs", 0.95)])
def test_where_stated_speeds_are_wrong_by_2_corrections_save_most_kills(policy: str, sooner: float) -> None:
    really = [0.5, 1.0, 2.0, 0.5, 1.0, 2.0, 0.5, 1.0, 2.0, 0.5]
    before, after = (simulated(policy, really, believed) for believed in (True, False))
    assert after.makespan_s <= sooner * before.makespan_s
    assert after.counters.kills < 0.5 * before.counters.kills


def test_where_pcs_are_alike_nothing_changes() -> None:
    before, after = (simulated("packing", [1.0] * 10, believed, tasks=200) for believed in (True, False))
    assert (before.makespan_s, before.counters) == (after.makespan_s, after.counters)
