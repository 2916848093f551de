"""A picture as rows of plain values, which JSON can take, and back."""

from collections.abc import Iterator, Sequence
from typing import Any

from deskgrid.scheduler.forecast.picture import PC, Durations, Group, Picture, Preparing, Running, Share, Span, Waiting

# A row: what it is, and its values.
Row = Sequence[Any]


def rows_of(picture: Picture) -> Iterator[Row]:
    """The rows of a picture, each of a PC, a bag or a share; the last is of the whole."""
    for pc in picture.pcs:
        yield "pc", pc.name, pc.spans, pc.slots, pc.running, pc.site, pc.speed, pc.prepares
    for bag in picture.bags:
        yield (
            "bag",
            bag.number,
            [(each.count, each.durations, each.runtime, each.needs_s) for each in bag.groups],
            bag.total,
            bag.ended,
            bag.share,
            bag.priority,
            bag.limit,
            bag.barred,
            bag.keeps,
            bag.begins,
            bag.environment,
        )
    for share in picture.shares:
        yield "share", *share
    yield "picture", picture.longest_first


def picture_of(rows: Sequence[Row]) -> Picture:
    """The picture that these are the rows of."""
    *parts, (_, longest_first) = rows
    return Picture(
        tuple([_pc(*values) for what, *values in parts if what == "pc"]),
        tuple([_bag(*values) for what, *values in parts if what == "bag"]),
        longest_first,
        tuple([Share(*values) for what, *values in parts if what == "share"]),
    )


def _pc(name: str, spans: Row, slots: int, running: Row, *values: Any) -> PC:
    shown = tuple([Span(opens, closes, tuple(ends)) for opens, closes, ends in spans])
    site, speed, prepares = values
    preparing = tuple([Preparing(*each) for each in prepares])
    return PC(name, shown, slots, tuple([Running(*each) for each in running]), site, speed, preparing)


def _bag(number: int, groups: Row, *values: Any) -> Waiting:
    its = tuple([Group(count, Durations(tuple(points), known), *more) for count, (points, known), *more in groups])
    return Waiting(number, its, *values)
