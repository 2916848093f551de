"""What all runs of a forecast have in common. Seconds; instants count from the picture on."""

from itertools import accumulate, chain
from random import Random
from typing import NamedTuple

from deskgrid.scheduler.forecast.caps import Caps
from deskgrid.scheduler.forecast.picture import Group, Picture, PictureBag, PictureShare, longest_window
from deskgrid.scheduler.forecast.preparing import ready_at

# What was known of a bag before its own tasks counts as so many of them.
PRIOR = 2
# No mean is taken from more draws.
MOST_KNOWN = 64
# Draws of one kind that are made before the runs.
DRAWN = 512
# A slot takes a block of this fraction of the waiting tasks, divided by the number of slots.
BLOCK = 0.5


class DrawnGroup(NamedTuple):
    """A group, ready to be drawn from. ``known``: draws for a mean. ``sums``: of the draws before each, twice over."""

    bag: int
    points: tuple[float, ...]
    mean: float
    known: int
    sums: list[float]
    needs_s: float
    total: int


class Uncertainty(NamedTuple):
    """What is drawn beside the runtimes. ``common``, ``drift``: the spreads of the logarithms of what all runtimes have
    in common, because PCs are busier or cooler than before, and of the factor of a part of a bag. ``mean``: whether the
    mean of a bag is drawn.
    """

    common: float = 0.1
    drift: float = 0.2
    mean: bool = True


class RunPlan:
    """What all runs have in common. Bags and PCs are known by their places, and groups by those of their kinds."""

    def __init__(self, picture: Picture, chance: Random, uncertainty: Uncertainty) -> None:
        self.uncertainty = uncertainty
        bags = picture.bags
        self.pcs, self.bags = picture.pcs, bags
        rows = [
            (-bag.priority, -group.runtime if picture.longest_first else 0.0, place, number)
            for place, bag in enumerate(bags)
            for number, group in enumerate(bag.groups)
        ]
        rows.sort()
        # Kinds are in the order in which they are served; by places of bag and group.
        self.kinds = [_kind(place, bags[place].groups[number], chance) for _, _, place, number in rows]
        self.kind_of = {(place, number): kind for kind, (_, _, place, number) in enumerate(rows)}
        self.places = {bag.number: place for place, bag in enumerate(bags)}
        self.slots = [pc for pc, each in enumerate(picture.pcs) for _ in range(each.slots)]
        self.speeds = [picture.pcs[pc].speed for pc in self.slots]
        # How many tasks run at once where there is a most.
        self.caps = Caps(picture)
        # By kind: what a slot takes at a time, as a part of what waits.
        most = max(1, len(self.slots))
        self.blocks = [BLOCK / max(1, min(most, self.caps.at_once.get(kind.bag, most))) for kind in self.kinds]
        known = {share.name: share for share in picture.shares}
        names = list(dict.fromkeys(bag.share for bag in bags))
        # The window in which most can be done, in seconds of speed 1: what needs more never begins.
        longest_s, speed = longest_window(picture.pcs)
        self.longest = longest_s * speed
        # Bags of which no task may ever begin.
        self.barred = {place for place, bag in enumerate(bags) if bag.barred or not self.caps.at_once.get(place, 1)}
        # When bags begin, by their places: only those that do not begin at once.
        self.begins = {place: bag.begins for place, bag in enumerate(bags) if bag.begins > 0.0}
        # When their environments are ready, by places of bag and PC: only those that are not ready now.
        needy = [(place, bag, _shortest(bag)) for place, bag in enumerate(bags) if bag.environment]
        self.ready = {
            (place, pc): at
            for place, bag, least_s in needy
            for pc, at in ready_at(picture.pcs, bag.environment, least_s).items()
        }
        self.shares = [known.get(name, PictureShare(name, 0.0)) for name in names]
        # The share of each kind.
        self.share_of = [names.index(bags[kind.bag].share) for kind in self.kinds]


def _shortest(bag: PictureBag) -> float:
    """What a window must have left for any task of a bag that waits. Seconds."""
    return min([bag.at_once_s(group) for group in bag.groups if group.count], default=0.0)


def _kind(bag: int, group: Group, chance: Random) -> DrawnGroup:
    points = group.durations.points
    draws = list(points) * (DRAWN // len(points)) + chance.sample(points, DRAWN % len(points))
    chance.shuffle(draws)
    known = min(PRIOR + int(group.durations.known), MOST_KNOWN)
    sums = [*accumulate(chain(draws, draws), initial=0.0)]
    return DrawnGroup(bag, points, sum(points) / len(points), known, sums, group.needs_s, group.count)
