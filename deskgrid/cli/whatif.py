"""``deskgrid whatif`` and ``advise``: when a bag would end if something were different. Nothing changes by asking."""

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from deskgrid.cli.bags import bag_argument
from deskgrid.cli.base import attached, join_option, open_grid, say, table
from deskgrid.client.eta import clock
from deskgrid.client.whatif import AS_IT_IS, Change
from deskgrid.durations import duration
from deskgrid.option_types import Seconds, Whole
from deskgrid.wire import BAG_LIMIT
from deskgrid.wire.limits import CHANGES_LIMIT, GROUPS_LIMIT, MORE_PCS, SPLIT_LIMIT

if TYPE_CHECKING:
    from deskgrid.client.eta import Eta
    from deskgrid.wire.status import StatusDocument
    from deskgrid.worker.windows.uptime import Instant

# What is imagined if you name no change: an evening begins, so many more PCs, and each of the largest sites closed.
EVENING = "18:00"
MORE = 5
SITES = 3
ALL = "all of these"

# A change, and what it is called.
Named = tuple[str, Change]


def instant() -> "Instant":
    """Return what both clocks show now."""
    from deskgrid.worker.windows.uptime import Instant

    return Instant(time.time(), time.monotonic())


def _with(ctx: click.Context, option: click.Parameter, words: Iterable[str]) -> list[Named]:
    """Read PATTERN=WINDOWS, where several windows are separated by semicolons."""
    from deskgrid.windows.weekly import PlanError
    from deskgrid.worker.windows.uptime import weekly_from_table

    now, found = instant(), list[Named]()
    for word in _few(words):
        pcs, _, text = word.partition("=")
        if not pcs or not text.strip():
            raise click.BadParameter(f"{word!r} is not PATTERN=WINDOWS, as in 'lab4-*=mon-fri 18:00-08:00'")
        try:
            weekly = weekly_from_table({"windows": text.split(";")}, word)
        except PlanError as error:
            raise click.BadParameter(str(error)) from error
        open_now = [(0.0, left)] if (left := weekly.uptime(now)) else []
        windows = (open_now + list(weekly.coming(now)))[:64]
        found.append((f"{pcs} there {text.strip()}", Change(windows={pcs: windows})))
    return found


def _without(ctx: click.Context, option: click.Parameter, patterns: Iterable[str]) -> list[Named]:
    if not all(patterns := _few(patterns)):
        raise click.BadParameter("a pattern of PCs is empty")
    return [(f"without {pattern}", Change(without=(pattern,))) for pattern in patterns]


def _few(words: Iterable[str]) -> Sequence[str]:
    """Return what an option was given, unless it was given too often: the last change is all of them together."""
    if len(found := tuple(words)) > GROUPS_LIMIT:
        raise click.BadParameter(f"you gave it {len(found)} times; one question takes it at most {GROUPS_LIMIT} times")
    return found


def _more(ctx: click.Context, option: click.Parameter, words: Iterable[str]) -> list[Named]:
    """Read N or N=PATTERN."""
    found, total = list[Named](), 0
    for word in _few(words):
        number, sign, like = word.partition("=")
        if not number.isdecimal() or not 1 <= int(number) <= MORE_PCS or (sign and not like):
            raise click.BadParameter(f"{word!r} is not a number of PCs from 1 to {MORE_PCS:,}, nor N=PATTERN")
        text = f"with {_pcs(int(number))}{f' like {like}' if sign else ''}"
        found.append((text, Change(more={like or "*": int(number)})))
        total += int(number)
    if total > MORE_PCS:
        raise click.BadParameter(f"these are {total:,} more PCs; one question takes at most {MORE_PCS:,}")
    return found


def _pcs(number: int) -> str:
    return f"{number:,} more PC{'s' if number > 1 else ''}"


def _split(ctx: click.Context, option: click.Parameter, many: int | None) -> list[Named]:
    return [] if many is None else [(f"tasks split in {many}", Change(split=many))]


def _begin(ctx: click.Context, option: click.Parameter, text: str | None) -> list[Named]:
    from deskgrid.windows.weekly import PlanError

    try:
        return [] if text is None else [_begun(text, instant())]
    except PlanError as error:
        raise click.BadParameter(str(error).partition(": ")[2]) from error


def _begun(text: str, now: "Instant") -> Named:
    """Return the change that the bag begins at HH:MM, or after a duration. Raises `PlanError`."""
    from deskgrid.worker.windows.uptime import parse_until

    seconds = parse_until(text, now).uptime(now)
    wall = datetime.fromtimestamp(now.wall).astimezone()
    return f"begun at {clock(wall + timedelta(seconds=seconds), wall)}", Change(begins_s=seconds)


def _policy(ctx: click.Context, option: click.Parameter, name: str | None) -> list[Named]:
    if name == "":
        raise click.BadParameter("the name is empty")
    return [] if name is None else [(f"under {name}", Change(policy=name))]


@click.command()
@click.option("--runtime", type=Seconds(positive=True), help="Without BAG: the predicted duration of each task.")
@click.option("--tasks", type=Whole(1, BAG_LIMIT), help="Without BAG: how many tasks the bag would have.")
@click.option(
    "--with",
    "windows",
    multiple=True,
    metavar="PATTERN=WINDOWS",
    callback=_with,
    help="These PCs are on in these windows, and at no other time: 'lab4-*=mon-fri 18:00-08:00'.",
)
@click.option("--without", multiple=True, metavar="PATTERN", callback=_without, help="These PCs are off.")
@click.option(
    "--more", multiple=True, metavar="N[=PATTERN]", callback=_more, help="There are N more PCs like the existing ones."
)
@click.option(
    "--split", type=Whole(2, SPLIT_LIMIT), callback=_split, help="Each task is split into this many shorter tasks."
)
@click.option(
    "--begin", metavar="TIME", callback=_begin, help="The waiting tasks of the bag begin at HH:MM, or after a duration."
)
@click.option("--policy", metavar="NAME", callback=_policy, help="This scheduling policy places the tasks.")
@click.option("--json", "as_json", is_flag=True, help="Print the answers as JSON.")
@click.argument("bag_id", metavar="[BAG]", required=False)
@join_option
def whatif(
    *,
    bag_id: str | None,
    runtime: float | None,
    tasks: int | None,
    join: str | None,
    as_json: bool,
    **changes: list[Named],
) -> None:
    """Ask when BAG would end if something were different.

    Without BAG, --runtime and --tasks describe a bag that you have not submitted yet. Nothing changes on the grid.

    Each change gets a row in the table. If there are several, the last row is for all of them together. If you name no
    change, the table has some common ones. A PATTERN is the name of a site, or of PCs, with the wildcards * and ?.

    ENDS is the median. The bag ends between EARLIEST and LATEST with a probability of 90 %.

    \b
    deskgrid whatif --runtime 5min --tasks 10000 --without lab3 --more 5
    """
    if (bag_id is None) == (runtime is None or tasks is None) or (bag_id and (runtime or tasks)):
        if bag_id is not None:
            raise click.UsageError(
                "--runtime and --tasks describe a bag that you have not submitted yet: name no bag then"
            )
        raise click.UsageError("name a bag, or give --runtime and --tasks")
    named = [each for some in changes.values() for each in some]
    if len(named) >= CHANGES_LIMIT:
        raise click.UsageError(f"these are {len(named)} changes; one question takes at most {CHANGES_LIMIT - 1}")
    with open_grid(join) as grid:
        if not named:
            named = usual(grid.status(), instant())
        elif len(named) > 1:
            named.append((ALL, _together([change for _, change in named])))
        if bag_id is not None:
            bag_id = attached(grid, bag_id).id
        told = grid.whatif(bag_id, [change for _, change in named], runtime=runtime, tasks=tasks)
    rows = list(zip([AS_IT_IS, *(name for name, _ in named)], told, strict=True))
    if as_json:
        click.echo(json.dumps([{"what": name, **_seconds(eta)} for name, eta in rows], indent=2))
    elif told[0].ended:
        say(str(told[0]))
    else:
        for line in answers_table(rows):
            say(line)


def _seconds(eta: "Eta") -> dict[str, Any]:
    return {"median_s": eta.median, "low_s": eta.low, "high_s": eta.high, "confidence": eta.confidence, "why": eta.why}


def _together(changes: Iterable[Change]) -> Change:
    found = Change()
    for change in changes:
        found = found.and_also(change)
    return found


def usual(status: "StatusDocument", now: "Instant") -> list[Named]:
    """Return the changes that are compared if none is named."""
    sites = Counter(worker["site"] for worker in status["workers"] if worker["site"])
    closed = [site for site, _ in sites.most_common(SITES)] if len(sites) > 1 else []
    other = "pgs" if status["broker"]["policy"] == "packing" else "packing"
    return [
        _begun(EVENING, now),
        (f"with {_pcs(MORE)}", Change(more=MORE)),
        *((f"without {site}", Change(without=(site,))) for site in closed),
        ("tasks split in 2", Change(split=2)),
        (f"under {other}", Change(policy=other)),
    ]


def answers_table(rows: Sequence[tuple[str, "Eta"]]) -> Iterable[str]:
    """Format the answers as lines."""
    cells: list[Sequence[str]] = [("", "ENDS", "EARLIEST", "LATEST", "DIFFERENCE")]
    for name, eta in rows:
        times = ["unknown" if at is None else clock(at, eta.asked) for at in (eta.done_at, eta.earliest, eta.latest)]
        cells.append((name, *times, eta.why or _difference(eta.median, rows[0][1].median)))
    return table(cells)


def _difference(seconds: float | None, before: float | None) -> str:
    if seconds is None or before is None or math.isclose(seconds, before, abs_tol=1.0):
        return ""
    return f"{duration(abs(seconds - before))} {'later' if seconds > before else 'sooner'}"


@click.command()
@bag_argument
@join_option
def advise(*, bag_id: str, join: str | None) -> None:
    """Suggest how BAG could end sooner: which PCs to leave on, and what to do about tasks that fit into no window.

    PCs are grouped by site, or by their names. Nothing changes on the grid.
    """
    with open_grid(join) as grid:
        advice = attached(grid, bag_id).advise()
    for line in advice.lines():
        say(line)
