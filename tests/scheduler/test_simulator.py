"""The simulator: what happens when, to the second, in small grids; and the paper's grid (its Tables 1 and 2)."""

import math
from collections.abc import Sequence
from random import Random

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.policies import Policy, make_policy
from deskgrid.scheduler.simulation.simulator import (
    PATIENCE_TIMED,
    Arrival,
    Conditions,
    Run,
    SimulatedPC,
    Simulator,
    Stalled,
    cycle,
)
from tests.scheduler.builders import fcfs, pgs


def trace(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Filled as the simulator runs: when which PC was given which task, finished it, came and went."""
    lines: list[str] = []
    handle = simulator.scheduler.handle

    def traced(event: ev.Event, now: float) -> list[cmd.Command]:
        commands = handle(event, now)
        match event:
            case ev.WorkerJoined():
                lines.append(f"{now:g} {event.worker} opens")
            case ev.WorkerLeft():
                lines.append(f"{now:g} {event.worker} closes")
            case ev.AttemptsEnded():
                lines.extend(f"{now:g} {event.worker} ends {ended.attempt.task}" for ended in event.ended)
        for command in commands:
            if isinstance(command, cmd.Assign):
                lines.extend(f"{now:g} {command.worker} gets {work.attempt.task}" for work in command.work)
        return commands

    monkeypatch.setattr(simulator.scheduler, "handle", traced)
    return lines


# --- golden traces -------------------------------------------------------------------------------------------------


def test_pgs_on_two_pcs_that_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    pcs = [SimulatedPC("a", cycle(10, 2)), SimulatedPC("b", cycle(6, 1))]
    simulator = Simulator(pgs(), pcs, [Arrival([4, 5, 3, 7])])
    lines = trace(simulator, monkeypatch)
    run = simulator.run()
    assert lines == [
        "0 a opens",
        "0 b opens",
        "0 b gets 0",  # b has the least time that is enough for the shortest, and 4 s is the first that fits it
        "0 a gets 1",  # and queues task 2, for which 5 s are left
        "4 b ends 0",  # 2 s are left, too little for the last
        "5 a ends 1",
        "5 a gets 2",
        "6 b closes",
        "7 b opens",
        "8 a ends 2",
        "10 a closes",
        "12 a opens",
        "12 a gets 3",
        "13 b closes",
        "14 b opens",
        "19 a ends 3",
    ]
    # Windows to the end: a 10 + 7 s, b 6 + 6 + 5 s; work: 19 s.
    assert (run.makespan_s, run.idle_s) == (19, 15)
    assert (run.counters.attempts, run.counters.departures, run.counters.kills) == (4, 3, 0)


def test_fcfs_on_a_pc_that_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator(fcfs(), [SimulatedPC("a", cycle(10, 2))], [Arrival([4, 5, 7])])
    lines = trace(simulator, monkeypatch)
    run = simulator.run()
    assert lines == [
        "0 a opens",
        "0 a gets 0",
        "4 a ends 0",
        "4 a gets 1",
        "9 a ends 1",
        "9 a gets 2",
        "10 a closes",
        "12 a opens",
        "12 a gets 2",
        "19 a ends 2",
    ]
    assert (run.makespan_s, run.idle_s) == (19, 0)
    counters = run.counters
    assert (counters.attempts, counters.kills, counters.planned_kills, counters.wasted_s) == (4, 1, 1, 1)


def test_what_ends_as_its_window_closes_has_ended_and_the_next_window_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator(fcfs(), [SimulatedPC("a", cycle(10, 0))], [Arrival([10, 1])])
    lines = trace(simulator, monkeypatch)
    assert simulator.run().makespan_s == 11
    assert lines == [
        "0 a opens",
        "0 a gets 0",
        "10 a ends 0",
        "10 a closes",
        "10 a opens",
        "10 a gets 1",
        "11 a ends 1",
    ]


def test_what_a_pc_had_not_started_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = [Arrival([0.0]), Arrival([0.1, 0.3, 0.05], at=0.01)]
    simulator = Simulator(fcfs(queue_s=1.0), [SimulatedPC("a", cycle(0.5, 1))], arrivals)
    lines = trace(simulator, monkeypatch)
    run = Simulator(fcfs(queue_s=1.0), [SimulatedPC("a", cycle(0.35, 1))], arrivals).run()
    assert (run.counters.attempts, run.counters.kills) == (6, 1)
    assert run.counters.wasted_s == pytest.approx(0.24)
    simulator.run()
    assert lines[2:7] == ["0 a ends 0", "0.01 a gets 1", "0.01 a gets 2", "0.01 a gets 3", "0.11 a ends 1"]


def test_the_overhead_of_each_attempt_is_not_foreseen() -> None:
    run = Simulator(pgs(), [SimulatedPC("a")], [Arrival([4, 5])], Conditions(overhead_s=1)).run()
    assert (run.makespan_s, run.idle_s) == (11, 2)


def test_tasks_may_take_longer_than_predicted_and_be_lost_for_that() -> None:
    run = Simulator(pgs(), [SimulatedPC("a", cycle(20, 5))], [Arrival([12, 5], actual=[12, 9])]).run()
    # The second began at 12 and was lost at 20; predicted anew at 16 s, it has the next window.
    assert (run.makespan_s, run.counters.planned_kills, run.counters.wasted_s) == (34, 1, 8)


def test_a_pc_with_several_slots_runs_as_many_tasks_at_once() -> None:
    run = Simulator(pgs(), [SimulatedPC("a", cycle(10, 1), slots=3)], [Arrival([9] * 7)]).run()
    assert (run.makespan_s, run.counters.kills, run.counters.departures) == (31, 0, 2)


def test_work_that_is_called_back_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator(pgs(), [SimulatedPC("a", slots=2)], [Arrival([0.2, 0.1, 5, 0.1])])
    simulator.scheduler.trust.heard["a"] = 0.0
    lines = trace(simulator, monkeypatch)
    handle = simulator.scheduler.handle

    def with_a_false_alarm(event: ev.Event, now: float) -> list[cmd.Command]:
        """The worker says at first that it leaves in a moment, and later that it stays."""
        commands = handle(event, now)
        if isinstance(event, ev.PassDue):
            commands += handle(ev.UptimeRefreshed("a", 0.25 if now == 0.0 else math.inf), now)
        return commands

    monkeypatch.setattr(simulator.scheduler, "handle", with_a_false_alarm)
    simulator.run()
    assert lines == [
        "0 a opens",
        "0 a gets 0",
        "0 a gets 1",
        "0 a gets 3",  # behind task 0, and called back at once
        "0.1 a ends 1",
        "0.1 a gets 3",
        "0.2 a ends 0",
        "0.2 a ends 3",
        "0.2 a gets 2",
        "5.2 a ends 2",
    ]


# --- runs that would never end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "pcs", "runtimes", "reason"),
    [
        (pgs(), [], [1.0], "1 of 1 tasks fit into no window"),
        (fcfs(), [], [0.0], "1 of 1 tasks are placed nowhere"),
        (pgs(), [SimulatedPC("a", cycle(10, 0))], [9, 10, 11], "2 of 3 tasks fit into no window"),
        (fcfs(), [SimulatedPC("a", cycle(10, 0))], [9, 10, 11], "1 of 3 tasks fit into no window"),
        (pgs(margin=2), [SimulatedPC("a", cycle(10, 0))], [8], "1 of 1 tasks fit into no window"),
    ],
)
def test_a_run_that_cannot_end_does_not_begin(
    policy: Policy, pcs: Sequence[SimulatedPC], runtimes: Sequence[float], reason: str
) -> None:
    with pytest.raises(Stalled, match=reason):
        Simulator(policy, pcs, [Arrival(runtimes)]).run()


def test_fcfs_in_a_fixed_order_can_lose_the_same_task_for_ever_and_at_random_does_not() -> None:
    pcs = [SimulatedPC("a short", cycle(5, 0)), SimulatedPC("b long", cycle(20, 0))]
    with pytest.raises(Stalled, match="1 of 1 tasks are placed nowhere, or lost each time"):
        Simulator(make_policy("fcfs", choice="first"), pcs, [Arrival([10])]).run()
    assert Simulator(fcfs(), pcs, [Arrival([10])]).run().counters.done == 1


def test_a_task_predicted_anew_as_too_long_for_every_window_is_not_tried_for_ever() -> None:
    pcs = [SimulatedPC("short", cycle(6, 0)), SimulatedPC("long", cycle(20, 0))]
    simulator = Simulator(pgs(), pcs, [Arrival([5, 11], actual=[5, 20.5])])
    with pytest.raises(Stalled, match="1 of 2 tasks fit into no window"):
        simulator.run()
    simulator = Simulator(pgs(), pcs, [Arrival([5, 11], actual=[5, 20])], Conditions(jitter=0.01))
    with pytest.raises(Stalled, match="1 of 2 tasks are placed nowhere, or lost each time"):
        simulator.run()
    assert PATIENCE_TIMED * 20 <= simulator.now <= PATIENCE_TIMED * 20 + 50


def test_patience_is_counted_from_the_last_task_that_ended_and_longer_than_any_task() -> None:
    pcs = [SimulatedPC("flicker", cycle(0.01, 0.01)), SimulatedPC("stays")]
    runtime = PATIENCE_TIMED * 0.02 * 0.9
    assert Simulator(pgs(), pcs, [Arrival([runtime] * 3)]).run().makespan_s == pytest.approx(3 * runtime)


# --- the paper's grid ----------------------------------------------------------------------------------------------

UPTIMES = (84, 117, 163, 228, 318, 443, 619, 864)
RESTART_S = 1.2
JOBS = {
    0: [number / 4 for number in range(1, 241) for _ in range(4)],
    1: [number / 4 for number in range(1, 241) for _ in range(4)],
    2: [number / 2 for number in range(1, 241) for _ in range(2)],
    3: [float(number) for number in range(1, 241)],
}
# No schedule is shorter: 482 minutes of work on eight resources.
BOUND_MIN = 60.25


def paper(scenario: int, policy: Policy) -> Run:
    """The paper's Section 4.2, without overhead. In scenario 0 nothing goes away."""
    pcs = [SimulatedPC(f"r{up}", cycle(up if scenario else math.inf, RESTART_S)) for up in UPTIMES]
    return Simulator(policy, pcs, [Arrival(JOBS[scenario])]).run()


def minutes(scenario: int, policy: Policy) -> float:
    return paper(scenario, policy).makespan_s / 60


@pytest.mark.no_cover
@pytest.mark.parametrize("scenario", [0, 1, 2, 3])
@pytest.mark.parametrize("order", ["newest-first", "longest-first", "fifo"])
@pytest.mark.parametrize("queue_length", [0, 1, 4, 12])
def test_pgs_loses_nothing_to_planned_departures(scenario: int, order: str, queue_length: int) -> None:
    run = paper(scenario, pgs(queue_length, order))
    counters = run.counters
    assert (counters.kills, counters.planned_kills, counters.unfit, counters.wasted_s) == (0, 0, 0, 0)
    assert counters.attempts == counters.done == len(JOBS[scenario])
    assert run.makespan_s / 60 > BOUND_MIN


@pytest.mark.no_cover
def test_pgs_with_its_defaults_loses_nothing_to_planned_departures() -> None:
    for scenario in JOBS:
        assert paper(scenario, make_policy("pgs")).counters.kills == 0


@pytest.mark.no_cover
@pytest.mark.parametrize("scenario", [1, 2, 3])
def test_fcfs_loses_work_to_planned_departures_and_takes_longer_than_pgs(scenario: int) -> None:
    run = paper(scenario, fcfs())
    assert run.counters.planned_kills == run.counters.kills > 100
    assert run.makespan_s / 60 > 1.08 * minutes(scenario, pgs(order="newest-first"))


@pytest.mark.no_cover
def test_the_longer_the_tasks_the_more_pgs_gains_on_fcfs() -> None:
    gains = [minutes(scenario, fcfs()) / minutes(scenario, pgs(order="newest-first")) for scenario in range(4)]
    assert gains[0] == pytest.approx(1, abs=0.01)
    assert gains == sorted(gains)


# What an independent model of the same grid found for scenario 3; ours was within 2 % of each when this was written.
@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("order", "queue_length", "expected"), [("newest-first", 1, 70.6), ("newest-first", 12, 86.4), ("fifo", 1, 112.7)]
)
def test_order_and_length_of_queues_matter_as_another_model_found(
    order: str, queue_length: int, expected: float
) -> None:
    assert minutes(3, pgs(queue_length, order)) == pytest.approx(expected, rel=0.03)


@pytest.mark.no_cover
@pytest.mark.parametrize("scenario", [1, 2, 3])
def test_long_queues_and_first_in_first_out_cost_time(scenario: int) -> None:
    short, long = (minutes(scenario, pgs(length, "newest-first")) for length in (1, 12))
    assert short < long
    assert minutes(scenario, pgs(1, "fifo")) > short


# --- chance and rounding -------------------------------------------------------------------------------------------


@pytest.mark.no_cover
def test_the_same_run_is_the_same_and_another_seed_is_another() -> None:
    assert paper(3, fcfs(seed=4)) == paper(3, fcfs(seed=4))
    assert paper(3, fcfs(seed=4)) != paper(3, fcfs(seed=5))
    assert paper(2, pgs()) == paper(2, pgs())


@pytest.mark.parametrize("seed", [20, 28, 56, 173, 234, 257, 276, 289, 295])
def test_windows_that_tasks_would_fill_exactly_but_for_rounding_lose_nothing(seed: int) -> None:
    """Tenths of seconds are no binary fractions: sums that are equal on paper differ in the last digit here.

    In each of these a task was lost to that before tests of fit left room for rounding.
    """
    draw = Random(seed)
    cycles = [(draw.randint(5, 40) / 10, draw.choice([0.1, 1.2, 0.3])) for _ in range(4)]
    pcs = [SimulatedPC(f"pc{n}", cycle(*pair)) for n, pair in enumerate(cycles)]
    longest = round(max(up for up, _ in cycles) * 10)
    runtimes = [draw.randint(1, longest - 1) / 10 for _ in range(60)]
    assert Simulator(pgs(queue_length=4), pcs, [Arrival(runtimes)]).run().counters.planned_kills == 0


def test_what_is_behind_a_stopped_attempt_begins_when_that_is_stopped() -> None:
    """Both PCs have answered before, so that they are sent a task ahead. The quick PC copies what the slow one runs."""
    pcs = [SimulatedPC("slow", speed=0.1), SimulatedPC("b")]
    arrivals = [Arrival([0.25] * 2), Arrival([0.25] * 4, at=10.0, copies=True)]
    run = Simulator(pgs(), pcs, arrivals, trace=True).run()
    assert {(each.start, each.end, each.done) for each in run.executions if each.pc == "slow"} == {
        (0.0, 2.5, True),
        (10.0, 11.25, False),
        (11.25, 12.5, False),
    }
    assert (run.makespan_s, run.counters.copies, run.ran_s) == (12.5, 2, 2.5 + 2.5 + 5 * 0.25)
    untraced = Simulator(pgs(), pcs, arrivals).run()
    assert (untraced.makespan_s, untraced.ran_s, untraced.executions) == (run.makespan_s, run.ran_s, ())
