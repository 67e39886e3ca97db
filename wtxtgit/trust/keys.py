"""Ed25519 keys as people have them: OpenSSH files.

Public keys come as allowed_signers lines (ssh-keygen(1), "ALLOWED SIGNERS") or
as the single line of a `.pub` file; secret ones as unencrypted OpenSSH
private key files (PROTOCOL.key of OpenSSH). Only ed25519 is taken. Secret
material is never part of an error, a repr or a log.
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass, field

from wtxtgit.errors import InputError

KEY_TYPE = b"ssh-ed25519"
PUBLIC_SIZE = 32
SEED_SIZE = 32
MAX_KEY_FILE = 64 * 1024
MAX_SIGNERS_FILE = 4 * 1024 * 1024

_BEGIN = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_END = b"-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"
_PRINCIPAL = re.compile(r"[^\s\"=]+")


@dataclass(frozen=True, slots=True)
class Signer:
    """Who may sign with which key: `public_key` is 32 raw bytes."""

    principal: str
    public_key: bytes
    comment: str = ""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """An ed25519 secret: `seed` is 32 raw bytes and never shown."""

    seed: bytes = field(repr=False)
    public_key: bytes


class KeyFileError(InputError):
    """A key file is not what it has to be."""


def parse_signers(content: bytes, name: str) -> tuple[Signer, ...]:
    """Parse the content of a signers file; `name` stands in errors.

    A line is `principal ssh-ed25519 KEY [comment]` or `ssh-ed25519 KEY
    [comment]`; empty lines and lines that start with `#` say nothing. Raises
    KeyFileError for everything else, for other key types and for options.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{name}: not UTF-8 at byte {error.start}") from None
    signers = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            signers.append(_parse_signer(stripped, f"{name}: line {number}"))
    return tuple(signers)


def parse_secret_key(content: bytes, name: str) -> SecretKey:
    """Parse an unencrypted OpenSSH ed25519 private key; raises KeyFileError."""
    armor = content.strip()
    if not armor.startswith(_BEGIN) or not armor.endswith(_END):
        raise KeyFileError(
            f"{name}: not an OpenSSH private key",
            hint="ssh-keygen -t ed25519 -N '' -f FILE makes one",
        )
    try:
        body = b"".join(armor[len(_BEGIN) : -len(_END)].split())
        blob = binascii.a2b_base64(body, strict_mode=True)
    except binascii.Error:
        raise KeyFileError(f"{name}: the key's base64 is damaged") from None
    if not blob.startswith(_MAGIC):
        raise KeyFileError(f"{name}: not an openssh-key-v1 key")
    outer = _Strings(blob[len(_MAGIC) :], name)
    cipher, kdf, _options = outer.take(), outer.take(), outer.take()
    if cipher != b"none" or kdf != b"none":
        raise KeyFileError(f"{name}: the key is protected by a passphrase")
    if outer.number() != 1:
        raise KeyFileError(f"{name}: the file does not hold exactly one key")
    outer.take()
    inner = _Strings(outer.take(), name)
    if inner.number() != inner.number():
        raise KeyFileError(f"{name}: the key's check numbers differ")
    if inner.take() != KEY_TYPE:
        raise KeyFileError(f"{name}: not an ed25519 key")
    public, secret = inner.take(), inner.take()
    if len(public) != PUBLIC_SIZE or secret[SEED_SIZE:] != public:
        raise KeyFileError(f"{name}: the ed25519 key has the wrong size")
    return SecretKey(secret[:SEED_SIZE], public)


def _parse_signer(line: str, where: str) -> Signer:
    words = line.split(None, 3)
    if words[0] == KEY_TYPE.decode():
        words = ["", *line.split(None, 2)]
    if len(words) < 3 or (words[0] and _PRINCIPAL.fullmatch(words[0]) is None):
        raise KeyFileError(f"{where}: not of the form principal ssh-ed25519 KEY [comment]")
    if words[1] != KEY_TYPE.decode():
        raise KeyFileError(f'{where}: "{words[1][:40]}" is an option or another type of key')
    try:
        blob = binascii.a2b_base64(words[2], strict_mode=True)
    except (binascii.Error, ValueError):
        raise KeyFileError(f"{where}: the key's base64 is damaged") from None
    fields = _Strings(blob, where)
    kind, key = fields.take(), fields.take()
    if kind != KEY_TYPE or len(key) != PUBLIC_SIZE or not fields.at_end:
        raise KeyFileError(f"{where}: not an ed25519 public key")
    return Signer(words[0], key, words[3] if len(words) > 3 else "")


class _Strings:
    """Bounded reads of SSH strings (RFC 4251, section 5)."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._pos = 0
        self._name = name

    @property
    def at_end(self) -> bool:
        return self._pos == len(self._data)

    def number(self) -> int:
        return int.from_bytes(self._bytes(4), "big")

    def take(self) -> bytes:
        return self._bytes(self.number())

    def _bytes(self, size: int) -> bytes:
        end = self._pos + size
        if end > len(self._data):
            raise KeyFileError(f"{self._name}: the key is cut short")
        found = self._data[self._pos : end]
        self._pos = end
        return found
