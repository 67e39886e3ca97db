"""Tar headers as an index sees them; Python's tarfile is the peer."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from itertools import pairwise
from typing import TypeAlias

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.containers import tars
from wtxtgit.containers.taridx import tar, write
from wtxtgit.containers.taridx.tar import split_name
from wtxtgit.errors import FormatError

Archive: TypeAlias = tuple[list[tuple[str, bytes, str, float, int]], int, bool]
NAME = st.text(st.sampled_from("ab.A/é😀 -_"), min_size=1, max_size=160).filter(
    lambda name: name.strip("/")
)
KIND = st.sampled_from(
    [tarfile.REGTYPE] * 4
    + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.AREGTYPE]
)

SHORT = 100
"""Most characters of a name in a header itself."""

FILE = st.tuples(NAME, KIND, NAME, st.sampled_from([0, 1.5, -3, 2**40]), st.integers(0, 1100))
"""Name, type, name of what a link points to, time, bytes."""
ARCHIVE = st.builds(
    lambda *drawn: drawn, st.lists(FILE, max_size=5), st.sampled_from(tars.FORMATS), st.booleans()
)


def written(archive: Archive) -> bytes:
    """A tar of members of all kinds, as tarfile writes it; perhaps without its end."""
    files, form, is_whole = archive
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as writer:
        for name, kind, link, time, count in files:
            if kind == tarfile.AREGTYPE and not (name.isascii() and len(name) <= SHORT):
                # Whether the long name of an old folder makes it one depends on Python's version.
                name = name.rstrip("/")
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mtime = kind, link, time
            # tarfile writes bytes after an old folder, and does not pass them when it reads.
            info.size = count if info.isreg() and not name.endswith("/") else 0
            try:
                writer.addfile(info, io.BytesIO(name.encode() * 1100))
            except ValueError:
                assert form == tarfile.USTAR_FORMAT  # a name or number that it can't hold
        end = writer.offset
    return buffer.getvalue()[: None if is_whole else end]


@given(ARCHIVE)
def test_headers_are_the_members_that_tarfile_reads(drawn: Archive) -> None:
    data = written(drawn)
    found = list(tar.members(memoryview(data)))
    at = {header.offset: header for header in found}
    assert len(at) == len(found)
    if not data:
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = archive.getmembers()
        for member in members:
            header = at.pop(member.offset_data - tar.BLOCK)
            raw = data[header.offset :][:100].partition(b"\0")[0]
            assert header.name == raw.decode(errors="replace")
            assert (tar.other_than_file(header) is None) == member.isreg()
            if not member.isreg():
                assert header.size == 0
                continue
            held = archive.extractfile(member)
            assert held is not None
            start = header.offset + tar.BLOCK
            assert data[start : start + header.size] == held.read()
    # What is left are headers that speak of the member after them.
    assert {data[offset + tar.TYPE] for offset in at} <= set(tar.OVERLAYS)


@given(
    ARCHIVE,
    st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=4),
    st.integers(0, 1 << 14),
)
def test_nothing_but_a_format_error_leaves(
    drawn: Archive, changes: list[tuple[int, int]], length: int
) -> None:
    spoilt = bytearray(written(drawn))
    for place, value in changes:
        if spoilt:
            spoilt[place % len(spoilt)] = value
    spoilt = spoilt[:length]
    found, walk, error = [], tar.members(memoryview(spoilt)), None
    try:
        found.extend(walk)
    except FormatError as caught:
        error = caught
    assert error is None or error.offset is not None
    assert error is None or error.field in {"size", "checksum", "magic"}
    assert all(a.end == b.offset for a, b in pairwise(found))
    assert all(m.offset + tar.BLOCK + m.size <= len(spoilt) for m in found)


def refused(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        list(tar.members(memoryview(data)))
    return caught.value


GOOD = tars.tar(("a.txt", b"1234"))[:1024]


@pytest.mark.parametrize(
    ("data", "kind", "offset", "field"),
    [
        (b"x" * 600, "structure", 0, "checksum"),
        (b"x", "structure", 0, "checksum"),
        (GOOD + b"x" * 512, "structure", 1024, "checksum"),
        (GOOD + tars.header(checksum=b"\xff" * 8), "structure", 1024, "checksum"),
        (GOOD + tars.header(size=b"1"), "structure", 1024, "size"),
        (GOOD + tars.header(size=b"77777777777"), "structure", 1024, "size"),
        (GOOD + tars.header(size=b"9"), "structure", 1024, "size"),
        (GOOD + tars.header(size=b"-1"), "structure", 1024, "size"),
        (GOOD + tars.header(size=b"\xff" * 12), "structure", 1024, "size"),
        (GOOD + tars.header(size=b"\x80" + b"\xff" * 11), "structure", 1024, "size"),
        (GOOD + tars.header(kind=b"S", at482=b"\1"), "structure", 1024, "size"),
        (
            tars.header(size=b"%o" % (tar.MAX_PAX + 1), kind=b"x") + bytes(tar.MAX_PAX + 512),
            "limit",
            0,
            "size",
        ),
    ],
)
def test_headers_that_are_refused(data: bytes, kind: str, offset: int, field: str) -> None:
    error = refused(data)
    assert (error.kind, error.offset, error.field) == (kind, offset, field)


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("gzip", gzip.compress(GOOD, mtime=0)),
        ("bzip2", bz2.compress(GOOD)),
        ("xz", lzma.compress(GOOD)),
        ("zstd", zstandard.compress(GOOD)),
    ],
)
def test_a_compressed_tar_is_refused_with_words(name: str, packed: bytes) -> None:
    for data in (packed, packed + b"x" * 600):
        assert refused(data).message == f"compressed with {name}: members have no offsets in it"


def test_sizes_in_base_256_and_with_spaces() -> None:
    for size in (b"\x80" + (700).to_bytes(11, "big"), b"  1274 ", b"1274\0junk", b"\t1274\n"):
        (member,) = tar.members(memoryview(tars.header(size=size) + bytes(700)))
        assert (member.size, member.end) == (700, 1536)
    (member,) = tar.members(memoryview(tars.header(size=b"\0" * 12)))
    assert member.size == 0


def test_a_signed_checksum_holds() -> None:
    block = bytearray(tars.header(name="é.txt".encode()))
    total = sum(byte - 256 * (byte > 127) for byte in block[:148] + b" " * 8 + block[156:])
    block[148:156] = b"%06o\0 " % total
    (member,) = tar.members(memoryview(block))
    assert member.name == "é.txt"


@pytest.mark.parametrize(("kind", "name"), [(b"1", b"a"), (b"5", b"a"), (b"\0", b"a/")])
def test_nothing_follows_links_and_folders_whatever_their_size(kind: bytes, name: bytes) -> None:
    data = tars.header(name=name, size=b"1000", kind=kind) + GOOD
    assert [(m.offset, m.size) for m in tar.members(memoryview(data))] == [(0, 0), (512, 4)]
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert [m.name for m in archive] == ["a", "a.txt"]


def test_the_size_in_a_pax_header_is_the_next_members() -> None:
    data = tars.pax(comment="12 size=9", size="700") + tars.header(size=b"0") + bytes(1024) + GOOD
    found = list(tar.members(memoryview(data)))
    assert [(m.offset, m.size) for m in found] == [(0, 33), (1024, 700), (2560, 4)]
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert [(m.offset_data, m.size) for m in archive] == [(1536, 700), (3072, 4)]
    assert tar.member_at(memoryview(data), 1024, 700) == found[1]
    assert tar.member_at(memoryview(data), 1024, 699) is None
    assert tar.member_at(memoryview(data), 2560, 4) == found[2]
    assert tar.member_at(memoryview(data), 2560, 700) is None


def test_a_pax_size_beyond_the_end_is_refused() -> None:
    error = refused(tars.pax(size="9" * 19) + tars.header())
    assert (error.offset, error.field) == (1024, "size")


def test_sparse_files_are_told_and_passed() -> None:
    map_block = bytearray(512)
    map_block[504] = 1
    data = tars.header(size=b"4", kind=b"S", at482=b"\1") + map_block + bytes(1024)
    data += tars.pax(GNU__sparse__major="1") + GOOD
    found = list(tar.members(memoryview(data)))
    assert [(m.offset, m.sparse) for m in found] == [(0, True), (2048, False), (3072, True)]
    assert write.index([("x.tar", memoryview(data[:2048]))]).sparse == 1


def test_the_end_is_a_block_of_zeros_or_the_last_byte() -> None:
    assert len(list(tar.members(memoryview(GOOD + bytes(512) + GOOD)))) == 1
    assert len(list(tar.members(memoryview(GOOD)))) == 1
    assert len(list(tar.members(memoryview(GOOD[:516])))) == 1
    assert len(list(tar.members(memoryview(GOOD + b"x" * 511)))) == 1
    assert list(tar.members(memoryview(b""))) == []
    assert list(tar.members(memoryview(bytes(1024)))) == []


@pytest.mark.parametrize(
    ("name", "stem", "extension"),
    [
        ("d/e/a.tar.GZ", "a", "tar.gz"),
        ("a.b/c", "c", ""),
        (".hidden", "", "hidden"),
        ("x.", "x", ""),
        ("d/", "", ""),
        ("", "", ""),
        ("naïve café.İ", "naïve café", "i̇"),
    ],
)
def test_stems_and_extensions(name: str, stem: str, extension: str) -> None:
    assert split_name(name) == (stem, extension)
