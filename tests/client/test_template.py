"""Templates: the part that all tasks of a bag share."""

import hashlib
import pickle
import threading
from functools import partial
from typing import Any

import msgpack
import pytest

from deskgrid.client.template import PYTHON, command_template, name_of, pickle_function, python_template
from deskgrid.errors import BagRejected, PicklingFailed
from deskgrid.wire import PAYLOAD_LIMIT, Build, Environment, read_template, template_environment


def test_a_functions_template_is_known_by_its_bytes() -> None:
    made = python_template(pickle_function(len), "len", {"helper.py": b"x = 1\n"})
    assert made.digest == hashlib.sha256(made.data).hexdigest()
    table = msgpack.unpackb(made.data)
    assert table == {
        "kind": "python",
        "python": PYTHON,
        "function": pickle_function(len),
        "bundle": {"helper.py": b"x = 1\n"},
    }


def test_the_same_function_makes_the_same_template() -> None:
    def scaled(x: float) -> float:
        return x * factor

    factor = 3.0
    first, second = (python_template(pickle_function(scaled), "scaled").digest for _ in range(2))
    assert first == second
    factor = 4.0
    assert python_template(pickle_function(scaled), "scaled").digest != first


def test_a_function_that_cannot_travel_is_named_with_the_cause() -> None:
    lock = threading.Lock()

    def locked() -> Any:
        return lock

    with pytest.raises(PicklingFailed, match=r"the function .*locked cannot be pickled.*lock"):
        pickle_function(locked)


def test_a_template_above_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(BagRejected, match=r"the function f, .* has 67,1\d\d,\d\d\d bytes; the limit is 67,108,864"):
        python_template(bytes(PAYLOAD_LIMIT), "f")


def test_the_environment_stands_where_the_broker_looks_for_it() -> None:
    environment = Environment("numpy", (Build("3.11", "win_amd64", 0, 0, bytes(32), 1, 2),))
    for made in (
        python_template(b"f", "f", environment=environment),
        command_template(["run"], outputs=["*"], environment=environment),
    ):
        assert template_environment(made.data) == environment
        assert read_template(made.data)["environment"] == environment


def test_a_command_is_a_list_of_texts() -> None:
    made = command_template(["convert", "{}", "-resize", "50%"])
    assert msgpack.unpackb(made.data) == {"kind": "command", "argv": ["convert", "{}", "-resize", "50%"]}


@pytest.mark.parametrize("argv", ["convert {}", [], ["convert", 50]])
def test_what_is_no_command_line_is_refused(argv: Any) -> None:
    with pytest.raises(BagRejected, match="a command is a list of texts"):
        command_template(argv)


def test_everything_that_can_be_called_has_a_name() -> None:
    assert name_of(pickle.dumps) == "dumps"
    assert name_of(partial(len)) == "partial(len)"
