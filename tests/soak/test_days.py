"""Some virtual days of a small lab; `tests.soak.days` lets as many pass as one likes, for a thousand PCs."""

from pathlib import Path

import pytest

from tests.counting import COUNTS
from tests.grid.witness import Broken
from tests.soak.days import soaked

pytestmark = pytest.mark.slow

WORKERS = 12
DAYS = 9
# Of a few PCs and days: chance makes one week have more work than another. What is never forgotten doubles at once.
FLAT = 0.3


@pytest.mark.timeout(300)
def test_days_of_a_lab_leave_nothing_behind_and_every_task_ends_once(tmp_path: Path) -> None:
    said = soaked(tmp_path, workers=WORKERS, seed=1, more=lambda days: days < DAYS, keep_days=1.0, flat=FLAT)
    assert "432 tasks, each ended once" in said
    COUNTS.append(f"soak: {said}")


@pytest.mark.timeout(300)
def test_a_broker_that_forgets_nothing_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="grew by"):  # its rows, or what it remembers of them
        soaked(tmp_path, workers=2, seed=1, more=lambda days: days < DAYS, keep_days=None, flat=FLAT)
