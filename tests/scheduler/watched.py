"""A scheduler that is checked after every event: its invariants, and that the work of each slot fits its window.

The second check needs a memory that the state does not have. A slot is excused, as long as it has work, once its
running task was overdue, or its window, a prediction or the policy changed after it got the work. A chance is
excused, too, and so are a copy that became the only attempt of its task, and a checkpointable task.
"""

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.model import OPEN_ENDED
from deskgrid.scheduler.policies import Policy
from deskgrid.scheduler.policies.packing import Packing
from deskgrid.scheduler.prediction.spread import narrow
from deskgrid.scheduler.state.slots import Slot

# Far more than sums of seconds are off by rounding, far less than any of them.
HAIR_S = 1e-5

CHANGES_PROMISES = (ev.UptimeRefreshed, ev.RuntimesUpdated, ev.BagPredicted, ev.PolicyChanged, ev.WorkerJoined)


class Watched:
    """Behaves as `Scheduler.handle`, and raises when anything is wrong with it."""

    def __init__(self, policy: Policy, first_attempt: int = 1) -> None:
        self.scheduler = Scheduler(policy, first_attempt)
        self._excused: set[int] = set()

    def handle(self, event: ev.Event, now: float) -> list[cmd.Command]:
        """Hand on ``event``, and look at everything afterwards."""
        slots = self.scheduler.grid.slots.slots
        self._excused |= {number for number, slot in slots.items() if slot.copy or (slot.sent and slot.due < now)}
        commands = self.scheduler.handle(event, now)
        self.scheduler.check(now)
        self._excused &= {number for number, slot in slots.items() if slot.sent or slot.queue}
        if isinstance(event, CHANGES_PROMISES):
            self._excused |= {number for number, slot in slots.items() if self._over_s(slot, now) > 0.0}
        if isinstance(event, ev.PassDue):
            self._check_pass(commands, now)
        return commands

    def _check_pass(self, commands: list[cmd.Command], now: float) -> None:
        assert self.scheduler.unfinished or not self.scheduler.grid.dirty, "a slot that changed was not looked at"
        assert all(due > now for due, _ in self.scheduler.grid.slots._due), "a slot that is overdue was not looked at"
        assert not any(isinstance(command, cmd.Settle) for command in commands), commands
        assigned = {work.attempt for command in commands if isinstance(command, cmd.Assign) for work in command.work}
        for slot in self.scheduler.grid.slots.slots.values():
            if slot.gang is not None:
                begun = [c.runtime for c in commands if isinstance(c, cmd.StartGang) and c.attempt == slot.gang.attempt]
                assert not begun or now + begun[0] <= slot.worker.ends_at, "a gang that a window is too short for"
                continue
            if self._takes_a_chance(slot) or self._is_piece(slot):
                continue
            if slot.number not in self._excused:
                over = self._over_s(slot, now)
                assert over < HAIR_S, f"{slot.worker.name} has promised {over} s more than it has"
            if slot.sent and slot.sent[-1].attempt in assigned and self.scheduler.policy.timed:
                ends = max(now, slot.due) + slot.ahead_s / slot.speed + self.scheduler.policy.requirement.margin
                assert ends < slot.worker.ends_at + HAIR_S, f"sent to {slot.worker.name}, which will be gone"

    def _takes_a_chance(self, slot: Slot) -> bool:
        bag = self.scheduler.grid.tasks.known(slot.sent[0].attempt.task).bag if slot.sent else None
        packs = isinstance(self.scheduler.policy, Packing)
        return packs and bag is not None and not narrow(bag.spread())

    def _is_piece(self, slot: Slot) -> bool:
        known = self.scheduler.grid.tasks.known
        return bool(slot.sent) and known(slot.sent[0].attempt.task).bag.piece is not None

    def _over_s(self, slot: Slot, now: float) -> float:
        """By how many seconds the work of ``slot`` is more than its window."""
        if not self.scheduler.policy.timed or not (slot.sent or slot.queue) or slot.worker.ends_at == OPEN_ENDED:
            return 0.0
        kept_s = slot.worker.ends_at - slot.closes
        return self.scheduler.policy.requirement.margin - (slot.remaining(now) + kept_s) * slot.speed
