"""The part of a pass that places parallel tasks: it comes before single tasks, which get what is left.

Rule 1: the policy is asked only if a task waits, and something has changed or a task did not end when it should.
Rule 2: all slots of a gang are taken in one step. What the policy yields is tested again before that, because a policy
may be anybody's: a start that cannot be is left out, and its job with it, until the policy is asked again.
Rule 3: slots that are kept for a gang look to single tasks as if their windows closed when it is to start. This is done
only when a single task waits.
Rule 4: whoever has nothing on a slot comes first, then whoever has used least of the grid, with those of its bags that
have the highest priority; among all that are not more than a minute of the grid ahead, the job that came first.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from math import inf

from deskgrid.scheduler.commands import RankPlace, StartGang
from deskgrid.scheduler.fitting import Requirement, fits
from deskgrid.scheduler.model import Attempt, State
from deskgrid.scheduler.parallel.aside import RETRY_S, Asides, cost
from deskgrid.scheduler.parallel.base import Aside, Keep, ParallelJob, ParallelPolicy, RunningJob, Start
from deskgrid.scheduler.parallel.composed import default_policy
from deskgrid.scheduler.placing.gang_view import Bounds, ComingBySite, GangView
from deskgrid.scheduler.policies import parallel_policy
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.queues.shares import LEAD_S, GridShare
from deskgrid.scheduler.state.gangs import Machine, Reservation
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.jobs import JobQueue
from deskgrid.scheduler.state.slots import Gang, Slot
from deskgrid.scheduler.state.suitable import free_amounts

# When what is kept should have been needed already, and is not, the policy is asked again after so many seconds: what
# is late was expected at any moment, and may be no longer.
AGAIN_S = 60.0
# If several categories wait, a policy sees about so many jobs of all of them together, as many of each share, and at
# least so many of each category. So a submitter with many categories neither makes decisions longer nor hides others.
SEEN, SEEN_OF_EACH = 1_000, 10
# To ask a policy again takes as long as one start for so many of these jobs, and counts accordingly in a bounded pass.
JOBS_A_START = 100


class GangPlacing:
    """Places parallel tasks on ``grid``. ``settle``: has a slot indexed anew that has room."""

    def __init__(self, grid: SchedulerState, settle: Callable[[Slot, Requirement], int]) -> None:
        self._grid = grid
        self._table = grid.gangs
        self._settle = settle
        # `GridState.changes` when the policy was asked last, -1 if it has not been asked about all; and after that.
        self._asked = self._left = -1
        # When it is to be asked again although nothing has changed: what is kept should have been needed by then.
        self.due = inf
        # What it wants to be kept, and whether slots are kept accordingly.
        self._keeps: list[Keep] = []
        self._kept = True
        self._coming = ComingBySite(grid)
        self._bounds = Bounds(grid, self._coming)
        self._asides = Asides()
        self._policy: Policy | None = None
        self._parallel: ParallelPolicy = default_policy()

    # --- for single tasks --------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """A single task waits: slots that gangs left are indexed, and others are kept for gangs."""
        table = self._table
        if table.resting:
            resting, table.resting = table.resting, {}
            for slot in resting.values():
                if slot.rows is None:
                    self._settle(slot, self._grid.policy.requirement)
        if not self._kept:
            self._kept = True
            self._keep()

    def _keep(self) -> None:
        table, wanted = self._table, dict[int, tuple[Slot, float]]()
        for job, ranks, at in self._keeps:
            for host, many in ranks:
                if host.name in table.machines:
                    self._choose(table.machines[host.name], many * job.need.slots, at, wanted)
        for number, slot in table.kept.items():
            if number not in wanted:
                self._close(slot, slot.worker.ends_at)
        for slot, at in wanted.values():
            self._close(slot, min(at, slot.worker.ends_at))
        table.kept = {number: slot for number, (slot, _) in wanted.items()}

    def _choose(self, machine: Machine, slots: int, at: float, wanted: dict[int, tuple[Slot, float]]) -> None:
        """Choose slots of a worker that are kept: those that are free first."""
        rest = [slot for slot in machine.worker.slots if slot.number not in wanted]
        rest.sort(key=lambda slot: slot.free_at if slot.owes is None else inf)
        wanted.update({slot.number: (slot, at) for slot in rest[:slots]})

    def _close(self, slot: Slot, at: float) -> None:
        """For single tasks, ``slot`` closes ``at``."""
        if slot.closes == at:
            return
        grid = self._grid
        indexed = slot.rows is not None
        grid.slots.unindex(slot)
        slot.closes = at
        if not grid.policy.timed:
            self._settle(slot, grid.policy.requirement)  # it has room, or no longer
        elif indexed:
            grid.slots.index(slot, grid.now)

    # --- asking ------------------------------------------------------------------------------------------------------

    def decide(self) -> list[StartGang]:
        """Ask the policy, if there is a reason to. Returns what is to begin."""
        grid, table = self._grid, self._table
        changed = bool(table.touched) or grid.changes != self._asked or grid.now >= self.due
        if table.touched or grid.changes != self._left:
            self._asides.change()
        for name in table.touched:
            self._refresh(table.machines[name])
        table.touched.clear()
        self._fill()
        if not changed:
            return []
        if self._keeps:
            self._keeps, self._kept = [], False
        self._asides.rest = False
        starts: list[StartGang] = []
        while (queues := [queue for queue in table.queues.values() if queue.jobs and queue.category.open]) and (
            grid.budget > 0
        ):
            again = self._ask(queues, starts)
            if not (self._fill() or again):
                break
            grid.budget -= min(SEEN, sum([len(queue.jobs) for queue in queues])) // JOBS_A_START
        self.due = min([keep.at if keep.at > grid.now else grid.now + AGAIN_S for keep in self._keeps], default=inf)
        if self._asides.rest:
            self.due = min(self.due, grid.now + RETRY_S)
        kept, table.reserved = table.reserved, {}
        for keep in self._keeps:
            since = kept[keep.job.task].since if keep.job.task in kept else grid.now
            table.reserved[keep.job.task] = Reservation(keep.at, since)
        grid.changes += bool(starts)  # plans for single tasks no longer hold
        self._left = grid.changes
        self._asked = grid.changes if grid.budget > 0 else -1
        return starts

    def _fill(self) -> bool:
        """Make jobs of what may be able to start. Returns whether there are others than before."""
        made = [queue.fill(self._bounds.now()) for queue in self._table.queues.values() if queue.waits]
        return True in made

    def _refresh(self, machine: Machine) -> None:
        """Look at the slots of a worker."""
        grid, worker = self._grid, machine.worker
        free, others = list[Slot](), list[tuple[float, int]]()
        shut = grid.shuts_out_gangs(worker)
        for slot in worker.slots:
            if slot.gang is not None:
                continue
            if slot.sent or slot.queue:
                free_at = slot.free_at if slot.sent else grid.now + slot.queued_s / slot.speed
                others.append((min(free_at, worker.ends_at), 1))
            elif slot.owes is None and slot.position < worker.width and not shut:
                free.append(slot)
        until = grid.rests.shuts_until(worker.name, [ends for ends, _ in machine.gangs.values()]) if free else None
        if until is not None:
            others.append((min(until, worker.ends_at), len(free)))
            free = []
        self._table.refresh(machine, free, others, free_amounts(grid, worker))

    def _ask(self, queues: Sequence[JobQueue], starts: list[StartGang]) -> bool:
        """Ask about these tasks; whether to ask again, because it is somebody else's turn now."""
        grid, table, alone = self._grid, self._table, len(queues) == 1
        turns = {} if alone else self._turns(queues)
        most = {} if alone else _most(queues)
        waiting: Sequence[list[ParallelJob]] = [queues[0].jobs] if alone else _in_turn(turns, most)
        before, again = len(starts), False
        if grid.budget < inf:
            waiting = self._asides.to_ask(waiting)
        self._keeps, self._kept = [], False
        for step in self._policy_for().decide(GangView(grid, waiting, self._coming)):
            if isinstance(step, Aside):
                self._asides.put(step.jobs)
                grid.budget -= cost(job := step.jobs[0], len(table.machines))
                if grid.budget <= 0 or job.runtime > self._bounds.now(tight=True).longest(job.need):
                    return True
                continue
            again |= self._asides.back(step.job, self._queue_of(step.job).jobs)
            if isinstance(step, Keep):
                self._keeps.append(step)
                continue
            command = self._start(step)
            if command is None:
                continue
            starts.append(command)
            queue = self._queue_of(step.job)
            queue.fill(self._bounds.now())
            if grid.budget <= 0 or not queue.category.open:
                return True
            if waiting[0] is not queue.jobs:
                next(jobs for jobs in waiting if step.job in jobs).remove(step.job)
            if not alone and self._turns(queues) != turns:
                return True
        return (again and self._asides.rest) or (
            len(starts) > before and any(len(queue.jobs) >= seen for queue, seen in most.items())
        )

    def _policy_for(self) -> ParallelPolicy:
        policy = self._grid.policy
        if policy is not self._policy:
            self._policy = policy
            self._parallel = parallel_policy(policy)
        return self._parallel

    def _turns(self, queues: Sequence[JobQueue]) -> dict[JobQueue, tuple[bool, float, int]]:
        """When it is whose turn, the first the least: Rule 4."""
        grid = self._grid
        shares: dict[GridShare, tuple[bool, float]] = {
            share: share.turn(grid.now) for share in {queue.category.account.share for queue in queues}
        }
        served, least = min(shares.values())
        most = served, least + LEAD_S * len(grid.slots.slots)
        highest: dict[GridShare, int] = {}
        for queue in queues:
            share, priority = queue.category.account.share, queue.category.key.priority
            highest[share] = max(priority, highest.get(share, priority))
        return {
            queue: (
                *((served, 0.0) if (turn := shares[share := queue.category.account.share]) <= most else turn),
                highest[share] - queue.category.key.priority,
            )
            for queue in queues
        }

    def _queue_of(self, job: ParallelJob) -> JobQueue:
        return self._grid.jobs(self._grid.tasks.known(job.task).bag.category)

    # --- starting ----------------------------------------------------------------------------------------------------

    def _start(self, start: Start) -> StartGang | None:
        """Start a gang; None if it cannot be: then its job does not wait for the rest of this decision."""
        grid, table, (job, ranks, seconds, considered) = self._grid, self._table, start
        task, need = job.task, job.need
        bag = grid.tasks.known(task).bag
        queue = grid.jobs(bag.category)
        if bag.barred and grid.tasks.state(task) == State.WAITING:  # it was paused a moment ago
            queue.dequeue(task, 1)
            grid.tasks.move(task, State.BARRED)
            grid.budget -= 1
            return None
        if not self._can_be(start):
            grid.counters.unfit += 1
            return None
        queue.dequeue(task, 1)
        attempt = Attempt(task, grid.next_attempt)
        grid.next_attempt += 1
        grid.budget -= 1
        gang = Gang(attempt, bag, [], seconds, grid.now)
        gang.out_s = seconds * need.slots * sum([many for _, many in ranks])
        places: list[RankPlace] = []
        for host, many in ranks:
            self._take(gang, table.machines[host.name], many * need.slots)
            slots, width = [slot.position for slot in gang.slots[-many * need.slots :]], need.slots
            places += [
                RankPlace(host.name, tuple(slots[first : first + width])) for first in range(0, len(slots), width)
            ]
        gang.ranks = places
        table.running[task] = gang
        table.enter(gang, RunningJob(job, ranks[0][0].site, tuple(ranks), grid.now, grid.now + seconds))
        for host, _ in ranks if grid.quarantine.workers or grid.rests else ():
            self._refresh(table.machines[host.name])  # a worker that is tried gets nothing else
        bag.category.begin(1, gang.out_s, grid.now)
        grid.tasks.move(task, State.SENT)
        grid.counters.attempts += 1
        return StartGang(attempt, places, seconds, considered)

    def _can_be(self, start: Start) -> bool:
        """Whether the job waits, and may have these slots now: of PCs of one site that suit it for long enough."""
        job, ranks, seconds, _ = start
        need, machines = job.need, self._table.machines
        hosts = [host for host, _ in ranks]
        waits = self._grid.tasks.state(job.task) == State.WAITING and job.task not in self._table.running
        return (
            waits
            and need.least <= sum([many for _, many in ranks]) <= need.most
            and len(set(hosts)) == len(hosts)
            and len({host.site for host in hosts}) == 1
            and 0.0 <= seconds < inf
            and all(
                host.name in machines
                and machines[host.name].host is host
                and many >= 1
                and many * need.slots <= host.idle
                and host.labels >= need.labels
                and (need.amounts * many).within(host.amounts)
                and fits(seconds, host.closes - self._grid.now)
                for host, many in ranks
            )
        )

    def _take(self, gang: Gang, machine: Machine, count: int) -> None:
        """The gang gets so many free slots of a worker."""
        grid, host, resting = self._grid, machine.host, self._table.resting
        slots = machine.free[:count]
        del machine.free[:count]
        host.idle -= count
        host.site.idle -= count
        sent, now = gang.on(slots[0], grid.now), grid.now
        for slot in slots:
            if slot.copy is not None:
                grid.drop_copy(slot.copy.task)
            if slot.rows is not None:
                grid.slots.unindex(slot)
            else:
                resting.pop(slot.number, None)
            slot.gang = gang
            slot.started = now
            slot.sent.append(sent)
        gang.slots += slots
        grid.deadlines.watch(slots[0], now)


def _most(queues: Sequence[JobQueue]) -> dict[JobQueue, int]:
    """How many jobs of each queue a policy sees."""
    shares = Counter([queue.category.account.share for queue in queues])
    return {queue: max(SEEN // (len(shares) * shares[queue.category.account.share]), SEEN_OF_EACH) for queue in queues}


def _in_turn(turns: dict[JobQueue, tuple[bool, float, int]], most: dict[JobQueue, int]) -> list[list[ParallelJob]]:
    """The first jobs of several queues, ``most`` of each, by their turns, the first turn first."""
    found: dict[tuple[bool, float, int], list[ParallelJob]] = {turn: [] for turn in sorted(set(turns.values()))}
    for queue, turn in turns.items():
        found[turn] += _first(queue.jobs, most[queue])
    for jobs in found.values():
        jobs.sort(key=lambda job: job.task)
    return list(found.values())


def _first(jobs: list[ParallelJob], most: int) -> list[ParallelJob]:
    """The first ``most`` of these, and those before them that are aside: they take no place from others."""
    return jobs[: next(islice((place for place, job in enumerate(jobs, 1) if not job.aside), most - 1, None), None)]
