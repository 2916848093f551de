"""What a client may ask: arguments are read by the fields that `QUESTIONS` states, and by nothing else."""

from typing import Any

import msgpack
import pytest

from deskgrid.wire import Ask, pack_record
from deskgrid.wire.questions import NUMBER_LIMIT, OPTIONS_LIMIT, QUESTIONS, TEXT_LIMIT, arguments

CHANGE = {
    "without": ["lab-*"],
    "windows": [{"pcs": "b", "starts_s": [0.0], "lasts_s": [60.0]}],
    "more": [{"like": "*", "many": 2}],
    "split": 2,
    "begins_s": 1.5,
    "policy": "pgs",
}


def read(what: str, **args: Any) -> dict[str, Any]:
    return arguments(Ask(1, what, pack_record(args)))


def refusal(what: str, **args: Any) -> str:
    with pytest.raises(ValueError, match=r"\w") as refused:
        read(what, **args)
    return str(refused.value)


def test_what_is_not_given_is_none() -> None:
    assert read("cancel", bag="b1") == {"bag": "b1", "items": None, "running": None}
    assert read("cancel", bag="b1", items=None) == read("cancel", bag="b1")
    assert read("cancel", bag="b1", items=[3, 1], running=False) == {"bag": "b1", "items": (3, 1), "running": False}


def test_a_question_without_arguments_needs_none() -> None:
    assert arguments(Ask(1, "plan")) == {}


def test_what_is_missing_unknown_or_given_twice_is_named() -> None:
    assert refusal("logs", bag="b1") == "item is missing"
    assert refusal("logs", bag="b1", item=0, colour="red") == "'colour' is not known here, or comes twice"
    twice = b"\x82" + 2 * pack_record({"bag": "b1"})[1:]
    with pytest.raises(ValueError, match="'bag' is not known here, or comes twice"):
        arguments(Ask(1, "eta", twice))
    assert refusal("weather") == "this broker does not know the question 'weather'"


def test_what_is_wrong_is_said_with_the_name_of_its_field() -> None:
    assert refusal("logs", bag="b1", item=-1) == "item: not an integer from 0 to 10000000: -1"
    assert refusal("logs", bag="b1", item=[0]) == "item: no plain value: 1 exceeds max_array_len(0)"
    assert refusal("cancel", bag="b1", items=["0"]) == "items: expected int, got str"


def test_changes_arrive_as_they_were_asked_for() -> None:
    assert read("whatif", bag="b1", changes=[]) == {"bag": "b1", "changes": []}
    (change,) = read("whatif", bag="b1", changes=[CHANGE])["changes"]
    assert change == CHANGE | {
        "without": ("lab-*",),
        "windows": [{"pcs": "b", "starts_s": (0.0,), "lasts_s": (60.0,)}],
    }
    assert refusal("whatif", bag="b1", changes=[{}] * 17) == "changes: 17 values where there are at most 16"
    assert read("whatif", bag="b1", changes=[{"more": None}])["changes"] == [{"more": None}]


def test_options_of_a_policy_are_numbers_booleans_and_short_texts() -> None:
    options = {"order": "fifo", "margin": 2.5, "length": 0, "copies": True, "none": None}
    assert read("policy", name="pgs", options=options)["options"] == options
    odd = "options: one of them is neither a number nor a short text"
    for value in ("x" * (TEXT_LIMIT + 1), 2 * NUMBER_LIMIT, float("nan"), b"bytes"):
        assert refusal("policy", name="pgs", options={"a": value}) == odd
    for name in ("", "a b", "x" * 65, "1a"):
        assert refusal("policy", name="pgs", options={name: 1}) == odd
    with pytest.raises(ValueError, match=odd):
        arguments(Ask(1, "policy", msgpack.packb({"name": "pgs", "options": {1: 1}})))
    many = {f"a{number}": number for number in range(OPTIONS_LIMIT + 1)}
    assert refusal("policy", name="pgs", options=many) == "options: 21 options where there are at most 20"
    assert refusal("policy", name="pgs", options={"a": [1]}).startswith("options: no plain value")


def test_what_writes_is_an_order_and_policies_are_not_written() -> None:
    orders = {what for what, question in QUESTIONS.items() if question.order}
    assert orders - {what for what, question in QUESTIONS.items() if question.writes} == {"policy"}
