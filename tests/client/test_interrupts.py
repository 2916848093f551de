"""Ctrl-C while a program waits: it sees its own line and a sentence, and nothing of ours."""

import os
import subprocess
import sys

import pytest

from tests.architecture.reading import ROOT
from tests.client.fakebroker import FakeGrid
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no signal reaches one process alone there")

GOES_ON = "goes on; grid.attach("
CANCELLED = "the calls that had not ended are cancelled"
WAITS = {
    "bag.results()": GOES_ON,
    "bag.wait()": GOES_ON,
    "list(bag.as_completed())": GOES_ON,
    "bag.fetch()": GOES_ON,
    "grid.submit(abs, -1).result()": CANCELLED,
    "grid.submit(abs, -1).exception()": CANCELLED,
    "list(grid.map(abs, [-1]))": "",
    "list(grid.map(abs, [-1], chunksize=2))": "",
    "list(grid.map(abs, [-1, Slow()], buffersize=1))": "",
    "grid.submit(abs, Slow())": "",
    "grid.submit(abs, -1) and grid.shutdown()": CANCELLED,
    "grid.bag(abs, iter(lambda: time.sleep(0.05), 1))": "",
}


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_shows_the_line_of_the_program_and_a_sentence(fake: FakeGrid, wait: str) -> None:
    fake.memory.hold = True
    program = f"""
import os, signal, sys, threading, time
from deskgrid import Grid

class Slow:
    def __reduce__(self):
        time.sleep(60)

def interrupted():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)

with Grid(sys.argv[1]) as grid:
    bag = grid.bag(abs, [-1])
    threading.Thread(target=interrupted).start()
    {wait}
"""
    done = subprocess.run(
        [sys.executable, "-c", program, fake.line],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    lines = done.stderr.splitlines()
    assert [line.split(",")[0] for line in lines if line.startswith("  File")][:1] == ['  File "<string>"']
    assert not [line for line in lines if line.startswith("  File") and "<string>" not in line and "deskgrid" in line]
    assert lines[0] == "Traceback (most recent call last):"
    assert "KeyboardInterrupt" in lines
    assert WAITS[wait] in done.stderr
    assert len(lines) < 12
