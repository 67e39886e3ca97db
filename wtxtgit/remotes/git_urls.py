"""Repositories at URLs, as partial clones in the user's cache; their files, `git+URL#REV:PATH`.

`docs/git.md`, "Files of a repository elsewhere". A clone has the commits and trees that were asked
for, and only the blobs that were read. It is bare, so nothing in it is checked out or run.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from wtxtgit.errors import (
    ASKS_HELPERS,
    EnvironmentFailure,
    InputError,
    RemoteRefused,
    UsageError,
)
from wtxtgit.git import run
from wtxtgit.git.history import resolve_commit, resolve_tree
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.transfer import FETCH, PLAIN, WITH_PASSWORD, failure, transfer, words_of
from wtxtgit.git.trees import TreeReader
from wtxtgit.git.turn import turn
from wtxtgit.io.files import failures, shown, user_folder
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.urls import GIT, is_loopback, shown_url

_SPELLED = re.compile(r"git\+([^#]+)#([^:]+):(.+)", re.DOTALL)
_REVISION = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._/+-]*)((?:[~^][0-9]*)*)")
"""What a remote is asked for, and the way from there to an ancestor."""
_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NO_TEXT = re.compile(r"[\x00-\x20\x7f-\x9f]")
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_\[][A-Za-z0-9._:\]-]*")
_AT_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?!-).+")
"""A path of a user at a host, which only ssh can mean."""
_REPOSITORY = re.compile(
    r"(?:ssh|git)://.+|git\+[^#]+|[a-z]+://.+\.git/?|[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:.+", re.DOTALL
)
"""Repositories, as opposed to files at URLs: schemes that only git uses, or is told to use, and the
names that repositories have on servers."""
_SCHEMES = ("https", "ssh", "file", "git")
_MOST = 2048
_REMOTE = "origin"
_FETCHED = "refs/wtxtgit/fetched"
_BRANCHES = "refs/wtxtgit/branches"
_FILTER = "blob:none"
_CLONES = "clones"
_NO_REF = "couldn't find remote ref"
_OTHER_REPOSITORY = ("GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")


class GitUrl(NamedTuple):
    """A file of a repository elsewhere: the repository's URL, a branch, tag or full id, perhaps
    with `~N` or `^N` as in git, and the path.
    """

    url: str
    revision: str
    path: str

    def __str__(self) -> str:
        return f"{GIT}{self.url}#{self.revision}:{self.path}"


def parse_git_url(target: str) -> GitUrl:
    """Parse `git+URL#REV:PATH`; raises UsageError for an invalid or unsafe target."""
    match = _SPELLED.fullmatch(target)
    if match is None or len(target) > _MOST:
        raise UsageError(f"{shown(target)} is not git+URL#REV:PATH")
    url, revision, path = match.groups()
    _check(url)
    if _REVISION.fullmatch(revision) is None or ".." in revision:
        raise UsageError(f"{shown(revision)} is not a branch, tag or full id of a commit")
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise UsageError(f"{shown(path)} is not a path relative to a repository's top level")
    return GitUrl(url, revision, path)


def repository_url(spelled: str) -> str | None:
    """Return the URL of a repository as git takes it; None if `spelled` names a file.

    An existing file takes precedence. Raises UsageError for an unsafe URL.
    """
    if _REPOSITORY.fullmatch(spelled) is None or os.path.lexists(spelled):
        return None
    url = spelled.removeprefix(GIT)
    _check(url)
    return url


def _check(url: str) -> None:
    """Raise UsageError for a URL that can't be that of a repository, or is unsafe."""
    if len(url) > _MOST or _NO_TEXT.search(url):
        raise UsageError(f"{shown(url)} is not a URL of a repository")
    if WITH_PASSWORD.match(url):
        raise UsageError("the repository's URL contains credentials", hint=ASKS_HELPERS)
    if _AT_HOST.fullmatch(url):
        return
    parts = urlsplit(url)
    is_here = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if parts.scheme not in _SCHEMES and not is_here:
        raise UsageError(
            f"{shown(url)}: repositories are read only through https, ssh, git and file",
            hint="git+https://example.com/models.git#main:FILE",
        )
    # What begins with a dash would be an option of git, of ssh, or of the program on the other
    # side.
    is_named = _HOST.fullmatch(parts.netloc) or (parts.scheme == "file" and not parts.netloc)
    is_more = parts.query or parts.fragment
    if not is_named or is_more or parts.path.startswith("/-"):
        raise UsageError(f"{shown(url)} is not a URL of a repository")


def fetched(what: GitUrl) -> tuple[Repository, GitUrl]:
    """Return the clone with the commit of a file, and the file with that commit's id as revision.

    Only what the clone lacks is fetched; for a branch or tag the remote is asked for its present
    commit. Raises RemoteRefused, RemoteUnavailable and EnvironmentFailure.
    """
    repo = _clone(what.url)
    match = _REVISION.fullmatch(what.revision)
    tip, way = (what.revision, "") if match is None else match.groups()
    label = str(what)
    place = tip
    if not (_OID.fullmatch(tip) and _has_commit(repo, tip)):
        place = f"{_FETCHED}/{sha256(tip.encode()).hexdigest()}"
        _fetch(repo, what.url, label, f"+{tip}:{place}")
    try:
        commit = resolve_commit(repo, place + way)
    except EnvironmentFailure:
        raise RemoteRefused(f"{label}: has no commit {what.revision}") from None
    return repo, what._replace(revision=commit)


def read_git_url(target: str) -> ByteView:
    """Return the bytes of a file of a repository elsewhere, as git stores them.

    Raises InputError if there is none, and as `fetched` does.
    """
    repo, what = fetched(parse_git_url(target))
    with TreeReader(repo) as trees, ObjectStore(repo) as store:
        tree = resolve_tree(repo, what.revision)
        entry = trees.standing(tree, os.fsencode(what.path)).entry
        if entry is None or not entry.is_file:
            raise InputError(f"{what}: no such file")
        return spooled(store.blob(entry.oid), repo.state_dir)


def read_git_member(index: str, path: str) -> ByteView:
    """Return the bytes of a file of a set whose index is at a URL, by its path in the set's folder.

    Raises as `read_git_url` does.
    """
    what = parse_git_url(index)
    folder, slash, _ = what.path.rpartition("/")
    return read_git_url(str(what._replace(path=f"{folder}{slash}{path}")))


def repository_at(target: str) -> Repository:
    """Return the clone of a target's repository; raises UsageError and EnvironmentFailure."""
    return _clone(parse_git_url(target).url)


def branches_of(url: str) -> Repository:
    """Return the clone of a URL with its present branches; raises as `fetched` does."""
    repo = _clone(url)
    # A deleted branch may be in the way of a new one.
    _fetch(repo, url, shown_url(url), f"+refs/heads/*:{_BRANCHES}/*", "--prune")
    return repo


def _fetch(repo: Repository, url: str, label: str, refspec: str, *how: str) -> None:
    with turn(repo):
        arguments = (*FETCH, *how, f"--filter={_FILTER}", "--end-of-options", _REMOTE, refspec)
        done = transfer(repo, *arguments, env=_environment(url))
    if done.code:
        words = words_of(done.stderr)
        if _NO_REF in words:
            raise RemoteRefused(f"{label}: no such branch or tag")
        raise failure(label, words)


def _has_commit(repo: Repository, oid: str) -> bool:
    # Only local objects are looked at: otherwise git would fetch the commit by itself.
    env = {**run.TRUE_OBJECTS, "GIT_NO_LAZY_FETCH": "1"}
    return repo.call("cat-file", "-e", f"{oid}^{{commit}}", ok=(0, 1, 128), env=env).code == 0


def _environment(url: str) -> run.Environment:
    return {
        **PLAIN,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": ":".join(_protocols(url)),
    }


def _protocols(url: str) -> tuple[str, ...]:
    return (*_SCHEMES, "http") if url.startswith("http://") else _SCHEMES


def _clone(url: str) -> Repository:
    """Return the clone of a URL in the user's cache, created if missing."""
    if any(os.environ.get(name) for name in _OTHER_REPOSITORY):
        # Git would use these variables for the clone.
        raise EnvironmentFailure("git hooks don't read other repositories")
    folder = _cache() / f"{sha256(os.fsencode(url)).hexdigest()[:32]}.git"
    with failures(folder, missing=EnvironmentFailure):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / "config").is_file():
        # No template: the user's template may have hooks, which would run here.
        run.git("init", "--quiet", "--bare", "--template=", "--", str(folder))
    repo = Repository(folder, folder, None, b"")
    config = {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": _REMOTE,
        "protocol.allow": "never",
        **{f"protocol.{name}.allow": "always" for name in _protocols(url)},
        f"remote.{_REMOTE}.promisor": "true",
        f"remote.{_REMOTE}.partialCloneFilter": _FILTER,
        f"remote.{_REMOTE}.url": url,
    }
    if repo.config.get(f"remote.{_REMOTE}.url") != url:
        if _names_by_sha256(repo, url):
            config = {"extensions.objectFormat": "sha256", **config}
        with turn(repo):
            # The URL is written last: a clone that has it is complete.
            for key, value in config.items():
                run.git("config", "--file", str(folder / "config"), key, value)
        repo = Repository(folder, folder, None, b"")
    return repo


def _names_by_sha256(repo: Repository, url: str) -> bool:
    """Tell whether a repository at a URL uses SHA-256.

    Raises RemoteRefused and RemoteUnavailable.
    """
    done = transfer(repo, "ls-remote", "--end-of-options", url, "HEAD", env=_environment(url))
    if done.code:
        raise failure(shown_url(url), words_of(done.stderr))
    return len(done.stdout.partition(b"\t")[0]) == 64


def _cache() -> Path:
    """Return the folder of the clones."""
    folder = user_folder("XDG_CACHE_HOME", ".cache")
    if folder is None:
        raise EnvironmentFailure("no folder for the cache: HOME is not set")
    return folder / _CLONES
