"""What PCs say that is not well there: it is kept while they are away, and one that was not let in says why."""

from typing import Any

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.work import pc_checks
from tests.broker.office import ADMIN, Office, OfficeLine
from tests.peers import BareWorker

FULL = wire.Finding("disk", True, "0.1 GiB are free: make room")
SLOW = wire.Finding("virtual", False, "no /dev/kvm")


def rows(office: Office) -> list[dict[str, Any]]:
    """What an admin is told of all PCs."""
    told: list[dict[str, Any]] = office.client(ADMIN).ask("pc checks")["pcs"]
    return told


def joined(office: Office, name: str, *findings: wire.Finding) -> BareWorker:
    worker = office.worker(name)
    worker.join()
    worker.send(wire.Heartbeat(None, None, findings=findings))
    return worker


def test_an_admin_sees_what_a_pc_has_found_and_when(office: Office) -> None:
    joined(office, "pc1", FULL, SLOW)
    office.worker("pc2").join()
    office.now += 90.0
    first, second = rows(office)
    assert (first["pc"], first["state"], first["age_s"]) == ("pc1", "checked", 90.0)
    assert first["findings"] == [each._asdict() for each in (FULL, SLOW)]
    assert second == {"pc": "pc2", "state": "unknown", "version": wire.VERSION, "age_s": None, "findings": []}


def test_what_was_found_stays_until_something_else_is_said(office: Office) -> None:
    worker = joined(office, "pc1", FULL)
    worker.send(wire.Heartbeat(None, None))
    worker.join()
    assert len(rows(office)[0]["findings"]) == 1
    worker.send(wire.Heartbeat(None, None, findings=()))
    assert rows(office)[0]["findings"] == []


def test_a_pc_with_a_key_is_remembered_when_its_worker_has_left_and_another_is_not(office: Office) -> None:
    other = BareWorker(OfficeLine(office, ADMIN), "guest")
    other.join()
    for worker in (joined(office, "pc1", FULL), other):
        worker.send(wire.Leave("it ends", False, True, (), ()))
    assert [row["pc"] for row in rows(office)] == ["pc1"]


def test_a_pc_of_another_version_that_is_let_in_is_told_apart(office: Office) -> None:
    version = f"0.0.9+wire{wire.PROTOCOL}"
    office.worker("pc1").join(version=version)
    (row,) = rows(office)
    (found,) = row["findings"]
    assert (found["what"], found["to_do"]) == ("version", False)
    assert found["said"] == f"it runs deskgrid {version}, and the broker {wire.VERSION}"


def test_a_pc_that_is_refused_for_its_version_is_named_until_it_is_let_in(office: Office) -> None:
    worker = office.worker("pc1")
    worker.send(worker.introduction(version="0.0.9+wire1"))
    worker.expect(wire.Refused)
    (row,) = rows(office)
    assert (row["state"], row["version"]) == ("refused", "0.0.9+wire1")
    assert row["findings"][0]["said"].startswith("you are older than this broker")
    worker.join()
    assert [row["state"] for row in rows(office)] == ["unknown"]


def test_nobody_who_only_submits_is_named(office: Office) -> None:
    office.sessions.turned_away(Credential("ann", "submitter"), "", "0.0.9", "too old", 0.0)
    assert rows(office) == []


def test_a_pc_whose_key_was_revoked_is_forgotten(office: Office) -> None:
    joined(office, "pc1", FULL)
    office.sessions.state.revoked.append("pc1")
    office.settle()
    assert rows(office) == []


def guest(office: Office, name: str) -> BareWorker:
    """A worker that has no key of its own, so it may have any name."""
    worker = BareWorker(OfficeLine(office, ADMIN), name)
    worker.join()
    return worker


def test_a_worker_with_another_key_on_a_pc_whose_key_was_revoked_is_still_heard(office: Office) -> None:
    joined(office, "pc1", SLOW)
    other = guest(office, "pc1")
    office.sessions.state.revoked.append("pc1")
    office.settle()
    assert rows(office)[0]["findings"] == [], "they were those of the revoked key"
    other.send(wire.Heartbeat(None, None, findings=(FULL,)))
    assert rows(office)[0]["findings"] == [FULL._asdict()]
    other.send(wire.Leave("it ends", False, True, (), ()))
    assert rows(office) == []


def test_a_pc_with_a_key_is_remembered_whoever_had_its_name_before(office: Office) -> None:
    for worker in (guest(office, "pc1"), joined(office, "pc1", FULL)):
        worker.send(wire.Leave("it ends", False, True, (), ()))
    assert [row["pc"] for row in rows(office)] == ["pc1"]


def test_what_a_worker_says_that_was_let_in_counts_though_another_of_its_pc_was_not(office: Office) -> None:
    worker, older = joined(office, "pc1"), office.worker("pc1")
    older.send(older.introduction(version="0.0.9+wire1"))
    assert rows(office)[0]["state"] == "refused"
    worker.send(wire.Heartbeat(None, None, findings=(FULL,)))
    assert (rows(office)[0]["state"], rows(office)[0]["findings"]) == ("checked", [FULL._asdict()])


def test_many_pcs_are_told_in_pages(office: Office) -> None:
    for number in range(pc_checks.PAGE + 1):
        office.worker(f"pc{number:03}").join()
    admin = office.client(ADMIN)
    page = admin.ask("pc checks")
    assert (len(page["pcs"]), page["after"]) == (pc_checks.PAGE, f"pc{pc_checks.PAGE - 1:03}")
    rest = admin.ask("pc checks", after=page["after"])
    assert ([row["pc"] for row in rest["pcs"]], rest["after"]) == ([f"pc{pc_checks.PAGE:03}"], None)
