"""What all runs of a forecast with parallel tasks have in common: sites, and how many ranks they have room for."""

from itertools import accumulate, pairwise
from math import inf
from random import Random

from deskgrid.scheduler.forecast.picture import Picture, PicturePC
from deskgrid.scheduler.forecast.plan import BLOCK, RunPlan, Uncertainty
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.choices import PLAIN
from deskgrid.scheduler.parallel.hosts import seats
from deskgrid.scheduler.parallel.sizes import working_set

# How many ranks, at least and at most.
Size = tuple[int, int]


class GangPlan(RunPlan):
    """What all runs have in common. A site is known by its place."""

    def __init__(self, picture: Picture, chance: Random, uncertainty: Uncertainty) -> None:
        super().__init__(picture, chance, uncertainty)
        self.backfills = picture.backfills
        sites: dict[tuple[str, str], list[int]] = {}
        for place, pc in enumerate(self.pcs):
            sites.setdefault((pc.site, "" if pc.reachable else pc.name), []).append(place)
        self.sites = list(sites.values())
        self.site_of = {pc: site for site, its in enumerate(self.sites) for pc in its}
        self.slots_of = [range(*pair) for pair in pairwise(accumulate([pc.slots for pc in self.pcs], initial=0))]
        self.needs = [self.bags[kind.bag].need for kind in self.kinds]
        # With how many ranks a gang begins, at least and at most; None: it is moldable.
        sizes: list[Size | None] = [(its.least, its.most) if its.least == its.most else None for its in self.needs]
        self.sizes = sizes
        self.turns = [0] * len(self.kinds)
        # Until when others may overtake a kind; and when this ends first.
        self.patient = [inf] * len(self.kinds)
        for (bag, group), kind in self.kind_of.items():
            its = self.bags[bag].groups[group]
            self.turns[kind], self.patient[kind] = its.turn, its.patient
        self.impatient_at = min(self.patient, default=inf)
        powers = [sum([self.pcs[pc].slots * self.pcs[pc].speed for pc in its]) for its in self.sites]
        self.power, self.largest = sum(powers), max(powers, default=0.0)
        self._seated: dict[int, list[list[tuple[int, int]]]] = {}
        self._rooms: dict[int, list[int]] = {}
        self._blocks: dict[tuple[int, int], float] = {}
        self._moldable: dict[int, tuple[int, int, float]] = {}

    def seats(self, pc: PicturePC, need: Need) -> int:
        """How many ranks a PC has room for, if it is idle."""
        return seats(pc.slots, pc.amounts, need, PLAIN) if pc.labels >= need.labels else 0

    def rooms(self, kind: int) -> list[int]:
        """How many ranks each site has room for, if all PCs are there and idle."""
        found = self._rooms.get(kind)
        if found is None:
            found = self._rooms[kind] = [sum([room for _, room in its]) for its in self.seated(kind)]
        return found

    def seated(self, kind: int) -> list[list[tuple[int, int]]]:
        """By site, the PCs that have room for ranks if they are idle, and for how many."""
        found = self._seated.get(kind)
        if found is None:
            need = self.needs[kind]
            rooms = [[(pc, self.seats(self.pcs[pc], need)) for pc in its] for its in self.sites]
            found = self._seated[kind] = [[each for each in its if each[1]] for its in rooms]
        return found

    def moldable(self, kind: int) -> tuple[int, int, float]:
        """Of a moldable gang: its fewest ranks, the most that it makes good use of, and the mean power of one."""
        found = self._moldable.get(kind)
        if found is None:
            need = self.needs[kind]
            useful = min(working_set(need), max(self.rooms(kind), default=0))
            found = self._moldable[kind] = need.least, useful, need.slots * self.power / len(self.slots)
        return found

    def block(self, kind: int, ranks: int) -> float:
        """What the slots of a gang of so many ranks take at a time, as a part of what waits."""
        found = self._blocks.get((kind, ranks))
        if found is None:
            most = self.most(kind, ranks)
            found = self._blocks[kind, ranks] = BLOCK / min(most, self.caps.at_once.get(self.kinds[kind].bag, most))
        return found

    def most(self, kind: int, ranks: int) -> int:
        """How many gangs of so many ranks can run at the same time, if all PCs are there."""
        return sum([room // ranks for room in self.rooms(kind)])
