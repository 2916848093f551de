"""``deskgrid submit``: a bag of commands, one for each line of a file.

Rule: stdout has only the id of the bag, so that it can be piped; remarks go to stderr.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from deskgrid.cli.base import join_option, open_grid, say
from deskgrid.cli.needs import check_needs, needs_options
from deskgrid.option_types import Seconds, Whole
from deskgrid.wire import LICENCE, PAYLOAD_LIMIT

if TYPE_CHECKING:
    from deskgrid.client.bag import Bag

COPIES = (
    "If a task takes too long, let an idle PC run it as well. The first success counts. Not with --checkpoint, "
    "--limit, --licence, --slots or --gang."
)
RUNTIME = (
    "Predicted duration of each task. PCs that leave sooner do not get it [default: learned from earlier tasks, and a "
    "minute if there are none]."
)
RETRIES = "How often to try a failed task again. From its fourth failure on, it waits before each try."
# Options that mean nothing without another one.
NEED_ANOTHER = {
    "checkpoint_signal": "checkpoint",
    "checkpoint_exit": "checkpoint",
    "min_piece": "checkpoint",
    "explore": "each",
    "when": "after",
    "speedup": "gang",
    "mpi": "gang",
}


def licence_needs(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """Read NAME or NAME=N, each once."""
    found: dict[str, int] = {}
    for text in given:
        name, equals, many = text.partition("=")
        many = many if equals else "1"
        if name in found or not re.fullmatch(LICENCE, f"{name}={many}"):
            raise click.BadParameter(
                f"{text!r}: a licence is NAME or NAME=N, each name once: letters, digits or . _ -, and N from 1 to 9999"
            )
        found[name] = int(many)
    return found


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--runtime", type=Seconds(), help=RUNTIME)
@click.option("--name", help="The name of the bag [default: the name of the command].")
@click.option("--timeout", type=Seconds(positive=True), help="Stop a task that runs longer than this; it then fails.")
@click.option("--retries", type=Whole(min=0), default=0, show_default=True, help=RETRIES)
@click.option("--copies", is_flag=True, help=COPIES)
@click.option(
    "--checkpoint",
    multiple=True,
    metavar="PATTERN",
    help="The files in which the command saves its state, such as 'state/*'. You can repeat this.",
)
@click.option(
    "--checkpoint-signal",
    default="USR1",
    show_default=True,
    metavar="NAME",
    help="The signal that tells the command to save.",
)
@click.option(
    "--checkpoint-exit",
    type=Whole(1, 255),
    default=85,
    show_default=True,
    metavar="CODE",
    help="The exit code that means: the state is saved, but the task is not done.",
)
@click.option(
    "--min-piece",
    type=Seconds(),
    default="60",
    show_default=True,
    help="With --checkpoint: the least time that a PC must have left.",
)
@needs_options
@click.option(
    "--each",
    "lines",
    type=click.File("rb"),
    metavar="FILE",
    help="Make one task for each line of this file, or of stdin if FILE is -. Empty lines are skipped.",
)
@click.option(
    "--input",
    "inputs",
    metavar="[NAME=]PATH",
    multiple=True,
    help="A file or folder that each task needs. Tasks then run in a fresh folder. You can repeat this.",
)
@click.option(
    "--output",
    "outputs",
    metavar="PATTERN",
    multiple=True,
    help="The files in its folder that a task keeps for deskgrid fetch, such as 'out/*.npz'. You can repeat this.",
)
@click.option(
    "--env",
    metavar="mine|script|FILE",
    help="Bring libraries along: those that COMMAND's Python file imports, in the versions installed here (mine); "
    "those in its '# /// script' comment (script); or those in a requirements.txt or a pylock.toml.",
)
@click.option(
    "--with",
    "more",
    metavar="REQUIREMENT",
    multiple=True,
    help="Bring this library along, such as numpy. You can repeat this.",
)
@click.option(
    "--priority",
    type=Whole(-100, 100),
    default=0,
    help="Your bags with higher numbers come before your other bags.",
)
@click.option("--limit", type=Whole(min=1), help="How many tasks of the bag may be on PCs at once.")
@click.option(
    "--licence",
    "licences",
    multiple=True,
    metavar="NAME[=N]",
    callback=licence_needs,
    help="A licence that each task needs, or N of them. You can repeat this.",
)
@click.option(
    "--after", multiple=True, metavar="BAG", help="Start when this bag of yours has ended. You can repeat this."
)
@click.option(
    "--when",
    type=click.Choice(["ok", "ended"]),
    default="ok",
    show_default=True,
    help="With --after: start only if all tasks of that bag succeeded (ok), or in any case (ended).",
)
@click.option(
    "--explore",
    is_flag=True,
    help="Start with up to 16 lines that are spread over the numbers in them, to learn early how long the bag takes.",
)
@join_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def submit(
    *,
    runtime: float | None,
    name: str | None,
    lines: IO[bytes] | None,
    join: str | None,
    env: str | None,
    more: tuple[str, ...],
    command: tuple[str, ...],
    **options: Any,
) -> None:
    """Submit a bag of commands, and print its id.

    COMMAND runs once for each line of --each. The line replaces {}, or is added at the end if there is no {}. Without
    --each, the bag has one task. COMMAND runs without a shell; if you need one, use sh -c '...'.

    A DURATION is a number of seconds, or has units: 90s, 20min, 1h30min, 2d.

    \b
    ls *.png | deskgrid submit --runtime 20 --each - -- convert {} {}.jpg
    """
    _check_pairs(click.get_current_context(), {**options, "each": lines})
    check_needs(options["gang"], options["speedup"])
    with open_grid(join, submits=True) as grid:
        try:
            bag = grid.command(
                list(command),
                _itself(command) if lines is None else items_of(lines),
                runtime=runtime,
                name=Path(command[0]).name if name is None else name,
                env=_environment(env, more),
                **options,
            )
        except KeyboardInterrupt as stopped:
            sent = getattr(stopped, "__notes__", ["no task was sent"])
            stopped.args = (f"you stopped submitting; {'; '.join(sent)}",)
            raise
        if not len(bag):
            say("deskgrid: there are no lines, so there is no bag", err=True)
            return
        click.echo(bag.id)
        if lines is not None and not any("{}" in word for word in command):
            whole = " ".join([*command, "LINE"])
            say(f"deskgrid: the command has no {{}}, so each line was added at its end: {whole}", err=True)
        if bag.note:
            say(f"deskgrid: {bag.note}", err=True)
        _advise(bag)


def _advise(bag: "Bag[Any, Any]") -> None:
    """At a terminal, tell when the bag will be done, and what would help it, if the broker answers soon."""
    from deskgrid.client.whatif import GLANCE_S
    from deskgrid.errors import DeskgridError

    if sys.stderr.isatty():
        with suppress(DeskgridError):
            say(f"deskgrid: {bag.advise(GLANCE_S).line()}", err=True)


def _environment(env: str | None, more: Sequence[str]) -> list[str | Path] | None:
    """Return what a bag brings, as in Python."""
    first = list[str | Path]()
    if env is not None:
        if env not in ("mine", "script") and not (env and os.path.exists(env)):
            raise click.BadParameter(f"{env!r} is not mine or script, and there is no such file", param_hint="--env")
        first.append(env if env in ("mine", "script") else Path(env))
    if not all(each.strip() for each in more):
        raise click.BadParameter("a requirement is a name such as numpy, not nothing", param_hint="--with")
    return [*first, *more] or None


def _check_pairs(context: click.Context, options: Mapping[str, object]) -> None:
    """Refuse options that mean nothing without another one, rather than ignore them."""
    for name, other in NEED_ANOTHER.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and not options[other]:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --{other}")


def _itself(command: Iterable[str]) -> list[str]:
    """Return the one item that leaves the command as it is."""
    return ["{}" if any("{}" in word for word in command) else ""]


def items_of(lines: IO[bytes]) -> Iterator[str]:
    """Yield the lines that are not blank, without their line ends. Bytes that are not UTF-8 become lone surrogates.

    Raises `BagRejected` for a line that is too long, as soon as it is: a file that is no text may have no line end.
    """
    from deskgrid.errors import BagRejected

    for number, line in enumerate(iter(partial(lines.readline, PAYLOAD_LIMIT + 1), b"")):
        if len(line) > PAYLOAD_LIMIT:
            raise BagRejected(f"line {number + 1} of --each has more than {PAYLOAD_LIMIT:,} bytes, which is the limit")
        text = line.decode("utf-8" if number else "utf-8-sig", "surrogateescape").rstrip("\r\n")
        if text.strip():
            yield text
