"""Between a worker's session and its processes: what a task needs comes first, what it leaves goes to the broker.

To the session this is the executor. A task that needs stored files is handed on when its folder is ready; a task that
left files has ended when the broker has them. All other tasks pass through.

Rule 1: the jobs of a slot are handed on in order, so a job waits for those before it.
Rule 2: a task whose files cannot come, or cannot be kept, has failed with the reason; no other task is affected.
Rule 3: a task whose environment is not here goes back to the broker, which was wrong about that.
Rule 4: time that files take is not the task's own: its clock and its timeout run only while it runs.
"""

import itertools
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deskgrid import wire
from deskgrid.worker.checkpoints import Store
from deskgrid.worker.environments.environments import Environments
from deskgrid.worker.environments.store import WheelStore
from deskgrid.worker.files import task_folder
from deskgrid.worker.files.cache import FileCache, ThisPc
from deskgrid.worker.files.downloads import Downloads
from deskgrid.worker.files.errands import Errands
from deskgrid.worker.files.task_folder import Collected, OutputsRefused
from deskgrid.worker.files.uploads import Uploads
from deskgrid.worker.run.accounts import Account
from deskgrid.worker.run.jobs import Job, JobEnded, JobSaved
from deskgrid.worker.run.templates import UnpackedTemplate

# How often the files of a task may turn out to be gone from the cache again before it fails.
ROUNDS_LIMIT = 10


class Processes(Protocol):
    """The part of `deskgrid.worker.run.executor.Executor` that this needs; see there."""

    def know(self, digest: str, blob: bytes, needed: Collection[str] = ()) -> None: ...
    def knows(self, digest: str) -> bool: ...
    def template(self, digest: str) -> UnpackedTemplate: ...
    def start(self) -> None: ...
    def rest(self) -> None: ...
    def run(self, slot: int, jobs: Sequence[Job]) -> None: ...
    def uses(self, environment: str) -> bool: ...
    def poll(self, now: float) -> list[JobEnded]: ...
    def running(self, now: float) -> list[tuple[int, int, int, float]]: ...
    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]: ...
    def saved(self) -> list[JobSaved]: ...
    def tell_times(self, slot: int, due: float, closes: float, last: bool) -> None: ...
    @property
    def checkpoints(self) -> Store: ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job that has not been handed on. ``left``: files and trees that have yet to come."""

    job: Job
    slot: int
    trees: tuple[bytes, ...]
    ready: bool = False
    failed: str = ""
    rounds: int = 0
    left: int = 0

    @property
    def holder(self) -> str:
        return _holder(self.job.task, self.job.number)


@dataclass(slots=True, eq=False)
class _Leaving:
    """A job that has ended, and whose files are on their way."""

    job: Job
    ended: JobEnded


class Stage:
    """``area``: where the folders of tasks are, on the disk of the cache. ``account``: the user that tasks run as."""

    def __init__(
        self,
        processes: Processes,
        cache: FileCache,
        area: Path,
        wake: Callable[[], None],
        *,
        account: Account | None = None,
        wheels: WheelStore | None = None,
    ) -> None:
        self._processes = processes
        self._cache = cache
        self._area = area
        self._account = account
        task_folder.prepare(area, account)
        self._errands = Errands(wake)
        numbers = itertools.count(1)
        self._downloads = Downloads(cache, self._errands, numbers)
        self._uploads = Uploads(self._errands, numbers)
        self.environments: Environments | None = None
        if wheels is not None:
            self.environments = Environments(wheels, cache, area, self._downloads, wake=wake, in_use=self._uses)
        self._waiting: dict[int, deque[_Waiting]] = {}
        # Jobs with files that were handed on, and those that have ended, by holder.
        self._running: dict[str, Job] = {}
        self._leaving: dict[str, _Leaving] = {}
        self._over: list[JobEnded] = []

    # --- as an executor ----------------------------------------------------------------------------------------------

    def know(self, digest: str, blob: bytes) -> None:
        """Learn a template; others may be forgotten, if no job here needs them. Raises `TemplateError`."""
        waiting = (each.job.template for queue in self._waiting.values() for each in queue)
        self._processes.know(digest, blob, {*waiting, *(job.template for job in self._running.values())})

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
        if slot not in self._waiting and not template.has_files and not any(_has_files(job.payload) for job in jobs):
            self._processes.run(slot, jobs)
            return
        queue = self._waiting.setdefault(slot, deque())
        for job in jobs:
            try:
                trees = (*_source(template), *template.inputs, *wire.unwrap(job.payload).trees)
            except wire.TreeRefused as error:
                queue.append(_Waiting(job, slot, (), failed=str(error)))
                continue
            queue.append(waiting := _Waiting(job, slot, trees))
            if trees or template.outputs is not None:
                self._look(waiting)
            else:
                waiting.ready = True
        self._hand_on(slot)

    def poll(self, now: float) -> list[JobEnded]:
        """Return the jobs that ended since the last call, those with files only when the broker has these."""
        self._errands.poll()
        if self.environments is not None:
            self.environments.poll()
        ended = self._processes.poll(now)
        if self._running or any(each.outcome or _has_files(each.payload) for each in ended):
            ended = [each for each in ended if not self._leaves(each)]
        if self._over:
            ended, self._over = [*self._over, *ended], []
        return ended

    @property
    def checkpoints(self) -> Store:
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
        leaving = [leaving.ended for leaving in self._leaving.values()]
        return [*self._processes.running(now), *((end.slot, end.task, end.number, end.elapsed) for end in leaving)]

    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]:
        """Stop all jobs of a slot, and return them with their elapsed seconds, None for those that have not begun."""
        held = [
            (leaving.job, leaving.ended.elapsed)
            for leaving in list(self._leaving.values())
            if leaving.ended.slot == slot
        ]
        stopped = [*held, *self._processes.stop(slot, now)]
        waiting = self._waiting.pop(slot, deque())
        for job in [*(job for job, _ in stopped), *(each.job for each in waiting)]:
            holder = _holder(job.task, job.number)
            self._downloads.drop(holder)
            if self._leaving.pop(holder, None) is not None:
                self._uploads.drop(holder)
            if self._running.pop(holder, None) is not None or waiting or held:
                self._tidy(holder)
        return [*stopped, *((each.job, None) for each in waiting)]

    def close(self) -> None:
        """End the thread for files. What was fetched in part stays, for the next worker."""
        if self.environments is not None:
            self.environments.close()
        self._errands.close()
        self._downloads.close()

    # --- messages ----------------------------------------------------------------------------------------------------

    def say(self, now: float) -> list[wire.Message]:
        """Return the messages about files that are due, while the broker knows this worker."""
        news = () if self.environments is None else self.environments.say(now)
        return [*news, *self._downloads.say(now), *self._uploads.say(now)]

    def _uses(self, environment: str) -> bool:
        """Whether a process runs in an environment, or a job that waits is about to."""
        waiting = (each.job.environment for queue in self._waiting.values() for each in queue)
        return environment in waiting or self._processes.uses(environment)

    def hear(self, message: wire.Part | wire.Lacks | wire.Kept | wire.Failed | wire.Prepare, now: float) -> None:
        """Handle a message about files or environments."""
        if isinstance(message, wire.Prepare):
            if self.environments is not None:
                self.environments.prepare(message, now)
        elif isinstance(message, wire.Part):
            self._downloads.part(message, now)
        elif isinstance(message, wire.Lacks):
            self._uploads.lacks(message, now)
        elif isinstance(message, wire.Kept):
            self._uploads.kept(message, now)
        elif not self._downloads.failed(message.request, message.reason):
            self._uploads.failed(message.request, message.reason)

    def reconnected(self) -> None:
        """Messages may have been lost with the last connection."""
        self._downloads.reconnected()
        self._uploads.reconnected()

    # --- before a task -----------------------------------------------------------------------------------------------

    def _look(self, waiting: _Waiting) -> None:
        """Find out what a job lacks."""
        waiting.rounds += 1
        self._errands.do(lambda: _lookup(self._cache, waiting.trees), lambda found: self._found(waiting, found))

    def _found(self, waiting: _Waiting, found: "_Lookup | Exception") -> None:
        if not self._is_waiting(waiting):
            return
        if isinstance(found, Exception) or waiting.rounds > ROUNDS_LIMIT:
            self._fail(waiting, str(found) if isinstance(found, Exception) else "its files do not fit on this PC")
        elif found.trees_missing or found.files_missing:
            waiting.left = len(found.trees_missing) + len(found.files_missing)
            for digest in found.trees_missing:
                self._downloads.tree(digest, waiting.holder, lambda reason: self._came(waiting, reason))
            for entry in found.files_missing.values():
                self._downloads.file(entry, waiting.holder, lambda reason: self._came(waiting, reason))
        else:
            self._unpack(waiting)

    def _came(self, waiting: _Waiting, reason: str) -> None:
        if reason:
            self._fail(waiting, reason)
        elif self._is_waiting(waiting):
            waiting.left -= 1
            if not waiting.left:
                self._look(waiting)

    def _unpack(self, waiting: _Waiting) -> None:
        template = self._processes.template(waiting.job.template)
        command, source = template.outputs is not None, template.source
        area, cache, account = self._area, self._cache, self._account
        digests = [digest for digest in waiting.trees if source is None or digest != source[0]]

        def unpack() -> bool:
            if len(digests) < len(waiting.trees) and source is not None and not task_folder.lay_out(*source, cache):
                return False
            trees = task_folder.trees_in(cache, digests)
            return task_folder.unpack(area, waiting.holder, trees, cache, account, command=command)

        self._errands.do(unpack, lambda found: self._unpacked(waiting, found))

    def _unpacked(self, waiting: _Waiting, found: bool | Exception) -> None:
        if not self._is_waiting(waiting):
            self._tidy(waiting.holder)
        elif isinstance(found, Exception) and not isinstance(found, task_folder.Gone):
            self._fail(waiting, ThisPc(f"its folder cannot be made on this PC: {found}"))
        elif found is not True:
            self._look(waiting)
        else:
            waiting.ready = True
            self._hand_on(waiting.slot)

    def _is_waiting(self, waiting: _Waiting) -> bool:
        return not waiting.failed and waiting in self._waiting.get(waiting.slot, ())

    def _fail(self, waiting: _Waiting, reason: str) -> None:
        if self._is_waiting(waiting):
            waiting.failed = reason
            self._downloads.drop(waiting.holder)
            self._hand_on(waiting.slot)

    def _hand_on(self, slot: int) -> None:
        """Hand on the jobs at the front of a slot's queue that are ready."""
        queue = self._waiting[slot]
        while queue and (queue[0].ready or queue[0].failed):
            waiting = queue.popleft()
            if waiting.failed:
                failed = _failure(waiting.slot, waiting.job, "FilesMissing", waiting.failed, 0.0)
                # As for a template: what is this PC's fault does not count against the task alone.
                blamed = isinstance(waiting.failed, ThisPc)
                self._over.append(failed._replace(outcome=wire.Outcome.CRASH) if blamed else failed)
                self._tidy(waiting.holder)
            else:
                self._running[waiting.holder] = waiting.job
                self._processes.run(slot, [waiting.job])
        if not queue:
            del self._waiting[slot]

    # --- after a task ------------------------------------------------------------------------------------------------

    def _leaves(self, ended: JobEnded) -> bool:
        """Whether a job that has ended left files, which are sent first."""
        holder = _holder(ended.task, ended.number)
        job = self._running.pop(holder, None)
        patterns = None if job is None else self._processes.template(job.template).outputs
        if ended.outcome is not wire.Outcome.DONE or not (patterns or _has_files(ended.payload)):
            if job is not None or ended.outcome:
                self._tidy(holder)
            return False
        job = job or Job(ended.task, ended.number, "", b"", wire.TaskOptions())
        leaving = self._leaving[holder] = _Leaving(job, ended)
        self._errands.do(
            lambda: task_folder.collect(self._area, holder, patterns or None),
            lambda found: self._collected(leaving, found),
        )
        return True

    def _collected(self, leaving: _Leaving, found: Collected | Exception) -> None:
        holder = _holder(leaving.job.task, leaving.job.number)
        if self._leaving.get(holder) is not leaving:
            self._tidy(holder)
        elif isinstance(found, Exception):
            self._left(leaving, (), str(found) if isinstance(found, OutputsRefused) else f"its files: {found}")
        else:
            self._uploads.add(holder, found, lambda reason: self._left(leaving, found.trees, reason))

    def _left(self, leaving: _Leaving, trees: Sequence[bytes], reason: str) -> None:
        """The files of a job are with the broker, or cannot be."""
        ended = leaving.ended
        holder = _holder(ended.task, ended.number)
        del self._leaving[holder]
        if reason:
            failed = _failure(ended.slot, leaving.job, "OutputsRefused", reason, ended.elapsed)
            self._over.append(failed._replace(stdout=ended.stdout, stderr=ended.stderr))
        else:
            whole, payload = _without_mark(ended.payload)
            self._over.append(ended._replace(payload=wire.wrap(trees, payload, whole=whole)))
        self._tidy(holder)

    def _tidy(self, holder: str) -> None:
        """Remove a task's folder."""
        self._errands.do(lambda: task_folder.remove(self._area, holder), lambda found: None)


@dataclass(slots=True)
class _Lookup:
    """What is not in the cache. ``files_missing``: by id."""

    trees_missing: list[bytes]
    files_missing: dict[str, wire.Entry]


def _source(template: UnpackedTemplate) -> tuple[bytes, ...]:
    """The tree of the program's own modules, if it is not laid out yet."""
    return () if template.source is None or template.source[1].is_dir() else template.source[:1]


def _lookup(cache: FileCache, digests: Sequence[bytes]) -> _Lookup:
    """Look for trees and their files. Raises `TreeRefused` if they have too many names."""
    found, names = _Lookup([], {}), 0
    for digest in dict.fromkeys(digests):
        data = cache.tree(digest)
        if data is None:
            found.trees_missing.append(digest)
            continue
        tree = wire.read_tree(data)
        names += len(tree.entries) + len(tree.folders)
        if names > task_folder.NAMES_LIMIT:
            raise wire.TreeRefused(f"the task needs more than {task_folder.NAMES_LIMIT:,} files and folders")
        missing = [entry for entry in tree.entries if cache.find(entry) is None]
        found.files_missing.update((entry.id, entry) for entry in missing)
    return found


def _holder(task: int, number: int) -> str:
    """An attempt, as messages about files and the folders of tasks name it."""
    return f"{task}.{number}"


def _has_files(payload: wire.Payload) -> bool:
    """Whether a payload begins with the mark of those that need files, or leave some."""
    first = payload if isinstance(payload, bytes) else payload.frames()[0]
    return first[:1] == wire.MARK


def _without_mark(payload: wire.Payload) -> tuple[bool, wire.Payload]:
    """What a process reported of a job that left files: whether its value is one of them, and the payload otherwise."""
    if not _has_files(payload):
        return False, payload
    data = bytes(payload)
    return data[1:2] == b"\1", wire.payload_of(data[4:])


def _failure(slot: int, job: Job, kind: str, reason: str, elapsed: float) -> JobEnded:
    account = wire.Failure(kind, reason).packed()
    return JobEnded(slot, job.task, job.number, wire.Outcome.ERROR, elapsed, account, b"", b"")
