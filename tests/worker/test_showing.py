"""A worker shows what running tasks print while somebody watches, and nothing otherwise."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deskgrid import Grid, wire
from deskgrid.client import following
from deskgrid.client.following import LogPiece
from deskgrid.worker.run.jobs import Job, JobEnded, PrintedOutput, RankKey
from deskgrid.worker.showing import SHOW_S, Showing
from tests.live import LiveGrid
from tests.waiting import eventually
from tests.without_files import NoRanks, WithoutCheckpoints, WithoutFiles


@dataclass
class Jobs(WithoutFiles, WithoutCheckpoints):
    """Attempts that run, and what they have printed to stdout."""

    printed: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def run(self, slot: int, jobs: Sequence[Job]) -> None: ...

    def poll(self, now: float) -> list[JobEnded]:
        return []

    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]:
        return []

    def running(self, now: float) -> list[tuple[int, int, int, float]]:
        return [(0, *key, 1.0) for key in self.printed]

    def shown(self, task: int, number: int, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        text = self.printed[task, number]
        return PrintedOutput(len(text), text[stdout:][-most:], 0, b"")


class Ranks(NoRanks):
    """One rank that runs, and one that has just ended."""

    def running(self, now: float) -> dict[RankKey, float]:
        return {(7, 1, 3): 1.0, (7, 1, 4): 1.0}

    def shown(self, key: RankKey, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        return None if key[2] == 4 else PrintedOutput(0, b"", 4, b"rank"[stderr:])


def rows(messages: list[wire.Message]) -> list[wire.Shown]:
    return [row for message in messages if isinstance(message, wire.OutputShown) for row in message.rows]


def watching(*attempts: tuple[int, int]) -> wire.ShowOutput:
    return wire.ShowOutput(tuple(wire.Ref(*attempt) for attempt in attempts), 5.0)


def test_nothing_is_shown_of_what_nobody_watches() -> None:
    jobs = Jobs(printed={(1, 1): b"a", (2, 1): b"b"})
    showing = Showing(jobs, NoRanks())
    assert (showing.say(0.0), showing.next(0.0)) == ([], float("inf"))
    showing.watch(watching((1, 1)), 0.0)
    assert rows(showing.say(0.0)) == [wire.Shown(1, 1, 0, 1, b"a", 0, b"")]


def test_what_is_new_is_shown_once_in_a_while_until_nobody_watches() -> None:
    jobs = Jobs(printed={(1, 1): b""})
    showing = Showing(jobs, NoRanks())
    showing.watch(watching((1, 1)), 0.0)
    assert rows(showing.say(0.0)) == [wire.Shown(1, 1, 0, 0, b"", 0, b"")], "that there is nothing is said once"
    jobs.printed[1, 1] = b"one"
    showing.watch(watching((1, 1)), 0.5)
    assert (showing.say(0.5), showing.next(0.5)) == ([], SHOW_S - 0.5)
    assert [row.stdout for row in rows(showing.say(1.0))] == [b"one"]
    assert showing.say(2.0) == []
    jobs.printed[1, 1] += b" two"
    assert [(row.stdout_bytes, row.stdout) for row in rows(showing.say(3.0))] == [(7, b" two")]
    jobs.printed[1, 1] += b" three"
    assert showing.say(5.5) == []
    assert showing.next(5.5) == float("inf")


def test_after_a_new_connection_nobody_watches() -> None:
    jobs = Jobs(printed={(1, 1): b"a"})
    showing = Showing(jobs, NoRanks())
    showing.watch(watching((1, 1)), 0.0)
    showing.disconnected()
    assert (showing.say(0.0), showing.next(0.0)) == ([], float("inf"))


def test_ranks_are_shown_and_many_tasks_need_several_messages() -> None:
    jobs = Jobs(printed={(task, 1): b"x" for task in range(100, 230)})
    showing = Showing(jobs, Ranks())
    showing.watch(watching((7, 1)), 0.0)
    assert rows(showing.say(0.0)) == [wire.Shown(7, 1, 3, 0, b"", 4, b"rank")]
    for start in (100, 164, 228):
        showing.watch(watching(*((task, 1) for task in range(start, min(230, start + 64)))), 1.0)
    said = showing.say(1.0)
    assert [len(message.rows) for message in said if isinstance(message, wire.OutputShown)] == [64, 64, 2]


def test_the_lines_of_a_running_task_are_in_its_log_and_are_followed(
    grid: LiveGrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "EVERY_S", 0.1)

    def task(folder: str) -> None:
        for number in range(3):
            print("line", number)
            print("more", number, file=sys.stderr)
            while not Path(folder, f"go{number}").exists():
                threading.Event().wait(0.01)
        print("last", end="")

    grid.worker("a")
    with Grid(grid.broker.ready.client_line) as program:
        bag = program.bag(task, [str(tmp_path)], runtime=30)
        expected = ("running", "a", "line 0\n", "more 0\n")
        assert eventually(lambda: ((log := bag.logs(0)).state, log.worker, log.stdout, log.stderr) == expected)
        pieces: list[LogPiece] = []
        thread = threading.Thread(target=lambda: pieces.extend(bag.follow(0)))
        thread.start()
        (tmp_path / "go0").touch()
        assert eventually(lambda: bag.logs(0).stdout == "line 0\nline 1\n")
        (tmp_path / "go1").touch()
        (tmp_path / "go2").touch()
        thread.join(60)
        assert not thread.is_alive()
    assert b"".join(piece.stdout for piece in pieces) == b"line 0\nline 1\nline 2\nlast"
    assert b"".join(piece.stderr for piece in pieces) == b"more 0\nmore 1\nmore 2\n"
    assert len(pieces) > 2
    assert pieces[-1].note.startswith("done on a after ")
