"""Estimates of when bags end, in the journal: they are written when they are told, and deleted with their bags."""

import sqlite3
from collections.abc import Callable, Sequence

from deskgrid.broker.store.rows import ToldEtaRow

Write = Callable[[str, Sequence[tuple[object, ...]]], None]


class EtaTable:
    """``write(statement, rows)`` writes rows."""

    def __init__(self, db: sqlite3.Connection, write: Write) -> None:
        self._db = db
        self._write = write

    def add(self, rows: Sequence[ToldEtaRow]) -> None:
        """Write estimates."""
        self._write("INSERT INTO etas VALUES (NULL, ?, ?, ?, ?, ?, ?)", rows)

    def rows(self) -> list[ToldEtaRow]:
        """All estimates, in the order in which they were told."""
        return estimates_in(self._db)


def estimates_in(db: sqlite3.Connection) -> list[ToldEtaRow]:
    """All estimates in a journal, in the order in which they were told."""
    return [
        ToldEtaRow(*row) for row in db.execute("SELECT bag, made, ended, median, low, high FROM etas ORDER BY number")
    ]
