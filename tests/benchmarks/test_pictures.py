"""The output of a result: a picture, and Markdown tables."""

from pathlib import Path
from typing import Any

from benchmarks import scale
from benchmarks.markdown import markdown
from benchmarks.picture import draw

MACHINE = {
    "processor": "an abacus",
    "cores": 2,
    "memory_gib": 1.0,
    "system": "Linux",
    "python": "3.11.7",
    "load_before": 0.0,
}


def result() -> dict[str, Any]:
    """Two runs of two environments, in which deskgrid is four times as fast; and a pass of the scheduler."""
    systems = {
        key: {"label": f"the {key}", "note": "as it comes", "python": "3.11.7", "versions": {key: "1.0"}}
        for key in ("deskgrid", "dask")
    }
    rows = [
        {"run": run, "environment": key, "workload": "burst", "figures": {"bag_per_s": rate * run}, "failure": ""}
        for run in (1, 2)
        for key, rate in (("deskgrid", 4000.0), ("dask", 1000.0))
    ]
    rows.append({"run": 1, "environment": "deskgrid", "workload": "placing", "figures": {"pgs_ms": 4.5}, "failure": ""})
    about = {"machine": MACHINE, "date": "2026-01-31", "took_s": 60, "size": "tiny", "runs": 2}
    return {**about, "environments": systems, "missing": {}, "rows": rows}


def test_a_picture_has_a_panel_for_what_several_environments_have_figures_for(tmp_path: Path) -> None:
    file = tmp_path / "peers.svg"
    draw(result(), file)
    drawn = file.read_text(encoding="utf-8")
    assert all(f"<!-- {text} -->" in drawn for text in ("the deskgrid", "the dask", "burst: one bag or map"))
    assert "placing" not in drawn


def test_the_tables_for_a_page_have_medians_and_ratios() -> None:
    lines = list(markdown(result()))
    assert "| the dask | 1,500 (4 ×) | – |" in lines
    assert "| the deskgrid | 6,000 | – |" in lines
    assert "| placing: pgs: a pass that places a batch, median, ms | 4.5 | 4.5 – 4.5 |" in lines
    assert "- the dask (dask 1.0): as it comes." in lines


def test_the_curves_of_growth_are_medians_of_all_runs(tmp_path: Path) -> None:
    points = [
        {"axis": axis, "what": "broker", "at": at, "us": us}
        for axis in ("tasks", "slots")
        for at, us in ((10, 1.0), (10, 3.0), (100, 5.0))
    ]
    assert scale.medians(points)[("slots", "broker")] == {10: 2.0, 100: 5.0}
    scale.draw({"points": points}, tmp_path / "scale.svg")
    assert "<!-- microseconds a task -->" in (tmp_path / "scale.svg").read_text(encoding="utf-8")
