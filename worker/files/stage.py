"""Between a worker's session and its processes: what a task needs comes first, what it leaves goes to the broker.

To the session this is the executor. A task that needs stored files is handed on when its folder is ready; a task that
left files has ended when the broker has them. All other tasks pass through.

Rule 1: the jobs of a slot are handed on in order, so a job waits for those before it.
Rule 2: a task whose files cannot come has failed with the reason; no other task is affected. If they cannot be kept on
this PC, its attempt ends as "no room".
Rule 3: a task whose environment is not here goes back to the broker, which was wrong about that.
Rule 4: no task gets a file that another person's task has brought, unless its owner has sent it, too (`claims.py`).
Rule 5: a job waits for an account of its owner if one will be free soon. Else its attempt ends as "no room".
Rule 6: time that files take is not the task's own: its clock and its timeout run only while it runs.
"""

import itertools
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from deskgrid import wire
from deskgrid.worker.checkpoints import CheckpointStore
from deskgrid.worker.environments.environments import Environments
from deskgrid.worker.environments.store import WheelStore
from deskgrid.worker.files import task_folder
from deskgrid.worker.files.background import Background
from deskgrid.worker.files.cache import FileCache, PcAtFault
from deskgrid.worker.files.claims import Claims
from deskgrid.worker.files.downloads import Downloads
from deskgrid.worker.files.inputs import Inputs, has_files
from deskgrid.worker.files.outputs import OutputFiles, failure
from deskgrid.worker.files.places import Places
from deskgrid.worker.files.rank_stage import RankProcesses, RankStage
from deskgrid.worker.files.uploads import Uploads
from deskgrid.worker.run.jobs import Job, JobEnded, JobSaved, PrintedOutput
from deskgrid.worker.run.pool import Accounts, NoAccount
from deskgrid.worker.run.templates import UnpackedTemplate


class TaskProcesses(Protocol):
    """The part of `deskgrid.worker.run.executor.Executor` that this needs; see there."""

    def know(self, digest: str, blob: bytes, needed: Collection[str] = ()) -> None: ...
    def knows(self, digest: str) -> bool: ...
    def template(self, digest: str) -> UnpackedTemplate: ...
    def start(self) -> None: ...
    def rest(self) -> None: ...
    def run(self, slot: int, jobs: Sequence[Job]) -> None: ...
    def uses(self, environment: str) -> bool: ...
    def end_idle(self, keep: Collection[str]) -> None: ...
    def shown(self, task: int, number: int, stdout: int, stderr: int, most: int) -> PrintedOutput | None: ...
    def poll(self, now: float) -> list[JobEnded]: ...
    def running(self, now: float) -> list[tuple[int, int, int, float]]: ...
    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]: ...
    def saved(self) -> list[JobSaved]: ...
    def tell_times(self, slot: int, due: float, closes: float, last: bool) -> None: ...
    @property
    def checkpoints(self) -> CheckpointStore: ...
    @property
    def ranks(self) -> RankProcesses: ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job that has not been handed on. ``failed``: why its files cannot come."""

    job: Job
    slot: int
    ready: bool = False
    failed: str = ""

    @property
    def holder(self) -> str:
        return _holder(self.job.task, self.job.number)


class FileStage:
    """``area``: where environments are, on the disk of the cache. ``accounts``: where the folders of tasks are, and the
    users that they run as; None: in ``area``, and the worker's own user.

    ``wheels``: None: this PC has no environments. ``sites``: where these are, on the same disk; None: in ``area``.

    ``nice``: how far what makes environments gives way to others on this PC. ``renew``: makes the area again if
    somebody has removed it. ``interpreters``: the other Pythons of this PC, by version.
    """

    def __init__(
        self,
        processes: TaskProcesses,
        cache: FileCache,
        area: Path,
        wake: Callable[[], None],
        *,
        accounts: Accounts | None = None,
        wheels: WheelStore | None = None,
        sites: Path | None = None,
        nice: int = 0,
        renew: Callable[[], None] = lambda: None,
        interpreters: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._processes = processes
        self._renew = renew
        accounts = Accounts(area) if accounts is None else accounts
        for place in accounts.places:
            task_folder.prepare(place.area, place.account)
        self._places = Places(accounts, processes.end_idle)
        self._background = Background(wake)
        numbers = itertools.count(1)
        self._downloads = Downloads(cache, self._background, numbers)
        self._uploads = Uploads(self._background, numbers)
        self._claims = Claims(numbers)
        self._inputs = Inputs(cache, self._places, self._background, self._downloads, self._claims)
        self._outputs = OutputFiles(self._places, self._background, self._uploads, self._inputs.tidy)
        self.environments: Environments | None = None
        if wheels is not None:
            how: dict[str, Any] = {"wake": wake, "in_use": self._uses, "nice": nice, "apart": self._places.apart}
            how["interpreters"] = interpreters
            self.environments = Environments(wheels, cache, sites or area, self._downloads, self._claims, **how)
        self.ranks = RankStage(
            processes.ranks,
            processes.template,
            self._inputs,
            self._outputs,
            environments=self.environments,
            places=self._places,
        )
        self._waiting: dict[int, deque[_Waiting]] = {}
        # Jobs with files that were handed on, and those that have ended, by holder.
        self._running: dict[str, Job] = {}
        self._leaving: dict[str, Job] = {}
        self._over: list[JobEnded] = []

    # --- as an executor ----------------------------------------------------------------------------------------------

    def know(self, digest: str, blob: bytes) -> None:
        """Learn a template; others may be forgotten, if no job here needs them. Raises `TemplateError`."""
        waiting = (each.job.template for queue in self._waiting.values() for each in queue)
        running = (job.template for job in self._running.values())
        self._processes.know(digest, blob, {*waiting, *running, *self.ranks.templates})

    def knows(self, digest: str) -> bool:
        """Whether `know` was called with it, and it was not forgotten."""
        return self._processes.knows(digest)

    def start(self) -> None:
        """Start the processes of all slots."""
        self._processes.start()
        if self.environments is not None:
            self.environments.start()

    def rest(self) -> None:
        """End the processes of all idle slots."""
        self._processes.rest()
        if self.environments is not None:
            self.environments.rest()

    def run(self, slot: int, jobs: Sequence[Job]) -> None:
        """Run jobs, all of one known template, one after another on a slot, each when its files are here."""
        key = jobs[0].environment
        if key and (self.environments is None or self.environments.lacks(key)):
            self._over += [JobEnded(slot, *job[:2], wire.Outcome.DEPARTED, 0.0, b"", b"", b"") for job in jobs]
            return
        template = self._processes.template(jobs[0].template)
        waits = self._places.apart or slot in self._waiting or template.has_files
        if not waits and not any(has_files(job.payload) for job in jobs):
            self._processes.run(slot, jobs)
            return
        queue = self._waiting.setdefault(slot, deque())
        for job in jobs:
            queue.append(waiting := _Waiting(job, slot))
            came = partial(self._came, waiting)
            try:
                waiting.ready = not self._inputs.get(waiting.holder, job.program.owner, template, job.payload, came)
            except wire.TreeRefused as error:
                waiting.failed = str(error)
        self._hand_on(slot)

    def poll(self, now: float) -> list[JobEnded]:
        """Return the jobs that ended since the last call, those with files only when the broker has these."""
        with suppress(OSError):  # what needs it says what is wrong
            self._renew()
        self._background.poll()
        if self.environments is not None:
            self.environments.poll()
        self._inputs.poll()
        for slot in list(self._waiting):
            self._hand_on(slot)
        ended = self._processes.poll(now)
        if self._running or any(each.outcome or has_files(each.payload) for each in ended):
            ended = [each for each in ended if not self._leaves(each)]
        if self._over:
            ended, self._over = [*self._over, *ended], []
        return ended

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints that are in files here."""
        return self._processes.checkpoints

    def saved(self) -> list[JobSaved]:
        """Return the checkpoints that came since the last call."""
        return self._processes.saved()

    def tell_times(self, slot: int, due: float, closes: float, last: bool) -> None:
        """Tell the running job of a slot when to save."""
        self._processes.tell_times(slot, due, closes, last)

    def running(self, now: float) -> list[tuple[int, int, int, float]]:
        """Return the attempts that have begun: slot, task, number, elapsed seconds."""
        leaving = self._outputs.leaving(self._leaving)
        return [*self._processes.running(now), *((end.slot, end.task, end.number, end.elapsed) for end in leaving)]

    def shown(self, task: int, number: int, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        """Return what a running job has printed."""
        return self._processes.shown(task, number, stdout, stderr, most)

    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]:
        """Stop all jobs of a slot, and return them with their elapsed seconds, None for those that have not begun."""
        held = [
            (self._leaving[_holder(end.task, end.number)], end.elapsed)
            for end in self._outputs.leaving(self._leaving)
            if end.slot == slot
        ]
        stopped = [*held, *self._processes.stop(slot, now)]
        waiting = self._waiting.pop(slot, deque())
        for job in [*(job for job, _ in stopped), *(each.job for each in waiting)]:
            holder = _holder(job.task, job.number)
            self._inputs.drop(holder)
            self._leaving.pop(holder, None)
            self._outputs.drop(holder)
            if self._running.pop(holder, None) is not None or waiting or held:
                self._inputs.tidy(holder)
        return [*stopped, *((each.job, None) for each in waiting)]

    def close(self) -> None:
        """End the thread for files. What was fetched in part stays, for the next worker."""
        if self.environments is not None:
            self.environments.close()
        self._background.close()
        self._downloads.close()

    # --- messages ----------------------------------------------------------------------------------------------------

    def say(self, now: float) -> list[wire.Message]:
        """Return the messages about files that are due, while the broker knows this worker."""
        news = () if self.environments is None else self.environments.say(now)
        return [*news, *self._claims.say(now), *self._downloads.say(now), *self._uploads.say(now)]

    def _uses(self, environment: str) -> bool:
        """Whether a process runs in an environment, or a job that waits is about to."""
        waiting = (each.job.environment for queue in self._waiting.values() for each in queue)
        return environment in waiting or self.ranks.uses(environment) or self._processes.uses(environment)

    def hear(self, message: wire.Part | wire.Lacks | wire.Kept | wire.Failed | wire.Prepare, now: float) -> None:
        """Handle a message about files or environments."""
        if isinstance(message, wire.Prepare):
            if self.environments is not None:
                self.environments.prepare(message, now)
        elif isinstance(message, wire.Part):
            self._downloads.part(message, now)
        elif isinstance(message, wire.Lacks):
            if not self._claims.lacks(message, now):
                self._uploads.lacks(message, now)
        elif isinstance(message, wire.Kept):
            self._uploads.kept(message, now)
        elif not (
            self._claims.failed(message.request, message.reason)
            or self._downloads.failed(message.request, message.reason)
        ):
            self._uploads.failed(message.request, message.reason)

    def reconnected(self) -> None:
        """Messages may have been lost with the last connection."""
        self._claims.reconnected()
        self._downloads.reconnected()
        self._uploads.reconnected()

    # --- before a task -----------------------------------------------------------------------------------------------

    def _came(self, waiting: _Waiting, reason: str) -> None:
        """The files of a job are here, or cannot be."""
        waiting.ready, waiting.failed = not reason, reason
        self._hand_on(waiting.slot)

    def _hand_on(self, slot: int) -> None:
        """Hand on the jobs at the front of a slot's queue that are ready."""
        queue = self._waiting[slot]
        while queue and (queue[0].ready or queue[0].failed):
            waiting = queue[0]
            if not waiting.failed and not self._has_place(waiting):
                break
            queue.popleft()
            if waiting.failed:
                failed = failure(waiting.slot, waiting.job[:2], "FilesMissing", waiting.failed, 0.0)
                no_room = isinstance(waiting.failed, PcAtFault)
                self._over.append(failed._replace(outcome=wire.Outcome.NO_ROOM) if no_room else failed)
                self._inputs.tidy(waiting.holder)
            else:
                self._running[waiting.holder] = waiting.job
                self._processes.run(slot, [waiting.job])
        if not queue:
            del self._waiting[slot]

    def _has_place(self, waiting: _Waiting) -> bool:
        """Whether there is an account for a job now; if there will be none, it has failed."""
        try:
            return self._places.take(waiting.holder, waiting.job.program.owner) is not None
        except NoAccount as error:
            waiting.failed = PcAtFault(str(error))
            return True

    # --- after a task ------------------------------------------------------------------------------------------------

    def _leaves(self, ended: JobEnded) -> bool:
        """Whether a job that has ended left files, which are sent first."""
        holder = _holder(ended.task, ended.number)
        job = self._running.pop(holder, None)
        patterns = None if job is None else self._processes.template(job.template).outputs
        if ended.outcome is not wire.Outcome.DONE or not (patterns or has_files(ended.payload)):
            if job is not None or ended.outcome:
                self._inputs.tidy(holder)
            return False
        self._leaving[holder] = job or Job(ended.task, ended.number, "", b"", wire.TaskOptions())
        self._outputs.leave(holder, ended, patterns, lambda told: self._left(holder, told))
        return True

    def _left(self, holder: str, ended: JobEnded) -> None:
        """The files of a job are with the broker, or cannot be."""
        del self._leaving[holder]
        self._over.append(ended)


def _holder(task: int, number: int) -> str:
    """An attempt, as messages about files and the folders of tasks name it."""
    return f"{task}.{number}"
