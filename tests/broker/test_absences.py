"""PCs that should be there: which are missed, since when, and which are not expected."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from deskgrid.broker.auth.keys import KeyRing
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.work.absences import GRACE_S, LOOK_S
from deskgrid.windows.windows_file import WINDOWS, windows_file
from tests.broker.office import ADMIN, Office
from tests.peers import BareWorker
from tests.uptime.builders import at

HOUR = 3600.0
PLAN = 'zone = "Europe/Brussels"\n["lab-*"]\nwindows = "daily 9-17"\n'


@contextmanager
def opened(folder: Path, start: str) -> Iterator[Office]:
    """A broker, three PCs with keys, and a plan for two of them."""
    (folder / WINDOWS).write_text(PLAN)
    keys = KeyRing(folder)
    for number, name in enumerate(("lab-1", "lab-2", "office")):
        keys.add(Credential(name, "worker"), bytes([number]) * 32, 0.0)
    with closing(Office(folder, wall=at(start).wall)) as office:
        state = office.sessions.state
        state.credentials, state.windows_file = keys, windows_file(folder)
        state.windows_file.refresh()
        yield office


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """It starts at 8 o'clock on a Monday."""
    with opened(tmp_path, "2026-11-16T08:00") as office:
        yield office


def look(office: Office, now: float, *there: BareWorker) -> list[tuple[str, float, float | None]]:
    """Who is missing, since when, and when it was there last: hours from the start of the broker."""
    office.now = now - LOOK_S
    office.wait(LOOK_S, *there)
    absences = office.sessions.queries.absences
    absences.look(now)
    rows = absences.rows()
    assert absences.count == len(rows)
    seen = [None if row["seen_s"] is None else round((now - row["seen_s"]) / HOUR, 2) for row in rows]
    return [(row["pc"], round((now - row["since_s"]) / HOUR, 2), at) for row, at in zip(rows, seen, strict=True)]


def test_a_pc_that_does_not_come_when_its_window_opens_is_missed(office: Office) -> None:
    assert look(office, 0.5 * HOUR) == []
    assert look(office, HOUR + GRACE_S - 1.0) == [], "it has some minutes to come"
    assert look(office, HOUR + GRACE_S + LOOK_S) == [("lab-1", 1.0, None), ("lab-2", 1.0, None)]
    notes = [line for line in office.sessions.state.take_notices() if line.startswith("pc-missing")]
    assert notes[0] == "pc-missing name='lab-1' plan='daily 9-17 (Europe/Brussels)'"
    look(office, HOUR + GRACE_S + 2 * LOOK_S)
    assert not any(line.startswith("pc-missing") for line in office.sessions.state.take_notices()), "it is said once"
    assert look(office, 9.1 * HOUR) == [], "its window has closed"
    document = office.client(ADMIN).ask("status")
    assert (document["absent"], document["totals"]["pcs_absent"]) == ([], 0)


def test_a_pc_that_vanishes_is_missed_since_then(office: Office) -> None:
    office.now = 2 * HOUR
    worker = office.worker("lab-1")
    worker.join(uptime=7 * HOUR, kind="windows")
    assert [pc for pc, _, _ in look(office, 2 * HOUR + LOOK_S, worker)] == ["lab-2"]
    look(office, 2 * HOUR + 2 * GRACE_S)
    assert look(office, 3 * HOUR) == [("lab-2", 1.0, None), ("lab-1", 2.17, 2.17)]


def test_a_pc_that_is_drained_or_has_no_plan_or_no_key_any_more_is_not_missed(office: Office) -> None:
    assert [pc for pc, _, _ in look(office, 2 * HOUR)] == ["lab-1", "lab-2"]
    office.client(ADMIN).ask("drain", pcs=["lab-1"], seconds=None, now=False)
    assert [pc for pc, _, _ in look(office, 2 * HOUR + 2 * LOOK_S)] == ["lab-2"]
    assert office.sessions.state.credentials is not None
    office.sessions.state.credentials.revoke("lab-2")
    assert look(office, 2 * HOUR + 4 * LOOK_S) == []
    office.sessions.state.credentials = None
    assert look(office, 2 * HOUR + 6 * LOOK_S) == []


def test_when_a_pc_was_there_before_a_restart_is_known(tmp_path: Path) -> None:
    with opened(tmp_path, "2026-11-16T10:00") as office:
        office.worker("lab-1").join(uptime=HOUR, kind="windows")
        office.settle()
    with opened(tmp_path, "2026-11-16T12:00") as office:
        assert look(office, GRACE_S - 1.0) == []
        found = look(office, GRACE_S + LOOK_S)
        assert [(pc, seen is None) for pc, _, seen in found] == [("lab-2", True), ("lab-1", False)]
        assert [since for _, since, _ in found] == [-3.0, found[1][2]]
