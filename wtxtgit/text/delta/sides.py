"""The sides of a delta: texts, whether or not they have been written.

A side has all lines and digests of a text, and gives the bytes of its arrays and the text of its
chunks one block at a time. For a file that is not a text, the text is never made as a whole.
`text_pieces` and `file_pieces` write a side, `hash_arrays` hashes its arrays
(`docs/spec/wtxt.md`, section "Root, chain, signature").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

import numpy as np

from wtxtgit.errors import TextError
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView, mapped
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.array import LAYOUT_ARRAY, Layout, Meta, Rows, Signature, chunk_count
from wtxtgit.text import digest, grammar
from wtxtgit.text.block_armor import render_chunks
from wtxtgit.text.grammar import chunk_line_size, chunk_text_size
from wtxtgit.text.index import ArrayIndex, TextIndex
from wtxtgit.text.layout import Blocks, file_tasks
from wtxtgit.text.verify import blocks_of, decoded
from wtxtgit.text.write import TextWriter

Raw = Callable[[], memoryview]
"""Returns a block's bytes; may run on any thread."""
Text = Callable[[], Buffer]
"""Returns a block's text; may run on any thread."""


@dataclass(frozen=True, slots=True, eq=False)
class SideArray(ABC):
    """An array of a side: its lines, and the SHA-256 of each of its chunks."""

    claim: grammar.ArrayLine
    rows: Rows | None
    sha256: Sequence[bytes]

    @property
    def name(self) -> str:
        return self.claim.name

    @property
    def header(self) -> bytes:
        """The `arr` line without its LF."""
        return grammar.format_array(self.claim).removesuffix(b"\n")

    @property
    def lead(self) -> bytes:
        """The `arr` line and, if there is one, the `idx` line."""
        rows = b"" if self.rows is None else grammar.format_rows(self.rows)
        return grammar.format_array(self.claim) + rows

    @property
    def chunk_size(self) -> int:
        return grammar.chunk_size(self.rows)

    @property
    def chunks(self) -> int:
        return chunk_count(self.claim.nbytes, self.chunk_size)

    @abstractmethod
    def raw(self, first: int, last: int) -> Iterator[Raw]:
        """Yield the bytes of chunks `first` up to, but not including, `last`, in order."""

    @abstractmethod
    def text(self, first: int, last: int) -> Iterator[Text]:
        """Yield the text of these chunks, from `ch` to `endch` lines, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class TextArray(SideArray):
    """An array of a verified text; `whole` is the entire text."""

    whole: ByteView
    index: ArrayIndex

    def raw(self, first: int, last: int) -> Iterator[Raw]:
        for block in blocks_of(self.index, first, last):
            yield partial(decoded, self.whole, block)

    def text(self, first: int, last: int) -> Iterator[Text]:
        for block in blocks_of(self.index, first, last):
            start = block.start - chunk_line_size(block.size)
            yield partial(self._slice, start, start + block.count * chunk_text_size(block.size))

    def _slice(self, start: int, end: int) -> memoryview:
        return mapped(self.whole[start:end])


@dataclass(frozen=True, slots=True, eq=False)
class RawArray(SideArray):
    """An array of a file that is not a text; `data` is its bytes."""

    data: ByteView
    crc32c: Sequence[int]

    def raw(self, first: int, last: int) -> Iterator[Raw]:
        for ix, count, size in grammar.cut(self.claim.nbytes, self.chunk_size, first, last):
            yield partial(self._bytes, ix * self.chunk_size, count * size)

    def text(self, first: int, last: int) -> Iterator[Text]:
        for ix, count, size in grammar.cut(self.claim.nbytes, self.chunk_size, first, last):
            yield partial(self._render, ix * self.chunk_size, ix, count, size)

    def _bytes(self, start: int, nbytes: int) -> memoryview:
        return mapped(self.data[start : start + nbytes])

    def _render(self, start: int, ix: int, count: int, size: int) -> memoryview:
        text = np.empty(count * chunk_text_size(size), dtype=np.uint8)
        raw = self._bytes(start, count * size)
        end = ix + count
        render_chunks(text, 0, raw, ix, start, self.sha256[ix:end], self.crc32c[ix:end])
        return text.data


@dataclass(frozen=True, slots=True, eq=False)
class ArrayDigests(SideArray):
    """An array reduced to its lines and digests: enough for the base when a delta is made."""

    def raw(self, first: int, last: int) -> Iterator[Raw]:
        raise ValueError("the bytes of this array are not kept")

    def text(self, first: int, last: int) -> Iterator[Text]:
        raise ValueError("the bytes of this array are not kept")


@dataclass(frozen=True, slots=True, eq=False)
class DeltaSide:
    """A text with a root: its header lines, its arrays in order, its audit line."""

    meta: Meta
    cap: tuple[str, ...]
    root: grammar.Root
    signature: Signature | None
    arrays: tuple[SideArray, ...]
    audit: str | None = None

    @property
    def header(self) -> bytes:
        """The lines from `meta` to the first array."""
        sign = b"" if self.signature is None else grammar.format_sign(self.signature)
        lines = grammar.format_meta(self.meta), grammar.format_cap(self.cap)
        return b"".join((*lines, grammar.format_root(self.root), sign))

    @property
    def footer(self) -> bytes:
        """The audit line, if any."""
        return b"" if self.audit is None else grammar.format_audit(self.audit)


def digests_of(side: DeltaSide) -> DeltaSide:
    """Return the side without its arrays' bytes, to free memory: a base, but not a target."""
    arrays = (ArrayDigests(array.claim, array.rows, array.sha256) for array in side.arrays)
    return replace(side, arrays=tuple(arrays))


def side_of_text(text: ByteView, index: TextIndex) -> DeltaSide:
    """Return a verified text as a side; raises TextError "pending" if it has no root."""
    # A delta identifies its base by the root's hash.
    if index.root is None:
        raise TextError(
            "pending", "a pending text has no root, so no delta can be made from it or to it"
        )
    arrays = tuple(
        TextArray(array.claim, array.rows, array.sha256, text, array) for array in index.arrays
    )
    return DeltaSide(index.meta, index.cap, index.root, index.signature, arrays, index.audit)


def side_of_writer(writer: TextWriter) -> DeltaSide:
    """Return a text that is not yet written as a side: everything is hashed, nothing is written."""
    arrays = tuple(
        RawArray(array.line, array.source.rows, array.sha256, array.source.data, array.crc32c)
        for array in writer.hashed()
    )
    snapshot = writer.snapshot
    return DeltaSide(
        snapshot.meta, snapshot.cap, writer.root, writer.signature, arrays, snapshot.audit
    )


def text_pieces(side: DeltaSide, *, threads: int | None = None) -> Iterator[Buffer]:
    """Yield the side's text in order, in pieces."""
    yield grammar.FIRST_LINE + side.header
    # Chunks of a text are copied as text, not decoded and armored again.
    with Workers(_array_texts(side), _worthwhile(side, threads)) as texts:
        yield from texts
    yield side.footer + grammar.LAST_LINE


def file_pieces(side: DeltaSide, layout: Layout, *, threads: int | None = None) -> Iterator[Buffer]:
    """Yield the file that the side stands for, in order, in pieces; `layout` is the side's own."""
    arrays = {array.name: array for array in side.arrays}

    def of_array(name: str) -> Iterator[Callable[[], Blocks]]:
        return (partial(_blocks, raw) for raw in arrays[name].raw(0, arrays[name].chunks))

    with Workers(file_tasks(layout, of_array), _worthwhile(side, threads)) as runs:
        for blocks in runs:
            yield from blocks


def _blocks(raw: Raw) -> Blocks:
    return (raw(),)


def _array_texts(side: DeltaSide) -> Iterator[Text]:
    for array in side.arrays:
        yield partial(bytes, array.lead)
        yield from array.text(0, array.chunks)
        yield partial(bytes, grammar.END_ARRAY)


def _worthwhile(side: DeltaSide, threads: int | None) -> int:
    return worthwhile(threads, sum(array.claim.nbytes for array in side.arrays), len(side.arrays))


@dataclass(slots=True)
class Hashes:
    """The hashes of a side's arrays; `own` and `hmac` are by name, where they were asked for.

    `layout` is the bytes of `_layout`.
    """

    sha256_all: bytes = b""
    fastxor: int = 0
    own: dict[str, bytes] = field(default_factory=dict)
    hmac: dict[str, bytes] = field(default_factory=dict)
    layout: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class _ArrayPiece:
    """A run of an array's raw bytes: its first ones, or later ones."""

    array: SideArray
    is_first: bool
    raw: memoryview


def hash_arrays(
    arrays: Sequence[SideArray],
    *,
    threads: int | None = None,
    own: Callable[[SideArray], bool] = lambda _: False,
    hmac_key: bytes | None = None,
    progress: Progress | None = None,
) -> Hashes:
    """Hash all arrays together, those that `own` picks also singly, and with a key each HMAC."""
    result = Hashes()
    whole = sha256()
    # Only arrays that changed: the hashes of the others stand in a text that was verified.
    hashers = {array.name: sha256() for array in arrays if own(array)}
    macs = {}
    if hmac_key is not None:
        macs = {array.name: digest.array_hmac(hmac_key, array.claim.salt) for array in arrays}
    # Reset at the first piece of each array: fastxor depends on the position in the array.
    offset = 0

    def to_all(piece: _ArrayPiece) -> None:
        nonlocal offset
        if piece.is_first:
            # The `arr` line as it stands in the text: docs/spec/wtxt.md, "Root, chain,
            # signature".
            whole.update(piece.array.header)
            offset = 0
        whole.update(piece.raw)
        result.fastxor ^= digest.fastxor(piece.raw, offset)
        offset += piece.raw.nbytes
        if piece.array.name == LAYOUT_ARRAY:
            result.layout += piece.raw
        if progress is not None:
            progress(piece.raw.nbytes)

    def to_own(piece: _ArrayPiece) -> None:
        for digests in (hashers, macs):
            if piece.array.name in digests:
                digests[piece.array.name].update(piece.raw)

    nbytes = sum(array.claim.nbytes for array in arrays)
    threads = worthwhile(threads, nbytes, len(arrays))
    with Workers(_pieces(arrays), threads, followers=(to_own,)) as pieces:
        for piece in pieces:
            to_all(piece)
    result.sha256_all = whole.digest()
    result.own = {name: hasher.digest() for name, hasher in hashers.items()}
    result.hmac = {name: mac.digest() for name, mac in macs.items()}
    return result


def _pieces(arrays: Sequence[SideArray]) -> Iterator[Callable[[], _ArrayPiece]]:
    for array in arrays:
        is_first = True
        for raw in array.raw(0, array.chunks):
            # Must not read: any free thread lists the tasks, and any thread runs them.
            yield partial(_piece_of, array, is_first, raw)
            is_first = False


def _piece_of(array: SideArray, is_first: bool, raw: Raw) -> _ArrayPiece:
    return _ArrayPiece(array, is_first, raw())
