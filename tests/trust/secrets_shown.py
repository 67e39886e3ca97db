"""Whether any spelling of a secret is in what was said."""

from __future__ import annotations

from base64 import b64encode

_PIECE = 6
"""Bytes of a secret that tell it from what stands there by chance."""


def assert_not_shown(seed: bytes, *said: str | bytes) -> None:
    """No piece of the seed is told: raw, in hex, as a repr, or in base64 at any offset."""
    for text in said:
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        for spelled in _spellings(seed):
            assert spelled not in data, data


def _spellings(seed: bytes) -> set[bytes]:
    found = set()
    for start in range(len(seed) - _PIECE + 1):
        piece = seed[start : start + _PIECE]
        found |= {piece, piece.hex().encode(), piece.hex().upper().encode()}
        found.add(repr(piece)[2:-1].encode())
    for shift in range(3):
        body = b64encode(seed[shift : shift + (len(seed) - shift) // 3 * 3])
        found |= {body[at : at + 12] for at in range(len(body) - 11)}
    return found
