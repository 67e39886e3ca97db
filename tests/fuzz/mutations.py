"""Seeded mutations of bytes: what transport, editors and attackers do to files."""

from __future__ import annotations

import random
import re

_NUMBER = re.compile(rb"[0-9]+")
_TELLING = b"\x00\t\n\r =-_AZaz+/09fg\x7f\x80\xff,\"'{}[]:"
_EXTREMES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def text_mutant(text: bytes, rng: random.Random) -> bytes:
    """A text with one thing changed."""
    kind = rng.randrange(10)
    at = rng.randrange(len(text))
    if kind < 3:
        return text[:at] + bytes([rng.choice(_TELLING)]) + text[at + 1 :]
    if kind == 3:
        return text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1 :]
    if kind == 4:
        return text[:at]
    if kind == 5:
        return text[:at] + text[at + rng.choice((1, 2, 79, 200)) :]
    if kind == 6:
        return text[:at] + bytes([rng.choice(_TELLING)]) * rng.choice((1, 2, 79)) + text[at:]
    if kind == 7:
        return _swapped_lines(text, rng)
    if kind == 8:
        return _other_number(text, rng)
    return _line_edit(text, rng)


def bytes_mutant(data: bytes, rng: random.Random) -> bytes:
    """A binary file with one to three things changed."""
    made = data
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not made:
            break
        made = _one_change(made, rng)
    return made


def _one_change(data: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(9)
    # Headers and indexes are at the ends: more changes go there than to tensors.
    at = rng.choice((rng.randrange(min(len(data), 300)), rng.randrange(len(data)), -1))
    at = at if at >= 0 else max(0, len(data) - 1 - rng.randrange(min(len(data), 600)))
    if kind < 2:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == 3:
        width = rng.choice((2, 4, 8))
        field = bytes([rng.choice(_EXTREMES)]) * width
        return data[:at] + field + data[at + width :]
    if kind == 4:
        width = rng.choice((2, 4, 8))
        number = rng.choice((0, 1, len(data), len(data) + 1, 2**31, 2**32 - 1, 2**63))
        field = (number % (1 << 8 * width)).to_bytes(width, "little")
        return data[:at] + field + data[at + width :]
    if kind == 5:
        return data[:at]
    if kind == 6:
        return data[:at] + data[at + rng.choice((1, 2, 8, 64)) :]
    if kind == 7:
        return data[:at] + rng.randbytes(rng.choice((1, 2, 8, 64))) + data[at:]
    return _other_number(data, rng)


def _other_number(data: bytes, rng: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data[1:]
    number = rng.choice(found)
    digits = number[0]
    new = rng.choice(
        (
            b"0",
            b"1",
            b"-1",
            b"0" + digits,
            digits + b"0",
            b"9" * len(digits),
            b"9" * 20,
            b"1" + b"0" * 20,
            str(int(digits[:30]) + 1).encode().rjust(len(digits), b"0"),
            str(rng.randrange(1 << 20)).encode().rjust(len(digits), b"0"),
        )
    )
    return data[: number.start()] + new + data[number.end() :]


def _swapped_lines(text: bytes, rng: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return text[::-1]
    one, two = sorted(rng.sample(range(len(lines)), 2))
    lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def _line_edit(text: bytes, rng: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    edit = rng.randrange(4)
    if edit == 0:
        del lines[at]
    elif edit == 1:
        lines.insert(at, lines[at])
    elif edit == 2:
        lines.insert(at, rng.choice(lines))
    else:
        words = lines[at].split(b" ")
        rng.shuffle(words)
        lines[at] = b" ".join(words)
    return b"".join(lines)
