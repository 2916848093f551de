"""Results that are of a class of the script: the script that reads them takes its own class, if that is the same."""

import dataclasses
import enum
import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

from deskgrid.classes import class_of, members_of


def in_main(kind: Any) -> Any:
    """A class as if the script defined it."""
    kind.__module__, kind.__qualname__ = "__main__", kind.__name__
    vars(sys.modules["__main__"])[kind.__name__] = kind
    return kind


@pytest.fixture(autouse=True)
def _main() -> Iterator[None]:
    before = dict(vars(sys.modules["__main__"]))
    yield
    vars(sys.modules["__main__"]).clear()
    vars(sys.modules["__main__"]).update(before)


def row(*fields: str, **members: Any) -> Any:
    return dataclasses.make_dataclass("Row", fields, namespace=members)


def status(**values: int) -> Any:
    return enum.Enum("Status", values)


def plain(*bases: type, **members: Any) -> Any:
    return type("Plain", bases, members)


def method(self: object) -> None:
    pass


def of_two(self: object, width: int, height: int) -> None:
    pass


def of_three(self: object, red: int, green: int, *, blue: int) -> None:
    pass


@pytest.mark.parametrize(
    ("here", "sent", "same"),
    [
        (row("a", "b"), row("a", "b"), True),
        (row("a", "b"), row("a"), False),
        (row("a", more=method), row("a"), True),
        (row("a"), row("a", more=method), False),
        (status(OK=1), status(OK=1), True),
        (status(OK=1), status(OK=2), False),
        (status(OK=1), status(OK=1, BAD=2), False),
        (plain(ValueError), plain(ValueError), True),
        (plain(ValueError), plain(KeyError), False),
        (plain(__slots__=("a",)), plain(__slots__=("b",)), False),
        (plain(count=1), plain(count=2), True),
        (plain(), plain(count=1), False),
        (plain(count=1), plain(), True),
        (plain(__init__=of_two), plain(__init__=of_two), True),
        (plain(__init__=of_two), plain(__init__=of_three), False),
        (plain(type("Base", (), {"__init__": of_two})), plain(type("Base", (), {"__init__": of_three})), False),
        (plain(), plain(__init__=of_two), False),
    ],
)
def test_a_class_of_the_script_is_taken_if_its_members_agree(here: type, sent: type, same: bool) -> None:
    in_main(here)
    found = class_of(here.__qualname__, members_of(sent), cloudpickle.dumps(sent))
    assert (found is here) is same
    assert found.__name__ == here.__name__


def test_without_such_a_class_the_one_that_was_sent_is_taken() -> None:
    sent = row("a")
    assert members_of(class_of("There.IsNone", members_of(sent), cloudpickle.dumps(sent))) == members_of(sent)
    vars(sys.modules["__main__"])["There"] = "no class"
    assert isinstance(class_of("There", members_of(sent), cloudpickle.dumps(sent)), type)
