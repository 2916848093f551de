"""Of a template the broker reads the kind, and a worker no more than there may be."""

from typing import Any

import msgpack
import pytest

from deskgrid.wire import (
    ARGUMENTS_LIMIT,
    FILES_LIMIT,
    LARGE_BYTES,
    PATTERNS_LIMIT,
    Build,
    Chunks,
    Environment,
    TemplateRefused,
    read_template,
    template_kind,
    template_trees,
)
from tests.wire.test_memory import peak_of

PYTHON = {"kind": "python", "python": "3.12", "function": b"f", "bundle": {"a.py": b"x = 1"}}
COMMAND = {"kind": "command", "argv": ["echo", "{}"]}
SAVING = COMMAND | {"checkpoint": ["state/*"], "signal": "USR1", "exit": 255}


FILES = {"kind": "command", "argv": ["./run"], "inputs": bytes(64), "outputs": ["out/*"]}


SOURCE = PYTHON | {"source": bytes(32)}


@pytest.mark.parametrize("table", [PYTHON, COMMAND, COMMAND | {"argv": ["echo", b"caf\xe9"]}, SAVING, FILES, SOURCE])
def test_a_template_is_read_as_it_was_made(table: dict[str, Any]) -> None:
    data = msgpack.packb(table)
    assert template_kind(data) == table["kind"]
    assert read_template(data) == table


@pytest.mark.parametrize(
    "table",
    [
        1,
        [],
        {f"entry {number}": 1 for number in range(20)},
        {"kind": 1},
        {"kind": "python", "other": 1},
        {1: "python"},
        {"kind": "command", "argv": "echo"},
        {"kind": "command", "argv": ["echo", 1]},
        {"kind": "command", "argv": ["x"] * (ARGUMENTS_LIMIT + 1)},
        {"kind": "python", "bundle": {str(number): b"" for number in range(FILES_LIMIT + 1)}},
        {"kind": "python", "bundle": {"a": "text"}},
        {"kind": "python", "bundle": {1: b""}},
        {"kind": "python", "function": [[]]},
        SAVING | {"exit": 0},
        SAVING | {"exit": 256},
        SAVING | {"exit": "85"},
        SAVING | {"checkpoint": "state/*"},
        {"kind": "command", "inputs": bytes(31)},
        PYTHON | {"source": b""},
        PYTHON | {"source": bytes(64)},
        {"kind": "command", "outputs": ["*"] * (PATTERNS_LIMIT + 1)},
        {"kind": "command", "outputs": [1]},
        {str(number): "" for number in range(8)},
    ],
)
def test_what_is_no_template_is_refused(table: Any) -> None:
    with pytest.raises(TemplateRefused):
        read_template(msgpack.packb(table))


def test_what_follows_a_template_is_refused() -> None:
    with pytest.raises(TemplateRefused):
        read_template(msgpack.packb(COMMAND) + b"\x00")


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", b"\x81\xa4kind", b"\x81\xa4kind\xa3new", b"\x91\xa4kind"])
def test_what_begins_like_no_template_has_no_kind(data: bytes) -> None:
    assert template_kind(data) is None


@pytest.mark.parametrize("filling", [b"\x90", b"\x80", b"\xa0", b"\xc0", b"\x91"])
def test_a_large_template_of_small_things_costs_no_memory(filling: bytes) -> None:
    size = 8 * 2**20
    data = b"\x82\xa4kind\xa7command\xa4argv\xdd" + size.to_bytes(4, "big") + filling * size
    assert template_kind(data) == "command"
    assert peak_of(lambda: template_kind(data)) < 100_000

    def read() -> None:
        with pytest.raises(TemplateRefused):
            read_template(data)

    assert peak_of(read) < 2 * size


def environment(*trees: bytes) -> Environment:
    """An environment with a build for each tree."""
    builds = [Build("3.12", "linux_x86_64", 2, number, tree, 1, 1) for number, tree in enumerate(trees)]
    return Environment("libraries", tuple(builds))


TREES = [bytes([number]) * 32 for number in range(1, 6)]


def test_the_broker_finds_all_trees_that_a_template_names_wherever_they_stand() -> None:
    packed = environment(*TREES[:2]).packed()
    python = {"kind": "python", "environment": packed, "bundle": {"a.py": b"x"}, "source": TREES[2]}
    assert template_trees(msgpack.packb(python | {"inputs": b"".join(TREES[3:])})) == tuple(TREES)
    assert template_trees(msgpack.packb(COMMAND | {"inputs": TREES[0], "outputs": ["*"]})) == (TREES[0],)
    assert template_trees(msgpack.packb(SAVING)) == ()
    large = Chunks([memoryview(msgpack.packb(PYTHON | {"function": bytes(LARGE_BYTES), "inputs": TREES[0]}))])
    assert template_trees(large) == (TREES[0],)


@pytest.mark.parametrize("table", [COMMAND | {"inputs": bytes(31)}, COMMAND | {"environment": 1}, [], 1])
def test_a_template_that_every_worker_refuses_names_no_trees(table: Any) -> None:
    data = msgpack.packb(table)
    assert template_trees(data) == ()
    with pytest.raises(TemplateRefused):
        read_template(data)
    whole = msgpack.packb(COMMAND | {"inputs": TREES[0]})
    for wrong in (whole + b"\0", whole[:-1]):
        assert template_trees(wrong) == ()
        with pytest.raises(TemplateRefused):
            read_template(wrong)
