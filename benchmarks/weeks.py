"""What it is worth to learn the hours of PCs by hour of the week: ``python -m benchmarks.weeks``.

Ten PCs without a plan are on from about 18:00 to 8:00, and over the weekend. Each Wednesday at noon, for ten weeks, 60
tasks of 1 to 8 hours and 6 of 20 to 40 come. The same run is simulated with and without hours of the week.
"""

from collections.abc import Iterator
from random import Random

import click

from deskgrid.scheduler.model import OPEN_ENDED
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.prediction.hours import DAY, HOUR, WEEK, Hours, Week
from deskgrid.scheduler.simulation.runs import Arrival, SimulatedPC
from deskgrid.scheduler.simulation.simulator import Simulator
from deskgrid.scheduler.simulation.timetable import RealWindow, Timetable

PCS, WEEKS, RUNS = 10, 10, 4
SHORT, LONG = (60, 1.0, 8.0), (6, 20.0, 40.0)


class NoWeek(Week):
    """All windows open at one hour of the week, so none of them counts alone."""

    def into(self, now: float) -> float:
        """Seconds since Monday 0:00."""
        return 0.0


def nights(seed: int) -> Timetable:
    """From a while after 18:00 on each working day until a while before 8:00 on the next."""

    def spans() -> Iterator[RealWindow]:
        chance, day = Random(seed), 0
        while True:
            if day % 7 < 5:
                opens = day * DAY + (18.0 + 0.5 * chance.random()) * HOUR
                next_day = day + (3 if day % 7 == 4 else 1)
                yield RealWindow(opens, next_day * DAY + (8.0 - 0.5 * chance.random()) * HOUR, OPEN_ENDED)
            day += 1

    return spans


def run(seed: int, week: Week) -> tuple[int, float]:
    """The tasks that were killed in a run, and the seconds that were lost with them."""
    chance = Random(seed)
    arrivals = [
        Arrival(
            [chance.uniform(least, most) * HOUR for count, least, most in (SHORT, LONG) for _ in range(count)],
            at=number * WEEK + 2.5 * DAY,
        )
        for number in range(WEEKS)
    ]
    pcs = [SimulatedPC(f"pc{number}", nights(100 * seed + number)) for number in range(PCS)]
    simulator = Simulator(make_policy("packing"), pcs, arrivals)
    simulator.scheduler.grid.hours = Hours(week)
    counters = simulator.run().counters
    return counters.kills, counters.wasted_s


@click.command()
def main() -> None:
    """Print how many tasks are killed, and how many hours are lost, without and with hours of the week."""
    for what, week in (("without", NoWeek()), ("with", Week())):
        found = [run(seed, week) for seed in range(RUNS)]
        kills, hours = sum(kills for kills, _ in found), sum(lost for _, lost in found) / HOUR
        click.echo(f"{what} hours of the week: {kills} tasks killed, {hours:.0f} hours lost")


if __name__ == "__main__":
    main()
