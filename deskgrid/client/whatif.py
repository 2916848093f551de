"""What if: changes of the grid, or of a bag, that are only imagined, and when a bag would end with each of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from deskgrid.durations import HOUR_S, MINUTE_S, clock, duration

# (starts in, lasts), in seconds: a window of a PC.
Window = tuple[float, float]

# How long an answer may take: seconds of work, and others may ask before. Seconds.
FORECAST_S = 120.0
# What the answer without any change is called.
AS_IT_IS = "as it is"
# What helps by less than this part of the time is not worth a word; nor is one hour more that adds less than that.
WORTH = 0.05


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
        changed = replace(self, **{name: getattr(other, name) for name in _differing(other)})
        without, windows = (*self.without, *other.without), {**self.windows, **other.windows}
        return replace(changed, without=without, windows=windows, more=self.more + other.more)

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


@dataclass(frozen=True, slots=True)
class Longer:
    """When the bag would end if a group of PCs stayed ``hours`` longer than until ``closes_s``, seconds from now."""

    group: str
    pcs: int
    closes_s: float
    hours: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Misfits:
    """Tasks that fit no window that is known. ``needs_s``: what they need at once; ``longest_s``: what there is.

    ``pieces``: how many tasks each would have to be.
    """

    tasks: int
    needs_s: float
    longest_s: float
    pieces: int


@dataclass(frozen=True, slots=True)
class Advice:
    """What would help a bag. ``now``: when the tasks that fit a window end. ``longer``: what helps most comes first."""

    now: Answer
    longer: tuple[Longer, ...]
    misfits: Misfits | None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Advice":
        """Make it from the broker's answer."""
        longer = tuple([Longer(**{**each, "answer": Answer.of(each["answer"])}) for each in told["longer"]])
        misfits = None if told["misfits"] is None else Misfits(**told["misfits"])
        return cls(Answer.of(told["now"]), longer, misfits)

    def lines(self, now: float) -> Iterator[str]:
        """The advice in sentences, what matters most first; ``now``: POSIX seconds."""
        if self.misfits is not None:
            yield _what_to_do(self.misfits)
        if self.now.median_s is None:
            yield f"nobody can tell when it ends: {self.now.note}"
        else:
            yield f"it ends {_between(self.now, now)}"
        helps = self._worth()
        for each in helps:
            yield _leave_on(each, self.now, now)
        if self.longer and not helps and self.now.median_s is not None:
            yield f"an hour more of any group of PCs brings less than {WORTH:.0%} of that"

    def _worth(self) -> list[Longer]:
        """What helps; and more hours of one group only if they help more than fewer."""
        found, before = list[Longer](), dict[str, float | None]()
        for each in self.longer:
            than = before.get(each.group, self.now.median_s)
            if (seconds := each.answer.median_s) is not None and (than is None or seconds < (1.0 - WORTH) * than):
                found.append(each)
                before[each.group] = seconds
        return found


def _what_to_do(misfits: Misfits) -> str:
    tasks = f"{misfits.tasks:,} tasks need" if misfits.tasks > 1 else "1 task needs"
    needs, longest = duration(misfits.needs_s), duration(misfits.longest_s)
    longer = duration(misfits.needs_s - misfits.longest_s + MINUTE_S)
    return (
        f"{tasks} {needs} at once, and the longest window that is known has {longest}: "
        f"split them into {misfits.pieces}, have them save checkpoints, or leave a PC on {longer} longer"
    )


def _between(answer: Answer, now: float) -> str:
    assert answer.median_s is not None
    low = "" if answer.low_s is None else f" at {clock(answer.low_s, now)} at the earliest and"
    high = "never" if answer.high_s is None else f"at {clock(answer.high_s, now)}"
    return f"at about {clock(answer.median_s, now)};{low} {high} at the latest"


def _leave_on(longer: Longer, before: Answer, now: float) -> str:
    assert longer.answer.median_s is not None
    until = clock(longer.closes_s + longer.hours * HOUR_S, now)
    pcs = f"{longer.pcs} PCs" if longer.pcs > 1 else "1 PC"
    otherwise = "" if before.median_s is None else f", not at {clock(before.median_s, now)}"
    return (
        f"leave {longer.group} ({pcs}) on until {until}, and it ends at {clock(longer.answer.median_s, now)}{otherwise}"
    )


def _differing(change: Change) -> list[str]:
    """The names of the fields that say something."""
    nothing = Change()
    return [each.name for each in fields(Change) if getattr(change, each.name) != getattr(nothing, each.name)]
