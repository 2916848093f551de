"""Everything that a client can ask: who may ask it, its arguments, and whether it changes or writes something.

Arguments travel packed, by name (`deskgrid.wire.records`). Each is a field, as in a message. An `Optional` one may be
missing, which is the same as None.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deskgrid.wire.fields import Digests, Flag, Integer, Many, Optional, Real, Word
from deskgrid.wire.limits import (
    BAG_LIMIT,
    BATCH_ROWS,
    CHANGES_LIMIT,
    COUNT_LIMIT,
    GROUPS_LIMIT,
    MORE_PCS,
    OFFER_PARTS,
    SECONDS_LIMIT,
    SPLIT_LIMIT,
    WINDOWS_LIMIT,
)
from deskgrid.wire.messages.client import Ask
from deskgrid.wire.records import Record, Records
from deskgrid.wire.source import Source, Wrong

Access = Literal["everyone", "owner", "admin"]

# Options of a policy: the largest policy has five.
OPTIONS_LIMIT = 20
# A text in an option. Characters.
TEXT_LIMIT = 64
# The largest number in an option: far more than any option needs, and the sum of any two is still finite.
NUMBER_LIMIT = 1e100


@dataclass(frozen=True, slots=True)
class Question:
    """``access``: who may ask; "owner": the owner of the bag. ``takes``: its arguments.

    ``order``: it changes something, so it is carried out even if nobody waits for the answer any more. ``writes``: it
    changes something on the disk.
    """

    access: Access
    takes: Record
    order: bool = False
    writes: bool = False


class PolicyOptions:
    """Options of a policy by name: numbers, booleans and short texts. The policy checks their meaning."""

    def read(self, source: Source) -> dict[str, Any]:
        """Read the next map."""
        if (count := source.map()) > OPTIONS_LIMIT:
            raise Wrong(f"{count:,} options where there are at most {OPTIONS_LIMIT}")
        options = dict(source.values(2) for _ in range(count))
        for name, value in options.items():
            number = isinstance(value, int | float) and abs(value) <= NUMBER_LIMIT
            plain = value is None or number or (isinstance(value, str) and len(value) <= TEXT_LIMIT)
            if not plain or not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
                raise Wrong("one of them is neither a number nor a short text")
        return options


def _takes(**fields: Any) -> Record:
    return Record(fields, [name for name, field in fields.items() if not isinstance(field, Optional)])


def _asks(access: Access = "everyone", **fields: Any) -> Question:
    return Question(access, _takes(**fields))


def _orders(access: Access, *, writes: bool = True, **fields: Any) -> Question:
    return Question(access, _takes(**fields), order=True, writes=writes)


# Any printable id, because programs may make up their own; the library's have twelve hexadecimal digits.
_BAG = Word(re.compile(r"[!-~]{1,64}"), "the id of a bag")
_ITEM = Integer(0, BAG_LIMIT)
_ITEMS = Many(_ITEM, BATCH_ROWS)
_SECONDS = Real(SECONDS_LIMIT)
_MOMENTS = Many(_SECONDS, WINDOWS_LIMIT)
_NAME = Word(re.compile(r"[ -~]{1,64}"), "a name")
_AFTER = Optional(Integer(0, COUNT_LIMIT))
_WORKER = Word(re.compile(r".{1,255}"), "the name of a worker")
_PATTERN = Word(re.compile(r"[^\0\n]{1,255}"), "a pattern of names")
# What may be imagined otherwise; `deskgrid.scheduler.forecast.changes.ImaginedChange` says what it means.
_CHANGE = _takes(
    without=Optional(Many(_PATTERN, GROUPS_LIMIT)),
    windows=Optional(Records(_takes(pcs=_PATTERN, starts_s=_MOMENTS, lasts_s=_MOMENTS), GROUPS_LIMIT)),
    more=Optional(Records(_takes(like=_PATTERN, many=Integer(0, MORE_PCS)), GROUPS_LIMIT)),
    split=Optional(Integer(1, SPLIT_LIMIT)),
    begins_s=Optional(_SECONDS),
    policy=Optional(_NAME),
)
_CHANGES = Records(_CHANGE, CHANGES_LIMIT)

QUESTIONS: Mapping[str, Question] = {
    "ping": _asks(),
    "status": _asks(rows=Optional(Flag())),
    "worker": _asks(name=_WORKER),
    "plan": _asks(),
    "events": _asks(after=_AFTER),
    "events all": _asks("admin", after=_AFTER),
    "bags": _asks(after=_AFTER, mine=Optional(Flag())),
    # A client attaches to a bag with this. ``eta``: wait a moment for an estimate of when it will be done.
    "progress": _asks("owner", bag=_BAG, eta=Optional(Flag())),
    "eta": _asks("owner", bag=_BAG),
    "explain": _asks("owner", bag=_BAG, item=Optional(_ITEM)),
    "logs": _asks("owner", bag=_BAG, item=_ITEM),
    "output": _asks("owner", bag=_BAG, after=_AFTER),
    "printed": _asks("owner", bag=_BAG, item=Optional(_ITEM), after=_AFTER),
    "tasks": _asks(
        "owner",
        bag=_BAG,
        state=Word(re.compile("waiting|running|done|failed|cancelled"), "a state of tasks"),
        after=Optional(_ITEM),
    ),
    "cancel": _orders("owner", bag=_BAG, items=Optional(_ITEMS), running=Optional(Flag())),
    "pause": _orders("owner", bag=_BAG),
    "resume": _orders("owner", bag=_BAG),
    "shares": _asks(),
    "systems": _asks(),
    "environments": _asks(),
    "release": _orders("owner", bag=_BAG, parts=Digests(OFFER_PARTS)),
    "whatif": _asks("owner", bag=_BAG, changes=_CHANGES),
    "whatif new": _asks(tasks=Integer(1, BAG_LIMIT), runtime_s=_SECONDS, changes=_CHANGES),
    "advise": _asks("owner", bag=_BAG),
    "forget": _orders("owner", bag=_BAG),
    "forget learned": _orders("admin"),
    "runtimes": _orders("owner", bag=_BAG, items=_ITEMS, runtimes=Many(_SECONDS, BATCH_ROWS)),
    "policy": _orders("admin", writes=False, name=_NAME, options=Optional(PolicyOptions())),
    "pc checks": _asks("admin", after=Optional(_WORKER)),
    "drains": _asks(),
    "drain": _orders("admin", pcs=Many(_PATTERN, GROUPS_LIMIT), seconds=Optional(_SECONDS), now=Optional(Flag())),
    "drain undo": _orders("admin", pcs=Many(_PATTERN, GROUPS_LIMIT)),
    "keys": _asks("admin", after=Optional(Word(re.compile(r"[ -~]{0,64}"), "a name"))),
    "keys add": _orders(
        "admin", name=_NAME, role=_NAME, public=Word(re.compile(r"[0-9A-Fa-f]{64}"), "a key in hexadecimal")
    ),
    "keys revoke": _orders("admin", name=_NAME),
    "keys forget": _orders("admin", name=_NAME),
    "keys enrol": _orders("admin", on=Flag()),
}


def arguments(ask: Ask) -> dict[str, Any]:
    """Return all arguments of a question; raises ValueError, with the reason in one line."""
    question = QUESTIONS.get(ask.what)
    if question is None:
        raise ValueError(f"this broker does not know the question {ask.what[:40]!r}")
    return dict.fromkeys(question.takes.fields) | question.takes.unpacked(ask.args)
