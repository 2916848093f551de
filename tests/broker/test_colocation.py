"""How many ranks can be together, and why a parallel task waits."""

from datetime import UTC, datetime
from math import inf

import pytest

from deskgrid import wire
from deskgrid.broker.answers.colocation import Colocation, Pc, most_together
from deskgrid.broker.model.need_notes import WAIT
from deskgrid.scheduler.fitting import NO_MORE
from deskgrid.scheduler.need import Need, of_memory
from tests.broker.gang_peers import asked_to_prepare, begun, gang_bag, rank_worker, settled_in
from tests.broker.office import ADMIN, Office, OpenOffice

HOUR = 3600.0


def pc(*windows: tuple[float, float], site: str = "a", slots: int = 1, speed: float = 1.0, memory: float = inf) -> Pc:
    return Pc(site, slots, speed, of_memory(memory), frozenset({"gpu"}), windows)


@pytest.mark.parametrize(
    ("pcs", "need", "found"),
    [
        ([], Need(2, 2), Colocation(0, 0.0, "")),
        ([pc((0.0, 101.0)), pc((0.0, inf))], Need(2, 2), Colocation(2, 0.0, "a")),
        ([pc((0.0, 100.0)), pc((0.0, inf))], Need(2, 2), Colocation(1, 0.0, "a")),
        ([pc((0.0, 150.0)), pc((40.0, 300.0)), pc((60.0, 300.0))], Need(3, 3), Colocation(2, 40.0, "a")),
        ([pc((0.0, 500.0)), pc((0.0, 500.0), site="b", slots=2)], Need(2, 2), Colocation(2, 0.0, "b")),
        ([pc((0.0, 500.0), slots=3)], Need(1, 1, slots=2), Colocation(1, 0.0, "a")),
        (
            [pc((0.0, 500.0), slots=4, memory=250.0)],
            Need(4, 4, amounts=of_memory(100)),
            Colocation(2, 0.0, "a"),
        ),
        (
            [pc((0.0, 500.0), slots=4, memory=50.0)],
            Need(1, 1, amounts=of_memory(100)),
            Colocation(0, 0.0, ""),
        ),
        ([pc((0.0, 500.0))], Need(1, 1, labels=frozenset({"matlab"})), Colocation(0, 0.0, "")),
        ([pc((0.0, 150.0), speed=0.5)], Need(1, 1), Colocation(0, 0.0, "")),
        ([pc((0.0, 50.0), (100.0, 300.0)), pc((100.0, 300.0))], Need(2, 2), Colocation(2, 100.0, "a")),
    ],
)
def test_the_most_ranks_that_are_together_at_the_earliest(pcs: list[Pc], need: Need, found: Colocation) -> None:
    assert most_together(pcs, need, 100.0, NO_MORE) == found


def why(office: Office, bag: str) -> list[str]:
    """What is said of the task of a bag."""
    text: list[str] = office.client().ask("explain", bag=bag, item=0)["text"]
    return text


def test_a_gang_that_waits_says_how_many_slots_are_together_and_when(open_office: OpenOffice) -> None:
    office = open_office()
    bag = gang_bag(office, 3, runtime=2400.0)
    assert why(office, bag) == [
        "task 0 (predicted 40 min) waits: it needs 3 slots of one site for 40 min; no worker is connected"
    ]
    rank_worker(office, "pc1", uptime=600.0, windows=(wire.Window(24 * HOUR, 8 * HOUR),))
    needs = "task 0 (predicted 40 min) waits: it needs 3 slots of one site for 40 min; "
    at = datetime.fromtimestamp(1_800_000_000.0 + 24 * HOUR, UTC).astimezone()
    assert why(office, bag) == [
        f"a task needs 3 ranks at one site, and PCs have room for 1 at most; {WAIT}",
        f"{needs}at most 1 are together from {at:%A} {at:%H:%M} on",
    ]
    rank_worker(office, "pc2", slots=2, uptime=600.0, windows=(wire.Window(24 * HOUR, 8 * HOUR),))
    assert why(office, bag) == [
        f"{needs}so many are together from {at:%A} {at:%H:%M} on",
        f"slots have been kept for it for 0 s; it should begin by {at:%A} {at:%H:%M}",
    ]
    rank_worker(office, "alone", slots=3, address=None, uptime=60.0)
    assert "so many are together" in why(office, bag)[0]


def test_a_gang_that_waits_for_others_says_so(office: Office) -> None:
    begun(office, 2)
    bag = gang_bag(office, 2)
    office.settle()
    assert why(office, bag)[0].endswith("enough slots exist now, but they are busy or reserved")


def test_a_gang_says_since_when_slots_are_kept_for_it_and_that_nothing_overtakes_it_any_more(office: Office) -> None:
    _, workers = begun(office, 2, runtime=700.0)
    bag = gang_bag(office, 2)
    office.settle()
    office.wait(5.0, *workers)
    (kept,) = why(office, bag)[1:]
    assert kept.startswith("slots have been kept for it for 5 s; it should begin by ")
    for _ in range(72):
        office.wait(10.0, *workers)
    assert why(office, bag)[1:] == [
        "slots have been kept for it for 12 min; it should begin when the overdue tasks there end",
        "it has waited for 12 min, so nothing that comes later delays it",
    ]
    office.client(ADMIN).ask("policy", name="easy")
    assert not any("nothing that comes later" in line for line in why(office, bag))


def test_a_gang_that_needs_what_no_pc_has_says_what(office: Office) -> None:
    rank_worker(office)
    bag = gang_bag(office, 2, slots=2, labels=("gpu",), mpi=True)
    office.settle()
    missing, text = why(office, bag)
    assert missing == f"no PC has the label gpu; {WAIT}"
    assert "it needs 4 slots of one site, 2 on one PC for each of 2 ranks, with gpu and MPI, for 1 min 40 s" in text
    assert text.endswith("; no PC that is known has that")


def test_a_policy_that_keeps_the_ranks_of_a_gang_apart_is_named(office: Office) -> None:
    office.client(ADMIN).ask("policy", name="cisne-normal", options={})
    rank_worker(office, "pc1", slots=4)
    rank_worker(office, "alone", slots=4, site="elsewhere")
    bag = gang_bag(office, 3)
    settled_in(office)
    reason = "cisne-normal gives each rank a PC of its own, and no site has more than 1 for it"
    assert why(office, bag) == [
        f"task 0 (predicted 1 min 40 s) waits: it needs 3 slots of one site for 1 min 40 s; {reason}"
    ]
    office.client(ADMIN).ask("policy", name="packing", options={})
    assert "packing" not in why(office, bag)[0]


def test_a_single_task_is_told_that_a_gang_has_the_slot(office: Office) -> None:
    begun(office, 1)
    bag = office.client().submit([b"1"], runtime=10.0)
    office.settle()
    assert why(office, bag)[1:] == ["pc0 slot 0: runs a gang, or is reserved for one"]


def test_a_gang_that_is_under_way_says_how_far_it_is(open_office: OpenOffice) -> None:
    office = open_office()
    bag, workers = asked_to_prepare(office, 2)
    workers[0].ready()
    assert why(office, bag) == ["task 0 (predicted 1 min 40 s) is being prepared on pc0, pc1; not ready yet: pc1"]
    workers[1].send(wire.RanksUnready(*workers[1].ref, "its disk is full"))
    for worker in workers:
        worker.stopped()
    paused, last = why(office, bag)
    assert "pauses, and is tried again in" in paused
    assert last == "its last start failed: pc1: its disk is full"
    for _ in range(2):
        office.wait(6.0, *workers)
    for worker in workers:
        worker.prepare()
        worker.ready()
    office.settle()
    assert why(office, bag) == ["task 0 (predicted 1 min 40 s) runs on pc0, pc1"]
    office.now += 1.0
    workers[0].end(0)
    assert why(office, bag)[0].endswith("runs on pc0, pc1; 1 of its 2 ranks has ended")
    workers[1].fail(1, "ValueError")
    assert why(office, bag)[0].endswith("has failed, and is being stopped on pc0, pc1")
    office = open_office()
    assert "was running when the broker stopped" not in why(office, bag)[0]


def test_a_gang_that_is_awaited_names_whom_it_waits_for(open_office: OpenOffice) -> None:
    bag, workers = begun(open_office(), 2)
    office = open_office()
    assert why(office, bag)[0].endswith("was running when the broker stopped, and waits for pc0, pc1 to come back")
    assert workers
