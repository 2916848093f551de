"""A picture as rows of plain values, which JSON can take, and back."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from deskgrid.scheduler.forecast.picture import (
    Durations,
    Group,
    Picture,
    PictureBag,
    PicturePC,
    PictureShare,
    PictureTask,
    PictureWindow,
    Preparing,
)
from deskgrid.scheduler.need import SINGLE, Amounts, Need, Speedup
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured

# A row: what it is, and its values.
Row = Sequence[Any]

SPEEDUPS: dict[str, type[Any]] = {each.__name__: each for each in (Amdahl, Downey, Measured)}


def rows_of(picture: Picture) -> Iterator[Row]:
    """The rows of a picture, each of a PC, a bag or a share; the last is of the whole."""
    for pc in picture.pcs:
        yield (
            "pc",
            pc.name,
            pc.spans,
            pc.slots,
            pc.running,
            pc.site,
            pc.speed,
            pc.amounts.by_name,
            pc.reachable,
            sorted(pc.labels),
            pc.prepares,
            pc.again_s,
        )
    for bag in picture.bags:
        yield (
            "bag",
            bag.number,
            [(each.count, each.durations, each.runtime, each.needs_s, each.turn, each.patient) for each in bag.groups],
            bag.total,
            bag.ended,
            bag.share,
            bag.priority,
            bag.limit,
            bag.barred,
            bag.keeps,
            bag.begins,
            _of_need(bag.need),
            bag.environment,
            bag.licences,
        )
    for share in picture.shares:
        yield "share", *share
    yield "picture", picture.longest_first, picture.backfills, picture.licences


def picture_of(rows: Sequence[Row]) -> Picture:
    """The picture that these are the rows of."""
    *parts, (_, longest_first, backfills, licences) = rows
    return Picture(
        tuple([_pc(*values) for what, *values in parts if what == "pc"]),
        tuple([_bag(*values) for what, *values in parts if what == "bag"]),
        longest_first,
        tuple([PictureShare(*values) for what, *values in parts if what == "share"]),
        backfills,
        _licences(licences),
    )


def _pc(name: str, spans: Row, slots: int, running: Row, *values: Any) -> PicturePC:
    site, speed, has, reachable, labels, prepares, again_s = values
    shown = tuple([PictureWindow(opens, closes, tuple(ends)) for opens, closes, ends in spans])
    its = tuple([PictureTask(*each) for each in running])
    preparing = tuple([Preparing(*each) for each in prepares])
    return PicturePC(
        name, shown, slots, its, site, speed, _amounts(has), reachable, frozenset(labels), preparing, again_s
    )


def _bag(number: int, groups: Row, *values: Any) -> PictureBag:
    *more, need, environment, licences = values
    its = tuple(
        [
            Group(count, Durations(tuple(points), known, tuple(wide)), *rest)
            for count, (points, known, wide), *rest in groups
        ]
    )
    return replace(
        PictureBag(number, its, *more), need=_need(*need), environment=environment, licences=_licences(licences)
    )


def _licences(row: Row) -> tuple[tuple[str, int], ...]:
    return tuple([(name, many) for name, many in row])


def _of_need(need: Need) -> Row:
    if need == SINGLE:
        return ()
    return need.least, need.most, need.slots, need.amounts.by_name, sorted(need.labels), _packed(need), need.gang


def _packed(need: Need) -> Row:
    name = type(need.speedup).__name__
    return [name, *[getattr(need.speedup, field) for field in SPEEDUPS[name].__match_args__]] if need.speedup else ()


def _need(least: int = 1, most: int = 1, slots: int = 1, has: Row = (), *values: Any) -> Need:
    labels, speedup, *more = values or ((), ())
    return Need(least, most, slots, _amounts(has), frozenset(labels), _speedup(*speedup), *more)


def _amounts(row: Row) -> Amounts:
    return Amounts(tuple([(name, amount) for name, amount in row]))


def _speedup(name: str = "", *values: Any) -> Speedup | None:
    if name == Measured.__name__:
        return Measured(tuple([(ranks, speedup) for ranks, speedup in values[0]]))
    found: Speedup | None = SPEEDUPS[name](*values) if name else None
    return found
