"""Writing torch files: what is written is read again, laid out as torch does it."""

from __future__ import annotations

import io
import mmap
import zipfile
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given

from tests.containers.samples import check_cut
from tests.containers.sources import content, models, source
from tests.containers.torch_files import archive, items_of, named, vector, zipped
from tests.data import fixture
from wtxtgit.containers import zip_read
from wtxtgit.containers.any_format import check, describe, split
from wtxtgit.containers.torch import read, write, zip_layout
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ITEM_BYTES, ReadOptions, TensorSource


def built(*sources: TensorSource) -> bytes:
    return b"".join(write.build_model(sources, {}))


@given(models(sorted(write.DTYPES)))
def test_what_is_written_is_read_again(sources: list[TensorSource]) -> None:
    data = built(*sources)
    described = describe(memoryview(data))
    assert [(t.name, t.element, t.shape) for t in described.tensors] == [
        (s.name, s.element, s.shape) for s in sources
    ]
    assert [items_of(t) for t in described.tensors] == [content(s) for s in sources]
    assert check(memoryview(data)) == Findings()
    check_cut(split(memoryview(data)), data)
    assert built(*sources) == data


def test_all_elements_are_held() -> None:
    assert set(write.DTYPES) == set(ITEM_BYTES)


def test_the_layout_is_that_of_torch() -> None:
    """Names, order, flags, padding and descriptors as in a file of torch's own writer."""
    ours = built(source("a", "f32", (3,), bytes(12)), source("b", "u8", (0,), b""))
    theirs = fixture("plain/nested_a.pt")
    for data, folder in ((ours, "archive/"), (theirs, "nested_a/")):
        members = zip_read.read(memoryview(data)).members
        names = [member.name.removeprefix(folder) for member in members]
        first = ["data.pkl", ".format_version", ".storage_alignment", "byteorder", "data/0"]
        assert names[:5] == first
        for member in members:
            head = data[member.header + 4 : member.header + 26]
            assert head == bytes(2) + (b"\x08\x08" if member.size else b"\0\x08") + bytes(18)
            assert member.start % 64 == 0
    raw = zipfile.ZipFile(io.BytesIO(ours))
    assert raw.testzip() is None
    end = ours[-98:]
    assert [end[:4], end[56:60], end[76:80]] == [b"PK\x06\x06", b"PK\x06\x07", b"PK\x05\x06"]
    assert theirs[-98:-94] == b"PK\x06\x06"


def test_more_tensors_than_are_set_at_a_time() -> None:
    sources = [source(f"t{n}", "u8", (1,), bytes([n % 256])) for n in range(2001)]
    listed = describe(memoryview(built(*sources))).tensors
    assert [bytes(t.data) for t in listed] == [bytes([n % 256]) for n in range(2001)]


@pytest.mark.parametrize(
    ("sources", "field"),
    [
        ([source("a", "u8", (), b"1"), source("a", "u8", (), b"1")], "name"),
        ([source("\ud800", "u8", (), b"1")], "name"),
        ([source("a", "f4", (), b"1")], "dtype"),
        ([source("a", "u8", (1,) * 65, b"1")], "shape"),
        ([source("a", "u8", (0, 2**64), b"")], "shape"),
    ],
)
def test_what_torch_can_not_hold_is_refused_at_once(
    sources: list[TensorSource], field: str
) -> None:
    with pytest.raises(FormatError) as caught:
        write.build_model(sources, {})
    assert caught.value.field == field


def test_a_source_that_gives_too_little_is_an_error() -> None:
    lying = TensorSource("a", "u8", (3,), 3, lambda: iter([b"ab"]))
    with pytest.raises(FormatError, match="2 bytes, not 3"):
        built(lying)


def repacked(data: bytes, **options: int) -> bytes:
    container = read.read(memoryview(data))
    return b"".join(zip_layout.repack(container, "none", ReadOptions(**options)))


def test_repacked_members_are_stored() -> None:
    raw = bytes(range(24))
    more = {"é/x": b"abc", "empty": b""}
    data = archive(named(w=vector("0", 6)), {"0": raw}, deflated=["0", "pkl"], more=more)
    made = repacked(data)
    assert check(memoryview(made)).errors == []
    before, after = (zipfile.ZipFile(io.BytesIO(d)) for d in (data, made))
    assert before.namelist() == after.namelist()
    assert [before.read(n) for n in before.namelist()] == [after.read(n) for n in after.namelist()]
    assert all(member.stored for member in zip_read.read(memoryview(made)).members)
    (listed,) = describe(memoryview(made)).tensors
    assert bytes(listed.data) == raw
    assert (listed.offset or 0) % 64 == 0


def test_a_file_of_torch_is_repacked_to_itself() -> None:
    data = fixture("plain/nested_a.pt")
    made = repacked(data)
    start = zip_read.read(memoryview(data)).start
    assert made[:start] == data[:start]


def test_the_alignment_of_the_file_is_kept() -> None:
    data = archive(named(w=vector("0", 6)), {"0": bytes(24)}, more={".storage_alignment": b"512"})
    (listed,) = describe(memoryview(repacked(data))).tensors
    assert (listed.offset or 1) % 512 == 0


def test_what_is_not_repacked() -> None:
    data = archive(named(w=vector("0", 6)), {"0": bytes(24)}, deflated=["data/0"])
    container = read.read(memoryview(data))
    with pytest.raises(FormatError, match="zstd"):
        zip_layout.repack(container, "zstd", ReadOptions())
    small = ReadOptions(max_chunk=23)
    with pytest.raises(FormatError) as caught:
        zip_layout.repack(container, "none", small)
    assert caught.value.kind == "limit"
    crc32 = zlib.crc32(bytes(24)).to_bytes(4, "little")
    wrong = data.replace(crc32, b"\0\0\0\1")
    with pytest.raises(FormatError) as caught:
        zip_layout.repack(read.read(memoryview(wrong)), "none", ReadOptions())
    assert caught.value.field == "crc32"


def test_a_name_that_gets_too_long() -> None:
    name = "é" * 40_000
    data = bytearray(zipped({"a/data.pkl": b"\x80\x02N.", "x" * 40_000: b""}))
    container = read.read(memoryview(bytes(data).replace(b"x" * 40_000, b"\x82" * 40_000)))
    assert container.directory.members[1].name == name
    with pytest.raises(FormatError, match="too long"):
        zip_layout.repack(container, "none", ReadOptions())


@pytest.mark.slow
def test_members_over_4_gib() -> None:
    size = 2**32 + 5
    block = memoryview(bytes(2**26))

    def blocks() -> Iterator[Buffer]:
        for start in range(0, size, len(block)):
            yield block[: size - start]

    sources = [TensorSource("a", "u8", (size,), size, blocks), source("b", "u8", (3,), b"abc")]
    position = 0
    places: dict[int, bytes] = {}
    for piece in write.build_model(sources, {}):
        if memoryview(piece).nbytes < 2**20:
            places[position] = bytes(piece)
        position += memoryview(piece).nbytes
    with mmap.mmap(-1, position) as sparse:
        for place, piece in places.items():
            sparse[place : place + len(piece)] = piece
        with memoryview(sparse) as whole:
            container = read.read(whole)
            assert [t.name for t in read.describe(container, ReadOptions()).tensors] == ["a", "b"]
            assert [m.size for m in container.storages.values()] == [size, 3]
            second = container.storages["1"]
            assert bytes(whole[second.start : second.end]) == b"abc"
            assert second.start % read.DEFAULT_ALIGNMENT == 0
            del container, second
