"""``deskgrid service``: has the operating system start the worker or the broker at boot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from deskgrid.cli.base import default_home, expanded, say
from deskgrid.cli.hiding import hide
from deskgrid.durations import duration
from deskgrid.homes import NoHome, user_home
from deskgrid.lazy_commands import LazyGroup
from deskgrid.option_types import Folder, Refusal
from deskgrid.private_files import make_private_folder, write_private
from deskgrid.service.files import BROKER_USER, Kind, Service, What
from deskgrid.wire.joinline import JoinLineError, read_join_line

# Where a service of the whole machine keeps its state.
HOMES: dict[What, Path] = {"worker": Path("/var/lib/deskgrid"), "broker": Path("/var/lib/deskgrid-broker")}
# The file with the join line, in the home of a worker.
LINE = "service.join"
# Where systemd says that it runs.
SYSTEMD = Path("/run/systemd/system")
# How long a program of the system may take to start or stop a service, which may end its tasks first. Seconds.
CONTROL_S = 600.0
KINDS: tuple[Kind, ...] = ("systemd", "launchd", "windows")

_what = click.argument("what", type=click.Choice(("worker", "broker")), default="worker")
_system = click.option(
    "--system/--user",
    "system",
    default=None,
    help="For the whole machine, from boot on, or for you alone, from log-in on [default: --system for root].",
)


@click.group("service", cls=LazyGroup)
def service() -> None:
    """Start the worker or the broker at boot: with systemd, launchd, or the Task Scheduler of Windows."""


def _kind() -> Kind:
    return "windows" if sys.platform == "win32" else "launchd" if sys.platform == "darwin" else "systemd"


def _is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


@service.command()
@click.argument("words", nargs=-1, metavar="[worker|broker] [-- OPTION...]")
@_system
@click.option(
    "--join",
    metavar="LINE",
    help="The lab's line, or @FILE that contains it. It is kept in the home, in a file that only its user can read.",
)
@click.option("--home", type=Folder(), help="The home of the worker or the broker.")
@click.option("--print", "only_print", is_flag=True, help="Print what would be written, and write nothing.")
@click.option("--kind", type=click.Choice(KINDS), help="With --print: for which system [default: this one].")
def install(
    *,
    words: tuple[str, ...],
    system: bool | None,
    join: str | None,
    home: Path | None,
    only_print: bool,
    kind: Kind | None,
) -> None:
    """Install the worker, or the broker, as a service, and start it.

    What follows -- are options of deskgrid worker or deskgrid broker, such as: -- --run-as 'deskgrid-task-%' --slots 4
    """
    hide(join)
    what, options = _split(words)
    if "--join" in options or any(option.startswith("--join=") for option in options):
        raise click.UsageError("give --join before --, so that it is kept in a file", click.get_current_context())
    if kind is not None and not only_print:
        raise click.UsageError("--kind needs --print", click.get_current_context())
    if join is not None and what == "broker":
        raise click.UsageError("a broker joins nothing", click.get_current_context())
    system = _is_root() if system is None else system
    if system and (alone := _only_for_users(what, kind or _kind())):
        raise Refusal(alone)
    place = _home(what, home, system=system)
    command = [*_program(), what, "--home", str(place)]
    if join is not None or (place / LINE).exists():
        command += ["--join", f"@{place / LINE}"]
    made = Service(what, [*command, *options], system)
    if only_print:
        click.echo(made.text(kind or _kind()), nl=False)
        return
    _install(made, place, join)


def _split(words: tuple[str, ...]) -> tuple[What, tuple[str, ...]]:
    """What to install, the worker if nothing is said, and its options."""
    first = words[0] if words else ""
    if first == "worker" or not first or first.startswith("-"):
        return "worker", words[1:] if first == "worker" else words
    if first == "broker":
        return "broker", words[1:]
    raise click.UsageError(f"{first!r} is neither worker nor broker", click.get_current_context())


def _only_for_users(what: What, kind: Kind) -> str:
    """Why there is no such service for the whole machine; empty if there is: it would run with all rights."""
    if kind == "windows":
        return "on Windows, a service is for you alone: give --user"
    if kind == "launchd" and what == "broker":
        return "on macOS, the service of a broker is for you alone: give --user"
    return ""


def _home(what: What, home: Path | None, *, system: bool) -> Path:
    if home is not None:
        return expanded(home).absolute()
    return HOMES[what] if system else expanded(default_home()).absolute()


def _program() -> list[str]:
    script = Path(sys.executable).with_name("deskgrid.exe" if sys.platform == "win32" else "deskgrid")
    return [str(script)] if script.exists() else [sys.executable, "-m", "deskgrid.cli"]


def _install(made: Service, home: Path, join: str | None) -> None:
    target = _target(made.what, system=made.system)
    _check(made, target)
    try:
        if join is not None:
            line = read_join_line(join, "worker")
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_private_folder(home)
            write_private(home / LINE, f"{line}\n".encode())
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(made.text(_kind()), encoding="utf-16" if _kind() == "windows" else "utf-8")
    except JoinLineError as error:
        raise Refusal(str(error)) from error
    except OSError as error:
        raise Refusal(f"{error.filename or target} cannot be written: {error.strerror}") from error
    say(f"wrote {target}")
    for command in _commands(made.what, target, system=made.system)[0]:
        _run(command)
    say(f"{made.name} runs, and starts by itself from now on")
    if _kind() == "systemd" and not made.system:
        say("deskgrid: it starts when you log in; to start it at boot, run loginctl enable-linger", err=True)


def _check(made: Service, target: Path) -> None:
    """Raise `Refusal` if a service cannot be installed."""
    _may(system=made.system)
    if target.exists():
        if sys.platform != "win32" and target.stat().st_uid != os.geteuid():
            raise Refusal(f"{target} belongs to another user")
        raise Refusal(
            f"{made.name} is installed already, in {target}: first run deskgrid service uninstall {made.what}"
        )
    if made.what == "broker" and made.system and _kind() == "systemd" and not _has_account(BROKER_USER):
        how = f"useradd --system --home-dir {HOMES['broker']} --shell /usr/sbin/nologin {BROKER_USER}"
        raise Refusal(f"the broker needs the account {BROKER_USER}: make it with {how}")


def _may(*, system: bool) -> None:
    """Raise `Refusal` if this user, or this machine, cannot have such a service."""
    kind = _kind()
    if system and kind != "windows" and not _is_root():
        raise Refusal("a service for the whole machine is for root: use sudo, or --user for one of your own")
    if kind == "systemd" and not (SYSTEMD.is_dir() and shutil.which("systemctl")):
        raise Refusal("this machine does not run systemd: --print shows the unit, for another way to start it")


def _has_account(name: str) -> bool:
    if sys.platform == "win32":
        return False
    else:
        import pwd

        return any(each.pw_name == name for each in pwd.getpwall())


def _uid() -> int:
    if sys.platform == "win32":
        return 0
    else:
        return os.getuid()


def _target(what: What, *, system: bool) -> Path:
    """The file of a service."""
    try:
        if _kind() == "systemd":
            folder = Path("/etc/systemd/system") if system else user_home() / ".config/systemd/user"
            return folder / f"deskgrid-{what}.service"
        if _kind() == "launchd":
            folder = Path("/Library/LaunchDaemons") if system else user_home() / "Library/LaunchAgents"
            return folder / f"deskgrid-{what}.plist"
        return expanded(default_home()) / f"deskgrid-{what}.xml"
    except NoHome as error:
        raise Refusal(str(error)) from error


def _commands(what: What, target: Path, *, system: bool) -> tuple[list[list[str]], list[list[str]], list[str]]:
    """What to run after the file was written, before it is removed, and to show the state."""
    name = f"deskgrid-{what}"
    if _kind() == "systemd":
        ctl = ["systemctl"] if system else ["systemctl", "--user"]
        start = [[*ctl, "daemon-reload"], [*ctl, "enable", "--now", name]]
        return start, [[*ctl, "disable", "--now", name]], [*ctl, "status", "--no-pager", name]
    if _kind() == "launchd":
        domain = "system" if system else f"gui/{_uid()}"
        show = ["launchctl", "print", f"{domain}/{name}"]
        return [["launchctl", "bootstrap", domain, str(target)]], [["launchctl", "bootout", f"{domain}/{name}"]], show
    create = ["schtasks", "/Create", "/TN", name, "/XML", str(target)]
    end = [["schtasks", "/End", "/TN", name], ["schtasks", "/Delete", "/F", "/TN", name]]
    return [create, ["schtasks", "/Run", "/TN", name]], end, ["schtasks", "/Query", "/TN", name]


def _restarts(what: What, *, system: bool) -> list[list[str]]:
    name = f"deskgrid-{what}"
    if _kind() == "systemd":
        ctl = ["systemctl"] if system else ["systemctl", "--user"]
        return [[*ctl, "restart", name]]
    if _kind() == "launchd":
        return [["launchctl", "kickstart", "-k", f"{'system' if system else f'gui/{_uid()}'}/{name}"]]
    return [["schtasks", "/End", "/TN", name], ["schtasks", "/Run", "/TN", name]]


def _run(command: list[str]) -> None:
    done = _ended(command, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr or done.stdout).strip().replace("\n", "; ")
        raise Refusal(f"{' '.join(command)} failed: {why or f'exit code {done.returncode}'}")


def _ended(command: list[str], **how: Any) -> subprocess.CompletedProcess[Any]:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=CONTROL_S, check=False, **how)
    except subprocess.TimeoutExpired:
        raise Refusal(f"{' '.join(command)} has not ended within {duration(CONTROL_S)}") from None


def _installed(what: What, *, system: bool) -> Path:
    """Where a service is, which its user may change. Raises `Refusal`."""
    target = _target(what, system=system)
    if not target.exists():
        raise Refusal(f"deskgrid-{what} is not installed: there is no {target}; see deskgrid service install --help")
    _may(system=system)
    return target


@service.command()
@_what
@_system
def restart(*, what: What, system: bool | None) -> None:
    """Stop a service and start it again, so that it runs what is installed now."""
    system = _is_root() if system is None else system
    _installed(what, system=system)
    for command in _restarts(what, system=system):
        _run(command)
    say(f"restarted deskgrid-{what}")


@service.command()
@_what
@_system
def uninstall(*, what: What, system: bool | None) -> None:
    """Stop a service, and remove it. Its home stays, with the keys."""
    system = _is_root() if system is None else system
    target = _installed(what, system=system)
    for command in _commands(what, target, system=system)[1]:
        _run(command)
    try:
        target.unlink()
    except OSError as error:
        raise Refusal(f"{target} cannot be removed: {error.strerror}") from error
    say(f"removed {target}")


@service.command()
@_what
@_system
def status(*, what: What, system: bool | None) -> Any:
    """Show the state of a service. Exit code 1: it does not run, or is not installed."""
    system = _is_root() if system is None else system
    target = _target(what, system=system)
    if not target.exists():
        say(f"deskgrid-{what} is not installed: there is no {target}")
        return 1
    if _kind() == "systemd" and not shutil.which("systemctl"):
        raise Refusal("this machine does not run systemd")
    return 1 if _ended(_commands(what, target, system=system)[2]).returncode else 0
