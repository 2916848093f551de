"""A script that another program runs with `python -m` is `__main__`, as one that Python runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.reading import ROOT
from tests.client.fakebroker import FakeGrid
from tests.waiting import PATIENCE_S

SCRIPT = """
import pickle, sys
from deskgrid import Grid

class Point:
    x = 1

def point(x):
    found = Point()
    found.x = x
    return found

with Grid(sys.argv[1]) as grid:
    found = pickle.loads(pickle.dumps(point(2)))
    main = sys.modules["__main__"]
    main.late = 3
    print(type(found) is Point, found.x, pickle.loads(pickle.dumps(point)) is point, late, hasattr(main, "none"))
    print(grid.submit(abs, -4).result(), main.__file__ == __file__, vars(main) is globals(), main.__spec__)
"""


@pytest.mark.parametrize(
    "runner", [[], ["cProfile", "-o", os.devnull], ["profile", "-o", os.devnull], ["trace", "--listfuncs"]]
)
def test_a_script_that_is_run_by_another_module_is_main(fake: FakeGrid, tmp_path: Path, runner: list[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, *(["-m", *runner] if runner else []), str(script), fake.line],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "True 2 True 3 False\n" in done.stdout, done.stderr
    assert "4 True True None\n" in done.stdout, done.stderr
