"""The attempts on the slots of a worker: from `Assign` until the broker has their results, or they are handed back."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deskgrid import wire
from deskgrid.worker.checkpoints import Checkpoints, CheckpointStore
from deskgrid.worker.deliveries import Deliveries
from deskgrid.worker.run.jobs import Job, JobEnded, JobSaved, PrintedOutput, Program
from deskgrid.worker.templates import Templates

# Predicted seconds, and number, of short tasks given to a child process at once. It gets more tasks while it runs the
# last of them, so it never has to wait. Tasks that it has can no longer be recalled.
BATCH_S = 0.1
BATCH_TASKS = 500


class RunsJobs(Protocol):
    """The part of `deskgrid.worker.files.stage.FileStage` that this needs. ``now`` is monotonic seconds."""

    @property
    def checkpoints(self) -> CheckpointStore: ...

    def run(self, slot: int, jobs: Sequence[Job]) -> None: ...
    def poll(self, now: float) -> list[JobEnded]: ...
    def saved(self) -> list[JobSaved]: ...
    def tell_times(self, slot: int, due: float, closes: float, last: bool) -> None: ...
    def running(self, now: float) -> list[tuple[int, int, int, float]]: ...
    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]: ...
    def shown(self, task: int, number: int, stdout: int, stderr: int, most: int) -> PrintedOutput | None: ...


@dataclass(slots=True)
class SlotLoad:
    """The attempts of one slot: the executor has those in ``given``, not yet those in ``waiting``."""

    given: dict[tuple[int, int], wire.Work] = field(default_factory=dict)
    waiting: deque[wire.Work] = field(default_factory=deque)


class SlotWork:
    """``name``: of the worker. ``out``: where messages are put. ``now`` is monotonic seconds."""

    def __init__(self, name: str, slots: int, runs: RunsJobs, templates: Templates, out: list[wire.Message]) -> None:
        self._runs = runs
        self._templates = templates
        self._out = out
        self._checkpoints = Checkpoints(name, runs.checkpoints)
        self.loads = [SlotLoad() for _ in range(slots)]
        self._results = Deliveries[wire.Result](lambda row: (row.task, row.number), wire.Finished)
        # The number of the last attempt assigned since the last introduction: numbers only grow.
        self._assigned = -1
        # Results that wait until the checkpoint of their task has been sent, by task.
        self._held_back: dict[int, wire.Result] = {}

    @property
    def unwritten(self) -> int:
        """The number of results and checkpoints that the broker has not confirmed."""
        return len(self._results.unwritten) + self._checkpoints.unconfirmed

    @property
    def idle(self) -> bool:
        """Whether no slot has anything to do."""
        return not any(load.given or load.waiting for load in self.loads)

    @property
    def running(self) -> bool:
        """Whether something runs."""
        return any(load.given for load in self.loads)

    # --- what the broker says ----------------------------------------------------------------------------------------

    def receive(self, message: wire.Taken | wire.Recall | wire.CheckpointKept | wire.Checkpoint, now: float) -> None:
        """Handle a message about attempts that are here."""
        if isinstance(message, wire.Taken):
            self._out += self._results.taken([(ref.task, ref.number) for ref in message.attempts])
        elif isinstance(message, wire.Recall):
            self._recall(message)
        else:
            self._checkpoint(message, now)

    def introduced(self) -> None:
        """The worker has named all that it holds."""
        self._assigned = -1

    def welcome(self, loss_s: float) -> None:
        """The broker knows the worker again. ``loss_s``: as in `Welcome`."""
        self._checkpoints.loss_s = loss_s
        self._checkpoints.reconnected()

    def assign(self, assign: wire.Assign) -> None:
        """Take work."""
        self._checkpoints.spread_s = assign.spread
        for work in assign.work:
            if work.slot < len(self.loads) and work.number > self._assigned:  # a lower number came twice
                self._assigned = work.number
                self.loads[work.slot].waiting.append(work)

    def _checkpoint(self, message: wire.CheckpointKept | wire.Checkpoint, now: float) -> None:
        """Handle what the broker says about a checkpoint."""
        answer = self._checkpoints.receive(message, now)
        self._out += [] if answer is None else [answer]
        ready = [task for task in self._held_back if not self._checkpoints.sending(task)]
        self._out += self._results.send([self._held_back.pop(task) for task in ready])

    def _recall(self, recall: wire.Recall) -> None:
        """Hand back what has not started."""
        wanted = {(ref.task, ref.number) for ref in recall.attempts}
        back = [work for load in self.loads for work in self._withdraw(load, wanted)]
        if back:
            self._out.append(wire.Returned(tuple(wire.Ref(work.task, work.number) for work in back)))

    def _withdraw(self, load: SlotLoad, unwanted: Collection[tuple[int, int]]) -> list[wire.Work]:
        """Take attempts that have not started off a slot."""
        gone = [work for work in load.waiting if (work.task, work.number) in unwanted]
        load.waiting = deque(work for work in load.waiting if (work.task, work.number) not in unwanted)
        for work in gone:
            self._checkpoints.ended((work.task, work.number), goes_on=True)
        return gone

    def stop(self, stop: wire.Stop, now: float) -> None:
        """End attempts, and confirm it."""
        unwanted = {(ref.task, ref.number) for ref in stop.attempts}
        for slot, load in enumerate(self.loads):
            self._withdraw(load, unwanted)
            if unwanted.isdisjoint(load.given):
                continue
            given = load.given
            self.collect(now)
            # The child process holds a batch: put its other attempts back in front, in order; they start again.
            for attempt in given:
                self._checkpoints.ended(attempt, goes_on=True)
            kept = [job for job, _ in self._runs.stop(slot, now) if (job.task, job.number) not in unwanted]
            load.waiting.extendleft(given[job.task, job.number] for job in reversed(kept))
            load.given = {}
        # The broker assigns no work to a slot until it knows that the stopped attempt there has ended. If the attempt
        # has a result, the result tells it.
        gone = tuple(ref for ref in stop.attempts if (ref.task, ref.number) not in self._results.unwritten)
        if gone:
            self._out.append(wire.Returned(gone))

    # --- what the worker holds ---------------------------------------------------------------------------------------

    def held(self, now: float) -> Iterator[wire.Running]:
        """Yield every attempt held here, for each slot in the order of its work."""
        elapsed = {(task, number): seconds for _, task, number, seconds in self._runs.running(now)}
        for slot, load in enumerate(self.loads):
            for attempt in [*load.given, *((work.task, work.number) for work in load.waiting)]:
                yield wire.Running(*attempt, slot, elapsed.get(attempt))

    def ended(self) -> Iterator[wire.Running]:
        """Yield the attempts whose results follow."""
        for slot, result in self._results.unwritten.values():
            yield wire.Running(result.task, result.number, slot, result.elapsed)

    def take_all_back(self, now: float) -> Iterator[wire.Running]:
        """Stop everything; yield what was held."""
        for slot, load in enumerate(self.loads):
            stopped = self._runs.stop(slot, now) if load.given else []
            yield from (wire.Running(job.task, job.number, slot, elapsed) for job, elapsed in stopped)
            yield from (wire.Running(work.task, work.number, slot, None) for work in load.waiting)
            for attempt in [*load.given, *((work.task, work.number) for work in load.waiting)]:
                self._checkpoints.ended(attempt, goes_on=True)
            load.given.clear()
            load.waiting.clear()

    def running_now(self) -> list[tuple[int, int] | None]:
        """Return the attempt that each slot runs, if any."""
        return [next(iter(load.given), None) for load in self.loads]

    def end_with(self, last: Sequence[tuple[int, int] | None], now: float) -> None:
        """Hand back all but the ``last`` attempts of the slots: what waits, and what a process began after them."""
        back = list[wire.Ref]()
        for slot, load in enumerate(self.loads):
            gone = [(work.task, work.number) for work in load.waiting]
            load.waiting.clear()
            if load.given and last[slot] not in load.given:
                gone += load.given
                self._runs.stop(slot, now)
                load.given.clear()
            for attempt in gone:
                self._checkpoints.ended(attempt, goes_on=True)
            back += [wire.Ref(*attempt) for attempt in gone]
        if back:
            self._out.append(wire.Returned(tuple(back)))

    def deliver_all(self) -> None:
        """Send every unconfirmed checkpoint and result again, on a new connection."""
        results = self._results.reconnected()
        self._out += self._checkpoints.unkept
        self._held_back.clear()
        self._out += self._results.send(self._sendable(results))

    # --- work --------------------------------------------------------------------------------------------------------

    def feed(self, now: float, occupied: Collection[int] = ()) -> None:
        """Give the executor what it can do now, except on slots that ranks of gangs have ``occupied``."""
        for slot, load in enumerate(self.loads):
            while load.waiting and len(load.given) <= 1 and slot not in occupied:
                template = load.waiting[0].template
                failure = self._templates.failure(template) or self._checkpoints.failure(load.waiting[0])
                if failure is not None:
                    self._fail(slot, load.waiting.popleft(), *failure)
                elif any(_kind(work) != _kind(load.waiting[0]) for work in load.given.values()):
                    break
                elif (missing := self._templates.missing(template)) is not None:
                    self._out += missing
                    break
                elif not self._checkpoints.has(load.waiting[0]):
                    if (resume := self._checkpoints.lacks(load.waiting[0])) is not None:
                        self._out.append(resume)
                    break
                else:
                    self._give(slot, load, now)

    def _fail(self, slot: int, work: wire.Work, outcome: wire.Outcome, kind: str, reason: str) -> None:
        """End an attempt whose template or checkpoint cannot be used."""
        payload = wire.Failure(kind, reason).packed()
        result = wire.Result(work.task, work.number, int(outcome), 0.0, payload, b"", b"")
        self._results.keep(slot, result)
        self._out += self._results.send([result])

    @property
    def may_save(self) -> bool:
        """Whether a checkpointable task runs here."""
        return self._checkpoints.running

    def tell_times(self, closes_at: float, now: float) -> None:
        """Tell checkpointable tasks when to save. This is done in each turn, because the plan may have changed."""
        if not self._checkpoints.running:
            return
        for slot, load in enumerate(self.loads):
            if load.given and (times := self._checkpoints.times(next(iter(load.given)), closes_at, now)):
                self._runs.tell_times(slot, *times)

    def _give(self, slot: int, load: SlotLoad, now: float) -> None:
        kind, seconds = _kind(load.waiting[0]), 0.0
        batch: list[wire.Work] = []
        while load.waiting and _kind(load.waiting[0]) == kind and len(batch) < BATCH_TASKS:
            seconds += load.waiting[0].runtime
            if batch and (seconds > BATCH_S or load.waiting[0].options.checkpoint):
                break
            batch.append(load.waiting.popleft())
        load.given.update({(work.task, work.number): work for work in batch})
        _, environment, owner, name, *_ = kind
        begin, key, program = self._checkpoints.begin, environment or "", Program(owner, name or "")
        jobs = [Job(w.task, w.number, w.template, w.payload, w.options, begin(w, now), key, program) for w in batch]
        self._runs.run(slot, jobs)

    def collect(self, now: float) -> None:
        """Send what has ended."""
        results, back, alike = [], list[wire.Ref](), list[wire.Ref]()
        all_ended = self._runs.poll(now)
        for job in self._runs.saved():
            if (saved := self._checkpoints.saved(job, now)) is not None:
                self._out.append(saved)
        for ended in all_ended:
            if self._checkpoints.running:
                self._checkpoints.ended((ended.task, ended.number), goes_on=ended.outcome != wire.Outcome.DONE)
            load = self.loads[ended.slot]
            work = load.given.pop((ended.task, ended.number), None)
            if ended.outcome is wire.Outcome.NO_START and work is not None:
                alike += self._take_alike(load, work)
            if ended.outcome is wire.Outcome.DEPARTED:
                back.append(wire.Ref(ended.task, ended.number))
                continue
            result = wire.Result(
                ended.task,
                ended.number,
                int(ended.outcome),
                ended.elapsed,
                ended.payload,
                ended.stdout,
                ended.stderr,
                ended.waited,
            )
            self._results.keep(ended.slot, result)
            results.append(result)
        if back:
            self._out.append(wire.Returned(tuple(back)))
        self._out += self._results.send(self._sendable(results))
        if alike:
            self._out.append(wire.Returned(tuple(alike)))

    def _take_alike(self, load: SlotLoad, work: wire.Work) -> list[wire.Ref]:
        """Take what would need a process like that of ``work`` off a slot: none starts, and to try takes long."""
        kind = (work.environment, work.owner)
        alike = {(each.task, each.number) for each in load.waiting if (each.environment, each.owner) == kind}
        return [wire.Ref(each.task, each.number) for each in self._withdraw(load, alike)]

    def _sendable(self, results: list[wire.Result]) -> list[wire.Result]:
        """Those of ``results`` that may be sent now: the end of a piece waits until its whole checkpoint is sent."""
        if not self._checkpoints.unconfirmed:
            return results
        for result in results:
            if self._checkpoints.sending(result.task):
                self._held_back[result.task] = result
        return [result for result in results if result.task not in self._held_back]


def _kind(work: wire.Work) -> tuple[str, str | None, str, str | None, int, tuple[str, ...]]:
    """What the attempts of one batch have in common."""
    return work.template, work.environment, work.owner, work.program, work.options.memory, work.options.resources
