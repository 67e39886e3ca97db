"""Running a command on the host of a git remote, by ssh, started as git starts it.

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
# Words that ssh can't take for an option, and that the remote shell takes literally.
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_][A-Za-z0-9._-]*")
_PATH = re.compile(r"[A-Za-z0-9._~/+@][A-Za-z0-9._~/+@-]*")
_PATIENCE = 120
"""Seconds to wait for an answer: somebody may have to type a passphrase."""
_MOST = 64 * 1024


class SshPlace(NamedTuple):
    """A repository on a host; `host` is preceded by `USER@` if the URL names a user."""

    host: str
    port: int | None
    path: str


def place_of_url(url: str) -> SshPlace | None:
    """Return where a remote's URL leads, in either ssh spelling of git; None for other URLs."""
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
    """Run a command on the host and return its output.

    The repository's path becomes the command's first argument. Returns None if the command fails,
    can't be run, or prints more than 64 KiB.
    """
    first, *arguments = command
    if not (_HOST.fullmatch(place.host) and _PATH.fullmatch(place.path)):
        return None
    remote_command = " ".join((first, place.path, *arguments))
    port = ("-p", str(place.port)) if place.port else ()
    try:
        result = subprocess.run(
            (*_ssh(repo), *port, place.host, remote_command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout if not result.returncode and len(result.stdout) <= _MOST else None


def _ssh(repo: Repository) -> tuple[str, ...]:
    line = os.environ.get("GIT_SSH_COMMAND") or repo.config.get("core.sshCommand")
    if line:
        # Git also has the shell split this line.
        return ("sh", "-c", f'{line} "$@"', line)
    return (os.environ.get("GIT_SSH") or "ssh",)
