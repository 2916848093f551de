"""``deskgrid broker``: the process that holds all bags, until it is told to stop."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deskgrid.cli.base import default_home, expanded, is_loopback
from deskgrid.cli.lifetime import Stopping, level_option, log_to_stderr, stdin_option
from deskgrid.cli.web import LISTEN, beside, checked_listen
from deskgrid.durations import DAY_S, read_duration
from deskgrid.option_types import Folder, Refusal, key_values
from deskgrid.wire import SECONDS_LIMIT
from deskgrid.wire.joinline import LOCAL, JoinLineError, parse_address

if TYPE_CHECKING:
    from deskgrid.broker.server import Ready
    from deskgrid.broker.store.journal import Durability

PORT = 7077
# Long enough to outlast a summer holiday. Without a limit, the disk of every grid would fill up one day.
KEEP_DAYS = 90.0
# The values of `deskgrid.broker.store.journal.Durability`, copied here because importing it slows "deskgrid --help".
DURABILITIES = ("process", "power")


class Days(click.ParamType[float | None]):
    """A number of days, or a duration with units, that is more than 0, or "forever"."""

    name = "days"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        """Return the days in ``value``, or None for "forever"; a usage error if it is neither."""
        if value == "forever":
            return None
        try:
            days = read_duration(value, DAY_S) / DAY_S
        except ValueError:
            days = math.nan
        if not 0 < days * DAY_S <= SECONDS_LIMIT:
            self.fail(
                f'{value!r} is not a number of days, more than 0, nor a duration like 36h, nor "forever"', param, ctx
            )
        return days


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help=f"The address for workers and clients [default: all addresses of this machine, port {PORT}].",
)
@click.option(
    "--home",
    type=Folder(),
    default=default_home,
    help="The folder for its state, its keys and windows.toml [default: $DESKGRID_HOME, else ~/.deskgrid].",
)
@click.option(
    "--policy",
    help="The scheduling policy: packing, longest, pgs, fcfs, a policy for parallel tasks such as easy or tla, "
    "or one that you installed [default: packing].",
)
@click.option(
    "--policy-option",
    "policy_options",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_values,
    help="An option of the policy. Those of packing are margin, queue_s and confidence. You can repeat this.",
)
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    default="power",
    show_default=True,
    help="What accepted work survives: only the death of the broker's process, or also a power cut.",
)
@click.option("--advertise", metavar="HOST", help="The name of this machine in the join lines [default: detected].")
@click.option(
    "--keep",
    "keep_days",
    type=Days(),
    metavar="DAYS",
    default=f"{KEEP_DAYS:g}",
    show_default=True,
    help='Delete bags and their results this many days after they have ended, or never ("forever").',
)
@click.option(
    "--web",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=LISTEN,
    help=f"Also show the grid in a browser, and print the link [default of HOST:PORT: {LISTEN}]. "
    "Whoever opens the link sees what an admin sees.",
)
@click.option("--insecure", is_flag=True, help="Run without keys and encryption, reachable from this machine only.")
@level_option
@stdin_option
def broker(
    *,
    listen: str | None,
    home: Path,
    policy: str | None,
    policy_options: dict[str, object],
    durability: "Durability",
    advertise: str | None,
    keep_days: float | None,
    web: str | None,
    insecure: bool,
    log_level: str,
    until_stdin_closes: bool,
) -> None:
    """Start the broker, and print the lines with which workers and clients connect to it.

    All its state is in its home. If you restart it with the same home, it continues where it stopped, no matter how it
    stopped. The file HOME/windows.toml has the weekly windows of PCs. Changes to it take effect within seconds.
    """
    from deskgrid.broker.server import BrokerError, BrokerOptions, serve
    from deskgrid.scheduler.policies import DEFAULT

    options = BrokerOptions(
        home=expanded(home),
        listen=_listen(listen, insecure),
        advertise=advertise,
        policy=policy or DEFAULT,
        policy_options=policy_options,
        durability=durability,
        insecure=insecure,
        keep_days=keep_days,
    )
    if web is not None:
        checked_listen(web, "--web")
    log_to_stderr(log_level)
    try:
        with (
            Stopping(until_stdin_closes) as stopping,
            beside(options.home, web or LISTEN, [advertise] if advertise else [], log_level) as start_web,
        ):
            serve(options, lambda ready: _announce(ready, start_web if web else None), stopping)
    except BrokerError as error:
        raise Refusal(str(error)) from error


def _listen(listen: str | None, insecure: bool) -> str:
    if listen is None:
        return f"127.0.0.1:{PORT}" if insecure else f"0.0.0.0:{PORT}"
    try:
        host, _ = parse_address(listen)
    except JoinLineError as error:
        raise Refusal(f"--listen: {error}") from error
    if insecure and not is_loopback(host) and not host.startswith(LOCAL):
        raise Refusal(f"--insecure is for this machine only: listen on 127.0.0.1, not on {host}")
    return listen


def _announce(ready: "Ready", start_web: Callable[[], None] | None) -> None:
    """Print the lines to copy: unindented and unwrapped, however narrow the terminal is. Then start what shows more."""
    said = [
        f"deskgrid broker at {ready.address}, home {ready.home}",
        "",
        "# The lab's line. Run this on each PC once; after that, `deskgrid worker` is enough:",
        f"deskgrid worker --join {ready.worker_line}",
        "",
        "# For people. Run this where you submit work:",
        f"export DESKGRID_JOIN={ready.client_line}",
    ]
    if sys.platform == "win32":
        said += ["", "# The same in cmd.exe:", f"set DESKGRID_JOIN={ready.client_line}"]
        said += ["", "# The same in PowerShell:", f"$env:DESKGRID_JOIN = '{ready.client_line}'"]
    click.echo("\n".join([*said, ""]))
    sys.stdout.flush()
    if start_web is not None:
        start_web()
