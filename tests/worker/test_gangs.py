"""Ranks of gangs on real processes: they begin together, meet, and end as one, and nothing of them is left."""

import errno
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from deskgrid import gang as outside
from deskgrid import wire
from deskgrid.worker.files.cache import FileCache
from deskgrid.worker.run import mpi as mpi_module
from deskgrid.worker.run import process as process_module
from deskgrid.worker.windows.clocks import read_clocks
from deskgrid.worker.windows.uptime import Until, parse_until
from tests.executor.rig import alive, call, command_template, python_template, written
from tests.waiting import eventually
from tests.worker.gang_rig import FakeBroker, Gang, fake_broker

Outcome = wire.Outcome


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    """A broker without PCs yet. After the test nothing of their ranks may be left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with fake_broker(tmp_path / "pcs") as started:
        yield started
        pids = {pid for pc in started.pcs for pid in pc.pids()}
    assert eventually(lambda: not any(map(alive, pids)))
    assert not list(temporary.iterdir())


def value(result: wire.RankResult) -> Any:
    assert result.outcome == Outcome.DONE, failure(result)
    return pickle.loads(bytes(result.payload))


def failure(result: wire.RankResult) -> tuple[str, str]:
    """The type and the message of a failure."""
    kind, message, *_ = msgpack.unpackb(bytes(result.payload))
    return kind, message


def waits() -> bytes:
    """A rank that notes its process in ``<rank>.pid``, and ends when the file ``go`` is there."""

    def run(folder: str) -> int:
        import threading

        from deskgrid import gang

        Path(folder, f"{gang.rank}.pid").write_text(str(os.getpid()))
        while not Path(folder, "go").exists():
            threading.Event().wait(0.005)
        return gang.rank

    return python_template(run)


def began(folder: Path, gang: Gang) -> list[int]:
    """The processes of all ranks, once they run."""
    return [int(written(folder / f"{rank}.pid")) for rank in range(len(gang.places))]


# --- what a rank is told ---------------------------------------------------------------------------------------------


def test_ranks_know_who_they_are_and_meet(broker: FakeBroker) -> None:
    def run(factor: int) -> Any:
        from deskgrid import gang

        gang.barrier()
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS")
        port = int(os.environ["MASTER_PORT"])
        return gang.hosts, gang.size, [os.environ[name] for name in names], port, gang.gather(gang.rank * factor)

    a, b = broker.pc("a", 2), broker.pc("b", 1)
    gang = broker.gang(python_template(run), call(10), (a, [0]), (b, [0]), (a, [1]))
    told = [value(result) for result in broker.ran(gang)]
    assert all(hosts == ("127.0.0.1",) * 3 and size == 3 for hosts, size, *_ in told)
    locals_ = [("0", "2"), ("0", "1"), ("1", "2")]
    assert [row[2] for row in told] == [[str(r), "3", *locals_[r], "127.0.0.1", "1"] for r in range(3)]
    assert len({row[3] for row in told}) == 1
    assert 0 < told[0][3] == gang.ready["a"]
    assert gang.ready["b"] == 0
    assert [row[4] for row in told] == [[0, 10, 20]] * 3


def test_outside_of_a_gang_there_is_one_rank() -> None:
    assert (outside.rank, outside.size, len(outside.hosts)) == (0, 1, 1)
    outside.barrier(timeout=0.0)
    assert outside.gather("mine") == ["mine"]


def test_a_task_in_a_process_that_had_no_gang_is_alone(broker: FakeBroker) -> None:
    def run() -> Any:
        from deskgrid import gang

        return gang.rank, gang.size, gang.gather(1)

    pc = broker.pc()
    broker.until(lambda: pc.session.joined)
    template = python_template(run)
    broker.templates["0" * 64] = template
    work = wire.Work(5, 5, 0, "0" * 64, 1.0, wire.TaskOptions(), 0, call())
    broker.say(pc, wire.Assign(pc.opening, 0.0, (work,)))
    broker.until(lambda: broker.finished)
    assert pickle.loads(bytes(broker.finished[0].payload)) == (0, 1, [1])


def test_a_rank_has_as_many_threads_as_slots_unless_somebody_has_said_otherwise(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = python_template(lambda: os.environ["OMP_NUM_THREADS"])
    pc = broker.pc(slots=4)
    (one,) = broker.ran(broker.gang(template, call(), (pc, [0, 1, 2, 3])))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    (other,) = broker.ran(broker.gang(template, call(), (pc, [0, 1, 2, 3])))
    assert (value(one), value(other)) == ("4", "7")


def test_commands_find_their_rank_and_no_trace_of_what_started_the_worker(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_PROCID", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.setenv(name, "5")
    monkeypatch.setenv("KEPT", "yes")
    program = (
        "import os; names = ('SLU', 'PMI', 'OMP', 'KEP')\n"
        "print(sorted(name for name in os.environ if name[:3] in names), os.environ['RANK'])"
    )
    pc = broker.pc(slots=2)
    gang = broker.gang(command_template(sys.executable, "-c", program), b"", (pc, [0]), (pc, [1]))
    said = [value(result) for result in broker.ran(gang)]
    assert said == [f"['KEPT', 'OMP_NUM_THREADS'] {rank}\n" for rank in range(2)]
    assert [bytes(result.stdout).decode() for result in gang.results.values()] == [said[rank] for rank in gang.results]


# --- meetings --------------------------------------------------------------------------------------------------------


def test_a_rank_that_does_not_come_is_named_by_those_that_wait(broker: FakeBroker) -> None:
    def run() -> str:
        from deskgrid import gang

        if gang.rank < 2:
            try:
                gang.barrier(timeout=0.2)
            except TimeoutError as error:
                return str(error)
        return "away"

    pc = broker.pc(slots=3)
    said = [value(row) for row in broker.ran(broker.gang(python_template(run), call(), *[(pc, [s]) for s in range(3)]))]
    assert said[0] == said[1] == "gang.barrier: rank 2 (pc1) did not come"
    assert said[2] == "away"


def test_a_value_that_is_too_large_to_gather_is_an_error_with_the_limit(broker: FakeBroker) -> None:
    def run() -> None:
        from deskgrid import gang

        gang.gather(bytes(2**20))

    pc = broker.pc()
    (row,) = broker.ran(broker.gang(python_template(run), call(), (pc, [0])))
    assert row.outcome == Outcome.ERROR
    assert failure(row)[1].startswith("gang.gather takes values of up to 1,048,576 bytes; this one has 1,048,")


def test_a_large_gathering_reaches_every_rank(broker: FakeBroker) -> None:
    def run(size: int) -> list[int]:
        from deskgrid import gang

        return [len(each) for each in gang.gather(bytes([gang.rank]) * (size + gang.rank))]

    a, b = broker.pc("a", 2), broker.pc("b", 2)
    places = [(pc, [slot]) for pc in (a, b) for slot in range(2)]
    rows = broker.ran(broker.gang(python_template(run), call(1_000_000), *places))
    assert [value(row) for row in rows] == [[1_000_000, 1_000_001, 1_000_002, 1_000_003]] * 4


def test_what_a_rank_said_and_nobody_answered_is_said_again_on_a_new_connection(broker: FakeBroker) -> None:
    def run(folder: str) -> list[int]:
        from deskgrid import gang

        if gang.rank == 1:
            while not Path(folder, "go").exists():
                time.sleep(0.005)
        Path(folder, f"{gang.rank}.meets").touch()
        return gang.gather(gang.rank)

    a, b = broker.pc("a"), broker.pc("b")
    gang = broker.gang(python_template(run), call(str(broker.place)), (a, [0]), (b, [0]))
    broker.until(lambda: gang.meetings)
    broker.cut(a)
    gang.meetings.clear()  # the broker is started again, and has forgotten
    (broker.place / "go").touch()
    broker.until(lambda: gang.meetings)
    assert set(gang.meetings[1]) == {1}
    broker.connect(a)
    assert [value(row) for row in broker.ran(gang)] == [[0, 1], [0, 1]]


# --- all or nothing --------------------------------------------------------------------------------------------------


def test_nothing_runs_before_all_are_ready_and_slots_are_given_up_when_the_lease_is_over(
    broker: FakeBroker, tmp_path: Path
) -> None:
    broker.starts = False
    pc = broker.pc(slots=2)
    gang = broker.gang(waits(), call(str(tmp_path)), (pc, [0]), (pc, [1]), lease=0.6)
    broker.until(lambda: gang.ready)
    assert pc.session.next_tick(read_clocks()) <= 0.6
    pids = pc.pids()
    broker.until(lambda: gang.unready)
    assert gang.unready == ["its lease is over: nobody said in time that it begins"]
    assert not list(tmp_path.glob("*.pid"))
    assert pc.session.idle
    broker.start(gang)  # too late
    broker.turn()
    (tmp_path / "go").touch()
    broker.starts = True
    again = broker.gang(waits(), call(str(tmp_path)), (pc, [0]), (pc, [1]))
    assert [value(row) for row in broker.ran(again)] == [0, 1]
    assert not gang.results
    assert eventually(lambda: len([pid for pid in pids if alive(pid)]) <= 2)


def test_slots_that_are_given_up_before_the_start_are_free(broker: FakeBroker, tmp_path: Path) -> None:
    broker.starts = False
    pc = broker.pc(slots=2)
    gang = broker.gang(waits(), call(str(tmp_path)), (pc, [0]), (pc, [1]))
    broker.until(lambda: gang.ready)
    broker.stop(gang)
    broker.until(lambda: gang.returned)
    assert pc.session.idle
    assert not gang.results
    assert not gang.unready


def test_a_gang_that_is_stopped_while_it_runs_is_killed_and_confirmed(broker: FakeBroker, tmp_path: Path) -> None:
    a, b = broker.pc("a"), broker.pc("b")
    gang = broker.gang(waits(), call(str(tmp_path)), (a, [0]), (b, [0]))
    broker.until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    pids = began(tmp_path, gang)
    broker.stop(gang)
    broker.until(lambda: len(gang.returned) == 2)
    assert eventually(lambda: not any(map(alive, pids)))
    assert not gang.results


def test_what_ranks_have_printed_is_sent_when_they_are_stopped_or_their_window_closes(
    broker: FakeBroker, tmp_path: Path
) -> None:
    def run(folder: str) -> None:
        import sys
        import threading
        from pathlib import Path

        from deskgrid import gang

        print(f"out {gang.rank} " + "x" * 100_000, flush=True)
        print(f"err {gang.rank}", file=sys.stderr, flush=True)
        Path(folder, f"{gang.rank}.here").touch()
        threading.Event().wait(300)

    a, b = broker.pc("a"), broker.pc("b")
    broker.takes = False
    gang = broker.gang(python_template(run), call(str(tmp_path)), (a, [0]), (b, [0]))
    broker.until(lambda: len(list(tmp_path.glob("*.here"))) == 2)
    broker.say(a, wire.Stop((wire.Ref(gang.task, gang.task),)))
    b.session.use_plan(Until(read_clocks().mono, on_wall=False, text="now"))
    broker.until(lambda: gang.ended)
    for rank in (0, 1):
        result = gang.results[rank]
        assert (result.outcome, result.payload) == (Outcome.DEPARTED, b"")
        assert result.stdout.startswith(b"out %d x" % rank)
        assert len(result.stdout) <= wire.PRINTED_BYTES
        assert result.stderr == b"err %d\n" % rank
        assert result.elapsed > 0.0
    assert a.session.unwritten == 1
    assert not any(row.rank == 0 for row in a.session._gangs.ended())  # nobody is to count on it
    broker.say(a, wire.RanksTaken((wire.RankRef(gang.task, gang.task, 0),)))
    assert a.session.unwritten == 0


def test_what_is_asked_twice_or_too_late_is_done_once_or_not(broker: FakeBroker, tmp_path: Path) -> None:
    pc = broker.pc(slots=2)
    (tmp_path / "go").touch()
    gang = broker.gang(waits(), call(str(tmp_path)), (pc, [0]))
    rows = (wire.RankSlot(0, 1),)
    broker.say(pc, wire.PrepareRanks(pc.opening, 30.0, 1, rows, (gang.work,)))  # again, on another slot
    broker.say(pc, wire.PrepareRanks(pc.opening - 1, 30.0, 1, rows, (gang.work._replace(task=99),)))  # void
    broker.say(pc, wire.PrepareRanks(pc.opening, 30.0, 1, (), ()))
    broker.say(pc, wire.StartRanks(1, 1, ("127.0.0.1",) * 2, 0))  # not ready, and not that many
    broker.say(pc, wire.Met(77, 1, 1, "", b""))
    broker.say(pc, wire.PmiBytes(77, 1, 0, 0, b"cmd=x\n"))
    assert [value(row) for row in broker.ran(gang)] == [0]
    broker.start(gang)
    broker.turn()
    assert pc.session.idle


def test_a_slot_that_is_not_free_is_not_given_twice(broker: FakeBroker, tmp_path: Path) -> None:
    pc = broker.pc(slots=3)
    first = broker.gang(waits(), call(str(tmp_path)), (pc, [0, 1]))
    second = broker.gang(waits(), call(str(tmp_path)), (pc, [1, 2]))
    third = broker.gang(waits(), call(str(tmp_path)), (pc, [7]))
    broker.until(lambda: second.unready and third.unready)
    assert (second.unready, third.unready) == (
        ["slot 1 of this worker is not free"],
        ["slot 7 of this worker is not free"],
    )
    # A task for a slot that a rank has waits until the gang has ended.
    template = python_template(lambda: "a task")
    broker.templates["0" * 64] = template
    work = wire.Work(50, 50, 1, "0" * 64, 1.0, wire.TaskOptions(), 0, call())
    broker.until(lambda: list(tmp_path.glob("*.pid")))
    broker.say(pc, wire.Assign(pc.opening, 0.0, (work,)))
    for _ in range(10):
        broker.turn()
    assert not broker.finished
    (tmp_path / "go").touch()
    assert [value(row) for row in broker.ran(first)] == [0]
    broker.until(lambda: broker.finished)
    assert pickle.loads(bytes(broker.finished[0].payload)) == "a task"


# --- how ranks end ---------------------------------------------------------------------------------------------------


def test_each_rank_ends_in_its_own_way_and_the_others_go_on_until_the_broker_says_otherwise(
    broker: FakeBroker,
) -> None:
    def run() -> None:
        import os
        import threading

        from deskgrid import gang

        if gang.rank == 0:
            raise ValueError("on purpose")
        if gang.rank == 1:
            print("last words", flush=True)
            os._exit(3)
        threading.Event().wait(300)

    pc = broker.pc(slots=3)
    gang = broker.gang(python_template(run), call(), *[(pc, [slot]) for slot in range(3)], timeout=1.0)
    broker.until(lambda: len(gang.results) == 2)
    assert [gang.results[rank].outcome for rank in (0, 1)] == [Outcome.ERROR, Outcome.CRASH]
    assert failure(gang.results[0]) == ("ValueError", "on purpose")
    assert failure(gang.results[1])[1] == "exit code 3"
    assert gang.results[1].stdout == b"last words\n"
    third = broker.ran(gang)[2]
    assert third.outcome == Outcome.TIMEOUT
    assert failure(third)[1] == "not done after 1 s"
    assert third.elapsed == pytest.approx(1.0, abs=0.9)
    assert pc.session.idle


def test_a_rank_whose_process_is_killed_has_crashed(broker: FakeBroker, tmp_path: Path) -> None:
    pc = broker.pc(slots=2)
    gang = broker.gang(waits(), call(str(tmp_path)), (pc, [0]), (pc, [1]))
    broker.until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    os.kill(began(tmp_path, gang)[1], signal.SIGTERM)
    broker.until(lambda: 1 in gang.results)
    assert gang.results[1].outcome == Outcome.CRASH
    broker.stop(gang)
    broker.until(lambda: pc.session.idle)


def test_a_rank_that_dies_before_its_gang_begins_is_not_ready(broker: FakeBroker, tmp_path: Path) -> None:
    broker.starts = False
    pc = broker.pc(slots=2)
    before = pc.pids()
    gang = broker.gang(waits(), call(str(tmp_path)), (pc, [0]), (pc, [1]))
    broker.until(lambda: gang.ready)
    os.kill(max(pc.pids() - before), signal.SIGTERM)
    broker.until(lambda: gang.unready)
    assert gang.unready[0].startswith("its process did not come up: ")
    assert pc.session.idle


def test_a_function_that_cannot_be_loaded_is_the_error_of_its_rank(broker: FakeBroker) -> None:
    pc = broker.pc()
    (row,) = broker.ran(broker.gang(python_template(b"garbage"), call(), (pc, [0])))
    assert row.outcome == Outcome.ERROR


def test_a_template_that_is_none_fails_the_gang_and_not_the_worker(broker: FakeBroker) -> None:
    pc = broker.pc(slots=2)
    gang = broker.gang(b"garbage", call(), (pc, [0]), (pc, [1]))
    broker.until(lambda: gang.results)
    assert failure(gang.results[0])[0] == "TemplateError"
    assert pc.session.idle


def test_what_a_rank_writes_into_our_pipe_costs_only_that_rank(broker: FakeBroker) -> None:
    def run() -> None:
        import os
        import sys

        from deskgrid import gang

        child = sys.modules["_deskgrid_run.child"]
        if gang.rank == 0:
            for descriptor in range(3, 20):
                with __import__("contextlib").suppress(OSError):
                    os.write(descriptor, child.frame(["meet", 99, 99, 1, False, False, b""]))
        __import__("threading").Event().wait(300)

    pc = broker.pc(slots=2)
    gang = broker.gang(python_template(run), call(), (pc, [0]), (pc, [1]))
    broker.until(lambda: gang.results)
    assert gang.results[0].outcome == Outcome.CRASH
    broker.stop(gang)
    broker.until(lambda: pc.session.idle)


# --- the broker is away ----------------------------------------------------------------------------------------------


def test_ranks_run_on_while_the_broker_is_away_and_are_named_when_it_is_back(
    broker: FakeBroker, tmp_path: Path
) -> None:
    broker.takes = False
    pc = broker.pc(slots=3)
    gang = broker.gang(waits(), call(str(tmp_path)), (pc, [0]), (pc, [2]))
    broker.until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    broker.cut(pc)
    broker.turn()
    broker.connect(pc)
    broker.until(lambda: len(pc.joins) == 2)
    assert [(row.task, row.slot, row.rank, row.elapsed is not None) for row in pc.joins[-1].running] == [
        (1, 0, 0, True),
        (1, 2, 1, True),
    ]
    broker.cut(pc)
    (tmp_path / "go").touch()
    broker.until(lambda: pc.session.unwritten == 2)
    assert not gang.results
    broker.connect(pc)
    assert [value(row) for row in broker.ran(gang)] == [0, 1]
    assert {row.rank for row in pc.joins[-1].running} == {0, 1}
    gang.results.clear()  # the broker is started again, before it wrote them down
    broker.cut(pc)
    broker.connect(pc)
    broker.takes = True
    assert [value(row) for row in broker.ran(gang)] == [0, 1]
    broker.until(lambda: not pc.session.unwritten)


def test_ranks_that_are_ready_say_so_again_on_a_new_connection(broker: FakeBroker, tmp_path: Path) -> None:
    broker.starts = False
    pc = broker.pc()
    (tmp_path / "go").touch()
    gang = broker.gang(waits(), call(str(tmp_path)), (pc, [0]))
    broker.until(lambda: gang.ready)
    port = gang.ready.pop("pc1")
    broker.cut(pc)
    broker.connect(pc)
    broker.until(lambda: gang.ready)
    assert gang.ready == {"pc1": port}
    assert [(row.rank, row.elapsed) for row in pc.joins[-1].running] == [(0, None)]
    broker.start(gang)
    assert [value(row) for row in broker.ran(gang)] == [0]


def test_ranks_that_run_when_the_window_closes_are_killed_and_handed_back(broker: FakeBroker, tmp_path: Path) -> None:
    pc = broker.pc(slots=2, plan=parse_until("1.5", read_clocks()))
    gang = broker.gang(waits(), call(str(tmp_path)), (pc, [0]), (pc, [1]))
    broker.until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    pids = began(tmp_path, gang)
    broker.until(lambda: broker.left)
    (leave,) = broker.left
    assert [(row.task, row.slot, row.rank) for row in leave.held] == [(1, 0, 0), (1, 1, 1)]
    assert all(row.elapsed is not None for row in leave.held)
    assert eventually(lambda: not any(map(alive, pids)))
    assert not gang.results


# --- files -----------------------------------------------------------------------------------------------------------


def test_each_rank_of_a_command_has_a_folder_with_its_files_and_leaves_others(broker: FakeBroker) -> None:
    tree = broker.store.add({"data.txt": b"hello"})
    program = (
        "import os, pathlib\npathlib.Path('out-' + os.environ['RANK']).write_text(pathlib.Path('data.txt').read_text())"
    )
    argv = [sys.executable, "-c", program]
    template = msgpack.packb({"kind": "command", "argv": argv, "inputs": tree, "outputs": ["out-*"]})
    a, b = broker.pc("a", 2), broker.pc("b")
    gang = broker.gang(template, b"", (a, [0]), (a, [1]), (b, [0]))
    for rank, row in enumerate(broker.ran(gang)):
        assert row.outcome == Outcome.DONE
        (left,) = wire.unwrap(row.payload).trees
        assert broker.store.files(left) == {f"out-{rank}": b"hello"}
    assert sorted({offer.holder for offer in broker.store.offers}) == ["1.1.0", "1.1.1", "1.1.2"]
    for pc in (a, b):
        assert eventually(lambda: not list((pc.place / "area").glob("*/1.1.*")))  # noqa: B023


def test_files_that_cannot_come_are_the_error_of_the_rank(broker: FakeBroker) -> None:
    tree = broker.store.add({"data.txt": b"hello"})
    broker.store.refuses |= {"1.1.0", "1.1.1"}
    template = msgpack.packb({"kind": "command", "argv": ["true"], "inputs": tree})
    pc = broker.pc(slots=2)
    gang = broker.gang(template, b"", (pc, [0]), (pc, [1]))
    assert [failure(row) for row in broker.ran(gang)] == [("FilesMissing", "it is not here")] * 2
    assert pc.session.idle


def test_a_full_disk_when_a_rank_is_prepared_is_the_pcs_trouble_and_its_slot_is_free_again(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    a, b = broker.pc("a"), broker.pc("b")
    template = command_template("true")
    broker.until(lambda: a.session.joined and b.session.joined)
    with monkeypatch.context() as patch:
        patch.setattr(process_module, "_spawn", full)
        gang = broker.gang(template, b"", (a, [0]), (b, [0]))
        broker.until(lambda: len(gang.unready) == 2)
    assert "No space left on device" in gang.unready[0]
    again = broker.gang(template, b"", (a, [0]), (b, [0]))
    assert [row.outcome for row in broker.ran(again)] == [Outcome.DONE] * 2


def test_a_full_disk_when_the_files_of_a_rank_come_is_the_pcs_trouble(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: FileCache, *arguments: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tree = broker.store.add({"data.txt": b"hello"})
    template = msgpack.packb({"kind": "command", "argv": ["true"], "inputs": tree})
    a, b = broker.pc("a"), broker.pc("b")
    with monkeypatch.context() as patch:
        patch.setattr(FileCache, "begin", full)
        gang = broker.gang(template, b"", (a, [0]), (b, [0]))
        broker.until(lambda: len(gang.unready) == 2)
    assert not gang.results
    again = broker.gang(template, b"", (a, [0]), (b, [0]))
    assert [row.outcome for row in broker.ran(again)] == [Outcome.DONE] * 2


def test_a_rank_in_an_environment_that_is_not_here_is_not_ready(broker: FakeBroker) -> None:
    pc = broker.pc()
    broker.until(lambda: pc.session.joined)
    template = python_template(lambda: None)
    broker.templates["0" * 64] = template
    broker.gangs[9] = Gang(9, [(pc, [0])], wire.Work(9, 9, 0, "0" * 64, 1.0, wire.TaskOptions(), 0, call(), "nowhere"))
    broker.say(pc, wire.PrepareRanks(pc.opening, 30.0, 1, (wire.RankSlot(0, 0),), (broker.gangs[9].work,)))
    broker.until(lambda: broker.gangs[9].unready)
    assert broker.gangs[9].unready == ["its environment is not on this PC any more"]


# --- the process manager ---------------------------------------------------------------------------------------------


def test_a_worker_that_was_not_told_to_runs_no_mpi_programs(broker: FakeBroker) -> None:
    pc = broker.pc()
    gang = broker.gang(python_template(lambda: None), call(), (pc, [0]), mpi=True)
    broker.until(lambda: gang.unready)
    assert gang.unready == ["this worker does not run MPI programs: start it with --mpi"]


@pytest.mark.skipif(sys.platform == "win32", reason="--mpi is not for Windows")
def test_a_rank_speaks_to_its_process_manager_over_a_new_connection_too(broker: FakeBroker, tmp_path: Path) -> None:
    def run(folder: str) -> list[str]:
        import socket

        line = socket.socket(fileno=int(os.environ["PMI_FD"]))
        with line, line.makefile("rw") as file:
            said = []
            for cmd in ("init pmi_version=1 pmi_subversion=1", "barrier_in", "finalize"):
                if cmd == "barrier_in" and os.environ["PMI_RANK"] == "1":
                    while not Path(folder, "go").exists():
                        time.sleep(0.005)
                file.write(f"cmd={cmd}\n")
                file.flush()
                said.append(file.readline().split()[0])
        return said

    a, b = broker.pc("a", mpi=True), broker.pc("b", mpi=True)
    gang = broker.gang(python_template(run), call(str(tmp_path)), (a, [0]), (b, [0]), mpi=True)
    broker.until(lambda: gang.waiting)
    broker.cut(a)
    broker.connect(a)
    (tmp_path / "go").touch()
    rows = broker.ran(gang)
    assert [value(row) for row in rows] == [["cmd=response_to_init", "cmd=barrier_out", "cmd=finalize_ack"]] * 2


@pytest.mark.skipif(sys.platform == "win32", reason="--mpi is not for Windows")
def test_a_rank_that_floods_its_process_manager_is_killed(broker: FakeBroker) -> None:
    def run() -> None:
        while True:
            os.write(int(os.environ["PMI_FD"]), b"cmd=nonsense\n" * 100)

    pc = broker.pc(mpi=True)
    (row,) = broker.ran(broker.gang(python_template(run), call(), (pc, [0]), mpi=True))
    assert row.outcome == Outcome.CRASH
    assert failure(row)[1] == "killed, because it sent its process manager more than 65,536 bytes without an answer"


def test_an_answer_that_a_rank_does_not_read_is_noticed() -> None:
    heard: list[bytes] = []
    end = mpi_module.PmiEnd(heard.append)
    assert all(end.say(b"x" * 4096) for _ in range(2))
    assert not all(end.say(b"x" * 65_536) for _ in range(100))
    end.begin()
    end.close()
    end.close()
    assert end.say(b"nobody is there any more")
