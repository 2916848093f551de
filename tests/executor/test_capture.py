"""The file behind a task's stdout: when its middle is cut out, and when it is left alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskgrid.worker.run.child import Capture

# What is kept of an output, half of it from each end, and from where on its middle is cut out.
KEEP, MOST = 100, 1000


class Written:
    """A capture, and whoever writes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "out"
        self._stdout = os.open(os.devnull, os.O_WRONLY)
        self.capture = Capture(str(self._path), self._stdout, KEEP, MOST)

    def write(self, data: bytes) -> None:
        """As a task does."""
        assert os.write(self._stdout, data) == len(data)

    @property
    def there(self) -> int:
        """Bytes of the file that were written and are still there: the others are a hole, and read as 0."""
        data = self._path.read_bytes()
        return len(data) - data.count(b"\0")

    def close(self) -> None:
        for descriptor in (self._stdout, self.capture._file, self.capture._writer):
            os.close(descriptor)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path)
    yield made
    made.close()


def test_as_much_as_is_allowed_is_left_alone_and_a_byte_more_is_not(written: Written) -> None:
    written.write(b"a" * MOST)
    written.capture.trim()
    assert written.there == MOST
    written.write(b"a")
    written.capture.trim()
    assert written.there == KEEP


def test_what_was_cut_once_is_left_alone_until_as_much_again_was_written(written: Written) -> None:
    written.write(b"a" * 5 * MOST)
    written.capture.trim()
    assert written.there == KEEP
    written.write(b"b" * MOST)
    written.capture.trim()
    assert written.there == KEEP + MOST
    written.write(b"c")
    written.capture.trim()
    assert written.there == KEEP


def test_the_next_task_begins_anew(written: Written) -> None:
    written.write(b"a" * 5 * MOST)
    written.capture.trim()
    written.capture.take()
    written.write(b"b" * (MOST + 1))
    written.capture.trim()
    assert written.there == KEEP
    assert written.capture.take().startswith(b"b" * (KEEP // 2))
