"""The parallel jobs of the laboratory: NAS benchmarks of two classes and three sizes, which arrive at random."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from deskgrid.papers.cisne.policies.where import CisneNeed
from deskgrid.papers.printed import table_of


class Kind(NamedTuple):
    """What is known of a job before it runs, beside its needs."""

    program: str
    cls: str
    size: int


@dataclass(frozen=True, slots=True)
class LabJob:
    """A job of ``kind.size`` processes, one on each of its PCs, alone there.

    ``computes``, ``communicates``: seconds of each (T_p and T_c, Eq. 1), as measured before; ``really``: the two as
    they are this time. ``link``: the part of a link that a process uses while it communicates.
    """

    kind: Kind
    arrives: float
    computes: float
    communicates: float
    really: tuple[float, float]
    link: float

    @property
    def seconds(self) -> float:
        """How long it takes alone."""
        return self.computes + self.communicates

    @property
    def cpu(self) -> float:
        """The part of its time in which it computes."""
        return self.computes / self.seconds

    @property
    def bandwidth(self) -> float:
        """The part of a link that a process uses in the mean of its whole time (BW, Eq. 4)."""
        return self.link * self.communicates / self.seconds

    @property
    def need(self) -> CisneNeed:
        """What the scheduler is told."""
        return CisneNeed(self.kind.size, self.kind.size, gang=True, cpu=round(self.cpu, 3))


def drawn_jobs(seed: str) -> list[LabJob]:
    """As many jobs as the paper has."""
    table = table_of("sdpn")
    facts, assumed = table["facts"], table["assumed"]
    chance = Random(f"sdpn jobs {seed}")
    found, now = [], 0.0
    for _ in range(facts["jobs"]):
        now += chance.expovariate(1.0 / assumed["arrival_s"])
        found.append(_drawn(now, facts, assumed, chance))
    return found


def _drawn(arrives: float, facts: Mapping[str, Any], assumed: Mapping[str, Any], chance: Random) -> LabJob:
    program, cls = chance.choice(sorted(assumed["programs"])), chance.choice(facts["classes"])
    kind = Kind(program, cls, chance.choice(facts["sizes"]))
    about, largest = assumed["programs"][program], max(facts["sizes"])
    computes = about["work_s"][facts["classes"].index(cls)] / kind.size
    # With more processes there is more to exchange for each second of computing: in proportion to log2 of their number.
    part = about["communicates"] * kind.size.bit_length() / largest.bit_length()
    communicates = computes * part / (1.0 - part)
    spread = assumed["spread"]
    really = (computes * chance.lognormvariate(0.0, spread), communicates * chance.lognormvariate(0.0, spread))
    return LabJob(kind, arrives, computes, communicates, really, about["link"])
