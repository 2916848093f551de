"""What tasks need, as ``deskgrid submit`` takes it, and the results and logs of gangs."""

from typing import Any

import pytest

from deskgrid.client.logs import RankLog, TaskLog
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey
from tests.cli.fakes import FakeBag, FakeGrid, deskgrid, use
from tests.screen.builders import BAG

RANKS = (RankLog(0, "pc1", "done", 1.5, "one\n", ""), RankLog(1, "pc2", "done", 1.25, "", "two\n"))


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> FakeGrid:
    return use(monkeypatch, FakeGrid())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--gang 4", {"gang": 4}),
        ("--gang 4-4 --mpi", {"gang": 4, "mpi": True}),
        ("--gang 2-16 --speedup amdahl:0.05", {"gang": (2, 16), "speedup": Amdahl(0.05)}),
        ("--gang 2-16 --speedup downey:8,1", {"gang": (2, 16), "speedup": Downey(8.0, 1.0)}),
        ("--gang 2-16 --speedup 1:1,2:1.9,4:3.4", {"gang": (2, 16), "speedup": {1: 1.0, 2: 1.9, 4: 3.4}}),
        ("--slots 4 --memory 4G", {"slots": 4, "memory": 4 * 2**30}),
        ("--label gpu --label matlab", {"labels": ("gpu", "matlab")}),
    ],
)
def test_needs_arrive(grid: FakeGrid, words: str, expected: dict[str, Any]) -> None:
    assert deskgrid("submit", *words.split(), "--", "true").exit_code == 0
    assert {name: grid.submitted[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gang 0", "'--gang': '0' is not a number of ranks, 1 to 1,024, nor a range like 2-16"),
        ("--gang 1025", "is not a number of ranks"),
        ("--gang two", "is not a number of ranks"),
        ("--gang 2-", "is not a number of ranks"),
        ("--gang 16-2", "'16-2' has the larger number first: use 2-16"),
        ("--gang 2-16", "--gang 2-16 needs --speedup, such as amdahl:0.05"),
        ("--speedup amdahl:0.05", "--speedup needs --gang"),
        ("--mpi", "--mpi needs --gang"),
        ("--gang 4 --speedup fast", "'fast' is not a speed-up like amdahl:0.05, downey:8,1 or 1:1,2:1.9,4:3.4 (see"),
        ("--gang 4 --speedup amdahl:", "'amdahl:' is not a speed-up like amdahl:0.05"),
        ("--gang 4 --speedup amdahl:2", "the serial fraction of a task is a number from 0 to 1, not 2.0"),
        ("--gang 4 --speedup downey:8", "'downey:8' is not a speed-up like"),
        ("--gang 4 --speedup downey:8,1,1", "'downey:8,1,1' is not a speed-up like"),
        ("--gang 4 --speedup 1:1,2", "'1:1,2' is not a speed-up like"),
        ("--gang 4 --speedup 1:1,2:1.9,2:3", "'1:1,2:1.9,2:3' has the same number of ranks twice"),
        ("--memory 4apples", "'4apples' is not a size like 512M or 2G"),
        ("--memory 0G", "'0G' is no memory: leave it out"),
        ("--memory 99999999T", "'99999999T' is more than any PC has"),
        ("--resource gpu=0", "gpu=0 is nothing: leave it out"),
        ("--resource gpu=some", "gpu is a number from 0"),
        ("--resource gpu --resource gpu=2", "'gpu' is given twice"),
        ("--resource memory=4G", "memory is no resource: it has an option of its own"),
        ("--slots 0", "0 is not in the range 1<=x<=1024"),
    ],
)
def test_needs_that_make_no_sense_are_one_line_and_exit_code_2(grid: FakeGrid, words: str, said: str) -> None:
    result = deskgrid("submit", *words.split(), "--", "true")
    assert (result.exit_code, result.stdout, grid.submitted) == (2, "", {})
    (line,) = result.stderr.splitlines()
    assert said in line


def test_the_stdout_of_each_rank_is_printed_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeGrid(FakeBag([(0, ["a\n", "b\n"]), (1, ["c\n"])], kind="command")))
    assert deskgrid("results", BAG).stdout == "a\nb\nc\n"


def test_the_values_of_a_function_are_printed_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeGrid(FakeBag([(0, ["a", "b"])])))
    assert deskgrid("results", BAG).stdout == "['a', 'b']\n"


def test_the_log_of_a_gang_has_each_rank_and_names_the_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = TaskLog("error", "pc2", 1.25, "", "two\n", "two\nRemoteError: exit code 3", 1, RANKS)
    use(monkeypatch, FakeGrid(FakeBag([(0, None)], logged={0: failed})))
    result = deskgrid("logs", BAG, "0")
    assert result.stdout == "one\n"
    assert result.stderr.splitlines() == [
        "deskgrid: task 0: error in rank 1 on pc2 after 1.25 s",
        "deskgrid: task 0, rank 0 on pc1 after 1.5 s:",
        "deskgrid: task 0, rank 1 on pc2 after 1.25 s:",
        "two",
        "RemoteError: exit code 3",
    ]


def test_a_rank_that_was_ended_with_the_others_has_no_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = RankLog(0, "pc1", "stopped", 0.0, "", "")
    failed = TaskLog("error", "pc2", 1.25, "", "", "RemoteError: exit code 3", 1, (stopped,))
    use(monkeypatch, FakeGrid(FakeBag([(0, None)], logged={0: failed})))
    assert deskgrid("logs", BAG, "0").stderr.splitlines()[1] == (
        "deskgrid: task 0, rank 0 on pc1, stopped with the others:"
    )


def test_a_rank_of_a_cancelled_gang_was_stopped_because_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = RankLog(0, "pc1", "stopped", 2.26, "hi\n", "")
    cancelled = TaskLog("cancelled", None, 0.0, "", "", None, None, (stopped,))
    use(monkeypatch, FakeGrid(FakeBag([(0, None)], logged={0: cancelled})))
    result = deskgrid("logs", BAG, "0")
    assert result.stderr.splitlines() == [
        "deskgrid: task 0: cancelled",
        "deskgrid: task 0, rank 0 on pc1, stopped after 2.26 s:",
    ]
    assert result.stdout == "hi\n"


def test_the_log_of_a_gang_that_runs_says_what_each_rank_does(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RankLog(1, "pc2", "running", 0.0, "", "")
    sent = TaskLog("running", "pc1", 2.5, "", "", None, None, (RANKS[0], runs))
    use(monkeypatch, FakeGrid(FakeBag([(0, None)], logged={0: sent})))
    result = deskgrid("logs", BAG, "0")
    assert result.stdout == "one\n"
    assert result.stderr.splitlines() == [
        "deskgrid: task 0: running on pc1 for 2.5 s",
        "deskgrid: task 0, rank 0 on pc1 after 1.5 s:",
        "deskgrid: task 0, rank 1 on pc2, still running",
    ]


def test_a_gang_that_is_done_names_no_rank_in_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    use(
        monkeypatch,
        FakeGrid(FakeBag([(0, None)], logged={0: TaskLog("done", "pc1", 1.5, "one\n", "", None, 0, RANKS)})),
    )
    assert deskgrid("logs", BAG, "0").stderr.splitlines()[0] == "deskgrid: task 0: done on pc1 after 1.5 s"
