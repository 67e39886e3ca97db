"""Users' passwords, as git's credential helpers keep them: gitcredentials(7).

They go through pipes: no argument and no environment has them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple
from urllib.parse import urlsplit

from wtxtgit.errors import UsageError
from wtxtgit.git.repository import Repository
from wtxtgit.git.run import Environment

# Whoever asks has no terminal: a question would wait for ever.
_QUIET: Environment = {"GIT_TERMINAL_PROMPT": "0"}
_FAILED = 128


class Credential(NamedTuple):
    """A user and a password for a URL; neither is shown."""

    url: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credential({urlsplit(self.url).hostname!r})"


def fill(repo: Repository, url: str, user: str | None = None) -> Credential | None:
    """Ask for the credential of a URL; None where git has none."""
    asked = _described(url, user)
    done = repo.call("credential", "fill", stdin=asked, env=_QUIET, ok=(0, _FAILED))
    if done.code:
        return None
    found = dict(
        line.split("=", 1)
        for line in done.stdout.decode("utf-8", "replace").splitlines()
        if "=" in line
    )
    if "username" not in found or "password" not in found:
        return None
    return Credential(url, found["username"], found["password"])


def settle(repo: Repository, credential: Credential, *, is_good: bool) -> None:
    """Tell git whether a credential was one, so that it is kept or forgotten."""
    asked = _described(credential.url, credential.user) + _line("password", credential.password)
    verb = "approve" if is_good else "reject"
    repo.call("credential", verb, stdin=asked, env=_QUIET, ok=(0, 1, _FAILED))


def extra_header(repo: Repository, url: str) -> tuple[str, str] | None:
    """The header that git sends to a URL (http.extraHeader), as some CI has its tokens."""
    found = repo.call("config", "--get-urlmatch", "http.extraHeader", url, ok=(0, 1))
    name, colon, value = found.stdout.decode("utf-8", "replace").strip().partition(":")
    return (name.strip(), value.strip()) if colon and "\n" not in value else None


class Login:
    """What a server at a URL is told of who asks, as git would tell it: headers of HTTP.

    At first what the user has configured (http.extraHeader), or a user and a password that are
    known; where the server wants more, what git's helpers have, which hear whether it was right:
    `is_refused` where it was not. For any number of threads.
    """

    def __init__(
        self, repo: Repository, url: str, user: str | None = None, password: str | None = None
    ) -> None:
        self._repo = repo
        self._url = url
        self._user, self._password = user, password
        self.is_refused = False
        self._lock = Lock()
        self._asked: Credential | None = None
        self._is_judged = False
        header = extra_header(repo, url)
        known = basic(user, password) if user and password else {}
        self.headers: Mapping[str, str] = known if header is None else dict([header])

    def __reduce__(self) -> tuple[object, ...]:
        # Another process has its own lock, and asks anew.
        return type(self), (self._repo, self._url, self._user, self._password)

    def __repr__(self) -> str:
        return f"Login({urlsplit(self._url).hostname!r})"

    def ask(self, refused: Mapping[str, str]) -> bool:
        """Find out who asks, after headers were refused; tells whether to try again."""
        with self._lock:
            if refused != self.headers:
                return True
            if self._asked is not None:
                return False
            self._asked = fill(self._repo, self._url, self._user)
            if self._asked is not None:
                self.headers = basic(self._asked.user, self._asked.password)
            return self._asked is not None

    def settle(self, *, is_good: bool) -> None:
        """Tell git's helpers whether the server took what they gave, once."""
        with self._lock:
            if self._asked is not None and not self._is_judged:
                self._is_judged = True
                self.is_refused = not is_good
                settle(self._repo, self._asked, is_good=is_good)


def basic(user: str, password: str) -> dict[str, str]:
    """The header of HTTP that tells a user and a password: RFC 7617."""
    token = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {"authorization": f"Basic {token}"}


def _described(url: str, user: str | None) -> bytes:
    parts = urlsplit(url)
    host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    lines = [_line("protocol", parts.scheme), _line("host", host)]
    lines.append(_line("path", parts.path.lstrip("/")))
    if user:
        lines.append(_line("username", user))
    return b"".join(lines)


def _line(key: str, value: str) -> bytes:
    # Another line would be another key.
    if "\n" in value or "\0" in value:
        raise UsageError(f"the {key} of a URL contains a line break")
    return f"{key}={value}\n".encode()
