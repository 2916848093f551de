"""Random grids: how they are drawn, and what is told of those that were simulated."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from deskgrid.sleepbench import grids
from deskgrid.sleepbench.cli.grids import best_length, lines
from deskgrid.sleepbench.grids import (
    BEST,
    BEST_QUEUED,
    CONTENDERS,
    LONGEST,
    QUEUES,
    ContenderResult,
    outcomes,
    random_grid,
)
from deskgrid.sleepbench.scenarios import Row
from deskgrid.sleepbench.simulated import Trial, Unfinished


@pytest.mark.parametrize("seed", range(6))
def test_the_mean_runtime_is_that_part_of_the_mean_uptime(seed: int) -> None:
    for mean in (0.02, 0.05):  # so short that next to nothing is drawn again for its length
        grid = random_grid(seed, mean)
        uptimes = [next(pc.timetable()).closes for pc in grid.pcs]
        runtimes = grid.arrivals[0].runtimes
        assert fmean(runtimes) == pytest.approx(mean * fmean(uptimes), rel=0.35)
        assert 0 < min(runtimes) <= max(runtimes) < LONGEST * max(uptimes)


def test_a_grid_is_the_same_each_time_and_another_for_each_number() -> None:
    assert random_grid(3) == random_grid(3) == random_grid(3, 0.2)
    assert [random_grid(seed).name for seed in range(4)] == ["uniform", "log-normal", "hyper-exponential", "uniform"]
    assert random_grid(0).pcs != random_grid(3).pcs


def rows(trials: Sequence[Trial], processes: int) -> Iterator[Row | Unfinished]:
    """As if PGS took 20 minutes, less a minute for each place in its queue, and never ended with one of 10."""
    row = Row("a", "packing", 1, 0, 8.0, 1.0, None, 5, 0, 0, 0.0, 0.0)
    for trial in trials:
        queue = trial.parameters.options[trial.policy].get("queue_length")
        if queue == 10:
            yield Unfinished(trial, "it stalls")
        else:
            yield replace(row, makespan_min=8.0 if queue is None else 20.0 - float(str(queue)), planned_kills=3)


def test_of_each_grid_the_best_queue_counts_and_packings_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "rows_of", rows)
    (found,) = outcomes([0], processes=1)
    assert [found.makespan_min[f"pgs, queue {queue}"] for queue in QUEUES] == [20, 19, 18, 16, math.inf]
    assert found.makespan_min[BEST] == found.makespan_min[BEST_QUEUED] == 16
    assert found.planned_kills == 6, "told of the coming windows, and not"
    assert found.ratio("packing", BEST) == 0.5


def test_without_queues_pgs_is_one_thing_and_with_them_another() -> None:
    minutes = {contender.name: 10.0 for contender in CONTENDERS} | {BEST: 10.0, BEST_QUEUED: 12.5}
    told = {line[0]: line[1:] for line in lines([[ContenderResult(0, "uniform", 5, 5.0, minutes, 2)]])}
    assert told["packing"] == ("1.000",)
    assert told[BEST_QUEUED] == ("1.250",)
    assert told[f"packing, to {BEST_QUEUED}"] == ("0.800",)


def test_the_best_queue_length_for_all_grids_is_not_that_for_each() -> None:
    first = {contender.name: 10.0 for contender in CONTENDERS} | {"pgs, queue 2": 40.0, BEST: 10.0, BEST_QUEUED: 10.0}
    second = first | {"pgs, queue 1": 20.0, "pgs, queue 2": 15.0, "pgs, queue 4": 90.0, "pgs, queue 10": 90.0}
    both = [ContenderResult(seed, "uniform", 5, 5.0, minutes, 0) for seed, minutes in enumerate((first, second))]
    assert best_length(both) == "pgs, queue 1"
    assert best_length(both[1:]) == "pgs, queue 2"
    told = {line[0]: line[1:] for line in lines([both[:1], both])}
    assert told["mean of packing, to mean of pgs, queue 1"] == ("1.000", f"{10 / 15:.3f}")


def test_what_else_the_table_says() -> None:
    minutes = {contender.name: 10.0 for contender in CONTENDERS} | {BEST: 10.0, BEST_QUEUED: 12.5}
    told = {line[0]: line[1:] for line in lines([[ContenderResult(0, "uniform", 5, 5.0, minutes, 2)]])}
    assert (told["lower bound"], told[f"worst, to {BEST}"], told["planned kills"]) == (("0.500",), ("1.000",), ("2",))


def test_wrong_predictions_are_those_of_the_grids_seed_and_fcfs_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Trial] = []

    def noted(trials: Sequence[Trial], processes: int) -> Iterator[Row | Unfinished]:
        tried.extend(trials)
        return rows(trials, processes)

    monkeypatch.setattr(grids, "rows_of", noted)
    (found,) = outcomes([7], processes=1, runtime_error=2.0)
    assert {(trial.seed, trial.runtime_error) for trial in tried} == {(7, 2.0)}
    assert [name for name in found.makespan_min if name not in (BEST, BEST_QUEUED)][-1] == "fcfs"
    assert {line[0] for line in lines([[found]])} >= {"packing", "fcfs", BEST_QUEUED}
