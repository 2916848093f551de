"""Bags that are paused, or that come after others; licences and shares, at the broker and across restarts."""

import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model.home_files import LICENCES, SHARES, licences_file, shares_file
from deskgrid.broker.work import gates as gates_module
from deskgrid.broker.work.operations import TURN_UNITS
from deskgrid.broker.work.usage import WRITE_S
from deskgrid.home_file import FILE_BYTES
from deskgrid.scheduler.queues.shares import HALF_LIFE_S
from tests.broker.gang_peers import rank_worker, settled_in
from tests.broker.office import Office, OfficeLine, OpenOffice
from tests.broker.test_events import ERROR
from tests.peers import BareWorker, Client

ANN, BEN = Credential("ann", "submitter"), Credential("ben", "submitter")


def options(**given: Any) -> wire.TaskOptions:
    return wire.TaskOptions(**given)


def joined(office: Office, **changes: Any) -> BareWorker:
    worker = office.worker()
    worker.join(**changes)
    return worker


def assigned(office: Office, worker: BareWorker) -> list[bytes]:
    """What the worker has been given and has not taken."""
    office.settle()
    line = worker.line
    assert isinstance(line, OfficeLine)
    while line.inbox:
        assert worker._is_work(worker.receive())
    return [work.payload for work in worker._assigned if isinstance(work.payload, bytes)]


def refusal(client: Client, **given: Any) -> str:
    """Why a bag with these options is refused."""
    batch = client.batch("b" * 12, [b"0"], options=options(**given))
    answer = client.answer_to(batch)
    assert isinstance(answer, wire.Failed)
    return answer.reason


@pytest.fixture
def licensed(tmp_path: Path) -> Callable[..., None]:
    """Writes licences.toml of the home that the office has."""

    def write(text: str = "matlab = 1\n") -> None:
        (tmp_path / LICENCES).write_text(text)

    return write


# --- probes ----------------------------------------------------------------------------------------------------------


def test_the_probes_of_a_bag_come_first_in_each_of_its_batches_and_after_a_restart(open_office: OpenOffice) -> None:
    office = open_office()
    client = office.client()
    first = options(probes=(3, 1, 3, 99))
    bag = client.submit([b"0", b"1"], runtime=60.0, options=first, last=False)
    client.answer_to(client.batch(bag, [b"2", b"3", b"4"], first=2, runtime=60.0, options=first))
    worker = joined(office)
    assert assigned(office, worker) == [b"1"]
    office = open_office()
    assert assigned(office, joined(office)) == [b"3"]


# --- pauses ----------------------------------------------------------------------------------------------------------


def test_a_paused_bag_waits_until_it_is_resumed_also_across_restarts(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), joined(office)
    bag = client.submit([b"0", b"1", b"2"], runtime=0.6)
    (work,) = worker.work()
    for _ in range(2):
        assert client.ask("pause", bag=bag) == {}
    worker.finish(work)
    assert assigned(office, worker) == []
    row = client.ask("progress", bag=bag)
    assert (row["paused"], row["note"], row["waiting"], row["eta_s"]) == (True, "it is paused", 2, None)
    assert client.ask("explain", bag=bag)["text"] == ["2 tasks wait: its bag is paused"]
    assert client.ask("explain", bag=bag, item=2)["text"] == ["task 2 waits: its bag is paused"]
    office = open_office()
    client, worker = office.client(), joined(office)
    assert assigned(office, worker) == []
    for _ in range(2):
        assert client.ask("resume", bag=bag) == {}
    worker.finish(*worker.work())
    office = open_office()
    worker = joined(office)
    worker.finish(*worker.work())
    assert len(office.client().results(bag)) == 3
    for what in ("pause", "resume"):
        assert office.client().failed(what, bag=bag) == f"bag {bag} has ended"


def test_a_paused_bag_that_was_cancelled_is_no_longer_paused(open_office: OpenOffice) -> None:
    office = open_office()
    client = office.client()
    bag = client.submit([b"0", b"1"], runtime=0.6)
    client.ask("pause", bag=bag)
    assert client.ask("progress", bag=bag)["paused"]
    client.ask("cancel", bag=bag)
    for _ in range(2):
        row = client.ask("progress", bag=bag)
        assert (row["paused"], row["cancelled"], row["note"]) == (False, 2, "")
        client = open_office().client()


def test_many_tasks_are_paused_and_resumed_in_slices(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates_module, "SLICE_TASKS", 2)
    client = office.client()
    bag = client.submit([b""] * 7, runtime=5.0)
    client.ask("pause", bag=bag)
    assert len(office.sessions.state.scheduler.grid.categories) == 0
    client.ask("resume", bag=bag)
    assert len(office.sessions.state.scheduler.grid.categories) == 7


def test_a_bag_that_is_forgotten_meanwhile_is_not_resumed(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates_module, "SLICE_TASKS", 1)
    client = office.client()
    bag = office.bag(client.submit([b""] * 3, runtime=5.0))
    client.ask("pause", bag=bag.row.id)
    slices = office.sessions.queries.orders.gates.resume(bag)
    next(slices)
    client.ask("cancel", bag=bag.row.id)
    client.ask("forget", bag=bag.row.id)
    with pytest.raises(StopIteration):
        next(slices)


# --- after other bags ------------------------------------------------------------------------------------------------


def test_a_bag_begins_when_all_tasks_of_the_bags_before_it_are_done(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), joined(office)
    first, second = client.submit([b"0"], runtime=0.6), client.submit([b"1"], runtime=0.6)
    last = client.submit([b"2"], runtime=0.6, options=options(after=(first, second)))
    worker.finish(*worker.work())
    row = client.ask("progress", bag=last)
    assert (row["note"], row["waiting"]) == ("it waits for 1 other bag", 1)
    assert client.ask("explain", bag=last)["text"] == [f"1 task waits: its bag comes after {second}"]
    office = open_office()
    client, worker = office.client(), joined(office)
    (work,) = worker.work()
    worker.finish(work)
    client.ask("forget", bag=second)
    worker.finish(*worker.work())
    assert len(client.results(last)) == 1


def test_a_bag_that_can_no_longer_run_ends_at_once_with_the_reason(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), joined(office)
    first = client.submit([b"0", b"1"], runtime=0.6)
    then = client.submit([b"2"], runtime=0.6, options=options(after=(first,)))
    last = client.submit([b"3"], runtime=0.6, options=options(after=(then,)))
    however = client.submit([b"4"], runtime=0.6, options=options(after=(first,), when="ended"))
    worker.finish(*worker.work(), outcome=wire.Outcome.ERROR, payload=ERROR)
    assert [row.outcome for bag in (then, last) for row in client.results(bag)] == [wire.Outcome.CANCELLED] * 2
    why = f"cannot run: it comes after bag {first}, which has 1 failed task"
    assert client.ask("progress", bag=then)["note"] == why
    assert client.ask("explain", bag=then)["text"][1:] == [f"it {why}"]
    assert client.ask("progress", bag=last)["note"].endswith(f"{then}, which has 1 cancelled task")
    office = open_office()
    client, worker = office.client(), joined(office)
    assert client.ask("progress", bag=then)["note"] == why
    assert client.ask("progress", bag=however)["waiting"] == 1
    worker.finish(*worker.work())
    worker.finish(*worker.work())
    assert [row.outcome for row in client.results(however)] == [wire.Outcome.DONE]


def test_a_paused_bag_after_another_needs_both(office: Office) -> None:
    client, worker = office.client(), joined(office)
    first = client.submit([b"0"], runtime=0.6)
    last = client.submit([b"1"], runtime=0.6, options=options(after=(first,)))
    client.ask("pause", bag=last)
    assert [row["state"] for row in client.ask("tasks", bag=last, state="waiting")["tasks"]] == ["waiting"]
    assert client.ask("logs", bag=last, item=0)["state"] == "waiting"
    worker.finish(*worker.work())
    assert assigned(office, worker) == []
    client.ask("resume", bag=last)
    worker.finish(*worker.work())


def test_a_bag_comes_only_after_bags_of_its_owner_that_are_there_and_can_end_well(office: Office) -> None:
    ann, ben = office.client(ANN), office.client(BEN)
    anns = ann.submit([b"0"], runtime=0.6)
    ann.submit([b"0"], runtime=0.6)
    ben.submit([b"0"], runtime=0.6)
    unknown = "a bag can only come after bags that you have submitted"
    assert refusal(ann, after=("nobody",)) == f"you have no bag nobody: {unknown}"
    assert refusal(ben, after=(anns,)) == f"you have no bag {anns}: {unknown}"
    assert refusal(ann, after=("b" * 12,)) == f"bag {'b' * 12} cannot come after itself"
    ann.ask("cancel", bag=anns)
    assert refusal(ann, after=(anns,)) == f"the bag cannot run: it comes after bag {anns}, which has 1 cancelled task"


def test_a_bag_after_one_that_has_ended_begins_at_once(office: Office) -> None:
    client, worker = office.client(), joined(office)
    first = client.submit([b"0"], runtime=0.6)
    worker.finish(*worker.work())
    last = client.submit([b"1"], runtime=0.6, options=options(after=(first,)))
    worker.finish(*worker.work())
    assert len(client.results(last)) == 1


def test_a_bag_that_was_cancelled_or_forgotten_meanwhile_is_left_alone(office: Office) -> None:
    client, worker = office.client(), joined(office)
    first = client.submit([b"0"], runtime=0.6)
    cancelled = client.submit([b"1"], runtime=0.6, options=options(after=(first,)))
    forgotten = client.submit([b"2"], runtime=0.6, options=options(after=(first,)))
    client.ask("cancel", bag=cancelled)
    client.ask("cancel", bag=forgotten)
    client.ask("forget", bag=forgotten)
    worker.finish(*worker.work())
    assert client.ask("progress", bag=cancelled)["note"] == ""
    assert office.sessions.queries.orders.gates._followers == {}


# --- licences --------------------------------------------------------------------------------------------------------


def test_a_bag_that_cannot_run_is_cancelled_once_and_keeps_the_reason(office: Office) -> None:
    client = office.client()
    firsts = tuple(client.submit([b""], runtime=5.0) for _ in range(3))
    last = client.submit([b""], options=options(after=firsts))
    for bag in firsts[:2]:
        client.ask("cancel", bag=bag)
    office.settle()
    assert sum(event["event"] == "bag-cannot-run" for event in client.ask("events")["events"]) == 1
    reason = office.bag(last).cannot_run
    assert f"it comes after bag {firsts[0]}" in reason
    worker = joined(office)
    worker.finish(*worker.work())
    assert office.bag(last).cannot_run == reason


def after_one(office: Office, many: int) -> tuple[Client, str, list[str]]:
    """A bag that is about to fail, and bags after it."""
    client = office.client()
    first = client.submit([b""], runtime=5.0)
    return client, first, [client.submit([b""], options=options(after=(first,))) for _ in range(many)]


def cannot_run(office: Office, followers: list[str]) -> int:
    return sum(bool(office.bag(bag).cannot_run) for bag in followers)


@pytest.mark.parametrize("forgotten", [False, True])
def test_many_bags_after_one_that_fails_are_decided_about_in_slices_which_a_restart_goes_on_with(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    monkeypatch.setattr(gates_module, "SLICE_BAGS", 2)
    monkeypatch.setattr(gates_module, "BAG_UNITS", TURN_UNITS)
    office = open_office()
    client, first, followers = after_one(office, 9)
    client.send(wire.Ask(1, "cancel", wire.pack_record({"bag": first})))
    if forgotten:
        client.send(wire.Ask(2, "forget", wire.pack_record({"bag": first})))
    seen = list[int]()
    while not seen or seen[-1] < 3:
        office.settle()
        seen.append(cannot_run(office, followers))
    assert max(later - earlier for earlier, later in pairwise([0, *seen])) == 2
    office = open_office()
    while office.sessions.queries.operations.waiting:
        office.settle()
    assert all(office.bag(bag).complete and office.bag(bag).settled == 1 for bag in followers)
    assert assigned(office, joined(office)) == []


def test_a_bag_is_forgotten_only_when_all_bags_after_it_are_decided_about(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates_module, "SLICE_BAGS", 2)
    monkeypatch.setattr(gates_module, "BAG_UNITS", TURN_UNITS)
    office = open_office(keep_days=1e-9)
    client, first, followers = after_one(office, 9)
    client.send(wire.Ask(1, "cancel", wire.pack_record({"bag": first})))
    by_id, left = office.sessions.state.book.by_id, -1
    while first in by_id:
        left = sum(not office.bag(bag).cannot_run for bag in followers if bag in by_id)
        office.now += 1.0
        office.settle()
    assert left == 0
    office = open_office()
    assert assigned(office, joined(office)) == []


def test_news_of_a_bag_that_decide_nothing_do_not_look_at_the_bags_after_it(office: Office) -> None:
    client, worker = office.client(), joined(office)
    first = client.submit([b"0"] * 4, runtime=5.0)
    client.submit([b"1"], options=options(after=(first,), when="ended"))
    client.ask("cancel", bag=first, items=[3])
    office.settle()
    gates, looked = office.sessions.queries.orders.gates, list[int]()
    gates._decide = lambda before, follower: looked.append(follower)  # type: ignore[method-assign]
    for _ in range(2):
        worker.finish(worker.work()[0])
        office.settle()
    assert looked == []


def test_bags_that_were_forgotten_wait_for_nothing(office: Office) -> None:
    client = office.client()
    first = client.submit([b""], runtime=5.0)
    for _ in range(3):
        follower = client.submit([b""], options=options(after=(first,)))
        client.ask("cancel", bag=follower)
        client.ask("forget", bag=follower)
    assert office.sessions.queries.orders.gates._followers == {}


def test_one_submitter_has_a_few_categories_so_that_passes_stay_short(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates_module, "CATEGORIES_LIMIT", 3)
    ann, ben = office.client(ANN), office.client(BEN)
    first = ann.submit([b"0"], options=options(limit=1))
    ann.submit([b"0"], options=options(limit=1))
    for _ in range(2):
        ann.submit([b"0"], options=options(priority=1))
    said = (
        "ann has bags with 3 different limits, priorities, licences, shortest pieces, environments and needs here, of 3"
    )
    assert refusal(ann, limit=1) == refusal(ann, priority=2) == f"{said}: try again when some have ended"
    ann.submit([b"0"], options=options(priority=1))
    ann.submit([b"0"])
    ben.submit([b"0"], options=options(limit=1))
    ann.ask("cancel", bag=first)
    ann.submit([b"0"], options=options(limit=1))


@pytest.mark.parametrize("again", [False, True])
def test_the_categories_of_a_submitter_are_counted_without_looking_at_all_bags(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(gates_module, "CATEGORIES_LIMIT", 2)
    office = open_office()
    ann = office.client(ANN)
    limited = [ann.submit([b"0"], options=options(limit=1)) for _ in range(2)]
    if again:
        office = open_office()
        ann = office.client(ANN)
    gates = office.sessions.queries.orders.gates
    by_number, office.sessions.state.book.by_number = office.sessions.state.book.by_number, {}
    assert "has bags with 2 different limits" in gates.refusal("b" * 12, "ann", options(limit=1))
    assert gates.refusal("b" * 12, "ben", options(limit=1)) == ""
    assert gates.refusal("b" * 12, "ann", options()) == ""
    office.sessions.state.book.by_number = by_number
    ann.ask("cancel", bag=limited[0])
    assert gates.refusal("b" * 12, "ann", options(limit=1)) == ""
    for bag in limited:
        ann.ask("cancel", bag=bag)
        ann.ask("forget", bag=bag)
    assert gates._categories == {"ann": {}}


def test_a_licence_that_nobody_has_is_refused(office: Office, licensed: Callable[..., None]) -> None:
    client = office.client()
    client.submit([b"0"])
    assert refusal(client, licences=("ansys=1",)) == "this grid has no licence ansys: its licences.toml names none"
    licensed("matlab = 1\nspss = 0\n")
    office.sessions.home_watch.look(office.now)
    assert refusal(client, licences=("ansys=1",)) == "this grid has no licence ansys: it has matlab, spss"
    assert refusal(client, licences=("matlab=2",)) == "each task needs 2 of licence matlab, and this grid has 1"
    assert refusal(client, licences=("matlab=1", "matlab=1")) == "a licence is named twice"


def test_a_licence_stays_in_use_while_the_broker_is_away(
    open_office: OpenOffice, licensed: Callable[..., None]
) -> None:
    licensed()
    office = open_office()
    office.sessions.home_watch.look(office.now)
    client, worker = office.client(), office.worker("pc1")
    worker.join()
    bag = client.submit([b"0", b"1"], runtime=0.1, options=options(licences=("matlab=1",)))
    (work,) = worker.work()
    text = client.ask("explain", bag=bag)["text"]
    assert text[0] == "it needs 1 of licence matlab, and 0 of 1 are free"
    assert text[2].endswith(": fits")
    licensed("spss = 1\n")
    office.sessions.home_watch.look(office.now)
    assert client.ask("explain", bag=bag)["text"][0] == "it needs 1 of licence matlab, and this grid has 0"
    licensed()
    office.settle()
    office = open_office()
    office.sessions.home_watch.look(office.now)
    other = office.worker("pc2")
    other.join()
    assert assigned(office, other) == []
    back = office.worker("pc1", worker.session)
    back.join()
    back.finish(work)
    assert assigned(office, other) + assigned(office, back) == [b"1"]


def test_a_limit_is_kept_and_explained(office: Office) -> None:
    client, worker = office.client(), joined(office, slots=4)
    bag = client.submit([b""] * 5, runtime=0.1, options=options(limit=1, priority=7))
    worker.work(1)
    assert assigned(office, worker) == []
    text = client.ask("explain", bag=bag)["text"]
    assert text[0] == "its bag has reached its limit of tasks on PCs: 1 of 1"


# --- shares ----------------------------------------------------------------------------------------------------------


def test_what_people_used_is_kept_and_fades(open_office: OpenOffice) -> None:
    office = open_office()
    ann, worker = office.client(ANN), joined(office)
    ann.submit([b"0", b"1"], runtime=50.0)
    (work,) = worker.work()
    office.now = 40.0
    worker.finish(work, elapsed=40.0)
    (row,) = ann.ask("shares")["shares"]
    assert row == {
        "share": "ann",
        "weight": 1.0,
        "keys": ["ann"],
        "used_s": pytest.approx(40.0, rel=1e-3),
        "promised_s": 50.0,
        "running": 1,
        "waits": False,
    }
    office.now += WRITE_S
    office.settle()
    office.kill()
    office = open_office(wall=1_800_000_000.0 + HALF_LIFE_S)
    (row,) = office.client(ANN).ask("shares")["shares"]
    assert row["used_s"] == pytest.approx(20.0, rel=1e-3)


def test_a_share_waits_while_its_parallel_tasks_wait(office: Office) -> None:
    ann = office.client(ANN)
    rank_worker(office)
    settled_in(office)
    bag = ann.submit([b"0"], runtime=50.0, options=options(ranks=(2, 2), gang=True))
    office.settle()
    (row,) = ann.ask("shares")["shares"]
    assert (row["running"], row["waits"]) == (0, True)
    ann.ask("cancel", bag=bag)
    (row,) = ann.ask("shares")["shares"]
    assert not row["waits"]


def test_who_used_less_has_their_turn_and_it_is_explained(office: Office) -> None:
    ann, ben, worker, other = office.client(ANN), office.client(BEN), joined(office), office.worker("other")
    ann.submit([b"0"], runtime=200.0)
    (work,) = worker.work()
    more = ann.submit([b"1"], runtime=200.0)
    ben.submit([b"2", b"3"], runtime=50.0)
    text = ann.ask("explain", bag=more)["text"]
    assert text[0] == "others come first: they have nothing on a PC"
    other.join()
    assert [each.payload for each in other.work()] == [b"2"]
    text = ann.ask("explain", bag=more)["text"]
    assert text[0] == "others come first: you have used 2 min 30 s more slot time than they have"
    office.now = 100.0
    worker.finish(work, elapsed=100.0)
    (work,) = worker.work()
    assert work.payload in (b"2", b"3")


def test_a_file_that_is_wrong_is_said_and_the_last_good_one_stays(office: Office, tmp_path: Path) -> None:
    watch, state = office.sessions.home_watch, office.sessions.state
    ann = office.client(ANN)
    ann.submit([b"0"])
    file = tmp_path / SHARES
    file.write_text('[ann]\nweight = 2\nkeys = ["ann", "ann-laptop"]\n')
    watch.look(office.now)
    file.write_text("[ann]\nweight = 0\n")
    (tmp_path / LICENCES).write_text("m = true")
    watch.look(office.now)
    assert state.problems == [
        "shares.toml: the weight of ann must be a number above 0, not 0; what it said before still counts",
        "licences.toml: m must be a number of licences, not True; what it said before still counts",
    ]
    assert ann.ask("status", rows=False)["broker"]["problems"] == state.problems
    (tmp_path / LICENCES).unlink()
    watch.look(office.now)
    assert len(state.problems) == 1
    assert [(row["share"], row["weight"]) for row in ann.ask("shares")["shares"]] == [("ann", 2.0)]
    (tmp_path / LICENCES).write_text("".join(f"m{number:02} = 5\n" for number in range(22)))
    file.unlink()
    watch.look(office.now)
    notices = state.take_notices()
    assert len([line for line in notices if line.startswith("home-file-wrong ")]) == 2
    lines = [line for line in notices if line.startswith("home-files ")]
    assert "home-files shares='ann=2' licences=''" in lines
    assert lines[-1].startswith("home-files shares='' licences='m00=5, ")
    assert lines[-1].endswith(", m19=5, 2 more'")
    assert state.problems == []
    assert [row["weight"] for row in ann.ask("shares")["shares"]] == [1.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ann = 2", r"'ann' is no share: give it a table \[ann\] with weight and keys"),
        ("[ann]\nwieght = 2", r"\[ann\] has 'wieght'; a share can only have weight and keys"),
        ("[ann]\nweight = true", "a number above 0"),
        ("[ann]\nweight = nan", "a number above 0"),
        ('[ann]\nkeys = "ann"', "a list of names"),
        ('[ann]\nkeys = ["a b"]', "a list of names"),
        ("[ann]\n[ben]\nkeys = ['ann']", "the key ann is in two shares, ann and ben"),
        ("[ann", r"shares\.toml: "),
        ("#" * (FILE_BYTES + 1), "it has 65,537 bytes; the limit is"),
    ],
)
def test_shares_that_make_no_sense_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / SHARES).write_text(text)
    file = shares_file(tmp_path)
    assert file.refresh()
    assert re.search(said, file.problem)


@pytest.mark.parametrize("text", ["'a b' = 1", "m = 1.5", "m = true", "m = -1", "[m]", "m = " + "[" * 10_000])
def test_licences_that_make_no_sense_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / LICENCES).write_text(text)
    file = licences_file(tmp_path)
    assert file.refresh()
    assert file.problem.startswith("licences.toml: ")
    assert file.problem.endswith("; it is as if there were no file")


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / SHARES)
    file = shares_file(tmp_path)
    assert file.refresh()
    assert "it is not a file" in file.problem


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / LICENCES).mkdir()
    file = licences_file(tmp_path)
    assert file.refresh()
    assert file.problem.startswith("licences.toml: it is not a file")
    file = licences_file(tmp_path / ("x" * 300))
    assert file.refresh()
    assert re.search(r"File name too long|it is not a file", file.problem)
    assert file.refresh() is False
