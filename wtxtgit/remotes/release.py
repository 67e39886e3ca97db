"""A release of a GitHub repository as a target: each file is an asset.

https://docs.github.com/en/rest/releases; GitHub Enterprise has the same at another address. An
asset appears when it is complete. New content for an existing name is first uploaded under another
name, so a process that dies in between only has to repeat its work.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from wtxtgit.errors import (
    EnvironmentFailure,
    FormatError,
    RemoteRefused,
    RemoteUnavailable,
    UsageError,
)
from wtxtgit.io.files import read_small, shown
from wtxtgit.io.view import PIECE, ByteView
from wtxtgit.remotes.http import SmallAnswer, client, failure, parsed, received, small
from wtxtgit.remotes.one_by_one import OneByOne, Session, is_same
from wtxtgit.remotes.target import (
    Outgoing,
    StoredFile,
    check_name,
    checked_pieces,
    taken,
)

if TYPE_CHECKING:
    import httpx

_API = "https://api.github.com"
_REPOSITORY = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,200}")
_PART = re.compile(r"(?P<name>.*)\.[0-9a-f]{16}\.part")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TOKENS = ("GH_TOKEN", "GITHUB_TOKEN")
_MAX_TOKEN = 4096
_GH_TIMEOUT = 30
_PAGE = 100
_MOST_PAGES = 100
_CREATED, _NOT_FOUND, _UNPROCESSABLE = 201, 404, 422


class Release(OneByOne):
    """The release `tag` of a repository OWNER/NAME, created when something is put there.

    See `Target`; names have no folders. The token is the one in the file `token_file`, or in the
    environment (GH_TOKEN, GITHUB_TOKEN), or that of `gh auth token`. `api` is another server's
    address, by default that in GITHUB_API_URL, or GitHub's. With `replace` a name is missing
    between two requests. GitHub allows 1,000 assets in a release, of at most 2 GiB each. Raises
    UsageError for an invalid repository, tag or address.
    """

    def __init__(
        self, repo: str, tag: str, *, token_file: Path | None = None, api: str | None = None
    ) -> None:
        if not _REPOSITORY.fullmatch(repo) or not _TAG.fullmatch(tag):
            raise UsageError(f'"{shown(repo)}@{shown(tag)}" is not an OWNER/NAME@TAG')
        self._api = (api or os.environ.get("GITHUB_API_URL") or _API).rstrip("/")
        _check_address(self._api)
        self._repo, self._tag = repo, tag
        self._token_file = token_file
        self.label = f"release:{repo}@{tag}"

    def _check(self, name: str) -> None:
        if "/" in check_name(name) or _PART.fullmatch(name):
            raise UsageError(f"{name} can't be the name of an asset")

    @contextlib.contextmanager
    def _session(self) -> Iterator[_ReleaseSession]:
        token = self._token()
        with client(self.label) as http:
            http.headers["x-github-api-version"] = "2022-11-28"
            if token:
                http.headers["authorization"] = f"Bearer {token}"
            yield _ReleaseSession(self.label, http, f"{self._api}/repos/{self._repo}", self._tag)

    def _token(self) -> str | None:
        if self._token_file is not None:
            token = read_small(self._token_file, _MAX_TOKEN, "a token").decode("utf-8", "replace")
        else:
            token = next((t for name in _TOKENS if (t := os.environ.get(name))), None) or _gh(
                self._api
            )
        token = token.strip()
        if not token.isascii() or not token.isprintable() or " " in token:
            raise EnvironmentFailure(f"{self.label}: not a valid token")
        return token or None


class _Asset(NamedTuple):
    id: int
    name: str
    nbytes: int
    sha256: str | None
    is_whole: bool

    @property
    def stored(self) -> StoredFile:
        return StoredFile(self.name, self.nbytes, self.sha256)


class _ReleasePlace(NamedTuple):
    id: int
    upload: str


class _ReleaseSession(Session):
    """One operation on a release. Answers are checked before they are used."""

    def __init__(self, label: str, http: httpx.Client, base: str, tag: str) -> None:
        self.label, self._http, self._base, self._tag = label, http, base, tag
        self._place: _ReleasePlace | None = None

    def release(self) -> _ReleasePlace | None:
        answer = self._ask("GET", f"releases/tags/{quote(self._tag, safe='')}", (200, _NOT_FOUND))
        return None if answer.status == _NOT_FOUND else self._release(answer)

    def create(self) -> _ReleasePlace:
        # Visitors of the repository don't look for snapshots.
        request = {"tag_name": self._tag, "name": self._tag, "make_latest": "false"}
        answer = self._ask("POST", "releases", (_CREATED, _UNPROCESSABLE), json=request)
        if answer.status == _CREATED:
            return self._release(answer)
        existing = self.release()
        # Another writer was faster, or it is impossible: a tag that rules forbid, an empty
        # repository.
        if existing is None:
            raise failure(self.label, "a new release", answer.status, answer.headers)
        return existing

    def prepare(self) -> None:
        self._place = self.release() or self.create()

    @cached_property
    def _assets(self) -> dict[str, _Asset]:
        release = self._place or self.release()
        return self.assets(release) if release is not None else {}

    def find(self, name: str) -> StoredFile | None:
        asset = self._assets.get(name)
        return asset.stored if asset is not None and asset.is_whole else None

    def all(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files, with their digests if the server states them."""
        for asset in self._assets.values():
            if asset.is_whole and not _PART.fullmatch(asset.name):
                yield asset.stored

    def read(self, stored: StoredFile) -> ByteView:
        return self.content(self._assets[stored.name])

    def assets(self, release: _ReleasePlace) -> dict[str, _Asset]:
        assets: dict[str, _Asset] = {}
        for page in range(1, _MOST_PAGES + 1):
            path = f"releases/{release.id}/assets?per_page={_PAGE}&page={page}"
            listed = self._json(self._ask("GET", path, (200,)))
            if not isinstance(listed, list):
                raise self._strange()
            assets.update({asset.name: asset for asset in map(self._asset, listed)})
            if len(listed) < _PAGE:
                break
        return assets

    def _is(self, asset: _Asset, file: Outgoing) -> bool:
        if not asset.is_whole or asset.nbytes != len(file.content):
            return False
        return is_same(asset.sha256, file.sha256, lambda: self.content(asset))

    def content(self, asset: _Asset) -> ByteView:
        url = f"{self._base}/releases/assets/{asset.id}"
        headers = {"accept": "application/octet-stream"}
        # Redirected to the storage; the client sends the token to the original host only.
        with self._http.stream("GET", url, headers=headers, follow_redirects=True) as answer:
            if answer.status_code != 200:
                raise failure(self.label, asset.name, answer.status_code, answer.headers)
            blocks = answer.iter_bytes(PIECE)
            return received(self.label, asset.name, blocks, asset.nbytes)

    def write(self, file: Outgoing, about: Mapping[str, str], *, replace: bool) -> bool:
        release, assets = self._place or self.create(), self._assets
        old = assets.get(file.name)
        if old is not None and not old.is_whole:
            # An interrupted upload leaves an incomplete asset.
            self._delete(old)
            old = None
        aside = f"{file.name}.{file.sha256[:16]}.part"
        new = assets.get(aside)
        for asset in assets.values():
            part = _PART.fullmatch(asset.name)
            # Left by an attempt that was interrupted, or had other content.
            if part and part["name"] == file.name and not (asset is new and self._is(new, file)):
                self._delete(asset)
                new = None if asset is new else new
        if new is None:
            new = self._upload(file, file.name if old is None else aside, release)
        if new.name != file.name:
            if old is not None:
                self._delete(old)
            self._ask("PATCH", f"releases/assets/{new.id}", (200,), json={"name": file.name})
        return True

    def _upload(self, file: Outgoing, name: str, release: _ReleasePlace) -> _Asset:
        headers = {
            "content-type": "application/octet-stream",
            "content-length": str(len(file.content)),
        }
        answer = small(
            self.label,
            self._http,
            "POST",
            release.upload,
            params={"name": name},
            headers=headers,
            content=map(bytes, checked_pieces(file)),
        )
        if answer.status == _UNPROCESSABLE:
            return self._met(file, name, release, answer)
        if answer.status != _CREATED:
            raise failure(self.label, name, answer.status, answer.headers)
        asset = self._asset(self._json(answer))
        if not self._is(asset, file):
            self._delete(asset)
            raise RemoteUnavailable(f"{self.label}: {name}: arrived with different content")
        return asset

    def _met(
        self, file: Outgoing, name: str, release: _ReleasePlace, answer: SmallAnswer
    ) -> _Asset:
        """Return the asset that has a name already: another writer was faster, or is uploading
        it.
        """
        asset = self.assets(release).get(name)
        if asset is None:
            raise failure(self.label, name, answer.status, answer.headers)
        if not asset.is_whole:
            raise RemoteUnavailable(f"{self.label}: {name}: somebody else is uploading it")
        if not self._is(asset, file):
            raise taken(self.label, file.name)
        return asset

    def _delete(self, asset: _Asset) -> None:
        self._ask("DELETE", f"releases/assets/{asset.id}", (204, _NOT_FOUND))

    def _ask(self, method: str, path: str, ok: tuple[int, ...], json: object = None) -> SmallAnswer:
        headers = {"accept": "application/vnd.github+json"}
        url = f"{self._base}/{path}"
        answer = small(self.label, self._http, method, url, headers=headers, json=json)
        if answer.status not in ok:
            what = path.partition("?")[0]
            raise failure(self.label, what, answer.status, answer.headers)
        return answer

    def _json(self, answer: SmallAnswer) -> Any:
        try:
            return parsed(answer.content)
        except FormatError:
            raise self._strange() from None

    def _release(self, answer: SmallAnswer) -> _ReleasePlace:
        match self._json(answer):
            case {"id": int() as number, "upload_url": str() as upload}:
                # A URI template: `.../assets{?name,label}`.
                place = upload.partition("{")[0]
                with contextlib.suppress(UsageError):
                    _check_address(place)
                    return _ReleasePlace(number, place)
        raise self._strange()

    def _asset(self, value: object) -> _Asset:
        match value:
            case {"id": int() as number, "name": str() as name, "size": int() as size, **more}:
                digest = more.get("digest")
                is_known = isinstance(digest, str) and re.fullmatch("sha256:[0-9a-f]{64}", digest)
                sha256 = str(digest).removeprefix("sha256:") if is_known else None
                is_whole = more.get("state") == "uploaded" and size >= 0
                return _Asset(number, name, size, sha256, is_whole)
        raise self._strange()

    def _strange(self) -> RemoteRefused:
        return RemoteRefused(f"{self.label}: the server's answer does not follow GitHub's REST API")


def _check_address(url: str) -> None:
    """Raise UsageError if a token would be sent where others could read it."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not is_safe or parts.username is not None or not parts.hostname:
        raise UsageError("the address of a REST API must be an https URL without credentials")


def _gh(api: str) -> str:
    """Return the token kept by GitHub's own program; empty if there is none."""
    program = shutil.which("gh")
    # A relative entry of PATH may be a folder of somebody else's repository.
    if program is None or not os.path.isabs(program):  # noqa: PTH117 - of a string
        return ""
    host = (urlsplit(api).hostname or "").removeprefix("api.")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [program, "auth", "token", "--hostname", host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GH_TIMEOUT,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout.decode("ascii", "replace")
    return ""
