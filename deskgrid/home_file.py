"""A TOML file in the broker's home that people may change while the broker runs.

Rule 1: a file that is wrong does not count: what it said when it was last right stays in force, also across a restart.
Rule 2: nobody is to wait for a file: what is not a regular file, or is too large, is wrong.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

# The time of the last change, in ns, and the size in bytes.
Stamp = tuple[int, int]
# No message is handled while the broker reads a file: some 25 ms for this many bytes of shares.
FILE_BYTES = 64 * 2**10
# Of what is wrong, for people: it may quote the file.
PROBLEM_CHARACTERS = 400

# Of a file that nobody has looked for yet.
_UNREAD = -1, -1

Content = TypeVar("Content")


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes whenever the file at ``path`` does; None if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.errno or 0, -1  # unlike any real stamp, so the file is read once and the error reported
    return found.st_mtime_ns, found.st_size


class HomeFile(Generic[Content]):
    """One file. ``content`` and ``text``: what it said when it was last right; the text is None if there was no file.

    ``error``: why what is there now does not count; empty if it counts.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[dict[str, Any]], Content],
        *,
        unknown: tuple[Content, str] | None = None,
        limit: int = FILE_BYTES,
    ) -> None:
        """``read`` makes the content of the file's table, which is empty if there is no file; it raises ValueError.

        ``unknown``: the content if the file is wrong and nothing is known of an earlier one, and what this means, for
        people; by default, it is as without a file. ``limit``: the most bytes.
        """
        self.name = path.name
        self._path = path
        self._read = read
        self._limit = limit
        self._stamp: Stamp | None = _UNREAD
        self.content = read({})
        self._unknown = unknown or (self.content, "it is as if there were no file")
        self.text: str | None = None
        self.error = ""
        self._was_right = False

    @property
    def problem(self) -> str:
        """Why what is there now does not count, and what does, in one sentence; empty if it counts."""
        counts = "what it said before still counts" if self._was_right else self._unknown[1]
        return f"{self.name}: {self.error}; {counts}" if self.error else ""

    def restore(self, text: str | None) -> None:
        """Begin with what the file said when it was last right, before a restart."""
        if self._was_right:
            return
        try:
            self.content = self._read(_table(text))
        except (ValueError, RecursionError):  # an earlier version could read it
            return
        self.text = text
        self._was_right = True

    def refresh(self) -> bool:
        """Read the file again if it has changed, come or gone; return whether its content or problem is another one."""
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp  # before reading: a change while we read has another stamp and is seen next time
        before = self.content, self.error
        try:
            text = None if stamp is None else self._read_text(stamp)
            self.content = self._read(_table(text))
            self.text, self.error, self._was_right = text, "", True
        except (ValueError, RecursionError) as error:
            self.error = str(error)[:PROBLEM_CHARACTERS]
            if not self._was_right:
                self.content = self._unknown[0]
        return before != (self.content, self.error)

    def _read_text(self, stamp: Stamp) -> str:
        if stamp[1] > self._limit:
            raise ValueError(f"it has {stamp[1]:,} bytes; the limit is {self._limit:,}")
        try:
            if not self._path.is_file():
                raise ValueError("it is not a file")
            with self._path.open("rb") as file:
                return file.read(self._limit + 1).decode("utf-8-sig")
        except OSError as error:
            raise ValueError(f"it cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"it is not text in UTF-8: {error}") from error


def _table(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    return read_toml(text)


def read_toml(text: str) -> dict[str, Any]:
    """Return the table that TOML ``text`` holds. Raises ValueError, with line and column, if it is not TOML."""
    import tomllib  # most brokers have no such file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        hint = "; is something not in quotes?" if said.startswith(("Invalid", "Expected")) else ""
        raise ValueError(f"{said}{hint}") from error
