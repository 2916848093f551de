"""Accounts of failures: a worker's report on an attempt that did not succeed, as a safe value.

Rule: reading an account never raises: a malformed account becomes `UNREADABLE`. So the accounts in a journal can be
read without precautions, even if they were written before accounts were checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from deskgrid.wire.limits import ACCOUNT_BYTES, ACCOUNT_CHARACTERS, NAME_BYTES, PICKLED_BYTES
from deskgrid.wire.payload import Payload
from deskgrid.wire.source import UNREADABLE as NOT_MSGPACK
from deskgrid.wire.source import Wrong, source_of
from deskgrid.wire.text import clean, clean_lines, cut, without_middle

# Characters of a message where many of them are shown.
BRIEF = 300

# The types of an account's parts; that of a rank has its number, too.
_PARTS: tuple[list[type], ...] = ([str, str, str, bytes], [str, str, str, bytes, int])
# A task that is done has no account. Nobody needs one for an attempt that was cancelled, that a departure stopped, or
# that ended with a checkpoint, or because it could not read one. All others have one.
_DONE = 0
_EXPLAINED = (1, 2, 3, 8, 9)
_NOTHING = b""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not succeed. The texts are cleaned, and cut to their limits.

    ``kind``: the type of the exception, or a word for the event. ``trace``: its traceback, or the last output of the
    task. ``pickled``: the exception itself, for the client; empty if it cannot travel. ``rank``: of a gang, which of
    its ranks failed first; None: the task has no ranks.
    """

    kind: str
    message: str
    trace: str = ""
    pickled: bytes = b""
    rank: int | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "kind", clean(cut(self.kind, NAME_BYTES)))
        set_(self, "message", clean_lines(without_middle(self.message, ACCOUNT_CHARACTERS)))
        set_(self, "trace", clean_lines(without_middle(self.trace, ACCOUNT_CHARACTERS)))
        if len(self.pickled) > PICKLED_BYTES:
            set_(self, "pickled", b"")

    @property
    def brief(self) -> str:
        """The beginning of the message, in one line: what fits beside other things."""
        return " ".join(self.message[:BRIEF].split())

    def packed(self) -> bytes:
        """Return the packed form, which is sent and stored."""
        parts = [self.kind, self.message, self.trace, self.pickled]
        packed: bytes = msgpack.packb(parts if self.rank is None else [*parts, self.rank], unicode_errors="replace")
        return packed


UNREADABLE = Failure("unreadable account", "what the worker said of it cannot be read")


def read_failure(payload: Payload) -> Failure:
    """Return the failure that ``payload`` describes."""
    if not isinstance(payload, bytes) or len(payload) > ACCOUNT_BYTES:
        return UNREADABLE
    source = source_of(payload)
    try:
        count = source.array()
        parts: list[Any] = source.values(count) if count in map(len, _PARTS) else []
        source.finish()
    except (Wrong, *NOT_MSGPACK):
        return UNREADABLE
    known = [*map(type, parts)] in _PARTS and (len(parts) == len(_PARTS[0]) or parts[-1] >= 0)
    return Failure(*parts) if known else UNREADABLE


def tidy_results(columns: list[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return the columns of `Result` rows with each account of a failure in the form that `Failure.packed` makes."""
    tasks, numbers, outcomes, elapsed, payloads, *printed = columns
    if not any(outcomes):
        return columns
    # Many rows may share one account.
    known: dict[bytes, bytes] = {}
    tidied = [
        payload if outcome == _DONE else _account(payload, known) if outcome in _EXPLAINED else _NOTHING
        for outcome, payload in zip(outcomes, payloads, strict=True)
    ]
    return [tasks, numbers, outcomes, elapsed, tidied, *printed]


def _account(payload: Payload, known: dict[bytes, bytes]) -> bytes:
    key = payload if isinstance(payload, bytes) else b""
    if key not in known:
        known[key] = read_failure(payload).packed()
    return known[key]
