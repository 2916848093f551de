"""The demo's long task: count the names in the source of the standard library. Workers load this file.

It takes longer than any window of the demo's PCs, so it saves checkpoints. Its input and its result are files.
"""

import io
import tarfile
import time
import tokenize
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deskgrid import File, checkpoint

# Files on which the speed is measured.
_SAMPLE_FILES = 5


@dataclass
class Census:
    """The names that were counted so far, in the first ``files`` files, which have ``size`` bytes."""

    files: int = 0
    size: int = 0
    names: "Counter[str]" = field(default_factory=Counter)


def names_in(source: bytes) -> list[str]:
    """The names in the source of a module, keywords included. Of a file that is not Python, those before the error."""
    found = list[str]()
    try:
        tokens = tokenize.tokenize(io.BytesIO(source).readline)
        found.extend(token.string for token in tokens if token.type == tokenize.NAME)
    except (SyntaxError, tokenize.TokenError, UnicodeDecodeError):
        pass  # what came before is in the list; the library has such files, for its own tests
    return found


def take_census(archive: File) -> File:
    """The task: count the names in all files of a tar archive. Returns a text, with the most frequent name first."""
    census = checkpoint.load(Census())
    with tarfile.open(archive.path) as tar:
        members = tar.getmembers()
        total = sum(member.size for member in members)
        for member in members[census.files :]:
            if (content := tar.extractfile(member)) is not None:
                census.names.update(names_in(content.read()))
            census.files += 1
            census.size += member.size
            checkpoint.save(census, progress=census.size / total)
    result = File("names.txt")
    rows = sorted(census.names.items(), key=lambda row: (-row[1], row[0]))
    Path(result).write_text("".join(f"{name} {count}\n" for name, count in rows), encoding="utf-8")
    return result


def archive_for(root: Path, paths: Sequence[str], budget: float, archive: Path) -> tuple[int, float]:
    """Write the first of ``paths`` to ``archive``, as many as take ``budget`` seconds on this machine.

    Returns how many there are, and their predicted seconds.
    """
    sizes = [(root / path).stat().st_size for path in paths]
    speed = _seconds_per_byte([(root / path).read_bytes() for path in paths[:: max(1, len(paths) // _SAMPLE_FILES)]])
    count, seconds = 0, 0.0
    # A library can hold links, which may lead out of it: Debian's sitecustomize.py is in /etc. Their contents travel.
    with tarfile.open(archive, "w", dereference=True) as tar:
        for path, size in zip(paths, sizes, strict=True):
            if count and seconds + size * speed > budget:
                break
            tar.add(root / path, path)
            count, seconds = count + 1, seconds + size * speed
    return count, seconds


def _seconds_per_byte(sample: Sequence[bytes]) -> float:
    started = time.perf_counter()
    for source in sample:
        names_in(source)
    return (time.perf_counter() - started) / sum(map(len, sample))
