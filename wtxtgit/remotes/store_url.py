"""Which remote the payload of detached texts goes to and comes from.

The config `wtxtgit.store` decides, then `.wtxt/store` of the tree, then it is the git remote
itself. What stands in the tree is whatever somebody proposed: such a url starts no program, opens
no file of this machine, and nothing is sent there (docs/store.md, "Remotes").
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, InputError, UsageError
from wtxtgit.git import index, run
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.remote_branch import WITH_PASSWORD
from wtxtgit.git.repository import Repository, change_config
from wtxtgit.io.files import read_small, shown
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.urls import is_url, shown_url

KEY = "wtxtgit.store"
FILE = b".wtxt/store"
"""The file of the tree that may name a remote, in git-config(5)'s syntax."""
GIT = "git+"
_MOST_FILE = 64 * 1024
_MOST_URL = 2048
_CONTROLS = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)")
_GIT_SCHEMES = frozenset(("https", "ssh"))
_STORES = frozenset(("s3", "gs", "gcs", "az", "abfs", "abfss", "sftp"))
"""Stores that a tree may name: they are elsewhere, and opened without another program."""
_NO_STORES = frozenset(("http", "https", "lfs", "oci", "git", "ssh"))
"""Schemes that mean something else than a folder of packs that can be written."""


class UrlOrigin(StrEnum):
    """Where a remote's url comes from."""

    CONFIG = "config"
    TREE = "tree"
    DEFAULT = "default"
    GIVEN = "given"


@dataclass(frozen=True, slots=True)
class StoreUrl(JsonObject):
    """A remote of the store, and who says so; `may_push` unless only the tree does."""

    KEYS = "url=shown origin may_push"

    url: str
    origin: UrlOrigin

    @property
    def may_push(self) -> bool:
        return self.origin is not UrlOrigin.TREE

    @property
    def shown(self) -> str:
        """The url, without what may be a secret."""
        return _shown(self.url)


def chosen(repo: Repository, remote: str | None = None) -> StoreUrl:
    """The remote that is in use; `remote` is the git remote that is pushed to, where one is.

    Raises UsageError for a url that can't be used, and where there is no remote at all.
    """
    configured = repo.config.get(KEY)
    if configured:
        return StoreUrl(_checked(configured), UrlOrigin.CONFIG)
    proposed = _of_tree(repo)
    default = _default(repo, remote)
    if proposed is None or proposed == default:
        if default is None:
            raise UsageError("no remote has payload", hint="wtxtgit store use URL names one")
        return StoreUrl(_checked(default), UrlOrigin.DEFAULT)
    return StoreUrl(_checked_of_tree(repo, proposed), UrlOrigin.TREE)


def given(remote: str) -> StoreUrl:
    """The git remote that a user has named; raises UsageError for what is none."""
    return StoreUrl(_checked(GIT + remote), UrlOrigin.GIVEN)


def use(repo: Repository, url: str) -> StoreUrl:
    """Have a repository use a remote, for pushing too; raises UsageError for what is none."""
    found = StoreUrl(_checked(url), UrlOrigin.CONFIG)
    change_config("local", KEY, url, cwd=repo.home)
    return found


def remotes(repo: Repository) -> list[str]:
    """The git remotes that are configured."""
    return repo.git("remote").decode("utf-8", "surrogateescape").splitlines()


def _default(repo: Repository, remote: str | None) -> str | None:
    if remote is not None:
        return GIT + remote
    names = remotes(repo)
    if "origin" in names or len(names) == 1:
        return GIT + ("origin" if "origin" in names else names[0])
    return None


def _of_tree(repo: Repository) -> str | None:
    """What the file of the work tree says, or where that has none the index."""
    content = _file(repo)
    if content is None:
        return None
    # Without includes: they would read files of the user's.
    done = run.call(
        "config", "--file", "-", "--no-includes", "-z", "--get", "store.url",
        cwd=repo.home, stdin=content, ok=(0, 1, 3, 128),
    )  # fmt: skip
    if done.code > 1:
        raise InputError(f"{FILE.decode()} is no git-config file")
    values = run.records(done.stdout)
    return values[-1].decode("utf-8", "surrogateescape") if values else None


def _file(repo: Repository) -> bytes | None:
    if not repo.is_bare:
        path = repo.file(FILE)
        if path.is_file() and not _has_link(repo.worktree, path):
            return read_small(path, _MOST_FILE, "a file that names a store")
    with suppress(EnvironmentFailure), BlobReader(repo) as blobs:
        for entry in index.entries(repo):
            if entry.path == FILE and entry.is_file and not entry.stage:
                return blobs.read(entry.oid, _MOST_FILE)
    return None


def _has_link(top: Path, path: Path) -> bool:
    return any(part.is_symlink() for part in (path, *path.parents) if top in part.parents)


def _checked(url: str) -> str:
    """A url that a user named; raises UsageError for what no engine takes."""
    place = url.removeprefix(GIT)
    if not place or place.startswith("-") or len(url) > _MOST_URL or _CONTROLS.search(url):
        raise UsageError(f'"{_shown(url)}" is no url of a store')
    if "::" in place:
        raise UsageError(f'"{_shown(url)}" would start a program, or wraps another url')
    if WITH_PASSWORD.match(place):
        raise UsageError(
            f"{_shown(url)}: the store's url has credentials in it", hint="git help credentials"
        )
    scheme = _SCHEME.match(place)
    if scheme is not None and scheme[2].rpartition("@")[2].startswith("-"):
        raise UsageError(f'"{_shown(url)}" is no url of a store')
    if not url.startswith(GIT) and (scheme is None or scheme[1] in _NO_STORES):
        raise UsageError(
            f'"{_shown(url)}" is no url of a store',
            hint="git+REMOTE is one, or file:///FOLDER, s3://BUCKET/FOLDER and what fsspec knows",
        )
    return url


def _checked_of_tree(repo: Repository, url: str) -> str:
    """A url of the tree: an address elsewhere, or a remote that the user has."""
    place = _checked(url).removeprefix(GIT)
    scheme = _SCHEME.match(place)
    if url.startswith(GIT):
        fits = scheme[1] in _GIT_SCHEMES if scheme else place in remotes(repo)
    else:
        fits = scheme is not None and scheme[1] in _STORES and not re.search(r"[?#]", place)
    if not fits:
        raise UsageError(
            f'{FILE.decode()} names "{_shown(url)}", which is not opened unless you say so',
            hint="wtxtgit store use URL",
        )
    return url


def _shown(url: str) -> str:
    start = GIT if url.startswith(GIT) else ""
    place = url.removeprefix(GIT)[:_MOST_URL]
    return start + (shown_url(place) if is_url(place) else shown(place))
