"""Ed25519 over a text's header, a WSUM line or a record; raw keys in, values out.

`docs/spec/wtxt.md`, section "Root, chain, signature". Where keys come from and
which of them are trusted is the business of `trust`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from wtxtgit.model import Signature
from wtxtgit.text.digest import keyid


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
        return key
    return None


def _check(signature: bytes, message: bytes, keys: Sequence[bytes]) -> SignatureState:
    made = signed_with(signature, message, keys) is not None
    return SignatureState.VALID if made else SignatureState.INVALID
