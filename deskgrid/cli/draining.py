"""``deskgrid drain``: PCs that get no more work, for now or until somebody says otherwise."""

import click

from deskgrid.cli.base import join_option, open_link, say, table
from deskgrid.durations import duration
from deskgrid.option_types import Refusal


@click.command()
@click.argument("pcs", metavar="[PC|PATTERN]...", nargs=-1)
@click.option(
    "--until",
    metavar="HH:MM|DURATION",
    help="Give the PCs work again at this time, or after this duration [default: when you say --undo].",
)
@click.option(
    "--now",
    is_flag=True,
    help="Do not wait for running tasks: the PCs hand them back at once, and other PCs run them. Tasks with "
    "checkpoints save first.",
)
@click.option("--undo", is_flag=True, help="Give the PCs work again.")
@join_option
def drain(*, pcs: tuple[str, ...], until: str | None, now: bool, undo: bool, join: str | None) -> None:
    """Drain PCs: they get no new tasks, end those that run, and then stay away.

    Use it before you repair, update or switch off PCs. PATTERN is as in windows.toml, such as 'lab3-*'; quote it, and
    case does not matter. A PC that is away is drained, too: when it comes back, it gets nothing. A restart of the
    broker or of the PC does not end a drain.

    Without a PC, the command lists the PCs that are drained. Only admins can drain PCs. On the broker's machine, anyone
    who can read its home is an admin.
    """
    from deskgrid.client.replies import ORDER_S, ask

    if undo and (now or until is not None):
        raise click.UsageError("--undo takes neither --until nor --now", click.get_current_context())
    if not pcs and (undo or now or until is not None):
        raise click.UsageError("name a PC, or give a pattern such as 'lab3-*'", click.get_current_context())
    seconds = None if until is None else _seconds(until)
    with open_link(join) as link:
        if not pcs:
            _list(ask(link, "drains", {})["drains"])
        elif undo:
            for pc in ask(link, "drain undo", {"pcs": pcs}, ORDER_S)["pcs"]:
                say(f"{pc} gets work again")
        else:
            told = ask(link, "drain", {"pcs": pcs, "seconds": seconds, "now": now}, ORDER_S)
            lasts = "until you undo it" if seconds is None else f"for {duration(seconds)}"
            for pc in told["pcs"]:
                say(f"drained {pc} {lasts}")
            if running := told["running"]:
                tasks = "1 task" if running == 1 else f"{running:,} tasks"
                what = f"handed back: {tasks}" if now else f"{tasks} still to end: see deskgrid status"
                say(f"deskgrid: {what}", err=True)


def _seconds(until: str) -> float:
    """How long a drain lasts. Raises `Refusal`."""
    from deskgrid.worker.windows.clocks import read_clocks
    from deskgrid.worker.windows.uptime import PlanError, parse_until

    now = read_clocks()
    try:
        return parse_until(until, now).uptime(now)
    except PlanError as error:
        raise Refusal(str(error)) from error


def _list(rows: "list[dict[str, object]]") -> None:
    if not rows:
        say("deskgrid: no PC is drained", err=True)
        return
    found = [(str(row["pc"]), str(row["by"]), _lasts(row["left_s"])) for row in rows]
    for line in table([("PC", "DRAINED BY", "ENDS"), *found]):
        say(line)


def _lasts(left_s: object) -> str:
    return f"in {duration(left_s)}" if isinstance(left_s, float | int) else "when you undo it"
