"""The numbers that the blocks of ggml's quantised types stand for.

A block has a scale and often finer scales of its parts, all of which are multiplied with small
integers. A tensor's numbers are decoded where they are looked at, never all at once.
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h has the layouts, and `ggml-quants.c`
beside it the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.view import ByteView, Windowed, mapped
from wtxtgit.model.ggml import QUANTISED, GgmlType
from wtxtgit.model.tensor import PackedBytes, Tensor

_ITEM = 4
"""Numbers are f32, as ggml decodes them."""
_Blocks = NDArray[np.uint8]
"""A row of bytes for each block."""
_Small = NDArray[np.integer]
_F4 = NDArray[np.float32]


def _known(tensor: Tensor) -> tuple[GgmlType, Callable[[_Blocks], _F4]] | None:
    if tensor.packing is None or tensor.absent is not None or tensor.strides is not None:
        return None
    _, kind = QUANTISED[tensor.packing]
    decode = _DECODERS.get(kind.name)
    return None if decode is None else (kind, decode)


def dequantised(tensor: Tensor) -> Tensor | None:
    """Return a quantised tensor as f32 of its shape; None if its type's blocks are not known."""
    known = _known(tensor)
    if known is None or any(size < 0 for size in tensor.shape):
        return None
    kind, decode = known
    blocks, rest = divmod(prod(tensor.shape), kind.block)
    stored = blocks * kind.size
    if rest or stored > tensor.nbytes:
        return None
    nbytes = blocks * kind.block * _ITEM

    def opened() -> ByteView:
        return Windowed(_Dequantised(tensor.first(stored).view, kind, decode, nbytes))

    # What is packed must not be decoded before it is needed.
    content = PackedBytes(nbytes, opened) if isinstance(tensor.held, PackedBytes) else opened()
    return replace(
        tensor, held=content, offset=None, element="f32", byteorder="little", packing=None
    )


@dataclass(frozen=True, slots=True)
class _Dequantised:
    """The numbers of blocks, as `Windows`; nothing is kept of what was decoded."""

    blocks: ByteView
    kind: GgmlType
    decode: Callable[[_Blocks], _F4]
    nbytes: int

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end) of the numbers."""
        width = self.kind.block * _ITEM
        first, last = start // width, -(-end // width)
        raw = mapped(self.blocks[first * self.kind.size : last * self.kind.size])
        packed = np.frombuffer(raw, np.uint8).reshape(-1, self.kind.size)
        # Scales may be NaN or infinite.
        with np.errstate(invalid="ignore", over="ignore"):
            values = self.decode(packed)
        # Whether a zero is negative says nothing of the tensor.
        values += np.float32(0)
        numbers = values.astype("<f4", copy=False).reshape(-1).view(np.uint8).data
        return numbers[start - first * width : end - first * width]


def _half(packed: _Blocks, at: int) -> _F4:
    """Return an f16 of each block, as a column."""
    field = np.ascontiguousarray(packed[:, at : at + 2]).view("<f2")
    return field.astype(np.float32)


def _signed(packed: _Blocks, start: int, end: int | None = None) -> NDArray[np.int8]:
    return np.ascontiguousarray(packed[:, start:end]).view(np.int8)


def _fields(packed: _Blocks, width: int, bits: int, run: int) -> _Blocks:
    """Return fields of `bits` bits: of each `run` bytes first the lowest fields of all of them.

    The result has a row for each block, of which the bytes from the first to `width` are taken.
    """
    runs = packed[:, :width].reshape(len(packed), -1, 1, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    fields = (runs >> shifts) & np.uint8((1 << bits) - 1)
    return fields.reshape(len(packed), -1)


def _scaled(numbers: _Small, scales: _F4) -> _F4:
    """Multiply the numbers of blocks by the scales of their parts, which are of equal lengths."""
    parts = numbers.astype(np.float32).reshape(*scales.shape, -1)
    parts *= scales[:, :, None]
    return parts.reshape(len(numbers), -1)


def _less(values: _F4, least: _F4) -> _F4:
    """Subtract a number for each part of the blocks, of equal lengths."""
    parts = values.reshape(*least.shape, -1)
    parts -= least[:, :, None]
    return values


def _q4_0(packed: _Blocks) -> _F4:
    numbers = _fields(packed[:, 2:], 16, 4, 16).view(np.int8) - np.int8(8)
    return _scaled(numbers, _half(packed, 0))


def _q4_1(packed: _Blocks) -> _F4:
    values = _scaled(_fields(packed[:, 4:], 16, 4, 16), _half(packed, 0))
    return _less(values, -_half(packed, 2))


def _q5_0(packed: _Blocks) -> _F4:
    numbers = _fields(packed[:, 6:], 16, 4, 16) | _fifth_bits(packed, 2)
    return _scaled(numbers.view(np.int8) - np.int8(16), _half(packed, 0))


def _q5_1(packed: _Blocks) -> _F4:
    numbers = _fields(packed[:, 8:], 16, 4, 16) | _fifth_bits(packed, 4)
    return _less(_scaled(numbers, _half(packed, 0)), -_half(packed, 2))


def _fifth_bits(packed: _Blocks, at: int) -> _Blocks:
    """Return 32 numbers that are 0 or 16, from 4 bytes."""
    bits = np.unpackbits(packed[:, at : at + 4], axis=1, bitorder="little")
    return bits << np.uint8(4)


def _q8_0(packed: _Blocks) -> _F4:
    return _scaled(_signed(packed, 2), _half(packed, 0))


def _q2_k(packed: _Blocks) -> _F4:
    scales = packed[:, :16]
    values = _scaled(_fields(packed[:, 16:], 64, 2, 32), _half(packed, 80) * (scales & 15))
    return _less(values, _half(packed, 82) * (scales >> 4))


def _q3_k(packed: _Blocks) -> _F4:
    low = _fields(packed[:, 96:], 8, 4, 8)
    scales = low | (_fields(packed[:, 104:], 4, 2, 4) << np.uint8(4))
    # Of the highest bit the opposite is stored.
    high = (_fields(packed, 32, 1, 32) ^ np.uint8(1)) << np.uint8(2)
    numbers = _fields(packed[:, 32:], 64, 2, 32).view(np.int8) - high.view(np.int8)
    return _scaled(numbers, _half(packed, 108) * (scales.view(np.int8) - np.int8(32)))


def _six_bits(packed: _Blocks) -> tuple[_Blocks, _Blocks]:
    """Return eight scales and eight minima of six bits each, from 12 bytes."""
    scales, minima, high = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    top = np.uint8(0x30)
    return (
        np.concatenate((scales & 63, (high & 15) | ((scales >> 2) & top)), axis=1),
        np.concatenate((minima & 63, (high >> 4) | ((minima >> 2) & top)), axis=1),
    )


def _q4_k(packed: _Blocks) -> _F4:
    scales, minima = _six_bits(packed[:, 4:])
    values = _scaled(_fields(packed[:, 16:], 128, 4, 32), _half(packed, 0) * scales)
    return _less(values, _half(packed, 2) * minima)


def _q5_k(packed: _Blocks) -> _F4:
    scales, minima = _six_bits(packed[:, 4:])
    high = _fields(packed[:, 16:], 32, 1, 32) << np.uint8(4)
    numbers = _fields(packed[:, 48:], 128, 4, 32) | high
    return _less(_scaled(numbers, _half(packed, 0) * scales), _half(packed, 2) * minima)


def _q6_k(packed: _Blocks) -> _F4:
    high = _fields(packed[:, 128:], 64, 2, 32) << np.uint8(4)
    numbers = (_fields(packed, 128, 4, 64) | high).view(np.int8) - np.int8(32)
    return _scaled(numbers, _half(packed, 208) * _signed(packed, 192, 208))


def _q8_k(packed: _Blocks) -> _F4:
    scale = np.ascontiguousarray(packed[:, :4]).view("<f4")
    return _scaled(_signed(packed, 4, 260), scale)


_POWERS = np.array([1, 3, 9, 27, 81], np.uint8).reshape(1, 5, 1)


def _tq1_0(packed: _Blocks) -> _F4:
    # Five digits of base 3 are a fraction of 256: a multiplication moves each to the top.
    parts = [
        (packed[:, None, start:end] * _POWERS[:, :digits]).reshape(len(packed), -1)
        for start, end, digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4))
    ]
    digits = (np.concatenate(parts, axis=1).astype(np.uint16) * np.uint16(3)) >> np.uint16(8)
    return _scaled(digits.view(np.int16) - np.int16(1), _half(packed, 52))


def _tq2_0(packed: _Blocks) -> _F4:
    numbers = _fields(packed, 64, 2, 32).view(np.int8) - np.int8(1)
    return _scaled(numbers, _half(packed, 64))


_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
_FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the numbers of E2M1."""


def _iq4_nl(packed: _Blocks) -> _F4:
    return _scaled(_IQ4[_fields(packed[:, 2:], 16, 4, 16)], _half(packed, 0))


def _iq4_xs(packed: _Blocks) -> _F4:
    high = np.ascontiguousarray(packed[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16)
    low = _fields(packed[:, 4:], 4, 4, 1)
    scales = low | ((high & np.uint16(3)) << np.uint16(4)).astype(np.uint8)
    numbers = _IQ4[_fields(packed[:, 8:], 128, 4, 16)]
    return _scaled(numbers, _half(packed, 0) * (scales.view(np.int8) - np.int8(32)))


def _halves_of_e4m3() -> _F4:
    """Return half of the scale for each byte, since the numbers are twice what they should be."""
    codes = np.arange(256)
    exponents, fractions = (codes >> 3) & 15, codes & 7
    least = exponents == 0
    halves = np.ldexp(fractions + 8.0 * ~least, exponents + least - 11)
    halves[[0, 127]] = 0
    scales: _F4 = halves.astype(np.float32)
    return scales


_E4M3 = _halves_of_e4m3()


def _mxfp4(packed: _Blocks) -> _F4:
    # Half of the scale: the numbers are twice what they should be.
    scales: _F4 = np.ldexp(np.float32(1), packed[:, :1].astype(np.int32) - 128)
    return _scaled(_FP4[_fields(packed[:, 1:], 16, 4, 16)], scales)


def _nvfp4(packed: _Blocks) -> _F4:
    # The scales are f8_e4m3 without a sign, and NaN means 0.
    scales = _E4M3[packed[:, :4]]
    return _scaled(_FP4[_fields(packed[:, 4:], 32, 4, 8)], scales)


_DECODERS: dict[str, Callable[[_Blocks], _F4]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q8_K": _q8_k,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
}
"""The numbers of blocks, a row for each block; their order in it is that of ggml."""
