"""A picture is taken of a grid."""

import json
from collections.abc import Iterator
from math import inf
from random import Random

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.forecast import look as look_module
from deskgrid.scheduler.forecast.ahead import CERTAIN, forecast
from deskgrid.scheduler.forecast.look import Learned, Look
from deskgrid.scheduler.forecast.picture import (
    Durations,
    Group,
    Picture,
    PictureBag,
    PicturePC,
    PictureShare,
    PictureTask,
    PictureWindow,
    Preparing,
)
from deskgrid.scheduler.forecast.rows import picture_of, rows_of
from deskgrid.scheduler.need import SINGLE, UNBOUNDED, Need, of_memory
from deskgrid.scheduler.parallel.base import Keep, ParallelView, Start
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.prediction.earlier import Vote
from deskgrid.scheduler.prediction.prediction_error import ENOUGH
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.quarantine import Quarantined
from tests.scheduler.builders import Grid, at_work, fcfs, packing, pgs

TEN = Durations((10.0,), 3)


def ten(bag: ScheduledBag, running: list[float]) -> Durations | None:
    return TEN


def nothing(bag: ScheduledBag, running: list[float]) -> Durations | None:
    return None


def taken(grid: Grid, learned: Learned = ten) -> Look:
    look = Look(grid.inside, grid.now, learned)
    assert all(rows >= 0 for rows in look.pieces())
    return look


def test_a_picture_has_the_pcs_with_their_windows_and_what_they_run() -> None:
    grid = at_work(slots=2)
    assert taken(grid).picture.pcs == (
        PicturePC("a", (PictureWindow(0.0, 90.0), PictureWindow(290.0, 350.0)), 1, (PictureTask(0, 0, 10.0),), "lab"),
        PicturePC("b", (PictureWindow(0.0, inf),)),
        PicturePC("c", (PictureWindow(40.0, 240.0), PictureWindow(990.0, 1010.0)), 2),
    )


def test_a_pc_in_quarantine_is_there_later() -> None:
    grid = Grid(pgs())
    grid.pc("a", 1_000)
    grid.pc("b", 50)
    for name in ("a", "b"):
        grid.inside.quarantine.workers[name] = Quarantined(60.0, 60.0, 0, 3, silent=False)
    assert [pc.spans for pc in taken(grid).picture.pcs] == [(PictureWindow(60.0, 1_000.0),), ()]


def test_a_picture_has_the_bags_that_have_not_ended() -> None:
    grid = Grid(packing(margin=2.0))
    grid.pc("a")
    category = CategoryKey("ann", 3, (), 5, 7)
    grid.tasks(30.0, bag=7, key=category)
    grid.tasks(1.0, 1.0, bag=8, min_piece=60.0, reserve_s=4.0, barred=True)
    done = grid.tasks(5.0, bag=9, done=[3])
    assert done == [3]
    picture = taken(grid).picture
    assert picture.bags == (
        PictureBag(7, (Group(1, TEN, 30.0, 32.0),), 1, 0, "ann", 3, 5),
        PictureBag(8, (Group(2, TEN, 1.0, 7.0),), 2, 0, "", 0, 0, barred=True, keeps=True),
    )
    assert picture.longest_first
    assert set(picture.shares) == {PictureShare("ann", 0.0), PictureShare("", 0.0)}


def test_a_policy_that_ignores_windows_needs_nothing_of_them() -> None:
    grid = Grid(fcfs())
    grid.tasks(30.0)
    (bag,) = taken(grid).picture.bags
    assert bag.groups[0].needs_s == 0.0


@pytest.mark.parametrize(
    ("policy", "needs_s"),
    [(packing(2.0, confidence=0.9), 32.0), (make_policy("pgs", margin=2.0, stretch=3.0), 92.0)],
)
def test_tasks_need_what_the_policy_accepts_on_a_slot_that_would_stay_idle(policy: Policy, needs_s: float) -> None:
    """Earlier ones took three times as long as predicted."""
    grid = Grid(policy)
    grid.pc("a", 80)
    grid.inside.prediction_error.add([3.0] * ENOUGH)
    tasks = grid.tasks(30.0)
    grid.expect(**({"a": tasks} if needs_s < 80.0 else {}))
    (bag,) = taken(grid).picture.bags
    assert [group.needs_s for group in bag.groups] == [needs_s]


def test_what_was_learned_is_asked_with_what_runs() -> None:
    asked: list[tuple[int, list[float]]] = []

    def learned(bag: ScheduledBag, running: list[float]) -> Durations | None:
        asked.append((bag.number, running))
        return TEN

    grid = Grid(pgs(0))
    grid.pc("a", slots=2)
    tasks = grid.tasks(30.0, 30.0, 30.0)
    grid.expect(a=[tasks[0]], a_1=[tasks[1]])
    grid.wait(4.0)
    assert [group.count for group in taken(grid, learned).picture.bags[0].groups] == [1]
    assert asked == [(0, [4.0, 4.0])]


def test_tasks_with_predictions_of_their_own_are_in_groups() -> None:
    grid = Grid(packing())
    grid.tasks(*[float(number % 100 + 1) for number in range(3_000)])
    (bag,) = taken(grid, nothing).picture.bags
    assert sum(group.count for group in bag.groups) == 3_000
    assert [round(group.runtime) for group in bag.groups] == [95, 82, 70, 57, 45, 32, 20, 7]
    assert bag.groups[0].needs_s == bag.groups[0].runtime
    points = bag.groups[0].durations.points
    assert points[0] < bag.groups[0].runtime < points[-1], "who knows whether the predictions hold"
    assert bag.groups[0].durations.known == 0


def test_how_far_predictions_were_off_tells_how_far_they_are() -> None:
    grid = Grid(pgs())
    grid.pc("a")
    tasks = grid.tasks(*[float(number + 1) for number in range(60)])
    for _ in tasks[:40]:
        ((task, *_),) = grid.tell_pass().values()
        grid.end(task, elapsed=3.0 * grid.inside.tasks.runtime(task), worker="a")
    grid.tell_pass()
    picture = taken(grid, nothing).picture
    (bag,) = picture.bags
    assert bag.groups[0].durations.known == 40
    assert bag.groups[0].durations.points[24] == pytest.approx(3.0 * bag.groups[0].runtime)
    (running,) = picture.pcs[0].running
    task = grid.running("a")
    far = [abs(group.runtime - grid.inside.tasks.runtime(task)) for group in bag.groups]
    assert far[running.group] == min(far)


def test_what_earlier_bags_took_counts_for_a_bag_of_which_no_task_has_ended() -> None:
    grid = Grid(packing())
    names = ["ann\nrender"]
    for number in range(8):
        grid.inside.earlier.teach(names, Vote(number, 100, (3.0,) * 16))
    grid.tasks(5.0, 10.0, names=names)
    grid.tasks(5.0, 10.0, bag=1)
    known, unknown = taken(grid, nothing).picture.bags
    assert [group.durations.points[24] for group in known.groups] == [30.0, 15.0]
    assert known.groups[0].durations.points[0] < 10.0 < known.groups[0].durations.points[-1], (
        "this one may be different"
    )
    assert known.groups[0].durations.known == 0
    assert [round(group.durations.points[24]) for group in unknown.groups] == [11, 5]
    grid.tell(ev.TasksSubmitted(2, 100, 2, [10.0], names=names))
    assert taken(grid, nothing).picture.bags[2].groups[0].durations.points == unknown.groups[0].durations.points


@pytest.mark.parametrize("policy", [packing(queue_s=1.0), pgs(3)])
def test_tasks_that_are_bound_to_a_slot_and_have_not_begun_keep_their_predictions(policy: Policy) -> None:
    grid = Grid(policy)
    grid.pc("a", 100_000)
    grid.tasks(1_000.0, *[0.01 * (number + 1) for number in range(4)])
    grid.tell_pass()
    grid.end(grid.running("a"), elapsed=1_000.0, worker="a")
    grid.tell_pass()
    assert not grid.regular()
    (bag,) = taken(grid, nothing).picture.bags
    groups = [group for group in bag.groups if group.count]
    assert sum([group.count for group in groups]) == 3
    assert max([group.runtime for group in groups]) <= 0.04, "the longest has ended"


def test_one_prediction_for_all_is_one_group() -> None:
    grid = Grid(pgs())
    grid.tell(ev.TasksSubmitted(0, 0, 5_000, [8.0]))
    (bag,) = taken(grid, nothing).picture.bags
    assert [(group.count, group.runtime) for group in bag.groups] == [(5_000, 8.0)]


def test_of_very_many_bags_neighbours_that_are_alike_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "ROWS", 3)
    grid = Grid(pgs(0))
    grid.pc("a")
    for number in range(6):
        grid.tasks(10.0, 10.0, bag=number, key=CategoryKey("ann" if number < 4 else "ben"))
    grid.tell_pass()
    look = taken(grid)
    assert look.rows == {0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 4}
    assert [(bag.number, bag.groups[0].count, bag.total) for bag in look.picture.bags] == [
        (0, 3, 4),
        (2, 4, 4),
        (4, 4, 4),
    ]
    assert sum(len(pc.running) for pc in look.picture.pcs) == 1
    assert set(forecast(look.picture, Random(1), 3, CERTAIN)) == {0, 2, 4}


def test_a_row_of_very_many_bags_and_a_pc_of_very_many_slots_are_looked_at_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look_module, "ROWS", 1)
    monkeypatch.setattr(look_module, "PIECE", 10)
    grid = Grid(pgs(0))
    for number in range(30):
        grid.pc(f"pc{number}", slots=2)
        grid.tasks(10.0, 10.0, bag=number)
    grid.tell_pass()
    look = Look(grid.inside, grid.now, nothing)
    pieces = list(look.pieces())
    assert max(pieces) <= 20
    assert sum(pieces) >= 30 * 8 + 60
    assert len(look.picture.bags) == 1
    assert sum(len(pc.running) for pc in look.picture.pcs) == 60


def test_of_very_many_batches_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "LOOKED_AT", 10)
    grid = Grid(pgs(0))
    for number in range(100):
        grid.tasks(float(number % 4 + 1), float(number % 4 + 1))
    (bag,) = grid.inside.tasks.bags.values()
    seen = [round(runtime) for runtime in Look(grid.inside, 0.0, nothing)._some(bag)]
    assert 5 <= len(seen) <= 20
    assert set(seen) == {1, 2, 3, 4}
    (waiting,) = taken(grid, nothing).picture.bags
    assert sum(group.count for group in waiting.groups) == 200


def test_bags_may_end_while_a_picture_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "PIECE", 1)
    grid = Grid(pgs(0))
    grid.pc("a")
    grid.pc("b")
    grid.tell(ev.UptimeRefreshed("c", 0.0, [(5.0, 5.0)]))
    (task,) = grid.tasks(10.0)
    grid.tasks(10.0, bag=2)
    grid.tell_pass()
    look = Look(grid.inside, grid.now, ten)
    pieces = look.pieces()
    next(pieces)
    next(pieces)
    grid.end(task, worker="a")
    list(pieces)
    assert [bag.number for bag in look.picture.bags] == [2]
    assert [running.bag for pc in look.picture.pcs for running in pc.running] == [2]


def test_bags_say_what_they_bring_and_pcs_how_long_they_take_to_prepare_it() -> None:
    grid = Grid()
    grid.pc("a", 100)
    grid.tasks(10.0, key=CategoryKey(environment="numpy"))
    grid.tasks(10.0, bag=2)
    look = Look(grid.inside, grid.now, ten, prepares=lambda name: (Preparing(name, 3.0),))
    list(look.pieces())
    assert [bag.environment for bag in look.picture.bags] == ["numpy", ""]
    assert [pc.prepares for pc in look.picture.pcs] == [(Preparing("a", 3.0),)]


def test_bags_say_which_licences_they_need_and_the_grid_how_many_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "ROWS", 2)
    grid = Grid()
    grid.tell(ev.LicencesCounted({"lic": 5}))
    for number in range(4):
        grid.tasks(10.0, bag=number, key=CategoryKey(licences=(("lic", 2),) if number % 2 else ()))
    picture = taken(grid).picture
    assert picture.licences == (("lic", 5),)
    assert [(bag.licences, bag.total) for bag in picture.bags] == [((), 2), ((("lic", 2),), 2)]


def test_a_picture_goes_through_json() -> None:
    spans = (PictureWindow(0.0, 5.0, (3.0, 6.0)), PictureWindow(9.0, inf))
    pc = PicturePC(
        "a",
        spans,
        2,
        (PictureTask(1, 0, 0.5),),
        "lab",
        2.0,
        prepares=(Preparing("numpy", 3.0, True), Preparing("x", inf)),
    )
    groups = Group(3, TEN, 10.0, 11.0), Group(0, Durations((1.0, 2.0)))
    bag = PictureBag(1, groups, 9, 5, "ann", 1, 2, True, True, 3.0, environment="x", licences=(("lic", 2),))
    picture = Picture((pc, PicturePC("b", ())), (bag,), True, (PictureShare("ann", 5.0, 2.0),), licences=(("lic", 5),))
    assert picture_of(json.loads(json.dumps(list(rows_of(picture))))) == picture
    assert picture_of(list(rows_of(Picture((), ())))) == Picture((), ())


def test_a_gang_is_one_task_on_several_slots_and_its_seconds_are_those_of_one_rank() -> None:
    grid = Grid(packing())
    grid.pc("a", slots=2, site="lab", labels=frozenset({"gpu"}), amounts=of_memory(100), reachable=True)
    grid.pc("b", speed=0.5)
    need = Need(2, 4, speedup=Amdahl(0.0))
    first, _ = grid.tasks(30, 20, need=need)
    grid.tell(ev.PassDue())
    assert first in grid.inside.gangs.running
    grid.wait(10)
    look = Look(grid.inside, grid.now, learned := Remembered())
    list(look.pieces())
    assert learned.elapsed == [20.0]
    a, b = look.picture.pcs
    assert a.running == (PictureTask(0, 0, 10.0, gang=first + 1),) * 2
    assert (a.amounts, a.labels, a.reachable) == (of_memory(100), frozenset({"gpu"}), True)
    assert (b.speed, b.running, b.amounts) == (0.5, (), UNBOUNDED)
    (bag,) = look.picture.bags
    assert bag.need == need
    assert [(group.count, group.runtime) for group in bag.groups] == [(1, 20.0)]


def test_bags_that_need_what_every_pc_has_are_shown_as_those_that_need_nothing() -> None:
    grid = Grid(packing())
    for name, labels in (("a", {"Python 3.11", "gpu"}), ("b", {"Python 3.11", "Python 3.12"})):
        grid.pc(name, labels=frozenset(labels))
    for bag, labels in enumerate([{"Python 3.11"}, {"Python 3.12", "Python 3.11"}]):
        grid.tasks(10, 10, 10, bag=bag, need=Need(labels=frozenset(labels)))
    assert [bag.need for bag in taken(grid).picture.bags] == [SINGLE, Need(labels=frozenset({"Python 3.12"}))]


class Remembered:
    """Knows nothing of runtimes. ``elapsed``: what it was told of running tasks."""

    elapsed: list[float]

    def __call__(self, bag: ScheduledBag, running: list[float]) -> Durations | None:
        self.elapsed = running
        return None


def gangs(policy: Policy, longest: float) -> Picture:
    """Bags 1, 2 and 3 of gangs, whose tasks are long, short, and both; and single tasks."""
    grid = Grid(policy)
    two = Need(2, 2, gang=True)
    grid.tasks(100.0, bag=1, need=two)
    grid.wait(1)
    grid.tasks(10.0, bag=2, need=two)
    grid.wait(1)
    grid.tasks(longest, 5.0, bag=3, need=two)
    grid.tasks(1.0, bag=4)
    return taken(grid, nothing).picture


def turns(policy: Policy, longest: float = 50.0) -> tuple[dict[int, list[int]], bool]:
    """The turns of these bags; and whether the policy backfills."""
    picture = gangs(policy, longest)
    shown = {bag.number: [group.turn for group in bag.groups] for bag in picture.bags if bag.need.parallel}
    return shown, picture.backfills


def test_gangs_have_their_turns_as_the_policy_says() -> None:
    assert turns(packing()) == ({1: [3], 2: [0], 3: [1, 2]}, True)
    assert turns(make_policy("ff")) == ({1: [0], 2: [1], 3: [2, 3]}, False)
    assert turns(make_policy("scojo-p"), 500.0) == ({1: [2], 2: [0], 3: [3, 1]}, True)
    other = packing()
    other.parallel = Unknown()  # type: ignore[attr-defined]
    assert turns(other) == ({1: [0], 2: [1], 3: [2, 3]}, True)


@pytest.mark.parametrize(
    ("name", "until"), [("packing", [598.0, 599.0, 2500.0, 600.0, inf]), ("easy", [inf] * 5), ("ff", [inf] * 5)]
)
def test_gangs_are_patient_where_others_overtake_them(name: str, until: list[float]) -> None:
    picture = gangs(make_policy(name), 500.0)
    assert [group.patient for bag in picture.bags for group in bag.groups] == until


class Unknown:
    """A policy for parallel tasks of somebody's own."""

    name = "unknown"

    def decide(self, view: ParallelView) -> Iterator[Start | Keep]:
        yield from ()


@pytest.mark.parametrize(
    "need",
    [
        Need(2, 4, 1, of_memory(5), frozenset(), Amdahl(0.1), True),
        Need(1, 4, speedup=Downey(3.0, 1.0)),
        Need(1, 4, speedup=Measured(((2, 1.5), (4, 2.0)))),
        Need(slots=2, amounts=of_memory(100), labels=frozenset({"a", "b"})),
    ],
)
def test_needs_go_through_json(need: Need) -> None:
    pc = PicturePC("a", (), amounts=of_memory(100.0), labels=frozenset({"b", "a"}), reachable=False)
    picture = Picture((pc,), (PictureBag(1, (Group(1, TEN, turn=3, patient=5.0),), 1, need=need),), backfills=False)
    assert picture_of(json.loads(json.dumps(list(rows_of(picture))))) == picture
