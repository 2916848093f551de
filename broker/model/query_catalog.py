"""Everything a client can ask: who may ask it, and with which arguments. These are checked here, before anything else.

Rule: the values that `arguments` returns have the types and sizes that `QUESTIONS` states.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from deskgrid.wire import BAG_LIMIT, BATCH_ROWS, OFFER_PARTS, SECONDS_LIMIT, WINDOWS_LIMIT
from deskgrid.wire.limits import CHANGES_LIMIT, GROUPS_LIMIT, MORE_PCS, SPLIT_LIMIT

Json = dict[str, Any]
Access = Literal["everyone", "owner", "admin"]

# The arguments of most questions, as JSON. Characters.
SHORT = 4 * 2**10
# The arguments of questions with lists of items: 10,000 of the longest numbers fit. Characters.
LONG = 2**20
# Opening brackets in the arguments: an object with two lists has three. Far more would make deep or large trees.
BRACKETS = 8
# The arguments of a question about changes, and opening brackets in them: a table of `CHANGES_LIMIT` changes.
CHANGES = 64 * 2**10
CHANGES_BRACKETS = 512
# Options of a policy: the largest policy has five.
OPTIONS_LIMIT = 20
# A text in an option. Characters.
TEXT_LIMIT = 64
# The largest number in an option: far more than any option needs, and the sum of any two is still finite.
NUMBER_LIMIT = 1e100

# Returns what is wrong with a value, in words that follow its name; empty for a valid value.
Check = Callable[[object], str]


class AskError(Exception):
    """The question cannot be answered, or the order cannot be carried out; one line that says why."""


@dataclass(frozen=True, slots=True)
class Argument:
    """``optional``: it may be missing or null."""

    check: Check
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """``access``: who may ask; "owner": the owner of the bag. ``longest``: the most characters of the arguments.

    ``brackets``: the most opening brackets in them. ``order``: the question changes something, so it is carried out
    even if nobody waits for the answer any more.
    """

    access: Access
    takes: Mapping[str, Argument] = field(default_factory=dict)
    order: bool = False
    longest: int = SHORT
    brackets: int = BRACKETS


def _text(pattern: str, what: str) -> Check:
    compiled = re.compile(pattern)

    def check(value: object) -> str:
        return "" if isinstance(value, str) and compiled.fullmatch(value) else f"is not {what}"

    return check


def _whole(most: int, least: int = 0) -> Check:
    def check(value: object) -> str:
        return "" if type(value) is int and least <= value <= most else f"is not a whole number from {least} to {most}"

    return check


def _seconds(value: object) -> str:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= SECONDS_LIMIT
    return "" if fits else f"is not a number of seconds from 0 to {SECONDS_LIMIT:.0f}"


def _list(kinds: set[type], most: float, what: str, rows: int = BATCH_ROWS) -> Check:
    """A list of at most ``rows`` numbers of these types, each from 0 to ``most``, checked at C speed."""

    def check(value: Any) -> str:
        fits = isinstance(value, list) and len(value) <= rows and {*map(type, value)} <= kinds
        # The sum finds a NaN, which passes every other check. It comes last, because it fails for an integer that is
        # too large for a float.
        if fits and (not value or (max(value) <= most and min(value) >= 0 and sum(value) >= 0)):
            return ""
        return f"is not a list of at most {rows} {what} from 0 to {most:.0f}"

    return check


def _each(inner: Check, rows: int) -> Check:
    """A list of at most ``rows`` values that pass ``inner``."""

    def check(value: object) -> str:
        if not isinstance(value, list) or len(value) > rows:
            return f"is not a list of at most {rows}"
        return next((f"has one that {wrong}" for each in value if (wrong := inner(each))), "")

    return check


def _object(takes: "Mapping[str, Argument]") -> Check:
    def check(value: object) -> str:
        if not isinstance(value, dict):
            return "is not an object"
        wrong = _wrong_with(takes, value)
        return f"is wrong: {wrong}" if wrong else ""

    return check


def _yes_or_no(value: object) -> str:
    return "" if isinstance(value, bool) else "is neither true nor false"


def _options(value: object) -> str:
    """Options of a policy: numbers, booleans and short texts by name. The policy checks their meaning."""
    if not isinstance(value, dict) or len(value) > OPTIONS_LIMIT:
        return f"is not an object of at most {OPTIONS_LIMIT} options"
    for name, option in value.items():
        number = isinstance(option, int | float) and abs(option) <= NUMBER_LIMIT
        plain = option is None or number or (isinstance(option, str) and len(option) <= TEXT_LIMIT)
        if not plain or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
            return "has an option that is neither a number nor a short text"
    return ""


# Any printable id, because programs may make up their own; the library's have twelve hexadecimal digits.
_BAG = Argument(_text(r"[!-~]{1,64}", "the id of a bag"))
_ITEM = _whole(BAG_LIMIT)
_ITEMS = _list({int}, BAG_LIMIT, "whole numbers")
_SECONDS = _list({int, float}, SECONDS_LIMIT, "numbers of seconds")
_NAME = Argument(_text(r"[ -~]{1,64}", "a name"))
_PARTS = _text(rf"([0-9a-f]{{64}}){{1,{OFFER_PARTS}}}", f"1 to {OFFER_PARTS} digests in hexadecimal")
_AFTER = Argument(_whole(2**63 - 1), optional=True)
_PATTERN = _text(r"[^\0\n]{1,255}", "a pattern of names")
_MOMENTS = Argument(_list({int, float}, SECONDS_LIMIT, "numbers of seconds", WINDOWS_LIMIT))
# What may be imagined otherwise; `deskgrid.scheduler.forecast.changes.Change` says what it means.
_CHANGE = {
    "without": Argument(_each(_PATTERN, GROUPS_LIMIT), optional=True),
    "windows": Argument(
        _each(_object({"pcs": Argument(_PATTERN), "starts_s": _MOMENTS, "lasts_s": _MOMENTS}), GROUPS_LIMIT),
        optional=True,
    ),
    "more": Argument(
        _each(_object({"like": Argument(_PATTERN), "many": Argument(_whole(MORE_PCS))}), GROUPS_LIMIT), optional=True
    ),
    "split": Argument(_whole(SPLIT_LIMIT, 1), optional=True),
    "begins_s": Argument(_seconds, optional=True),
    "policy": Argument(_text(r"[ -~]{1,64}", "the name of a policy"), optional=True),
}
_CHANGES = Argument(_each(_object(_CHANGE), CHANGES_LIMIT))

QUESTIONS: Mapping[str, Question] = {
    "ping": Question("everyone"),
    "status": Question("everyone", {"rows": Argument(_yes_or_no, optional=True)}),
    "worker": Question("everyone", {"name": Argument(_text(r".{1,255}", "the name of a worker"))}),
    "plan": Question("everyone"),
    "events": Question("everyone", {"after": _AFTER}),
    "events all": Question("admin", {"after": _AFTER}),
    "bags": Question("everyone", {"after": _AFTER}),
    # A client attaches to a bag with this. ``eta``: wait a moment for an estimate of when it will be done.
    "progress": Question("owner", {"bag": _BAG, "eta": Argument(_yes_or_no, optional=True)}),
    "eta": Question("owner", {"bag": _BAG}),
    "explain": Question("owner", {"bag": _BAG, "item": Argument(_ITEM, optional=True)}),
    "logs": Question("owner", {"bag": _BAG, "item": Argument(_ITEM)}),
    "output": Question("owner", {"bag": _BAG, "after": _AFTER}),
    "printed": Question("owner", {"bag": _BAG, "item": Argument(_ITEM, optional=True), "after": _AFTER}),
    "tasks": Question(
        "owner",
        {
            "bag": _BAG,
            "state": Argument(_text("waiting|running|done|failed|cancelled", "a state of tasks")),
            "after": Argument(_ITEM, optional=True),
        },
    ),
    "cancel": Question(
        "owner",
        {"bag": _BAG, "items": Argument(_ITEMS, optional=True), "running": Argument(_yes_or_no, optional=True)},
        order=True,
        longest=LONG,
    ),
    "pause": Question("owner", {"bag": _BAG}, order=True),
    "resume": Question("owner", {"bag": _BAG}, order=True),
    "shares": Question("everyone"),
    "systems": Question("everyone"),
    "environments": Question("everyone"),
    "release": Question("owner", {"bag": _BAG, "parts": Argument(_PARTS)}, order=True, longest=LONG),
    "whatif": Question("owner", {"bag": _BAG, "changes": _CHANGES}, longest=CHANGES, brackets=CHANGES_BRACKETS),
    "whatif new": Question(
        "everyone",
        {"tasks": Argument(_whole(BAG_LIMIT, 1)), "runtime_s": Argument(_seconds), "changes": _CHANGES},
        longest=CHANGES,
        brackets=CHANGES_BRACKETS,
    ),
    "advise": Question("owner", {"bag": _BAG}),
    "forget": Question("owner", {"bag": _BAG}, order=True),
    "forget learned": Question("admin", order=True),
    "runtimes": Question(
        "owner", {"bag": _BAG, "items": Argument(_ITEMS), "runtimes": Argument(_SECONDS)}, order=True, longest=LONG
    ),
    "policy": Question("admin", {"name": _NAME, "options": Argument(_options, optional=True)}, order=True),
    "keys": Question("admin", {"after": Argument(_text(r"[ -~]{0,64}", "a name"), optional=True)}),
    "keys add": Question(
        "admin",
        {"name": _NAME, "role": _NAME, "public": Argument(_text(r"[0-9A-Fa-f]{64}", "a key in hexadecimal"))},
        order=True,
    ),
    "keys revoke": Question("admin", {"name": _NAME}, order=True),
    "keys forget": Question("admin", {"name": _NAME}, order=True),
    "keys enrol": Question("admin", {"on": Argument(_yes_or_no)}, order=True),
}


def arguments(what: str, args: str) -> Json:
    """The arguments of a question, from JSON. Raises `AskError` for an unknown question, or wrong arguments."""
    question = QUESTIONS.get(what)
    if question is None:
        raise AskError(f"this broker does not know the question {what[:40]!r}")
    if len(args) > question.longest or args.count("[") + args.count("{") > question.brackets:
        raise AskError(f"the arguments of {what!r} are too long, or nested too deeply")
    try:
        values = json.loads(args)
    except (ValueError, RecursionError) as error:
        raise AskError(f"the arguments of {what!r} are not JSON") from error
    if not isinstance(values, dict):
        raise AskError(f"the arguments of {what!r} are not a JSON object")
    if wrong := _wrong_with(question.takes, values):
        raise AskError(wrong)
    return values


def _wrong_with(takes: Mapping[str, Argument], values: Json) -> str:
    """What is wrong with some values, by name; empty if nothing is."""
    if unknown := sorted(values.keys() - takes.keys()):
        return f"{unknown[0][:40]!r} is not an argument of this question"
    for name, argument in takes.items():
        value = values.get(name)
        if value is None and not argument.optional:
            return f"{name} is missing"
        if value is not None and (wrong := argument.check(value)):
            return f"{name} {wrong}"
    return ""
