"""Inputs that claim or hold very much of one thing: `n` of it."""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.containers import gguf_files, samples, torch_files, zip_files
from tests.data import delta_named, ledger_cases
from tests.fuzz.test_memory import HEAD, LINE, arr, ch, idx
from wtxtgit.model.array import Array, Extent, Layout, Meta
from wtxtgit.text.layout import schema_of, with_layout
from wtxtgit.text.write import dumps

DELTA_HEAD = b"".join(delta_named("unchanged").delta.splitlines(keepends=True)[:4])
ONE_BYTE = b"AA" + b"=" * 74 + b" 0\n"


def tiny_arrays(n: int) -> bytes:
    body = idx(b"65536", b"1") + ch(b"1", b"1") + ONE_BYTE + b"endch\nendarr\n"
    first = arr(b"1", b"1") + body
    return HEAD + b"".join(first.replace(b"=W", b"=w%07d" % k, 1) for k in range(n)) + b"endwtxt\n"


def tiny_chunks(n: int) -> bytes:
    place = b"ix=000000 off=000000000000"
    one = ch(b"1", b"1") + ONE_BYTE + b"endch\n"
    chunks = (one.replace(place, b"ix=%06d off=%012d" % (k, k)) for k in range(n))
    size = b"%d" % n
    return HEAD + arr(size, size) + idx(b"1", b"1") + b"".join(chunks) + b"endarr\nendwtxt\n"


def endless_chunk(n: int) -> bytes:
    size = b"9" * 13
    return HEAD + arr(size, size) + idx(size, b"1") + ch(size, b"1" * 12) + LINE * n


Rows = dict[str, tuple[Callable[[int], bytes], int]]


def dimensions(n: int, each: bytes = b"1") -> bytes:
    return HEAD + arr(b",".join([each] * n) + b",0", b"0")


def extents(n: int, extent: Extent) -> bytes:
    """A text whose layout has so many extents without an array."""
    size = len(extent.hex or b"") + (extent.zeros or 0)
    layout = Layout("opaque", 8 + n * size, (Extent("data"), *[extent] * n))
    data = Array("data", "u8", (8,), memoryview(bytes(8)))
    return dumps(with_layout(layout, [data], Meta(schema=schema_of("opaque"))), threads=1)


def removed(n: int) -> bytes:
    return DELTA_HEAD + b"".join(b"del name=a%07d\n" % k for k in range(n))


# Of each how it is made, and how many for a start.
TEXTS: Rows = {
    "tiny arrays": (tiny_arrays, 1_500),
    "tiny chunks": (tiny_chunks, 3_000),
    "lines of a chunk without an end": (endless_chunk, 20_000),
    "bytes of one line": (lambda n: HEAD + b"arr name=" + b"W" * n, 2_000_000),
    "empty lines": (lambda n: HEAD + b"\n" * n, 1_000_000),
    "blanks of a header": (lambda n: b"WTXT 1\nmeta " + b" " * n, 2_000_000),
    "dimensions": (dimensions, 60_000),
    "items of an audit line": (lambda n: HEAD + b"audit " + b'a="" ' * n + b"\n", 200_000),
    "starts of chunks": (lambda n: HEAD + b"ch ix=\n" * n, 100_000),
}
DELTAS: Rows = {
    "removed arrays": (removed, 20_000),
    "bytes of one line": (lambda n: DELTA_HEAD + b"arr name=" + b"W" * n, 2_000_000),
}
# As many as a text may have that is no longer: twice as many are refused.
MOST_IN_TEXTS: Rows = {
    "dimensions": (dimensions, 400_000),
    "large dimensions": (lambda n: dimensions(n, b"300"), 400_000),
    "runs of zeros": (lambda n: extents(n, Extent(zeros=1)), 250_000),
}
MOST_IN_DELTAS: Rows = {"removed arrays": (removed, 250_000)}


def ledger(n: int) -> bytes:
    """A ledger that has its records many times over."""
    held = max((case.text for case in ledger_cases() if case.valid), key=len)
    head, _, rest = held.partition(b"\n")
    return head + b"\n" + rest * (n // (rest.count(b"\nWSUM") or 1))


def _tensors(n: int) -> bytes:
    item = b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    return samples.safetensors(b"{" + b",".join(item % k for k in range(n)) + b"}")


def _gapped(n: int) -> bytes:
    """Tensors of a byte, and behind each as many as become an array of the text."""
    item = b'"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    items = b",".join(item % (k, 66 * k, 66 * k + 1) for k in range(n))
    return samples.safetensors(b"{" + items + b"}", b"x" * (66 * n))


def _dimensions(n: int) -> bytes:
    dims = b",".join([b"300"] * n)
    item = b'{"a":{"dtype":"U8","shape":[0,' + dims + b'],"data_offsets":[0,0]}}'
    return samples.safetensors(item)


def _tags(n: int) -> bytes:
    tags = b",".join(b'"%06d":"ab"' % k for k in range(n))
    return samples.safetensors(b'{"__metadata__":{' + tags + b"}}")


def _tidx(n: int) -> bytes:
    listed = samples.tidx([samples.aero_entry(str(k), k, 1) for k in range(n)])
    return samples.aero([(b"TIDX", b"t", listed), (b"WTSH", b"weights.shard0", b"x" * n)])


def _maps(n: int) -> bytes:
    raw = b"\x81\xa7tensors\xdd" + struct.pack(">I", n) + b"\x80" * n
    return samples.aero([(b"TIDX", b"t", raw)])


def _mlcp(n: int) -> bytes:
    records = (samples.mlcp_record(b"%d" % k, "Int8", [1], 1) + b"x" for k in range(n))
    return samples.mlcp({"shards": [n]}, struct.pack("<i", n) + b"".join(records))


def _infos(n: int) -> bytes:
    infos = [gguf_files.info(f"w{k}", (1,), 32 * k, 24) for k in range(n)]
    return gguf_files.gguf([gguf_files.ARCHITECTURE], infos, data=b"x" * (32 * n))


def _entries(n: int) -> bytes:
    value = gguf_files.array(0, 64, bytes(64))
    return gguf_files.gguf([gguf_files.entry(f"k{k}", 9, value) for k in range(n)], [])


def _strings(n: int) -> bytes:
    value = gguf_files.array(8, n, bytes(8) * n)
    return gguf_files.gguf([gguf_files.ARCHITECTURE, gguf_files.entry("k", 9, value)])


def _members(n: int) -> bytes:
    one = zip_files.npy(1)
    return zip_files.zipped([zip_files.Entry(b"%d.npy" % k, one) for k in range(n)])


def _storages(n: int) -> bytes:
    pairs = ((torch_files.text(str(k)), torch_files.vector(str(k), 1)) for k in range(n))
    return torch_files.archive(torch_files.dict_of(*pairs), {str(k): bytes(4) for k in range(n)})


def _keys(n: int) -> bytes:
    pairs = b"".join(torch_files.text(f"{k:06d}") + b"N" for k in range(n))
    return torch_files.archive(b"}(" + pairs + b"u", {})


def _chunks(n: int) -> bytes:
    return samples.fold([samples.fold_chunk(b"BLOB", b"x")] * n)


def _pickled(items: bytes) -> bytes:
    return torch_files.archive(b"](" + items + b"e", {})


def _npy(n: int) -> bytes:
    header = "{'descr': '<f4', 'fortran_order': True, 'shape': (%s), }" % ("0," * n)
    return zip_files.npy_text(header, version=(2, 0))


# As many as a file may list that is no larger, within some percent: twice as many are refused.
FILES: Rows = {
    "tensors of a safetensors header": (_tensors, 15_000),
    "tensors of a byte and gaps": (_gapped, 11_000),
    "tags of a safetensors header": (_tags, 92_000),
    "lists of a safetensors header": (
        lambda n: samples.safetensors(b'{"a":[' + b"[]," * n + b"0]}"),
        93_000,
    ),
    "characters of a tag": (
        lambda n: samples.safetensors(
            b'{"__metadata__":{"a":"' + b"a" * n + "\U0001f600".encode() + b'"}}'
        ),
        5_200_000,
    ),
    "dimensions of a tensor": (_dimensions, 320_000),
    "members of an npz": (_members, 11_000),
    "tensors of a GGUF": (_infos, 18_000),
    "keys of a GGUF": (_entries, 26_000),
    "texts of a GGUF": (_strings, 400_000),
    "chunks of a FOLD": (_chunks, 19_500),
    "chunks of an AERO": (lambda n: samples.aero([(b"ABCD", b"n", b"x")] * n), 22_000),
    "tensors of a TIDX": (_tidx, 9_000),
    "maps of a TIDX": (_maps, 90_000),
    "tensors of an MLCP": (_mlcp, 17_000),
    "rows of a TARIDX": (lambda n: samples.taridx(b"", b"", bytes(32) * n), 300_000),
    "tensors of a torch file": (_storages, 4_200),
    "objects of a pickle": (lambda n: _pickled(b"N" * n), 650_000),
    "tuples of a pickle": (lambda n: _pickled(b"N\x85" * n), 108_000),
    "calls of a pickle": (lambda n: _pickled(b"ca\nb\n)R" * n), 26_000),
    "keys of a pickle": (_keys, 66_000),
    "dimensions of an npy": (_npy, 340_000),
}
UNBOUNDED = frozenset({"texts of a GGUF", "rows of a TARIDX"})
"""What costs no more than its bytes."""
