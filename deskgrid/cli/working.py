"""``deskgrid worker``: it runs until it is told to stop."""

import logging
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from deskgrid.cli.base import default_home, expanded, is_loopback
from deskgrid.cli.hiding import hide
from deskgrid.cli.lifetime import Stopping, level_option, log_to_stderr, stdin_option
from deskgrid.cli.sizes import disk_size, memory_size, port_range, worker_labels, worker_pythons, worker_resources
from deskgrid.homes import NoHome, deskgrid_home
from deskgrid.option_types import Folder, Refusal, Seconds, Whole
from deskgrid.wire import SLOTS_LIMIT, SPEED_LEAST, SPEED_MOST
from deskgrid.wire.joinline import JoinLine, JoinLineError, parse_address, parse_join_line, read_join_line

if TYPE_CHECKING:
    from deskgrid.worker.agent import WorkerOptions
    from deskgrid.worker.owner.policy import How
    from deskgrid.worker.windows.uptime import UptimePlan

# Seconds between two checks for the join line of a broker that is started at the same time.
LINE_LOOK_S = 0.005


@click.command()
@click.option(
    "--join",
    metavar="LINE",
    help="The lab's line, which the broker printed, or @FILE that contains it. Each PC needs it only once.",
)
@click.option(
    "--broker",
    "address",
    metavar="HOST:PORT",
    help="The broker to use, if this PC has joined several. For a broker on this machine, you need no --join.",
)
@click.option(
    "--home",
    type=Folder(),
    default=default_home,
    help="The folder with this PC's own keys, which only you can read [default: $DESKGRID_HOME, else ~/.deskgrid].",
)
@click.option(
    "--run-as",
    metavar="USERS",
    help="Run tasks as these users, who cannot read this PC's keys: one user for each person at a time. Several names "
    "have commas between them, and % in a name stands for any characters: 'deskgrid-task-%'. Only for root, and not on "
    "Windows. [default: as you; tasks can then read everything that you can read, including this PC's keys]",
)
@click.option(
    "--slots",
    type=Whole(min=1, max=SLOTS_LIMIT),
    help="How many tasks run at the same time [default: one per core]. Use more if tasks mostly wait, and fewer if "
    "they need much memory.",
)
@click.option("--name", help="The name of this PC in the status and in windows.toml [default: the host name].")
@click.option(
    "--site",
    default="",
    help="The site that this PC belongs to, such as lab3. The PCs of a site must be able to reach each other. A gang "
    "runs on one site.",
)
@click.option(
    "--label",
    "labels",
    metavar="LABEL",
    multiple=True,
    callback=lambda context, parameter, texts: worker_labels(texts),
    help="Something that this PC has and tasks can require, such as matlab. You can repeat this.",
)
@click.option(
    "--python",
    "--pythons",
    "interpreters",
    metavar="PATH",
    multiple=True,
    callback=lambda context, parameter, paths: worker_pythons(paths),
    help="Another Python for tasks, such as /usr/bin/python3.13, or auto: all that are found. A bag of calls runs on "
    "the minor version of the program that submits it. You can repeat this. [default: only the worker's own]",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=lambda context, parameter, text: None if text is None else memory_size(text, of_pc=True),
    help="How much memory all tasks together may ask for, such as 16G [default: all of this PC's memory].",
)
@click.option(
    "--resource",
    "resources",
    metavar="NAME[=AMOUNT]",
    multiple=True,
    callback=lambda context, parameter, texts: worker_resources(texts),
    help="How much this PC has of something that tasks use up while they run, such as gpu=2, matlab=1 or scratch=200G. "
    "You can repeat this. [default: the graphics cards that are found, as gpu]",
)
@click.option(
    "--speed",
    type=click.FloatRange(SPEED_LEAST, SPEED_MOST),
    help="The speed of one core; 1 is a fast desktop PC [default: measured at the start, in less than 0.1 s].",
)
@click.option(
    "--mpi",
    is_flag=True,
    help="Allow MPI programs. Their ranks talk to each other directly, without encryption. Not on Windows.",
)
@click.option(
    "--mpi-ports",
    metavar="LOW-HIGH",
    callback=lambda context, parameter, text: None if text is None else port_range(text),
    help="The ports for MPI programs and for rank 0 of a gang, such as 40000-40999. Use this if there is a firewall "
    "between the PCs [default: any port].",
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
    help="How much memory the process of a task may use, such as 512M or 2G. Not on Windows. [default: no limit]",
)
@click.option(
    "--nice",
    type=Whole(min=0, max=19),
    default=19,
    show_default=True,
    help="How far tasks give way to other programs on this PC: 0 not at all, 19 as far as possible. With 19 they get "
    "only the processor time that nobody else wants.",
)
@click.option(
    "--owner",
    type=click.Choice(["pause", "nice", "leave", "ignore"]),
    help="What becomes of tasks while somebody uses this PC. pause: they are stopped, and go on afterwards; leave: "
    "they are handed back at once; nice: they go on, and give way as --nice says; ignore: nobody looks. [default: "
    "as the broker's windows.toml says; else pause if something tells whether somebody sits at this PC, else nice; "
    "nice with a broker on this PC]",
)
@click.option(
    "--idle",
    "idle_s",
    type=Seconds(),
    default="10min",
    show_default=True,
    help="How long nobody must have used this PC before tasks go on.",
)
@click.option(
    "--patience",
    "patience_s",
    type=Seconds(),
    default="20min",
    show_default=True,
    help="How long tasks stay stopped before they are handed back. Those that are checkpointable save first.",
)
@click.option(
    "--files",
    type=Folder(),
    help="The folder for input and output files of tasks [default: in the home; with --run-as, /var/cache/deskgrid].",
)
@click.option(
    "--files-cache",
    "files_bytes",
    metavar="SIZE",
    default="10G",
    show_default=True,
    callback=lambda context, parameter, text: disk_size(text),
    help="How much disk space to use for files that no task needs at the moment.",
)
@click.option(
    "--env-cache",
    "env_bytes",
    metavar="SIZE",
    default="20G",
    show_default=True,
    callback=lambda context, parameter, text: disk_size(text),
    help="How much disk space to use for libraries; those of one person have at most half of it.",
)
@click.option(
    "--until",
    metavar="HH:MM|DURATION",
    help="Planned uptime: from now until this time, or for this duration (seconds, or with units such as 1h30min).",
)
@click.option(
    "--cycle",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Planned uptime: a file whose lines have two durations, up and down. They are repeated forever.",
)
@click.option(
    "--grace",
    "grace_s",
    type=Seconds(),
    default="0s",
    help="When you stop this worker: how long tasks that run may go on. Nothing new begins. [default: not at all]",
)
@level_option
@stdin_option
def worker(
    *, join: str | None, name: str | None, mpi: bool, log_level: str, until_stdin_closes: bool, **given: Any
) -> None:
    """Let this PC run tasks in its windows, until you stop the worker.

    The first time, give --join. After that, the broker knows this PC by its name and its own key, and
    `deskgrid worker` is enough.

    To plan the uptime, give one of --windows, --until and --cycle. Without them, the broker's windows.toml applies. If
    it has no windows for this PC, the PC is open-ended, and can get tasks of any length.
    """
    from deskgrid.worker.agent import WorkerError, run_worker
    from deskgrid.worker.identities import IdentityError
    from deskgrid.worker.run.accounts import AccountError
    from deskgrid.worker.run.nursery import adopt_orphans
    from deskgrid.worker.windows.uptime import PlanError

    hide(join)
    if name == "":
        raise click.UsageError("the name is empty", click.get_current_context())
    if mpi and sys.platform == "win32":
        raise click.UsageError("--mpi does not work on Windows", click.get_current_context())
    try:
        with Stopping(until_stdin_closes) as stopping:
            if until_stdin_closes:
                _wait_for_line(join or "", stopping)
            options = _options(
                join, name, mpi=mpi, saves=not until_stdin_closes, checks=not until_stdin_closes, **given
            )
            log_to_stderr(log_level)
            log = logging.getLogger("deskgrid.worker")
            if not options.run_as:  # else no task can end the guard
                adopt_orphans()
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
    resources: tuple[tuple[str, ...], bool],
    owner: str | None,
    idle_s: float,
    patience_s: float,
    **as_given: Any,
) -> "WorkerOptions":
    """Return the worker's options. Raises JoinLineError, IdentityError, PlanError and AccountError."""
    from deskgrid.worker.agent import WorkerOptions
    from deskgrid.worker.owner.policy import Courtesy
    from deskgrid.worker.pc.hardware import cores
    from deskgrid.worker.run.accounts import find_accounts

    line, known_as = _place(join, address, name, expanded(home))
    return WorkerOptions(
        join=line,
        name=known_as,
        home=expanded(home),
        slots=slots or min(cores(), SLOTS_LIMIT),
        run_as=() if run_as is None else find_accounts(run_as),
        files=None if files is None else expanded(files).absolute(),
        memory=memory or None,
        resources=resources[0],
        find_gpus=not resources[1],
        plan=_plan(windows, until, cycle),
        # With a broker on this PC, somebody tries it out, who sits there.
        courtesy=Courtesy(
            cast("How", owner or ("nice" if is_loopback(line.host) else "auto")), idle_s, patience_s, owner is not None
        ),
        **as_given,
    )


def _plan(windows: Path | None, until: str | None, cycle: Path | None) -> "UptimePlan | None":
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
    identities = Identities(home)
    if (known := identities.choose(name, address)) is not None:
        return known.line, known.name
    if address is not None:
        return _broker_here(address), name or socket.gethostname()
    whose = "" if name is None else f" as {name}"
    why = identities.why_none()
    raise click.UsageError(
        f"this PC has not joined a grid{whose} yet (looked in {home}{why and f'; {why}'}): "
        f"the first time, give --join with the line that the broker printed{_hint_of_broker_here()}",
        click.get_current_context(),
    )


def _hint_of_broker_here() -> str:
    """Return what else to type on the broker's own machine, which needs no line; nothing on other machines."""
    local = _line_at_home()
    return "" if local is None else f"; for this machine's own broker, give --broker {local.host}:{local.port}"


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
        return parse_join_line((deskgrid_home() / "worker.join").read_text(encoding="utf-8"), "worker")
    except (NoHome, OSError):
        return None
