"""What targets over HTTP share: a client, and the meaning of answers and failures."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from wtxtgit.containers import json_text
from wtxtgit.errors import EnvironmentFailure, InputError, RemoteRefused, RemoteUnavailable
from wtxtgit.io.files import shown
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import PIECE, ByteView, mapped
from wtxtgit.remotes import pace
from wtxtgit.remotes.target import Span

if TYPE_CHECKING:
    import ssl

    import httpx

_LATER = frozenset((408, 425, 429))
"""Statuses below 500 that ask for another try: RFC 9110, section 15.5; RFC 6585; RFC 8470."""
_SERVER = 500
_SECONDS = re.compile("[0-9]{1,9}")
_HINT = "pip install 'wtxtgit[stream]'"
_LIMITED = (403, 429)
_OK, _PART, _TOO_FAR = 200, 206, 416
GONE = (404, 410)


def needed(label: str, package: str) -> EnvironmentFailure:
    """Return the error for a package that is not installed."""
    return EnvironmentFailure(f"{label}: needs {package}", hint=_HINT)


def failure(
    label: str, what: str, status: int, headers: Mapping[str, str]
) -> RemoteUnavailable | RemoteRefused:
    """Return the error for an unexpected status.

    `headers` are looked up regardless of case. Nothing of the answer's body is shown, because it
    may repeat the request.
    """
    about = f"{label}: {what}: the server says {status}"
    wait = _retry_after(headers)
    # https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
    is_limited = status in _LIMITED and (
        "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
    )
    if is_limited or status in _LATER or status >= _SERVER:
        return RemoteUnavailable(about, retry_after=wait)
    return RemoteRefused(about)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait; a time of day is compared with the server's own clock."""
    stated = headers.get("retry-after", "")
    if _SECONDS.fullmatch(stated):
        return float(stated)
    with contextlib.suppress(ValueError, TypeError):
        now = parsedate_to_datetime(headers.get("date", "")).timestamp()
        reset = headers.get("x-ratelimit-reset", "")
        until = (
            parsedate_to_datetime(stated).timestamp()
            if stated
            else float(reset)
            if _SECONDS.fullmatch(reset) or reset.isdecimal()
            else None
        )
        if until is not None:
            return max(0.0, until - now)
    return None


@contextlib.contextmanager
def client(label: str) -> Iterator[httpx.Client]:
    """Open a client for one operation; connection errors become errors of ours.

    Raises EnvironmentFailure if httpx is not installed.
    """
    try:
        import httpx
    except ImportError:
        raise needed(label, "httpx") from None
    # It logs URLs, some of which are all that is needed for an upload.
    log = logging.getLogger("httpx")
    if _WITHOUT_QUERY not in log.filters:
        log.addFilter(_WITHOUT_QUERY)
    timeout = httpx.Timeout(pace.SILENCE, connect=pace.CONNECT)
    headers = {"accept-encoding": "identity"}
    with (
        failures(label),
        httpx.Client(timeout=timeout, headers=headers, verify=_certificates()) as http,
    ):
        pace.set_pace(http)
        yield http


@contextlib.contextmanager
def failures(label: str, what: str = "can't be reached") -> Iterator[None]:
    """Turn connection errors into errors of ours, whose message includes `what`.

    Only the kind of an exception is shown, because its message may contain a URL with credentials.
    """
    import httpx

    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise RemoteRefused(f"{label}: {type(error).__name__}") from None
    except httpx.RequestError as error:
        raise RemoteUnavailable(f"{label}: {what}: {type(error).__name__}") from None


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates, cached because reading them takes longer than a request."""
    import httpx

    return httpx.create_ssl_context()


class _WithoutQuery(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_bare(argument) for argument in record.args)
        return True


def _bare(argument: object) -> object:
    text = str(argument)
    if not text.startswith(("http://", "https://")):
        return argument
    scheme, sign, rest = re.split(r"[?#]", text, maxsplit=1)[0].partition("://")
    host, slash, path = rest.partition("/")
    return scheme + sign + host.rpartition("@")[2] + slash + path


_WITHOUT_QUERY = _WithoutQuery()


def received(label: str, name: str, blocks: Iterable[bytes], nbytes: int) -> ByteView:
    """Return what a server sends, spooled to a file if large.

    Raises InputError unless `nbytes` come.
    """

    def bounded() -> Iterator[bytes]:
        left = nbytes
        for block in blocks:
            left -= len(block)
            if left < 0:
                break
            yield block
        if left:
            what = "more than" if left < 0 else f"{nbytes - left} of"
            raise InputError(f"{label}: {shown(name)}: received {what} its {nbytes} bytes")

    return spooled(bounded())


def at_most(label: str, blocks: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Yield what a server sends; raises RemoteRefused for more than `most` bytes."""
    for block in blocks:
        most -= len(block)
        if most < 0:
            raise RemoteRefused(f"{label}: the answer is too large")
        yield block


class SmallAnswer(NamedTuple):
    """An answer that is not a file, with its whole body; without one if the request failed."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def small(label: str, http: httpx.Client, method: str, url: str, **options: Any) -> SmallAnswer:
    """Send a request whose answer is small; raises RemoteRefused if it is not."""
    with http.stream(method, url, **options) as answer:
        blocks = answer.iter_bytes(PIECE) if answer.is_success else ()
        content = b"".join(at_most(label, blocks, pace.MOST))
        return SmallAnswer(answer.status_code, answer.headers, content)


def parsed(content: bytes) -> object:
    """Return the value of a JSON text of a server; raises FormatError for others, and for one that
    is beyond the limits of JSON in containers.
    """
    return json_text.parse(memoryview(content), "the answer")


class HttpAnswer(NamedTuple):
    """The answer to a request; `blocks` yields its body as it arrives."""

    status: int
    headers: Mapping[str, str]
    blocks: Iterable[bytes]


def ranges(
    label: str,
    name: str,
    nbytes: int,
    spans: Iterable[Span],
    ask: Callable[[str], AbstractContextManager[HttpAnswer]],
) -> Iterator[ByteView]:
    """Yield parts of a file of `nbytes` bytes, each complete; `ask` sends a request with a Range.

    From a server that sends no parts the whole file is fetched, once. Raises InputError if the file
    does not exist, or is shorter.
    """
    whole: ByteView | None = None
    for start, end in spans:
        if whole is None:
            with ask(f"bytes={start}-{end - 1}") as answer:
                if answer.status == _PART:
                    part = answer.headers.get("content-range", "")
                    if not part.startswith(f"bytes {start}-{end - 1}/"):
                        raise InputError(
                            f"{label}: {shown(name)}: the server sent a different part than "
                            "requested"
                        )
                    yield received(label, name, answer.blocks, end - start)
                    continue
                if answer.status in (*GONE, _TOO_FAR):
                    raise InputError(f"{label}: {shown(name)}: gone, or shorter than before")
                if answer.status != _OK:
                    raise failure(label, shown(name), answer.status, answer.headers)
                whole = received(label, name, answer.blocks, nbytes)
        yield mapped(whole)[start:end]
