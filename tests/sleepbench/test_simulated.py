"""Runs in virtual time: the paper's table, exact schedules of small grids, and that chance is always the seed's."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, Run, SimulatedPC, Simulator, Stalled, cycle
from deskgrid.sleepbench import simulated
from deskgrid.sleepbench.parameters import Parameters, paper_parameters
from deskgrid.sleepbench.scenarios import PAPER_MIN, Row, Scenario, paper_scenario
from deskgrid.sleepbench.simulated import Problem, Trial, Unfinished, row_of, rows_of, scenario_problem, simulate

# The paper's PCs, but not its work: quick.
SMALL = Scenario("small", tuple(float(seconds) for seconds in range(2, 80, 2)), (84.0, 117.0, 228.0), 1.2)
PROBLEM = scenario_problem(SMALL, 0)


def trial(policy: str = "pgs", problem: Problem = PROBLEM, **more: Any) -> Trial:
    return Trial(problem, policy, **more)


def rows(trials: Sequence[Trial], processes: int = 1) -> list[Row]:
    made = list(rows_of(trials, processes))
    assert all(isinstance(row, Row) for row in made), made
    return [row for row in made if isinstance(row, Row)]


# --- the paper's Table 2 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", PAPER_MIN)
@pytest.mark.parametrize("number", range(4))
def test_one_set_of_parameters_reproduces_every_figure_of_table_2_within_3_percent(number: int, policy: str) -> None:
    parameters = paper_parameters()
    problem = scenario_problem(replace(paper_scenario(number), restart=parameters.restart_s), 0)
    made = rows([Trial(problem, policy, run, run - 1, parameters) for run in range(1, 4)])
    assert fmean(row.makespan_min for row in made) == pytest.approx(PAPER_MIN[policy][number], rel=0.03)
    assert made[0].paper_min == PAPER_MIN[policy][number]


def test_the_papers_parameters_are_options_that_the_policies_have() -> None:
    for name, options in paper_parameters().options.items():
        make_policy(name, **options)


def test_in_a_fixed_order_first_come_first_served_never_ends_what_one_in_turn_does() -> None:
    """The livelock: the lost task is the first, the shortest window is, too, and both meet again and again."""
    scenario = Scenario("two", (10.0,), (5.0, 20.0), 0.0)
    made = {
        choice: next(rows_of([trial("fcfs", scenario_problem(scenario, 0), parameters=parameters(choice))]))
        for choice in ("first", "in-turn", "random")
    }
    assert isinstance(made["first"], Unfinished)
    assert made["first"].reason == "1 of 1 tasks are placed nowhere, or lost each time"
    assert isinstance(made["in-turn"], Row)
    assert isinstance(made["random"], Row)


def parameters(choice: str) -> Parameters:
    return Parameters(options={"fcfs": {"choice": choice, "queue_s": 0}})


# --- golden traces ---------------------------------------------------------------------------------------------------

# What ran where: PC, task, from, to, and x for what was killed; in the order in which they ended. Seconds; a task's
# number is its place in the list. The PCs stay for 10 and 19 s, and come back after 1 s.
TASKS = (3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
GOLDEN = {
    # At 8 nothing fits the 2 s left of pc1, so the last two join the priority queue, which has the newer one in front.
    ("pgs", "newest-first", 0): "pc1 0 0-3, pc2 1 0-4, pc1 2 3-8, pc2 3 4-10, pc2 5 10-18, pc1 4 11-18",
    ("pgs", "fifo", 0): "pc1 0 0-3, pc2 1 0-4, pc1 2 3-8, pc2 3 4-10, pc2 4 10-17, pc1 5 11-19",
    ("pgs", "longest-first", 1): "pc1 0 0-3, pc2 1 0-4, pc1 2 3-8, pc2 3 4-10, pc2 5 10-18, pc1 4 11-18",
    # At 10 pc1 takes task 4 with it, which is the next of all and goes to the only PC there.
    ("fcfs", "in-turn", 0): "pc1 0 0-3, pc2 1 0-4, pc1 2 3-8, pc2 3 4-10, pc1 4 8-10x, pc2 4 10-17, pc1 5 11-19",
    # At 10 task 4 is queued on pc2, behind task 5, while pc1 comes back and has nothing to do.
    ("fcfs", "in-turn", 1): "pc1 0 0-3, pc2 1 0-4, pc1 2 3-8, pc2 3 4-10, pc1 4 8-10x, pc2 5 10-18, pc2 4 18-19x, "
    "pc1 4 19-21x, pc2 4 21-28",
    ("fcfs", "first", 1): "pc1 0 0-3, pc2 2 0-5, pc1 1 3-7, pc1 4 7-10x, pc2 3 5-11, pc1 4 11-18, pc2 5 11-19",
}


@pytest.mark.parametrize(("policy", "option", "queue"), GOLDEN)
def test_small_grids_do_exactly_this(policy: str, option: str, queue: int) -> None:
    options = {"order": option, "margin": 0} if policy == "pgs" else {"choice": option}
    made = make_policy(policy, queue_length=queue, queue_s=0, **options)
    pcs = [SimulatedPC("pc1", cycle(10, 1)), SimulatedPC("pc2", cycle(19, 1))]
    run = Simulator(made, pcs, [Arrival(TASKS)], trace=True).run()
    told = [f"{e.pc} {e.task} {e.start:g}-{e.end:g}{'' if e.done else 'x'}" for e in run.executions]
    assert ", ".join(told) == GOLDEN[policy, option, queue]


# --- chance ----------------------------------------------------------------------------------------------------------


def series(policy: str, runs: int = 4, **more: Any) -> list[Trial]:
    return [trial(policy, run=run, seed=10 + run, **more) for run in range(1, runs + 1)]


def test_the_same_seed_gives_the_same_rows_whatever_the_number_of_processes() -> None:
    jitter = Parameters(jitter=0.01)
    trials = [*series("fcfs", 2), *series("pgs", 2, parameters=jitter), *series("pgs", 1, uptime_error=2.0)]
    alone = rows(trials)
    assert alone == rows(trials) == rows(trials, processes=2)
    assert [(row.policy, row.run, row.seed) for row in alone] == [
        ("fcfs", 1, 11), ("fcfs", 2, 12), ("pgs", 1, 11), ("pgs", 2, 12), ("pgs", 1, 11)
    ]  # fmt: skip


def test_what_chance_has_no_part_in_is_computed_once_and_told_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def counted(asked: Trial, trace: bool = False) -> Run:
        computed.append(asked.policy)
        return simulate(asked, trace)

    monkeypatch.setattr(simulated, "simulate", counted)
    made = rows(
        [
            *series("pgs"),
            *series("fcfs", parameters=parameters("random")),
            *series("pgs", problem=replace(PROBLEM, name="another")),
        ]
    )
    assert computed == ["pgs", *["fcfs"] * 4, "pgs"]
    assert [row.run for row in made] == [1, 2, 3, 4] * 3
    assert [row.seed for row in made] == [11, 12, 13, 14] * 3
    assert len({row.makespan_min for row in made[:4]}) == len({row.makespan_min for row in made[8:]}) == 1


@pytest.mark.parametrize(
    "more", [{"parameters": Parameters(jitter=0.01)}, {"runtime_error": 3.0}, {"uptime_error": 3.0}]
)
def test_jitter_and_errors_are_drawn_anew_for_each_seed(more: dict[str, Any]) -> None:
    assert len({row.makespan_min for row in rows(series("pgs", **more))}) == 4


def test_a_shuffled_scenario_is_another_problem_with_each_seed() -> None:
    shuffled = replace(SMALL, shuffled=True)
    problems = [scenario_problem(shuffled, seed) for seed in (1, 2)]
    assert problems[0].arrivals != problems[1].arrivals
    made = rows([trial("pgs", problem, seed=seed) for seed, problem in enumerate(problems)])
    assert made[0].makespan_min != made[1].makespan_min


# --- what a row says -------------------------------------------------------------------------------------------------


def test_a_row_is_in_the_scenarios_own_minutes_whatever_the_scale() -> None:
    whole, tenth = (rows([trial("pgs", scenario_problem(SMALL, 0, scale), parameters=LOOSE)])[0] for scale in (1, 0.1))
    assert tenth.makespan_min == pytest.approx(whole.makespan_min)
    assert tenth.idle_s == pytest.approx(whole.idle_s)
    assert (whole.scenario, whole.tasks, whole.paper_min, whole.kills) == ("small", len(SMALL.tasks), None, 0)
    assert whole.lower_bound_min == pytest.approx(math.fsum(SMALL.tasks) / 3 / 60)


LOOSE = Parameters(options={"pgs": {"margin": 0, "queue_s": 0}})


def test_overhead_is_not_scaled() -> None:
    costly = replace(LOOSE, overhead_s=1.0)
    whole, tenth = (rows([trial("pgs", scenario_problem(SMALL, 0, scale), parameters=costly)])[0] for scale in (1, 0.1))
    assert tenth.makespan_min > 1.1 * whole.makespan_min


def test_a_known_overhead_is_part_of_each_prediction_and_an_unknown_one_loses_tasks() -> None:
    known, unknown = (Parameters(overhead_s=3.0, overhead_known=told, options=LOOSE.options) for told in (True, False))
    assert rows([trial("pgs", parameters=known)])[0].kills == 0
    lost = rows([trial("pgs", parameters=unknown)])[0]
    assert lost.kills == lost.planned_kills > 0
    assert lost.wasted_s > 0


def test_idle_is_all_window_time_in_which_no_task_ran() -> None:
    stays = scenario_problem(Scenario("stays", (10.0, 10.0, 4.0), (math.inf, math.inf), 0.0), 0)
    row = rows([trial("pgs", stays, parameters=Parameters(overhead_s=1.0))])[0]
    assert row.makespan_min == pytest.approx(16 / 60)
    assert row.idle_s == pytest.approx(2 * 16 - 24)


# --- predictions -----------------------------------------------------------------------------------------------------


def test_no_prediction_is_so_wrong_that_a_task_would_wait_for_ever() -> None:
    made = rows(series("pgs", runtime_error=64.0))
    assert all(row.tasks == len(SMALL.tasks) for row in made)


def test_a_run_that_never_ends_is_told_as_such_and_the_others_are_made() -> None:
    too_long = scenario_problem(Scenario("long", (300.0,), (84.0,), 1.2), 0)
    unfinished, row = rows_of([trial("pgs", too_long), trial("pgs")])
    assert unfinished == Unfinished(trial("pgs", too_long), "1 of 1 tasks fit into no window")
    assert isinstance(row, Row)
    with pytest.raises(Stalled):
        simulate(trial("pgs", too_long))


def test_a_trace_is_there_when_it_is_asked_for() -> None:
    run = simulate(trial(), trace=True)
    assert len(run.executions) == run.counters.attempts
    assert {name for name, _ in run.spans} == {"pc1", "pc2", "pc3"}
    assert simulate(trial()).executions == ()
    assert row_of(trial(), run) == rows([trial()])[0]
