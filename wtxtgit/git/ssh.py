"""A command on the host of a git remote, by ssh as git starts it.

git(1), GIT_SSH and GIT_SSH_COMMAND; git-config(1), core.sshCommand.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from typing import NamedTuple
from urllib.parse import urlsplit

from wtxtgit.git.repository import Repository

_SCP = re.compile(r"(?P<user>[^@/:]+@)?(?P<host>[^/:]+):(?P<path>.+)")
# What neither ssh takes for an option nor the shell of the other side for anything but a word.
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_][A-Za-z0-9._-]*")
_PATH = re.compile(r"[A-Za-z0-9._~/+@][A-Za-z0-9._~/+@-]*")
_PATIENCE = 120
"""Seconds for an answer: somebody may have to type a passphrase."""
_MOST = 64 * 1024


class SshPlace(NamedTuple):
    """A repository at a host, which has its user before it if one is named."""

    host: str
    port: int | None
    path: str


def place_of_url(url: str) -> SshPlace | None:
    """Where a remote's URL leads, if it is one of ssh; both of git's spellings."""
    if "://" not in url:
        scp = _SCP.fullmatch(url)
        return SshPlace((scp["user"] or "") + scp["host"], None, scp["path"]) if scp else None
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme == "ssh" and parts.hostname:
            user = f"{parts.username}@" if parts.username else ""
            return SshPlace(user + parts.hostname, parts.port, parts.path)
    return None


def answer(repo: Repository, place: SshPlace, *command: str) -> bytes | None:
    """What a command there says, that gets the repository's path before its other words.

    None where it fails, says more than anybody should, or can't be asked.
    """
    first, *others = command
    if not (_HOST.fullmatch(place.host) and _PATH.fullmatch(place.path)):
        return None
    asked = " ".join((first, place.path, *others))
    port = ("-p", str(place.port)) if place.port else ()
    try:
        done = subprocess.run(
            (*_ssh(repo), *port, place.host, asked),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if not done.returncode and len(done.stdout) <= _MOST else None


def _ssh(repo: Repository) -> tuple[str, ...]:
    line = os.environ.get("GIT_SSH_COMMAND") or repo.config.get("core.sshCommand")
    if line:
        # Git has the shell split it.
        return ("sh", "-c", f'{line} "$@"', line)
    return (os.environ.get("GIT_SSH") or "ssh",)
