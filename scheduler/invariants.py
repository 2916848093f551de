"""Checks that the parts of the scheduler's state agree; each part's own `check` does the rest.

Everything is computed again from scratch, which costs far more than a pass: this is for tests. It repairs nothing, and
changes nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from deskgrid.scheduler.model import ENDED, AttemptState, State, agree, near
from deskgrid.scheduler.need import NOTHING
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.gangs import Machine, host_of
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import NEVER, NOWHERE, UNSENT, Gang, Slot
from deskgrid.scheduler.state.suitable import free_amounts
from deskgrid.scheduler.state.timers import Timer


def check(grid: SchedulerState, left: Callable[[Sequence[Slot], float], None], now: float) -> None:
    """Raise `InvariantBroken` if the state at ``now``, on the driver's clock, contradicts itself.

    ``left``: checks how a pass has left slots that have not changed since.
    """
    grid.tasks.check()
    agree("order of the priority queues", grid.categories.order, grid.policy.order)
    grid.categories.check()
    _check_places(grid)
    _check_predictions(grid)
    _check_attempts(grid)
    _check_owed(grid)
    slots = grid.slots.slots
    grid.quarantine.check(slots.values())
    grid.failures.check(grid.tasks.bags)
    moving = {number: bag for number, bag in grid.tasks.bags.items() if bag.moving}
    agree("bags that move", [number for number in moving if number not in grid.moving], [])
    grid.rests.check(grid.tasks.bags)
    queued = [live.task for slot in slots.values() for live in slot.queue]
    grid.avoided.check(slots.values(), {task: grid.tasks.known(task).bag.category.key for task in queued})
    agree("changed slots", {n: s for n, s in slots.items() if n in grid.dirty}, grid.dirty)
    resting = grid.gangs.resting
    settled = [
        slot
        for number, slot in slots.items()
        if number not in grid.dirty and (number not in resting or slot.rows is not None)
    ]
    left(settled, now)
    for worker in grid.slots.workers.values():
        agree(
            f"slots of {worker.name}, which has answered",
            worker.heard == NEVER or worker.width >= len(worker.slots),
            True,
        )
    grid.deadlines.check(slots, [slot for slot in settled if not grid.is_stopped(slot)], now)
    up = grid.slots.workers.keys()
    agree("paused or drained workers that are not up", (grid.paused.keys() | grid.drained) - up, set())
    queues = [slot.number for slot in slots.values() if slot.queue and grid.shut(slot.worker) in ("drained", "paused")]
    agree("slots of paused or drained workers with queued work", queues, [])
    paused = {task for task, state in grid.tasks.each() if state == State.PAUSED}
    grid.timers.check()
    agree("tasks that pause", set(grid.timers.at[Timer.PAUSE]), paused)
    for key, category in grid.categories.by_key.items():
        its = [task for task in category.elsewhere if grid.tasks.known(task).bag.category is category]
        agree(f"tasks of {key} that wait for another worker", its, list(category.elsewhere))
        agree(f"tasks of {key} that wait for another worker and do not pause", set(its) - paused, set())
    _check_accounts(grid)
    check_gangs(grid)


def _check_accounts(grid: SchedulerState) -> None:
    """Each category has its bags, and each account is charged for what is on slots or held."""
    out, out_s = Counter[CategoryKey](), dict[str, float]()
    for task, state in grid.tasks.each():
        if state in (State.QUEUED, State.SENT, State.HELD):
            key = grid.tasks.known(task).bag.category.key
            out[key] += 1
            gang = grid.gangs.running.get(task)
            charged = 0.0 if gang is None else gang.out_s
            charged = grid.tasks.runtime(task) if task in grid.bound else charged
            out_s[key.owner] = out_s.get(key.owner, 0.0) + charged
    waiting = Counter[str]()
    for owed in grid.owed.values():
        for _, licences in owed.values():
            waiting.update(dict(licences))
    grid.categories.check_counts(Counter(bag.category.key for bag in grid.tasks.bags.values()), out, waiting)
    grid.shares.check(out_s)


def _check_owed(grid: SchedulerState) -> None:
    """A slot that owes an answer has no work, and somebody waits for each answer that is owed."""
    slots = grid.slots.slots.values()
    waits = {(name, at): slot for name, owed in grid.owed.items() for at, (slot, _) in owed.items() if slot is not None}
    agree("slots that owe an answer", waits, {(s.worker.name, s.owes): s for s in slots if s.owes is not None})
    for slot in waits.values():
        agree(f"work on slot {slot.number}, which owes an answer", [*slot.sent, *slot.queue], [])
    agree("workers that owe nothing", [name for name, owed in grid.owed.items() if not owed], [])
    nothing = [at for owed in grid.owed.values() for at, each in owed.items() if each == (None, ())]
    agree("answers that nothing waits for", nothing, [])


def _check_predictions(grid: SchedulerState) -> None:
    rows = list(grid.categories.tasks())
    for slot in _ordinary(grid):
        rows += [(live.task, live.runtime) for live in (*slot.queue, *slot.sent)]
    for task, runtime in rows:
        agree(f"prediction of task {task}", runtime, grid.tasks.runtime(task))


def _check_places(grid: SchedulerState) -> None:
    """Each task is in the one place that its state says."""
    places: dict[int, list[object]] = {}
    for task, place in _contents(grid):
        places.setdefault(task, []).append(place)
    bound = set(grid.bound)
    for task, state in grid.tasks.each():
        agree(f"places of task {task}, {state.name}", places.pop(task, []), _places(grid, task, state))
        if state in (State.QUEUED, State.SENT) and task not in grid.gangs.running:
            bound.remove(task)
    agree("places of unknown tasks", places, {})
    agree("bound tasks that are on no slot", bound, set())


def _contents(grid: SchedulerState) -> Iterator[tuple[int, object]]:
    """Every task that is somewhere, and where."""
    for key, category in grid.categories.waiting.items():
        yield from ((task, ("regular", key)) for task, _ in category.regular.tasks())
        yield from ((task, ("priority", key)) for task, _ in category.priority.tasks())
    for slot in _ordinary(grid):
        yield from ((live.task, (State.QUEUED, slot.number)) for live in slot.queue)
        yield from ((live.task, (State.SENT, slot.number)) for live in slot.sent)


def _ordinary(grid: SchedulerState) -> list[Slot]:
    """The slots that no gang has."""
    return [slot for slot in grid.slots.slots.values() if slot.gang is None]


def _places(grid: SchedulerState, task: int, state: State) -> list[object]:
    """Where a task should be, by its state."""
    if grid.tasks.known(task).bag.category.parallel:
        agree(
            f"task {task}, {state.name}, has a gang",
            state == State.SENT,
            task in grid.gangs.running and state != State.HELD,
        )
        return []
    if state == State.WAITING:
        category = grid.tasks.known(task).bag.category
        return [("regular" if category.regular.holds(task) else "priority", category.key)]
    if state in (State.QUEUED, State.SENT):
        agree(f"task {task}, {state.name}, is bound", task in grid.bound, True)
        return [(state, grid.bound[task].slot.number)]
    return []


# The states of attempts, by the table that has them.
_BOUND = frozenset({AttemptState.QUEUED, AttemptState.SENT, AttemptState.ALONE})
_SECOND = frozenset({AttemptState.COPY, AttemptState.LOST})


def _check_attempts(grid: SchedulerState) -> None:
    """Live attempts are where they say, as the states of their tasks do; their numbers are unique and not new."""
    slots = grid.slots.slots.values()
    on_slots = [(live, slot) for slot in _ordinary(grid) for live in (*slot.queue, *slot.sent)]
    agree("attempts on slots", {live.task: live for live, _ in on_slots}, grid.bound)
    copies = [(slot.copy, slot) for slot in slots if slot.copy is not None]
    here = {copy for copy in grid.copies.values() if copy.slot is not NOWHERE}
    agree("copies on slots", {copy for copy, _ in copies}, here)
    for live, slot in (*on_slots, *copies):
        agree(f"the slot of the attempt of task {live.task}", live.slot, slot)
    for table, states in ((grid.bound, _BOUND), (grid.copies, _SECOND), (grid.lost, {AttemptState.LOST})):
        for task, live in table.items():
            agree(f"the attempt of task {task}, {live.state.name}", (live.task, live.state in states), (task, True))
            lost = live.state == AttemptState.LOST
            agree(f"the attempt of task {task}, {live.state.name}, is on a slot", live.slot is NOWHERE, lost)
            agree(f"the attempt of task {task} has a number", live.number != UNSENT, live.state != AttemptState.QUEUED)
    _check_tasks_of_attempts(grid)
    live_ones = [*grid.bound.values(), *grid.lost.values(), *grid.copies.values()]
    numbers = [live.number for live in live_ones if live.number != UNSENT]
    numbers += [gang.attempt.number for task, gang in grid.gangs.running.items() if task not in grid.lost]
    agree("attempt numbers", len(numbers), len(set(numbers)))
    agree("attempt numbers grow", max(numbers, default=-1) < grid.next_attempt, True)


def _check_tasks_of_attempts(grid: SchedulerState) -> None:
    """The first attempt of a task that is at a worker is not lost; of one that is held, it is. Copies are second."""
    lost = set(grid.lost)
    for task, state in grid.tasks.each():
        if task in lost:
            lost.remove(task)
            agree(f"task {task}, {state.name}, awaits its last attempt", state in ENDED or state == State.SENT, False)
        else:
            agree(f"task {task}, {state.name}, awaits an attempt", state == State.HELD, False)
    agree("attempts of unknown tasks", lost, set())
    for task, copy in grid.copies.items():
        sent = grid.tasks.state(task) == State.SENT
        agree(f"the first attempt of task {task}, which has a second", sent or task in grid.lost, True)
        alone = not sent and copy.state == AttemptState.COPY
        agree(f"the copy of task {task}, whose first attempt is on no slot, is on a slot", alone, False)
        agree(f"the bag of task {task} allows copies", grid.tasks.known(task).bag.copies, True)


# --- parallel tasks ---------------------------------------------------------------------------------------------------
def check_gangs(grid: SchedulerState) -> None:
    """Raise `InvariantBroken` if gangs, waiting parallel tasks, sites or PCs are not what they should be."""
    table = grid.gangs
    parallel = [category for category in grid.categories.by_key.values() if category.parallel]
    agree("parallel tasks are looked after", table.awake or not parallel, True)
    agree("gangs of slots", {slot.gang for slot in _taken(grid)} - set(table.running.values()), set())
    for gang in table.running.values():
        _check_gang(grid, gang)
    waiting: dict[CategoryKey, list[int]] = {}
    for task, state in grid.tasks.each():
        if state == State.WAITING and (category := grid.tasks.known(task).bag.category).parallel:
            waiting.setdefault(category.key, []).append(task)
    for key, tasks in waiting.items():
        agree(f"whether tasks of {key} wait", key in table.queues, True)
        agree(f"tasks of {key} that wait", bool(tasks), True)
    for key, queue in table.queues.items():
        queue.check(waiting.get(key, []))
    if table.awake:
        _check_machines(grid)
    _check_kept(grid)


def _taken(grid: SchedulerState) -> Iterator[Slot]:
    return (slot for slot in grid.slots.slots.values() if slot.gang is not None)


def _check_gang(grid: SchedulerState, gang: Gang) -> None:
    """A gang is whole: it has all its slots, and nothing else is there. Or it is awaited since a restart."""
    task, number = gang.attempt
    state = grid.tasks.state(task)
    has = [slot for slot in _taken(grid) if slot.gang is gang]
    agree(f"slots of the gang of task {task}", sorted(slot.number for slot in gang.slots), [s.number for s in has])
    for slot in has:
        agree(f"attempts on slot {slot.number}", [sent.attempt for sent in slot.sent], [gang.attempt])
        near(f"seconds of a gang on slot {slot.number}", slot.sent[0].runtime, gang.seconds * slot.speed)
        agree(f"gang on slot {slot.number} began", slot.started >= gang.since, True)
    agree(f"ranks of task {task} that are back, and over", gang.back.keys() & gang.over, set())
    if state == State.HELD:
        agree(
            f"the gang of task {task}, which is awaited",
            (gang.running, task in grid.lost and grid.lost[task].number),
            (None, number),
        )
        back = [slot for _, row in sorted(gang.back.items()) for slot in row]
        agree(f"ranks of task {task} that are back", back, gang.slots)
        return
    agree(f"state of task {task}, which has a gang", state, State.SENT)
    assert gang.running is not None  # between two events it never is
    need, running = gang.bag.need, gang.running
    agree(f"ranks of task {task}", need.least <= gang.size <= need.most, True)
    agree(f"task {task} has ranks that have not ended", bool(gang.ranks), True)
    places = [(slot.worker.name, slot.position) for slot in gang.slots]
    ranks = [(place.worker, position) for place in gang.ranks for position in place.slots]
    agree(f"places of the ranks of task {task}", ranks, places)
    agree(f"slots of each rank of task {task}", {len(place.slots) for place in gang.ranks}, {need.slots})
    agree(f"sites of task {task}", {host.site for host, _ in running.ranks}, {running.site})
    for host, many in running.ranks:
        agree(f"ranks of task {task} on {host.name}", many, [place.worker for place in gang.ranks].count(host.name))
    agree(f"task {task} is among those that run at its site", running.site.running.count(running), 1)
    near(f"seconds of task {task}", running.ends - running.started, gang.seconds, largest=running.ends)
    near(f"what task {task} is charged", gang.out_s, gang.seconds * len(gang.slots))


def _check_machines(grid: SchedulerState) -> None:
    """Hosts are what their workers are, and the sums of sites match those of their hosts."""
    table = grid.gangs
    agree("machines", {name: machine.worker for name, machine in table.machines.items()}, grid.slots.workers)
    hosts = [host for site in table.sites for host in site.hosts]
    agree("hosts", {id(host) for host in hosts}, {id(machine.host) for machine in table.machines.values()})
    agree("sites by name", [site.name for site in table.sites], sorted(site.name for site in table.sites))
    for site in table.sites:
        agree(f"slots of site {site.name}", site.slots, sum(host.slots for host in site.hosts))
        agree(f"idle slots of site {site.name}", site.idle, sum(host.idle for host in site.hosts))
        ends = [running.ends for running in site.running]
        agree(f"what runs at site {site.name}, by ends", ends, sorted(ends))
        here = {gang.running for gang in table.running.values() if gang.running and gang.running.site is site}
        agree(f"what runs at site {site.name}", set(site.running), here)
    for name, machine in table.machines.items():
        _check_machine(grid, name, machine)


def _check_machine(grid: SchedulerState, name: str, machine: Machine) -> None:
    table, worker, host = grid.gangs, machine.worker, machine.host
    whole = {task: gang for task, gang in table.running.items() if gang.running is not None}
    has = {task: sum(slot.worker is worker for slot in gang.slots) for task, gang in whole.items()}
    agree(f"gangs on {name}", {t: many for t, (_, many) in machine.gangs.items()}, {t: n for t, n in has.items() if n})
    needs = sum([g.bag.need.amounts * (has[task] // g.bag.need.slots) for task, g in whole.items()], start=NOTHING)
    agree(f"amounts of gangs on {name}", machine.occupied, needs)
    agree(
        f"more of {name} is promised than there is",
        any(amount < 0 for _, amount in free_amounts(grid, worker).by_name),
        False,
    )
    if name in table.touched or any(slot.number in grid.dirty for slot in worker.slots):
        return
    free = [
        slot.position
        for slot in worker.slots
        if not (slot.sent or slot.queue) and slot.owes is None and slot.position < worker.width
    ]
    rests = grid.rests.shuts_until(name, [ends for ends, _ in machine.gangs.values()]) is not None
    free = [] if rests or grid.shuts_out_gangs(worker) else free
    agree(f"idle slots of {name}", sorted(slot.position for slot in machine.free), free)
    agree(f"how many slots of {name} are idle", host.idle, len(free))
    agree(f"amounts of {name}", host.amounts, free_amounts(grid, worker))
    agree(f"ends on {name}", host.frees, sorted(host.frees))
    true = host_of(worker, host.site, len(worker.slots))
    kept = (host.slots, host.closes, host.speed, host.load, host.labels)
    agree(f"host {name}", kept, (true.slots, true.closes, true.speed, true.load, true.labels))


def _check_kept(grid: SchedulerState) -> None:
    """Slots that are not kept close with their workers."""
    kept = grid.gangs.kept
    for number, slot in grid.slots.slots.items():
        agree(f"slot {number} is kept", slot.closes < slot.worker.ends_at and number not in kept, False)
    agree("kept slots", {number: slot for number, slot in kept.items() if grid.slots.slots.get(number) is not slot}, {})
