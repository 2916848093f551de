"""The journal's tables, and how a journal of an earlier format is converted to the newest.

Rule: a format is never edited. A change is a step to a new format, which converts existing journals.
"""

import sqlite3

# The format of `_TABLES`. Nobody has a journal of an earlier one.
OLDEST = 18
# Checksums, because SQLite does not notice an overwritten page in the middle of a long value: see `integrity`.
_TABLES = """
-- What the journal is: its format, and how often it was opened.
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- Bags. ``options`` is one packed value, to which later options can be added. Orders on bags are carried out in slices,
-- and a restart goes on with them.
CREATE TABLE templates (digest TEXT PRIMARY KEY, kind TEXT, data BLOB, checksum INTEGER);
CREATE TABLE bags (number INTEGER PRIMARY KEY, id TEXT UNIQUE, name TEXT, kind TEXT, owner TEXT, template TEXT,
                   options BLOB, predicted INTEGER, closed INTEGER, created REAL, session TEXT);
CREATE INDEX bags_of_template ON bags (template);
CREATE TABLE orders (bag INTEGER, what TEXT, PRIMARY KEY (bag, what)) WITHOUT ROWID;
-- Tasks and their arguments. New predictions have a table of their own, because a change to the batch's row would write
-- its arguments again.
CREATE TABLE batches (first INTEGER PRIMARY KEY, bag INTEGER, start INTEGER, count INTEGER,
                      payloads BLOB, runtimes BLOB, arrived REAL, first_runtimes BLOB, checksum INTEGER);
CREATE INDEX batches_of_bag ON batches (bag);
CREATE TABLE predictions (first INTEGER PRIMARY KEY, runtimes BLOB, checksum INTEGER);
-- Who has which attempt, and second attempts of running tasks. Nobody but the session may say how an attempt ended.
CREATE TABLE sent (task INTEGER PRIMARY KEY, number INTEGER, session TEXT);
CREATE TABLE copies (task INTEGER PRIMARY KEY, number INTEGER, session TEXT);
-- Results in blocks (`deskgrid.broker.store.result_blocks`).
CREATE TABLE results (seq INTEGER PRIMARY KEY AUTOINCREMENT, bag INTEGER, low INTEGER, high INTEGER, size INTEGER,
                      ended REAL, tasks BLOB, told BLOB, printed BLOB, large BLOB, checksum INTEGER);
CREATE INDEX results_of_bag ON results (bag, seq);
CREATE INDEX results_of_tasks ON results (high, low);
CREATE INDEX long_results ON results (seq) WHERE checksum IS NOT NULL;
-- Large values are files. A batch, or a column of a result, has the name of the file instead, as a text.
CREATE TABLE files (name TEXT PRIMARY KEY, bag INTEGER, batch INTEGER, size INTEGER, checksum INTEGER) WITHOUT ROWID;
CREATE INDEX files_of_bag ON files (bag);
CREATE INDEX files_of_batch ON files (batch) WHERE batch IS NOT NULL;
-- Parts of stored files, and who holds them (`deskgrid.broker.store.parts`).
CREATE TABLE parts (digest BLOB PRIMARY KEY, size INTEGER, data BLOB, checksum INTEGER);
CREATE TABLE holders (number INTEGER PRIMARY KEY, bag TEXT, owner TEXT, touched REAL, first INTEGER, each INTEGER,
                      results INTEGER NOT NULL DEFAULT 0);
CREATE INDEX holders_of_bag ON holders (bag);
CREATE TABLE holds (digest BLOB, owner TEXT, holder INTEGER, PRIMARY KEY (digest, owner, holder)) WITHOUT ROWID;
CREATE INDEX holds_of_holder ON holds (holder);
-- Checkpoints of tasks that have not ended. A checkpoint is a value like an argument: in the table, or in a file. If it
-- came in several messages, the last part is in the table of checkpoints: ``checkpoint`` is the number there, and NULL
-- until the last part has come.
CREATE TABLE checkpoints (number INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER, bag INTEGER, progress REAL,
                          left_s REAL, size INTEGER, data BLOB, checksum INTEGER);
CREATE TABLE checkpoint_parts (number INTEGER PRIMARY KEY AUTOINCREMENT, checkpoint INTEGER, task INTEGER, bag INTEGER,
                               start INTEGER, data BLOB, checksum INTEGER);
CREATE INDEX parts_of_checkpoint ON checkpoint_parts (checkpoint, start);
CREATE INDEX checkpoint_parts_of_task ON checkpoint_parts (task) WHERE checkpoint IS NULL;
-- Attempts of parallel tasks, their ranks, and what these said to MPI's process manager.
CREATE TABLE gangs (task INTEGER PRIMARY KEY, number INTEGER, bag INTEGER, began REAL, runtime REAL, port INTEGER,
                    met INTEGER);
CREATE TABLE ranks (task INTEGER, rank INTEGER, bag INTEGER, session TEXT, worker TEXT, slots BLOB, outcome INTEGER,
                    elapsed REAL, size INTEGER, payload BLOB, stdout BLOB, stderr BLOB, checksum INTEGER,
                    UNIQUE (task, rank));
CREATE INDEX ranks_of_bag ON ranks (bag);
CREATE TABLE gang_lines (number INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER, rank INTEGER, ends INTEGER, line BLOB);
CREATE INDEX lines_of_gang ON gang_lines (task);
-- The windows of workers, for replays, what was learned, what each owner has used, for fair share, and when bags would
-- end, as it was told.
CREATE TABLE windows (number INTEGER PRIMARY KEY, worker TEXT, session TEXT, site TEXT, slots INTEGER,
                      opened REAL, planned REAL, closed REAL, how TEXT, kills INTEGER, wasted_s REAL);
CREATE INDEX open_windows ON windows (number) WHERE closed IS NULL;
CREATE TABLE learned (number INTEGER PRIMARY KEY, kind TEXT, name TEXT, learned BLOB, UNIQUE (kind, name));
CREATE TABLE usage (owner TEXT PRIMARY KEY, used_s REAL, at REAL) WITHOUT ROWID;
CREATE TABLE etas (number INTEGER PRIMARY KEY, bag INTEGER, made REAL, ended REAL, median REAL, low REAL, high REAL);
CREATE INDEX etas_of_bag ON etas (bag);
"""
# The step from each format to the next, from the oldest on. A new journal takes all of them, after its tables.
_STEPS: tuple[str, ...] = (
    # PCs that somebody drained; ``until`` NULL: until somebody undoes it.
    "CREATE TABLE drains (pc TEXT PRIMARY KEY, by TEXT, until REAL) WITHOUT ROWID",
    # What files in the home said when they were last right; ``text`` NULL: they were not there.
    "CREATE TABLE home_files (name TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID",
    # The network cards of PCs, by which they can be woken.
    "CREATE TABLE macs (pc TEXT PRIMARY KEY, mac TEXT) WITHOUT ROWID",
)
FORMAT = OLDEST + len(_STEPS)


def format_of(db: sqlite3.Connection) -> int:
    """The format of a journal; 0 for an empty file. Raises `sqlite3.Error` for a database that is not a journal."""
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return 0
    row = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    return int(row[0]) if row else -1


def refusal(found: int) -> str:
    """Why a journal of format ``found`` cannot be opened; empty if it can."""
    if found > FORMAT:
        return f"it has format {found}, of a later deskgrid; this one reads and writes {FORMAT}"
    if found and found < OLDEST:
        return f"it has format {found}, of an early deskgrid; this one converts formats from {OLDEST} on"
    return ""


def bring_up(db: sqlite3.Connection, found: int) -> None:
    """Convert a journal of format ``found`` to the newest, within the open transaction; 0: make the tables."""
    for step in _STEPS[found - OLDEST :] if found else (_TABLES, *_STEPS):
        for statement in step.split(";"):
            db.execute(statement)
    db.execute("INSERT OR REPLACE INTO meta VALUES ('format', ?)", (FORMAT,))
