"""Stand-ins for the grid and for a terminal's user."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deskgrid.cli.front import main
from deskgrid.client.eta import Eta
from deskgrid.client.following import LogPiece
from deskgrid.client.logs import TaskLog
from deskgrid.client.progress import Progress
from deskgrid.client.whatif import Advice, Change
from deskgrid.errors import DeskgridError, GridUnreachable, RequestFailed
from tests.screen.builders import BAG

# What stands for the admin's join line of this machine.
ADMIN = "this machine's admin"
LOG = TaskLog("done", "lab3-01", 4.2, "out\n", "err\n", None)


@dataclass
class FakeBag:
    """A bag whose tasks ended as ``ended`` says: (index, result or exception), in the order of ending."""

    ended: Sequence[tuple[int, object]] = ()
    id: str = BAG
    note: str = ""
    kind: str = "python"
    in_time: bool = True
    logged: dict[int, TaskLog] = field(default_factory=dict)
    forgotten: bool = False
    paused: bool | None = None
    advice: Advice | None = None
    pieces: Sequence[LogPiece] = ()
    interrupted: bool = False
    told: Eta = field(default_factory=lambda: Eta(90.0, 60.0, 150.0))

    def __len__(self) -> int:
        return max(1, len(self.ended)) if self.id else 0

    def as_completed(self, *, errors: str) -> Iterator[tuple[int, object]]:
        assert errors == "return"
        return iter(self.ended)

    def wait(self, timeout: float | None) -> bool:
        return self.in_time

    def progress(self) -> Progress:
        failed = sum(isinstance(value, Exception) for _, value in self.ended)
        done = len(self.ended) - failed
        return Progress(
            total=len(self.ended), done=done, failed=failed, cancelled=0, running=0, waiting=0, eta_s=None, left_s=0.0
        )

    def eta(self) -> Eta:
        return self.told

    def follow(self, item: int | None) -> Iterator[LogPiece]:
        yield from self.pieces
        if self.interrupted:
            raise KeyboardInterrupt

    def logs(self, item: int) -> TaskLog:
        return self.logged.get(item, LOG)

    def fetch(self, to: Path, item: int | None) -> list[Path]:
        value = None if item is None else dict(self.ended)[item]
        if isinstance(value, Exception):
            raise value
        done = [number for number, value in self.ended if not isinstance(value, Exception)]
        return [to / str(number) / "out" for number in done] if item is None else [to / "out"]

    def explain(self, item: int | None) -> str:
        return f"task {item} waits"

    def advise(self, seconds: float = 0.0) -> Advice:
        if self.advice is None:
            raise GridUnreachable("no answer")
        return self.advice

    def cancel(self) -> int:
        return 1234

    def forget(self) -> None:
        self.forgotten = True

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


def warned(bag: FakeBag) -> FakeBag:
    """Log the note of a bag, as `Grid.attach` does."""
    if bag.note:
        logging.getLogger("deskgrid.client").warning("bag %s: %s", bag.id, bag.note)
    return bag


class FakeGrid:
    """A grid with one bag. ``submitted``: the arguments of `command`; ``policies``: those of `policy`."""

    def __init__(self, bag: FakeBag | None = None, error: DeskgridError | None = None) -> None:
        self.bag = FakeBag() if bag is None else bag
        self.error = error
        self.joins: list[str | None] = []
        self.submitted: dict[str, Any] = {}
        self.policies: list[tuple[str, dict[str, object]]] = []
        self.snapshot: dict[str, Any] = {}
        self.rows: list[Any] = []
        self.forgot_learned = False
        self.imagined: dict[str, Any] = {}

    def __call__(self, join: str | None = None) -> "FakeGrid":
        self.joins.append(join)
        if self.error is not None:
            raise self.error
        return self

    def __enter__(self) -> "FakeGrid":
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def command(self, argv: list[str], items: Iterable[str], **terms: object) -> FakeBag:
        self.submitted = {"argv": argv, "items": list(items), **terms}
        return self.bag

    def attach(self, bag_id: str) -> FakeBag:
        if bag_id != self.bag.id:
            raise RequestFailed(f"no bag {bag_id}")
        return warned(self.bag)

    def status(self) -> dict[str, Any]:
        return self.snapshot

    def shares(self) -> list[dict[str, Any]]:
        times = {"used_s": 4200.0, "promised_s": 0.0}
        return [{"share": "ann", "weight": 2.0, "keys": ["ann", "ann-laptop"], **times, "running": 3, "waits": True}]

    def bags(self, *, mine: bool = False) -> list[Any]:
        return self.rows

    def whatif(self, bag: str | None, changes: Sequence[Change], **terms: object) -> list[Eta]:
        self.imagined = {"bag": bag, "changes": list(changes), **terms}
        later = [Eta(3600.0 * n, 1800.0 * n, 7200.0 * n) for n in range(3, 3 + len(changes))]
        return [Eta(7200.0, 3600.0, None), *later]

    def policy(self, name: str, **options: object) -> None:
        self.policies.append((name, options))

    def forget_learned(self) -> None:
        self.forgot_learned = True


def deskgrid(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, list(arguments), input=stdin)


def use(monkeypatch: pytest.MonkeyPatch, grid: FakeGrid) -> FakeGrid:
    """Have the command line find ``grid``, and nothing of this machine."""
    monkeypatch.delenv("DESKGRID_JOIN", raising=False)
    monkeypatch.setattr("deskgrid.client.grid.Grid", grid)
    monkeypatch.setattr("deskgrid.client.discovery.admin_line", lambda join: join or ADMIN)
    return grid
