"""npz: members exchanged, kept as they are stored, read by numpy and zipfile."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.containers.resealing import OPTIONS, content, file_of, own, refused, resealed
from tests.containers.zip_files import Entry, npy, zipped
from tests.data import fixture, golden_of
from wtxtgit.containers.any_format import check
from wtxtgit.containers.npz import read as npz
from wtxtgit.containers.npz import reseal
from wtxtgit.containers.npz.read import Npz
from wtxtgit.errors import FormatError
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import NewContent, PlacedEntry, ReadOptions

PATHS = sorted(golden_of("npz"))
ONE, TWO = npy(np.arange(5.0)), npy(np.ones((3, 4), ">i2"))
NOTE = b"hello " * 50
BROKEN = "broken.npy"
"""A member of a fixture that is no array, whatever its name says."""


def opened(data: bytes) -> Npz:
    """The zip, also where nothing in it is an array."""
    return npz.read(memoryview(data))


def held_by(data: bytes) -> list[tuple[str, bytes]]:
    return [(entry.name, file_of(entry)) for entry in reseal.entries(opened(data), OPTIONS)]


def check_read_by_others(data: bytes, wanted: list[tuple[str, bytes]]) -> None:
    """The file holds, and zipfile and numpy read from it what it is made of."""
    errors = check(memoryview(data)).errors
    # Members of one name are put together as they are given.
    others = [problem for problem in errors if problem.field != "name"]
    assert [problem for problem in others if problem.chunk != BROKEN] == []
    assert held_by(data) == wanted
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        read = [(info.filename, archive.read(info)) for info in archive.infolist()]
    assert read == wanted
    with np.load(io.BytesIO(data), allow_pickle=False) as loaded:
        for name, raw in dict(wanted).items():
            if name.endswith(".npy") and name != BROKEN:
                array = np.lib.format.read_array(io.BytesIO(raw))
                assert loaded[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("path", PATHS)
def test_what_stays_as_it_is_stays_byte_for_byte(path: str) -> None:
    container = opened(fixture(path))
    placed = own(container, len(container.directory.members))
    assert resealed(container, placed) == fixture(path)
    assert resealed(container, placed, {}) == fixture(path)
    assert reseal.values(container, OPTIONS) == {}


def test_odd_files_stay_byte_for_byte() -> None:
    shared = zipped([Entry(b"a.npy", ONE), Entry(b"b.npy", offset=0, length=9)])
    locked = zipped([Entry(b"a.npy", ONE), Entry(b"b", ONE, flags=1)])
    behind = zipped([Entry(b"a.npy", ONE, crc32=1)], comment=b"comment") + b"behind"
    for data in (shared, locked, behind):
        container = opened(data)
        placed = own(container, len(container.directory.members))
        assert resealed(container, placed) == data


@pytest.mark.parametrize("path", PATHS)
def test_entries_are_the_members(path: str) -> None:
    data = fixture(path)
    container = opened(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        wanted = [(info.filename, archive.read(info)) for info in archive.infolist()]
    assert held_by(data) == wanted
    for entry, member in zip(
        reseal.entries(container, OPTIONS), container.directory.members, strict=True
    ):
        assert entry.stored == container.data[member.start : member.end]
        assert entry.tensor is None


@pytest.mark.parametrize("path", PATHS)
def test_one_member_gets_other_content(path: str) -> None:
    data = fixture(path)
    container = opened(data)
    before = held_by(data)
    for n, (name, _) in enumerate(before):
        placed = own(container, len(before))
        placed[n] = PlacedEntry(container, n, content(TWO))
        after = resealed(container, placed)
        wanted = list(before)
        wanted[n] = (name, TWO)
        check_read_by_others(after, wanted)
        for old, new in zip(
            container.directory.members, opened(after).directory.members, strict=True
        ):
            assert new.method == old.method
            if old is not container.directory.members[n]:
                kept = data[old.start : old.end]
                assert after[new.start : new.end] == kept


def test_new_content_is_compressed_as_numpy_does() -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=np.zeros(99))
    container = opened(buffer.getvalue())
    wanted = io.BytesIO()
    np.savez_compressed(wanted, a=np.arange(300.0))
    after = resealed(container, [PlacedEntry(container, 0, content(npy(np.arange(300.0))))])
    (mine,), (theirs,) = (
        opened(after).directory.members,
        opened(wanted.getvalue()).directory.members,
    )
    assert after[mine.start : mine.end] == wanted.getvalue()[theirs.start : theirs.end]


def test_members_of_other_files_and_of_none() -> None:
    mine = opened(zipped([Entry(b"a.npy", ONE), Entry(b"b.txt", NOTE, 8)]))
    other = opened(zipped([Entry(b"c.npy", TWO, 8, flags=8), Entry(b"a.npy", TWO)]))
    placed = [
        PlacedEntry(other, 1),
        PlacedEntry(mine, 1),
        PlacedEntry(other, 0),
        PlacedEntry(mine, 0, content(TWO)),
    ]
    after = resealed(mine, placed)
    check_read_by_others(after, [("a.npy", TWO), ("b.txt", NOTE), ("c.npy", TWO), ("a.npy", TWO)])
    assert [member.method for member in opened(after).directory.members] == [0, 8, 8, 0]
    assert [member.flags for member in opened(after).directory.members] == [0, 0, 0, 0]
    check_read_by_others(resealed(mine, own(mine, 1)), [("a.npy", ONE)])


def test_members_keep_what_else_is_said_of_them() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for n, name in enumerate(["a.npy", "b.npy", "c.txt"]):
            info = zipfile.ZipInfo(name, (2001 + n, 2, 3, 4, 5, 6))
            info.comment, info.external_attr = b"comment %d" % n, 0o640 << 16 | n
            info.create_system, info.internal_attr = n, 1
            info.compress_type = zipfile.ZIP_DEFLATED if n else zipfile.ZIP_STORED
            archive.writestr(info, ONE)
    container = opened(buffer.getvalue())
    placed = [PlacedEntry(container, n, content(TWO) if n == 1 else None) for n in (2, 1, 0)]
    after = resealed(container, placed)
    check_read_by_others(after, [("c.txt", ONE), ("b.npy", TWO), ("a.npy", ONE)])
    kept = (
        "filename",
        "date_time",
        "comment",
        "external_attr",
        "internal_attr",
        "create_system",
        "compress_type",
    )
    with zipfile.ZipFile(buffer) as before, zipfile.ZipFile(io.BytesIO(after)) as found:
        for old, new in zip(reversed(before.infolist()), found.infolist(), strict=True):
            assert [getattr(new, key) for key in kept] == [getattr(old, key) for key in kept]


def test_forms_say_all_but_the_content() -> None:
    def form(**fields: Any) -> object:
        (entry,) = reseal.entries(opened(zipped([Entry(b"a.npy", **fields)])), OPTIONS)
        return entry.form

    plain = form(content=ONE)
    assert plain == form(content=TWO)
    assert plain == form(content=ONE, flags=8)
    assert plain == form(content=ONE, flags=1 << 11)
    assert plain == form(content=ONE, crc32=1)
    assert plain != form(content=ONE, method=8)
    assert plain != form(content=ONE, flags=1)
    stamped = bytearray(zipped([Entry(b"a.npy", ONE)]))
    directory = opened(bytes(stamped)).directory.start
    stamped[directory + 12 : directory + 16] = b"\1\2\3\4"
    assert reseal.entries(opened(bytes(stamped)), OPTIONS)[0].form == plain
    stamped[directory + 38] = 1
    assert reseal.entries(opened(bytes(stamped)), OPTIONS)[0].form != plain


@settings(max_examples=50)
@given(st.data())
def test_any_members_of_any_files(data: st.DataObject) -> None:
    member = st.builds(
        Entry,
        st.sampled_from([b"a.npy", b"b", b"\xc3\xa9"]),
        st.binary(max_size=90),
        st.sampled_from([0, 8]),
    )
    files = [opened(zipped(data.draw(st.lists(member, max_size=3)))) for _ in range(2)]
    listed = [PlacedEntry(one, n) for one in files for n in range(len(one.directory.members))]
    placed, wanted = [], []
    for one in data.draw(st.lists(st.sampled_from(listed), max_size=4)) if listed else []:
        new = data.draw(st.none() | st.binary(max_size=90))
        name, old = held_by(bytes(one.source.data))[one.number]  # type: ignore[attr-defined]
        placed.append(one if new is None else PlacedEntry(one.source, one.number, content(new)))
        wanted.append((name, old if new is None else new))
    placed.append(PlacedEntry(opened(zipped([Entry(b"one.npy", ONE)])), 0))
    wanted.append(("one.npy", ONE))
    after = resealed(files[0], placed)
    assert held_by(after) == wanted
    assert [p for p in check(memoryview(after)).errors if p.kind in ("crc32", "limit")] == []


def unread(data: bytes, n: int = 0, **limits: Any) -> str:
    entry = reseal.entries(opened(data), ReadOptions(**limits))[n]
    assert entry.file is None
    return str(entry.unread)


def test_members_that_can_not_be_opened_say_why() -> None:
    assert unread(zipped([Entry(b"a.npy", ONE, flags=1)])) == "encrypted"
    shared = zipped([Entry(b"a.npy", ONE), Entry(b"b.npy", offset=0, length=9)])
    assert "shares bytes" in unread(shared, 1)
    assert "crc32" in unread(zipped([Entry(b"a.npy", ONE, crc32=1)]))
    assert "method 12" in unread(zipped([Entry(b"a.npy", ONE, 12)]))
    assert "over 9 bytes" in unread(zipped([Entry(b"a.npy", ONE, 8)]), max_chunk=9)
    assert "can't inflate" in unread(zipped([Entry(b"a.npy", ONE, 8, size=10**8)]))
    for damaged in (Entry(b"a.npy", ONE, 8, crc32=1), Entry(b"a.npy", ONE, 8, payload=b"\xff")):
        (entry,) = reseal.entries(opened(zipped([damaged])), OPTIONS)
        with pytest.raises(FormatError):
            file_of(entry)


def refused_first(data: bytes, field: str, **limits: Any) -> FormatError:
    """What is said where the first member of a file gets other content."""
    container = opened(data)
    placed = own(container, len(container.directory.members), {0: bytes(10)})
    error = refused(container, placed, None, ReadOptions(**limits))
    assert error.field == field
    return error


def test_what_can_not_be_resealed_is_refused_at_once() -> None:
    refused_first(zipped([Entry(b"a.npy", ONE), Entry(b"b.npy", offset=0, length=9)]), "payload")
    refused_first(zipped([Entry(b"a.npy", ONE), Entry(b"b", ONE, flags=1)]), "flags")
    refused_first(zipped([Entry(b"a.npy", ONE, 8, crc32=1)]), "crc32")
    refused_first(zipped([Entry(b"a.npy", ONE, crc32=1)]), "crc32")
    refused_first(zipped([Entry(b"a.npy", ONE, 8, payload=b"\xff")]), "payload")
    refused_first(zipped([Entry(b"a.npy", ONE, 12)]), "payload")
    assert refused_first(zipped([Entry(b"a.npy", b"", 8)]), "payload", max_chunk=9).kind == "limit"
    container = opened(zipped([Entry(b"a.npy", ONE), Entry(b"b", ONE)]))
    for placed, values, field in (
        (own(container, 2), {"k": 1}, "metadata"),
        ([], None, "entries"),
        ([PlacedEntry(container, 1)], None, "entries"),
    ):
        with pytest.raises(FormatError) as caught:
            reseal.reseal(container, placed, values, OPTIONS)
        assert caught.value.field == field


def test_what_comes_from_a_file_that_can_not_be_resealed() -> None:
    good = opened(zipped([Entry(b"a.npy", ONE)]))
    locked = opened(zipped([Entry(b"b.npy", ONE), Entry(b"c", ONE, flags=1)]))
    with pytest.raises(FormatError, match="encrypted"):
        reseal.reseal(good, [PlacedEntry(good, 0), PlacedEntry(locked, 0)], None, OPTIONS)
    assert check(memoryview(resealed(locked, [PlacedEntry(good, 0)]))) == Findings()


@pytest.mark.parametrize("method", [0, 8])
def test_content_that_is_not_as_long_as_it_says(method: int) -> None:
    container = opened(zipped([Entry(b"a.npy", ONE, method)]))
    for wrong in (b"", b"ab", b"abcd"):
        given = NewContent(3, lambda raw=wrong: iter([raw]))  # type: ignore[misc]
        with pytest.raises(FormatError, match="not 3"):
            reseal.reseal(container, [PlacedEntry(container, 0, given)], None, OPTIONS)


@pytest.mark.parametrize("method", [0, 8])
def test_large_content_comes_in_pieces_and_is_not_held(method: int) -> None:
    block = bytes(2**21)
    container = opened(zipped([Entry(b"a.npy", ONE, method), Entry(b"b", bytes(2**22))]))
    given = NewContent(2**24, lambda: iter([block] * 8))
    tracemalloc.start()
    pieces = reseal.reseal(
        container, [PlacedEntry(container, 0, given), PlacedEntry(container, 1)], None, OPTIONS
    )
    sizes = [len(piece) for piece in pieces]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert max(sizes) <= 2**20
    assert peak < 2**22


def rest(data: bytes) -> dict[str, object]:
    return reseal.rest(opened(data), OPTIONS)


def test_the_rest_is_what_the_zip_holds_beside_its_members() -> None:
    members = [Entry(b"a.npy", ONE), Entry(b"note", NOTE, method=8)]
    plain = zipped(members)
    others = [
        zipped(members, comment=b"one"),
        zipped(members, comment=b"two"),
        plain + b"behind",
        zipped(members, prefix=b"before"),
        zipped([replace(members[0], extra=b"\xfe\xca\1\0x"), members[1]]),
        zipped([replace(members[0], local_extra=b"\xfe\xca\1\0x"), members[1]]),
    ]
    assert rest(plain) == {}
    assert rest(others[0]) == {"comment": b"one"}
    assert [sorted(rest(data)) for data in others[2:]] == [
        ["behind the zip"],
        ["gaps"],
        ["extra fields"],
        ["extra fields"],
    ]
    assert all(rest(a) != rest(b) for a, b in combinations(others[:5], 2))


class Pipe(io.BytesIO):
    """What can't go back."""

    def seek(self, *_: int) -> int:
        raise OSError


def test_how_a_zip_was_written_is_no_rest() -> None:
    made = []
    for year, seek in ((1999, True), (2024, False)):
        # Without seeking there are descriptors behind the members.
        out = io.BytesIO() if seek else Pipe()
        with zipfile.ZipFile(out, "w") as archive:
            info = zipfile.ZipInfo("a.npy", (year, 1, 1, 0, 0, 0))
            info.extra = b"UT\5\0\1" + year.to_bytes(4, "little")
            with archive.open(info, "w", force_zip64=seek) as member:
                member.write(ONE)
        made.append(out.getvalue())
    assert made[0] != made[1]
    assert made[1].count(b"PK\7\x08") == 1
    assert [rest(data) for data in made] == [{}, {}]


def test_the_comment_is_the_skeletons() -> None:
    ours = opened(zipped([Entry(b"a.npy", ONE)], comment=b"ours"))
    theirs = opened(zipped([Entry(b"b.npy", TWO)], comment=b"theirs"))
    data = resealed(ours, [*own(ours, 1), *own(theirs, 1)])
    check_read_by_others(data, [("a.npy", ONE), ("b.npy", TWO)])
    assert zipfile.ZipFile(io.BytesIO(data)).comment == b"ours"
    assert rest(data) == {"comment": b"ours"}


def test_a_comment_that_looks_like_the_end_is_refused() -> None:
    ours = opened(zipped([Entry(b"a.npy", ONE)], comment=b"PK\5\6 and more"))
    assert resealed(ours, own(ours, 1)) == ours.data
    with pytest.raises(FormatError) as caught:
        reseal.reseal(ours, [PlacedEntry(ours, 0, content(TWO))], None, OPTIONS)
    assert caught.value.field == "comment"
