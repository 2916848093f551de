"""The commands for bags that were submitted.

Rule: stdout has only the requested output, so that it can be piped; remarks about it go to stderr. BAG is an id, the
name of your newest bag of that name, or "last" (`attached`).
"""

import os
import re
import sys
import time
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deskgrid.cli.base import attached, join_option, open_grid, say, show, show_output, when_interrupted
from deskgrid.durations import precise
from deskgrid.option_types import Folder, Refusal, Seconds, Whole

if TYPE_CHECKING:
    from deskgrid.client.bag import Bag
    from deskgrid.client.following import LogPiece
    from deskgrid.client.grid import Grid
    from deskgrid.client.logs import TaskLog
    from deskgrid.client.progress import Progress
    from deskgrid.wire import Kind

Value = TypeVar("Value")

FAILED = 1
# How much of the last line of a command's stderr is printed with its failure. Characters.
LAST_WORDS = 200
STOPPED = "you stopped waiting; bag {} continues"
# The states of a task that has not ended, or not by itself: what its log has is of an attempt that failed.
UNFINISHED = ("waiting", "queued", "sent", "held", "cancelled")

bag_argument = click.argument("bag_id", metavar="BAG")
bags_argument = click.argument("bag_ids", metavar="BAG...", nargs=-1, required=True)
item_argument = click.argument("item", metavar="[ITEM]", type=Whole(min=0), required=False)


@click.command()
@click.option("--timeout", type=Seconds(), help="Wait at most this long for all bags together [default: no limit].")
@bags_argument
@join_option
def wait(*, timeout: float | None, bag_ids: tuple[str, ...], join: str | None) -> None:
    """Wait until all tasks of each BAG have ended.

    The exit code is 1 if a task failed or was cancelled, or if --timeout was reached.
    """
    until = None if timeout is None else time.monotonic() + timeout
    several = len(bag_ids) > 1
    fine = True
    with (
        open_grid(join) as grid,
        when_interrupted("you stopped waiting; the bags continue" if several else STOPPED.format(bag_ids[0])),
    ):
        for bag in [attached(grid, bag_id) for bag_id in bag_ids]:
            ended = bag.wait(None if until is None else max(0.0, until - time.monotonic()))
            progress = bag.progress()
            whose = f"bag {bag.id}: " if several else ""
            said = f"{whose}{_summary(progress)}{'' if ended else '; the bag has not ended'}"
            say(f"deskgrid: {said}", err=True)
            fine = fine and ended and not progress.failed and not progress.cancelled
    if not fine:
        sys.exit(FAILED)


def _summary(progress: "Progress") -> str:
    parts = [f"{progress.done:,} of {progress.total:,} {'task' if progress.total == 1 else 'tasks'} done"]
    parts += [
        f"{count:,} {what}" for count, what in ((progress.failed, "failed"), (progress.cancelled, "cancelled")) if count
    ]
    return ", ".join(parts)


@click.command()
@bag_argument
@join_option
def results(*, bag_id: str, join: str | None) -> None:
    """Print the results of BAG in the order of its tasks, and wait for missing results.

    For a command, the result is its stdout, byte for byte: nothing is put between tasks. For a Python function, it is
    the value as Python shows it. For a gang, you get the stdout of each rank, or a list with the value of each rank.
    Failed tasks are named on stderr, with the last
    line of a command's stderr, and the exit code is then 1.
    """
    # Results of Python functions may be of classes that are defined in the current folder. At the end of the path, the
    # folder cannot replace our modules.
    sys.path.append(os.getcwd())
    from deskgrid.errors import TaskCancelled

    failed, cancelled = list[int](), 0
    with open_grid(join) as grid, when_interrupted(STOPPED.format(bag_id)):
        bag: Bag[int, Any] = attached(grid, bag_id)
        for item, value in in_order(bag.as_completed(errors="return")):
            if isinstance(value, TaskCancelled):
                cancelled += 1
                say(f"deskgrid: {_failure(item, value)}", err=True)
            elif isinstance(value, Exception):
                failed.append(item)
                say(f"deskgrid: {_failure(item, value)}", err=True)
            else:
                for one in value if bag.kind == "command" and isinstance(value, list) else [value]:
                    _print_value(one, bag.kind)
        if cancelled and not bag.note:
            grid.attach(bag.id)  # warns if, while we waited, a bag before it did not end well
    if failed:
        say(f"deskgrid: {len(failed):,} of {len(bag):,} failed; see deskgrid logs {bag_id} {failed[0]}", err=True)
    if cancelled:
        say(f"deskgrid: {cancelled:,} of {len(bag):,} cancelled", err=True)
    if failed or cancelled:
        sys.exit(FAILED)


def in_order(pairs: Iterable[tuple[int, Value]]) -> Iterator[tuple[int, Value]]:
    """Yield the pairs in the order of their numbers, from 0 without gaps, each as soon as all before it are there."""
    early: dict[int, Value] = {}
    following = 0
    for number, value in pairs:
        early[number] = value
        while following in early:
            yield following, early.pop(following)
            following += 1


def _print_value(value: object, kind: "Kind") -> None:
    text = value if isinstance(value, str) else repr(value)
    if kind == "command":
        show_output(text)
    elif text:
        show(text)


def _failure(item: int, error: Exception) -> str:
    """Describe a failed task in one line, with the place where it failed."""
    from deskgrid.client.payload import RAISED_BY, said_of
    from deskgrid.errors import RemoteError, TaskError

    try:
        notes = [note.removeprefix(RAISED_BY) for note in error.__notes__ if note.startswith(RAISED_BY)]
    except Exception:  # a task's own exception may do anything
        notes = []
    where = notes[-1] if notes else f"task {item}"
    try:
        if isinstance(error, RemoteError):
            # What a rank of a command says names the rank already.
            place = re.sub(r"^rank \d+ of ", "", where) if re.search(r"^\w+: rank \d+ of ", str(error)) else where
            text = f"{place}: {error}{_last_words(error)}"
        elif isinstance(error, TaskError):
            text = str(error)  # the error itself names the task
        else:
            text = f"{where}: {type(error).__name__}: {error}"
    except Exception:
        text = f"{where}: {said_of(error)}"
    return " ".join(text.split())


def _last_words(error: Exception) -> str:
    """Return the last line of a command's stderr, after a colon; nothing if the error says the same, as Python's do."""
    said = str(error)
    words = str(error.__cause__ or "").strip('"\n ').rpartition("\n")[2]
    return "" if words in said or said in words else f": {words[:LAST_WORDS]}"


@click.command()
@click.option("--to", type=Folder(), default=".", help="The folder for the files [default: the current one].")
@bag_argument
@item_argument
@join_option
def fetch(*, to: Path, bag_id: str, item: int | None, join: str | None) -> None:
    """Fetch the output files of BAG, and wait for tasks that have not ended.

    The files of each task go into a folder named after the task's number in the bag, counted from 0. With ITEM, you get
    only the files of that task, directly in the folder. If you interrupt a fetch, the next one continues where it
    stopped.

    Tasks that failed or were cancelled have no files, and the exit code is then 1.
    """
    from deskgrid.errors import DeskgridError, TaskError

    with open_grid(join) as grid, when_interrupted("you stopped fetching; run it again to continue"):
        bag = attached(grid, bag_id)
        try:
            found = bag.fetch(to, item)
        except Exception as error:  # that of the task, which may be of any class
            if isinstance(error, DeskgridError) and not isinstance(error, TaskError):
                raise
            say(f"deskgrid: {_failure(item or 0, error)}", err=True)
            sys.exit(FAILED)
        for path in found:
            say(str(path))
        progress = bag.progress()
        if item is None and (progress.failed or progress.cancelled):
            say(f"deskgrid: {_summary(progress)}; only tasks that are done have files", err=True)
            sys.exit(FAILED)
    if not found:
        whose = f"bag {bag_id}" if item is None else f"task {item} of bag {bag_id}"
        raise Refusal(f"{whose} has no files: submit a command with --output, or return a File from a function")


@click.command()
@click.option(
    "--follow", is_flag=True, help="Go on with new output, as it comes, until the tasks have ended or you press Ctrl-C."
)
@bag_argument
@item_argument
@join_option
def logs(*, follow: bool, bag_id: str, item: int | None, join: str | None) -> None:
    """Print the output of task ITEM of BAG, or of all tasks.

    ITEM is the task's number in the bag, counted from 0. The output goes to stdout and stderr, byte for byte. How and
    where the task ended, and its traceback, also go to stderr. For a gang, the output of each rank is printed, in the
    order of the ranks.

    Of a task that is running, you get the end of what it has printed so far. With --follow, you see up to 4 KiB of new
    output a second, and the rest when the task ends; of a whole bag, up to 50 running tasks at a time, and the newest
    of those that have ended since the last look.
    """
    with open_grid(join) as grid:
        bag = attached(grid, bag_id)
        if follow:
            with suppress(KeyboardInterrupt):
                shown = _follow(bag.follow(item))
                progress = None if item is not None else bag.progress()
                if progress is not None and (more := progress.done + progress.failed - shown) > 0:
                    what = "1 more task" if more == 1 else f"{more:,} more tasks"
                    say(f"deskgrid: {what} ended before, or too fast to be shown; see deskgrid logs {bag_id}", err=True)
            return
        for number in range(len(bag)) if item is None else (item,):
            _print_log(number, bag.logs(number))


def _follow(pieces: "Iterator[LogPiece]") -> int:
    """Print them; return of how many tasks the end was shown."""
    shown = 0
    # A piece may end within a character, so each stream has a decoder of its own.
    decoders: dict[tuple[int, int | None, bool], IncrementalDecoder] = {}
    before: tuple[int, int | None] | None = None
    unfinished: set[bool] = set()  # on stdout or stderr, lines that have not ended and that ours would go on
    for piece in pieces:
        name = f"task {piece.item}" if piece.rank is None else f"task {piece.item}, rank {piece.rank}"
        if piece.note:
            shown += 1
            for key in [key for key in decoders if key[0] == piece.item]:
                show_output(decoders.pop(key).decode(b"", True), err=key[2], goes_on=True)
        if unfinished and (piece.note or piece.missed or (piece.item, piece.rank) != before):
            show_output("\n", err=True)
            unfinished.clear()
        if piece.note:
            first, _, more = piece.note.partition("\n")
            say(f"deskgrid: {name}: {first}", err=True)
            if more:
                show(more, err=True)
        elif (piece.item, piece.rank) != before:
            say(f"deskgrid: {name} on {piece.worker}:", err=True)
        if piece.missed:
            say(f"deskgrid: {name}: {piece.missed:,} bytes are left out here", err=True)
        for data, err in ((piece.stdout, False), (piece.stderr, True)):
            if data:
                key = piece.item, piece.rank, err
                decoder = decoders.setdefault(key, getincrementaldecoder("utf-8")("surrogateescape"))
                show_output(decoder.decode(data), err=err, goes_on=True)
                unfinished.discard(err)
                if not data.endswith(b"\n") and (err or sys.stdout.isatty()):
                    unfinished.add(err)
        before = None if piece.note else (piece.item, piece.rank)
    return shown


def _print_log(item: int, log: "TaskLog") -> None:
    say(f"deskgrid: task {item}: {_state(log)}", err=True)
    # The error of a command is the end of its stderr, and a line that says how it ended. Of a gang, its first line
    # names the rank and its PC, as ours did.
    told = log.error or ""
    if log.rank is not None and told.startswith(f"rank {log.rank} of "):
        told = told.partition("\n")[2] or told
    printed, _, ending = told.rpartition("\n")
    error = ending if printed.strip() and printed.strip() in log.stderr else told
    others = "" if log.state == "cancelled" else " with the others"
    for rank in log.ranks:
        after = f" after {precise(rank.elapsed_s)}" if rank.elapsed_s else ""
        ended = {"stopped": f", stopped{others}{after}:", "running": ", still running"}
        say(f"deskgrid: task {item}, rank {rank.rank} on {rank.worker}{ended.get(rank.state, f'{after}:')}", err=True)
        _print_output(rank.stdout, rank.stderr)
    if not log.ranks:
        _print_output(log.stdout, log.stderr)
    if error:
        show(error, err=True)


def _state(log: "TaskLog") -> str:
    """Say where a task is, or where and how it ended; of one that is tried again, also how it failed before."""
    where = f" in rank {log.rank}" if log.rank is not None and log.error is not None else ""
    where += f" on {log.worker} after {precise(log.elapsed_s)}" if log.worker else ""
    if log.state == "running":
        return f"running on {log.worker} for {precise(log.elapsed_s)}"
    if log.state not in UNFINISHED:
        return f"{log.state}{where}"
    state = log.state
    if state == "sent":
        state = "sent to a PC; its output is shown when it ends"
    return f"{state}; its last attempt failed{where}" if where else state


def _print_output(stdout: str, stderr: str) -> None:
    if stdout:
        show_output(stdout)
    if stderr:
        show_output(stderr, err=True)


@click.command()
@bag_argument
@item_argument
@join_option
def explain(*, bag_id: str, item: int | None, join: str | None) -> None:
    """Explain why task ITEM of BAG waits, and how much time is missing on each slot.

    ITEM is the task's number in the bag, counted from 0. Without it, the command explains the waiting task that has the
    longest runtime.
    """
    with open_grid(join) as grid:
        for line in attached(grid, bag_id).explain(item).split("\n"):
            say(line)


@click.command()
@bags_argument
@join_option
def cancel(*, bag_ids: tuple[str, ...], join: str | None) -> None:
    """Cancel all tasks of each BAG that have not ended. Running tasks are stopped."""
    from deskgrid.screen.drawing import counted

    with open_grid(join) as grid:
        for bag in _all_attached(grid, bag_ids, "cancelled"):
            click.echo(f"cancelled {counted(bag.cancel(), 'task')} of {bag.id}")


@click.command()
@bags_argument
@join_option
def pause(*, bag_ids: tuple[str, ...], join: str | None) -> None:
    """Pause each BAG: start none of its tasks until you resume it. Running tasks continue."""
    with open_grid(join) as grid:
        for bag in [attached(grid, bag_id) for bag_id in bag_ids]:
            bag.pause()
            click.echo(f"paused {bag.id}")


@click.command()
@bags_argument
@join_option
def resume(*, bag_ids: tuple[str, ...], join: str | None) -> None:
    """Resume each BAG, so that its tasks start again."""
    with open_grid(join) as grid:
        for bag in [attached(grid, bag_id) for bag_id in bag_ids]:
            bag.resume()
            click.echo(f"resumed {bag.id}")


@click.command()
@click.argument("bag_ids", metavar="[BAG]...", nargs=-1)
@click.option(
    "--learned",
    is_flag=True,
    help="Forget everything that the broker learned about runtimes, PCs and estimates. Only admins can do this. On the "
    "broker's machine, anyone who can read its home is an admin.",
)
@join_option
def forget(*, bag_ids: tuple[str, ...], learned: bool, join: str | None) -> None:
    """Delete each BAG with its results and logs. All its tasks must have ended."""
    if not bag_ids and not learned:
        raise click.UsageError("name a bag, or give --learned")
    with open_grid(join) as grid:
        bags = _all_attached(grid, bag_ids, "forgotten")
        if learned:  # first, because it is refused to all but admins: then no bag is deleted either
            grid.forget_learned()
            click.echo("forgot what was learned")
        for bag in bags:
            bag.forget()
            click.echo(f"forgot {bag.id}")


def _all_attached(grid: "Grid", bag_ids: Sequence[str], what: str) -> "list[Bag[Any, Any]]":
    """Attach to all the bags before anything is done; if one of several is refused, say that no bag was ``what``."""
    from deskgrid.errors import RequestFailed

    try:
        return [attached(grid, bag_id) for bag_id in bag_ids]
    except RequestFailed as error:
        raise Refusal(f"{error}; no bag was {what}" if len(bag_ids) > 1 else str(error)) from error
