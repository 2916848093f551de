"""What a worker announces about itself: names, texts and windows are limited, and do not affect others."""

import hashlib

import pytest

from deskgrid import wire
from tests.hostile.forging import packed
from tests.hostile.lab import Lab, Raw
from tests.hostile.limits import GROWTH, LARGE, size_of, unharmed
from tests.peers import COMMAND

# Seconds of large messages, which would find little more on a second Python.
pytestmark = pytest.mark.slow

TEMPLATE_DIGEST = hashlib.sha256(COMMAND).hexdigest()
LONG = 60 * 2**20
# Of the 40 workers of a long plan here a few: what is kept of one would be too much of eight already.
PLANS, SITES = (40, 12) if LARGE else (6, 3)
WINDOWS = 2_000_000
# What a journal may grow by for what a few workers say.
JOURNAL = 16 * 2**20
# And a log.
LOG = 50_000
AFTER_S = 0.5


def joining(place: Lab, count: int) -> list[Raw]:
    line = place.key("worker", "evil")
    return [place.raw(line) for _ in range(count)]


def say_join(raw: Raw, **changes: object) -> None:
    """A Join with any values, as it travels; far windows, so that it is remembered."""
    join = Lab.introduction("evil", uptime=0.0)
    fields = {name: getattr(join, name) for name in join.__slots__} | {"windows": [[5.0], [1e9]], "running": []}
    raw.say(wire.Join, *(fields | changes).values())


def shown(place: Lab) -> None:
    """Both lists of the command line can be read."""
    for arguments in (("bags",), ("status", "--once"), ("status", "--json")):
        done = place.command(*arguments)
        assert done.returncode == 0, (arguments, done.stderr[-500:])
        assert b"Traceback" not in done.stderr
        assert len(done.stdout) < 2**20, f"{arguments} prints {len(done.stdout)} bytes"


def test_a_bag_name_of_30_mib_does_not_keep_anybody_from_seeing_the_others(place: Lab) -> None:
    client, raw = place.client(), place.submitter()
    client.submit([b"1"])
    raw.send(wire.Blob(TEMPLATE_DIGEST, COMMAND))
    rest: tuple[object, ...] = (TEMPLATE_DIGEST, 0, [b""], 1.0, [], wire.TaskOptions().packed(), True, 0, 0)
    raw.say(wire.Submit, 1, "evil", "n" * (LONG // 2), *rest)
    raw.answers(AFTER_S)
    shown(place)
    assert place.grown() <= GROWTH


def test_a_worker_name_of_5_000_digits_does_not_keep_anybody_from_seeing_the_status(place: Lab) -> None:
    (raw,) = joining(place, 1)
    say_join(raw, name="9" * 5000)
    raw.answers(AFTER_S)
    shown(place)


@pytest.mark.alone
def test_workers_with_60_mib_of_plan_are_not_remembered_by_the_broker(place: Lab) -> None:
    with place.pinging() as pings:
        for number, raw in enumerate(joining(place, PLANS)):
            say_join(raw, name=f"evil{number}", plan="p" * LONG)
            raw.answers(AFTER_S)
        shown(place)
    unharmed(place, pings, f"{PLANS} workers with {LONG >> 20} MiB of plan")


def test_workers_with_long_sites_do_not_fill_the_disk(place: Lab) -> None:
    before = size_of(place.home)
    for number, raw in enumerate(joining(place, SITES)):
        say_join(raw, name=f"evil{number}", site="s" * LONG, uptime=100.0)
        raw.answers(AFTER_S)
        raw.say(wire.Leave, "", True, False, [[5.0], [1e9]], [])
        raw.answers(AFTER_S)
    assert size_of(place.home) - before < JOURNAL


def test_no_text_of_a_worker_makes_the_log_long(place: Lab) -> None:
    texts = ("name", "session", "host", "site", "kind", "plan", "python", "version")
    for raw, field in zip(joining(place, len(texts)), texts, strict=True):
        say_join(raw, **{field: "x" * (LONG // 60)})
        raw.answers(AFTER_S / 5)
    assert len(place.said) < LOG


@pytest.mark.alone
def test_a_worker_with_two_million_windows_is_refused_at_no_cost(place: Lab) -> None:
    (raw,) = joining(place, 1)
    windows = [[float(number) for number in range(WINDOWS)], [0.5]]
    with place.pinging() as pings:
        say_join(raw, windows=windows)
        raw.answers(4 * AFTER_S)
        place.client().ask("status")
    unharmed(place, pings, f"a worker of {WINDOWS:,} windows, then a question")


@pytest.mark.parametrize("mib", [7, 60])  # which is refused; which no message of a peer may have
def test_mebibytes_of_claimed_output_do_not_keep_its_owner_from_reading_the_log(place: Lab, mib: int) -> None:
    client = place.client()
    bag = client.submit([b""], runtime=0.01)
    worker = place.bare_worker("evil")
    worker.join()
    (work,) = worker.work()
    row = [[work.task], [work.number], [0], [0.001], [b""], [bytes(mib * 2**20)], [b""], [False]]
    worker.line.send(packed([wire.MESSAGES.index(wire.Finished), row]))
    if mib * 2**20 < wire.SAID_BYTES:
        worker.expect(wire.Refused)
    place.worker()
    client.results(bag)
    done = place.command("logs", bag, "0")
    assert done.returncode == 0, done.stderr[-500:]
    assert len(done.stdout) < 2**20


def test_a_few_thousand_joins_of_one_worker_leave_one(place: Lab) -> None:
    (raw,) = joining(place, 1)
    for number in range(2_000):
        say_join(raw, name=f"evil{number}", session=f"s{number}", opening=number)
        if number % 50 == 0:
            raw.answers(0.02)
    raw.answers(AFTER_S)
    workers = place.client().ask("status")["workers"]
    assert len(workers) <= 1
    assert place.grown() <= GROWTH
