"""The laboratory as it really is: its users, and how fast each parallel job advances beside all that else goes on.

This is the truth of the experiment, which nobody who predicts is shown. It has more in it than their models do:
what users do changes every few seconds; a job waits for the slowest of its processes at every moment; processes that
share a PC or a link are in each other's way only while both compute, or both communicate.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from deskgrid.papers.cisne.jobs import LabJob
from deskgrid.papers.printed import table_of
from deskgrid.scheduler.simulation.simulator import SimulatedPC, SimulatedWork

# How often shares and slowdowns, each of which depends on the other, are computed from each other.
ROUNDS = 3
SITE = "lab"
# After so many seconds the luck of samples repeats itself.
SAMPLES = 1009


class Use(NamedTuple):
    """What the user of a PC uses of its processor and of its link, 0 to 1 (of a link also more: it is asked for)."""

    cpu: float
    link: float


class Users:
    """What the users of all PCs do: each use lasts a random time, then there is another.

    That is what jobs feel. A sample of one second is another matter: it comes upon a moment of much or of little.
    """

    def __init__(self, names: Sequence[str], saturated: bool, seed: str) -> None:
        self._assumed = table_of("sdpn")["assumed"]
        self._facts = table_of("sdpn")["facts"]
        self._chance = Random(f"sdpn users {seed}")
        self._names = names
        self._saturated = set(names[1::2]) if saturated else set()
        self._since: dict[str, list[float]] = {name: [0.0] for name in names}
        self._uses: dict[str, list[Use]] = {name: [self._drawn(name)] for name in names}
        noise = Random(f"sdpn samples {seed}")
        self._noise = {name: [noise.expovariate(1.0) for _ in range(SAMPLES)] for name in names}

    def changes(self) -> Iterator[tuple[float, str, float]]:
        """(when, PC, part of its processor) from now on, as the simulator takes them; endless."""
        coming = [(self._lasts(), name) for name in self._names]
        yield from ((0.0, name, self._uses[name][0].cpu) for name in self._names)
        heapq.heapify(coming)
        while True:
            at, name = coming[0]
            use = self._drawn(name)
            self._since[name].append(at)
            self._uses[name].append(use)
            yield at, name, use.cpu
            heapq.heapreplace(coming, (at + self._lasts(), name))

    def now(self, name: str, at: float) -> Use:
        """What the user of a PC uses at a time that was there already."""
        return self._uses[name][bisect_right(self._since[name], at) - 1]

    def mean(self, name: str, at: float, window: float) -> Use:
        """The mean of samples of each second of a window before ``at``."""
        noise, most, last = self._noise[name], self._assumed["local_most"], int(at)
        cpu = link = 0.0
        seconds = min(int(window), last + 1)
        for second in range(last, last - seconds, -1):
            use, luck = self.now(name, min(at, second)), noise[second % SAMPLES]
            cpu += min(most, use.cpu * luck)
            link += use.link * luck
        return Use(cpu / seconds, link / seconds)

    def _lasts(self) -> float:
        return self._chance.expovariate(1.0 / self._assumed["use_s"])

    def _drawn(self, name: str) -> Use:
        cpu = min(self._chance.expovariate(1.0 / self._facts["local_cpu"]), self._assumed["local_most"])
        low, high = self._assumed["saturated_link" if name in self._saturated else "quiet_link"]
        return Use(cpu, self._chance.uniform(low, high))


class VirtualLab:
    """The PCs, and the rates of what runs on them (`Conditions.pace`). ``running``: the gangs since the last change."""

    def __init__(self, mpl: int, saturated: bool, jobs: Sequence[LabJob], seed: str) -> None:
        facts = table_of("sdpn")["facts"]
        self.names = [f"pc{place:02d}" for place in range(1, facts["pcs"] + 1)]
        self.pcs = [SimulatedPC(name, slots=mpl, processors=1, site=SITE) for name in self.names]
        self.users = Users(self.names, saturated, seed)
        self.running: Sequence[SimulatedWork] = ()
        self._jobs = jobs

    def pace(self, running: Sequence[SimulatedWork], now: float) -> list[float]:
        """How much each job does of its own seconds (those that it takes alone, this time) in a second."""
        self.running = list(running)
        if not running:
            return []
        uses = {name: self.users.now(name, now) for name in self.names}
        jobs = [self._jobs[work.task] for work in running]
        places = [[(pc.name, count) for pc, count in work.ranks] for work in running]
        slow = slowdowns(jobs, places, uses)
        return [sum(job.really) / _takes(job, each) for job, each in zip(jobs, slow, strict=True)]


def slowdowns(
    jobs: Sequence[LabJob], places: Sequence[Sequence[tuple[str, int]]], uses: dict[str, Use]
) -> list[tuple[float, float]]:
    """(SP, SC) of jobs on these PCs, with so many processes on each (Eq. 3 and 4)."""
    slow = [(1.0, 1.0)] * len(jobs)
    for _ in range(ROUNDS):
        slow = _slowdowns(jobs, places, uses, slow)
    return slow


def _takes(job: LabJob, slow: tuple[float, float]) -> float:
    """Eq. 1."""
    return job.really[0] * slow[0] + job.really[1] * slow[1]


def _slowdowns(
    jobs: Sequence[LabJob],
    places: Sequence[Sequence[tuple[str, int]]],
    uses: dict[str, Use],
    slow: Sequence[tuple[float, float]],
) -> list[tuple[float, float]]:
    """(SP, SC) of each job (Eq. 3 and 4), if they were ``slow`` so far.

    The slowest PC and the busiest link decide. A process shares its PC with the others that compute at that time, and
    its link with those that communicate. It computes for as long as the slowest process of its job does, because it
    waits for that in a loop.
    """
    computing, linking = dict.fromkeys(uses, 0.0), {name: use.link for name, use in uses.items()}
    parts = []
    for job, where, before in zip(jobs, places, slow, strict=True):
        part = job.really[0] * before[0] / _takes(job, before)
        uses_link = (1.0 - part) * job.link
        parts.append((part, uses_link))
        for name, count in where:
            computing[name] += count * part
            linking[name] += count * uses_link
    found = []
    for job, where, (part, uses_link) in zip(jobs, places, parts, strict=True):
        processing = max([(1.0 + computing[name] - part) / (1.0 - uses[name].cpu) for name, _ in where])
        network = max([job.link + linking[name] - uses_link for name, _ in where])
        found.append((processing, max(1.0, network)))
    return found
