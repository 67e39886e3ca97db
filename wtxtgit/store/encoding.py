"""How a chunk's bytes are encoded in a pack, and decoded within a bound.

Spec: `docs/spec/store.md`, section "Encodings". Of numbers, sign and exponent are what can be made
smaller: bytes are grouped by their place in the item, and each group is a zstd frame, which finds
by itself that a mantissa is noise. All sizes are in bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import zstandard

from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, mapped, pieces
from wtxtgit.store.pack import GROUPED, ITEMS, MAX_CODED, PREFIX, STORED, XOR, ZSTD, ChunkEntry

Bytes = npt.NDArray[np.uint8]

# Tables of 64 entries and matches of 7 bytes or more: numbers have no others, and what is left of
# the work is counting and coding single bytes. Measured on weights, level 1 takes twice as long,
# as it looks for matches, and those that it finds spoil the statistics: 0.69 of bf16, not 0.67.
_FOR_NUMBERS = zstandard.ZstdCompressionParameters(
    compression_level=1, strategy=zstandard.STRATEGY_FAST, min_match=7, target_length=0,
    window_log=17, hash_log=6, chain_log=6, search_log=1, write_content_size=1,
)  # fmt: skip
_FOR_BYTES = 3
_FOR_MOVED = 1
# By what part the encoding has to be smaller to be worth the decoding.
_WORTHWHILE = 64
# What is tried first: runs of bytes of each group that make so many parts of it.
_RUNS = 16
_PART = 8
_SHORTEST = 16
# What is so much larger than by the last base is about as small: two steps of training are, by
# both, but not two times that some rows change.
_AS_SMALL = 1.2
# An XOR of less than half of the chunk is smaller than the chunk by itself.
_LITTLE = 2
_AS_FEW = 1.45


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encoded bytes of a chunk, in pieces, to be taken once."""

    pieces: Iterable[Buffer]
    encoding: int
    item: int
    length: int


class DecodedChunk:
    """A chunk's bytes, grouped by their place in items: `groups` has a row for each place.

    They stay as they were decoded as long as nobody wants them otherwise: a chain of XORs is
    undone group by group.
    """

    __slots__ = ("groups",)

    def __init__(self, groups: Bytes) -> None:
        self.groups = groups

    @property
    def size(self) -> int:
        return int(self.groups.size)

    def grouped(self, item: int) -> Bytes:
        return self.groups if len(self.groups) == item else _grouped(self._joined(), item)

    def plain(self) -> memoryview:
        """The chunk's bytes."""
        return memoryview(self._joined())  # type: ignore[arg-type]

    def _joined(self) -> Bytes:
        if len(self.groups) == 1:
            return self.groups.reshape(-1)
        made = np.empty(self.groups.shape[::-1], np.uint8)
        for place, group in enumerate(self.groups):
            made[:, place] = group
        return made.reshape(-1)


class _OfThread(threading.local):
    """zstd's contexts, which one thread at a time may use."""

    def __init__(self) -> None:
        self.numbers = zstandard.ZstdCompressor(compression_params=_FOR_NUMBERS)
        self.bytes = zstandard.ZstdCompressor(level=_FOR_BYTES)
        self.decoder = zstandard.ZstdDecompressor(max_window_size=MAX_CODED)


_own = _OfThread()


def encode(data: ByteView, item: int) -> Encoded:
    """Encode a chunk of items of `item` bytes by itself."""
    return encode_based(data, item, ())[0]


def encode_based(
    data: ByteView, item: int, bases: Sequence[DecodedChunk]
) -> tuple[Encoded, int | None]:
    """Encode a chunk by its XOR with one of the bases, which have its size; gives which, too.

    None where by itself it is as small, as far as a sample tells. The last base is the one that
    is likely the nearest; of those that are about as near it is the first one.
    """
    size = len(data)
    if not 0 < size <= MAX_CODED:
        return _stored(data), None
    item = item if item in ITEMS[GROUPED] and size % item == 0 else 1
    groups = _grouped(np.frombuffer(mapped(data), np.uint8), item)
    if bases:
        number = _nearest(groups, [base.grouped(item) for base in bases])
        frames = _frames(groups ^ bases[number].grouped(item), _own.numbers)
        if _length(frames) * _LITTLE < size or _length(frames) < _estimated(groups):
            encoded = _worthwhile(data, frames, XOR, item)
            return encoded, number if encoded.encoding == XOR else None
    if item > 1:
        return _worthwhile(data, _frames(groups, _own.numbers), GROUPED, item), None
    sample = _sample(groups)
    is_text = _length(_frames(sample, _own.bytes)) < _length(_frames(sample, _own.numbers))
    frames = _frames(groups, _own.bytes if is_text else _own.numbers)
    return _worthwhile(data, frames, ZSTD, 1), None


def _estimated(groups: Bytes) -> float:
    """About how many bytes a chunk takes by itself."""
    sample = _sample(groups)
    return _length(_frames(sample, _own.numbers)) * groups.size / sample.size


def _nearest(groups: Bytes, bases: Sequence[Bytes]) -> int:
    """The first one of the bases to which a chunk is about as near as to the last one."""
    if len(bases) == 1:
        return 0
    sample = _sample(groups)
    lengths = [_length(_frames(sample ^ _sample(base), _own.numbers)) for base in bases]
    # No sample tells of one row that changed.
    changed = [int(np.count_nonzero(groups != base)) for base in bases]
    return next(
        number
        for number in range(len(bases))
        if lengths[number] <= _AS_SMALL * lengths[-1] and changed[number] <= _AS_FEW * changed[-1]
    )


def encode_moved(data: ByteView, bases: Sequence[DecodedChunk]) -> Encoded:
    """Encode a chunk as what is in its bases, wherever."""
    known = zstandard.ZstdCompressionDict(
        b"".join(base.plain() for base in bases), dict_type=zstandard.DICT_TYPE_RAWCONTENT
    )
    frame = zstandard.ZstdCompressor(level=_FOR_MOVED, dict_data=known).compress(mapped(data))
    return _worthwhile(data, [frame], PREFIX, 1)


def _worthwhile(data: ByteView, frames: list[bytes], encoding: int, item: int) -> Encoded:
    length = _length(frames)
    if length > len(data) - 1 - len(data) // _WORTHWHILE:
        return _stored(data)
    # One piece to hash and to write.
    return Encoded((b"".join(frames),), encoding, item, length)


def _stored(data: ByteView) -> Encoded:
    return Encoded(pieces(data), STORED, 1, len(data))


def _grouped(plain: Bytes, item: int) -> Bytes:
    return np.ascontiguousarray(plain.reshape(-1, item).T)


def _frames(groups: Bytes, compressor: zstandard.ZstdCompressor) -> list[bytes]:
    # A frame for each group, since a frame of less than 128 KiB has one code for all its bytes.
    return [compressor.compress(group) for group in groups]


def _length(frames: list[bytes]) -> int:
    return sum(map(len, frames))


def _sample(groups: Bytes) -> Bytes:
    """An eighth of a large chunk: from all over it, as only some rows may have changed."""
    item, count = groups.shape
    run = count // _RUNS // _PART
    if run < _SHORTEST:
        return groups
    apart = groups[:, : count // _RUNS * _RUNS].reshape(item, _RUNS, -1)
    return np.ascontiguousarray(apart[:, :, :run]).reshape(item, -1)


def decode(entry: ChunkEntry, encoded: ByteView, bases: Sequence[DecodedChunk]) -> DecodedChunk:
    """The chunk of an index's entry, of exactly the size that it says.

    `bases` are those of the entry. Raises FormatError where the bytes can't be decoded so.
    """
    held = mapped(encoded)
    if entry.encoding == STORED:
        return DecodedChunk(np.frombuffer(held, np.uint8).reshape(1, -1))
    decoder = _own.decoder
    if entry.encoding == PREFIX:
        prefix = b"".join(base.plain() for base in bases)
        known = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        decoder = zstandard.ZstdDecompressor(dict_data=known, max_window_size=MAX_CODED)
    made = np.empty(entry.size, np.uint8)
    try:
        reader = decoder.stream_reader(held, read_across_frames=entry.encoding != PREFIX)
        given = reader.readinto(made)
        is_more = given == entry.size and reader.read(1)
    except zstandard.ZstdError:
        _fail("is no readable zstd", entry)
    if given != entry.size or is_more:
        _fail(f"does not give {entry.size} bytes", entry)
    groups = made.reshape(entry.item, -1)
    if entry.encoding == XOR:
        (base,) = bases
        if base.size != entry.size:
            _fail("has a base of another size", entry)
        np.bitwise_xor(groups, base.grouped(entry.item), out=groups)
    return DecodedChunk(groups)


def _fail(what: str, entry: ChunkEntry) -> NoReturn:
    raise FormatError(what, offset=entry.place, field="chunk")
