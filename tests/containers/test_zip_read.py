"""Zips: their directory against Python's zipfile, and what is refused."""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.containers.zip_files import Entry, deflate, zip64_end, zipped
from wtxtgit.containers import zip_read
from wtxtgit.containers.zip_read import content, overlapping, read
from wtxtgit.errors import FormatError

LIMIT = 1 << 20
METHODS = st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def refused(data: bytes, field: str, offset: int | None, kind: str = "structure") -> str:
    with pytest.raises(FormatError) as caught:
        read(memoryview(data))
    assert (caught.value.kind, caught.value.field) == (kind, field)
    assert caught.value.offset == offset
    return caught.value.message


def refused_content(entry: Entry, words: str, kind: str = "structure", limit: int = LIMIT) -> None:
    data = memoryview(zipped([entry]))
    (member,) = read(data).members
    with pytest.raises(FormatError, match=words) as caught:
        content(data, member, limit)
    assert (caught.value.kind, caught.value.field) == (kind, "payload")
    assert caught.value.offset == member.start


@settings(max_examples=50, deadline=None)
@given(
    members=st.lists(st.tuples(NAMES, st.binary(max_size=300), METHODS), max_size=5),
    comment=st.binary(max_size=40),
    streamed=st.booleans(),
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_zipfile_writes_is_read(
    members: list[tuple[str, bytes, int]], comment: bytes, streamed: bool
) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return not streamed

        def tell(self) -> int:
            if streamed:
                raise OSError
            return super().tell()

    buffer = Pipe()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, raw, method in members:
            with archive.open(zip_info(name, method), "w", force_zip64=len(raw) % 2 == 0) as out:
                out.write(raw)
        archive.comment = comment
    data = memoryview(buffer.getvalue())
    directory = read(data)
    assert [member.name for member in directory.members] == [name for name, _, _ in members]
    assert bytes(data[directory.start :]).endswith(comment)
    for member, (_, raw, method) in zip(directory.members, members, strict=True):
        assert bytes(content(data, member, LIMIT)) == raw
        assert (member.stored, member.method) == (method == 0, method)
    shifted = memoryview(b"before" + bytes(data) + b"after")
    for member, other in zip(
        directory.members, read(shifted, 6, 6 + len(data)).members, strict=True
    ):
        assert (other.name, other.start, other.end) == (
            member.name,
            member.start + 6,
            member.end + 6,
        )


def zip_info(name: str, method: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    return info


def test_names_are_utf8_or_code_page_437() -> None:
    data = zipped([Entry(b"\x81ber"), Entry("über".encode(), flags=1 << 11)])
    assert [member.name for member in read(memoryview(data)).members] == ["über", "über"]
    assert zipfile.ZipFile(io.BytesIO(data)).namelist() == ["über", "über"]


def test_a_name_that_claims_to_be_utf8_and_is_not_is_refused() -> None:
    data = zipped([Entry(b"a\xff", flags=1 << 11)])
    refused(data, "name", data.index(b"PK\1\2") + 46 + 1)


@pytest.mark.parametrize("method", [0, 8])
def test_encrypted_members_are_not_looked_into(method: int) -> None:
    data = memoryview(zipped([Entry(b"a", b"secret", method, flags=1), Entry(b"b", b"plain")]))
    directory = read(data)
    encrypted, plain = directory.members
    assert (encrypted.encrypted, encrypted.stored) == (True, False)
    assert (plain.encrypted, plain.stored) == (False, True)
    for look in (content, lambda *args: list(zip_read.blocks(*args))):
        with pytest.raises(FormatError, match="'a' is encrypted") as caught:
            look(data, encrypted, LIMIT)
        assert (caught.value.kind, caught.value.field) == ("structure", "flags")
        assert caught.value.offset == encrypted.entry
    (note,) = zip_read.part_notes(directory)
    assert (note.offset, note.about) == (encrypted.start, "a, encrypted")
    assert (note.is_encrypted, note.is_compressed) == (True, method == 8)


def test_members_of_other_disks_are_refused() -> None:
    data = zipped([Entry(b"a", disk=1)])
    refused(data, "disk", data.index(b"PK\1\2"))


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        ("disk", "disk", 1),
        ("directory disk", "directory_disk", 1),
        ("disk entries", "disk_entries", 0),
    ],
)
def test_an_end_record_of_several_disks_is_refused(field: str, name: str, value: int) -> None:
    data = zipped([Entry(b"a")], **{name: value})
    refused(data, field, data.index(b"PK\5\6"))


def test_the_directory_must_reach_the_end_record() -> None:
    good = zipped([Entry(b"a")])
    start, end = good.index(b"PK\1\2"), good.index(b"PK\5\6")
    for changes in ({"size": end - start - 1}, {"offset": start + 1}, {"offset": 2**32 - 1}):
        refused(zipped([Entry(b"a")], **changes), "central directory", end)
    refused(b"PK\3\4" + good, "central directory", 4 + end)
    # The end record's own bytes can't be the directory.
    refused(zipped([], size=22), "central directory", 0)


def test_entries_must_fill_the_directory() -> None:
    good = zipped([Entry(b"a")])
    start = good.index(b"PK\1\2")
    refused(zipped([Entry(b"a")], entries=2, disk_entries=2), "central directory", start)
    refused(zipped([Entry(b"a")], entries=0, disk_entries=0), "central directory", start)
    long = [Entry(b"a" * 50), Entry(b"b")]
    middle = zipped(long).index(b"PK\1\2") + 46 + 50
    refused(zipped(long, entries=1, disk_entries=1), "central directory", middle)
    refused(zipped([Entry(b"a", magic=b"PK\1\3")]), "entry", start)


def test_more_members_than_a_file_may_have_are_refused() -> None:
    end = zip64_end(1_000_001, 0, 0)
    data = end + zipped([], entries=0xFFFF, disk_entries=0xFFFF)
    assert "1000001" in refused(data, "entries", 0, "limit")
    end = zip64_end(1_000_000, 0, 0)
    data = end + zipped([], entries=0xFFFF, disk_entries=0xFFFF)
    refused(data, "central directory", 0)


def test_a_zip_without_an_end_is_refused() -> None:
    assert "no end" in refused(b"PK\3\4" + bytes(30), "end of central directory", 34)
    refused(b"", "end of central directory", 0)
    end = len(zipped([Entry(b"a")]))
    refused(zipped([Entry(b"a")], comment_length=1), "end of central directory", end)
    refused(zipped([Entry(b"a")]) + bytes(65_536), "end of central directory", end + 65_536)


@pytest.mark.parametrize("after", [b"x", b"PK\5\6", b"PK\5\6" + bytes(18), bytes(65_535)])
@pytest.mark.parametrize("comment", [b"", b"PK\5\6 is the magic"])
def test_bytes_after_the_end_are_left_alone(after: bytes, comment: bytes) -> None:
    after = after[: 65_535 - len(comment)]
    good = zipped([Entry(b"a", b"x")], comment=comment)
    directory = read(memoryview(good + after))
    assert directory == read(memoryview(good))


def test_the_last_end_record_whose_numbers_fit_counts() -> None:
    good = zipped([Entry(b"a", b"x")])
    at = good.index(b"PK\5\6")
    empty = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0, 0, 0, len(good), 0)
    assert read(memoryview(good + empty)).members == ()
    astray = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0, 0, 0, len(good) + 1, 0)
    assert len(read(memoryview(good + astray)).members) == 1
    # Where none fits the last one is told.
    bad = good.replace(b"PK\5\6\0\0", b"PK\5\6\1\0")
    refused(bad, "disk", at)
    refused(bad + astray, "central directory", len(good))


def test_an_end_record_in_the_comment_is_none() -> None:
    fake = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 9)
    data = zipped([Entry(b"a")], comment=b"PK\5\6" + fake + b"PK\5\6")
    assert [member.name for member in read(memoryview(data)).members] == ["a"]


def test_the_longest_comment_is_found() -> None:
    data = zipped([Entry(b"a")], comment=b"P" * 0xFFFF)
    assert len(read(memoryview(data)).members) == 1


def wide(entries: list[Entry], **changes: int) -> bytes:
    """A zip whose end record refers to zip64's for everything."""
    plain = zipped(entries)
    start, end = plain.index(b"PK\1\2"), plain.index(b"PK\5\6")
    return zipped(
        entries,
        before_end=zip64_end(len(entries), end - start, start, **changes),
        disk_entries=0xFFFF,
        entries=0xFFFF,
        size=0xFFFFFFFF,
        offset=0xFFFFFFFF,
    )


def test_zip64_records_are_read() -> None:
    entry = Entry(
        b"a",
        b"xyz",
        length=0xFFFFFFFF,
        size=0xFFFFFFFF,
        offset=0xFFFFFFFF,
        disk=0xFFFF,
        extra=struct.pack("<HHB", 7, 1, 0) + struct.pack("<HHQQQI", 1, 28, 3, 3, 0, 0),
    )
    data = memoryview(wide([entry]))
    (member,) = read(data).members
    assert bytes(content(data, member, LIMIT)) == b"xyz"
    assert zipfile.ZipFile(io.BytesIO(data)).read("a") == b"xyz"


def test_zip64_records_beside_numbers_that_fit_are_read() -> None:
    plain = zipped([Entry(b"a", b"xyz")])
    start, end = plain.index(b"PK\1\2"), plain.index(b"PK\5\6")
    data = zipped([Entry(b"a", b"xyz")], before_end=zip64_end(1, end - start, start))
    assert len(read(memoryview(data)).members) == 1
    lying = zipped([Entry(b"a", b"xyz")], before_end=zip64_end(2, end - start, start))
    refused(lying, "disk entries", lying.index(b"PK\5\6"))


@pytest.mark.parametrize(
    ("changes", "field", "place"),
    [
        ({"locator_disk": 1}, "zip64 locator", b"PK\6\7"),
        ({"disks": 2}, "zip64 locator", b"PK\6\7"),
        ({"disk": 1}, "zip64 end of central directory", b"PK\6\6"),
        ({"directory_disk": 1}, "zip64 end of central directory", b"PK\6\6"),
        ({"disk_entries": 0}, "zip64 end of central directory", b"PK\6\6"),
        ({"record_size": 45}, "zip64 end of central directory", b"PK\6\6"),
        ({"record_size": 2**64 - 1}, "zip64 end of central directory", b"PK\6\6"),
        ({"size": 2**64 - 1}, "central directory", b"PK\6\6"),
        ({"offset": 2**63}, "central directory", b"PK\6\6"),
    ],
)
def test_lies_of_zip64_records_are_refused(
    changes: dict[str, int], field: str, place: bytes
) -> None:
    data = wide([Entry(b"a", b"xyz")], **changes)
    refused(data, field, data.index(place))


@pytest.mark.parametrize("at", [0, 2**64 - 1])
def test_a_locator_that_points_elsewhere_is_refused(at: int) -> None:
    refused(wide([Entry(b"a", b"xyz")], at=at), "zip64 end of central directory", at)


def test_extra_fields_must_hold_what_they_say() -> None:
    data = zipped([Entry(b"a", extra=struct.pack("<HH", 1, 5), size=0xFFFFFFFF)])
    refused(data, "extra fields", data.index(b"PK\1\2"))
    # Less than a field's head is filling.
    data = zipped([Entry(b"a", extra=b"\0\0\0")])
    assert len(read(memoryview(data)).members) == 1


def test_zip64_numbers_are_eight_bytes_and_the_disk_is_four() -> None:
    for field in ("length", "size", "offset"):
        for extra in (b"", bytes(4), bytes(7)):
            extra = struct.pack("<HH", 1, len(extra)) + extra
            entry = Entry(b"a", b"xyz", extra=extra, **{field: 0xFFFFFFFF})  # type: ignore[arg-type]
            data = zipped([entry])
            refused(data, "zip64 field", data.index(b"PK\1\2"))
    for length, disk in ((2, b"\0\0"), (4, struct.pack("<I", 1))):
        entry = Entry(b"a", b"xyz", disk=0xFFFF, extra=struct.pack("<HH", 1, length) + disk)
        data = zipped([entry])
        refused(data, "zip64 field" if length < 4 else "disk", data.index(b"PK\1\2"))


def test_members_must_stand_inside_of_the_file() -> None:
    data = zipped([Entry(b"a", b"xyz")])
    directory = data.index(b"PK\1\2")
    length = len(data) - directory + 3
    (member,) = read(memoryview(zipped([Entry(b"a", b"xyz", length=length)]))).members
    assert (member.start, member.end) == (directory - 3, len(data))
    refused(zipped([Entry(b"a", b"xyz", length=length + 1)]), "member 'a'", directory - 3)
    refused(zipped([Entry(b"a", b"xyz", offset=directory)]), "local header", directory)
    refused(zipped([Entry(b"a", b"xyz", offset=0xFFFFFFFF)]), "local header", 0xFFFFFFFF)
    refused(zipped([Entry(b"a", b"xyz", local_magic=b"PK\3\5")]), "local header", 0)
    cut_name = zipped([Entry(b"a", b"xyz")]).replace(b"\1\0\0\0a", b"\xff\xff\0\0a", 1)
    refused(cut_name, "local header", 0)


def test_empty_members_need_no_local_header() -> None:
    first, good = Entry(b"a", b"xyz"), Entry(b"b")
    (_, member) = read(memoryview(zipped([first, good]))).members
    assert (member.start, member.end) == (34 + 31, 34 + 31)
    for offset in (1, 2**31, 2**32 - 1):
        data = memoryview(zipped([first, replace(good, offset=offset)]))
        (_, member) = read(data).members
        assert (member.start, member.end) == (min(offset, len(data)),) * 2
        assert content(data, member, LIMIT) == b""


def test_content_that_is_not_what_the_directory_says() -> None:
    raw = b"weights " * 40
    good = deflate(raw)
    refused_content(Entry(b"a", raw, method=12), "method 12")
    refused_content(Entry(b"a", raw, size=9), "stored with 320 bytes, not 9")
    refused_content(Entry(b"a", raw, method=8, size=319), "more than 319")
    refused_content(Entry(b"a", raw, method=8, size=321), "to 320 bytes, not 321")
    refused_content(Entry(b"a", raw, method=8, payload=good + b"x"), "continues after")
    refused_content(Entry(b"a", raw, method=8, payload=good[:-1]), "ends inside")
    refused_content(Entry(b"a", raw, method=8, payload=b"\xff" + good[1:]), "not valid deflate")
    refused_content(Entry(b"a", b"", method=8, payload=b""), "ends inside")
    refused_content(Entry(b"a", raw, method=8), "over 319 bytes", "limit", 319)


def test_stored_content_has_no_limit() -> None:
    data = memoryview(zipped([Entry(b"a", b"xyz")]))
    found = content(data, read(data).members[0], 0)
    assert isinstance(found, memoryview)
    assert found == b"xyz"


def test_a_bomb_is_told_by_its_sizes_or_stopped() -> None:
    zeros = bytes(50_000_000)
    packed = deflate(zeros)
    refused_content(Entry(b"a", zeros, method=8, payload=packed), "over", "limit")
    # What it inflates to beyond the size that it claims is never made.
    refused_content(Entry(b"a", zeros, method=8, payload=packed, size=10), "more than 10")
    refused_content(
        Entry(b"a", b"", method=8, payload=deflate(b""), size=2**31), "can't inflate", limit=2**40
    )


def test_members_that_share_bytes_are_named() -> None:
    entries = [Entry(b"a", b"x" * 20), Entry(b"b", offset=0, length=20), Entry(b"c", b"y")]
    data = memoryview(zipped(entries))
    assert overlapping(read(data).members) == {1}
    longer = [Entry(b"a", b"x" * 20, length=7), Entry(b"b", offset=0, length=20), Entry(b"c")]
    assert overlapping(read(memoryview(zipped(longer))).members) == {0}
    # What a member has lost takes nothing from the ones after it.
    rest = [Entry(b"b", b"y" * 9, length=45), Entry(b"c", b"z" * 9)]
    short, long = Entry(b"a", b"x" * 40), Entry(b"a", b"x" * 40, length=75)
    assert overlapping(read(memoryview(zipped([short, *rest]))).members) == {2}
    assert overlapping(read(memoryview(zipped([long, *rest]))).members) == {1}
    # Of equal ranges the smaller name keeps them.
    same = [Entry(b"b", b"x" * 20), Entry(b"a", offset=0, length=20)]
    assert overlapping(read(memoryview(zipped(same))).members) == {0}


def test_members_that_reach_into_the_directory_are_named() -> None:
    directory = read(memoryview(zipped([Entry(b"a", b"x"), Entry(b"b", b"y", length=2)])))
    assert overlapping(directory.members) == frozenset()
    assert overlapping(directory.members, directory.start) == {1}


@pytest.fixture(scope="module")
def small() -> bytes:
    return wide([Entry(b"a/b.npy", b"xyz"), Entry(b"c", b"zzzzzzzzzz", method=8)])


def all_of(data: bytes) -> None:
    """Read everything that can be read; only FormatError may leave."""
    try:
        for member in read(memoryview(data)).members:
            zip_read.content(memoryview(data), member, LIMIT)
    except FormatError as error:
        found = error
    else:
        return
    assert found.field is not None
    assert found.offset is not None


def test_every_truncation_is_refused(small: bytes) -> None:
    for end in range(len(small)):
        with pytest.raises(FormatError):
            read(memoryview(small[:end]))


def test_every_changed_byte_is_read_or_refused(small: bytes) -> None:
    for place in range(len(small)):
        for change in (1, 0x80, 0xFF):
            data = bytearray(small)
            data[place] ^= change
            all_of(bytes(data))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_before_an_end_record(raw: bytes) -> None:
    all_of(raw + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, min(len(raw), 60), 0, 0))
    all_of(raw)
