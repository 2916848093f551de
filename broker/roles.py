"""Who may do what: the roles. What is decided for everything that can be asked is in `broker.questions`. Pure.

Rule 1: a connection is who its key says, at each message anew. What a peer says of itself decides nothing.
Rule 2: a bag belongs to the credential that submitted it. Its owner and an admin may do everything with it; to others
it is a row in the list of bags, as in any batch queue: its name, its owner, how far it is.
Rule 3: what concerns everybody (policy, credentials) is the admin's.
"""

import re
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

# worker: offers a PC. submitter: has work done. admin: that, and everything else.
Role = Literal["worker", "submitter", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

# A name is shown in lists, logs and errors, so it is short and plain.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
# Credentials besides those of the home. All are looked through when one is added, and written down anew.
CREDENTIALS_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Credential:
    """A key that the broker knows, by its name."""

    name: str
    role: Role


# Without encryption there are no keys to know anybody by. What is submitted then belongs to the home's own clients, who
# find it again when the broker is started with encryption.
ANYBODY = Credential("client", "admin")


class CredentialError(Exception):
    """A credential cannot be added or revoked; one line that says why."""


class Credentials(Protocol):
    """The credentials of one broker, as the sessions need them; `broker.keys.KeyRing` keeps them in the home."""

    def rows(self) -> list[Credential]:
        """All, in the order of their names."""

    def add(self, credential: Credential, public: bytes) -> None:
        """Let in whoever has the secret of ``public``. Raises `CredentialError`. Once more changes nothing."""

    def revoke(self, name: str) -> str:
        """Forget a credential; of the home's own, the file with its new join line, else "". `CredentialError`."""


def with_article(role: Role) -> str:
    """A role in a sentence."""
    return f"an {role}" if role == "admin" else f"a {role}"


def owner_refusal(who: Credential, bag: str, owner: str) -> str:
    """Why ``who`` may do nothing with a bag; empty when they may."""
    if who.role == "admin" or who.name == owner:
        return ""
    return f"bag {bag} belongs to {owner}; you are connected as {who.name}"


def admin_refusal(who: Credential, what: str) -> str:
    """Why ``who`` may not do what is for admins; empty when they may."""
    if who.role == "admin":
        return ""
    return f"{what} is for admins; you are connected as {who.name}, {with_article(who.role)}"


def checked_credential(name: object, role: object) -> Credential:
    """The credential that somebody wants to have; raises `CredentialError`."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise CredentialError(f"a name is 1 to 64 letters, digits, and . _ @ - inside, not {name!r:.80}")
    for known in ROLES:
        if role == known:
            return Credential(name, known)
    raise CredentialError(f"a role is one of {', '.join(ROLES)}, not {role!r:.80}")
