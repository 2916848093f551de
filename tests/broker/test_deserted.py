"""Bags whose client went away before it had submitted all tasks: they say so, and are closed in bounded time."""

from deskgrid import wire
from deskgrid.broker.peers.clients import CLIENT_GONE_S, SWEEP_S
from tests.broker.office import Office, OpenOffice
from tests.peers import Client

HALF = "of its items arrived, perhaps not all"


def half_submitted(office: Office, count: int = 3) -> str:
    """A bag of which ``count`` items arrived; then its client was killed."""
    client = office.client()
    bag = client.submit([b"0"] * count, runtime=1.0, last=False)
    killed(office, client)
    return bag


def killed(office: Office, client: Client) -> None:
    """Its connection ends without a word."""
    (peer,) = (peer for peer, line in office.lines.items() if line is client.line)
    client.close()
    office.sessions.gone(peer)


def later(office: Office, seconds: float) -> None:
    """Time goes by, and the broker looks up as often as it does."""
    end = office.now + seconds
    while office.now < end:
        office.now = min(end, office.now + SWEEP_S)
        office.settle()


def row(office: Office, bag: str) -> tuple[bool, str]:
    """Whether it counts as closed, and what is said of it."""
    found = office.client().ask("progress", bag=bag)
    return found["closed"], found["note"]


def work(office: Office, count: int) -> None:
    worker = office.worker()
    worker.join(slots=count)
    worker.finish(*worker.work(count))
    worker.send(wire.Leave("it has done enough", False, False, (), ()))


def test_a_bag_whose_client_is_gone_says_so_and_how_much_of_it_arrived(office: Office) -> None:
    bag = half_submitted(office)
    later(office, SWEEP_S)
    closed, note = row(office, bag)
    assert not closed
    assert f"its client is gone: 3 {HALF}" in note
    (of_status,) = office.client().ask("status")["bags"]
    assert of_status["note"] == note


def test_a_bag_whose_client_is_there_says_nothing_of_it(office: Office) -> None:
    client = office.client()
    bag = client.submit([b"0"], runtime=1.0, last=False)
    later(office, SWEEP_S)
    assert HALF not in row(office, bag)[1]


def test_it_is_closed_when_its_client_has_been_gone_for_long_and_still_says_so(office: Office) -> None:
    bag = half_submitted(office)
    work(office, 3)
    later(office, CLIENT_GONE_S)
    assert row(office, bag)[0] is False
    later(office, 2 * SWEEP_S)
    assert row(office, bag) == (True, f"its client did not return: 3 {HALF}")
    assert any("bag-deserted" in line for line in office.sessions.state.take_notices())


def test_the_time_without_a_client_counts_from_when_it_went_and_not_from_the_end_of_the_work(office: Office) -> None:
    bag = half_submitted(office)
    later(office, 2 * CLIENT_GONE_S)
    assert row(office, bag)[0] is False, "its tasks wait: nothing has ended"
    work(office, 3)
    later(office, SWEEP_S)
    assert row(office, bag)[0] is True


def test_a_client_that_returns_finds_its_bag_open_and_goes_on(office: Office) -> None:
    client = office.client()
    bag = client.submit([b"0"], runtime=1.0, last=False)
    hello = wire.Hello(wire.VERSION, office.sessions.state.book.by_id[bag].row.session, "")
    killed(office, client)
    work(office, 1)
    later(office, CLIENT_GONE_S + 2 * SWEEP_S)
    assert row(office, bag)[0] is True
    back = office.client()
    back.send(hello)
    back.expect(wire.Greeting)
    assert isinstance(back.answer_to(back.batch(bag, [b"1"], first=1, last=False)), wire.Accepted)
    closed, note = row(office, bag)
    assert not closed
    assert HALF not in note


def test_a_client_of_another_key_that_calls_itself_the_same_does_not_keep_it_open(office: Office) -> None:
    from tests.broker.office import ADMIN

    bag = half_submitted(office)
    work(office, 3)
    session = office.sessions.state.book.by_id[bag].row.session
    impostor = office.client(ADMIN)
    for _ in range(int(CLIENT_GONE_S / SWEEP_S) + 2):
        impostor.send(wire.Hello(wire.VERSION, session, ""))
        later(office, SWEEP_S)
    assert row(office, bag)[0] is True


def test_after_a_restart_of_the_broker_it_has_as_long_again(open_office: OpenOffice) -> None:
    office = open_office()
    bag = half_submitted(office)
    work(office, 3)
    later(office, CLIENT_GONE_S + 2 * SWEEP_S)
    assert row(office, bag)[0] is True
    office = open_office()
    office.settle()
    later(office, SWEEP_S)
    assert row(office, bag) == (False, f"its client is gone: 3 {HALF}")
    later(office, CLIENT_GONE_S + SWEEP_S)
    assert row(office, bag)[0] is True
