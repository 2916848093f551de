"""The files that processes are given, and what is left when they end."""

import signal
from pathlib import Path

import pytest

from deskgrid.sleepbench.processes import ended_by_signals, write_cycle
from deskgrid.worker.windows.uptime import Instant, read_cycle


def test_a_cycle_file_says_to_a_worker_what_was_meant(tmp_path: Path) -> None:
    start = Instant(0.0, 100.0)
    cycle = read_cycle(write_cycle(tmp_path / "cycle", [(1e-6, 2.5), (1.68, 0.02)]), start)
    assert cycle.uptime(Instant(0.0, 101.0)) == 0.0
    assert cycle.boundary(Instant(0.0, 101.0)) == pytest.approx(1.500001)
    assert cycle.uptime(Instant(0.0, 102.6)) == pytest.approx(1.580001)
    assert [lasts for _, lasts in cycle.coming(Instant(0.0, 101.0))[:3]] == pytest.approx([1.68, 1e-6, 1.68])


def test_a_request_to_end_unwinds_like_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
