"""``deskgrid worker``: it runs until it is told to stop."""

import logging
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deskgrid.cli.base import Folder, Refusal, Whole, default_home, is_loopback
from deskgrid.cli.hiding import hide
from deskgrid.cli.lifetime import Stopping, level_option, log_to_stderr, stdin_option
from deskgrid.cli.sizes import disk_size, memory_size, port_range, worker_labels
from deskgrid.wire import SLOTS_LIMIT, SPEED_LEAST, SPEED_MOST
from deskgrid.wire.joinline import JoinLine, JoinLineError, parse_address, parse_join_line, read_join_line

if TYPE_CHECKING:
    from deskgrid.worker.agent import WorkerOptions
    from deskgrid.worker.windows.uptime import Plan

# Seconds between two checks for the join line of a broker that is started at the same time.
LINE_LOOK_S = 0.005


@click.command()
@click.option(
    "--join",
    metavar="LINE",
    help="The lab's line, which the broker printed, or @FILE that holds it. Needed only once per PC.",
)
@click.option(
    "--broker",
    "address",
    metavar="HOST:PORT",
    help="Which broker, if this PC has joined several; without --join, also a broker on this machine.",
)
@click.option(
    "--home",
    type=Folder(),
    default=default_home,
    help="Where this PC's own keys are, readable by you only [default: $DESKGRID_HOME, else ~/.deskgrid].",
)
@click.option(
    "--run-as",
    metavar="USER",
    help="Run tasks as USER, who cannot read this PC's keys; for root only, not on Windows "
    "[default: as you; tasks can then read everything that you can, including this PC's keys].",
)
@click.option(
    "--slots",
    type=Whole(min=1, max=SLOTS_LIMIT),
    help="How many tasks run at a time [default: one per core]. More than that if tasks mostly wait; fewer if each "
    "needs much memory.",
)
@click.option(
    "--name", help="The name that the status shows and that patterns in windows.toml match [default: the host's name]."
)
@click.option(
    "--site",
    default="",
    help="The lab that this PC belongs to. The ranks of a gang run on PCs of one lab, which must reach each other.",
)
@click.option(
    "--label",
    "labels",
    metavar="LABEL",
    multiple=True,
    callback=lambda context, parameter, texts: worker_labels(texts),
    help="What this PC has, such as gpu or matlab, for tasks that need it; may be repeated.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=lambda context, parameter, text: None if text is None else memory_size(text, of_pc=True),
    help="How much memory tasks may be promised in all, such as 16G [default: what this PC has].",
)
@click.option(
    "--speed",
    type=click.FloatRange(SPEED_LEAST, SPEED_MOST),
    help="How fast one of its cores is; 1 is a fast desktop PC [default: measured at the start, in less than 0.1 s].",
)
@click.option(
    "--mpi",
    is_flag=True,
    help="Run MPI programs, too. Their ranks speak to each other over ports of their own, unencrypted [default: refuse "
    "them]; not on Windows.",
)
@click.option(
    "--mpi-ports",
    metavar="LOW-HIGH",
    callback=lambda context, parameter, text: None if text is None else port_range(text),
    help="The ports of MPI programs and of rank 0 of a gang, such as 40000-40999, if there is a firewall between the "
    "PCs [default: any].",
)
@click.option(
    "--windows",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.toml",
    help="Planned uptime: weekly windows in local time.",
)
@click.option(
    "--task-memory",
    metavar="SIZE",
    default="0",
    callback=lambda context, parameter, text: memory_size(text),
    help="How much memory a task's process may use, such as 512M or 2G; not on Windows [default: no limit].",
)
@click.option(
    "--files",
    type=Folder(),
    help="The folder for files that tasks need and leave [default: in the home; with --run-as, in the system's folder "
    "for temporary files].",
)
@click.option(
    "--files-cache",
    "files_bytes",
    metavar="SIZE",
    default="10G",
    show_default=True,
    callback=lambda context, parameter, text: disk_size(text),
    help="How much of the disk may hold files that no task uses now; the least used go first.",
)
@click.option(
    "--env-cache",
    "env_bytes",
    metavar="SIZE",
    default="10G",
    show_default=True,
    callback=lambda context, parameter, text: disk_size(text),
    help="How much of the disk may hold libraries of environments that no bag needs now; the least used go first.",
)
@click.option(
    "--until",
    metavar="HH:MM|DURATION",
    help="Planned uptime: from now until this time, or for so long: seconds, or with units, such as 1h30min.",
)
@click.option(
    "--cycle",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Planned uptime: a file with lines of two durations, up and down, repeated.",
)
@level_option
@stdin_option
def worker(
    *, join: str | None, name: str | None, mpi: bool, log_level: str, until_stdin_closes: bool, **given: Any
) -> None:
    """Make this PC work for a grid, in each of its windows, until you stop it.

    The first time, give --join. From then on the broker knows this PC by its name and its own key, and
    `deskgrid worker` is enough.

    Give at most one of --windows, --until and --cycle. Without them, the windows that the broker has for this name
    apply; if it has none, the PC is open-ended: it may be given tasks of any length.
    """
    from deskgrid.worker.agent import WorkerError, run_worker
    from deskgrid.worker.identities import IdentityError
    from deskgrid.worker.run.accounts import AccountError
    from deskgrid.worker.windows.uptime import PlanError

    hide(join)
    if name == "":
        raise click.UsageError("the name is empty", click.get_current_context())
    if mpi and sys.platform == "win32":
        raise click.UsageError("--mpi is not for Windows", click.get_current_context())
    try:
        with Stopping(until_stdin_closes) as stopping:
            if until_stdin_closes:
                _wait_for_line(join or "", stopping)
            options = _options(join, name, mpi=mpi, **given)
            log_to_stderr(log_level)
            log = logging.getLogger("deskgrid.worker")
            run_worker(options, stopping, lambda line: log.info("%s", line))
    except (WorkerError, PlanError, JoinLineError, IdentityError, AccountError) as error:
        raise Refusal(str(error)) from error


def _options(
    join: str | None,
    name: str | None,
    *,
    address: str | None,
    home: Path,
    slots: int | None,
    run_as: str | None,
    files: Path | None,
    memory: int | None,
    windows: Path | None,
    until: str | None,
    cycle: Path | None,
    **as_given: Any,
) -> "WorkerOptions":
    """Return the worker's options. Raises JoinLineError, IdentityError, PlanError and AccountError."""
    from deskgrid.worker.agent import WorkerOptions
    from deskgrid.worker.pc.processors import cores
    from deskgrid.worker.run.accounts import find_account

    line, known_as = _place(join, address, name, home.expanduser())
    return WorkerOptions(
        join=line,
        name=known_as,
        home=home.expanduser(),
        slots=slots or min(cores(), SLOTS_LIMIT),
        run_as=None if run_as is None else find_account(run_as),
        files=None if files is None else files.expanduser().absolute(),
        memory=memory or None,
        plan=_plan(windows, until, cycle),
        **as_given,
    )


def _plan(windows: Path | None, until: str | None, cycle: Path | None) -> "Plan | None":
    """Return the plan of the one option that is given, or None; raises PlanError."""
    from deskgrid.worker.windows.clocks import read_clocks
    from deskgrid.worker.windows.uptime import parse_until, read_cycle, read_windows

    if sum(option is not None for option in (windows, until, cycle)) > 1:
        raise click.UsageError("give only one of --windows, --until and --cycle", click.get_current_context())
    if windows is not None:
        return read_windows(windows)
    if until is not None:
        return parse_until(until, read_clocks())
    return None if cycle is None else read_cycle(cycle, read_clocks())


def _place(join: str | None, address: str | None, name: str | None, home: Path) -> tuple[JoinLine, str]:
    """Return the join line and the worker's name for these options. Raises JoinLineError and IdentityError."""
    from deskgrid.worker.identities import Identities

    if join is not None and address is not None:
        raise click.UsageError("give either --join or --broker", click.get_current_context())
    if join is not None:
        return read_join_line(join, "worker"), name or socket.gethostname()
    if (known := Identities(home).choose(name, address)) is not None:
        return known.line, known.name
    if address is not None:
        return _broker_here(address), name or socket.gethostname()
    whose = "" if name is None else f" as {name}"
    raise click.UsageError(
        f"this PC has not joined a grid{whose} yet, as far as {home} shows: "
        "the first time, give --join with the line that the broker printed",
        click.get_current_context(),
    )


def _broker_here(address: str) -> JoinLine:
    """Return the join line of this machine's broker; raises JoinLineError."""
    host, port = parse_address(address)
    local = _line_at_home()
    if local is not None and local.port == port and (local.host == host or is_loopback(host)):
        return replace(local, host=host)
    if not is_loopback(host):
        raise Refusal(f"{host} is another machine: use --join with the line that its broker printed")
    return JoinLine("worker", host, port, None)


def _wait_for_line(join: str, stopping: Callable[[], bool]) -> None:
    """Wait for the file that ``join`` names: our parent process may have started its broker only a moment ago."""
    never = threading.Event()
    while join.startswith("@") and not Path(join[1:]).exists() and not stopping():
        never.wait(LINE_LOOK_S)


def _line_at_home() -> JoinLine | None:
    """Return the join line for workers that this machine's broker left in its home, if any."""
    try:
        return parse_join_line((default_home() / "worker.join").read_text(encoding="utf-8"), "worker")
    except OSError:
        return None
