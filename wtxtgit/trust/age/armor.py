"""age's ASCII armor (C2SP, age.md, "ASCII armor"; RFC 7468, strict encoding).

The armor of given bytes is unique, except for line endings, LF or CRLF throughout, and white space
around it: mail and git may change both. All lines but the last have 64 characters, so the position
of each byte is known, and a part can be read without what precedes it.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from typing import final

import pybase64

from wtxtgit.errors import AgeError
from wtxtgit.io.view import Buffer, ByteView, Windowed, mapped, pieces

BEGIN = b"-----BEGIN AGE ENCRYPTED FILE-----"
END = b"-----END AGE ENCRYPTED FILE-----"
MAGIC = b"age-encryption.org/v1"
"""The first bytes of a file without armor."""

_COLUMNS = 64
_BYTES = _COLUMNS // 4 * 3
_MAX_SPACE = 1024
"""The most white space before the armor and after it, as in age's own reader."""
_SPACE = b" \t\r\n"


def is_age(data: ByteView) -> bool:
    """Tell whether a file begins like an age file, with or without armor."""
    return is_armored(data) or bytes(data[: len(MAGIC)]) == MAGIC


def is_armored(data: ByteView) -> bool:
    """Tell whether a file begins with armor."""
    head = bytes(data[: len(BEGIN)])
    if head[:1] in (b"-", b""):
        return head == BEGIN
    # Leading white space is rare, and does not justify reading more of every file.
    if head[:1] not in (b" ", b"\t", b"\r", b"\n"):
        return False
    return bytes(data[: _MAX_SPACE + len(BEGIN)]).lstrip(_SPACE).startswith(BEGIN)


def dearmored(data: ByteView, name: str) -> ByteView:
    """Return a view of the bytes in an armor, which are decoded when they are read.

    A file without armor is returned unchanged. Raises AgeError here if the armor is malformed, and
    when an invalid line is read.
    """
    return Windowed(_Lines(data, name)) if is_armored(data) else data


def armored(content: Iterable[Buffer]) -> Iterator[bytes]:
    """Yield the armor of bytes that come in pieces."""
    yield BEGIN + b"\n"
    pending = bytearray()
    for piece in content:
        pending += piece
        whole = len(pending) - len(pending) % _BYTES
        if whole:
            yield _wrapped(pending[:whole])
            del pending[:whole]
    if pending:
        yield _wrapped(pending)
    yield END + b"\n"


def _wrapped(content: bytearray) -> bytes:
    # Lines have 64 characters; encodebytes would make 76.
    body = pybase64.b64encode(content)
    lines = [body[at : at + _COLUMNS] for at in range(0, len(body), _COLUMNS)]
    return b"\n".join([*lines, b""])


def check_all(binary: ByteView) -> None:
    """Read and check every line of what `dearmored` returned; raises AgeError."""
    for _ in pieces(binary):
        pass


@final
class _Lines:
    """`Windows` over the bytes that base64 lines encode."""

    def __init__(self, data: ByteView, name: str) -> None:
        self._name = name
        head = bytes(data[: _MAX_SPACE + len(BEGIN) + 2])
        start = len(head) - len(head.lstrip(_SPACE))
        after = head[start + len(BEGIN) :]
        self._eol = b"\r\n" if after.startswith(b"\r\n") else b"\n"
        if not after.startswith(self._eol):
            raise self._error("its first line is too long or too short")
        start += len(BEGIN) + len(self._eol)
        tail = bytes(data[-(_MAX_SPACE + len(END)) :]).rstrip(_SPACE)
        if not tail.endswith(END):
            raise self._error("it does not end with the END line; it may be cut short")
        stripped = min(len(data), _MAX_SPACE + len(END)) - len(tail)
        end = len(data) - stripped - len(END)
        if end < start:
            raise self._error("it does not end with the END line")
        self._body = data[start:end]
        self._stride = _COLUMNS + len(self._eol)
        full, rest = divmod(len(self._body), self._stride)
        self._full = full
        self._last = b"" if not rest else self._decoded_last(self._body[full * self._stride :])
        if rest and len(self._last) == _BYTES:
            raise self._error("its lines are not all 64 characters long")
        self.nbytes = full * _BYTES + len(self._last)
        if full and not rest:
            # If the last line is a full one it may have padding, which has to be canonical.
            self.nbytes += len(self._decoded_last(self._line(full - 1))) - _BYTES

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end); raises AgeError if a line in that part is invalid."""
        first, last = start // _BYTES, -(-end // _BYTES)
        lines = min(last, self._full) - first
        decoded = self._decoded(first, lines) if lines > 0 else b""
        if last > self._full:
            decoded += self._last
        at = start - first * _BYTES
        part = memoryview(decoded)[at : at + end - start]
        if len(part) != end - start:
            raise self._error("its lines are not all 64 characters long")
        return part

    def _line(self, number: int) -> ByteView:
        return self._body[number * self._stride : (number + 1) * self._stride]

    def _decoded(self, first: int, count: int) -> bytes:
        raw = bytes(mapped(self._body[first * self._stride : (first + count) * self._stride]))
        body = raw.translate(None, self._eol)
        ends = all(
            raw[_COLUMNS + at :: self._stride] == self._eol[at : at + 1] * count
            for at in range(len(self._eol))
        )
        # If all line endings are where they belong, an additional one would leave too few
        # characters.
        if not ends or len(body) != count * _COLUMNS:
            raise self._error("its lines are not all 64 characters long")
        return self._decode(body)

    def _decoded_last(self, line: ByteView) -> bytes:
        raw = bytes(mapped(line))
        if not raw.endswith(self._eol):
            raise self._error("its last line is too long or too short")
        body = raw.removesuffix(self._eol)
        decoded = self._decode(body)
        # Nonzero unused bits or missing padding would be another spelling of the same bytes.
        if not body or pybase64.b64encode(decoded) != body:
            raise self._error("the base64 of its last line is not canonical")
        return decoded

    def _decode(self, body: bytes) -> bytes:
        try:
            return pybase64.b64decode(body, validate=True)
        except binascii.Error:
            raise self._error("its base64 is damaged") from None

    def _error(self, what: str) -> AgeError:
        return AgeError(f"{self._name}: the armor is damaged: {what}")
