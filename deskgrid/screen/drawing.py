"""What a screen is drawn with: bars, and lines of text that keep to their width.

Rules:

1. Widths are in terminal cells, which a character may take none, one or two of. No line is ever wider than asked.
2. Colour only repeats what a glyph or a word says already.
3. Names come from other machines: what is not printable in them is replaced before it gets near a terminal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from rich.text import Text

from deskgrid.wire import clean

# Between two columns.
GAP = 2

# For a terminal or a pipe that takes ASCII only: each glyph of ours, one for one.
_ASCII = str.maketrans("█▓▒─·…×▁▂▃▄▅▆▇–", "#%=-..x1234567-")


def counted(number: int, noun: str) -> str:
    """``1 task``, ``1,204 tasks``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of stretch in a bar: how it looks, with and without colour, and what it is called."""

    glyph: str
    style: str
    name: str


def bar(stretches: Sequence[tuple[float, Part]], width: int) -> Text:
    """A bar of ``width`` cells, divided like the amounts. What is not nothing is seen, if there are cells enough."""
    text = Text()
    for (_, part), cells in zip(stretches, shares([amount for amount, _ in stretches], width), strict=True):
        text.append(part.glyph * cells, part.style)
    return text


def shares(amounts: Sequence[float], width: int) -> list[int]:
    """``width`` cells divided in proportion to ``amounts``; none when they are all nothing."""
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
    """A place in a row."""

    width: int
    align: Literal["left", "right"] = "left"


def row(cells: Iterable[Text | str], columns: Iterable[Column]) -> Text:
    """The cells side by side, each cut and filled to its column's width; a column of width 0 is left out."""
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
    """The items in reading order, on as few lines as they need and at most ``limit``; what is beyond is left out."""
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
    """The line cut to ``width``, and in ASCII if it has to be."""
    line.rstrip()
    if not line.plain.isprintable():
        line.plain = clean(line.plain)
    if ascii_only:
        line.plain = line.plain.translate(_ASCII).encode("ascii", "replace").decode()
    line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    line.no_wrap = True
    line.end = "\n"
    return line
