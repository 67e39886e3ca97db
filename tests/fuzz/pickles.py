"""Pickles with opcodes changed, swapped, repeated and put in."""

from __future__ import annotations

import pickletools
import random
import struct
from functools import cache

HUGE = 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1
HOSTILE = (
    *(b"\x8d" + struct.pack("<Q", size) for size in HUGE),
    *(b"\x8e" + struct.pack("<Q", size) for size in HUGE),
    *(b"\x96" + struct.pack("<Q", size) for size in HUGE),
    *(b"\x95" + struct.pack("<Q", size) for size in (0, 3, *HUGE)),
    *(
        code + struct.pack("<I", size)
        for code in (b"X", b"B", b"T", b"r", b"j")
        for size in HUGE[:3]
    ),
    *(b"\x8b" + struct.pack("<i", size) for size in (-1, 0, 1, 256, 2**20, 2**31 - 1)),
    *(b"\x8a\x08" + struct.pack("<q", value) for value in (0, 1, -1, 2**31, 2**62, -(2**63))),
    b"\x8a\xff" + b"\x7f" * 255,
    *(b"(", b"(" * 1000, b")", b"]", b"}", b"\x8f", b"N", b"\x88", b"\x89", b"2", b"0", b"1"),
    *(b"2" * 500, b"0" * 9, b"\x85" * 1000, b"]\x94" * 300, b"\x94", b"t", b"l", b"d", b"e", b"u"),
    *(b"a", b"s", b"\x90", b"\x91", b"R", b"\x81", b"\x92", b"b", b"Q", b"\x93", b"."),
    *(b"cbuiltins\neval\n", b"cos\nsystem\n", b"c" + b"a" * 3000 + b"\nb\n", b"c\xff\n\n", b"ca\n"),
    *(b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n", b"ctorch\nSize\n"),
    *(b"ctorch\nFloatStorage\n", b"ctorch\nQUInt4x2Storage\n", b"ctorch\nbfloat16\n"),
    *(b"h\0", b"q\0", b"h\xff", b"q\xff", b"J\xff\xff\xff\xff", b"M\xff\xff", b"K\0", b"K\x01"),
    *(b"G" + struct.pack(">d", value) for value in (0.0, 1e308, float("nan"), float("inf"))),
    *(b"U\x02\xff\xfe", b"X\x03\0\0\0\xed\xa0\x80", b"\x8c\x01\xff", b"C\x01\xff", b"\x80\x04"),
    *(b"I01\n", b"F1.5\n", b"V\\u0041\n", b"L1L\n", b"S'a'\n", b"P1\n", b"ia\nb\n", b"o", b"p1\n"),
    *(b"\x82\x01", b"\x83\x01\0", b"\x84\x01\0\0\0", b"\x97", b"\x98", b"\xff", b"", b"\0"),
    # A list in itself, and lists that double.
    *(b"]q\x40h\x40a", b"]q\x41(h\x41h\x41e", b"}q\x42(h\x42h\x42u", b"(h\x40h\x40t", b"\x86\x86"),
)
INTEGERS = {b"K": 1, b"M": 2, b"J": 4, b"h": 1, b"q": 1, b"j": 4, b"r": 4}


def pickle_mutant(raw: bytes, rng: random.Random) -> bytes:
    """A run of pickles with one to three of its opcodes changed."""
    codes, rest = opcodes(raw)
    made = list(codes)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if made:
            _change(made, codes, rng)
    return b"".join(made) + rest


@cache
def opcodes(raw: bytes) -> tuple[tuple[bytes, ...], bytes]:
    """The opcodes of all pickles that follow one another, and the bytes after them."""
    found: list[bytes] = []
    start = 0
    while raw[start : start + 1] == b"\x80":
        places = [place for _, _, place in pickletools.genops(raw[start:])]
        ends = [*places[1:], places[-1] + 1]
        found += [raw[start + a : start + b] for a, b in zip(places, ends, strict=True)]
        start += ends[-1]
    return tuple(found), raw[start:]


def _change(made: list[bytes], codes: tuple[bytes, ...], rng: random.Random) -> None:
    at = rng.randrange(len(made))
    kind = rng.randrange(9)
    if kind == 0:
        del made[at]
    elif kind == 1:
        other = rng.randrange(len(made))
        made[at], made[other] = made[other], made[at]
    elif kind == 2:
        made[at:at] = made[at : at + rng.choice((1, 2, 5))] * rng.choice((1, 1, 30))
    elif kind == 3:
        made[at] = rng.choice(codes)
    elif kind == 4:
        made.insert(at, rng.choice(codes))
    elif kind == 5:
        made[at] = rng.choice(HOSTILE)
    elif kind == 6:
        made.insert(at, rng.choice(HOSTILE))
    else:
        numbers = [place for place, code in enumerate(made) if code[:1] in INTEGERS]
        if not numbers:
            return
        place = rng.choice(numbers)
        code = made[place][:1]
        value = int.from_bytes(made[place][1:], "little")
        value = rng.choice((0, 1, value + 1, value - 1, 2 * value, 2**31, -1, rng.randrange(300)))
        made[place] = code + (value % 256 ** INTEGERS[code]).to_bytes(INTEGERS[code], "little")
