"""Whose turn it is in a pass: the lanes from which the policy may choose, one choice after the other.

Rule 1: everybody who is not more than a minute of the whole grid ahead of the one who has used least has a turn. The
policy chooses freely among their tasks.
Rule 2: of each share, only the lanes of the highest priority have a turn.
Rule 3: a lane from which the policy took nothing more has had its turn in this pass, and the next ones follow. So no
slot stays idle because of this.
Rule 4: a task that fits only rare windows has its turn first, whoever it belongs to (`Claims`).
With a single lane, which is the usual case, there is one turn, and nothing is computed.
"""

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from deskgrid.scheduler.grid import GridState
from deskgrid.scheduler.queues.lanes import Lane
from deskgrid.scheduler.state.shares import LEAD_S, Share

# The most lanes in one turn: a policy asks each of them for every task that it places.
LANES = 32
# A window is rare if at most this fraction of all slots ever has one as long.
RARE = 0.1
# The longest windows of all workers are looked at this often. Seconds.
LOOK_S = 10.0


@dataclass(slots=True, eq=False)
class _Contender:
    """A share with lanes that have not had their turn, the highest priority last."""

    share: Share
    standing: float
    lanes: list[Lane] = field(default_factory=list)

    def top(self) -> list[Lane]:
        """Its lanes of the highest priority."""
        return [lane for lane in reversed(self.lanes) if lane.key.priority == self.lanes[-1].key.priority]


class Turns:
    """The turns of one pass among ``lanes``, which have waiting tasks."""

    def __init__(self, grid: GridState, lanes: Sequence[Lane]) -> None:
        self._grid = grid
        self.lanes = [lane for lane in lanes if lane.open]
        self._alone = len(self.lanes) < 2
        self._contenders: list[_Contender] = []
        self._of: dict[Share, _Contender] = {}
        self._most = math.inf
        if not self._alone:
            self._meet()

    def _meet(self) -> None:
        for lane in sorted(self.lanes, key=lambda lane: lane.key.priority):
            share = lane.account.share
            if share not in self._of:
                self._of[share] = _Contender(share, share.standing(self._grid.now))
            self._of[share].lanes.append(lane)
        self._contenders = sorted(self._of.values(), key=_standing)

    @property
    def contested(self) -> bool:
        """Whether tasks of several shares wait."""
        return len(self._of) > 1

    def choose(self) -> list[Lane]:
        """The lanes whose turn it is, those who have used least first; none if all have had their turn."""
        if self._alone:
            return self.lanes
        if not self._contenders:
            return []
        lead = LEAD_S * len(self._grid.slots.slots)
        self._most = self._contenders[0].standing + lead
        chosen: list[Lane] = []
        for contender in self._contenders:
            if contender.standing > self._most or len(chosen) >= LANES:
                break
            chosen += contender.top()
        return chosen[:LANES]

    def placed(self, lane: Lane) -> bool:
        """Tasks of ``lane`` were placed. Returns whether somebody else may have a turn now."""
        done = not lane.open
        if self._alone:
            if done:
                self.lanes = []
            return done
        contender = self._of[lane.account.share]
        self._contenders.remove(contender)
        contender.standing = contender.share.standing(self._grid.now)
        insort(self._contenders, contender, key=_standing)
        shut = [lane] if done or not len(lane) else []
        if lane.key.licences:  # others need them, too
            waiting = [other for each in self._contenders for other in each.lanes]
            shut = [other for other in waiting if not (other.open and len(other))]
        self.over(shut)
        return bool(shut) or contender.standing > self._most

    def over(self, lanes: Sequence[Lane]) -> None:
        """The policy takes no more tasks of these lanes in this pass."""
        if self._alone:
            self.lanes = []
            return
        for lane in lanes:
            contender = self._of[lane.account.share]
            contender.lanes.remove(lane)
            if not contender.lanes:
                self._contenders.remove(contender)


def _standing(contender: _Contender) -> float:
    return contender.standing


class Claims:
    """From which runtime on tasks fit only rare windows."""

    def __init__(self, grid: GridState) -> None:
        self._grid = grid
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
        enough = (seconds for (seconds, _), count in zip(longest, counts, strict=True) if count > RARE * counts[-1])
        return next(enough, math.inf)
