"""Pkt-lines: the framing that git speaks with its helpers.

A packet is four hex digits, the length of the whole packet, and up to 65,516
bytes of payload; `0000` is a flush. gitprotocol-common(5), "pkt-line Format".

A filter process starts once for every git command, so this module imports
nothing beyond the standard library.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from wtxtgit.errors import EnvironmentFailure

HEADER_SIZE = 4
MAX_PACKET = 65_520
"""Longest packet that git reads and writes, its header included."""
MAX_PAYLOAD = MAX_PACKET - HEADER_SIZE
FLUSH = b"0000"

PIPE_SIZE = 1024 * 1024
"""What an unprivileged process may ask for on Linux, `fs.pipe-max-size`."""
PACKETS_A_WRITE = PIPE_SIZE // MAX_PACKET

_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_FULL_HEADER = b"%04x" % MAX_PACKET

Buffer = bytes | bytearray | memoryview


class ProtocolError(EnvironmentFailure):
    """The peer does not speak the protocol."""


class EndOfStream(ProtocolError):
    """The peer closed the stream between two packets."""


class Readable(Protocol):
    """A buffered binary stream: `read(n)` gives n bytes, fewer only at its end."""

    def read(self, size: int, /) -> bytes: ...


class Writable(Protocol):
    """A buffered binary stream: `write` takes all that it is given."""

    def write(self, data: Buffer, /) -> int: ...

    def flush(self) -> None: ...


class Reader:
    """Packets from a stream; every read is bounded by the packet's own length."""

    def __init__(self, stream: Readable) -> None:
        self._read = stream.read

    def packet(self) -> bytes | None:
        """Read one packet: its payload, or None for a flush.

        Raises EndOfStream where the stream ends before the packet, and
        ProtocolError for a bad length or a packet that is cut short.
        """
        header = self._read(HEADER_SIZE)
        if len(header) != HEADER_SIZE:
            if not header:
                raise EndOfStream("the stream ended where a packet was due")
            raise ProtocolError(f"the stream ended inside a packet's length {header!r}")
        if _LENGTH.fullmatch(header) is None:
            raise ProtocolError(f"a packet's length is {header!r}, not four hex digits")
        length = int(header, 16)
        if length == 0:
            return None
        if not HEADER_SIZE <= length <= MAX_PACKET:
            raise ProtocolError(f"a packet's length is {length}, not 0 or 4 to {MAX_PACKET}")
        payload = self._read(length - HEADER_SIZE)
        if len(payload) != length - HEADER_SIZE:
            raise ProtocolError(
                f"the stream ended after {len(payload)} of {length - HEADER_SIZE} bytes of a packet"
            )
        return payload

    def line(self) -> bytes | None:
        """Read one packet of text, without the LF that may end it; None for a flush."""
        payload = self.packet()
        return payload if payload is None else payload.removesuffix(b"\n")

    def lines(self) -> Iterator[bytes]:
        """Read lines up to the next flush, and the flush."""
        while (line := self.line()) is not None:
            yield line

    def content(self) -> Iterator[bytes]:
        """Read payloads up to the next flush, and the flush."""
        while (payload := self.packet()) is not None:
            yield payload


class Writer:
    """Packets to a stream; nothing is sure to arrive before `flush_packet`."""

    def __init__(self, stream: Writable) -> None:
        self._stream = stream
        self._scratch: bytearray | None = None

    def line(self, text: bytes) -> None:
        """Write one packet of text, with an LF at its end."""
        if len(text) + 1 > MAX_PAYLOAD:
            raise ProtocolError(f"a line of {len(text)} bytes is too long for a packet")
        self._stream.write(b"%04x%b\n" % (HEADER_SIZE + len(text) + 1, text))

    def flush_packet(self) -> None:
        """Write a flush, and all that the stream still holds."""
        self._stream.write(FLUSH)
        self._stream.flush()

    def content(self, chunks: Iterable[Buffer]) -> None:
        """Write bytes as full packets, whatever the sizes of `chunks`; no flush.

        The bytes are copied once, between headers that are already in place,
        and leave in writes of about a pipe's size.
        """
        # The last call's headers are whole again here, see the end.
        if self._scratch is None:
            self._scratch = bytearray((_FULL_HEADER + bytes(MAX_PAYLOAD)) * PACKETS_A_WRITE)
        scratch = memoryview(self._scratch)
        end = len(scratch)
        pos = HEADER_SIZE  # where the next byte of payload goes
        room = MAX_PAYLOAD  # what is left of the packet there
        for chunk in chunks:
            data = memoryview(chunk).cast("B")
            size = len(data)
            taken = 0
            while taken < size:
                step = min(room, size - taken)
                scratch[pos : pos + step] = data[taken : taken + step]
                taken += step
                pos += step
                room -= step
                if room == 0:
                    if pos == end:
                        self._stream.write(scratch)
                        pos = 0
                    pos += HEADER_SIZE
                    room = MAX_PAYLOAD
        start = pos - (MAX_PAYLOAD - room) - HEADER_SIZE  # of the packet that is not full
        if room == MAX_PAYLOAD:
            pos = start
        else:
            scratch[start : start + HEADER_SIZE] = b"%04x" % (pos - start)
        if pos:
            self._stream.write(scratch[:pos])
        scratch[start : start + HEADER_SIZE] = _FULL_HEADER


def widen_pipe(descriptor: int) -> None:
    """Ask for a bigger pipe, where the system has such a thing; a refusal does no harm."""
    try:
        import fcntl
    except ImportError:  # no such module on Windows
        return
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
