"""A scheduling pass: ask the policy, carry out its placements, and send the tasks that may be sent.

Rule 1: only slots that changed are looked at, and only tasks that could be placed.
Rule 2: fit is tested when a task is placed and again when it is sent, because time passes in between.
Rule 3: the work that a worker holds ahead is bounded in predicted seconds, so that little is lost with the worker.
Rule 4: a worker that has never answered gets one task for each slot, and nothing ahead. If it never answers, it
swallows little. If it works, it is busy from the start, and waits for one round trip.
Rule 5: a bounded pass stops when its budget is used up. Nothing is lost by that, and the next pass goes on.
Rule 6: what is left idle may run copies of running tasks (`copying`), which give way to other work.
Rule 7: parallel tasks come first (`gangs`).
"""

import math
from collections.abc import Iterator, Sequence

from deskgrid.scheduler.commands import Assign, Assignment, StartGang
from deskgrid.scheduler.fitting import ROUNDING, Requirement
from deskgrid.scheduler.handlers.separating import Separating, most_moved
from deskgrid.scheduler.model import Attempt, AttemptState, State, agree, named
from deskgrid.scheduler.placing.caution import Caution
from deskgrid.scheduler.placing.copying import Copying
from deskgrid.scheduler.placing.first import place_elsewhere, place_probes
from deskgrid.scheduler.placing.gangs import GangPlacing
from deskgrid.scheduler.placing.pieces import Pieces
from deskgrid.scheduler.placing.turns import CATEGORIES, PLANNED_RARE, PassTurns, RareWindowClaims, by_needs
from deskgrid.scheduler.placing.view import PolicyView
from deskgrid.scheduler.policies.base import Place, Postpone, ReportsPlan
from deskgrid.scheduler.policies.placement import tasks_of_rare_windows
from deskgrid.scheduler.queues.categories import Category
from deskgrid.scheduler.state.deadlines import GRACE_S
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import NEVER, UNSENT, LiveAttempt, Slot
from deskgrid.scheduler.state.suitable import only_suitable, promise
from deskgrid.scheduler.state.timers import Timer

# Predicted seconds of work that a worker may hold on one slot, the running task included. This is enough to hide a
# round trip. Tasks longer than this are never sent ahead.
AHEAD_S = 0.5
# The same limit in tasks, for tasks that are predicted to take no time at all.
AHEAD_TASKS = 2_000
# The same limit for all slots of a worker together. When it introduces itself again, it lists them in one message
# (`deskgrid.wire.limits.HELD_ROWS`), which must not hold up others for long.
WORKER_TASKS = 8_192

# Attempts that ended before a bounded pass, and that it replaces: a thousand slots that end tasks of no length would
# otherwise make it take a tenth of a second. The next pass replaces the others.
REPLACED = 500
# Runs of alike tasks that a bounded pass postpones: ten milliseconds or two. When the first PC comes, ten million tasks
# may have waited for it.
POSTPONED_RUNS = 2_500

# Looked up once: the name of a member is looked up slowly in Python 3.11.
_SENT, _QUEUED_ATTEMPT, _SENT_ATTEMPT = State.SENT, AttemptState.QUEUED, AttemptState.SENT
_new = object.__new__


class Placing:
    """Passes over ``grid`` (`place_all`). In between: whether another pass is due, and what a slot may take or send."""

    def __init__(self, grid: SchedulerState) -> None:
        self._grid = grid
        # `GridState.changes` as of the last pass.
        self._passed = -1
        # Whether the last pass left something to the next one: queues that were not tidy enough to be asked, or more
        # tasks to postpone than a bounded pass may.
        self._left_some = False
        self._postponable = math.inf
        self._claims = RareWindowClaims(grid)
        self._planned_claims = RareWindowClaims(grid, PLANNED_RARE)
        self._assigns: dict[str, Assign] = {}
        # Tasks that no longer fitted when they were to be sent. They wait here until the policy has finished. So the
        # policy always comes to an end, and its queue entries stay valid.
        self._unfit: list[int] = []
        self._caution = Caution(grid)
        self._pieces = Pieces(grid, self._hand, self._settle_slot)
        self.copying = Copying(grid)
        self.gangs = GangPlacing(grid, self._settle_slot)
        self.separating = Separating(grid)

    def place_all(self, now: float, most: float) -> list[Assign | StartGang]:
        """Decide what can be decided at ``now``. Returns the work for each worker. ``most``: as in `PassDue`."""
        grid = self._grid
        grid.now = now
        self._assigns = {}
        freed = min(grid.freed, REPLACED)
        grid.budget, grid.freed = most + freed, grid.freed - freed
        self._left_some, self._postponable = False, math.inf if most == math.inf else POSTPONED_RUNS
        for slot in grid.slots.overdue(now):
            grid.change(slot)
        if grid.quarantine.workers:
            for name in grid.quarantine.due(grid.slots.workers, now, alone=grid.is_alone()):
                grid.change_all(grid.slots.workers[name])
        if grid.moving:
            self.separating.go_on(most_moved(most))
        changed, grid.dirty = grid.dirty, {}
        self._caution.look_at(changed.values(), everywhere=grid.changes != self._passed)
        for slot in changed.values():
            self._settle_slot(slot, grid.policy.requirement)
        if self._unfit:
            self._give_back_unfit()
        starts: list[StartGang] = []
        if grid.gangs.awake:
            grid.gangs.touched.update([slot.worker.name for slot in changed.values()])
            starts = self.gangs.decide()
        categories = self._tidy()
        if grid.gangs.awake and (categories or grid.tasks.copied):
            self.gangs.make_room()
        if categories and grid.slots.with_room and grid.budget > 0:
            self._place(
                [category for category in categories if category.key.piece is None],
                [category for category in categories if category.key.piece is not None],
            )
        self._passed = grid.changes
        self._note_attempts()
        self.copying.due = math.inf
        if grid.tasks.copied and not self.unfinished:
            for original, place in self.copying.choose(now):
                self._copy(original, place)
        if grid.gangs.awake:
            grid.gangs.touched.update(self._assigns)
        return [*starts, *self._assigns.values()]

    def _place(self, categories: list[Category], pieces: list[Category]) -> None:
        """Place tasks of these categories; those in ``pieces`` are checkpointable, and no policy sees them."""
        if pieces:
            self._place_pieces(pieces, categories, longer=True)
        if categories and self._grid.slots.with_room and self._grid.budget > 0:
            for _ in self._caution.steps():
                self._take_turns(PassTurns(self._grid, [category for category in categories if len(category)]))
            if self._unfit:
                self._give_back_unfit()
        if pieces:
            self._place_pieces(pieces, categories, longer=False)

    def _place_pieces(self, pieces: Sequence[Category], categories: Sequence[Category], *, longer: bool) -> None:
        for alike in by_needs(pieces, self._grid):
            environment = alike[0].key.environment
            with only_suitable(self._grid, alike[0].key) as ready:
                if ready:
                    others = [category for category in categories if category.key.environment in ("", environment)]
                    self._pieces.place(alike, others, longer=longer)

    def _tidy(self) -> list[Category]:
        """Tidy the queues. Returns the categories that can be asked in this pass: in an unbounded one, all of them."""
        grid, found = self._grid, list[Category]()
        for category in list(grid.categories.waiting.values()):
            if not len(category):
                grid.categories.drop_empty(category)
                continue
            category.regular.tidy()
            while not (tidy := category.priority.tidy()) and grid.budget == math.inf:
                pass
            if tidy:
                found.append(category)
            self._left_some |= not tidy
        return found

    def _take_turns(self, turns: PassTurns) -> None:
        """Ask the policy for tasks of those whose turn it is, until no slot has room, or nothing more fits."""
        grid = self._grid
        if turns.contested and isinstance(grid.policy, ReportsPlan):
            self._postpone(Postpone(None), turns.categories)  # a plan may choose among everybody's tasks
        if turns.contested and grid.policy.timed and grid.categories.order == "longest-first":
            self._serve_claims(turns)
        while grid.slots.with_room and grid.budget > 0 and (categories := turns.choose()):
            if len(categories) > 1:
                categories = by_needs(categories, grid)[0]
            # A plan for all tasks of one person no longer holds when only some of them have their turn.
            grid.changes += not turns.contested and len(categories) < len(turns.categories)
            with only_suitable(grid, categories[0].key) as ready:
                more = ready and self._ask_about(categories, turns)
            if not more:
                turns.over(categories)

    def _ask_about(self, categories: list[Category], turns: PassTurns) -> bool:
        """Ask for tasks of these categories, first for those that failed elsewhere and for probes; False: no more."""
        grid = self._grid
        if any(category.elsewhere for category in categories) and self._ask(
            place_elsewhere(grid, categories), categories, turns
        ):
            return True
        if any(category.probing for category in categories) and self._ask(
            place_probes(grid, categories), categories, turns
        ):
            return True
        turn = turns.turn(categories, self._planned_claims.least()) if turns.contested else None
        return self._ask(grid.policy.plan(PolicyView(grid, categories, turns.categories, turn)), categories, turns)

    def _serve_claims(self, turns: PassTurns) -> None:
        """Place tasks that fit only rare windows, if one of these has room."""
        for categories in by_needs(turns.categories[:CATEGORIES], self._grid):
            with only_suitable(self._grid, categories[0].key) as ready:
                if ready:
                    self._serve_claims_of(categories, turns)

    def _serve_claims_of(self, categories: list[Category], turns: PassTurns) -> None:
        grid, requirement = self._grid, self._grid.policy.requirement
        least = self._claims.least()
        if least < PolicyView(grid, categories, categories).longest_fit(requirement):
            self._postpone(Postpone(None), categories)
            while self._ask(
                tasks_of_rare_windows(PolicyView(grid, categories, categories), requirement, least), categories, turns
            ):
                categories = [category for category in categories if category.open and len(category)]

    def _ask(self, steps: Iterator[Place | Postpone], categories: Sequence[Category], turns: PassTurns) -> bool:
        """Carry out what was decided on ``categories``; False if there is no more, True if a turn ended before."""
        for step in steps:
            if isinstance(step, Postpone):
                self._postpone(step, categories)
                continue
            category = self._carry_out(step)
            if category.restricted or not turns.alone:
                slot = self._grid.slots.slots[step.slot]
                if turns.placed(category, begun=bool(slot.sent) and not slot.queue):
                    return True
        return False

    def _note_attempts(self) -> None:
        """Note the tasks that were sent, once for the whole pass: nothing reads their states during the pass."""
        if not self._assigns:
            return
        grid = self._grid
        tasks = [assignment.attempt.task for assign in self._assigns.values() for assignment in assign.work]
        grid.counters.attempts += len(tasks)
        if grid.lost:
            grid.disown(tasks)
        grid.tasks.move_all(tasks, _SENT)

    @property
    def unsettled(self) -> bool:
        """Whether something has changed since the last pass."""
        return bool(self._grid.dirty) or self._grid.changes != self._passed or self.unfinished

    @property
    def unfinished(self) -> bool:
        """Whether the last pass was stopped by its bound; then the next one is due at once."""
        return self._grid.budget <= 0 or self._left_some or bool(self._grid.moving)

    # --- placing -----------------------------------------------------------------------------------------------------

    def _carry_out(self, place: Place) -> Category:
        """Carry out a placement, and return the category of its task."""
        grid, (entry, number, priority, requirement, many) = self._grid, place
        slot, task, runtime = grid.slots.slots[number], entry.task, entry.runtime
        bag = grid.tasks.known(task).bag
        category = bag.category
        if many > 1:
            # Tasks of a bag with a limit go to as many slots as it may have.
            many = 1 if category.restricted or category.amounts else self._how_many(slot, runtime, requirement, many)
        if priority is None and category.elsewhere.pop(task, None) is not None:
            grid.timers.drop(Timer.PAUSE, task)
        elif priority is None:
            category.discard(task, many)
        else:
            (category.priority if priority else category.regular).take(entry, many)
        tasks = range(task, task + many)
        if bag.barred:  # it was paused a moment ago
            grid.tasks.move_all(tasks, State.BARRED)
            grid.budget -= 1
            return category
        category.begin(many, runtime * many, grid.now)
        grid.slots.unindex(slot)
        for each in tasks:
            # Without a call of its constructor, which takes three times as long.
            live = _new(LiveAttempt)
            live.task, live.slot, live.runtime = each, slot, runtime
            live.number, live.at, live.state = UNSENT, 0.0, _QUEUED_ATTEMPT
            slot.queue.append(live)
            grid.bound[each] = live
        slot.queued_s += runtime * many
        if not self._settle_slot(slot, requirement):
            grid.budget -= 1
        if slot.queue:
            grid.tasks.move_all(tasks[-len(slot.queue) :], State.QUEUED)
        if category.amounts:
            promise(grid, slot.worker, task, category.amounts)
        return category

    def _how_many(self, slot: Slot, runtime: float, requirement: Requirement, most: int) -> int:
        """How many tasks of one runtime may be put on ``slot`` together, given that one may."""
        if slot.worker.heard == NEVER:
            return 1
        grid = self._grid
        most = min(most, AHEAD_TASKS - len(slot.queue))
        room_s = min(
            grid.policy.queue_s - slot.in_flight_s() - slot.queued_s,
            slot.left_s(grid.now) - requirement.needs(runtime) - 2 * ROUNDING,
        )
        if room_s <= 0.0:
            return 1
        return max(1, int(min(most, room_s / runtime)) if runtime else most)

    def _postpone(self, step: Postpone, categories: Sequence[Category]) -> None:
        """Postpone the regular tasks of ``categories`` that are before an entry, in the order of the categories."""
        grid, entry = self._grid, step.entry
        last = None if entry is None else grid.tasks.known(entry.task).bag.category
        for category in categories:
            before = entry if category is last else None
            rows = category.regular.pop_before(before, self._postponable)
            self._postponable -= len(rows.firsts)
            category.priority.add(rows)
            self._left_some |= len(category.regular) > 0 if before is None else category.regular.first_before(before)
            if category is last:
                return

    def _give_back_unfit(self) -> None:
        """Put the tasks that no longer fitted when their turn came into the priority queue."""
        tasks, self._unfit = self._unfit, []
        self._grid.counters.unfit += len(tasks)
        self._grid.to_priority(tasks)

    def _copy(self, original: Slot, place: Slot) -> None:
        """Start a copy of the attempt that ``original`` runs on ``place``. It replaces a copy that is lost."""
        grid, task = self._grid, original.sent[0].task
        grid.drop_copy(task)
        copy = LiveAttempt(task, place, 0.0, grid.next_attempt, state=AttemptState.COPY)
        grid.run_copy(copy, place, grid.now)
        grid.counters.copies += 1
        self._hand(place.worker.name, [Assignment(copy.attempt, place.position, copy.runtime)])

    # --- one slot ----------------------------------------------------------------------------------------------------

    def _settle_slot(self, slot: Slot, requirement: Requirement) -> int:
        """Send the tasks that may be sent and that fit; returns how many. Index the slot if it has room."""
        grid = self._grid
        handed = self._send(slot, requirement) if slot.queue else 0
        if slot.sent and slot.look_at > grid.now + GRACE_S:
            grid.deadlines.watch(slot, grid.now)
        if grid.tasks.copied and slot.sent:
            self.copying.watch(slot)
        if grid.budget <= 0 and slot.queue and self.may_send(slot):
            grid.dirty[slot.number] = slot  # the next pass goes on with it
        elif self.has_room(slot):
            grid.slots.index(slot, grid.now)
        return handed

    def has_room(self, slot: Slot) -> bool:
        """Whether the queue of ``slot`` may take one more task, however long."""
        grid = self._grid
        if slot.owes is not None or slot.position >= slot.worker.width:
            return False
        if (grid.drained or grid.paused or grid.quarantine.workers) and grid.shuts(slot):  # spares nearly all the call
            return False
        if not grid.policy.timed and slot.closes < slot.worker.ends_at:
            return False  # it is kept for a gang, and nobody asks whether a task ends before that
        sent, held = slot.sent, len(slot.queue)
        if not (sent or held) or (held < grid.policy.queue_length and slot.gang is None):
            return True
        if slot.worker.heard == NEVER or slot.gang is not None:
            return False
        in_flight_s = sent[0].runtime + slot.ahead_s if sent else 0.0
        return in_flight_s + slot.queued_s < grid.policy.queue_s and held < AHEAD_TASKS

    def may_send(self, slot: Slot) -> bool:
        """Whether the first task in the queue of ``slot`` may go to its worker now."""
        sent = slot.sent
        if not sent:
            return True
        if slot.worker.heard == NEVER:
            return False
        most = min(AHEAD_TASKS, WORKER_TASKS // len(slot.worker.slots))
        return sent[0].runtime + slot.ahead_s + slot.queue[0].runtime <= AHEAD_S and len(sent) < most

    def check(self, settled: Sequence[Slot], now: float) -> None:
        """Raise `InvariantBroken` unless these slots, which have not changed since a pass, are as it left them."""
        self._grid.slots.check([slot for slot in settled if self.has_room(slot)], now)
        for slot in settled:
            agree(f"slot {slot.number} holds back what it may send", bool(slot.queue) and self.may_send(slot), False)

    def _send(self, slot: Slot, requirement: Requirement) -> int:
        grid = self._grid
        handed: list[Assignment] = []
        if slot.copy is not None:
            grid.drop_copy(slot.copy.task)
        queue, sent, closes, speed, now = slot.queue, slot.sent, slot.closes, slot.speed, grid.now
        position, number, budget = slot.position, grid.next_attempt, grid.budget
        # ``needs``: computed once for consecutive tasks of one runtime. ``due``: when the running task should end.
        timed, alike, needs, due = grid.policy.timed, -1.0, 0.0, max(now, slot.due)
        while queue and len(handed) < budget and self.may_send(slot):
            live = queue[0]
            runtime = live.runtime
            if timed and runtime != alike:
                alike, needs = runtime, requirement.needs(runtime)
            if timed and not (closes - due) * speed - slot.ahead_s > needs:
                self._unfit.append(grid.unbind(live))
                continue
            queue.popleft()
            slot.queued_s -= runtime
            live.number, live.at, live.state = number + len(handed), now, _SENT_ATTEMPT
            attempt = named(Attempt, (live.task, live.number))
            handed.append(named(Assignment, (attempt, position, runtime)))
            if sent:
                slot.ahead_s += runtime
            else:
                slot.started, due = now, now + runtime / speed
            sent.append(live)
        if not queue:
            slot.queued_s = 0.0
        if handed:
            self._hand(slot.worker.name, handed)
        return len(handed)

    def _hand(self, name: str, work: list[Assignment]) -> None:
        """Hand ``work`` to a worker at the end of the pass."""
        assign = self._assigns.get(name)
        if assign is None:
            self._assigns[name] = Assign(name, work)
        else:
            assign.work += work
        grid = self._grid
        grid.budget -= len(work)
        grid.next_attempt += len(work)
