"""How a chunk's bytes are encoded in a pack. `decoding.py` undoes it.

Spec: `docs/spec/store.md`, section "Encodings". Of numbers, sign and exponent are what can be made
smaller: bytes are grouped by their place in the item, and each group is a zstd frame, which finds
by itself that a mantissa is noise. All sizes are in bytes.
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
"""Makes one zstd frame of some bytes."""
NoisyGroups = set[tuple[int, int]]
"""Encodings and places in the item that had nothing to code in chunks that are alike."""

# Tables of 64 entries and matches of 7 bytes or more: numbers have no others, and what is left of
# the work is counting and coding single bytes. Measured on weights, level 1 takes twice as long,
# as it looks for matches, and those that it finds spoil the statistics: 0.69 of bf16, not 0.67.
_FOR_NUMBERS = zstandard.ZstdCompressionParameters(
    compression_level=1, strategy=zstandard.STRATEGY_FAST, min_match=7, target_length=0,
    window_log=17, hash_log=6, chain_log=6, search_log=1, write_content_size=1,
)  # fmt: skip
# Of an XOR the same matches are short runs of zeros, which a code for single bytes makes as small,
# in a third of the time, and half of it when they are decoded. zstandard can't be told so: a step
# so long that nothing is found turns coding off, unless literals are to be coded all the same
# (zstd.h: ZSTD_c_literalCompressionMode, ZSTD_ps_enable).
_LONG_STEP = 128 * 1024
_LITERALS, _ARE_CODED = 1002, 1
_AS_THEY_ARE = zstandard.ZstdCompressionParameters(
    compression_level=1, strategy=zstandard.STRATEGY_FAST, min_match=7, target_length=_LONG_STEP,
    window_log=17, hash_log=6, chain_log=6, search_log=1, write_content_size=1,
)  # fmt: skip
# Where most words of so many bytes are zero, rows have changed or few values: long matches.
_WORD = 8
# Less than that part smaller is not worth coding either.
_HARDLY = 32
# Of so many bytes of noise more than that are different ones.
_LOOKED, _DIFFERENT = 32, 24
_FOR_BYTES = 3
_FOR_MOVED = 1
# Bytes of items that are put in groups, and back, as whole numbers: taking every other byte takes
# twice as long. Of 8 bytes it doesn't.
_SHIFTED = (2, 4)
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


class _Encoders(threading.local):
    """What makes frames, which one thread at a time may use; each when it is first needed."""

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
    """What codes bytes one by one; None where that is not to be had."""
    # It only saves time and room.
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
        # No such parameter in this zstd, whose interface promises none.
        return None
    return partial(compressor.compress, mode=compressor.FLUSH_FRAME)


_own = _Encoders()


def encode(data: ByteView, item: int) -> Encoded:
    """Encode a chunk of items of `item` bytes by itself."""
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
    """Encode a chunk by its XOR with one of the bases, which have its size; gives which, too.

    None where by itself it is as small: as `alone`, what a base took by itself, or as far as a
    sample tells. The last base is the one that is likely the nearest; of those that are about as
    near it is the first one, unless it is said which is `nearest`. `groups` are those of the chunk
    where they are known, `noisy` is what is known of the chunks before it.
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
    """About how many bytes a chunk takes by itself."""
    sample = _sample(groups)
    return _length(_frames(sample, _own.numbers)) * groups.size / sample.size


def distances(groups: Bytes, chain: Sequence[DecodedChunk]) -> list[float]:
    """How far a chunk is from its bases: at most 1 for those that are about as near as the last."""
    if len(chain) == 1:
        return [0.0]
    bases = [_groups(base, len(groups)) for base in chain]
    sample = _sample(groups)
    lengths = [_length(_frames(sample ^ _sample(base), _own.numbers)) for base in bases]
    # No sample tells of one row that changed.
    changed = [int(np.count_nonzero(groups != base)) for base in bases]
    return [
        max(length / (_AS_SMALL * lengths[-1]), many / (_AS_FEW * max(1, changed[-1])))
        for length, many in zip(lengths, changed, strict=True)
    ]


def first_near(found: Sequence[float]) -> int:
    """The first base that is about as near as the last one, which is likely the nearest."""
    return next(number for number, distance in enumerate(found) if distance <= 1)


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


def grouped_chunks(data: ByteView, size: int, item: int) -> Bytes | None:
    """The grouped bytes of chunks that follow one another: by place in the item, then chunk.

    Together, as each call may wait for the interpreter; None where that is not quicker.
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
    # The cast takes the lowest byte.
    np.copyto(groups[0], numbers, casting="unsafe")
    for group in groups[1:]:
        numbers = numbers >> 8
        np.copyto(group, numbers, casting="unsafe")
    return groups


def _frames(groups: Bytes, frame: MakeFrame) -> list[bytes]:
    # A frame for each group, since a frame of less than 128 KiB has one code for all its bytes.
    return [frame(group.data) for group in groups]


def _number_frames(
    groups: Bytes, frame: MakeFrame, encoding: int, noisy: NoisyGroups | None
) -> list[bytes]:
    known = set() if noisy is None else noisy
    frames = []
    for place, group in enumerate(groups):
        # The chunk before may have been of another kind.
        is_noise = (encoding, place) in known and len(set(group[:_LOOKED].tolist())) > _DIFFERENT
        made = _own.as_it_is(group.data) if is_noise else frame(group.data)
        if len(made) * _HARDLY > group.size * (_HARDLY - 1):
            known.add((encoding, place))
        frames.append(made)
    return frames


def _xor_frame(group: memoryview) -> bytes:
    words = np.frombuffer(group, np.uint64, len(group) // _WORD)
    is_sparse = 2 * np.count_nonzero(words) < words.size
    return _own.numbers(group) if is_sparse else _own.single_bytes(group)


def _groups(chunk: DecodedChunk, item: int) -> Bytes:
    """The bytes of a chunk by their place in items, a row for each place."""
    return np.frombuffer(chunk.grouped(item), np.uint8).reshape(item, -1)


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
