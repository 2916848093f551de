"""The executor's slots: what runs, until when, and how their processes come and go."""

import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest

from deskgrid.wire import PRINTED_BYTES, Outcome, TaskOptions
from deskgrid.worker.environments.site import EnvironmentSite
from deskgrid.worker.run import nursery as nursery_module
from deskgrid.worker.run.child import LONG_S
from deskgrid.worker.run.executor import IDLE_S, START_ATTEMPTS
from deskgrid.worker.run.jobs import Job
from deskgrid.worker.run.pool import Accounts
from deskgrid.worker.run.process import PIPE_ROOM, Process
from deskgrid.worker.run.slot import START_LIMIT
from tests.executor.rig import Rig, alive, buried, call, command_template, error, python_template, value, written
from tests.waiting import eventually


def forever() -> Callable[[], None]:
    """A task that does not end."""

    def task() -> None:
        threading.Event().wait(300)

    return task


def descriptors() -> int:
    """How many files this process has open (on systems that tell)."""
    return len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0


def test_slots_run_side_by_side(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    def meet(mine: str, other: str) -> int:
        open(mine, "w").close()
        while not os.path.exists(other):
            threading.Event().wait(0.005)
        return os.getpid()

    rig = rigs(2)
    digest = rig.know(python_template(meet))
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    rig.executor.run(0, rig.jobs(digest, call(one, two)))
    rig.executor.run(1, rig.jobs(digest, call(two, one)))
    ended = rig.until(2)
    assert {one.slot for one in ended} == {0, 1}
    assert len({value(one) for one in ended}) == 2


def test_started_processes_are_used_by_the_first_tasks(rigs: Callable[..., Rig]) -> None:
    rig = rigs(2)
    rig.executor.start()
    pids = {process.pid for process in rig.executor.processes}
    rig.executor.start()
    assert {rig.pid(0), rig.pid(1)} == pids


def compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_task_that_used_no_processor_for_most_of_its_time_has_waited(rig: Rig) -> None:
    sleeps = rig.know(python_template(lambda: time.sleep(2 * LONG_S)))
    (slept,) = rig.run(sleeps, call())
    assert slept.waited
    (computed,) = rig.run(rig.know(python_template(lambda: compute(LONG_S + 0.1))), call())
    assert computed.elapsed > LONG_S
    assert computed.elapsed > 2 * (LONG_S + 0.1) or not computed.waited, "unless somebody else had the processor"
    (short,) = rig.run(rig.know(python_template(lambda: None)), call())
    assert not short.waited, "nobody looks"
    (again,) = rig.run(sleeps, call())
    assert again.waited, "what others used before it counts little"


@pytest.mark.skipif(sys.platform == "win32", reason="there, nobody is told what children used")
def test_what_the_programs_of_a_command_use_counts(rig: Rig) -> None:
    waits, works = (
        f"import time; time.sleep({2 * LONG_S})",
        f"import time\nwhile time.process_time() < {2 * LONG_S}: pass",
    )
    (slept,) = rig.run(rig.know(command_template(sys.executable, "-c", waits)), msgpack.packb(""))
    (computed,) = rig.run(rig.know(command_template(sys.executable, "-c", works)), msgpack.packb(""))
    assert slept.waited
    assert computed.elapsed > 4 * LONG_S or not computed.waited


def test_only_what_executes_is_running(rig: Rig) -> None:
    now = time.monotonic()
    assert rig.executor.running(now) == []
    assert rig.executor.next_deadline(now) is None
    digest = rig.know(python_template(forever()))
    rig.executor.run(0, [Job(*attempt, digest, call(), TaskOptions(10.0)) for attempt in ((5, 3), (6, 1))])
    assert rig.executor.running(now) == [], "its process is still coming up"
    assert rig.executor.next_deadline(now) == START_LIMIT
    rig.until_running()
    ((slot, task, number, elapsed),) = rig.executor.running(time.monotonic())
    assert (slot, task, number) == (0, 5, 3)
    assert 0 <= elapsed < 10
    deadline = rig.executor.next_deadline(time.monotonic())
    assert deadline is not None
    assert 0 < deadline <= 10
    assert rig.executor.next_deadline(time.monotonic() + 1000) == 0


def test_the_time_of_a_task_starts_when_its_predecessor_has_ended(rig: Rig, tmp_path: Path) -> None:
    def task(until: str) -> None:
        while not os.path.exists(until):
            threading.Event().wait(0.005)

    go = tmp_path / "go"
    digest = rig.know(python_template(task))
    jobs = rig.jobs(digest, call(str(go)), call(str(tmp_path / "never")), timeout=50.0)
    rig.executor.run(0, jobs)
    rig.until_running()
    now = time.monotonic()
    go.touch()
    assert eventually(lambda: bool(rig.executor.poll(now + 40)))
    assert rig.executor.running(now + 40) == [(0, jobs[1].task, 1, 0.0)]
    assert rig.executor.poll(now + 80) == []
    (late,) = rig.executor.poll(now + 90)
    assert (late.task, late.outcome) == (jobs[1].task, Outcome.TIMEOUT)
    assert late.elapsed == pytest.approx(50)


def test_one_wake_is_enough_until_the_next_poll(rig: Rig) -> None:
    rig.pid()

    def spare_is_ready() -> bool:
        rig.poll()
        spare = rig.executor._slots[0].spare
        return spare is not None and spare.ready

    assert eventually(spare_is_ready), "it reports, too"
    wakes: list[int] = []
    rig.executor._wake = lambda: wakes.append(1)
    rig.executor.run(0, rig.jobs(rig.know(python_template(lambda: None)), *[call()] * 50))
    assert eventually(lambda: len(rig.executor._said) == 50 and bool(wakes))
    assert len(wakes) == 1
    assert len(rig.until(50)) == 50


@pytest.mark.skipif(sys.platform == "win32", reason="tasks run as nobody else there")
def test_the_environment_of_a_spare_process_is_in_use(
    rigs: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With accounts, a slot may have no other process. Made again, its environment would have another folder."""
    accounts = Accounts(tmp_path)
    rig = rigs(accounts=accounts)
    monkeypatch.setattr(accounts, "count", 1)
    monkeypatch.setattr(accounts, "take", lambda person: accounts.places[0])
    rig.executor.sites = {"key": EnvironmentSite("identity", sys.executable, str(tmp_path), str(tmp_path))}
    (job,) = rig.jobs(rig.know(python_template(forever())), call())
    rig.executor.run(0, [job._replace(environment="key")])
    rig.until_running()
    rig.executor.stop(0, time.monotonic())
    assert eventually(lambda: rig.poll() is not None and not rig.executor.processes)
    assert rig.executor._slots[0].spare is not None
    assert rig.executor.uses("key")
    rig.executor.rest()
    assert eventually(lambda: rig.poll() is not None and not rig.executor.uses("key"))


def test_a_task_without_a_timeout_is_left_alone(rig: Rig) -> None:
    rig.executor.run(0, rig.jobs(rig.know(python_template(forever())), call()))
    rig.until_running()
    assert rig.executor.next_deadline(time.monotonic()) is None
    assert rig.executor.poll(time.monotonic() + 1e9) == []


def test_stop_hands_back_what_ran_and_what_had_not_started(rig: Rig) -> None:
    digest = rig.know(python_template(forever()))
    jobs = rig.jobs(digest, call(), call(), call())
    rig.executor.run(0, jobs)
    rig.until_running()
    (old,) = [process.pid for process in rig.executor.processes]
    held = rig.executor.stop(0, time.monotonic())
    assert [job for job, _ in held] == jobs
    assert [elapsed is None for _, elapsed in held] == [False, True, True]
    assert rig.executor.running(time.monotonic()) == []
    assert eventually(lambda: not alive(old))
    assert rig.pid() != old, "and nothing was heard of the stopped ones before that"
    assert not rig.ended


def test_stop_while_the_process_comes_up_hands_back_all_as_not_started(rig: Rig) -> None:
    jobs = rig.jobs(rig.know(python_template(forever())), call(), call())
    rig.executor.run(0, jobs)
    (pid,) = [process.pid for process in rig.executor.processes]
    assert rig.executor.stop(0, time.monotonic()) == [(job, None) for job in jobs]
    assert rig.pid() == pid


def test_the_wait_for_a_process_is_counted_anew_for_each_batch(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = tmp_path / "hangs.py"
    hangs.write_text("import threading; threading.Event().wait(300)")
    monkeypatch.setattr(nursery_module, "PROGRAM", hangs)
    digest = rig.know(python_template(forever()))
    now = time.monotonic()
    rig.executor.run(0, rig.jobs(digest, call()))
    assert rig.executor.next_deadline(now) == START_LIMIT
    assert len(rig.executor.stop(0, now + 1)) == 1
    rig.executor.run(0, rig.jobs(digest, call()))
    assert rig.executor.next_deadline(now + START_LIMIT) == START_LIMIT


def test_stop_of_an_idle_slot_does_nothing(rig: Rig) -> None:
    before = rig.pid()
    assert rig.executor.stop(0, time.monotonic()) == []
    assert rig.pid() == before


def test_what_ended_but_was_not_polled_before_stop_is_not_heard_of(rig: Rig) -> None:
    rig.pid()

    def all_ready() -> bool:
        rig.poll()
        return all(process.ready for process in rig.executor.processes)

    assert eventually(all_ready), "so that only the end of the job wakes us"
    jobs = rig.jobs(rig.know(python_template(lambda: 1)), call())
    rig.executor.run(0, jobs)
    assert eventually(rig.woken.is_set)
    (held,) = rig.executor.stop(0, time.monotonic())
    assert held[0] == jobs[0]
    rig.pid()


def test_rest_ends_idle_processes_and_run_starts_them_again(rigs: Callable[..., Rig]) -> None:
    rig = rigs(2)
    idle = rig.pid(0)
    rig.executor.run(1, rig.jobs(rig.know(python_template(forever())), call()))
    _, _, _, _ = rig.until_running()
    rig.executor.rest()
    assert eventually(lambda: not alive(idle))
    assert [row[0] for row in rig.executor.running(time.monotonic())] == [1]
    assert rig.pid(0) != idle
    rig.executor.rest()
    rig.executor.start()
    assert rig.pid(0) != idle


@pytest.mark.skipif(sys.platform == "win32", reason="a process is not copied there, so each slot has one ahead")
def test_of_slots_that_nobody_uses_two_have_a_process_and_others_get_one_when_they_are_used(
    rigs: Callable[..., Rig],
) -> None:
    rig = rigs(4)
    rig.executor.start()
    assert len(rig.executor.processes) == 2
    digest = rig.know(python_template(lambda: 1))
    assert [value(rig.run(digest, call(), slot=slot)[0]) for slot in range(4)] == [1, 1, 1, 1]
    assert len(rig.executor.processes) == 4
    used, now = {process.pid for process in rig.executor.processes}, time.monotonic()
    rig.executor.poll(now)

    def ended() -> bool:
        rig.executor.poll(now + IDLE_S)
        return len(rig.executor._spawner.processes) == 2

    assert eventually(ended), "nor is one kept for the next program"
    assert used.isdisjoint(process.pid for process in rig.executor.processes)


def test_an_idle_process_that_died_costs_no_attempt(rig: Rig) -> None:
    before = rig.pid()
    os.kill(before, signal.SIGTERM)
    assert eventually(lambda: buried(before))
    assert rig.pid() != before


def test_an_idle_process_that_died_costs_no_attempt_with_a_large_argument_either(rig: Rig) -> None:
    before = rig.pid()
    os.kill(before, signal.SIGTERM)
    assert eventually(lambda: buried(before))
    assert value(rig.call(len, b"x" * (20 * PIPE_ROOM))) == 20 * PIPE_ROOM


def test_an_idle_process_that_dies_while_it_is_written_to_costs_no_attempt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rig.pid()

    def broken(descriptor: int, data: bytes) -> int:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.kill(before, signal.SIGTERM)
            raise BrokenPipeError
        return writes(descriptor, data)

    jobs, writes = rig.jobs(rig.know(python_template(lambda: 1)), call()), os.write
    monkeypatch.setattr(os, "write", broken)
    rig.executor.run(0, jobs)
    monkeypatch.undo()
    assert value(rig.until(1)[0]) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="it has no way to stop a process")
def test_a_large_argument_for_a_process_that_does_not_read_holds_nobody_up(rig: Rig) -> None:
    pid = rig.pid()
    os.kill(pid, signal.SIGSTOP)
    rig.executor.run(0, rig.jobs(rig.know(python_template(len)), call(b"x" * 10_000_000)))
    os.kill(pid, signal.SIGCONT)
    assert value(rig.until(1)[0]) == 10_000_000


def _raw(size: int) -> msgpack.ExtType:
    """What promises so many bytes behind a frame."""
    return msgpack.ExtType(1, size.to_bytes(8, "big"))


@pytest.mark.parametrize(
    "said",
    [
        b"\0\0\0\1\xc1",
        b"\0\0\0\1\x90",
        b"\0\0\0\1\x05",
        b"\xff\xff\xff",
        *[
            len(packed).to_bytes(4, "big") + packed
            for packed in (
                msgpack.packb(["ended", 99, 1, 0, 0.5, False, b"", b"", b""]),
                msgpack.packb(["ended", 0, 1, 77, 0.5, False, b"", b"", b""]),
                msgpack.packb(["ended", 0, 1]),
                msgpack.packb(["ended", 0, 1, 0, float("nan"), False, b"", b"", b""]),
                msgpack.packb(["ended", 0, 1, 0, -1.0, False, b"", b"", b""]),
                msgpack.packb(["ended", 0, 1, 0, 0.5, False, "text", b"", b""]),
                msgpack.packb(["ended", 0, 1, 0, 0.5, False, b"", b"", None]),
                msgpack.packb(["ended", 0, 1, 0, 0.5, False, b"", [], b""]),
                msgpack.packb(["ended", 0, 1, 0, 0.5, False, b"", bytes(PRINTED_BYTES + 1), b""]),
                msgpack.packb(["ended", 0, 1, 0, 0.5, False, b"", b"", b"", b""]),
                msgpack.packb(["ended", 0, 1, 0, 0.5, False, _raw(2**28), b"", b""]),
                msgpack.packb(["ended", 0, 1, 0, 0.5, False, _raw(2**20), _raw(2**20), b""]),
                msgpack.packb(["ready", 1]),
                msgpack.packb(["weather"]),
                msgpack.packb([["ended"]]),
                b"\x91" * 1000 + b"\x90",
                b"\xdd\x00\x10\x00\x00" + b"\x90" * 2**20,
            )
        ],
    ],
)
def test_a_task_that_writes_into_our_pipes_loses_its_process_and_nothing_else(rig: Rig, said: bytes) -> None:
    def task(garbage: bytes) -> None:
        for descriptor in range(3, 20):
            with suppress(OSError):
                os.write(descriptor, garbage)

    ended = rig.run(rig.know(python_template(task)), call(said), call(b""))
    assert [one.outcome for one in ended] == [Outcome.CRASH, Outcome.DONE]
    assert [one.task for one in ended] == [0, 1]
    assert error(ended[0])[1].startswith("killed, because ")


@pytest.mark.parametrize("account", [b"", b"\x91" * 1000 + b"\x90", msgpack.packb({"kind": "k"})])
def test_an_account_that_a_task_made_up_is_one_that_cannot_be_read(rig: Rig, account: bytes) -> None:
    def task(account: bytes) -> None:
        sys.modules["_deskgrid_run.child"].__dict__["describe"] = lambda error: account
        raise ValueError

    ended = rig.run(rig.know(python_template(task)), call(account), call(account))
    assert [one.outcome for one in ended] == [Outcome.ERROR, Outcome.ERROR]
    assert [error(one)[0] for one in ended] == ["unreadable account"] * 2


def test_a_report_of_what_is_not_running_costs_an_idle_process_and_nothing_else(rig: Rig) -> None:
    def task() -> int:
        child = sys.modules["_deskgrid_run.child"]
        tell = child.Child._tell

        def tell_more(self: Any, report: Any) -> None:
            tell(self, report)
            tell(self, ["meet", 0, 1, 1, False, False, b""])

        child.Child._tell = tell_more
        return os.getpid()

    pid = value(rig.call(task))

    def dead() -> bool:
        rig.poll()
        return not alive(pid)

    assert eventually(dead)
    assert not rig.ended
    assert rig.pid() != pid


def test_a_batch_of_large_arguments_is_sent_in_pieces_and_comes_back_whole(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskgrid.wire.payload.BATCH_BYTES", 1000)
    sizes = [10, 900, 500, 3000, 1, 1, 1, 5000, 600]
    sent: list[int] = []
    write = Process.write

    def counting(process: Process, data: Sequence[bytes | memoryview], jobs: int, *more: Any) -> None:
        sent.append(jobs)
        write(process, data, jobs, *more)

    monkeypatch.setattr(Process, "write", counting)
    digest = rig.know(python_template(lambda data: (len(data), os.getpid())))
    results = [value(one) for one in rig.run(digest, *[call(b"x" * size) for size in sizes])]
    assert [size for size, _ in results] == sizes
    assert len({pid for _, pid in results}) == 1
    assert sent == [2, 1, 1, 3, 1, 1]


def test_a_batch_must_be_of_one_known_template_that_the_slot_has_no_other_jobs_than_of(rig: Rig) -> None:
    one, two = (rig.know(python_template(function)) for function in (lambda: 1, forever()))
    for jobs in ([], rig.jobs("unknown", call()), [*rig.jobs(one, call()), *rig.jobs(two, call())]):
        with pytest.raises(ValueError, match="one known template"):
            rig.executor.run(0, jobs)
    rig.executor.run(0, rig.jobs(two, call()))
    with pytest.raises(ValueError, match="slot 0 has jobs of another template"):
        rig.executor.run(0, rig.jobs(one, call()))


def test_a_process_has_its_next_job_before_it_has_done_its_last(rig: Rig, tmp_path: Path) -> None:
    """It goes on by itself: nobody is woken, and polls, between the two."""
    gate, note = tmp_path / "gate", tmp_path / "note"

    def wait(path: str) -> None:
        while not os.path.exists(path):
            threading.Event().wait(0.005)

    def tell(path: str) -> None:
        with open(path, "w") as file:
            file.write("begun")

    digest = rig.know(python_template(lambda function, path: function(path)))
    rig.executor.run(0, rig.jobs(digest, call(wait, str(gate))))
    rig.until_running()
    rig.executor.run(0, rig.jobs(digest, call(tell, str(note))))
    gate.touch()
    assert written(note) == "begun"
    assert [one.outcome for one in rig.until(2)] == [Outcome.DONE] * 2


def test_large_jobs_come_whole_one_after_the_other_though_the_first_is_still_on_its_way(rig: Rig) -> None:
    digest = rig.know(python_template(lambda data: (len(data), set(data))))
    for number, size in enumerate((5_000_000, 3_000_000, 10)):
        rig.executor.run(0, rig.jobs(digest, call(bytes([number]) * size)))
    assert [value(one) for one in rig.until(3)] == [(5_000_000, {0}), (3_000_000, {1}), (10, {2})]


def test_a_crash_costs_only_the_job_that_runs_and_not_what_was_sent_behind_it(rig: Rig, tmp_path: Path) -> None:
    note, gate = tmp_path / "pid", tmp_path / "gate"

    def crash(path: str, until: str) -> None:
        with open(path, "w") as file:
            file.write(str(os.getpid()))
        while not os.path.exists(until):
            threading.Event().wait(0.005)
        os._exit(3)

    digest = rig.know(python_template(lambda function, *args: function(*args)))
    rig.executor.run(0, rig.jobs(digest, call(crash, str(note), str(gate))))
    rig.until_running()
    pid = int(written(note))
    gate.touch()
    assert eventually(lambda: not alive(pid))
    for _ in range(2):  # whether it arrives or not
        rig.executor.run(0, rig.jobs(digest, call(int)))
    ended = rig.until(3)
    assert [(one.task, one.outcome) for one in ended] == [(0, Outcome.CRASH), (1, Outcome.DONE), (2, Outcome.DONE)]
    assert error(ended[0])[1] == "exit code 3"


def test_a_process_that_does_not_start_costs_a_job_after_some_attempts(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\nraise SystemExit('no library')\n")
    monkeypatch.setattr(nursery_module, "PROGRAM", broken)
    (ended,) = rig.run(rig.know(python_template(lambda: 1)), call())
    kind, message, trace, _ = error(ended)
    assert (ended.outcome, kind) == (Outcome.NO_START, "NoStart")
    assert message == "no process for tasks could be started: exit code 1"
    assert trace == "no library\n"
    assert (tmp_path / "starts").read_text() == "x" * START_ATTEMPTS
    monkeypatch.undo()
    assert value(rig.call(lambda: 1)) == 1


def test_a_python_that_is_not_there_costs_jobs_and_no_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    ended = rig.run(rig.know(python_template(lambda: 1)), call(), call())
    assert [one.outcome for one in ended] == [Outcome.NO_START] * 2
    assert "No such file" in error(ended[0])[1]
    monkeypatch.undo()
    assert value(rig.call(lambda: 1)) == 1


def test_a_process_that_hangs_while_it_starts_is_given_up_after_its_time_for_all_its_jobs_and_not_waited_for_again(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = tmp_path / "hangs.py"
    hangs.write_text("import threading; threading.Event().wait(300)")
    monkeypatch.setattr(nursery_module, "PROGRAM", hangs)
    rig.executor.run(0, rig.jobs(rig.know(python_template(lambda: 1)), call(), call()))
    now = float(int(time.monotonic()))  # whole seconds, so that sums of them are exact
    assert rig.executor.poll(now) == []
    first, second = rig.executor.poll(now + START_LIMIT)
    assert (first.outcome, second.outcome) == (Outcome.NO_START, Outcome.NO_START)
    assert error(first)[1] == "no process for tasks could be started: not done after 2 min 00 s"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no parents that are copied")
def test_nothing_more_is_asked_of_a_parent_that_was_killed_because_it_did_not_come_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = tmp_path / "hangs.py"
    hangs.write_text("import threading; threading.Event().wait(300)")
    monkeypatch.setattr(nursery_module, "PROGRAM", hangs)
    with closing(nursery_module.guard([sys.executable], 0, tmp_path / "log", {})) as nursery:
        nursery.start([], []).kill()
        assert nursery.ended


def test_close_leaves_no_process_and_no_folder(rigs: Callable[..., Rig]) -> None:
    rig = rigs(3)
    rig.executor.start()
    rig.executor.run(1, rig.jobs(rig.know(python_template(forever(), {"mine.py": b""})), call()))
    rig.until_running()
    pids = [process.pid for process in rig.executor.processes]
    folder = rig.executor.folder.path
    assert len(pids) >= 2
    assert any(folder.iterdir())
    rig.executor.close()
    rig.executor.close()
    assert not folder.exists()
    assert all(buried(pid) for pid in pids)


def test_dead_processes_are_buried_while_others_live(rig: Rig) -> None:
    digest = rig.know(python_template(lambda: os._exit(1)))
    rig.pid()
    open_files = descriptors()
    rig.run(digest, *[call()] * 5)
    rig.pid()
    assert descriptors() == open_files
    assert len(rig.executor.processes) == 1
