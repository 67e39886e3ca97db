"""An index against its shards: each rule has an index that breaks it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.containers import tars
from tests.containers.tars import index, key_of, row, shards, with_stems
from wtxtgit.containers.any_format import check
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.tar_index import Tar
from wtxtgit.containers.taridx import tar, write
from wtxtgit.containers.taridx.read import read
from wtxtgit.containers.taridx.shards import check_shards, find, find_in_shards
from wtxtgit.errors import FormatError

TAR = tars.tar(("d/a.JPG", b"one"), ("b.jpg", b"three"))
"""Two members, at bytes 0 and 1024."""
A, B = key_of("a"), key_of("b")
GOOD = [row(size=3, keyhash=A), row(offset=1024, size=5, keyhash=B)]
EMPTY = bytes(10240)
BASE = 64 + len("jpg")


def told(
    rows: list[bytes], *contents: bytes, extensions: str = "jpg\npng"
) -> list[tuple[object, ...]]:
    found = check_shards(read(index(rows, extensions)), shards(*contents))
    return [(p.kind, p.offset, p.field, p.chunk) for p in found.errors]


def test_a_good_index_has_nothing_to_tell() -> None:
    found = check_shards(read(index(GOOD, n_stems=2)), shards(TAR))
    assert (found.errors, found.warnings) == ([], [])


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (row(offset=512, size=3, keyhash=A), "offset"),
        (row(offset=1 << 62, size=3, keyhash=A), "offset"),
        (row(offset=1024, size=4, keyhash=B), "size"),
        (row(offset=1024, size=5, keyhash=A), "keyhash"),
        (row(offset=1024, size=5, keyhash=B, extid=1), "extid"),
        (row(offset=1024, size=5, keyhash=B, extid=9), "extid"),
        (row(offset=1024, size=5, keyhash=B, crashid=1), "crashid"),
    ],
)
def test_rows_that_do_not_fit(bad: bytes, field: str) -> None:
    extensions = "jpg\npng"
    offset = 64 + len(extensions) + 32
    assert told([GOOD[0], bad], TAR) == [("structure", offset, field, "t_0.tar")]


def test_a_fid_without_a_shard() -> None:
    rows = [*GOOD, row(fid=1, size=3, keyhash=A)]
    offset = 64 + len("jpg\npng") + 64
    assert told(rows, TAR) == [("structure", offset, "fid", None)]
    assert told([row(fid=65_535, keyhash=A)])[0][2] == "fid"


def test_all_rows_of_one_kind_are_one_finding() -> None:
    rows = [row(offset=1024, size=n, keyhash=B) for n in (5, 6, 7, 8)]
    (error,) = check_shards(read(index(rows)), shards(TAR)).errors
    assert error.message == "3 rows whose size differs from the tar header's, the first is row 1"


def test_a_damaged_shard_is_told_with_its_name() -> None:
    spoilt = TAR[:1024] + b"x" + TAR[1025:]
    found = check_shards(read(index(GOOD)), shards(spoilt))
    assert [(p.kind, p.field, p.chunk) for p in found.errors] == [
        ("structure", "checksum", "t_0.tar"),
        ("structure", "offset", "t_0.tar"),
    ]
    assert "at byte 1024" in found.errors[0].message


def test_members_without_a_row_are_told() -> None:
    (warning,) = check_shards(read(index(GOOD[:1])), shards(TAR, TAR)).warnings
    assert warning.message.startswith("3 members of the shards have no row")


def test_crash_stems_are_compared_with_the_names() -> None:
    rows = [row(size=3, keyhash=A), row(offset=1024, size=5, keyhash=B, crashid=1)]
    assert check_shards(read(with_stems(rows, "b")), shards(TAR)).errors == []
    for stems in ("c", "c\nb"):
        (error,) = check_shards(read(with_stems(rows, stems)), shards(TAR)).errors
        assert (error.field, error.offset) == ("crashid", BASE + len(stems) + 32)
    # A stem that has a crash id does not stand without it.
    (error,) = check_shards(read(with_stems(GOOD, "b")), shards(TAR)).errors
    assert (error.field, error.offset) == ("crashid", BASE + 1 + 32)


@pytest.mark.parametrize(
    ("contents", "fids"),
    [
        ([TAR, EMPTY, TAR], [0, 1]),
        ([TAR, EMPTY, b"", TAR], [0, 1]),
        ([EMPTY, TAR, EMPTY, TAR], [1, 2]),
        ([EMPTY, EMPTY, TAR], [1]),
        ([EMPTY, TAR, EMPTY, TAR], [700, 701]),
    ],
)
def test_fids_of_the_older_writer_are_resolved(contents: list[bytes], fids: list[int]) -> None:
    rows = [
        data
        for fid in fids
        for data in (
            row(fid=fid, size=3, keyhash=A),
            row(fid=fid, offset=1024, size=5, keyhash=B),
        )
    ]
    held = read(index(rows))
    found = check_shards(held, shards(*contents))
    assert found.errors == []
    (warning,) = found.warnings
    assert (warning.kind, warning.field) == ("structure", "fid")
    members = list(find_in_shards(held, find(held, "b.jpg"), "b.jpg", shards(*contents)))
    assert [bytes(m.data) for m in members] == [b"three"] * len(fids)


def test_a_wrong_fid_is_no_older_writers_unless_a_shard_is_empty() -> None:
    rows = [row(fid=1, size=3, keyhash=A), row(fid=1, offset=1024, size=5, keyhash=B)]
    found = check_shards(read(index(rows)), shards(TAR))
    assert [(p.field, p.chunk) for p in found.errors] == [("fid", None)]


def test_fids_by_place_win_where_they_fit() -> None:
    made = write.index([("x", memoryview(data)) for data in (TAR, EMPTY, TAR)])
    assert made.rows["fid"].tolist() == [0, 0, 2, 2]
    held = read(memoryview(b"".join(made.pieces())))
    found = check_shards(held, shards(TAR, EMPTY, TAR))
    assert (found.errors, found.warnings) == ([], [])


def test_a_row_that_leads_elsewhere_finds_nothing() -> None:
    for bad in (
        row(offset=512, size=3, keyhash=A),
        row(offset=1024, size=3, keyhash=A),
        row(size=4, keyhash=A),
        row(fid=1, size=3, keyhash=A),
        row(offset=2**64 - 512, size=3, keyhash=A),
    ):
        held = read(index([bad]))
        places = find(held, "a.jpg")
        assert places.tolist() == [0]
        assert list(find_in_shards(held, places, "a.jpg", shards(TAR))) == []


def test_lookup() -> None:
    rows = [*GOOD, row(keyhash=B, crashid=1), row(keyhash=A, extid=1), GOOD[0]]
    held = read(with_stems(rows, "c", n_ext=1))
    assert find(held, "a.jpg").tolist() == [0, 4]
    assert find(held, "x/y/a.JPG").tolist() == [0, 4]
    assert find(held, "c.jpg").tolist() == [2]
    assert find(held, "b.jpg").tolist() == [1]
    for other in ("a", "a.png", "d.jpg", ""):
        assert find(held, other).tolist() == []
    assert find(read(index([], n_stems=0)), "a.jpg").tolist() == []


def built(*contents: bytes, contiguous: bool = False) -> write.NewIndex:
    return write.index([("x.tar", memoryview(c)) for c in contents], contiguous=contiguous)


def test_build_sets_the_flag_by_the_rows_and_sorts_only_on_demand() -> None:
    apart = tars.tar(("a.x", b""), ("b.x", b""), ("a.y", b""))
    loose, sorted_ = built(apart), built(apart, contiguous=True)
    assert not loose.is_contiguous
    assert sorted_.is_contiguous
    assert read(memoryview(b"".join(sorted_.pieces()))).header.flags == 1
    assert sorted(loose.rows.tolist()) == sorted(sorted_.rows.tolist())
    assert sorted_.rows["keyhash"].tolist() == sorted([A, A, B])
    together = tars.tar(("b.x", b""), ("a.x", b""))
    assert built(together, contiguous=True).rows.tolist() == built(together).rows.tolist()


@pytest.mark.parametrize("extension", ["j\npg", "j pg", "jpg ", "j\u00a0pg", ""])
def test_build_refuses_extensions_that_the_original_reader_can_not_load(extension: str) -> None:
    with pytest.raises(FormatError) as caught:
        built(tars.tar(("ok.jpg", b""), (f"a.{extension}", b"")))
    assert (caught.value.offset, caught.value.field) == (512, "name")
    assert caught.value.message.startswith("x.tar: member 'a.")
    assert "empty or has spaces: the format's own reader can't load it" in caught.value.message


@pytest.mark.parametrize("stem", ["b\nc", "b c", ""])
def test_build_refuses_stems_that_collide_and_can_not_be_loaded(stem: str) -> None:
    data = tars.tar(("a.jpg", b""), (f"{stem}.jpg", b""))
    # Only stems that collide go into a table.
    assert built(data).crash_stems == ()
    with pytest.raises(FormatError, match="has the same xxh64 as another stem"):
        write.index([("x.tar", memoryview(data))], keyhash=lambda _: 1)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        *[(b"1", b"l.jpg", "a hard link"), (b"2", b"l.jpg", "a symbolic link")],
        *[(b"3", b"l.jpg", "a device"), (b"6", b"l.jpg", "a pipe"), (b"5", b"d.d/", "a folder")],
        *[(b"\0", b"d/", "a folder"), (b"x", b"x.jpg", "a PAX header")],
        *[(b"g", b"x.jpg", "a PAX header"), (b"L", b"@.@", "a GNU long name")],
        *[(b"K", b"@.@", "a GNU long name"), (b"9", b"x.jpg", "of an unknown type")],
    ],
)
def test_build_refuses_members_that_are_no_files(kind: bytes, name: bytes, words: str) -> None:
    data = tars.tar(("ok.jpg", b""))[:512] + tars.header(name, kind=kind) + bytes(1024)
    with pytest.raises(FormatError) as caught:
        built(data)
    assert (caught.value.offset, caught.value.field) == (512, "name")
    assert f"{quoted(name.decode())} is {words}, not a file" in caught.value.message


@pytest.mark.parametrize("kind", [b"0", b"\0", b"7"])
def test_build_takes_files_of_all_kinds(kind: bytes) -> None:
    assert len(built(tars.header(b"a.jpg", kind=kind) + bytes(1024)).rows) == 1


def test_the_spelling_of_an_extension_is_that_of_the_tars() -> None:
    raised = b"".join(built(TAR).pieces()).replace(b"jpg", b"JPG")
    found = check_shards(read(memoryview(raised)), [Tar("x.tar", memoryview(TAR))])
    assert "extid" in {error.field for error in found.errors}
    assert [error.field for error in check(memoryview(raised)).errors] == ["n_ext"]


def test_build_refuses_more_than_ids_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "MAX_EXTENSIONS", 2)
    three = tars.tar(("a.x", b""), ("a.y", b""), ("a.z", b""))
    with pytest.raises(FormatError) as caught:
        built(three)
    assert (caught.value.kind, caught.value.offset) == ("limit", 1024)
    monkeypatch.setattr(write, "MAX_SHARDS", 1)
    with pytest.raises(FormatError) as caught:
        built(TAR, TAR)
    assert caught.value.kind == "limit"


def test_no_index_is_made_of_a_shard_that_is_none() -> None:
    with pytest.raises(FormatError, match=r"^y\.tar: "):
        write.index([("x.tar", memoryview(TAR)), ("y.tar", memoryview(b"junk"))])


def test_the_order_of_shards() -> None:
    listed = [
        "t_10.tar",
        "t_2.tar",
        "t_1-x.tar",
        "t_1.tar",
        "u_1.tar",
        "t_a_1.tar",
        "t.tar",
        "t_1.tgz",
    ]
    assert tar.shards_of(listed, "t") == ["t_1.tar", "t_1-x.tar", "t_10.tar", "t_2.tar"]
    assert tar.shards_of(listed, "t_a") == ["t_a_1.tar"]
    assert tar.shards_of(listed, "x") == []


def test_a_shard_that_is_no_tar_is_no_empty_one() -> None:
    assert not tar.is_empty(memoryview(b"x" * 512))
    found = check_shards(read(index([], n_stems=0)), [Tar("t_0.tar", memoryview(b"x" * 512))])
    assert [p.field for p in found.errors] == ["checksum"]


def test_the_example_of_the_specification() -> None:
    page = Path(__file__).parents[2] / "docs/spec/taridx.md"
    _, _, example = page.read_text().partition("## An example in bytes\n")
    rows = re.findall(r"^\| (\d+) \| `([0-9a-f ]+)` \|", example, re.MULTILINE)
    data = b"".join(built(tars.tar(("d/a.TXT", b"123"))).pieces())
    assert bytes.fromhex("".join(held for _, held in rows)) == data
    starts = [int(start) for start, _ in rows]
    lengths = [len(bytes.fromhex(held)) for _, held in rows]
    assert [start + length for start, length in zip(starts, lengths, strict=True)] == [
        *starts[1:],
        99,
    ]
