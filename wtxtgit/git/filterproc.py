"""Git's long-running filter process protocol, version 2.

gitattributes(5), "Long Running Filter Process", and
gitprotocol-common(5) for the packets. The protocol alone: what clean and
smudge do is the caller's.

Git sends a request's whole content before it reads the answer. So an answer
whose bytes are written while content is still unread can fill both pipes and
stop both sides: `success` drops what was not read before it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from wtxtgit.git.pktline import Buffer, EndOfStream, ProtocolError, Reader, Writer

CLIENT = b"git-filter-client"
SERVER = b"git-filter-server"
VERSION = b"version=2"
COMMANDS = ("clean", "smudge")
"""The capabilities that we take up. Not `delay`: we have no latency to hide."""


@dataclass(frozen=True, slots=True)
class Request:
    """One blob to filter.

    `pathname` is relative to the top of the work tree, as git has it. `keys`
    are the other keys that git sent: `ref`, `treeish` and `blob` with smudge
    where git knows them. `content` gives the bytes in order, once; each piece
    holds until the next is asked for.
    """

    command: str
    pathname: bytes
    keys: Mapping[str, bytes]
    content: Iterator[Buffer]


class FilterProcess:
    """The filter's side of the conversation.

    Every request is answered by exactly one of `success` and `error`.
    """

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer
        self._content: Iterator[Buffer] = iter(())

    def handshake(self) -> None:
        """Agree on version 2 and on clean and smudge; raises ProtocolError."""
        welcome = list(self._reader.lines())
        if not welcome or welcome[0] != CLIENT:
            raise ProtocolError(
                f"git was to greet with {CLIENT.decode()!r}, got {welcome[:1]!r}",
                hint="this command is started by git, see wtxtgit install",
            )
        if VERSION not in welcome[1:]:
            raise ProtocolError(f"git offers {welcome[1:]!r}, not {VERSION.decode()!r}")
        self._writer.line(SERVER)
        self._writer.line(VERSION)
        self._writer.flush_packet()

        offered = set(self._reader.lines())
        for command in COMMANDS:
            capability = b"capability=" + command.encode()
            if capability in offered:
                self._writer.line(capability)
        self._writer.flush_packet()

    def requests(self) -> Iterator[Request]:
        """Yield requests until git closes the stream between two of them."""
        while True:
            self._drain()
            try:
                first = self._reader.line()
            except EndOfStream:
                return
            if first is None:
                raise ProtocolError("a request without a command")
            keys = _parse_keys([first, *self._reader.lines()])
            command = keys.pop("command", b"").decode("ascii", "replace")
            pathname = keys.pop("pathname", None)
            if command not in COMMANDS:
                raise ProtocolError(f"git asks for {command!r}, which was not offered")
            if pathname is None:
                raise ProtocolError(f"a {command} request without a pathname")
            self._content = self._reader.content()
            yield Request(command, pathname, keys, self._content)

    def success(self, content: Iterable[Buffer]) -> None:
        """Answer with the filtered bytes.

        Where `content` raises, git is told so with a late `status=error`, the
        conversation stays in step, and the exception goes on.
        """
        self._drain()
        self._writer.line(b"status=success")
        self._writer.flush_packet()
        done = False
        try:
            self._writer.content(content)
            done = True
        finally:
            self._writer.flush_packet()
            if not done:
                self._writer.line(b"status=error")
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
    """What git sends first; a filter that got it and then the end of input just ends."""
    packets = [CLIENT, VERSION, None, *(b"capability=" + c.encode() for c in COMMANDS), None]
    return b"".join(
        b"0000" if text is None else b"%04x%b\n" % (len(text) + 5, text) for text in packets
    )


def check_greeting(reader: Reader) -> None:
    """Read a filter's answer to `greeting`; raises ProtocolError unless it offers what we need."""
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
