"""Decoding chunks that `encoding.py` has encoded, within limits.

Spec: `docs/spec/store.md`, section "Encodings". All sizes are in bytes. numpy, whose import takes a
tenth of a checkout of 256 MiB, is only imported if a chunk is the XOR with another one. Every n-th
byte of a bytearray is set by slice assignment, which is as fast as shifting numbers with numpy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import NoReturn

import zstandard

from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.store.pack import MAX_CODED, PREFIX, STORED, XOR, ChunkEntry


class DecodedChunk:
    """A chunk's bytes, grouped by their position in items of `item` bytes.

    They are kept as they were decoded until they are needed in another form: a chain of XORs is
    undone group by group.
    """

    __slots__ = ("_data", "item")

    def __init__(self, data: memoryview, item: int) -> None:
        self._data = data
        self.item = item

    @property
    def size(self) -> int:
        return self._data.nbytes

    def grouped(self, item: int) -> memoryview:
        """Return its bytes grouped by their position in items of another size, which divides
        `item`.
        """
        if item == self.item:
            return self._data
        plain = bytes(self.plain())
        return memoryview(b"".join(plain[place::item] for place in range(item)))

    def plain(self) -> memoryview:
        """Return the chunk's bytes in their original order."""
        return self._data if self.item == 1 else _joined(self._data, [self.item], self.size)


class _Decoder(threading.local):
    """A zstd context for each thread."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor(max_window_size=MAX_CODED)


_decoder = _Decoder()


class DecodedRun:
    """Chunks of one size, one after another; `items` says how each one is grouped.

    They are processed together where possible, because each call may wait for the interpreter.
    """

    __slots__ = ("_data", "_size", "is_based", "items")

    def __init__(self, count: int, size: int) -> None:
        self._size = size
        self._data = memoryview(bytearray(count * size))
        self.items = [1] * count
        self.is_based = False

    def chunk(self, number: int) -> DecodedChunk:
        return DecodedChunk(self._part(number), self.items[number])

    def _part(self, first: int, count: int = 1) -> memoryview:
        return self._data[first * self._size : (first + count) * self._size]

    def decode(
        self, numbers: Sequence[int], entries: Sequence[ChunkEntry], encoded: memoryview
    ) -> None:
        """Decode chunks of this size, which are adjacent in a pack, without applying their bases.

        For an XOR the result is the XOR itself. Chunks that are also adjacent here are decoded in
        one go; whether each uses just its own part of the pack shows in their hashes. Raises
        FormatError.
        """
        at = 0
        while at < len(numbers):
            end, length = at, 0
            while end < len(numbers) and numbers[end] == numbers[at] + end - at:
                is_stored = entries[end].encoding == STORED
                if is_stored and end > at:
                    break
                self.items[numbers[end]] = entries[end].item
                length += entries[end].length
                end += 1
                if is_stored:
                    break
            place = self._part(numbers[at], end - at)
            if entries[at].encoding == STORED:
                place[:] = encoded[:length]
            else:
                _decompress(_decoder.zstd, entries[at], encoded[:length], place)
            encoded = encoded[length:]
            at = end

    def put(self, number: int, chunk: DecodedChunk) -> None:
        """Store a chunk that was decoded with its bases."""
        self.is_based = True
        self.items[number] = chunk.item
        self._part(number)[:] = chunk.grouped(chunk.item)

    def undo(self, numbers: Sequence[int], bases: DecodedRun) -> None:
        """Turn XORs into chunks, with as many bases."""
        self.is_based = True
        if len(numbers) == len(self.items) and self.items == bases.items:
            _undo(self._data, bases._data)
            return
        for place, number in enumerate(numbers):
            _undo(self._part(number), bases.chunk(place).grouped(self.items[number]))

    def chunks(self, names: Sequence[bytes]) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the name and bytes of each chunk."""
        data, size = self.plain(), self._size
        for number, name in enumerate(names):
            yield name, data[number * size : (number + 1) * size]

    def plain(self) -> memoryview:
        """Return the bytes of all chunks, one after another."""
        is_plain = self.items.count(1) == len(self.items)
        return self._data if is_plain else _joined(self._data, self.items, self._size)


def _joined(grouped: memoryview, items: Sequence[int], size: int) -> memoryview:
    """Return the bytes, in original order, of chunks of one size, each grouped by its item."""
    chunks = bytearray(grouped.nbytes)
    start = 0
    for item in items:
        group, end = size // item, start + size
        for place in range(item):
            at = start + place * group
            chunks[start + place : end : item] = grouped[at : at + group]
        start = end
    return memoryview(chunks)


def _undo(grouped: memoryview, base: memoryview) -> None:
    """Turn XORs with others into chunks, in place."""
    import numpy as np

    array = np.frombuffer(grouped, np.uint8)
    np.bitwise_xor(array, np.frombuffer(base, np.uint8), out=array)


def decode(entry: ChunkEntry, encoded: ByteView, bases: Sequence[DecodedChunk]) -> DecodedChunk:
    """Decode the chunk of an index entry, to exactly the size that it states.

    `bases` are those of the entry. Raises FormatError if the bytes can't be decoded.
    """
    content = mapped(encoded)
    if entry.encoding == STORED:
        return DecodedChunk(content, 1)
    decoder = _decoder.zstd
    if entry.encoding == PREFIX:
        prefix = b"".join(base.plain() for base in bases)
        dictionary = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        decoder = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=MAX_CODED)
    chunk = memoryview(bytearray(entry.size))
    _decompress(decoder, entry, content, chunk)
    if entry.encoding == XOR:
        (base,) = bases
        if base.size != entry.size:
            _fail("has a base of a different size", entry)
        _undo(chunk, base.grouped(entry.item))
    return DecodedChunk(chunk, entry.item)


def _decompress(
    decoder: zstandard.ZstdDecompressor, entry: ChunkEntry, content: memoryview, chunk: memoryview
) -> None:
    """Fill `chunk` with the decompressed frames, of which the first belongs to `entry`."""
    try:
        reader = decoder.stream_reader(content, read_across_frames=entry.encoding != PREFIX)
        count = reader.readinto(chunk)
        is_more = count == chunk.nbytes and reader.read(1)
    except zstandard.ZstdError:
        _fail("can't be decompressed with zstd", entry)
    if count != chunk.nbytes or is_more:
        _fail(f"does not give {chunk.nbytes} bytes", entry)


def _fail(what: str, entry: ChunkEntry) -> NoReturn:
    raise FormatError(what, offset=entry.place, field="chunk")
