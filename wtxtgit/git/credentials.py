"""Passwords of users, as kept by git's credential helpers: gitcredentials(7).

They are passed through pipes, never in arguments or in the environment.
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

# The helper has no terminal: a prompt would wait forever.
_QUIET: Environment = {"GIT_TERMINAL_PROMPT": "0"}
_FAILED = 128


class Credential(NamedTuple):
    """User and password for a URL; its repr shows neither."""

    url: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credential({urlsplit(self.url).hostname!r})"


def fill(repo: Repository, url: str, user: str | None = None) -> Credential | None:
    """Ask git for the credential of a URL; returns None if it has none."""
    request = _request(url, user)
    result = repo.call("credential", "fill", stdin=request, env=_QUIET, ok=(0, _FAILED))
    if result.code:
        return None
    answer = dict(
        line.split("=", 1)
        for line in result.stdout.decode("utf-8", "replace").splitlines()
        if "=" in line
    )
    if "username" not in answer or "password" not in answer:
        return None
    return Credential(url, answer["username"], answer["password"])


def settle(repo: Repository, credential: Credential, *, is_good: bool) -> None:
    """Tell git whether a credential worked, so that its helpers keep or forget it."""
    request = _request(credential.url, credential.user) + _line("password", credential.password)
    verb = "approve" if is_good else "reject"
    repo.call("credential", verb, stdin=request, env=_QUIET, ok=(0, 1, _FAILED))


def extra_header(repo: Repository, url: str) -> tuple[str, str] | None:
    """Return the header that git sends to a URL (http.extraHeader), by which some CI passes
    tokens.
    """
    result = repo.call("config", "--get-urlmatch", "http.extraHeader", url, ok=(0, 1))
    name, colon, value = result.stdout.decode("utf-8", "replace").strip().partition(":")
    return (name.strip(), value.strip()) if colon and "\n" not in value else None


class Login:
    """The HTTP headers by which a server learns who is asking, as git would send them.

    At first they are what the user configured (http.extraHeader), or made of the user and password
    given here. If the server refuses these, git's credential helpers are asked, and told later
    whether their answer was accepted; `is_refused` says that it was not. Threads may share it.
    """

    def __init__(
        self, repo: Repository, url: str, user: str | None = None, password: str | None = None
    ) -> None:
        self._repo = repo
        self._url = url
        self._user, self._password = user, password
        self.is_refused = False
        self._lock = Lock()
        self._helper_credential: Credential | None = None
        self._is_settled = False
        header = extra_header(repo, url)
        given = basic(user, password) if user and password else {}
        self.headers: Mapping[str, str] = given if header is None else dict([header])

    def __reduce__(self) -> tuple[object, ...]:
        # Another process gets a lock of its own, and asks again.
        return type(self), (self._repo, self._url, self._user, self._password)

    def __repr__(self) -> str:
        return f"Login({urlsplit(self._url).hostname!r})"

    def ask(self, refused: Mapping[str, str]) -> bool:
        """Get other headers after `refused` were refused; returns whether to try again."""
        with self._lock:
            if refused != self.headers:
                return True
            if self._helper_credential is not None:
                return False
            self._helper_credential = fill(self._repo, self._url, self._user)
            if self._helper_credential is not None:
                self.headers = basic(self._helper_credential.user, self._helper_credential.password)
            return self._helper_credential is not None

    def settle(self, *, is_good: bool) -> None:
        """Tell git's helpers, once, whether the server accepted the credential that they gave."""
        with self._lock:
            if self._helper_credential is not None and not self._is_settled:
                self._is_settled = True
                self.is_refused = not is_good
                settle(self._repo, self._helper_credential, is_good=is_good)


def basic(user: str, password: str) -> dict[str, str]:
    """Return the HTTP header for basic authentication: RFC 7617."""
    token = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {"authorization": f"Basic {token}"}


def _request(url: str, user: str | None) -> bytes:
    parts = urlsplit(url)
    host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    lines = [_line("protocol", parts.scheme), _line("host", host)]
    lines.append(_line("path", parts.path.lstrip("/")))
    if user:
        lines.append(_line("username", user))
    return b"".join(lines)


def _line(key: str, value: str) -> bytes:
    # A line break would start another key.
    if "\n" in value or "\0" in value:
        raise UsageError(f"the {key} of a URL contains a line break")
    return f"{key}={value}\n".encode()
