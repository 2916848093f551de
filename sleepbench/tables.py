"""How the benchmark's tables look."""

from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.table import Table


def new_table(
    title: str,
    columns: Sequence[str] = (),
    caption: str | None = None,
    lines: Iterable[Sequence[str]] = (),
    *,
    left: Collection[int] = (0,),
) -> Table:
    """A table with these lines. Columns are numbers, on the right, but for those whose places are in ``left``."""
    drawn = Table(
        title=title, caption=caption, caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False
    )
    for place, name in enumerate(columns):
        drawn.add_column(name, justify="left" if place in left else "right", no_wrap=True)
    for line in lines:
        drawn.add_row(*line)
    return drawn
