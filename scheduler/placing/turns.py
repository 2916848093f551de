"""Whose turn it is in a pass: the categories from which the policy may choose, one choice after the other.

Rule 1: whoever has nothing running, and has not had a slot just now, comes first. Then everybody who is not more than a
minute of the whole grid ahead of the one who has used least has a turn. The policy chooses freely among their tasks.
Rule 2: of each share, only the categories of the highest priority have a turn.
Rule 3: a category from which the policy took nothing more has had its turn in this pass, and the next ones follow. So
no slot stays idle because of this.
Rule 4: a task that fits only rare windows has its turn first, whoever it belongs to (`RareWindowClaims`).
Rule 5: a plan for everybody's tasks may put others first, within limits (`deskgrid.scheduler.policies.planning.turn`).
With a single category, which is the usual case, there is one turn, and nothing is computed.
"""

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.policies.planning.turn import Turn
from deskgrid.scheduler.queues.categories import Category, CategoryKey
from deskgrid.scheduler.queues.shares import LEAD_S, PLANNED_LEAD_S, GridShare
from deskgrid.scheduler.queues.waiting import ReadableQueue
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.suitable import scarce

# The most categories in one turn: a policy asks each of them for every task that it places.
CATEGORIES = 32
# A window is rare if at most this fraction of all slots ever has one as long.
RARE = 0.1
# The same for tasks that have their turn first only in the window that a plan has for them.
PLANNED_RARE = 0.3
# With more slots than this, a share with a task on a slot is taken to have one running: to look at all takes a
# millisecond or two.
SLOTS = 1_000
# The longest windows of all workers are looked at this often. Seconds.
LOOK_S = 10.0


@dataclass(slots=True, eq=False)
class _WaitingShare:
    """A share with categories that have not had their turn, the highest priority last.

    ``turn``: whether it has anything running, and its standing; the least comes first.
    """

    share: GridShare
    turn: tuple[bool, float]
    categories: list[Category] = field(default_factory=list)

    def top(self) -> list[Category]:
        """Its categories of the highest priority."""
        highest = self.categories[-1].key.priority
        return [category for category in self.categories if category.key.priority == highest]


class PassTurns:
    """The turns of one pass among ``categories``, which have waiting tasks. ``alone``: there is one, or none."""

    def __init__(self, grid: SchedulerState, categories: Sequence[Category]) -> None:
        self._grid = grid
        self.categories = [category for category in categories if category.open]
        self.alone = len(self.categories) < 2
        self._contenders: list[_WaitingShare] = []
        self._of: dict[GridShare, _WaitingShare] = {}
        self._most = True, math.inf
        if not self.alone:
            self._line_up()

    def _line_up(self) -> None:
        shares = {category.account.share for category in self.categories}
        looks = len(shares) > 1 and len(self._grid.slots.slots) <= SLOTS
        running = self._running() if looks else None
        for category in sorted(self.categories, key=lambda category: category.key.priority):
            share = category.account.share
            if share not in self._of:
                served = None if running is None else share in running
                self._of[share] = _WaitingShare(share, share.turn(self._grid.now, served))
            self._of[share].categories.append(category)
        self._contenders = sorted(self._of.values(), key=_turn)

    def _running(self) -> set[GridShare]:
        """The shares that have a task running: not only one that waits on a slot behind those of others."""
        known = self._grid.tasks.known
        tasks = [slot.sent[0].task for slot in self._grid.slots.slots.values() if slot.sent]
        return {known(task).bag.category.account.share for task in tasks}

    @property
    def contested(self) -> bool:
        """Whether tasks of several shares wait."""
        return len(self._of) > 1

    def choose(self) -> list[Category]:
        """The categories whose turn it is, those who have used least first; none if all have had their turn."""
        if self.alone:
            return self.categories
        if not self._contenders:
            return []
        served, least = self._contenders[0].turn
        self._most = served, least + LEAD_S * len(self._grid.slots.slots)
        chosen: list[Category] = []
        for contender in self._contenders:
            if contender.turn > self._most or len(chosen) >= CATEGORIES:
                break
            chosen += contender.top()
        return chosen[:CATEGORIES]

    def turn(self, categories: Sequence[Category], rare: float) -> Turn:
        """What a plan may choose when ``categories`` have their turn, if it is contested. ``rare``: as in `Turn`."""
        served, least = self._contenders[0].turn
        needs = _needs(categories[0], self._grid)
        # Who has nothing on a slot waits for nobody's plan.
        most = served, least + (PLANNED_LEAD_S * len(self._grid.slots.slots) if served else 0.0)
        near, others = list[ReadableQueue](), list[ReadableQueue]()
        for contender in self._contenders:
            for category in contender.top():
                if category not in categories and _needs(category, self._grid) == needs:
                    (near if contender.turn <= most else others).append(category.priority)
        return Turn([category.priority for category in categories], near, others, rare if served else math.inf)

    def placed(self, category: Category, *, begun: bool) -> bool:
        """Tasks of ``category`` were placed, and have ``begun`` or not. Whether somebody else may have a turn now."""
        done = not category.open
        if self.alone:
            if done:
                self.categories = []
            return done
        contender = self._of[category.account.share]
        self._contenders.remove(contender)
        contender.turn = contender.turn[0] or begun, contender.share.standing(self._grid.now)
        insort(self._contenders, contender, key=_turn)
        shut = [category] if done or not len(category) else []
        if category.key.licences:  # others need them, too
            waiting = [other for each in self._contenders for other in each.categories]
            shut = [other for other in waiting if not (other.open and len(other))]
        self.over(shut)
        return bool(shut) or contender.turn > self._most

    def over(self, categories: Sequence[Category]) -> None:
        """The policy takes no more tasks of these categories in this pass."""
        if self.alone:
            self.categories = []
            return
        for category in categories:
            contender = self._of[category.account.share]
            contender.categories.remove(category)
            if not contender.categories:
                self._contenders.remove(contender)


def _turn(contender: _WaitingShare) -> tuple[bool, float]:
    return contender.turn


def by_needs(categories: Sequence[Category], grid: SchedulerState) -> list[list[Category]]:
    """Categories that need the same of PCs together, and first those whose next task is the longest."""
    found: dict[tuple[str, Need | None, CategoryKey | None], list[Category]] = {}
    for category in categories:
        found.setdefault(_needs(category, grid), []).append(category)
    if len(found) < 2:
        return list(found.values())
    return sorted(found.values(), key=lambda alike: max(map(_longest, alike)), reverse=True)


def _needs(category: Category, grid: SchedulerState) -> tuple[str, Need | None, CategoryKey | None]:
    """What its tasks need that not every PC has; if some PC rests from them, no other category needs the same."""
    key = category.key
    return key.environment, scarce(grid, key.need), key if grid.avoided.is_scarce(key) else None


def _longest(category: Category) -> float:
    """The runtime of the task that is next in a category."""
    entries = category.priority.next_fit(math.inf), category.regular.next_fit(math.inf)
    return max([entry.runtime for entry in entries if entry is not None], default=0.0)


class RareWindowClaims:
    """From which runtime on tasks fit only rare windows."""

    def __init__(self, grid: SchedulerState, rare: float = RARE) -> None:
        self._grid = grid
        self._rare = rare
        self._least = math.inf
        self._look_at = -math.inf

    def least(self) -> float:
        """Tasks that need more seconds than this fit only rare windows; infinity if windows are alike."""
        if self._grid.now >= self._look_at:
            self._look_at = self._grid.now + LOOK_S
            self._least = self._common()
        return self._least

    def _common(self) -> float:
        """The longest window of which there are enough."""
        grid, longest = self._grid, list[tuple[float, int]]()
        for worker in grid.slots.workers.values():
            longest.append((max(worker.ends_at - worker.joined_at, worker.windows.longest_s), len(worker.slots)))
        longest += [(away.windows.longest_s, away.slots) for away in grid.away.values()]
        longest.sort(reverse=True)
        counts = list(accumulate([slots for _, slots in longest]))
        enough = (
            seconds for (seconds, _), count in zip(longest, counts, strict=True) if count > self._rare * counts[-1]
        )
        return next(enough, math.inf)
