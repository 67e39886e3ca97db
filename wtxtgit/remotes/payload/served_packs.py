"""Packs of payload in a folder that a web server serves, read-only.

Spec: `docs/spec/store.md`, "Remote". Any server of static files will do: `packs.txt` lists the
packs. Without TLS only this machine is contacted, even after redirects, and credentials are only
sent to the URL's own host.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from wtxtgit.errors import RemoteRefused
from wtxtgit.git.credentials import Login
from wtxtgit.git.repository import Repository
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import PIECE, Buffer, mapped
from wtxtgit.remotes.http import GONE, HttpAnswer, at_most, client, failure, failures, ranges
from wtxtgit.remotes.payload.place import (
    LIST,
    MAX_PACKS,
    OutgoingPack,
    divisible_anywhere,
    several_at_once,
)
from wtxtgit.remotes.target import Span
from wtxtgit.remotes.urls import is_loopback, shown_url
from wtxtgit.store.pack import MAX_END

if TYPE_CHECKING:
    import httpx

_HOPS = 6
"""Most requests for one file: redirects, and another one with a password."""
_OK, _ERROR, _UNAUTHORIZED, _FORBIDDEN = 200, 400, 401, 403
_LINE = re.compile("[0-9a-f]{64}")
_MOST_LIST = MAX_PACKS * 65
_NONE: Mapping[str, str] = {}
_ANEW = {"cache-control": "no-cache"}


class ServedPacks:
    """The packs in an `https://` folder, or an `http://` one on this machine; see `PackPlace`.

    Credentials are those that git has for the URL.
    """

    def __init__(self, repo: Repository, url: str) -> None:
        self._url = url.rstrip("/")
        self._login = Login(repo, url)
        self.label = shown_url(self._url)
        self._names: Sequence[str] = ()
        self._gives_parts = False

    def packs(self) -> Sequence[str]:
        with client(self.label) as http, self._get(http, LIST, _ANEW) as answer:
            if answer.status in GONE:
                raise RemoteRefused(
                    f"{self.label}: has no {LIST}, the list of its packs",
                    hint="whoever committed it has to run wtxtgit store use URL, of the folder "
                    "that it serves, then wtxtgit push, in the clone that has the data",
                )
            self._check(LIST, answer)
            self._gives_parts = answer.headers.get("accept-ranges", "").lower() == "bytes"
            content = b"".join(at_most(self.label, answer.blocks, _MOST_LIST))
        names = content.decode("ascii", "replace").splitlines()
        if names != sorted(set(names)) or not all(map(_LINE.fullmatch, names)):
            raise RemoteRefused(f"{self.label}: {LIST} is not a list of packs")
        self._names = names
        return names

    def ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        return several_at_once(names, self._ends)

    def _ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        with client(self.label) as http:
            for name in names:
                file = f"{name}.index"
                with self._get(http, file) as answer:
                    if answer.status not in GONE:
                        self._check(file, answer)
                        try:
                            end = b"".join(at_most(self.label, answer.blocks, MAX_END))
                        except RemoteRefused:
                            continue
                        yield name, end

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        with client(self.label) as http:
            for name in sizes:
                file = f"{name}.pack"
                with self._get(http, file) as answer:
                    if answer.status not in GONE:
                        self._check(file, answer)
                        yield name, iter(answer.blocks)

    def divisible(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        return divisible_anywhere(self, sizes)

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        return self._ranges(name, size, spans) if self._gives_parts else None

    def _ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer]:
        file = f"{name}.pack"
        with client(self.label) as http:
            parts = ranges(
                self.label,
                file,
                size,
                spans,
                lambda byte_range: self._get(http, file, {"range": byte_range}),
            )
            yield from map(mapped, parts)

    def gives_parts(self, pack: str | None = None, size: int = 0) -> bool:
        return self._gives_parts

    def put(self, packs: Sequence[OutgoingPack], progress: Progress | None = None) -> None:
        raise self._read_only()

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        """See `PackPlace`: nothing can be sent again."""
        return ()

    def settle(self) -> None:
        """See `PackPlace`: the writer of the packs has done that."""

    def parts(self) -> Sequence[str]:
        return ()

    def times(self, names: Sequence[str]) -> Mapping[str, float | None]:
        return {name: None for name in names if name in self._names}

    def marked(self) -> Collection[str]:
        """See `PackPlace`: the list of packs does not tell, and nothing can be sent there."""
        return ()

    def mark(self, names: Sequence[str]) -> None:
        raise self._read_only()

    def remove(self, names: Sequence[str]) -> None:
        raise self._read_only()

    def forget(self, names: Sequence[str]) -> None:
        raise self._read_only()

    def _read_only(self) -> RemoteRefused:
        return RemoteRefused(
            f"{self.label}: is read-only",
            hint="wtxtgit store use URL, of the folder that it serves",
        )

    def _check(self, file: str, answer: HttpAnswer) -> None:
        if answer.status != _OK:
            raise failure(self.label, file, answer.status, answer.headers)

    @contextlib.contextmanager
    def _get(
        self, http: httpx.Client, file: str, headers: Mapping[str, str] = _NONE
    ) -> Iterator[HttpAnswer]:
        with contextlib.closing(self._answered(http, file, headers)) as answer:

            def came() -> Iterator[bytes]:
                with failures(f"{self.label}: {file}", "breaks off"):
                    yield from answer.iter_raw(PIECE)

            # This is how a bucket reports a missing file to those who may not list it.
            is_gone = answer.status_code == _FORBIDDEN and file != LIST
            is_gone = is_gone and "retry-after" not in answer.headers
            status = GONE[0] if is_gone else answer.status_code
            yield HttpAnswer(status, answer.headers, came())

    def _answered(
        self, http: httpx.Client, file: str, headers: Mapping[str, str]
    ) -> httpx.Response:
        """Request a file, following redirects."""
        url = first = http.build_request("GET", f"{self._url}/{file}").url
        for _ in range(_HOPS):
            if not (
                url.scheme == "https" or (url.scheme == first.scheme and is_loopback(url.host))
            ):
                raise RemoteRefused(f"{self.label}: redirects to an address without TLS")
            is_own = _origin(url) == _origin(first)
            login = self._login.headers if is_own else _NONE
            request = http.build_request("GET", url, headers={**headers, **login})
            answer = http.send(request, stream=True, follow_redirects=False)
            if is_own and answer.status_code == _UNAUTHORIZED:
                if self._login.ask(login):
                    answer.close()
                    continue
                self._login.settle(is_good=False)
            elif is_own and answer.status_code < _ERROR:
                self._login.settle(is_good=True)
            if answer.next_request is None:
                return answer
            answer.close()
            url = answer.next_request.url
        raise RemoteRefused(f"{self.label}: {file}: too many redirects")


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
