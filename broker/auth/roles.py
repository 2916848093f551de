"""Who may do what: the roles. What each query needs is in `deskgrid.broker.query_catalog`. Pure.

Rule 1: a connection is who its key says, at each message anew. What a peer says of itself decides nothing.
Rule 2: a bag belongs to the credential that submitted it. Its owner and an admin may do everything with it; to others
it is a row in the list of bags, as in any batch queue: its name, its owner, how far it is.
Rule 3: what concerns everybody (policy, credentials) is the admin's.
Rule 4: a lab's line only lets PCs enrol. Each PC then has a key of its own, and joins under its own name only.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from deskgrid.wire.names import name_error

# lab: lets PCs enrol. worker: is one PC. submitter: has work done. admin: that, and everything else.
Role = Literal["lab", "worker", "submitter", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

# Credentials besides those of the home, PCs among them.
CREDENTIALS_LIMIT = 10_000
# PCs that enrol with one line: whoever has it and makes names up leaves room for everybody else.
ENROLLED_LIMIT = CREDENTIALS_LIMIT // 2


@dataclass(frozen=True, slots=True)
class Credential:
    """A key that the broker knows, by its name."""

    name: str
    role: Role


# Without encryption there are no keys to know anybody by. What is submitted then belongs to the home's own clients, who
# find it again when the broker is started with encryption.
ANYBODY = Credential("client", "admin")


@dataclass(frozen=True, slots=True)
class Known:
    """A credential as it is listed. ``since``: POSIX seconds when a PC was enrolled or added; None for others."""

    credential: Credential
    since: float | None = None
    revoked: bool = False


class CredentialError(Exception):
    """A credential cannot be added, enrolled, revoked or forgotten; one line that says why."""


class Credentials(Protocol):
    """The credentials of one broker, as the sessions need them. `deskgrid.broker.auth.keys.KeyRing` has them on disk.

    Every change raises `CredentialError` when it cannot be, and is on the disk when the call returns.
    """

    @property
    def enrolling(self) -> bool:
        """Whether new PCs may enrol."""

    def rows(self) -> list[Known]:
        """All, in the order of their names; also PCs whose key was revoked."""

    def add(self, credential: Credential, public: bytes, when: float) -> None:
        """Let in whoever has the secret of ``public``. Once more changes nothing. ``when``: POSIX seconds."""

    def enrol(self, line: Credential, name: str, public: bytes, when: float) -> tuple[str, bytes]:
        """Let in a PC that came with ``line``; the name and the key that it has from now on. Once more: the same."""

    def revoke(self, name: str) -> str:
        """Keep a credential out; of the home's own, the file with its new join line, else ""."""

    def forget(self, name: str) -> None:
        """Keep a PC out, and let another one have its name."""

    def let_enrol(self, on: bool) -> None:
        """Whether new PCs may enrol from now on, also after a restart."""


def with_article(role: Role) -> str:
    """A role in a sentence."""
    return {"admin": "an admin", "lab": "a lab's line"}.get(role, f"a {role}")


def owner_refusal(who: Credential, bag: str, owner: str) -> str:
    """Why ``who`` may do nothing with a bag; empty when they may."""
    if who.role == "admin" or who.name == owner:
        return ""
    return (
        f"bag {bag} belongs to {owner}, and you are connected as {who.name}; an admin may do this (--join @admin.join)"
    )


def admin_refusal(who: Credential, what: str) -> str:
    """Why ``who`` may not do what is for admins; empty when they may."""
    if who.role == "admin":
        return ""
    return f"{what} is for admins; you are connected as {who.name}, {with_article(who.role)}"


def checked_credential(name: object, role: object) -> Credential:
    """The credential that somebody wants to have; raises `CredentialError`."""
    if not isinstance(name, str) or name_error(name):
        raise CredentialError(name_error(name))
    for known in ROLES:
        if role == known:
            return Credential(name, known)
    raise CredentialError(f"a role is one of {', '.join(ROLES)}, not {role!r:.80}")
