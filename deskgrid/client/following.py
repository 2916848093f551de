"""What the tasks of a bag print, as it comes: of those that run, and the rest when they end."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from deskgrid.client.logs import TaskLog
from deskgrid.durations import precise
from deskgrid.errors import RequestFailed

# Seconds between two questions: workers say once in a second what their tasks have printed.
EVERY_S = 1.0
# States of a task that has ended.
ENDED = ("done", "failed", "cancelled")
# The note where a worker has cut the output of a task.
CUT = re.compile(rb"\n\[\.\.\. (\d+) bytes cut \.\.\.\]\n")

Ask = Callable[..., dict[str, Any]]


class LogPiece(NamedTuple):
    """What a task, or a rank of it, has printed since the last piece of it; or, in a ``note``, how it ended.

    ``missed``: so many bytes before it were left out: a worker sends 4 KiB of each stream in a second.
    """

    item: int
    rank: int | None
    worker: str
    stdout: bytes = b""
    stderr: bytes = b""
    missed: int = 0
    note: str = ""


@dataclass(slots=True)
class _ReadPosition:
    """How much of stdout and of stderr of an attempt, or a rank of it, is known."""

    attempt: int
    known: dict[str, int] = field(default_factory=lambda: {"stdout": 0, "stderr": 0})


class Following:
    """``ask``: asks a question about the bag. ``log``: finds the log of one of its tasks."""

    def __init__(self, ask: Ask, log: Callable[[int], TaskLog]) -> None:
        self._ask = ask
        self._log = log
        self._places: dict[tuple[int, int | None], _ReadPosition] = {}

    def task(self, item: int) -> Iterator[LogPiece]:
        """Yield what one task prints, until it has ended."""
        after: int | None = None
        while True:
            answer = self._ask("printed", item=item, after=after)
            yield from self._news(answer)
            after = answer["after"]
            if answer["states"][0] in ENDED:
                yield from self._rest(item)
                return
            time.sleep(EVERY_S)

    def bag(self) -> Iterator[LogPiece]:
        """Yield what the tasks of a bag print, the newest that have ended first, until all have ended."""
        after: int | None = None
        ended: int | None = None
        while True:
            answer = self._ask("printed", after=after)
            output = self._ask("output", after=ended)
            yield from self._news(answer)
            for row in output["output"]:
                yield from self._rest(row["item"])
            after, ended = answer["after"], output["after"]
            if answer["complete"] and not output["output"]:
                return
            if not output["output"]:
                time.sleep(EVERY_S)

    def _news(self, answer: dict[str, Any]) -> Iterator[LogPiece]:
        for row in answer["printed"]:
            place = self._places.get((row["item"], row["rank"]))
            if place is None or place.attempt != row["attempt"]:
                place = self._places[row["item"], row["rank"]] = _ReadPosition(row["attempt"])
            new = {name: _after(_bytes(row[name]), row[f"{name}_bytes"], place.known[name]) for name in place.known}
            place.known = {name: row[f"{name}_bytes"] for name in place.known}
            missed = sum(missed for _, missed in new.values())
            if missed or any(data for data, _ in new.values()):
                yield LogPiece(row["item"], row["rank"], row["worker"], new["stdout"][0], new["stderr"][0], missed)

    def _rest(self, item: int) -> Iterator[LogPiece]:
        """What a task that has ended printed and is not known yet, and how it ended."""
        try:
            log = self._log(item)
        except RequestFailed:  # somebody has forgotten the bag
            return
        ranks: list[Any] = list(log.ranks) or [log]
        for its in ranks:
            rank = its.rank if log.ranks else None
            place = self._places.pop((item, rank), _ReadPosition(0))
            new = {name: _rest_of(_bytes(getattr(its, name)), place.known[name]) for name in place.known}
            missed = sum(missed for _, missed in new.values())
            if missed or any(data for data, _ in new.values()):
                yield LogPiece(item, rank, its.worker or "", new["stdout"][0], new["stderr"][0], missed)
        where = f" on {log.worker} after {precise(log.elapsed_s)}" if log.worker else ""
        error = f"\n{log.error}" if log.error and log.error.strip() not in log.stderr else ""
        yield LogPiece(item, None, log.worker or "", note=f"{log.state}{where}{error}")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _after(data: bytes, end: int, known: int) -> tuple[bytes, int]:
    """What of ``data``, which ends at ``end``, comes after what is known; and how much between is missing."""
    start = end - len(data)
    return (data, start - known) if start > known else (data[max(0, known - start) :], 0)


def _rest_of(data: bytes, known: int) -> tuple[bytes, int]:
    """What of a whole output, whose middle may have been cut, comes after what is known; and how much is missing."""
    cut = CUT.search(data)
    if cut is None:
        return data[known:], 0
    head, tail, gone = data[: cut.start()], data[cut.end() :], int(cut[1])
    if known < len(head):
        return head[known:] + tail, gone
    return _after(tail, len(head) + gone + len(tail), known)
