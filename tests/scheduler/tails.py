"""Grids with a running task that gets a copy."""

import math
from typing import Any

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import OPEN_ENDED, Attempt, AttemptOutcome
from deskgrid.scheduler.placing.copying import BEHIND
from tests.scheduler.builders import Grid, pgs

RUNTIME = 100.0
# A copy is due this long after its original began.
DUE_S = BEHIND * RUNTIME


class Tail(Grid):
    """A grid with events of copies. ``attempts`` has the newest attempt of each task, ``originals`` those before."""

    def decide(self, most: float = math.inf) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """A pass; which tasks each worker has to stop, and which it is handed."""
        stopped: dict[str, list[int]] = {}
        handed: dict[str, list[int]] = {}
        for command in self.tell(ev.PassDue(most)):
            if isinstance(command, cmd.Stop):
                stopped.setdefault(command.worker, []).extend(attempt.task for attempt in command.attempts)
            elif isinstance(command, cmd.Assign):
                for work in command.work:
                    self.attempts[work.attempt.task] = work.attempt
                    handed.setdefault(command.worker, []).append(work.attempt.task)
        return stopped, handed

    def ends(
        self, attempt: Attempt, outcome: AttemptOutcome = AttemptOutcome.DONE, worker: str = "?"
    ) -> list[cmd.Command]:
        """An attempt ends."""
        return self.tell(ev.AttemptsEnded(worker, [ev.EndedAttempt(attempt, outcome, 1.0)]))


def running(*pcs: str, policy: Any = None, task: float = RUNTIME, uptime: float = OPEN_ENDED, **more: Any) -> Tail:
    """The task 0 of a bag with copies runs on ``a``; then the PCs ``pcs`` join, and are idle."""
    grid = Tail(policy or pgs())
    grid.pc("a")
    grid.tasks(task, copies=True, **more)
    assert grid.decide() == ({}, {"a": [0]})
    for pc in pcs:
        grid.pc(pc, uptime)
    return grid


def copied(**more: Any) -> tuple[Tail, Attempt, Attempt]:
    """The task 0 runs on ``a``, and a copy of it on ``b``. Also the two attempts."""
    grid = running("b", **more)
    original = grid.attempts[0]
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {"b": [0]})
    return grid, original, grid.attempts[0]


def stop(worker: str, *attempts: Attempt) -> cmd.Stop:
    return cmd.Stop(worker, list(attempts))
