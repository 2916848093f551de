"""A million tasks are cancelled, predicted and forgotten in a real broker while another client is answered."""

from pathlib import Path

import pytest

from tests.live import BrokerProcess
from tests.soak.large import Figures, cancelled, check, every_second, forgotten, predicted

TASKS = 1_000_000
# A machine on which other tests run has its own pauses: half a second of them has been seen. What this is about took
# 7 and 12 seconds, in one piece.
SLACK = 4.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_another_client_is_answered_while_a_million_tasks_are_cancelled_predicted_and_forgotten(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    try:
        found: list[Figures] = [
            cancelled(broker, TASKS),
            forgotten(broker, "cancel-False"),
            cancelled(broker, TASKS, distinct=True),
            every_second(broker, TASKS // 5),
            predicted(broker, TASKS // 5, TASKS // 20),
        ]
    finally:
        broker.stop()
    print(*found, sep="\n")
    assert check(found, SLACK) == []
