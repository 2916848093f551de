"""A worker tells its broker what is not well on its PC, once, and again after it has introduced itself."""

import threading
from collections.abc import Callable, Iterator

from deskgrid import wire
from deskgrid.worker.pc import regular_checks
from deskgrid.worker.pc.checks import Finding
from deskgrid.worker.pc.regular_checks import RegularChecks, not_well
from tests.worker.test_stepping_aside import Pc, at


def test_what_there_is_to_do_comes_first_and_what_is_well_is_left_out() -> None:
    found = [Finding("a", "well", "x"), Finding("b", "note", "y"), Finding("c", "do", "z" * 5000)]
    first, second = not_well(lambda: found)
    assert (first.what, first.to_do, len(first.said)) == ("c", True, wire.LINE_BYTES)
    assert second == wire.Finding("b", False, "y")
    assert len(not_well(lambda: found * 20)) == wire.FINDINGS_LIMIT


def test_checks_that_fail_are_a_finding() -> None:
    def look() -> Iterator[Finding]:
        yield Finding("a", "do", "x")
        raise RuntimeError("no such disk")

    assert not_well(look) == (wire.Finding("checks", True, "they failed: RuntimeError: no such disk"),)


def _look_of(looked: threading.Event) -> Callable[[], list[Finding]]:
    def look() -> list[Finding]:
        looked.set()
        return [Finding("a", "do", "x")]

    return look


def test_nobody_looks_while_the_broker_is_away() -> None:
    looked, asked = threading.Event(), threading.Event()

    def has_broker() -> bool:
        asked.set()
        return False

    checks = RegularChecks(_look_of(looked), has_broker)
    checks.begin()
    assert asked.wait(10.0)
    checks.close()
    assert (looked.is_set(), checks.found) == (False, None)


def test_it_looks_at_once_and_only_one_thread_does() -> None:
    looked = threading.Event()
    checks = RegularChecks(_look_of(looked), lambda: True)
    checks.begin()
    checks.begin()
    assert looked.wait(10.0)
    checks.close()
    assert checks.found == (wire.Finding("a", True, "x"),)
    assert regular_checks.LOOK_S > regular_checks.AGAIN_S


def test_a_heartbeat_has_what_was_found_once_and_again_after_an_introduction() -> None:
    pc = Pc()

    def beat(now: float) -> tuple[wire.Finding, ...] | None:
        (message,) = pc.says(now)
        assert isinstance(message, wire.Heartbeat)
        return message.findings

    found = (wire.Finding("disk", True, "make room"),)
    assert beat(60.0) is None
    pc.session.findings = found
    assert [beat(120.0), beat(180.0)] == [found, None]
    pc.session.findings = ()
    assert [beat(240.0), beat(300.0)] == [(), None]
    pc.session.receive(wire.Rejoin(), at(310.0))
    (join,) = pc.says(310.0)
    assert isinstance(join, wire.Join)
    pc.session.receive(wire.Welcome(wire.VERSION, "b" * 8, "pc", 60.0, 60.0, None, 86_400.0), at(310.0))
    assert beat(400.0) == ()
