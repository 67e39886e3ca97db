"""Mutations of FOLD and AERO files: their tables, and the files and texts in their chunks."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from hashlib import sha256

import zstandard
from blake3 import blake3
from crc32c import crc32c
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.fuzz.container_oracle import KEY
from tests.fuzz.mutations import bytes_mutant
from tests.fuzz.numbers import EXTREMES, Mutant, number_mutant
from tests.fuzz.spelling import json_text, msgpack_text
from tests.fuzz.tables import safetensors
from tests.fuzz.zips import NPY, NPZ, TORCH
from wtxtgit.containers import registry
from wtxtgit.containers.aero.read import TOC_ENTRY, Aero
from wtxtgit.containers.aero.read import read as read_aero
from wtxtgit.containers.fold.read import CHUNK_HEADER, HEADER, Fold
from wtxtgit.containers.fold.read import read as read_fold


@lru_cache(maxsize=512)
def _fold(data: bytes) -> Fold:
    return read_fold(memoryview(data))


@lru_cache(maxsize=512)
def _aero(data: bytes) -> Aero:
    return read_aero(memoryview(data))


def fold_index(data: bytes, rng: random.Random) -> bytes:
    fold = _fold(data)
    index = json_text(data[fold.index_start : fold.index_end], rng)
    head = HEADER.pack(data[:8], HEADER.size, fold.index_start, len(index))
    return head + data[HEADER.size : fold.index_start] + index


def fold_header(data: bytes, rng: random.Random) -> bytes:
    """A field of a chunk's own header changed."""
    fold = _fold(data)
    if not fold.chunks:
        return number_mutant(data, rng)
    at = rng.choice(fold.chunks).offset
    values = list(CHUNK_HEADER.unpack_from(data, at))
    place = rng.randrange(len(values))
    if place == 0:
        values[0] = rng.choice((b"STEN", b"JSON", b"NPZ0", b"TSAV", b"TORC", b"\0\0\0\0"))
    else:
        near = (values[place] + 1, max(values[place] - 1, 0), 2**20 + 1)
        widths = (0, 4, 8, 8, 4, 4)
        number = rng.choice((*EXTREMES, *near, *near, 0, 1, 2, 3))
        values[place] = number % 256 ** widths[place]
    return data[:at] + CHUNK_HEADER.pack(*values) + data[at + CHUNK_HEADER.size :]


def fold_payload(data: bytes, rng: random.Random) -> bytes:
    """The content of a chunk changed, and its lengths and hashes made right."""
    fold = _fold(data)
    entries = [dict(chunk.entry) for chunk in fold.chunks]
    chosen = rng.randrange(len(entries)) if entries else -1
    body = b""
    for number, (chunk, entry) in enumerate(zip(fold.chunks, entries, strict=True)):
        held, parity = data[chunk.payload_start : chunk.payload_end], chunk.end - chunk.ecc_len
        flags, length = chunk.flags, chunk.uncomp_len
        if number == chosen:
            content = _inner(_unpacked(_decrypted(held, entry, chunk.name)), rng)
            flags = rng.choice((flags, flags, 0, 1))
            length = len(content) if rng.random() < 0.9 else rng.choice((0, 1, 2**20, 2**63))
            held = _packed(content, rng) if flags == 1 else content
            held = _encrypted(held, entry, chunk.name)
            entry["sha256"] = sha256(held).hexdigest()
        entry["offset"] = HEADER.size + len(body)
        fields = chunk.ctype, flags, length, len(held), crc32c(held), chunk.ecc_len
        body += CHUNK_HEADER.pack(*fields) + held + data[parity : parity + chunk.ecc_len]
    index = json.dumps({**fold.index, "chunks": entries}).encode()
    return HEADER.pack(data[:8], HEADER.size, HEADER.size + len(body), len(index)) + body + index


def _decrypted(held: bytes, entry: dict[str, object], name: str) -> bytes:
    if entry.get("encrypted") is not True:
        return held
    return AESGCM(KEY).decrypt(bytes.fromhex(str(entry["nonce_hex"])), held, name.encode())


def _encrypted(held: bytes, entry: dict[str, object], name: str) -> bytes:
    if entry.get("encrypted") is not True:
        return held
    return AESGCM(KEY).encrypt(bytes.fromhex(str(entry["nonce_hex"])), held, name.encode())


def aero_toc(data: bytes, rng: random.Random) -> bytes:
    """A field of a TOC entry changed."""
    aero = _aero(data)
    if not aero.chunks:
        return number_mutant(data, rng)
    at = aero.header.entry_offset(rng.randrange(len(aero.chunks)))
    values = list(TOC_ENTRY.unpack_from(data, at))
    other = TOC_ENTRY.unpack_from(data, aero.header.entry_offset(rng.randrange(len(aero.chunks))))
    place = rng.randrange(len(values))
    if place in (0, len(values) - 1):
        values[place] = other[place] if rng.random() < 0.5 else bytes(len(values[place]))
    else:
        width = 8 if place in (2, 3, 4, 7) else 4
        near = (values[place] ^ 1, values[place] + 16, max(values[place] - 1, 0), other[place])
        values[place] = rng.choice((*EXTREMES, *near, *near)) % 256**width
    return data[:at] + TOC_ENTRY.pack(*values) + data[at + TOC_ENTRY.size :]


def aero_content(data: bytes, rng: random.Random) -> bytes:
    """The content of a metadata chunk changed; it is put at the end of the file."""
    aero = _aero(data)
    places = [n for n, c in enumerate(aero.chunks) if c.fourcc in _AERO_TEXTS]
    if not places:
        return number_mutant(data, rng)
    place = rng.choice(places)
    chunk = aero.chunks[place]
    content = _unpacked(data[chunk.offset : chunk.end]) if chunk.is_compressed else None
    content = _AERO_TEXTS[chunk.fourcc](content or data[chunk.offset : chunk.end], rng)
    flags = chunk.flags ^ (rng.random() < 0.2)
    held = _packed(content, rng) if flags & 1 else content
    digest = blake3(content).digest() if rng.random() < 0.8 else bytes(32)
    length = len(content) if rng.random() < 0.9 else rng.choice((0, 1, 2**20, 2**31, 2**63))
    entry = TOC_ENTRY.pack(
        *(chunk.fourcc, flags, len(data), len(held), length),
        *(chunk.name_off, chunk.name_len, 0, digest),
    )
    at = aero.header.entry_offset(place)
    return data[:at] + entry + data[at + TOC_ENTRY.size :] + held


_AERO_TEXTS: dict[bytes, Mutant] = {
    b"TIDX": msgpack_text,
    b"MMSG": msgpack_text,
    b"PHSH": msgpack_text,
    b"IHSH": bytes_mutant,
    b"MJSN": json_text,
}


def _unpacked(held: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompress(held, 2**16)
    except zstandard.ZstdError:
        return held


def _packed(content: bytes, rng: random.Random) -> bytes:
    frame: bytes = zstandard.ZstdCompressor(
        write_content_size=rng.random() < 0.7, write_checksum=rng.random() < 0.3
    ).compress(content)
    return rng.choice((frame, frame, frame, frame + b"\0", frame[:-1], frame * 2))


def _inner(content: bytes, rng: random.Random) -> bytes:
    """A changed file that stands in a chunk."""
    name = registry.detect(memoryview(content))
    if name in _FILES:
        return rng.choice(_FILES[name])(content, rng)
    return (
        json_text(content, rng)
        if content[:1] in (b"{", b"[")
        else bytes_mutant(content + b"\0", rng)
    )


_FILES: dict[str, tuple[Mutant, ...]] = {
    "safetensors": (safetensors,),
    "npy": NPY,
    "npz": NPZ,
    "torch": TORCH,
}
