"""The steps that writing and reading a text consist of, one by one, on one thread.

Each goes over the whole of its data in blocks of 1 MiB, as the library does.
What is needed first, lines to decode or a stream to inflate, is made of one
block, which is then taken again and again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from crc32c import crc32c
from isal import isal_zlib

from bench.measure import MIB
from wtxtgit.git.store import streams
from wtxtgit.text import block_armor, digest, grammar

_CHUNK = 64 * 1024


def three_hashes(data: memoryview, _: Path) -> None:
    """The array's SHA-256, its chunks', and hash_all."""
    hashlib.sha256(data).digest()
    for chunk in _cut(data, _CHUNK):
        hashlib.sha256(chunk).digest()
    hashlib.sha256(data).digest()


def checksums(data: memoryview, _: Path) -> None:
    """CRC-32C of chunks, and fastxor."""
    for block in _cut(data, MIB):
        for chunk in _cut(block, _CHUNK):
            crc32c(chunk)
        digest.fastxor(block)


def armored(data: memoryview, _: Path) -> None:
    """Base64 and parity, into one buffer."""
    lines = grammar.line_count(_CHUNK)
    text = np.empty(MIB // _CHUNK * lines * grammar.LINE_TEXT, dtype=np.uint8)
    for block in _cut(data, MIB):
        block_armor.encode(
            block, block.nbytes // _CHUNK, _CHUNK, text, 0, lines * grammar.LINE_TEXT
        )


def decoded(data: memoryview, _: Path) -> None:
    """The way back, every line checked."""
    lines = grammar.line_count(_CHUNK) * grammar.LINE_TEXT
    for _block in _cut(data, MIB):
        block_armor.decode(_text(), MIB // _CHUNK, _CHUNK, 0, lines)


def deflated(data: memoryview, _: Path) -> None:
    """Text deflated with ISA-L, for git."""
    for _block in _cut(data, MIB):
        streams.deflated_piece(_text().data)


def inflated(data: memoryview, _: Path) -> None:
    """Text inflated with ISA-L."""
    for _block in _cut(data, MIB):
        isal_zlib.decompressobj(streams.RAW).decompress(_stream())


def hashed_as_object(data: memoryview, _: Path) -> None:
    """SHA-1 of the text, which names git's object."""
    for _block in _cut(data, MIB):
        hashlib.sha1(_text().data, usedforsecurity=False).digest()


STEPS: dict[str, Callable[[memoryview, Path], object]] = {
    "SHA-256 three times": three_hashes,
    "CRC-32C and fastxor": checksums,
    "armor": armored,
    "armor, back": decoded,
    "deflate the text": deflated,
    "inflate the text": inflated,
    "SHA-1 of the text": hashed_as_object,
}


@cache
def _text() -> np.ndarray:
    """The lines of a block of noise: chunk after chunk, nothing between."""
    raw = np.random.default_rng(1).integers(0, 256, MIB, dtype=np.uint8)
    lines = grammar.line_count(_CHUNK) * grammar.LINE_TEXT
    text = np.empty(MIB // _CHUNK * lines, dtype=np.uint8)
    block_armor.encode(raw.data, MIB // _CHUNK, _CHUNK, text, 0, lines)
    return text


@cache
def _stream() -> bytes:
    return streams.deflated_piece(_text().data)


def _cut(data: memoryview, size: int) -> Iterator[memoryview]:
    """The whole pieces of a size."""
    for start in range(0, len(data) - size + 1, size):
        yield data[start : start + size]
