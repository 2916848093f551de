"""Limits of one credential: the memory of answers that it does not read, and its share of the broker's time."""

import hashlib
import time

import pytest

from deskgrid import wire
from tests.counting import COUNTS
from tests.executor.rig import python_template
from tests.hostile.forging import account, packed
from tests.hostile.lab import Lab, Raw
from tests.hostile.limits import GROWTH, LARGE, SLACK, unharmed
from tests.peers import COMMAND, Client

pytestmark = [pytest.mark.slow, pytest.mark.alone]

CONNECTIONS, LOGS = (40 if LARGE else 8), 400
# What a worker may send of a task's output at most, and of an account of a failure less than that.
OUTPUT = 60 * 1024
# Bags of which the answers are read together: who sends far more, and reads nothing, is cut off.
AT_ONCE = 500
BAGS, MANY_BAGS = (400, 60_000) if LARGE else (150, 3_000)
QUESTIONS, STATUSES = 1_000, 320
# Submissions as long as a message may be: of gigabytes, a submitter is over its quota.
LONG_ONES = 100 if LARGE else 20
AFTER_S = 3.0
# How long PCs fail everything that they are given, as fast as they can. Seconds.
FAILING_S = 14.0 if LARGE else 3.0
# How many times as long twenty short tasks of others may take beside tasks that fail.
OTHERS = 20.0
TEMPLATE = hashlib.sha256(COMMAND).hexdigest()
OPTIONS = wire.TaskOptions().packed()


def test_answers_that_nobody_reads_are_bounded_for_all_connections_of_a_submitter_together(place: Lab) -> None:
    line = place.key("submitter", "mallory")
    client = place.client(line)
    bag = client.submit([b""], runtime=0.01)
    worker = place.bare_worker("pc")
    worker.join()
    (work,) = worker.work()
    failed = account("E", "e", "t" * OUTPUT, b"")
    said = b"o" * OUTPUT
    worker.send(wire.Finished((wire.Result(work.task, work.number, wire.Outcome.ERROR, 0.01, failed, said, said),)))
    client.results(bag)
    logs = wire.pack_record({"bag": bag, "item": 0})
    with place.pinging() as pings:
        for raw in [place.greeted(line, deaf=True) for _ in range(CONNECTIONS)]:
            for request in range(LOGS):
                if not raw.has_room([wire.encode(wire.Ask(request + 1, "logs", logs))]):
                    break  # what is not read any more is not sent
        place.submitter("somebody").answers(AFTER_S)
    unharmed(place, pings, f"{CONNECTIONS} connections that read no answers")


def opened(raw: Raw, count: int, *, cancelled: bool) -> None:
    """So many bags; waits until the broker has all of them."""
    raw.send(wire.Blob(TEMPLATE, COMMAND))
    submit, ask = wire.MESSAGES.index(wire.Submit), wire.MESSAGES.index(wire.Ask)
    for number in range(count):
        bag = f"evil-{number}"
        fields = [2 * number + 1, bag, "", TEMPLATE, 0, [b"1"], 1.0, [], OPTIONS, True, 0, 0]
        raw.frames([packed([submit, *fields])])
        if cancelled:
            raw.frames([packed([ask, 2 * number + 2, "cancel", f'{{"bag": "{bag}", "items": null}}'])])
        if number % AT_ONCE == AT_ONCE - 1:
            raw.await_turn(number + 3 * count)
    raw.await_turn(3 * count)


def asked(raws: list[Raw], what: str, count: int) -> None:
    """Ask so many questions at once over these connections, and read the answers."""
    for number in range(count):
        raws[number % len(raws)].send(wire.Ask(10**6 + number, what))
    for raw in raws:
        heard = 0
        while heard < count // len(raws):
            heard += isinstance(raw.receive(), wire.Answer | wire.Failed)


def test_tasks_that_fail_at_once_and_are_retried_for_ever_do_not_keep_others_out(place: Lab) -> None:
    place.worker(slots=2)

    def twenty(client: Client) -> float:
        began = time.monotonic()
        results = client.results(client.submit([b"%d" % item for item in range(20)], runtime=0.1))
        assert [result.outcome for result in results] == [wire.Outcome.DONE] * 20
        return time.monotonic() - began

    alone = twenty(place.client(place.key("submitter", "before")))
    raw, template = place.submitter(), python_template(b"no pickle")
    digest = hashlib.sha256(template).hexdigest()
    raw.send(wire.Blob(digest, template))
    failing = tuple(b"%d" % item for item in range(250))
    raw.send(
        wire.Submit(
            1, "evil", "", digest, 0, failing, 60.0, (), wire.TaskOptions(retries=wire.RETRIES_LIMIT), True, 0, 0
        )
    )
    raw.expect(wire.Accepted)
    took = twenty(place.client())
    said = f"20 others took {took:.1f} s, and {alone:.1f} s without"
    COUNTS.append(f"hostile: beside 250 tasks that fail at once, again and again, {said}")
    assert took < SLACK * OTHERS * alone


def test_a_thousand_questions_of_one_are_not_before_one_of_another(place: Lab) -> None:
    line = place.key("submitter", "mallory")
    raws = [place.greeted(line) for _ in range(4)]
    opened(raws[0], BAGS, cancelled=False)
    with place.pinging() as pings:
        asked(raws, "bags", QUESTIONS)
    unharmed(place, pings, f"{QUESTIONS:,} questions of another about {BAGS} bags")


@pytest.mark.timeout(600)
def test_thousands_of_bags_opened_and_cancelled_and_then_hundreds_of_status_questions_hold_up_nobody(
    place: Lab,
) -> None:
    line = place.key("submitter", "mallory")
    raws = [place.greeted(line) for _ in range(4)]
    with place.pinging() as pings:
        opened(raws[0], MANY_BAGS, cancelled=True)
        asked(raws, "status", STATUSES)
        body = place.client().ask("status")
    unharmed(place, pings, f"{MANY_BAGS:,} bags opened and cancelled, {STATUSES} status questions")
    assert len(str(body)) < 2**20
    assert place.grown() < GROWTH


@pytest.mark.parametrize("size", [800, 64 * 1024])
def test_submissions_as_long_as_a_message_may_be_hold_up_nobody(place: Lab, size: int) -> None:
    raw = place.submitter()
    raw.send(wire.Blob(TEMPLATE, COMMAND))
    payloads = (b"x" * size,) * (wire.SAID_BYTES // (size + 4) - 1)
    with place.pinging() as pings:
        for number in range(LONG_ONES):
            raw.send(
                wire.Submit(
                    number, f"evil-{number}", "", TEMPLATE, 0, payloads, 60.0, (), wire.TaskOptions(), True, 0, 0
                )
            )
            if number % 4 == 3:
                raw.await_turn(10**6 + number)
    unharmed(place, pings, f"{LONG_ONES} submissions of 3 MiB, in arguments of {size:,} bytes")


def test_pcs_that_fail_everything_as_fast_as_they_can_hold_up_nobody(place: Lab) -> None:
    raw = place.submitter()
    raw.send(wire.Blob(TEMPLATE, COMMAND))
    options = wire.TaskOptions(retries=wire.RETRIES_LIMIT)
    raw.send(wire.Submit(1, "evil", "", TEMPLATE, 0, (b"",) * wire.BATCH_ROWS, 1e-6, (), options, True, 0, 0))
    pcs = [place.bare_worker(f"pc{number}") for number in range(4)]
    for pc in pcs:
        pc.join(slots=1024)
    failed, payload = 0, account("E", "e", "", b"")
    with place.pinging() as pings:
        until = time.monotonic() + FAILING_S
        while time.monotonic() < until:
            for pc in pcs:
                while (data := pc.line.receive(0.002)) is not None:
                    message = wire.decode(data)
                    work = message.work if isinstance(message, wire.Assign) else ()
                    rows = [wire.Result(w.task, w.number, wire.Outcome.ERROR, 0.0, payload, b"", b"") for w in work]
                    failed += len(rows)
                    pc.send(wire.Finished(tuple(rows)))
    # All four attackers are in this process, which takes a core of its own.
    unharmed(place, pings, f"{failed:,} attempts that 4 PCs let fail at once", slack=max(SLACK, 2.0))
