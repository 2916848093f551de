"""Between a worker's gangs and the processes of their ranks: as `Stage` is for tasks.

Each rank has a folder of its own. A rank is prepared when its files are here, and has ended when the broker has those
that it left.
"""

from dataclasses import dataclass
from typing import Protocol

from deskgrid import wire
from deskgrid.worker.environments.environments import Environments
from deskgrid.worker.files.cache import PcAtFault
from deskgrid.worker.files.inputs import Inputs, has_files
from deskgrid.worker.files.outputs import OutputFiles, failure
from deskgrid.worker.files.places import Places
from deskgrid.worker.gangs import RunsRanks
from deskgrid.worker.run.jobs import (
    GangStart,
    JobEnded,
    PrintedOutput,
    RankEnded,
    RankJob,
    RankKey,
    RankRefused,
    RankReport,
    RankStopped,
)
from deskgrid.worker.run.pool import NoAccount
from deskgrid.worker.run.ranks import TemplateOf


class RankProcesses(RunsRanks, Protocol):
    """The part of `deskgrid.worker.run.ranks.Ranks` that this needs; see there."""

    @property
    def templates(self) -> set[str]: ...
    def uses(self, environment: str) -> bool: ...


@dataclass(slots=True, eq=False)
class _HeldRank:
    """A rank with files. ``prepared``: its files are here. ``ended``: it has ended, and its files are on their way."""

    job: RankJob
    prepared: bool = False
    ended: JobEnded | None = None


class RankStage:
    """``template``: finds a known template. ``environments``: None if this worker has none."""

    def __init__(
        self,
        ranks: RankProcesses,
        template: TemplateOf,
        inputs: Inputs,
        outputs: OutputFiles,
        *,
        environments: Environments | None,
        places: Places,
    ) -> None:
        self._ranks = ranks
        self._template = template
        self._inputs = inputs
        self._outputs = outputs
        self._environments = environments
        self._places = places
        # Those that wait for an account.
        self._unplaced: list[_HeldRank] = []
        # Ranks that have a folder.
        self._held: dict[RankKey, _HeldRank] = {}
        self._reports: list[RankReport] = []

    @property
    def templates(self) -> set[str]:
        """The templates that ranks need."""
        return self._ranks.templates | {held.job.template for held in self._held.values()}

    def uses(self, environment: str) -> bool:
        """Whether a rank is in an environment, or is about to."""
        return any(held.job.environment == environment for held in self._held.values()) or self._ranks.uses(environment)

    def prepare(self, job: RankJob) -> None:
        """Fetch what a rank needs, and start its process."""
        if job.environment and (self._environments is None or self._environments.lacks(job.environment)):
            self._reports.append(RankRefused(job.key, "its environment is not on this PC any more"))
            return
        template = self._template(job.template)
        if not self._places.apart and not template.has_files and not has_files(job.payload):
            self._ranks.prepare(job)
            return
        self._held[job.key] = held = _HeldRank(job)
        owner = job.program.owner
        try:
            if not self._inputs.get(_holder(job.key), owner, template, job.payload, lambda why: self._came(held, why)):
                self._came(held, "")
        except wire.TreeRefused as error:
            self._came(held, str(error))

    def _came(self, held: _HeldRank, reason: str) -> None:
        job = held.job
        try:
            if not reason and self._places.take(_holder(job.key), job.program.owner) is None:
                self._unplaced.append(held)
                return
        except NoAccount as error:
            reason = PcAtFault(str(error))
        if not reason:
            held.prepared = True
            self._ranks.prepare(job)
            return
        self._let_go(job.key)
        if isinstance(reason, PcAtFault):
            self._reports.append(RankRefused(job.key, reason))
        else:
            failed = failure(job.slot, job.key[:2], "FilesMissing", reason, 0.0)
            self._reports.append(RankEnded(job.key, failed))

    def begin(self, key: RankKey, gang: GangStart, now: float) -> None:
        """Begin a rank that is ready."""
        self._ranks.begin(key, gang, now)

    def poll(self, now: float) -> list[RankReport]:
        """Return what happened since the last call."""
        unplaced, self._unplaced = self._unplaced, []
        for held in unplaced:
            if self._held.get(held.job.key) is held:
                self._came(held, "")
        for report in self._ranks.poll(now):
            if not isinstance(report, RankEnded) or not self._leaves(report):
                self._reports.append(report)
            if isinstance(report, RankRefused):
                self._let_go(report.key)
        reports, self._reports = self._reports, []
        return reports

    def _leaves(self, report: RankEnded) -> bool:
        """Whether a rank that has ended left files, which are sent first."""
        key, ended = report
        held = self._held.get(key)
        patterns = None if held is None else self._template(held.job.template).outputs
        if ended.outcome is not wire.Outcome.DONE or not (patterns or has_files(ended.payload)):
            if held is not None or ended.outcome:
                self._let_go(key)
            return False
        held = held or _HeldRank(RankJob(*key, 0, ended.slot, 1, "", b"", wire.TaskOptions()))
        held.ended = ended
        self._held[key] = held
        self._outputs.leave(_holder(key), ended, patterns, lambda told: self._left(key, told))
        return True

    def _left(self, key: RankKey, ended: JobEnded) -> None:
        """The files of a rank are with the broker, or cannot be."""
        del self._held[key]
        self._reports.append(RankEnded(key, ended))

    def running(self, now: float) -> dict[RankKey, float]:
        """How long the ranks have run that have begun. Seconds."""
        leaving = {key: held.ended.elapsed for key, held in self._held.items() if held.ended is not None}
        return leaving | self._ranks.running(now)

    def shown(self, key: RankKey, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        """Return what a running rank has printed."""
        return self._ranks.shown(key, stdout, stderr, most)

    def stop(self, task: int, number: int, now: float) -> list[RankStopped]:
        """End the ranks of an attempt here, and report nothing more of them; return what those printed that ran."""
        stopped = self._ranks.stop(task, number, now)
        for key in [key for key in self._held if key[:2] == (task, number)]:
            if (ended := self._held[key].ended) is not None:
                stopped.append(RankStopped(key, ended.elapsed, ended.stdout, ended.stderr))
            self._let_go(key)
        self._reports = [report for report in self._reports if report.key[:2] != (task, number)]
        return stopped

    def met(self, key: RankKey, serial: int, reason: str, values: wire.Payload) -> None:
        """Tell a rank how a meeting went."""
        self._ranks.met(key, serial, reason, values)

    def pmi(self, key: RankKey, data: bytes, now: float) -> None:
        """Give a rank an answer of its process manager."""
        self._ranks.pmi(key, data, now)

    def _let_go(self, key: RankKey) -> None:
        """Nobody needs the files of a rank any more."""
        holder = _holder(key)
        self._held.pop(key, None)
        self._inputs.drop(holder)
        self._outputs.drop(holder)
        self._inputs.tidy(holder)


def _holder(key: RankKey) -> str:
    """A rank, as messages about files and the folders of tasks name it."""
    return ".".join(map(str, key))
