"""Whether the files of a journal are whole: looked at before anything of them is believed.

Each function returns what is wrong, or "". SQLite itself vouches for the log, whose every page has a checksum: it takes
it up to the last commit that is whole. Damage to the tables it would find when it comes across it, and some never: of
a long value that goes on from page to page it only looks where the next one is. Hence the checksums of long values.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from deskgrid.broker.store.result_blocks import Block

# SQLite's page, by its default; a journal has at least one. In the log, each has a header of its own.
PAGE_BYTES = 4096
_LOG_HEADER, _FRAME_HEADER = 32, 24
# What a block of results has to say, in bytes, to be given a checksum. A row of a table stays within a page up to 4,061
# bytes, and what a block's row has besides is far shorter than the rest. (`schema` has this number, too.)
LONG_BYTES = 2048
# Rows that have checksums, and what these are made of.
_CHECKED = (
    ("SELECT digest FROM templates WHERE checksum IS NOT checksum(data)", "template"),
    ("SELECT first FROM batches WHERE checksum IS NOT checksum(payloads, runtimes, first_runtimes)", "batch"),
    ("SELECT first FROM predictions WHERE checksum IS NOT checksum(runtimes)", "prediction of batch"),
    (
        "SELECT low FROM results INDEXED BY long_results WHERE checksum IS NOT NULL "
        "AND checksum IS NOT checksum(tasks, told, printed, large)",
        "result",
    ),
)


def had_begun(tables: Path) -> Path:
    """The file that says that there was a journal: with nothing else left of it, that is no new home."""
    return tables.with_name(f"{tables.name}-begun")


def wrong_with_files(tables: Path, log: Path) -> str:
    """Before they are opened: SQLite removes a log without tables, and fills up tables that were cut with zeros."""
    size = tables.stat().st_size if tables.is_file() else 0
    if size < PAGE_BYTES:
        if log.is_file() and log.stat().st_size:
            return "it is gone, but its log is there"
        begun = had_begun(tables)
        return f"nothing is left of it (to begin with an empty one, remove {begun})" if begun.exists() else ""
    with tables.open("rb") as file:
        header = file.read(100)
    if not header.startswith(b"SQLite format 3\0"):
        return ""  # it will be refused
    # Pages that are said to be there, but are not, have to be in the log: the process died while they were copied.
    missing = set(range(size // PAGE_BYTES + 1, int.from_bytes(header[28:32], "big") + 1))
    return f"it was cut to {size} bytes" if missing and not missing <= set(_pages_in(log)) else ""


def _pages_in(log: Path) -> Iterator[int]:
    """The numbers of the pages in the log, but for what an earlier log left behind its end."""
    if not log.is_file():
        return
    with log.open("rb") as file:
        salt = file.read(_LOG_HEADER)[16:24]
        while len(frame := file.read(_FRAME_HEADER + PAGE_BYTES)) == _FRAME_HEADER + PAGE_BYTES:
            if frame[8:16] != salt:
                return
            yield int.from_bytes(frame[:4], "big")


def wrong_with_pages(db: sqlite3.Connection) -> str:
    """When they are open: every page is looked at, which takes a quarter of a second for a million tasks."""
    found: str = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    return "" if found == "ok" else " ".join(found.split())


def checksum(*values: bytes | str | None) -> int:
    """Of the long values of a row; no value is like an empty one."""
    found = 0
    for value in values:
        found = crc32(value.encode() if isinstance(value, str) else value or b"", found)
    return found


def checksum_of_block(block: Block) -> int | None:
    """Of a row of results; None when it is short."""
    said = (block.tasks, block.told, block.printed, block.large)
    return checksum(*said) if sum(map(len, filter(None, said))) > LONG_BYTES else None


def teach_checksums(db: sqlite3.Connection) -> None:
    """Let statements say ``checksum(...)``."""
    db.create_function("checksum", -1, checksum, deterministic=True)


def wrong_with_values(db: sqlite3.Connection) -> str:
    """When the pages are whole: every long value is read, which takes about a second for each GiB."""
    for query, what in _CHECKED:
        row = db.execute(f"{query} LIMIT 1").fetchone()
        if row is not None:
            return f"{what} {row[0]} is not what was written"
    return ""
