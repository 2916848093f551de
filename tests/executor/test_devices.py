"""Which graphics cards tasks find."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deskgrid.wire import TaskOptions
from deskgrid.worker.pc import hardware
from deskgrid.worker.pc.hardware import gpus, graphics_cards
from deskgrid.worker.run.devices import VARIABLES, WHATEVER_THERE_IS, Devices, HeldDevices
from deskgrid.worker.run.jobs import Job, Program
from tests.executor.rig import Rig, call, python_template, value

posix = pytest.mark.skipif(sys.platform == "win32", reason="the driver's command is a script here")


def needs(amount: str) -> TaskOptions:
    return TaskOptions(resources=(f"gpu={amount}",))


@pytest.mark.parametrize(
    ("need", "others", "before", "found"),
    [
        ("1", [], (), ("0",)),
        ("1", [HeldDevices(("0",), 1000)], (), ("1",)),
        ("2", [HeldDevices(("1",), 1000)], (), ("0", "2")),
        ("1", [], ("2",), ("2",)),
        ("1", [HeldDevices(("2",), 1000)], ("2",), ("0",)),
        ("0.5", [HeldDevices(("1",), 500)], (), ("1",)),
        ("0.5", [HeldDevices(("1",), 700)], (), ("0",)),
        ("0.5", [HeldDevices(("0", "1"), 1000)], (), ("2",)),
        ("0.5", [HeldDevices(("1",), 500)], ("2",), ("2",)),
        ("9", [], (), ("0", "1", "2")),
    ],
)
def test_a_task_gets_cards_that_nobody_has(
    need: str, others: list[HeldDevices], before: tuple[str, ...], found: tuple[str, ...]
) -> None:
    assert Devices("012").choose(needs(need), others, HeldDevices(before, 1000)).names == found


def test_a_task_that_needs_none_finds_none_where_they_are_counted() -> None:
    assert Devices("01").choose(TaskOptions(), [], WHATEVER_THERE_IS).variables() == dict.fromkeys(VARIABLES, "")
    assert Devices().choose(needs("1"), [], WHATEVER_THERE_IS).variables() == {}


def seen() -> tuple[int, str | None]:
    return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")


def run(rig: Rig, slot: int, options: TaskOptions, program: str, number: int) -> tuple[int, str | None]:
    digest = rig.know(python_template(seen))
    rig.executor.run(slot, [Job(number, 1, digest, call(), options, program=Program("ann", program))])
    (ended,) = rig.until(1)
    found: tuple[int, str | None] = value(ended)
    return found


def test_the_processes_of_slots_find_different_cards_and_are_kept(rigs: Callable[..., Rig]) -> None:
    rig = rigs(slots=2, devices=Devices(("0", "GPU-7")))
    digest = rig.know(python_template(seen))
    jobs = [Job(n, 1, digest, call(), needs("1"), program=Program("ann", "p")) for n in (1, 2)]
    for slot, job in enumerate(jobs):
        rig.executor.run(slot, [job])
    first = {ended.slot: value(ended) for ended in rig.until(2)}
    assert sorted(card for _, card in first.values()) == ["0", "GPU-7"]
    for slot in (1, 0):
        assert run(rig, slot, needs("1"), "p", 10 + slot) == first[slot], "the process stays with its card"
    assert run(rig, 0, TaskOptions(), "q", 20)[1] == ""


def test_without_counted_cards_a_task_finds_what_its_worker_finds(
    rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert run(rigs(), 0, TaskOptions(), "p", 1)[1] == "3"


# --- which there are --------------------------------------------------------------------------------------------------


@posix
def test_cards_are_found_by_the_command_of_their_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nvidia-smi"
    listed = "GPU 0: A (UUID: GPU-1)\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\nGPU 1: A (UUID: GPU-2)\n"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{listed}END\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpus({}, tmp_path) == ("0", "1")
    script.write_text("#!/bin/sh\necho No devices were found; exit 6\n")
    assert gpus({}, tmp_path) == ()


def test_a_driver_that_hangs_has_no_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_: object, **how: float) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", how["timeout"])

    monkeypatch.setattr(subprocess, "run", hangs)
    assert gpus({}, tmp_path) == ()


def test_cards_are_found_by_what_the_kernel_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_nvidia", lambda: 0)
    for node, simd in (("0", 0), ("1", 120), ("2", 64)):
        (tmp_path / node).mkdir()
        (tmp_path / node / "properties").write_text(f"cpu_cores_count 8\nsimd_count {simd}\n")
    (tmp_path / "3" / "properties").mkdir(parents=True)
    assert gpus({}, tmp_path) == ("0", "1")


@pytest.mark.parametrize(
    ("said", "found"), [("2,3", ("2", "3")), ("", ()), ("-1", ()), ("GPU-1, GPU-2", ("GPU-1", "GPU-2"))]
)
def test_who_runs_the_worker_may_say_which_cards_tasks_have(said: str, found: tuple[str, ...]) -> None:
    assert gpus({"CUDA_VISIBLE_DEVICES": said}) == found


@pytest.mark.parametrize(
    ("given", "find", "there", "found"),
    [
        ((), True, "01", (("gpu=2",), ("0", "1"))),
        ((), True, "", ((), ())),
        (("matlab=1",), True, "0", (("gpu=1", "matlab=1"), ("0",))),
        ((), False, "01", ((), ())),
        (("gpu=1",), False, "01", (("gpu=1",), ("0",))),
        (("gpu=2",), False, "", (("gpu=2",), ("0", "1"))),
        (("gpu=0.5",), False, "57", (("gpu=0.5",), ("5",))),
    ],
)
def test_cards_that_are_found_count_unless_it_is_said_how_many(
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, ...],
    find: bool,
    there: str,
    found: tuple[tuple[str, ...], tuple[str, ...]],
) -> None:
    monkeypatch.setattr(hardware, "gpus", lambda: tuple(there))
    assert graphics_cards(given, find=find) == found
