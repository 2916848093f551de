"""A hostile worker or submitter with a valid key: the others are served as they would be without it."""

from pathlib import Path

import pytest

from tests.counting import COUNTS
from tests.grid.hostile import Hostile, HostileSubmitter, HostileWorker
from tests.grid.raid import raid, raid_after_restart

pytestmark = pytest.mark.slow

SEEDS = 2
KINDS: list[list[type[Hostile]]] = [[HostileWorker], [HostileSubmitter], [HostileWorker, HostileSubmitter]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: " and ".join(kind.__name__ for kind in kinds))
def test_whoever_means_harm_harms_nobody_else(tmp_path: Path, kinds: list[type[Hostile]]) -> None:
    said = sum(raid(seed, tmp_path / str(seed), kinds) for seed in range(SEEDS))
    who = " and ".join(kind.__name__ for kind in kinds)
    COUNTS.append(f"hostile peers: {who}: {SEEDS} seeds, {said:,} messages, no harm")


def test_what_ran_when_the_broker_was_killed_is_taken_over_by_nobody_else(tmp_path: Path) -> None:
    said = sum(raid_after_restart(seed, tmp_path / str(seed)) for seed in range(SEEDS))
    COUNTS.append(f"hostile workers after a restart: {SEEDS} seeds, {said:,} messages, nothing taken over")
