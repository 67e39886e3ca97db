"""A git-lfs server: objects by their SHA-256, uploaded and fetched in batches.

The Batch API and its basic transfer:
https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from wtxtgit.errors import (
    FormatError,
    InputError,
    RemoteRefused,
    RemoteUnavailable,
    UsageError,
    WtxtgitError,
)
from wtxtgit.git.credentials import Login
from wtxtgit.git.repository import Repository
from wtxtgit.io.view import PIECE, ByteView
from wtxtgit.remotes.http import (
    GONE,
    HttpAnswer,
    SmallAnswer,
    client,
    failure,
    failures,
    parsed,
    ranges,
    received,
    small,
)
from wtxtgit.remotes.lfs_access import NOTHING, Granted, SshGrants, server_of
from wtxtgit.remotes.lfs_pointer import LfsObject
from wtxtgit.remotes.target import Outgoing, Span, check_content, checked_pieces

if TYPE_CHECKING:
    import httpx

_MEDIA = "application/vnd.git-lfs+json"
_AT_ONCE = 100
"""Objects in one request, as in git-lfs itself."""
_FRESH = 120
"""Seconds after which the server is asked again: its addresses may expire."""
_UPLOAD, _DOWNLOAD = "upload", "download"
_UNAUTHORIZED = 401
_OK = range(200, 300)
_PART = 206
_NOT_SO = 422
_NOT_AS_SENT = (404, _NOT_SO)


class LfsServer:
    """The server at a URL, or of a remote, with the user's configuration in `repo`.

    If git reaches the remote by ssh, the access data come from there. Raises UsageError if no
    server is known for the remote.
    """

    def __init__(self, repo: Repository, remote: str, label: str, url: str | None = None) -> None:
        self._label = label
        server_url, ssh = (url, None) if url else server_of(repo, remote)
        parts = urlsplit(server_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{label}: its git-lfs server is unknown", hint="git config lfs.url URL"
            )
        host = parts.netloc.rpartition("@")[2]
        self._url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self._ssh = None if ssh is None else SshGrants(repo, ssh)
        user, password = (unquote(p) if p else None for p in (parts.username, parts.password))
        self._new_login = partial(Login, repo, self._url, user, password)
        self._login: Login | None = None

    def upload(self, files: Sequence[Outgoing], ref: str | None = None) -> None:
        """Upload the contents of files that the server lacks.

        `ref` is the branch that they are for, if any.
        """
        for file in files:
            check_content(file)
        by_sha256 = {file.sha256: file for file in files if len(file.content)}
        objects = [LfsObject(sha256, len(f.content)) for sha256, f in by_sha256.items()]
        with self._session(_UPLOAD) as session:
            for one, actions in session.batch(_UPLOAD, objects, ref):
                if actions is None:
                    raise RemoteRefused(f"{self._label}: the server does not accept {one.sha256}")
                if "upload" in actions:
                    file = by_sha256[one.sha256]
                    session.send(actions["upload"], file)
                    if "verify" in actions:
                        session.verify(actions["verify"], one)

    def contents(
        self, objects: Sequence[LfsObject]
    ) -> Generator[tuple[LfsObject, Iterator[bytes]]]:
        """Yield objects with their contents as they arrive.

        Objects that the server lacks are left out. Contents have to be read at once, and may be
        shorter or longer than stated. Safe for many threads.
        """
        with self._session(_DOWNLOAD) as session:
            for one, actions in session.batch(_DOWNLOAD, objects):
                if actions and "download" in actions:
                    with contextlib.closing(session.pieces(actions["download"], one)) as pieces:
                        yield one, pieces

    def gives_parts(self, of: LfsObject) -> bool:
        """Tell whether the server sends parts of an object.

        Raises InputError if it lacks the object.
        """
        with (
            self._session(_DOWNLOAD) as session,
            session.answered(self._download(session, of), "bytes=0-0") as answer,
        ):
            return answer.status == _PART

    def ranges(self, of: LfsObject, spans: Sequence[Span]) -> Iterator[ByteView]:
        """Yield parts of an object, each complete; safe for many threads.

        Raises InputError if the server lacks the object, or sends other parts.
        """
        with self._session(_DOWNLOAD) as session:
            action = self._download(session, of)
            ask = partial(session.answered, action)
            yield from ranges(self._label, of.sha256, of.nbytes, spans, ask)

    def fetch(self, lfs_object: LfsObject) -> ByteView:
        """Return an object's content.

        Raises InputError if the server lacks it, or sends too much.
        """
        if not lfs_object.nbytes:
            return memoryview(b"")
        with contextlib.closing(self.contents([lfs_object])) as contents:
            for _, content in contents:
                return received(self._label, lfs_object.sha256, content, lfs_object.nbytes)
        raise self._none(lfs_object)

    def held(self, objects: Sequence[LfsObject]) -> set[LfsObject]:
        """Return those objects that the server states it has."""
        nonempty = [lfs_object for lfs_object in objects if lfs_object.nbytes]
        with self._session(_DOWNLOAD) as session:
            answers = session.batch(_DOWNLOAD, nonempty)
            has = {one for one, actions in answers if actions and "download" in actions}
        return has.union(lfs_object for lfs_object in objects if not lfs_object.nbytes)

    def _download(self, session: _BatchSession, of: LfsObject) -> Mapping[str, Any]:
        for _, actions in session.batch(_DOWNLOAD, [of]):
            if actions and "download" in actions:
                action: Mapping[str, Any] = actions["download"]
                return action
        raise self._none(of)

    def _none(self, lfs_object: LfsObject) -> InputError:
        return InputError(f"{self._label}: the server has no object {lfs_object.sha256}")

    @contextlib.contextmanager
    def _session(self, operation: str) -> Iterator[_BatchSession]:
        granted = None if self._ssh is None else partial(self._ssh.of, operation)
        login = self._login
        if login is None or login.is_refused:
            login = self._login = self._new_login()
        with client(self._label) as http:
            yield _BatchSession(self._label, http, self._url, login, granted)


class _BatchSession:
    """One operation, with the access data that ssh `granted`, or else the credentials in
    `login`.
    """

    def __init__(
        self,
        label: str,
        http: httpx.Client,
        url: str,
        login: Login,
        granted: Callable[[], Granted] | None = None,
    ) -> None:
        self._label, self._http, self._login = label, http, login
        self._granted = granted or (lambda: NOTHING)
        self._url = self._granted().url or url
        # This includes redirects.
        http.event_hooks = {"request": [lambda request: self._check_scheme(request.url.scheme)]}

    def batch(
        self, operation: str, objects: Sequence[LfsObject], ref: str | None = None
    ) -> Iterator[tuple[LfsObject, Mapping[str, Any] | None]]:
        """Yield the actions for each object; None for an object that the server lacks."""
        left = dict.fromkeys(objects)
        while left:
            requested = list(left)[:_AT_ONCE]
            body = {
                "operation": operation,
                "transfers": ["basic"],
                "objects": [
                    {"oid": lfs_object.sha256, "size": lfs_object.nbytes}
                    for lfs_object in requested
                ],
                "hash_algo": "sha256",
                **({"ref": {"name": ref}} if ref else {}),
            }
            answer = self._post(f"{self._url}/objects/batch", body)
            since = time.monotonic()
            for one, actions in self._parsed(answer, requested):
                del left[one]
                yield one, actions
                if time.monotonic() - since > _FRESH:
                    break

    def send(self, action: Mapping[str, Any], file: Outgoing) -> None:
        headers = {
            "content-type": "application/octet-stream",
            **self._headers(action),
            "content-length": str(len(file.content)),
        }
        content = map(bytes, checked_pieces(file))
        answer = self._small("PUT", action["href"], headers=headers, content=content)
        self._check(answer.status, answer.headers, file.name)

    def verify(self, action: Mapping[str, Any], sent: LfsObject) -> None:
        headers = {"accept": _MEDIA, "content-type": _MEDIA, **self._headers(action)}
        body = {"oid": sent.sha256, "size": sent.nbytes}
        answer = self._small("POST", action["href"], headers=headers, json=body)
        # What it accepted a moment ago is missing or different there: it can be sent again.
        if answer.status in _NOT_AS_SENT:
            raise RemoteUnavailable(f"{self._label}: {sent.sha256}: arrived with different content")
        self._check(answer.status, answer.headers, sent.sha256)

    def pieces(self, action: Mapping[str, Any], lfs_object: LfsObject) -> Generator[bytes]:
        """Yield an object as it arrives; nothing if it is gone."""
        # The consumer is outside of the client's own `with` block.
        with failures(f"{self._label}: {lfs_object.sha256}"), self.answered(action) as answer:
            if answer.status not in GONE:
                self._check(answer.status, answer.headers, lfs_object.sha256)
                yield from answer.blocks

    @contextlib.contextmanager
    def answered(self, action: Mapping[str, Any], part: str | None = None) -> Iterator[HttpAnswer]:
        """Open the answer to a download, or to that of a part (Range)."""
        headers = {**self._headers(action), **({"range": part} if part else {})}
        with self._http.stream(
            "GET", action["href"], headers=headers, follow_redirects=True
        ) as answer:
            yield HttpAnswer(answer.status_code, answer.headers, answer.iter_bytes(PIECE))

    def _post(self, url: str, body: Mapping[str, Any]) -> Any:
        known = self._login.headers
        answer = self._posted(url, body)
        if not self._granted().headers:
            if answer.status == _UNAUTHORIZED and self._login.ask(known):
                answer = self._posted(url, body)
            if answer.status in (*_OK, _UNAUTHORIZED):
                self._login.settle(is_good=answer.status != _UNAUTHORIZED)
        if answer.status in GONE and body["operation"] == _DOWNLOAD:
            # Some servers answer in this way for all objects together.
            error = {"code": answer.status}
            return {"objects": [{**entry, "error": error} for entry in body["objects"]]}
        self._check(answer.status, answer.headers, "objects/batch")
        try:
            return parsed(answer.content)
        except FormatError:
            raise self._strange() from None

    def _posted(self, url: str, body: object) -> SmallAnswer:
        headers = {"accept": _MEDIA, "content-type": _MEDIA, **self._who}
        return self._small("POST", url, headers=headers, json=body)

    def _small(self, method: str, url: str, **options: Any) -> SmallAnswer:
        return small(self._label, self._http, method, url, **options)

    def _parsed(
        self, answer: object, requested: Sequence[LfsObject]
    ) -> Iterator[tuple[LfsObject, Mapping[str, Any] | None]]:
        match answer:
            case {"objects": list() as objects, **more} if more.get("transfer", "basic") == "basic":
                pass
            case _:
                raise self._strange()
        left = {lfs_object.sha256: lfs_object for lfs_object in requested}
        for entry in objects:
            match entry:
                case {"oid": str() as oid, "error": {"code": int() as code}} if oid in left:
                    # An object of another size is not the one that was asked for.
                    if code not in (*GONE, _NOT_SO):
                        raise failure(self._label, oid, code, {})
                    yield left.pop(oid), None
                case {"oid": str() as oid, "size": int() as size} if left.get(oid) == (oid, size):
                    yield left.pop(oid), self._actions(entry.get("actions"))
                case _:
                    raise self._strange()
        if left:
            raise self._strange()

    @property
    def _who(self) -> Mapping[str, str]:
        return self._granted().headers or self._login.headers

    def _actions(self, actions: object) -> Mapping[str, Any]:
        if actions is None:
            return {}
        if not isinstance(actions, dict):
            raise self._strange()
        for action in actions.values():
            match action:
                case {"href": str() as href}:
                    self._check_scheme(urlsplit(href).scheme)
                case _:
                    raise self._strange()
            header = action.get("header") or {}
            if not isinstance(header, dict) or not all(
                isinstance(text, str) for item in header.items() for text in item
            ):
                raise self._strange()
        return actions

    def _headers(self, action: Mapping[str, Any]) -> dict[str, str]:
        headers = {key.lower(): value for key, value in (action.get("header") or {}).items()}
        # Credentials are sent to the server itself only; signed addresses carry their own.
        ours, theirs = urlsplit(self._url), urlsplit(action["href"])
        is_same = (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)
        if is_same and "authorization" not in headers:
            return {**self._who, **headers}
        return headers

    def _check_scheme(self, scheme: str) -> None:
        # If the connection to the server is encrypted, others have to be, too.
        if scheme not in ("https", urlsplit(self._url).scheme):
            raise RemoteRefused(f"{self._label}: redirects to an address without TLS")

    def _check(self, status: int, headers: Mapping[str, str], what: str) -> None:
        if status not in _OK:
            raise failure(self._label, what, status, headers)

    def _strange(self) -> WtxtgitError:
        return RemoteRefused(
            f"{self._label}: the server's answer does not follow git-lfs's Batch API"
        )
