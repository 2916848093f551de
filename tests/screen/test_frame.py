"""What is on the pages of the status screen, at any size."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from deskgrid.screen.frame import draw, listing
from deskgrid.screen.questions import EVENTS, PLAN, SHARES, STATUS, explain_of, logs_of, output_of, tasks_of, worker_of
from deskgrid.screen.view import BrokerAnswer, Kind, Page, ScreenData, ScreenQuestion
from deskgrid.wire.status import LearnedHours, StatusDocument, WorkerState
from tests.screen.builders import BAG, bag, happened, lab, seen, slot, snapshot, worker
from tests.screen.player import Player

SIZES = [(80, 24), (200, 60), (40, 8), (60, 13), (120, 30), (81, 14)]
PAGES: list[Kind] = ["pcs", "bags", "people", "timeline", "events", "pc", "bag", "log", "task", "keys"]

LOG: dict[str, Any] = {"state": "error", "worker": "pc", "elapsed_s": 4.2, "error": "E: m"}
LOG |= {"stdout": "out\n", "stderr": "err\n", "rank": None, "ranks": []}


def task(
    item: int,
    state: str,
    worker: str | None = None,
    elapsed_s: float | None = None,
    workers: list[str] | None = None,
) -> dict[str, Any]:
    row = {"item": item, "state": state, "worker": worker, "workers": workers or []}
    return row | {"runtime_s": 45.0, "elapsed_s": elapsed_s}


def on(
    page: Page, document: StatusDocument, told: dict[ScreenQuestion, Any] | None = None, *events: Any, **size: int
) -> Player:
    """A page of a grid; ``told``: answers of the broker, and refusals as texts."""
    answers = {
        question: BrokerAnswer(None, answer) if isinstance(answer, str) else BrokerAnswer(answer)
        for question, answer in (told or {}).items()
    }
    player = Player(seen(document, answers, *events), **size)
    player.view.pages = [page]
    return player


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", PAGES)
@pytest.mark.parametrize("count", [0, 1, 300])
def test_no_page_overflows(kind: Kind, size: tuple[int, int], count: int) -> None:
    player = on(Page(kind, "lab3-0", 17), lab(count), {}, width=size[0], height=size[1])
    assert len(player.lines()) == size[1]
    assert "q quit" in player.lines()[-1] or size[0] < 80
    player.view.folding = "name"
    player.lines()


@pytest.mark.parametrize(("width", "height"), [(39, 24), (80, 7), (5, 1)])
def test_a_terminal_that_is_too_small_says_so(width: int, height: int) -> None:
    (line,) = on(Page("pcs"), lab(9), {}, width=width, height=height).lines()
    assert line.startswith(f"{width}x{height} is too small"[: width - 1])


@settings(max_examples=40)
@given(
    name=st.text(max_size=40),
    seconds=st.lists(st.floats(0, 1e12), min_size=4, max_size=4),
    counts=st.lists(st.integers(0, 10**7), min_size=4, max_size=4),
    kind=st.sampled_from(PAGES),
    width=st.integers(1, 220),
    height=st.integers(1, 70),
    ascii_only=st.booleans(),
)
def test_no_name_and_no_number_upsets_it(
    *, name: str, seconds: list[float], counts: list[int], kind: Kind, width: int, height: int, ascii_only: bool
) -> None:
    a, b, c, d = seconds
    workers = [
        worker(name, slot(a, b, queued=1, queued_s=c), slot(), uptime_s=d, opened_s=a, site=name, plan=name),
        worker(name, slot(a, 0.0), uptime_s=None),
        worker(name, state="away", windows=[(a, b), (c, d)]),
        worker(name, state="lost", silent_s=a),
    ]
    done, failed, running, waiting = counts
    document = snapshot(workers, [bag(name, done=done, failed=failed, running=running, waiting=waiting, note=name)])
    told: dict[ScreenQuestion, Any] = {
        worker_of(name): workers[0],
        explain_of(BAG): {"text": [name]},
        explain_of(BAG, 17): {"text": [name]},
        logs_of(BAG, 17): LOG | {"stdout": name, "error": name},
        tasks_of(BAG, "failed"): {"tasks": [task(failed, "failed", name)]},
        tasks_of(BAG, "done"): name,
        output_of(BAG): {"output": [{"item": failed, **LOG, "worker": name, "stdout": name}], "after": 1},
    }
    page = Page(kind, name if kind == "pc" else BAG, 17)
    player = on(page, document, told, happened("worker-lost", name=name, reason=name), width=width, height=height)
    for folding in ("nothing", "site", "name"):
        player.view.folding = folding
        text = "".join(player.lines(ascii_only=ascii_only))
        assert text.isprintable()
        assert text.isascii() or not ascii_only


def test_the_cursor_needs_no_colour() -> None:
    text = on(Page("pcs"), lab(9)).lines()
    assert sum(line.startswith("> ") for line in text) == 1


def test_what_goes_through_the_pages_cannot_reach_the_terminal() -> None:
    evil = "\x1b]0;x\x07\x9b2J\u202e"
    told = {logs_of(BAG, 17): LOG | {"stdout": f"a{evil}\nb\tc", "stderr": evil}, explain_of(BAG, 17): {"text": [evil]}}
    text = "".join(on(Page("task", BAG, 17), snapshot(bags=[bag(evil)]), told).lines())
    assert text.isprintable()
    assert "b       c" in text


# --- what is wrong ---------------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_is_said_to_be_and_the_rows_are_dimmed() -> None:
    away = seen(lab(7), age_s=12.0)
    player = Player(away).type("2")
    assert player.lines()[-2] == "broker away for 12 s, retrying"
    above = draw(player.view, away, listing(player.view, away, 80), 80, 24).renderables[1:5]
    assert all("dim" in [str(span.style) for span in line.spans] for line in above if isinstance(line, Text) and line)


def test_a_refusal_of_the_broker_is_a_line_of_the_screen() -> None:
    refused = seen(lab(7), {STATUS: BrokerAnswer(None, "4000 questions are pending already")})
    for view in ("1", "2"):
        assert "4000 questions are pending already" in Player(refused).type(view).text()


# --- the time line ---------------------------------------------------------------------------------------------------


def hours(*workers: WorkerState, width: int = 110, folding: str = "nothing") -> Player:
    player = on(Page("timeline", sort=1), snapshot(list(workers)), {}, width=width)
    player.view.folding = folding  # type: ignore[assignment]
    return player


def test_the_hours_of_a_pc_are_its_windows_and_its_work() -> None:
    pc = worker("pc", slot(0.0, 7200.0, queued=1, queued_s=7200.0), uptime_s=6 * 3600.0, windows=[(18 * 3600.0, 1e9)])
    row = hours(pc).line_with("> pc").removeprefix("> pc")
    first = row.index("█")
    cells = row[first:]
    hour = len(cells) / 24
    assert [abs(cells.count(glyph) - hours * hour) <= 1.5 for glyph, hours in (("█", 2), ("▒", 2), ("─", 8), (" ", 12))]
    assert cells.index("▒") > cells.rindex("█")
    assert cells.strip() == cells


def test_what_is_planned_for_coming_windows_is_shown_there() -> None:
    pc = worker("pc", state="away", windows=[(6 * 3600.0, 12 * 3600.0)])
    told = {PLAN: {"planned": [{"worker": "pc", "starts_in": 6 * 3600.0, "lasts": 6 * 3600.0}]}}
    player = on(Page("timeline"), snapshot([pc]), told)
    row = player.line_with("> pc")
    assert row.count("▒") == pytest.approx(row.count("─"), abs=1)
    assert row.index("▒") < row.index("─")


def test_the_scale_has_the_hours_of_the_day() -> None:
    scale = hours(worker("pc")).line_with("now")
    assert [mark for mark in scale.split() if ":" in mark][:3] == ["18:00", "21:00", "00:00"]


def test_a_fold_shows_how_many_of_its_pcs_are_there() -> None:
    day = worker("a-1", uptime_s=12 * 3600.0)
    player = hours(day, worker("a-2", uptime_s=None), folding="name")
    row = player.line_with("+ a-*")
    assert row.count("█") == pytest.approx(row.count("▅"), abs=2)
    assert player.line_with("all PCs").split()[-1] == row.split()[-1]


def test_a_lost_pc_without_windows_says_so() -> None:
    assert "lost, silent for 3 min 10 s" in hours(worker("pc", state="lost", silent_s=190.0)).text()


# --- bags, people, events --------------------------------------------------------------------------------------------


def test_bags_in_trouble_come_first_and_name_their_owners() -> None:
    bags = [
        bag("fine", id="1" * 12),
        bag("failed", id="2" * 12, failed=3),
        bag("ended", id="3" * 12, running=0, waiting=0),
        bag("stuck", id="4" * 12, eta_s=None),
    ]
    player = on(Page("bags"), snapshot(bags=bags), {}, width=120)
    assert [row[4:5] for row in player.rows] == ["2", "4", "1", "3"]
    assert " client " in player.line_with("> failed")


def test_all_bags_have_a_row_when_the_broker_has_told_them() -> None:
    document = snapshot(bags=[bag(f"b-{number}", id=f"{number:012}") for number in range(300)])
    few: StatusDocument = {**document, "bags": document["bags"][:200]}
    assert len(on(Page("bags"), few).rows) == 201
    assert "100 bags more: 100 under way" in on(Page("bags", row=999), few).text()
    all_of_them = ScreenData(few, document["bags"], seen(few).now)
    player = Player(all_of_them)
    player.view.pages = [Page("bags")]
    assert len(player.rows) == 300


def test_people_are_the_totals_of_their_bags() -> None:
    bags = [bag(id="1" * 12, done=10, failed=2, running=1, waiting=5), bag(id="2" * 12, done=7, running=0, waiting=0)]
    row = on(Page("people"), snapshot(bags=bags), {}, width=120).line_with("> client")
    assert row.split()[-7:] == ["2", "4", "min", "30", "s", "17", "1"]


def share(name: str, weight: float, used_s: float, *keys: str) -> dict[str, object]:
    more = {"promised_s": 0.0, "running": 0, "waits": False}
    return {"share": name, "weight": weight, "used_s": used_s, "keys": [*keys], **more}


def test_people_have_their_shares_and_what_they_have_used() -> None:
    shares = [share("ben", 1.0, 4200.0, "ben"), share("ann", 2.5, 60.0, "ann", "laptop")]
    document = snapshot(bags=[bag(id="1" * 12, owner="ben"), bag(id="2" * 12, owner="laptop")])
    player = on(Page("people"), document, {SHARES: {"shares": shares}}, width=120)
    titles = player.line_with("weight").split()
    assert titles[:6] == ["owner", "tasks", "bags", "share", "weight", "used"]
    assert player.rows == ["person ben", "person laptop", "person ann"]
    assert "   1  ben         1   1 h 10 min " in player.line_with("> ben")
    assert "   1  ann       2.5   1 min 00 s " in player.line_with("  laptop")
    assert player.type("sss").rows == ["person ben", "person ann", "person laptop"]


def test_where_nobody_shares_with_others_the_share_is_not_named() -> None:
    told: dict[ScreenQuestion, Any] = {SHARES: {"shares": [share("client", 1.0, 0.0, "client")]}}
    titles = on(Page("people"), snapshot(bags=[bag()]), told, width=120).line_with("weight")
    assert titles.split()[:6] == ["owner", "tasks", "bags", "weight", "used", "running"]
    narrow = on(Page("people"), snapshot(bags=[bag()]), told, width=80).line_with("weight")
    assert narrow.split() == ["owner", "tasks", "bags", "weight", "used", "running", "waiting", "failed"]


def test_events_say_when_what_and_of_whom() -> None:
    events = [
        happened("worker-joined", 1, name="pc1", uptime="7200.0"),
        happened("worker-lost", 2, name="pc2", silent_s="15.2"),
    ]
    player = on(Page("events"), lab(3), {}, *events)
    assert player.rows == ["event 2", "event 1"]
    assert "Mon 14:30:00  worker lost         pc2  silent 15 s" in player.text()
    assert "uptime 2 h 00 min" in player.line_with("pc1")
    assert player.type("/lost\r").rows == ["event 2"]


# --- what was opened -------------------------------------------------------------------------------------------------


def test_a_pc_shows_its_windows_its_slots_and_its_events() -> None:
    pc = worker("pc", slot(27.0, 45.0), slot(slot=1), windows=[(18_000.0, 3600.0)], note="in quarantine")
    told = {worker_of("pc"): pc}
    player = on(
        Page("pc", "pc"),
        snapshot([pc], [bag("sweep")]),
        told,
        happened("worker-joined", name="pc"),
        happened("worker-joined", 2, name="other"),
    )
    text = player.text()
    for said in ("host pc.example", "in 5 h 00 min for 1 h 00 min", "1 of 2 busy", "slot 1", "idle", "in quarantine"):
        assert said in text
    assert "27 s of 45 s" in player.line_with("sweep #17")
    assert text.count("worker joined") == 1
    assert f"task {BAG} 17" in player.rows


def learned(
    seen: int = 14,
    lasts: tuple[float, float] | None = None,
    early_s: float | None = None,
    goes: tuple[float, float] | None = None,
) -> LearnedHours:
    shown = [None if pair is None else list(pair) for pair in (lasts, goes)]
    return LearnedHours(seen=seen, lasts_s=shown[0], early_s=early_s, goes_s=shown[1])


@pytest.mark.parametrize(
    ("hours", "plan_s", "said"),
    [
        (learned(lasts=(28_800.0, 30_600.0), goes=(7_200.0, 9_000.0)), None, "no plan: it usually stays 8 h 00 min to"),
        (learned(lasts=(60.0, 60.0)), 100.0, "whatever its plan: it usually stays 1 min 00 s (14 closings seen)"),
        (learned(early_s=1380.0, goes=(60.0, 60.0)), 9e3, "usually closes 23 min before it says (14 closings seen)"),
        (learned(early_s=-120.0), 9e3, "usually closes 2 min 00 s after it says (14 closings seen)"),
        (learned(), 9e3, "closes when it says (14 closings seen)"),
        (learned(1, goes=(60.0, 120.0)), 9e3, "expected to do as most other PCs do (1 closing seen)"),
    ],
    ids=["no plan", "not its plan", "early", "late", "as planned", "as others"],
)
def test_a_pc_shows_how_it_keeps_its_hours(hours: LearnedHours, plan_s: float | None, said: str) -> None:
    pc = worker("pc", uptime_s=plan_s, hours=hours)
    assert said in on(Page("pc", "pc"), snapshot([pc])).line_with("hours")


def test_a_pc_shows_when_it_should_go_by_the_clock_and_that_its_time_left_is_learned() -> None:
    pc = worker("pc", hours=learned(early_s=60.0, goes=(7200.0, 36_000.0)))
    assert "so it should go 16:30 to Tue 00:30" in on(Page("pc", "pc"), snapshot([pc])).text()
    pc = worker("pc", hours=learned(early_s=60.0, goes=(7200.0, 7210.0)))
    assert "so it should go 16:30" in on(Page("pc", "pc"), snapshot([pc])).text()
    assert "hours" not in on(Page("pc", "pc"), snapshot([worker("pc")])).text()


@pytest.mark.parametrize(("left_s", "said"), [(7200.0, " ~2 h 00 min "), (86_340.0, " ~23 h "), (1e5, " ~1 d 3 h ")])
def test_a_time_left_that_was_learned_is_marked(left_s: float, said: str) -> None:
    pc = worker("pc", uptime_s=left_s, hours=learned(early_s=60.0, goes=(60.0, left_s)))
    assert said in on(Page("pcs"), snapshot([pc])).line_with("pc ")


def test_a_pc_that_is_gone_is_said_to_be() -> None:
    assert "no worker pc" in on(Page("pc", "pc"), snapshot(), {worker_of("pc"): "no worker pc"}).text()
    assert "asking the broker" in on(Page("pc", "pc"), snapshot()).text()


def test_a_bag_shows_why_it_waits_and_its_tasks_those_that_failed_first() -> None:
    told = {
        explain_of(BAG): {"text": ["task 9 waits: it needs 2 h", "pc slot 0: 1 h left"]},
        tasks_of(BAG, "failed"): {"tasks": [task(3, "failed")]},
        tasks_of(BAG, "running"): {"tasks": [task(5, "running", "pc", 27.0), task(6, "next", "pc")]},
        tasks_of(BAG, "done"): {"tasks": [task(0, "done")]},
    }
    player = on(Page("bag", BAG), snapshot(bags=[bag(failed=1, note="careful")]), told)
    text = player.text()
    for said in (
        "task 9 waits: it needs 2 h",
        "pc slot 0: 1 h left",
        "careful",
        "on pc  27 s of 45 s",
        "97 tasks more",
    ):
        assert said in text
    assert [row for row in player.rows if row] == [f"task {BAG} {item}" for item in (3, 5, 6, 0)]


def test_of_somebody_elses_bag_you_see_what_everybody_sees_and_why_not_more() -> None:
    refusal = "bag a belongs to ann, and you are connected as ben"
    told = {explain_of(BAG): refusal, tasks_of(BAG, "running"): refusal}
    player = on(Page("bag", BAG), snapshot([worker("pc", slot(5.0))], [bag()]), told)
    assert player.text().count(refusal) == 1
    assert "running   on pc" in player.line_with("#17")


def test_a_bag_that_was_forgotten_is_said_to_be() -> None:
    assert "the broker no longer has this bag" in on(Page("bag", BAG), snapshot()).text()


def test_a_task_shows_why_it_waits_how_it_ended_and_what_it_printed() -> None:
    told = {explain_of(BAG, 17): {"text": ["task 17 failed"]}, logs_of(BAG, 17): LOG}
    text = on(Page("task", BAG, 17), snapshot(bags=[bag()]), told).text()
    for said in ("task 17  of bag sweep", "task 17 failed", "error on pc after 4.2 s", "E: m", "out", "err"):
        assert said in text


def test_a_long_log_scrolls_and_at_its_end_it_is_followed() -> None:
    def log(count: int) -> dict[ScreenQuestion, Any]:
        return {logs_of(BAG, 17): LOG | {"stdout": "".join(f"line {number}\n" for number in range(count))}}

    player = on(Page("task", BAG, 17), snapshot(bags=[bag()]), log(100))
    assert "line 99" not in player.text()
    assert "line 99" in player.type("G").text()
    player.seen = on(Page("task"), snapshot(bags=[bag()]), log(200)).seen
    assert "line 199" in player.text()
    assert "line 199" not in player.type("\x1b[A").text()
    assert "E: m" in player.type("g").text()


def test_a_line_that_is_too_long_is_wrapped() -> None:
    told = {logs_of(BAG, 17): LOG | {"stdout": "x" * 200 + "end"}}
    assert "end" in on(Page("task", BAG, 17), snapshot(bags=[bag()]), told).text()


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("waiting", "its output is shown when it runs"),
        ("running", "it has printed nothing so far"),
        ("done", "nothing was printed"),
    ],
)
def test_of_a_task_that_has_printed_nothing_it_is_said_why(state: str, said: str) -> None:
    nothing = {"state": state, "worker": None, "elapsed_s": 0.0, "stdout": "", "stderr": "", "error": None}
    assert said in on(Page("task", BAG, 17), snapshot(bags=[bag()]), {logs_of(BAG, 17): nothing}).text()


def test_a_task_that_runs_shows_what_it_has_printed() -> None:
    log = LOG | {"state": "running", "stdout": "so far", "error": None}
    text = on(Page("task", BAG, 17), snapshot(bags=[bag()]), {logs_of(BAG, 17): log}).text()
    assert "so far" in text
    assert "last attempt" not in text


def test_the_log_of_a_bag_is_what_its_tasks_printed_in_the_order_in_which_they_ended() -> None:
    rows = [{"item": 7, **LOG}, {"item": 3, **LOG, "state": "done", "error": None, "stdout": "fine\n", "stderr": ""}]
    text = on(Page("log", BAG), snapshot(bags=[bag()]), {output_of(BAG): {"output": rows, "after": 9}}).lines()
    assert [each.strip() for each in text[2:8]] == [
        "#7  error on pc after 4.2 s",
        "E: m",
        "err",
        "out",
        "#3  done on pc after 4.2 s",
        "fine",
    ]
    assert "no task of it has ended yet" in on(Page("log", BAG), snapshot(), {output_of(BAG): {"output": []}}).text()


@pytest.mark.parametrize("kind", ["bags", "events"])
def test_a_search_without_a_hit_does_not_say_that_there_are_no_rows_yet(kind: Kind) -> None:
    page = Page(kind)
    page.search = "zzz"
    shown = on(page, snapshot(bags=[bag()])).text()
    assert "none yet" not in shown
    assert "nothing here" in shown
    assert 'only with "zzz" (Esc shows all)' in shown


def test_an_answer_that_is_not_there_yet_is_waited_for() -> None:
    assert EVENTS not in seen(lab(1)).told
    assert "none yet" in on(Page("events"), lab(3)).text()
    assert "asking the broker" in on(Page("task", BAG, 17), snapshot(bags=[bag()])).text()
