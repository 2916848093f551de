"""Environments at the broker: who prepares which, what happens when that fails, and what people are told."""

import json
from hashlib import sha256
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.forecasts.etas import KEEP_S, NO_ENVIRONMENT
from deskgrid.broker.work import environments as module
from deskgrid.broker.work.environments import AGAIN_MOST_S, AGAIN_S, ANYWAY_S, BYTES_PER_S, LOOK_S, RETURNED
from deskgrid.client.template import PYTHON
from deskgrid.wire.questions import QUESTIONS
from tests.broker.office import ADMIN, Office, OfficeLine, OpenOffice
from tests.peers import BareWorker, Client

PC = {"platform": "linux_x86_64", "major": 2, "minor": 35}
# What the lists of wheels are called.
LISTS = {sha256(data).digest(): data for data in (b"tree", b"older", b"other")}
TREE, OLDER, OTHER = LISTS
MEGABYTE = 10**6
ANN, BEN = Credential("ann", "submitter"), Credential("ben", "submitter")


def template(label: str = "mine", size: int = 10 * MEGABYTE, tree: bytes = TREE) -> bytes:
    """A template of a command with an environment for two sorts of Linux."""
    python = PYTHON
    builds = (
        wire.Build(python, "linux_x86_64", 2, 35, tree, size, 0),
        wire.Build(python, "linux_x86_64", 2, 28, OLDER, size, 0),
    )
    entries = {"kind": "command", "environment": wire.Environment(label, builds).packed(), "argv": ["true"]}
    packed: bytes = msgpack.packb(entries)
    return packed


def owner(office: Office, who: Credential = ANN) -> Client:
    """A client that has sent all trees that environments name here."""
    client = office.client(who)
    client.send(wire.Offer(client.number(), "libraries", b"".join(LISTS), 0, 0, 0))
    for name, data in LISTS.items():
        client.send(wire.Part(client.number(), "libraries", name, data))
    while not isinstance(client.receive(), wire.Kept):
        pass
    for _ in range(len(LISTS) - 1):
        assert isinstance(client.receive(), wire.Kept)
    return client


class Pc:
    """A bare worker, and what it was told to have."""

    def __init__(self, office: Office, name: str, **changes: Any) -> None:
        self.office, self.name = office, name
        self.worker: BareWorker = office.worker(name)
        self.worker.join(**PC | changes)

    def look(self) -> None:
        """Time passes until the broker looks again."""
        self.office.now += LOOK_S
        self.office.settle()

    def told(self) -> list[wire.EnvironmentWanted] | None:
        """The environments of the last message that says which it is to have; None: there was none."""
        self.look()
        line, found = self.worker.line, None
        assert isinstance(line, OfficeLine)
        while line.inbox:
            message = self.worker.receive()
            if isinstance(message, wire.Prepare):
                found = list(message.environments)
            else:
                assert self.worker._is_work(message), message
        return found

    def waits(self, seconds: float) -> None:
        """Time passes, and it is still there."""
        self.office.now += seconds
        self.worker.send(wire.Heartbeat(None, None))

    def say(self, key: str, readiness: wire.Readiness = wire.Readiness.READY, **more: Any) -> None:
        facts: dict[str, Any] = {"package": "", "reason": "", "seconds": 1.0, "size": 0} | more
        self.worker.send(wire.Prepared(key, int(readiness), **facts))
        self.office.settle()

    def refuse(self, key: str, reason: str = "it is bad") -> None:
        self.say(key, wire.Readiness.REFUSED, package="bad-1.0.whl", reason=reason)

    def prepare(self) -> str:
        """Prepare what it was told, at once; the key."""
        wanted = self.first()
        self.say(wanted.key)
        return wanted.key

    def first(self) -> wire.EnvironmentWanted:
        """The first of those that it is told to have now."""
        told = self.told()
        assert told
        return told[0]

    def work(self) -> list[wire.Work]:
        """What it has been given by now."""
        self.told()
        found, self.worker._assigned = self.worker._assigned, []
        return found


def explained(client: Client, bag: str) -> str:
    return "\n".join(client.ask("explain", bag=bag)["text"])


def test_a_task_is_given_to_a_worker_when_it_has_prepared_the_environment(office: Office) -> None:
    pc, client = Pc(office, "a"), owner(office)
    bag = client.submit([b"0"], template=template())
    wanted = pc.first()
    assert (wanted.bag, wanted.tree) == (bag, TREE)
    assert pc.work() == []
    pc.say(wanted.key)
    (work,) = pc.work()
    assert work.environment == wanted.key
    pc.worker.finish(work)
    plain = client.submit([b"1"])
    office.settle()
    assert [each.environment for each in pc.work()] == [None]
    assert plain


def test_each_sort_of_pc_gets_its_build_and_one_without_a_build_nothing(office: Office) -> None:
    older, other, unknown = Pc(office, "old", minor=28), Pc(office, "mac", platform="macosx_arm64"), Pc(office, "bare")
    oldest = Pc(office, "oldest", minor=17)
    unknown.worker.join(platform=None)
    client = owner(office)
    bag = client.submit([b"0"] * 9, template=template("numpy==1"))
    wanted = older.first()
    assert wanted.tree == OLDER
    assert [pc.told() for pc in (other, unknown, oldest)] == [None, None, None]
    text = explained(client, bag)
    assert "its environment numpy==1 is ready on 0 of 4 PCs" in text
    assert f"on mac: it has no wheels for Python {PYTHON} on macosx_arm64 (macOS 2.35)" in text
    assert "on bare: it has no wheels for this kind of PC" in text
    assert "on old: being prepared, which takes about 2.5 s in all" in text


def test_only_a_few_workers_prepare_at_a_time_and_no_more_than_the_tasks_need(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PREPARING_AT_ONCE", 2)
    pcs = [Pc(office, f"pc{number}") for number in range(5)]
    owner(office).submit([b"0"] * 3, template=template())
    asked = {pc.name: told[0].key for pc in pcs if (told := pc.told())}
    assert len(asked) == 2
    for pc in pcs:
        if pc.name in asked:
            pc.say(asked[pc.name])
            assert len(pc.work()) == 1
    more = [pc for pc in pcs if pc.name not in asked and pc.told()]
    assert len(more) == 1


def test_all_pcs_prepare_what_a_parallel_task_needs_because_any_of_them_may_be_together(office: Office) -> None:
    pcs = [Pc(office, f"pc{number}", address="127.0.0.1", uptime=60.0) for number in range(3)]
    short = Pc(office, "short", address="127.0.0.1", uptime=3.0)
    client = owner(office)
    options = wire.TaskOptions(gang=True, ranks=(2, 2))
    bag = client.submit([b"0"], template=template(), runtime=10.0, options=options)
    keys = [pc.first().key for pc in pcs]
    assert len({*keys}) == 1
    assert short.told() is None
    assert "is ready on 0 of 4 PCs" in explained(client, bag)


def test_estimates_count_the_time_that_pcs_still_need_to_prepare_an_environment(office: Office) -> None:
    takes_s = ANYWAY_S + 100.0
    pc, client = Pc(office, "a"), owner(office)
    bag = client.submit([b"0"] * 20, template=template(size=int(100 * BYTES_PER_S)), runtime=10.0)

    def medians() -> tuple[float, float]:
        (told,) = client.ask("whatif", bag=bag, changes=[])["rows"]
        office.now += KEEP_S
        pc.worker.send(wire.Heartbeat(None, None))
        eta = client.ask("eta", bag=bag)["median_s"]
        return told["median_s"], eta + KEEP_S

    before = medians()
    pc.prepare()
    after = medians()
    for waits, works in zip(before, after, strict=True):
        assert waits - works == pytest.approx(takes_s, abs=0.1 * works + KEEP_S + LOOK_S)


def test_estimates_count_the_time_until_a_pc_that_could_not_prepare_an_environment_is_asked_again(
    office: Office,
) -> None:
    pc, client = Pc(office, "a"), owner(office)
    bag = client.submit([b"0"], template=template(), runtime=10.0)

    def median() -> float:
        (told,) = client.ask("whatif", bag=bag, changes=[])["rows"]
        seconds: float = told["median_s"]
        return seconds

    before = median()
    pc.say(pc.first().key, wire.Readiness.TROUBLE, reason="the disk is full")
    assert median() - before == pytest.approx(AGAIN_S, abs=2.0 * LOOK_S)
    pc.waits(AGAIN_S)
    assert median() - before == pytest.approx(0.0, abs=2.0 * LOOK_S)


def test_an_estimate_says_that_no_pc_can_prepare_an_environment(office: Office) -> None:
    Pc(office, "mac", platform="macosx_arm64")
    client = owner(office)
    bag = client.submit([b"0"], template=template(), runtime=10.0)
    assert client.ask("eta", bag=bag)["why"] == NO_ENVIRONMENT


def test_a_worker_prepares_only_what_leaves_time_for_a_task(office: Office) -> None:
    size = int(10 * BYTES_PER_S)
    takes_s = ANYWAY_S + 10.0
    short, long = Pc(office, "short", uptime=takes_s + 1.5), Pc(office, "long", uptime=takes_s + 60.0)
    client = owner(office)
    bag = client.submit([b"0"] * 4, template=template(size=size))
    assert [short.told(), bool(long.told())] == [None, True]
    assert "on short: not there: preparing it takes about 12 s, and the PC stays for " in explained(client, bag)


def test_where_pcs_that_have_it_leave_too_soon_for_the_tasks_another_prepares_it(office: Office) -> None:
    first, client = Pc(office, "first", uptime=60.0), owner(office)
    client.submit([b"0"], template=template(), runtime=1.0)
    key = first.prepare()
    assert len(first.work()) == 1
    second = Pc(office, "second", uptime=300.0)
    client.submit([b"1"], template=template(), runtime=100.0)
    assert second.prepare() == key
    assert len(second.work()) == 1


def test_a_pc_that_is_not_needed_yet_is_explained_also_if_it_stays_for_ever(office: Office) -> None:
    pcs = [Pc(office, name, uptime=None) for name in "ab"]
    client = owner(office)
    bag = client.submit([b"0"], template=template())
    assert [bool(pc.told()) for pc in pcs].count(True) == 1
    assert "not there: it is prepared on other PCs first" in explained(client, bag)


def test_what_preparing_took_is_learned_for_the_next_time(office: Office) -> None:
    pc, client = Pc(office, "a"), owner(office)
    bag = client.submit([b"0"] * 3, template=template(size=100 * MEGABYTE))
    wanted = pc.first()
    before = office.sessions.queries.environments._bytes_per_s
    pc.say(wanted.key, seconds=100.0, size=100 * MEGABYTE)
    slower = office.sessions.queries.environments._bytes_per_s
    assert slower < before
    pc.say(wanted.key, seconds=0.0, size=2**62)
    pc.say(wanted.key, seconds=1e9, size=10)
    assert office.sessions.queries.environments._bytes_per_s == slower
    assert bag


def test_two_people_have_environments_of_their_own_and_two_bags_of_one_person_share_theirs(office: Office) -> None:
    pc = Pc(office, "a", slots=4)
    ann, ben = owner(office), owner(office, BEN)
    ann.submit([b"0"] * 9, template=template("one"))
    ann.submit([b"1"] * 9, template=template("two"))
    ben.submit([b"2"] * 9, template=template("one"))
    told = pc.told() or []
    assert len(told) == 2
    assert len({wanted.key for wanted in told}) == 2


def test_a_bag_is_held_when_two_pcs_refuse_its_environment_for_the_same_reason(open_office: OpenOffice) -> None:
    office = open_office()
    pcs = [Pc(office, name) for name in ("a", "b", "c")]
    client = owner(office)
    bag = client.submit([b"0"] * 9, template=template())
    key = pcs[0].first().key
    pcs[0].refuse(key)
    assert not office.bag(bag).held
    assert "on a: it cannot be prepared: bad-1.0.whl: it is bad (Python" in explained(client, bag)
    pcs[0].refuse(key)  # the same PC again
    pcs[1].refuse(key, "another reason")
    assert not office.bag(bag).held
    pcs[2].refuse(key)
    why = f"2 PCs cannot prepare its environment: bad-1.0.whl: it is bad (Python {PYTHON} on linux_x86_64"
    assert why in explained(client, bag)
    row = client.ask("progress", bag=bag)
    assert (row["failed"], row["done"]) == (0, 0)
    office = open_office()
    assert why in explained(owner(office), bag)
    assert office.bag(bag).paused


def test_a_bag_that_was_held_is_tried_again_when_somebody_resumes_it(open_office: OpenOffice) -> None:
    office = open_office()
    pcs = [Pc(office, name) for name in ("a", "b")]
    client = owner(office)
    bag = client.submit([b"0"], template=template())
    client.submit([b"0"] * 9, template=template())
    for pc in pcs:
        pc.refuse(pc.first().key)
    office.settle()
    assert office.bag(bag).held
    client.ask("resume", bag=bag)
    assert not office.bag(bag).barred
    assert any(pc.told() for pc in pcs)
    office = open_office()
    assert not office.bag(bag).paused


def test_a_pc_in_trouble_is_asked_again_later_and_holds_no_bag(office: Office) -> None:
    pcs = [Pc(office, name) for name in ("a", "b")]
    client = owner(office)
    bag = client.submit([b"0"] * 9, template=template())
    key = ""
    for pc in pcs:
        key = pc.first().key
        pc.say(key, wire.Readiness.TROUBLE, reason="No space left on device")
    assert not office.bag(bag).held
    assert "on a, b: it cannot be prepared: No space left on device" in explained(client, bag)
    assert pcs[0].told() == []
    pcs[0].waits(AGAIN_S)
    assert [wanted.key for wanted in pcs[0].told() or ()] == [key]


def test_an_attempt_that_comes_back_costs_nothing_and_the_environment_is_prepared_again(office: Office) -> None:
    pc, client = Pc(office, "a"), owner(office)
    bag = client.submit([b"0"], template=template())
    key = pc.prepare()
    (work,) = pc.work()
    pc.say(key, wire.Readiness.GONE)
    pc.worker.send(wire.Returned((wire.Ref(work.task, work.number),)))
    assert [wanted.key for wanted in pc.told() or ()] == [key]
    assert pc.work() == []
    pc.say(key)
    (again,) = pc.work()
    assert again.number > work.number
    pc.worker.finish(again)
    assert client.ask("progress", bag=bag)["done"] == 1


def test_where_pcs_that_have_it_are_busy_others_that_are_free_prepare_it(office: Office) -> None:
    busy, free, client = Pc(office, "a"), Pc(office, "b"), owner(office)
    first = client.submit([b"0"], template=template(), runtime=1.0)
    key = busy.prepare()
    (work,) = busy.work()
    busy.worker.finish(work)
    assert client.ask("progress", bag=first)["done"] == 1
    client.submit([b"0"], runtime=500.0)
    client.submit([b"0"], runtime=500.0)
    given = [pc for pc in (busy, free) if pc.work()]
    assert given == [busy, free]
    client.submit([b"0"], template=template(), runtime=1.0)
    assert not free.told(), "it is as busy"
    third = Pc(office, "c")
    assert third.prepare() == key
    assert len(third.work()) == 1


def test_a_pc_that_loses_it_again_and_again_is_asked_later(office: Office) -> None:
    pc = Pc(office, "a")
    owner(office).submit([b"0"] * 99, template=template())
    key = pc.prepare()
    pc.say(key, wire.Readiness.GONE)
    assert pc.prepare() == key
    pc.say(key, wire.Readiness.GONE)
    assert not pc.told()
    pc.waits(2 * AGAIN_S)
    assert pc.prepare() == key


def test_a_pc_that_hands_every_task_back_keeps_none_from_others(office: Office) -> None:
    liar, honest, client = Pc(office, "a", slots=8), Pc(office, "b"), owner(office)
    bag = client.submit([b"0"] * 4, template=template())
    key = liar.prepare()
    assert not honest.told(), "the slots of the other suffice"
    for _ in range(RETURNED):
        given = liar.work()
        assert given
        liar.worker.send(wire.Returned(tuple([wire.Ref(each.task, each.number) for each in given])))
    assert honest.prepare() == key
    (work,) = honest.work()
    assert "on a: it cannot be prepared: it hands back tasks that need it" in explained(client, bag)
    honest.worker.finish(work)
    liar.waits(AGAIN_S)
    assert liar.prepare() == key


def test_tasks_that_are_handed_back_now_and_then_change_nothing(office: Office) -> None:
    pc = Pc(office, "a")
    owner(office).submit([b"0"] * 9, template=template())
    pc.prepare()
    for _ in range(RETURNED):
        (work,) = pc.work()
        pc.worker.send(wire.Returned((wire.Ref(work.task, work.number), wire.Ref(10**9, 1))))
        (work,) = pc.work()
        pc.worker.finish(work)
    assert len(pc.work()) == 1


def test_that_a_pc_fails_is_believed_once_until_it_is_asked_again(office: Office) -> None:
    pc = Pc(office, "a")
    owner(office).submit([b"0"], template=template())
    key = pc.first().key
    for _ in range(2_000):
        pc.say(key, wire.Readiness.TROUBLE, reason="no")
    assert office.sessions.workers.by_name["a"].environments[key].times == 1
    for _ in range(20):
        pc.waits(AGAIN_MOST_S)
        pc.say(pc.first().key, wire.Readiness.TROUBLE, reason="no")


def test_a_worker_that_joins_again_is_told_again_and_keeps_what_it_has(office: Office) -> None:
    pc, client = Pc(office, "a"), owner(office)
    client.submit([b"0"] * 3, template=template())
    key = pc.prepare()
    (work,) = pc.work()
    back = Pc.__new__(Pc)
    back.office, back.name = office, "a"
    back.worker = office.worker("a", pc.worker.session)
    back.worker.opening = pc.worker.opening
    held = (wire.Running(work.task, work.number, 0, 0.1),)
    back.worker.join(**PC, running=held)
    assert [wanted.key for wanted in back.told() or ()] == [key]
    back.worker.finish(work)
    assert len(back.work()) == 1


def test_a_restarted_broker_asks_again(open_office: OpenOffice) -> None:
    office = open_office()
    pc, client = Pc(office, "a"), owner(office)
    bag = client.submit([b"0"] * 2, template=template())
    key = pc.prepare()
    office = open_office()
    pc = Pc(office, "a")
    assert office.bag(bag).environment_key == key
    assert pc.prepare() == key
    assert [work.environment for work in pc.work()] == [key]


def test_an_environment_that_no_open_bag_needs_is_let_go(office: Office) -> None:
    pc, client = Pc(office, "a"), owner(office)
    client.submit([b"0"], template=template())
    pc.prepare()
    (work,) = pc.work()
    pc.worker.finish(work)
    assert pc.told() == []


def test_a_worker_may_ask_for_files_of_a_bag_only_to_prepare_its_environment(office: Office) -> None:
    pc, client = Pc(office, "a"), owner(office)
    data = b"a wheel"
    bag = client.submit([b"0"], template=template())
    other = client.submit([b"0"])
    digest = bytes.fromhex(wire.sha256_of(data))
    for holder in (bag, other):
        client.send(wire.Offer(1, holder, digest, len(data), 0, 0))
        client.expect(wire.Lacks)
        client.send(wire.Part(2, holder, digest, data))
        client.expect(wire.Kept)
    assert pc.told()
    pc.worker._assigned.clear()
    pc.worker.send(wire.Want(1, bag, digest))
    assert pc.worker.expect(wire.Part).data == data
    pc.worker.send(wire.Want(2, other, digest))
    assert isinstance(pc.worker.receive(), wire.Failed)
    for message in (wire.Part(3, bag, digest, data), wire.Offer(4, bag, digest, 1, 0, 0)):
        pc.worker.send(message)
        assert isinstance(pc.worker.receive(), wire.Failed)


def test_what_a_worker_says_about_environments_that_it_was_not_asked_for_changes_nothing(office: Office) -> None:
    pc, other, client = Pc(office, "a"), Pc(office, "b", platform="macosx_arm64"), owner(office)
    bag = client.submit([b"0"] * 3, template=template())
    key = pc.first().key
    other.say(key)
    other.refuse(key)
    other.say("unknown")
    pc.refuse(key)
    assert not office.bag(bag).held
    assert other.work() == []


def test_a_bag_that_was_paused_is_not_prepared_until_it_goes_on(office: Office) -> None:
    client = owner(office)
    bag = client.submit([b"0"], template=template())
    client.ask("pause", bag=bag)
    pc = Pc(office, "a")
    assert pc.told() is None
    client.ask("resume", bag=bag)
    assert pc.told()


def test_only_an_owner_and_admins_are_told_what_the_trees_of_an_environment_are_called(office: Office) -> None:
    owner(office).submit([b"0"], template=template())
    for who, told in ((ANN, [TREE.hex(), OLDER.hex()]), (BEN, ["", ""]), (ADMIN, [TREE.hex(), OLDER.hex()])):
        (row,) = office.client(who).ask("environments")["environments"]
        assert [build[4] for build in row["builds"]] == told
        assert (row["owner"], row["label"], row["count"]) == ("ann", "mine", 1)


def test_nothing_that_everybody_may_ask_names_a_part_or_a_template(office: Office) -> None:
    """Whoever knew them could try to have what they name."""
    pc, ann, ben = Pc(office, "a"), owner(office), office.client(BEN)
    bag = ann.submit([b"0"], template=template())
    pc.refuse(pc.prepare())
    secret = {name.hex() for name in LISTS} | {sha256(template()).hexdigest()}
    ids: dict[str, dict[str, Any]] = {
        "worker": {"name": "a"},
        "whatif new": {"tasks": 1, "runtime_s": 1.0, "changes": []},
    }
    for what, question in QUESTIONS.items():
        if question.access == "everyone":
            said = json.dumps(ben.ask(what, **ids.get(what, {})))
            assert not [name for name in secret if name in said or name[:16] in said], what
    assert bag in json.dumps(ben.ask("bags"))


# --- what the bag's note says -----------------------------------------------------------------------------------------


def _note(client: Client, bag: str) -> str:
    (row,) = [row for row in client.ask("bags")["bags"] if row["bag"] == bag]
    return str(row["note"])


def test_the_note_of_a_bag_says_why_the_only_pc_refuses_its_environment(office: Office) -> None:
    pc, client = Pc(office, "pc1"), owner(office)
    bag = client.submit([b""], template())
    key = pc.first().key
    pc.refuse(key, "its RECORD cannot be read")
    said = "its environment cannot be prepared on pc1: bad-1.0.whl: its RECORD cannot be read"
    assert _note(client, bag) == said
    assert _note(client, client.submit([b""], template())) == said, "a bag that comes later needs the same"


def test_what_another_pc_could_prepare_is_not_the_fault_of_the_wheels(office: Office) -> None:
    client, pcs = owner(office), [Pc(office, name) for name in ("pc1", "pc2")]
    bag = client.submit([b""] * 100, template())
    key = pcs[0].first().key
    assert pcs[1].first().key == key
    pcs[0].refuse(key)
    assert "cannot be prepared on pc1" in _note(client, bag)
    pcs[1].say(key)
    assert _note(client, bag) == ""


def test_a_bag_that_is_held_says_so_once(office: Office) -> None:
    client, pcs = owner(office), [Pc(office, name) for name in ("pc1", "pc2")]
    bag = client.submit([b""] * 100, template())
    for pc in pcs:
        pc.refuse(pc.first().key)
    note = _note(client, bag)
    assert note.count("bad-1.0.whl") == 1
    assert "2 PCs cannot prepare its environment" in note
