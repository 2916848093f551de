"""The journal's tables, format by format, and how an older journal is converted to the newest.

Rule: a released format is never edited. A change is a new format, which converts existing journals.
"""

import sqlite3

from deskgrid.broker.store.result_blocks import pack_names, pack_printed, pack_told
from deskgrid.wire import TaskOptions, pack_columns

# The step from each format to the next. A new journal takes all steps, and an older one takes the steps that it lacks.
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
    # For replays: when everything happened, the first predictions, and the windows of workers. The owner of a bag was
    # the submitter's user name, and is now the credential; until then there was only one.
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
    # Checksums, because SQLite does not notice an overwritten page in the middle of a long value. Short results lie
    # within one page of the table, which it does check: they have no checksum, and the index is of long ones only.
    # Also the session that was given an attempt, because nobody else may report how it ended.
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
    # Large values are files. A batch, or a column of a result, has the name of the file instead, as a text. Large
    # values that are in the tables already stay there.
    """
CREATE TABLE files (name TEXT PRIMARY KEY, bag INTEGER, batch INTEGER, size INTEGER, checksum INTEGER) WITHOUT ROWID;
CREATE INDEX files_of_bag ON files (bag);
CREATE INDEX files_of_batch ON files (batch) WHERE batch IS NOT NULL;
""",
    # Results in blocks (`deskgrid.broker.store.result_blocks`). Each earlier result becomes a block of its own.
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
    # Orders on bags that are carried out in slices: a restart goes on with them. New predictions have a table of their
    # own, because a change to the batch's row would write its arguments again. And indexes for deleting a forgotten
    # bag.
    """
CREATE TABLE orders (bag INTEGER, what TEXT, PRIMARY KEY (bag, what)) WITHOUT ROWID;
CREATE TABLE predictions (first INTEGER PRIMARY KEY, runtimes BLOB, checksum INTEGER);
CREATE INDEX bags_of_template ON bags (template);
CREATE INDEX batches_of_bag ON batches (bag);
""",
    # Task options as one packed value, to which later options can be added.
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
    # Second attempts of running tasks.
    """
CREATE TABLE copies (task INTEGER PRIMARY KEY, number INTEGER, session TEXT);
""",
    # Parts of stored files, and who holds them (`deskgrid.broker.store.parts`).
    """
CREATE TABLE parts (digest BLOB PRIMARY KEY, size INTEGER, data BLOB, checksum INTEGER);
CREATE TABLE holders (number INTEGER PRIMARY KEY, bag TEXT, owner TEXT, touched REAL, first INTEGER, each INTEGER);
CREATE INDEX holders_of_bag ON holders (bag);
CREATE TABLE holds (digest BLOB, owner TEXT, holder INTEGER, PRIMARY KEY (digest, owner, holder)) WITHOUT ROWID;
CREATE INDEX holds_of_holder ON holds (holder);
""",
    # What each owner has used, for fair share.
    """
CREATE TABLE usage (owner TEXT PRIMARY KEY, used_s REAL, at REAL) WITHOUT ROWID;
""",
    # What was learned about runtimes. No row is longer than a page of the table, so it needs no checksum.
    """
CREATE TABLE learned (number INTEGER PRIMARY KEY, kind TEXT, name TEXT, learned BLOB, UNIQUE (kind, name));
""",
    # Checkpoints of tasks that have not ended. A checkpoint is a value like an argument: in the table, or in a file.
    """
CREATE TABLE checkpoints (number INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER, bag INTEGER, progress REAL,
                          left_s REAL, size INTEGER, data BLOB, checksum INTEGER);
""",
    # Checkpoints that came in several messages. The last part is in the table of checkpoints; ``checkpoint`` is the
    # number there, and NULL until the last part has come.
    """
CREATE TABLE checkpoint_parts (number INTEGER PRIMARY KEY AUTOINCREMENT, checkpoint INTEGER, task INTEGER, bag INTEGER,
                               start INTEGER, data BLOB, checksum INTEGER);
CREATE INDEX parts_of_checkpoint ON checkpoint_parts (checkpoint, start);
CREATE INDEX checkpoint_parts_of_task ON checkpoint_parts (task) WHERE checkpoint IS NULL;
""",
    # When bags would end, as it was told.
    """
CREATE TABLE etas (number INTEGER PRIMARY KEY, bag INTEGER, made REAL, ended REAL, median REAL, low REAL, high REAL);
CREATE INDEX etas_of_bag ON etas (bag);
""",
    # Attempts of parallel tasks, their ranks, and what these said to MPI's process manager.
    """
CREATE TABLE gangs (task INTEGER PRIMARY KEY, number INTEGER, bag INTEGER, began REAL, runtime REAL, port INTEGER,
                    met INTEGER);
CREATE TABLE ranks (task INTEGER, rank INTEGER, bag INTEGER, session TEXT, worker TEXT, slots BLOB, outcome INTEGER,
                    elapsed REAL, size INTEGER, payload BLOB, stdout BLOB, stderr BLOB, checksum INTEGER,
                    UNIQUE (task, rank));
CREATE INDEX ranks_of_bag ON ranks (bag);
CREATE TABLE gang_lines (number INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER, rank INTEGER, ends INTEGER, line BLOB);
CREATE INDEX lines_of_gang ON gang_lines (task);
""",
    # How PCs keep their hours now says at which hour of the week each window opened.
    """
DELETE FROM learned WHERE kind = 'hours';
""",
    # The results of a bag hold their parts for themselves: what else holds them may go earlier.
    """
ALTER TABLE holders ADD COLUMN results INTEGER NOT NULL DEFAULT 0;
""",
)
FORMAT = len(_FORMATS)


def format_of(db: sqlite3.Connection) -> int:
    """The format of a journal; 0 for an empty file. Raises `sqlite3.Error` for a database that is not a journal."""
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return 0
    row = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    return int(row[0]) if row else -1


def bring_up(db: sqlite3.Connection, found: int) -> None:
    """Convert a journal of format ``found`` to the newest, within the open transaction."""
    db.create_function("block_tasks", 3, lambda *row: pack_columns([[value] for value in row]))
    db.create_function("block_told", 5, lambda *row: pack_told(*[[value] for value in row]))
    db.create_function("block_large", 1, lambda cell: pack_names([cell]))
    db.create_function("block_printed", 2, lambda *row: pack_printed(*[[value] for value in row]))
    db.create_function("task_options", 2, lambda *row: TaskOptions(*row).packed())
    for step in _FORMATS[found:]:
        for statement in step.split(";"):
            db.execute(statement)
    db.execute("INSERT OR REPLACE INTO meta VALUES ('format', ?)", (FORMAT,))
