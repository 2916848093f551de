"""What must agree between the parts of the scheduler's state; each part's own `check` sees to the rest.

Everything is worked out again from nothing, at far more than the cost of a pass: for tests. Nothing is
repaired, and nothing changes.
"""

from collections.abc import Iterator

from deskgrid.scheduler.model import ENDED, State, agree
from deskgrid.scheduler.placing import Placing
from deskgrid.scheduler.queues.waiting import ORDERS
from deskgrid.scheduler.state.slots import NEVER


def check(scheduler: Placing, now: float) -> None:
    """Raise `InvariantBroken` where the state at ``now``, on the driver's clock, contradicts itself."""
    scheduler.tasks.check()
    agree("order of the priority queue", type(scheduler.priority), ORDERS[scheduler.policy.order])
    scheduler.regular.check()
    scheduler.priority.check()
    _check_places(scheduler)
    _check_predictions(scheduler)
    _check_attempts(scheduler)
    slots = scheduler.slots.slots
    scheduler.quarantine.check(slots.values(), scheduler.tasks.bags)
    agree("changed slots", {n: s for n, s in slots.items() if n in scheduler.dirty}, scheduler.dirty)
    settled = [slot for number, slot in slots.items() if number not in scheduler.dirty]
    scheduler.slots.check([slot for slot in settled if scheduler.has_room(slot)], now)
    for slot in settled:
        agree(f"slot {slot.number} holds back what it may send", bool(slot.queue) and scheduler.may_send(slot), False)
    for worker in scheduler.slots.workers.values():
        agree(
            f"slots of {worker.name}, which has answered",
            worker.heard == NEVER or worker.width >= len(worker.slots),
            True,
        )
    scheduler.deadlines.check(slots, settled, now)
    scheduler.pauses.check({task for task, state in scheduler.tasks.each() if state == State.PAUSED})


def _check_predictions(scheduler: Placing) -> None:
    rows = [*scheduler.regular.tasks(), *scheduler.priority.tasks()]
    for slot in scheduler.slots.slots.values():
        rows += [*slot.queue, *((sent.attempt.task, sent.runtime) for sent in slot.sent)]
    for task, runtime in rows:
        agree(f"prediction of task {task}", runtime, scheduler.tasks.runtime(task))


def _check_places(scheduler: Placing) -> None:
    """Each task is in the one place that its state says."""
    places: dict[int, list[object]] = {}
    for task, place in _contents(scheduler):
        places.setdefault(task, []).append(place)
    bound = set(scheduler.bound)
    for task, state in scheduler.tasks.each():
        agree(f"places of task {task}, {state.name}", places.pop(task, []), _places(scheduler, task, state))
        if state in (State.QUEUED, State.SENT):
            bound.remove(task)
    agree("places of unknown tasks", places, {})
    agree("bound tasks that are on no slot", bound, set())


def _contents(scheduler: Placing) -> Iterator[tuple[int, object]]:
    """Every task that is somewhere, and where."""
    yield from ((task, "regular") for task, _ in scheduler.regular.tasks())
    yield from ((task, "priority") for task, _ in scheduler.priority.tasks())
    for slot in scheduler.slots.slots.values():
        yield from ((task, (State.QUEUED, slot.number)) for task, _ in slot.queue)
        yield from ((sent.attempt.task, (State.SENT, slot.number)) for sent in slot.sent)


def _places(scheduler: Placing, task: int, state: State) -> list[object]:
    """Where a task should be, by its state."""
    if state == State.WAITING:
        return ["regular" if scheduler.regular.holds(task) else "priority"]
    if state in (State.QUEUED, State.SENT):
        agree(f"task {task}, {state.name}, is bound", task in scheduler.bound, True)
        return [(state, scheduler.bound[task].number)]
    return []


def _check_attempts(scheduler: Placing) -> None:
    """Attempts that may still be answered: of tasks that have not ended, each once, none from the future."""
    orphans = set(scheduler.orphans)
    for task, state in scheduler.tasks.each():
        if task in orphans:
            orphans.remove(task)
            agree(f"task {task}, {state.name}, awaits its last attempt", state in ENDED or state == State.SENT, False)
        else:
            agree(f"task {task}, {state.name}, awaits an attempt", state == State.HELD, False)
    agree("attempts of unknown tasks", orphans, set())
    at_workers = [sent.attempt.number for slot in scheduler.slots.slots.values() for sent in slot.sent]
    numbers = [*scheduler.orphans.values(), *at_workers]
    agree("attempt numbers", len(numbers), len(set(numbers)))
    agree("attempt numbers grow", scheduler.is_new(max(numbers, default=-1)), False)
