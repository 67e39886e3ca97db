"""The remote of a repository's store, and what goes there before refs are pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wtxtgit.errors import UsageError
from wtxtgit.git.repository import Repository
from wtxtgit.remotes import detached_texts
from wtxtgit.remotes.pack_place import PackPlace, TargetPacks
from wtxtgit.remotes.payload_push import push_payload
from wtxtgit.remotes.store_url import GIT, StoreUrl
from wtxtgit.report.store import PayloadPushed
from wtxtgit.store.place import store_of


def place_of(repo: Repository, url: StoreUrl) -> PackPlace:
    """The place of packs that a url names; see `PackPlace`."""
    if url.url.startswith(GIT):
        from wtxtgit.remotes.git_packs import GitPacks

        return GitPacks(repo, url.url.removeprefix(GIT))
    from wtxtgit.remotes.folder import Folder

    return TargetPacks(Folder(url.url))


def push_commits(
    repo: Repository,
    choose: Callable[[], StoreUrl],
    tips: Sequence[str],
    known: Iterable[str] = (),
    progress: Callable[[int], None] | None = None,
    *,
    dry_run: bool = False,
) -> PayloadPushed:
    """Send what commits need that `tips` reach, and those `known` do not.

    Without detached texts nobody asks which remote it is. Raises UsageError where nobody has said
    that anything may be sent there.
    """
    texts = list(detached_texts.of_commits(repo, tips, known))
    if not texts:
        return PayloadPushed()
    url = choose()
    if not url.may_push:
        raise UsageError(
            f"payload would be sent to {url.shown}, which the tree alone names",
            hint=f"wtxtgit store use {url.shown}, if that is right",
        )
    return push_payload(store_of(repo), place_of(repo, url), texts, progress, dry_run=dry_run)
