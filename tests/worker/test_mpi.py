"""MPI programs as ranks of gangs, with a real MPI library: without mpiexec, and nothing of them is left."""

import importlib.util
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from tests.executor.rig import alive, call, command_template, python_template, written
from tests.waiting import eventually
from tests.worker.gang_rig import FakeBroker, Pc, fake_broker

_HAS_MPI4PY = importlib.util.find_spec("mpi4py") is not None
_HAS_LIBRARY = any(Path(sys.prefix, "lib").glob("libmpi.*"))
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="deskgrid worker --mpi is not for Windows"),
    pytest.mark.skipif(not _HAS_MPI4PY, reason="mpi4py is not installed: it has no wheel for this platform or Python"),
    pytest.mark.skipif(not _HAS_LIBRARY, reason="mpich is not installed: it has no wheel for this platform"),
]
MPI_S = 40.0


def pieces() -> set[str]:
    """The names of the pieces of shared memory that MPICH has made."""
    return {path.name for path in Path("/dev/shm").glob("mpich_shm_*")}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FakeBroker]:
    """A broker without PCs yet. Afterwards no process and no shared memory of MPI programs may be left."""
    before = pieces()
    with fake_broker(tmp_path / "pcs") as started:
        yield started
        pids = {pid for pc in started.pcs for pid in pc.pids()}
    assert eventually(lambda: not any(map(alive, pids)))
    assert eventually(lambda: pieces() <= before)  # gangs of other tests may have some for a moment


def four(broker: FakeBroker) -> list[tuple[Pc, list[int]]]:
    """Places for four ranks, on two PCs."""
    a, b = broker.pc("a", 2, mpi=True), broker.pc("b", 2, mpi=True)
    return [(a, [0]), (b, [0]), (a, [1]), (b, [1])]


def values(rows: list[wire.RankResult]) -> list[Any]:
    assert all(row.outcome == wire.Outcome.DONE for row in rows), [bytes(row.payload) for row in rows]
    return [pickle.loads(bytes(row.payload)) for row in rows]


def test_functions_reduce_over_two_workers(broker: FakeBroker) -> None:
    def run(factor: int) -> tuple[int, int, int]:
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        return world.rank, world.size, world.allreduce(world.rank * factor)

    gang = broker.gang(python_template(run), call(10), *four(broker), mpi=True)
    assert values(broker.ran(gang, MPI_S)) == [(rank, 4, 60) for rank in range(4)]


def test_commands_are_mpi_programs_too(broker: FakeBroker) -> None:
    program = (
        "import sys\nfrom mpi4py.MPI import COMM_WORLD as world\nprint(world.allgather(sys.argv[1] * (world.rank + 1)))"
    )
    gang = broker.gang(command_template(sys.executable, "-c", program, "{}"), b"x", *four(broker), mpi=True)
    assert values(broker.ran(gang, MPI_S)) == ["['x', 'xx', 'xxx', 'xxxx']\n"] * 4


def test_one_gang_after_another_runs_on_the_same_slots(broker: FakeBroker) -> None:
    def run() -> str:
        from mpi4py import MPI

        return str(MPI.COMM_WORLD.bcast("hello" if MPI.COMM_WORLD.rank == 0 else ""))

    a = broker.pc("a", 2, mpi=True)
    for _ in range(2):
        gang = broker.gang(python_template(run), call(), (a, [0]), (a, [1]), mpi=True)
        assert values(broker.ran(gang, MPI_S)) == ["hello"] * 2


def test_a_rank_that_fails_is_an_error_with_its_own_words_and_the_others_are_ended(broker: FakeBroker) -> None:
    def run() -> None:
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 1:
            raise ValueError("on purpose")
        MPI.COMM_WORLD.barrier()

    gang = broker.gang(python_template(run), call(), *four(broker), mpi=True)
    broker.until(lambda: gang.results, MPI_S)
    broker.stop(gang)
    broker.until(lambda: len(gang.returned) == 2)
    # What a rank has printed before it was stopped is told, too, such as that its MPI library misses /sys.
    assert {rank for rank, row in gang.results.items() if row.outcome != wire.Outcome.DEPARTED} == {1}
    assert msgpack.unpackb(bytes(gang.results[1].payload))[:2] == ["ValueError", "on purpose"]


def test_shared_memory_of_ranks_that_were_killed_is_swept(broker: FakeBroker, tmp_path: Path) -> None:
    def run(folder: str) -> None:
        from mpi4py import MPI

        MPI.COMM_WORLD.barrier()
        Path(folder, f"{MPI.COMM_WORLD.rank}.pid").write_text(str(os.getpid()))
        MPI.COMM_WORLD.recv()

    if not Path("/dev/shm").is_dir():
        pytest.skip("this system has no /dev/shm")
    gang = broker.gang(python_template(run), call(str(tmp_path)), *four(broker), mpi=True)
    broker.until(lambda: len(list(tmp_path.glob("*.pid"))) == 4, MPI_S)
    pids = [int(written(tmp_path / f"{rank}.pid")) for rank in range(4)]
    # Others may have pieces, too: those of tests that run beside this one.
    mapped = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in pids)
    ours = {name for name in pieces() if name in mapped}
    assert len(ours) == 2, "one for the ranks of each PC"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert {row.outcome for row in broker.ran(gang)} == {wire.Outcome.CRASH}
    broker.until(lambda: not ours & pieces(), 10.0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the ports of a process in /proc")
def test_ranks_listen_only_on_the_ports_and_the_interface_that_they_were_given(broker: FakeBroker) -> None:
    def run() -> list[tuple[str, int]]:
        import os

        from mpi4py import MPI

        MPI.COMM_WORLD.barrier()
        names = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
        mine = {os.readlink(name) for name in names if os.path.lexists(name)}
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in mine]
        MPI.COMM_WORLD.barrier()
        return [(address, int(port, 16)) for address, port in listening]

    a, b = (broker.pc(name, mpi=True, ports=(41_000, 41_099)) for name in "ab")
    gang = broker.gang(python_template(run), call(), (a, [0]), (b, [0]), mpi=True)
    found = values(broker.ran(gang, MPI_S))
    for listening in found:
        assert [address for address, _ in listening] == ["0100007F"]
        assert all(41_000 <= port <= 41_099 for _, port in listening)
