"""Users' passwords, as git's credential helpers keep them: gitcredentials(7).

They go through pipes: no argument and no environment has them.
"""

from __future__ import annotations

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
        raise UsageError(f"a {key} of a URL has a line break in it")
    return f"{key}={value}\n".encode()
