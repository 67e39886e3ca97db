"""Files with shared secrets: keys of encrypted FOLD chunks (AES-256), and of HMACs."""

from __future__ import annotations

import re
from pathlib import Path

from wtxtgit.errors import InputError
from wtxtgit.io.files import read_small, shown

_KEY_BYTES = 32
_MAX_KEY_FILE = 4096
_MAX_HMAC_KEY = 1024 * 1024
_HEX = re.compile(rb"[0-9A-Fa-f]{64}")


def aes_key(path: Path) -> bytes:
    """Return the key in a file of 32 bytes or 64 hex digits.

    Raises InputError for any other file.
    """
    content = read_small(path, _MAX_KEY_FILE, "a key")
    if len(content) == _KEY_BYTES:
        return content
    digits = content.strip()
    if _HEX.fullmatch(digits) is None:
        raise InputError(f"{shown(path)}: not a key of 32 bytes or 64 hex digits")
    return bytes.fromhex(digits.decode())


def key_bytes(path: Path | None) -> bytes | None:
    """Return the bytes of a key file unchanged; raises InputError for an empty one."""
    if path is None:
        return None
    key = read_small(path, _MAX_HMAC_KEY, "a key")
    if not key:
        raise InputError(f"{shown(path)}: the key file is empty")
    return key
