"""Some seconds of a real grid; `tests.soak.processes` goes on as long as one likes."""

import sys
from pathlib import Path

import pytest

from tests.counting import COUNTS
from tests.soak.processes import soaked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc"),
]
# A few seconds are all warm-up: what is tried here is that it runs.
FLAT = 0.3


@pytest.mark.timeout(300)
def test_bag_after_bag_on_workers_that_come_and_go_is_right_and_forgotten(tmp_path: Path) -> None:
    COUNTS.append(f"soak: {soaked(tmp_path, seconds=5.0, keep_s=2.0, flat=FLAT)}")
