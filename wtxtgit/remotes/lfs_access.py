"""Finding the git-lfs server of a git remote, and its access data if git uses ssh.

https://github.com/git-lfs/git-lfs/blob/main/docs/api/server-discovery.md
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple
from urllib.parse import urlsplit

from wtxtgit.errors import FormatError
from wtxtgit.git.repository import Repository
from wtxtgit.git.ssh import SshPlace, answer, place_of_url
from wtxtgit.remotes.http import parsed
from wtxtgit.remotes.urls import is_loopback

_HTTPS = "https" + "://"
_COMMAND = "git-lfs-authenticate"
_FRESH = 120
"""Seconds for which an answer is used: access data may expire."""


class Granted(NamedTuple):
    """What ssh returned for an operation: headers, and the server's URL if it states one."""

    headers: Mapping[str, str]
    url: str | None = None

    def __repr__(self) -> str:
        return f"Granted({self.url!r})"


NOTHING = Granted({})


def server_of(repo: Repository, remote: str) -> tuple[str, SshPlace | None]:
    """Return the server's URL as git-lfs finds it, except that .lfsconfig in the work tree is
    ignored.

    The URL is empty if none is known. Also returns where to ask by ssh, unless the user's
    configuration names the server.
    """
    known = repo.config.get(f"remote.{remote}.lfsurl") or repo.config.get("lfs.url")
    if known:
        return known, None
    done = repo.call("remote", "get-url", "--push", "--", remote, ok=(0, 2, 128))
    url = done.stdout.decode("utf-8", "replace").strip() if not done.code else remote
    ssh = place_of_url(url)
    if ssh is not None:
        base = f"{_HTTPS}{ssh.host.rpartition('@')[2]}/{ssh.path.strip('/')}"
    elif urlsplit(url).scheme in ("http", "https"):
        base = url.rstrip("/")
    else:
        return "", None
    return f"{base.removesuffix('.git')}.git/info/lfs", ssh


class SshGrants:
    """Asks a remote's host for access data by ssh, and caches the answers.

    Safe for many threads.
    """

    def __init__(self, repo: Repository, place: SshPlace) -> None:
        self._repo, self._place = repo, place
        self._lock = Lock()
        self._known: dict[str, tuple[float, Granted]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._repo, self._place)

    def of(self, operation: str) -> Granted:
        """Return the access data for `upload` or `download`; NOTHING if there are none."""
        with self._lock:
            granted_at, granted = self._known.get(operation, (0.0, None))
            if granted is None or time.monotonic() - granted_at > _FRESH:
                granted = _parsed(answer(self._repo, self._place, _COMMAND, operation))
                self._known[operation] = time.monotonic(), granted
            return granted


def _parsed(output: bytes | None) -> Granted:
    try:
        match parsed(output or b""):
            case {"header": dict() as header, **more} if all(
                isinstance(text, str) for item in header.items() for text in item
            ):
                headers = {key.lower(): value for key, value in header.items()}
                return Granted(headers, _address(more.get("href")))
    except (FormatError, ValueError):
        pass
    return NOTHING


def _address(url: object) -> str | None:
    """Return the server's URL; raises ValueError if it is unsafe to send anything there."""
    if not isinstance(url, str) or not url:
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if not is_safe or not host or "@" in parts.netloc:
        raise ValueError("no server address")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
