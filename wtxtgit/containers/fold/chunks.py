"""Chunks to be written: measured and hashed first, then given out.

A chunk header holds the length and the hash of the bytes after it, and the
file header where the index stands, so every chunk's content is gone through
twice: nothing is held but parity.
Spec: `docs/spec/fold.md`, "What is written".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from wtxtgit.containers import json_limits
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.fold import MAGIC, integrity
from wtxtgit.containers.fold.integrity import HMAC_PREFIX, SHA256_PREFIX
from wtxtgit.containers.fold.parity import CODEWORD, parity_bytes, parity_len
from wtxtgit.containers.fold.read import CHUNK_HEADER, HEADER, UNCOMPRESSED, ZSTD, Chunk
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.checksum import crc32c
from wtxtgit.model.reading import ReadOptions

Compression = Literal["none", "zstd"]
COMPRESSIONS = ("none", "zstd")
CTYPE_BYTES = 4
MAX_ECC_LEN = 2**32 - 1


@dataclass(frozen=True, slots=True, eq=False)
class ChunkSource:
    """A chunk to be written: `blocks` gives its `length` bytes, each time it is called."""

    name: str
    ctype: bytes
    length: int
    blocks: Callable[[], Iterator[Buffer]]


@dataclass(frozen=True, slots=True)
class Form:
    """How a chunk is stored: `ecc` is n of `rs(n)` or 0, `prefix` the form of its hash.

    `key` is the HMAC's where the form is that.
    """

    compression: Compression = "none"
    level: int = 3
    ecc: int = 0
    prefix: str = SHA256_PREFIX
    key: bytes | None = field(default=None, repr=False)


class Laid(Protocol):
    """A chunk in its place in a file that is written."""

    @property
    def entry(self) -> dict[str, object]:
        """What the index says of the chunk."""

    @property
    def length(self) -> int:
        """Bytes of header, payload and parity."""

    def pieces(self) -> Iterator[Buffer]:
        """Header, payload and parity."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A chunk as it stands in a file: `held` is its header, payload and parity."""

    entry: dict[str, object]
    held: ByteView

    @property
    def length(self) -> int:
        return len(self.held)

    def at(self, offset: int) -> Kept:
        """The same chunk, at `offset`."""
        return replace(self, entry={**self.entry, "offset": offset})

    def pieces(self) -> Iterator[Buffer]:
        return pieces(self.held)


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A chunk whose place, lengths and hashes are known; `entry` is for the index."""

    source: ChunkSource
    form: Form
    entry: dict[str, object]
    header: bytes
    comp_len: int

    @property
    def length(self) -> int:
        ecc_len = parity_len(self.comp_len, self.form.ecc)
        return CHUNK_HEADER.size + self.comp_len + ecc_len

    def at(self, offset: int) -> Planned:
        """The same chunk, at `offset`."""
        return replace(self, entry={**self.entry, "offset": offset})

    def like(self, chunk: Chunk) -> Planned:
        """The same chunk with what else the index says of `chunk`."""
        return replace(self, entry={**chunk.entry, **self.entry})

    def pieces(self) -> Iterator[Buffer]:
        """Header, payload and parity."""
        yield self.header
        blocks = _counted(_stored(self.source, self.form), self.comp_len, self.source.name)
        if not self.form.ecc:
            yield from blocks
            return
        from wtxtgit.containers.fold.reed_solomon import Encoder

        encoder = Encoder(self.form.ecc)
        for block in blocks:
            encoder.update(block)
            yield block
        yield from encoder.finish()


def plan(source: ChunkSource, form: Form, offset: int) -> Planned:
    """Measure and hash a chunk that will stand at `offset`; raises FormatError."""
    json_limits.check_name(source.name, "chunk name", offset=offset)
    if len(source.ctype) != CTYPE_BYTES or not source.ctype.isascii():
        raise FormatError(f"ctype of chunk {quoted(source.name)} is not 4 ASCII characters")
    if not 0 <= form.ecc < CODEWORD:
        raise FormatError(f"ecc {form.ecc} is not 0 to {CODEWORD - 1} bytes a block", field="ecc")
    if form.compression not in COMPRESSIONS:
        raise FormatError(f"compression {quoted(form.compression)} is unknown", field="flags")
    crc, comp_len, sha256 = 0, 0, hashlib.sha256()
    for block in _stored(source, form):
        crc = crc32c(block, crc)
        sha256.update(block)
        comp_len += len(block)
    ecc_len = parity_len(comp_len, form.ecc)
    if ecc_len > MAX_ECC_LEN:
        raise FormatError(
            f"parity of chunk {quoted(source.name)} would have {ecc_len} bytes", field="ecc_len"
        )
    flags = ZSTD if form.compression == "zstd" else UNCOMPRESSED
    entry = {
        "name": source.name,
        "ctype": source.ctype.decode(),
        "flags": flags,
        "offset": offset,
        "header_len": CHUNK_HEADER.size,
        "comp_len": comp_len,
        "uncomp_len": source.length,
        "crc32c": crc,
        "sha256": str(integrity.make_hash(form.prefix, sha256.hexdigest(), form.key)),
        "ecc_algo": f"rs({form.ecc})" if form.ecc else "none",
        "ecc_len": ecc_len,
    }
    header = CHUNK_HEADER.pack(source.ctype, flags, source.length, comp_len, crc, ecc_len)
    return Planned(source, form, entry, header, comp_len)


def plan_all(sources: Iterable[tuple[ChunkSource, Form]]) -> list[Planned]:
    """Plan chunks that stand back to back after the file header."""
    planned: list[Planned] = []
    offset = HEADER.size
    for source, form in sources:
        planned.append(plan(source, form, offset))
        offset += planned[-1].length
    return planned


def form_of(chunk: Chunk, compression: Compression, level: int, options: ReadOptions) -> Form:
    """How a chunk is stored whose parity and form of hash are those of `chunk`.

    Raises FormatError where these are unknown, or an HMAC whose key is not given.
    """
    stored = integrity.parse_hash(chunk.entry.get("sha256"))
    ecc = parity_bytes(chunk.ecc_algo)
    if stored is None or ecc is None:
        raise FormatError(
            f"chunk {quoted(chunk.name)} has no sha256 or ecc_algo that is known",
            offset=chunk.offset,
            field="ecc_algo" if ecc is None else "sha256",
        )
    need_key(stored.prefix, options.integrity_key)
    return Form(compression, level, ecc, stored.prefix, options.integrity_key)


def need_key(prefix: str, key: bytes | None) -> None:
    """Raise FormatError where hashes of that form can't be made."""
    if prefix == HMAC_PREFIX and key is None:
        raise FormatError("hashes are HMACs, which need their key", field="sha256")


def file_pieces(chunks: Sequence[Laid], index: bytes) -> Iterator[Buffer]:
    """The whole file: its header, its chunks, its index."""
    index_off = HEADER.size + sum(chunk.length for chunk in chunks)
    yield HEADER.pack(MAGIC, HEADER.size, index_off, len(index))
    for chunk in chunks:
        yield from chunk.pieces()
    yield index


def _stored(source: ChunkSource, form: Form) -> Iterator[Buffer]:
    """A chunk's bytes as they are stored: one zstd frame without checksum, or plain."""
    blocks = _counted(source.blocks(), source.length, source.name)
    if form.compression == "none":
        yield from blocks
        return
    import zstandard

    packer = zstandard.ZstdCompressor(level=form.level).compressobj(size=source.length)
    for block in blocks:
        yield packer.compress(block)
    yield packer.flush()


def _counted(blocks: Iterator[Buffer], length: int, name: str) -> Iterator[memoryview]:
    """The blocks, cut to BLOCK; they must have as many bytes as a header has said."""
    given = 0
    for block in blocks:
        given += len(block)
        if given > length:
            break
        yield from pieces(memoryview(block))
    if given != length:
        raise FormatError(f"content of chunk {quoted(name)} is not {length} bytes any more")
