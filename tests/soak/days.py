"""Virtual days of a large lab: a thousand PCs that come and go by their plans, and work day after day.

    python -m tests.soak.days --minutes 20 --workers 1000

As many virtual days as fit the minutes, three weeks at least. After each day the broker's memory is looked at. What has
to hold: every task ends once and with the right answer; nothing grows after the first third of the days; and when
nothing more is submitted, all bags end, and are forgotten in time.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deskgrid import wire
from tests.grid.witness import Broken, expect
from tests.memory import growth
from tests.soak.broker import BrokerBeside, Figures, Pace
from tests.soak.lab import Lab

# Much longer than a broker's own: a day of a thousand workers that speak every two seconds has 43 million messages.
HEARTBEAT_S, LEASE_S = 1800.0, 5400.0
KEEP_DAYS = 2.0
# So that each third has a weekend.
LEAST_DAYS = 21
# What is flat: no more than this above what it was before.
FLAT = 0.05
# Rows about windows are kept for 400 days, so the journal grows by these until then. Bytes of one, with room to spare.
WINDOW_BYTES = 160
# How long everything that was submitted may take to end.
SETTLING_DAYS = 4

Sample = tuple[int, Figures]


def soaked(
    home: Path,
    *,
    workers: int,
    seed: int,
    more: Callable[[int], bool],
    keep_days: float | None = KEEP_DAYS,
    flat: float = FLAT,
) -> str:
    """Let days pass while ``more(days)``; a line about them. Raises `AssertionError` for what does not hold."""
    with BrokerBeside(home, Pace(HEARTBEAT_S, LEASE_S, keep_days)) as broker:
        lab, samples = Lab(broker, workers, seed), list[Sample]()
        while more(lab.days):
            lab.day()
            samples.append((broker.resident, broker.figures()))
            print(_of_day(lab.days, *samples[-1]), flush=True)
        days, grown = lab.days, _grown(samples)
        for what, part in grown.items():
            expect(part <= flat, "{} grew by {:.1%} from the second third of the days to the last", what, part)
        _end(lab, broker, keep_days)
    figures, tasks = samples[-1][1], lab.ledger.submitted
    return (
        f"{days} virtual days of {workers:,} workers: {tasks:,} tasks, each ended once; "
        f"{figures.counters['losses']:,.0f} losses, {figures.counters['departures']:,.0f} departures; "
        f"memory {samples[-1][0] / 2**20:.1f} MiB, {', '.join(f'{what} {part:+.1%}' for what, part in grown.items())}"
    )


def _grown(samples: list[Sample]) -> dict[str, float]:
    """By which part each thing that has to be flat has grown."""
    return {
        "resident": growth([resident for resident, _ in samples]),
        "blocks": growth([figures.blocks for _, figures in samples]),
        "rows kept": growth([figures.kept for _, figures in samples]),
        "journal": growth([figures.file_bytes - WINDOW_BYTES * figures.windows for _, figures in samples]),
    }


def _of_day(day: int, resident: int, figures: Figures) -> str:
    sizes = f"{resident / 2**20:.1f} MiB, {figures.blocks:,} blocks, journal {figures.file_bytes / 2**20:.1f} MiB"
    rows = f"{figures.kept:,} rows of {figures.bags} bags, {figures.windows:,} windows"
    return f"day {day}: {sizes}; {rows}; {figures.waiting:,} tasks wait, {figures.bound:,} at workers"


def _end(lab: Lab, broker: BrokerBeside, keep_days: float | None) -> None:
    """Nothing more is submitted: everything ends, the counts agree, and everything is forgotten."""
    for _ in range(SETTLING_DAYS):
        if lab.ledger.open:
            lab.day(at_work=False)
    expect(not lab.ledger.open, "bags that did not end: {}", sorted(lab.ledger.open))
    counters, outcomes = broker.figures().counters, lab.ledger.outcomes
    expect(sum(outcomes.values()) == lab.ledger.submitted, "{} results", sum(outcomes.values()))
    expect(counters["submitted"] == lab.ledger.submitted, "the broker counts {} tasks", counters["submitted"])
    expect(counters["done"] == outcomes[wire.Outcome.DONE], "the broker counts {} done", counters["done"])
    for _ in range(round(keep_days or 0) + 1):
        lab.day(at_work=False)
    figures = broker.figures()
    expect(figures.kept == 0 and figures.bags == 0, "{} rows of {} bags are left", figures.kept, figures.bags)


def main() -> int:
    """Run what the command line asks for; 1 when something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.days", description="Virtual days of a large lab.")
    parser.add_argument("--minutes", type=float, default=20.0, help="of real time; three weeks of days at least")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    enough = time.monotonic() + 60.0 * asked.minutes
    with tempfile.TemporaryDirectory(prefix="deskgrid-days-") as home:
        try:
            more = lambda days: days < LEAST_DAYS or time.monotonic() < enough  # noqa: E731
            print(soaked(Path(home), workers=asked.workers, seed=asked.seed, more=more))
        except Broken as broken:
            print(f"seed {asked.seed}: {broken}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
