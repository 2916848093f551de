"""What an admin asks about credentials: who there is, let somebody in, keep somebody out. Pure, but for the store."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from broker.desk import Desk
from broker.roles import CredentialError, Credentials, checked_credential

Json = dict[str, Any]


# Rows in one answer.
PAGE = 500


class Admission:
    """``connected``: the names of the credentials that somebody is connected by, one for each connection."""

    def __init__(self, desk: Desk, connected: Callable[[], Counter[str]]) -> None:
        self._desk = desk
        self._connected = connected

    @property
    def _credentials(self) -> Credentials:
        if self._desk.credentials is None:
            raise CredentialError("this broker was started with --insecure: it has no keys, and all may do everything")
        return self._desk.credentials

    def rows(self, args: Json, now: float) -> Json:
        """Credentials in the order of their names, and how many connections there are by each.

        ``after``: the last name of the page before.
        """
        here, after = self._connected(), args.get("after") or ""
        rows = [row for row in self._credentials.rows() if row.name > after]
        page = [{"name": row.name, "role": row.role, "connected": here[row.name]} for row in rows[:PAGE]]
        return {"keys": page, "after": page[-1]["name"] if len(rows) > PAGE else None}

    def add(self, args: Json, now: float) -> Json:
        """Let in whoever has the secret of the key ``public`` (hexadecimal). The secret itself never comes here."""
        credential, store = checked_credential(args.get("name"), args.get("role")), self._credentials
        try:
            public = bytes.fromhex(str(args.get("public")))
        except ValueError as error:
            raise CredentialError("public is not a key in hexadecimal") from error
        store.add(credential, public)
        self._desk.note("key-added", name=credential.name, role=credential.role)
        return {"address": self._desk.facts.address}

    def revoke(self, args: Json, now: float) -> Json:
        """Forget a credential; the sessions let go of whoever is here by it when they settle."""
        name, store = str(args.get("name")), self._credentials
        line_in = store.revoke(name)
        self._desk.revoked.append(name)
        self._desk.note("key-revoked", name=name)
        return {"connected": self._connected()[name], "line_in": line_in}
