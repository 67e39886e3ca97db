"""Files encrypted with a passphrase (C2SP, age.md, "The scrypt recipient type").

The writer of a file chooses the cost of scrypt, so it is read before any work is done, and refused
if it exceeds MAX_WORK.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from wtxtgit.errors import AgeError
from wtxtgit.io.view import Buffer
from wtxtgit.trust.age import header, payload
from wtxtgit.trust.age.armor import MAGIC, armored
from wtxtgit.trust.age.header import SCRYPT, Stanza

MAX_WORK = 21
"""Most work that a file may ask for, as log2 of scrypt's N: 2 GiB of memory, some seconds."""
WORK = 18
"""The work of files that are written here, as in age itself: 256 MiB, and about a second."""

_LABEL = b"age-encryption.org/v1/scrypt"
_SALT = 16
_WORK = re.compile(r"[1-9][0-9]?")


def unwrapped(stanza: Stanza, passphrase: str, name: str) -> bytes | None:
    """Return the file key in a stanza; None if it has another passphrase.

    Raises AgeError if the stanza is damaged or asks for too much work.
    """
    salt, work = (*stanza.arguments, "", "")[:2]
    salt_bytes = header.decode(salt.encode())
    is_number = _WORK.fullmatch(work) is not None
    is_whole = len(stanza.arguments) == 2 and salt_bytes is not None and len(salt_bytes) == _SALT
    if not (is_whole and is_number and len(stanza.body) == payload.FILE_KEY_SIZE + 16):
        raise AgeError(f"{name}: the age header is damaged: a recipient of type {SCRYPT}")
    if int(work) > MAX_WORK:
        raise AgeError(f"{name}: its scrypt cost is 2^{work}, over the limit of 2^{MAX_WORK}")
    key = _key(passphrase, salt_bytes or b"", int(work))
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), stanza.body, None)
    except InvalidTag:
        return None


def encrypted(content: Iterable[Buffer], passphrase: str, work: int = WORK) -> Iterator[bytes]:
    """Yield the armored file that encrypts a content, given in pieces, with a passphrase."""
    yield from armored(_encrypted(content, passphrase, work))


def _encrypted(content: Iterable[Buffer], passphrase: str, work: int) -> Iterator[bytes]:
    file_key, salt = os.urandom(payload.FILE_KEY_SIZE), os.urandom(_SALT)
    wrapped = ChaCha20Poly1305(_key(passphrase, salt, work)).encrypt(bytes(12), file_key, None)
    stanza = Stanza(SCRYPT, (header.encode(salt).decode(), str(work)), wrapped)
    covered = MAGIC + b"\n" + header.format_stanza(stanza) + b"---"
    mac = hmac.digest(payload.derived(file_key, None, b"header"), covered, "sha256")
    yield covered + b" " + header.encode(mac) + b"\n"
    yield from payload.sealed(content, file_key)


def _key(passphrase: str, salt: bytes, work: int) -> bytes:
    kdf = Scrypt(salt=_LABEL + salt, length=32, n=1 << work, r=8, p=1)
    return kdf.derive(passphrase.encode("utf-8"))
