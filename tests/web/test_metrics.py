"""What Prometheus reads."""

import re

from deskgrid.web import metrics
from tests.screen.builders import bag, lab, snapshot, worker

SAMPLE = re.compile(r'(deskgrid_[a-z_]+)(\{[a-z_]+="(?:[^"\\\n]|\\.)*"(?:,[a-z_]+="(?:[^"\\\n]|\\.)*")*\})? (\S+)')


def samples(text: str) -> dict[str, float]:
    """Each series with its value; what is no line of the format fails."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP deskgrid_[a-z_]+ .+|TYPE deskgrid_[a-z_]+ (gauge|counter))", line)
            continue
        matched = SAMPLE.fullmatch(line)
        assert matched, line
        series = matched[1] + (matched[2] or "")
        assert series not in found
        found[series] = float(matched[3])
    return found


def test_a_grid_is_counted() -> None:
    document = lab(14)
    found = samples(metrics.text((1.0, document), {"within": 9, "late": 1}))
    assert found["deskgrid_up"] == 1
    assert found['deskgrid_workers{state="up"}'] == document["totals"]["workers_up"]
    assert found['deskgrid_tasks{state="running"}'] == 8
    assert found['deskgrid_tasks_finished_total{outcome="done"}'] == 1204
    assert found["deskgrid_planned_kills_total"] == 0
    assert found["deskgrid_oldest_waiting_seconds"] == 300
    assert (
        found['deskgrid_window_seconds_left{which="shortest"}']
        <= found['deskgrid_window_seconds_left{which="longest"}']
    )
    assert found['deskgrid_estimates_total{result="within"}'] == 9
    assert found['deskgrid_estimates_total{result="early"}'] == 0
    assert found['deskgrid_build_info{version="0.1.0",python="3.11",policy="pgs"}'] == 1


def test_an_old_state_is_not_shown_as_the_present() -> None:
    for known in (None, (metrics.STALE_S + 1, lab(3))):
        found = samples(metrics.text(known, {}))
        assert found["deskgrid_up"] == 0
        assert not any("workers" in series for series in found)


def test_no_series_has_the_name_of_a_pc_or_a_bag() -> None:
    few = samples(metrics.text((0.0, snapshot([worker("a", state="away")], [bag("b")])), {}))
    many = samples(metrics.text((0.0, lab(200)), {}))
    assert len([each for each in many if "window" not in each]) == len([each for each in few if "window" not in each])
    assert len(many) < 60


def test_what_a_policy_is_called_cannot_break_the_format() -> None:
    document = snapshot()
    document["broker"]["policy"] = 'a"b\\c\nd'
    assert any(r'policy="a\"b\\c\nd"' in series for series in samples(metrics.text((0.0, document), {})))
