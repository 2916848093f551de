"""Failed attempts of tasks that are tried again: the newest ones are kept, in bounded memory."""

from deskgrid.broker.model.failed_attempts import KEPT_BYTES, MOST_BYTES, ROW_BYTES, FailedAttempts
from tests.broker.records import result_row


def test_the_last_failure_of_a_task_is_kept() -> None:
    tries = FailedAttempts()
    tries.add(result_row(1, b"first"))
    tries.add(result_row(1, b"second"))
    last = tries.last(1)
    assert last is not None
    assert last.payload == b"second"
    assert tries.last(2) is None


def test_the_newest_failures_are_kept_and_none_that_is_very_long() -> None:
    tries, large = FailedAttempts(), bytes(MOST_BYTES - 2 * ROW_BYTES)
    for task in range(100):
        tries.add(result_row(task, large))
    kept = [task for task in range(100) if tries.last(task)]
    assert kept == list(range(84, 100))
    assert len(kept) * len(large) <= KEPT_BYTES
    tries.add(result_row(99, bytes(MOST_BYTES)))
    assert tries.last(99) is None
    assert tries.last(98) is not None
