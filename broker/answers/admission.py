"""An admin's orders about credentials: list them, let somebody in, keep somebody out. Pure, except for key files."""

from collections import Counter
from collections.abc import Callable

from deskgrid.broker.auth.roles import Credential, CredentialError, Credentials, checked_credential
from deskgrid.broker.model.forecaster import Json
from deskgrid.broker.model.state import BrokerState

# Rows in one answer.
PAGE = 500


class Admission:
    """``connected``: how many connections each credential has, by name."""

    def __init__(self, state: BrokerState, connected: Callable[[], Counter[str]]) -> None:
        self._state = state
        self._connected = connected

    @property
    def _credentials(self) -> Credentials:
        if self._state.credentials is None:
            raise CredentialError("this broker runs with --insecure: it has no keys, and everybody may do everything")
        return self._state.credentials

    def rows(self, args: Json, who: Credential) -> Json:
        """A page of credentials by name, with their connections, and for PCs their age.

        ``after``: the last name of the page before.
        """
        store, here, after = self._credentials, self._connected(), args["after"] or ""
        wall = self._state.wall.posix(self._state.now)
        rows = [row for row in store.rows() if row.credential.name > after]
        page = [
            {
                "name": row.credential.name,
                "role": row.credential.role,
                "connected": here[row.credential.name],
                "age_s": None if row.since is None else max(0.0, wall - row.since),
                "revoked": row.revoked,
            }
            for row in rows[:PAGE]
        ]
        return {"keys": page, "after": page[-1]["name"] if len(rows) > PAGE else None, "enrol": store.enrolling}

    def add(self, args: Json, who: Credential) -> Json:
        """Let in whoever has the secret key of ``public`` (hexadecimal). The broker never sees the secret key."""
        credential, store = checked_credential(args["name"], args["role"]), self._credentials
        store.add(credential, bytes.fromhex(args["public"]), self._state.wall.posix(self._state.now))
        self._state.note("key-added", name=credential.name, role=credential.role)
        return {"address": self._state.facts.address}

    def revoke(self, args: Json, who: Credential) -> Json:
        """Keep a credential out. The sessions drop its connections when they settle."""
        name, store = args["name"], self._credentials
        line_in = store.revoke(name)
        self._state.revoked.append(name)
        self._state.note("key-revoked", name=name)
        return {"connected": self._connected()[name], "line_in": line_in}

    def forget(self, args: Json, who: Credential) -> Json:
        """Keep a PC out, as `revoke` does, and free its name."""
        name, store = args["name"], self._credentials
        store.forget(name)
        self._state.revoked.append(name)
        self._state.note("key-forgotten", name=name)
        return {"connected": self._connected()[name]}

    def enrol(self, args: Json, who: Credential) -> Json:
        """Let new PCs enrol from now on, or not."""
        on, store = args["on"], self._credentials
        store.let_enrol(on)
        self._state.note("enrolment", turned="on" if on else "off")
        return {"enrol": on}
