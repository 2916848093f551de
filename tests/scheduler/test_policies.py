"""The table of policies: by name, by entry point, with options; and a change of policy on a running grid."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import UnknownPolicy
from deskgrid.scheduler.policies import (
    GROUP,
    POLICIES,
    Place,
    Policy,
    Postpone,
    Requirement,
    View,
    make_policy,
    policy_names,
    policy_options,
    single_policy_names,
)
from deskgrid.scheduler.policies.fcfs import FCFS
from deskgrid.scheduler.policies.packing import Packing
from deskgrid.scheduler.policies.pgs import PGS
from tests.scheduler.builders import Grid, fcfs, packing, pgs


class LastComeFirstServed:
    """A policy that somebody else could have written."""

    name: ClassVar[str] = "last"
    order = "newest-first"
    queue_s = 0.0
    timed = False
    requirement = Requirement()

    def __init__(self, queue_length: int = 0) -> None:
        self.queue_length = queue_length

    def plan(self, view: View) -> Iterator[Place | Postpone]:
        yield Postpone(None)
        while view.slots_with_room() and (entry := view.priority.next_fit(float("inf"))) is not None:
            yield Place(entry, view.slot_with_room(view.slots_with_room() - 1), True, self.requirement)


class Stubborn(LastComeFirstServed):
    """It asks for no room and for no fit, though it says that it does."""

    timed = True

    def plan(self, view: View) -> Iterator[Place | Postpone]:
        while (entry := view.regular.next_fit(float("inf"))) is not None:
            yield Place(entry, 0, False, self.requirement)
        while (entry := view.priority.next_fit(float("inf"))) is not None:
            yield Place(entry, 0, True, self.requirement)


def test_policies_for_parallel_tasks_have_no_way_of_their_own_to_place_single_ones() -> None:
    assert {"pgs", "packing", "fcfs"} <= set(single_policy_names())
    assert {"easy", "rhap", "tla"} <= set(policy_names()) - set(single_policy_names())


def test_a_policy_is_made_by_name_with_options() -> None:
    policy = make_policy("pgs", order="fifo", queue_length=7)
    assert isinstance(policy, PGS)
    assert (policy.order, policy.queue_length) == ("fifo", 7)
    assert isinstance(make_policy("fcfs", seed=3), FCFS)
    packing = make_policy("packing", margin=2, queue_s=3, confidence=1)
    assert isinstance(packing, Packing)
    assert (packing.margin, packing.queue_s, packing.confidence) == (2, 3, 1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("packing", {"margin": 2, "queue_s": 3, "confidence": 0.5}),
        ("pgs", {"order": "fifo", "queue_length": 1, "queue_s": 2, "margin": 3, "stretch": 4}),
        ("longest", {"margin": 2}),
        ("fcfs", {"queue_length": 1, "queue_s": 2, "choice": "first"}),
    ],
)
def test_a_policy_tells_the_options_it_was_made_with(name: str, options: dict[str, Any]) -> None:
    assert policy_options(make_policy(name, **options)) == options


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("sjf", {}, "; there are: packing, pgs, longest, fcfs"),
        ("fcfs", {"order": "fifo"}, "has no option 'order'; its options: queue_length, queue_s, seed, choice"),
        ("pgs", {"order": "random"}, "order is one of newest-first, longest-first, fifo, not 'random'"),
        ("pgs", {"order": ["fifo"]}, "unhashable"),
        ("pgs", {"queue_length": -1}, "queue_length is a finite number from 0 up"),
        ("pgs", {"queue_length": "3"}, "queue_length is a finite number from 0 up, not '3'"),
        ("pgs", {"queue_s": float("inf")}, "queue_s is a finite number from 0 up"),
        ("pgs", {"margin": float("nan")}, "margin is a finite number from 0 up"),
        ("pgs", {"stretch": 0.99}, "stretch is a finite number from 1 up"),
        ("pgs", {"stretch": float("inf")}, "stretch is a finite number from 1 up"),
        ("pgs", {"stretch": float("nan")}, "stretch is a finite number from 1 up"),
        ("packing", {"order": "fifo"}, "has no option 'order'; its options: margin, queue_s, confidence"),
        ("longest", {"queue_length": 1}, "has no option 'queue_length'"),
        ("packing", {"margin": -1}, "margin is a finite number from 0 up"),
        ("packing", {"queue_s": float("inf")}, "queue_s is a finite number from 0 up"),
        ("packing", {"confidence": 1.01}, "confidence is a fraction from 0 to 1"),
        ("packing", {"confidence": -0.01}, "confidence is a fraction from 0 to 1"),
        ("packing", {"confidence": float("nan")}, "confidence is a fraction from 0 to 1"),
        ("packing", {"confidence": "much"}, "not supported between"),
        ("fcfs", {"queue_s": None}, "queue_s is a finite number from 0 up, not None"),
        ("fcfs", {"seed": {}}, "The only supported"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(name: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnknownPolicy, match=f"'{name}'.*{reason}"):
        make_policy(name, **options)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four policies of other packages: one that works, one in the place of ours, two that do not."""
    here = f"{__name__}:LastComeFirstServed"
    values = {"last": here, "pgs": here, "gone": "no_such_module:Policy", "odd": "math:sqrt", "bare": "builtins:object"}
    points = [EntryPoint(name, value, GROUP) for name, value in values.items()]

    def entry_points(**wanted: Any) -> EntryPoints:
        return EntryPoints(points).select(**wanted)

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)


@pytest.mark.usefixtures("installed")
def test_an_installed_package_adds_a_policy() -> None:
    assert policy_names() == [*POLICIES, "bare", "gone", "last", "odd"]
    policy = make_policy("last", queue_length=2)
    assert isinstance(policy, LastComeFirstServed)
    grid = Grid(policy)
    grid.pc("a")
    first, second, third, fourth = grid.tasks(1, 2, 3, 4)
    grid.expect(a=[fourth])
    assert grid.queues() == {"a": [third, second]}
    assert grid.priority() == [first]


@pytest.mark.usefixtures("installed")
def test_an_installed_policy_that_cannot_be_loaded_counts_until_it_is_used() -> None:
    assert single_policy_names() == ["packing", "pgs", "longest", "fcfs", "bare", "gone", "last", "odd"]


def test_a_policy_may_take_whatever_options_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def maker(**options: Any) -> LastComeFirstServed:
        return LastComeFirstServed(options["slots_ahead"])

    monkeypatch.setitem(POLICIES, "free", maker)
    assert make_policy("free", slots_ahead=3).queue_length == 3


@pytest.mark.usefixtures("installed")
def test_an_installed_package_does_not_take_the_place_of_ours() -> None:
    assert isinstance(make_policy("pgs"), PGS)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone", "cannot be loaded: No module named 'no_such_module'"),
        ("odd", "exactly one argument"),
        ("bare", "no attribute 'order'"),
    ],
)
def test_an_installed_policy_that_does_not_work_is_an_unknown_one(name: str, reason: str) -> None:
    with pytest.raises(UnknownPolicy, match=f"policy '{name}'.*{reason}"):
        make_policy(name)


def test_an_installed_policy_with_a_syntax_error_is_an_unknown_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "misspelled_policy.py").write_text("import os\nyeild 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("wrong", "misspelled_policy:Policy", GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **wanted: EntryPoints([point]).select(**wanted))
    reason = r"policy 'wrong' cannot be loaded: invalid syntax \(misspelled_policy.py, line 2\)"
    with pytest.raises(UnknownPolicy, match=reason):
        make_policy("wrong")


def test_what_a_policy_places_against_all_reason_is_given_back_once_it_has_ended() -> None:
    grid = Grid(Stubborn())
    grid.pc("a", 10)
    twenty, nine = grid.tasks(20, 9)
    grid.expect(a=[nine])
    assert grid.priority() == [twenty]
    assert grid.scheduler.counters.unfit == 1


def test_there_is_no_slot_beyond_those_with_room() -> None:
    grid = Grid(fcfs())
    grid.pc("a")
    grid.expect()
    with pytest.raises(IndexError):
        grid.view.slot_with_room(1)


# --- a change of policy --------------------------------------------------------------------------------------------


def test_a_change_of_policy_takes_queued_work_back_and_leaves_running_work_alone() -> None:
    grid = Grid(fcfs(queue_length=2))
    grid.pc("a", 100)
    running, long, short = grid.tasks(10, 200, 20)
    grid.expect(a=[running])
    assert grid.queues() == {"a": [long, short]}
    assert grid.tell(ev.PolicyChanged(pgs())) == []
    grid.expect()
    assert grid.queues() == {"a": [short]}
    assert grid.priority() == [long]
    assert grid.end(running) == [running]
    grid.expect(a=[short])


@pytest.mark.parametrize("old", ["fifo", "newest-first", "longest-first"])
@pytest.mark.parametrize(
    ("new", "expected"), [("fifo", [0, 1, 2, 3]), ("newest-first", [3, 2, 1, 0]), ("longest-first", [1, 3, 0, 2])]
)
def test_the_priority_queue_takes_the_order_of_the_new_policy(old: str, new: str, expected: list[int]) -> None:
    grid = Grid(pgs(order=old))
    grid.pc("a", 1)
    grid.tasks(20, 40, 10, 40)
    grid.expect()
    grid.tell(ev.PolicyChanged(pgs(order=new)))
    assert grid.priority() == expected


@pytest.mark.parametrize("policy", [packing(), pgs(), make_policy("longest"), fcfs(), LastComeFirstServed()])
def test_every_policy_can_take_over(policy: Policy) -> None:
    grid = Grid(fcfs(queue_length=3))
    grid.pc("a")
    tasks = grid.tasks(*range(1, 9))
    grid.tell_pass()
    grid.tell(ev.PolicyChanged(policy))
    for _ in tasks:
        grid.end(grid.running("a"))
        grid.tell_pass()
    assert grid.inside.tasks.bags[0].done == len(tasks)
