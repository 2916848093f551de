"""`live --gangs` and `compare --gangs`: what they run, say, write and exit with; live runs are only pretended."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.policies import policy_names
from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.gangs import live
from deskgrid.sleepbench.gangs.compare import LIVE_S, GangSetting, fitting_scale, turnaround
from deskgrid.sleepbench.gangs.live import GangCosts, LiveGangs, Ran, asked, checked, measured
from deskgrid.sleepbench.gangs.scenario import (
    GANGS,
    RANKS_MOST,
    SITES,
    GangScenario,
    SiteOfPCs,
    WaitingGang,
    default_scenario,
)
from deskgrid.sleepbench.gangs.simulated import simulate_gangs
from deskgrid.sleepbench.processes import ProcessError
from deskgrid.sleepbench.scenarios import ScenarioError
from deskgrid.sleepbench.simulated import policy_of

EXAMPLE = Path(__file__).with_name("tla.toml")
COSTS = GangCosts(0.1, 0.05, 0.004)

Runs = list[tuple[str, float, str, int]]


def invoke(*arguments: object) -> Result:
    """The command, on its own."""
    return CliRunner().invoke(sleepbench_group, [*map(str, arguments)], env={"COLUMNS": "160"})


def pretend(monkeypatch: pytest.MonkeyPatch, factor: float = 1.0) -> Runs:
    """Live runs do what is simulated with `COSTS`, and take ``factor`` times as long; returns the list of them."""
    made: Runs = []

    def run(scenario: GangScenario, scale: float, policy: str, seed: int, progress: Callable[[int], None]) -> LiveGangs:
        made.append((scenario.name, scale, policy, seed))
        progress(len(scenario.gangs))
        rows = GangSetting(scenario, scale, policy, {}).simulated(seed, COSTS)
        return LiveGangs([replace(row, turnaround_s=factor * row.turnaround_s) for row in rows], COSTS)

    monkeypatch.setattr(live, "run_gangs", run)
    return made


# --- the scenario ----------------------------------------------------------------------------------------------------


def test_the_scenario_is_two_sites_of_eight_slots_and_forty_gangs_that_wait_for_each_other() -> None:
    scenario = default_scenario()
    assert [site.slots for site in scenario.sites] == [8, 8]
    assert len(scenario.gangs) == GANGS == 40
    assert {gang.need.least for gang in scenario.gangs} == set(range(1, RANKS_MOST + 1))
    assert all(gang.need.parallel and gang.need.least == gang.need.most for gang in scenario.gangs)
    means = [turnaround(list(simulate_gangs(scenario, name, policy_of(name, {}, 0)))) for name in ("easy", "ff")]
    assert means[0] < 0.9 * means[1]
    assert default_scenario() == scenario


@pytest.mark.parametrize("policy", ["easy", "ff"])
def test_it_is_scaled_to_half_a_minute(policy: str) -> None:
    scenario = default_scenario()
    scaled = scenario.scaled(fitting_scale(scenario, policy))
    ends = max(row.end_s for row in simulate_gangs(scaled, policy, policy_of(policy, {}, 0)))
    assert ends == pytest.approx(LIVE_S, rel=0.01)


def test_a_short_scenario_is_not_made_longer() -> None:
    gangs = (WaitingGang("1", 0.0, Need(2, 2, gang=True), 3.0, 3.0),)
    assert fitting_scale(GangScenario("short", SITES, (), gangs), "easy") == 1.0


def test_what_others_use_cannot_be_run_live() -> None:
    with pytest.raises(ScenarioError, match="a load of others can be simulated, but not run live"):
        checked(GangScenario("mine", (SiteOfPCs("A", 2, load=0.1),), (), default_scenario().gangs))


def test_a_moldable_gang_sleeps_less_on_more_ranks() -> None:
    assert asked(WaitingGang("1", 0.0, Need(2, 4, speedup=Amdahl(0.0), gang=True), 9.0, 12.0)) == [12.0, 6.0, 4.0, 3.0]


# --- what it costs ---------------------------------------------------------------------------------------------------


def ran(at: float, began: float, ended: float, slept: float, *, pcs: tuple[str, ...] = ("A1",)) -> Ran:
    return Ran(WaitingGang("x", at, Need(1, 1, gang=True), slept, slept), pcs, began, ended, slept)


WHERE = {"A1": "A", "A2": "A", "A3": "A", "B1": "B"}


def test_costs_count_from_the_last_moment_at_which_a_gang_could_have_started() -> None:
    # At its arrival, at the end of the first, and at the end of the second; what ends elsewhere does not matter.
    first = [ran(0.0, 0.1, 1.15, 1.0), ran(0.5, 1.2, 2.21, 1.0), ran(0.6, 2.25, 3.5, 1.0)]
    found = measured([*first, ran(0.0, 0.05, 2.24, 2.14, pcs=("B1",))], WHERE)
    assert (found.start_s, found.rank_s, found.oversleep_s) == pytest.approx((0.05, 0.0, 0.05))


def test_more_ranks_may_take_longer_to_begin_and_one_outlier_does_not_matter() -> None:
    numbers = [(1, 0.15), (2, 0.2), (3, 0.25), (1, 0.15), (2, 0.2), (3, 3.0)]
    arrivals = [100.0 * place for place in range(len(numbers))]
    found = measured(
        [
            ran(at, at + takes, at + takes + 1.0, 1.0, pcs=("A1", "A2", "A3")[:ranks])
            for at, (ranks, takes) in zip(arrivals, numbers, strict=True)
        ],
        WHERE,
    )
    assert (found.start_s, found.rank_s, found.oversleep_s) == pytest.approx((0.1, 0.05, 0.0))
    assert found.start_of(6) == pytest.approx(0.4)


def test_a_gang_that_was_submitted_before_time_0_could_start_then() -> None:
    assert measured([ran(-5.0, 0.1, 1.1, 1.0)], WHERE).start_s == pytest.approx(0.1)


# --- live ------------------------------------------------------------------------------------------------------------


def test_a_live_run_shows_and_writes_where_and_when_each_gang_ran(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, file = pretend(monkeypatch), tmp_path / "rows.json"
    result = invoke("live", "--gangs", "--policy", "easy,ff", "--runs", 2, "--seed", 4, "--json", file)
    assert result.exit_code == 0, result.output
    assert [(policy, seed) for _, _, policy, seed in made] == [("easy", 4), ("easy", 5), ("ff", 4), ("ff", 5)]
    rows = json.loads(file.read_text(encoding="utf-8"))
    assert len(rows) == 4 * GANGS
    assert list(rows[0]) == "policy gang site slots start_s end_s turnaround_s considered run seed".split()
    assert [(row["run"], row["seed"]) for row in rows[::GANGS]] == [(1, 4), (2, 5), (1, 4), (2, 5)]
    assert "turnaround" in result.output
    assert "mean" in result.output


def test_a_scenario_of_ones_own_runs_at_the_scale_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = pretend(monkeypatch)
    for scale in ((), ("--scale", 0.5)):
        assert invoke("live", "--gangs", "--scenario-file", EXAMPLE, *scale).exit_code == 0
    assert made == [("tla", 1.0, "packing", 0), ("tla", 0.5, "packing", 0)]


@pytest.mark.parametrize("command", ["live", "compare"])
def test_what_cannot_be_run_is_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    made, file = pretend(monkeypatch), tmp_path / "mine.toml"
    for text, complaint in (
        ("[[site]]\nname = 'A'\nslots = 2\nload = 0.1\n[[gang]]\nslots = 1\nruntime = 1\n", "not run live"),
        ("[[site]]\nname = 'A'\nslots = 201\n[[gang]]\nslots = 1\nruntime = 1\n", "at most 200 are run live"),
        ("[[site]]\nname = 'A'\nslots = 0\n", "(at line 3)"),
        ("[[site]]\nname='A'\nslots=2\nuptimes=[5]\n[[gang]]\nslots = 2\nruntime = 6\n", "would never end"),
    ):
        file.write_text(text, encoding="utf-8")
        result = invoke(command, "--gangs", "--policy", "easy", "--scenario-file", file)
        assert (result.exit_code, complaint in " ".join(result.output.split())) == (2, True), result.output
    assert invoke(command, "--gangs", "--scenario", 1).exit_code == 2
    assert "goes with --gangs only" in invoke(command, "--scenario-file", EXAMPLE).output
    assert made == []


def test_rows_of_runs_that_were_made_are_kept_when_a_later_one_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, file = pretend(monkeypatch), tmp_path / "rows.json"
    good = live.run_gangs

    def fails_second(*arguments: object) -> LiveGangs:
        if made:
            raise ProcessError("broker ended with code 1: it said nothing")
        return good(*arguments)  # type: ignore[arg-type] # passed on as they came

    monkeypatch.setattr(live, "run_gangs", fails_second)
    result = invoke("live", "--gangs", "--runs", 2, "--json", file)
    assert (result.exit_code, "broker ended with code 1" in result.output) == (1, True)
    assert len(json.loads(file.read_text(encoding="utf-8"))) == GANGS


# --- compared --------------------------------------------------------------------------------------------------------


def test_turnarounds_that_are_simulated_with_what_was_measured_agree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, file = pretend(monkeypatch, 1.02), tmp_path / "compared.json"
    result = invoke("compare", "--gangs", "--policy", "easy,ff", "--runs", 2, "--check", "--json", file)
    assert result.exit_code == 0, result.output
    assert len(made) == 4
    for written in json.loads(file.read_text(encoding="utf-8")):
        assert written["off"] == pytest.approx(0.02)
        assert written["agrees"] is True
        assert written["ideal_s"] < written["simulated_s"]
        assert len(written["live"]) == len(written["simulated"]) == len(written["costs"]) == 2
    assert all(text in result.output for text in ("easy", "ff", "+2.0%", "yes", "150.0", "400.0", "4.0"))


@pytest.mark.slow
@pytest.mark.parametrize("words", [("live", "--policy", "all", "--gangs"), ("compare", "--gangs", "--policy", "all")])
def test_all_policies_are_all_that_place_gangs(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    made = pretend(monkeypatch)
    result = invoke(*words, "--runs", 1)
    assert result.exit_code == 0, result.output
    assert [policy for _, _, policy, _ in made] == policy_names()


@pytest.mark.parametrize(("check", "code"), [((), 0), (("--check",), 1)])
def test_turnarounds_that_do_not_agree_are_an_error_only_when_that_is_asked(
    monkeypatch: pytest.MonkeyPatch, check: tuple[str, ...], code: int
) -> None:
    pretend(monkeypatch, 0.96)
    result = invoke("compare", "--gangs", "--policy", "ff", *check)
    assert (result.exit_code, "-4.0%" in result.output, "no" in result.output) == (code, True, True)
