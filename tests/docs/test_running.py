"""Every command and every program on our pages runs, against a real broker and a real worker on this machine.

All blocks of a page form one bash script, in the order of the page, so that later blocks can use the results of earlier
ones. A Python block is a program of its own. The first block that fails ends the script and the test.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskgrid import Grid
from tests.commands import Command
from tests.docs.pages import PAGES, Block, blocks
from tests.live import ROOT, WORKER
from tests.waiting import eventually
from tests.wheels import installed_wheel

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
RUN = [page for page in PAGES if any(block.is_run for block in blocks(page))]

# What a page's blocks print, among other things.
PRINTED = {
    "README.md": ["1\n4\n9\n16\n25\n", "99 9801"],
    "docs/getting-started.md": ["1\n4\n9\n16\n25\n", "[2, 3, 5, 7, 11, 13, "],
    "docs/how-to/attach.md": ["1\n2\n3\n", "exit code 1: tasks were cancelled", "doubles 5 [0, 2, 4, 6, 8]"],
    "docs/how-to/broker.md": ["\npacking\n"],
    "docs/how-to/commands.md": [
        "hello Liège\n",
        "11\n12\n13\n",
        "exit code 1: a task failed",
        "['2\\n', '4\\n', '6\\n']",
    ],
    "docs/how-to/checkpoints.md": ["4 searches are done", "counted to 20"],
    "docs/how-to/explain.md": ["no window that is open or announced is that long", "['one\\n']"],
    "docs/how-to/failures.md": ["4 0.25\n", "after all the others: division by zero\n", "0 failed\n", "0.1 True 1\n"],
    "docs/how-to/from-a-pool.md": ["[0, 1, 4, 9, 16]\n49\n[0, 1, 4, 9, 16]\n49\n"],
    "docs/how-to/people.md": ["\nall prepared\n", "[20] 1.0\n"],
    "docs/how-to/policy.md": ["first-fit"],
    "docs/how-to/what-a-task-finds.md": ["332833500\n", "the same twice: True", "all found: {(0, None, True)}"],
    "docs/predictions.md": ["\ndone in ", " s, at the latest in "],
    "docs/scheduling.md": ["packing"],
}

# `pip install .` installs into the page's folder, with what is here: nothing is downloaded.
PRELUDE = """set -euo pipefail
pip() {
    python -m pip "$1" --quiet --disable-pip-version-check --no-build-isolation --no-deps --target installed "${@:2}"
}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a broker with one worker of two slots, which stays for an hour."""
    place = tmp_path_factory.mktemp("docs")
    home, log = place / "home", place / "log"
    broker = Command(["broker", "--home", str(home), "--listen", "127.0.0.1:0"], place, log)
    line, pc = f"@{home / 'worker.join'}", str(place / "pc")
    worker = Command(
        [*WORKER, "--join", line, "--home", pc, "--name", "lab-pc", "--slots", "2", "--until", "3600"], place, log
    )
    try:
        assert eventually((home / "client.join").exists, PATIENCE_S), log.read_text(encoding="utf-8")
        with Grid(f"@{home / 'client.join'}") as grid:
            assert eventually(lambda: bool(grid.status()["workers"]), PATIENCE_S), log.read_text(encoding="utf-8")
        yield home
    finally:
        worker.close()
        broker.close()


def steps(block: Block, folder: Path) -> str:
    """What to do with a block, in bash."""
    if not (name := block.note("file")) and not block.is_run:
        return ""
    if not name and block.language == "sh":
        return f"# {block}\n{block.text}"
    path = folder / (name or f"line_{block.line}.py")
    path.write_text(block.text, encoding="utf-8")
    return "" if name else f"# {block}\npython {path.name}\n"


@pytest.mark.parametrize("page", RUN)
def test_what_a_page_shows_runs(page: str, home: Path, tmp_path: Path) -> None:
    script = PRELUDE + "".join(steps(block, tmp_path) for block in blocks(page))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DESKGRID_")} | {
        "DESKGRID_HOME": str(home),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(tmp_path / "installed"),
        "TMPDIR": str(tmp_path),
    }
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, f"{script}\n{ran.stdout}"
    missing = [text for text in PRINTED.get(page, []) if text not in ran.stdout]
    assert not missing, ran.stdout


def test_the_pages_that_print_something_are_run() -> None:
    assert set(PRINTED) <= set(RUN)


@pytest.mark.parametrize("program", sorted(path.name for path in (ROOT / "examples").glob("*.[ps][yh]")))
def test_an_example_runs(program: str, home: Path, tmp_path: Path) -> None:
    if program == "heat_mpi.py" and importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: it has no wheel for this platform or Python")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"DESKGRID_JOIN": f"@{home / 'client.join'}", "PATH": path}
    if program == "environment.py":  # what pip would find in a package index, made of what is installed here
        for name in ("numpy", "cloudpickle", "msgpack"):
            installed_wheel(tmp_path / "index", name)
        told = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "index"), "PIP_CONFIG_FILE": os.devnull}
        environment |= told | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "LOCALAPPDATA": str(tmp_path / "cache")}
    ran = subprocess.run(
        ["sh" if program.endswith(".sh") else sys.executable, str(ROOT / "examples" / program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout
