"""What a task needs comes before it, and what it leaves reaches the broker before it has ended, whatever is cut."""

import itertools
import os
import pickle
import weakref
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.worker.files import downloads as downloads_module
from deskgrid.worker.files import task_folder
from deskgrid.worker.files import uploads as uploads_module
from deskgrid.worker.files.cache import FileCache
from deskgrid.worker.files.stage import FileStage
from deskgrid.worker.run.executor import RESULT_LIMIT
from deskgrid.worker.run.jobs import Job, JobEnded, PrintedOutput, Program
from deskgrid.worker.run.pool import Accounts
from deskgrid.worker.run.templates import UnpackedTemplate
from tests.files.fakes import InlineBackground, Store, content, digest, entry, parts_of
from tests.without_files import NoRanks, WithoutCheckpoints

BIG = os.urandom(3 * wire.PART_BYTES + 9)
PLAIN = UnpackedTemplate("", {})


class Processes(WithoutCheckpoints):
    """Runs nothing by itself; ``ran`` are the jobs that it was handed."""

    def __init__(self) -> None:
        self.templates: dict[str, UnpackedTemplate] = {"plain": PLAIN}
        self.ran: list[Job] = []
        self.ended: list[JobEnded] = []
        self.needed: Collection[str] = ()
        self.ranks = NoRanks()

    def know(self, digest: str, blob: bytes, needed: Collection[str] = ()) -> None:
        self.needed = needed

    def knows(self, digest: str) -> bool:
        return digest in self.templates

    def template(self, digest: str) -> UnpackedTemplate:
        return self.templates[digest]

    def start(self) -> None: ...

    def rest(self) -> None: ...

    def run(self, slot: int, jobs: Sequence[Job]) -> None:
        self.ran += jobs

    def end_idle(self, keep: Collection[str]) -> None: ...

    def shown(self, task: int, number: int, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        return None

    def uses(self, environment: str) -> bool:
        return any(job.environment == environment for job in self.ran)

    def poll(self, now: float) -> list[JobEnded]:
        ended, self.ended = self.ended, []
        return ended

    def running(self, now: float) -> list[tuple[int, int, int, float]]:
        return [(0, job.task, job.number, 1.0) for job in self.ran]

    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]:
        stopped: list[tuple[Job, float | None]] = [(job, 1.0) for job in self.ran]
        self.ran = []
        return stopped

    def end(self, task: int, payload: wire.Payload = b"done", outcome: wire.Outcome = wire.Outcome.DONE) -> None:
        self.ran = [job for job in self.ran if job.task != task]
        self.ended.append(JobEnded(0, task, 1, outcome, 2.5, payload, b"out", b"err"))


class Rig:
    """A stage, a broker's store, and the time."""

    def __init__(self, place: Path, accounts: Accounts | None = None) -> None:
        self.now = 0.0
        self.store, self.processes = Store(), Processes()
        self.area = place / "area"
        self.area.mkdir(exist_ok=True, parents=True)
        self.cache = FileCache(place / "cache", 10**9)
        self.stage = FileStage(self.processes, self.cache, self.area, lambda: None, accounts=accounts)
        self.background = InlineBackground()
        stage = self.stage
        for part in (stage, stage._downloads, stage._uploads, stage._inputs, stage._outputs):
            part._background = self.background  # type: ignore[assignment]
        self.ended: list[JobEnded] = []

    def say(self) -> list[wire.Message]:
        """Let what is due be done, and return what the worker says."""
        said: list[wire.Message] = []
        while True:
            self.ended += self.stage.poll(self.now)
            said += self.stage.say(self.now)
            if not self.background.busy:
                return said

    def go(self) -> None:
        """Talk with the broker until nobody has anything to say."""
        while said := self.say():
            for message in said:
                self.hear(self.store.answer(message))

    def hear(self, message: wire.Message) -> None:
        self.stage.hear(message, self.now)  # type: ignore[arg-type]

    def command(self, *outputs: str, inputs: dict[str, bytes] | None = None) -> None:
        trees = (self.store.add(inputs),) if inputs is not None else ()
        self.processes.templates["command"] = UnpackedTemplate(None, {}, trees, outputs)

    def run(self, task: int, template: str = "command", payload: wire.Payload = b"") -> None:
        self.stage.run(0, [self.job(task, template, payload)])

    @staticmethod
    def job(task: int, template: str = "command", payload: wire.Payload = b"", owner: str = "") -> Job:
        return Job(task, 1, template, payload, wire.TaskOptions(), program=Program(owner, ""))

    @property
    def ran(self) -> list[int]:
        return [job.task for job in self.processes.ran]

    def work(self, task: int) -> Path:
        return self.area / "in" / f"{task}.1" / "work"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.background.poll()


def failure(ended: JobEnded) -> wire.Failure:
    assert ended.outcome is wire.Outcome.ERROR
    return wire.read_failure(ended.payload)


def test_a_task_without_files_passes_through(rig: Rig) -> None:
    rig.run(0, "plain")
    assert rig.ran == [0]
    rig.processes.end(0)
    assert rig.say() == []
    assert [each.payload for each in rig.ended] == [b"done"]


def test_a_command_runs_when_its_folder_is_ready_and_a_second_one_sends_nothing(rig: Rig) -> None:
    files = {"data.csv": b"1,2", "model/big": BIG}
    rig.command(inputs=files)
    rig.run(0)
    assert rig.ran == []
    rig.go()
    assert rig.ran == [0]
    assert content(rig.work(0)) == files
    sent, rig.store.sent = rig.store.sent, []
    assert len(sent) == len(set(sent)) == 6
    rig.run(1)
    rig.go()
    assert rig.ran == [0, 1]
    assert rig.store.sent == []


def test_templates_are_needed_as_long_as_files_of_jobs_come_or_they_run(rig: Rig) -> None:
    def needed() -> set[str]:
        rig.stage.know("other", b"")
        return set(rig.processes.needed)

    rig.command("out", inputs={"data.csv": b"1,2"})
    rig.run(0)
    assert needed() == {"command"}
    rig.go()
    assert needed() == {"command"}
    rig.processes.end(0)
    rig.go()
    assert needed() == set()


def test_the_jobs_of_a_slot_stay_in_order(rig: Rig) -> None:
    tree = rig.store.add({"a": b"1"})
    rig.run(0, "plain", wire.wrap([tree], pickle.dumps(1)))
    rig.run(1, "plain")
    assert rig.ran == []
    rig.go()
    assert rig.ran == [0, 1]
    assert content(rig.area / "in" / "0.1" / "needs" / tree.hex()) == {"a": b"1"}


def test_only_a_few_parts_are_on_their_way_at_a_time(rig: Rig) -> None:
    rig.command(inputs={"big": BIG + os.urandom(4 * wire.PART_BYTES)})
    rig.run(0)
    (want,) = rig.say()
    rig.hear(rig.store.answer(want))
    assert len(rig.say()) == downloads_module.WINDOW_BYTES // wire.PART_BYTES
    assert rig.say() == []


def test_more_parts_are_on_their_way_if_they_are_small(rig: Rig) -> None:
    rig.command(inputs={str(number): str(number).encode() for number in range(100)})
    rig.run(0)
    (want,) = rig.say()
    rig.hear(rig.store.answer(want))
    assert len(rig.say()) == downloads_module.WINDOW
    rig.stage.reconnected()
    rig.go()
    assert rig.ran == [0]
    assert len(rig.store.sent) == 101


def test_a_cut_download_goes_on_where_it_stopped(rig: Rig) -> None:
    rig.command(inputs={"big": BIG})
    rig.run(0)
    for _ in range(3):
        for message in rig.say()[:2]:
            rig.hear(rig.store.answer(message))
    before = list(rig.store.sent)
    rig.stage.reconnected()
    rig.go()
    assert rig.ran == [0]
    assert len(before) >= 3
    assert len(rig.store.sent) == len(set(rig.store.sent)) == 5, "nothing that was written came again"


def test_a_worker_that_ended_leaves_what_its_successor_uses(rig: Rig, tmp_path: Path) -> None:
    rig.command(inputs={"big": BIG})
    rig.run(0)
    for _ in range(3):
        for message in rig.say()[:2]:
            rig.hear(rig.store.answer(message))
    rig.stage.poll(0.0)
    rig.stage.close()
    next_one = Rig(tmp_path)
    next_one.store = rig.store
    next_one.processes.templates = rig.processes.templates
    before, rig.store.sent = rig.store.sent, []
    next_one.run(0)
    next_one.go()
    assert next_one.ran == [0]
    assert not set(before) & set(rig.store.sent)


def test_parts_that_do_not_come_are_asked_for_again(rig: Rig) -> None:
    rig.command(inputs={"a": b"1"})
    rig.run(0)
    assert len(rig.say()) == 1
    rig.now += downloads_module.SILENCE_S - 0.1
    assert rig.say() == []
    rig.now += 0.2
    assert len(rig.say()) == 1
    rig.hear(wire.Part(99, "x", b"d" * 32, b"nobody asked for this"))
    rig.hear(wire.Failed(99, "nor for this"))


def test_two_tasks_wait_for_one_file_and_one_may_be_stopped(rig: Rig) -> None:
    rig.command(inputs={"big": BIG})
    rig.stage.run(0, [Job(0, 1, "command", b"", wire.TaskOptions())])
    rig.stage.run(1, [Job(1, 1, "command", b"", wire.TaskOptions())])
    for message in rig.say():
        rig.hear(rig.store.answer(message))
    said = rig.say()
    assert [job.task for job, elapsed in rig.stage.stop(0, 0.0) if elapsed is None] == [0]
    rig.store.refuses.add("0.1")
    for message in said:
        rig.hear(rig.store.answer(message))
    rig.go()
    assert rig.ran == [1]
    assert len(rig.store.sent) == len(set(rig.store.sent))


def test_a_file_that_another_worker_fetches_is_looked_for_now_and_then(rig: Rig, tmp_path: Path) -> None:
    rig.command(inputs={"big": BIG})
    partial = FileCache(tmp_path / "cache", 10**9).begin(entry("big", BIG))
    assert partial is not None
    rig.run(0)
    rig.go()
    assert rig.store.sent == [rig.processes.templates["command"].inputs[0]], "only the list of files"
    assert not rig.background.busy
    for number, part in enumerate(parts_of(BIG)):
        partial.write(number, part)
    partial.finish()
    rig.go()
    assert rig.ran == []
    rig.now += downloads_module.OTHERS_S
    rig.go()
    assert rig.ran == [0]
    assert len(rig.store.sent) == 1


def test_files_that_cannot_come_fail_their_task_only(rig: Rig) -> None:
    rig.processes.templates["command"] = UnpackedTemplate(None, {}, (digest(b"no such tree"),), ())
    rig.run(0)
    rig.run(1, "plain")
    rig.go()
    (ended,) = rig.ended
    assert failure(ended) == wire.Failure("FilesMissing", "it is not here")
    assert rig.ran == [1]


def test_the_largest_result_with_files_still_fits_into_a_message() -> None:
    result = wire.Chunks([memoryview(bytes(RESULT_LIMIT))])
    assert len(wire.wrap([digest(b"out"), digest(b"whole")], result)) <= wire.PAYLOAD_LIMIT


def test_a_payload_whose_trees_make_no_sense_fails_its_task(rig: Rig) -> None:
    rig.run(0, "plain", wire.MARK + b"\x09\x00\x01")
    rig.say()
    assert "makes no sense" in failure(rig.ended[0]).message


def test_a_full_disk_ends_the_attempt_with_the_reason(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    rig.command(inputs={"a": b"1"})
    monkeypatch.setattr(rig.cache, "begin", full)
    rig.run(0)
    rig.go()
    (ended,) = rig.ended
    assert ended.outcome is wire.Outcome.NO_ROOM, "another PC may have room"
    assert wire.read_failure(ended.payload).message == "the files cannot be kept on this PC: No space left on device"


def test_a_lying_broker_does_no_harm(rig: Rig) -> None:
    rig.command(inputs={"a": b"1"})
    rig.store.parts[digest(b"1")] = b"2"
    rig.run(0)
    rig.go()
    assert "damaged on its way" in failure(rig.ended[0]).message
    assert content(rig.area) == {}


# --- what a task leaves ----------------------------------------------------------------------------------------------


def test_a_task_has_ended_when_the_broker_has_its_files(rig: Rig) -> None:
    rig.command("out/*", inputs={"a": b"1"})
    rig.run(0)
    rig.go()
    (rig.work(0) / "out").mkdir()
    (rig.work(0) / "out" / "big").write_bytes(BIG)
    rig.processes.end(0)
    said = rig.say()
    assert rig.ended == []
    assert rig.stage.running(0.0) == [(0, 0, 1, 2.5)]
    for message in said:
        rig.hear(rig.store.answer(message))
    rig.go()
    (ended,) = rig.ended
    wrapped = wire.unwrap(ended.payload)
    assert wrapped.payload == b"done"
    assert rig.store.files(wrapped.trees[0]) == {"out/big": BIG}
    assert (ended.elapsed, ended.stdout, ended.stderr) == (2.5, b"out", b"err")
    rig.say()
    assert content(rig.area) == {}, "its folder is gone"


@pytest.mark.parametrize("how", ["cut", "silent"])
def test_a_cut_upload_goes_on_with_what_the_broker_lacks(rig: Rig, how: str) -> None:
    rig.command("*")
    rig.run(0)
    rig.go()
    (rig.work(0) / "big").write_bytes(BIG)
    rig.processes.end(0)
    while len(rig.store.kept) < 2:
        for message in rig.say():
            answer = rig.store.answer(message)
            if len(rig.store.kept) < 2:
                rig.hear(answer)  # the last confirmation is lost
    if how == "cut":
        rig.stage.reconnected()
    else:
        rig.say()
        rig.now += uploads_module.SILENCE_S + 0.1
    rig.go()
    assert len(rig.ended) == 1
    assert len(rig.store.kept) == len(set(rig.store.kept)) == len(parts_of(BIG)) + 1


def test_a_pattern_without_a_match_fails_the_task_and_its_output_is_kept(rig: Rig) -> None:
    rig.command("*.npz")
    rig.run(0)
    rig.go()
    (rig.work(0) / "log").touch()
    rig.processes.end(0)
    rig.go()
    assert failure(rig.ended[0]).message == "no file matches '*.npz'; the folder has: log"
    assert (rig.ended[0].stdout, rig.ended[0].elapsed) == (b"out", 2.5)


def test_a_task_that_failed_leaves_nothing(rig: Rig) -> None:
    rig.command("*.npz")
    rig.run(0)
    rig.go()
    rig.processes.end(0, b"account", wire.Outcome.CRASH)
    rig.go()
    assert [(each.outcome, each.payload) for each in rig.ended] == [(wire.Outcome.CRASH, b"account")]
    assert rig.store.offers == []
    assert content(rig.area) == {}
    assert not rig.work(0).exists()


def test_files_that_the_broker_refuses_fail_the_task(rig: Rig) -> None:
    rig.command("*")
    rig.run(0)
    rig.go()
    (rig.work(0) / "a").touch()
    rig.store.refuses.add("0.1")
    rig.processes.end(0)
    rig.go()
    assert failure(rig.ended[0]) == wire.Failure("OutputsRefused", "too much")


def said_of_a_file(rig: Rig) -> list[wire.Message]:
    """What is said first when a task has left the file ``a``."""
    rig.command("*")
    rig.run(0)
    rig.go()
    (rig.work(0) / "a").write_bytes(b"1")
    rig.processes.end(0)
    return rig.say()


def test_a_file_that_changes_while_it_is_sent_fails_the_task(rig: Rig) -> None:
    said = said_of_a_file(rig)
    (rig.work(0) / "a").write_bytes(b"2")
    for message in said:
        rig.hear(rig.store.answer(message))
    rig.go()
    assert failure(rig.ended[0]) == wire.Failure("OutputsRefused", "it changed")


def test_a_file_that_goes_while_it_is_sent_fails_the_task(rig: Rig) -> None:
    said = said_of_a_file(rig)
    (rig.work(0) / "a").unlink()
    for message in said:
        rig.hear(rig.store.answer(message))
    rig.go()
    assert "cannot be read any more" in failure(rig.ended[0]).message


def test_a_task_that_is_stopped_while_its_files_travel_is_handed_back(rig: Rig) -> None:
    rig.command("*")
    rig.run(0)
    rig.go()
    (rig.work(0) / "a").write_bytes(BIG)
    rig.processes.end(0)
    said = rig.say()
    assert [(job.task, elapsed) for job, elapsed in rig.stage.stop(0, 0.0)] == [(0, 2.5)]
    for message in said:
        rig.hear(rig.store.answer(message))
    rig.go()
    assert rig.ended == []
    assert content(rig.area) == {}


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_function_returned_travels_with_its_value(rig: Rig, whole: bool) -> None:
    room = rig.area / "left" / "0.1" / ("whole" if whole else "out")
    room.mkdir(parents=True)
    (room / "value").write_bytes(b"data")
    rig.run(0, "plain")
    rig.processes.end(0, wire.MARK + bytes([whole]) + b"\0\0" + b"pickle")
    rig.go()
    found = wire.unwrap(rig.ended[0].payload)
    assert (found.whole, found.payload) == (whole, b"pickle")
    assert rig.store.files(found.trees[0]) == {"value": b"data"}


def test_a_task_that_needs_too_many_names_fails_and_they_are_not_all_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_folder, "NAMES_LIMIT", 4)
    trees = [rig.store.add({f"{number}/a": b"1", "b": b"2"}) for number in range(9)]
    rig.run(0, "plain", wire.wrap(trees[:1], pickle.dumps(1)))
    rig.run(1, "plain", wire.wrap(trees, pickle.dumps(1)))
    rig.go()
    assert rig.ran == [0]
    read, reading = list[bytes](), rig.cache.tree
    rig.cache.tree = lambda digest: (read.append(digest), reading(digest))[1]  # type: ignore[method-assign,func-returns-value]
    rig.run(2, "plain", wire.wrap(trees, pickle.dumps(1)))
    rig.go()
    assert [failure(ended).message for ended in rig.ended] == ["the task needs more than 4 files and folders"] * 2
    assert len(read) < len(trees)


def test_a_tree_that_is_gone_when_its_files_are_unpacked_is_fetched_again(rig: Rig) -> None:
    tree = rig.store.add({"a": b"1"})
    rig.run(0, "plain", wire.wrap([tree], pickle.dumps(1)))
    asked, reading = itertools.count(1), rig.cache.tree
    # Not there; there when its files are looked for; gone when they are unpacked.
    rig.cache.tree = lambda digest: None if next(asked) == 3 else reading(digest)  # type: ignore[method-assign]
    rig.go()
    assert rig.ran == [0]
    assert next(asked) > 4


def test_the_trees_of_a_task_are_not_in_memory_together(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read when its turn comes, and then forgotten."""
    trees = [rig.store.add({f"{number}": b"1"}) for number in range(5)]
    alive = weakref.WeakSet[object]()
    most, read_tree = 0, wire.read_tree

    class Watched(wire.Tree):
        pass

    def watched(data: bytes) -> wire.Tree:
        nonlocal most
        found = read_tree(data)
        made = Watched(found.entries, found.folders)
        alive.add(made)
        most = max(most, len(alive))
        return made

    monkeypatch.setattr(wire, "read_tree", watched)
    rig.run(0, "plain", wire.wrap(trees, pickle.dumps(1)))
    rig.go()
    assert rig.ran == [0]
    assert most <= 2
