"""How people say how much of something a task needs, and a PC has."""

import re

import pytest

from deskgrid.client.needs import read_resources
from deskgrid.errors import BagRejected
from deskgrid.resources import read_amounts, resources_of
from deskgrid.wire import RESOURCES_LIMIT, counted


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"gpu": 1}, ("gpu=1",)),
        ({"gpu": 0.5, "a": 2.0}, ("a=2", "gpu=0.5")),
        ({"gpu": "0.25"}, ("gpu=0.25",)),
        ({"scratch": "200G"}, ("scratch=214748364800",)),
        ({"scratch": "1.5 GiB"}, ("scratch=1610612736",)),
        ({"x": 1 / 3 // 0.001 / 1000}, ("x=0.333",)),
        ({}, ()),
    ],
)
def test_amounts_are_numbers_and_sizes(given: dict[str, object], found: tuple[str, ...]) -> None:
    assert resources_of(given) == found
    assert read_resources(given) == {"resources": found}


def test_amounts_are_counted_in_thousandths() -> None:
    assert counted(("gpu=0.5", "scratch=200", "x=1.001")) == (("gpu", 500), ("scratch", 200_000), ("x", 1001))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"gpu": 0}, "gpu=0 is nothing: leave it out"),
        ({"gpu": -1}, "gpu is a number from 0"),
        ({"gpu": True}, "gpu is a number from 0"),
        ({"gpu": "many"}, "gpu is a number from 0"),
        ({"gpu": None}, "gpu is a number from 0"),
        ({"gpu": float("nan")}, "gpu is a number from 0"),
        ({"gpu": float("inf")}, "gpu is a number from 0"),
        ({"x": 2**60}, "x is a number from 0"),
        ({"x": 0.0001}, "finer than a thousandth"),
        ({"gpu": 1.5}, "above 1, it is a whole number"),
        ({"memory": 1}, "memory is no resource: it has an option of its own"),
        ({"a b": 1}, "not the name of a resource"),
        ({"": 1}, "not the name of a resource"),
        ({7: 1, "b=": 1}, "not the name of a resource"),
        ({f"r{n}": 1 for n in range(RESOURCES_LIMIT + 1)}, "at most 16 resources"),
        ([("gpu", 1)], "resources are names with amounts"),
        ("gpu", "resources are names with amounts"),
    ],
)
def test_what_is_no_amount_is_refused_in_one_sentence(given: object, why: str) -> None:
    with pytest.raises(BagRejected, match=re.escape(why)) as refused:
        read_resources(given)
    assert "\n" not in str(refused.value)


def test_a_pc_may_say_that_it_has_none() -> None:
    assert resources_of({"gpu": "0", "matlab": "1"}, none=True) == ("matlab=1",)


def test_a_command_line_says_name_or_name_and_amount_once() -> None:
    assert read_amounts(["gpu", "scratch=20G"]) == {"gpu": "1", "scratch": "20G"}
    with pytest.raises(ValueError, match="'gpu' is given twice"):
        read_amounts(["gpu=1", "gpu"])
