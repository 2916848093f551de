"""What the process that makes forecasts can be asked: functions of a picture and plain values, to plain values."""

import math
from collections.abc import Mapping
from typing import Any

from deskgrid.scheduler.forecast.changes import Change
from deskgrid.scheduler.forecast.compare import Answer, PolicyUsed, advise, compare
from deskgrid.scheduler.forecast.picture import Picture

Json = dict[str, Any]


def compared(picture: Picture, args: Json) -> Json:
    """Answers to "what if". ``args``: "bag", "seed", "policy" with its "options", and "changes" as they were asked."""
    changes = [change_of(row) for row in args["changes"]]
    policy = PolicyUsed(args["policy"], args["options"])
    return {"rows": [_row(each) for each in compare(picture, args["bag"], changes, policy, args["seed"])]}


def advised(picture: Picture, args: Json) -> Json:
    """Advice for a bag. ``args``: "bag" and "seed"."""
    found = advise(picture, args["bag"], args["seed"])
    return {
        "now": _row(found.now),
        "longer": [{**each._asdict(), "answer": _row(each.answer)} for each in found.longer],
        "misfits": None if found.misfits is None else found.misfits._asdict(),
    }


def change_of(row: Mapping[str, Any]) -> Change:
    """A change, as `deskgrid.broker.query_catalog` checked it."""
    windows = [
        (each["pcs"], tuple(zip(each["starts_s"], each["lasts_s"], strict=False))) for each in row.get("windows") or ()
    ]
    return Change(
        without=tuple(row.get("without") or ()),
        windows=tuple(windows),
        more=row.get("more") or 0,
        like=row.get("like") or "*",
        split=row.get("split") or 1,
        begins_s=row.get("begins_s") or 0.0,
        policy=row.get("policy") or "",
    )


def _row(answer: Answer) -> Json:
    times = [None] * 3 if answer.when is None else [seconds if seconds < math.inf else None for seconds in answer.when]
    return {**dict(zip(("median_s", "low_s", "high_s"), times, strict=True)), "note": answer.note}
