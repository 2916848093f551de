"""Checks that the files of a journal are whole, before anything in them is used.

Each check returns what is wrong, or "". SQLite checks the log by itself: every page in it has a checksum, and SQLite
reads the log up to the last whole commit. It finds damage to the tables only when it reads the damaged page, and some
damage never: in a long value that spans pages, it only checks the links between the pages. So we add checksums to long
values.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from deskgrid.broker.store.result_blocks import Block

# SQLite's default page size; a journal has at least one page. In the log, each has a header of its own.
PAGE_BYTES = 4096
_LOG_HEADER, _FRAME_HEADER = 32, 24
# Blocks of results with more bytes than this have a checksum. A row of up to 4,061 bytes stays within one page, and the
# columns that are not counted are far shorter than the difference.
LONG_BYTES = 2048
# Rows with checksums, and the columns that these cover.
_CHECKED = (
    ("SELECT digest FROM templates WHERE checksum IS NOT checksum(data)", "template"),
    ("SELECT hex(digest) FROM parts WHERE checksum IS NOT checksum(data)", "part of a file"),
    ("SELECT first FROM batches WHERE checksum IS NOT checksum(payloads, runtimes, first_runtimes)", "batch"),
    ("SELECT first FROM predictions WHERE checksum IS NOT checksum(runtimes)", "prediction of batch"),
    ("SELECT number FROM checkpoints WHERE checksum IS NOT checksum(data)", "checkpoint"),
    ("SELECT number FROM checkpoint_parts WHERE checksum IS NOT checksum(data)", "part of a checkpoint"),
    ("SELECT task FROM ranks WHERE checksum IS NOT NULL AND checksum IS NOT checksum(payload, stdout, stderr)", "rank"),
    (
        "SELECT low FROM results INDEXED BY long_results WHERE checksum IS NOT NULL "
        "AND checksum IS NOT checksum(tasks, told, printed, large)",
        "result",
    ),
)


def had_begun(tables: Path) -> Path:
    """The file that says that there was a journal: a home with this file but without tables is not a new home."""
    return tables.with_name(f"{tables.name}-begun")


def wrong_with_files(tables: Path, log: Path) -> str:
    """Check files before opening them: SQLite removes a log without tables, and pads truncated tables with zeros."""
    size = tables.stat().st_size if tables.is_file() else 0
    if size < PAGE_BYTES:
        if log.is_file() and log.stat().st_size:
            return "it is gone, but its log is there"
        begun = had_begun(tables)
        return f"nothing is left of it (to begin with an empty one, remove {begun})" if begun.exists() else ""
    with tables.open("rb") as file:
        header = file.read(100)
    if not header.startswith(b"SQLite format 3\0"):
        return ""  # SQLite refuses it
    # Pages that the header counts but the file lacks have to be in the log: the process died while it copied them.
    missing = set(range(size // PAGE_BYTES + 1, int.from_bytes(header[28:32], "big") + 1))
    return f"it was cut to {size} bytes" if missing and not missing <= set(_pages_in(log)) else ""


def _pages_in(log: Path) -> Iterator[int]:
    """The numbers of the pages in the log, without leftovers of an earlier log after its end."""
    if not log.is_file():
        return
    with log.open("rb") as file:
        salt = file.read(_LOG_HEADER)[16:24]
        while len(frame := file.read(_FRAME_HEADER + PAGE_BYTES)) == _FRAME_HEADER + PAGE_BYTES:
            if frame[8:16] != salt:
                return
            yield int.from_bytes(frame[:4], "big")


def wrong_with_pages(db: sqlite3.Connection) -> str:
    """Check every page of the open tables, a quarter of a second for a million tasks."""
    found: str = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    return "" if found == "ok" else " ".join(found.split())


def checksum(*values: bytes | str | None) -> int:
    """The checksum of the long values of a row; None counts as empty."""
    found = 0
    for value in values:
        found = crc32(value.encode() if isinstance(value, str) else value or b"", found)
    return found


def checksum_of_block(block: Block) -> int | None:
    """The checksum of a row of results; None when it is short."""
    values = (block.tasks, block.told, block.printed, block.large)
    return checksum(*values) if sum(map(len, filter(None, values))) > LONG_BYTES else None


def teach_checksums(db: sqlite3.Connection) -> None:
    """Add the SQL function ``checksum(...)``."""
    db.create_function("checksum", -1, checksum, deterministic=True)


def drop_damaged_checkpoints(db: sqlite3.Connection) -> int:
    """Delete checkpoints that are not what was written, and return how many: tasks go on from earlier ones."""
    wrong = "typeof(data) = 'blob' AND checksum IS NOT checksum(data)"
    whole = "number NOT IN (SELECT checkpoint FROM checkpoint_parts WHERE checkpoint IS NOT NULL)"
    return db.execute(f"DELETE FROM checkpoints WHERE {wrong} AND {whole}").rowcount


def wrong_with_values(db: sqlite3.Connection) -> str:
    """Check every long value, about a second for each GiB. Call this when the pages are whole."""
    for query, what in _CHECKED:
        row = db.execute(f"{query} LIMIT 1").fetchone()
        if row is not None:
            return f"{what} {row[0]} is not what was written"
    return ""


def why_unusable(database: Path, error: sqlite3.Error) -> str:
    """Why a journal cannot be opened."""
    if "locked" in str(error):
        return f"{database.parent} is in use by another broker"
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        what = "a journal can neither be created nor converted from an earlier format"
        return f"the disk of {database.parent} is full: {what}; make some room"
    return f"cannot use {database}: {error}"
