"""The hashes and signatures of WTXT: fastxor, merkle, HMAC, keyid, and Ed25519.

`docs/spec/wtxt.md`, sections "Root, chain, signature" and "Signature". These functions take raw
keys; where keys come from and which of them are trusted is decided in `trust`.

Libraries differ, some of them between releases, in which Ed25519 signatures they accept: whether
the equation is multiplied by the cofactor, and whether points of small order are allowed. Here A
and R must be points of order L, for which all libraries agree.
"""

from __future__ import annotations

import hmac as _hmac
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any

from wtxtgit.io.view import Buffer
from wtxtgit.model.array import Meta, Signature
from wtxtgit.text.grammar import format_gen

WORD = 8
# Up to this many bytes numpy is hardly faster, and its import takes a thousand times as long.
_FEW = 512 * WORD
Mac = _hmac.HMAC
_WORD_MASK = (1 << 64) - 1


def merkle(prev: bytes, sha256_all: bytes, meta: Meta) -> bytes:
    """Return merkle_this: SHA256(merkle_prev || hash_all || ts || gen || build)."""
    tail = meta.ts + format_gen(meta.gen) + meta.build
    return sha256(prev + sha256_all + tail.encode("ascii")).digest()


def fastxor(raw: Buffer, offset: int = 0) -> int:
    """Return the XOR of the little-endian u64 words of bytes that stand at `offset` of an array.

    The fastxor of an array is the XOR of those of its pieces: bytes of a word before or after the
    piece count as zero.
    """
    if len(raw) <= _FEW and not offset:
        # XOR one half into the other until one word is left.
        few = int.from_bytes(raw, "little")
        bits = 1 << (8 * len(raw)).bit_length()
        while bits > 8 * WORD:
            bits //= 2
            few = few >> bits ^ few & (1 << bits) - 1
        return few
    import numpy as np

    data = np.frombuffer(raw, dtype=np.uint8)
    whole = data.size - data.size % WORD
    words: np.ndarray[Any, np.dtype[np.uint64]] = data[:whole].view("<u8")
    value = int(np.bitwise_xor.reduce(words))
    value ^= int.from_bytes(data[whole:].tobytes(), "little")
    # A piece that starts inside a word: rotate the bytes to their places in the array's words.
    shift = offset % WORD * 8
    return (value << shift | value >> (64 - shift)) & _WORD_MASK


def array_hmac(key: bytes, salt: bytes) -> Mac:
    """HMAC-SHA256 over salt || raw; feed it the raw bytes with `update`."""
    return _hmac.new(key, salt, sha256)


def same_mac(a: bytes, b: bytes) -> bool:
    # Compared in constant time: timing must not reveal how much of a forged HMAC is right.
    return _hmac.compare_digest(a, b)


def salt_for(key: bytes, gen: int, name: str) -> bytes:
    """Return the salt (8 bytes) for an array, derived from key, generation and name.

    Text is a function of its input, so the salt can't be random. Since it depends on the
    generation, equal arrays of two generations still differ in their hmac.
    """
    message = b"wtxtgit salt\0" + format_gen(gen).encode() + b"\0" + name.encode("ascii")
    return _hmac.digest(key, message, sha256)[:8]


def keyid(public_key: bytes) -> str:
    """Return the xxh64 (seed 0) of the 32-byte public key, as a number in 16 hex digits."""
    from xxhash import xxh64_hexdigest

    return xxh64_hexdigest(public_key)


_SIGNATURE_SIZE = 64
_POINT_SIZE = 32
# How many keys are cached: an audit asks for the same few again and again.
_KEYS_KNOWN = 1024


class SignatureState(StrEnum):
    """The result of checking a text's signature with the keys that are available."""

    ABSENT = "absent"
    UNKNOWN_KEY = "unknown-key"
    VALID = "valid"
    INVALID = "invalid"


def sign(seed: bytes, message: bytes) -> Signature:
    """Sign `message` with the ed25519 key of `seed` (32 bytes)."""
    from nacl.signing import SigningKey

    key = SigningKey(seed)
    return signer(lambda covered: key.sign(covered).signature, bytes(key.verify_key))(message)


def signer(sign: Callable[[bytes], bytes], public_key: bytes) -> Callable[[bytes], Signature]:
    """Return a signer for a key whose `sign` returns 64 bytes; `public_key` has 32."""
    return lambda message: Signature(sign(message), keyid(public_key))


def check_header(
    signature: Signature, message: bytes, public_keys: Sequence[bytes]
) -> SignatureState:
    """Check a `sign` line with those of the keys that have its keyid."""
    candidates = [key for key in public_keys if keyid(key) == signature.keyid]
    if not candidates:
        return SignatureState.UNKNOWN_KEY
    return _check(signature.signature, message, candidates)


def check_wsum(signature: bytes, message: bytes, public_keys: Sequence[bytes]) -> SignatureState:
    """Check a WSUM's signature, which names no key: every given key is tried."""
    if not public_keys:
        return SignatureState.UNKNOWN_KEY
    return _check(signature, message, public_keys)


def signed_with(signature: bytes, message: bytes, keys: Iterable[bytes]) -> bytes | None:
    """Return the first of `keys` that made `signature` over `message`, None if none did."""
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    # A signature by another kind of key, such as a bundle may contain.
    if len(signature) != _SIGNATURE_SIZE:
        return None
    for key in keys:
        try:
            # libsodium's check accepts keys and R of small order in some releases: refused below.
            VerifyKey(key).verify(message, signature)
        except BadSignatureError:
            continue
        if _is_key(key) and _has_order_l(signature[:_POINT_SIZE]):
            return key
    return None


@lru_cache(_KEYS_KNOWN)
def _is_key(key: bytes) -> bool:
    return _has_order_l(key)


def _has_order_l(point: bytes) -> bool:
    """Whether `point` is the canonical encoding of a point of order L."""
    from nacl.bindings import crypto_core_ed25519_is_valid_point

    return bool(crypto_core_ed25519_is_valid_point(point))


def _check(signature: bytes, message: bytes, keys: Sequence[bytes]) -> SignatureState:
    key = signed_with(signature, message, keys)
    return SignatureState.INVALID if key is None else SignatureState.VALID
