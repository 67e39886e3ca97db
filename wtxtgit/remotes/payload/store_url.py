"""Choosing the remote that the payload of detached texts goes to and comes from.

The configuration `wtxtgit.store` decides, else `.wtxt/store` in the tree, else it is the git remote
itself. Anybody can propose what stands in the tree: such a url starts no program, opens no file of
this machine, and nothing is sent there (docs/store.md, "Remotes").
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from wtxtgit.errors import ASKS_HELPERS, EnvironmentFailure, InputError, UsageError
from wtxtgit.git import index, run
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.repository import Repository, change_config
from wtxtgit.git.transfer import WITH_PASSWORD
from wtxtgit.io.files import read_small, shown
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.urls import is_known, is_loopback, is_url, shown_url

KEY = "wtxtgit.store"
FETCH_KEY = "wtxtgit.fetch"
"""The key for whether payload is fetched automatically when it is needed."""
FILE = b".wtxt/store"
"""The file of the tree that may name a remote, in git-config(5)'s syntax."""
GIT = "git+"
OCI = "oci://"
WEB = ("https://", "http://")
"""Folders that a web server serves, which can only be read from."""
LFS = "lfs"
"""Means the git-lfs server of the git remote; LFS_AT begins the url of another one."""
LFS_AT = "lfs+"
_MOST_FILE = 64 * 1024
_MOST_URL = 2048
_CONTROLS = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]")
_MORE = re.compile(r"[?#]")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)")
_PORT = re.compile(r":[0-9]{1,5}\Z")
_LFS_SCHEMES = frozenset(("http", "https"))
_STORES = frozenset(("s3", "gs", "gcs", "az", "abfs", "abfss", "sftp"))
"""Stores that a tree may name: they are remote, and opened without another program."""
_NO_STORES = frozenset(("lfs", "git", "ssh"))
"""Schemes that mean something else than a folder of packs."""
_ELSEWHERE = re.compile(r"(?!.*\.localhost$)(?:[a-z0-9_-]+\.)+[a-z][a-z0-9-]*", re.IGNORECASE)
"""Hosts that a tree may name: not this machine, no IP address, and no name without a dot."""


class UrlOrigin(StrEnum):
    """Where a remote's url comes from."""

    CONFIG = "config"
    TREE = "tree"
    DEFAULT = "default"
    GIVEN = "given"


@dataclass(frozen=True, slots=True)
class StoreUrl(JsonObject):
    """A remote of the store, and who named it; `may_push` unless only the tree did.

    `remote` is the git remote that a git-lfs server is used with.
    """

    KEYS = "url=shown origin may_push"

    url: str
    origin: UrlOrigin
    remote: str | None = None

    @property
    def may_push(self) -> bool:
        return self.origin is not UrlOrigin.TREE

    def check_chosen(self) -> None:
        """Raise UsageError if only the tree names it: nothing is sent there, or dropped."""
        if self.may_push:
            return
        use = f"{shlex.quote(self.shown)}  # if you trust it"
        if self.url.startswith(WEB):
            use = "URL, of the folder that it serves"
        raise UsageError(
            f"only a file of the repository names {self.shown} as the remote",
            hint=f"wtxtgit store use {use}",
        )

    @property
    def shown(self) -> str:
        """The url without possible secrets."""
        return spelled(self.url)


def chosen(repo: Repository, remote: str | None = None) -> StoreUrl:
    """Return the remote in use; `remote` is the git remote that is pushed to, if any.

    Raises UsageError for a url that can't be used, and if there is no remote at all.
    """
    found = find(repo, remote)
    if found is None:
        raise UsageError("no remote for payload", hint="wtxtgit store use URL names one")
    return found


def find(repo: Repository, remote: str | None = None) -> StoreUrl | None:
    """Return the remote in use, as `chosen` does, or None if there is no remote at all."""
    configured = repo.config.get(KEY)
    if configured:
        return _found(repo, _checked(configured), UrlOrigin.CONFIG, remote)
    proposed = _of_tree(repo)
    default = _default(repo, remote)
    if proposed is None or proposed == default:
        return None if default is None else StoreUrl(_checked(default), UrlOrigin.DEFAULT)
    return _found(repo, _checked_of_tree(repo, proposed), UrlOrigin.TREE, remote)


def trusted(repo: Repository) -> StoreUrl | None:
    """Return the remote from which payload is fetched automatically; None if nothing is.

    A url that only the tree names is not used: a checkout would contact anybody's host.
    """
    if not repo.config.is_true(FETCH_KEY, default=True):
        return None
    try:
        url = chosen(repo)
    except (UsageError, InputError):
        return None
    return url if url.may_push else None


def given(repo: Repository, remote: str) -> StoreUrl:
    """Return the remote meant by a git remote's name: itself, or the git-lfs server used with it.

    Raises UsageError if it is invalid.
    """
    configured = repo.config.get(KEY)
    if configured and _is_lfs(configured):
        return _found(repo, _checked(configured), UrlOrigin.GIVEN, remote)
    return StoreUrl(_checked(GIT + remote), UrlOrigin.GIVEN)


def _found(repo: Repository, url: str, origin: UrlOrigin, remote: str | None) -> StoreUrl:
    if not _is_lfs(url):
        return StoreUrl(url, origin)
    beside = _default(repo, remote)
    if beside is None:
        raise UsageError(f"{spelled(url)} needs a git remote", hint="git remote add origin URL")
    return StoreUrl(url, origin, _checked(beside).removeprefix(GIT))


def use(repo: Repository, url: str) -> StoreUrl:
    """Configure a repository to use a remote, also for pushing.

    Raises UsageError if it is invalid, or nothing opens such a folder.
    """
    found = StoreUrl(_checked(url), UrlOrigin.CONFIG)
    if url != LFS and not url.startswith((GIT, LFS_AT, OCI, *WEB)) and not is_known(url):
        raise _no_store(url)
    change_config("local", KEY, url, cwd=repo.home)
    return found


def remotes(repo: Repository) -> list[str]:
    """List the configured git remotes."""
    return repo.git("remote").decode("utf-8", "surrogateescape").splitlines()


def _default(repo: Repository, remote: str | None) -> str | None:
    if remote is not None:
        return GIT + remote
    names = remotes(repo)
    if "origin" in names or len(names) == 1:
        return GIT + ("origin" if "origin" in names else names[0])
    return None


def _of_tree(repo: Repository) -> str | None:
    """Return the url in the file of the work tree or, if there is none, of the index."""
    content = _file(repo)
    if content is None:
        return None
    # Without includes, which would read files of the user.
    done = run.call(
        "config", "--file", "-", "--no-includes", "-z", "--get", "store.url",
        cwd=repo.home, stdin=content, ok=(0, 1, 3, 128),
    )  # fmt: skip
    if done.code > 1:
        raise InputError(f"{FILE.decode()} is not a git-config file")
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
    """Return a url that a user named, unchanged; raises UsageError if it is invalid or unsafe."""
    if url == LFS:
        return url
    place = _place(url)
    if not place or place.startswith("-") or len(url) > _MOST_URL or _CONTROLS.search(url):
        raise UsageError(f'"{spelled(url)}" is not the URL of a store')
    if "::" in place:
        raise UsageError(f'"{spelled(url)}" would start a program, or wraps another URL')
    if WITH_PASSWORD.match(place):
        raise UsageError(f"{spelled(url)}: the store's URL contains credentials", hint=ASKS_HELPERS)
    scheme = _SCHEME.match(place)
    if scheme is not None and scheme[2].rpartition("@")[2].startswith("-"):
        raise UsageError(f'"{spelled(url)}" is not the URL of a store')
    if url.startswith(LFS_AT):
        fits = scheme is not None and scheme[1] in _LFS_SCHEMES and not _MORE.search(place)
    else:
        fits = url.startswith(GIT) or (scheme is not None and scheme[1] not in _NO_STORES)
    if not fits:
        raise _no_store(url)
    if url.startswith(OCI):
        from wtxtgit.remotes.payload.registry_packs import RegistryPacks

        RegistryPacks(url.removeprefix(OCI))
    elif url.startswith(WEB):
        _check_web(url)
    return url


def _no_store(url: str) -> UsageError:
    return UsageError(
        f'"{spelled(url)}" is not the URL of a store',
        hint="it may be git+REMOTE, lfs, oci://HOST/NAME, file:///FOLDER, s3://BUCKET/FOLDER or "
        "another URL of fsspec, or https://HOST/FOLDER, which is read-only",
    )


def _check_web(url: str) -> None:
    """Raise UsageError for a folder that can't be served, or only without TLS."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or _MORE.search(url):
        raise UsageError(f'"{spelled(url)}" is not the URL of a folder on a server')
    if parts.scheme == "http" and not is_loopback(host):
        raise UsageError(
            f"{spelled(url)}: without TLS, data is fetched only from this machine",
            hint="https://example.com/FOLDER",
        )


def _checked_of_tree(repo: Repository, url: str) -> str:
    """Return a url from the tree unchanged; raises UsageError unless it is safe.

    Safe are addresses elsewhere, and remotes that the user has.
    """
    place = _place(_checked(url))
    scheme = _SCHEME.match(place)
    is_git = url.startswith(GIT)
    if scheme is None:
        fits = url == LFS or (is_git and place in remotes(repo))
    elif scheme[1] == "https" or url.startswith(OCI):
        fits = _ELSEWHERE.fullmatch(_PORT.sub("", scheme[2])) is not None
    elif is_git:
        fits = scheme[1] == "ssh"
    else:
        fits = not _is_lfs(url) and scheme[1] in _STORES and not _MORE.search(place)
    if not fits:
        raise UsageError(
            f'{FILE.decode()} names "{spelled(url)}", which is not opened without your consent',
            hint="wtxtgit store use URL",
        )
    return url


def _is_lfs(url: str) -> bool:
    return url == LFS or url.startswith(LFS_AT)


def _place(url: str) -> str:
    """Return the address in a url, or the git remote's name."""
    return url.removeprefix(GIT) if url.startswith(GIT) else url.removeprefix(LFS_AT)


def spelled(url: str) -> str:
    """Return a url, or a remote's name, for messages: without possible secrets."""
    place = _place(url)[:_MOST_URL]
    start = url[: len(url) - len(_place(url))]
    return start + (shown_url(place) if is_url(place) else shown(place))
