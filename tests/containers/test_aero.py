"""AERO: what TOC and tensor index must be, and what becomes of chunks."""

from __future__ import annotations

import struct

import msgpack
import pytest

from tests.containers import samples
from tests.containers.samples import aero_entry, tidx, words
from wtxtgit.containers.aero import describe as aero_describe
from wtxtgit.containers.any_format import describe, split
from wtxtgit.errors import FormatError

SHARD = bytes(range(1, 33))


def with_index(*entries: object, compress: bool = True) -> bytes:
    index = tidx(list(entries), compress=compress)
    return samples.aero(
        [
            (b"TIDX", b"tensors", index, int(compress)),
            (b"WTSH", b"weights.shard0", SHARD),
        ]
    )


@pytest.mark.parametrize("compress", [True, False])
def test_tensors_and_gaps_of_a_shard(compress: bool) -> None:
    data = with_index(
        aero_entry("b", 8, 8),
        aero_entry("a", 20, 4, dtype=3),
        aero_entry("", 28, 4, dtype=0x8000, shape=[7, 7]),
        aero_entry("n", 24, 4, dtype=77, shape=[]),
        compress=compress,
    )
    assert words(data) == [
        "_control",
        "_tidx",
        "hex:0102030405060708",
        "b",
        "hex:11121314",
        "a",
        "n",
        "t",
    ]
    result = split(memoryview(data))
    assert [(e.dtype, e.shape) for e in result.layout.extents[3:] if e.dtype] == [
        ("f32", (2,)),
        ("f64", (1,)),
        ("77", ()),
        ("packed", (7, 7)),
    ]
    assert [(a.dtype, a.shape) for a in result.arrays[2:]] == [
        ("f32", (2,)),
        ("u8", (4,)),
        ("u8", (4,)),
        ("u8", (4,)),
    ]
    listed = describe(memoryview(data))
    assert [t.name for t in listed.tensors] == ["b", "a", "", "n"]
    assert listed.tensors[0].offset == len(data) - 24
    assert listed.metadata["uuid"] == bytes(range(16)).hex()


def test_roles_of_chunks() -> None:
    data = samples.aero(
        [
            (b"MJSN", b"m", b"1"),
            (b"\xff\0ab", b"", b"2"),
            (b"ab-d", b"", b"3"),
            (b"X0Yz", b"", b"4"),
            (b"MJSN", b"m", b"5"),
            (b"WTSH", b"weights.shard0", b"6", 1),
            (b"WTSH", b"weights.shard1", b"7"),
            (b"NONE", b"", b""),
        ]
    )
    assert words(data) == [
        "_control",
        "_mjsn",
        "_chunk",
        "_chunk__2",
        "_x0yz",
        "_mjsn__2",
        "_wtsh",
        "hex:37",
    ]


def test_the_first_tidx_and_the_first_shard_of_a_name_count() -> None:
    data = samples.aero(
        [
            (b"WTSH", b"weights.shard0", b"\1\2\3\4"),
            (b"WTSH", b"weights.shard0", b"\5\6\7\x08"),
            (b"TIDX", b"", tidx([aero_entry("a", 0, 4)])),
            (b"TIDX", b"", b"\xc1"),
        ]
    )
    assert words(data) == ["_control", "a", "hex:05060708", "_tidx", "_tidx__2"]


def test_tensors_without_a_readable_shard_are_skipped_and_listed() -> None:
    # The first shard of the name counts, and what it holds is no zstd.
    entries = [
        aero_entry("a", 0, 10**9),
        aero_entry("b", 0, 4, shard_id=-7),
        aero_entry("c", 0, 4),
    ]
    data = samples.aero(
        [
            (b"TIDX", b"", tidx(entries)),
            (b"WTSH", b"weights.shard0", b"zzzz", 1),
            (b"WTSH", b"weights.shard0", b"\1\2\3\4"),
        ]
    )
    assert words(data) == ["_control", "_tidx", "_wtsh", "hex:01020304"]
    listed = describe(memoryview(data))
    assert [(t.name, t.nbytes, t.offset) for t in listed.tensors] == [
        ("a", 0, None),
        ("b", 0, None),
        ("c", 4, None),
    ]
    assert [t.absent for t in listed.tensors] == [
        "tensor of 1000000000 bytes at byte 0 reaches outside of 4 bytes",
        "its shard is in another file",
        None,
    ]
    with pytest.raises(FormatError, match="its shard can't be decoded: chunk is not a zstd frame"):
        assert listed.tensors[2].data


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1},
        {"name": b"a"},
        {"dtype": "f32"},
        {"dtype": True},
        {"shape": 4},
        {"shape": [1.0]},
        {"shape": [None]},
        {"shard_id": None},
        {"data_off": -1},
        {"data_off": 29},
        {"data_len": -1},
        {"data_len": 33},
        {"data_len": False},
        {"data_off": 2**64 - 1},
    ],
)
def test_index_entries_that_are_refused(change: dict[str, object]) -> None:
    assert words(with_index(aero_entry("a", 0, 4))) != ["data"]
    assert words(with_index(aero_entry("a", 0, 4, **change))) == ["data"]
    without = {k: v for k, v in aero_entry("a", 0, 4).items() if k not in change}
    assert words(with_index(without)) == ["data"]


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x80",
        msgpack.packb({"tensors": {}}),
        msgpack.packb({"tensors": [1]}),
        msgpack.packb({"tensors": []})[:-1],
        msgpack.packb({b"tensors": []}),
        b"\x81\xa7tensors" + b"\x91" * 70 + b"\xc0",
        b"\x81\xa7tensors\xdd\xff\xff\xff\xff",
    ],
)
def test_indexes_that_are_refused(index: bytes) -> None:
    assert words(samples.aero([(b"TIDX", b"", index)])) == ["data"]


def test_odd_indexes_that_are_read() -> None:
    packer = msgpack.Packer()
    entry = packer.pack(aero_entry("a", 0, 4) | {"extra": [1, None]})
    index = b"\x84\x01\x02\x91\x01\x03\xa7tensors\xc0\xa7tensors\x91" + entry + b"\xc1trailing"
    data = samples.aero([(b"TIDX", b"", index), (b"WTSH", b"weights.shard0", b"\1\2\3\4")])
    assert words(data) == ["_control", "_tidx", "a"]


def test_no_index_leaves_shards_as_gaps() -> None:
    data = samples.aero([(b"WTSH", b"weights.shard0", b"\1" * 100)])
    assert words(data) == ["_control", "_gap"]


def changed(data: bytes, offset: int, layout: str, value: int) -> bytes:
    raw = bytearray(data)
    struct.pack_into(layout, raw, offset, value)
    return bytes(raw)


ENTRY = 96 + 16


@pytest.mark.parametrize(
    ("offset", "layout", "value"),
    [
        (4, "<H", 1),
        (6, "<H", 2),
        (8, "<I", 95),
        (12, "<Q", 2**63),
        (20, "<Q", 2**63),
        (20, "<Q", 16 + 80 * 2 - 1),
        (20, "<Q", 15),
        (20, "<Q", 0),
        (28, "<Q", 2**63),
        (36, "<Q", 2**63),
        (96, "<I", 3),
        (96, "<I", 2**32 - 1),
        (ENTRY + 8, "<Q", 2**63),
        (ENTRY + 16, "<Q", 2**63),
        (ENTRY + 32, "<I", 2**31),
        (ENTRY + 36, "<I", 2**31),
    ],
)
def test_headers_that_are_refused(offset: int, layout: str, value: int) -> None:
    data = with_index(aero_entry("a", 0, 4))
    assert words(changed(data, offset, layout, value)) == ["data"]
    with pytest.raises(FormatError):
        describe(memoryview(changed(data, offset, layout, value)))


def test_ranges_of_length_0_point_nowhere() -> None:
    data = samples.aero([(b"MJSN", b"", b""), (b"WTSH", b"weights.shard0", b"")])
    far = changed(changed(data, ENTRY + 8, "<Q", 2**63), ENTRY + 32, "<I", 2**31)
    # The names of both chunks: the first is empty, so its place does not matter.
    assert words(far) == ["_control"]
    no_names = samples.aero([])[:-1]
    no_names = changed(changed(no_names, 36, "<Q", 0), 28, "<Q", 2**63)
    assert words(no_names) == ["_control"]


def test_names_that_are_too_long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(samples.aero([(b"MJSN", b"name", b"")]))
    monkeypatch.setattr(aero_describe, "MAX_NAMES", 4)
    assert describe(data).metadata["chunks"]
    monkeypatch.setattr(aero_describe, "MAX_NAMES", 3)
    with pytest.raises(FormatError, match="too long"):
        describe(data)
