"""A worker without its socket and its clock: the work it holds and the messages it receives and sends.

Rule 1: the worker drops nothing that it accepted. It keeps a result until the broker has written it to its journal
(`Taken`), and names every attempt at each introduction, so both sides can agree again after any interruption.
Rule 2: no task runs outside the windows. When a window closes, running tasks are stopped and handed back. If the plan
has a grace, they may end first, but nothing begins; for the broker, the window is open until then.
Rule 3: the worker goes on working while the broker is away.
Rule 4: while the owner of the PC uses it, nothing begins (`pause`), or the window is closed as if it were over
(`hand_back`). The worker itself goes on talking.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isclose
from typing import Any, Protocol

from deskgrid import wire
from deskgrid.wire.saving import ENDING_S, LEAD_LEAST_S
from deskgrid.worker.gangs import RunsRanks, WorkerGangs
from deskgrid.worker.showing import Showing
from deskgrid.worker.templates import Learns, Templates
from deskgrid.worker.windows.announcements import Announcements, Powers
from deskgrid.worker.windows.uptime import Drained, Instant, Until, UptimePlan
from deskgrid.worker.work import RunsJobs, SlotWork

# Seconds between heartbeats until the broker sets another interval, and between introductions that nobody answers.
HEARTBEAT_S = 2.0
# If the next window is further away than this, idle child processes end, to free their memory. When the window is this
# near, they are started again, so that the first tasks do not wait for a cold start, which may take seconds.
REST_S = 60.0
# Two ends of a drain that differ by less are the same. Seconds.
DRAIN_JITTER_S = 5.0


# What the broker says about attempts, about files and environments, and about ranks of gangs.
WorkMessage = wire.Taken | wire.Recall | wire.CheckpointKept | wire.Checkpoint
FileMessage = wire.Part | wire.Lacks | wire.Kept | wire.Failed | wire.Prepare
RankMessage = wire.StartRanks | wire.Met | wire.PmiBytes | wire.RanksTaken


class WorkerRefused(Exception):
    """The broker refuses this worker."""


class TaskExecutor(RunsJobs, Learns, Protocol):
    """The part of `deskgrid.worker.files.stage.FileStage` that the session uses. ``now`` is monotonic seconds."""

    @property
    def ranks(self) -> RunsRanks: ...

    def start(self) -> None: ...
    def rest(self) -> None: ...
    def say(self, now: float) -> Sequence[wire.Message]: ...
    def hear(self, message: FileMessage, now: float) -> None: ...
    def reconnected(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this worker is, and what its PC has: as in `deskgrid.wire.Join`."""

    name: str
    session: str
    host: str
    site: str
    pythons: tuple[str, ...]
    slots: int
    system: wire.System | None = None
    address: str | None = None
    processors: int = 0
    memory: int = 0
    resources: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    mpi: bool = False
    mac: str | None = None


class Session:
    """The worker's half of the conversation."""

    def __init__(
        self,
        identity: Identity,
        plan: UptimePlan,
        runs: TaskExecutor,
        follows_broker: bool,
        free_port: Callable[[], int] = lambda: 0,
    ) -> None:
        """``follows_broker``: the broker's windows for this worker, if it has any, replace ``plan``.

        ``free_port``: finds a port of this PC for a gang whose rank 0 is here.
        """
        self.identity = identity
        self.plan = plan
        self.name = identity.name
        self.joined = False
        # Whether the broker knows us on this connection; stays True while we introduce ourselves again.
        self.known = False
        self.windows_from_broker: str | None = None
        # Until when the broker says that this PC is drained, on the wall clock; None: it is not.
        self.drained_until: float | None = None
        self._own_plan = plan
        self.follows_broker = follows_broker
        self._runs = runs
        self._out: list[wire.Message] = []
        self._templates = Templates(runs)
        self._work = SlotWork(identity.name, identity.slots, runs, self._templates, self._out)
        self._gangs = WorkerGangs(runs.ranks, self._templates, free_port, self._out)
        self._showing = Showing(runs, runs.ranks)
        # Attempts that were stopped when the last window closed: the `Leave` that names them may get lost.
        self._stopped: tuple[wire.Running, ...] = ()
        self._open = False
        self._resting = True
        self._told = Announcements()
        # How fast this PC is, and what others use of it: measured by whoever drives this.
        self.powers = Powers()
        # What is not well on this PC, as whoever drives this has found; None: nobody has looked.
        self.findings: tuple[wire.Finding, ...] | None = None
        self._told_findings: tuple[wire.Finding, ...] | None = None
        self._heartbeat_s = HEARTBEAT_S
        self._speak_at = 0.0
        # When the current window should close, on the monotonic clock, as of the last `tick`.
        self._closes_at = 0.0
        # When tasks that still run after the window are stopped, on the monotonic clock; None: the window is not over.
        self._ends_at: float | None = None
        # The attempts that the slots ran when the window ended.
        self._last: list[tuple[int, int] | None] = []
        # Why the tasks are stopped; empty: they are not. When the owner of the PC gets it for himself, if he does.
        self.paused = ""
        self._owners_at: float | None = None
        self._opening = 0
        self._introduced = False
        self._owes_results = False

    # --- what the driver calls ---------------------------------------------------------------------------------------

    def receive(self, message: wire.Message, now: Instant) -> None:
        """Handle a message of the broker; raises `WorkerRefused` if the broker refuses this worker."""
        if isinstance(message, wire.Assign):
            self._assign(message)
        elif isinstance(message, WorkMessage):
            self._work.receive(message, now.mono)
        elif isinstance(message, wire.Blob):
            self._templates.learn(message)
        elif isinstance(message, wire.PrepareRanks):
            self._prepare(message, now)
        elif isinstance(message, RankMessage):
            self._gangs.receive(message, now.mono)
        elif isinstance(message, FileMessage):
            self._runs.hear(message, now.mono)
        elif isinstance(message, wire.Stop):
            self._gangs.stop(message, now.mono)
            self._work.stop(message, now.mono)
        elif isinstance(message, wire.ShowOutput):
            self._showing.watch(message, now.mono)
        elif isinstance(message, wire.Welcome):
            self._welcome(message)
            self._drained(message.drained, now)
        elif isinstance(message, wire.Planned):
            self.windows_from_broker = message.windows
            self._drained(message.drained, now)
        else:
            self._turned_away(message)

    def _drained(self, seconds: float | None, now: Instant) -> None:
        """Note for how long this PC is drained. What is said again is a little later or earlier each time."""
        until = None if seconds is None else inf if seconds >= wire.SECONDS_LIMIT else now.wall + seconds
        before = self.drained_until
        if until is None or before is None or not isclose(until, before, rel_tol=0.0, abs_tol=DRAIN_JITTER_S):
            self.drained_until = until

    def _turned_away(self, message: wire.Message) -> None:
        """Handle a message with which the broker ends a conversation."""
        if isinstance(message, wire.Refused):
            raise WorkerRefused(message.reason)
        if isinstance(message, wire.Rejoin | wire.Goodbye):
            self.disconnected()
            if isinstance(message, wire.Rejoin):
                self.reconnected()

    def disconnected(self) -> None:
        """Note that the connection is lost: the worker has to introduce itself again on the next one."""
        self.joined = self.known = self._introduced = False
        self._showing.disconnected()

    def reconnected(self) -> None:
        """Note that there is a connection: introduce this worker at once, unless that is already under way."""
        if not self._introduced:
            self._speak_at = 0.0

    def use_plan(self, plan: UptimePlan | None) -> None:
        """Follow ``plan`` from now on; None: the worker's own plan."""
        self.plan = self._own_plan if plan is None else plan
        self._closes_at = float("inf")  # the old value is from the previous plan
        # The broker places tasks by the plan that it knows, so introduce this worker again at once.
        self.joined = self._introduced = False
        self.reconnected()

    def drained(self, plan: UptimePlan | None, now: Instant) -> UptimePlan | None:
        """Return ``plan`` (None: the worker's own) with its windows closed as long as this PC is drained.

        Tasks that can save have the time to do so first.
        """
        if self.drained_until is None:
            return plan
        saving_s = LEAD_LEAST_S if self.may_save() else 0.0
        return Drained(plan or self._own_plan, now.wall + saving_s, self.drained_until)

    def tick(self, now: Instant) -> list[wire.Message]:
        """Return the messages that are due; call this after receiving, when a task ended, and at `next_tick`."""
        self._collect(now.mono)
        uptime = self._left(now)
        # The second test: a gap between two windows may be shorter than the time between two ticks.
        if self._open and (uptime == 0.0 or now.mono >= self._closes_at) and not self._lets_end(now):
            early = self._owners_at is not None and self.plan.uptime(now) > 0.0
            self._close_window("its owner uses it" if early else "its window closed", now, planned=not early)
        self._closes_at = now.mono + uptime
        if self._ends_at is not None and (uptime > 0.0 or not self._open):
            self._ends_at = None
            self._speak_at = min(self._speak_at, now.mono)
        if uptime > 0.0 and not self._open:
            self._open_window(now)
        elif self._resting and self._opens_soon(now):
            self._rest(False)
        if now.mono >= self._speak_at:
            self._speak(now)
        if self._open:
            self._gangs.feed(now.mono)
            if not self.paused and self._ends_at is None:
                self._work.feed(now.mono, self._gangs.occupied)
            self._work.tell_times(self._stops_at, now.mono)
        if self.joined:
            self._out += [*self._runs.say(now.mono), *self._showing.say(now.mono)]
        return self._said()

    def next_tick(self, now: Instant) -> float:
        """Return the seconds until `tick` is due if nothing happens before. Windows have an alarm of their own."""
        shows = self._showing.next(now.mono) if self.joined else float("inf")
        ends = float("inf") if self._ends_at is None else self._ends_at - now.mono
        return max(0.0, min(self._speak_at - now.mono, self._gangs.next_lease(now.mono), shows, ends))

    # --- the owner of the PC comes first -----------------------------------------------------------------------------

    def pause(self, why: str, now: Instant) -> None:
        """The tasks have been stopped because of ``why``, or go on (empty): begin none, and tell the broker at once."""
        if why != self.paused:
            if bool(why) != bool(self.paused):
                self._speak_at = now.mono
            self.paused = why
            self._gangs.pause(why, now.mono)

    def hand_back(self, now: Instant, at_once: bool) -> None:
        """Give the PC to its owner: hand back all tasks, as when a window closes.

        Those that are checkpointable save first, unless it is to be ``at_once``.
        """
        self._owners_at = now.mono + (LEAD_LEAST_S if self.may_save() and not at_once else 0.0)

    def take_again(self) -> None:
        """The owner has gone: the window is open again, if the plan says so."""
        self._owners_at = None
        self._closes_at = float("inf")

    def saves_now(self, now: Instant) -> bool:
        """Whether the window closes so soon that what is checkpointable has to save now."""
        return self._open and self.may_save() and self._stops_at - now.mono <= LEAD_LEAST_S

    def _left(self, now: Instant) -> float:
        """The seconds left of the current window, or until the owner gets the PC."""
        left = self.plan.uptime(now)
        return left if self._owners_at is None else min(left, max(0.0, self._owners_at - now.mono))

    def _lets_end(self, now: Instant) -> bool:
        """Whether tasks that run may end although the window is over."""
        if self._owners_at is not None or not self.runs_tasks():
            return False
        if self._ends_at is None:
            if not self.plan.grace_s:
                return False
            self._begin_to_end(min(self._closes_at, now.mono) + self.plan.grace_s, now)
        self._work.end_with(self._last, now.mono)
        return self.runs_tasks() and now.mono < (self._ends_at or 0.0)

    def _begin_to_end(self, ends_at: float, now: Instant) -> None:
        self._ends_at = ends_at
        self._last = self._work.running_now()
        self._speak_at = now.mono

    @property
    def _stops_at(self) -> float:
        """When what runs is stopped, on the monotonic clock."""
        if self._ends_at is not None:
            return self._ends_at
        return self._closes_at + (self.plan.grace_s if self._owners_at is None else 0.0)

    def over(self, now: Instant) -> bool:
        """Return whether no window is open and none will ever open again. The broker's windows may change any time."""
        return not self._open and not self.follows_broker and self.plan.over(now)

    def may_save(self) -> bool:
        """Whether a task runs here that can save a checkpoint, and a broker would keep it."""
        return self.known and self._work.may_save

    def save(self, now: Instant) -> None:
        """Have these tasks save now, and end: for them, and for the broker, the window will soon close."""
        self.use_plan(Until(now.mono + LEAD_LEAST_S, on_wall=False, text="until its tasks have saved"))

    def wind_up(self, seconds: float, now: Instant) -> None:
        """Begin nothing any more; what runs may end within ``seconds``: as in the grace after a window."""
        self.use_plan(Until(now.mono, on_wall=False, text="until its tasks have ended"))
        self._begin_to_end(now.mono + seconds, now)

    def stop(self, reason: str, now: Instant) -> list[wire.Message]:
        """Hand back everything because the worker ends; return the last messages."""
        self._collect(now.mono)
        self._close_window(reason, now, planned=not self._open, stopping=True)
        return self._said()

    @property
    def unwritten(self) -> int:
        """The number of results and checkpoints that the broker has not confirmed."""
        return self._work.unwritten + self._gangs.unwritten

    def runs_tasks(self) -> bool:
        """Return whether a task, or a rank of one, runs here."""
        return self._work.running or not self._gangs.idle

    @property
    def idle(self) -> bool:
        """Whether it holds no work."""
        return self._work.idle and self._gangs.idle

    def _collect(self, now: float) -> None:
        self._work.collect(now)
        self._gangs.collect(now)

    def _said(self) -> list[wire.Message]:
        out = list(self._out)
        self._out.clear()
        return out

    # --- speaking ----------------------------------------------------------------------------------------------------

    def _uptime(self, now: Instant) -> float | None:
        seconds = self._left(now) if self._ends_at is None else ENDING_S
        return None if seconds == float("inf") else seconds

    def _windows(self, now: Instant) -> tuple[wire.Window, ...]:
        return tuple(wire.Window(starts_in, lasts) for starts_in, lasts in self.plan.coming(now))

    def _speak(self, now: Instant) -> None:
        self._speak_at = now.mono + self._heartbeat_s
        if self.joined:
            windows = self._told.news(self._windows(now), now.mono)
            findings = None if self.findings == self._told_findings else self.findings
            self._told_findings = self.findings
            self._out.append(wire.Heartbeat(self._uptime(now), windows, *self.powers.news(), self.paused, findings))
        else:
            self._introduce(now)

    def _introduce(self, now: Instant) -> None:
        me = self.identity
        self._opening += 1
        self._told_findings = None
        self._work.introduced()
        self._out.append(
            wire.Join(
                version=wire.VERSION,
                pythons=me.pythons,
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
                address=me.address,
                speed=self.powers.introduced(),
                processors=me.processors,
                memory=me.memory,
                resources=me.resources,
                labels=me.labels,
                mpi=me.mpi,
                given=self.powers.given,
                paused=self.paused,
                mac=me.mac,
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
        mono = now.mono
        held = [*self._work.held(mono), *self._gangs.held(mono), *self._work.ended(), *self._gangs.ended()]
        # Cutting is safe: the results follow anyway. There are more attempts than the broker hands out only if it was
        # away for some time.
        return tuple(held[: wire.HELD_ROWS])

    def _welcome(self, welcome: wire.Welcome) -> None:
        self.joined = self.known = True
        self.name = welcome.name
        self._heartbeat_s = welcome.heartbeat
        self.windows_from_broker = welcome.windows
        self._work.welcome(welcome.loss)
        self._templates.reconnected()
        self._runs.reconnected()
        self._gangs.reconnected()
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
        return self._owners_at is None and boundary is not None and boundary <= REST_S

    def _take_all_back(self, now: Instant) -> tuple[wire.Running, ...]:
        held = [*self._work.take_all_back(now.mono), *self._gangs.take_all_back(now.mono)]
        return tuple(held[: wire.HELD_ROWS])

    def _rest(self, rest: bool) -> None:
        if rest != self._resting:
            self._resting = rest
            self._runs.rest() if rest else self._runs.start()

    # --- work --------------------------------------------------------------------------------------------------------

    def _assign(self, assign: wire.Assign) -> None:
        if not self._open or assign.opening != self._opening:
            return  # sent before our `Leave` or newest introduction arrived: the broker treats it as not started
        self._work.assign(assign)

    def _prepare(self, message: wire.PrepareRanks, now: Instant) -> None:
        if self._open and message.opening == self._opening:  # as for `_assign`
            self._gangs.prepare(message, self._is_busy, now.mono)

    def _is_busy(self, slot: int) -> bool:
        """Whether a slot runs a task, or does not exist."""
        return slot >= self.identity.slots or bool(self._work.loads[slot].given)

    def _deliver_all(self) -> None:
        """Send every unconfirmed checkpoint and result again, on a new connection."""
        self._work.deliver_all()
        self._gangs.deliver_all()


def _platform_of(system: wire.System | None) -> dict[str, Any]:
    return {} if system is None else {"platform": system.platform, "major": system.major, "minor": system.minor}
