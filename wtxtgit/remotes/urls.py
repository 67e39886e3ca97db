"""Files at URLs, as fsspec opens them: read completely into a spool, and written completely.

fsspec is installed with the extra `dask`, and each store's own package with it (s3fs, gcsfs,
adlfs). Messages show a URL without user, password and query, which may be credentials.
https://filesystem-spec.readthedocs.io/
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from wtxtgit.errors import (
    EnvironmentFailure,
    InputError,
    RemoteRefused,
    RemoteUnavailable,
    WtxtgitError,
    lacking,
    phrase,
)
from wtxtgit.io.files import replace_file, shown, view_file
from wtxtgit.io.progress import Progress
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.remotes import pace

GIT = "git+"
"""The start of the URL of a file in a repository: `remotes.git_urls`."""
_BLOCK = 8 * 1024 * 1024
"""Bytes that are read at a time."""
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_AUTHORITY = re.compile(r"([^/?#@:]*):(?![0-9]*(?:[/?#]|$))")
"""A user and the start of a password, which may contain what would end a host name."""
_LOOPBACK = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|::1")
_RANGE = re.compile("bytes=([0-9]{1,18})-([0-9]{1,18})")
_QUERY = re.compile(r"[?#].*", re.DOTALL)
_WHOLE_STORES = frozenset(
    ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "memory", "http", "https")
)
"""Protocols of stores in which a file only appears when it is complete."""
_NEVER = frozenset((401, 403, 404, 405, 410, 411, 413, 414, 451))
"""HTTP statuses for which a later try makes no sense: RFC 9110, section 15.5."""
_DENIED = re.compile("credential|accessdenied|forbidden|permission|authenti|nosuchbucket", re.I)
"""Words in the names of exceptions by which packages of stores report missing access."""
_NOT_IN_MEMBERS = re.compile(r"[%?#:*{}\[\]\\\x00-\x1f\x7f]")
"""Characters that a store may interpret: as escapes, queries, patterns, URLs."""


def is_url(name: str) -> bool:
    """Tell whether a file is named by a URL, such as s3://bucket/model.aero."""
    return _URL.match(name) is not None


def is_known(url: str) -> bool:
    """Tell whether fsspec knows such URLs, even if the store's own package is not installed.

    Raises EnvironmentFailure without fsspec.
    """
    try:
        from fsspec.registry import known_implementations, registry
    except ImportError:
        raise _needs(url, "fsspec") from None
    scheme = url.partition("://")[0]
    return scheme in known_implementations or scheme in registry


def is_loopback(host: str) -> bool:
    """Tell whether a host, without its port, is this machine, to which nobody can listen in."""
    return _LOOPBACK.fullmatch(host) is not None


def shown_url(url: str) -> str:
    """Return a URL for a message: without user, password and query."""
    if url.startswith(GIT):
        # What follows the repository's own URL names the file; credentials are refused there.
        repository, sign, file = url.partition("#")
        return shown_url(repository.removeprefix(GIT)) + shown(sign + file)
    scheme, sign, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        rest = rest[authority.rindex("@") + 1 :]
    elif _AUTHORITY.match(rest):
        rest = rest.rpartition("@")[2]
    return shown(scheme + sign + _QUERY.sub("", rest))


def file_name(url: str) -> str:
    """Return the last part of a URL's path."""
    if url.startswith(GIT):
        return url.rpartition("/" if "/" in url.partition("#")[2] else ":")[2]
    return _QUERY.sub("", url).rpartition("/")[2]


def read_url(url: str) -> ByteView:
    """Return the bytes of the file at `url`.

    Raises InputError if there is no such file or its length differs from what the store states,
    EnvironmentFailure if the store can't be read or the temporary folder has no room.
    """
    with _failures(url):
        fs, path = _opened(url)
        if _is_local(fs):
            # Mapped in place: a copy in the temporary folder would be of no use.
            return view_file(Path(path))
        return _fetched(fs, path, url)


def member_of(url: str, path: str) -> ByteView:
    """Return the bytes of a file of the set whose index is at `url`, by its path in the set's
    folder.

    Raises as `read_url` does, and InputError for a path that the store might interpret otherwise.
    """
    # The index is not trusted: each path must mean exactly one file in the index's own folder.
    if _NOT_IN_MEMBERS.search(path):
        raise InputError("its name has characters with a special meaning in URLs")
    with _failures(url):
        fs, index = _opened(url)
        folder = _QUERY.sub("", index) if _is_http(fs) else index
        folder = folder.rpartition("/")[0]
        return _fetched(fs, f"{folder}/{path}" if folder else path, url)


def local_path(url: str) -> Path | None:
    """Return the path that a file:// URL stands for; None for other URLs."""
    if url.startswith(GIT):
        return None
    with _failures(url):
        fs, path = _opened(url)
        return Path(path) if _is_local(fs) else None


def write_url(url: str, write: Callable[[int], None], progress: Progress | None = None) -> int:
    """Call `write` with the descriptor of a temporary file, then store that at `url`.

    `progress` gets counts of the bytes that are sent, if the store tells them. Returns the size in
    bytes. Raises EnvironmentFailure if the store does not accept it.
    """
    with _failures(url, missing=RemoteRefused):
        fs, path = _opened(url)
        if _is_local(fs):
            replace_file(Path(path), write)
            return Path(path).stat().st_size
        from wtxtgit.io.temporary import temporary_folder

        with temporary_folder() as folder:
            content = folder / "content"
            with content.open("x+b") as file:
                write(file.fileno())
            size = content.stat().st_size
            _put_whole(fs, str(content), path, _callback(progress))
        # The previous file may be cached.
        fs.invalidate_cache()
        stored = _size(fs, path, url)
        if stored != size:
            raise EnvironmentFailure(f"{shown_url(url)}: has {stored} of {size} bytes")
        return size


def size_at(url: str) -> int | None:
    """Return the size of the file at `url` in bytes, None if there is none.

    Raises as `read_url`.
    """
    with _failures(url):
        fs, path = _opened(url)
        # Other processes may write there, too.
        fs.invalidate_cache()
        try:
            return _size(fs, path, url)
        except FileNotFoundError:
            return None


def time_at(url: str) -> float | None:
    """Return when the file at `url` was written, in seconds since 1970.

    Returns None if the store does not tell, or has no such file. Raises as `read_url` does.
    """
    with _failures(url):
        fs, path = _opened(url)
        try:
            told = fs.modified(path)
        except (FileNotFoundError, NotImplementedError):
            return None
        # Without a time zone it is UTC.
        if isinstance(told, datetime):
            return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
        return None


def remove_url(url: str) -> None:
    """Remove the file at `url`, if it exists.

    Raises EnvironmentFailure if the store does not do it.
    """
    with _failures(url):
        fs, path = _opened(url)
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(path)
        fs.invalidate_cache()


def ranges_at(url: str, spans: Sequence[tuple[int, int]]) -> Iterator[memoryview]:
    """Yield parts of the file at `url`, each complete; `spans` are pairs of start and end.

    Raises as `read_url` does, and InputError if the store returns another number of bytes.
    """
    with _failures(url):
        fs, path = _opened(url)
    for start, stop in spans:
        try:
            with _failures(url):
                part = memoryview(fs.cat_file(path, start=start, end=stop))
        except EnvironmentFailure:
            # Stores have different errors for a range that begins after a file's end.
            if (size_at(url) or 0) >= stop:
                raise
            raise InputError(f"{shown_url(url)}: ends before byte {stop}") from None
        if part.nbytes != stop - start:
            raise InputError(f"{shown_url(url)}: sent {part.nbytes} of {stop - start} bytes")
        yield part


def files_below(url: str) -> list[tuple[str, int]]:
    """List all files below `url`: their paths from there, and sizes in bytes.

    Raises EnvironmentFailure if the store can't be read. A missing folder has no files.
    """
    with _failures(url):
        fs, path = _opened(url)
        fs.invalidate_cache()
        root = path.rstrip("/") + "/"
        try:
            found = fs.find(path, detail=True)
        except FileNotFoundError:
            return []
        return [
            (name.removeprefix(root), info["size"])
            for name, info in found.items()
            if name.startswith(root) and type(info.get("size")) is int
        ]


def _opened(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the file's path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise _needs(url, "fsspec") from None
    try:
        fs, path = url_to_fs(url, **(_patient() if url.startswith(("http://", "https://")) else {}))
    except ValueError:
        raise InputError(
            f"{shown_url(url)}: no fsspec package for such URLs is installed"
        ) from None
    except ImportError as error:
        if error.name == "aiohttp":
            raise _needs(url, "aiohttp") from None
        # The message names the missing package.
        raise EnvironmentFailure(f"{shown_url(url)}: {phrase(str(error))}") from None
    return fs, str(path)


def _needs(url: str, package: str) -> EnvironmentFailure:
    message = f"{shown_url(url)}: reading it needs {package}"
    return EnvironmentFailure(message, hint="pip install 'wtxtgit[dask]'")


def _patient() -> dict[str, Any]:
    """Return options for HTTP: a large file may take any time, as long as data keep coming."""
    import asyncio

    from aiohttp import ClientResponse, ClientTimeout

    class Paced(ClientResponse):
        async def start(self, connection: Any) -> ClientResponse:
            # While a file is sent no headers are expected yet.
            has_body = self.method not in ("GET", "HEAD")
            async with asyncio.timeout(None if has_body else pace.SILENCE):
                return await super().start(connection)

        async def read(self) -> bytes:
            asked = _RANGE.fullmatch(self.request_info.headers.get("Range", ""))
            most = int(asked[2]) - int(asked[1]) + 1 if asked else pace.MOST
            kept, so_far = bytearray(), pace.Pace()
            began = time.monotonic()
            # What is longer than was asked for is refused for its length.
            while len(kept) <= most and (block := await self.content.readany()):
                so_far.counted(len(block), time.monotonic() - began)
                kept += block
                began = time.monotonic()
            return bytes(kept)

    silence = {"sock_connect": pace.CONNECT, "sock_read": pace.SILENCE}
    timeout = ClientTimeout(total=None, **silence)
    return {"client_kwargs": {"timeout": timeout, "response_class": Paced}}


def _callback(progress: Progress | None) -> Any:
    """Return what fsspec calls with the bytes that were just sent."""
    from fsspec.callbacks import DEFAULT_CALLBACK, Callback

    if progress is None:
        return DEFAULT_CALLBACK
    told = Callback()
    told.relative_update = progress
    return told


def _put_whole(fs: Any, file: str, path: str, callback: Any) -> None:
    """Store a local file; first under another name if the store would show part of it."""
    if not _WHOLE_STORES.isdisjoint(_protocols(fs)):
        fs.put_file(file, path, callback=callback)
        return
    folder, _, name = path.rpartition("/")
    if folder:
        fs.makedirs(folder, exist_ok=True)
    part = f"{folder}/.{name}.part" if folder else f".{name}.part"
    fs.put_file(file, part, callback=callback)
    fs.mv(part, path)


def _is_local(fs: Any) -> bool:
    return "file" in _protocols(fs)


def _is_http(fs: Any) -> bool:
    return "http" in _protocols(fs)


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _size(fs: Any, path: str, url: str) -> int:
    info = fs.info(path)
    size = info.get("size")
    if info.get("type") == "directory":
        raise InputError(f"{shown_url(url)}: is a folder")
    # Chunked answers have no length, so a truncated file would look complete.
    if type(size) is not int or size < 0:
        raise InputError(f"{shown_url(url)}: the store does not state its length")
    return size


def _fetched(fs: Any, path: str, url: str) -> ByteView:
    size = _size(fs, path, url)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if size > free:
        raise EnvironmentFailure(
            f"{shown_url(url)}: {size} bytes, but the temporary folder has room for {free}",
            hint="export TMPDIR=FOLDER chooses another folder",
        )
    # Not every server sends parts of a file; any can stream it.
    options = {"block_size": 0} if _is_http(fs) else {}
    with fs.open(path, "rb", **options) as file:
        return spooled(_pieces(file, size, url))


def _pieces(file: Any, size: int, url: str) -> Iterator[bytes]:
    left, so_far = size, pace.Pace()
    while left:
        piece = so_far.timed(partial(file.read, min(left, _BLOCK)), len)
        if not piece:
            raise InputError(f"{shown_url(url)}: ends after {size - left} of {size} bytes")
        left -= len(piece)
        if left < 0:
            break
        yield piece
    # If the store sends more than it stated, the file may have been replaced meanwhile.
    if left < 0 or file.read(1):
        raise InputError(f"{shown_url(url)}: has more than the {size} bytes that the store stated")


@contextlib.contextmanager
def _failures(url: str, missing: type[WtxtgitError] = InputError) -> Iterator[None]:
    """Turn errors of stores into errors of ours; `missing` if something does not exist.

    Only the kind of an error is shown: its message may contain the whole URL, or a request with
    credentials.
    """
    try:
        yield
    except WtxtgitError:
        raise
    except FileNotFoundError as error:
        # fsspec's HTTP calls every failure so, and chains what happened.
        cause = error.__cause__
        if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
            why = type(cause).__name__
            raise RemoteUnavailable(f"{shown_url(url)}: can't be reached: {why}") from None
        raise missing(f"{shown_url(url)}: no such file") from None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - each store has exceptions of its own
        # Its threads are lacking here, not there.
        if isinstance(error, RuntimeError) and (here := lacking(error)):
            raise here from None
        status = getattr(error, "status", None)
        code = f" {status}" if type(status) is int else ""
        kind = type(error).__name__
        is_final = status in _NEVER or isinstance(error, PermissionError) or _DENIED.search(kind)
        failure = RemoteRefused if is_final else RemoteUnavailable
        raise failure(f"{shown_url(url)}: can't be reached: {kind}{code}") from None
