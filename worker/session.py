"""A worker without its socket and its clock: the work it holds and the messages it receives and sends.

Rule 1: the worker drops nothing that it accepted. It keeps a result until the broker has written it to its journal
(`Taken`), and names every attempt at each introduction, so both sides can agree again after any interruption.
Rule 2: no task runs outside the windows. When a window closes, running tasks are stopped and handed back.
Rule 3: the worker goes on working while the broker is away.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deskgrid import wire
from deskgrid.worker.checkpoints import Checkpoints, Store
from deskgrid.worker.run.jobs import Job, JobEnded, JobSaved, NoRoomError, TemplateError
from deskgrid.worker.windows.announcements import Announcements
from deskgrid.worker.windows.uptime import Instant, Plan

# Seconds between heartbeats until the broker sets another interval, and between introductions that nobody answers.
HEARTBEAT_S = 2.0
# Predicted seconds, and number, of short tasks given to a child process at once. It gets more tasks while it runs the
# last of them, so it never has to wait. Tasks that it has can no longer be recalled.
BATCH_S = 0.1
BATCH_TASKS = 500
# Maximum bytes of unconfirmed results. The worker sends no more until the broker has written some of them to its
# journal, so a PC that returns with many large results does not flood the broker.
FLYING_BYTES = wire.PAYLOAD_LIMIT
# If the next window is further away than this, idle child processes end, to free their memory. When the window is this
# near, they are started again, so that the first tasks do not wait for a cold start, which may take seconds.
REST_S = 60.0


# What the broker says about files and environments.
FileMessage = wire.Part | wire.Lacks | wire.Kept | wire.Failed | wire.Prepare


class Refusal(Exception):
    """The broker refuses this worker."""


class TaskExecutor(Protocol):
    """The part of `deskgrid.worker.files.stage.Stage` that the session uses. ``now`` is monotonic seconds."""

    @property
    def checkpoints(self) -> Store: ...

    def know(self, digest: str, blob: bytes) -> None: ...
    def knows(self, digest: str) -> bool: ...
    def start(self) -> None: ...
    def rest(self) -> None: ...
    def run(self, slot: int, jobs: Sequence[Job]) -> None: ...
    def poll(self, now: float) -> list[JobEnded]: ...
    def saved(self) -> list[JobSaved]: ...
    def tell_times(self, slot: int, due: float, closes: float, last: bool) -> None: ...
    def running(self, now: float) -> list[tuple[int, int, int, float]]: ...
    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]: ...
    def say(self, now: float) -> Sequence[wire.Message]: ...
    def hear(self, message: FileMessage, now: float) -> None: ...
    def reconnected(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this worker is."""

    name: str
    session: str
    host: str
    site: str
    python: str
    slots: int
    system: wire.System | None = None


@dataclass(slots=True)
class SlotLoad:
    """The attempts of one slot: the executor has those in ``given``, not yet those in ``waiting``."""

    given: dict[tuple[int, int], wire.Work] = field(default_factory=dict)
    waiting: deque[wire.Work] = field(default_factory=deque)


class Session:
    """The worker's half of the conversation."""

    def __init__(self, identity: Identity, plan: Plan, runs: TaskExecutor, follows_broker: bool) -> None:
        """``follows_broker``: the broker's windows for this worker, if it has any, replace ``plan``."""
        self.identity = identity
        self.plan = plan
        self.name = identity.name
        self.joined = False
        # Whether the broker knows us on this connection; stays True while we introduce ourselves again.
        self.known = False
        self.windows_from_broker: str | None = None
        self._own_plan = plan
        self._follows_broker = follows_broker
        self._runs = runs
        self._checkpoints = Checkpoints(identity.name, runs.checkpoints)
        self._loads = [SlotLoad() for _ in range(identity.slots)]
        # Results by attempt, each with the slot it came from.
        self._unwritten: dict[tuple[int, int], tuple[int, wire.Result]] = {}
        # Attempts that were stopped when the last window closed: the `Leave` that names them may get lost.
        self._stopped: tuple[wire.Running, ...] = ()
        self._fetching: set[str] = set()
        # Templates that cannot be used here, and why.
        self._broken: dict[str, TemplateError] = {}
        self._open = False
        self._resting = True
        self._told = Announcements()
        self._heartbeat_s = HEARTBEAT_S
        self._speak_at = 0.0
        # When the current window should close, on the monotonic clock, as of the last `tick`.
        self._closes_at = 0.0
        self._opening = 0
        # The number of the last attempt assigned since the last introduction: numbers only grow.
        self._assigned = -1
        self._introduced = False
        self._owes_results = False
        # Results not yet sent over this connection, and the bytes of each result that was sent but is not yet `Taken`.
        self._unsaid: deque[wire.Result] = deque()
        self._flying: dict[tuple[int, int], int] = {}
        self._flying_bytes = 0
        # Results that wait until the checkpoint of their task has been sent, by task.
        self._held_back: dict[int, wire.Result] = {}
        self._out: list[wire.Message] = []

    # --- what the driver calls ---------------------------------------------------------------------------------------

    def receive(self, message: wire.Message, now: Instant) -> None:
        """Handle a message of the broker; raises `Refusal` if the broker refuses this worker."""
        if isinstance(message, wire.Assign):
            self._assign(message)
        elif isinstance(message, wire.Taken):
            self._taken(message.attempts)
        elif isinstance(message, wire.Blob):
            self._learn(message)
        elif isinstance(message, wire.CheckpointKept | wire.Checkpoint):
            answer = self._checkpoints.receive(message, now.mono)
            self._out += [] if answer is None else [answer]
            self._deliver_held_back()
        elif isinstance(message, FileMessage):
            self._runs.hear(message, now.mono)
        elif isinstance(message, wire.Recall):
            self._recall(message)
        elif isinstance(message, wire.Stop):
            self._stop(message, now)
        elif isinstance(message, wire.Welcome):
            self._welcome(message)
        elif isinstance(message, wire.Planned):
            self.windows_from_broker = message.windows
        elif isinstance(message, wire.Refused):
            raise Refusal(message.reason)
        elif isinstance(message, wire.Rejoin | wire.Goodbye):
            self.disconnected()
            if isinstance(message, wire.Rejoin):
                self.reconnected()

    def disconnected(self) -> None:
        """Note that the connection is lost: the worker has to introduce itself again on the next one."""
        self.joined = self.known = self._introduced = False

    def reconnected(self) -> None:
        """Note that there is a connection: introduce this worker at once, unless that is already under way."""
        if not self._introduced:
            self._speak_at = 0.0

    def use_plan(self, plan: Plan | None) -> None:
        """Follow ``plan`` from now on; None: the worker's own plan."""
        self.plan = self._own_plan if plan is None else plan
        self._closes_at = float("inf")  # the old value is from the previous plan
        # The broker places tasks by the plan that it knows, so introduce this worker again at once.
        self.joined = self._introduced = False
        self.reconnected()

    @property
    def wants_broker_windows(self) -> bool:
        """Whether the worker follows windows that the broker sends."""
        return self._follows_broker

    def tick(self, now: Instant) -> list[wire.Message]:
        """Return the messages that are due; call this after receiving, when a task ended, and at `next_tick`."""
        self._collect(now)
        uptime = self.plan.uptime(now)
        # The second test: a gap between two windows may be shorter than the time between two ticks.
        if self._open and (uptime == 0.0 or now.mono >= self._closes_at):
            self._close_window("its window closed", now, planned=True)
        self._closes_at = now.mono + uptime
        if uptime > 0.0 and not self._open:
            self._open_window(now)
        elif self._resting and self._opens_soon(now):
            self._rest(False)
        if now.mono >= self._speak_at:
            self._speak(now)
        if self._open:
            self._feed(now)
            self._tell_times(now)
        if self.joined:
            self._out += self._runs.say(now.mono)
        out, self._out = self._out, []
        return out

    def next_tick(self, now: Instant) -> float:
        """Return the seconds until `tick` is due if nothing happens before. Windows have an alarm of their own."""
        return max(0.0, self._speak_at - now.mono)

    def over(self, now: Instant) -> bool:
        """Return whether no window is open and none will ever open again."""
        return not self._open and self.plan.over(now)

    def stop(self, reason: str, now: Instant) -> list[wire.Message]:
        """Hand back everything because the worker ends; return the last messages."""
        self._collect(now)
        self._close_window(reason, now, planned=not self._open, stopping=True)
        out, self._out = self._out, []
        return out

    @property
    def unwritten(self) -> int:
        """The number of results and checkpoints that the broker has not confirmed."""
        return len(self._unwritten) + self._checkpoints.unconfirmed

    # --- speaking ----------------------------------------------------------------------------------------------------

    def _uptime(self, now: Instant) -> float | None:
        seconds = self.plan.uptime(now)
        return None if seconds == float("inf") else seconds

    def _windows(self, now: Instant) -> tuple[wire.Window, ...]:
        return tuple(wire.Window(starts_in, lasts) for starts_in, lasts in self.plan.coming(now))

    def _speak(self, now: Instant) -> None:
        self._speak_at = now.mono + self._heartbeat_s
        if self.joined:
            self._out.append(wire.Heartbeat(self._uptime(now), self._told.news(self._windows(now), now.mono)))
        else:
            self._introduce(now)

    def _introduce(self, now: Instant) -> None:
        me = self.identity
        self._opening += 1
        self._assigned = -1
        self._out.append(
            wire.Join(
                version=wire.VERSION,
                python=me.python,
                name=me.name,
                session=me.session,
                opening=self._opening,
                host=me.host,
                site=me.site,
                slots=me.slots,
                kind=self.plan.kind,
                plan=self.plan.describe(),
                uptime=self._uptime(now) if self._open else 0.0,
                windows=self._windows(now),
                running=self._held(now) if self._open else self._stopped,
                **_platform_of(me.system),
            )
        )
        # Unconfirmed results, or their confirmations, may have been lost, so send the results again. They go right
        # behind the introduction, so that the broker gets them before it assigns the same tasks to another worker. If
        # the introduction is repeated, they wait for its answer: they may be large.
        self._owes_results = self._introduced and not self.joined
        if not self._owes_results:
            self._deliver_all()
        self._introduced = True

    def _held(self, now: Instant) -> tuple[wire.Running, ...]:
        """Return every attempt held here, for each slot in the order of its work; then those whose results follow."""
        elapsed = {(task, number): seconds for _, task, number, seconds in self._runs.running(now.mono)}
        held = [
            wire.Running(*attempt, slot, elapsed.get(attempt))
            for slot, load in enumerate(self._loads)
            for attempt in [*load.given, *((work.task, work.number) for work in load.waiting)]
        ]
        ended = [wire.Running(r.task, r.number, slot, r.elapsed) for slot, r in self._unwritten.values()]
        # Cutting is safe: the results follow anyway. There are more attempts than the broker hands out only if it was
        # away for some time.
        return tuple((held + ended)[: wire.HELD_ROWS])

    def _welcome(self, welcome: wire.Welcome) -> None:
        self.joined = self.known = True
        self.name = welcome.name
        self._heartbeat_s = welcome.heartbeat
        self.windows_from_broker = welcome.windows
        self._checkpoints.loss_s = welcome.loss
        self._checkpoints.reconnected()
        self._fetching.clear()  # requests or answers may have been lost with the last connection
        self._runs.reconnected()
        if self._owes_results:
            self._owes_results = False
            self._deliver_all()

    # --- windows -----------------------------------------------------------------------------------------------------

    def _open_window(self, now: Instant) -> None:
        self._open = True
        self._rest(False)
        self._introduce(now)
        self._speak_at = now.mono + self._heartbeat_s

    def _close_window(self, reason: str, now: Instant, planned: bool, stopping: bool = False) -> None:
        self._open = False
        held = self._take_all_back(now)
        self._stopped = tuple(stopped for stopped in held if stopped.elapsed is not None)
        windows = () if stopping else self._windows(now)
        self._out.append(wire.Leave(reason, planned, stopping or self.plan.over(now), windows, held))
        if not self._opens_soon(now):
            self._rest(True)

    def _opens_soon(self, now: Instant) -> bool:
        """Return whether, between two windows, the next one is so near that the processes should be ready."""
        boundary = self.plan.boundary(now)
        return boundary is not None and boundary <= REST_S

    def _take_all_back(self, now: Instant) -> tuple[wire.Running, ...]:
        held = []
        for slot, load in enumerate(self._loads):
            stopped = self._runs.stop(slot, now.mono) if load.given else []
            held += [wire.Running(job.task, job.number, slot, elapsed) for job, elapsed in stopped]
            held += [wire.Running(work.task, work.number, slot, None) for work in load.waiting]
            for attempt in load.given:
                self._checkpoints.ended(attempt, goes_on=True)
            load.given.clear()
            load.waiting.clear()
        return tuple(held[: wire.HELD_ROWS])

    def _rest(self, rest: bool) -> None:
        if rest != self._resting:
            self._resting = rest
            self._runs.rest() if rest else self._runs.start()

    # --- work --------------------------------------------------------------------------------------------------------

    def _assign(self, assign: wire.Assign) -> None:
        if not self._open or assign.opening != self._opening:
            return  # sent before our `Leave` or newest introduction arrived: the broker treats it as not started
        self._checkpoints.spread_s = assign.spread
        for work in assign.work:
            if work.slot < len(self._loads) and work.number > self._assigned:  # a lower number came twice
                self._assigned = work.number
                self._loads[work.slot].waiting.append(work)

    def _learn(self, blob: wire.Blob) -> None:
        self._fetching.discard(blob.digest)
        try:
            self._runs.know(blob.digest, bytes(blob.data))
        except Exception as error:  # any error is the bag's problem, not this worker's
            self._broken[blob.digest] = error if isinstance(error, TemplateError) else TemplateError(repr(error))

    def _feed(self, now: Instant) -> None:
        for slot, load in enumerate(self._loads):
            while load.waiting and len(load.given) <= 1:
                template, environment = load.waiting[0].template, load.waiting[0].environment
                if template in self._broken:
                    self._fail(slot, load.waiting.popleft())
                elif any(work.template != template or work.environment != environment for work in load.given.values()):
                    break
                elif self._runs.knows(template):
                    if not self._checkpoints.has(load.waiting[0]):
                        if (resume := self._checkpoints.lacks(load.waiting[0])) is not None:
                            self._out.append(resume)
                        break
                    self._give(slot, load, now)
                else:
                    if template not in self._fetching:
                        self._fetching.add(template)
                        self._out.append(wire.Fetch(template))
                    break

    def _fail(self, slot: int, work: wire.Work) -> None:
        """End an attempt whose template cannot be used; if this PC is to blame, the next attempt fetches it again."""
        error, kind, outcome = self._broken[work.template], "TemplateError", wire.Outcome.ERROR
        if isinstance(error, NoRoomError):
            del self._broken[work.template]
            kind, outcome = "Crash", wire.Outcome.CRASH
        payload = wire.Failure(kind, str(error)).packed()
        result = wire.Result(work.task, work.number, int(outcome), 0.0, payload, b"", b"")
        self._unwritten[result.task, result.number] = (slot, result)
        self._deliver([result])

    def _tell_times(self, now: Instant) -> None:
        """Tell checkpointable tasks when to save. This is done in each turn, because the plan may have changed."""
        if not self._checkpoints.running:
            return
        for slot, load in enumerate(self._loads):
            if load.given and (times := self._checkpoints.times(next(iter(load.given)), self._closes_at, now.mono)):
                self._runs.tell_times(slot, *times)

    def _give(self, slot: int, load: SlotLoad, now: Instant) -> None:
        template, seconds = load.waiting[0].template, 0.0
        environment = load.waiting[0].environment
        batch: list[wire.Work] = []
        while load.waiting and load.waiting[0].template == template and len(batch) < BATCH_TASKS:
            seconds += load.waiting[0].runtime
            first = load.waiting[0]
            if batch and (seconds > BATCH_S or first.options.checkpoint or first.environment != environment):
                break
            batch.append(load.waiting.popleft())
        load.given.update({(work.task, work.number): work for work in batch})
        begin, mono = self._checkpoints.begin, now.mono
        key = environment or ""
        jobs = [Job(w.task, w.number, w.template, w.payload, w.options, begin(w, mono), key) for w in batch]
        self._runs.run(slot, jobs)

    def _collect(self, now: Instant) -> None:
        """Send what has ended."""
        results, back = [], list[wire.Ref]()
        all_ended = self._runs.poll(now.mono)
        for job in self._runs.saved():
            if (saved := self._checkpoints.saved(job, now.mono)) is not None:
                self._out.append(saved)
        for ended in all_ended:
            if self._checkpoints.running:
                self._checkpoints.ended((ended.task, ended.number), goes_on=ended.outcome != wire.Outcome.DONE)
            self._loads[ended.slot].given.pop((ended.task, ended.number), None)
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
            )
            self._unwritten[result.task, result.number] = (ended.slot, result)
            results.append(result)
        if back:
            self._out.append(wire.Returned(tuple(back)))
        self._deliver(self._sendable(results))

    def _deliver_all(self) -> None:
        """Send every unconfirmed checkpoint and result again, on a new connection."""
        self._unsaid.clear()
        self._flying.clear()
        self._flying_bytes = 0
        self._out += self._checkpoints.unkept
        self._held_back.clear()
        self._deliver(self._sendable([result for _, result in self._unwritten.values()]))

    def _sendable(self, results: list[wire.Result]) -> list[wire.Result]:
        """Those of ``results`` that may be sent now: the end of a piece waits until its whole checkpoint is sent."""
        if not self._checkpoints.unconfirmed:
            return results
        for result in results:
            if self._checkpoints.sending(result.task):
                self._held_back[result.task] = result
        return [result for result in results if result.task not in self._held_back]

    def _deliver_held_back(self) -> None:
        """Send the results that waited for a checkpoint of which all has been sent now."""
        ready = [task for task in self._held_back if not self._checkpoints.sending(task)]
        self._deliver([self._held_back.pop(task) for task in ready])

    def _deliver(self, results: Sequence[wire.Result]) -> None:
        """Queue ``results``, and send queued results while fewer than FLYING_BYTES are unconfirmed."""
        self._unsaid += results
        while self._unsaid and self._flying_bytes < FLYING_BYTES:
            batch = next(wire.in_batches(self._unsaid, _size_of, wire.RESULTS_ROWS))
            for result in batch:
                self._unsaid.popleft()
                size = self._flying[result.task, result.number] = _size_of(result)
                self._flying_bytes += size
            self._out.append(wire.Finished(tuple(batch)))

    def _taken(self, attempts: Sequence[wire.Ref]) -> None:
        """Forget the results that the broker has confirmed."""
        for ref in attempts:
            key = (ref.task, ref.number)
            self._unwritten.pop(key, None)
            self._flying_bytes -= self._flying.pop(key, 0)
        self._deliver([])

    def _recall(self, recall: wire.Recall) -> None:
        wanted = {(ref.task, ref.number) for ref in recall.attempts}
        back = []
        for load in self._loads:
            back += [work for work in load.waiting if (work.task, work.number) in wanted]
            load.waiting = deque(work for work in load.waiting if (work.task, work.number) not in wanted)
        if back:
            self._out.append(wire.Returned(tuple(wire.Ref(work.task, work.number) for work in back)))

    def _stop(self, stop: wire.Stop, now: Instant) -> None:
        unwanted = {(ref.task, ref.number) for ref in stop.attempts}
        for slot, load in enumerate(self._loads):
            load.waiting = deque(work for work in load.waiting if (work.task, work.number) not in unwanted)
            if unwanted.isdisjoint(load.given):
                continue
            given = load.given
            self._collect(now)
            # The child process holds a batch: put its other attempts back in front, in order; they start again.
            for attempt in given:
                self._checkpoints.ended(attempt, goes_on=True)
            kept = [job for job, _ in self._runs.stop(slot, now.mono) if (job.task, job.number) not in unwanted]
            load.waiting.extendleft(given[job.task, job.number] for job in reversed(kept))
            load.given = {}
        # The broker assigns no work to a slot until it knows that the stopped attempt there has ended. If the attempt
        # has a result, the result tells it.
        gone = tuple(ref for ref in stop.attempts if (ref.task, ref.number) not in self._unwritten)
        if gone:
            self._out.append(wire.Returned(gone))


def _size_of(result: wire.Result) -> int:
    return len(result.payload) + len(result.stdout) + len(result.stderr)


def _platform_of(system: wire.System | None) -> dict[str, Any]:
    return {} if system is None else {"platform": system.platform, "major": system.major, "minor": system.minor}
