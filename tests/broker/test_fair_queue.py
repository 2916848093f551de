"""Messages that wait to be handled: whose turn it is, and how many may wait."""

import pytest

from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.port import fair_queue as fair_queue_module
from deskgrid.broker.port.fair_queue import PCS_WEIGHT, SHORT_S, FairQueue, ReadMessage

ANN, BOB, EVE = (Credential(name, "submitter") for name in ("ann", "bob", "eve"))


def said(who: Credential, text: str = "", peer: str = "") -> ReadMessage:
    """A message of that credential, over its one connection."""
    return ReadMessage((peer or who.name).encode(), who, text.encode())


def at_once(arrival: ReadMessage) -> bool:
    """Nothing has to wait for the disk."""
    return False


def taken(turns: FairQueue) -> list[str]:
    """Everything that waits, as it is handled."""
    found = []
    while (arrival := turns.take(at_once)) is not None:
        found.append(f"{arrival.who.name} {arrival.data.decode()}")
    return found


def test_a_thousand_messages_of_one_are_not_before_one_of_another() -> None:
    turns = FairQueue()
    for number in range(1000):
        assert turns.put(said(EVE, str(number)))
    assert turns.put(said(ANN, "hello"))
    assert taken(turns).index("ann hello") == 1


def test_what_one_credential_says_is_handled_in_its_order_and_credentials_take_turns() -> None:
    turns = FairQueue()
    for who, text in ((ANN, "1"), (ANN, "2"), (BOB, "3"), (ANN, "4"), (BOB, "5")):
        turns.put(said(who, text))
    assert taken(turns) == ["ann 1", "bob 3", "ann 2", "bob 5", "ann 4"]
    assert not turns


def test_whoever_has_to_wait_for_the_disk_is_passed_over() -> None:
    turns = FairQueue()
    turns.put(said(EVE, "large"))
    turns.put(said(ANN, "small"))
    assert turns.next_is_ready(lambda arrival: arrival.who == EVE)
    arrival = turns.take(lambda arrival: arrival.who == EVE)
    assert arrival is not None
    assert arrival.who == ANN
    assert not turns.next_is_ready(lambda arrival: arrival.who == EVE)
    assert turns.take(lambda arrival: arrival.who == EVE) is None
    assert taken(turns) == ["eve large"]


def test_of_one_credential_so_many_messages_wait_and_others_are_still_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue_module, "MESSAGES_LIMIT", 3)
    turns = FairQueue()
    assert [turns.put(said(EVE)) for _ in range(5)] == [True, True, True, False, False]
    assert turns.put(said(ANN))
    assert len(taken(turns)) == 4


def test_of_one_credential_so_many_bytes_wait_but_always_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue_module, "CREDENTIAL_LIMIT", 10)
    turns = FairQueue()
    assert turns.put(said(EVE, "x" * 100))
    assert not turns.put(said(EVE, "x"))
    assert turns.put(said(ANN, "x" * 6))
    assert turns.put(ReadMessage(b"ann", ANN, b"xx", [memoryview(b"xx")]))
    assert not turns.put(said(ANN, "x"))
    assert turns.size == 110
    taken(turns)
    assert turns.size == 0
    assert turns.put(said(EVE, "x" * 100))


def test_whose_message_took_long_passes_turns_for_it() -> None:
    turns = FairQueue()
    for number in range(100):
        turns.put(said(EVE, str(number)))
    for number in range(10):
        turns.put(said(ANN, str(number)))
    assert turns.take(at_once) is not None
    turns.took(EVE, 10 * SHORT_S)
    order = taken(turns)
    assert order[:10] == [f"ann {number}" for number in range(10)]
    assert len(order) == 109


def test_who_is_alone_does_not_wait_for_nobody() -> None:
    turns = FairQueue()
    turns.put(said(EVE, "1"))
    turns.took(EVE, 5.0)
    assert turns.take(at_once) is not None


def pc(number: int) -> Credential:
    return Credential(f"pc{number}", "worker")


def test_a_person_does_not_wait_for_a_thousand_busy_pcs() -> None:
    turns = FairQueue()
    for number in range(1000):
        turns.put(said(pc(number)))
        turns.put(said(pc(number)))
    assert turns.take(at_once) is not None
    turns.put(said(ANN, "hello"))
    assert "ann hello" in taken(turns)[:2]


def served(turns: FairQueue, seconds: dict[str, float], total: float) -> dict[str, float]:
    """How long the loop is busy with the messages of each role, if one of each takes so long."""
    found = dict.fromkeys(seconds, 0.0)
    while sum(found.values()) < total:
        arrival = turns.take(at_once)
        assert arrival is not None
        found[arrival.who.role] += seconds[arrival.who.role]
        turns.took(arrival.who, seconds[arrival.who.role])
    return found


def test_after_a_long_message_a_person_waits_for_the_pcs_together_and_not_for_each_of_them() -> None:
    turns = FairQueue()
    for number in range(1000):
        turns.put(said(pc(number)))
        turns.put(said(pc(number)))
    turns.put(said(ANN, "1"))
    while (arrival := turns.take(at_once)) is not None and arrival.who != ANN:
        turns.took(arrival.who, SHORT_S / 10)
    turns.took(ANN, 5 * SHORT_S)
    assert turns.is_behind(ANN)
    turns.put(said(ANN, "2"))
    waited = 0.0
    while (arrival := turns.take(at_once)) is not None and arrival.who != ANN:
        turns.took(arrival.who, SHORT_S / 10)
        waited += SHORT_S / 10
    assert waited == pytest.approx(PCS_WEIGHT * 5 * SHORT_S, rel=0.1)


def test_the_pcs_together_have_several_times_the_share_of_a_person_who_sends_without_end() -> None:
    turns = FairQueue()
    for _ in range(1000):
        turns.put(said(EVE))
        for one in range(10):
            turns.put(said(pc(one)))
    found = served(turns, {"submitter": 0.004, "worker": 0.001}, total=2.0)
    assert found["worker"] == pytest.approx(PCS_WEIGHT * found["submitter"], rel=0.05)


def test_pcs_divide_their_share_equally() -> None:
    turns = FairQueue()
    for number in range(100):
        turns.put(said(pc(1), str(number)))
    turns.put(said(pc(2)))
    assert taken(turns).index("pc2 ") == 1
    turns.took(pc(1), 10 * SHORT_S)
    assert (turns.is_behind(pc(1)), turns.is_behind(pc(2))) == (True, False)


def test_what_pcs_said_can_be_forgotten() -> None:
    turns = FairQueue()
    for who in (pc(1), pc(2), pc(1)):
        turns.put(said(who, "x"))
    turns.drop("pc1")
    assert taken(turns) == ["pc2 x"]
    turns.put(said(pc(1), "x"))
    turns.drop("pc1")
    assert (turns.take(at_once), turns.size) == (None, 0)
    turns.put(said(pc(1), "again"))
    assert taken(turns) == ["pc1 again"]


def test_what_a_credential_said_can_be_forgotten() -> None:
    turns = FairQueue()
    for who in (EVE, ANN, EVE):
        turns.put(said(who, "x"))
    assert turns.heaviest() == ("eve", 2)
    assert turns.drop("eve") == {b"eve"}
    assert turns.drop("nobody") == set()
    assert (b"eve" in turns, turns.size) == (False, 1)
    assert taken(turns) == ["ann x"]


def test_it_is_known_of_which_peers_something_waits() -> None:
    turns = FairQueue()
    turns.put(said(ANN, "1", "first"))
    turns.put(said(ANN, "2", "first"))
    turns.put(said(ANN, "3", "second"))
    assert (b"first" in turns, b"second" in turns, b"third" in turns) == (True, True, False)
    turns.take(at_once)
    assert b"first" in turns
    turns.take(at_once)
    assert (b"first" in turns, b"second" in turns) == (False, True)


def test_others_have_as_much_time_before_it_as_its_message_took() -> None:
    turns = FairQueue()
    for number in range(100):
        turns.put(said(EVE, str(number)))
        turns.put(said(ANN, str(number)))
    assert turns.take(at_once) is not None
    turns.took(EVE, 10 * SHORT_S)
    order = []
    for _ in range(60):
        arrival = turns.take(at_once)
        assert arrival is not None
        order.append(arrival.who.name)
        turns.took(arrival.who, SHORT_S / 4)
    assert order[:40] == ["ann"] * 40
    assert order[40:].count("eve") == 10


def test_of_those_who_all_took_long_the_one_goes_first_that_took_least() -> None:
    turns = FairQueue()
    for who, seconds in ((EVE, 0.5), (ANN, 0.1), (BOB, 0.3)):
        turns.put(said(who, "x"))
        turns.took(who, seconds)
    assert taken(turns) == ["ann x", "bob x", "eve x"]
