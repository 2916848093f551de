"""What the process that makes forecasts can be asked: functions of a picture and plain values, to plain values."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any

from deskgrid.broker.model.forecaster import LATE, Json
from deskgrid.scheduler.forecast.ahead import by_bag, played
from deskgrid.scheduler.forecast.changes import ImaginedChange
from deskgrid.scheduler.forecast.compare import (
    GROUPS,
    HOURS,
    Dice,
    ImaginedEnd,
    LongerWindows,
    PolicyUsed,
    advise,
    compare,
)
from deskgrid.scheduler.forecast.correction import CONFIDENCE
from deskgrid.scheduler.forecast.picture import Picture

# All runs for a question should take no longer than that, in seconds of processor time; but there are so many at least.
RUNS_S, RUNS_LEAST = 4.0, 5
# An estimate of ends is made of so many runs at least, if there is no time for more.
ENDS_LEAST = 2


def ends(picture: Picture, args: Json) -> dict[int, list[float]]:
    """By number of bag, when it ends in each run. ``args``: "seed" and "runs".

    Without the runs for which there is no time, or no memory. Raises `TimeoutError` if next to none are left.
    """
    found = list[list[float]]()
    with suppress(TimeoutError, MemoryError):
        found.extend(played(picture, Random(args["seed"]), args["runs"]))
    if len(found) < min(ENDS_LEAST, args["runs"]):
        raise TimeoutError(LATE)
    return by_bag(picture, found)


def compared(picture: Picture, args: Json) -> Json:
    """Answers to "what if". ``args``: "bag", "policy" with its "options", "changes" as asked, "seed", "runs".

    The answers for which there is no time, or no memory, say so.
    """
    changes = [change_of(row) for row in args["changes"]]
    policy, dice = PolicyUsed(args["policy"], args["options"]), _dice(args)
    found = list[ImaginedEnd]()
    with suppress(TimeoutError, MemoryError):
        found.extend(compare(picture, args["bag"], changes, policy, dice))
    found += [ImaginedEnd(None, LATE)] * (1 + len(changes) - len(found))
    return {"rows": [_row(each) for each in found]}


def advised(picture: Picture, args: Json) -> Json:
    """Advice for a bag. ``args``: "bag", "seed" and "runs"."""
    found = advise(picture, args["bag"], _dice(args))
    return {
        "now": _row(found.now),
        "longer": [_longer(each) for each in found.longer],
        "misfits": None if found.misfits is None else found.misfits._asdict(),
    }


def _longer(each: LongerWindows) -> Json:
    shown = {"group": each.group, "pcs": each.pcs, "closes_s": each.closes_s, "hours": each.hours}
    return {**shown, "eta": _row(each.answer)}


def change_of(row: Mapping[str, Any]) -> ImaginedChange:
    """A change, as `deskgrid.wire.questions` checked it."""
    windows = [
        (each["pcs"], tuple(zip(each["starts_s"], each["lasts_s"], strict=False))) for each in row.get("windows") or ()
    ]
    return ImaginedChange(
        without=tuple(row.get("without") or ()),
        windows=tuple(windows),
        more=tuple((each["like"], each["many"]) for each in row.get("more") or ()),
        split=row.get("split") or 1,
        begins_s=row.get("begins_s") or 0.0,
        policy=row.get("policy") or "",
    )


def _dice(args: Json) -> Dice:
    return Dice(args["seed"], args["runs"])


def fewer_runs(what: str, args: Json, run_s: float) -> Json:
    """The arguments of a question with as many runs as there is time for; ``run_s``: what one takes.

    All answers to a question have as many runs, so they can be compared.
    """
    answers = {"compare": 1 + len(args.get("changes", ())), "advise": 1 + GROUPS + len(HOURS)}.get(what, 1)
    if args["runs"] * answers * run_s <= RUNS_S:
        return args
    fitting = int(RUNS_S / max(1e-9, answers * run_s))
    return args | {"runs": min(args["runs"], max(RUNS_LEAST, fitting))}


def _row(answer: ImaginedEnd) -> Json:
    times = [None] * 3 if answer.when is None else [seconds if seconds < math.inf else None for seconds in answer.when]
    shown = dict(zip(("median_s", "low_s", "high_s"), times, strict=True))
    return {**shown, "confidence": CONFIDENCE, "why": answer.note}


TASKS: Mapping[str, Callable[[Picture, Json], Any]] = {"ends": ends, "compare": compared, "advise": advised}
