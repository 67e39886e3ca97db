"""A zlib stream that is one content to zlib, and another one to who cuts it at its flush marks.

Its last block is Huffman-coded so that the bytes of a mark, 00 00 FF FF, are
seventeen literals and the first bit of another code; an empty last block, which is
what a reader puts behind a piece to see whether it ends there, makes an
end-of-block of that bit. What follows is a stored block to the reader of pieces,
and more literals to zlib. Both give as many bytes, and the same Adler-32.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import product

_MARK = b"\x00\x00\xff\xff"
_END = b"\x03\x00"
_MODULUS = 65521
_END_OF_BLOCK = 256
_ONE, _TWO, _THREE = b"abc"
"""Literals whose codes have so many bits: 0, 10 and 110."""
_LAST = 255
"""The literal of fifteen ones."""
_LITERALS = [n for n in range(256) if n not in (_ONE, _TWO, _THREE)]
_LONG = _LITERALS[:248]
"""Literals of eleven bits."""


@dataclass(frozen=True)
class TwoFaced:
    """A stream, what zlib makes of it, and what its pieces make."""

    stream: bytes
    to_zlib: bytes
    in_pieces: bytes


def _code_lengths() -> list[int]:
    lengths = [0] * 262
    lengths[_ONE], lengths[_TWO], lengths[_THREE], lengths[_END_OF_BLOCK] = 1, 2, 3, 10
    # 253 of eleven bits, one each of 12 to 14, two of 15: then each sequence of bits is a code.
    for symbol in (*_LONG, *range(257, 262)):
        lengths[symbol] = 11
    for symbol, length in zip(_LITERALS[248:], (12, 13, 14, 15, 15), strict=True):
        lengths[symbol] = length
    return lengths


def _codes(lengths: list[int]) -> dict[int, str]:
    """RFC 1951, section 3.2.2: the shorter first, those of a length in order of the symbols."""
    codes, code, last = {}, 0, 0
    for length, symbol in sorted((length, s) for s, length in enumerate(lengths) if length):
        code <<= length - last
        codes[symbol] = f"{code:0{length}b}"
        code, last = code + 1, length
    return codes


_CODES = _codes(_code_lengths())
_SYMBOLS = {code: symbol for symbol, code in _CODES.items()}


def _bits(data: bytes) -> str:
    return "".join(f"{byte:08b}"[::-1] for byte in data)


def _bytes(bits: str) -> bytes:
    assert len(bits) % 8 == 0
    return bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))


def _header() -> str:
    """The head of a last block with these codes; each length is spelled as it is."""
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
    # Sixteen codes of four bits, for the lengths 0 to 15.
    plain = [0 if n in (16, 17, 18) else 4 for n in order]
    head = "1" + "01" + f"{262 - 257:05b}"[::-1] + f"{0:05b}"[::-1] + f"{19 - 4:04b}"[::-1]
    head += "".join(f"{n:03b}"[::-1] for n in plain)
    return head + "".join(f"{length:04b}" for length in (*_code_lengths(), 1))


def _decoded(bits: str) -> tuple[list[int], str]:
    """Symbols, and the bits of an unfinished one."""
    symbols, begun = [], ""
    for bit in bits:
        begun += bit
        if begun in _SYMBOLS:
            symbols.append(_SYMBOLS[begun])
            begun = ""
    return symbols, begun


def make(begin: bytes, nbytes: int = 3000) -> TwoFaced:
    """Make one of `begin`, 20,000 bytes or more without a mark, and of `nbytes` that differ."""
    stored = b"\0" + len(begin).to_bytes(2, "little") + (len(begin) ^ 0xFFFF).to_bytes(2, "little")
    head = _header()
    # Literals of one bit, so that the mark stands at a byte.
    fill = -len(head) % 8
    first = stored + begin + _bytes(head + "0" * fill) + _MARK
    same = begin + bytes([_ONE]) * (fill + 16) + bytes([_LAST])

    block = b"\0" + nbytes.to_bytes(2, "little") + (nbytes ^ 0xFFFF).to_bytes(2, "little")
    before, begun = _decoded("1" + _bits(block))
    assert max(before) < _END_OF_BLOCK
    code = next(code for code in _CODES.values() if code.startswith(begun))
    before.append(_SYMBOLS[code])
    lead = code[len(begun) :]
    # Short codes and long ones, so that as many literals as bytes take all bits but the last.
    room, left = 8 * nbytes - 1 - len(lead), nbytes - len(before)
    long = (room - left) // 10
    twos = room - 11 * long - (left - long)
    after = [_TWO] * twos + [_ONE] * (left - long - twos)

    def spelled(chosen: list[int]) -> tuple[bytes, bytes]:
        content = lead + "".join(_CODES[symbol] for symbol in (*chosen, *after)) + "1"
        return bytes([*before, *chosen, *after]), _bytes(content)

    def added(at: int, symbol: int) -> tuple[int, int]:
        """What a chosen literal adds to how far the two sums of Adler-32 are from each other."""
        low, high = symbol, symbol * (nbytes - len(before) - at)
        for bit, value in enumerate(_CODES[symbol], len(lead) + 11 * at):
            if value == "1":
                low -= 1 << bit % 8
                high -= (nbytes - bit // 8) << bit % 8
        return low, high

    chosen = [_LONG[0]] * long
    one, other = spelled(chosen)
    low = sum(one) - sum(other)
    high = sum((nbytes - n) * (a - b) for n, (a, b) in enumerate(zip(one, other, strict=True)))
    # The low sum first, on which a literal has little weight; then both at once.
    *places, most = 1, long // 5, long // 3, long // 2, long
    for at in range(long // 2 + 1, most):
        old = added(at, chosen[at])
        chosen[at] = min(_LONG, key=lambda n, at=at, old=old: abs(low + added(at, n)[0] - old[0]))
        new = added(at, chosen[at])
        low, high = low + new[0] - old[0], high + new[1] - old[1]
    places.insert(0, 0)
    for at in places:
        old = added(at, chosen[at])
        low, high = low - old[0], high - old[1]
    steps = [[(n, *added(at, n)) for n in _LONG] for at in places]
    known = {
        ((b + d) % _MODULUS, (c + e) % _MODULUS): (x, y)
        for (x, b, c), (y, d, e) in product(*steps[:2])
    }
    for (x, b, c), (y, d, e), (z, f, g) in product(*steps[2:]):
        found = known.get((-(low + b + d + f) % _MODULUS, -(high + c + e + g) % _MODULUS))
        if found is not None:
            for at, symbol in zip(places, (*found, x, y, z), strict=True):
                chosen[at] = symbol
            break
    to_zlib, in_pieces = spelled(chosen)
    assert zlib.adler32(same + to_zlib) == zlib.adler32(same + in_pieces)
    adler = zlib.adler32(same + to_zlib).to_bytes(4, "big")
    stream = b"\x78\x01" + first + block + in_pieces + _END + adler
    return TwoFaced(stream, same + to_zlib, same + in_pieces)
