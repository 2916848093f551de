"""What a submitter says of checkpoints, and what is refused before anything is sent."""

import sys
from pathlib import PurePosixPath
from typing import Any

import pytest

from deskgrid import task, wire
from deskgrid.client.template import checked_saving, command_template
from deskgrid.errors import BagRejected


def test_a_task_may_be_checkpointable_by_itself() -> None:
    made = task(print, checkpoint=True, min_piece=30)
    assert made.options == wire.TaskOptions(checkpoint=True, min_piece=30.0)
    assert task(print).options == wire.TaskOptions(min_piece=60.0)


@pytest.mark.parametrize("wrong", [{"checkpoint": "yes"}, {"checkpoint": 1}, {"min_piece": -1}, {"min_piece": "long"}])
def test_options_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BagRejected):
        task(print, **wrong)


def test_a_least_piece_of_a_task_without_checkpoints_is_refused() -> None:
    with pytest.raises(BagRejected, match="min_piece is for tasks that save checkpoints: give checkpoint, too"):
        task(print, min_piece=30)


def test_a_task_has_checkpoints_or_copies_and_it_is_said_why() -> None:
    why = "two attempts would each save their own state, but the task can continue from only one of them"
    with pytest.raises(BagRejected, match=f"a bag cannot have both checkpoint and copies: {why}; leave out checkpoint"):
        task(print, checkpoint=True, copies=True)


def test_a_command_says_how_it_saves() -> None:
    made = wire.read_template(command_template(["run"], saving=checked_saving(["state/*", "log/"], "SIGTERM", 9)).data)
    expected = {"kind": "command", "argv": ["run"], "checkpoint": ["state/*", "log"], "signal": "TERM", "exit": 9}
    assert made == expected
    assert wire.read_template(command_template(["run"]).data) == {"kind": "command", "argv": ["run"]}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"patterns": "state/*"}, "checkpoint is a list of texts"),
        ({"patterns": [PurePosixPath("state")]}, "checkpoint is a list of texts"),
        ({"patterns": ["../state"]}, "is not a pattern for files in the folder"),
        ({"patterns": ["/state"]}, "is not a pattern for files in the folder"),
        ({"patterns": [""]}, "is not a pattern for files in the folder"),
        ({"patterns": ["a\\b"]}, "is not a pattern for files in the folder"),
        ({"patterns": ["state"], "signal": "usr1"}, "signal"),
        pytest.param(
            {"patterns": ["state"], "signal": "FOO"},
            "there is no signal FOO",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="it does not know the signals of other PCs"),
        ),
        ({"patterns": ["state"], "signal": ""}, "signal"),
        ({"patterns": ["state"], "signal": "SIGKILL"}, "no program can handle the signal KILL"),
        ({"patterns": ["state"], "exit_code": 0}, "checkpoint_exit is "),
        ({"patterns": ["state"], "exit_code": 256}, "checkpoint_exit is "),
    ],
)
def test_a_command_that_cannot_save_so_is_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(BagRejected, match=reason):
        checked_saving(**wrong)
