"""Bombs and false counts in containers: no more memory than the file and the limits allow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from itertools import chain, islice

import msgpack
import pytest

from tests.containers import gguf_files, samples, torch_files, zip_files
from tests.containers.zip_files import Entry
from tests.data import fixture
from tests.fuzz.container_oracle import MIB, OPTIONS, Members, Oracle, peak_of
from tests.fuzz.seeds import sets
from wtxtgit.checkpoint.convert import sources_of
from wtxtgit.containers import any_format
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError, InputError
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.statistics import statistics

pytestmark = pytest.mark.slow

BASE = 2 * MIB
FACTOR = 40
"""Memory for a file without anything compressed: BASE, and FACTOR times its size."""
FACTOR_OF_MSGPACK = 100
"""The same where all is MessagePack, whose empty map is one byte in a file."""
DECODED = 8 * MIB
"""The same for what decodes to over OPTIONS.max_chunk: some blocks of 2 MiB at most."""

COUNTS = (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TIDX = b"weights.shard0"


def hold(
    data: bytes, members: Members | None = None, *, extra: int = 0, factor: int = FACTOR
) -> None:
    """Read a file in every way within its bounds; what is loaded on the way does not count."""
    Oracle().hold(data, members)
    size = len(data) + sum(map(len, (members or {}).values()))
    peak = peak_of(lambda: Oracle().hold(data, members))
    assert peak < BASE + factor * size + extra


def zstd_zeros(blocks: int, block: int = 2**17) -> bytes:
    """A zstd frame of so many blocks of zeros, which says nothing of its size: 4 bytes each."""
    window = b"\x00\x38"  # 128 KiB
    runs = [(block << 3 | 1 << 1 | (n == blocks - 1)).to_bytes(3, "little") for n in range(blocks)]
    return b"\x28\xb5\x2f\xfd" + window + b"".join(run + b"\0" for run in runs)


@cache
def deflate_bomb() -> bytes:
    """A deflate stream of 64 MiB of zeros."""
    return zip_files.deflate(bytes(64 * MIB))


ZSTD_BOMB = zstd_zeros(4096)
"""512 MiB in 16 KiB."""


def zstd_chunk(ctype: bytes, frame: bytes, uncomp_len: int) -> bytes:
    return struct.pack(">4sIQQII", ctype, 1, uncomp_len, len(frame), 0, 0) + frame


@pytest.mark.parametrize("ctype", [b"STEN", b"NPZ0", b"TSAV", b"TORC", b"JSON", b"BLOB"])
@pytest.mark.parametrize("uncomp_len", [0, 1, MIB, MIB + 1, 2**29, 2**63])
def test_a_zstd_bomb_in_a_fold_chunk_is_not_inflated(ctype: bytes, uncomp_len: int) -> None:
    hold(samples.fold([zstd_chunk(ctype, ZSTD_BOMB, uncomp_len)]), extra=DECODED)


@pytest.mark.parametrize("ctype", [b"STEN", b"JSON"])
def test_a_large_fold_chunk_is_checked_in_pieces(ctype: bytes) -> None:
    frame = zstd_zeros(512)
    data = memoryview(samples.fold([zstd_chunk(ctype, frame, 2**26)]))
    any_format.check(data)
    assert peak_of(lambda: any_format.check(data)) < 16 * MIB


@pytest.mark.parametrize("fourcc", [b"MJSN", b"MMSG", b"PHSH", b"WTSH", b"ABCD"])
@pytest.mark.parametrize("ulen", [0, 1, MIB, MIB + 1, 2**29, 2**63])
def test_a_zstd_bomb_in_an_aero_chunk_is_not_inflated(fourcc: bytes, ulen: int) -> None:
    tidx = samples.tidx([samples.aero_entry("a", 0, 4)])
    data = samples.aero([(fourcc, TIDX, ZSTD_BOMB, 1), (b"TIDX", b"t", tidx)])
    at = 96 + 16 + 24
    hold(data[:at] + struct.pack("<Q", ulen) + data[at + 8 :], extra=DECODED)


def test_a_zstd_bomb_as_the_index_of_an_aero_file_ends_at_the_limit_of_an_index() -> None:
    data = memoryview(samples.aero([(b"TIDX", b"t", ZSTD_BOMB, 1)]))
    with pytest.raises(FormatError, match="is over"):
        any_format.describe(data)
    assert peak_of(lambda: any_format.split(data)) < 1.5 * MAX_JSON


NPZ_SIZES = [0, 1, MIB, MIB + 1, 64 * MIB, 2**32 - 1]


@pytest.mark.parametrize("size", NPZ_SIZES)
@pytest.mark.parametrize("name", [b"a.npy", b"a.txt"])
def test_a_deflate_bomb_in_an_npz_file_is_not_inflated(name: bytes, size: int) -> None:
    bomb = Entry(name, method=8, payload=deflate_bomb(), size=size, crc32=1)
    hold(zip_files.zipped([bomb, Entry(b"b.npy", zip_files.npy(1))]), extra=DECODED)


@pytest.mark.parametrize("size", NPZ_SIZES)
@pytest.mark.parametrize("name", ["data/0", "byteorder", "version", ".storage_alignment"])
def test_a_deflate_bomb_in_a_torch_file_is_not_inflated(name: str, size: int) -> None:
    bomb = Entry(b"archive/" + name.encode(), method=8, payload=deflate_bomb(), size=size, crc32=1)
    pickle = torch_files.pickled(torch_files.vector("0", 64 * MIB // 4))
    hold(zip_files.zipped([Entry(b"archive/data.pkl", pickle), bomb]), extra=DECODED)


def test_a_deflate_bomb_as_the_pickle_of_a_torch_file_ends_at_its_own_size() -> None:
    bomb = Entry(b"archive/data.pkl", method=8, payload=deflate_bomb(), size=64 * MIB, crc32=1)
    hold(zip_files.zipped([bomb]), extra=3 * 64 * MIB)
    hold(zip_files.zipped([Entry(b"archive/data.pkl", bytes(99), 8, size=2**32 - 1)]))


JSON = {
    "deep lists": b"[" * 30_000,
    "deep lists that end": b'{"a":' + b"[" * 15_000 + b"]" * 15_000 + b"}",
    "deep objects": b'{"a":' * 9_000,
    "brackets in a string": b'{"a":"' + b"[" * 200_000 + b'"}',
    "empty lists": b'{"a":[' + b"[]," * 15_000 + b"0]}",
    "empty objects": b'{"a":[' + b"{}," * 15_000 + b"0]}",
    "many keys": b"{" + b",".join(b'"%d":0' % n for n in range(9_000)) + b"}",
    "one key many times": b"{" + b'"a":0,' * 9_000 + b'"a":1}',
    "a number of many digits": b'{"a":' + b"9" * 200_000 + b"}",
    "a fraction of many digits": b'{"a":0.' + b"9" * 200_000 + b"}",
    "an exponent": b'{"a":1e999999999}',
    "a string without an end": b'{"a":"' + b"x" * 200_000,
    "many escapes": b'{"a":"' + b"\\ud800" * 30_000 + b'"}',
    "many backslashes": b'{"a":"' + b"\\" * 200_001,
    "wide characters": b'{"a":"' + "\U0001f600".encode() * 30_000 + b'"}',
    "blanks": b"{" + b" " * 300_000 + b"}",
}
SETS = {
    "aeroset": b'{"format":{"name":"AEROSET","version":[0,1]},"parts":',
    "safetensors-index": b'{"weight_map":{"a":"a.safetensors"},"b":',
}


@pytest.mark.parametrize("name", JSON)
def test_a_json_bomb_is_refused_within_its_own_size(name: str) -> None:
    text = JSON[name]
    hold(samples.fold([samples.fold_chunk(b"JSON", text)], text))
    hold(samples.fold([samples.fold_chunk(b"JSON", text)]))
    hold(samples.fold([], b'{"chunks":[],"metadata":' + text + b"}"))
    hold(samples.fold([samples.fold_chunk(b"STEN", samples.safetensors(text))]))
    hold(samples.safetensors(text))
    hold(samples.mlcp(text))
    hold(samples.aero([(b"MJSN", b"m", text)]))
    for start in SETS.values():
        hold(start + text + b"}", {})


def shaped(count: int) -> dict[str, bytes]:
    """Files of a tensor with so many dimensions, all of them huge."""
    shape = [2**62] * count
    nested = samples.safetensors({"a": samples.tensor_item("F32", shape, 0, 4)}, b"abcd")
    record = b"\1\0\0\0" + samples.mlcp_record(b"a", "Float32", shape, 4)
    tidx = samples.tidx([samples.aero_entry("a", 0, 4, shape=shape)])
    literal = "(" + "4611686018427387904, " * count + "2)"
    header = "{'descr': '<f4', 'fortran_order': True, 'shape': %s, }"
    return {
        "safetensors": nested,
        "fold": samples.fold([samples.fold_chunk(b"STEN", nested)]),
        "mlcp": samples.mlcp({"shards": [1]}, record + b"abcd"),
        "aero": samples.aero([(b"TIDX", b"t", tidx), (b"WTSH", TIDX, b"abcd")]),
        "npy": zip_files.npy_text(header % literal, version=(2, 0)),
        "gguf": gguf_files.gguf(infos=[gguf_files.info("w", shape[:8], 0)], data=bytes(64)),
    }


@pytest.mark.parametrize("name", shaped(1))
def test_a_shape_of_many_huge_dimensions_makes_no_long_products(name: str) -> None:
    # 5,000 products, each of 62 bits more, would take 100 MB.
    data = shaped(5_000)[name]
    hold(data)
    try:
        listed = any_format.describe(memoryview(data), OPTIONS)
    except FormatError:
        return
    with pytest.raises(InputError, match="does not fit its shape"):
        sources_of("a", listed, OPTIONS, len(data))


def in_struct(data: bytes, at: int, width: str, values: tuple[int, ...] = COUNTS) -> list[bytes]:
    """The file with a field set to each value that it has room for."""
    size = struct.calcsize(width)
    fields = (struct.pack(width, value) for value in values if value < 256**size)
    return [data[:at] + field + data[at + size :] for field in fields]


def aero_files() -> list[bytes]:
    data = fixture("aero/single_a.aero")
    header = [in_struct(data, at, "<Q") for at in range(12, 44, 8)]
    counts = [in_struct(data, 96, "<I"), in_struct(data, 100, "<I")]
    entry = [in_struct(data, 112 + at, "<Q") for at in (8, 16, 24)]
    names = [in_struct(data, 112 + at, "<I") for at in (32, 36)]
    return list(chain(*header, *counts, *entry, *names))


def fold_files() -> list[bytes]:
    data = samples.fold([samples.fold_chunk(b"STEN", b"ab", ecc=b"xy")])
    lengths = [in_struct(data, 28 + at, ">Q") for at in (8, 16)]
    return list(
        chain(
            *lengths,
            in_struct(data, 28 + 28, ">I"),
            in_struct(data, 8, ">I"),
            in_struct(data, 12, ">Q"),
            in_struct(data, 20, ">Q"),
        )
    )


def mlcp_files() -> list[bytes]:
    start = len(samples.mlcp({"shards": [1]}))
    record = b"\1\0\0\0" + samples.mlcp_record(b"a", "Int8", [3], 3) + b"abc"
    data = samples.mlcp({"shards": [1]}, record)
    places = [start, start + 4, start + 4 + 4 + 1 + 5]
    found = [in_struct(data, at, "<I") for at in (*places, 4 + 6)]
    found += [in_struct(data, len(data) - 3 - 8, "<Q"), in_struct(data, len(data) - 3 - 16, "<Q")]
    lists = [samples.mlcp(b'{"shards":[' + b"0," * 20_000 + b"0]}", bytes(4 * 20_001))]
    return [*chain(*found), *lists]


def taridx_files() -> list[bytes]:
    data = fixture("taridx/collisions_a/train.taridx")
    wide = [in_struct(data, at, "<Q") for at in (16, 24, 40, 48)]
    return list(chain(*wide, in_struct(data, 32, "<I"), in_struct(data, 36, "<I")))


def zip_ends() -> list[bytes]:
    entries = [Entry(b"a.npy", zip_files.npy(1))]
    ends = [
        dict.fromkeys(("entries", "size", "offset"), value) | {"at": 0, "disks": 1}
        for value in COUNTS
    ]
    found = [zip_files.zipped(entries, before_end=zip_files.zip64_end(1, 2, 3, **e)) for e in ends]
    for value in COUNTS:
        # A record that is where its locator says, and claims so many members.
        body = zip_files.zipped(entries)
        at = len(body) - 22
        end = zip_files.zip64_end(value, at, 0, at=at)
        found.append(zip_files.zipped(entries, before_end=end, entries=2**16 - 1))
        wide = struct.pack("<HH3Q", 1, 24, value, value, value)
        for field in ("size", "length", "offset"):
            entry = Entry(b"a.npy", zip_files.npy(1), extra=wide, **{field: 2**32 - 1})
            found.append(zip_files.zipped([entry]))
            found.append(zip_files.zipped([Entry(b"a.npy", method=8, extra=wide, size=2**32 - 1)]))
    return found


def npy_files() -> list[bytes]:
    shapes = [f"({value},)" for value in COUNTS]
    shapes += [f"({value}, {value}, 0)" for value in COUNTS]
    shapes += [f"({'1, ' * 5_000})", f"({'0, ' * 5_000})"]
    items = [zip_files.npy_fields(shape=shape) for shape in shapes]
    items += [zip_files.npy_fields(f"'|S{value}'") for value in COUNTS]
    items += [zip_files.npy_fields(f"[('a', '<f4', ({value}, {value}))]") for value in COUNTS]
    items += [zip_files.npy_fields("[" * depth + "]" * depth) for depth in (33, 5_000)]
    data = zip_files.npy_text("{}", version=(2, 0))
    return [*items, *in_struct(data, 8, "<I")]


def pickles() -> list[bytes]:
    codes = [code + struct.pack("<I", size) for code in (b"X", b"B", b"T") for size in COUNTS[:3]]
    codes += [
        code + struct.pack("<Q", size)
        for code in (b"\x8d", b"\x8e", b"\x96", b"\x95")
        for size in COUNTS
    ]
    codes += [b"\x8b" + struct.pack("<i", size) for size in (-1, 2**20, 2**31 - 1)]
    codes += [b"Nr" + struct.pack("<I", size) for size in COUNTS[:3]]
    codes += [b"(" * 2_000, b"]" * 2_000, b")" + b"\x85" * 2_000, b"N" + b"2" * 2_000]
    codes += [b"]" + b"\x94h\0a" * 2_000, b"}" + b"NNs" * 2_000]
    # Lists of two that each hold the one before twice: 2**200 paths.
    doubled = b"]q\0" + b"".join(b"](h%ch%ceq%c" % (n, n, n + 1) for n in range(200))
    return [*codes, doubled]


def torch_files_of() -> list[bytes]:
    made = [torch_files.archive(code) for code in pickles()]
    made += [torch_files.legacy(code, {}) for code in pickles()[::4]]
    for value in (2**31, 2**62, 2**63, 2**64, 2**200):
        made.append(torch_files.archive(torch_files.vector("0", value), {"0": bytes(16)}))
        made.append(torch_files.archive(torch_files.tensor("0", 4, [value], [0]), {"0": bytes(16)}))
        made.append(torch_files.archive(torch_files.tensor("0", 4, [1], [value]), {"0": bytes(16)}))
        made.append(
            torch_files.archive(
                torch_files.tensor("0", 4, [1] * 60 + [value], [value] * 60 + [0]), {"0": bytes(16)}
            )
        )
        if value < 2**64:
            made.append(torch_files.legacy(torch_files.vector("0", 4), {"0": (value, bytes(16))}))
    return made


def gguf_files_of() -> list[bytes]:
    one = [gguf_files.ARCHITECTURE]
    made = [gguf_files.head(one, kv_count=count) + bytes(64) for count in COUNTS]
    made += [gguf_files.head(one, tensor_count=count) + bytes(64) for count in COUNTS]
    for count in COUNTS:
        for item in range(13):
            value = gguf_files.array(item, count, bytes(64))
            made.append(gguf_files.gguf([gguf_files.entry("k", 9, value)]))
        made.append(gguf_files.gguf([gguf_files.entry("k", 8, struct.pack("<Q", count))]))
        made.append(gguf_files.gguf(infos=[gguf_files.info("w", (count,), 0)], data=bytes(64)))
        made.append(gguf_files.gguf(infos=[gguf_files.info("w", (4,), count)], data=bytes(64)))
    return made


MSGPACK = [
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"),
    *(b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\1", b"\xdc\xff\xff", b"\xde\xff\xff"),
    *(b"\x91" * 20_000, b"\xdd\0\1\0\0" * 4_000, b"\x81\xa1a" * 9_000),
    msgpack.packb({"tensors": [[]] * 9_000, "chunks": [{}] * 9_000, "shards": [{}] * 9_000}),
    msgpack.packb({"shard_name": "weights.shard0", "page_size": 1, "digests": [b""] * 9_000}),
    msgpack.packb({"shard_name": "weights.shard0", "page_size": 2**63, "digests": [bytes(32)]}),
]


def msgpacks() -> list[bytes]:
    return [
        samples.aero([(fourcc, b"m", raw), (b"WTSH", TIDX, b"abcd")])
        for fourcc in (b"TIDX", b"MMSG", b"PHSH")
        for raw in MSGPACK
    ]


CLAIMS: dict[str, Callable[[], list[bytes]]] = {
    "aero": aero_files,
    "aero's msgpack": msgpacks,
    "fold": fold_files,
    "gguf": gguf_files_of,
    "mlcp": mlcp_files,
    "npy": npy_files,
    "safetensors": lambda: in_struct(fixture("plain/numpy_a.safetensors"), 0, "<Q"),
    "taridx": taridx_files,
    "torch": torch_files_of,
    "zip": zip_ends,
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_false_count_allocates_nothing(name: str) -> None:
    made = CLAIMS[name]()
    assert len(made) > 5
    for data in made:
        hold(data, factor=FACTOR_OF_MSGPACK if name == "aero's msgpack" else FACTOR)


def test_false_sizes_in_a_set_allocate_nothing() -> None:
    for name, field in (("aeroset", b'"size_bytes"'), ("safetensors-index", b'"total_size"')):
        told = [(index, members) for index, members in sets()[name] if field in index]
        assert told
        for index, members in told:
            at = index.index(field) + len(field)
            end = min(index.find(mark, at) for mark in (b",", b"}") if index.find(mark, at) >= 0)
            for count in COUNTS:
                hold(index[:at] + b":%d" % count + index[end:], members)


def test_a_view_that_repeats_its_items_is_given_block_by_block() -> None:
    view = torch_files.tensor("0", 4, [16 * MIB, 4], [0, 1])
    data = memoryview(torch_files.archive(view, {"0": bytes(16)}))
    (limited,) = any_format.describe(data, OPTIONS).tensors
    assert limited.absent is not None
    (tensor,) = any_format.describe(data).tensors

    def first() -> int:
        return sum(len(block) for block in islice(tensor_bytes.blocks(tensor, MIB), 20))

    assert first() == 20 * MIB
    assert peak_of(first) < 4 * MIB


def test_the_statistics_of_an_impossible_shape_are_none() -> None:
    for name in ("safetensors", "mlcp", "aero"):
        (tensor,) = any_format.describe(memoryview(shaped(100)[name])).tensors
        assert statistics(tensor) is None
