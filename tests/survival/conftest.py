"""A file system that can really be full. Where nobody may mount one, its tests are skipped."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SIZE = 16 * 1024 * 1024


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own, of 16 MiB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place: Path, leave: int) -> Path:
    """A file that takes the space that is free, but for so many bytes."""
    ballast = place / "ballast"
    with ballast.open("wb") as file, suppress(OSError):
        while (free := os.statvfs(place).f_bavail * os.statvfs(place).f_frsize) > leave:
            file.write(bytes(min(65536, free - leave)))
            file.flush()
    return ballast
