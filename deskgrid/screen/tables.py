"""What the tables of the status screen share: columns that fit, names in their natural order, legends. Pure."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from deskgrid.screen.drawing import GAP, BarPart, Column, row
from deskgrid.wire import clean

# From these widths on, less important columns are shown.
MEDIUM = 76
WIDE = 120

# Cells of: the shortest useful bar; what a name keeps when other columns need room; the longest duration below 100 d.
BAR_LEAST = 8
NAME_LEAST = 12
DURATION = 11


@lru_cache(maxsize=8_192)
def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts ``lab-9`` before ``lab-10``."""
    parts = re.split(r"(\d+)", name)
    # The longer of two numbers is larger. They are not converted to integers, because a name may be all digits.
    return tuple([(len(part.lstrip("0")) if part.isdecimal() else -1, part.lstrip("0") or part) for part in parts])


def name_width(names: Iterable[str], width: int) -> int:
    """Return the width of the longest name, within limits."""
    most = width // 4 if width < WIDE else 30
    return max(min(most, max((cell_len(clean(name)) for name in names), default=0)), 4)


def legend(parts: Iterable[BarPart]) -> Text:
    """Name the glyphs of a bar."""
    text = Text()
    for part in parts:
        text.append(f"{' ' * bool(text)}{part.glyph}", part.style).append(f" {part.name}", "dim")
    return text


def filled_up(width: int, columns: list[Column], flexible: int) -> list[Column]:
    """Fit columns into ``width``. The one at ``flexible`` gets the width left by the others.

    If that is too little, the names in the first column are cut; then columns are dropped from the right.
    """
    columns = list(columns)
    while True:
        others = [column.width for place, column in enumerate(columns) if column.width and place != flexible]
        left = width - sum(others) - GAP * len(others)
        droppable = [place for place, column in enumerate(columns) if column.width and place > flexible]
        spare = min(max(0, BAR_LEAST - left), max(0, columns[0].width - NAME_LEAST))
        if left + spare >= BAR_LEAST or not droppable:
            columns[0] = columns[0]._replace(width=columns[0].width - spare)
            columns[flexible] = columns[flexible]._replace(width=max(left + spare, 0))
            return columns
        columns[droppable[-1]] = Column(0)


def left(width: int, title: str, show: Callable[[Any], Text | str]) -> Column:
    """A column that shows the same of an item, however wide it is."""
    return Column(width, "left", title, lambda item, _: show(item))


def right(width: int, title: str, show: Callable[[Any], Text | str]) -> Column:
    """The same, aligned to the right."""
    return left(width, title, show)._replace(align="right")


def titles(columns: Sequence[Column]) -> Text:
    """The names of the columns."""
    line = row([column.title for column in columns], columns)
    line.stylize("dim")
    return line


def item_row(item: Any, columns: Sequence[Column]) -> Text:
    """One item, by what each column shows of it."""
    return row([column.cell(item, column.width) for column in columns], columns)
