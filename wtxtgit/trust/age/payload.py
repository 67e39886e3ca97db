"""The payload of an age file (C2SP, age.md, "payload"): chunks of 64 KiB, each encrypted
separately.

A chunk's nonce consists of its number and whether it is the last. So a chunk that was changed,
moved or left out does not decrypt, nor does the end of a truncated file. Any chunk can be decrypted
without the others.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wtxtgit.errors import AgeError
from wtxtgit.io.view import Buffer, ByteView, Windowed, mapped

FILE_KEY_SIZE = 16

_CHUNK = 64 * 1024
_TAG = 16
_SEALED = _CHUNK + _TAG
_NONCE = 16
_MOST_CACHED = 8
"""Most decrypted chunks that are cached: several threads may each read adjacent lines."""


def derived(secret: bytes, salt: bytes | None, info: bytes) -> bytes:
    """Derive a 32-byte key with HKDF-SHA-256."""
    return HKDF(SHA256(), 32, salt, info).derive(secret)


def plain_size(nbytes: int, name: str) -> int:
    """Return the plaintext size of a payload of `nbytes` bytes.

    Raises AgeError for impossible sizes.
    """
    sealed = nbytes - _NONCE
    chunks = -(-sealed // _SEALED)
    last = sealed - (chunks - 1) * _SEALED
    # Only an empty file has an empty last chunk.
    if chunks < 1 or last < _TAG or (last == _TAG and chunks > 1):
        raise _cut_short(name)
    return sealed - chunks * _TAG


def opened(payload: ByteView, file_key: bytes, name: str) -> ByteView:
    """Return a view of a payload's plaintext, decrypted when it is read.

    The last chunk is decrypted here, so that a truncated file is refused. Raises AgeError here, and
    when a damaged part is read.
    """
    chunks = _SealedChunks(payload, file_key, name)
    chunks.window(max(0, chunks.nbytes - 1), chunks.nbytes)
    return Windowed(chunks)


def sealed(content: Iterable[Buffer], file_key: bytes) -> Iterator[bytes]:
    """Yield the payload that encrypts a content given in pieces."""
    nonce = os.urandom(_NONCE)
    cipher = ChaCha20Poly1305(derived(file_key, nonce, b"payload"))
    yield nonce
    pending = bytearray()
    number = 0
    for piece in content:
        pending += piece
        # A full chunk may be the last: that is only known when another byte follows.
        while len(pending) > _CHUNK:
            yield cipher.encrypt(_nonce(number, is_last=False), bytes(pending[:_CHUNK]), None)
            del pending[:_CHUNK]
            number += 1
    yield cipher.encrypt(_nonce(number, is_last=True), bytes(pending), None)


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def _cut_short(name: str) -> AgeError:
    return AgeError(f"{name}: the encrypted content is cut short")


@final
class _SealedChunks:
    """`Windows` over the plaintext of a payload."""

    def __init__(self, payload: ByteView, file_key: bytes, name: str) -> None:
        self.nbytes = plain_size(len(payload), name)
        self._name = name
        self._sealed = payload[_NONCE:]
        self._count = -(-len(self._sealed) // _SEALED)
        self._cipher = ChaCha20Poly1305(derived(file_key, bytes(payload[:_NONCE]), b"payload"))
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._lock = Lock()

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end); raises AgeError if a chunk does not decrypt."""
        first = start // _CHUNK
        last = max(first + 1, -(-end // _CHUNK))
        parts = [self._chunk(number) for number in range(first, last)]
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        return memoryview(whole)[start - first * _CHUNK : end - first * _CHUNK]

    def _chunk(self, number: int) -> bytes:
        with self._lock:
            if (cached := self._cache.get(number)) is not None:
                self._cache.move_to_end(number)
                return cached
        part = mapped(self._sealed[number * _SEALED : (number + 1) * _SEALED])
        try:
            plain = self._cipher.decrypt(
                _nonce(number, is_last=number == self._count - 1), part, None
            )
        except InvalidTag:
            what = f"chunk {number + 1} of {self._count} is damaged, out of place or not the last"
            raise AgeError(f"{self._name}: the content can't be decrypted: {what}") from None
        with self._lock:
            self._cache[number] = plain
            while len(self._cache) > _MOST_CACHED:
                self._cache.popitem(last=False)
        return plain
