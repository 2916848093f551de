"""What people have used, and their shares: kept in the journal, and arranged by the files in the home. Pure.

Rule: what was used is recorded at most once in `WRITE_S`, so a broker that is killed forgets the last second.
"""

from collections.abc import Sequence

from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.store.rows import UsageRow
from deskgrid.broker.work.operations import Slices
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.queues.shares import decayed

# Seconds between two records of what was used.
WRITE_S = 1.0
# Accounts of which less than this is left are not restored. Slot-seconds.
LEAST_S = 1.0
# Shares and licences that a note names.
NAMED = 20
# Shares in one answer, and the units of each.
SHARE_ROWS = 1_000
ROW_UNITS = 20


class Usage:
    """The accounts of all owners."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._write_at = 0.0

    def restore(self, now: float) -> None:
        """Tell the scheduler what was used before, and what the files say."""
        state, here = self._state, self._state.wall.posix(now)
        rows = state.journal.recovery.usage()
        used = {row.owner: left for row in rows if (left := decayed(row.used_s, here - row.at)) >= LEAST_S}
        state.scheduler.handle(ev.UsageRestored(used), now)
        self.arrange(now)

    def arrange(self, now: float) -> None:
        """Tell the scheduler what the files say now."""
        state = self._state
        state.scheduler.handle(ev.SharesArranged(state.shares_file.content), now)
        state.scheduler.handle(ev.LicencesCounted(state.licences_file.content), now)

    def describe(self) -> tuple[str, str]:
        """What the files say, for people: shares and licences."""
        shares = sorted({f"{share}={weight:g}" for share, weight in self._state.shares_file.content.values()})
        licences = sorted([f"{name}={many}" for name, many in self._state.licences_file.content.items()])
        return _listed(shares), _listed(licences)

    def write_down(self, now: float, last: bool = False) -> None:
        """Record what was used, if it is time, or for the ``last`` time."""
        if now < self._write_at and not last:
            return
        self._write_at = now + WRITE_S
        accounts = self._state.scheduler.grid.shares.accounts.values()
        changed = [account for account in accounts if account.new_s]
        if changed:
            at = self._state.wall.posix(now)
            self._state.journal.use([UsageRow(account.owner, account.used(now), at) for account in changed])

    def shares(self) -> Slices:
        """All shares, those that are ahead first."""
        now, grid = self._state.now, self._state.scheduler.grid
        found = sorted(grid.shares.shares.values(), key=lambda share: (-share.standing(now), share.name))
        yield ROW_UNITS * len(found)
        waiting = {category.account.share for category in grid.categories.waiting.values() if len(category)}
        waiting |= {queue.category.account.share for queue in grid.gangs.queues.values() if len(queue)}
        return {
            "shares": [
                {
                    "share": share.name,
                    "weight": share.weight,
                    "keys": sorted([account.owner for account in share.accounts]),
                    "used_s": sum([account.used_s for account in share.accounts]),
                    "promised_s": max(0.0, sum([account.out_s for account in share.accounts])),
                    "running": sum([account.out for account in share.accounts]),
                    "waits": share in waiting,
                }
                for share in found[:SHARE_ROWS]
            ]
        }


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join([*names[:NAMED], *more])
