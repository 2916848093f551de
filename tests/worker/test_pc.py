"""What a PC has and is, and what others use of it."""

import os
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from deskgrid.worker.pc import address as address_module
from deskgrid.worker.pc import hardware
from deskgrid.worker.pc.address import TRIES, address_towards, free_port, interface_of, mac_of
from deskgrid.worker.pc.hardware import MemoryUnknown, memory_of_this_pc
from deskgrid.worker.pc.shared_memory import Leftovers
from deskgrid.worker.pc.speed import REFERENCE_S, SpeedMeasurement, seconds_of_computation
from deskgrid.worker.pc.this_pc import Busy, OthersLoad, ProcessorTimes, ThisPc, others_load
from deskgrid.worker.windows.announcements import Powers
from tests.pace import pace

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what its processors did")


class Times:
    """A source of samples; None: the system does not answer."""

    def __init__(self, samples: Iterable[Busy | None]) -> None:
        self._samples = iter(samples)

    def read(self) -> Busy:
        sample = next(self._samples)
        if sample is None:
            raise OSError("no answer")
        return sample


# --- load ------------------------------------------------------------------------------------------------------------


def test_the_load_is_what_others_use_as_means_of_three_windows() -> None:
    # Two processors: first others use one of them for 30 s, then nobody uses any.
    samples = [Busy(min(second, 30.0), 0.0, 2.0 * second) for second in range(200)]
    load = OthersLoad(Times(samples))
    assert not load.means
    assert not load.sample(0.0), "one sample says nothing"
    for second in range(1, 31):
        assert load.sample(float(second))
    assert load.means == (0.5, 0.5, 0.5)
    for second in range(31, 46):
        load.sample(float(second))
    assert load.means[:2] == (0.0, 0.25)
    assert load.means[2] == pytest.approx(30 * 0.5 / 45)
    for second in range(46, 200):
        load.sample(float(second))
    assert load.means == (0.0, 0.0, 0.0)


def test_what_our_tasks_use_is_not_load() -> None:
    load = OthersLoad(Times([Busy(0.0, 0.0, 0.0), Busy(90.0, 80.0, 100.0), Busy(100.0, 70.0, 200.0)]))
    load.sample(0.0)
    load.sample(1.0)
    assert load.means[0] == pytest.approx(0.1)
    load.sample(2.0)  # a process of ours is gone, and its time with it
    assert load.means[0] == pytest.approx(0.1)


def test_samples_are_a_second_apart_and_those_that_fail_are_left_out() -> None:
    load = OthersLoad(Times([Busy(0.0, 0.0, 0.0), None, Busy(0.0, 0.0, 0.0), Busy(1.0, 0.0, 1.0)]))
    assert [load.sample(now) for now in (0.0, 0.5, 1.0, 2.0, 3.0)] == [False, False, False, False, True]
    assert load.means == (1.0, 1.0, 1.0)


@LINUX
def test_linux_says_what_its_processors_did_and_what_our_processes_did(tmp_path: Path) -> None:
    first = min(os.sched_getaffinity(0))
    others = max(os.sched_getaffinity(0)) + 1
    (tmp_path / "stat").write_text(
        f"cpu  1 1 1 1 1 1 1 1 0 0\ncpu{first} 10 20 30 400 50 6 7 8 99 99\ncpu{others} 1 1 1 1 1 1 1 1 0 0\nintr 5\n"
    )
    for pid, children in ((os.getpid(), "77 78"), (77, "")):
        place = tmp_path / str(pid)
        (place / "task" / str(pid)).mkdir(parents=True)
        (place / "task" / str(pid) / "children").write_text(children)
        (place / "stat").write_text(f"{pid} (a ) b) S 1 1 1 0 -1 0 0 0 0 0 {pid} 2 3 4 20 0\n")
    busy = ProcessorTimes(tmp_path).read()
    assert busy == Busy(81.0, os.getpid() + 77 + 2 * 9.0, 531.0)


@LINUX
def test_the_times_of_this_machine_grow() -> None:
    times = ProcessorTimes()
    before = times.read()
    seconds_of_computation(2)
    after = times.read()
    assert after.total >= before.total
    assert after.ours >= before.ours > 0.0
    assert others_load() is not None


def test_loads_are_said_when_they_have_changed_and_again_after_an_introduction() -> None:
    powers = Powers()
    assert powers.introduced() == 1.0
    assert powers.news() == (None, None), "nobody measures"
    powers.loads = (0.04, 0.05, 0.0)
    assert powers.news() == (None, None), "as good as nothing"
    powers.loads = (0.06, 0.0, 0.0)
    assert powers.news() == (None, (0.06, 0.0, 0.0))
    powers.loads = (0.1, 0.03, 0.04)
    assert powers.news() == (None, None)
    powers.speed = 0.5
    assert powers.news() == (0.5, None)
    assert powers.news() == (None, None)
    assert powers.introduced() == 0.5
    assert powers.news() == (None, (0.1, 0.03, 0.04))


# --- speed and memory ------------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_the_speed_is_measured_in_a_thread_and_is_that_of_the_processor() -> None:
    called: list[int] = []
    measurement = SpeedMeasurement(lambda: called.append(1))
    speed = measurement.speed(100.0)
    assert speed is not None
    assert called == [1]
    seconds = seconds_of_computation()
    assert 0.3 < speed * seconds / REFERENCE_S < 3.0
    assert seconds < 20 * pace(time.thread_time), "five tries take less than 0.2 s on a PC of our time"


def test_a_measurement_that_takes_longer_is_taken_later() -> None:
    class Slow(SpeedMeasurement):
        asked = 0

        def speed(self, wait_s: float) -> float | None:
            self.asked += 1
            return None if self.asked == 1 else super().speed(100.0)

    pc, powers = ThisPc(None, Slow(lambda: None)), Powers()
    pc.measure(powers, 0.0, 0.2)
    assert powers.speed == 1.0
    pc.measure(powers, 0.1)
    assert powers.speed != 1.0


def test_the_memory_is_that_of_the_pc_or_of_its_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(hardware, "_CONTAINER", limit)
    whole = memory_of_this_pc()
    assert whole > 2**28
    limit.write_text("max\n")
    assert memory_of_this_pc() == whole
    limit.write_text("1000000\n")
    assert memory_of_this_pc() == 1_000_000


@pytest.mark.skipif(sys.platform == "win32", reason="Windows is asked in another way")
def test_memory_that_nobody_knows_is_said_and_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(name: str) -> int:
        raise ValueError(f"unrecognized configuration name {name}")

    monkeypatch.setattr("os.sysconf", refuses)
    with pytest.raises(MemoryUnknown, match="does not say how much memory this PC has: unrecognized"):
        memory_of_this_pc()
    said: list[str] = []
    assert ThisPc(None, None).memory(said.append) == 0
    assert "give --memory" in said[0]
    monkeypatch.setattr("os.sysconf", lambda name: -1)
    with pytest.raises(MemoryUnknown, match="-1 pages of -1 bytes"):
        memory_of_this_pc()


# --- the network -----------------------------------------------------------------------------------------------------


def test_the_address_is_the_one_towards_the_broker() -> None:
    assert address_towards("127.0.0.1", 7077) == "127.0.0.1"
    assert address_towards("no such host.invalid", 7077) is None


@LINUX
def test_the_interface_of_an_address_is_found() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.7") == ""


@LINUX
def test_the_card_of_an_address_is_known_and_this_pc_itself_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mac_of("127.0.0.1") is None
    assert mac_of("192.0.2.7") is None
    cards = {name: Path("/sys/class/net", name, "address").read_text().strip() for _, name in socket.if_nameindex()}
    for name, mac in cards.items():
        monkeypatch.setattr(address_module, "interface_of", lambda address, name=name: name)
        assert mac_of("192.0.2.7") == (None if mac.strip("0:") == "" or len(mac) != 17 else mac)


def test_a_port_is_free_and_in_the_range() -> None:
    port = free_port("127.0.0.1", None)
    assert 1024 <= port <= 65_535
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        used = taken.getsockname()[1]
        assert free_port("127.0.0.1", (used, used)) == 0
    assert free_port("127.0.0.1", (used, used)) == used
    assert TRIES > 100
    assert ThisPc(None, None).free_port(None) > 0


# --- shared memory ---------------------------------------------------------------------------------------------------


class Memory:
    """A folder of shared memory, and processes that use it."""

    def __init__(self, place: Path) -> None:
        self.shm, self.proc = place / "shm", place / "proc"
        self.shm.mkdir()
        (self.proc / "12").mkdir(parents=True)
        self.uses()
        self.leftovers = Leftovers(folder=self.shm, proc=self.proc)

    def sweep(self, now: float) -> None:
        self.leftovers.sweep(now, set)

    def make(self, *names: str) -> None:
        for name in names:
            (self.shm / name).touch()

    def uses(self, *names: str) -> None:
        """A process uses these, and more."""
        lines = ["7f00-7f01 r--p 0 0:1 5 /lib/libc.so", "7f02-7f03 rw-p 0 0:0 0"]
        lines += [f"7f04-7f05 rw-s 0 0:1 9 {self.shm}/{name}" for name in names]
        (self.proc / "12" / "maps").write_text("\n".join(lines))

    @property
    def left(self) -> set[str]:
        return {path.name for path in self.shm.iterdir()}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such memory on Windows")
def test_only_what_came_with_the_rank_and_nobody_uses_is_removed(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.make("mpich_shm_before", "something_else", "psm_before")
    before = memory.leftovers.present()
    memory.make("mpich_shm_left", "mpich_shm_used", "other_new", "psm_new")
    memory.uses("mpich_shm_used")
    memory.leftovers.ended(before)
    memory.sweep(10.0)
    memory.sweep(10.5)
    assert "mpich_shm_left" in memory.left, "only after a second look"
    memory.sweep(11.0)
    assert memory.left == {"mpich_shm_before", "something_else", "psm_before", "mpich_shm_used", "other_new", "psm_new"}
    memory.uses()
    memory.sweep(12.0)
    memory.sweep(13.0)
    assert memory.left == {"mpich_shm_before", "something_else", "psm_before", "other_new", "psm_new"}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such memory on Windows")
def test_what_is_left_at_the_end_is_removed_at_once(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.make("mpich_shm_a", "mpich_shm_b")
    memory.uses("mpich_shm_b")
    memory.leftovers.ended(())
    (memory.proc / "13").mkdir()  # a process that has just ended
    memory.leftovers.close()
    memory.leftovers.close()
    assert memory.left == {"mpich_shm_b"}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such memory on Windows")
def test_the_memory_of_other_users_is_not_looked_at(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.make("mpich_shm_a")
    assert Leftovers([os.getuid() + 1], memory.shm, memory.proc).present() == frozenset()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give files away")
def test_of_a_user_of_their_own_everything_is_removed_that_nobody_uses(tmp_path: Path) -> None:
    memory, uid = Memory(tmp_path), 61_234
    memory.make("psm_theirs", "sem.used", "psm_made", "psm_roots")
    for name in ("psm_theirs", "sem.used", "psm_made"):
        os.chown(memory.shm / name, uid, uid)
    memory.uses("sem.used")
    leftovers = Leftovers([uid], memory.shm, memory.proc)
    made = {("psm_made", (memory.shm / "psm_made").stat().st_ino)}
    for now in (1.0, 2.0):
        leftovers.sweep(now, lambda: made)
    assert memory.left == {"sem.used", "psm_made", "psm_roots"}
