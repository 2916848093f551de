"""What a worker gives to the processes of its slots, and when."""

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.worker.run.checkpoint_files import CheckpointFiles
from deskgrid.worker.run.jobs import Job, JobEnded, NoRoomError, TemplateError
from deskgrid.worker.session import Identity, Session
from deskgrid.worker.templates import Templates
from deskgrid.worker.windows.uptime import Instant, OpenEnded
from deskgrid.worker.work import SlotWork
from tests.without_files import WithoutCheckpoints, WithoutFiles

DIGEST = "0" * 64


class Processes(WithoutCheckpoints, WithoutFiles):
    """An executor that notes what it is given, and ends what it is told to. ``trouble``: why it learns no template."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []
        self.ends: list[int] = []
        self.outcome = wire.Outcome.DONE
        self.trouble: TemplateError | None = None
        self.unknown: set[str] = set()

    def know(self, digest: str, blob: bytes, needed: Collection[str] = ()) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.unknown.discard(digest)

    def knows(self, digest: str) -> bool:
        return digest not in self.unknown

    def start(self) -> None: ...

    def rest(self) -> None: ...

    def run(self, slot: int, jobs: Sequence[Job]) -> None:
        self.given.append([job.task for job in jobs])

    def poll(self, now: float) -> list[JobEnded]:
        ended, self.ends = self.ends, []
        return [JobEnded(0, task, task, self.outcome, 0.05, b"", b"", b"") for task in ended]

    def running(self, now: float) -> list[tuple[int, int, int, float]]:
        return []

    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]:
        return []


def fed(work: list[tuple[str, float]], *ends: list[int], memory: Sequence[int] = ()) -> list[list[list[int]]]:
    """Which tasks a process is given, of ``work`` (template, runtime) for one slot, and then as these end.

    ``memory``: what each asks for; nothing if it is empty.
    """
    processes, now = Processes(), Instant(0.0, 0.0)
    session = Session(Identity("pc", "session", "host", "", ("3.11",), 1), OpenEnded(), processes, follows_broker=False)
    session.tick(now)
    rows = [
        wire.Work(task, task, 0, template, runtime, wire.TaskOptions(memory=memory[task] if memory else 0), 0, b"")
        for task, (template, runtime) in enumerate(work)
    ]
    session.receive(wire.Assign(1, 0.0, tuple(rows)), now)
    found = []
    for some in ([], *ends):
        processes.ends = some
        session.tick(now)
        found.append(processes.given)
        processes.given = []
    return found


def test_a_process_gets_more_while_it_does_its_last_task_and_not_before() -> None:
    assert fed([("a", 0.04)] * 5, [0], [1], [2, 3], [4]) == [[[0, 1]], [[2, 3]], [], [[4]], []]


def test_what_takes_longer_is_given_one_ahead() -> None:
    assert fed([("a", 0.2)] * 3, [0], [1]) == [[[0], [1]], [[2]], []]


def test_tasks_of_another_template_wait_until_it_has_none() -> None:
    assert fed([("a", 0.04), ("b", 0.04)], [0]) == [[[0]], [[1]]]


def test_tasks_that_ask_for_other_memory_wait_until_it_has_none() -> None:
    assert fed([("a", 0.04)] * 3, [0, 1], memory=[5, 5, 7]) == [[[0, 1]], [[2]]]


def test_when_no_process_starts_what_needs_another_like_it_goes_back_and_the_rest_is_done() -> None:
    processes, now = Processes(), Instant(0.0, 0.0)
    session = Session(Identity("pc", "session", "host", "", ("3.11",), 1), OpenEnded(), processes, follows_broker=False)
    session.tick(now)
    owners = ["ann", "ann", "ben", "ann"]
    rows = [
        wire.Work(task, task, 0, "a", 1.0, wire.TaskOptions(), 0, b"", owner=owner) for task, owner in enumerate(owners)
    ]
    session.receive(wire.Assign(1, 0.0, tuple(rows)), now)
    session.tick(now)
    assert processes.given == [[0], [1]]
    processes.ends, processes.outcome = [0, 1], wire.Outcome.NO_START
    said = session.tick(now)
    assert [message.attempts for message in said if isinstance(message, wire.Returned)] == [(wire.Ref(3, 3),)]
    assert processes.given == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("trouble", "outcome", "is_tried_again"),
    [
        (NoRoomError("no space left"), wire.Outcome.NO_ROOM, True),
        (TemplateError("garbage"), wire.Outcome.ERROR, False),
    ],
)
def test_a_bag_is_not_blamed_for_a_full_disk(
    trouble: TemplateError, outcome: wire.Outcome, is_tried_again: bool
) -> None:
    processes, now = Processes(), Instant(0.0, 0.0)
    processes.trouble, processes.unknown = trouble, {DIGEST}
    session = Session(Identity("pc", "session", "host", "", ("3.11",), 1), OpenEnded(), processes, follows_broker=False)
    session.tick(now)

    def answer(task: int, *more: wire.Message) -> list[wire.Message]:
        work = wire.Work(task, task, 0, DIGEST, 1.0, wire.TaskOptions(), 0, b"")
        for message in (wire.Assign(1, 0.0, (work,)), *more):
            session.receive(message, now)
        return session.tick(now)

    blob = wire.Blob(DIGEST, b"")
    (finished,) = answer(0, blob)
    assert isinstance(finished, wire.Finished)
    assert [result.outcome for result in finished.results] == [outcome]
    processes.trouble = None
    asked = answer(1)
    assert (asked == [wire.Fetch(DIGEST)]) is is_tried_again
    session.receive(blob, now)
    session.tick(now)
    assert processes.given == ([[1]] if is_tried_again else [])


def test_a_checkpoint_that_finds_no_room_is_fetched_once_and_its_task_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()  # a folder below it cannot be made
    monkeypatch.setattr(Processes, "checkpoints", CheckpointFiles(tmp_path / "file" / "checkpoints"))
    now = Instant(0.0, 0.0)
    session = Session(
        Identity("pc", "session", "host", "", ("3.11",), 1), OpenEnded(), Processes(), follows_broker=False
    )
    session.tick(now)
    work = wire.Work(7, 8, 0, DIGEST, 1.0, wire.TaskOptions(checkpoint=True), 5, b"")
    session.receive(wire.Assign(1, 0.0, (work,)), now)
    assert session.tick(now) == [wire.Resume(7, 8, 5, 0)]
    session.receive(wire.Checkpoint(7, 8, 5, 0, 5, b"state"), now)
    (finished,) = session.tick(now)
    assert isinstance(finished, wire.Finished)
    assert [(row.task, row.number, row.outcome) for row in finished.results] == [(7, 8, wire.Outcome.NO_ROOM)]
    session.receive(wire.Taken((wire.Ref(7, 8),)), now)
    session.receive(wire.Assign(1, 0.0, (work._replace(number=9),)), now)
    assert session.tick(now) == [wire.Resume(7, 9, 5, 0)]


@pytest.mark.parametrize("end", ["stop", "recall", "take all back"])
def test_a_checkpoint_that_was_partly_fetched_is_removed_if_its_task_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(Processes, "checkpoints", CheckpointFiles(tmp_path / "checkpoints"))
    processes, out = Processes(), list[wire.Message]()
    slots = SlotWork("pc", 1, processes, Templates(processes), out)
    options = wire.TaskOptions(checkpoint=True)
    slots.assign(wire.Assign(1, 0.0, (wire.Work(7, 8, 0, DIGEST, 1.0, options, 5, b""),)))
    slots.feed(0.0)
    slots.receive(wire.Checkpoint(7, 8, 5, 0, 5, b"sta"), 0.0)
    assert out == [wire.Resume(7, 8, 5, 0), wire.Resume(7, 8, 5, 3)]
    if end == "stop":
        slots.stop(wire.Stop((wire.Ref(7, 8),)), 0.0)
    elif end == "recall":
        slots.receive(wire.Recall((wire.Ref(7, 8),)), 0.0)
    else:
        assert len(list(slots.take_all_back(0.0))) == 1
    slots.receive(wire.Checkpoint(7, 8, 5, 3, 5, b"te"), 0.0)  # it was on its way
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_template_that_was_forgotten_is_asked_for_again() -> None:
    processes, now = Processes(), Instant(0.0, 0.0)
    session = Session(Identity("pc", "session", "host", "", ("3.11",), 1), OpenEnded(), processes, follows_broker=False)
    session.tick(now)
    for task in range(2):
        processes.unknown = {DIGEST}
        session.receive(wire.Assign(1, 0.0, (wire.Work(task, task, 0, DIGEST, 1.0, wire.TaskOptions(), 0, b""),)), now)
        assert session.tick(now)[-1] == wire.Fetch(DIGEST)
        session.receive(wire.Blob(DIGEST, b""), now)
        processes.ends = [task]
        session.tick(now)
    assert processes.given == [[0], [1]]
