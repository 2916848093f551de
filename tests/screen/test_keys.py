"""What keys do: move, open, search, sort, fold, and ask before anything is cancelled."""

import pytest

from deskgrid.screen.keys import KEYS, split
from deskgrid.screen.listing import END as END_ROW
from deskgrid.screen.tables import item_row
from deskgrid.screen.view import SORTS, VIEWS
from deskgrid.screen.worker_rows import worker_columns
from deskgrid.wire.status import StatusDocument
from tests.screen.builders import BAG, bag, lab, seen, slot, snapshot, worker
from tests.screen.player import Player

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F"
ENTER, ESC, BACKSPACE = "\r", "\x1b", "\x7f"
PCS, BAGS, PEOPLE, TIMELINE = "2", "3", "4", "5"


def on(document: StatusDocument, *typed: str, height: int = 24) -> Player:
    return Player(seen(document), height=height).type(*typed)


def pcs(count: int) -> StatusDocument:
    return snapshot([worker(f"lab3-{number:03}") for number in range(count)])


# --- keys themselves -------------------------------------------------------------------------------------------------


def test_what_terminals_send_for_keys_is_understood_and_other_sequences_do_nothing() -> None:
    assert split("\x1b[A\x1bOBx\x1b[5~é\r\x1b[15~\x1b[1;5C\x00\x1b") == [
        "up",
        "down",
        "x",
        "page up",
        "é",
        "enter",
        "esc",
    ]


def test_no_page_has_two_meanings_for_a_key() -> None:
    for kind in [*VIEWS, "pc", "bag", "log", "task", "keys"]:
        keys = [key for each in KEYS if kind in each.where for key in each.keys]
        assert len(keys) == len(set(keys)), kind


def test_the_help_names_every_key() -> None:
    text = Player(seen(lab(3)), height=40).type("?").text()
    assert all(each.shown in text and each.does.split()[0] in text for each in KEYS)


def test_the_help_says_what_each_mark_of_a_slot_means() -> None:
    lines = Player(seen(lab(3)), height=40).type("?").lines()
    meanings = {mark: line.split()[-1] for line in lines for mark in line[:12].split() if len(mark) == 1}
    pc = worker("lab3", *[slot(elapsed_s, 40.0) for elapsed_s in (None, 9.0, 20.0, 39.0, 41.0)])
    (slots,) = [column for column in worker_columns([pc], 80) if column.title == "slots"]
    marks = item_row(pc, [slots]).plain
    assert [meanings[mark] for mark in marks] == ["slot.", "passed.", "passed.", "passed.", "predicted."]
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("key", ["q", "Q"])
@pytest.mark.parametrize("before", ["", PCS, "?"])
def test_q_quits_wherever_you_are(before: str, key: str) -> None:
    assert on(lab(3), before, key).view.quit


def test_q_in_a_search_is_a_letter() -> None:
    player = on(lab(3), PCS, "/q")
    assert (player.view.quit, player.view.page.search) == (False, "q")


def test_a_key_that_means_nothing_does_nothing() -> None:
    player = on(lab(3), PCS)
    before = player.text()
    assert player.type("xyz\x00é").text() == before


# --- moving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(1, len(VIEWS) + 1))
def test_each_view_has_a_key_and_its_name_is_in_brackets(number: int) -> None:
    player = on(lab(9), str(number))
    name = list(VIEWS.values())[number - 1]
    if number == 1:
        assert "2 PCs" in player.lines()[-1]
    else:
        assert f"[{number} {name}]" in player.lines()[0]


def test_every_pc_can_be_reached() -> None:
    player = on(pcs(150), PCS)
    reached = set()
    for _ in range(150):
        reached.add(player.row)
        assert f"> {player.row.removeprefix('pc ')}" in player.text()
        player.type(DOWN)
    assert reached == set(player.rows)
    assert len(reached) == 150


def test_pages_ends_and_letters_move_the_cursor_too() -> None:
    player = on(pcs(150), PCS, END)
    assert player.row == "pc lab3-149"
    assert player.type(HOME).row == "pc lab3-000"
    player.type(PAGE_DOWN)
    below = player.row
    assert below > "pc lab3-010"
    assert player.type(PAGE_UP).row == "pc lab3-000"
    assert player.type(" ").row == below
    assert player.type("b").row == "pc lab3-000"
    assert player.type("jjk").row == "pc lab3-001"
    assert player.type("G").row == "pc lab3-149"
    assert player.type("g", UP).row == "pc lab3-000"
    assert player.lines()[-2].startswith("1-18 of 150")


def test_arrows_on_the_overview_lead_to_the_pcs() -> None:
    assert on(lab(9), DOWN).view.page.kind == "pcs"


def test_the_cursor_stays_on_its_pc_when_others_come_and_stays_in_its_place_when_it_goes() -> None:
    player = on(pcs(50), PCS, DOWN * 20)
    assert player.row == "pc lab3-020"
    player.seen = seen(snapshot([worker("lab1-1"), *pcs(50)["workers"]]))
    assert player.row == "pc lab3-020"
    assert "> lab3-020" in player.text()
    player.seen = seen(snapshot([row for row in pcs(50)["workers"] if row["name"] != "lab3-020"]))
    assert player.row == "pc lab3-021"
    player.seen = seen(snapshot([]))
    assert "none; start one" in player.text()


def test_a_view_is_as_you_left_it() -> None:
    player = on(pcs(150), PCS, END, "s", BAGS, PCS)
    assert (player.row, player.view.page.order) == ("pc lab3-149", "name")


# --- searching, sorting, folding -------------------------------------------------------------------------------------


def test_a_search_leaves_the_rows_with_all_its_words() -> None:
    player = on(lab(70), PCS, "/LAB5 lost", ENTER)
    assert player.rows
    assert all(name.startswith("pc lab5-") for name in player.rows)
    assert 'only with "LAB5 lost"' in player.text()
    assert player.type(ESC).rows == on(lab(70), PCS).rows


def test_the_last_letter_of_a_search_can_be_taken_back_and_esc_ends_it() -> None:
    player = on(lab(70), PCS, "/labx", BACKSPACE)
    assert player.view.page.search == "lab"
    assert "search: lab_" in player.text()
    assert player.type(ESC).view.page.search == ""
    assert not player.view.typing


def test_trouble_comes_first() -> None:
    doomed = worker("c", slot(5.0, 9000.0), uptime_s=60.0)
    sick = worker("d", note="in quarantine: 3 crashes in a row")
    player = on(snapshot([worker("a"), worker("b", state="away"), doomed, sick, worker("e", state="lost")]), PCS)
    assert player.rows == ["pc d", "pc e", "pc c", "pc a", "pc b"]


def test_pcs_are_sorted_by_each_of_its_ways_in_turn() -> None:
    player = on(
        snapshot([
            worker("b", slot(1.0), uptime_s=10.0),
            worker("a", uptime_s=20.0),
            worker("c", state="lost"),
            worker("d", uptime_s=None),
        ]),
        PCS,
    )  # fmt: skip
    orders = [(player.view.page.order, [row[3:] for row in player.type("s" * (turn > 0)).rows]) for turn in range(4)]
    assert [rows for _, rows in orders] == [
        ["c", "b", "a", "d"],
        ["a", "b", "c", "d"],
        ["b", "a", "d", "c"],
        ["b", "a", "c", "d"],
    ]
    assert player.type("s").view.page.order == "trouble"


@pytest.mark.parametrize("kind", SORTS)
def test_every_order_of_every_view_can_be_drawn(kind: str) -> None:
    player = on(lab(9), str(list(VIEWS).index(kind) + 1))  # type: ignore[arg-type]
    for order in SORTS[kind]:  # type: ignore[index]
        assert player.view.page.order == order
        assert order in player.lines()[-2]
        player.type("s")


def test_pcs_are_folded_by_site_by_name_or_not_at_all() -> None:
    rooms = [worker(f"{room}-{number}", site=f"site {room}") for room in ("a", "b") for number in range(30)]
    player = on(snapshot(rooms), PCS, "f")
    assert player.rows == ["fold site a", "fold site b"]
    assert "folded by site" in player.text()
    assert player.type("f").rows == ["fold a-*", "fold b-*"]
    assert len(player.type("f").rows) == 60


def test_a_fold_is_one_line_that_says_what_is_wrong_and_opens() -> None:
    room = [
        worker("a-1", slot(1.0), slot(slot=1)),
        worker("a-2", state="lost"),
        worker("a-3", state="away"),
        worker("a-4", note="in quarantine"),
    ]
    player = on(snapshot(room), PCS, "ff")
    assert "4 PCs: 1 lost, 1 in quarantine, 2 up, 1 away" in player.line_with("+ a-*")
    assert "1/3" in player.line_with("+ a-*")
    player.type(ENTER)
    assert player.rows == ["fold a-*", "pc a-4", "pc a-2", "pc a-1", "pc a-3"]
    assert "- a-*" in player.text()
    assert player.type(ENTER).rows == ["fold a-*"]


def test_folds_with_trouble_come_first() -> None:
    room = [worker("a-1"), worker("b-1"), worker("c-1", state="lost")]
    assert on(snapshot(room), PCS, "ff").rows == ["fold c-*", "fold a-*", "fold b-*"]
    assert on(snapshot(room), PCS, "ffs").rows == ["fold a-*", "fold b-*", "fold c-*"]


def test_the_time_line_is_folded_as_the_pcs_are() -> None:
    assert on(lab(70), PCS, "ff", TIMELINE).rows == on(lab(70), PCS, "ff").rows


# --- opening ---------------------------------------------------------------------------------------------------------


def test_what_is_chosen_is_opened_and_esc_leads_back() -> None:
    player = on(snapshot([worker("pc", slot(5.0))], [bag()]), PCS, ENTER)
    assert (player.view.page.kind, player.view.page.name) == ("pc", "pc")
    player.type(DOWN * 20, UP * 20, *(DOWN for _ in range(player.rows.index(f"task {BAG} 17"))), ENTER)
    assert (player.view.page.kind, player.view.page.name, player.view.page.item) == ("task", BAG, 17)
    assert player.type(ESC).view.page.kind == "pc"
    assert player.type(BACKSPACE).view.page.kind == "pcs"
    assert player.type(ESC).view.page.kind == "pcs"


def test_a_person_opens_their_bags() -> None:
    mine, other = bag("mine", id="1" * 12), bag("other", id="2" * 12)
    other["owner"] = "ben"
    player = on(snapshot(bags=[mine, other]), PEOPLE)
    assert player.rows == ["person ben", "person client"]
    assert player.type(ENTER).rows == ["bag " + "2" * 12]


def test_the_log_of_a_bag_is_opened_at_its_end() -> None:
    for player in (on(snapshot(bags=[bag()]), BAGS, "l"), on(snapshot(bags=[bag()]), BAGS, ENTER, "l")):
        assert (player.view.page.kind, player.view.page.name, player.view.page.top) == ("log", BAG, END_ROW)
    assert on(snapshot(), BAGS, "l").view.page.kind == "bags"


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_a_bag_is_cancelled_after_yes_only() -> None:
    player = on(snapshot(bags=[bag(running=4, waiting=1200)]), BAGS, "c")
    assert "cancel bag sweep (1,204 tasks)? y/n" in player.text()
    assert player.type("n").orders == []
    assert "nothing was done" in player.text()
    assert player.type("y").orders == []
    (order,) = player.type("cy").orders
    assert order.question == ("cancel", (("bag", BAG), ("items", None)))
    assert player.view.asking is None


def test_the_bag_that_was_asked_about_is_cancelled_although_others_came_meanwhile() -> None:
    player = on(snapshot(bags=[bag()]), BAGS, "c")
    player.seen = seen(snapshot(bags=[bag("first", id="0" * 12, failed=1), bag()]))
    (order,) = player.type("y").orders
    assert ("bag", BAG) in order.question.args


def test_an_open_task_is_cancelled_alone() -> None:
    player = on(snapshot([worker("pc", slot(5.0))], [bag()]), BAGS, ENTER, END, ENTER, "c")
    assert "cancel task 17 of bag sweep? y/n" in player.text()
    (order,) = player.type("y").orders
    assert order.question == ("cancel", (("bag", BAG), ("items", (17,))))


def test_a_bag_that_has_ended_has_nothing_to_cancel() -> None:
    player = on(snapshot(bags=[bag(running=0, waiting=0)]), BAGS, "c")
    assert "has no tasks left to cancel" in player.text()
    assert player.type("y").orders == []


@pytest.mark.parametrize("where", [PCS, PEOPLE, TIMELINE, "1"])
def test_nothing_else_can_be_cancelled(where: str) -> None:
    assert on(lab(9), where, "cy").orders == []


@pytest.mark.parametrize(("paused", "what"), [(False, "pause"), (True, "resume")])
def test_a_bag_is_paused_and_resumed_after_yes_only(paused: bool, what: str) -> None:
    player = on(snapshot(bags=[bag(paused=paused)]), BAGS, "p")
    assert f"{what} bag sweep? y/n" in player.text()
    assert player.type("n").orders == []
    (order,) = player.type("py").orders
    assert order.question == (what, (("bag", BAG),))


@pytest.mark.parametrize("by", [None, "ann"])
@pytest.mark.parametrize("keys", ["d", "\rd"])
def test_a_pc_is_drained_or_gets_work_again_after_yes_only(by: str | None, keys: str) -> None:
    pc = worker("lab3-01")
    pc["drained_by"], pc["note"] = by, "drained by ann until undone" if by else ""
    player = on(snapshot(workers=[pc]), PCS, keys)
    assert ("give work again to lab3-01? y/n" if by else "drain lab3-01? y/n") in player.text()
    assert player.type("n").orders == []
    (order,) = player.type("dy").orders
    assert order.question == ("drain undo" if by else "drain", (("pcs", ("lab3-01",)),))


def test_a_fold_of_pcs_is_not_drained() -> None:
    assert on(lab(9), PCS, "fdy").orders == []


def test_a_bag_that_has_ended_is_not_paused_and_neither_is_a_person() -> None:
    player = on(snapshot(bags=[bag(running=0, waiting=0)]), BAGS, "p")
    assert "bag sweep has ended" in player.text()
    assert player.type("y").orders == []
    assert on(snapshot(), BAGS, "py").orders == []
    assert on(lab(9), PEOPLE, "py").orders == []


def test_a_paused_bag_says_so() -> None:
    assert "paused" in on(snapshot(bags=[bag(paused=True, eta_s=None)]), BAGS).text()
