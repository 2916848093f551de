"""Gangs, and what PCs are like, on the status screen."""

from typing import Any

import pytest

from deskgrid.screen.questions import logs_of, output_of, tasks_of, worker_of
from deskgrid.screen.view import Page
from deskgrid.wire.status import StatusDocument, WorkerState
from tests.screen.builders import BAG, bag, slot, snapshot, worker
from tests.screen.test_frame import LOG, on, task
from tests.screen.test_screen import line_with, lines

OUTPUT = {"item": 3, **LOG, "worker": "pc2", "rank": 2}
RANKS = [
    {"rank": 0, "worker": "pc1", "elapsed_s": 4.0, "stdout": "hello from 0\n", "stderr": ""},
    {"rank": 1, "worker": "pc2", "elapsed_s": 3.0, "stdout": "", "stderr": "oh from 1\n"},
]


def slow(**has: Any) -> WorkerState:
    return worker("pc1", slot(3.0, rank=2, item=3), speed=0.71, load=0.124, labels=["gpu", "matlab"], **has)


def gangs() -> StatusDocument:
    """A gang of four ranks on three slots of a PC and one of another, and a task of one."""
    ranks = [slot(3.0, rank=rank, item=3, slot=rank) for rank in range(3)]
    pcs = [worker("pc1", *ranks, slot(1.0, slot=3, item=4)), worker("pc2", slot(3.0, rank=3, item=3))]
    return snapshot(pcs, [bag(ranks=[4, 4], running=2)])


def test_speeds_loads_and_labels_are_columns_where_pcs_differ() -> None:
    found = lines(snapshot([slow(), worker("pc2")]), 140)
    assert line_with("time left", found).split()[-6:] == ["ended", "speed", "load", "site", "labels", "plan"]
    assert [word in line_with("pc1 ", found) for word in ("0.71", "12 %", "gpu, matlab")] == [True] * 3
    assert [word in line_with("pc2 ", found) for word in ("1.00", "0 %", "gpu")] == [True, True, False]
    alike = line_with("time left", lines(snapshot([worker("pc1"), worker("pc2")]), 140))
    assert "speed" not in alike
    assert "labels" not in alike


def test_pcs_are_found_by_their_labels() -> None:
    player = on(Page("pcs", search="matlab"), snapshot([slow(), worker("pc2")]))
    assert player.rows == ["pc pc1"]


def test_the_page_of_a_pc_says_what_it_is_like() -> None:
    player = on(Page("pc", "pc1"), snapshot([slow(reachable=False)]), width=100)
    assert player.line_with("speed").split("speed")[1].strip() == (
        "0.71 of a fast desktop PC's; others use 12 % of 1 processor"
    )
    corrected = slow() | {"stated_speed": 1.42}
    player_of_corrected = on(Page("pc", "pc1"), snapshot([corrected]), width=100)
    assert "0.71 of a fast desktop PC's, as tasks show (1.42 measured)" in player_of_corrected.line_with("speed")
    assert "8 G" in player.line_with("memory")
    assert "gpu, matlab" in player.line_with("labels")
    assert "gets no gangs of several PCs" in player.line_with("network")
    assert "rank 2 of 4, 3 s of 45 s" in player.line_with("slot 0")


def test_what_is_not_known_of_a_pc_is_left_out() -> None:
    told = worker("pc1") | {"memory": None}
    text = on(Page("pc", "pc1"), snapshot([worker("pc1")]), {worker_of("pc1"): told}).text()
    assert "that of a fast desktop PC" in text
    assert [label for label in ("memory", "labels", "network") if label in text] == []


def test_a_gang_is_one_line_with_the_places_of_its_ranks() -> None:
    workers = ["pc1", "pc1", "pc1", "pc2"]
    running = [task(3, "running", "pc1", 3.0, workers), task(4, "running", "pc1", 1.0)]
    player = on(Page("bag", BAG), gangs(), {tasks_of(BAG, "running"): {"tasks": running}}, width=100)
    assert "4 ranks on pc1 ×3, pc2  3 s of 45 s" in player.line_with("#3 ")
    assert "on pc1  1 s of 45 s" in player.line_with("#4 ")


def test_a_gang_of_somebody_else_is_one_line_too() -> None:
    player = on(Page("bag", BAG), gangs(), width=100)
    assert "running   4 ranks on pc1 ×3, pc2" in player.line_with("#3 ")
    assert "running   on pc1  1 s of 45 s" in player.line_with("#4 ")


@pytest.mark.parametrize(
    ("ranks", "slots", "said"),
    [
        ([4, 4], 1, "4 ranks for each task"),
        ([1, 1], 1, "1 rank for each task"),
        ([2, 16], 2, "2 to 16 ranks for each task, each on 2 slots of one PC"),
        (None, 4, "4 slots of one PC for each task"),
    ],
)
def test_the_page_of_a_bag_says_what_its_tasks_need(ranks: list[int] | None, slots: int, said: str) -> None:
    player = on(Page("bag", BAG), snapshot(bags=[bag(ranks=ranks, slots=slots)]))
    assert player.line_with("needs").split("needs")[1].strip() == said


def test_a_bag_of_single_tasks_needs_nothing_that_is_worth_a_line() -> None:
    assert "needs" not in on(Page("bag", BAG), snapshot(bags=[bag()])).text()


def test_the_log_of_a_gang_names_the_rank() -> None:
    text = on(Page("log", BAG), gangs(), {output_of(BAG): {"output": [OUTPUT], "after": 1}}).text()
    assert "#3  error rank 2 on pc2 after 4.2 s" in text


def test_the_page_of_a_task_has_the_output_of_each_rank() -> None:
    told = {logs_of(BAG, 3): LOG | {"rank": 1, "ranks": RANKS}}
    text = on(Page("task", BAG, 3), gangs(), told, height=30).text()
    assert "stdout, rank 0 on pc1 after 4 s" in text
    assert "hello from 0" in text
    assert "stderr, rank 1 on pc2 after 3 s" in text
    assert text.count("oh from 1") == 1
    assert "E: m" in text
