"""Bounds for servers: how long one may say nothing, how slowly and how much it may answer.

What a server sends is read through a `Pace`, whichever library reads it. So one bound holds for
headers and bodies, as with git's http.lowSpeedLimit and http.lowSpeedTime. The timeout of a single
read would never end the wait for a server that sends a byte now and then. What httpx sends has a
pace of its own; the other libraries bound the time in which a piece has to be sent.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import httpx

SILENCE = 60
"""Seconds for which a server may send nothing, or too little."""
LEAST = 1000
"""The fewest bytes a second that it has to send in this time."""
CONNECT = 20
"""Seconds in which a connection has to be made."""
MOST = 4 * 1024 * 1024
"""Most bytes of an answer that is not a file: distribution-spec, "Push"."""
_SENT = 16 * 1024
"""Bytes that are sent at a time: a larger number would hide how slowly they go."""
_Read = TypeVar("_Read")


class Pace:
    """What was read for one request so far, and for how long this waited.

    The time counts in which the reader waits for the server; not that in which it does something
    else. `counted` and `timed` raise TimeoutError for a server that is too slow.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin again, since another request is sent."""
        self._waited, self._got = 0.0, 0

    def timed(self, read: Callable[[], _Read], size: Callable[[_Read], int | None]) -> _Read:
        """Return what `read` returns, of which `size` tells the bytes."""
        began = time.monotonic()
        data = read()
        self.counted(size(data) or 0, time.monotonic() - began)
        return data

    def counted(self, nbytes: int, seconds: float) -> None:
        """Count bytes, and for how long they were waited for."""
        self._waited += seconds
        self._got += nbytes
        if self._waited >= SILENCE:
            if self._got < LEAST * self._waited:
                raise TimeoutError
            self.restart()


class PacedSocket:
    """A socket, of which `http.client` reads answers at a pace; else as that socket."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._pace = socket, Pace()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def sendall(self, *data: Any) -> None:
        self._pace.restart()
        self._socket.sendall(*data)

    def makefile(self, mode: str, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_PacedFile(self._socket.makefile(mode, 0), self._pace))


class _PacedFile(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, pace: Pace) -> None:
        self._raw, self._pace = raw, pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return self._pace.timed(lambda: self._raw.readinto(buffer), lambda count: count)

    def close(self) -> None:
        self._raw.close()
        super().close()


def set_pace(client: httpx.Client) -> None:
    """Have a client read at a pace, also through a proxy."""
    import httpcore
    import httpx

    class Stream(httpcore.NetworkStream):
        def __init__(self, stream: httpcore.NetworkStream) -> None:
            self._stream, self._pace, self._sent = stream, Pace(), Pace()

        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            try:
                return self._pace.timed(lambda: self._stream.read(max_bytes, timeout), len)
            except TimeoutError as error:
                raise httpcore.ReadTimeout from error

        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            self._pace.restart()
            try:
                for start in range(0, len(buffer), _SENT):
                    piece = buffer[start : start + _SENT]
                    began = time.monotonic()
                    self._stream.write(piece, timeout)
                    self._sent.counted(len(piece), time.monotonic() - began)
            except TimeoutError as error:
                raise httpcore.WriteTimeout from error

        def close(self) -> None:
            self._stream.close()

        def start_tls(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
            return Stream(self._stream.start_tls(*arguments, **options))

        def get_extra_info(self, info: str) -> Any:
            return self._stream.get_extra_info(info)

    class Backend(httpcore.NetworkBackend):
        def __init__(self, backend: httpcore.NetworkBackend) -> None:
            self._backend = backend

        def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
            return Stream(self._backend.connect_tcp(*arguments, **options))

    # httpx offers no place for it.
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            pool = transport._pool
            pool._network_backend = Backend(pool._network_backend)
