"""The remote of a repository's store, and sending payload before refs are pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wtxtgit.git.repository import Repository
from wtxtgit.io.progress import Progress
from wtxtgit.remotes.payload import detached_texts
from wtxtgit.remotes.payload.place import PackPlace, TargetPacks
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.remotes.payload.store_url import GIT, LFS, LFS_AT, OCI, WEB, StoreUrl
from wtxtgit.report.store import PayloadPushed
from wtxtgit.store.place import store_of


def place_of(repo: Repository, url: StoreUrl) -> PackPlace:
    """Return the place of packs that a url names."""
    if url.url.startswith(GIT):
        from wtxtgit.remotes.payload.git_packs import GitPacks

        return GitPacks(repo, url.url.removeprefix(GIT))
    if url.remote is not None:
        from wtxtgit.remotes.payload.lfs_packs import LfsPacks

        server = url.url.removeprefix(LFS_AT) if url.url != LFS else None
        return LfsPacks(repo, url.remote, server)
    if url.url.startswith(OCI):
        from wtxtgit.remotes.payload.registry_packs import RegistryPacks

        return RegistryPacks(url.url.removeprefix(OCI))
    if url.url.startswith(WEB):
        from wtxtgit.remotes.payload.served_packs import ServedPacks

        return ServedPacks(repo, url.url)
    from wtxtgit.remotes.folder import Folder

    return TargetPacks(Folder(url.url))


def push_commits(
    repo: Repository,
    choose: Callable[[], StoreUrl],
    tips: Sequence[str],
    known: Iterable[str] = (),
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    check: bool = False,
) -> PayloadPushed:
    """Send the payload of commits that `tips` reach and `known` do not.

    The remote is only chosen if there are detached texts. `check` as for `push_payload`. Raises
    UsageError if the user has not chosen the remote.
    """
    texts = list(detached_texts.of_commits(repo, tips, known))
    if not texts:
        return PayloadPushed()
    url = choose()
    url.check_chosen()
    place = place_of(repo, url)
    return push_payload(store_of(repo), place, texts, progress, dry_run=dry_run, check=check)
