"""What if: changes of the grid, or of a bag, that are only imagined, and when a bag would end with each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

# (starts in, lasts), in seconds: a window of a PC.
Window = tuple[float, float]

# How long an answer may take: seconds of work, and others may ask before. Seconds.
FORECAST_S = 120.0
# What the answer without any change is called.
AS_IT_IS = "as it is"


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is imagined otherwise. The defaults change nothing; all that is given holds together.

    A pattern, as in ``lab3-*``, stands for PCs by their names; it may also be the name of a site. ``without``: patterns
    of PCs that are not there. ``windows``: by pattern, the windows that these PCs have instead of their own, each
    (starts in, lasts) in seconds, in order, at most 64 of the coming week. ``more``: how many more PCs there are, each
    ``like`` one of those that are there, in turn. ``split``: each task of the bag is that many shorter ones.
    ``begins_s``: the bag begins only after so many seconds. ``policy``: the policy that places tasks.
    """

    without: Sequence[str] = ()
    windows: Mapping[str, Sequence[Window]] = field(default_factory=dict)
    more: int = 0
    like: str = "*"
    split: int = 1
    begins_s: float = 0.0
    policy: str = ""

    def and_also(self, other: "Change") -> "Change":
        """Both changes together; where both say something about one thing, ``other`` counts."""
        merged = {name: getattr(other, name) for name in _differing(other)}
        merged["without"] = [*self.without, *other.without]
        merged["windows"] = {**self.windows, **other.windows}
        merged["more"] = self.more + other.more
        return Change(**{**{name: getattr(self, name) for name in _differing(self)}, **merged})

    def said(self) -> dict[str, Any]:
        """The change as it travels."""
        found = {name: getattr(self, name) for name in _differing(self)}
        if windows := found.get("windows"):
            found["windows"] = [
                {"pcs": pcs, "starts_s": [start for start, _ in some], "lasts_s": [lasts for _, lasts in some]}
                for pcs, some in windows.items()
            ]
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """When the bag would end, in seconds from now: the median, and an interval that holds with probability .9.

    None: nobody can tell, or it would never end; ``note`` says why.
    """

    median_s: float | None
    low_s: float | None
    high_s: float | None
    note: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Answer":
        """Make it from a row of the broker's answer."""
        return cls(row["median_s"], row["low_s"], row["high_s"], str(row["note"]))


def _differing(change: Change) -> list[str]:
    """The names of the fields that say something."""
    nothing = Change()
    return [each.name for each in fields(Change) if getattr(change, each.name) != getattr(nothing, each.name)]
