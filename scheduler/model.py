"""The values that all parts of the scheduler share. Times are seconds; instants are on the driver's own clock."""

import math
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

# The uptime of a worker that has no plan.
OPEN_ENDED = math.inf
# A worker announces the windows of one week, but at most so many, beside its current one.
WEEK_S, ANNOUNCED = 604_800.0, 64


class SchedulerError(Exception):
    """Root of the scheduler's errors: the driver did something impossible."""


class IllegalEvent(SchedulerError):
    """An event that contradicts what the scheduler knows. Nothing was changed."""


class UnknownPolicy(SchedulerError):
    """No policy has that name, or an option has a value that it does not accept."""


class UnknownOption(UnknownPolicy):
    """The policy has no option of that name."""


class InvariantBroken(SchedulerError):
    """The scheduler's state contradicts itself: a bug in the scheduler, whatever events it was given."""


class AttemptOutcome(IntEnum):
    """How an attempt ended, as its worker reported it."""

    DONE = 0
    ERROR = 1
    CRASH = 2
    TIMEOUT = 3
    PIECE = 4  # a checkpointable task stopped, and its checkpoint was kept: it waits again with less left
    NO_ROOM = 5  # its worker could not store what it needs: it waits again, and other workers are tried first
    NO_START = 6  # its worker could start no process for it: the same


class State(IntEnum):
    """Where a task is."""

    WAITING = 0  # in the regular or the priority queue
    BARRED = 1  # its bag is paused, or has to wait for another bag
    PAUSED = 2  # it has failed: it is tried again in a while (`Timer.PAUSE`), or on another worker (`elsewhere`)
    QUEUED = 3  # bound to a slot, held by the scheduler
    SENT = 4  # handed to the worker
    HELD = 5  # its attempt runs at a worker that this scheduler has not seen since it was restored
    DONE = 6
    FAILED = 7
    CANCELLED = 8


ENDED = frozenset({State.DONE, State.FAILED, State.CANCELLED})
# What may become of a task with an attempt: the attempt goes on or ends, or it fails and the task is tried again. That
# holds wherever the task is, because the attempt may be one that was given up for lost.
_ANSWERED = frozenset({State.WAITING, State.BARRED, State.PAUSED, State.SENT, *ENDED})
# What may become of a task, by where it is. Tests watch every change (see tests/scheduler/conftest.py). An answer that
# comes late may end a task wherever it is by then; a task that has ended stays so.
NEXT: dict[State, frozenset[State]] = {
    # A task whose category changes joins another queue. A restored one is held by the worker that has it.
    State.WAITING: frozenset(State),
    State.BARRED: _ANSWERED,
    State.PAUSED: _ANSWERED | {State.QUEUED},  # on another worker, behind what its slot runs
    State.QUEUED: _ANSWERED,
    State.SENT: _ANSWERED,  # an attempt may be replaced by its copy
    State.HELD: _ANSWERED,
    **dict.fromkeys(ENDED, frozenset[State]()),
}


class AttemptState(IntEnum):
    """Where a live attempt is: one that a slot has, or whose answer still counts."""

    QUEUED = 0  # its task is bound to a slot; it has no number before it is sent
    SENT = 1  # on its slot, handed to the worker: the first attempt of its task
    ALONE = 2  # the same, and its task gets no copy: one of two attempts has failed, and the other goes on
    COPY = 3  # on a slot that is idle otherwise: the second attempt of its task
    LOST = 4  # on no slot: taken back, or its worker is gone, or has not been seen since a restore


# What may become of an attempt. Each may also end. Tests watch every change.
NEXT_OF_ATTEMPT: dict[AttemptState, frozenset[AttemptState]] = {
    AttemptState.QUEUED: frozenset({AttemptState.SENT}),
    AttemptState.SENT: frozenset({AttemptState.ALONE, AttemptState.LOST}),
    AttemptState.ALONE: frozenset({AttemptState.ALONE, AttemptState.LOST}),
    AttemptState.COPY: frozenset({AttemptState.COPY, AttemptState.SENT, AttemptState.LOST}),
    AttemptState.LOST: frozenset({AttemptState.SENT, AttemptState.COPY}),
}


def checked_runtime(seconds: float) -> float:
    """``seconds`` when it can be a runtime; raises `IllegalEvent` for a negative, infinite or undefined one."""
    if not 0.0 <= seconds < math.inf:
        raise IllegalEvent(f"a runtime is a finite number of seconds from 0 up, not {seconds}")
    return seconds


class PlannedWindow(NamedTuple):
    """Planned time on the driver's clock: from ``opens`` to ``closes``."""

    opens: float
    closes: float

    @property
    def lasts(self) -> float:
        """Length in seconds."""
        return self.closes - self.opens


class Windows(tuple[PlannedWindow, ...]):
    """Windows of one worker, in order, as it announces them."""

    @cached_property
    def longest_s(self) -> float:
        """Seconds of the longest window, or 0.0. Cached, because some questions need it of all workers."""
        return max([window.lasts for window in self], default=0.0)

    @cached_property
    def period_s(self) -> float:
        """After how many seconds they come again (`deskgrid.scheduler.prediction.beyond`); 0.0: they do not."""
        if self and self[-1].closes == OPEN_ENDED:
            return 0.0
        return WEEK_S if len(self) < ANNOUNCED else self[-1].opens - self[-2].opens


class HabitualWindows(Windows):
    """The next two windows of a worker that announces none, as far apart as its last ones were."""

    @cached_property
    def period_s(self) -> float:
        return self[1].opens - self[0].opens


class UpcomingWindows(NamedTuple):
    """A worker, up or away, its number of slots, and its windows after the open one: announced, or by habit."""

    worker: str
    slots: int
    windows: Windows
    speed: float = 1.0


class Attempt(NamedTuple):
    """One execution of a task. Numbers grow over the life of a grid, so the newest attempt has the largest.

    A named tuple, like everything that exists once for each task: making and comparing it takes a third of the time.
    """

    task: int
    number: int


# Makes a named tuple of a tuple. For those that are made for each task, because it takes half the time of a call.
named = tuple.__new__

# --- invariants ---------------------------------------------------------------------------------------------

# A sum that is updated by adding and subtracting drifts from the sum computed at once. The drift is at most this
# fraction of the largest number in it.
DRIFT = 1e-9


def agree(what: str, kept: object, true: object) -> None:
    """Raise `InvariantBroken` unless the stored value equals the recomputed one."""
    if kept != true:
        raise InvariantBroken(f"{what}: {kept!r} is kept, {true!r} is true")


def near(what: str, kept: float, true: float, largest: float = 0.0) -> None:
    """`agree` for sums of seconds, which may drift. ``largest``: the largest that the sum may have been."""
    if not math.isclose(kept, true, rel_tol=DRIFT, abs_tol=1e-6 + DRIFT * largest):
        agree(what, kept, true)
