"""Ed25519 over a text's header, a WSUM line or a record; raw keys in, values out.

`docs/spec/wtxt.md`, section "Signature". Where keys come from and which of them
are trusted is the business of `trust`.

Libraries differ in which signatures they take, and some from release to
release: whether the equation is multiplied by the cofactor, whether a point of
small order may stand in it. Here A and R have to be points of order L, for
which all of them say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache

from wtxtgit.model.array import Signature
from wtxtgit.text.digest import keyid

_POINT_SIZE = 32
_KEYS_HELD = 1024
"""How many keys are not looked at again: an audit asks for the same few all the time."""


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
    return Signature(key.sign(message).signature, keyid(bytes(key.verify_key)))


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

    for key in keys:
        try:
            VerifyKey(key).verify(message, signature)
        except BadSignatureError:
            continue
        if _is_key(key) and _has_order_l(signature[:_POINT_SIZE]):
            return key
    return None


@lru_cache(_KEYS_HELD)
def _is_key(key: bytes) -> bool:
    return _has_order_l(key)


def _has_order_l(point: bytes) -> bool:
    """Whether this is the encoding, in its one spelling, of a point of order L."""
    from nacl.bindings import crypto_core_ed25519_is_valid_point

    return bool(crypto_core_ed25519_is_valid_point(point))


def _check(signature: bytes, message: bytes, keys: Sequence[bytes]) -> SignatureState:
    made = signed_with(signature, message, keys) is not None
    return SignatureState.VALID if made else SignatureState.INVALID
