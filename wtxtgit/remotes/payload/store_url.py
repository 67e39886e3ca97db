"""Choosing the remote that the payload of detached texts goes to and comes from.

The configuration `wtxtgit.store` decides, else `.wtxt/store` in the tree, else it is the git remote
itself: to push, the repository that git pushes to; to fetch, any remote may have what is needed.
Anybody can propose what stands in the tree: such a url starts no program, opens no file of this
machine, and nothing is sent there (docs/store.md, "Remotes").
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from wtxtgit.errors import ASKS_HELPERS, EnvironmentFailure, InputError, UsageError
from wtxtgit.git import index, remotes, run
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.remotes import GitRemote
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

    `git` is the git remote that is meant, or with which a git-lfs server is used.
    """

    KEYS = "url=shown origin may_push"

    url: str
    origin: UrlOrigin
    git: GitRemote | None = None

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


def chosen(repo: Repository, remote: GitRemote | None = None) -> StoreUrl:
    """Return the remote in use; `remote` is the git remote that is pushed to, if any.

    Raises UsageError for a url that can't be used, and if there is no remote at all.
    """
    found = find(repo, remote)
    if found is None:
        raise UsageError("no remote for payload", hint="wtxtgit store use URL names one")
    return found


def find(repo: Repository, remote: GitRemote | None = None) -> StoreUrl | None:
    """Return the remote in use, as `chosen` does, or None if there is no remote at all."""
    if remote is None and (name := remotes.main(repo)) is not None:
        remote = remotes.asked(name)
    configured = repo.config.get(KEY)
    if configured:
        return _found(_checked(configured), UrlOrigin.CONFIG, remote)
    proposed = _of_tree(repo)
    default = None if remote is None else of_git(remote, UrlOrigin.DEFAULT)
    if proposed is None or (default is not None and proposed == default.url):
        return default
    return _found(_checked_of_tree(repo, proposed), UrlOrigin.TREE, remote)


def to_fetch(repo: Repository, tips: Sequence[str] = ()) -> list[StoreUrl]:
    """Return the remotes that may have payload of commits, the likeliest first.

    A store that is named counts alone. Else these are the git remotes that the commits came from,
    the branch's own, the main one, and all others: a branch may come from a fork. Raises as
    `chosen` does.
    """
    names = remotes.names(repo)
    first = find(repo) if len(names) > 1 else chosen(repo)
    if first is not None and not _is_of_every_remote(first):
        return [first]
    own = remotes.fetched_by_default(repo)
    every = [
        *map(remotes.asked, remotes.that_have(repo, tips)),
        *([own] if own is not None else []),
        *([first.git] if first is not None and first.git is not None else []),
        *map(remotes.asked, names),
    ]
    each = {one.address: one for one in reversed(every)}
    ordered = [each[address] for address in dict.fromkeys(one.address for one in every)]
    if first is None or not _is_lfs(first.url):
        return [of_git(one, UrlOrigin.DEFAULT) for one in ordered]
    return [replace(first, git=one) for one in ordered]


def _is_of_every_remote(url: StoreUrl) -> bool:
    """Tell whether each git remote has a place of payload of its own."""
    return url.origin is UrlOrigin.DEFAULT or (url.may_push and _is_lfs(url.url))


def trusted(repo: Repository, tips: Sequence[str] = ()) -> list[StoreUrl]:
    """Return the remotes from which payload is fetched automatically, as `to_fetch` does.

    A url that only the tree names is not used: a checkout would contact anybody's host.
    """
    if not repo.config.is_true(FETCH_KEY, default=True):
        return []
    try:
        return [url for url in to_fetch(repo, tips) if url.may_push]
    except (UsageError, InputError):
        return []


def elsewhere(repo: Repository, tips: Sequence[str]) -> list[StoreUrl]:
    """Return all remotes that may have what a push lacks here; none without automatic fetching.

    Whatever store is set, what was pushed before may be at a git remote.
    """
    first = trusted(repo, tips)
    if not first:
        return []
    others = [of_git(remotes.asked(name), UrlOrigin.DEFAULT) for name in remotes.names(repo)]
    return list({url.url: url for url in (*first, *others)}.values())


def to_push(repo: Repository, pushed: Sequence[GitRemote]) -> list[StoreUrl]:
    """Return where payload goes beside a push to some repositories; raises as `chosen` does."""
    if not pushed:
        return [chosen(repo)]
    found = [chosen(repo, one) for one in pushed]
    if found[0].origin is UrlOrigin.DEFAULT or _is_lfs(found[0].url):
        return found
    if found[0].git is None or not found[0].may_push:
        return found[:1]
    return [of_git(one, found[0].origin) for one in remotes.pushed_to(repo, found[0].git.told)]


def given(repo: Repository, remote: str) -> list[StoreUrl]:
    """Return the places meant by a git remote's name or a URL: itself, or the git-lfs server used
    with it.

    Raises UsageError if it is invalid.
    """
    configured = repo.config.get(KEY)
    url = _checked(configured) if configured and _is_lfs(configured) else ""
    places = remotes.pushed_to(repo, remote)
    if url:
        return [_found(url, UrlOrigin.GIVEN, one) for one in places]
    return [of_git(one, UrlOrigin.GIVEN) for one in places]


def of_git(remote: GitRemote, origin: UrlOrigin) -> StoreUrl:
    """Return a git remote as the place of payload; raises UsageError if it is unsafe."""
    url = GIT + remote.address
    # What git resolved by itself is what it uses for the refs, too.
    return StoreUrl(_checked(url) if remote.told == remote.address else url, origin, remote)


def _found(url: str, origin: UrlOrigin, remote: GitRemote | None) -> StoreUrl:
    if url.startswith(GIT):
        return StoreUrl(url, origin, remotes.asked(url.removeprefix(GIT)))
    if _is_lfs(url) and remote is None:
        raise UsageError(f"{spelled(url)} needs a git remote", hint="git remote add origin URL")
    return StoreUrl(url, origin, remote if _is_lfs(url) else None)


def use(repo: Repository, url: str) -> StoreUrl:
    """Configure a repository to use a remote, also for pushing.

    Raises UsageError if it is invalid, or nothing opens such a folder.
    """
    found = StoreUrl(_checked(url), UrlOrigin.CONFIG)
    if url != LFS and not url.startswith((GIT, LFS_AT, OCI, *WEB)) and not is_known(url):
        raise _no_store(url)
    change_config("local", KEY, url, cwd=repo.home)
    return found


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
        fits = url == LFS or (is_git and place in remotes.names(repo))
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
