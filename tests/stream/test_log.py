"""The write-ahead log: what was written is read, what was cut short is not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.stream import log, ranks
from wtxtgit.stream.log import Log, LogLine, entry
from wtxtgit.stream.ring import Ring

ENTRIES = st.builds(
    LogLine,
    st.from_regex("[a-z]{1,12}", fullmatch=True),
    st.dictionaries(st.from_regex("[a-z][a-z0-9_]{0,8}", fullmatch=True), st.text(), max_size=4),
)


@given(st.lists(ENTRIES, max_size=6))
def test_what_is_written_is_read(entries: list[LogLine]) -> None:
    content = b"".join(one.line() for one in entries)
    assert list(log.entries(content)) == entries
    assert content.count(b"\n") == len(entries)
    assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in content)


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.data())
def test_what_is_cut_short_is_passed_over(entries: list[LogLine], data: st.DataObject) -> None:
    content = b"".join(one.line() for one in entries)
    cut = data.draw(st.integers(0, len(content) - 1))
    whole = content[:cut].count(b"\n")
    got = list(log.entries(content[:cut]))
    # A line may be whole but for its end.
    assert got in (entries[:whole], entries[: whole + 1])


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.data())
def test_a_damaged_line_is_passed_over(entries: list[LogLine], data: st.DataObject) -> None:
    content = bytearray(b"".join(one.line() for one in entries))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    got = list(log.entries(bytes(content)))
    assert all(one in entries for one in got)
    assert len(got) >= len(entries) - 2


def test_no_file_has_no_entries(tmp_path: Path) -> None:
    assert log.read(tmp_path / "wal") == []


def test_a_log_is_begun_with_what_is_left_of_it(tmp_path: Path) -> None:
    path = tmp_path / "wal"
    first = Log(path)
    first.append(entry("emitted", gen=1), entry("queued", gen=1, target="a b"))
    first.close()
    path.write_bytes(path.read_bytes() + b"deliv")
    second = Log(path, log.read(path))
    second.append(entry("emitted", gen=2), is_durable=True)
    second.close()
    assert log.read(path) == [
        entry("emitted", gen=1),
        entry("queued", gen=1, target="a b"),
        entry("emitted", gen=2),
    ]


def test_a_line_that_found_no_space_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wal"
    writing = Log(path)
    usual = os.write

    def full(descriptor: int, content: bytes) -> int:
        usual(descriptor, bytes(content[:7]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(EnvironmentFailure, match="no space left"):
            writing.append(entry("emitted", gen=1))
    writing.append(entry("emitted", gen=2))
    writing.close()
    assert log.read(path) == [entry("emitted", gen=2)]


def test_a_ring_that_can_not_be_taken_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / ranks.WAL).mkdir()
    with pytest.raises(EnvironmentFailure):
        Ring(tmp_path)
    assert (tmp_path / ranks.LOCK).read_bytes() == b""
