"""What a task has printed, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class RankLog:
    """The output of one rank of a gang, and where it ran.

    ``stdout``, ``stderr``: as in `TaskLog`.
    ``state``: ``done``, how it failed, ``running``, or ``stopped`` together with the others. The output of a stopped
    rank is there if the rank had flushed it and the PC could still send it; otherwise ``elapsed_s`` is 0.
    """

    rank: int
    worker: str
    state: str
    elapsed_s: float
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class TaskLog:
    """The log of one task. ``error``: its traceback, or how else it failed; ``elapsed_s``: how long it ran.

    ``state``: ``running`` if the task is running; then ``stdout`` and ``stderr`` are the end of what it has printed.

    ``stdout``, ``stderr``: up to 64 KiB of each, the middle of more is left out. Bytes that are not UTF-8 are lone
    surrogates, as in names of files: ``log.stdout.encode("utf-8", "surrogateescape")`` is what the task wrote.

    For a gang, these are about the rank that failed first, or else about rank 0; ``rank`` is its number. ``ranks`` has
    the output of every rank.
    """

    state: str
    worker: str | None
    elapsed_s: float
    stdout: str
    stderr: str
    error: str | None
    rank: int | None = None
    ranks: tuple[RankLog, ...] = ()

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Read an answer of the broker. Raises KeyError and TypeError."""
        ranks = [RankLog(**{name: row[name] for name in RankLog.__slots__}) for row in answer["ranks"]]
        return cls(**{name: answer[name] for name in cls.__slots__ if name != "ranks"}, ranks=tuple(ranks))
