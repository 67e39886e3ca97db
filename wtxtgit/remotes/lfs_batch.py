"""A server of git-lfs: objects by their SHA-256, which are uploaded and fetched in batches.

The Batch API and its basic transfer: https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from wtxtgit.errors import InputError, RemoteRefused, RemoteUnavailable, UsageError, WtxtgitError
from wtxtgit.git.credentials import Credential, extra_header, fill, settle
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown
from wtxtgit.io.view import PIECE, ByteView
from wtxtgit.remotes.http import client, failure, received
from wtxtgit.remotes.target import Outgoing, check_content, checked_pieces

if TYPE_CHECKING:
    import httpx

_MEDIA = "application/vnd.git-lfs+json"
_AT_ONCE = 100
"""Objects that one request asks for: what git-lfs itself asks for."""
_SCP = re.compile(r"(?:[^@/:]+@)?(?P<host>[^/:]+):(?!//)(?P<path>.+)")
_HTTPS = "https" + "://"
_UNAUTHORIZED = 401
_OK = range(200, 300)
_GONE = (404, 410)
_NOT_AS_SENT = (404, 422)


class LfsObject(NamedTuple):
    """An object of a server: its name in lower-case hex, and its bytes."""

    sha256: str
    nbytes: int


class _Secret(NamedTuple):
    value: str

    def __repr__(self) -> str:
        return "_Secret()"


class LfsServer:
    """The server at a URL, or of a remote, with the user's configuration of `repo`.

    Raises UsageError where the remote has none that is known.
    """

    def __init__(self, repo: Repository, remote: str, label: str, url: str | None = None) -> None:
        self._repo = repo
        self._label = label
        found = url or _configured(repo, remote)
        parts = urlsplit(found)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{label}: no git-lfs server is known for it", hint="git config lfs.url URL"
            )
        host = parts.netloc.rpartition("@")[2]
        self._url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self._user = unquote(parts.username) if parts.username else None
        self._secret = _Secret(unquote(parts.password)) if parts.password else None

    def upload(self, files: Sequence[Outgoing], ref: str) -> None:
        """Have the server have these files' contents; what it has is not sent again."""
        for file in files:
            check_content(file)
        by_sha256 = {file.sha256: file for file in files if len(file.content)}
        wanted = [LfsObject(sha256, len(f.content)) for sha256, f in by_sha256.items()]
        with self._session() as session:
            for found, actions in session.batch("upload", wanted, ref):
                if "upload" in actions:
                    file = by_sha256[found.sha256]
                    session.send(actions["upload"], file)
                    if "verify" in actions:
                        session.verify(actions["verify"], found)

    def fetch(self, wanted: LfsObject) -> ByteView:
        """An object's content; raises InputError where the server has none, or gives too much."""
        if not wanted.nbytes:
            return memoryview(b"")
        with self._session() as session:
            for _, actions in session.batch("download", [wanted]):
                if "download" in actions:
                    return session.receive(actions["download"], wanted)
        raise InputError(f"{self._label}: the server has no object {wanted.sha256}")

    def has(self, wanted: LfsObject) -> bool:
        """Whether the server says that it has an object."""
        if not wanted.nbytes:
            return True
        with self._session() as session:
            try:
                return any("download" in a for _, a in session.batch("download", [wanted]))
            except InputError:
                return False

    @contextlib.contextmanager
    def _session(self) -> Iterator[_BatchSession]:
        with client(self._label) as http:
            header = extra_header(self._repo, self._url)
            known = dict([header]) if header is not None else {}
            if not known and self._user and self._secret:
                known = _basic(self._user, self._secret.value)
            session = _BatchSession(self._label, http, self._url, known)
            session.ask_user = lambda: fill(self._repo, self._url, self._user)
            try:
                yield session
            finally:
                if session.asked is not None and session.is_good is not None:
                    settle(self._repo, session.asked, is_good=session.is_good)


class _BatchSession:
    """One operation. `authorized` are the headers that tell the server who asks.

    Where the server wants to know it, `ask_user` is called, once; `asked` is the credential that
    it gave, and `is_good` whether the server took it.
    """

    def __init__(
        self, label: str, http: httpx.Client, url: str, authorized: Mapping[str, str]
    ) -> None:
        self._label, self._http, self._url = label, http, url
        self._authorized = authorized
        self.ask_user: Callable[[], Credential | None] = lambda: None
        self.asked: Credential | None = None
        self.is_good: bool | None = None

    def batch(
        self, operation: str, wanted: Sequence[LfsObject], ref: str | None = None
    ) -> Iterator[tuple[LfsObject, Mapping[str, Any]]]:
        """What is to be done for each object; raises InputError for one that is not there."""
        for start in range(0, len(wanted), _AT_ONCE):
            asked = wanted[start : start + _AT_ONCE]
            body = {
                "operation": operation,
                "transfers": ["basic"],
                "objects": [{"oid": one.sha256, "size": one.nbytes} for one in asked],
                "hash_algo": "sha256",
                **({"ref": {"name": ref}} if ref else {}),
            }
            url = f"{self._url}/objects/batch"
            told = self._post(url, body, is_download=operation == "download")
            yield from self._parsed(told, asked)

    def send(self, action: Mapping[str, Any], file: Outgoing) -> None:
        headers = {
            "content-type": "application/octet-stream",
            **self._headers(action),
            "content-length": str(len(file.content)),
        }
        answer = self._http.put(
            action["href"], headers=headers, content=map(bytes, checked_pieces(file))
        )
        self._check(answer, file.name)

    def verify(self, action: Mapping[str, Any], sent: LfsObject) -> None:
        headers = {"accept": _MEDIA, "content-type": _MEDIA, **self._headers(action)}
        body = {"oid": sent.sha256, "size": sent.nbytes}
        answer = self._http.post(action["href"], headers=headers, json=body)
        # What it took a moment ago is not there, or is not that: it can be sent again.
        if answer.status_code in _NOT_AS_SENT:
            raise RemoteUnavailable(f"{self._label}: {sent.sha256}: arrived with another content")
        self._check(answer, sent.sha256)

    def receive(self, action: Mapping[str, Any], wanted: LfsObject) -> ByteView:
        headers = self._headers(action)
        href = action["href"]
        with self._http.stream("GET", href, headers=headers, follow_redirects=True) as answer:
            self._check(answer, wanted.sha256)
            return received(self._label, wanted.sha256, answer.iter_bytes(PIECE), wanted.nbytes)

    def _post(self, url: str, body: object, *, is_download: bool) -> Any:
        answer = self._posted(url, body)
        if answer.status_code == _UNAUTHORIZED and self.asked is None:
            self.asked = self.ask_user()
            if self.asked is not None:
                self._authorized = _basic(self.asked.user, self.asked.password)
                answer = self._posted(url, body)
        if self.asked is not None and (answer.status_code in (*_OK, _UNAUTHORIZED)):
            self.is_good = answer.status_code != _UNAUTHORIZED
        # Some servers say so of all objects together.
        if answer.status_code in _GONE and is_download:
            raise InputError(f"{self._label}: the server has no such object")
        self._check(answer, "objects/batch")
        try:
            return answer.json()
        except ValueError:
            raise self._strange() from None

    def _posted(self, url: str, body: object) -> httpx.Response:
        headers = {"accept": _MEDIA, "content-type": _MEDIA, **self._authorized}
        return self._http.post(url, headers=headers, json=body)

    def _parsed(
        self, told: object, asked: Sequence[LfsObject]
    ) -> Iterator[tuple[LfsObject, Mapping[str, Any]]]:
        match told:
            case {"objects": list() as objects, **more} if more.get("transfer", "basic") == "basic":
                pass
            case _:
                raise self._strange()
        left = set(asked)
        for one in objects:
            match one:
                case {"oid": str(), "error": {"code": int() as code}}:
                    if code in (404, 410):
                        raise InputError(
                            f"{self._label}: the server has no {shown(one['oid'][:64])}"
                        )
                    raise failure(self._label, shown(one["oid"][:64]), code, {})
                case {"oid": str() as oid, "size": int() as size}:
                    found = LfsObject(oid, size)
                    if found not in left:
                        raise self._strange()
                    left.discard(found)
                    yield found, self._actions(one.get("actions"))
                case _:
                    raise self._strange()
        if left:
            raise self._strange()

    def _actions(self, told: object) -> Mapping[str, Any]:
        if told is None:
            return {}
        if not isinstance(told, dict):
            raise self._strange()
        for action in told.values():
            match action:
                case {"href": str() as href}:
                    parts = urlsplit(href)
                    # What may be read on the way to the server may not be read here either.
                    if parts.scheme not in ("https", urlsplit(self._url).scheme):
                        raise self._strange()
                case _:
                    raise self._strange()
            header = action.get("header") or {}
            if not isinstance(header, dict) or not all(
                isinstance(text, str) for item in header.items() for text in item
            ):
                raise self._strange()
        return told

    def _headers(self, action: Mapping[str, Any]) -> dict[str, str]:
        given = {key.lower(): value for key, value in (action.get("header") or {}).items()}
        # Who asks is nobody else's business, and signed addresses say it themselves.
        ours, theirs = urlsplit(self._url), urlsplit(action["href"])
        is_same = (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)
        if is_same and "authorization" not in given:
            return {**self._authorized, **given}
        return given

    def _check(self, answer: httpx.Response, what: str) -> None:
        if answer.status_code not in _OK:
            raise failure(self._label, what, answer.status_code, answer.headers)

    def _strange(self) -> WtxtgitError:
        return RemoteRefused(f"{self._label}: what the server says is not git-lfs's Batch API")


def _basic(user: str, password: str) -> dict[str, str]:
    token = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {"authorization": f"Basic {token}"}


def _configured(repo: Repository, remote: str) -> str:
    """The server's URL that git-lfs would use, but for one that the work tree says (.lfsconfig).

    https://github.com/git-lfs/git-lfs/blob/main/docs/api/server-discovery.md
    """
    known = repo.config.get(f"remote.{remote}.lfsurl") or repo.config.get("lfs.url")
    if known:
        return known
    done = repo.call("remote", "get-url", "--push", "--", remote, ok=(0, 2, 128))
    url = done.stdout.decode("utf-8", "replace").strip() if not done.code else remote
    parts = urlsplit(url)
    scp = _SCP.fullmatch(url)
    if parts.scheme in ("http", "https"):
        base = url.rstrip("/")
    elif parts.scheme == "ssh" and parts.hostname:
        base = _HTTPS + f"{parts.hostname}{parts.path.rstrip('/')}"
    elif scp and not parts.scheme:
        base = _HTTPS + f"{scp['host']}/{scp['path'].strip('/')}"
    else:
        return ""
    return f"{base.removesuffix('.git')}.git/info/lfs"
