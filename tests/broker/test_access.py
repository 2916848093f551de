"""Access rights: every question and order, asked by a bag's owner, another submitter, an admin and a worker."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.auth.keys import KeyRing
from deskgrid.broker.auth.roles import ROLES, Credential, CredentialError, Known, checked_credential
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.questions import QUESTIONS
from tests.broker.office import ADMIN, LAB, Office, OpenOffice
from tests.peers import Client

ANN = Credential("ann", "submitter")
BEN = Credential("ben", "submitter")

# What a client asks, about a bag of ann's that is ``{"bag": ...}``. An operation that is not here has no test that
# others are kept out, and fails `test_every_operation_is_decided_and_tried`.
OF_A_BAG: dict[str, dict[str, Any]] = {
    "progress": {},
    "eta": {},
    "whatif": {"changes": [{"more": [{"like": "*", "many": 1}]}]},
    "advise": {},
    "explain": {"item": 0},
    "logs": {"item": 0},
    "output": {},
    "printed": {},
    "tasks": {"state": "waiting"},
    "cancel": {"items": [0]},
    "runtimes": {"items": [0], "runtimes": [5.0]},
    "pause": {},
    "resume": {},
    "forget": {},
    "release": {"parts": bytes(32)},
}
OF_ADMINS: dict[str, dict[str, Any]] = {
    "events all": {},
    "policy": {"name": "fcfs", "options": {}},
    "forget learned": {},
    "drain": {"pcs": ["pc1"], "seconds": None, "now": False},
    "drain undo": {"pcs": ["pc1"]},
    "pc checks": {},
    "keys": {},
    "keys add": {"role": "submitter", "name": "eve", "public": "00" * 32},
    "keys revoke": {"name": "worker"},
    "keys forget": {"name": "pc1"},
    "keys enrol": {"on": False},
}
OF_EVERYONE: dict[str, dict[str, Any]] = {
    "ping": {},
    "status": {},
    "bags": {},
    "events": {},
    "worker": {"name": "pc1"},
    "plan": {},
    "whatif new": {"tasks": 10, "runtime_s": 60.0, "changes": [{"split": 2}]},
    "drains": {},
    "shares": {},
    "systems": {},
    "environments": {},
}
REFUSED = "bag {} belongs to ann, and you are connected as ben: only ann and admins may do this"


class Store:
    """Credentials in memory."""

    def __init__(self) -> None:
        self.known: dict[str, Credential] = {"worker": LAB, "pc1": Credential("pc1", "worker")}
        self.enrolling = True

    def rows(self) -> list[Known]:
        return list(map(Known, self.known.values()))

    def add(self, credential: Credential, public: bytes, when: float) -> None:
        self.known[credential.name] = credential

    def enrol(self, line: Credential, name: str, public: bytes, when: float) -> tuple[str, bytes]:
        self.add(Credential(name, "worker"), public, when)
        return name, public

    def revoke(self, name: str) -> str:
        if name not in self.known:
            raise CredentialError(f"there is no key {name!r}")
        del self.known[name]
        return ""

    def forget(self, name: str) -> None:
        self.revoke(name)

    def let_enrol(self, on: bool) -> None:
        self.enrolling = on


@pytest.fixture
def ann(office: Office) -> Client:
    office.sessions.state.credentials = Store()
    return office.client(ANN)


@pytest.fixture
def bag(ann: Client) -> str:
    """A bag of ann's that waits, with one task that was cancelled."""
    made = ann.submit([b"0", b"1"], runtime=1.0)
    ann.ask("cancel", bag=made, items=[1])
    return made


def state(office: Office) -> object:
    """What somebody who may not do anything must not change."""
    state = office.sessions.state
    tasks = state.scheduler.grid.tasks
    rows = [
        (bag.row.id, bag.closed, bag.paused, bag.settled, tuple(map(tasks.runtime, range(bag.total))))
        for bag in state.book.by_number.values()
    ]
    assert isinstance(state.credentials, Store)
    return rows, dict(state.credentials.known), state.credentials.enrolling, state.scheduler.policy


def test_every_operation_is_decided_and_tried(office: Office) -> None:
    names = office.sessions.queries.names
    assert names == set(QUESTIONS), "give each query a line in QUESTIONS (deskgrid/wire/questions.py)"
    tried = {"owner": set(OF_A_BAG), "admin": set(OF_ADMINS), "everyone": set(OF_EVERYONE)}
    decided = {access: {what for what in QUESTIONS if QUESTIONS[what].access == access} for access in tried}
    assert decided == tried, "give each query a line in the tables of this file"


@pytest.mark.parametrize("what", OF_A_BAG)
def test_one_submitter_cannot_touch_the_bag_of_another(office: Office, bag: str, what: str) -> None:
    ben, before = office.client(BEN), state(office)
    assert ben.failed(what, bag=bag, **OF_A_BAG[what]) == REFUSED.format(bag)
    assert state(office) == before


@pytest.mark.parametrize("who", [ANN, ADMIN], ids=lambda who: who.name)
@pytest.mark.parametrize("what", OF_A_BAG)
def test_the_owner_of_a_bag_and_an_admin_can_do_everything_with_it(
    office: Office, ann: Client, bag: str, who: Credential, what: str
) -> None:
    if what in ("forget", "release"):
        ann.ask("cancel", bag=bag)
    assert isinstance(office.client(who).ask(what, bag=bag, **OF_A_BAG[what]), dict)


def test_an_owner_who_comes_from_elsewhere_under_another_user_name_is_still_the_owner(office: Office, bag: str) -> None:
    other = office.client(ANN, greet=False)
    other.send(wire.Hello(wire.VERSION, "another-session", "root"))
    other.expect(wire.Greeting)
    assert other.ask("progress", bag=bag)["owner"] == "ann"


@pytest.mark.parametrize("user", ["ann", "admin", "root"])
def test_what_somebody_calls_themselves_opens_nothing(office: Office, bag: str, user: str) -> None:
    ben = office.client(BEN, greet=False)
    ben.send(wire.Hello(wire.VERSION, "session", user))
    ben.expect(wire.Greeting)
    assert ben.failed("progress", bag=bag) == REFUSED.format(bag)


def test_one_submitter_cannot_have_the_results_of_another(office: Office, bag: str) -> None:
    ben = office.client(BEN)
    ben.send(wire.Watch(7, bag, 0))
    assert ben.expect(wire.Failed) == wire.Failed(7, REFUSED.format(bag))
    assert not office.sessions.state.book.by_id[bag].watchers


@pytest.mark.parametrize("who", [ANN, ADMIN], ids=lambda who: who.name)
def test_the_owner_and_an_admin_have_the_results(office: Office, bag: str, who: Credential) -> None:
    assert [result.item for result in wire.results_in(office.client(who).watch(bag))] == [1]


@pytest.mark.parametrize(("first", "last"), [(0, False), (2, False), (2, True), (3, True)])
def test_one_submitter_cannot_add_to_the_bag_of_another_or_close_it(
    office: Office, ann: Client, first: int, last: bool
) -> None:
    bag = ann.submit([b"0", b"1"], last=False)
    ben, before = office.client(BEN), state(office)
    answer = ben.answer_to(ben.batch(bag, [b"mine"], first=first, last=last))
    assert isinstance(answer, wire.Failed)
    assert answer.reason == REFUSED.format(bag)
    assert state(office) == before


@pytest.mark.parametrize("what", OF_ADMINS)
def test_what_concerns_everybody_is_for_admins(office: Office, ann: Client, what: str) -> None:
    if what == "drain undo":
        office.client(ADMIN).ask("drain", **OF_ADMINS["drain"])
    before = state(office)
    assert ann.failed(what, **OF_ADMINS[what]) == f"{what!r} is for admins; you are connected as ann, a submitter"
    assert state(office) == before
    assert isinstance(office.client(ADMIN).ask(what, **OF_ADMINS[what]), dict)


@pytest.mark.parametrize("what", ["status", "bags"])
def test_the_status_and_the_list_of_bags_are_for_everyone_and_name_the_owner(
    office: Office, bag: str, what: str
) -> None:
    (row,) = office.client(BEN).ask(what, **OF_EVERYONE[what])["bags"]
    assert (row["bag"], row["owner"]) == (bag, "ann")


def test_the_owner_of_a_bag_outlives_the_broker(open_office: OpenOffice) -> None:
    first = open_office()
    bag = first.client(ANN).submit([b"0"])
    first.settle()
    second = open_office()
    assert second.client(BEN).failed("progress", bag=bag) == REFUSED.format(bag)
    assert second.client(ANN).ask("progress", bag=bag)["owner"] == "ann"


# --- connections -----------------------------------------------------------------------------------------------------


def test_a_connection_that_speaks_by_another_key_is_not_taken_for_who_was_there(office: Office, bag: str) -> None:
    ann = office.client(ANN)
    line: Any = ann.line
    line.who = BEN
    ann.send(wire.Ask(1, "progress", wire.pack_record({"bag": bag})))
    assert isinstance(ann.receive(), wire.Rejoin)


def test_a_worker_that_speaks_by_another_key_is_not_taken_for_who_was_there(office: Office) -> None:
    worker = office.worker("pc1")
    worker.join()
    line: Any = worker.line
    line.who = Credential("pc2", "worker")
    worker.send(wire.Heartbeat(None, ()))
    assert isinstance(worker.receive(), wire.Rejoin)


def test_whoever_is_here_by_a_revoked_key_is_let_go_and_its_work_goes_to_others(office: Office, ann: Client) -> None:
    bag = ann.submit([b"0"], runtime=1.0)
    worker, admin = office.worker("pc1"), office.client(ADMIN)
    worker.join()
    worker.work()
    assert admin.ask("keys revoke", name="pc1") == {"connected": 1, "line_in": ""}
    office.settle()
    assert worker.refusal() == "the key 'pc1' was revoked"
    assert office.sessions.workers.by_name == {}
    progress = ann.ask("progress", bag=bag)
    assert (progress["running"], progress["waiting"]) == (0, 1)


def test_a_revoked_submitter_is_let_go_and_its_bags_stay_for_admins(office: Office, ann: Client, bag: str) -> None:
    admin = office.client(ADMIN)
    admin.ask("keys add", role="submitter", name="ann", public="11" * 32)
    ann.send(wire.Watch(5, bag, 99))
    assert admin.ask("keys revoke", name="ann")["connected"] == 1
    office.settle()
    assert ann.refusal() == "the key 'ann' was revoked"
    assert not office.sessions.state.book.by_id[bag].watchers
    assert admin.ask("progress", bag=bag)["owner"] == "ann"


# --- a worker that lies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "say",
    [
        lambda ref: wire.Finished((wire.Result(ref.task, ref.number, 0, 0.1, b"forged", b"", b""),)),
        lambda ref: wire.Returned((wire.Ref(ref.task, ref.number),)),
    ],
    ids=["finished", "returned"],
)
def test_what_a_worker_says_of_anothers_attempt_changes_nothing(
    office: Office, ann: Client, say: Callable[[wire.Work], wire.Message]
) -> None:
    bag = ann.submit([b"0"], runtime=1.0)
    honest, liar = office.worker("honest"), office.worker("liar")
    honest.join()
    (work,) = honest.work()
    liar.join()
    liar.send(say(work))
    office.settle()
    assert ann.ask("progress", bag=bag)["running"] == 1
    honest.finish(work, payload=b"right")
    assert [result.payload for result in ann.results(bag)] == [b"right"]


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a/b", "ä", "a" * 65, "a\n", 7, None])
def test_a_name_that_is_none_is_refused(name: object) -> None:
    with pytest.raises(CredentialError, match="a name is 1 to 64"):
        checked_credential(name, "admin")


@pytest.mark.parametrize("role", ["", "client", "Admin", 7, None, []])
def test_a_role_that_is_none_is_refused(role: object) -> None:
    with pytest.raises(CredentialError, match="a role is one of lab, worker, submitter, admin"):
        checked_credential("ann", role)


def test_names_and_roles_as_people_have_them_are_taken() -> None:
    for name in ("ann", "Ann.Lee", "ann@lab-3", "4", "a" * 64):
        for role in ROLES:
            assert checked_credential(name, role) == Credential(name, role)


# --- orders that come again ------------------------------------------------------------------------------------------

# Orders that would fail when they come a second time; and the state in which the broker finds what they are about.
REPEATED = [("forget", "bag"), ("pause", "ended"), ("resume", "ended"), ("keys forget", "pc1"), ("keys revoke", "pc1")]


def with_keys(office: Office, home: Path) -> Office:
    """The office has the keys in this home, with that of a PC if there were none."""
    ring = office.sessions.state.credentials = KeyRing(home)
    if not (home / "enrolled").exists():
        (home / "enrolled").touch()
        ring.enrol(Credential("worker", "lab"), "pc1", new_pair()[0], 0.0)
    return office


def repeated(client: Client, what: str, again: bool, **args: Any) -> wire.Message:
    """What the broker says to an order; ``again``: the client has sent it before, over another connection."""
    client.send(wire.Ask(number := client.number(), what, wire.pack_record(args), again))
    answer = client.receive()
    assert getattr(answer, "request", None) == number
    return answer


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize(("what", "about"), REPEATED)
def test_an_order_that_was_carried_out_before_the_broker_ended_is_no_error_when_it_is_sent_again(
    open_office: OpenOffice, tmp_path: Path, what: str, about: str, crashed: bool
) -> None:
    office = with_keys(open_office(), tmp_path)
    admin, worker = office.client(ADMIN), office.worker("pc1")
    bag = admin.submit([b"0"])
    args = {"bag": bag} if about in ("bag", "ended") else {"name": about}
    worker.join()
    if what == "pause":
        assert isinstance(repeated(admin, what, False, **args), wire.Answer)
    worker.finish(*worker.work()) if what != "pause" else admin.ask("cancel", bag=bag)
    if about != "ended":
        assert isinstance(repeated(admin, what, False, **args), wire.Answer)
    office.settle()
    if crashed:
        admin = with_keys(open_office(), tmp_path).client(ADMIN)
    fresh = repeated(admin, what, False, **args)
    assert isinstance(fresh, wire.Failed), "somebody who asks for the first time is told"
    assert isinstance(repeated(admin, what, True, **args), wire.Answer)


@pytest.mark.parametrize("what", ["forget", "pause", "keys forget", "keys revoke"])
def test_an_order_that_was_not_carried_out_is_carried_out_when_it_is_sent_again(
    office: Office, tmp_path: Path, what: str
) -> None:
    with_keys(office, tmp_path)
    admin = office.client(ADMIN)
    bag = admin.submit([b"0"])
    office.worker("pc1").join()
    if what == "forget":
        admin.ask("cancel", bag=bag)
    args = {"name": "pc1"} if what.startswith("keys") else {"bag": bag}
    assert isinstance(repeated(admin, what, True, **args), wire.Answer)
    assert isinstance(repeated(admin, what, False, **args), wire.Failed) == (what != "pause")


def test_a_repeated_order_is_no_way_around_rights(office: Office, bag: str) -> None:
    ben = office.client(BEN)
    for what, args in (("forget", {"bag": bag}), ("pause", {"bag": bag}), ("keys forget", {"name": "nobody"})):
        assert isinstance(repeated(ben, what, True, **args), wire.Failed)
    assert isinstance(repeated(ben, "forget", True, bag="never-was"), wire.Answer)
