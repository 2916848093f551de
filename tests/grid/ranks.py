"""Ranks of gangs in virtual time: what `deskgrid.worker.run.ranks.Ranks` is to a worker.

Each rank takes the seconds of its task. When half of them are over it gathers its number with the others, and goes on
when it has heard of them. One rank of a gang has the fate of its task.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import msgpack

from deskgrid.wire import Outcome, Payload
from deskgrid.worker.run.child import error_payload
from deskgrid.worker.run.jobs import (
    GangStart,
    JobEnded,
    PrintedOutput,
    RankEnded,
    RankJob,
    RankKey,
    RankMeets,
    RankReady,
    RankRefused,
    RankReport,
    RankSaid,
    RankStopped,
)
from tests.grid.tasks import SPAWN_S, Task, task_of

# What ranks are told of what they gathered before the broker was started again.
LOST = "what the others said is lost"


class RankRecords:
    """What all ranks on all PCs have done. ``answers``: how each that ended did, what it said, and where."""

    def __init__(self) -> None:
        self.ready: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self.answers: dict[RankKey, tuple[Outcome, bytes, str]] = {}
        self.gathered = 0
        self.lost = 0
        # PCs where ranks never get ready.
        self.never_ready: set[str] = set()


@dataclass(slots=True)
class _Rank:
    job: RankJob
    task: Task
    since: float
    told: bool = False
    began: float | None = None
    meets: bool = False
    met: float = math.inf

    @property
    def gathers_at(self) -> float:
        """When it gathers; infinity if it has, or has not begun."""
        return math.inf if self.began is None or self.meets else self.began + self.task.seconds / 2

    @property
    def ends_at(self) -> float:
        """When it ends."""
        if self.began is None:
            return math.inf
        limit = self.job.options.timeout
        end = max(self.began + self.task.seconds, self.met)
        return end if limit is None else min(end, self.began + limit)

    @property
    def next(self) -> float:
        """When it has something to say."""
        return min(self.ends_at, self.gathers_at, math.inf if self.told else self.since)


def rank_answer(task: Task, key: RankKey, outcome: Outcome) -> bytes:
    """What a rank says when it ends by ``outcome``."""
    if outcome == Outcome.DONE:
        packed: bytes = msgpack.packb([task.bag, task.item, *key[1:]])
        return packed
    return error_payload(outcome.name, f"{task.bag}/{task.item}/{key[1]}", "")


class FakeRanks:
    """The ranks of one PC, ``name``; ``crashes``: decides whether a gang that is to crash does it this time.

    ``lacks``: whether an environment is not there.
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        records: RankRecords,
        crashes: Callable[[Task], bool],
        lacks: Callable[[str], bool],
    ) -> None:
        self._name = name
        self._clock = clock
        self._records = records
        self._crashes = crashes
        self._lacks = lacks
        self._ranks: dict[RankKey, _Rank] = {}
        self._refused: list[RankRefused] = []

    def shown(self, key: RankKey, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        return None

    def uses(self, environment: str) -> bool:
        return any(rank.job.environment == environment for rank in self._ranks.values())

    def prepare(self, job: RankJob) -> None:
        if job.environment and self._lacks(job.environment):
            self._refused.append(RankRefused(job.key, "its environment is not on this PC any more"))
            return
        taken = {slot for rank in self._ranks.values() for slot in range(rank.job.slot, rank.job.slot + 1)}
        if job.slot in taken:
            raise ValueError(f"slot {job.slot} of {self._name} is given to two ranks")
        self._ranks[job.key] = _Rank(job, task_of(bytes(job.payload)), self._clock() + SPAWN_S)

    def begin(self, key: RankKey, gang: GangStart, now: float) -> None:
        rank = self._ranks[key]
        if len(self._records.ready[key[:2]]) != rank.job.size or len(gang.hosts) != rank.job.size:
            raise ValueError(f"{key} begins, and only {self._records.ready[key[:2]]} were ready")
        rank.began = now

    def poll(self, now: float) -> list[RankReport]:
        found: list[RankReport] = [*self._refused]
        self._refused.clear()
        for key, rank in list(self._ranks.items()):
            if rank.since <= now and not rank.told and self._name not in self._records.never_ready:
                rank.told = True
                self._records.ready[key[:2]].add(key[2])
                found.append(RankReady(key))
            if rank.gathers_at <= now:
                rank.meets = True
                found.append(RankSaid(key, RankMeets(*key[:2], 1, True, False, b"%d" % key[2])))
            if rank.ends_at <= now:
                found.append(RankEnded(key, self._end(key, rank)))
        return found

    def _end(self, key: RankKey, rank: _Rank) -> JobEnded:
        del self._ranks[key]
        assert rank.began is not None
        elapsed, outcome = rank.ends_at - rank.began, self._outcome(rank)
        answer = rank_answer(rank.task, key, outcome)
        assert key not in self._records.answers, f"{rank.task}: rank {key} ends twice"
        self._records.answers[key] = outcome, answer, self._name
        return JobEnded(rank.job.slot, *key[:2], outcome, elapsed, answer, b"said", b"")

    def _outcome(self, rank: _Rank) -> Outcome:
        limit, task = rank.job.options.timeout, rank.task
        assert rank.began is not None
        if limit is not None and rank.ends_at == rank.began + limit:
            return Outcome.TIMEOUT
        if task.item % rank.job.size != rank.job.rank:
            return Outcome.DONE
        if task.fate == "raise":
            return Outcome.ERROR
        return Outcome.CRASH if self._crashes(task) else Outcome.DONE

    def running(self, now: float) -> dict[RankKey, float]:
        return {key: now - rank.began for key, rank in self._ranks.items() if rank.began is not None}

    def stop(self, task: int, number: int, now: float) -> list[RankStopped]:
        ranks = [self._ranks.pop(key) for key in list(self._ranks) if key[:2] == (task, number)]
        self._refused = [each for each in self._refused if each.key[:2] != (task, number)]
        return [RankStopped(rank.job.key, now - rank.began, b"so far", b"") for rank in ranks if rank.began is not None]

    def met(self, key: RankKey, serial: int, reason: str, values: Payload) -> None:
        rank = self._ranks[key]
        if reason:
            assert reason.endswith(LOST), reason
            self._records.lost += 1
        else:
            told = msgpack.unpackb(bytes(values))
            assert told == [b"%d" % number for number in range(rank.job.size)], told
            self._records.gathered += 1
        rank.met = min(rank.met, self._clock())

    def pmi(self, key: RankKey, data: bytes, now: float) -> None:
        raise AssertionError(f"{key} is no MPI process")

    def next_end(self) -> float:
        """When something happens next; infinity when there are no ranks."""
        if self._name in self._records.never_ready:
            return math.inf
        return min((rank.next for rank in self._ranks.values()), default=math.inf)

    def power_off(self) -> None:
        """The PC goes."""
        self._ranks.clear()

    @property
    def idle(self) -> bool:
        """Whether there are none."""
        return not self._ranks
