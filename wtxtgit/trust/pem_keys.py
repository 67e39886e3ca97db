"""Keys in PEM, which tools other than OpenSSH use: EC keys on NIST curves, and ed25519.

`docs/spec/release.md`, "The bundle", says what they sign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from wtxtgit.trust.openssh import KeyFileError, is_small_order

PEM = b"-----BEGIN "
OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_CURVES: dict[str, type[HashAlgorithm]] = {
    "secp256r1": SHA256,
    "secp384r1": SHA384,
    "secp521r1": SHA512,
}


def is_pem(content: bytes) -> bool:
    """Tell whether a key file is PEM other than OpenSSH's format."""
    return content.startswith(PEM) and not content.startswith(OPENSSH)


@dataclass(frozen=True, slots=True)
class EcPublicKey:
    """An EC key for verification."""

    key: ec.EllipticCurvePublicKey

    @property
    def hint(self) -> str:
        return _hint(self.key)

    def made(self, signature: bytes, message: bytes) -> bool:
        """Tell whether a signature over a message was made by this key."""
        try:
            self.key.verify(signature, message, _ecdsa(self.key.curve))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class EcSecretKey:
    """An EC key for signing; messages call it `name`."""

    name: str
    secret: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def hint(self) -> str:
        return _hint(self.secret.public_key())

    def sign(self, message: bytes) -> bytes:
        return self.secret.sign(message, _ecdsa(self.secret.curve))


def ed25519_hint(public_key: bytes) -> str:
    """Return the hint by which a bundle names an ed25519 key (32 bytes)."""
    return _hint(Ed25519PublicKey.from_public_bytes(public_key))


def parse_pem_public(content: bytes, name: str) -> EcPublicKey | bytes:
    """Parse a public key in PEM; returns 32 bytes for ed25519. Raises KeyFileError."""
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{name}: not a public key in PEM") from None
    if isinstance(key, ec.EllipticCurvePublicKey):
        _check_curve(key.curve, name)
        return EcPublicKey(key)
    if isinstance(key, Ed25519PublicKey):
        raw = key.public_bytes_raw()
        # As with OpenSSH's keys: anybody could sign with such a key.
        if is_small_order(raw):
            raise KeyFileError(f"{name}: an ed25519 key of small order")
        return raw
    raise _other(name)


def parse_pem_secret(content: bytes, name: str, ask: Callable[[str], str] | None) -> EcSecretKey:
    """Parse a secret EC key in PEM; `ask` returns the passphrase if the key has one.

    Raises KeyFileError, and whatever `ask` raises.
    """
    try:
        key = load_pem_private_key(content, None)
    except TypeError:
        if ask is None:
            raise KeyFileError(f"{name}: the key is protected by a passphrase") from None
        passphrase = ask(name).encode()
        try:
            key = load_pem_private_key(content, passphrase)
        except (ValueError, UnsupportedAlgorithm):
            raise KeyFileError(f"{name}: the passphrase does not open the key") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{name}: not a secret key in PEM") from None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        _check_curve(key.curve, name)
        return EcSecretKey(name, key)
    if isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(
            f"{name}: an ed25519 key in PEM, but only OpenSSH's format is supported",
            hint="wtxtgit key new makes one",
        )
    raise _other(name)


def _other(name: str) -> KeyFileError:
    return KeyFileError(
        f"{name}: neither an EC key nor an ed25519 key",
        hint="openssl ecparam -name prime256v1 -genkey -noout -out release.pem makes one",
    )


def _check_curve(curve: ec.EllipticCurve, name: str) -> None:
    if curve.name not in _CURVES:
        raise KeyFileError(f"{name}: an EC key on {curve.name}, not P-256, P-384 or P-521")


def _ecdsa(curve: ec.EllipticCurve) -> ec.ECDSA:
    return ec.ECDSA(_CURVES[curve.name]())


def _hint(key: ec.EllipticCurvePublicKey | Ed25519PublicKey) -> str:
    # As in model-signing: the hash of the PEM, with its last newline.
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return sha256(pem).hexdigest()
