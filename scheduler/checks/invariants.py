"""Checks that the parts of the scheduler's state agree; each part's own `check` does the rest.

Everything is computed again from scratch, which costs far more than a pass: this is for tests. It repairs nothing, and
changes nothing.
"""

from collections import Counter
from collections.abc import Iterator

from deskgrid.scheduler.checks.gang_invariants import check_gangs
from deskgrid.scheduler.model import ENDED, Attempt, State, agree
from deskgrid.scheduler.placing.placing import Placing
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import NEVER, Slot


def check(grid: SchedulerState, placing: Placing, now: float) -> None:
    """Raise `InvariantBroken` if the state at ``now``, on the driver's clock, contradicts itself."""
    grid.tasks.check()
    agree("order of the priority queues", grid.categories.order, grid.policy.order)
    grid.categories.check()
    _check_places(grid)
    _check_predictions(grid)
    _check_attempts(grid)
    _check_copies(grid)
    slots = grid.slots.slots
    grid.quarantine.check(slots.values())
    grid.failures.check(grid.tasks.bags)
    moving = {number: bag for number, bag in grid.tasks.bags.items() if bag.moving}
    agree("bags that move", [number for number in moving if number not in grid.moving], [])
    grid.rests.check(grid.tasks.bags)
    queued = [task for slot in slots.values() for task, _ in slot.queue]
    grid.avoided.check(slots.values(), {task: grid.tasks.known(task).bag.category.key for task in queued})
    agree("changed slots", {n: s for n, s in slots.items() if n in grid.dirty}, grid.dirty)
    resting = grid.gangs.resting
    settled = [
        slot
        for number, slot in slots.items()
        if number not in grid.dirty and (number not in resting or slot.rows is not None)
    ]
    grid.slots.check([slot for slot in settled if placing.has_room(slot)], now)
    for slot in settled:
        agree(f"slot {slot.number} holds back what it may send", bool(slot.queue) and placing.may_send(slot), False)
    for worker in grid.slots.workers.values():
        agree(
            f"slots of {worker.name}, which has answered",
            worker.heard == NEVER or worker.width >= len(worker.slots),
            True,
        )
    grid.deadlines.check(slots, settled, now)
    paused = {task for task, state in grid.tasks.each() if state == State.PAUSED}
    grid.pauses.check(paused)
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
    doubtful = Counter[str]()
    for needs in grid.uncertain_licences.values():
        doubtful.update(dict(needs))
    grid.categories.check_counts(Counter(bag.category.key for bag in grid.tasks.bags.values()), out, doubtful)
    grid.shares.check(out_s)
    owing = {attempt for debts in (grid.deadlines.debts, grid.stopping) for owed in debts.values() for attempt in owed}
    agree("licences of attempts that nobody owes", set(grid.uncertain_licences) - owing, set())


def _check_predictions(grid: SchedulerState) -> None:
    rows = list(grid.categories.tasks())
    for slot in _ordinary(grid):
        rows += [*slot.queue, *((sent.attempt.task, sent.runtime) for sent in slot.sent)]
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
        yield from ((task, (State.QUEUED, slot.number)) for task, _ in slot.queue)
        yield from ((sent.attempt.task, (State.SENT, slot.number)) for sent in slot.sent)


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
        return [(state, grid.bound[task].number)]
    return []


def _check_attempts(grid: SchedulerState) -> None:
    """Attempts that may still be answered belong to tasks that have not ended; their numbers are unique and not new."""
    orphans = set(grid.orphans)
    orphans_at = set(orphans)
    for task, state in grid.tasks.each():
        if task in orphans:
            orphans.remove(task)
            agree(f"task {task}, {state.name}, awaits its last attempt", state in ENDED or state == State.SENT, False)
        else:
            agree(f"task {task}, {state.name}, awaits an attempt", state == State.HELD, False)
    agree("attempts of unknown tasks", orphans, set())
    at_workers = [sent.attempt.number for slot in _ordinary(grid) for sent in slot.sent]
    at_workers += [gang.attempt.number for task, gang in grid.gangs.running.items() if task not in orphans_at]
    numbers = [*grid.orphans.values(), *at_workers, *(copy.number for copy in grid.copies.values())]
    agree("attempt numbers", len(numbers), len(set(numbers)))
    agree("attempt numbers grow", max(numbers, default=-1) < grid.next_attempt, True)


def _check_copies(grid: SchedulerState) -> None:
    """A second attempt belongs to a task whose first attempt is at a worker, or awaited just like the second."""
    running = {slot.copy.attempt: slot for slot in grid.slots.slots.values() if slot.copy is not None}
    here = {Attempt(task, copy.number): copy.slot for task, copy in grid.copies.items() if copy.slot is not None}
    agree("copies on slots", running, here)
    for task, copy in grid.copies.items():
        sent = grid.tasks.state(task) == State.SENT
        agree(f"the first attempt of task {task}, which has a second", sent or (task in grid.orphans), True)
        agree(
            f"the copy of task {task}, whose first attempt is on no slot, is on a slot",
            not sent and copy.slot is not None,
            False,
        )
        agree(f"the bag of task {task} allows copies", grid.tasks.known(task).bag.copies, True)
