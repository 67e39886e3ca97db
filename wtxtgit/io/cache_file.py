"""Rows cached in a file of the repository, of which only this user's own are trusted.

Whoever can write to the git folder can write rows, and a git folder may come from elsewhere: a
tarball, a cache of another machine. So each row has a MAC, made with a secret that is stored
outside of the repository, over the program's version, the row's name and its value; any other row
counts as missing. So does a file that is damaged, locked or can't be written: nothing here raises
because of it.

The file is an SQLite database, for several processes at once. A database that contains anything but
our own table and index is not queried, because views and triggers are programs of whoever wrote
them.
"""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from wtxtgit.version import __version__

if TYPE_CHECKING:
    import sqlite3

MOST_BYTES = 32 * 1024 * 1024
"""Most bytes of the file; beyond it, the least recently used quarter of the rows is dropped."""
MAX_VALUE = 64 * 1024
"""Most bytes of a value: longer ones are neither stored nor read."""

# How long to wait for another process that holds the file.
_SECONDS = 2.0
_MAC_SIZE = 32
_CONTEXT = b"wtxtgit kept row 1\0" + __version__.encode() + b"\0"
_FOLDER_MODE = 0o700
_TABLE = (
    "CREATE TABLE kept "
    "(name BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID"
)
_SCHEMA = (_TABLE, "CREATE INDEX by_use ON kept (used)")
# Writes after which a row that is read is marked as used again, so that reading seldom writes.
_LAG = 100
_MOST_USED = 2**62
# Bytes of a row with its name and MAC.
_MOST_ROW = MAX_VALUE + 1024
# SQLITE_PERM, BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL, NOLFS, AUTH:
# https://sqlite.org/rescode.html.
_OF_THE_PLACE = {3, 5, 6, 7, 8, 10, 13, 14, 15, 22, 23}

_T = TypeVar("_T")
# The end of a journal that names another one.
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


class CacheFile:
    """Rows of a file, names to values; threads may share it.

    `secret` has 32 bytes. Nothing is opened before it is needed; the folder is made for the first
    row.
    """

    def __init__(self, file: Path, secret: bytes) -> None:
        self._file = file
        self._secret = secret
        self._db: sqlite3.Connection | None = None
        self._is_given_up = False
        self._stale: set[bytes] = set()
        self._lock = Lock()

    def get(self, names: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the values of those names that have one."""
        values = {}
        with self._lock:
            rows = self._safely(lambda db: self._read(db, names), write=False)
        for name, row in (rows or {}).items():
            mac, value = row[:_MAC_SIZE], row[_MAC_SIZE:]
            # A row of another user or version counts as missing.
            if hmac.compare_digest(mac, self._mac(name, value)):
                values[name] = value
        return values

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        """Store values by name, replacing earlier ones."""
        signed = {
            name: self._mac(name, value) + value
            for name, value in rows.items()
            if len(value) <= MAX_VALUE
        }
        with self._lock:
            self._safely(lambda db: self._write(db, signed), write=True)

    def close(self) -> None:
        """Record what was used, and close the file."""
        with self._lock:
            if self._stale:
                self._safely(lambda db: self._write(db, {}), write=True)
            self._disconnect()

    def _mac(self, name: bytes, value: bytes) -> bytes:
        from blake3 import blake3

        # The length prevents that bytes are moved between name and value.
        covered = _CONTEXT + len(name).to_bytes(8, "little") + name + value
        return blake3(covered, key=self._secret).digest()

    def _safely(self, work: Callable[[sqlite3.Connection], _T], *, write: bool) -> _T | None:
        """Run a query; returns None if the database can't be used, now or any more."""
        import sqlite3

        if self._is_given_up:
            return None
        try:
            db = self._connected(write=write)
            return None if db is None else work(db)
        except sqlite3.Error as error:
            self._give_up()
            if _is_damage(error):
                self._remove()
        except OSError:
            self._give_up()
        return None

    def _connected(self, *, write: bool) -> sqlite3.Connection | None:
        """Open the database; `write` creates a missing one. One that is not ours is replaced.

        Returns None if there is none.
        """
        import sqlite3

        if self._db is not None:
            return self._db
        file = self._file
        if not os.path.lexists(file):
            if not write:
                return None
            file.parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        elif not stat.S_ISREG(file.lstat().st_mode):
            return None
        self._drop_foreign_journal()
        db = self._db = sqlite3.connect(
            file, timeout=_SECONDS, isolation_level=None, check_same_thread=False
        )
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_ROW)
        db.execute("PRAGMA trusted_schema = OFF")
        # A loss of power may damage the file: rows are then computed again.
        db.execute("PRAGMA synchronous = OFF")
        try:
            schema = _schema(db)
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise
            schema = {""}
        if schema == set(_SCHEMA):
            return db
        if schema:
            self._disconnect()
            self._remove()
            # If it can't be removed there is no usable database.
            return None if os.path.lexists(file) else self._connected(write=write)
        if write:
            _make_schema(db)
            return db
        self._disconnect()
        return None

    def _drop_foreign_journal(self) -> None:
        """Remove a journal that names another file, and the database that it belongs to.

        If a journal left behind names a file as that of several databases, SQLite deletes that file
        (https://sqlite.org/fileformat.html, "The Rollback Journal"). There is only one database
        here, so such a journal is not ours.
        """
        journal = self._file.with_name(self._file.name + "-journal")
        try:
            if stat.S_ISREG(journal.lstat().st_mode):
                with journal.open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - len(_JOURNAL_MAGIC)))
                    if file.read() != _JOURNAL_MAGIC:
                        return
        except FileNotFoundError:
            # There is none, or another process has just finished writing.
            return
        journal.unlink()
        self._remove()

    def _read(self, db: sqlite3.Connection, names: Iterable[bytes]) -> dict[bytes, bytes]:
        newest = _newest(db)
        rows = {}
        for name in names:
            row = db.execute("SELECT value, used FROM kept WHERE name = ?", (name,)).fetchone()
            # Columns of SQLite accept values of any type: datatype3.html, "Type Affinity".
            if row is None or type(row[0]) is not bytes:
                continue
            rows[name] = row[0]
            if type(row[1]) is not int or row[1] < newest - _LAG:
                self._stale.add(name)
        return rows

    def _write(self, db: sqlite3.Connection, rows: Mapping[bytes, bytes]) -> None:
        # Locked for writing at once: upgrading a lock later fails if another process waits too.
        db.execute("BEGIN IMMEDIATE")
        used = _newest(db) + 1
        if used > _MOST_USED:
            db.execute("DELETE FROM kept")
            used = 1
        db.executemany(
            "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)",
            [(name, value, used) for name, value in rows.items()],
        )
        db.executemany(
            "UPDATE kept SET used = ? WHERE name = ?",
            [(used, name) for name in self._stale if name not in rows],
        )
        self._stale.clear()
        if _bytes_used(db) > MOST_BYTES:
            db.execute(
                "DELETE FROM kept WHERE name IN "
                "(SELECT name FROM kept ORDER BY used LIMIT (SELECT count(*) / 4 + 1 FROM kept))"
            )
        db.execute("COMMIT")

    def _give_up(self) -> None:
        self._is_given_up = True
        self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _remove(self) -> None:
        file = self._file
        for ending in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                file.with_name(file.name + ending).unlink()


def _schema(db: sqlite3.Connection) -> set[object]:
    """Return the SQL by which everything in a database was made."""
    return {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master LIMIT 10")}


def _make_schema(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    # Another process may have been faster.
    if not _schema(db):
        for statement in _SCHEMA:
            db.execute(statement)
    db.execute("COMMIT")


def _newest(db: sqlite3.Connection) -> int:
    """Return the number of the last write."""
    (newest,) = db.execute("SELECT max(used) FROM kept").fetchone()
    if newest is None:
        return 0
    return newest if type(newest) is int else _MOST_USED


def _bytes_used(db: sqlite3.Connection) -> int:
    pages, free, size = (
        int(db.execute(f"PRAGMA {what}").fetchone()[0])
        for what in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _is_damage(error: sqlite3.Error) -> bool:
    """Tell whether an error is due to the file itself, not to the moment or the place."""
    # The lowest byte of extended codes is the basic code; Python's own errors have none.
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF not in _OF_THE_PLACE
