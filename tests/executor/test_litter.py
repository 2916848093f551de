"""What an attempt leaves in memory and in its folder for temporary files is gone when it has ended, by whatever end."""

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from deskgrid.wire import Outcome
from deskgrid.worker.run.folders import remove_abandoned
from deskgrid.worker.run.shared import noted
from tests.executor.rig import Rig, call, python_template, value
from tests.live import ROOT
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this folder")

SHM = Path("/dev/shm")


@pytest.fixture
def name() -> Iterator[str]:
    """A name that nobody else uses."""
    found = f"deskgrid-test-{os.getpid()}-{time.monotonic_ns()}"
    yield found
    for path in SHM.glob(f"{found}*"):
        path.unlink(missing_ok=True)


def gone(path: Path) -> bool:
    return eventually(lambda: not path.exists())


def making() -> bytes:
    def task(name: str, ending: str) -> None:
        import os
        import time
        from multiprocessing.shared_memory import SharedMemory

        kept.append(SharedMemory(name, create=True, size=100))
        if ending == "crash":
            os.kill(os.getpid(), 9)
        if ending == "hang":
            time.sleep(1000)

    kept: list[SharedMemory] = []
    return python_template(task)


def test_shared_memory_of_a_task_that_crashed_is_gone(rig: Rig, name: str) -> None:
    (ended,) = rig.run(rig.know(making()), call(name, "crash"))
    assert ended.outcome is Outcome.CRASH
    assert gone(SHM / name)


def test_shared_memory_of_a_task_that_took_too_long_is_gone(rig: Rig, name: str) -> None:
    (job,) = rig.jobs(rig.know(making()), call(name, "hang"), timeout=1.0)
    rig.executor.run(0, [job])
    (ended,) = rig.until(1)
    assert ended.outcome is Outcome.TIMEOUT
    assert gone(SHM / name)


def test_shared_memory_of_a_task_that_was_cancelled_is_gone(rig: Rig, name: str) -> None:
    rig.executor.run(0, rig.jobs(rig.know(making()), call(name, "hang")))

    def polled() -> bool:
        rig.poll()
        return (SHM / name).exists()

    assert eventually(polled)
    rig.executor.stop(0, time.monotonic())
    assert gone(SHM / name)


def test_shared_memory_of_a_task_that_is_done_is_gone_though_its_process_lives(rig: Rig, name: str) -> None:
    def task(name: str) -> int:
        import os
        from multiprocessing import resource_tracker
        from multiprocessing.shared_memory import SharedMemory

        memory = SharedMemory(name, create=True, size=100)
        resource_tracker.unregister(f"/{name}", "shared_memory")  # as track=False
        memory.close()
        return os.getpid()

    digest = rig.know(python_template(task))
    first = value(rig.run(digest, call(name))[0])
    assert gone(SHM / name)
    assert value(rig.run(digest, call(name))[0]) == first
    assert gone(SHM / name)


def test_semaphores_of_a_task_that_crashed_are_gone(rig: Rig, tmp_path: Path) -> None:
    def task(notes: str) -> None:
        import multiprocessing
        import os
        import pathlib

        lock = multiprocessing.get_context("spawn").Lock()
        pathlib.Path(notes).write_text(lock._semlock.name)  # type: ignore[attr-defined]
        os.kill(os.getpid(), 9)

    (ended,) = rig.run(rig.know(python_template(task)), call(str(tmp_path / "name")))
    assert ended.outcome is Outcome.CRASH
    made = (tmp_path / "name").read_text()
    assert gone(SHM / f"sem.{made.lstrip('/')}")


def test_shared_memory_that_a_copy_of_the_process_has_made_is_gone(rig: Rig, name: str) -> None:
    def task(name: str, crash: bool) -> None:
        import os
        from multiprocessing import resource_tracker
        from multiprocessing.shared_memory import SharedMemory

        pid = os.fork()
        if not pid:
            SharedMemory(name, create=True, size=100)
            resource_tracker.unregister(f"/{name}", "shared_memory")
            os._exit(0)
        os.waitpid(pid, 0)
        if crash:
            os.kill(os.getpid(), 9)

    digest = rig.know(python_template(task))
    (ended,) = rig.run(digest, call(name, False))
    assert ended.outcome is Outcome.DONE
    assert gone(SHM / name)
    (ended,) = rig.run(digest, call(name, True))
    assert ended.outcome is Outcome.CRASH
    assert gone(SHM / name)


def _maps() -> bytes:
    def task(path: str) -> None:
        import mmap
        import time

        with open(path, "a+b") as file:
            file.truncate(100)
            kept = mmap.mmap(file.fileno(), 100)
        kept[0] = 1
        time.sleep(1000)

    return python_template(task)


def killed_while_it_maps(rig: Rig, path: Path) -> None:
    (job,) = rig.jobs(rig.know(_maps()), call(str(path)), timeout=1.0)
    rig.executor.run(0, [job])
    assert [ended.outcome for ended in rig.until(1)] == [Outcome.TIMEOUT]


def test_a_file_in_memory_that_a_killed_task_had_mapped_is_gone(rig: Rig, name: str) -> None:
    rig.executor.start()
    killed_while_it_maps(rig, SHM / name)
    assert gone(SHM / name)


def test_a_file_that_was_there_before_the_process_stays_though_a_killed_task_had_mapped_it(rig: Rig, name: str) -> None:
    (SHM / name).write_bytes(bytes(100))
    killed_while_it_maps(rig, SHM / name)
    assert eventually(lambda: rig.poll() is not None and not rig.executor.processes)
    assert (SHM / name).exists()


def test_a_file_in_memory_that_somebody_else_has_mapped_stays(rig: Rig, name: str) -> None:
    rig.executor.start()
    assert eventually(lambda: rig.poll() is not None and any(each.ready for each in rig.executor.processes))
    (SHM / name).write_bytes(bytes(100))
    with (SHM / name).open("r+b") as file, mmap.mmap(file.fileno(), 100):
        killed_while_it_maps(rig, SHM / name)
        assert eventually(lambda: rig.poll() is not None and not rig.executor.processes)
        assert (SHM / name).exists()


def test_what_another_program_has_made_under_the_same_name_stays(rig: Rig, name: str, tmp_path: Path) -> None:
    def task(name: str, gate: str) -> None:
        import os
        import time
        from multiprocessing import resource_tracker
        from multiprocessing.shared_memory import SharedMemory

        memory = SharedMemory(name, create=True, size=100)
        resource_tracker.unregister(f"/{name}", "shared_memory")
        memory.close()
        open(f"{gate}.made", "w").close()
        while not os.path.exists(gate):
            time.sleep(0.01)
        os.kill(os.getpid(), 9)

    rig.executor.run(0, rig.jobs(rig.know(python_template(task)), call(name, str(tmp_path / "gate"))))
    assert eventually(lambda: rig.poll() is not None and (tmp_path / "gate.made").exists())
    (SHM / name).unlink()
    (SHM / name).write_bytes(b"the owner's")
    (tmp_path / "gate").touch()
    (ended,) = rig.until(1)
    assert ended.outcome is Outcome.CRASH
    assert (SHM / name).read_bytes() == b"the owner's"


WORKER = """
import sys, time
from deskgrid.wire import TaskOptions
from deskgrid.worker.run.executor import Executor
from deskgrid.worker.run.jobs import Job
from tests.executor.rig import call, python_template

def task(closed, mapped, made):
    import time
    from multiprocessing.shared_memory import SharedMemory
    SharedMemory(closed, create=True, size=100).close()
    kept = SharedMemory(mapped, create=True, size=100)
    open(made, "w").close()
    time.sleep(1000)

executor = Executor(1, "pc", lambda: None)
executor.know("d" * 64, python_template(task))
executor.run(0, [Job(1, 1, "d" * 64, call(*sys.argv[1:]), TaskOptions())])
while True:
    executor.poll(time.monotonic())
    time.sleep(0.01)
"""


def test_shared_memory_of_tasks_is_gone_when_their_worker_was_killed_and_the_next_one_starts(
    name: str, tmp_path: Path
) -> None:
    closed, mapped, made, place = SHM / name, SHM / f"{name}-mapped", tmp_path / "made", tmp_path / "place"
    place.mkdir()
    environment = os.environ | {"TMPDIR": str(place)}
    argv = [sys.executable, "-c", WORKER, closed.name, mapped.name, str(made)]
    with subprocess.Popen(argv, cwd=ROOT, env=environment) as process:
        try:
            assert eventually(made.exists)
            assert closed.exists()
            assert mapped.exists()
        finally:
            process.kill()
    remove_abandoned(place)
    assert not closed.exists()
    assert not mapped.exists()
    assert list(place.iterdir()) == []


def test_names_in_memory_of_a_killed_task_cost_no_other_task_however_many_and_odd_they_are(
    rigs: Callable[..., Rig], name: str, tmp_path: Path
) -> None:
    def waits(gate: str) -> int:
        import os
        import time

        while not os.path.exists(gate):
            time.sleep(0.01)
        return os.getpid()

    def opens(name: str, gate: str) -> None:
        import os
        import time
        from pathlib import Path

        for number in range(400):
            os.open(f"/dev/shm/{name}-{number}-".encode() + b"\xff" * 200, os.O_CREAT)
        Path(gate).touch()
        time.sleep(1000)

    rig, began, gate = rigs(2), tmp_path / "began", tmp_path / "gate"
    rig.executor.start()
    rig.executor.run(1, rig.jobs(rig.know(python_template(waits)), call(str(gate))))
    rig.executor.run(0, rig.jobs(rig.know(python_template(opens)), call(name, str(began))))
    assert eventually(lambda: rig.poll() is not None and began.exists())
    rig.executor.stop(0, time.monotonic())
    assert eventually(lambda: rig.poll() is not None and not list(SHM.glob(f"{name}*")))
    gate.touch()
    assert [ended.outcome for ended in rig.until(1)] == [Outcome.DONE]


@pytest.mark.parametrize("made", ["a file without an end", "a pipe", "a link"])
def test_what_a_task_makes_of_the_notes_about_memory_costs_the_worker_nothing(made: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    if made == "a pipe":
        os.mkfifo(notes)
    elif made == "a link":
        notes.symlink_to("/dev/zero")
    else:
        notes.touch()
        os.truncate(notes, 2**40)
    assert list(noted(str(notes))) == []


def test_temporary_files_of_a_killed_task_are_gone(rig: Rig) -> None:
    def task() -> None:
        import os
        import tempfile

        folder = tempfile.mkdtemp()
        os.mkdir(f"{folder}/closed", mode=0)
        os.kill(os.getpid(), 9)

    def temporary() -> list[Path]:
        return [path for path in rig.executor.folder.path.glob("*.tmp") if list(path.iterdir())]

    (ended,) = rig.run(rig.know(python_template(task)), call())
    assert ended.outcome is Outcome.CRASH
    assert eventually(lambda: not temporary())
