"""Secret files behind a passphrase: the key's file, encrypted by age, armored.

The format is age's (C2SP, age.md) with its scrypt recipient alone. scrypt's
cost is chosen by who wrote the file. pyrage refuses what it estimates at over
16 seconds; as measured, what it still takes can be 8 GiB of memory and a
minute. So the header is read here first, and a cost over MAX_WORK is refused.
pyrage itself writes what takes the machine a second, 2^18 to 2^20.
"""

from __future__ import annotations

import binascii
import re

from wtxtgit.trust.keys import MAX_KEY_FILE, KeyFileError

MAX_WORK = 21
"""Most work that a file may ask for, as log2 of scrypt's N: 2 GiB of memory, some seconds."""

MAX_PASSPHRASE = 1024
"""Most bytes of a passphrase."""

_BEGIN = b"-----BEGIN AGE ENCRYPTED FILE-----"
_END = b"-----END AGE ENCRYPTED FILE-----"
_HEADER = re.compile(
    rb"age-encryption\.org/v1\n"
    rb"-> scrypt [A-Za-z0-9+/]{22} ([1-9][0-9]?)\n"
    rb"[A-Za-z0-9+/]{43}\n"
    rb"--- [A-Za-z0-9+/]{43}\n"
)


class PassphraseError(KeyFileError):
    """A passphrase is not the one of the file, or none at all."""


def is_protected(content: bytes) -> bool:
    """Whether the content of a secret file is behind a passphrase of age's."""
    return content.lstrip().startswith(_BEGIN)


def protect(content: bytes, passphrase: str) -> bytes:
    """Encrypt the content of a secret file; takes a second or so.

    Raises PassphraseError for a passphrase that is empty, too long or no text.
    """
    import pyrage

    protected: bytes = pyrage.passphrase.encrypt(content, _checked(passphrase), armored=True)
    _check_header(_dearmored(protected, "the new key"), "the new key")
    return protected


def unprotect(content: bytes, passphrase: str, name: str) -> bytes:
    """Decrypt the content of a secret file; `name` stands in errors.

    Raises PassphraseError for the wrong passphrase and KeyFileError for a
    file that is no such file or asks for too much work.
    """
    import pyrage

    binary = _dearmored(content, name)
    _check_header(binary, name)
    try:
        opened: bytes = pyrage.passphrase.decrypt(binary, _checked(passphrase))
    except pyrage.DecryptError as error:
        if "work" in str(error).lower():
            raise KeyFileError(f"{name}: takes too long to open on this machine") from None
        raise PassphraseError(f"{name}: the passphrase is wrong, or the file damaged") from None
    return opened


def _check_header(binary: bytes, name: str) -> None:
    header = _HEADER.match(binary)
    if header is None:
        raise KeyFileError(f"{name}: not a file that age encrypted with a passphrase")
    if int(header[1]) > MAX_WORK:
        raise KeyFileError(f"{name}: scrypt with a cost of 2^{int(header[1])}, over 2^{MAX_WORK}")


def _dearmored(content: bytes, name: str) -> bytes:
    armor = content.strip()
    if len(armor) > MAX_KEY_FILE or not (armor.startswith(_BEGIN) and armor.endswith(_END)):
        raise KeyFileError(f"{name}: not a key file behind a passphrase")
    try:
        body = b"".join(armor[len(_BEGIN) : -len(_END)].split())
        return binascii.a2b_base64(body, strict_mode=True)
    except binascii.Error:
        raise KeyFileError(f"{name}: the armor's base64 is damaged") from None


def _checked(passphrase: str) -> str:
    try:
        size = len(passphrase.encode("utf-8"))
    except UnicodeEncodeError:
        raise PassphraseError("the passphrase is no text") from None
    if not 0 < size <= MAX_PASSPHRASE:
        raise PassphraseError(f"a passphrase has 1 to {MAX_PASSPHRASE} bytes")
    return passphrase
