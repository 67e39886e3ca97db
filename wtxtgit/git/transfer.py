"""Fetching from remotes and pushing to them, as git itself does it, for whoever has no terminal.

What goes over a connection, with the user's configuration and credentials, is git's own. No hook of
the user's runs, nothing but what was named is written, and what git says becomes an error of ours.
"""

from __future__ import annotations

import os
import re

from wtxtgit.errors import EnvironmentFailure, RemoteRefused, RemoteUnavailable
from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown
from wtxtgit.io.view import Buffer

# Hooks of the remote run all the same: git takes our configuration from their environment.
NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")
# A server that says nothing for so many seconds has gone; git itself would wait for ever.
PATIENCE = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=120")
FETCH = (
    "fetch", "--quiet", "--no-tags", "--no-prune", "--refmap=", "--no-write-fetch-head",
    "--no-recurse-submodules",
)  # fmt: skip
PUSH = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")
PLAIN: run.Environment = {"LC_ALL": "C"}
"""The environment for words that are looked at."""
_ANY = tuple(range(256))
WITH_PASSWORD = re.compile(r"[a-z0-9+.-]+://[^/]*:[^/]*@|https?://[^/]*@", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_NEVER = re.compile(
    r"\[remote rejected\]|authentication failed|could not read (?:username|password)|denied"
    r"|not found|does not (?:appear to be|exist)|no such|host key verification"
    r"|returned error: (?:401|403|404|410)|not allowed|unsupported|unknown",
    re.IGNORECASE,
)
_SHOWN = 300


def transfer(
    repo: Repository, *arguments: str | bytes, stdin: Buffer = b"", env: run.Environment = PLAIN
) -> run.Result:
    """Run a git that talks to a remote, whatever its code will be."""
    return repo.call(*NO_HOOKS, *PATIENCE, *arguments, stdin=stdin, env=env, ok=_ANY)


def failure(label: str, words: str) -> EnvironmentFailure:
    """The error for what git said of a remote, which is one of those of targets."""
    kind = RemoteRefused if _NEVER.search(words) else RemoteUnavailable
    return kind(f"{label}: {words[-_SHOWN:] or 'git says nothing'}")


def words_of(output: bytes) -> str:
    """What git said, in one line, without what a URL has before its host."""
    told = " ".join(output.decode("utf-8", "replace").split())
    return shown(_CREDENTIALS.sub("", told))
