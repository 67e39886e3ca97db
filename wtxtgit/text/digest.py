"""The hashes and signatures of WTXT: fastxor, merkle, HMAC, keyid, and Ed25519.

`docs/spec/wtxt.md`, sections "Root, chain, signature" and "Signature". Raw keys go
in and values come out: where keys come from and which of them are trusted is the
business of `trust`.

Libraries differ in which signatures they take, and some from release to
release: whether the equation is multiplied by the cofactor, whether a point of
small order may stand in it. Here A and R have to be points of order L, for
which all of them say the same.
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
# Up to so many bytes numpy would hardly be faster, and its import takes a thousand times as long.
_FEW = 512 * WORD
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
        # Folded in halves until one word is left.
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
    # A piece that starts within a word: its bytes are turned to where they stand in words of the
    # array.
    shift = offset % WORD * 8
    return (value << shift | value >> (64 - shift)) & _WORD_MASK


def array_hmac(key: bytes, salt: bytes) -> Mac:
    """HMAC-SHA256 over salt || raw; feed it the raw bytes with `update`."""
    return _hmac.new(key, salt, sha256)


def same_mac(a: bytes, b: bytes) -> bool:
    # In constant time: how long it takes must not say how much of a forged one is right.
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


_SIGNATURE_SIZE = 64
_POINT_SIZE = 32
# How many keys are not looked at again: an audit asks for the same few all the time.
_KEYS_KNOWN = 1024


class SignatureState(StrEnum):
    """What became of a text's signature, given the keys at hand."""

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
    """What signs as a key does, whose `sign` gives 64 bytes; `public_key` has 32."""
    return lambda message: Signature(sign(message), keyid(public_key))


def check_header(
    signature: Signature, message: bytes, public_keys: Sequence[bytes]
) -> SignatureState:
    """Check a `sign` line; its keyid says which of the keys are tried."""
    candidates = [key for key in public_keys if keyid(key) == signature.keyid]
    if not candidates:
        return SignatureState.UNKNOWN_KEY
    return _check(signature.signature, message, candidates)


def check_wsum(signature: bytes, message: bytes, public_keys: Sequence[bytes]) -> SignatureState:
    """Check a WSUM's signature, which names no key: every given one is tried."""
    if not public_keys:
        return SignatureState.UNKNOWN_KEY
    return _check(signature, message, public_keys)


def signed_with(signature: bytes, message: bytes, keys: Iterable[bytes]) -> bytes | None:
    """The first of `keys` that made `signature` over `message`, None where none did."""
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    # Of another kind of key, as a bundle's may be.
    if len(signature) != _SIGNATURE_SIZE:
        return None
    for key in keys:
        try:
            # libsodium's check, which takes keys and R of small order in some releases: refused
            # below.
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
    """Whether this is the encoding, in its one spelling, of a point of order L."""
    from nacl.bindings import crypto_core_ed25519_is_valid_point

    return bool(crypto_core_ed25519_is_valid_point(point))


def _check(signature: bytes, message: bytes, keys: Sequence[bytes]) -> SignatureState:
    key = signed_with(signature, message, keys)
    return SignatureState.INVALID if key is None else SignatureState.VALID
