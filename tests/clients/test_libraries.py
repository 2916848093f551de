"""Libraries that take an executor, or a `map`, find on a grid what they find without one."""

import asyncio
import math

import dask.array
import emcee
import numpy as np
import optuna
import pytest
import scipy.optimize
from tqdm import tqdm

from deskgrid import Grid


def hilly(place: np.ndarray) -> float:
    """A function with many local minima; the least of all is at 0."""
    return float(np.sum(place**2 - 3.0 * np.cos(2.0 * math.pi * place)))


def log_probability(place: np.ndarray) -> float:
    """A normal distribution."""
    return float(-0.5 * np.sum(place**2))


def squared(number: int) -> int:
    return number * number


def test_scipy_finds_the_same_minimum(grid: Grid) -> None:
    how = {"bounds": [(-4.0, 4.0)] * 2, "rng": 1, "maxiter": 4, "updating": "deferred", "polish": False}
    alone = scipy.optimize.differential_evolution(hilly, **how)
    found = scipy.optimize.differential_evolution(hilly, workers=grid.map, **how)
    assert np.array_equal(found.x, alone.x)


def test_scipy_searches_a_lattice(grid: Grid) -> None:
    found = scipy.optimize.brute(hilly, [slice(-1.0, 1.1, 0.5)] * 2, finish=None, workers=grid.map)
    assert np.array_equal(found, [0.0, 0.0])


def test_emcee_draws_the_same_chain(grid: Grid) -> None:
    def chain(pool: object) -> np.ndarray:
        np.random.seed(3)
        sampler = emcee.EnsembleSampler(8, 2, log_probability, pool=pool)
        sampler.run_mcmc(np.random.randn(8, 2), 4)
        drawn: np.ndarray = sampler.get_chain()
        return drawn

    assert np.array_equal(chain(grid.using(runtime=0.05)), chain(None))


def test_dask_computes_an_array_on_it(grid: Grid) -> None:
    values = dask.array.arange(1000, chunks=250)
    assert int((values**2).sum().compute(scheduler=grid)) == sum(map(squared, range(1000)))


def test_optuna_asks_and_is_told(grid: Grid) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(3):
        trials = [study.ask({"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}) for _ in range(4)]
        places = [np.array([trial.params["x"]]) for trial in trials]
        for trial, value in zip(trials, grid.map(hilly, places), strict=True):
            study.tell(trial, value)
    assert len(study.trials) == 12
    assert study.best_value == min(hilly(np.array([trial.params["x"]])) for trial in study.trials)


def test_tqdm_counts_what_comes(grid: Grid, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(tqdm(grid.map(squared, range(20)), total=20)) == list(map(squared, range(20)))
    assert "20/20" in capsys.readouterr().err


def test_asyncio_awaits_calls(grid: Grid) -> None:
    async def all_of_them() -> list[int]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*[loop.run_in_executor(grid, squared, number) for number in range(10)])

    assert asyncio.run(all_of_them()) == list(map(squared, range(10)))
