"""Keys in PEM, which tools other than OpenSSH have: EC keys of NIST's curves, and ed25519.

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
    """Whether a key file is PEM, and none of OpenSSH's."""
    return content.startswith(PEM) and not content.startswith(OPENSSH)


@dataclass(frozen=True, slots=True)
class EcPublicKey:
    """An EC key that verifies."""

    key: ec.EllipticCurvePublicKey

    @property
    def hint(self) -> str:
        return _hint(self.key)

    def made(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made a signature over a message."""
        try:
            self.key.verify(signature, message, _ecdsa(self.key.curve))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class EcSecretKey:
    """An EC key that signs; `name` is how messages call it."""

    name: str
    secret: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def hint(self) -> str:
        return _hint(self.secret.public_key())

    def sign(self, message: bytes) -> bytes:
        return self.secret.sign(message, _ecdsa(self.secret.curve))


def ed25519_hint(public_key: bytes) -> str:
    """What a bundle calls an ed25519 key of 32 bytes."""
    return _hint(Ed25519PublicKey.from_public_bytes(public_key))


def parse_pem_public(content: bytes, name: str) -> EcPublicKey | bytes:
    """A public key in PEM, an ed25519 one as its 32 bytes; raises KeyFileError for any other."""
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{name}: no public key in PEM") from None
    if isinstance(key, ec.EllipticCurvePublicKey):
        _check_curve(key.curve, name)
        return EcPublicKey(key)
    if isinstance(key, Ed25519PublicKey):
        raw = key.public_bytes_raw()
        # As of OpenSSH's keys: anybody can sign with such a one.
        if is_small_order(raw):
            raise KeyFileError(f"{name}: an ed25519 key of small order")
        return raw
    raise _other(name)


def parse_pem_secret(content: bytes, name: str, ask: Callable[[str], str] | None) -> EcSecretKey:
    """A secret EC key in PEM; `ask` gives the passphrase of one that has one.

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
        raise KeyFileError(f"{name}: no secret key in PEM") from None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        _check_curve(key.curve, name)
        return EcSecretKey(name, key)
    if isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(
            f"{name}: an ed25519 key in PEM, and those that sign here are OpenSSH's",
            hint="wtxtgit key new makes one",
        )
    raise _other(name)


def _other(name: str) -> KeyFileError:
    return KeyFileError(
        f"{name}: neither an EC key nor an ed25519 one",
        hint="openssl ecparam -name prime256v1 -genkey -noout -out release.pem makes one",
    )


def _check_curve(curve: ec.EllipticCurve, name: str) -> None:
    if curve.name not in _CURVES:
        raise KeyFileError(f"{name}: an EC key of {curve.name}, wanted P-256, P-384 or P-521")


def _ecdsa(curve: ec.EllipticCurve) -> ec.ECDSA:
    return ec.ECDSA(_CURVES[curve.name]())


def _hint(key: ec.EllipticCurvePublicKey | Ed25519PublicKey) -> str:
    # As model-signing has it: of the PEM, its last newline included.
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return sha256(pem).hexdigest()
