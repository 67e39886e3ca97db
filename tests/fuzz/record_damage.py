"""Single damage to container files: a bit, a range, a record, an end.

Damage goes where it hides most: into the parts that lead to the others.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence

from wtxtgit.containers.intervals import Span

Damage = Callable[[bytes, random.Random], bytes]

FOLD_HEADER, CHUNK_HEADER = 28, 32
AERO_ENTRIES, AERO_ENTRY = 112, 80
ROW = 32


def structure(name: str, data: bytes) -> list[Span]:
    """Where a whole file has no content but what leads to content."""
    if name == "fold":
        *_, offset, length = struct.unpack_from(">8sIQQ", data)
        index = json.loads(data[offset : offset + length])
        chunks = [chunk["offset"] for chunk in index["chunks"]]
        headers = [(at, at + CHUNK_HEADER) for at in chunks]
        return [(0, FOLD_HEADER), *headers, (offset, offset + length)]
    if name == "aero":
        names, length = struct.unpack_from("<QQ", data, 28)
        return [(0, max(AERO_ENTRIES, names + length))]
    return [(0, len(data))]


def damaged(name: str, data: bytes, spans: Sequence[Span], rng: random.Random) -> bytes:
    """The file with one thing wrong."""
    return rng.choice(KINDS)(name, data, spans, rng)


def _place(spans: Sequence[Span], rng: random.Random) -> int:
    start, end = rng.choice([span for span in spans if span[0] < span[1]])
    return rng.randrange(start, end)


def _bit(_name: str, data: bytes, spans: Sequence[Span], rng: random.Random) -> bytes:
    at = _place(spans, rng)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _bit_anywhere(name: str, data: bytes, _spans: Sequence[Span], rng: random.Random) -> bytes:
    return _bit(name, data, [(0, len(data))], rng)


def _cut(_name: str, data: bytes, spans: Sequence[Span], rng: random.Random) -> bytes:
    at = rng.choice((len(data) - 1, _place(spans, rng), rng.randrange(len(data)), len(data) - ROW))
    return data[: max(at, 0)]


def _appended(_name: str, data: bytes, _spans: Sequence[Span], rng: random.Random) -> bytes:
    count = rng.choice((1, 4, 16, 32, 64))
    return data + rng.choice((bytes(count), rng.randbytes(count), data[:count], data[-count:]))


def _zeroed(_name: str, data: bytes, spans: Sequence[Span], rng: random.Random) -> bytes:
    at, count = _place(spans, rng), rng.choice((1, 2, 4, 8, 32, 80, 512))
    count = min(count, len(data) - at)
    return data[:at] + bytes(count) + data[at + count :]


def _swapped(name: str, data: bytes, spans: Sequence[Span], rng: random.Random) -> bytes:
    """Two records in each other's place."""
    return _moved(name, data, spans, rng, twice=False)


def _doubled(name: str, data: bytes, spans: Sequence[Span], rng: random.Random) -> bytes:
    """A record in the place of another one too, or listed twice."""
    return _moved(name, data, spans, rng, twice=True)


def _moved(
    name: str, data: bytes, spans: Sequence[Span], rng: random.Random, *, twice: bool
) -> bytes:
    if name == "fold" and rng.random() < 0.7:
        return _fold_entries(data, rng, twice=twice)
    one, other, count = _records(name, data, spans, rng)
    if min(one, other) < 0 or max(one, other) + count > len(data):
        return data[1:]
    held, there = data[one : one + count], data[other : other + count]
    made = bytearray(data)
    made[other : other + count] = held
    if not twice:
        made[one : one + count] = there
    return bytes(made)


def _records(
    name: str, data: bytes, spans: Sequence[Span], rng: random.Random
) -> tuple[int, int, int]:
    """Where two records stand, or fields of them, and how many bytes they have."""
    if name == "aero" and rng.random() < 0.7:
        count = struct.unpack_from("<I", data, 96)[0]
        if count:
            places = [AERO_ENTRIES + AERO_ENTRY * rng.randrange(count) for _ in range(2)]
            # All of an entry, its type, its place and lengths, its name.
            start, length = rng.choice(((0, AERO_ENTRY), (0, 4), (8, 24), (32, 8)))
            return places[0] + start, places[1] + start, length
    if name == "taridx" and rng.random() < 0.8:
        start = struct.unpack_from("<Q", data, 48)[0]
        count = (len(data) - start) // ROW
        if count:
            rows = [start + ROW * rng.randrange(count) for _ in range(2)]
            field, length = rng.choice(((0, ROW), (0, 2), (2, 8), (10, 8), (18, 2), (20, 4)))
            return rows[0] + field, rows[1] + field, length
    return _place(spans, rng), _place(spans, rng), rng.choice((1, 4, 8, 32))


def _fold_entries(data: bytes, rng: random.Random, *, twice: bool) -> bytes:
    *_, offset, length = struct.unpack_from(">8sIQQ", data)
    index = json.loads(data[offset : offset + length])
    chunks = index["chunks"]
    if not chunks:
        return data[1:]
    one, other = rng.randrange(len(chunks)), rng.randrange(len(chunks))
    key = rng.choice((None, None, "name", "offset", "sha256"))
    if key is None and twice:
        chunks.insert(other, chunks[one])
    elif key is None:
        chunks[one], chunks[other] = chunks[other], chunks[one]
    elif twice:
        chunks[other] = {**chunks[other], key: chunks[one][key]}
    else:
        first, second = chunks[one][key], chunks[other][key]
        chunks[one], chunks[other] = {**chunks[one], key: second}, {**chunks[other], key: first}
    text = json.dumps(index).encode()
    end = offset + length
    head = struct.pack(">8sIQQ", data[:8], FOLD_HEADER, offset, len(text))
    return head + data[FOLD_HEADER:offset] + text + data[end:]


KINDS = (*[_bit] * 4, _bit_anywhere, _cut, _appended, _zeroed, _zeroed, _swapped, _doubled)
