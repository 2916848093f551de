"""The worker's loop: it reads the clocks, and connects the session with the socket and the processes.

Rule 1: it dials out; nothing listens on a lab PC.
Rule 2: it never blocks. If the broker does not accept a message now, its content follows the next introduction.
Rule 3: each turn of the loop compares the planned windows with the clocks, so a PC that slept through a boundary
notices it.
"""

import logging
import os
import secrets
import socket
import sys
import tempfile
import time
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from deskgrid import wire
from deskgrid.durations import precise
from deskgrid.homes import this_host
from deskgrid.windows.windows_file import owner_of
from deskgrid.wire.joinline import JoinLine
from deskgrid.worker.enrolment import enrolled
from deskgrid.worker.environments.interpreters import copy_libraries, sites_of
from deskgrid.worker.environments.store import WheelStore
from deskgrid.worker.files import task_folder
from deskgrid.worker.files.cache import FileCache
from deskgrid.worker.files.stage import FileStage
from deskgrid.worker.identities import Identities, IdentityError, PcIdentity
from deskgrid.worker.link import BrokerLink, UnknownKey
from deskgrid.worker.owner.keeper import OwnerKeeper
from deskgrid.worker.owner.policy import Courtesy
from deskgrid.worker.owner.watch import PresenceWatch
from deskgrid.worker.pc.address import address_towards, interface_of, mac_of
from deskgrid.worker.pc.checks import findings_of_worker
from deskgrid.worker.pc.hardware import cores, graphics_cards
from deskgrid.worker.pc.regular_checks import RegularChecks
from deskgrid.worker.pc.speed import SpeedMeasurement
from deskgrid.worker.pc.this_pc import ThisPc
from deskgrid.worker.run.accounts import AccountError, UserAccount, check_account, reserved
from deskgrid.worker.run.cgroup import find_groups
from deskgrid.worker.run.devices import Devices
from deskgrid.worker.run.executor import Executor
from deskgrid.worker.run.folders import WorkerFolder, has_locks, is_ours
from deskgrid.worker.run.mpi import Mpi
from deskgrid.worker.run.nursery import PROGRAM
from deskgrid.worker.run.pool import Accounts
from deskgrid.worker.run.scope import LOWEST
from deskgrid.worker.session import Identity, Session, WorkerRefused
from deskgrid.worker.windows.clocks import read_clocks
from deskgrid.worker.windows.uptime import OpenEnded, PlanError, UptimePlan, weekly_from_json

if TYPE_CHECKING:
    from deskgrid.worker.windows.alarm import Alarm

log = logging.getLogger("deskgrid.worker")

# The longest wait in the loop, and so the longest delay of a stop request.
TICK_S = 0.2
# Bytes of stored files that a PC keeps although no task uses them.
FILES_BYTES = 10 * 2**30
# Bytes of unpacked wheels that a PC keeps although no environment uses them.
ENV_BYTES = 20 * 2**30
# How long a worker waits for the measurement of its speed before it introduces itself. On a busy PC it takes longer,
# and is said later.
SPEED_S = 0.2
# How far tasks give way to others on this PC: as far as possible.
NICE = LOWEST
# How long a stopping worker waits for its tasks' last checkpoints. Less than `deskgrid.wire.saving.LEAD_LEAST_S`: its
# last window must not close before.
SAVE_S = 9.0
# How long a stopping worker waits for the broker to confirm its last results.
LAST_RESULTS_S = 3.0
# A PC may enrol for this long even if its plan is over sooner: `--until 1` is how a PC enrols, and the broker may be
# busy with others.
ENROL_S = 10.0


# Why a PC that was let in once is not any more.
_REVOKED = (
    "the broker does not know this PC's key: was it revoked or forgotten? "
    "To enrol again, give --join with the line that the broker prints"
)
# The folder for stored files of a worker whose tasks run as another user, who cannot enter the worker's home. What is
# in it can be fetched again, and nobody cleans up there unasked.
RUN_AS_FILES = Path("/var/cache/deskgrid")


class WorkerError(Exception):
    """The worker cannot join this grid; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """A worker's options. ``join``: the join line of a lab or of this PC. ``home``: the folder of its identities.

    ``plan`` None: the broker's windows for this worker, or open-ended if it has none. ``task_memory``: bytes of memory
    for a task's process; 0 for no limit. ``run_as``: the users that tasks run as; empty: the worker's own user.
    ``files``: the folder for stored files; None: one in the home or, with ``run_as``, `RUN_AS_FILES`.
    ``files_bytes``: bytes of stored files that are kept although no task uses them. ``env_bytes``: bytes of all
    unpacked wheels.
    ``labels``: what this PC has, sorted. ``resources``: what else is counted of it, sorted; ``find_gpus``: and
    its graphics cards, if any are found. ``memory``: bytes for tasks, and ``speed``: 1 for the fastest PC; None:
    measured at the start. ``mpi``: whether MPI programs may run here, on ports of ``mpi_ports`` (the least and the
    most) or any. ``saves``: whether tasks may save before somebody's stop ends it: not if its broker ends, too.
    ``grace_s``: for how long tasks that run when somebody stops it may go on.
    ``nice``: how far tasks, and what unpacks their libraries, give way to others on this PC: see
    `deskgrid.worker.run.scope.give_way`. ``interpreters``: other Pythons that tasks can have, path by version.
    ``courtesy``: what becomes of tasks while the owner of the PC uses it; without it, nobody looks whether he does.
    ``checks``: whether the broker is told what is not well on this PC.
    """

    join: JoinLine
    slots: int
    name: str
    home: Path
    site: str = ""
    plan: UptimePlan | None = None
    task_memory: int = 0
    run_as: tuple[UserAccount, ...] = ()
    files: Path | None = None
    files_bytes: int = FILES_BYTES
    env_bytes: int = ENV_BYTES
    labels: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    find_gpus: bool = False
    memory: int | None = None
    speed: float | None = None
    mpi: bool = False
    mpi_ports: tuple[int, int] | None = None
    saves: bool = True
    grace_s: float = 0.0
    nice: int = NICE
    interpreters: Mapping[str, str] = field(default_factory=dict)
    courtesy: Courtesy = field(default_factory=Courtesy)
    checks: bool = False

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("site", self.site)):
            if wire.is_longer(text, wire.NAME_BYTES):
                raise WorkerError(f"the {what} has more than {wire.NAME_BYTES} bytes: {text!r:.80}")
        if not 1 <= self.slots <= wire.SLOTS_LIMIT:
            raise WorkerError(f"a worker has 1 to {wire.SLOTS_LIMIT:,} slots, not {self.slots:,}")


def run_worker(options: WorkerOptions, stopping: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Run the worker until its plan is over or ``stopping()``; raises `WorkerError` if the broker refuses the worker.

    ``say`` gets a line for people whenever something changes.
    """
    try:
        for account in options.run_as:
            check_account(account, PROGRAM, options.interpreters.values())
        if options.run_as:
            os.umask(0o022)  # those users must be able to read the unpacked bundles
        with reserved(options.run_as):
            if options.join.keys is None:
                _work(options, stopping, say)
            else:
                _work_as_known(options, stopping, say)
    except WorkerRefused as refusal:
        raise WorkerError(f"the broker refuses this worker: {refusal}") from refusal
    except (IdentityError, AccountError) as error:
        raise WorkerError(str(error)) from error


def _work_as_known(options: WorkerOptions, stopping: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Work with this PC's own key; if the broker does not know that key yet, enrol the PC with the lab's line."""
    identity = _identity(options)
    if identity is not None:
        try:
            return _work(replace(options, join=identity.line, name=identity.name), stopping, say)
        except UnknownKey as error:
            if identity.keys == options.join.keys:
                raise WorkerError(_REVOKED) from error
    if copied := Identities(options.home).copied:
        say(copied)
    patience = time.monotonic() + ENROL_S

    def over() -> bool:
        late = options.plan is not None and time.monotonic() >= patience and options.plan.over(read_clocks())
        return late or stopping()

    try:
        identity = enrolled(options.join, options.name, Identities(options.home), over, say)
    except UnknownKey as error:
        raise WorkerError("the broker does not know this join line's key: use the line that it prints now") from error
    if identity is not None:
        try:
            _work(replace(options, join=identity.line, name=identity.name), stopping, say)
        except UnknownKey as error:
            raise WorkerError(_REVOKED) from error
    elif not stopping():
        address = options.join.address
        raise WorkerError(
            f"this PC is not enrolled: no broker at {address} answered before the planned uptime was over"
        )


def _identity(options: WorkerOptions) -> PcIdentity | None:
    """Return this PC's identity in the grid of the join line, updated to the address in the line."""
    assert options.join.keys is not None
    identities = Identities(options.home)
    known = identities.find(options.join.keys.server, options.name)
    if known is None or (known.line.host, known.line.port) == (options.join.host, options.join.port):
        return known
    moved = PcIdentity(known.name, replace(options.join, keys=known.keys))
    identities.keep(moved)
    return moved


def _work(options: WorkerOptions, stopping: Callable[[], bool], say: Callable[[str], None]) -> None:
    wake_in, wake_out = socket.socketpair()
    wake_in.setblocking(False)
    wake_out.setblocking(False)

    def wake() -> None:
        with suppress(OSError):  # it has been woken often enough, or has ended
            wake_in.send(b"\0")

    groups = find_groups()  # before there are other processes
    measurement = SpeedMeasurement(wake) if options.speed is None else None
    cache, wheels, tasks, sites = _places(options, say)
    address = "127.0.0.1" if options.join.is_local else address_towards(options.join.host, options.join.port)
    accounts = Accounts(tasks.path, options.run_as, wake)
    _prepare(options, accounts, tasks, sites)
    resources, cards = graphics_cards(options.resources, find=options.find_gpus)
    options = replace(options, resources=resources)
    executor = Executor(
        options.slots,
        options.name,
        wake,
        task_memory=options.task_memory,
        accounts=accounts,
        mpi=Mpi(interface_of(address or ""), options.mpi_ports) if options.mpi else None,
        nice=options.nice,
        groups=groups,
        devices=Devices(cards),
    )

    def renew() -> None:
        tasks.renew()
        sites.renew()

    how: dict[str, Any] = {
        "accounts": accounts,
        "nice": options.nice,
        "renew": renew,
        "interpreters": options.interpreters,
    }
    stage = FileStage(executor, cache, tasks.path, wake, wheels=wheels, sites=sites.path, **how)
    assert stage.environments is not None
    executor.sites = ChainMap(stage.environments.ready, sites_of(options.interpreters, sites.path))
    try:
        with BrokerLink(options.join) as link:
            pc = ThisPc(address, measurement)
            _say_of_accounts(options, say)
            _Agent(options, link, executor, stage, pc, wake=wake, woken=wake_out, say=say).run(stopping)
    finally:
        executor.close()
        stage.close()
        accounts.close()
        tasks.close()
        sites.close()
        wake_in.close()
        wake_out.close()


def _prepare(options: WorkerOptions, accounts: Accounts, tasks: WorkerFolder, sites: WorkerFolder) -> None:
    """Have the folders of tasks and of environments made ready, also when they are made anew."""

    def prepare(_: Path) -> None:
        accounts.renew()
        for place in accounts.places:
            task_folder.prepare(place.area, place.account)

    def prepare_sites(folder: Path) -> None:
        folder.chmod(0o711)  # whoever may use an environment gets to it by its name
        if options.interpreters:
            copy_libraries(folder)

    tasks.prepare, sites.prepare = prepare, prepare_sites
    prepare_sites(sites.path)


def _say_of_accounts(options: WorkerOptions, say: Callable[[str], None]) -> None:
    """Say who tasks run as; and if there are too few accounts for a different person on each slot, say this, too."""
    if options.run_as:
        names = ", ".join(account.name for account in options.run_as)
        few = len(options.run_as) < options.slots
        people = f": tasks of at most {_people(len(options.run_as))} run at the same time" if few else ""
        say(f"tasks run as {names}{people}")


def _people(number: int) -> str:
    return "1 person" if number == 1 else f"{number} people"


def _places(
    options: WorkerOptions, say: Callable[[str], None]
) -> tuple[FileCache, WheelStore, WorkerFolder, WorkerFolder]:
    """Return the cache of stored files, the store of wheels, and folders for tasks and for environments, on one disk.

    Raises `WorkerError`.
    """
    place = options.files
    if place is None:
        place = options.home / "files" if not options.run_as else RUN_AS_FILES
    try:
        options.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = _made(place.absolute())
        if not has_locks(temporary := Path(tempfile.gettempdir())):
            raise WorkerError(f"the disk of {temporary} has no locks: with TMPDIR, name a folder on a disk of this PC")
        if not has_locks(place):
            if options.files is not None:
                raise WorkerError(f"the disk of {place} has no locks: with --files, name a folder on a disk of this PC")
            local = temporary / f"deskgrid-files{_whose()}"
            say(f"the disk of {place} has no locks, so stored files are kept in {local}: name another with --files")
            place = _made(local)
        store = WheelStore(place / "wheels", options.env_bytes)
        tasks, sites = WorkerFolder(place), WorkerFolder(place)
        return FileCache(place / "cache", options.files_bytes), store, tasks, sites
    except OSError as error:
        raise WorkerError(f"stored files cannot be kept in {place}: {error.strerror}") from error


def _whose() -> str:
    if sys.platform == "win32":
        return ""  # a temporary directory there is the user's own
    else:
        return f"-{os.getuid()}"


def _made(place: Path) -> Path:
    """Make a folder for stored files, and in it that of this host: others may share the disk. Return the latter.

    Raises `WorkerError`, and OSError.
    """
    for folder in (place, mine := place / this_host()):
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if not is_ours(folder):
            raise WorkerError(
                f"{folder} belongs to somebody else, or others can write to it: name another with --files"
            )
    return mine


class _Agent:
    """The loop around a session."""

    def __init__(
        self,
        options: WorkerOptions,
        link: BrokerLink,
        executor: Executor,
        stage: FileStage,
        pc: ThisPc,
        *,
        wake: Callable[[], None],
        woken: socket.socket,
        say: Callable[[str], None],
    ) -> None:
        plan = options.plan or OpenEnded()
        identity = Identity(
            name=options.name,
            session=secrets.token_hex(8),
            host=socket.gethostname(),
            site=options.site,
            pythons=(wire.this_system().python, *options.interpreters),
            slots=options.slots,
            system=wire.this_system(),
            address=pc.address,
            processors=cores(),
            memory=pc.memory(say) if options.memory is None else options.memory,
            resources=options.resources,
            labels=options.labels,
            mpi=options.mpi,
            mac=mac_of(pc.address or ""),
        )
        self._options = options
        self._link = link
        self._executor = executor
        self._woken = woken
        self._say = say
        self._pc = pc
        ports = options.mpi_ports
        follows = options.plan is None
        self._session = Session(identity, plan, stage, follows_broker=follows, free_port=lambda: pc.free_port(ports))
        if options.speed is not None:
            self._session.powers.speed, self._session.powers.given = options.speed, True
        pc.measure(self._session.powers, time.monotonic(), SPEED_S)
        self._wake = wake
        self._alarm: Alarm | None = None
        # The windows and the end of the drain that this follows.
        self._followed: tuple[str | None, float | None] = None, None
        self._was_known = False
        self._checks = RegularChecks(
            lambda: findings_of_worker(options.home, options.join, options.name), lambda: self._session.known
        )
        self._watch: PresenceWatch | None = None
        self._keeper: OwnerKeeper | None = None
        # What becomes of tasks while the owner uses the PC, and the table of the broker that may say so.
        self._courtesy = options.courtesy
        self._read: str | None = None
        self._look_after_the_owner()
        self._poller = zmq.Poller()
        self._poller.register(link.socket, zmq.POLLIN)
        self._poller.register(link.monitor, zmq.POLLIN)
        self._poller.register(woken, zmq.POLLIN)

    def run(self, stopping: Callable[[], bool]) -> None:
        self._say(f"planned uptime: {self._session.plan.describe()}")
        self._watch_windows()
        try:
            while not stopping():
                self._turn(TICK_S)
                if self._session.over(read_clocks()):
                    self._say("no window will open again")
                    break
            if stopping():
                self._let_end()
            self._save()
            self._end("stopped by its user" if stopping() else "its last window closed")
        finally:
            if self._alarm is not None:
                self._alarm.close()
            if self._watch is not None:
                self._watch.close()
            self._checks.close()

    def _look_after_the_owner(self) -> None:
        """Look whether the owner uses the PC, if that makes any difference."""
        if self._watch is not None and self._keeper is not None:
            self._keeper.go_on(read_clocks(), "the owner of this PC is treated in another way")
            self._watch.close()
            self._watch = self._keeper = None
        if self._courtesy.asks:
            self._watch = PresenceWatch(self._wake, lambda: self._session.powers.loads)
            self._keeper = OwnerKeeper(self._courtesy, self._watch.read, self._executor, self._session, self._say)

    def _follow_courtesy(self) -> None:
        """What the broker says of the owner counts if nobody has said it on this PC."""
        ours, table = self._options.courtesy, self._session.windows_from_broker
        if table == self._read:
            return
        self._read = table
        how = None if ours.given or table is None else owner_of(table)
        if (courtesy := replace(ours, how=how or ours.how)) != self._courtesy:
            self._courtesy = courtesy
            self._say(f"while the owner uses this PC{', from the broker' if how else ''}: {courtesy.how}")
            self._look_after_the_owner()

    def _watch_windows(self) -> None:
        """Set the alarm that wakes the loop when a window opens or closes."""
        plan = self._session.plan
        if self._alarm is not None:
            self._alarm.replace(plan)
        elif not isinstance(plan, OpenEnded):
            # Imported here because its dependencies take longer to load than the rest of the worker.
            from deskgrid.worker.windows.alarm import Alarm

            self._alarm = Alarm(plan, self._wake)
            self._alarm.start()

    def _turn(self, longest: float) -> None:
        now = read_clocks()
        wait = min(longest, self._session.next_tick(now))
        deadline = self._executor.next_deadline(now.mono)
        if deadline is not None:
            wait = min(wait, max(0.0, deadline))
        # Rounded up: if the loop woke a moment too early, it would only have to wait again.
        ready = dict(self._poller.poll(int(wait * 1000) + 1))
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        if self._link.monitor in ready:
            self._connection_changed()
        if self._link.socket in ready:
            self._receive()
        self._pc.measure(self._session.powers, now.mono)
        self._session.findings = self._checks.found
        if self._keeper is not None:
            self._keeper.look(read_clocks())
        self._send(self._session.tick(read_clocks()))
        self._follow_broker_windows()
        self._follow_courtesy()
        self._report()
        self._link.tend()

    def _receive(self) -> None:
        while True:
            try:
                message = self._link.receive()
                if message is None:
                    return
                self._session.receive(message, read_clocks())
            except wire.ProtocolError as error:
                log.error("unusable-message reason=%r", str(error))
            except WorkerRefused:
                raise
            except Exception:  # one unforeseen message must not end this worker and its tasks
                log.exception("message-failed")

    def _send(self, messages: list[wire.Message]) -> None:
        for message in messages:
            if not self._link.send(message):
                self._session.disconnected()
                return

    def _connection_changed(self) -> None:
        for connected in self._link.changes():
            if connected:
                self._session.reconnected()
            else:
                self._session.disconnected()

    def _follow_broker_windows(self) -> None:
        """Windows from the broker replace open-ended uptime; a plan given on this PC stays, except for drains."""
        session = self._session
        table = session.windows_from_broker if session.follows_broker else None
        if (table, session.drained_until) == self._followed:
            return
        self._followed = table, session.drained_until
        try:
            plan = None if table is None else weekly_from_json(table)
        except PlanError as error:
            log.error("windows-from-broker error=%r", str(error))
            return
        session.use_plan(session.drained(plan, read_clocks()))
        self._watch_windows()
        self._say(f"planned uptime, from the broker: {self._session.plan.describe()}")

    def _report(self) -> None:
        address = self._options.join.address
        if self._session.known != self._was_known:
            self._was_known = self._session.known
            self._link.heard()
            name, wanted = self._session.name, self._options.name
            why = "" if name == wanted else f", because another worker is called {wanted} already"
            self._say(f"joined {address} as {name}{why}" if self._was_known else f"lost the broker at {address}")
            if self._options.checks:
                self._checks.begin()
        elif not self._was_known:
            self._link.complain(self._say)

    def _let_end(self) -> None:
        """Let the tasks that run end, if this worker has a grace for that."""
        grace_s = self._options.grace_s
        if not grace_s or not self._session.runs_tasks():
            return
        self._say(f"tasks that run may end within {precise(grace_s)}; stop the worker again to end it at once")
        deadline = time.monotonic() + grace_s
        self._session.wind_up(grace_s, read_clocks())
        while self._session.runs_tasks() and time.monotonic() < deadline:
            self._turn(TICK_S)

    def _save(self) -> None:
        """Let tasks save their last checkpoints: if somebody stops this worker, the PC may be about to shut down."""
        if not (self._options.saves and self._session.may_save()):
            return
        self._say(f"tasks save their checkpoints, for {SAVE_S:.0f} s at most; stop the worker again to end it at once")
        deadline = time.monotonic() + SAVE_S
        self._session.save(read_clocks())
        self._executor.let_save()
        while self._session.may_save() and time.monotonic() < deadline:
            self._turn(TICK_S)

    def _end(self, reason: str) -> None:
        self._send(self._session.stop(reason, read_clocks()))
        deadline = time.monotonic() + LAST_RESULTS_S
        while self._session.unwritten and self._session.joined and time.monotonic() < deadline:
            if self._link.socket.poll(int(TICK_S * 1000)):
                self._receive()
        self._say(f"ended: {reason}")
