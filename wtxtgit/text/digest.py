"""The hashes of WTXT: hash_all, fastxor, merkle, hmac, keyid.

`docs/spec/wtxt.md`, section "Root, chain, signature".
"""

from __future__ import annotations

import hmac as _hmac
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.view import Buffer
from wtxtgit.model.array import Meta
from wtxtgit.text.grammar import format_gen

WORD = 8
_FEW = 16 * WORD
"""Up to so many bytes a number is folded faster than by numpy; a power of two."""
Mac = _hmac.HMAC
_WORD_MASK = (1 << 64) - 1


def merkle(prev: bytes, sha256_all: bytes, meta: Meta) -> bytes:
    """merkle_this: SHA256(merkle_prev || hash_all || ts || gen || build)."""
    tail = meta.ts + format_gen(meta.gen) + meta.build
    return sha256(prev + sha256_all + tail.encode("ascii")).digest()


def fastxor(raw: Buffer, offset: int = 0) -> int:
    """XOR of the little-endian u64 words of bytes that stand at `offset` of an array.

    The array's own fastxor is the XOR of that of its pieces: bytes before and
    after a piece count as zero.
    """
    if len(raw) <= _FEW and not offset:
        few = int.from_bytes(raw, "little")
        bits = 8 * _FEW
        while bits > 8 * WORD:
            bits //= 2
            few = few >> bits ^ few & (1 << bits) - 1
        return few
    data = np.frombuffer(raw, dtype=np.uint8)
    whole = data.size - data.size % WORD
    words: NDArray[np.uint64] = data[:whole].view("<u8")
    value = int(np.bitwise_xor.reduce(words))
    value ^= int.from_bytes(data[whole:].tobytes(), "little")
    shift = offset % WORD * 8
    return (value << shift | value >> (64 - shift)) & _WORD_MASK


def array_hmac(key: bytes, salt: bytes) -> Mac:
    """HMAC-SHA256 over salt || raw; feed it the raw bytes with `update`."""
    return _hmac.new(key, salt, sha256)


def same_mac(a: bytes, b: bytes) -> bool:
    return _hmac.compare_digest(a, b)


def salt_for(key: bytes, gen: int, name: str) -> bytes:
    """A salt that is the same for the same key, generation and array, 8 bytes.

    Text is a function of its input, so the salt can't be random; bound to the
    generation, equal arrays of two generations still differ in their hmac.
    """
    message = b"wtxtgit salt\0" + format_gen(gen).encode() + b"\0" + name.encode("ascii")
    return _hmac.digest(key, message, sha256)[:8]


def keyid(public_key: bytes) -> str:
    """xxh64 of the 32-byte public key, seed 0, as 16 hex digits of the number."""
    from xxhash import xxh64_hexdigest

    return xxh64_hexdigest(public_key)
