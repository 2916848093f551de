"""What if: changes of the grid, or of a bag, that are only imagined, and when a bag would end with each of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any

from deskgrid.client.eta import Eta, clock
from deskgrid.client.given import check, check_iterable
from deskgrid.durations import MINUTE_S, duration

# (starts in, lasts), in seconds: a window of a PC.
Window = tuple[float, float]

# Whoever submits a bag at a terminal waits at most this long for advice. Seconds.
GLANCE_S = 3.0
# How long an answer may take: seconds of work, and others may ask before. Seconds.
FORECAST_S = 120.0
# What the answer without any change is called.
AS_IT_IS = "as it is"
# What helps by less than this part of the time is not worth a word; nor is one hour more that adds less than that.
WORTH = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """A change for a "what if" question. The defaults change nothing; everything that you give applies at once.

    A pattern matches names of PCs, as in ``lab3-*``; it can also be the name of a site. ``without``: patterns of PCs
    that are off. ``windows``: by pattern, the windows that these PCs have instead of their own, each (starts in, lasts)
    in seconds, in order, at most 64 of the coming week. ``more``: how many more PCs there are, like the existing PCs in
    turn; or, by pattern, how many more like those PCs. ``split``: each task of the bag is split into this many shorter
    tasks. ``begins_s``: the bag begins after this many seconds. ``policy``: the scheduling policy.

    Raises `ValueError` for a number that is too small, and `TypeError`.
    """

    without: Sequence[str] = ()
    windows: Mapping[str, Sequence[Window]] = field(default_factory=dict)
    more: int | Mapping[str, int] = 0
    split: int = 1
    begins_s: float = 0.0
    policy: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.without, str):
            raise ValueError(f"without is a list of patterns, as in [{self.without!r:.80}]")
        check_iterable("without", self.without, 'a list of patterns, as in ["lab3-*"]', TypeError)
        check("windows", self.windows, Mapping, 'windows by pattern, as in {"lab3-*": [(0, 3600)]}', TypeError)
        check("more", self.more, (int, Mapping), "a number of PCs, or such numbers by pattern", TypeError)
        check("split", self.split, int, "a number of tasks", TypeError)
        check("begins_s", self.begins_s, (int, float), "seconds", TypeError)
        check("policy", self.policy, str, "the name of a policy", TypeError)
        if not self.split >= 1 or not self.begins_s >= 0.0 or any(many < 0 for many in self._more_of().values()):
            raise ValueError("split is 1 or more; more and begins_s are 0 or more")

    def and_also(self, other: "Change") -> "Change":
        """Return both changes together: more PCs add up; where else both say something, ``other`` counts."""
        changed = replace(self, **{name: getattr(other, name) for name in _differing(other)})
        without, windows = (*self.without, *other.without), {**self.windows, **other.windows}
        return replace(changed, without=without, windows=windows, more=dict(self._more_of() + other._more_of()) or 0)

    def _more_of(self) -> Counter[str]:
        """By pattern, how many more PCs there are."""
        return Counter({"*": self.more} if isinstance(self.more, int) else self.more)

    def said(self) -> dict[str, Any]:
        """Return the change as it travels."""
        found = {name: getattr(self, name) for name in _differing(self)}
        if "more" in found:
            found["more"] = [{"like": like, "many": many} for like, many in self._more_of().items()]
        if "begins_s" in found:
            found["begins_s"] = float(self.begins_s)
        if windows := found.get("windows"):
            found["windows"] = [
                {
                    "pcs": pcs,
                    "starts_s": [float(start) for start, _ in some],
                    "lasts_s": [float(end) for _, end in some],
                }
                for pcs, some in windows.items()
            ]
        return found


@dataclass(frozen=True, slots=True)
class Longer:
    """When the bag would end if a group of PCs stayed ``hours`` longer than until ``closes``."""

    group: str
    pcs: int
    closes: datetime
    hours: int
    eta: Eta

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Longer":
        """Make it from the broker's answer."""
        eta = Eta.of(told["eta"])
        closes = eta.asked + timedelta(seconds=told["closes_s"])
        return cls(told["group"], told["pcs"], closes, told["hours"], eta)


@dataclass(frozen=True, slots=True)
class Misfits:
    """Tasks that fit no window that is known. ``needs_s``: what they need at once; ``longest_s``: what there is.

    ``pieces``: how many tasks each would have to be. ``keeps``: they save checkpoints, and a piece needs so much.
    """

    tasks: int
    needs_s: float
    longest_s: float
    pieces: int
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """What would help a bag. ``now``: when the tasks that fit a window end. ``longer``: what helps most comes first."""

    now: Eta
    longer: tuple[Longer, ...]
    misfits: Misfits | None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Advice":
        """Make it from the broker's answer."""
        misfits = None if told["misfits"] is None else Misfits(**told["misfits"])
        return cls(Eta.of(told["now"]), tuple(map(Longer.of, told["longer"])), misfits)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the advice in sentences, what matters most first."""
        if self.now.high == 0.0:
            yield str(self.now)
            return
        if self.misfits is not None:
            yield _what_to_do(self.misfits)
        yield f"{'the others' if self.misfits is not None and self.now.known else 'as it is'}: {self.now}"
        helps = self._worth()
        for each in helps:
            yield _leave_on(each, self.now)
        if self.longer and not helps and self.now.known:
            yield f"if any group of PCs stays on for an hour more, that saves less than {100 * WORTH:.0f} % of the time"
        if not self.longer and self.misfits is None and self.now.known:
            yield "no PC leaves as planned, so longer windows would not help"

    def line(self) -> str:
        """Return the advice in one line: what helps with the fewest hours, or what the longest tasks need."""
        if self.misfits is not None:
            return _what_to_do(self.misfits)
        best = min(self._worth(), key=lambda each: (each.hours, each.eta.median), default=None)
        ends = str(self.now) if self.now.known else f"when the bag will be done is {self.now}"
        return ends if best is None else f"{ends}; {_leave_on(best, self.now)}"

    def _worth(self) -> list[Longer]:
        """What helps; and more hours of one group only if they help more than fewer."""
        found, before = list[Longer](), dict[str, float | None]()
        for each in self.longer:
            than = before.get(each.group, self.now.median)
            if (seconds := each.eta.median) is not None and (than is None or seconds < (1.0 - WORTH) * than):
                found.append(each)
                before[each.group] = seconds
        return found


def _what_to_do(misfits: Misfits) -> str:
    many = misfits.tasks > 1
    tasks, them = (f"{misfits.tasks:,} tasks need", "them") if many else ("1 task needs", "it")
    if misfits.keeps:
        tasks = f"a piece of {f'{misfits.tasks:,} tasks' if many else '1 task'} needs"
    needs, longest = duration(misfits.needs_s), duration(misfits.longest_s)
    longer = duration(misfits.needs_s - misfits.longest_s + MINUTE_S)
    split = f"split {them} into {misfits.pieces}, have {them} save checkpoints, or"
    if misfits.keeps:
        split = "give a shorter min_piece, or"
    return (
        f"{tasks} {needs} at once, and the longest window that is known has {longest}: {split} leave a PC on {longer} "
        "longer"
    )


def _leave_on(longer: Longer, before: Eta) -> str:
    until, ends, now = longer.closes + timedelta(hours=longer.hours), longer.eta.done_at, before.asked
    assert ends is not None
    pcs = f"{longer.pcs} PCs" if longer.pcs > 1 else "1 PC"
    then, otherwise = clock(ends, now), ""
    if before.done_at is not None:
        unless = clock(before.done_at, now)
        otherwise = (
            f", not at {unless}" if unless != then else f", {duration((before.done_at - ends).total_seconds())} sooner"
        )
    return f"leave {longer.group} ({pcs}) on until {clock(until, now)}, and it ends at {then}{otherwise}"


def _differing(change: Change) -> list[str]:
    """The names of the fields that say something."""
    nothing = Change()
    return [each.name for each in fields(Change) if getattr(change, each.name) != getattr(nothing, each.name)]
