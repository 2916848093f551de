"""Hostile messages of every role, some thousand of each; `tests.hostile.siege` can send any number."""

from pathlib import Path

import pytest

from tests.counting import COUNTS
from tests.hostile.limits import GROWTH, P99, SLACK, WORST
from tests.hostile.siege import ROLES, siege

COUNT, PER_S = 2_500, 1_000.0


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_whoever_sends_hostile_messages_kills_nobody_and_holds_up_nobody(tmp_path: Path) -> None:
    quiet, attacks = siege(tmp_path, COUNT, 1, PER_S)
    COUNTS.append(f"hostile: before any attack: {quiet}")
    COUNTS.extend(f"hostile: {attack}" for attack in attacks)
    assert len(attacks) == len(ROLES)
    for attack in attacks:
        assert attack.messages >= COUNT, f"its time was over: {attack}"
        assert attack.grown <= GROWTH, str(attack)
        assert attack.latency.p99 <= SLACK * P99 * attack.latency.beat, str(attack)
        assert attack.latency.worst <= SLACK * WORST * attack.latency.beat, str(attack)
