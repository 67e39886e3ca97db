"""Identities, which decrypt files, and the files that hold them (C2SP, age.md, "recipient types").

An identity file has AGE-SECRET-KEY lines as age-keygen writes them, or is an OpenSSH ed25519 key;
either may be encrypted by age with a passphrase. No repr shows a secret.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256, sha512
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from wtxtgit.errors import AgeError
from wtxtgit.io.view import ByteView
from wtxtgit.trust.age import header, payload, scrypt
from wtxtgit.trust.age.armor import dearmored
from wtxtgit.trust.age.header import SSH_ED25519, X25519, Header, Stanza
from wtxtgit.trust.openssh import KeyFileError, SecretKey, parse_secret_key, public_blob

_X25519_LABEL = b"age-encryption.org/v1/X25519"
_SSH_LABEL = b"age-encryption.org/v1/ssh-ed25519"
_WRAPPED = payload.FILE_KEY_SIZE + 16
_TAG_BYTES = 4
_SECRET = "AGE-SECRET-KEY-1"  # noqa: S105
_OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_BECH32 = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"
_CHECKSUM = 6


class AgeIdentity(Protocol):
    """Something that may decrypt a file."""

    @property
    def kind(self) -> str:
        """The type of the stanzas that it unwraps."""

    def unwrapped(self, stanza: Stanza, name: str) -> bytes | None:
        """Return the file key in a stanza of its type; None if the stanza is for another identity.

        Raises AgeError if the stanza breaks the rules of its type.
        """


@dataclass(frozen=True, slots=True)
class X25519Identity:
    """An age key: `secret` is 32 bytes, `recipient` its public half in age's notation."""

    secret: bytes = field(repr=False)
    recipient: str
    kind: str = X25519

    def unwrapped(self, stanza: Stanza, name: str) -> bytes | None:
        """See `AgeIdentity.unwrapped`."""
        share = header.decode(stanza.arguments[0].encode()) if stanza.arguments else None
        _check(stanza, name, len(stanza.arguments) == 1, share)
        key = X25519PrivateKey.from_private_bytes(self.secret)
        shared = _exchange(key, share or b"", name)
        salt = (share or b"") + _raw(key)
        return _unsealed(stanza.body, payload.derived(shared, salt, _X25519_LABEL))


@dataclass(frozen=True, slots=True)
class SshIdentity:
    """An OpenSSH ed25519 key."""

    key: SecretKey
    kind: str = SSH_ED25519

    def unwrapped(self, stanza: Stanza, name: str) -> bytes | None:
        """See `AgeIdentity.unwrapped`."""
        tag, share = (*stanza.arguments, "", "")[:2]
        point = header.decode(share.encode())
        _check(stanza, name, len(stanza.arguments) == 2, point)
        if tag != ssh_tag(self.key.public_key):
            return None
        # RFC 8032, 5.1.5: the scalar is the first half of the hash of the seed. X25519 clamps it.
        own = X25519PrivateKey.from_private_bytes(sha512(self.key.seed).digest()[:32])
        blob = public_blob(self.key.public_key)
        tweak = X25519PrivateKey.from_private_bytes(payload.derived(b"", blob, _SSH_LABEL))
        shared = _exchange(tweak, _exchange(own, point or b"", name), name)
        salt = (point or b"") + _raw(own)
        return _unsealed(stanza.body, payload.derived(shared, salt, _SSH_LABEL))


@dataclass(frozen=True, slots=True)
class Passphrase:
    """A passphrase for files that are encrypted with one."""

    words: str = field(repr=False)
    kind: str = header.SCRYPT

    def unwrapped(self, stanza: Stanza, name: str) -> bytes | None:
        """See `AgeIdentity.unwrapped`."""
        return scrypt.unwrapped(stanza, self.words, name)


def ssh_tag(public_key: bytes) -> str:
    """Return the tag by which a stanza names its SSH key."""
    return header.encode(sha256(public_blob(public_key)).digest()[:_TAG_BYTES]).decode()


def file_key(head: Header, identities: Iterable[AgeIdentity], name: str) -> bytes | None:
    """Return the file key, by the first identity that can unwrap it; None if none can.

    Raises AgeError if the header was modified or breaks a rule.
    """
    if head.is_passphrase and len(head.stanzas) > 1:
        raise AgeError(
            f"{name}: it has both a passphrase and other recipients, which age does not allow"
        )
    for identity in identities:
        for stanza in head.stanzas:
            if stanza.kind != identity.kind:
                continue
            key = identity.unwrapped(stanza, name)
            if key is None:
                continue
            mac = hmac.digest(payload.derived(key, None, b"header"), head.covered, "sha256")
            if not hmac.compare_digest(mac, head.mac):
                raise AgeError(f"{name}: the age header was changed after it was written")
            return key
    return None


def opened(data: ByteView, identities: Iterable[AgeIdentity], name: str) -> ByteView:
    """Return a view of the content of an age file, armored or not, which is decrypted when read.

    Raises AgeError here, and when damaged content is read. Content is never written to disk.
    """
    binary = dearmored(data, name)
    head = header.parse(binary, name)
    keys = tuple(identities)
    key = file_key(head, keys, name)
    if key is None:
        raise NoIdentityError(f"{name}: {_why_closed(head, keys)}")
    return payload.opened(binary[head.nbytes :], key, name)


def _why_closed(head: Header, keys: Iterable[AgeIdentity]) -> str:
    is_passphrase = any(identity.kind == header.SCRYPT for identity in keys)
    if not head.is_passphrase:
        return "it opens with a key, not a passphrase" if is_passphrase else NO_MATCH
    # A wrong passphrase can't be told from damage to the passphrase's stanza.
    return "the passphrase is wrong or the file is damaged" if is_passphrase else NO_KEY


NO_MATCH = "no identity matched any of the recipients"
NO_KEY = "it opens with a passphrase, not a key"


class NoIdentityError(AgeError):
    """None of the identities can decrypt a file; nothing else is known to be wrong with it."""


def parse_file(content: bytes, name: str) -> tuple[X25519Identity | SshIdentity, ...]:
    """Parse an unencrypted identity file; raises KeyFileError, also if it is empty."""
    if content.lstrip().startswith(_OPENSSH):
        return (SshIdentity(parse_secret_key(content, name)),)
    try:
        lines = content.decode("ascii", "strict" if b"#" not in content else "replace").splitlines()
    except UnicodeDecodeError:
        raise KeyFileError(f"{name}: not an identity file") from None
    words = [
        (number, line.strip())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    identities = tuple(_parse_secret(word, f"{name}: line {number}") for number, word in words)
    if not identities:
        raise KeyFileError(f"{name}: has no identity")
    return identities


def _parse_secret(word: str, where: str) -> X25519Identity:
    import pyrage

    # No part of the line is shown: it may be a mistyped secret.
    if word.startswith("AGE-PLUGIN-"):
        raise KeyFileError(f"{where}: an identity for an age plugin, which wtxtgit does not run")
    try:
        identity = pyrage.x25519.Identity.from_str(word)
    except pyrage.IdentityError:
        raise KeyFileError(f"{where}: not an identity (AGE-SECRET-KEY-1...)") from None
    # pyrage has validated the string but returns no bytes: each character is five bits (BIP 173).
    number = 0
    for character in word.upper().removeprefix(_SECRET)[:-_CHECKSUM]:
        number = number << 5 | _BECH32.index(character)
    return X25519Identity((number >> 4).to_bytes(32, "big"), str(identity.to_public()))


def _check(stanza: Stanza, name: str, is_whole: bool, share: bytes | None) -> None:
    if not is_whole or share is None or len(share) != 32 or len(stanza.body) != _WRAPPED:
        raise AgeError(f"{name}: the age header is damaged: a recipient of type {stanza.kind}")


def _exchange(key: X25519PrivateKey, share: bytes, name: str) -> bytes:
    try:
        return key.exchange(X25519PublicKey.from_public_bytes(share))
    except ValueError:
        # A point of small order, for which the shared secret would be known to anybody.
        raise AgeError(f"{name}: the age header is damaged: a recipient without a secret") from None


def _raw(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def _unsealed(wrapped: bytes, key: bytes) -> bytes | None:
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), wrapped, None)
    except InvalidTag:
        return None
