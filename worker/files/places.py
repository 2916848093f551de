"""Where each attempt runs: the places of the people whose attempts are here, one account for each person.

An attempt has a place from before its files are put there until they are removed. An account whose person has no
attempt here is free as soon as the processes that wait for more have ended.
"""

from collections.abc import Callable, Collection

from deskgrid.worker.run.pool import AccountPlace, Accounts, NoAccount


class Places:
    """``end_idle``: ends the processes of all people but these who have no job here."""

    def __init__(self, accounts: Accounts, end_idle: Callable[[Collection[str]], None]) -> None:
        self._accounts = accounts
        self._end_idle = end_idle
        self._taken: dict[str, tuple[str, AccountPlace]] = {}

    @property
    def apart(self) -> bool:
        """Whether each person has an account."""
        return bool(self._accounts.count)

    def take(self, holder: str, owner: str) -> AccountPlace | None:
        """The place of an attempt, the same each time until it is released; None if one will be free soon.

        Raises `NoAccount` if none will.
        """
        if not self.apart:
            return self._accounts.places[0]
        if holder not in self._taken:
            place = self._accounts.take(owner)
            if place is None:
                busy = {person for person, _ in self._taken.values()}
                self._end_idle(busy)
                if not self._accounts.may_be_free(busy):
                    raise NoAccount(self._accounts.count)
                return None
            self._taken[holder] = owner, place
        return self._taken[holder][1]

    def of(self, holder: str) -> AccountPlace | None:
        """The place of an attempt that has one."""
        if not self.apart:
            return self._accounts.places[0]
        _, place = self._taken.get(holder, ("", None))
        return place

    def release(self, holder: str) -> None:
        """Nothing of an attempt is in its place any more. May be called again."""
        if holder in self._taken:
            owner, _ = self._taken.pop(holder)
            self._accounts.release(owner)
