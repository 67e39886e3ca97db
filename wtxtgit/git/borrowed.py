"""Repositories at URLs, as far as something is asked of them: partial clones, for this process."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from wtxtgit.errors import UsageError
from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.git.transfer import NO_HOOKS, PATIENCE, WITH_PASSWORD, failure, words_of

# A file at a URL is none of these: what git alone speaks, what it is told to speak, and the
# name that repositories have on servers.
_REPOSITORY = re.compile(
    r"(?:ssh|git)://.+|git\+[a-z]+://.+|[a-z]+://.+\.git/?|[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:.+"
)
_ELSEWHERE: run.Environment = dict.fromkeys(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
)
"""What would name the repository that a hook runs in."""
_ANY = tuple(range(256))


def names_repository(spelled: str) -> bool:
    """Whether this is the URL of a git repository, and not of a file."""
    return _REPOSITORY.fullmatch(spelled) is not None and not os.path.lexists(spelled)


def clone_of(url: str, label: str) -> Repository:
    """A bare clone of all branches; its blobs come one by one where the server can do that.

    Raises UsageError for a URL with a password, RemoteRefused and RemoteUnavailable, which
    name it by the label.
    """
    if WITH_PASSWORD.match(url):
        raise UsageError(f"{label}: a URL with a password, which git would show to all users here")
    number = _KNOWN.setdefault(url, len(_KNOWN))
    place = Path(_folder().name, f"{number}.git")
    if not place.is_dir():
        arguments = ("clone", "--quiet", "--bare", "--template=", "--filter=blob:none", "--no-tags")
        spelled = url.removeprefix("git+")
        done = run.call(
            *NO_HOOKS, *PATIENCE, *arguments, "--", spelled, str(place), env=_ELSEWHERE, ok=_ANY
        )
        if done.code:
            raise failure(label, words_of(done.stderr))
    return Repository.discover(place)


_KNOWN: dict[str, int] = {}


@cache
def _folder() -> TemporaryDirectory[str]:
    """Where the clones are until the process ends."""
    return TemporaryDirectory(prefix="wtxtgit-")
