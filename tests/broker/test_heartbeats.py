"""A heartbeat without news costs the broker almost nothing: a thousand workers send 500 in a second."""

import pytest

from deskgrid import wire
from tests.broker.office import Office
from tests.peers import BareWorker


@pytest.fixture
def worker(office: Office) -> BareWorker:
    """It has been heard, and settled."""
    worker = office.worker()
    worker.join(uptime=100.0, windows=(wire.Window(200.0, 50.0),))
    office.settle()
    return worker


def coming(office: Office) -> list[tuple[float, float]]:
    """The windows to come of the only worker there is."""
    (known,) = office.sessions.state.scheduler.grid.slots.workers.values()
    return [(window.opens, window.lasts) for window in known.windows]


def test_a_heartbeat_with_nothing_new_leaves_nothing_to_decide(office: Office, worker: BareWorker) -> None:
    scheduler = office.sessions.state.scheduler
    assert not scheduler.unsettled
    office.now = 2.0
    worker.send(wire.Heartbeat(98.0, None))
    worker.send(wire.Heartbeat(98.0, (wire.Window(198.0, 50.0),)))
    assert not scheduler.unsettled


@pytest.mark.parametrize("beat", [wire.Heartbeat(50.0, None), wire.Heartbeat(98.0, ())])
def test_the_next_pass_decides_about_one_with_news(office: Office, worker: BareWorker, beat: wire.Heartbeat) -> None:
    scheduler = office.sessions.state.scheduler
    office.now = 2.0
    worker.send(beat)
    assert scheduler.unsettled
    office.settle()
    assert not scheduler.unsettled


def test_one_whose_window_is_closed_for_the_broker_only_is_asked_who_it_is(office: Office, worker: BareWorker) -> None:
    office.now = 2.0
    worker.send(wire.Heartbeat(0.0, None))
    office.settle()
    assert isinstance(worker.receive(), wire.Rejoin)


def test_windows_that_are_not_said_again_are_those_last_announced(office: Office, worker: BareWorker) -> None:
    office.now = 2.0
    worker.send(wire.Heartbeat(98.0, None))
    assert coming(office) == [(200.0, 50.0)]
    session = office.sessions.workers.by_name["bare"]
    assert session.known_until == 250.0
    worker.send(wire.Heartbeat(300.0, None))
    assert session.known_until == 302.0
    worker.send(wire.Heartbeat(98.0, ()))
    assert coming(office) == []
    assert session.known_until == 100.0


def test_one_that_is_away_may_say_as_little(office: Office) -> None:
    worker = office.worker()
    worker.join(uptime=0.0, windows=(wire.Window(200.0, 50.0),))
    office.now = 2.0
    worker.send(wire.Heartbeat(0.0, None))
    assert [window.opens for window in office.sessions.state.scheduler.grid.away["bare"].windows] == [200.0]
    assert office.sessions.workers.by_name["bare"].known_until == 250.0


def test_a_pause_is_told_and_noted_once(office: Office, worker: BareWorker) -> None:
    office.sessions.state.take_notices()
    for why in ("somebody uses it", "it runs on its battery"):
        worker.send(wire.Heartbeat(98.0, None, paused=why))
    scheduler = office.sessions.state.scheduler
    assert len(scheduler.grid.paused) == 1
    assert office.sessions.state.take_notices() == ["worker-paused name='bare' reason='somebody uses it'"]
    worker.send(wire.Heartbeat(98.0, None))
    assert not scheduler.grid.paused
    assert office.sessions.state.take_notices() == ["worker-goes-on name='bare'"]


def test_a_worker_that_comes_back_says_whether_it_is_paused(office: Office, worker: BareWorker) -> None:
    worker.join(uptime=100.0, paused="somebody uses it")
    assert len(office.sessions.state.scheduler.grid.paused) == 1
    worker.join(uptime=100.0)
    assert not office.sessions.state.scheduler.grid.paused
