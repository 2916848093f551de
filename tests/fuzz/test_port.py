"""A real port under fire; `tests.fuzz.port` sends as much as one likes."""

from pathlib import Path

import pytest

from tests.counting import COUNTS
from tests.fuzz.port import attack


@pytest.mark.timeout(300)
def test_garbage_on_a_real_port_stops_nobody_and_stays_in_no_memory(tmp_path: Path) -> None:
    COUNTS.append(f"port: {attack(tmp_path, count=15_000, seed=1)}")
