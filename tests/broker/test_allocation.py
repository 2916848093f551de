"""What is freed stays with the process, so that large payloads are not paid for page by page each time."""

import platform
import subprocess
import sys

import pytest

FRAMES = """
import resource, sys
from broker.allocation import keep_freed
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
