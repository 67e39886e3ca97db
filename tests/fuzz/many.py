"""Inputs that claim or hold very much of one thing: `n` of it."""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.containers import gguf_files, samples, torch_files, zip_files
from tests.data import delta_named, ledger_cases
from tests.fuzz.test_memory import HEAD, LINE, arr, ch, idx

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


# Of each how it is made, how many for a start, and the bytes of memory that one of them costs.
TEXTS: dict[str, tuple[Callable[[int], bytes], int, int]] = {
    "tiny arrays": (tiny_arrays, 1_500, 0),
    "tiny chunks": (tiny_chunks, 3_000, 0),
    "lines of a chunk without an end": (endless_chunk, 20_000, 0),
    "bytes of one line": (lambda n: HEAD + b"arr name=" + b"W" * n, 2_000_000, 0),
    "empty lines": (lambda n: HEAD + b"\n" * n, 1_000_000, 0),
    "blanks of a header": (lambda n: b"WTXT 1\nmeta " + b" " * n, 2_000_000, 0),
    "dimensions": (lambda n: HEAD + arr(b",".join([b"1"] * n) + b",8", b"8"), 150_000, 60),
    "items of an audit line": (lambda n: HEAD + b"audit " + b'a="" ' * n + b"\n", 200_000, 0),
    "starts of chunks": (lambda n: HEAD + b"ch ix=\n" * n, 100_000, 0),
}
DELTAS: dict[str, tuple[Callable[[int], bytes], int, int]] = {
    "removed arrays": (
        lambda n: DELTA_HEAD + b"".join(b"del name=a%07d\n" % k for k in range(n)),
        20_000,
        250,
    ),
    "bytes of one line": (lambda n: DELTA_HEAD + b"arr name=" + b"W" * n, 2_000_000, 0),
}


def ledger(n: int) -> bytes:
    """A ledger that has its records many times over."""
    held = max((case.text for case in ledger_cases() if case.valid), key=len)
    head, _, rest = held.partition(b"\n")
    return head + b"\n" + rest * (n // (rest.count(b"\nWSUM") or 1))


def _tensors(n: int) -> bytes:
    item = b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    return samples.safetensors(b"{" + b",".join(item % k for k in range(n)) + b"}")


def _tags(n: int) -> bytes:
    tags = b",".join(b'"%d":""' % k for k in range(n))
    return samples.safetensors(b'{"__metadata__":{' + tags + b"}}")


def _tidx(n: int) -> bytes:
    listed = samples.tidx([samples.aero_entry(str(k), 0, 0) for k in range(n)])
    return samples.aero([(b"TIDX", b"t", listed), (b"WTSH", b"weights.shard0", b"")])


def _maps(n: int) -> bytes:
    raw = b"\x81\xa7tensors\xdd" + struct.pack(">I", n) + b"\x80" * n
    return samples.aero([(b"TIDX", b"t", raw)])


def _mlcp(n: int) -> bytes:
    records = (samples.mlcp_record(b"%d" % k, "Int8", [0], 0) for k in range(n))
    return samples.mlcp({"shards": [n]}, struct.pack("<i", n) + b"".join(records))


def _infos(n: int) -> bytes:
    infos = [gguf_files.info(f"w{k}", (0,), 0) for k in range(n)]
    return gguf_files.gguf([gguf_files.ARCHITECTURE], infos)


def _strings(n: int) -> bytes:
    value = gguf_files.array(8, n, bytes(8) * n)
    return gguf_files.gguf([gguf_files.ARCHITECTURE, gguf_files.entry("k", 9, value)])


def _members(n: int) -> bytes:
    one = zip_files.npy(1)
    return zip_files.zipped([zip_files.Entry(b"%d.npy" % k, one) for k in range(n)])


def _views(n: int) -> bytes:
    pairs = ((torch_files.text(str(k)), torch_files.vector("0", 0)) for k in range(n))
    return torch_files.archive(torch_files.dict_of(*pairs), {"0": b""})


def _chunks(n: int) -> bytes:
    return samples.fold([samples.fold_chunk(b"BLOB", b"")] * n)


def _pickled(items: bytes) -> bytes:
    return torch_files.archive(b"](" + items + b"e", {})


def _npy(n: int) -> bytes:
    header = "{'descr': '<f4', 'fortran_order': True, 'shape': (%s), }" % ("0," * n)
    return zip_files.npy_text(header, version=(2, 0))


FILES: dict[str, tuple[Callable[[int], bytes], int, int]] = {
    "tensors of a safetensors header": (_tensors, 3_000, 1100),
    "tags of a safetensors header": (_tags, 12_000, 280),
    "lists of a safetensors header": (
        lambda n: samples.safetensors(b'{"a":[' + b"[]," * n + b"0]}"),
        60_000,
        100,
    ),
    "members of an npz": (_members, 500, 4500),
    "tensors of a GGUF": (_infos, 3_000, 1000),
    "texts of a GGUF": (_strings, 40_000, 100),
    "chunks of a FOLD": (_chunks, 1_500, 1600),
    "chunks of an AERO": (lambda n: samples.aero([(b"ABCD", b"n", b"x")] * n), 1_500, 2600),
    "tensors of a TIDX": (_tidx, 1_500, 1600),
    "maps of a TIDX": (_maps, 60_000, 100),
    "tensors of an MLCP": (_mlcp, 3_000, 800),
    "rows of a TARIDX": (lambda n: samples.taridx(b"", b"", bytes(32) * n), 30_000, 280),
    "views of a torch file": (_views, 800, 1300),
    "objects of a pickle": (lambda n: _pickled(b"N" * n), 30_000, 30),
    "lists of a pickle": (lambda n: _pickled(b"]" * n), 10_000, 300),
    "dimensions of an npy": (_npy, 50_000, 30),
}
