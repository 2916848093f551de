"""Gangs on real workers: one small scenario, and that nothing is left behind."""

import pytest

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.speedup import Measured
from deskgrid.sleepbench.gangs.live import run_gangs
from deskgrid.sleepbench.gangs.scenario import GangScenario, RunningGang, SiteOfPCs, WaitingGang

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("places")]


def test_gangs_run_where_and_for_how_long_the_scenario_says() -> None:
    halved = Need(1, 2, speedup=Measured(((1, 1.0), (2, 2.0))), gang=True)
    scenario = GangScenario(
        "small",
        (SiteOfPCs("the fast ones", 2, speed=2.0), SiteOfPCs("B", 2)),
        (RunningGang("the fast ones", 1, ends=100.0, really=100.0),),
        (
            WaitingGang("both", -1.0, Need(2, 2, gang=True), 4.0, 4.0),
            WaitingGang("moldable", 0.5, halved, 6.0, 6.0),
            WaitingGang("one", 0.5, Need(1, 1, gang=True), 2.0, 3.0),
        ),
    )
    told: list[int] = []
    run = run_gangs(scenario, 0.1, "ff", seed=0, progress=told.append)
    rows = {row.gang: row for row in run.rows}
    assert list(rows) == ["both", "moldable", "one"]
    # What runs leaves only one of the fast ones, so both ranks of the first go to B, and so do those of the second.
    assert (rows["both"].site, rows["both"].slots) == ("B", 2)
    assert (rows["moldable"].site, rows["moldable"].slots) == ("B", 2)
    assert rows["moldable"].start_s >= rows["both"].end_s
    assert rows["both"].turnaround_s == pytest.approx(rows["both"].end_s + 1.0)
    assert rows["one"].site == "the fast ones"
    took = {name: row.end_s - row.start_s for name, row in rows.items()}
    assert all(took[name] >= takes for name, takes in (("both", 4.0), ("moldable", 3.0), ("one", 1.5)))
    assert told[-1] == 3
    assert run.costs.oversleep_s >= 0.0
    assert run.costs.start_of(1) > 0.0
