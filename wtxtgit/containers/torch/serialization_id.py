"""The fingerprint that torch writes into a file: of its members' names and of their CRC-32.

Two numbers of 20 digits. The second one is made of the CRC-32 of all other
members that are not empty, in their order.
Spec: `docs/spec/torch.md`, "Resealing"; caffe2/serialize/inline_container.cc
"""

from __future__ import annotations

from collections.abc import Iterable

NAME = ".data/serialization_id"
DIGITS = 20
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B9


def updated(old: bytes, was: Iterable[int], now: Iterable[int]) -> bytes:
    """The fingerprint of the members with the CRC-32 `now`.

    It stays the one that it is where it was not made of `was` in that way.
    """
    if len(old) != 2 * DIGITS or old[DIGITS:] != _number(was):
        return old
    return old[:DIGITS] + _number(now)


def _number(crc32s: Iterable[int]) -> bytes:
    """The CRC-32 of all members in one number, as c10's hash_combine makes it."""
    seed = 0
    for crc32 in crc32s:
        seed ^= (crc32 + _GOLDEN + (seed << 6) + (seed >> 2)) & _MASK
    return f"{seed:0{DIGITS}}".encode("ascii")
