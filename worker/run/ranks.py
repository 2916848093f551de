"""Runs ranks of gangs, each in a process of its own: started for it, and killed with everything when it has ended.

A rank needs a fresh process: an MPI library starts once in a process, and numerical libraries look only once how many
threads they may use. The slots that it occupies have their processes beside it, idle.

Rule 1: a rank is prepared first; it begins when all ranks of its gang can. What it cannot do before it has begun is
reported as `RankRefused`, what happens afterwards as its end.
Rule 2: reports of a killed process are ignored.
Rule 3: as for the slots, the owner calls this from one thread; ``wake()`` says that there is something to poll.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from deskgrid.durations import precise
from deskgrid.wire import Failure, Outcome, Payload, TaskOptions
from deskgrid.worker.run.child import frame
from deskgrid.worker.run.devices import WHATEVER_THERE_IS, HeldDevices
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
from deskgrid.worker.run.mpi import UNANSWERED_BYTES, Mpi, PmiEnd
from deskgrid.worker.run.output import last_lines
from deskgrid.worker.run.process import Process, ProcessReport, as_sent
from deskgrid.worker.run.slot import TaskClock
from deskgrid.worker.run.spawning import Spawner
from deskgrid.worker.run.templates import UnpackedTemplate

TemplateOf = Callable[[str], UnpackedTemplate]


@dataclass(slots=True, eq=False)
class _Rank:
    """``variables``: of its environment, as far as they are known before its gang begins. ``began``: when that was.

    ``stood_s``: for how long it was stopped after that, before the pause that may go on.
    """

    job: RankJob
    process: Process
    pmi: PmiEnd | None
    variables: dict[str, str]
    began: float | None = None
    stood_s: float = 0.0

    def elapsed(self, now: float) -> float:
        return 0.0 if self.began is None else max(0.0, now - self.began)


class Ranks:
    """``template``: finds a known template. ``mpi``: how MPI programs start here; None: they do not.

    ``memory_note``: what to say of a rank that crashed.
    """

    def __init__(
        self,
        spawner: Spawner,
        template: TemplateOf,
        wake: Callable[[], None],
        *,
        memory_note: str,
        mpi: Mpi | None,
        devices: Callable[[TaskOptions, HeldDevices], HeldDevices],
    ) -> None:
        self._spawner = spawner
        self._template = template
        self._wake = wake
        self._memory_note = memory_note
        self._mpi = mpi
        self._choose_devices = devices
        self.clock = TaskClock()
        self._ranks: dict[RankKey, _Rank] = {}
        self._by_process: dict[Process, _Rank] = {}
        # What threads have heard, and what is to be reported besides.
        self._said: deque[tuple[Process | RankKey, ProcessReport | bytes]] = deque()
        self._reports: list[RankReport] = []

    @property
    def templates(self) -> set[str]:
        """The templates that ranks need."""
        return {rank.job.template for rank in self._ranks.values()}

    @property
    def devices(self) -> list[HeldDevices]:
        """What ranks have of the graphics cards."""
        return [rank.process.devices for rank in self._ranks.values()]

    def uses(self, environment: str) -> bool:
        """Whether a rank is in an environment."""
        return any(rank.job.environment == environment for rank in self._ranks.values())

    def running(self, now: float) -> dict[RankKey, float]:
        """How long the ranks have run that have begun. Seconds."""
        now = self.clock.read(now)
        return {key: rank.elapsed(now) for key, rank in self._ranks.items() if rank.began is not None}

    def shown(self, key: RankKey, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        """Return what a rank has printed that runs, as `Process.shown`; None: it does not run."""
        rank = self._ranks.get(key)
        return None if rank is None or rank.began is None else rank.process.shown(stdout, stderr, most)

    def next_deadline(self, now: float) -> float | None:
        """Return the seconds until `poll` must be called even if nothing wakes the owner; None: it need not be."""
        now = self.clock.read(now)
        left = [
            rank.job.options.timeout - rank.elapsed(now)
            for rank in self._ranks.values()
            if rank.began is not None and rank.job.options.timeout is not None
        ]
        return max(0.0, min(left)) if left else None

    # --- a rank's life -----------------------------------------------------------------------------------------------

    def prepare(self, job: RankJob) -> None:
        """Start the process of a rank, whose template is known."""
        pmi: PmiEnd | None = None
        if job.options.mpi:
            if self._mpi is None:
                self._refuse(job.key, "this worker does not run MPI programs: start it with --mpi")
                return
            pmi = PmiEnd(lambda data: self._tell_pmi(job.key, data))
        try:
            process = self._spawner.spawn(
                job.slot,
                self._spawner.key_of(job),
                job.program.owner,
                self._tell,
                rank=True,
                threads=job.slots,
                devices=self._choose_devices(job.options, WHATEVER_THERE_IS),
                inherited=() if pmi is None else (pmi.descriptor,),
            )
        except OSError as error:
            if pmi is not None:
                pmi.close()
            self._refuse(job.key, f"no process for it could be started: {error}")
            return
        rank = _Rank(job, process, pmi, self._variables(job, pmi))
        self._ranks[job.key] = self._by_process[process] = rank
        if pmi is not None:
            pmi.begin()

    def begin(self, key: RankKey, gang: GangStart, now: float) -> None:
        """Begin a rank that is ready."""
        rank = self._ranks[key]
        job, rank.began = rank.job, self.clock.read(now)
        local = {"LOCAL_RANK": str(gang.local.index(job.rank)), "LOCAL_WORLD_SIZE": str(len(gang.local))}
        about = {
            "attempt": (job.task, job.number),
            "rank": job.rank,
            "hosts": gang.hosts,
            "variables": rank.variables | local | {"MASTER_ADDR": gang.hosts[0], "MASTER_PORT": str(gang.port)},
        }
        behind: list[memoryview] = []
        row = [job.task, job.number, as_sent(job.payload), None]
        rank.process.write([frame(["gang", "", about]), frame(["run", job.template, [row]], behind), *behind], 1)

    def go_on(self, now: float) -> None:
        """The processes go on that were stopped."""
        lasted = self.clock.go_on(now)
        for rank in self._ranks.values():
            rank.stood_s += 0.0 if rank.began is None else lasted

    def stop(self, task: int, number: int, now: float) -> list[RankStopped]:
        """Kill the ranks of an attempt here, and report nothing more of them; return what those printed that ran."""
        now = self.clock.read(now)
        ranks = [rank for key, rank in self._ranks.items() if key[:2] == (task, number)]
        for rank in ranks:
            self._release(rank)
        self._reports = [report for report in self._reports if report.key[:2] != (task, number)]
        return [
            RankStopped(rank.job.key, rank.elapsed(now), *rank.process.captured())
            for rank in ranks
            if rank.began is not None
        ]

    def met(self, key: RankKey, serial: int, reason: str, values: Payload) -> None:
        """Tell a rank how a meeting went."""
        if (rank := self._ranks.get(key)) is not None:
            behind: list[memoryview] = []
            data = frame(["met", "", [serial, reason, as_sent(values)]], behind)
            rank.process.write([data, *behind], 0)

    def pmi(self, key: RankKey, data: bytes, now: float) -> None:
        """Give a rank an answer of its process manager."""
        now = self.clock.read(now)
        rank = self._ranks.get(key)
        if rank is not None and rank.pmi is not None and not rank.pmi.say(data):
            self._lose(rank, Outcome.CRASH, "killed, because it does not read what its process manager answers", now)
            self._wake()

    # --- what happens ------------------------------------------------------------------------------------------------

    def _tell(self, process: Process, said: list[ProcessReport]) -> None:
        """Queue reports; the threads of processes call this."""
        self._said.extend([(process, one) for one in said])
        self._wake()

    def _tell_pmi(self, key: RankKey, data: bytes) -> None:
        """Queue what a rank says to its process manager; the threads of `PmiEnd` call this."""
        self._said.append((key, data))
        self._wake()

    def poll(self, now: float) -> list[RankReport]:
        """Return what happened since the last call. Kills ranks that are overdue."""
        standing_s, now = self.clock.standing(now), self.clock.read(now)
        while self._said:
            who, said = self._said.popleft()
            rank = self._by_process.get(who) if isinstance(who, Process) else self._ranks.get(who)
            if rank is not None and isinstance(said, JobEnded):
                said = said._replace(elapsed=max(0.0, said.elapsed - rank.stood_s - standing_s))
            if rank is not None:
                self._hear(rank, said, now)
            if said == "gone" and isinstance(who, Process):
                self._spawner.gone(who)
        for rank in list(self._ranks.values()):
            limit = rank.job.options.timeout
            if rank.began is not None and limit is not None and rank.elapsed(now) >= limit:
                self._lose(rank, Outcome.TIMEOUT, f"not done after {precise(limit)}", now)
        reports, self._reports = self._reports, []
        return reports

    def _hear(self, rank: _Rank, said: ProcessReport | bytes, now: float) -> None:
        key = rank.job.key
        match said:
            case bytes():
                assert rank.pmi is not None
                rank.pmi.unanswered += len(said)
                if rank.pmi.unanswered > UNANSWERED_BYTES:
                    most = f"{UNANSWERED_BYTES:,} bytes"
                    reason = f"killed, because it sent its process manager more than {most} without an answer"
                    self._lose(rank, Outcome.CRASH, reason, now)
                else:
                    self._reports.append(RankSaid(key, said))
            case "ready":
                self._supply(rank)
            case "gone":
                self._lose(rank, Outcome.CRASH, rank.process.reason + self._memory_note, now)
            case "spent":
                pass  # it has reported why, and ends by itself
            case RankMeets() if rank.began is not None and (said.task, said.number) == key[:2]:
                self._reports.append(RankSaid(key, said))
            case JobEnded() if rank.began is not None and (said.task, said.number) == key[:2]:
                self._reports.append(RankEnded(key, said))
                self._release(rank)
            case _:
                self._lose(rank, Outcome.CRASH, "killed, because it reported a task that was not running", now)

    def _supply(self, rank: _Rank) -> None:
        """Give a process that has started what it needs before it begins."""
        job = rank.job
        rank.process.confine(job.options.memory)
        body = self._spawner.body(self._template(job.template), job.program.owner)
        rank.process.write([frame(["template", job.template, body])], 0)
        self._reports.append(RankReady(job.key))

    def _variables(self, job: RankJob, pmi: PmiEnd | None) -> dict[str, str]:
        found = {"RANK": str(job.rank), "WORLD_SIZE": str(job.size)}
        if pmi is not None and self._mpi is not None:
            found |= self._mpi.variables(job.rank, job.size)
        return found

    def _refuse(self, key: RankKey, reason: str) -> None:
        self._reports.append(RankRefused(key, reason))
        self._wake()

    def _lose(self, rank: _Rank, outcome: Outcome, reason: str, now: float) -> None:
        """End a rank whose process has died, or has to."""
        job, elapsed = rank.job, rank.elapsed(now)
        self._release(rank)
        if rank.began is None:
            self._reports.append(RankRefused(job.key, f"its process did not come up: {reason}"))
            return
        stdout, stderr = rank.process.captured()
        payload = Failure(outcome.name.capitalize(), reason, last_lines(stderr)).packed()
        ended = JobEnded(job.slot, job.task, job.number, outcome, elapsed, payload, stdout, stderr)
        self._reports.append(RankEnded(job.key, ended))

    def _release(self, rank: _Rank) -> None:
        """Kill a rank's process with all that it started, and forget it."""
        rank.process.kill()
        if rank.pmi is not None:
            rank.pmi.close()
        del self._ranks[rank.job.key], self._by_process[rank.process]

    def close(self) -> None:
        """Forget all ranks, whose processes have been killed."""
        for rank in self._ranks.values():
            if rank.pmi is not None:
                rank.pmi.close()
        self._ranks.clear()
        self._by_process.clear()
        self._said.clear()
