"""What it is worth to know how earlier bags compared with their predictions: ``python -m benchmarks.series``.

Nine bags of one function come one after the other to the PCs of the paper's scenario 3. Their tasks are drawn from
those of the scenario. The same bags are simulated with and without the ratios of earlier ones. The first bag has no
earlier ones; the figures are of all others.
"""

from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean, stdev
from typing import NamedTuple

import click

from deskgrid.scheduler.simulation.runs import Arrival
from deskgrid.scheduler.simulation.simulator import Simulator
from deskgrid.sleepbench.parameters import Parameters
from deskgrid.sleepbench.perturbation import error
from deskgrid.sleepbench.scenarios import paper_scenario
from deskgrid.sleepbench.simulated import LONGEST_PREDICTED, policy_of, scenario_problem

BAGS = 9
SIZES = (20, 60, 240)
# By what a task's runtime is multiplied to get its prediction.
ERRORS: dict[str, Callable[[Random], float]] = {
    "F = 2": lambda chance: error(2.0, chance),
    "F = 4": lambda chance: error(4.0, chance),
    "1 to 4 times too long": lambda chance: chance.uniform(1.0, 4.0),
    "1 to 10 times too long": lambda chance: chance.uniform(1.0, 10.0),
}


class Outcome(NamedTuple):
    """One bag: its makespan, its attempts that were killed, and how long they had run. Seconds."""

    makespan_s: float
    kills: int
    wasted_s: float


def series(seed: int, tasks: int, wrong: Callable[[Random], float], function: str) -> Sequence[Outcome]:
    """All bags of a series but the first. ``function``: that of all bags; empty: they have nothing in common."""
    problem, chance = scenario_problem(paper_scenario(3), seed), Random(f"series {seed}")
    (known,), most = problem.arrivals, LONGEST_PREDICTED * problem.longest_window_s()
    arrivals = []
    for number in range(BAGS):
        actual = chance.sample(known.really(), tasks)
        told = [min(seconds * wrong(chance), max(most, seconds)) for seconds in actual]
        # By then, the bag before has ended.
        arrivals.append(Arrival(told, actual, at=number * (3_600.0 + 40.0 * tasks), function=function))
    simulator = Simulator(
        policy_of("packing", {}, seed), problem.pcs, arrivals, Parameters().conditions(seed), trace=True
    )
    found = [list[tuple[float, float, bool]]() for _ in arrivals]
    for each in simulator.run().executions:
        found[each.task // tasks].append((each.start, each.end, each.done))
    return [_outcome(its, arrival.at) for its, arrival in zip(found, arrivals, strict=True)][1:]


def _outcome(executions: Sequence[tuple[float, float, bool]], came: float) -> Outcome:
    killed = [end - start for start, end, done in executions if not done]
    return Outcome(max(end for _, end, _ in executions) - came, len(killed), sum(killed))


@click.command()
@click.option("--runs", default=8, show_default=True)
def main(runs: int) -> None:
    """Print makespans, kills and lost time, without and with the ratios of earlier bags."""
    for what, wrong in ERRORS.items():
        for tasks in SIZES:
            both = [
                [bag for seed in range(runs) for bag in series(seed, tasks, wrong, function)]
                for function in ("", "render")
            ]
            ratios = [with_.makespan_s / without.makespan_s for without, with_ in zip(*both, strict=True)]
            figures = [
                f"{fmean(bag.makespan_s for bag in bags) / 60:.2f} min, {fmean(bag.kills for bag in bags):.1f} killed, "
                f"{fmean(bag.wasted_s for bag in bags) / 60:.1f} min lost"
                for bags in both
            ]
            change = f"{fmean(ratios):.3f} ± {stdev(ratios) / len(ratios) ** 0.5:.3f}"
            click.echo(f"{what}, {tasks} tasks: {figures[0]}; with earlier bags {figures[1]}; makespans {change}")


if __name__ == "__main__":
    main()
