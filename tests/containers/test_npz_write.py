"""Writing npz files: numpy and zipfile read them, bytes never differ; repacking."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.containers.samples import spelled
from tests.containers.zip_files import SPEC, Entry, as_numpy, example, npy, zipped
from tests.data import fixture, golden_of
from wtxtgit.containers import zip_read, zip_write
from wtxtgit.containers.any_format import check, describe, split
from wtxtgit.containers.npz import read as npz
from wtxtgit.containers.npz.reseal import repack
from wtxtgit.containers.npz.write import DTYPES, build_model
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions, TensorSource

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/\\"), max_size=8)
OPTIONS = ReadOptions()


def source(name: str, element: str, shape: tuple[int, ...], raw: bytes) -> TensorSource:
    def blocks() -> Iterator[Buffer]:
        for start in range(0, len(raw), 5):
            yield raw[start : start + 5]

    return TensorSource(name, element, shape, len(raw), blocks)


def check_holds(data: bytes) -> None:
    assert check(memoryview(data)) == Findings()


@settings(max_examples=50, deadline=None)
@given(data=st.data(), names=st.lists(NAMES, unique=True, min_size=1, max_size=4))
def test_numpy_reads_what_is_written(data: st.DataObject, names: list[str]) -> None:
    sources, arrays = [], {}
    for name in names:
        element = data.draw(st.sampled_from(sorted(DTYPES)))
        shape = data.draw(npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        dtype = np.dtype(DTYPES[element])
        size = int(np.prod(shape, dtype=int)) * dtype.itemsize
        raw = data.draw(st.binary(min_size=size, max_size=size))
        if element == "bool":
            raw = bytes(byte & 1 for byte in raw)
        sources.append(source(name, element, shape, raw))
        arrays[name] = np.frombuffer(raw, dtype).reshape(shape)
    written = b"".join(build_model(sources, {"tag": "gone"}))
    assert written == b"".join(build_model(sources, {}))
    check_holds(written)
    found = {tensor.name: tensor for tensor in describe(memoryview(written)).tensors}
    assert list(found) == names
    for tensor in sources:
        assert found[tensor.name].element == tensor.element
        assert as_numpy(found[tensor.name]).tobytes() == arrays[tensor.name].tobytes()
    with zipfile.ZipFile(io.BytesIO(written)) as archive:
        assert archive.testzip() is None
        for info, name in zip(archive.infolist(), names, strict=True):
            assert info.filename == f"{name}.npy"
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.compress_type == zipfile.ZIP_STORED
            assert archive.read(info) == npy(arrays[name])
    with np.load(io.BytesIO(written), allow_pickle=False) as loaded:
        for name, array in arrays.items():
            assert loaded[f"{name}.npy"].tobytes() == array.tobytes()


def test_the_example_of_the_spec() -> None:
    written = b"".join(build_model([source("w", "i16", (2,), b"\1\0\xfe\xff")], {}))
    assert written == example("npz.md")
    digest = sha256(written).hexdigest()
    assert f"`{digest}`" in (SPEC / "npz.md").read_text("utf-8")
    words = spelled(split(memoryview(written)))
    assert [word.partition(":")[0] for word in words] == ["hex", "_npy", "w", "_directory"]


def test_what_npz_can_not_hold_is_refused_at_once() -> None:
    one = source("a", "f32", (), bytes(4))
    cases: list[tuple[list[TensorSource], str]] = [
        ([], "entries"),
        ([one, one], "name"),
        ([one, source("b", "bf16", (2,), bytes(4))], "descr"),
        ([one, source("b", "f8_e4m3", (2,), bytes(2))], "descr"),
        ([source("a\0b", "u8", (1,), b"x")], "name"),
        ([source("\ud800", "u8", (1,), b"x")], "name"),
        ([source("a" * 65_532, "u8", (1,), b"x")], "name"),
        ([source("a", "u8", (1,) * 65, b"x")], "shape"),
    ]
    for tensors, field in cases:
        with pytest.raises(FormatError) as caught:
            build_model(tensors, {})
        assert caught.value.field == field
    longest = source("a" * 65_531, "u8", (1,), b"x")
    check_holds(b"".join(build_model([longest], {})))


def huge(name: bytes, length: int) -> NewMember:
    """A member whose payload is said to be long and not made."""
    return NewMember(name, 7, length, length, lambda: ())


def without_payloads(*members: NewMember) -> list[bytes]:
    return [bytes(piece) for piece in zip_write.build(members)]


def test_zip64_fields_stand_where_numbers_need_them() -> None:
    small, large = 2**32 - 2, 2**32 - 1
    first, second, *rest = without_payloads(huge(b"a", large), huge(b"b", small))
    assert struct.unpack("<IIHHc", first[18:31]) == (2**32 - 1, 2**32 - 1, 1, 20, b"a")
    assert struct.unpack("<HHQQ", first[31:]) == (1, 16, large, large)
    assert struct.unpack("<IIHHc", second[18:]) == (small, small, 1, 0, b"b")
    one, two, end = rest
    assert struct.unpack("<HHQQ", one[47:]) == (1, 16, large, large)
    offset = len(first) + large
    assert struct.unpack("<II", two[20:28]) == (small, small)
    assert struct.unpack("<HHQ", two[47:]) == (1, 8, offset)
    directory = offset + len(second) + small
    record = struct.unpack("<4sQHHIIQQQQ", end[:56])
    assert record[6:] == (2, 2, len(one) + len(two), directory)
    assert struct.unpack("<4sIQI", end[56:76])[2] == directory + len(one) + len(two)
    assert end[76:] == struct.pack(
        "<4sHHHHIIH", b"PK\5\6", 0, 0, 2, 2, len(one) + len(two), 2**32 - 1, 0
    )


def test_numbers_just_below_need_none() -> None:
    header, entry, end = without_payloads(huge(b"a", 2**32 - 1 - 31 - 1))
    assert (len(header), len(entry), len(end)) == (31, 47, 22)


def test_more_members_than_an_end_record_can_count() -> None:
    content = bytes(100)
    member = NewMember(b"", crc32(content), 100, 100, lambda: (content,))
    data = b"".join(zip_write.build([member] * 65_535))
    assert len(zip_read.read(memoryview(data)).members) == 65_535
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert len(archive.infolist()) == 65_535
    fewer = b"".join(zip_write.build([member] * 65_534))
    assert len(fewer) == 65_534 * 176 + 22


def arrays_of(data: bytes) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    return [
        (tensor.name, tensor.dtype, tensor.shape, bytes(tensor.data))
        for tensor in describe(memoryview(data)).tensors
    ]


def repacked(data: bytes, compression: str = "none", options: ReadOptions = OPTIONS) -> bytes:
    return b"".join(repack(npz.read(memoryview(data)), compression, options))


@pytest.mark.parametrize("path", golden_of("npz"))
def test_repacking_keeps_every_member(path: str) -> None:
    data = fixture(path)
    stored = repacked(data)
    assert arrays_of(stored) == arrays_of(data)
    assert repacked(stored) == stored
    before, after = (zipfile.ZipFile(io.BytesIO(raw)) for raw in (data, stored))
    assert after.testzip() is None
    for old, new in zip(before.infolist(), after.infolist(), strict=True):
        assert (new.filename, new.date_time, new.CRC, new.comment, new.external_attr) == (
            *(old.filename, old.date_time, old.CRC, old.comment, old.external_attr),
        )
        is_array = old.filename.endswith(".npy")
        assert new.compress_type == (zipfile.ZIP_STORED if is_array else old.compress_type)
        assert after.read(new) == before.read(old)


def test_repacking_leaves_other_members_deflated() -> None:
    text = b"hello " * 50
    data = zipped([Entry(b"a.txt", text, 8), Entry(b"a.npy", npy(np.zeros(9)), 8, flags=8)])
    with zipfile.ZipFile(io.BytesIO(repacked(data))) as archive:
        assert [info.compress_type for info in archive.infolist()] == [8, 0]
        assert [info.flag_bits for info in archive.infolist()] == [0, 0]
        assert archive.read("a.txt") == text
    members = zip_read.read(memoryview(repacked(data))).members
    assert members[1].crc32 == zlib.crc32(npy(np.zeros(9)))


def refused(data: bytes, field: str, compression: str = "none", **limits: Any) -> FormatError:
    with pytest.raises(FormatError) as caught:
        repack(npz.read(memoryview(data)), compression, ReadOptions(**limits))
    assert caught.value.field == field
    return caught.value


def test_what_can_not_be_repacked_is_refused_at_once() -> None:
    raw = npy(np.zeros(9))
    good = zipped([Entry(b"a.npy", raw, 8)])
    assert "zstd" in str(refused(good, "method", "zstd"))
    assert refused(good, "payload", max_chunk=len(raw) - 1).kind == "limit"
    assert "crc32" in str(refused(zipped([Entry(b"a.npy", raw, 8, crc32=1)]), "crc32"))
    assert "not valid deflate" in str(
        refused(zipped([Entry(b"a.npy", raw, 8, payload=b"\xff")]), "payload")
    )
    shared = zipped([Entry(b"a.npy", raw), Entry(b"b.npy", offset=0, length=9)])
    refused(shared, "payload")
    refused(zipped([Entry(b"a.npy", raw, length=len(raw) + 9, size=len(raw) + 9)]), "payload")
    refused(zipped([Entry(b"a.npy", raw, 8), Entry(b"b", raw, flags=1)]), "flags")
