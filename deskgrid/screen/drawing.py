"""The elements of a screen: bars, and lines of text with a fixed width.

Rules:

1. Widths are in terminal cells; a character takes zero, one or two cells. No line is ever wider than asked.
2. Colour only repeats the meaning of a glyph or a word.
3. Names come from other machines: characters that are not printable are replaced before they reach a terminal.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

from rich.text import Text

from deskgrid.wire import clean

# Cells between two columns.
GAP = 2

# For a terminal or a pipe that takes only ASCII: a replacement for each of our glyphs.
_ASCII = str.maketrans("█▓▒─·…×▁▂▃▄▅▆▇–↑↓", "#%=-..x1234567-^v")


def counted(number: int, noun: str) -> str:
    """``1 task``, ``1,204 tasks``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class BarPart:
    """One kind of stretch in a bar: its glyph, its style, and its name in the legend."""

    glyph: str
    style: str
    name: str


def bar(stretches: Sequence[tuple[float, BarPart]], width: int) -> Text:
    """Draw a bar of ``width`` cells, divided in proportion to the amounts.

    Every amount above 0 gets at least one cell if there are enough cells.
    """
    text = Text()
    for (_, part), cells in zip(stretches, shares([amount for amount, _ in stretches], width), strict=True):
        text.append(part.glyph * cells, part.style)
    return text


def shares(amounts: Sequence[float], width: int) -> list[int]:
    """Divide ``width`` cells in proportion to ``amounts``; give no cells if all amounts are 0."""
    positive = [max(0.0, amount) for amount in amounts]
    total = sum(positive)
    if total <= 0 or width <= 0:
        return [0] * len(positive)
    edges = [round(width * reached / total) for reached in accumulate(positive, initial=0.0)]
    cells = [end - start for start, end in pairwise(edges)]
    for index, amount in enumerate(positive):
        largest = max(range(len(cells)), key=cells.__getitem__)
        if amount > 0 and not cells[index] and cells[largest] > 1:
            cells[index] += 1
            cells[largest] -= 1
    return cells


class Column(NamedTuple):
    """A place in a row. In a table: ``title``, and ``cell``, which draws what an item has there, in so many cells."""

    width: int
    align: Literal["left", "right"] = "left"
    title: str = ""
    cell: Callable[[Any, int], Text | str] = lambda item, width: ""


def row(cells: Iterable[Text | str], columns: Iterable[Column]) -> Text:
    """Draw cells side by side, each cut or padded to its column's width; a column of width 0 is left out."""
    line = Text()
    for cell, column in zip(cells, columns, strict=True):
        if column.width > 0:
            line.append_text(Text(" " * GAP * bool(line)))
            line.append_text(_filled(cell, column))
    return line


def _filled(cell: Text | str, column: Column) -> Text:
    text = Text(cell) if isinstance(cell, str) else cell.copy()
    text.truncate(column.width, overflow="ellipsis")
    blank = Text(" " * (column.width - text.cell_len))
    return blank + text if column.align == "right" else text + blank


def flow(items: Iterable[Text], width: int, limit: int, separator: str = "  ") -> list[Text]:
    """Arrange items in reading order on as few lines as possible, at most ``limit``; further items are left out."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + len(separator) + item.cell_len <= width:
            lines[-1].append(separator).append_text(item)
        elif len(lines) < limit:
            lines.append(item.copy())
        else:
            break
    return lines


def fitted(line: Text, width: int, ascii_only: bool) -> Text:
    """Return the line, cut to ``width`` and, if ``ascii_only``, in ASCII."""
    line.rstrip()
    if not line.plain.isprintable():
        line.plain = clean(line.plain)
    if ascii_only:
        line.plain = line.plain.translate(_ASCII).encode("ascii", "replace").decode()
    line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    line.no_wrap = True
    line.end = "\n"
    return line
