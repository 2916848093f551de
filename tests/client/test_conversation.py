"""Which messages the client sends to the broker, and which it repeats: without sockets, and time is a number."""

from collections import deque
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid import wire
from deskgrid.client.conversation import (
    DEFER_S,
    GREETING_S,
    PING_S,
    REPEAT_S,
    SILENCE_S,
    SLOW_LINE,
    TEMPLATE_TRIES,
    Conversation,
    Reply,
    Request,
)
from deskgrid.client.template import Template
from deskgrid.errors import DeskgridError, GridClosed, GridRefused

HELLO = wire.Hello(wire.VERSION, "session", "ada")
GREETING = wire.Greeting(wire.VERSION, "broker")
TEMPLATE = Template("d1", b"template")


def submit(number: int, first: int = 0) -> wire.Submit:
    return wire.Submit(number, "bag", "", "d1", first, (b"x",), None, (), wire.TaskOptions(), False)


@dataclass
class Client:
    """A conversation, and the answers that came out of it, by request."""

    talk: Conversation = field(default_factory=lambda: Conversation(HELLO))
    answers: dict[int, Reply | DeskgridError] = field(default_factory=dict)

    def ask(self, now: float = 0.0, what: str = "status") -> tuple[int, list[wire.Message]]:
        number = self.talk.number()
        return number, self._request(wire.Ask(number, what), now, None)

    def submit(self, now: float = 0.0) -> tuple[int, list[wire.Message]]:
        number = self.talk.number()
        return number, self._request(submit(number), now, TEMPLATE)

    def defer(self, now: float = 0.0, bag: str = "bag") -> wire.Watch:
        """Ask what can wait for another request."""
        watch = wire.Watch(self.talk.number(), bag, 7)
        assert self.talk.defer(self._made(watch), now) == []
        return watch

    def _request(self, message: wire.Ask | wire.Submit, now: float, template: Template | None) -> list[wire.Message]:
        return self.talk.request(self._made(message, template), now)

    def _made(self, message: wire.Ask | wire.Submit | wire.Watch, template: Template | None = None) -> Request:
        def answered(reply: Reply | DeskgridError) -> None:
            assert message.request not in self.answers, "answered twice"
            self.answers[message.request] = reply

        return Request(message, answered, template)

    def join(self, now: float = 0.0) -> list[wire.Message]:
        """Connect and be greeted; what is said then."""
        assert self.talk.connected(now) == [HELLO]
        return self.talk.receive(GREETING, now)


@pytest.fixture
def client() -> Client:
    return Client()


# --- asking again ----------------------------------------------------------------------------------------------------


def test_what_is_asked_before_the_greeting_is_said_after_it_in_order(client: Client) -> None:
    client.talk.connected(0.0)
    first, said = client.ask()
    second, said_then = client.ask()
    assert [*said, *said_then] == []
    assert client.talk.receive(GREETING, 0.1) == [
        wire.Ask(first, "status"),
        wire.Ask(second, "status"),
    ]


def test_what_is_asked_after_the_greeting_is_said_at_once(client: Client) -> None:
    client.join()
    number, said = client.ask()
    assert said == [wire.Ask(number, "status")]


def test_what_can_wait_goes_with_what_is_asked_next_and_then_is_a_request_like_any_other(client: Client) -> None:
    client.join()
    watch = client.defer()
    assert client.talk.busy, "it is not to wait for ever"
    number, said = client.ask(DEFER_S / 2)
    assert said == [wire.Ask(number, "status"), watch]
    assert client.talk.receive(wire.Rejoin(), 0.2) == [HELLO]
    assert client.talk.receive(GREETING, 0.3) == said


def test_the_results_that_can_wait_are_asked_for_in_the_next_batch_of_their_bag(client: Client) -> None:
    client.join()
    watch = client.defer()
    number, said = client.submit()
    assert said[-1] == replace(submit(number), watch=watch.request, after=watch.after)
    assert watch not in said
    outcomes = wire.Outcomes(watch.request, "bag", (), (), 1, 1, 1, False)
    client.talk.receive(outcomes, 0.1)
    assert client.answers == {watch.request: outcomes}


def test_results_that_are_asked_for_in_a_batch_are_asked_for_again_like_any_other(client: Client) -> None:
    client.join()
    watch = client.defer()
    number, _ = client.submit()
    client.talk.receive(wire.Accepted(number, "bag", ""), 0.1)
    assert client.talk.receive(wire.Rejoin(), 0.2) == [HELLO]
    assert client.talk.receive(GREETING, 0.3) == [watch]


def test_what_was_asked_in_a_batch_that_is_refused_is_asked_no_more(client: Client) -> None:
    client.join()
    client.defer()
    number, _ = client.submit()
    refused = wire.Failed(number, "no")
    client.talk.receive(refused, 0.1)
    assert client.answers == {number: refused}
    assert not client.talk.busy


def test_the_results_of_another_bag_are_asked_for_by_themselves(client: Client) -> None:
    client.join()
    watch = client.defer(bag="another")
    number, said = client.submit()
    assert said[-2:] == [submit(number), watch]


def test_results_are_a_receipt_for_the_batches_they_name(client: Client) -> None:
    client.join()
    first, _ = client.submit()
    second, _ = client.submit()
    # Whoever had asked for them has them already: it is a receipt nevertheless.
    client.talk.receive(wire.Outcomes(77, "bag", (), (), 1, 1, 1, False, (first, second)), 0.1)
    assert client.answers == {number: wire.Accepted(number, "bag", "") for number in (first, second)}
    assert not client.talk.busy


def test_what_can_wait_does_not_wait_long_for_another_request(client: Client) -> None:
    client.join()
    watch = client.defer()
    assert client.talk.overdue(DEFER_S / 2) == []
    assert client.talk.overdue(DEFER_S) == [watch]
    assert client.talk.overdue(DEFER_S) == []


def test_what_waited_for_another_request_is_answered_when_there_is_no_grid_any_more(client: Client) -> None:
    client.join()
    watch, closed = client.defer(), GridClosed("it was shut down")
    client.talk.abandon(closed)
    assert client.answers == {watch.request: closed}


def test_an_answer_reaches_whoever_asked_once(client: Client) -> None:
    client.join()
    number, _ = client.ask()
    answer = wire.Answer(number, "{}")
    assert client.talk.receive(answer, 0.1) == []
    assert client.talk.receive(answer, 0.2) == []
    assert client.answers == {number: answer}


def test_a_broker_that_forgot_us_hears_who_we_are_and_everything_unanswered_again(client: Client) -> None:
    client.join()
    numbers = [client.ask()[0] for _ in range(3)]
    client.talk.receive(wire.Answer(numbers[1], "{}"), 0.1)
    assert client.talk.receive(wire.Rejoin(), 0.2) == [HELLO]
    again = client.talk.receive(GREETING, 0.3)
    assert again == [
        wire.Ask(numbers[0], "status"),
        wire.Ask(numbers[2], "status"),
    ]


def test_each_message_that_a_broker_did_not_know_us_by_brings_only_one_introduction(client: Client) -> None:
    client.join()
    client.ask()
    client.ask()
    assert client.talk.receive(wire.Rejoin(), 0.1) == [HELLO]
    assert client.talk.receive(wire.Rejoin(), 0.1) == []


def test_a_second_greeting_repeats_nothing(client: Client) -> None:
    client.join()
    client.ask()
    assert client.talk.receive(GREETING, 0.1) == []


def test_what_nobody_waits_for_is_not_said_again(client: Client) -> None:
    client.join()
    number, _ = client.ask()
    client.talk.withdraw(number)
    client.talk.receive(wire.Rejoin(), 0.1)
    assert client.talk.receive(GREETING, 0.2) == []


# --- templates -------------------------------------------------------------------------------------------------------


def test_a_template_goes_before_its_first_batch_and_not_before_the_second(client: Client) -> None:
    client.join()
    first, said = client.submit()
    assert said == [wire.Blob("d1", b"template"), submit(first)]
    second, said = client.submit()
    assert said == [submit(second)]


def test_a_new_connection_gets_the_template_again(client: Client) -> None:
    client.join()
    number, _ = client.submit()
    client.talk.connected(1.0)
    assert client.talk.receive(GREETING, 1.1) == [wire.Blob("d1", b"template"), submit(number)]


def test_a_broker_that_lacks_the_template_gets_it_with_the_batch(client: Client) -> None:
    client.join()
    client.submit()
    number, _ = client.submit()
    missing = wire.Failed(number, "template: send it first")
    blob, again = client.talk.receive(missing, 0.1)
    assert blob == wire.Blob("d1", b"template")
    assert isinstance(again, wire.Submit)
    assert again == submit(again.request)
    assert client.answers == {}
    accepted = wire.Accepted(again.request, "bag", "")
    client.talk.receive(accepted, 0.2)
    assert client.answers == {number: accepted}


def test_a_broker_that_goes_on_lacking_the_template_fails_the_batch(client: Client) -> None:
    client.join()
    number, said = client.submit()
    for _ in range(TEMPLATE_TRIES):
        assert client.answers == {}
        batch = said[-1]
        assert isinstance(batch, wire.Submit)
        said = client.talk.receive(wire.Failed(batch.request, "template: send it first"), 0.1)
    assert said == []
    assert isinstance(client.answers[number], wire.Failed)


def test_an_answer_that_arrives_again_and_again_is_one_answer(client: Client) -> None:
    client.join()
    number, _ = client.submit()
    missing = wire.Failed(number, "template: send it first")
    assert client.talk.receive(missing, 0.1)
    for _ in range(TEMPLATE_TRIES):
        assert client.talk.receive(missing, 0.1) == []
    assert client.answers == {}


def test_batches_that_lacked_their_template_keep_their_order_for_the_next_broker(client: Client) -> None:
    client.join()
    first, _ = client.submit()
    second, _ = client.submit()
    client.talk.receive(wire.Failed(first, "template: send it first"), 0.1)
    client.talk.receive(wire.Rejoin(), 0.2)
    _, again, then = client.talk.receive(GREETING, 0.3)
    assert isinstance(again, wire.Submit)
    assert again.request > second
    assert then == submit(second)


# --- silence ---------------------------------------------------------------------------------------------------------


def test_a_silent_broker_is_asked_once_whether_it_is_there(client: Client) -> None:
    client.join()
    client.ask()
    assert client.talk.overdue(PING_S - 0.1) == []
    (ping,) = client.talk.overdue(PING_S)
    assert isinstance(ping, wire.Ask)
    assert client.talk.overdue(PING_S + 1) == []


def test_any_answer_to_that_will_do(client: Client) -> None:
    client.join()
    number, _ = client.ask()
    (ping,) = client.talk.overdue(PING_S)
    assert isinstance(ping, wire.Ask)
    client.talk.receive(wire.Answer(ping.request, "{}"), PING_S + 0.1)
    assert not client.talk.gone(SILENCE_S)
    assert number not in client.answers
    assert client.talk.overdue(2 * PING_S + 0.2) != []


def test_a_connection_on_which_an_answer_is_overdue_is_given_up(client: Client) -> None:
    client.join()
    client.ask()
    assert not client.talk.gone(SILENCE_S - 0.1)
    assert client.talk.gone(SILENCE_S)


def test_a_request_that_stays_unanswered_is_said_again_ever_more_rarely(client: Client) -> None:
    client.join()
    number, _ = client.ask()
    again = []
    for tenths in range(int(80 * REPEAT_S)):
        now = tenths / 10
        client.talk.receive(wire.Answer(999, "{}"), now)  # the connection works
        again += [now for message in client.talk.overdue(now) if message == wire.Ask(number, "status")]
    assert again == [REPEAT_S, 3 * REPEAT_S, 7 * REPEAT_S]


def test_a_large_batch_is_given_the_time_that_a_slow_line_takes(client: Client) -> None:
    client.join()
    number = client.talk.number()
    large = wire.Submit(number, "bag", "", "d1", 0, (bytes(10 * SLOW_LINE),), None, (), wire.TaskOptions(), False)
    client.talk.request(Request(large, lambda reply: None), 0.0)
    assert not client.talk.gone(SILENCE_S + 9.9)
    assert client.talk.gone(SILENCE_S + 10.0)


def test_who_waits_for_nothing_may_hear_nothing(client: Client) -> None:
    client.join()
    assert not client.talk.gone(1e6)
    assert client.talk.overdue(1e6) == []


def test_silence_before_a_question_does_not_count(client: Client) -> None:
    client.join()
    client.ask(now=1e6)
    assert not client.talk.gone(1e6 + SILENCE_S - 0.1)
    assert client.talk.overdue(1e6 + 1) == []


def test_an_introduction_is_given_more_time_each_time_up_to_a_limit(client: Client) -> None:
    waits = []
    for _ in range(6):
        client.talk.connected(0.0)
        wait = next(tenths / 10 for tenths in range(10_000) if client.talk.gone(tenths / 10))
        waits.append(wait)
    assert waits[:2] == [GREETING_S, 2 * GREETING_S]
    assert waits[-1] == SILENCE_S


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_refusal_answers_what_is_asked_and_what_will_be(client: Client) -> None:
    client.talk.connected(0.0)
    before, _ = client.ask()
    client.talk.receive(wire.Refused("another version"), 0.1)
    after, said = client.ask()
    assert said == []
    assert all(isinstance(client.answers[number], GridRefused) for number in (before, after))


def test_what_is_abandoned_is_answered_with_the_reason(client: Client) -> None:
    client.join()
    number, _ = client.ask()
    error = GridClosed("closed")
    client.talk.abandon(error)
    assert client.answers == {number: error}
    assert not client.talk.busy


# --- a line that loses messages, to a broker that is restarted -------------------------------------------------------


class ForgetfulBroker:
    """Answers those it knows."""

    def __init__(self) -> None:
        self.knows = False
        self.templates: set[str] = set()

    def receive(self, message: wire.Message) -> wire.Message | None:
        if isinstance(message, wire.Hello):
            self.knows = True
            return GREETING
        if not self.knows:
            return wire.Rejoin()
        if isinstance(message, wire.Blob):
            self.templates.add(message.digest)
            return None
        if isinstance(message, wire.Submit):
            if message.template not in self.templates:
                return wire.Failed(message.request, "template: send it first")
            return wire.Accepted(message.request, message.bag, "")
        assert isinstance(message, wire.Ask)
        return wire.Answer(message.request, "{}")


@given(st.lists(st.sampled_from(["ask", "submit", "deliver", "lose", "restart", "reply", "lose reply", "wait"])))
def test_whatever_gets_lost_everything_is_answered_once_in_the_end(steps: list[str]) -> None:
    client, broker = Client(), ForgetfulBroker()
    there: deque[wire.Message] = deque(client.talk.connected(0.0))
    back: deque[wire.Message] = deque()
    asked: list[int] = []
    now = 0.0

    def step(what: str) -> None:
        nonlocal now
        now += 0.5
        if what in ("ask", "submit"):
            number, said = client.ask(now) if what == "ask" else client.submit(now)
            asked.append(number)
            there.extend(said)
        elif what == "deliver" and there:
            reply = broker.receive(there.popleft())
            back.extend([reply] if reply else [])
        elif what == "lose" and there:
            there.popleft()
        elif what == "restart":
            broker.knows = False
        elif what == "reply" and back:
            there.extend(client.talk.receive(back.popleft(), now))
        elif what == "lose reply" and back:
            back.popleft()
        elif what == "wait":
            now += PING_S
        there.extend(client.talk.overdue(now))
        if client.talk.gone(now):  # the driver makes a new connection
            there.clear()
            back.clear()
            there.extend(client.talk.connected(now))

    for what in steps:
        step(what)
    for _ in range(40):  # from here on nothing is lost
        for what in ["deliver", "reply"] * (len(there) + len(back) + 2):
            step(what)
        step("wait")
    assert sorted(client.answers) == sorted(asked)
    assert all(isinstance(reply, wire.Accepted | wire.Answer) for reply in client.answers.values())


def test_an_order_that_may_have_been_carried_out_already_says_so_when_it_is_sent_again(client: Client) -> None:
    client.join()
    number, said = client.ask(what="forget")
    assert said == [wire.Ask(number, "forget")]
    for now in (1.0, 2.0):
        assert client.talk.receive(wire.Rejoin(), now) == [HELLO]
        assert client.talk.receive(GREETING, now) == [wire.Ask(number, "forget", again=True)]
