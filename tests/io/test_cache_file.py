from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from wtxtgit.io import cache_file
from wtxtgit.io.cache_file import MAX_VALUE, CacheFile

SECRET = bytes(range(32))
ROWS = {b"a": b"1", b"b": b"", b"c\0\xff": bytes(range(256))}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wtxtgit" / "rows.sqlite"


def put(file: Path, rows: Mapping[bytes, bytes], secret: bytes = SECRET) -> None:
    with closing(CacheFile(file, secret)) as kept:
        kept.put(rows)


def get(file: Path, *names: bytes, secret: bytes = SECRET) -> dict[bytes, bytes]:
    with closing(CacheFile(file, secret)) as kept:
        return kept.get(names or ROWS)


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file)) as db, db:
        yield db


def test_what_was_put_is_there(file: Path) -> None:
    assert get(file) == {}
    assert not file.parent.exists()
    put(file, ROWS)
    assert get(file) == ROWS
    assert get(file, b"a", b"none") == {b"a": b"1"}
    assert file.parent.stat().st_mode & 0o777 == 0o700
    put(file, {b"a": b"2"})
    assert get(file, b"a") == {b"a": b"2"}


def test_within_one_opening(file: Path) -> None:
    with closing(CacheFile(file, SECRET)) as kept:
        assert kept.get(ROWS) == {}
        kept.put(ROWS)
        assert kept.get(ROWS) == ROWS


class TestForgeries:
    def test_another_secret(self, file: Path) -> None:
        put(file, ROWS, secret=bytes(32))
        assert get(file) == {}
        put(file, {b"a": b"mine"})
        assert get(file) == {b"a": b"mine"}

    def test_another_version(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put(file, ROWS)
        monkeypatch.setattr(cache_file, "_CONTEXT", cache_file._CONTEXT + b"1")
        assert get(file) == {}

    def test_another_name(self, file: Path) -> None:
        put(file, ROWS)
        with opened(file) as db:
            db.execute("DELETE FROM kept WHERE name = ?", (b"b",))
            assert db.execute("UPDATE kept SET name = ? WHERE name = ?", (b"b", b"a")).rowcount
        assert get(file) == {b"c\0\xff": ROWS[b"c\0\xff"]}

    def test_a_part_of_the_name_moved_to_the_value(self, file: Path) -> None:
        put(file, {b"ab": b"c"})
        with opened(file) as db:
            (value,) = db.execute("SELECT value FROM kept").fetchone()
            db.execute("INSERT INTO kept VALUES (?, ?, 1)", (b"a", value[:32] + b"bc"))
        assert get(file, b"a", b"ab") == {b"ab": b"c"}

    def test_bits_of_a_value(self, file: Path) -> None:
        put(file, {b"a": b"1"})
        with opened(file) as db:
            (value,) = db.execute("SELECT value FROM kept").fetchone()
        for bit in range(0, 8 * len(value), 5):
            forged = bytearray(value)
            forged[bit // 8] ^= 1 << bit % 8
            with opened(file) as db:
                db.execute("UPDATE kept SET value = ?", (bytes(forged),))
            assert get(file, b"a") == {}

    @pytest.mark.parametrize("value", [b"", b"x", bytes(32), "text", 5, 0.5], ids=repr)
    def test_nonsense_for_a_value(self, file: Path, value: object) -> None:
        put(file, ROWS)
        with opened(file) as db:
            db.execute("UPDATE kept SET value = ? WHERE name = ?", (value, b"a"))
        assert get(file) == {name: row for name, row in ROWS.items() if name != b"a"}

    def test_a_text_that_is_no_utf_8(self, file: Path) -> None:
        put(file, ROWS)
        with opened(file) as db:
            db.execute("UPDATE kept SET value = CAST(x'fffe' AS TEXT)")
        assert get(file) == {}
        put(file, ROWS)
        assert get(file) == ROWS


class TestStrangeFiles:
    @pytest.mark.parametrize(
        "content", [b"", b"no database", b"SQLite format 3\0" + bytes(200), b"\0" * 4096]
    )
    def test_damage_is_as_none_and_goes(self, file: Path, content: bytes) -> None:
        put(file, ROWS)
        file.write_bytes(content)
        assert get(file) == {}
        put(file, ROWS)
        assert get(file) == ROWS

    def test_pages_in_the_middle(self, file: Path) -> None:
        rows = {b"%d" % number: bytes(1000) for number in range(200)}
        put(file, rows)
        whole = file.read_bytes()
        file.write_bytes(whole[:8192] + os.urandom(len(whole) - 8192))
        assert get(file, *rows).items() <= rows.items()
        put(file, rows)
        put(file, rows)
        assert get(file, *rows) == rows

    @pytest.mark.parametrize(
        "statements",
        [
            ["DROP TABLE kept", "CREATE TABLE kept (name, value, used)"],
            ["CREATE TRIGGER t AFTER INSERT ON kept BEGIN DELETE FROM kept; END"],
            ["CREATE VIEW v AS SELECT * FROM kept"],
            ["DROP TABLE kept", "CREATE VIEW kept AS SELECT 1 AS name, 2 AS value, 3 AS used"],
            ["DROP INDEX by_use"],
            ["DROP TABLE kept", "CREATE TABLE other (x)"],
        ],
        ids=lambda statements: statements[-1],
    )
    def test_another_schema_is_not_asked(self, file: Path, statements: list[str]) -> None:
        put(file, ROWS)
        with opened(file) as db:
            for statement in statements:
                db.execute(statement)
        assert get(file) == {}
        put(file, ROWS)
        assert get(file) == ROWS
        with opened(file) as db:
            assert len(db.execute("SELECT * FROM sqlite_master").fetchall()) == 2

    @pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
    def test_what_is_no_file_stays(self, file: Path, kind: str) -> None:
        put(file, ROWS)
        real = file.rename(file.with_name("real"))
        if kind == "folder":
            file.mkdir()
        elif kind == "link":
            file.symlink_to(real)
        else:
            os.mkfifo(file)
        content = real.read_bytes()
        assert get(file) == {}
        put(file, {b"a": b"2"})
        assert get(file) == {}
        assert os.path.lexists(file)
        assert real.read_bytes() == content

    @pytest.mark.parametrize("used", [2**63 - 1, 2**62, "text", 1e300, b"x"], ids=repr)
    def test_numbers_that_are_none(self, file: Path, used: object) -> None:
        put(file, ROWS)
        with opened(file) as db:
            db.execute("UPDATE kept SET used = ?", (used,))
        assert get(file) in ({}, ROWS)
        put(file, ROWS)
        assert get(file) == ROWS

    @pytest.mark.skipif(
        os.geteuid() == 0, reason="root may write everywhere: run it as another user"
    )
    def test_a_folder_that_can_not_be_written(self, file: Path) -> None:
        put(file, ROWS)
        file.chmod(0o400)
        file.parent.chmod(0o500)
        put(file, {b"a": b"2"})
        assert get(file) == ROWS
        file.parent.chmod(0o700)

    def test_no_folder_for_it(self, tmp_path: Path) -> None:
        put(tmp_path / "none" / "none" / "rows", ROWS)
        assert get(tmp_path / "none" / "none" / "rows") == {}

    def test_a_value_that_is_too_long(self, file: Path) -> None:
        put(file, {b"a": bytes(MAX_VALUE + 1), b"b": bytes(MAX_VALUE)})
        assert get(file, b"a", b"b") == {b"b": bytes(MAX_VALUE)}
        with opened(file) as db:
            db.execute("UPDATE kept SET value = zeroblob(10000000)")
        assert get(file, b"b") == {}


def test_a_file_that_another_process_holds(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_file, "_SECONDS", 0.0)
    put(file, ROWS)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        assert get(file) == {}
        put(file, {b"a": b"2"})
        db.execute("COMMIT")
    assert get(file) == ROWS


def test_several_at_once(file: Path) -> None:
    def work(number: int) -> None:
        with closing(CacheFile(file, SECRET)) as kept:
            for count in range(20):
                kept.put({b"%d %d" % (number, count): b"x"})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    names = [b"%d %d" % (number, count) for number in range(4) for count in range(20)]
    assert get(file, *names).keys() == set(names)


def test_a_journal_that_another_process_has_just_removed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lstat(path: Path) -> os.stat_result:
        state = os.lstat(path)
        if path.name.endswith("-journal"):
            path.unlink()
        return state

    put(file, ROWS)
    file.with_name(f"{file.name}-journal").write_bytes(bytes(512))
    monkeypatch.setattr(Path, "lstat", lstat)
    put(file, {b"a": b"2"})
    assert get(file, b"a") == {b"a": b"2"}


def test_threads_share_one(file: Path) -> None:
    with closing(CacheFile(file, SECRET)) as kept, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: kept.put({b"%d" % n: b"x"}), range(40)))
        found = list(pool.map(lambda n: kept.get([b"%d" % n]), range(40)))
    assert found == [{b"%d" % n: b"x"} for n in range(40)]


class TestBounds:
    def test_the_oldest_go(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache_file, "MOST_BYTES", 200_000)
        for number in range(40):
            put(file, {b"%d %d" % (number, n): bytes(1000) for n in range(20)})
        assert file.stat().st_size < 400_000
        assert len(get(file, *(b"39 %d" % n for n in range(20)))) == 20
        assert get(file, *(b"0 %d" % n for n in range(20))) == {}

    def test_what_is_read_counts_as_used(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache_file, "MOST_BYTES", 40_000)
        monkeypatch.setattr(cache_file, "_LAG", 2)
        put(file, {b"old": b"x", b"older": b"x"})
        for number in range(40):
            put(file, {b"%d %d" % (number, n): bytes(100) for n in range(20)})
            assert get(file, b"old") == {b"old": b"x"}
        assert get(file, b"older") == {}

    def test_reading_does_not_write(self, file: Path) -> None:
        put(file, ROWS)
        before = file.stat().st_mtime_ns, file.read_bytes()
        assert get(file) == ROWS
        assert (file.stat().st_mtime_ns, file.read_bytes()) == before


def test_a_journal_that_names_another_file_deletes_none(tmp_path: Path, file: Path) -> None:
    """SQLite deletes what a journal left behind names as that of several databases."""
    put(file, {b"a": b"1"})
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    magic = bytes.fromhex("d9d505f920a163d7")
    name = str(victim).encode()
    page = (0x40000000 // 4096 + 1).to_bytes(4, "big")
    checksum = sum(name).to_bytes(4, "big")
    header = magic + bytes(4) + bytes(4) + (2).to_bytes(4, "big") + (512).to_bytes(4, "big")
    header += (4096).to_bytes(4, "big")
    tail = page + name + len(name).to_bytes(4, "big") + checksum + magic
    journal = file.with_name(file.name + "-journal")
    journal.write_bytes(header.ljust(512, b"\0") + tail)
    assert get(file, b"a") == {}
    assert victim.read_bytes() == b"kept"
    assert not journal.exists()
    put(file, {b"a": b"2"})
    assert get(file, b"a") == {b"a": b"2"}


def test_a_foreign_file_that_stays_is_as_none(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.mkdir()
    with opened(file) as db:
        db.execute("CREATE TABLE other (a)")
    monkeypatch.setattr(CacheFile, "_remove", lambda _self: None)
    put(file, {b"a": b"1"})
    assert get(file, b"a") == {}
