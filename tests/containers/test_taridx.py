"""TARIDX: what the header must be, and the file's parts."""

from __future__ import annotations

import pytest

from tests.containers import samples
from tests.containers.samples import words
from wtxtgit.containers import cursor
from wtxtgit.containers.any_format import describe, split
from wtxtgit.containers.taridx import read as taridx
from wtxtgit.errors import FormatError

ROWS = bytes(range(64))


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
    ("changes", "offset", "field"),
    [
        ({"magic": b"TARIDX\0\1"}, 0, "magic"),
        ({"major": 2}, 8, "major"),
        ({"rec_size": 31}, 12, "rec_size"),
        ({"hdr_size": 63}, 14, "hdr_size"),
        ({"n_rows": 1}, 71, "n_rows"),
        ({"n_rows": 3}, 71, "n_rows"),
        ({"n_rows": 2**63}, 71, "n_rows"),
        ({"off_crash": 63}, 40, "off_crash"),
        ({"off_crash": 74}, 40, "off_crash"),
        ({"off_arr": 72}, 72, "n_rows"),
        ({"off_arr": 2**63}, 40, "off_crash"),
    ],
)
def test_headers_that_are_refused(changes: dict[str, object], offset: int, field: str) -> None:
    data = samples.taridx(b"jpg", b"stem", ROWS, **changes)
    assert words(data) == ["data"]
    with pytest.raises(FormatError) as caught:
        describe(memoryview(data))
    assert (caught.value.kind, caught.value.offset, caught.value.field) == (
        "structure",
        offset,
        field,
    )


def test_more_extensions_than_ids_are_a_limit() -> None:
    block = b"\n" * (1 << 16)
    data = samples.taridx(block, b"", b"", n_ext=len(block) + 1)
    assert len(words(data)) == 2
    with pytest.raises(FormatError) as caught:
        describe(memoryview(data))
    assert (caught.value.kind, caught.value.offset, caught.value.field) == ("limit", 32, "n_ext")
    most = samples.taridx(block[1:], b"", b"", n_ext=len(block))
    assert describe(memoryview(most)).metadata["extensions"] == [""] * len(block)


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
    monkeypatch.setattr(cursor, "TEXT_STEP", 5)
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
