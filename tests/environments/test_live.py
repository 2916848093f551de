"""Environments on a real grid: programs ask, and tasks import what they asked for."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deskgrid import File, Grid, task, wire
from deskgrid.client.link import Link
from deskgrid.errors import BagRejected, RequestFailed
from tests.environments.tasks import by_value, measured, total
from tests.live import ROOT, WORKER, LiveGrid, live_grid
from tests.waiting import eventually
from tests.wheels import installed_wheel, make_wheel

LIB = {"labtools/__init__.py": "from labtools.units import METRE\n", "labtools/units.py": "METRE = 100\n"}


@pytest.fixture
def index(index: Path) -> Path:
    """The tiny wheels, with the real ones that the process for tasks needs."""
    for name in ("cloudpickle", "msgpack"):
        (index / f"{name}-99.0-py3-none-any.whl").unlink()
        installed_wheel(index, name)
    make_wheel(index, "labtools", files=LIB, requires=["alpha"])
    make_wheel(index, "alpha")
    return index


@pytest.fixture
def live(tmp_path: Path, index: Path) -> Iterator[LiveGrid]:
    with live_grid(tmp_path / "home", workers=1, durability="process") as started:
        yield started


def test_tasks_import_what_the_bag_brings(grid: Grid, live: LiveGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[wire.Part] = []
    send = Link.send

    def noted(link: Link, message: Any, *args: Any, **options: Any) -> None:
        sent.extend([message] if isinstance(message, wire.Part) else [])
        send(link, message, *args, **options)

    monkeypatch.setattr(Link, "send", noted)
    assert grid.bag(measured, [1, 2], env=["labtools"]).results() == [(100, "1.0"), (200, "1.0")]
    assert len(sent) == 5
    assert grid.bag(by_value(), [3], env=["labtools"]).results() == [(300, "1.0")]
    assert grid.submit(task(measured, env=["labtools"]), 4).result() == (400, "1.0")
    assert [*grid.map(task(measured, env=["labtools"]), [5, 6], chunksize=2)] == [(500, "1.0"), (600, "1.0")]
    assert len(sent) == 5


def test_a_task_without_the_library_says_how_it_travels(grid: Grid) -> None:
    with pytest.raises(
        ModuleNotFoundError, match=r"'alpha' is not installed on .*a library can travel in the bag's env="
    ):
        grid.bag(measured, [1]).results()
    with pytest.raises(ModuleNotFoundError, match=r"'alpha' is not in the bag's environment: a library can travel"):
        grid.bag(measured, [1], env=["cloudpickle"]).results()


def test_a_command_runs_the_python_of_its_environment(grid: Grid) -> None:
    bag = grid.command(["python", "-c", "import labtools; print(labtools.METRE * {})"], ["2"], env=["labtools"])
    assert bag.results() == ["200\n"]


def test_a_commands_python_file_says_what_it_needs(grid: Grid, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text('# /// script\n# dependencies = ["labtools"]\n# ///\nimport labtools\nprint(labtools.METRE)\n')
    assert grid.command(["python", str(script)], [""], env="script").results() == ["100\n"]
    with pytest.raises(BagRejected, match="it names no Python file here: name one"):
        grid.command(["python", "gone.py"], [""], env="mine")


def test_what_cannot_be_had_is_refused_before_anything_is_sent(grid: Grid) -> None:
    with pytest.raises(BagRejected, match="no package index has nowhere"):
        grid.bag(measured, [1], env=["nowhere"])
    assert grid.bags() == []


def deskgrid(live: LiveGrid, *args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "deskgrid.cli", *args, "--join", live.broker.ready.client_line]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_people_see_environments_and_have_them_forgotten(grid: Grid, live: LiveGrid) -> None:
    first = grid.bag(measured, [1], env=["labtools"])
    first.results()
    titles, row = deskgrid(live, "env", "list").stdout.splitlines()
    assert titles.split() == ["ENVIRONMENT", "OWNER", "SIZE", "BAGS", "RUNS", "ON", "ASKED", "FOR"]
    name = row.split()[0]
    assert row.endswith(f"{wire.this_system().python} {wire.this_system().platform}  labtools")
    shown = deskgrid(live, "env", "show", name[:6]).stdout
    assert f"{wire.this_system()}: " in shown
    assert "labtools-1.0-py3-none-any.whl" in shown
    assert f"used by {first.id}" in shown
    nothing = "deskgrid: no environment has an id that begins with '': see deskgrid env list"
    assert deskgrid(live, "env", "forget", "").stderr.strip() == nothing
    forgot = deskgrid(live, "env", "forget", name)
    assert f"forgot {name} (labtools): " in forgot.stdout, forgot.stderr
    assert first.results() == [(100, "1.0")]
    # A bag that has ended still names it, but its wheels are nowhere: it is as if it had never been.
    assert len(deskgrid(live, "env", "list").stdout.splitlines()) == 1
    gone = f"deskgrid: no environment has an id that begins with '{name}': see deskgrid env list"
    assert deskgrid(live, "env", "show", name).stderr.strip() == gone
    said = "deskgrid: no environment has an id that begins with 'none': see deskgrid env list"
    assert deskgrid(live, "env", "show", "none").stderr.strip() == said
    # The next bag sends them again.
    assert grid.bag(measured, [2], env=["labtools"]).results() == [(200, "1.0")]
    assert deskgrid(live, "env", "list").stdout.splitlines()[1].split()[0] == name


def test_an_environment_that_tasks_need_stays(grid: Grid, live: LiveGrid) -> None:
    bag = grid.command(["python", "-c", "import time; time.sleep(600)"], [""], env=["labtools"])
    name = deskgrid(live, "env", "list").stdout.splitlines()[1].split()[0]
    refused = deskgrid(live, "env", "forget", name)
    assert f"{name} cannot be forgotten yet: 1 bag that uses it has not ended;" in refused.stderr
    with pytest.raises(RequestFailed, match=f"bag {bag.id} has not ended: its tasks need the environment"):
        grid._ask("release", {"bag": bag.id, "parts": bytes(32)})
    bag.cancel()


# --- a PC without numpy ----------------------------------------------------------------------------------------------

# What a worker needs. The rest of what is installed here stays out of its sight.
WORKER_NEEDS = ("zmq", "pyzmq.libs", "msgpack", "apscheduler", "tzlocal", "click", "cloudpickle")


@pytest.fixture
def pc(tmp_path: Path) -> Path:
    """The Python of a PC that has deskgrid and nothing else."""
    venv.create(tmp_path / "pc", symlinks=sys.platform != "win32")
    place = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "pc")}))
    for name in WORKER_NEEDS:
        source = Path(sysconfig.get_path("purelib")) / name
        if source.exists():
            (place / name).symlink_to(source)
    (place / "deskgrid.pth").write_text(str(ROOT))
    return tmp_path / "pc" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_pc_without_numpy_and_without_any_index_runs_a_bag_that_uses_numpy(
    tmp_path: Path, index: Path, pc: Path
) -> None:
    pytest.importorskip("numpy")
    installed_wheel(index, "numpy")
    assert subprocess.run([pc, "-c", "import numpy"], capture_output=True, check=False).returncode
    offline = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    offline |= dict.fromkeys(("http_proxy", "https_proxy", "PIP_INDEX_URL"), "http://127.0.0.1:9")
    with live_grid(tmp_path / "home") as live:
        ready = live.broker.ready
        command = [
            str(pc),
            "-m",
            "deskgrid.cli",
            *WORKER,
            "--join",
            ready.worker_line,
            "--home",
            str(tmp_path / "worker"),
        ]
        with subprocess.Popen(command, cwd=tmp_path, env=offline, stderr=subprocess.DEVNULL) as worker:
            try:
                with Grid(ready.client_line) as grid:
                    assert eventually(lambda: bool(grid.status()["workers"]), 30)
                    bag = grid.bag(lambda n: float(__import__("numpy").arange(n).sum()), [10, 100], env=["numpy"])
                    assert bag.results() == [45.0, 4950.0]
                    assert [*grid.bag(total, [3], env="mine").results()] == [3]
            finally:
                worker.terminate()


def test_files_and_checkpoints_work_where_only_the_worker_has_deskgrid(grid: Grid, tmp_path: Path) -> None:
    def told(data: File) -> tuple[bytes, File, object]:
        import labtools  # type: ignore[import-not-found]

        from deskgrid import File as Own
        from deskgrid import checkpoint

        out = Own("out.txt")
        Path(out.path).write_text(f"{labtools.METRE}")
        return Path(data.path).read_bytes(), out, checkpoint.load(5)

    (tmp_path / "data.txt").write_bytes(b"data")
    ((data, out, state),) = grid.bag(told, [File(tmp_path / "data.txt")], env=["labtools"]).results()
    assert (data, state) == (b"data", 5)
    assert Path(out.path).read_text() == "100"
