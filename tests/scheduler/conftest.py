"""Every change of the state of a task or an attempt, in every test of the scheduler, is one that the tables allow."""

from typing import Any

import pytest

from deskgrid.scheduler.model import NEXT, NEXT_OF_ATTEMPT, AttemptState, State
from deskgrid.scheduler.state import tasks
from deskgrid.scheduler.state.slots import LiveAttempt


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


class WatchedState:
    """The state of an attempt. Raises AssertionError for a change that is not allowed."""

    def __init__(self, stored: Any) -> None:
        self._stored = stored

    def __get__(self, live: LiveAttempt, owner: type) -> AttemptState:
        state: AttemptState = self._stored.__get__(live, owner)
        return state

    def __set__(self, live: LiveAttempt, after: AttemptState) -> None:
        before = getattr(live, "state", None)
        assert before is None or after in NEXT_OF_ATTEMPT[before], f"{before!r} of {live.attempt} became {after!r}"
        self._stored.__set__(live, after)


@pytest.fixture(autouse=True)
def watched_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch the states of all attempts of a test."""
    monkeypatch.setattr(LiveAttempt, "state", WatchedState(LiveAttempt.__dict__["state"]))
