"""What a submitter says of its tasks is one value, packed: what is in it is checked like any field."""

import math
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid import wire
from deskgrid.wire import TaskOptions, read_task_options
from tests.wire.drawing import of_type

OPTIONS = st.builds(
    TaskOptions,
    **{
        name: of_type(TaskOptions.__annotations__[name])
        for name in (
            *("timeout", "retries", "priority", "limit", "licences", "after", "when"),
            *("ranks", "gang", "slots", "memory", "labels", "speedup", "mpi"),
        )
    },
)


@given(OPTIONS)
def test_options_are_read_as_they_were_packed(options: TaskOptions) -> None:
    assert read_task_options(options.packed()) == options


def test_no_speed_up_may_be_said() -> None:
    assert read_task_options(msgpack.packb({"speedup": []})) == TaskOptions()


def test_licences_are_told_by_name_and_number() -> None:
    assert TaskOptions(licences=("spss=2", "matlab=1")).licence_needs() == (("matlab", 1), ("spss", 2))


def test_what_is_at_its_default_is_not_said_and_so_a_later_option_is_at_its_default_in_what_is_kept() -> None:
    assert TaskOptions().packed() == msgpack.packb({})
    assert TaskOptions(retries=2).packed() == msgpack.packb({"retries": 2})
    assert read_task_options(msgpack.packb({"timeout": 3.0})) == TaskOptions(3.0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a packed map"),
        (b"\xc1", "expected a map"),
        (msgpack.packb([]), "expected a map"),
        (msgpack.packb({"colour": 1}), "'colour' is not known here"),
        (msgpack.packb({1: 1}, use_bin_type=True), "'1' is not known here"),
        (b"\x82" + 2 * msgpack.packb({"retries": 1})[1:], "'retries' is not known here, or comes twice"),
        (msgpack.packb({"retries": -1}), "retries: not an integer from 0 to 1000000: -1"),
        (msgpack.packb({"retries": [1]}), "retries: no plain value: 1 exceeds max_array_len"),
        (msgpack.packb({"licences": ["m"]}), "licences: not a licence and a number, like matlab=1"),
        (msgpack.packb({"after": ["b"] * 33}), "after: 33 values where there are at most 32"),
        (msgpack.packb({"when": "later"}), 'when: not "ok" or "ended"'),
        (msgpack.packb({"timeout": 3}), "timeout: expected float, got int"),
        (msgpack.packb({"ranks": 2}), "ranks: expected an array"),
        (msgpack.packb({"ranks": [2]}), "ranks: 1 numbers, not two"),
        (msgpack.packb({"ranks": [3, 2]}), "ranks: at least 3 and at most 2"),
        (msgpack.packb({"ranks": [0, 2]}), "ranks: not an integer from 1 to 1024: 0"),
        (msgpack.packb({"ranks": [1, 1025]}), "ranks: not an integer from 1 to 1024: 1025"),
        (msgpack.packb({"slots": 0}), "slots: not an integer from 1 to 1024: 0"),
        (msgpack.packb({"memory": 2**50 + 1}), "memory: not an integer"),
        (msgpack.packb({"labels": ["--mpi"]}), "labels: not 1 to 64 letters"),
        (msgpack.packb({"labels": ["g"] * 17}), "labels: 17 values where there are at most 16"),
        (msgpack.packb({"speedup": ["linear"]}), "speedup: not a speed-up"),
        (msgpack.packb({"speedup": ["amdahl"]}), "speedup: not a speed-up"),
        (msgpack.packb({"speedup": ["amdahl", 1.5]}), "speedup: not a number from 0 to 1: 1.5"),
        (msgpack.packb({"speedup": ["amdahl", math.nan]}), "speedup: not a number from 0 to 1: nan"),
        (msgpack.packb({"speedup": ["downey", 0.5, 0.0]}), "speedup: not a number from 1 to 1e"),
        (msgpack.packb({"speedup": ["downey", 2.0, -1.0]}), "speedup: not a number from 0 to 1e"),
        (msgpack.packb({"speedup": ["downey", 2, 1.0]}), "speedup: expected float, got int"),
        (msgpack.packb({"speedup": ["table"]}), "speedup: not a speed-up"),
        (msgpack.packb({"speedup": ["table", 1, 1.0, 2]}), "speedup: not a speed-up"),
        (msgpack.packb({"speedup": ["table", 2, 1.0, 2, 1.5]}), "speedup: a table of speed-ups whose numbers of ranks"),
        (msgpack.packb({"speedup": ["table", 0, 1.0]}), "speedup: not an integer from 1 to 1024"),
        (msgpack.packb({"speedup": ["table", 1, 1.5]}), "speedup: the speed-up of one rank is 1"),
        (msgpack.packb({"speedup": ["table", 2, 0.0]}), "speedup: not a number from 1e-06"),
        (msgpack.packb({"speedup": ["table", *[1] * 129]}), "speedup: 130 values where there are at most 129"),
        (msgpack.packb({}) + b"\0", "more follows than belongs to it"),
        (b"\xdf\xff\xff\xff\xff", "not a packed map"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_task_options(data)


def test_a_row_of_work_with_other_options_than_the_next_arrives() -> None:
    row = wire.Work(1, 1, 0, "d" * 64, 1.0, TaskOptions(), 0, b"")
    assign = wire.Assign(1, 0.0, (row, row._replace(options=TaskOptions(0.5, 3)), row))
    assert wire.decode(wire.encode(assign)) == assign


def test_many_options_that_were_read_are_not_all_remembered() -> None:
    def read(count: int) -> None:
        for number in range(count):
            read_task_options(TaskOptions(retries=number).packed())

    read(1_000)
    tracemalloc.start()
    try:
        read(3_000)
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
