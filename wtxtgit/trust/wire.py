"""SSH's spelling of data: strings (RFC 4251, section 5) and ed25519 keys (RFC 8709, section 4)."""

from __future__ import annotations

from collections.abc import Callable

from wtxtgit.errors import WtxtgitError

KEY_TYPE = b"ssh-ed25519"
PUBLIC_SIZE = 32
SIGNATURE_SIZE = 64

_NUMBER_SIZE = 4


class Strings:
    """Bounded reads of numbers and strings, in order.

    `cut_short` makes the error that is raised where more is claimed than is
    there.
    """

    def __init__(self, data: bytes, cut_short: Callable[[], WtxtgitError]) -> None:
        self._data = data
        self._pos = 0
        self._cut_short = cut_short

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._data) - self._pos

    def number(self) -> int:
        return int.from_bytes(self.take(_NUMBER_SIZE), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise self._cut_short()
        found = self._data[self._pos : self._pos + size]
        self._pos += size
        return found

    def rest(self) -> bytes:
        return self.take(self.left)


def number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_SIZE, "big")


def string(data: bytes) -> bytes:
    return number(len(data)) + data


_PUBLIC_HEAD = string(KEY_TYPE) + number(PUBLIC_SIZE)
_SIGNATURE_HEAD = string(KEY_TYPE) + number(SIGNATURE_SIZE)


def public_blob(public_key: bytes) -> bytes:
    """Spell an ed25519 public key (32 bytes)."""
    return _PUBLIC_HEAD + public_key


def parse_public_blob(blob: bytes) -> bytes | None:
    """The 32 bytes of an ed25519 public key; None for anything else."""
    return _after(_PUBLIC_HEAD, blob, PUBLIC_SIZE)


def parse_signature_blob(blob: bytes) -> bytes | None:
    """The 64 bytes of an ed25519 signature; None for anything else."""
    return _after(_SIGNATURE_HEAD, blob, SIGNATURE_SIZE)


def _after(head: bytes, blob: bytes, size: int) -> bytes | None:
    if not blob.startswith(head) or len(blob) != len(head) + size:
        return None
    return blob[len(head) :]
