"""Git's long-running filter process protocol, version 2, and the pkt-lines it is made of.

gitattributes(5), "Long Running Filter Process", and gitprotocol-common(5), "pkt-line Format": a
packet is four hex digits, the length of the whole packet, and up to 65,516 bytes of payload; `0000`
is a flush. This module is only the protocol; the caller does the filtering.

Git sends the whole content of a request before it reads the answer. If an answer were written while
content is still unread, both pipes could fill up and block both sides. So `success` discards unread
content before it writes.

A filter process starts for every git command, so this module imports nothing beyond the standard
library.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import FileIO
from typing import NamedTuple, Protocol

from wtxtgit.errors import EnvironmentFailure

HEADER_SIZE = 4
MAX_PACKET = 65_520
"""Longest packet that git reads and writes, its header included."""
MAX_PAYLOAD = MAX_PACKET - HEADER_SIZE
FLUSH = b"0000"

PIPE_SIZE = 1024 * 1024
"""The largest pipe that an unprivileged process may ask for on Linux, `fs.pipe-max-size`."""
PACKETS_A_CALL = PIPE_SIZE // MAX_PACKET
"""Full packets that are read or written with one call."""
MAX_LINES = 1000
"""Most lines before a flush; git sends three to six."""
_AHEAD = 64 * 1024
"""Bytes that are read when a packet's length is due: enough for lines and small contents."""

_ALONE = "wtxtgit install sets up git, which alone runs this command"
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_FULL_HEADER = b"%04x" % MAX_PACKET

Buffer = bytes | bytearray | memoryview
Scatter = Callable[[Sequence[memoryview]], int]
"""Fills buffers in order with available bytes, at least one; returns 0 at the stream's end."""


class ProtocolError(EnvironmentFailure):
    """The peer does not speak the protocol."""


class EndOfStream(ProtocolError):
    """The peer closed the stream between two packets."""


class Readable(Protocol):
    """A binary stream to read: `readinto` returns the number of bytes it stored, 0 at the end."""

    def readinto(self, place: memoryview, /) -> int | None: ...


class Writable(Protocol):
    """A buffered binary stream: `write` and `writelines` take all that they are given."""

    def write(self, data: Buffer, /) -> int: ...

    def writelines(self, parts: Sequence[Buffer], /) -> None: ...

    def flush(self) -> None: ...


class PacketReader:
    """Reads packets from a stream; no read goes beyond the packet's stated length.

    For content, `readv` puts the headers and payloads of many packets into separate buffers at
    once, so that the payloads are contiguous and no object is made for each packet.
    """

    def __init__(self, stream: Readable) -> None:
        self._readv = _scattered(stream)
        self._unread = memoryview(b"")
        """Bytes that were read but not used yet."""
        self._run: _PacketRun | None = None

    def packet(self) -> bytes | None:
        """Read one packet and return its payload, or None for a flush.

        Raises EndOfStream if the stream ends before the packet, and ProtocolError if the length is
        invalid or the packet is cut short.
        """
        if not self._unread:
            self._read_ahead()
        header = self._take(HEADER_SIZE)
        if len(header) != HEADER_SIZE:
            if not header:
                raise EndOfStream("the stream ended where a packet was expected")
            raise ProtocolError(f"the stream ended inside a packet's length {header!r}")
        if _LENGTH.fullmatch(header) is None:
            raise ProtocolError(f"a packet's length is {header!r}, not four hex digits")
        length = int(header, 16)
        # 0001 to 0003 are special packets of other git protocols: they are refused below.
        if length == 0:
            return None
        if not HEADER_SIZE <= length <= MAX_PACKET:
            raise ProtocolError(f"a packet's length is {length}, not 0 or 4 to {MAX_PACKET}")
        payload = self._take(length - HEADER_SIZE)
        if len(payload) != length - HEADER_SIZE:
            raise ProtocolError(
                f"the stream ended after {len(payload)} of {length - HEADER_SIZE} bytes of a packet"
            )
        return payload

    def line(self) -> bytes | None:
        """Read one packet of text without its trailing LF; None for a flush."""
        payload = self.packet()
        return payload if payload is None else payload.removesuffix(b"\n")

    def lines(self) -> Iterator[bytes]:
        """Yield lines up to the next flush, which is consumed.

        Raises ProtocolError after MAX_LINES.
        """
        for _ in range(MAX_LINES):
            if (line := self.line()) is None:
                return
            yield line
        raise ProtocolError(f"more than {MAX_LINES} lines precede a flush")

    def content(self) -> Iterator[Buffer]:
        """Yield payloads up to the next flush, which is consumed.

        A buffer is valid only until the next one is asked for, and has at most about PIPE_SIZE
        bytes.
        """
        while True:
            while not self._unread:
                if self._run is None:
                    self._run = _packet_run()
                payloads, self._unread = self._run.read(self._readv)
                if payloads:
                    yield payloads
            payload = self.packet()
            if payload is None:
                return
            yield payload

    def _take(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer at the stream's end; never reads beyond them."""
        taken, self._unread = self._unread[:size], self._unread[size:]
        if len(taken) == size:
            return bytes(taken)
        whole = bytearray(size)
        filled = len(taken)
        whole[:filled] = taken
        with memoryview(whole) as place:
            while filled < size and (count := self._readv([place[filled:]])):
                filled += count
        return bytes(whole[:filled])

    def _read_ahead(self) -> None:
        place = memoryview(bytearray(_AHEAD))
        self._unread = place[: self._readv([place])]


def _packet_run() -> _PacketRun:
    """Allocate memory for a run of packets, with fewer packets if memory is short."""
    packets = PACKETS_A_CALL
    while True:
        try:
            return _PacketRun(packets)
        except MemoryError:
            if packets == 1:
                raise
            packets = packets // 2


class _PacketRun:
    """Memory for a run of full packets: their headers, and their payloads in one contiguous
    buffer.
    """

    def __init__(self, packets: int) -> None:
        self._size = packets * MAX_PACKET
        self._headers = memoryview(bytearray(packets * HEADER_SIZE))
        self._payloads = memoryview(bytearray(packets * MAX_PAYLOAD))
        self._places: list[memoryview] = []
        """Headers and payloads by turns, in the order in which they arrive."""
        for ix in range(packets):
            self._places.append(self._headers[ix * HEADER_SIZE : (ix + 1) * HEADER_SIZE])
            self._places.append(self._payloads[ix * MAX_PAYLOAD : (ix + 1) * MAX_PAYLOAD])

    def read(self, readv: Scatter) -> tuple[memoryview, memoryview]:
        """Read full packets until the memory is full or another kind of packet comes.

        Returns their payloads, and the bytes that were read after them, in order. Raises
        EndOfStream if the stream is at its end.
        """
        filled = 0
        while filled < self._size:
            packets, part = divmod(filled, MAX_PACKET)
            if part < HEADER_SIZE:
                first = self._places[2 * packets][part:]
                rest = self._places[2 * packets + 1 :]
            else:
                first = self._places[2 * packets + 1][part - HEADER_SIZE :]
                rest = self._places[2 * packets + 2 :]
            count = readv([first, *rest])
            if not count:
                if not filled:
                    raise EndOfStream("the stream ended where a packet was expected")
                return self._split(packets, filled)
            filled += count
            full = self._full(packets, filled)
            if full * MAX_PACKET + HEADER_SIZE <= filled:
                return self._split(full, filled)
        return self._payloads, memoryview(b"")

    def _full(self, checked: int, filled: int) -> int:
        """Count the leading headers that state a full packet; `checked` of them are known to."""
        complete = (filled + MAX_PAYLOAD) // MAX_PACKET
        ix = checked
        while ix < complete and self._places[2 * ix] == _FULL_HEADER:
            ix += 1
        return ix

    def _split(self, packets: int, filled: int) -> tuple[memoryview, memoryview]:
        """Return the payloads of the first `packets` packets, and the bytes that follow them.

        `filled` is the number of bytes that were read in all.
        """
        left = filled - packets * MAX_PACKET
        after = []
        for place in self._places[2 * packets :]:
            if not left:
                break
            after.append(place[:left])
            left -= len(after[-1])
        return self._payloads[: packets * MAX_PAYLOAD], memoryview(b"".join(after))


class PacketWriter:
    """Writes packets to a stream; they may stay buffered until `flush_packet`."""

    def __init__(self, stream: Writable) -> None:
        self._stream = stream

    def line(self, text: bytes) -> None:
        """Write one packet of text, with LF appended."""
        if len(text) + 1 > MAX_PAYLOAD:
            raise ProtocolError(f"a line of {len(text)} bytes is too long for a packet")
        self._stream.write(b"%04x%b\n" % (HEADER_SIZE + len(text) + 1, text))

    def flush_packet(self) -> None:
        """Write a flush packet, and everything that is still buffered."""
        self._stream.write(FLUSH)
        self._stream.flush()

    def content(self, chunks: Iterable[Buffer]) -> None:
        """Write bytes as full packets, whatever the sizes of `chunks`, without a flush.

        A large chunk is not copied, except for the few bytes that share a packet with the next
        chunk.
        """
        rest = bytearray()
        for chunk in chunks:
            data = memoryview(chunk).cast("B")
            taken = 0
            packets: list[Buffer] = []
            if len(rest) + len(data) >= MAX_PAYLOAD:
                taken = MAX_PAYLOAD - len(rest)
                packets += _FULL_HEADER, rest, data[:taken]
                rest = bytearray()
            while len(data) - taken >= MAX_PAYLOAD:
                packets += _FULL_HEADER, data[taken : taken + MAX_PAYLOAD]
                taken += MAX_PAYLOAD
            if packets:
                self._stream.writelines(packets)
            rest += data[taken:]
        if rest:
            self._stream.writelines((b"%04x" % (HEADER_SIZE + len(rest)), rest))


def _scattered(stream: Readable) -> Scatter:
    """Return a function that reads into several buffers, with one system call if possible."""
    if isinstance(stream, FileIO) and hasattr(os, "readv"):
        return partial(os.readv, stream.fileno())
    return lambda places: stream.readinto(places[0]) or 0


def widen_pipe(descriptor: int) -> None:
    """Ask the system for a larger pipe; where that is refused or unknown nothing changes."""
    try:
        import fcntl
    except ImportError:  # no such module on Windows
        return
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_SIZE)


CLIENT = b"git-filter-client"
SERVER = b"git-filter-server"
VERSION = b"version=2"
COMMANDS = ("clean", "smudge")
CAPABILITIES = (*COMMANDS, "delay")
"""The capabilities that we support."""
LIST = "list_available_blobs"
"""The command that git sends after all files of a checkout, if some were delayed."""
CAN_DELAY = "can-delay"


class Request(NamedTuple):
    """One blob to filter; or the `LIST` command, which has no path and no content.

    `pathname` is relative to the top of the work tree. `keys` are the other keys that git sent:
    `ref`, `treeish` and `blob` with smudge, where git knows them, and `CAN_DELAY`. `content` yields
    the bytes in order, once; a piece is valid only until the next is asked for.
    """

    command: str
    pathname: bytes
    keys: Mapping[str, bytes]
    content: Iterator[Buffer]


class FilterProcess:
    """The filter's side of the conversation.

    Every request is answered by exactly one of `success`, `error` or, if the request allows it,
    `delayed`; `LIST` is answered by `available`.
    """

    def __init__(self, reader: PacketReader, writer: PacketWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._content: Iterator[Buffer] = iter(())
        self._delays = False

    def handshake(self) -> None:
        """Agree on version 2 and on clean and smudge; raises ProtocolError."""
        try:
            welcome = list(self._reader.lines())
        except ProtocolError as error:
            error.hint = _ALONE
            raise
        # gitattributes(5), "Long Running Filter Process": a welcome, its versions, a flush.
        if not welcome or welcome[0] != CLIENT:
            raise ProtocolError(
                f"expected the greeting {CLIENT.decode()!r} from git, got {welcome[:1]!r}",
                hint=_ALONE,
            )
        if VERSION not in welcome[1:]:
            raise ProtocolError(f"git offers {welcome[1:]!r}, not {VERSION.decode()!r}")
        self._writer.line(SERVER)
        self._writer.line(VERSION)
        self._writer.flush_packet()

        # Capabilities come in any order; unknown ones are ignored.
        offered = set(self._reader.lines())
        for command in CAPABILITIES:
            capability = b"capability=" + command.encode()
            if capability in offered:
                self._writer.line(capability)
        self._writer.flush_packet()
        self._delays = b"capability=delay" in offered

    def requests(self) -> Iterator[Request]:
        """Yield requests until git closes the stream between two of them."""
        while True:
            self._drain()
            try:
                first = self._reader.line()
            except EndOfStream:
                return
            # gitattributes(5): a request begins with its command.
            if first is None:
                raise ProtocolError("a request without a command")
            keys = _parse_keys([first, *self._reader.lines()])
            command = keys.pop("command", b"").decode("ascii", "replace")
            if command == LIST and self._delays:
                yield Request(command, b"", keys, iter(()))
                continue
            pathname = keys.pop("pathname", None)
            if command not in COMMANDS:
                raise ProtocolError(f"git asks for {command!r}, which was not offered")
            if pathname is None:
                raise ProtocolError(f"a {command} request without a pathname")
            self._content = self._reader.content()
            yield Request(command, pathname, keys, self._content)

    def success(self, content: Iterable[Buffer]) -> None:
        """Answer with the filtered bytes.

        If iterating `content` raises, git gets a late `status=error`, the conversation stays in
        step, and the exception is raised on.
        """
        self._drain()
        self._writer.line(b"status=success")
        self._writer.flush_packet()
        is_complete = False
        try:
            self._writer.content(content)
            is_complete = True
        finally:
            self._writer.flush_packet()
            if not is_complete:
                self._writer.line(b"status=error")
            self._writer.flush_packet()

    def delayed(self) -> None:
        """Answer that this blob is filtered later: git will ask again, without its content."""
        self._drain()
        self._writer.line(b"status=delayed")
        self._writer.flush_packet()

    def available(self, paths: Iterable[bytes]) -> None:
        """Answer which delayed blobs are ready; an empty answer means that no more will come."""
        for path in paths:
            self._writer.line(b"pathname=" + path)
        self._writer.flush_packet()
        self._writer.line(b"status=success")
        self._writer.flush_packet()

    def error(self) -> None:
        """Answer that this blob can't be filtered; git goes on with the next one."""
        self._drain()
        self._writer.line(b"status=error")
        self._writer.flush_packet()

    def _drain(self) -> None:
        for _ in self._content:
            pass


def greeting() -> bytes:
    """Return what git sends first.

    A filter that reads only this and then the end of input exits.
    """
    packets = [CLIENT, VERSION, None, *(b"capability=" + c.encode() for c in COMMANDS), None]
    return b"".join(
        b"0000" if text is None else b"%04x%b\n" % (len(text) + 5, text) for text in packets
    )


def check_greeting(reader: PacketReader) -> None:
    """Read a filter's answer to `greeting`; raises ProtocolError if it lacks what we need."""
    answer = list(reader.lines())
    if answer != [SERVER, VERSION]:
        raise ProtocolError(f"the filter greets with {answer!r}")
    capabilities = set(reader.lines())
    if missing := {b"capability=" + c.encode() for c in COMMANDS} - capabilities:
        raise ProtocolError(f"the filter lacks {sorted(missing)!r}")


def _parse_keys(lines: list[bytes]) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for line in lines:
        name, equals, value = line.partition(b"=")
        key = name.decode("ascii", "replace")
        if not equals or key in keys:
            raise ProtocolError(f"a request's line {line!r} is not a key and a value, once")
        keys[key] = value
    return keys
