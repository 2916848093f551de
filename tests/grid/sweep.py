"""Seed after seed of every weather, on all cores: the sweep's test runs some of them, ``make soak`` thousands.

    python -m tests.grid.sweep --seeds 20000                          so many, of all weathers
    python -m tests.grid.sweep --seeds 20000 --go-on drizzle:700      after it was interrupted there
    python -m tests.grid.sweep --only storm:57                        one, with the story if it fails

Rule: a seed is run in the same way everywhere, so what fails here fails there.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.grid.chaos import Drizzle, Dusk, Squall, Storm, Sunshine, Weather

WEATHERS: dict[str, type[Weather]] = {
    "storm": Storm,
    "drizzle": Drizzle,
    "dusk": Dusk,
    "sunshine": Sunshine,
    "squall": Squall,
}
# Which part of the seeds each gets.
SHARES = {"storm": 0.4, "drizzle": 0.25, "dusk": 0.15, "sunshine": 0.2, "squall": 0.2}
# The last things that happened before a seed failed, for whoever reads it.
STORY_LINES = 60
# Seeds that are given to a process at once.
CHUNK = 5
# How often a long run says how far it is; seconds.
TELL_S = 10.0


@dataclass(frozen=True, slots=True)
class Tried:
    """One seed of one weather.

    ``again``: how often a task was given to somebody again. ``failure``: empty, or what does not hold and how it came
    to that.
    """

    weather: str
    seed: int
    tasks: int = 0
    again: int = 0
    events: int = 0
    failure: str = ""


def tried(weather: str, seed: int) -> Tried:
    """Run one seed."""
    with tempfile.TemporaryDirectory(prefix="deskgrid-seed-") as folder:
        run = WEATHERS[weather](seed, Path(folder))
        failure = ""
        with closing(run.grid):
            try:
                run.run()
            except Exception as error:
                failure = (
                    f"{type(error).__name__}: {error}\n\n{run.grid.world.story(STORY_LINES)}\n\n{again(weather, seed)}"
                )
        witness = run.grid.witness
        return Tried(weather, seed, len(witness.recorded), witness.holdings.again, run.grid.world.events, failure)


def again(weather: str, seed: int) -> str:
    """What runs this seed alone."""
    return f"again: python -m tests.grid.sweep --only {weather}:{seed}"


def seeds_of(weather: str, total: int) -> range:
    """Those of ``total`` seeds that are of this weather."""
    return range(int(total * SHARES[weather]))


def all_cores() -> AbstractContextManager[ProcessPoolExecutor]:
    """A process for each core."""
    return processes(os.cpu_count() or 1)


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Some processes; started anew, so that they inherit nothing, the measuring of coverage included."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def sweep(pool: ProcessPoolExecutor, weather: str, seeds: Iterable[int]) -> Iterator[Tried]:
    """Run ``seeds``, in order."""
    numbers = list(seeds)
    return pool.map(tried, [weather] * len(numbers), numbers, chunksize=CHUNK)


def said(weather: str, runs: Iterable[Tried]) -> str:
    """A line about what was tried. Raises `AssertionError` with the story of the first seed that failed."""
    seeds = tasks = again = events = 0
    for run in runs:
        assert not run.failure, run.failure
        seeds, tasks, again, events = seeds + 1, tasks + run.tasks, again + run.again, events + run.events
    return f"{weather}: {seeds:,} seeds, {tasks:,} tasks, {again:,} given again for a reason, {events:,} events"


def _told(weather: str, last: int, runs: Iterable[Tried]) -> Iterator[Tried]:
    """``runs``, while it is said from time to time where to go on should this be interrupted."""
    tell_at = time.monotonic() + TELL_S
    for run in runs:
        if time.monotonic() >= tell_at:
            tell_at += TELL_S
            print(f"{weather}: {run.seed} of {last}; to go on from here: --go-on {weather}:{run.seed}", flush=True)
        yield run


def _asked_for(asked: argparse.Namespace) -> dict[str, range]:
    """The seeds of each weather, by the command line."""
    if asked.only:
        weather, seed = asked.only
        return {weather: range(seed, seed + 1)}
    seeds = {weather: seeds_of(weather, asked.seeds) for weather in WEATHERS}
    if asked.go_on:
        weather, first = asked.go_on
        names = list(WEATHERS)
        seeds = {name: seeds[name] for name in names[names.index(weather) :]}
        seeds[weather] = range(first, seeds[weather].stop)
    return seeds


def _place(text: str) -> tuple[str, int]:
    weather, _, seed = text.partition(":")
    if weather not in WEATHERS:
        raise ValueError(text)
    return weather, int(seed)


def main() -> int:
    """Run what the command line asks for; 1 when a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.grid.sweep", description="Random grids, random faults.")
    parser.add_argument("--seeds", type=int, default=1000, help="so many, of all weathers")
    parser.add_argument("--go-on", type=_place, metavar="WEATHER:SEED", help="with that one, and all that follow")
    parser.add_argument("--only", type=_place, metavar="WEATHER:SEED", help="that one")
    logging.disable(logging.CRITICAL)
    with all_cores() as pool:
        for weather, seeds in _asked_for(parser.parse_args()).items():
            try:
                print(said(weather, _told(weather, seeds.stop, sweep(pool, weather, seeds))), flush=True)
            except AssertionError as failed:
                print(failed, file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
