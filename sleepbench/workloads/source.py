"""What every source of jobs or PCs gives, and how its files are read.

Rule 1: whatever is in a file, reading it gives a value or raises `WorkloadError`, whose one line names the file and,
where there is one, the line. With ``lenient`` a malformed line is skipped and counted instead.
Rule 2: nothing is left out in silence: what is, is counted by its reason, and the counts go with the result.
"""

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from deskgrid.scheduler.simulation.simulator import Arrival, SimulatedPC

# Beyond this a number of seconds (30,000 years) or of processors is a slip of the pen, and sums would lose the seconds.
LARGEST = 1e12

T = TypeVar("T")

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


class WorkloadError(ValueError):
    """The file, or what was asked of it, gives no workload; one line that says why."""


class MalformedLine(ValueError):
    """A line is not what its format says. Never leaves the readers: it becomes a `WorkloadError`, or a count."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Tasks to run. ``notes``: what was left out or assumed, a sentence each."""

    title: str
    arrivals: tuple[Arrival, ...]
    notes: tuple[str, ...] = ()

    @property
    def tasks(self) -> int:
        """How many tasks, all bags together."""
        return sum(len(arrival.runtimes) for arrival in self.arrivals)


@dataclass(frozen=True, slots=True)
class Lab:
    """PCs to run them on. ``notes``: what was left out or assumed, a sentence each."""

    title: str
    pcs: tuple[SimulatedPC, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Tally:
    """How many things were left out, by reason, in the order in which the reasons came up."""

    counts: Counter[str] = field(default_factory=Counter)

    def notes(self) -> tuple[str, ...]:
        """A line for each reason."""
        return tuple(f"{reason}: {count:,}" for reason, count in self.counts.items())


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of one record a line, gzipped if its name ends so; lines that begin with ``comment`` are no records."""

    path: Path
    comment: str
    lenient: bool
    tally: Tally

    def records(
        self, parse: Callable[[str], T], heading: Callable[[str], None] = lambda line: None
    ) -> Generator[T, None, None]:
        """What ``parse`` makes of each record, as they are read; comments go to ``heading``."""
        for place, line in self._lines():
            text = line.strip()
            if text.startswith(self.comment):
                heading(text.removeprefix(self.comment))
            elif text and (record := self._record(parse, place, line)) is not None:
                yield record

    def _record(self, parse: Callable[[str], T], place: int, line: str) -> T | None:
        try:
            return parse(line)
        except MalformedLine as fault:
            if not self.lenient:
                raise WorkloadError(f"{self.path}, line {place}: {fault}") from fault
            self.tally.counts[f"malformed lines of {self.path.name} skipped"] += 1
            return None

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Numbered from 1. What is no UTF-8 is replaced: only comments and names are more than ASCII."""
        try:
            opener = gzip.open if self.path.suffix == ".gz" else open
            with opener(self.path, "rt", encoding="utf-8-sig", errors="replace") as file:
                yield from enumerate(file, 1)
        except (OSError, EOFError, zlib.error) as error:
            raise WorkloadError(f"{self.path} cannot be read: {error}") from error


def number(text: str, what: str) -> float:
    """The decimal number that ``text`` is; raises `MalformedLine`, which calls it ``what``, if it is none."""
    if not _NUMBER.fullmatch(text):
        raise MalformedLine(f"the {what} is not a number: {text[:40]!r}")
    value = float(text)
    if abs(value) > LARGEST:
        raise MalformedLine(f"the {what} is out of bounds: {value:g}")
    return value


def whole(text: str, what: str) -> int:
    """The same for a whole number."""
    value = number(text, what)
    if value != int(value):
        raise MalformedLine(f"the {what} is not a whole number: {value:g}")
    return int(value)
