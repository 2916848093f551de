"""Which workers are to have which environments, and what became of them. Pure.

Rule 1: an environment is prepared before its tasks are placed, on workers where a waiting task would still fit
afterwards: so preparing is never part of a task's time. Only a few workers prepare one at a time, those with free slots
first, and no more than its waiting tasks need: where those that have it are busy, others with free slots get it. A
parallel task may need any of them, because which are together changes.
Rule 2: a worker that cannot prepare one now is asked again later. When two PCs refuse one for the same reason, its bags
are held, because every PC would.
Rule 3: a worker is told all that it is to have, and again after each introduction: so nothing is lost with a message.
Each submitter has environments of its own.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from deskgrid import wire
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import EnvironmentAt, WorkerSession
from deskgrid.durations import duration
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.forecast.picture import Preparing
from deskgrid.scheduler.forecast.preparing import PREPARING_AT_ONCE
from deskgrid.scheduler.policies.base import least_required

# How fast PCs are assumed to prepare environments, until they have shown it: bytes of wheels fetched and of files
# written, per second. What a PC shows is believed within these bounds.
BYTES_PER_S = 20e6
LEAST_BYTES_PER_S, MOST_BYTES_PER_S = 0.5e6, 500e6
# Less says nothing about the speed. Bytes.
TELLING_BYTES = 4e6
# How much of the speed is from the last time.
WEIGHT = 0.3
# What it takes beside the bytes. Seconds.
ANYWAY_S = 2.0
# When a PC that could not prepare an environment is asked again: the first time, and at most. Seconds.
AGAIN_S, AGAIN_MOST_S = 10.0, 600.0
# Messages in a row with which a PC hands tasks back that need an environment, before it counts as one without it.
RETURNED = 3
# PCs that have to fail alike before bags are held.
ALIKE = 2
# How often the broker looks who is to prepare what, if nothing happens; and how many workers one look considers, which
# takes a few milliseconds. Seconds.
LOOK_S = 1.0
WORKERS_A_LOOK = 4_000
# Of a worker with more slots, the first stand for all.
SLOTS_LOOKED_AT = 16
# PCs that an explanation names for each reason.
NAMED = 5


def key_of(owner: str, environment: wire.Environment | None) -> str:
    """What an environment of an owner is known by; empty for none."""
    if environment is None:
        return ""
    return sha256(repr((owner, sorted(environment.builds))).encode()).hexdigest()[:32]


@dataclass(slots=True)
class _NeededEnvironment:
    """An environment that bags need which have not ended. ``bags``: their numbers; ``refused``: why, by PC."""

    environment: wire.Environment
    bags: dict[int, None] = field(default_factory=dict)
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)

    def remark(self) -> str:
        """What people should know about its bags; empty if no PC has refused it."""
        if not self.refused:
            return ""
        pc, (package, reason) = next(reversed(self.refused.items()))
        return f"its environment cannot be prepared on {pc}: {f'{package}: ' if package else ''}{reason}"


class EnvironmentTable:
    """``by_name``, ``by_peer``: the sessions of workers."""

    def __init__(
        self, state: BrokerState, by_name: Mapping[str, WorkerSession], by_peer: Mapping[bytes, WorkerSession]
    ) -> None:
        self._state = state
        self._by_name = by_name
        self._by_peer = by_peer
        self._known: dict[str, _NeededEnvironment] = {}
        self._bytes_per_s = BYTES_PER_S
        self._look_at = 0.0
        self._turn = 0

    # --- bags --------------------------------------------------------------------------------------------------------

    def enter(self, bag: OpenBag, environment: wire.Environment | None) -> None:
        """A bag is new, or restored, and needs this environment."""
        if environment is not None:
            bag.environment, bag.environment_key = environment, key_of(bag.row.owner, environment)
            known = self._known.setdefault(bag.environment_key, _NeededEnvironment(environment))
            known.bags[bag.row.number] = None
            bag.refused = known.remark()
            self._look_at = 0.0

    def forgive(self, bag: OpenBag) -> None:
        """A bag that was held goes on: what failed is tried again."""
        known = self._known.get(bag.environment_key)
        if known is not None:
            self._note_refusals(known, {})
            for worker in self._by_name.values():
                at = worker.environments.get(bag.environment_key)
                if at is not None and at.state != "ready":
                    del worker.environments[bag.environment_key]
            self._look_at = 0.0

    def _open_bags(self, known: _NeededEnvironment) -> list[OpenBag]:
        book = self._state.book.by_number
        for number in [number for number in known.bags if number not in book or book[number].complete]:
            del known.bags[number]
        return [book[number] for number in known.bags]

    # --- workers -----------------------------------------------------------------------------------------------------

    def receive(self, peer: bytes, message: wire.Prepared, now: float) -> None:
        """A worker says what became of an environment."""
        worker = self._by_peer.get(peer)
        at = None if worker is None else worker.environments.get(message.key)
        if worker is None or at is None or at.state == "failed":
            return
        self._look_at = 0.0
        readiness = wire.Readiness(message.readiness)
        if readiness is wire.Readiness.READY:
            self._learn(message)
            at.state, at.reason = "ready", ""
            if (known := self._known.get(message.key)) is not None and known.refused:
                self._note_refusals(known, {})  # so it is not the fault of the wheels
            self._tell_scheduler(worker, now)
        elif readiness is wire.Readiness.GONE:
            first = at.times == 0
            self._has_not(worker, at, "it was removed there", now)
            worker.told_environments = ()
            if first:
                at.again_at = now
        else:
            self._failed(worker, at, message, now)

    def _has_not(self, worker: WorkerSession, at: EnvironmentAt, why: str, now: float) -> None:
        """An environment cannot be used on a worker, which is asked again after a while, each time later."""
        at.state, at.reason, at.times = "failed", why, at.times + 1
        at.again_at = now + min(AGAIN_S * 2.0 ** min(at.times - 1, 16), AGAIN_MOST_S)
        at.returned = 0
        self._tell_scheduler(worker, now)

    def returned(self, peer: bytes, message: wire.Returned, now: float) -> None:
        """A worker has handed tasks back: one that always does so would keep them from workers that can run them."""
        worker, book = self._by_peer.get(peer), self._state.book
        if worker is None or not worker.environments:
            return
        for key in {book.find(ref.task)[0].environment_key for ref in message.attempts if ref.task < book.next_task}:
            at = worker.environments.get(key)
            if at is not None and at.state == "ready":
                at.returned += 1
                if at.returned >= RETURNED:
                    self._has_not(worker, at, "it hands back tasks that need it", now)
                    self._look_at = 0.0

    def _learn(self, message: wire.Prepared) -> None:
        if message.size >= TELLING_BYTES and message.seconds > 0.0:
            shown = min(max(message.size / message.seconds, LEAST_BYTES_PER_S), MOST_BYTES_PER_S)
            self._bytes_per_s += WEIGHT * (shown - self._bytes_per_s)

    def _failed(self, worker: WorkerSession, at: EnvironmentAt, message: wire.Prepared, now: float) -> None:
        why = f"{message.package}: {message.reason}" if message.package else message.reason
        self._has_not(worker, at, why, now)
        known = self._known.get(message.key)
        facts = {"name": worker.name, "package": message.package, "reason": message.reason}
        self._state.note("environment-failed", by=worker.who.name, **facts)
        if known is not None and message.readiness == wire.Readiness.REFUSED:
            refusal = message.package, message.reason
            self._note_refusals(known, known.refused | {worker.join.name: refusal})
            if list(known.refused.values()).count(refusal) >= ALIKE:
                self._hold(known, f"{at.reason} ({_system_of(worker, known.environment)})")

    def _note_refusals(self, known: _NeededEnvironment, refused: dict[str, tuple[str, str]]) -> None:
        known.refused = refused
        for bag in self._open_bags(known):
            bag.refused = known.remark()

    def _hold(self, known: _NeededEnvironment, why: str) -> None:
        for bag in self._open_bags(known):
            if not bag.held:
                self._state.to_hold.append((bag, f"{ALIKE} PCs cannot prepare its environment: {why}"))

    def _tell_scheduler(self, worker: WorkerSession, now: float) -> None:
        ready = frozenset(key for key, at in worker.environments.items() if at.state == "ready")
        self._state.scheduler.handle(ev.EnvironmentsReady(worker.name, ready), now)

    def joined(self, worker: WorkerSession, now: float) -> None:
        """A worker has introduced itself: it keeps what it had, and is told again what it is to have."""
        worker.told_environments = ()
        if worker.environments:
            self._tell_scheduler(worker, now)
        if self._known:
            self._look_at = 0.0

    # --- who prepares what -------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Ask workers to prepare what waiting tasks need, and to let go of what none needs."""
        if not self._known or now < self._look_at:
            return
        self._look_at = now + LOOK_S
        for key in [key for key, known in self._known.items() if not self._open_bags(known)]:
            del self._known[key]
            for worker in self._by_name.values():
                if worker.environments.pop(key, None) is not None:
                    self._tell_scheduler(worker, now)
        left = WORKERS_A_LOOK
        for key in self._in_turn():
            left -= len(self._by_peer)
            self._ask_for(key, self._known[key], now)
            self._turn += 1
            if left <= 0:
                break
        for worker in self._by_peer.values():
            self._tell(worker)

    def _in_turn(self) -> list[str]:
        keys = list(self._known)
        first = self._turn % len(keys) if keys else 0
        return keys[first:] + keys[:first]

    def _ask_for(self, key: str, known: _NeededEnvironment, now: float) -> None:
        grid = self._state.scheduler.grid
        bags = [grid.tasks.bags[bag.row.number] for bag in self._open_bags(known) if bag.row.number in grid.tasks.bags]
        categories = {bag.category: bag for bag in bags if len(bag.category)}
        queues = {bag.category: grid.gangs.queues[bag.category.key] for bag in bags if bag.category.parallel}
        jobs = [queue.jobs for queue in queues.values() if queue.waits]
        # Tasks for which there will be no slot at workers that have it; and for which there will be none soon.
        later = soon = math.inf if jobs else sum(map(len, categories))
        # The seconds that the shortest waiting task needs.
        shortest = [
            bag.needs_s(min(category.regular.shortest(), category.priority.shortest()))
            for category, bag in categories.items()
        ]
        shortest += [job.need.seconds(job.runtime, job.need.most) for each in jobs for job in each]
        least_s = least_required(grid.policy).needs(min(shortest, default=0.0))
        asked = 0
        for worker in self._by_peer.values() if soon else ():
            at = worker.environments.get(key)
            if at is not None and at.state != "failed" and worker.state == "up":
                asked += at.state == "asked"
                if fits(least_s, self._stays_s(worker, now)):  # else no slot of it is one for these tasks
                    later -= worker.join.slots
                    soon -= self._free_soon(known.environment, worker, now)
        if soon <= 0 or asked >= PREPARING_AT_ONCE:
            return
        free = {worker.name: self._free_soon(known.environment, worker, now) for worker in self._by_peer.values()}
        for worker in sorted(
            self._by_peer.values(), key=lambda worker: (not free[worker.name], -self._left_s(worker, now))
        ):
            if soon <= 0 or asked >= PREPARING_AT_ONCE or (later <= 0 and not free[worker.name]):
                return
            at = worker.environments.get(key)
            if at is not None and (at.state != "failed" or at.again_at > now):
                continue
            preparing_s = self.preparing_s(known.environment, worker)
            if preparing_s is None or not fits(preparing_s + least_s, self._left_s(worker, now)):
                continue
            if len(worker.environments) < wire.ENVIRONMENTS_LIMIT:
                worker.environments[key] = EnvironmentAt(times=0 if at is None else at.times)
                worker.told_environments = ()
                later -= worker.join.slots
                soon -= free[worker.name]
                asked += 1

    def _free_soon(self, environment: wire.Environment, worker: WorkerSession, now: float) -> float:
        """How many slots of a worker should be free by the time when it could have prepared an environment."""
        up = self._state.scheduler.grid.slots.workers.get(worker.name)
        if up is None:
            return 0.0
        until = now + (self.preparing_s(environment, worker) or 0.0)
        looked_at = up.slots[:SLOTS_LOOKED_AT]
        return sum([slot.free_at <= until for slot in looked_at]) * len(up.slots) / len(looked_at)

    def _stays_s(self, worker: WorkerSession, now: float) -> float:
        """How long a worker stays at a time: now, or in its longest window to come."""
        up = self._state.scheduler.grid.slots.workers.get(worker.name)
        return self._left_s(worker, now) if up is None else max(up.uptime(now), up.windows.longest_s)

    def _left_s(self, worker: WorkerSession, now: float) -> float:
        """How long a worker stays; less than 0 if it is not there."""
        up = self._state.scheduler.grid.slots.workers.get(worker.name)
        return -1.0 if up is None or worker.state != "up" else up.uptime(now)

    def preparing_s(self, environment: wire.Environment, worker: WorkerSession) -> float | None:
        """How long a worker should take to prepare an environment; None if there is no build for it."""
        found = _build_for(worker, environment)
        return None if found is None else ANYWAY_S + (found[1].size + found[1].unpacked) / self._bytes_per_s

    def without(self, bag: OpenBag) -> set[str]:
        """The workers for which the environment of a bag has no wheels; none if it has no environment."""
        its = bag.environment
        if its is None:
            return set()
        return {name for name, pc in self._by_name.items() if self.preparing_s(its, pc) is None}

    def prepares(self, name: str) -> tuple[Preparing, ...]:
        """How long a worker should take to prepare each environment, for a forecast; of one that is unknown nothing."""
        worker = self._by_name.get(name)
        return () if worker is None else tuple([self._preparing(key, worker) for key in self._known])

    def _preparing(self, key: str, worker: WorkerSession) -> Preparing:
        at, takes_s = worker.environments.get(key), self.preparing_s(self._known[key].environment, worker)
        if takes_s is not None and at is not None and at.state == "failed":
            takes_s += max(0.0, at.again_at - self._state.now)  # it is asked again then
        return Preparing(key, math.inf if takes_s is None else takes_s, at is not None and at.state == "ready")

    def _tell(self, worker: WorkerSession) -> None:
        """Tell a worker what it is to have, if that has changed."""
        if not worker.environments and not worker.told_environments:
            return
        wanted = tuple(self._wanted(worker))
        if wanted != worker.told_environments:
            worker.told_environments = wanted
            self._state.send(worker.peer, wire.Prepare(wanted))

    def _wanted(self, worker: WorkerSession) -> Iterator[wire.EnvironmentWanted]:
        for key, at in worker.environments.items():
            known = self._known.get(key)
            if known is None or at.state == "failed":
                continue
            found, bag = _build_for(worker, known.environment), next(iter(self._open_bags(known)), None)
            if found is not None and bag is not None:
                system, build = found
                yield wire.EnvironmentWanted(key, bag.row.id, build.tree, bag.row.owner, system.python)

    # --- for people --------------------------------------------------------------------------------------------------

    def explain(self, bag: OpenBag, needs_s: float, now: float) -> list[str]:
        """Say in sentences where the environment of a bag is ready, and where it is not, and why.

        ``needs_s``: how long one of its tasks needs a PC, in seconds.
        """
        if bag.environment is None or bag.environment_key not in self._known:
            return []
        groups: dict[str, list[str]] = {}
        ready, up = 0, [worker for worker in self._by_name.values() if worker.state == "up"]
        for worker in up:
            at = worker.environments.get(bag.environment_key)
            if at is not None and at.state == "ready":
                ready += 1
            else:
                groups.setdefault(self._why_not(bag.environment, worker, at, needs_s, now), []).append(worker.name)
        lines = [f"its environment {bag.environment.label} is ready on {ready} of {len(up)} PCs"]
        for why, names in sorted(groups.items()):
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            lines.append(f"on {', '.join(sorted(names)[:NAMED])}{more}: {why}")
        return lines

    def _why_not(
        self, environment: wire.Environment, worker: WorkerSession, at: EnvironmentAt | None, needs_s: float, now: float
    ) -> str:
        system = _system_of(worker, environment)
        takes_s = self.preparing_s(environment, worker)
        if takes_s is None:
            return f"it has no wheels for {system or 'this kind of PC'}"
        if at is None:
            left_s = self._left_s(worker, now)
            if fits(takes_s + needs_s, left_s):
                return "not there: it is prepared on other PCs first"
            stays = duration(max(0.0, left_s))
            return f"not there: preparing it takes about {duration(takes_s)}, and the PC stays for {stays}"
        if at.state == "asked":
            return f"being prepared, which takes about {duration(takes_s)} in all"
        return f"it cannot be prepared: {at.reason} ({system})"


def _build_for(worker: WorkerSession, environment: wire.Environment) -> tuple[wire.System, wire.Build] | None:
    """Return the build of an environment that a worker can use, and for which of its Pythons; None if there is none."""
    found = [(system, build) for system in worker.systems if (build := environment.build_for(system)) is not None]
    return found[0] if found else None


def _system_of(worker: WorkerSession, environment: wire.Environment) -> wire.System | None:
    """Return what sort of PC a worker is for an environment, or of itself; None: one without environments."""
    found = _build_for(worker, environment)
    return next(iter(worker.systems), None) if found is None else found[0]
