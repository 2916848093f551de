"""Owns the processes that run tasks: one per slot of this worker, reused between tasks, killed when necessary.

Rule 1: the owner of the executor calls it from one thread. ``wake()`` wakes the owner when there is something to poll.
One thread per process reads the process's pipe and appends to a queue; it touches nothing else here.
Rule 2: a process runs its jobs in the order in which it gets them, so the state of unfinished jobs is known: the first
is running, the others have not started. A process gets more jobs while it runs its last one, never earlier. So it never
has to wait, and it has already read everything that was written to it before.
Rule 3: reports of a killed process are ignored: a slot listens only to its current process.
Rule 4: a process serves one run of one program of one person: it loads the modules of only one bundle, and runs in one
environment. For others it is replaced, which is cheap: see `deskgrid.worker.run.parent`.

``now`` is seconds of one monotonic clock in all calls. A job's time starts at the first call with a ``now`` after the
job was sent to a ready process, or at the poll that saw its predecessor end. While the owner of the PC uses it, all
processes are stopped, and the clock of the jobs stands still (`pause`): no limit of time and no runtime counts that.
"""

import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from deskgrid.durations import precise
from deskgrid.wire import PAYLOAD_LIMIT, Failure, Outcome, TaskOptions, in_batches
from deskgrid.worker.environments.site import EnvironmentSite
from deskgrid.worker.run.cgroup import Groups
from deskgrid.worker.run.checkpoint_files import CheckpointFiles
from deskgrid.worker.run.child import TASKS, frame, lacks_room
from deskgrid.worker.run.devices import Devices, HeldDevices
from deskgrid.worker.run.folders import WorkerFolder
from deskgrid.worker.run.jobs import Job, JobEnded, JobSaved, PrintedOutput, RankMeets
from deskgrid.worker.run.mpi import Mpi
from deskgrid.worker.run.output import last_lines, without_printed
from deskgrid.worker.run.pool import Accounts
from deskgrid.worker.run.process import Process, ProcessReport, as_sent
from deskgrid.worker.run.ranks import Ranks
from deskgrid.worker.run.slot import ProcessSlot, TaskClock
from deskgrid.worker.run.spawning import Spawner
from deskgrid.worker.run.templates import Remembered, UnpackedTemplate, read_template

# A larger result is a file. This leaves room for the digests of the trees that come with a result.
RESULT_LIMIT = PAYLOAD_LIMIT - 128
# Bytes kept of each task's stdout, and of its stderr: enough to see what went wrong, and the output of a million tasks
# still fits on a disk.
CAPTURE_LIMIT = 64 * 1024
# Templates that no job needs are forgotten, those not used for longest first, beyond this many bytes of all: two of the
# largest. The broker is asked for them again.
TEMPLATES_BYTES = 2 * PAYLOAD_LIMIT
# How long a process is kept for more tasks of its program. Seconds.
IDLE_S = 60.0
# Idle slots that have a process: where one is copied, it is there within milliseconds, and another slot gets it then.
# On Windows, it takes as long as a Python takes to start.
READY_SLOTS = sys.maxsize if sys.platform == "win32" else 2
# How often the files in the worker's folder are touched: what is not used for some days is removed where temporary
# files are. Seconds.
TOUCH_S = 12 * 3600.0
# What is in it that no task can write to.
BUNDLES, CHECKPOINTS = "bundles", "checkpoints"
# Failed starts in a row before a job goes back to the broker: two may be bad luck.
START_ATTEMPTS = 3


class Executor:
    """Runs jobs on the slots of the worker ``name``; ``wake`` is called from other threads, until `close` returns.

    ``slots`` is the number of slots. Bundles of modules are unpacked in a folder that `close` removes.

    ``result_limit``, ``capture_limit``: bytes of a result, and of each of stdout and stderr. ``task_memory``: bytes
    of memory for a task's process, and for each process that it starts, on systems that can enforce this; 0 for no
    limit. ``accounts``: the users that the processes run as, and where the folders of tasks are; None: they run as the
    worker's own user, with folders beside the bundles. ``mpi``: how MPI programs start here; None: they do not.
    ``nice``: how far processes give way to others on this PC. ``groups``: how the kernel bounds what tasks asked for
    that gave ``memory``; None: each of their processes is limited by itself. ``devices``: the graphics cards.
    """

    def __init__(
        self,
        slots: int,
        name: str,
        wake: Callable[[], None],
        *,
        result_limit: int = RESULT_LIMIT,
        capture_limit: int = CAPTURE_LIMIT,
        task_memory: int = 0,
        accounts: Accounts | None = None,
        mpi: Mpi | None = None,
        nice: int = 0,
        groups: Groups | None = None,
        devices: Devices | None = None,
    ) -> None:
        self._wake = wake
        self._woken = False
        self._memory_note = f"; a task here may use at most {task_memory:,} bytes of memory" if task_memory else ""
        self.folder = WorkerFolder()
        self._touched: float | None = None
        self._accounts = Accounts(self.folder.path) if accounts is None else accounts
        self._bundles = self.folder.path / BUNDLES
        uids = [place.uid for place in self._accounts.places if place.uid is not None]
        self.checkpoints = CheckpointFiles(self.folder.path / CHECKPOINTS, uids=uids)
        self._saved: list[JobSaved] = []
        arguments = [name, str(result_limit), str(task_memory)]
        self._spawner = Spawner(
            self.folder, arguments, capture_limit, self._accounts, self._keep, nice=nice, groups=groups
        )
        self._templates: dict[str, UnpackedTemplate] = {}
        self._remembered = Remembered(TEMPLATES_BYTES)
        self._devices = Devices() if devices is None else devices
        self._clock = TaskClock()
        self._slots = [ProcessSlot(index, devices=self._devices.none) for index in range(slots)]
        self._said: deque[tuple[Process, ProcessReport]] = deque()
        about: dict[str, Any] = {"memory_note": self._memory_note, "mpi": mpi, "devices": self._choose_devices}
        self.ranks = Ranks(self._spawner, self.template, wake, **about)

    @property
    def processes(self) -> set[Process]:
        """The processes of the slots and ranks, and killed processes that have not ended yet; no spare ones."""
        return self._spawner.processes - {slot.spare for slot in self._slots if slot.spare is not None}

    @property
    def sites(self) -> Mapping[str, EnvironmentSite]:
        """The environments that are ready, by key, and the other Pythons of this PC, by version."""
        return self._spawner.sites

    @sites.setter
    def sites(self, sites: Mapping[str, EnvironmentSite]) -> None:
        self._spawner.sites = sites

    def know(self, digest: str, blob: bytes, needed: Collection[str] = ()) -> None:
        """Learn a template; others may be forgotten, except those ``needed``. Raises `TemplateError`, and OSError."""
        self.folder.renew()
        template = read_template(blob, self._bundles)
        running = {slot.jobs[0].template for slot in self._busy()} | self.ranks.templates
        for old in self._remembered.add(digest, template.size, running | set(needed)):
            del self._templates[old]
        self._templates[digest] = template

    def _make_tasks_folder(self) -> None:
        """Make the folder in which checkpointable commands run, and checkpointable tasks leave large checkpoints.

        Each account has one already.
        """
        if not self._accounts.count:
            (self.folder.path / TASKS).mkdir(mode=0o700, exist_ok=True)

    def knows(self, digest: str) -> bool:
        """Whether `know` was called with it, it was not forgotten, and nobody has removed its modules."""
        template = self._templates.get(digest)
        return template is not None and (not template.unpacked or os.path.isdir(template.unpacked))

    def template(self, digest: str) -> UnpackedTemplate:
        """A known template."""
        return self._templates[digest]

    def start(self) -> None:
        """Start the processes of the first slots, so that the first tasks do not wait for them.

        If there are accounts, it is not known yet whose processes these are to be.
        """
        if self._accounts.count:
            self._spawner.warm()
        for slot in self._slots[:READY_SLOTS]:
            if slot.process is None:
                self._start(slot)

    def run(self, slot: int, jobs: Sequence[Job]) -> None:
        """Run ``jobs``, all of one known template, one after another on a slot.

        Raises ValueError if they are not, or if the slot still has jobs of another template.
        """
        if not jobs or len({job.template for job in jobs}) > 1 or jobs[0].template not in self._templates:
            raise ValueError("a batch is one or more jobs of one known template")
        target = self._slots[slot]
        if target.jobs and target.jobs[0].template != jobs[0].template:
            raise ValueError(f"slot {slot} has jobs of another template")
        environment = self._spawner.key_of(jobs[0])
        if target.jobs and (target.environment != environment or target.program != jobs[0].program):
            raise ValueError(f"slot {slot} has jobs in another environment, or of another program")
        if self._accounts.count and target.program.owner != jobs[0].program.owner:
            self._retire(target)
            self._drop_spare(target)
        target.environment, target.program = environment, jobs[0].program
        if not target.jobs:
            target.since = None
            target.devices = self._choose_devices(jobs[0].options, target.devices)
        target.jobs.extend(jobs)
        self._remembered.use(jobs[0].template)
        bundle = self._templates[jobs[0].template].bundle
        if target.process and (
            target.process.environment != target.environment
            or target.process.devices != target.devices
            or target.process.program not in (None, target.program)
            or target.process.memory not in (None, jobs[0].options.memory)
            or (bundle is not None and target.process.bundle not in (None, bundle))
        ):
            self._retire(target)
        if target.process is None:
            self._start(target)
        elif target.process.ready:
            self._supply(target, target.process)

    def poll(self, now: float) -> list[JobEnded]:
        """Return the jobs that ended since the last call. Kills overdue processes and replaces dead ones."""
        self._woken = False
        self._look_after_folder(now)
        real, stood_s, now = now, self._clock.standing(now), self._clock.read(now)
        for slot in self._busy():
            slot.elapsed(now)
        ended: list[JobEnded] = []
        for slot in self._slots:
            if not slot.jobs and self._is_somebodys(slot):
                self._renew(slot, now)
        while self._said:
            process, said = self._said.popleft()
            slot = self._slots[process.slot]
            process.ready |= said == "ready"
            if slot.process is process:
                self._hear(slot, process, _without_pauses(slot, said, stood_s), now, ended)
            if said == "gone":
                slot.spare = None if slot.spare is process else slot.spare
                self._spawner.gone(process)
        for slot in self._busy():
            self._check(slot, now, ended)
        self._spawner.sweep(real)
        return ended

    # --- pauses ------------------------------------------------------------------------------------------------------

    def pause(self, now: float) -> None:
        """Stop all processes with what they have started; also those that have come since the last call."""
        self._clock.stop(now)
        self.ranks.clock.stop(now)
        for process in self._spawner.processes:
            process.stop()

    def go_on(self, now: float) -> None:
        """Let all processes go on."""
        lasted = self._clock.go_on(now)
        self.ranks.go_on(now)
        for slot in self._busy():
            slot.stood_s += lasted if slot.sent else 0.0
        for process in self._spawner.processes:
            process.resume()

    def let_save(self) -> None:
        """Let those processes go on that run a checkpointable job, which is told when to save. The clock stands."""
        for slot in self._busy():
            if slot.process is not None and slot.sent and slot.jobs[0].checkpoint is not None:
                slot.process.resume()

    # --- what runs ---------------------------------------------------------------------------------------------------

    def _look_after_folder(self, now: float) -> None:
        """Take care that nobody cleans the folder away, and that it is there again if somebody did."""
        with suppress(OSError):  # a process that needs it says what is wrong
            self.folder.renew()
        if self._touched is None:
            self._touched = now
        elif now - self._touched >= TOUCH_S:
            self._touched = now
            names = [BUNDLES, CHECKPOINTS]
            threading.Thread(target=lambda: self.folder.touch(names), name="deskgrid-touch", daemon=True).start()

    def saved(self) -> list[JobSaved]:
        """Return the checkpoints that came since the last call: those before the jobs that `poll` returned last."""
        saved, self._saved = self._saved, []
        return saved

    def tell_times(self, slot: int, due: float, closes: float, last: bool) -> None:
        """Tell the running job of a slot, which is checkpointable, when to save: see `Process.tell_times`."""
        self._slots[slot].closes = closes
        if (process := self._slots[slot].process) is not None:
            with suppress(OSError):  # such as a full disk; it is told again
                process.tell_times(due, closes, last)

    def running(self, now: float) -> list[tuple[int, int, int, float]]:
        """Return the running attempts: slot, task, number, elapsed seconds."""
        now = self._clock.read(now)
        return [
            (slot.index, slot.jobs[0].task, slot.jobs[0].number, slot.elapsed(now))
            for slot in self._busy()
            if slot.sent
        ]

    def shown(self, task: int, number: int, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        """Return what a running job has printed, as `Process.shown`; None: it does not run."""
        for slot in self._busy():
            if slot.sent and slot.process is not None and (slot.jobs[0].task, slot.jobs[0].number) == (task, number):
                return slot.process.shown(stdout, stderr, most)
        return None

    def next_deadline(self, now: float) -> float | None:
        """Return the seconds until `poll` must be called even if nothing wakes the owner; None: it need not be."""
        if self._clock.stands:
            return None
        shown = self._clock.read(now)
        left = [slot.limit - slot.elapsed(shown) for slot in self._busy() if slot.limit is not None]
        if (rank := self.ranks.next_deadline(now)) is not None:
            left.append(rank)
        return max(0.0, min(left)) if left else None

    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]:
        """Kill the process of a slot and drop its jobs. `poll` reports none of them, not even one that has just ended.

        Returns the jobs: the running one with its elapsed seconds, jobs that have not started with None.
        """
        target, now = self._slots[slot], self._clock.read(now)
        elapsed = target.elapsed(now) if target.sent else None
        held = [(job, None if place else elapsed) for place, job in enumerate(target.jobs)]
        target.jobs.clear()
        if target.sent:
            self._release(target)
            self._start(target)
        return held

    def rest(self) -> None:
        """End the processes of all idle slots, until `start` or `run`."""
        for slot in self._slots:
            if not slot.jobs:
                self._retire(slot)
                self._drop_spare(slot)

    def end_idle(self, keep: Collection[str]) -> None:
        """End the processes of people other than these who have no job here: somebody else needs an account."""
        for slot in self._slots:
            if not slot.jobs and slot.program.owner not in keep:
                self._retire(slot)
                self._drop_spare(slot)

    def close(self) -> None:
        """End all idle processes, kill the others, and remove the unpacked bundles. May be called again."""
        self.rest()
        self._slots.clear()
        self._spawner.close()
        self.ranks.close()
        self._said.clear()
        self.folder.close()

    def uses(self, environment: str) -> bool:
        """Whether a process runs in an environment, a spare one too, or is about to."""
        live = {process.environment for process in self._spawner.processes}
        return environment in live or any(slot.environment == environment for slot in self._slots if slot.jobs)

    def _busy(self) -> list[ProcessSlot]:
        return [slot for slot in self._slots if slot.jobs]

    def _tell(self, process: Process, said: list[ProcessReport]) -> None:
        """Queue reports; the threads call this. It fills the queue, then sets the flag; `poll` goes the other way."""
        self._said.extend([(process, one) for one in said])
        if not self._woken:
            self._woken = True
            self._wake()

    def _choose_devices(self, options: TaskOptions, before: HeldDevices) -> HeldDevices:
        """What a task gets of the graphics cards, beside all tasks that have some."""
        held = [slot.devices for slot in self._busy()]
        return self._devices.choose(options, [*held, *self.ranks.devices], before)

    def _start(self, slot: ProcessSlot) -> None:
        """Start a process for a slot; not ahead of its jobs, if it has to run as the user of their owner."""
        if self._accounts.count and not slot.jobs:
            return
        if slot.environment not in self.sites:
            slot.environment = ""
        if slot.spare is not None and (slot.spare.environment, slot.spare.devices) == (slot.environment, slot.devices):
            slot.process, slot.spare = slot.spare, None
            if slot.process.ready and slot.jobs:
                self._supply(slot, slot.process)
            return
        self._drop_spare(slot)
        try:
            slot.process = self._spawner.spawn(
                slot.index, slot.environment, slot.program.owner, self._tell, devices=slot.devices
            )
        except OSError as error:
            self._fail(slot, error)

    def _start_spare(self, slot: ProcessSlot) -> None:
        """Start the process for the next program, so that its first task does not wait for it.

        If there are accounts, it is for the next program of the same person, as long as that person has the account.
        """
        if slot.spare is None:
            owner = slot.program.owner if self._accounts.count else ""
            with suppress(OSError):  # the next start tells
                slot.spare = self._spawner.spawn(slot.index, slot.environment, owner, self._tell, devices=slot.devices)

    def _is_somebodys(self, slot: ProcessSlot) -> bool:
        """Whether a person's program has the process of a slot, or a person's account its spare one."""
        has_process = slot.process is not None and slot.process.program is not None
        return has_process or (bool(self._accounts.count) and slot.spare is not None)

    def _drop_spare(self, slot: ProcessSlot) -> None:
        if slot.spare is not None:
            slot.spare.kill()
        slot.spare = None

    def _fail(self, slot: ProcessSlot, error: OSError) -> None:
        """The process of a slot cannot be started, or told something: the next poll handles this."""
        slot.trouble, slot.roomless = str(error), lacks_room(error)
        self._wake()

    def _keep(self, saved: JobSaved, path: Path | None) -> JobSaved | None:
        """Write a checkpoint to a file of ours, and return it; the listening threads call this.

        ``path``: the file that contains a large one; its data are what the task has printed. There is nothing to report
        of that if the disk is full.
        """
        if path is None:
            self.checkpoints.write(saved.task, saved.number, saved.data)
            return saved
        data = self.checkpoints.take(saved.task, saved.number, path, bytes(saved.data))
        return None if data is None else saved._replace(data=data)

    def _retire(self, slot: ProcessSlot) -> None:
        """Let the slot's process end, if it has one: it is idle. Leave the slot without a process."""
        if slot.process is not None:
            slot.process.end()
        slot.process, slot.sent, slot.since, slot.stood_s = None, 0, None, 0.0

    def _renew(self, slot: ProcessSlot, now: float) -> None:
        """End the process of a program that has had nothing to do for long, so that its memory is free."""
        if slot.idle_since is None:
            slot.idle_since = now
        elif now - slot.idle_since >= IDLE_S:
            self._retire(slot)
            if self._accounts.count or slot.index >= READY_SLOTS:
                self._drop_spare(slot)
            if slot.index < READY_SLOTS:
                self._start(slot)

    def _release(self, slot: ProcessSlot) -> None:
        """Kill the slot's process, if it has one, and leave the slot without a process."""
        if slot.process is not None:
            slot.process.kill()
        slot.process, slot.sent, slot.since, slot.stood_s = None, 0, None, 0.0

    def _supply(self, slot: ProcessSlot, process: Process) -> None:
        """Send the process the next jobs if it runs its last one: as many as fit in a batch, or one larger job."""
        if slot.sent > 1 or slot.sent == len(slot.jobs):
            return
        jobs = next(in_batches(islice(slot.jobs, slot.sent, None), _payload_size))
        if any(job.checkpoint is not None for job in jobs):
            # What goes on from a checkpoint has an idle process, and so its output goes on with what comes next.
            jobs = list(takewhile(lambda job: not job.checkpoint, jobs)) or jobs[: not slot.sent]
            if not jobs or not self._may_save(slot, process):
                return
        digest, data = slot.jobs[0].template, b""
        if digest not in process.told:
            template = self._templates[digest]
            if (body := self._body(slot, template)) is None:
                return
            process.bundle = process.bundle if template.bundle is None else template.bundle
            data = b"".join(frame(["forget", old, None]) for old in process.told.add(digest, template.size))
            data += frame(["template", digest, body])
        process.told.use(digest)
        if process.memory is None:
            process.confine(slot.jobs[0].options.memory)
        if process.program is None:
            process.program = slot.program
            self._start_spare(slot)
        slot.idle_since = None
        if not slot.sent:
            slot.since = None
        slot.sent += len(jobs)
        behind: list[memoryview] = []
        earlier = b""
        rows: list[list[Any]] = [[j.task, j.number, as_sent(j.payload), j.checkpoint] for j in jobs]
        if jobs[0].checkpoint:
            checkpoint, earlier = without_printed(jobs[0].checkpoint)
            rows[0][-1] = as_sent(checkpoint)
        data += frame(["run", digest, rows], behind)
        process.saving.update((job.task, job.number) for job in jobs if job.checkpoint is not None)
        process.write([data, *behind], len(jobs), earlier)

    def _body(self, slot: ProcessSlot, template: UnpackedTemplate) -> dict[str, Any] | None:
        """A template as the process of a slot gets it; None if its modules cannot be given to that process."""
        try:
            return self._spawner.body(template, slot.program.owner)
        except OSError as error:
            if not slot.sent:
                self._release(slot)
                self._fail(slot, error)
            return None

    def _may_save(self, slot: ProcessSlot, process: Process) -> bool:
        """Make what a task needs that saves checkpoints; False if there is no room. A task that runs goes on."""
        try:
            self._make_tasks_folder()
            process.tell_times(math.inf, slot.closes, False)
        except OSError as error:
            if not slot.sent:
                self._release(slot)
                self._fail(slot, error)
            return False
        return True

    def _hear(
        self, slot: ProcessSlot, process: Process, said: ProcessReport, now: float, ended: list[JobEnded]
    ) -> None:
        if isinstance(said, JobEnded):
            self._settle(slot, process, said, now, ended)
        elif isinstance(said, JobSaved):
            self._take(slot, said, now, ended)
        elif isinstance(said, RankMeets):
            self._distrust(slot, now, ended)
        elif said == "ready":
            if slot.jobs:
                self._supply(slot, process)
                slot.since = now
        elif said == "spent":
            # The process ends by itself; another one runs the jobs that it had not begun.
            if slot.sent and not process.served:
                slot.failures += 1
                if slot.failures >= START_ATTEMPTS:  # or a task would begin again for ever, and never be overdue
                    self._lose(slot, Outcome.CRASH, "killed, because it could not run a task", now, ended)
                    return
            self._retire(slot)
            if slot.jobs:
                self._start(slot)
                slot.since = now
        elif slot.jobs:
            self._lose(slot, Outcome.CRASH, process.reason + self._memory_note, now, ended)
        else:
            self._release(slot)  # no job is affected; the next `run` starts another process

    def _settle(self, slot: ProcessSlot, process: Process, said: JobEnded, now: float, ended: list[JobEnded]) -> None:
        first = slot.jobs[0] if slot.sent else None
        if first is None or (first.task, first.number) != (said.task, said.number):
            self._distrust(slot, now, ended)
            return
        slot.jobs.popleft()
        slot.sent, slot.since, slot.failures, slot.stood_s = slot.sent - 1, now, 0, 0.0
        ended.append(said)
        self._supply(slot, process)

    def _take(self, slot: ProcessSlot, said: JobSaved, now: float, ended: list[JobEnded]) -> None:
        job = slot.jobs[0] if slot.sent else None
        if job is None or job.checkpoint is None or (job.task, job.number) != (said.task, said.number):
            self._distrust(slot, now, ended)
        else:
            self._saved.append(said)

    def _distrust(self, slot: ProcessSlot, now: float, ended: list[JobEnded]) -> None:
        """Kill a process that reported a task that is not running: a task wrote into our pipe."""
        if slot.jobs:
            self._lose(slot, Outcome.CRASH, "killed, because it reported a task that was not running", now, ended)
        else:
            self._release(slot)

    def _check(self, slot: ProcessSlot, now: float, ended: list[JobEnded]) -> None:
        limit = slot.limit
        if slot.process is None:
            outcome = Outcome.NO_ROOM if slot.roomless else Outcome.NO_START
            self._lose(slot, outcome, slot.trouble, now, ended)
        elif limit is not None and slot.elapsed(now) >= limit:
            outcome = Outcome.TIMEOUT if slot.sent else Outcome.NO_START
            if not slot.sent:  # to wait as long again would hold up everybody's work
                slot.failures = START_ATTEMPTS
            self._lose(slot, outcome, f"not done after {precise(limit)}", now, ended)

    def _lose(self, slot: ProcessSlot, outcome: Outcome, reason: str, now: float, ended: list[JobEnded]) -> None:
        """Release the process of a busy slot: end the job that it ran, or all for which none starts."""
        process, elapsed = slot.process, slot.elapsed(now)
        if process is not None and process.overran and process.served:
            # What others have left may be to blame: the job begins again, in a process of its own.
            slot.process, slot.sent, slot.since = None, 0, None
            self._start(slot)
            return
        started = process is not None and slot.sent > process.undelivered
        if not started and outcome is not Outcome.NO_ROOM:  # whatever it is, the task has not done it
            outcome = Outcome.NO_START
        self._release(slot)
        slot.failures = 0 if started else slot.failures + 1
        if started or slot.failures >= START_ATTEMPTS:
            stdout, stderr = process.captured() if process else (b"", b"")
            what = f"no process for tasks could be started: {reason}" if outcome is Outcome.NO_START else reason
            kind = outcome.name.title().replace("_", "")
            payload = Failure(kind, what, last_lines(stderr)).packed()
            # The other jobs would need the same process.
            for _ in range(1 if started else len(slot.jobs)):
                job, spent = slot.jobs.popleft(), elapsed if started else 0.0
                ended.append(JobEnded(slot.index, job.task, job.number, outcome, spent, payload, stdout, stderr))
        if slot.jobs:
            self._start(slot)
            slot.since = now


def _without_pauses(slot: ProcessSlot, said: ProcessReport, standing_s: float) -> ProcessReport:
    """A report whose ``elapsed`` does not count that the job was stopped: its process has a clock of its own."""
    if isinstance(said, JobEnded | JobSaved) and (stood_s := slot.stood_s + standing_s):
        return said._replace(elapsed=max(0.0, said.elapsed - stood_s))
    return said


def _payload_size(job: Job) -> int:
    return len(job.payload) + len(job.checkpoint or b"")
