"""Encoding chunks for a pack; `decoding.py` is the inverse.

Spec: `docs/spec/store.md`, section "Encodings". In numbers, sign and exponent can be compressed:
bytes are grouped by their position in the item, and each group is a zstd frame; zstd itself detects
that mantissas are noise. All sizes are in bytes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import zstandard

from wtxtgit.io.view import Buffer, ByteView, mapped, pieces
from wtxtgit.store.decoding import DecodedChunk
from wtxtgit.store.pack import GROUPED, ITEMS, MAX_CODED, PREFIX, STORED, XOR, ZSTD

Bytes = npt.NDArray[np.uint8]
MakeFrame = Callable[[memoryview], bytes]
"""Compresses bytes to one zstd frame."""
NoisyGroups = set[tuple[int, int]]
"""Encodings and positions in the item that could not be compressed in similar chunks."""

# Tables of 64 entries and matches of 7 bytes or more: numbers have no others, and the remaining
# work is counting and coding single bytes. Measured on weights, the default level 1 takes twice as
# long because it looks for matches, and those that it finds spoil the statistics: bf16 shrinks to
# 0.69 instead of 0.67.
_FOR_NUMBERS = zstandard.ZstdCompressionParameters(
    compression_level=1, strategy=zstandard.STRATEGY_FAST, min_match=7, target_length=0,
    window_log=17, hash_log=6, chain_log=6, search_log=1, write_content_size=1,
)  # fmt: skip
# In an XOR these matches are short runs of zeros, which coding single bytes makes as small, in a
# third of the time, and half the time to decode. zstandard has no option for that: with a step so
# long that nothing is found it stops coding, unless coding of literals is requested explicitly
# (zstd.h: ZSTD_c_literalCompressionMode, ZSTD_ps_enable).
_LONG_STEP = 128 * 1024
_LITERALS, _ARE_CODED = 1002, 1
_AS_THEY_ARE = zstandard.ZstdCompressionParameters(
    compression_level=1, strategy=zstandard.STRATEGY_FAST, min_match=7, target_length=_LONG_STEP,
    window_log=17, hash_log=6, chain_log=6, search_log=1, write_content_size=1,
)  # fmt: skip
# If most words of this many bytes are zero, rows or few values have changed: matches are long.
_WORD = 8
# Coding is not worthwhile unless it saves at least one part in this many.
_HARDLY = 32
# Among so many bytes of noise more than this number are distinct.
_LOOKED, _DIFFERENT = 32, 24
_FOR_BYTES = 3
_FOR_MOVED = 1
# Sizes of items that are grouped, and ungrouped, as integers: strided copies take twice as long,
# except for 8 bytes.
_SHIFTED = (2, 4)
# An encoding has to save one part in this many to be worth decoding.
_WORTHWHILE = 64
# A sample has this many runs of bytes of each group, which together are one part in `_PART` of it.
_RUNS = 16
_PART = 8
_SHORTEST = 16
# What is so much larger than by the last base counts as equally small: steps of training are, by
# either base; repeated changes of some rows are not.
_AS_SMALL = 1.2
# An XOR of less than half of the chunk's size is smaller than the chunk by itself.
_LITTLE = 2
_AS_FEW = 1.45


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encoded bytes of a chunk, in pieces that can be iterated once."""

    pieces: Iterable[Buffer]
    encoding: int
    item: int
    length: int


class _Encoders(threading.local):
    """Compressors for each thread, each made when first needed."""

    @cached_property
    def numbers(self) -> MakeFrame:
        return zstandard.ZstdCompressor(compression_params=_FOR_NUMBERS).compress

    @cached_property
    def bytes(self) -> MakeFrame:
        return zstandard.ZstdCompressor(level=_FOR_BYTES).compress

    @cached_property
    def as_it_is(self) -> MakeFrame:
        return zstandard.ZstdCompressor(compression_params=_AS_THEY_ARE).compress

    @cached_property
    def single_bytes(self) -> MakeFrame:
        return _of_single_bytes() or self.numbers


def _of_single_bytes() -> MakeFrame | None:
    """Return a compressor that codes single bytes; None if it is not available."""
    # It is optional: it only saves time and space.
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except (ImportError, OSError):
        return None
    parameter = zstd.CompressionParameter
    options: dict[int, int] = {
        parameter.compression_level: 1,
        parameter.strategy: zstd.Strategy.fast,
        parameter.target_length: _LONG_STEP,
        parameter.window_log: 17,
        _LITERALS: _ARE_CODED,
    }
    try:
        compressor = zstd.ZstdCompressor(options=options)
    except ValueError:
        # This zstd lacks the parameter, which is not part of its stable interface.
        return None
    return partial(compressor.compress, mode=compressor.FLUSH_FRAME)


_own = _Encoders()


def encode(data: ByteView, item: int) -> Encoded:
    """Encode a chunk with items of `item` bytes by itself."""
    return encode_based(data, item, ())[0]


def encode_based(
    data: ByteView,
    item: int,
    bases: Sequence[DecodedChunk],
    alone: int | None = None,
    groups: Bytes | None = None,
    noisy: NoisyGroups | None = None,
    nearest: int | None = None,
) -> tuple[Encoded, int | None]:
    """Encode a chunk as its XOR with one of the bases, which have its size; also returns which.

    Returns None instead of a number if the chunk is as small by itself: compared with `alone`, the
    size of a base by itself, or else with an estimate from a sample. The last base is likely the
    nearest; of those that are about as near the first is used, unless `nearest` is given. `groups`
    are the grouped bytes of the chunk if known; `noisy` is what is known from the chunks before it.
    """
    size = len(data)
    if not 0 < size <= MAX_CODED:
        return _stored(data), None
    item = item if item in ITEMS[GROUPED] and size % item == 0 else 1
    if groups is None:
        groups = _grouped(np.frombuffer(mapped(data), np.uint8), item)
    if bases:
        number = first_near(distances(groups, bases)) if nearest is None else nearest
        xored = groups ^ _groups(bases[number], item)
        frames = _number_frames(xored, _xor_frame, XOR, noisy)
        length = _length(frames)
        if length * _LITTLE < size or length < (alone or _estimated(groups)):
            encoded = _worthwhile(data, frames, XOR, item)
            return encoded, number if encoded.encoding == XOR else None
    if item > 1:
        frames = _number_frames(groups, _own.numbers, GROUPED, noisy)
        return _worthwhile(data, frames, GROUPED, item), None
    sample = _sample(groups)
    is_text = _length(_frames(sample, _own.bytes)) < _length(_frames(sample, _own.numbers))
    frames = _frames(groups, _own.bytes if is_text else _own.numbers)
    return _worthwhile(data, frames, ZSTD, 1), None


def _estimated(groups: Bytes) -> float:
    """Estimate the size of a chunk encoded by itself."""
    sample = _sample(groups)
    return _length(_frames(sample, _own.numbers)) * groups.size / sample.size


def distances(groups: Bytes, chain: Sequence[DecodedChunk]) -> list[float]:
    """Return how far a chunk is from each base: at most 1 if it is about as near as the last
    one.
    """
    if len(chain) == 1:
        return [0.0]
    bases = [_groups(base, len(groups)) for base in chain]
    sample = _sample(groups)
    lengths = [_length(_frames(sample ^ _sample(base), _own.numbers)) for base in bases]
    # A sample may miss a single row that changed.
    changed = [int(np.count_nonzero(groups != base)) for base in bases]
    return [
        max(length / (_AS_SMALL * lengths[-1]), count / (_AS_FEW * max(1, changed[-1])))
        for length, count in zip(lengths, changed, strict=True)
    ]


def first_near(distances: Sequence[float]) -> int:
    """Return the first base that is about as near as the last one, which is likely the nearest."""
    return next(number for number, distance in enumerate(distances) if distance <= 1)


def encode_moved(data: ByteView, bases: Sequence[DecodedChunk]) -> Encoded:
    """Encode a chunk as bytes that stand anywhere in its bases."""
    known = zstandard.ZstdCompressionDict(
        b"".join(base.plain() for base in bases), dict_type=zstandard.DICT_TYPE_RAWCONTENT
    )
    frame = zstandard.ZstdCompressor(level=_FOR_MOVED, dict_data=known).compress(mapped(data))
    return _worthwhile(data, [frame], PREFIX, 1)


def _worthwhile(data: ByteView, frames: list[bytes], encoding: int, item: int) -> Encoded:
    length = _length(frames)
    if length > len(data) - 1 - len(data) // _WORTHWHILE:
        return _stored(data)
    # In one piece, to hash and write it at once.
    return Encoded((b"".join(frames),), encoding, item, length)


def _stored(data: ByteView) -> Encoded:
    return Encoded(pieces(data), STORED, 1, len(data))


def grouped_chunks(data: ByteView, size: int, item: int) -> Bytes | None:
    """Return the grouped bytes of adjacent chunks, as an array by position in the item, then chunk.

    Done together because each call may wait for the interpreter; None if that is not faster.
    """
    if item not in _SHIFTED or size % item or not 0 < size <= MAX_CODED:
        return None
    groups = _grouped(np.frombuffer(mapped(data), np.uint8), item)
    return groups.reshape(item, -1, size // item)


def _grouped(plain: Bytes, item: int) -> Bytes:
    if item not in _SHIFTED:
        return np.ascontiguousarray(plain.reshape(-1, item).T)
    groups = np.empty((item, plain.size // item), np.uint8)
    numbers = plain.view(f"<u{item}")
    # The cast keeps the lowest byte.
    np.copyto(groups[0], numbers, casting="unsafe")
    for group in groups[1:]:
        numbers = numbers >> 8
        np.copyto(group, numbers, casting="unsafe")
    return groups


def _frames(groups: Bytes, frame: MakeFrame) -> list[bytes]:
    # One frame per group, because a frame of less than 128 KiB has one code for all its bytes.
    return [frame(group.data) for group in groups]


def _number_frames(
    groups: Bytes, frame: MakeFrame, encoding: int, noisy: NoisyGroups | None
) -> list[bytes]:
    known = set() if noisy is None else noisy
    frames = []
    for place, group in enumerate(groups):
        # The chunk before may have been of another kind.
        is_noise = (encoding, place) in known and len(set(group[:_LOOKED].tolist())) > _DIFFERENT
        encoded = _own.as_it_is(group.data) if is_noise else frame(group.data)
        if len(encoded) * _HARDLY > group.size * (_HARDLY - 1):
            known.add((encoding, place))
        frames.append(encoded)
    return frames


def _xor_frame(group: memoryview) -> bytes:
    words = np.frombuffer(group, np.uint64, len(group) // _WORD)
    is_sparse = 2 * np.count_nonzero(words) < words.size
    return _own.numbers(group) if is_sparse else _own.single_bytes(group)


def _groups(chunk: DecodedChunk, item: int) -> Bytes:
    """Return the bytes of a chunk grouped by position in the item, one row per position."""
    return np.frombuffer(chunk.grouped(item), np.uint8).reshape(item, -1)


def _length(frames: list[bytes]) -> int:
    return sum(map(len, frames))


def _sample(groups: Bytes) -> Bytes:
    """Return an eighth of a large chunk, from all over it, since only some rows may have
    changed.
    """
    item, count = groups.shape
    run = count // _RUNS // _PART
    if run < _SHORTEST:
        return groups
    apart = groups[:, : count // _RUNS * _RUNS].reshape(item, _RUNS, -1)
    return np.ascontiguousarray(apart[:, :, :run]).reshape(item, -1)
