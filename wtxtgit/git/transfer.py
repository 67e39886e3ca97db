"""Fetching from and pushing to remotes with git, for callers without a terminal.

Git makes the connection, with the user's configuration and credentials. No hook of the user runs,
nothing but what was named is written, and git's messages become errors of ours.
"""

from __future__ import annotations

import os
import re

from wtxtgit.errors import EnvironmentFailure, RemoteRefused, RemoteUnavailable
from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown
from wtxtgit.io.view import Buffer

# The remote's hooks still run: git removes our settings from their environment.
NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")
# If a server sends nothing for so many seconds git gives up; by default it waits forever.
PATIENCE = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=120")
FETCH = (
    "fetch", "--quiet", "--no-tags", "--no-prune", "--refmap=", "--no-write-fetch-head",
    "--no-recurse-submodules",
)  # fmt: skip
PUSH = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")
PLAIN: run.Environment = {"LC_ALL": "C"}
"""The environment for git if its messages are examined."""
_ANY = tuple(range(256))
WITH_PASSWORD = re.compile(r"[a-z0-9+.-]+://[^/]*:[^/]*@|https?://[^/]*@", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_PERMANENT = re.compile(
    r"\[remote rejected\]|authentication failed|could not read (?:username|password)|denied"
    r"|not found|does not (?:appear to be|exist)|no such|host key verification"
    r"|returned error: (?:401|403|404|410)|not allowed|unsupported|unknown",
    re.IGNORECASE,
)
_LOCK = re.compile(r"remote: error: (?:[^:]*: )?Unable to create '([^']+\.lock)': File exists")
_FATAL = re.compile(r"(?:^| )fatal: ")
"""What git begins each of its errors with."""
_SHOWN = 300


def transfer(
    repo: Repository, *arguments: str | bytes, stdin: Buffer = b"", env: run.Environment = PLAIN
) -> run.Result:
    """Run a git command that talks to a remote; every exit code is accepted."""
    return repo.call(*NO_HOOKS, *PATIENCE, *arguments, stdin=stdin, env=env, ok=_ANY)


def lock_there(message: str) -> str | None:
    """Return the file that keeps a remote from changing refs, if git said so: git(1) makes it
    before it writes a file, and leaves it if it is killed.
    """
    match = _LOCK.search(message)
    return None if match is None else match[1]


def failure(label: str, message: str) -> EnvironmentFailure:
    """Return RemoteRefused or RemoteUnavailable for what git said about a remote."""
    if (lock := lock_there(message)) is not None:
        return RemoteUnavailable(
            f"{label}: {lock} is there: a git that was killed at the remote has left it, or one is "
            f"at work",
            hint="once no git is at work at the remote, remove that file there, and try again",
        )
    kind = RemoteRefused if _PERMANENT.search(message) else RemoteUnavailable
    return kind(f"{label}: {message[-_SHOWN:] or 'git says nothing'}")


def words_of(output: bytes) -> str:
    """Return git's output as one line, with credentials removed from URLs."""
    text = " ".join(output.decode("utf-8", "replace").split())
    text = _FATAL.sub("; ", text).removeprefix("; ")
    return shown(_CREDENTIALS.sub("", text))
