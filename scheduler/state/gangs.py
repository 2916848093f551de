"""Parallel tasks: those that wait, those that have slots, and the PCs and sites as policies for them see these.

Rule 1: nothing here is kept up to date before the first parallel task is submitted (`GangTable.awake`).
Rule 2: a gang has all its slots, or none. Only after a restart, its ranks come back worker by worker.
Rule 3: what a gang does costs no more than the slots that it has, however many slots and waiting tasks there are.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from deskgrid.scheduler.need import NOTHING, Amounts, label_of
from deskgrid.scheduler.parallel.base import Host, RunningJob, Site
from deskgrid.scheduler.queues.categories import Category, CategoryKey
from deskgrid.scheduler.state.jobs import JobQueue
from deskgrid.scheduler.state.slots import Gang, Slot, Worker

_ends = attrgetter("ends")
_name = attrgetter("name")


@dataclass(slots=True, eq=False)
class Machine:
    """A worker that is up. ``free``: its slots that nothing occupies. ``gangs``: what gangs have of it, by task, as
    (ends, slots). ``occupied``: what of it gangs have.
    """

    worker: Worker
    host: Host
    free: list[Slot] = field(default_factory=list)
    gangs: dict[int, tuple[float, int]] = field(default_factory=dict)
    occupied: Amounts = NOTHING


class Reservation(NamedTuple):
    """Slots are kept for a waiting task from ``at`` on; it has had a reservation ``since``."""

    at: float
    since: float


class GangTable:
    """``awake``: whether there has been a parallel task. ``machines``: workers that are up, by name. ``sites``: those
    with a PC that is up, by name. ``running``: gangs that have slots, by task. ``queues``: the waiting tasks.

    ``touched``: workers of which single tasks may have other slots than when a policy looked last.
    ``resting``: idle slots that gangs left, and that are in no index until a single task may need one.
    ``kept``: slots that are kept for a waiting gang. ``reserved``: waiting tasks for which slots are kept, or will be
    when they are up. ``windows_version``: grows with each change of windows to come. ``gains_version``: grows when a PC
    that is up stays for longer than was known, or has become faster, or has other labels.
    """

    def __init__(self) -> None:
        self.awake = False
        self.machines: dict[str, Machine] = {}
        self.sites: list[Site] = []
        self.running: dict[int, Gang] = {}
        self.queues: dict[CategoryKey, JobQueue] = {}
        self.touched: set[str] = set()
        self.resting: dict[int, Slot] = {}
        self.kept: dict[int, Slot] = {}
        self.reserved: dict[int, Reservation] = {}
        self.windows_version = 0
        self.gains_version = 0
        self._site_of: dict[tuple[str, str], Site] = {}

    def queue(self, category: Category) -> JobQueue:
        """The waiting tasks of a category of parallel tasks."""
        queue = self.queues.get(category.key)
        if queue is None:
            queue = self.queues[category.key] = JobQueue(category)
        return queue

    # --- workers -----------------------------------------------------------------------------------------------------

    def wake(self, workers: Iterable[Worker]) -> None:
        """The first parallel task has come: from now on, everything is kept up to date."""
        self.awake = True
        for worker in workers:
            self.join(worker)

    def join(self, worker: Worker) -> None:
        """``worker`` is up."""
        key = _site_key(worker)
        site = self._site_of.get(key)
        if site is None:
            site = self._site_of[key] = Site(key[1] or key[0])
            insort(self.sites, site, key=_name)
        host = host_of(worker, site, len(worker.slots))
        self.machines[worker.name] = Machine(worker, host)
        insort(site.hosts, host, key=_name)
        site.slots += host.slots
        self.touched.add(worker.name)

    def site_of(self, worker: Worker) -> Site | None:
        """The site of a worker, up or not; None if no PC of that site is up."""
        return self._site_of.get(_site_key(worker))

    def leave(self, worker: Worker) -> None:
        """``worker`` is up no longer. No gang has slots of it."""
        host = self.machines.pop(worker.name).host
        site = host.site
        site.hosts.remove(host)
        site.slots -= host.slots
        site.idle -= host.idle
        if not site.hosts:
            self.sites.remove(site)
            del self._site_of[_site_key(worker)]
        for slot in worker.slots:
            self.resting.pop(slot.number, None)
            self.kept.pop(slot.number, None)
        self.touched.discard(worker.name)

    def loaded(self, worker: Worker) -> None:
        """Others use more or less of a PC: only policies for parallel tasks read that."""
        if (machine := self.machines.get(worker.name)) is not None:
            machine.host.load = worker.load

    def prepared(self, worker: Worker) -> None:
        """Other environments are ready on a PC."""
        if (machine := self.machines.get(worker.name)) is not None:
            machine.host.labels = _labels(worker)
            self.gains_version += 1

    def refresh(self, machine: Machine, free: list[Slot], others: list[tuple[float, int]], has: Amounts) -> None:
        """Single tasks have other slots of a PC. ``others``: when these should be free. ``has``: what is free."""
        host, worker = machine.host, machine.worker
        self.gains_version += worker.ends_at > host.closes or worker.exact > host.speed
        host.closes, host.speed, host.load, host.amounts = worker.ends_at, worker.exact, worker.load, has
        host.site.idle += len(free) - host.idle
        machine.free, host.idle = free, len(free)
        host.frees[:] = sorted([*machine.gangs.values(), *others])

    # --- gangs -------------------------------------------------------------------------------------------------------

    def enter(self, gang: Gang, running: RunningJob) -> None:
        """A gang has all its slots from now on, as ``running`` says. They are not idle any more."""
        task, need = gang.attempt.task, gang.bag.need
        gang.running = running
        insort(running.site.running, running, key=_ends)
        for host, ranks in running.ranks:
            machine = self.machines[host.name]
            entry = machine.gangs[task] = running.ends, ranks * need.slots
            insort(host.frees, entry)
            machine.occupied += need.amounts * ranks
            host.amounts -= need.amounts * ranks

    def withdraw(self, gang: Gang) -> None:
        """Undo `enter`."""
        running, task, need = gang.running, gang.attempt.task, gang.bag.need
        if running is None:
            return
        gang.running = None
        its = running.site.running
        del its[its.index(running, bisect_left(its, running.ends, key=_ends))]
        for host, ranks in running.ranks:
            machine = self.machines[host.name]
            host.frees.remove(machine.gangs.pop(task))
            machine.occupied -= need.amounts * ranks
            host.amounts += need.amounts * ranks


def _site_key(worker: Worker) -> tuple[str, str]:
    """A PC that others cannot reach is a site of its own."""
    return worker.site, "" if worker.traits.reachable else worker.name


def host_of(worker: Worker, site: Site, slots: int) -> Host:
    """A worker with so many slots as a policy sees it, with no idle slot yet."""
    processors, has, _, _ = worker.traits
    return Host(
        worker.name,
        site,
        slots,
        processors or slots,
        worker.ends_at,
        worker.exact,
        worker.load,
        has,
        _labels(worker),
    )


def _labels(worker: Worker) -> frozenset[str]:
    """The labels of a worker, and one for each environment that is ready there."""
    return worker.traits.labels.union(map(label_of, worker.environments))
