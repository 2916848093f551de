"""A whole benchmark in the smallest size, of deskgrid and of the standard library's process pool."""

import select
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import remote
from benchmarks.catalogue import WORKLOADS, workload
from benchmarks.report import report
from benchmarks.runner import Plan, measure, metrics_of
from benchmarks.statistics import cell, failures, values
from benchmarks.workloads.burst import WORKLOAD

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")


@pytest.mark.slow
@pytest.mark.timeout(120)  # a dozen processes are started, one after the other
def test_every_environment_runs_every_workload_in_turns() -> None:
    told: list[str] = []
    first, result = measure(Plan(("deskgrid", "futures"), ("burst", "latency"), 2, "tiny"), told.append)
    assert (first["runs"], result["runs"]) == (1, 2)
    assert [line.rpartition(" ")[2] for line in told] == ["deskgrid", "futures", "futures", "deskgrid"]
    assert [row["failure"] for row in failures(result)] == []
    for key in ("deskgrid", "futures"):
        assert values(result, key, "burst", "bag_tasks") == {1: 200.0, 2: 200.0}
        assert set(values(result, key, "start", "start_s")) == {1, 2}
        assert min(values(result, key, "latency", "median_ms").values()) > 0.0
    assert "ProcessPoolExecutor" in shown(result)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_concerns_deskgrid_only_is_measured_once_for_each_run() -> None:
    own = tuple(name for name in WORKLOADS if not workload(name).workers)
    (result,) = measure(Plan(("deskgrid", "futures"), own, 1, "tiny"), lambda line: None)
    assert [row["failure"] for row in failures(result)] == []
    assert [(row["environment"], row["workload"]) for row in result["rows"]] == [("deskgrid", name) for name in own]
    assert min(values(result, "deskgrid", "idle", "beats_per_s").values()) > 0.0
    assert all(set(row["figures"]) == {metric.name for metric in metrics_of(row["workload"])} for row in result["rows"])


def test_a_peer_that_is_not_installed_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PEERS", tmp_path)
    (result,) = measure(Plan(("dask", "futures"), ("latency",), 1, "tiny"), lambda line: None)
    assert list(result["environments"]) == ["futures"]
    assert "missing: dask: make bench-peers has not made dask" in shown(result)


def test_a_workload_that_fails_is_a_row_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    answered = select.select

    def hears_nothing_at_once(read: Any, write: Any, failed: Any, seconds: float) -> Any:
        return ([], [], []) if seconds == 0.0 else answered(read, write, failed, seconds)

    monkeypatch.setattr(remote, "PATIENCE_S", 0.0)
    monkeypatch.setattr(select, "select", hears_nothing_at_once)  # on a busy machine the answer may be there by then
    (result,) = measure(Plan(("futures",), ("latency",), 1, "tiny"), said.append)
    (row,) = failures(result)
    assert row["failure"] == "no answer within 0 s"
    assert "failed: latency on futures, run 1: no answer" in shown(result)


def test_a_ratio_is_made_within_each_run_and_more_than_one_is_in_our_favour() -> None:
    rate, least = WORKLOAD.metrics[0], WORKLOAD.metrics[2]
    figures = [("deskgrid", 1, 10.0), ("deskgrid", 2, 30.0), ("peer", 1, 5.0), ("peer", 2, 5.0), ("deskgrid", 3, 90.0)]
    rows = [
        {"environment": key, "workload": "burst", "run": run, "figures": {rate.name: value}, "failure": ""}
        for key, run, value in figures
    ]
    found = cell({"rows": rows}, "peer", "burst", rate)
    assert found is not None
    assert (found.median, found.ratio) == (5.0, 4.0)
    assert cell({"rows": rows}, "peer", "burst", least) is None


def shown(result: dict[str, object]) -> str:
    """The report as a wide terminal shows it."""
    out = StringIO()
    Console(file=out, width=200).print(report(result))
    return out.getvalue()
