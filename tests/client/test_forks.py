"""A Grid in a forked child, and at the end of its program: who cannot use it hears so at once, and breaks nothing."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture.reading import ROOT
from tests.client.fakebroker import FakeGrid
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")

OPENED = """
import os, sys, time
import concurrent.futures
from deskgrid import Grid

grid = Grid(sys.argv[1])
bag = grid.bag(abs, [-1])
future = grid.submit(abs, -1)

def tried(name, action):
    try:
        print(name, "->", action(), flush=True)
    except RuntimeError as error:
        print(name, "->", type(error).__name__, "was forked" in str(error), flush=True)
"""
USES = {
    "submit": "grid.submit(abs, -1)",
    "map": "list(grid.map(abs, [-1]))",
    "bag": "grid.bag(abs, [-1])",
    "command": "grid.command(['true'], ['x'])",
    "attach": "grid.attach('b')",
    "status": "grid.status()",
    "bags": "grid.bags()",
    "whatif": "grid.whatif(runtime=1, tasks=1)",
    "policy": "grid.policy('fcfs')",
    "results": "bag.results()",
    "as_completed": "list(bag.as_completed())",
    "wait": "bag.wait()",
    "progress": "bag.progress()",
    "cancel": "bag.cancel()",
    "logs": "bag.logs(0)",
    "follow": "list(bag.follow())",
    "fetch": "bag.fetch()",
    "result": "future.result()",
    "exception": "str(future.exception()).count('was forked') and future.result()",
    "wait for futures": "concurrent.futures.wait([future]).done.pop().result()",
}


def run(program: str, line: str, *, env: dict[str, str] | None = None) -> str:
    """What a program prints that must end by itself, and well."""
    done = subprocess.run(
        [sys.executable, "-c", program, line],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_a_forked_child_every_use_says_at_once_that_the_grid_is_not_its_own(fake: FakeGrid) -> None:
    fake.memory.hold = True
    tries = "".join(f"    tried({name!r}, lambda: {use})\n" for name, use in USES.items())
    program = f"""{OPENED}
pid = os.fork()
if pid == 0:
{tries}    os._exit(0)
os.waitpid(pid, 0)
grid._abort()
"""
    assert run(program, fake.line).splitlines() == [f"{name} -> GridClosed True" for name in USES]


def test_locks_that_a_thread_held_at_the_fork_hold_nobody_up_in_the_child(fake: FakeGrid) -> None:
    fake.memory.hold = True
    program = f"""{OPENED}
import threading
from deskgrid.client.lock import LOCK

forked, held = threading.Event(), threading.Event()

def hold():
    with grid._futures.beginning:
        with LOCK:
            held.set()
            time.sleep(0.1)  # for as long, nobody can fork
        forked.wait()

threading.Thread(target=hold).start()
held.wait()
pid = os.fork()
if pid == 0:
    tried("submit", lambda: grid.submit(abs, -1))
    tried("progress", lambda: bag.progress())
    tried("result", lambda: future.result())
    print("cancel ->", future.cancel(), flush=True)
    grid.shutdown()
    os._exit(0)
forked.set()
os.waitpid(pid, 0)
grid._abort()
"""
    lines = ["submit -> GridClosed True", "progress -> GridClosed True", "result -> GridClosed True", "cancel -> False"]
    assert run(program, fake.line).splitlines() == lines


def test_a_child_that_ends_leaves_the_parents_grid_as_it_is(fake: FakeGrid) -> None:
    program = f"""{OPENED}
for leave in (lambda: sys.exit(0), lambda: grid.shutdown(), lambda: None):
    if os.fork() == 0:
        with grid:
            leave()
        del grid, bag, future
        sys.exit(0)
    os.wait()
print(grid.submit(abs, -2).result())
"""
    assert run(program, fake.line) == "2\n"


def test_a_grid_that_a_child_opens_is_its_own(fake: FakeGrid) -> None:
    program = f"""{OPENED}
if os.fork() == 0:
    with Grid(sys.argv[1]) as own:
        print(own.submit(abs, -3).result(), flush=True)
    sys.exit(0)
os.wait()
print(grid.submit(abs, -2).result())
"""
    assert run(program, fake.line) == "3\n2\n"


def test_a_child_that_stays_does_not_keep_the_parents_private_grid(tmp_path: Path) -> None:
    program = """
import os, sys, time
from deskgrid.client import local

keeper = local.start(1, [sys.executable, sys.argv[1], sys.argv[2]])
ready, go = os.pipe(), os.pipe()
if os.fork() == 0:
    keeper.forked()
    os.write(ready[1], b"x")
    os.close(go[1])
    os.read(go[0], 1)
    os._exit(0)
os.read(ready[0], 1)
start = time.monotonic()
keeper.stop()
print(time.monotonic() - start < local.STOP_S)
os.close(go[1])
os.wait()
"""
    fake = Path(__file__).with_name("fakeprogram.py")
    done = subprocess.run(
        [sys.executable, "-c", program, str(fake), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_files_of_results_stay_when_a_child_ends(tmp_path: Path) -> None:
    program = """
import os, sys
from deskgrid.client.downloads import _OUR_FOLDER
folder = _OUR_FOLDER.path()
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(folder.is_dir())
"""
    assert run(program, "", env={"TMPDIR": str(tmp_path)}) == "True\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("registered", ["before", "after"])
def test_a_call_from_an_exit_handler_is_refused(fake: FakeGrid, registered: str) -> None:
    handler = """
@atexit.register
def late():
    try:
        grid.submit(abs, -1)
    except deskgrid.GridClosed as error:
        print("GridClosed")
"""
    opened = "\ngrid = deskgrid.Grid(sys.argv[1])\n"
    both = handler + opened if registered == "before" else opened + handler
    assert run(f"import atexit, sys, deskgrid\n{both}", fake.line) == "GridClosed\n"


@pytest.mark.parametrize("end", ["grid.shutdown(wait=False)", "pass"])
def test_what_was_submitted_to_a_private_grid_runs_although_the_program_ends(tmp_path: Path, end: str) -> None:
    program = f"""
import sys, time
from collections.abc import Callable
from pathlib import Path
from deskgrid import Grid

def work(path):
    time.sleep(0.3)
    Path(path).write_text("done")

grid = Grid.local(workers=1)
grid.submit(work, sys.argv[1])
{end}
"""
    run(program, str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "done"


def test_a_loop_over_results_that_was_begun_before_the_fork_says_so_too(fake: FakeGrid) -> None:
    program = f"""{OPENED}
bag = grid.bag(abs, iter([-1, -2]), name="held")
found, mapped = bag.as_completed(), grid.map(abs, [-1, -2])
next(found), next(mapped)
if os.fork() == 0:
    tried("results", lambda: (next(found), next(found)))
    tried("map", lambda: (next(mapped), next(mapped)))
    os._exit(0)
os.wait()
"""
    fake.memory.hold = True

    def all_but_the_last() -> bool:
        for bag_id, bag in list(fake.memory.bags.items()):
            fake.broker.run(bag_id, *range(len(bag.payloads) - 1))
        return False

    run_while(all_but_the_last, program, fake.line)


def run_while(action: Callable[[], bool], program: str, line: str) -> None:
    """Run a program that says "GridClosed" twice, and do ``action`` again and again until it ends."""
    with subprocess.Popen(
        [sys.executable, "-c", program, line],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert eventually(lambda: action() or running.poll() is not None, PATIENCE_S)
        assert running.stdout is not None
        assert running.stdout.read().count("-> GridClosed True") == 2
