"""Scenarios of gangs of one's own: what may stand in the file, and what is said of everything else."""

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured
from deskgrid.sleepbench.gangs.file import SLOTS_MOST, read_gangs
from deskgrid.sleepbench.gangs.scenario import GangScenario, RunningGang, SiteOfPCs, WaitingGang
from deskgrid.sleepbench.scenarios import ScenarioError

SITE = '[[site]]\nname = "A"\nslots = 9\n'  # lines 1 to 3
GANG = "[[gang]]\nslots = 2\nruntime = 3\n"


def read(folder: Path, text: str) -> GangScenario:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_gangs(path)


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '[[site]]\nname = "A"\nslots = 9\nspeed = 2.0\nload = 0.1\nuptimes = [84, inf]\nrestart = 1.5\n'
        '[[running]]\nsite = "A"\nslots = 4\nends = 5.0\nreally = 1.0\n'
        '[[gang]]\nname = "x"\nat = -2\nslots = [2, 16]\nruntime = 10\nreally = 8\nspeedup = {amdahl = 0.05}\n',
    )
    assert found == GangScenario(
        "mine",
        (SiteOfPCs("A", 9, 2.0, 0.1, (84.0, math.inf), 1.5),),
        (RunningGang("A", 4, 5.0, 1.0),),
        (WaitingGang("x", -2.0, Need(2, 16, speedup=Amdahl(0.05), gang=True), 10.0, 8.0),),
    )


def test_little_has_to_be_said(tmp_path: Path) -> None:
    found = read(tmp_path, SITE + GANG + GANG)
    assert found.sites == (SiteOfPCs("A", 9),)
    need = Need(2, 2, gang=True)
    assert found.gangs == (WaitingGang("1", 0.0, need, 3.0, 3.0), WaitingGang("2", 0.0, need, 3.0, 3.0))


@pytest.mark.parametrize(
    ("said", "speedup"),
    [
        ("{amdahl = 0}", Amdahl(0.0)),
        ("{downey = [12, 0.5]}", Downey(12.0, 0.5)),
        ("{1 = 1, 4 = 3.4, 2 = 1.9}", Measured(((1, 1.0), (2, 1.9), (4, 3.4)))),
    ],
)
def test_a_moldable_gang_has_a_speedup(tmp_path: Path, said: str, speedup: object) -> None:
    found = read(tmp_path, f"{SITE}[[gang]]\nslots = [1, 4]\nruntime = 3\nspeedup = {said}\n")
    assert found.gangs[0].need.speedup == speedup


BEYOND = SLOTS_MOST + 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[site]", r"mine\.toml: .*line 1"),
        (GANG, r"there is no \[\[site\]\]|no site has more than 0 \(at line 2\)"),
        (SITE, r"there is no \[\[gang\]\]"),
        (f"{SITE}[[gangs]]\n", r"there is no 'gangs'; there are: site, running, gang \(at line 4\)"),
        ("site = 3\n", r"each site begins with \[\[site\]\] \(at line 1\)"),
        ("gang = [3]\n", r"each gang begins with \[\[gang\]\] \(at line 1\)"),
        (f"{SITE}colour = 3\n{GANG}", r"site 1: there is no 'colour'; .* \(at line 4\)"),
        (f"{SITE}{SITE}{GANG}", r"site 2: name: there is another site 'A' \(at line 5\)"),
        ('[[site]]\nname = ""\nslots = 9\n', r"site 1: name: some text, not '' \(at line 2\)"),
        ("[[site]]\nslots = 9\n", r"site 1: name is missing \(at line 1\)"),
        ('[[site]]\nname = "A"\n', r"site 1: slots is missing \(at line 1\)"),
        ('[[site]]\nname = "A"\nslots = 0\n', r"site 1: slots: a whole number from 1 to 100,000, not 0 \(at line 3\)"),
        (f'[[site]]\nname = "A"\nslots = {BEYOND}\n', r"site 1: slots: a whole number .* \(at line 3\)"),
        (f"{SITE}speed = 0\n{GANG}", r"speed: a number above 0, not 0 \(at line 4\)"),
        (f"{SITE}speed = true\n{GANG}", r"speed: a number above 0, not True \(at line 4\)"),
        (f"{SITE}load = 1\n{GANG}", r"load: a number from 0 up, and below 1, not 1 \(at line 4\)"),
        (f"{SITE}uptimes = []\n{GANG}", r"uptimes: a list of seconds, with one at least \(at line 4\)"),
        (f"{SITE}uptimes = [{'3, ' * 10}]\n{GANG}", r"uptimes: 10 of them, for 9 PCs of one slot each \(at line 4\)"),
        (f"{SITE}restart = -1\n{GANG}", r"restart: a number from 0 up, not -1 \(at line 4\)"),
        (f'{SITE}[[running]]\nsite = "B"\nslots = 1\nends = 3\n', r"there is no site 'B'; there are: A \(at line 5\)"),
        (f"{SITE}[[running]]\nslots = 1\nends = 3\n", r"running 1: site is missing \(at line 4\)"),
        (
            f'{SITE}[[running]]\nsite = "A"\nslots = 10\nends = 3\n',
            r"running 1: slots: site A has 9: 10 do not fit \(at line 6\)",
        ),
        (
            f'{SITE}[[running]]\nsite = "A"\nslots = 5\nends = 3\n[[running]]\nsite = "A"\nslots = 5\nends = 3\n',
            r"running 2: slots: site A has 9, and 5 of them are taken: 5 do not fit \(at line 10\)",
        ),
        (f'{SITE}[[running]]\nsite = "A"\nslots = 5\nends = 0\n', r"ends: a number above 0, not 0 \(at line 7\)"),
        (
            f"{SITE}[[gang]]\nslots = [16, 2]\nruntime = 3\n",
            r"slots: the least comes first, not \[16, 2\] \(at line 5\)",
        ),
        (f"{SITE}[[gang]]\nslots = [1, 2, 3]\nruntime = 3\n", r"a whole number, or two of them, .* \(at line 5\)"),
        (f"{SITE}[[gang]]\nslots = [1, 4]\nruntime = 3\n", r"slots: a range needs a speedup, .* \(at line 5\)"),
        (f"{SITE}[[gang]]\nslots = 10\nruntime = 3\n", r"it needs 10, and no site has more than 9 \(at line 5\)"),
        (f"{SITE}[[gang]]\nruntime = 3\n", r"gang 1: slots is missing \(at line 4\)"),
        (f"{SITE}[[gang]]\nslots = 3\n", r"gang 1: runtime is missing \(at line 4\)"),
        (f"{SITE}[[gang]]\nslots = 3\nruntime = nan\n", r"runtime: a number above 0, not nan \(at line 6\)"),
        (f"{SITE}{GANG}at = inf\n", r"at: a number of seconds, not inf \(at line 7\)"),
        (f'{SITE}{GANG}[[gang]]\nname = "1"\nslots = 1\nruntime = 1\n', r"there is another gang '1' \(at line 8\)"),
        (f"{SITE}{GANG}speedup = {{amdahl = 2}}\n", r"speedup: the serial fraction .* \(at line 7\)"),
        (f"{SITE}{GANG}speedup = {{downey = 2}}\n", r"speedup: the average parallelism and sigma, .* \(at line 7\)"),
        (f"{SITE}{GANG}speedup = {{fast = 2}}\n", r"speedup: one of amdahl, downey, or a table .* \(at line 7\)"),
        (f"{SITE}{GANG}speedup = {{}}\n", r"speedup: one of amdahl, downey, or a table .* \(at line 7\)"),
        (f"{SITE}{GANG}speedup = {{1 = 2}}\n", r"speedup: the speed-up of one rank is 1, not 2\.0 \(at line 7\)"),
        (f"gang = [{{slots = 0, runtime = 1}}]\n{SITE}", r"gang 1: slots: .* not 0 \(at line 1\)"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint) as told:
        read(tmp_path, text)
    assert "\n" not in str(told.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none\.toml cannot be read"):
        read_gangs(tmp_path / "none.toml")


VALUES = st.sampled_from(["3", "-1", "inf", "nan", "true", '"A"', '"B"', "[2, 4]", "[4, 2]", "{amdahl = 0.1}", "{}"])
LINES = st.builds(
    "{} = {}".format,
    st.sampled_from(
        ["name", "slots", "speed", "load", "uptimes", "site", "ends", "really", "at", "runtime", "speedup"]
    ),
    VALUES,
)
PARTS = st.builds(
    lambda kind, lines: "\n".join([f"[[{kind}]]", *lines]),
    st.sampled_from(["site", "running", "gang"]),
    st.lists(LINES, max_size=5, unique_by=lambda line: line.split(" ")[0]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.lists(PARTS, max_size=4).map("\n".join) | st.text(max_size=60))
def test_whatever_the_file_contains_it_is_a_scenario_or_one_line(tmp_path: Path, text: str) -> None:
    complaint = ""
    try:
        read(tmp_path, text)
    except ScenarioError as error:
        complaint = str(error)
    assert "\n" not in complaint
