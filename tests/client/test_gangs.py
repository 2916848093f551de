"""What a program says that its tasks need, and the results of gangs, which are lists of their ranks' results."""

from typing import Any

import pytest

import deskgrid
from deskgrid import (
    Amdahl,
    BagRejected,
    Downey,
    Grid,
    RankLog,
    RequestFailed,
    ResultUnreadable,
    TaskLog,
    task,
    wire,
)
from deskgrid.client.payload import Raised, value_of
from deskgrid.client.template import PYTHON
from tests.client.fakebroker import FakeGrid

MEASURED = {1: 1, 2: 1.9, 4: 3.4}


def double(item: int) -> int:
    return 2 * item


def fail(item: int) -> int:
    raise ValueError(f"not {item}")


def needs(**given: Any) -> dict[str, Any]:
    """What differs from a task that needs nothing."""
    options, nothing = task(double, **given).options, wire.TaskOptions()
    names = wire.TaskOptions.__slots__
    return {name: getattr(options, name) for name in names if getattr(options, name) != getattr(nothing, name)}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"slots": 4}, {"slots": 4}),
        ({"gang": 1}, {"gang": True}),
        ({"gang": 8}, {"gang": True, "ranks": (8, 8)}),
        ({"gang": 8, "slots": 2, "mpi": True}, {"gang": True, "ranks": (8, 8), "slots": 2, "mpi": True}),
        ({"memory": "4G"}, {"memory": 4 * 2**30}),
        ({"memory": 123}, {"memory": 123}),
        ({"labels": "gpu"}, {"labels": ("gpu",)}),
        ({"labels": {"matlab", "gpu"}}, {"labels": ("gpu", "matlab")}),
        ({"labels": [], "memory": None, "gang": None}, {}),
    ],
)
def test_needs_become_options_of_tasks(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert needs(**given) == expected


@pytest.mark.parametrize(
    ("speedup", "packed"),
    [
        (Amdahl(0.05), ("amdahl", 0.05)),
        (Amdahl(0), ("amdahl", 0.0)),
        (Downey(8, 1), ("downey", 8.0, 1.0)),
        (MEASURED, ("table", 1, 1.0, 2, 1.9, 4, 3.4)),
        ({4: 3, 1: 1}, ("table", 1, 1.0, 4, 3.0)),
        (dict.fromkeys(range(1, 65), 1.0), ("table", *[number for ranks in range(1, 65) for number in (ranks, 1.0)])),
    ],
)
def test_a_speed_up_is_a_formula_or_a_table(speedup: Any, packed: tuple[object, ...]) -> None:
    options = task(double, gang=(2, 16), speedup=speedup).options
    assert (options.ranks, options.speedup) == ((2, 16), packed)
    assert wire.read_task_options(options.packed()) == options


RANGE = {"gang": (2, 16)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"gang": 0},
            r"gang is a number of ranks from 1 to 1,024, or the least and the most, such as \(2, 16\), not 0",
        ),
        ({"gang": 1025}, "gang is a number of ranks"),
        ({"gang": True}, "gang is a number of ranks"),
        ({"gang": "4"}, "gang is a number of ranks"),
        ({"gang": (1, 2, 3)}, "gang is a number of ranks"),
        ({"gang": (16, 2)}, r"gang has the least number of ranks first: give gang=\(2, 16\), not \(16, 2\)"),
        (RANGE, r"gang=\(2, 16\) lets the grid choose the number of ranks: say with speedup what more"),
        ({"speedup": Amdahl(0.1)}, "speedup is for tasks of several ranks: give gang, too"),
        ({"mpi": True}, "mpi is for tasks of several ranks: give gang, too"),
        ({"mpi": "yes", "gang": 2}, "mpi is True or False, not 'yes'"),
        ({**RANGE, "speedup": lambda ranks: ranks}, "speedup is Amdahl.* give a function's values as a table"),
        ({**RANGE, "speedup": Amdahl}, "speedup is Amdahl.* give a function's values as a table"),
        ({**RANGE, "speedup": "fast"}, "speedup is Amdahl.*, not 'fast'"),
        ({**RANGE, "speedup": {2: 1.9}}, "a table of speed-ups begins with 1: 1, which is the speed-up of one rank"),
        ({**RANGE, "speedup": {1: 2}}, "a table of speed-ups begins with 1: 1"),
        ({**RANGE, "speedup": {}}, "a table of speed-ups begins with 1: 1"),
        ({**RANGE, "speedup": {1: 1, 2: -1}}, "speedup: a speed-up is a finite number above 0"),
        ({**RANGE, "speedup": {1: 1, 2: float("nan")}}, "speedup: a speed-up is a finite number above 0"),
        ({**RANGE, "speedup": {1: 1, 2: 10**400}}, "speedup: "),
        ({**RANGE, "speedup": {1: 1, "2": 2}}, "speedup has numbers of ranks and their speed-ups, not '2': 2"),
        ({**RANGE, "speedup": {1: 1, 2: 1e7}}, "speedup has no numbers above 1e.06"),
        ({**RANGE, "speedup": {1: 1, 2: 1e-7}}, "speedup has no speed-ups below 1e-06"),
        ({**RANGE, "speedup": dict.fromkeys(range(1, 66), 1)}, "speedup has 64 numbers of ranks at most, not 65"),
        ({"memory": "4 apples"}, """memory is a number of bytes, or a size such as "512M" or "4G", not '4 apples'"""),
        ({"memory": -1}, "memory is a number of bytes"),
        ({"memory": 0}, """memory is a number of bytes, or a size such as "512M" or "4G", not 0"""),
        ({"memory": "0G"}, "memory is a number of bytes"),
        ({"memory": 1.5}, "memory is a number of bytes"),
        ({"memory": True}, "memory is a number of bytes"),
        ({"memory": "9999T"}, "memory is '9999T', which is more than any PC has"),
        ({"labels": 3}, "labels are names such as "),
        ({"labels": {"gpu": 1}}, "labels are names such as "),
        ({"labels": ["a b"]}, "a label is 1 to 64 letters, digits or . _ -, such as \"gpu\", not 'a b'"),
        ({"labels": ""}, "a label is 1 to 64 letters"),
        ({"labels": map(str, range(17))}, "labels are 16 at most, not 17"),
        ({"slots": 0}, "slots is a number of slots of one PC from 1 to 1,024, not 0"),
        ({"slots": True}, "slots is a number of slots"),
        ({"gang": 4, "checkpoint": True}, "checkpoint is for tasks of one slot: leave out gang"),
        ({"slots": 4, "checkpoint": True}, "checkpoint is for tasks of one slot: leave out slots"),
        ({"gang": 1, "copies": True}, "copies is for tasks of one slot: leave out gang or copies"),
    ],
)
def test_needs_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BagRejected, match=f"^{said}"):
        task(double, **given)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_fraction_is_from_0_to_1(wrong: float) -> None:
    with pytest.raises(ValueError, match="the serial fraction of a task is a number from 0 to 1"):
        Amdahl(wrong)


def test_an_option_that_does_not_exist_is_an_error_as_of_any_function(grid: Grid) -> None:
    calls: list[tuple[Any, tuple[Any, ...], str]] = [
        (grid.bag, (double, [1]), "gangs"),
        (grid.command, (["true"], ["a"]), "modules"),
        (task, (double,), "priority"),
    ]
    for function, given, name in calls:
        with pytest.raises(TypeError, match=f"has no option '{name}'"):
            function(*given, **{name: 4})
    with pytest.raises(TypeError, match="has no option 'label'; do you mean 'labels'"):
        task(double, label="gpu")  # type: ignore[call-arg]


def test_help_shows_and_describes_every_option() -> None:
    import inspect

    for function in (Grid.bag, Grid.command, task):
        shown = inspect.signature(function).parameters
        assert {"gang", "speedup", "copies", "env"} <= shown.keys()
        assert "options" not in shown
        described = function.__doc__ or ""
        assert [name for name in shown.keys() - {"self", "function", "argv"} if f"``{name}" not in described] == []


def test_what_a_task_says_holds_for_a_bag_unless_the_bag_says_otherwise(fake: FakeGrid, grid: Grid) -> None:
    grid.bag(task(double, gang=4, memory="1G"), [1], gang=2, labels="gpu")
    (submit,) = fake.memory.of(wire.Submit)
    assert submit.options == wire.TaskOptions(ranks=(2, 2), gang=True, memory=2**30, labels=("gpu",), python=PYTHON)


def test_a_bag_of_gangs_does_not_explore(grid: Grid) -> None:
    with pytest.raises(BagRejected, match="explore is for tasks of one slot: leave out explore, gang and slots"):
        grid.bag(double, [1], gang=2, explore=True)


# --- results ---------------------------------------------------------------------------------------------------------


def test_the_result_of_a_gang_is_the_list_of_its_ranks_results(fake: FakeGrid, grid: Grid) -> None:
    bag = grid.bag(double, [1, 2], gang=3)
    assert bag.results() == [[2, 2, 2], [4, 4, 4]]
    assert dict(bag.as_completed()) == {1: [2, 2, 2], 2: [4, 4, 4]}
    assert grid.attach(bag.id).results() == bag.results()
    assert grid.bag(double, [1], gang=1).results() == [[2]]
    assert grid.command(["echo", "{}"], ["a"], gang=2).results() == [["echo {} a"] * 2]


def test_a_future_has_the_list_too(grid: Grid) -> None:
    assert grid.submit(task(double, gang=3), 1).result() == [2, 2, 2]
    assert list(grid.map(task(double, gang=2), [1, 2])) == [[2, 2], [4, 4]]
    with pytest.raises(ValueError, match="a task of several calls has one rank: leave out chunksize, or the gang"):
        grid.map(task(double, gang=2), [1, 2], chunksize=2)


def test_an_error_names_the_rank_and_the_pc(grid: Grid) -> None:
    with pytest.raises(ValueError, match="not 1") as caught:
        grid.bag(fail, [1], gang=3).results()
    (note,) = caught.value.__notes__
    assert note.startswith("deskgrid: raised by rank 2 of task 0 of bag ")
    assert note.endswith(" on pc1 after 0.25 s")


def test_a_crash_and_a_timeout_name_the_rank() -> None:
    account = wire.Failure("exit", "signal 9", rank=1).packed()
    for outcome, kind in ((wire.Outcome.CRASH, deskgrid.TaskCrashed), (wire.Outcome.TIMEOUT, deskgrid.TaskTimeout)):
        raised = value_of(wire.BagResult(7, outcome, 2.0, "lab-4", account), "b")
        assert isinstance(raised, Raised)
        assert isinstance(raised.error, kind)
        assert str(raised.error).startswith("rank 1 of task 7 of bag b on lab-4 after 2 s ")


@pytest.mark.parametrize("payload", [wire.RANKS_MARK, wire.join_ranks([b"", b"N."]), wire.join_ranks([b"\xc0N."])])
def test_a_gangs_result_that_makes_no_sense_is_unreadable(payload: wire.Payload) -> None:
    raised = value_of(wire.BagResult(0, wire.Outcome.DONE, 2.0, "pc", payload), "b")
    assert isinstance(raised, Raised)
    assert isinstance(raised.error, ResultUnreadable)


def test_the_log_of_a_gang_has_the_output_of_each_rank(fake: FakeGrid, grid: Grid) -> None:
    ranks = tuple([RankLog(rank, f"pc{rank}", "done", 1.5, f"out {rank}", "") for rank in range(2)])
    log = TaskLog("error", "pc1", 1.5, "out 1", "", "ValueError", 1, ranks)
    rows = [{name: getattr(rank, name) for name in RankLog.__slots__} for rank in ranks]
    fake.broker.answers["logs"] = {name: getattr(log, name) for name in TaskLog.__slots__} | {"ranks": rows}
    bag = grid.bag(double, [1], gang=2)
    assert bag.logs(0) == log
    fake.broker.answers["logs"]["ranks"] = [{"rank": 0}]
    with pytest.raises(RequestFailed, match="the broker's answer cannot be read"):
        bag.logs(0)
