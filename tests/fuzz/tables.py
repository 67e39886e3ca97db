"""Mutations of safetensors, MLCP, TARIDX and GGUF: their texts, tables and counts.

Lengths around what is changed are made right, so that a reader goes on to it.
"""

from __future__ import annotations

import random
import struct
from functools import lru_cache

from tests.containers import gguf_files
from tests.fuzz.mutations import text_mutant
from tests.fuzz.numbers import EXTREMES
from tests.fuzz.spelling import json_text
from wtxtgit.containers.mlcp.read import Mlcp
from wtxtgit.containers.mlcp.read import read as read_mlcp
from wtxtgit.containers.taridx.read import HEADER as TARIDX_HEADER
from wtxtgit.containers.taridx.read import ROW_LAYOUT


def safetensors(data: bytes, rng: random.Random) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header = json_text(data[8 : 8 + length], rng)
    said = len(header) if rng.random() < 0.9 else length
    return said.to_bytes(8, "little") + header + data[8 + length :]


@lru_cache(maxsize=512)
def _mlcp(data: bytes) -> Mlcp:
    return read_mlcp(memoryview(data))


def mlcp(data: bytes, rng: random.Random) -> bytes:
    mlcp = _mlcp(data)
    metadata = json_text(data[mlcp.metadata_start : mlcp.header_end], rng)
    before = data[: mlcp.metadata_start - 4]
    return before + len(metadata).to_bytes(4, "little") + metadata + data[mlcp.header_end :]


def taridx_header(data: bytes, rng: random.Random) -> bytes:
    values = list(TARIDX_HEADER.unpack_from(data))
    place = rng.randrange(1, len(values) - 1)
    width = (0, 2, 2, 2, 2, 8, 8, 4, 4, 8, 8, 1)[place]
    near = (values[place] + 1, max(values[place] - 1, 0), len(data))
    values[place] = rng.choice((*EXTREMES, *near, *near)) % 256**width
    return TARIDX_HEADER.pack(*values) + data[TARIDX_HEADER.size :]


def taridx_rows(data: bytes, rng: random.Random) -> bytes:
    """Fields of some rows changed."""
    start = int.from_bytes(data[48:56], "little")
    count = max(len(data) - start, 0) // ROW_LAYOUT.size
    made = bytearray(data)
    for _ in range(rng.choice((1, 2, 5)) if count else 0):
        at = start + ROW_LAYOUT.size * rng.randrange(count)
        values = list(ROW_LAYOUT.unpack_from(data, at))
        other = ROW_LAYOUT.unpack_from(data, start + ROW_LAYOUT.size * rng.randrange(count))
        place = rng.randrange(len(values))
        width = (2, 8, 8, 2, 4, 8)[place]
        values[place] = rng.choice((*EXTREMES, 512, 1024, *[other[place]] * 6)) % 256**width
        made[at : at + ROW_LAYOUT.size] = ROW_LAYOUT.pack(*values)
    return bytes(made)


def taridx_texts(data: bytes, rng: random.Random) -> bytes:
    """The lines of a table changed, and where the next parts stand made right."""
    values = list(TARIDX_HEADER.unpack_from(data))
    crash, rows = (min(max(offset, TARIDX_HEADER.size), len(data)) for offset in values[9:11])
    extensions, stems, rest = data[TARIDX_HEADER.size : crash], data[crash:rows], data[rows:]
    if rng.random() < 0.5:
        extensions = text_mutant(extensions + b"\n", rng)
    else:
        stems = text_mutant(stems + b"\n", rng)
    values[9] = TARIDX_HEADER.size + len(extensions)
    values[10] = values[9] + len(stems)
    if rng.random() < 0.6:
        values[7], values[8] = extensions.count(b"\n") + 1, stems.count(b"\n") + 1
    return TARIDX_HEADER.pack(*values) + extensions + stems + rest


def gguf_entry(data: bytes, rng: random.Random) -> bytes:
    """One more metadata entry before all others."""
    counts = struct.unpack_from("<IQQ", data, 4)
    number = rng.choice((0, 1, 2, 2**31, 2**40, 2**63, 2**64 - 1))
    deep = b"".join(struct.pack("<IQ", 9, 1) for _ in range(rng.choice((1, 60, 70, 500))))
    value_type, value = rng.choice(
        (
            (rng.randrange(14), rng.randbytes(8)),
            (8, struct.pack("<Q", number) + b"abc"),
            (9, gguf_files.array(rng.randrange(14), number, rng.randbytes(16))),
            (9, gguf_files.array(8, 2, gguf_files.string("ab") + gguf_files.string(b"\xff"))),
            (9, deep + struct.pack("<IQ", 7, 1) + b"\1"),
            (4, struct.pack("<I", rng.choice((0, 1, 3, 8, 64, 2**31)))),
        )
    )
    key = rng.choice(("general.alignment", "general.architecture", "k", "", "a\nb", b"\xff"))
    entry = gguf_files.entry(key, value_type, value)
    head = struct.pack("<IQQ", counts[0], counts[1], (counts[2] + 1) % 2**64)
    return data[:4] + head + entry + data[24:]


def gguf_info(data: bytes, rng: random.Random) -> bytes:
    """A file of one or two tensors that need not fit it."""
    infos = []
    for _ in range(rng.choice((1, 2))):
        shape = [
            rng.choice((0, 1, 2, 32, 256, 2**31, 2**62, 2**64 - 1))
            for _ in range(rng.choice((1, 2, 8, 9)))
        ]
        offset = rng.choice((0, 0, 32, 1, 2**31, 2**64 - 1))
        info = gguf_files.info(
            rng.choice("ab"), shape, offset, rng.choice((0, 2, rng.randrange(45)))
        )
        infos.append(info)
    alignment = gguf_files.alignment(rng.choice((1, 8, 32, 2**31)))
    entries = rng.choice(([gguf_files.ARCHITECTURE], [gguf_files.ARCHITECTURE, alignment], []))
    return gguf_files.gguf(entries, infos, data[-64:] * rng.choice((0, 1, 4)))
