"""``deskgrid whatif`` and ``advise``."""

import json
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from deskgrid.cli.submit import _advise
from deskgrid.client.eta import Eta
from deskgrid.client.whatif import Advice, Change, Longer, Misfits
from deskgrid.worker.windows.uptime import Instant
from tests.cli.fakes import FakeBag, FakeGrid, deskgrid, use
from tests.cli.test_bags import Terminal
from tests.screen.builders import BAG, lab

# A Wednesday, at noon.
WEDNESDAY = datetime(2026, 7, 1, 12).astimezone()
NOON = WEDNESDAY.timestamp()
HOUR = 3600.0


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> FakeGrid:
    found = use(monkeypatch, FakeGrid())
    found.snapshot = cast(dict[str, Any], lab(12))
    monkeypatch.setattr("deskgrid.cli.whatif.instant", lambda: Instant(NOON, 5.0))
    told = found.whatif
    monkeypatch.setattr(found, "whatif", lambda *args, **terms: [at_noon(each) for each in told(*args, **terms)])
    return found


def at_noon(eta: Eta) -> Eta:
    return replace(eta, asked=WEDNESDAY)


def eta(median: float | None, low: float | None, high: float | None, why: str = "") -> Eta:
    return Eta(median, low, high, why=why, asked=WEDNESDAY)


@pytest.mark.parametrize(
    ("arguments", "names", "changes"),
    [
        (["--without", "lab3"], ["without lab3"], [Change(without=("lab3",))]),
        (["--more", "5"], ["with 5 more PCs"], [Change(more={"*": 5})]),
        (["--more", "1=lab2-*"], ["with 1 more PC like lab2-*"], [Change(more={"lab2-*": 1})]),
        (["--split", "2"], ["tasks split in 2"], [Change(split=2)]),
        (["--policy", "pgs"], ["under pgs"], [Change(policy="pgs")]),
        (["--begin", "18:00"], ["begun at 18:00"], [Change(begins_s=6 * HOUR)]),
        (["--begin", "1d"], ["begun at Thu 12:00"], [Change(begins_s=24 * HOUR)]),
        (
            ["--without", "a", "--without", "b"],
            ["without a", "without b", "all of these"],
            [Change(without=("a",)), Change(without=("b",)), Change(without=("a", "b"))],
        ),
        (
            ["--more", "2", "--more", "3=x", "--split", "2", "--begin", "1h", "--policy", "fcfs"],
            [
                "with 2 more PCs",
                "with 3 more PCs like x",
                "tasks split in 2",
                "begun at 13:00",
                "under fcfs",
                "all of these",
            ],
            [
                Change(more={"*": 2}),
                Change(more={"x": 3}),
                Change(split=2),
                Change(begins_s=HOUR),
                Change(policy="fcfs"),
                Change(more={"*": 2, "x": 3}, split=2, begins_s=HOUR, policy="fcfs"),
            ],
        ),
    ],
)
def test_each_change_has_a_row_and_the_last_is_all_of_them(
    grid: FakeGrid, arguments: list[str], names: list[str], changes: list[Change]
) -> None:
    result = deskgrid("whatif", BAG, *arguments)
    assert result.exit_code == 0, result.output
    assert grid.imagined == {"bag": BAG, "changes": changes, "runtime": None, "tasks": None}
    titles, first, *rows = result.stdout.splitlines()
    assert titles.split() == ["ENDS", "EARLIEST", "LATEST", "DIFFERENCE"]
    assert first.split() == ["as", "it", "is", "14:00", "13:00", "unknown"]
    assert [row.partition("  ")[0] for row in rows] == names
    assert rows[0].split()[-8:] == ["15:00", "13:30", "18:00", "1", "h", "00", "min", "later"]


def test_windows_are_told_as_durations(grid: FakeGrid) -> None:
    assert deskgrid("whatif", BAG, "--with", "lab4-*=mon-fri 18:00-08:00; sat 10:00-12:00").exit_code == 0
    (change,) = grid.imagined["changes"]
    (windows,) = change.windows.values()
    assert list(change.windows) == ["lab4-*"]
    assert windows[:4] == [(n * 24 * HOUR + 6 * HOUR, 14 * HOUR) for n in range(3)] + [(70 * HOUR, 2 * HOUR)]
    assert deskgrid("whatif", BAG, "--with", "lab4-*=daily 08:00-13:00").exit_code == 0
    (change,) = grid.imagined["changes"]
    assert change.windows["lab4-*"][:2] == [(0.0, HOUR), (20 * HOUR, 5 * HOUR)]


def test_without_a_change_the_usual_ones_are_compared(grid: FakeGrid) -> None:
    grid.snapshot["broker"]["policy"] = "packing"
    for number, worker in enumerate(grid.snapshot["workers"]):
        worker["site"] = ("lab1", "lab1", "lab2", "")[number % 4]
    rows = deskgrid("whatif", "--runtime", "5min", "--tasks", "10000").stdout.splitlines()[2:]
    assert [row.partition("  ")[0] for row in rows] == [
        "begun at 18:00",
        "with 5 more PCs",
        "without lab1",
        "without lab2",
        "tasks split in 2",
        "under pgs",
    ]
    assert (grid.imagined["bag"], grid.imagined["runtime"], grid.imagined["tasks"]) == (None, 300.0, 10_000)


def test_of_one_site_nobody_asks_what_is_without_it(grid: FakeGrid) -> None:
    for worker in grid.snapshot["workers"]:
        worker["site"] = "lab1"
    grid.snapshot["broker"]["policy"] = "fcfs"
    rows = deskgrid("whatif", BAG).stdout.splitlines()[2:]
    assert [row.partition("  ")[0] for row in rows] == [
        "begun at 18:00",
        "with 5 more PCs",
        "tasks split in 2",
        "under packing",
    ]


def test_answers_as_json(grid: FakeGrid) -> None:
    rows = json.loads(deskgrid("whatif", BAG, "--split", "3", "--json").stdout)
    assert rows[0] == {
        "what": "as it is",
        "median_s": 7200.0,
        "low_s": 3600.0,
        "high_s": None,
        "confidence": 0.9,
        "why": "",
    }
    assert rows[1]["what"] == "tasks split in 3"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a bag, or give --runtime and --tasks"),
        (["--runtime", "5"], "name a bag, or give --runtime and --tasks"),
        (
            [BAG, "--tasks", "5"],
            "--runtime and --tasks describe a bag that you have not submitted yet: name no bag then",
        ),
        ([BAG, "--with", "lab4"], "'lab4' is not PATTERN=WINDOWS, as in 'lab4-*=mon-fri 18:00-08:00'"),
        ([BAG, "--with", "a=tue"], "a=tue: window 'tue'"),
        ([BAG, "--more", "0"], "'0' is not a number of PCs from 1 to 1,000, nor N=PATTERN"),
        ([BAG, "--more", "2="], "'2=' is not a number of PCs from 1 to 1,000, nor N=PATTERN"),
        ([BAG, "--more", "1001=lab4"], "'1001=lab4' is not a number of PCs from 1 to 1,000, nor N=PATTERN"),
        ([BAG, "--more", "600", "--more", "401=lab4"], "these are 1,001 more PCs; one question takes at most 1,000"),
        ([BAG, "--begin", "25:00"], "malformed time '25:00'"),
        ([BAG, "--without", ""], "a pattern of PCs is empty"),
        ([BAG, *["--without", "a"] * 9], "you gave it 9 times; one question takes it at most 8 times"),
        ([BAG, *["--without", "a", "--more", "1"] * 8], "these are 16 changes; one question takes at most 15"),
        ([BAG, "--policy", ""], "the name is empty"),
        (["--runtime", "5", "--tasks", "10000001"], "10000001 is not in the range 1<=x<=10000000"),
    ],
)
def test_a_wrong_command_line_is_refused(grid: FakeGrid, arguments: list[str], said: str) -> None:
    result = deskgrid("whatif", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not grid.imagined


def test_a_change_that_cannot_be_answered_says_why(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    note = "no PC and no site is called lab9"
    monkeypatch.setattr(grid, "whatif", lambda *args, **terms: [eta(60.0, 60.0, 60.0), eta(None, None, None, note)])
    row = deskgrid("whatif", BAG, "--without", "lab9").stdout.splitlines()[2]
    assert row.split("  ")[-1] == note


# --- advice ----------------------------------------------------------------------------------------------------------

NOW = eta(20 * HOUR, 19 * HOUR, 26 * HOUR)


def longer(group: str, hours: int, median: float | None, pcs: int = 10) -> Longer:
    return Longer(group, pcs, WEDNESDAY + timedelta(hours=6.5), hours, eta(median, median, median))


def advised(monkeypatch: pytest.MonkeyPatch, advice: Advice) -> list[str]:
    use(monkeypatch, FakeGrid(FakeBag(advice=advice)))
    return deskgrid("advise", BAG).stdout.splitlines()


def test_advice_says_which_pcs_to_leave_on(monkeypatch: pytest.MonkeyPatch) -> None:
    some = (longer("lab3", 1, 7 * HOUR), longer("lab2", 1, 19.9 * HOUR, 1), longer("lab3", 2, 6.9 * HOUR))
    assert advised(monkeypatch, Advice(NOW, some, None)) == [
        "as it is: done Thu 08:00, at the latest 14:00",
        "leave lab3 (10 PCs) on until 19:30, and it ends at 19:00, not at Thu 08:00",
    ]


def test_more_hours_are_told_if_they_help_more(monkeypatch: pytest.MonkeyPatch) -> None:
    some = (
        longer("a", 1, 15 * HOUR, 1),
        longer("b", 1, None),
        longer("a", 2, 10 * HOUR, 1),
        longer("a", 4, 9.9 * HOUR),
    )
    assert advised(monkeypatch, Advice(NOW, some, None))[1:] == [
        "leave a (1 PC) on until 19:30, and it ends at Thu 03:00, not at Thu 08:00",
        "leave a (1 PC) on until 20:30, and it ends at 22:00, not at Thu 08:00",
    ]


def test_a_gain_of_less_than_a_minute_is_told_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = Advice(eta(650.0, 640.0, 660.0), (longer("lab3", 1, 610.0),), None)
    assert advised(monkeypatch, soon)[1].endswith(", and it ends at 12:10, 40 s sooner")


ALL_STAY = "no PC leaves as planned, so longer windows would not help"


def test_advice_says_if_nothing_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "if any group of PCs stays on for an hour more, that saves less than 5 % of the time"
    assert advised(monkeypatch, Advice(NOW, (longer("lab3", 1, 19.9 * HOUR),), None))[1:] == [said]
    assert advised(monkeypatch, Advice(NOW, (), None))[1:] == [ALL_STAY]


def test_of_a_bag_that_has_ended_advice_says_only_that(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Advice(eta(0.0, 0.0, 0.0), (), None)
    assert advised(monkeypatch, ended) == [ended.line()] == ["it has ended"]


def test_advice_for_a_checkpointing_bag_does_not_say_to_save_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = eta(None, None, None, "3 tasks fit no window that is known")
    told = advised(monkeypatch, Advice(nobody, (), Misfits(3, 11 * HOUR, 10 * HOUR, 2, keeps=True)))
    assert told[0] == (
        "a piece of 3 tasks needs 11 h 00 min at once, and the longest window that is known has 10 h 00 min: "
        "give a shorter min_piece, or leave a PC on 1 h 01 min longer"
    )


def test_printed_advice_is_what_the_command_prints() -> None:
    assert str(Advice(NOW, (), None)).splitlines() == list(Advice(NOW, (), None).lines())
    assert ALL_STAY in str(Advice(NOW, (), None))


def test_advice_begins_with_tasks_that_fit_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = eta(None, None, None, "3 tasks fit no window that is known")
    told = advised(monkeypatch, Advice(nobody, (), Misfits(3, 11 * HOUR, 10 * HOUR, 2)))
    assert told == [
        "3 tasks need 11 h 00 min at once, and the longest window that is known has 10 h 00 min: split them into 2, "
        "have them save checkpoints, or leave a PC on 1 h 01 min longer",
        "as it is: unknown: 3 tasks fit no window that is known",
    ]
    sooner = longer("lab1", 1, HOUR)
    told = advised(monkeypatch, Advice(eta(None, None, None, "why"), (sooner,), Misfits(1, 90.0, 60.0, 2)))
    assert told[0] == (
        "1 task needs 1 min 30 s at once, and the longest window that is known has 1 min 00 s: split it into 2, "
        "have it save checkpoints, or leave a PC on 1 min 30 s longer"
    )
    assert told[2] == "leave lab1 (10 PCs) on until 19:30, and it ends at 13:00"


def test_an_end_that_is_open_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = advised(monkeypatch, Advice(eta(HOUR, None, None), (), None))
    assert told == ["as it is: done 13:00, the latest end is unknown", ALL_STAY]


# --- when a bag is submitted -----------------------------------------------------------------------------------------

SOME = (longer("lab3", 1, 7 * HOUR), longer("lab3", 2, 3 * HOUR))


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        (
            Advice(NOW, SOME, None),
            "done Thu 08:00, at the latest 14:00; "
            "leave lab3 (10 PCs) on until 19:30, and it ends at 19:00, not at Thu 08:00",
        ),
        (Advice(NOW, (), None), "done Thu 08:00, at the latest 14:00"),
        (Advice(eta(None, None, None, "no PC is up"), (), None), "when the bag will be done is unknown: no PC is up"),
        (Advice(NOW, SOME, Misfits(2, 70.0, 60.0, 2)), "2 tasks need 1 min 10 s at once, and the longest window"),
    ],
)
def test_whoever_submits_at_a_terminal_gets_the_advice_in_one_line(
    monkeypatch: pytest.MonkeyPatch, advice: Advice, said: str
) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    _advise(cast(Any, FakeBag(advice=advice)))
    assert stream.getvalue().startswith(f"deskgrid: {said}")
    assert stream.getvalue().count("\n") == 1


def test_without_an_answer_in_time_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    _advise(cast(Any, FakeBag()))
    assert stream.getvalue() == ""


def test_scripts_do_not_wait_for_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeGrid(FakeBag(advice=Advice(NOW, SOME, None))))
    result = deskgrid("submit", "--", "true")
    assert (result.exit_code, result.stderr) == (0, "")


def test_an_instant_is_what_both_clocks_show() -> None:
    from deskgrid.cli.whatif import instant

    found = instant()
    assert abs(found.wall - time.time()) < 60.0
    assert abs(found.mono - time.monotonic()) < 60.0


def test_nothing_is_imagined_of_a_bag_that_has_ended(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "whatif", lambda *args, **terms: [eta(0.0, 0.0, 0.0)] * 5)
    assert deskgrid("whatif", BAG).stdout == "it has ended\n"
