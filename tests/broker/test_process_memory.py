"""Process memory: freed memory is kept, so large payloads cause no page faults each time; and how much there is."""

import math
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from deskgrid import process_memory

FRAMES = """
import resource, sys
from deskgrid.process_memory import keep_freed
if sys.argv[1:]:
    keep_freed()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def message():
    frames = [bytearray(b"x") * 2**20 for _ in range(10)]
message()
before = faults()
for _ in range(20):
    message()
print(faults() - before)
"""


def faults(*arguments: str) -> int:
    """Pages that a new process was given for twenty messages, after the first."""
    command = [sys.executable, "-c", FRAMES, *arguments]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries do as they please")
def test_memory_of_large_frames_is_used_again() -> None:
    assert 10 * faults("keep") < faults()


@pytest.mark.skipif(sys.platform != "linux", reason="others do not count it")
def test_what_a_process_has_is_counted() -> None:
    before = process_memory.held()
    more = bytearray(b"x") * 2**26
    assert len(more) * 0.9 < process_memory.held() - before < len(more) * 1.5
    assert before < 2**33


def test_where_nobody_counts_it_is_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    monkeypatch.setattr(process_memory, "_STATUS", status)
    assert process_memory.held() == math.inf
    status.write_text("Name:\tpython\n")
    assert process_memory.held() == math.inf
