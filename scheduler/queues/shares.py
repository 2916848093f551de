"""Fair share: how many slot-seconds each owner has used, and how far each share is ahead of the others.

Rule 1: attempts that ended count, errors and crashes included. Attempts that were lost with their worker, or stopped
because it departed, do not count.
Rule 2: what was used counts half after `HALF_LIFE_S`. What is predicted for tasks on slots counts in full from the
moment they are placed, so that one pass does not give all free slots to the same person.
Rule 3: several owners may have one share. An owner has a share of their own unless `Shares.arrange` says otherwise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from deskgrid.scheduler.model import agree

# Three days. Seconds.
HALF_LIFE_S = 3 * 86_400.0
# Seconds of the whole grid that a share may be ahead of the one that has used least, before others have their turn.
# So a policy is free to choose the task that suits a slot best most of the time.
LEAD_S = 60.0
# Who has had a slot within this time is served. Seconds.
MOMENT_S = 1.0
# The same where a plan for everybody's tasks would be spoiled otherwise. Two people who are this far apart after an
# hour have used the same within a tenth.
PLANNED_LEAD_S = 180.0


def decayed(used_s: float, seconds: float) -> float:
    """What is left of ``used_s`` after ``seconds``."""
    return used_s * math.pow(0.5, max(0.0, seconds) / HALF_LIFE_S)


@dataclass(slots=True, eq=False)
class Account:
    """What one owner has used: ``used_s`` as of ``at``, and ``new_s`` since. ``out_s``: predicted for the ``out``
    tasks on slots.
    """

    owner: str
    share: "GridShare"
    used_s: float = 0.0
    at: float = 0.0
    new_s: float = 0.0
    out_s: float = 0.0
    out: int = 0

    def used(self, now: float) -> float:
        """Slot-seconds of attempts that have ended."""
        self.used_s = decayed(self.used_s, now - self.at) + self.new_s
        self.at, self.new_s = now, 0.0
        return self.used_s


@dataclass(slots=True, eq=False)
class GridShare:
    """A part of the grid. ``weight``: a share of weight 2 gets twice as much as one of weight 1.

    ``began``: when it last got something onto a slot.
    """

    name: str
    weight: float = 1.0
    began: float = -math.inf
    accounts: list[Account] = field(default_factory=list)

    def standing(self, now: float) -> float:
        """Slot-seconds used and promised, for a weight of 1."""
        return sum([account.used(now) + account.out_s for account in self.accounts]) / self.weight

    def turn(self, now: float, served: bool | None = None) -> tuple[bool, float]:
        """The order of turns: whether it is served, then `standing`; the least comes first.

        ``served``: whether it has anything running; None: whether it has anything on a slot. Who has had a slot a
        moment ago is served, too: or else nobody would get one beside somebody whose tasks end at once.
        """
        if served is None:
            served = any(account.out for account in self.accounts)
        return served or now - self.began < MOMENT_S, self.standing(now)


class Shares:
    """``accounts``: by owner; ``shares``: by name, those that have an account."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.shares: dict[str, GridShare] = {}
        self._arranged: Mapping[str, tuple[str, float]] = {}

    def account(self, owner: str) -> Account:
        """The account of ``owner``, which is opened if there is none."""
        account = self.accounts.get(owner)
        if account is None:
            account = self.accounts[owner] = Account(owner, GridShare(owner))
            self._enter(account)
        return account

    def share_of(self, owner: str) -> str:
        """The name of the share that ``owner`` has, or would have."""
        return self._arranged.get(owner, (owner, 1.0))[0]

    def arrange(self, arranged: Mapping[str, tuple[str, float]]) -> None:
        """Name the share and its weight for some owners; all others have a share of their own, of weight 1."""
        self._arranged = arranged
        self.shares = {}
        for account in self.accounts.values():
            self._enter(account)

    def _enter(self, account: Account) -> None:
        _, weight = self._arranged.get(account.owner, (account.owner, 1.0))
        name = self.share_of(account.owner)
        share = self.shares.setdefault(name, GridShare(name, weight))
        share.accounts.append(account)
        account.share = share

    def check(self, out_s: Mapping[str, float]) -> None:
        """Raise `InvariantBroken` unless each account is in its share. ``out_s``: promised to each owner."""
        for account in self.accounts.values():
            agree(f"accounts of {account.owner}", account.share.accounts.count(account), 1)
            agree(f"share of {account.owner}", self.shares.get(account.share.name), account.share)
            off = abs(account.out_s - out_s.get(account.owner, 0.0))
            # Each task of 1e10 s, the most there is, that was in the sum leaves some microseconds of rounding there.
            agree(f"seconds promised to {account.owner}", off <= max(1e-3, 1e-6 * account.out_s), True)
        agree("accounts in shares", sum(len(share.accounts) for share in self.shares.values()), len(self.accounts))
