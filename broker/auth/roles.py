"""Who may do what: the roles. The rights that each question needs are in `deskgrid.wire.questions`. Pure.

Rule 1: the key of a connection identifies the peer. Whose key it is, is looked up again when keys have changed, before
anything more is read. Nothing that a peer says about itself gives it rights.
Rule 2: a bag belongs to the credential that submitted it. Its owner and admins may do everything with it. Others see
it in the list of bags, as in any batch queue: its name, its owner and its progress.
Rule 3: only admins may change settings that concern everybody (policy, credentials).
Rule 4: a lab's line only lets PCs enrol. Each PC then has its own key, and can only join under its own name.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from deskgrid.wire.text import name_error

# lab: lets PCs enrol. worker: is one PC. submitter: submits bags. admin: may do everything.
Role = Literal["lab", "worker", "submitter", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

# The most credentials besides the home's own, including PCs.
CREDENTIALS_LIMIT = 10_000
# The most PCs that may enrol with one line, so that somebody who enrols made-up names leaves room for everybody else.
ENROLLED_LIMIT = CREDENTIALS_LIMIT // 2


@dataclass(frozen=True, slots=True)
class Credential:
    """A key that the broker knows, by its name."""

    name: str
    role: Role


# The credential of every peer without encryption, when there are no keys. Bags then belong to the home's own client
# credential, which still owns them when the broker is restarted with encryption.
ANYBODY = Credential("client", "admin")


@dataclass(frozen=True, slots=True)
class Known:
    """A row in the list of credentials. ``since``: POSIX seconds when a PC enrolled or was added; None for others."""

    credential: Credential
    since: float | None = None
    revoked: bool = False


class CredentialError(Exception):
    """A credential cannot be added, enrolled, revoked or forgotten; one line that says why."""


class Credentials(Protocol):
    """The credentials of one broker. `deskgrid.broker.auth.keys.KeyRing` keeps them on disk.

    A change that is not possible raises `CredentialError`; otherwise it is on the disk when the call returns.
    """

    @property
    def enrolling(self) -> bool:
        """Whether new PCs may enrol."""

    def rows(self) -> list[Known]:
        """All credentials sorted by name, including PCs whose key was revoked."""

    def add(self, credential: Credential, public: bytes, when: float) -> None:
        """Let in whoever has the secret key of ``public``. Repeating it changes nothing. ``when``: POSIX seconds."""

    def enrol(self, line: Credential, name: str, public: bytes, when: float) -> tuple[str, bytes]:
        """Let in a PC that came with ``line``, and return its name and key. Repeating it returns the same."""

    def revoke(self, name: str) -> str:
        """Keep a credential out; return the file with the new join line for one of the home's own, otherwise ""."""

    def forget(self, name: str) -> None:
        """Keep a PC out, and free its name."""

    def let_enrol(self, on: bool) -> None:
        """Let new PCs enrol from now on, or not, also after a restart."""


def with_article(role: Role) -> str:
    """A role with its article: "a submitter"."""
    return {"admin": "an admin", "lab": "a lab's line"}.get(role, f"a {role}")


def owner_refusal(who: Credential, bag: str, owner: str) -> str:
    """Why ``who`` may not do anything with a bag; empty when they may."""
    if who.role == "admin" or who.name == owner:
        return ""
    return f"bag {bag} belongs to {owner}, and you are connected as {who.name}: only {owner} and admins may do this"


def admin_refusal(who: Credential, what: str) -> str:
    """Why ``who`` may not do something that is for admins; empty when they may."""
    if who.role == "admin":
        return ""
    return f"{what} is for admins; you are connected as {who.name}, {with_article(who.role)}"


def checked_credential(name: object, role: object) -> Credential:
    """A credential, if name and role are valid; raises `CredentialError`."""
    if not isinstance(name, str) or name_error(name):
        raise CredentialError(name_error(name))
    for known in ROLES:
        if role == known:
            return Credential(name, known)
    raise CredentialError(f"a role is one of {', '.join(ROLES)}, not {role!r:.80}")
