"""What the tasks of a bag print is followed without a gap that is not told, and without saying anything twice."""

from collections.abc import Iterator
from typing import Any

import pytest

from deskgrid.client import following
from deskgrid.client.following import Following
from deskgrid.client.logs import RankLog, TaskLog


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "EVERY_S", 0.01)


def row(stdout: str, end: int, *, item: int = 0, attempt: int = 1, rank: int | None = None) -> dict[str, Any]:
    printed = {"stdout": stdout, "stdout_bytes": end, "stderr": "", "stderr_bytes": 0}
    return {"item": item, "attempt": attempt, "rank": rank, "worker": "pc", **printed}


class Script:
    """Answers of a broker, one after another; and the log of each task at its end."""

    def __init__(self, *rows: list[dict[str, Any]], log: TaskLog, ended: int = 0) -> None:
        self._answers: Iterator[list[dict[str, Any]]] = iter(rows)
        self._left = len(rows)
        self._ended = ended
        self.log = log
        self.asked: list[dict[str, Any]] = []

    def ask(self, what: str, **args: Any) -> dict[str, Any]:
        self.asked.append({"what": what, **args})
        if what == "output":
            over = self._left == 0 and args["after"] is None
            return {
                "output": [{"item": item} for item in range(self._ended)] if over else [],
                "after": 5 if over else None,
            }
        self._left -= 1
        rows = next(self._answers, [])
        over = self._left <= 0
        return {"printed": rows, "after": len(self.asked), "states": ["done" if over else "sent"], "complete": over}


def said(script: Script) -> list[tuple[bytes, int, str]]:
    pieces = list(Following(script.ask, lambda item: script.log).task(0))
    return [(piece.stdout, piece.missed, piece.note) for piece in pieces]


DONE = (b"", 0, "done on pc after 2 s")


def test_what_comes_twice_is_said_once_and_the_rest_at_the_end() -> None:
    log = TaskLog("done", "pc", 2.0, "one two three four", "", None)
    script = Script([row("one ", 4)], [row("one two ", 8)], [row("three ", 14)], log=log)
    assert said(script) == [(b"one ", 0, ""), (b"two ", 0, ""), (b"three ", 0, ""), (b"four", 0, ""), DONE]
    assert [asked["after"] for asked in script.asked] == [None, 1, 2]


def test_it_is_told_how_much_was_left_out() -> None:
    log = TaskLog("done", "pc", 2.0, "head\n[... 90 bytes cut ...]\ntail", "", None)
    assert said(Script([row("head", 4)], [row("x", 60)], [], log=log)) == [
        (b"head", 0, ""),
        (b"x", 55, ""),
        (b"tail", 34, ""),
        DONE,
    ]
    assert said(Script([], log=log)) == [(b"headtail", 90, ""), DONE]
    assert said(Script([row("il", 98)], log=log))[1:] == [DONE]


def test_another_attempt_begins_anew_and_an_error_is_told() -> None:
    log = TaskLog("error", "pc", 2.0, "again", "", "ValueError: 7")
    script = Script([row("first", 5)], [row("aga", 3, attempt=2)], log=log)
    assert said(script) == [
        (b"first", 0, ""),
        (b"aga", 0, ""),
        (b"in", 0, ""),
        (b"", 0, "error on pc after 2 s\nValueError: 7"),
    ]


def test_bytes_that_are_no_text_come_as_they_are() -> None:
    log = TaskLog("done", "pc", 2.0, "caf\udce9", "", None)
    assert said(Script([row("caf\udce9", 4)], log=log)) == [(b"caf\xe9", 0, ""), DONE]


def test_each_rank_has_its_own() -> None:
    ranks = tuple(RankLog(rank, f"pc{rank}", "done", 1.0, f"r{rank} end", "") for rank in (0, 1))
    log = TaskLog("done", "pc0", 2.0, "r0 end", "", None, 0, ranks)
    script = Script([row("r1 ", 3, rank=1)], log=log)
    pieces = list(Following(script.ask, lambda item: script.log).task(0))
    assert [(piece.rank, piece.stdout) for piece in pieces] == [(1, b"r1 "), (0, b"r0 end"), (1, b"end"), (None, b"")]


def test_of_a_bag_the_tasks_that_end_are_told_and_then_it_is_over() -> None:
    log = TaskLog("done", "pc", 2.0, "whole", "", None)
    script = Script([row("who", 3, item=1)], [], log=log, ended=2)
    pieces = list(Following(script.ask, lambda item: script.log).bag())
    assert [(piece.item, piece.stdout) for piece in pieces] == [
        (1, b"who"),
        (0, b"whole"),
        (0, b""),
        (1, b"le"),
        (1, b""),
    ]
