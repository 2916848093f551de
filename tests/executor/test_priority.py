"""The owner of the PC comes first: what tasks run gives way to everything else."""

import ctypes
import os
import sys
from collections.abc import Callable

import pytest

from deskgrid import Grid
from deskgrid.worker.run.scope import LOWEST
from tests.executor.rig import Rig, command_template, value

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a PC with Windows has no nice")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these")

# ioprio_get(2); and the class of those who get the disk only when nobody else wants it.
IOPRIO_GET = {"x86_64": 252, "aarch64": 31, "riscv64": 31}
IDLE_DISK = 3


def niceness(_: int = 0) -> int:
    """How far this process gives way."""
    return os.nice(0)


def test_a_task_gives_way_as_far_as_the_worker_was_told(rigs: Callable[..., Rig]) -> None:
    assert value(rigs(nice=7).call(niceness)) == min(niceness() + 7, LOWEST)
    assert value(rigs(nice=0).call(niceness)) == niceness()


def test_a_command_gives_way_too(rigs: Callable[..., Rig]) -> None:
    rig = rigs(nice=LOWEST)
    (ended,) = rig.run(rig.know(command_template("nice")), b"")
    assert value(ended) == "19\n"


@linux
def test_with_the_largest_a_task_gets_only_the_processor_that_nobody_else_wants(rigs: Callable[..., Rig]) -> None:
    def policy() -> int:
        return os.sched_getscheduler(0)

    assert value(rigs(nice=LOWEST).call(policy)) == os.SCHED_IDLE
    assert value(rigs(nice=LOWEST - 1).call(policy)) == os.SCHED_OTHER


@pytest.mark.skipif(sys.platform == "win32" or os.uname().machine not in IOPRIO_GET, reason="its number is not known")
@linux
def test_a_task_gets_only_the_disk_that_nobody_else_wants(rigs: Callable[..., Rig]) -> None:
    number = IOPRIO_GET[os.uname().machine]

    def disk() -> int:
        return int(ctypes.CDLL(None).syscall(number, 1, 0)) >> 13

    assert value(rigs(nice=1).call(disk)) == IDLE_DISK


@pytest.mark.slow
def test_the_tasks_of_a_local_grid_are_the_users_own_work_and_give_way_to_nobody() -> None:
    with Grid.local(1) as grid:
        assert grid.bag(niceness, [0], runtime=0.1).results() == [niceness()]
