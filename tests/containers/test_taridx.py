"""TARIDX: what the header must be, and the file's parts."""

from __future__ import annotations

import pytest

from wtxtgit.containers import describe, split, taridx
from wtxtgit.errors import FormatError

from . import samples
from .samples import check_cut, spelled

ROWS = bytes(range(64))


def words(data: bytes) -> list[str]:
    result = split(memoryview(data))
    check_cut(result, data)
    return spelled(result)


def test_parts() -> None:
    data = samples.taridx(b"jpg\n\njson", b"a stem", ROWS)
    assert words(data) == ["hex:" + data[:64].hex(), "_extensions", "_crash_stems", "rows"]
    rows = split(memoryview(data)).arrays[-1]
    assert (rows.dtype, rows.shape) == ("u8", (2, 32))
    listed = describe(memoryview(data))
    assert listed.tensors == ()
    assert listed.metadata["extensions"] == ["jpg", "", "json"]


def test_empty_parts() -> None:
    assert len(words(samples.taridx(b"", b"", b"", n_ext=0))) == 1
    listed = describe(memoryview(samples.taridx(b"", b"", b"", n_ext=0)))
    assert listed.metadata["extensions"] == []
    listed = describe(memoryview(samples.taridx(b"", b"", b"", n_ext=1)))
    assert listed.metadata["extensions"] == [""]


@pytest.mark.parametrize(
    "changes",
    [
        {"magic": b"TARIDX\0\1"},
        {"major": 2},
        {"rec_size": 31},
        {"hdr_size": 63},
        {"n_rows": 1},
        {"n_rows": 3},
        {"n_rows": 2**63},
        {"off_crash": 63},
        {"off_crash": 74},
        {"off_arr": 72},
        {"off_arr": 2**63},
    ],
)
def test_headers_that_are_refused(changes: dict[str, object]) -> None:
    data = samples.taridx(b"jpg", b"stem", ROWS, **changes)
    assert words(data) == ["data"]
    with pytest.raises(FormatError):
        describe(memoryview(data))


def test_what_does_not_matter() -> None:
    changes = {"minor": 9, "n_stems": 99, "n_ext": 99, "n_crash": 99, "flags": 255}
    assert len(words(samples.taridx(b"jpg", b"stem", ROWS, **changes))) == 4


@pytest.mark.parametrize(
    ("extensions", "stems", "offset"),
    [(b"a\xff", b"", 65), (b"", b"ab\xc3", 66), (b"a\xc3", b"\xa9", 65)],
)
def test_text_that_is_not_utf8(extensions: bytes, stems: bytes, offset: int) -> None:
    data = samples.taridx(extensions, stems, ROWS)
    assert words(data) == ["data"]
    with pytest.raises(FormatError, match=f"at byte {offset}") as caught:
        describe(memoryview(data))
    assert caught.value.offset == offset


def test_text_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taridx, "TEXT_BLOCK", 5)
    text = "é€😀".encode() * 7
    assert len(words(samples.taridx(text, text, ROWS))) == 4
    with pytest.raises(FormatError, match=f"at byte {64 + len(text)}"):
        describe(memoryview(samples.taridx(text + b"\xff", text, ROWS)))
    with pytest.raises(FormatError, match=f"at byte {64 + len(text) - 4}"):
        describe(memoryview(samples.taridx(text[:-1], b"", ROWS)))


def test_a_short_file_is_told() -> None:
    with pytest.raises(FormatError, match="header is cut short at byte 0"):
        describe(memoryview(samples.taridx(b"", b"", b"")[:63]))
