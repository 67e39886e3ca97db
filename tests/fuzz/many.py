"""Inputs that claim or hold very much of one thing: `n` of it."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.containers import gguf_files, samples, torch_files, zip_files
from tests.data import delta_named, ledger_cases
from tests.fuzz.test_memory import HEAD, LINE, arr, ch, idx
from wtxtgit.containers.safetensors.numbered import make_index
from wtxtgit.model.array import Array, Extent, Layout, Meta, Snapshot
from wtxtgit.model.array import Rows as Blocking
from wtxtgit.text.grammar import CAP, DETACHED_FIRST_LINE
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


def tiny_changes(n: int) -> bytes:
    """A delta with so many arrays of a byte."""
    body = idx(b"65536", b"1") + ch(b"1", b"1") + ONE_BYTE + b"endch\nendarr\n"
    first = arr(b"1", b"1") + body
    changes = (first.replace(b"=W", b"=w%07d" % k, 1) for k in range(n))
    return DELTA_HEAD + b"".join(changes) + b"enddelta\n"


def tiny_changed_chunks(n: int) -> bytes:
    """A delta with so many chunks of a byte, of one array."""
    place = b"ix=000000 off=000000000000"
    one = ch(b"1", b"1") + ONE_BYTE + b"endch\n"
    chunks = (one.replace(place, b"ix=%06d off=%012d" % (k, k)) for k in range(n))
    size = b"%d" % n
    return DELTA_HEAD + arr(size, size) + b"".join(chunks) + b"endarr\nenddelta\n"


def detached_chunks(n: int) -> bytes:
    """A detached text with an array in so many chunks of a byte, none of which is at hand."""
    place = b"ix=000000 off=000000000000"
    one = ch(b"1", b"1")
    chunks = (one.replace(place, b"ix=%06d off=%012d" % (k, k)) for k in range(n))
    size = b"%d" % n
    head = DETACHED_FIRST_LINE + HEAD.partition(b"\n")[2]
    return head + arr(size, size) + idx(b"1", b"1") + b"".join(chunks) + b"endarr\nendwtxt\n"


def detached_arrays(n: int) -> bytes:
    """A detached text with so many arrays of a chunk of 5,000 bytes."""
    first = arr(b"5000", b"5000") + idx(b"65536", b"1") + ch(b"5000", b"88") + b"endarr\n"
    head = DETACHED_FIRST_LINE + HEAD.partition(b"\n")[2]
    arrays = (first.replace(b"=W", b"=w%07d" % k, 1) for k in range(n))
    return head + b"".join(arrays) + b"endwtxt\n"


def whole_arrays(n: int) -> bytes:
    """So many arrays of a byte, with nothing wrong in them."""
    arrays = (
        Array(f"a{k:07d}", "u8", (1,), memoryview(b"x"), Blocking(65_536, 1)) for k in range(n)
    )
    return dumps(Snapshot(Meta(), tuple(arrays), CAP), threads=1)


def whole_chunks(n: int) -> bytes:
    """An array in so many chunks of a byte, with nothing wrong in it."""
    array = Array("W", "u8", (n,), memoryview(bytes(n)), Blocking(1, 1))
    return dumps(Snapshot(Meta(), (array,), CAP), threads=1)


def lost_chunks(n: int) -> bytes:
    """Arrays of a thousand chunks each, none of which is there."""
    return HEAD + b"".join(
        arr(b"1000", b"1000").replace(b"=W", b"=w%07d" % k, 1) + idx(b"1", b"1") + b"endarr\n"
        for k in range(n)
    )


def chunks_of_one_number(n: int) -> bytes:
    return tiny_chunks(n).replace(b"bytes=%d" % n, b"bytes=1").replace(b"shape=%d" % n, b"shape=1")


def backward_chunks(n: int) -> bytes:
    """The chunks of an array, the last one first."""
    head, *chunks, last = re.split(rb"(?=ch ix=|endarr)", tiny_chunks(n))
    return head + b"".join(chunks[::-1]) + last


def doubtful_arrays(n: int) -> bytes:
    """Whole arrays, of whose lines each has a wrong character, and a root that nothing proves."""
    text = whole_arrays(n).replace(b" dtype=u8", b" dtype=x8")
    return re.sub(rb"(sha256_all|merkle_this)=[0-9a-f]{64}", rb"\1=" + b"7" * 64, text)


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
    "chunks that are not there": (lost_chunks, 1_500),
    "starts of chunks": (lambda n: HEAD + b"ch ix=\n" * n, 100_000),
    "detached chunks": (detached_chunks, 6_000),
    "detached arrays": (detached_arrays, 2_000),
}
# What a writer makes, and how many for a start.
WHOLE: Rows = {"chunks": (whole_chunks, 4_000), "arrays": (whole_arrays, 7_500)}
# What is read of a damaged text alone, and how many for a start.
DAMAGED: Rows = {
    "starts of arrays": (lambda n: HEAD + b"arr name=\n" * n, 6_000),
    "starts of rows": (lambda n: HEAD + b"idx rows_per_chunk=\n" * n, 6_000),
    "short lines": (lambda n: HEAD + b"endch\nx\n\n\n\n\n" * n, 6_000),
    "lines of data": (lambda n: HEAD + LINE * n, 6_000),
    "chunks of one number": (chunks_of_one_number, 1_500),
    "chunks in backward order": (backward_chunks, 1_500),
    "arrays whose lines are in doubt": (doubtful_arrays, 600),
}
DELTAS: Rows = {
    "removed arrays": (removed, 20_000),
    "tiny arrays": (tiny_changes, 1_500),
    "tiny chunks": (tiny_changed_chunks, 3_000),
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


def _shard(k: int, n: int) -> bytes:
    item = b'"%d.%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    return samples.safetensors(b"{" + b",".join(item % (k, place) for place in range(n)) + b"}")


def _part(k: int, n: int) -> bytes:
    """The index of a set, or a part of it."""
    entries = [samples.aero_entry(f"{shard + 1}.0", 0, 1, shard_id=shard) for shard in range(7)]
    if k:
        entries = [samples.aero_entry(f"{k}.{place}", place, 1) for place in range(n)]
    listed = samples.tidx(entries)
    return samples.aero([(b"TIDX", b"t", listed), (b"WTSH", b"weights.shard0", b"x" * n)])


def _numbered(paths: Sequence[str], files: int, n: int) -> bytes:
    index = make_index(paths)
    assert index is not None
    return bytes(index)


def _sharded(paths: Sequence[str], files: int, n: int) -> bytes:
    weights = {f"{k}.{place}": paths[k] for k in range(files) for place in range(n)}
    return json.dumps({"weight_map": weights}).encode()


def _aeroset(paths: Sequence[str], files: int, n: int) -> bytes:
    parts = [{"path": path, "shards": [k]} for k, path in enumerate(paths[1:])]
    about = {"name": "AEROSET", "version": [0, 2]}
    value = {"format": about, "global_tidx": {"path": paths[0]}, "parts": parts}
    return json.dumps(value).encode()


@dataclass(frozen=True)
class SetRow:
    """A set of `files` files that each list as much as one file may; `tensors` in each."""

    index: Callable[[Sequence[str], int, int], bytes]
    file: Callable[[int, int], bytes]
    path: str
    files: int
    tensors: int


SETS = {
    "shards of an index": SetRow(_sharded, _shard, "{0}.safetensors", 6, 14_000),
    "numbered shards": SetRow(_numbered, _shard, "m-{1:05d}-of-{2:05d}.safetensors", 12, 11_000),
    "parts of an AEROSET": SetRow(_aeroset, _part, "{0}.aero", 8, 8_000),
}
UNBOUNDED = frozenset({"texts of a GGUF", "rows of a TARIDX"})
"""What costs no more than its bytes."""
