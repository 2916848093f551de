"""Every change of a task's state, in every test of the scheduler, is one that `NEXT` allows."""

from typing import Any

import pytest

from deskgrid.scheduler.model import NEXT, State
from deskgrid.scheduler.state import tasks


class WatchedStates(bytearray):
    """The states of the tasks of a batch. Raises AssertionError for a change that is not allowed."""

    def __setitem__(self, place: Any, value: Any) -> None:
        changes = zip(self[place], value, strict=True) if isinstance(place, slice) else ((self[place], value),)
        for before, after in set(changes):
            assert after in NEXT[State(before)], f"{State(before).name} became {State(after).name}"
        super().__setitem__(place, value)


@pytest.fixture(autouse=True)
def watched_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all task tables of a test watch the states of their tasks."""
    monkeypatch.setattr(tasks, "bytearray", WatchedStates, raising=False)
