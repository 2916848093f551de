"""The journal's tables, format by format, and how an older journal is brought up to the newest.

Rule: a format that has been released is never edited; what is new is a further one, and made of what is there.
"""

import sqlite3

from deskgrid.broker.store.result_blocks import pack_names, pack_printed, pack_told
from deskgrid.wire import TaskOptions, pack_columns

# What each format has beyond the one before it: a new journal is made by all, an older one is brought up by the rest.
_FORMATS = (
    """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE templates (digest TEXT PRIMARY KEY, kind TEXT, data BLOB);
CREATE TABLE bags (number INTEGER PRIMARY KEY, id TEXT UNIQUE, name TEXT, kind TEXT, owner TEXT, template TEXT,
                   timeout REAL, retries INTEGER, predicted INTEGER, closed INTEGER, created REAL);
CREATE TABLE batches (first INTEGER PRIMARY KEY, bag INTEGER, start INTEGER, count INTEGER,
                      payloads BLOB, runtimes BLOB);
CREATE TABLE results (seq INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER UNIQUE, bag INTEGER, item INTEGER,
                      outcome INTEGER, elapsed REAL, worker TEXT, number INTEGER,
                      payload BLOB, stdout BLOB, stderr BLOB);
CREATE INDEX results_of_bag ON results (bag, seq);
CREATE TABLE sent (task INTEGER PRIMARY KEY, number INTEGER);
""",
    # What a replay needs: when everything happened, what was predicted at first, and when the workers were there.
    # And whose a bag is: it was what the submitter's user was called, and is the credential, of which there was one.
    """
UPDATE bags SET owner = 'client';
ALTER TABLE bags ADD COLUMN session TEXT;
ALTER TABLE batches ADD COLUMN arrived REAL;
ALTER TABLE batches ADD COLUMN first_runtimes BLOB;
ALTER TABLE results ADD COLUMN ended REAL;
CREATE TABLE windows (number INTEGER PRIMARY KEY, worker TEXT, session TEXT, site TEXT, slots INTEGER,
                      opened REAL, planned REAL, closed REAL, how TEXT, kills INTEGER, wasted_s REAL);
CREATE INDEX open_windows ON windows (number) WHERE closed IS NULL;
""",
    # What SQLite does not see: a page in the middle of a long value that was overwritten. Results that are short lie
    # within a page of the table, which it does look at; they have no checksum, and cost nothing for it (the index is of
    # long ones only). And to which worker an attempt was given: nobody else may say how it ended.
    """
ALTER TABLE templates ADD COLUMN checksum INTEGER;
ALTER TABLE batches ADD COLUMN checksum INTEGER;
ALTER TABLE results ADD COLUMN checksum INTEGER;
ALTER TABLE sent ADD COLUMN session TEXT;
UPDATE templates SET checksum = checksum(data);
UPDATE batches SET checksum = checksum(payloads, runtimes, first_runtimes);
UPDATE results SET checksum = checksum(payload, stdout, stderr)
 WHERE length(payload) + length(stdout) + length(stderr) > 2048;
CREATE INDEX long_results ON results (seq) WHERE checksum IS NOT NULL;
""",
    # Large values are files, and where one stood is the file's name, a text: an argument among those that are bytes in
    # its batch, a result in its column. What is in the tables already stays there.
    """
CREATE TABLE files (name TEXT PRIMARY KEY, bag INTEGER, batch INTEGER, size INTEGER, checksum INTEGER) WITHOUT ROWID;
CREATE INDEX files_of_bag ON files (bag);
CREATE INDEX files_of_batch ON files (batch) WHERE batch IS NOT NULL;
""",
    # Results in blocks, as `deskgrid.broker.store.result_blocks` has it: each that is there already is one of its own.
    """
ALTER TABLE results RENAME TO single;
CREATE TABLE results (seq INTEGER PRIMARY KEY AUTOINCREMENT, bag INTEGER, low INTEGER, high INTEGER, size INTEGER,
                      ended REAL, tasks BLOB, told BLOB, printed BLOB, large BLOB, checksum INTEGER);
INSERT INTO results
 SELECT seq, bag, task, task, 1, ended, block_tasks(task, number, outcome),
        block_told(item, outcome, elapsed, worker, payload), block_printed(stdout, stderr), block_large(payload), NULL
 FROM single;
UPDATE results SET checksum = checksum(tasks, told, printed, large)
 WHERE length(tasks) + length(told) + ifnull(length(printed), 0) + ifnull(length(large), 0) > 2048;
DROP TABLE single;
CREATE INDEX results_of_bag ON results (bag, seq);
CREATE INDEX results_of_tasks ON results (high, low);
CREATE INDEX long_results ON results (seq) WHERE checksum IS NOT NULL;
""",
    # What is being done to a bag in slices, and is gone on with after a restart. New predictions of a batch by
    # themselves: with it, its arguments would be written anew. And what is looked for when a bag is forgotten.
    """
CREATE TABLE orders (bag INTEGER, what TEXT, PRIMARY KEY (bag, what)) WITHOUT ROWID;
CREATE TABLE predictions (first INTEGER PRIMARY KEY, runtimes BLOB, checksum INTEGER);
CREATE INDEX bags_of_template ON bags (template);
CREATE INDEX batches_of_bag ON batches (bag);
""",
    # What a submitter says of its tasks as one value, in which an option that comes later has its place.
    """
ALTER TABLE bags RENAME TO before;
CREATE TABLE bags (number INTEGER PRIMARY KEY, id TEXT UNIQUE, name TEXT, kind TEXT, owner TEXT, template TEXT,
                   options BLOB, predicted INTEGER, closed INTEGER, created REAL, session TEXT);
INSERT INTO bags
 SELECT number, id, name, kind, owner, template, task_options(timeout, retries), predicted, closed, created, session
 FROM before;
DROP TABLE before;
CREATE INDEX bags_of_template ON bags (template);
""",
)
FORMAT = len(_FORMATS)


def format_of(db: sqlite3.Connection) -> int:
    """The format of a journal; 0 for an empty file. Raises `sqlite3.Error` for a database of something else."""
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return 0
    row = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    return int(row[0]) if row else -1


def bring_up(db: sqlite3.Connection, found: int) -> None:
    """Make the tables that a journal of format ``found`` lacks, within the transaction that is open."""
    db.create_function("block_tasks", 3, lambda *row: pack_columns([[value] for value in row]))
    db.create_function("block_told", 5, lambda *row: pack_told(*[[value] for value in row]))
    db.create_function("block_large", 1, lambda cell: pack_names([cell]))
    db.create_function("block_printed", 2, lambda *row: pack_printed(*[[value] for value in row]))
    db.create_function("task_options", 2, lambda *row: TaskOptions(*row).packed())
    for step in _FORMATS[found:]:
        for statement in step.split(";"):
            db.execute(statement)
    db.execute("INSERT OR REPLACE INTO meta VALUES ('format', ?)", (FORMAT,))
