"""The common form of all sources of jobs or PCs, and the reader of their files.

Rule 1: whatever a file contains, reading it returns a value or raises a `WorkloadError`, whose one-line message names
the file and, if possible, the line. With ``lenient`` a malformed line is skipped and counted instead.
Rule 2: nothing is left out silently: records that are left out are counted by reason, and the counts are part of the
result.
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

# A larger number of seconds (30,000 years) or of processors is surely a typo, and floating-point sums would lose
# seconds.
LARGEST = 1e12

T = TypeVar("T")

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


class WorkloadError(ValueError):
    """The file and the options give no workload; one line that says why."""


class MalformedLine(ValueError):
    """A line violates its format. Never leaves the readers: it becomes a `WorkloadError`, or is counted."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Tasks to run. ``notes``: omissions and assumptions, a sentence each."""

    title: str
    arrivals: tuple[Arrival, ...]
    notes: tuple[str, ...] = ()

    @property
    def tasks(self) -> int:
        """How many tasks all bags have together."""
        return sum(len(arrival.runtimes) for arrival in self.arrivals)


@dataclass(frozen=True, slots=True)
class Lab:
    """PCs that run tasks. ``notes``: omissions and assumptions, a sentence each."""

    title: str
    pcs: tuple[SimulatedPC, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Tally:
    """How many records were left out, by reason, in the order in which the reasons first occurred."""

    counts: Counter[str] = field(default_factory=Counter)

    def notes(self) -> tuple[str, ...]:
        """A line for each reason."""
        return tuple(f"{reason}: {count:,}" for reason, count in self.counts.items())


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file with one record per line, gzipped if named ``.gz``. Lines that begin with ``comment`` are no records."""

    path: Path
    comment: str
    lenient: bool
    tally: Tally

    def records(
        self, parse: Callable[[str], T], heading: Callable[[str], None] = lambda line: None
    ) -> Generator[T, None, None]:
        """Parse each record as it is read, with ``parse``; comments go to ``heading``."""
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
        """The lines, numbered from 1. Invalid UTF-8 is replaced: only comments and names may be more than ASCII."""
        try:
            opener = gzip.open if self.path.suffix == ".gz" else open
            with opener(self.path, "rt", encoding="utf-8-sig", errors="replace") as file:
                yield from enumerate(file, 1)
        except (OSError, EOFError, zlib.error) as error:
            raise WorkloadError(f"{self.path} cannot be read: {error}") from error


def number(text: str, what: str) -> float:
    """Read a decimal number; raises `MalformedLine`, in whose message the number is called ``what``."""
    if not _NUMBER.fullmatch(text):
        raise MalformedLine(f"the {what} is not a number: {text[:40]!r}")
    value = float(text)
    if abs(value) > LARGEST:
        raise MalformedLine(f"the {what} is out of bounds: {value:g}")
    return value


def whole(text: str, what: str) -> int:
    """Read a whole number, as `number` does."""
    value = number(text, what)
    if value != int(value):
        raise MalformedLine(f"the {what} is not a whole number: {value:g}")
    return int(value)
