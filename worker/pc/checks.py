"""What has to be well on a PC for its worker to work, and what to do if it is not.

Each check returns findings. A finding with something to do makes ``deskgrid doctor`` fail; a note does not.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from deskgrid import wire
from deskgrid.durations import duration
from deskgrid.wire.joinline import JoinLine
from deskgrid.worker.identities import Identities, IdentityError
from deskgrid.worker.owner.watch import what_probes_say
from deskgrid.worker.run.cgroup import own_group

# Less room than this is too little for the files of tasks. Bytes.
LEAST_ROOM = 1 << 30
# How long the broker has to answer, or a program of this PC. Seconds.
PATIENCE_S = 5.0
# Clocks that differ by no more have the same time. Seconds.
APART_S = 30.0
OLDEST_PYTHON = (3, 11)
# The units that `deskgrid service` writes.
UNITS = (Path("/etc/systemd/system/deskgrid-worker.service"), Path("~/.config/systemd/user/deskgrid-worker.service"))

State = Literal["well", "note", "do"]


class Finding(NamedTuple):
    """``said``: what is so or, if it is not well, what to do."""

    what: str
    state: State
    said: str


def findings(home: Path, name: str | None, address: str | None) -> Iterator[Finding]:
    """Check this PC. ``name``, ``address``: of the identity to use, if the home has several."""
    yield python()
    yield from program()
    yield clock()
    wrong = folder(home)
    yield wrong
    if wrong.state != "do":
        yield disk(home)
        yield from grid(home, name, address)
    yield groups()
    yield nested()
    yield owner()


def findings_of_worker(home: Path, line: JoinLine, name: str) -> Iterator[Finding]:
    """Check this PC for its worker, which has joined. It tells others, so what its owner does is left out."""
    yield python()
    yield from program()
    yield clock()
    yield disk(home)
    if line.keys is not None:
        yield from broker(line, name)
    yield groups()
    yield nested()


def python() -> Finding:
    """Whether this Python will do."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", "do", f"{version} is too old: install Python 3.11 or later")
    return Finding("python", "well", f"{version} in {sys.executable}")


def program(units: Iterable[Path] = UNITS) -> Iterator[Finding]:
    """Whether the programs that services start are there: an environment breaks when its Python is removed."""
    for unit in units:
        try:
            text = unit.expanduser().read_text(encoding="utf-8")
        except (OSError, RuntimeError):
            continue
        start = text.partition("ExecStart=")[2].split()[:1]
        path = Path(start[0].strip('"')) if start else unit
        beside = path.with_name("python")
        if not path.exists() or (beside.is_symlink() and not beside.exists()):
            what = path if not path.exists() else beside
            yield Finding("service", "do", f"{what} is gone: install deskgrid anew, and then deskgrid service")
        else:
            yield Finding("service", "well", str(unit))


def clock(now: Callable[[], float] = time.time) -> Finding:
    """Whether the clock can be right. Windows go by it."""
    built = Path(__file__).stat().st_mtime
    if now() < built - 86_400.0:
        return Finding("clock", "do", "it is before the day when deskgrid was installed: set it, or use NTP")
    told = _timedatectl()
    if "NTPSynchronized=no" in told:
        return Finding("clock", "do", f"{_local(now())}; it is not synchronised: run timedatectl set-ntp true")
    if "NTPSynchronized=yes" in told:
        return Finding("clock", "well", f"{_local(now())}; it is synchronised")
    return Finding("clock", "note", f"{_local(now())}; nothing here tells whether it is synchronised")


def _timedatectl() -> list[str]:
    """Return what systemd says of the clock: nothing if it is not there, or does not answer."""
    try:
        done = subprocess.run(["timedatectl", "show"], capture_output=True, timeout=PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return os.fsdecode(done.stdout).splitlines()


def _local(now: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))


def folder(home: Path) -> Finding:
    """Whether the worker's home is there, and can be written."""
    if not home.is_dir():
        return Finding("home", "do", f"{home} is not there: join a grid with deskgrid worker --home {home} --join LINE")
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return Finding("home", "do", f"{home} cannot be written: run this as the worker's user, or give --home")
    return Finding("home", "well", str(home))


def disk(home: Path) -> Finding:
    """Whether there is room for files."""
    free = shutil.disk_usage(home).free
    room = f"{free / 2**30:.1f} GiB are free in {home}"
    return Finding("disk", "well", room) if free >= LEAST_ROOM else Finding("disk", "do", f"{room}: make room")


def grid(home: Path, name: str | None, address: str | None) -> Iterator[Finding]:
    """Whether this PC has a key, and its broker is there and knows it."""
    identities = Identities(home)
    try:
        known = identities.choose(name, address)
    except IdentityError as error:
        yield Finding("key", "do", str(error))
        return
    if known is None:
        none = f"this PC has none{(why := identities.why_none()) and f' ({why})'}"
        yield Finding("key", "do", f"{none}: run deskgrid worker --home {home} --join LINE")
        return
    yield Finding("name", "well", f"{known.name} at {known.address}")
    yield from broker(known.line, known.name)


def broker(line: JoinLine, name: str) -> Iterator[Finding]:
    """Whether the broker of a join line is there, and knows its key: each step only if the one before is well."""
    try:
        found = socket.getaddrinfo(line.host.strip("[]"), line.port, type=socket.SOCK_STREAM)
    except OSError as error:
        said = f"{line.host} does not resolve ({error.strerror}): check the name, and the DNS of this PC"
        yield Finding("address", "do", said)
        return
    yield Finding("address", "well", f"{line.host} is {found[0][4][0]}")
    try:
        socket.create_connection((line.host.strip("[]"), line.port), PATIENCE_S).close()
    except OSError as error:
        said = f"{line.address} cannot be reached ({error.strerror or error}): does the broker run, and do firewalls"
        yield Finding("port", "do", f"{said} let TCP port {line.port} through?")
        return
    yield Finding("port", "well", f"{line.address} is open")
    yield from key(line, name)


def key(line: JoinLine, name: str, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Whether the broker lets this PC in; and whether it has the same time. What a PC that enrols hears tells both."""
    from deskgrid.worker.link import BrokerLink, UnknownKey

    assert line.keys is not None  # every identity has keys
    until, connected = time.monotonic() + PATIENCE_S, False
    try:
        with BrokerLink(line) as link:
            while time.monotonic() < until:
                if True in link.changes():
                    connected = link.send(wire.Enrol(wire.VERSION, name, line.keys.public))
                answer = link.receive()
                if isinstance(answer, wire.Refused):
                    yield Finding("key", "do", f"the broker refuses it: {answer.reason}")
                    return
                if isinstance(answer, wire.Enrolled):
                    yield Finding("key", "well", "the broker knows it")
                    yield clocks(now() - answer.clock)
                    return
                link.wait(max(0.0, until - time.monotonic()))
    except UnknownKey:
        yield Finding("key", "do", "the broker does not know it: enrol again, with deskgrid worker --join LINE")
        return
    if connected:
        yield Finding("key", "note", f"the broker knows it, but has not answered within {PATIENCE_S:g} s")
    else:
        yield Finding("key", "do", f"{line.address} does not answer as this grid's broker: is another program there?")


def clocks(ahead_s: float) -> Finding:
    """Whether this PC and its broker have the same time. ``ahead_s``: how much later it is here."""
    if abs(ahead_s) <= APART_S:
        return Finding("clock", "well", f"it has the time of the broker, to {abs(ahead_s):.1f} s")
    how = f"{duration(abs(ahead_s))} {'ahead of' if ahead_s > 0.0 else 'behind'} that of the broker"
    return Finding("clock", "do", f"it is {how}: set the one that is wrong, or use NTP on both")


def groups(proc: Path = Path("/proc/self")) -> Finding:
    """Whether tasks can have control groups of their own."""
    try:
        own = own_group(proc)
        has = own is not None and "memory" in (own / "cgroup.controllers").read_text(encoding="ascii").split()
    except OSError:
        has, own = False, None
    if has and own is not None and os.access(own, os.W_OK):
        return Finding("cgroups", "well", "tasks get no more memory than they have asked for")
    said = "none here: memory= holds for each process of a task by itself; a worker that is a service has them"
    return Finding("cgroups", "note", said)


def nested(module: Path = Path("/sys/module"), device: Path = Path("/dev/kvm")) -> Finding:
    """Whether virtual machines can run, and others in them."""
    flags = [module / kvm / "parameters/nested" for kvm in ("kvm_intel", "kvm_amd")]
    on = any(flag.is_file() and flag.read_text(encoding="ascii").strip() in ("Y", "1") for flag in flags)
    if not device.exists():
        return Finding("virtual", "note", f"no {device}: tasks with virtual machines are slow here, or fail")
    return Finding("virtual", "well", f"{device} is there, {'with' if on else 'without'} nested virtual machines")


def owner() -> Finding:
    """What tells on this PC whether its owner uses it."""
    said = "; ".join([f"{name}: {words}" for name, words in what_probes_say().items()])
    return Finding("owner", "note", said)
