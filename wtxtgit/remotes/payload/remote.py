"""The remote of a repository's store, and sending payload before refs are pushed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.remote_refs import RemoteRefs
from wtxtgit.git.remotes import GitRemote
from wtxtgit.git.repository import Repository
from wtxtgit.io.progress import Progress
from wtxtgit.remotes.payload import detached_texts, needed_texts, store_url
from wtxtgit.remotes.payload.fetch import FetchInTurn, RemotesInTurn
from wtxtgit.remotes.payload.place import PackPlace, TargetPacks
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.remotes.payload.remote_packs import RemotePacks
from wtxtgit.remotes.payload.removal import commits_count
from wtxtgit.remotes.payload.store_url import GIT, LFS, LFS_AT, OCI, WEB, StoreUrl
from wtxtgit.report.store import PayloadPushed, pushed_together
from wtxtgit.store.place import store_of


def place_of(repo: Repository, url: StoreUrl) -> PackPlace:
    """Return the place of packs that a url names."""
    if url.url.startswith(GIT) and url.git is not None:
        from wtxtgit.remotes.payload.git_packs import GitPacks

        return GitPacks(repo, *url.git)
    if url.git is not None:
        from wtxtgit.remotes.payload.lfs_packs import LfsPacks

        server = url.url.removeprefix(LFS_AT) if url.url != LFS else None
        return LfsPacks(repo, url.git.address, server, url.git)
    if url.url.startswith(OCI):
        from wtxtgit.remotes.payload.registry_packs import RegistryPacks

        return RegistryPacks(url.url.removeprefix(OCI))
    if url.url.startswith(WEB):
        from wtxtgit.remotes.payload.served_packs import ServedPacks

        return ServedPacks(repo, url.url)
    from wtxtgit.remotes.folder import Folder

    return TargetPacks(Folder(url.url))


def places_to_fetch(repo: Repository, revisions: Sequence[str] = ()) -> Iterator[PackPlace]:
    """Yield the places that may have payload of commits; raises as `store_url.chosen` does."""
    return (place_of(repo, url) for url in store_url.to_fetch(repo, revisions))


def known_commits(repo: Repository, remote: GitRemote) -> list[str]:
    """Ask a git remote for its branches and tags; returns the ids of those that are here.

    Raises as `refs_of`.
    """
    listed = refs_of(repo, remote, "refs/heads/*", "refs/tags/*")
    return needed_texts.there(repo, sorted(set(listed.values())))


def refs_of(repo: Repository, remote: GitRemote, *patterns: str) -> dict[str, str]:
    """Ask a git remote for refs that match patterns; raises RemoteUnavailable and RemoteRefused."""
    label = store_url.spelled(remote.address)
    return RemoteRefs(repo, remote.told, label, remote.env).list(*patterns)


def push_commits(
    repo: Repository,
    choose: Callable[[], Sequence[StoreUrl]],
    tips: Sequence[str],
    known: Sequence[str] = (),
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    check: bool = False,
) -> PayloadPushed:
    """Send the payload of commits that `tips` reach and `known` do not, to each place.

    Where a pack is marked, nothing is known of what is there (`docs/spec/store.md`, "Removal", rule
    6). The places are only chosen if there may be detached texts. `check` as for `push_payload`.
    Raises UsageError if the user has not chosen the remote.
    """
    store, is_all = store_of(repo), not known
    texts = list(detached_texts.of_commits(repo, tips, known))
    if not texts and (is_all or not store.folder.exists()):
        return PayloadPushed()
    urls = choose()
    others: FetchInTurn | None = None

    def fetch(chunks: Collection[bytes]) -> None:
        nonlocal others
        if others is None:
            # Those that are pushed to may have marked packs, on which a push does not rely.
            every = (*urls, *store_url.elsewhere(repo, tips))
            places = (place_of(repo, url) for url in every)
            others = FetchInTurn(store, RemotesInTurn(places, store.folder))
        # What can't be fetched is told as missing.
        with suppress(EnvironmentFailure):
            others.fetch(chunks)

    done = []
    for url in urls:
        if texts:
            url.check_chosen()
        elif not url.may_push:
            continue
        place = place_of(repo, url)
        to_send = texts
        if not is_all:
            place.packs()
            if not commits_count({*place.marked()}):
                to_send = list(detached_texts.of_commits(repo, tips))
        push = partial(push_payload, store, place, to_send, progress, dry_run=dry_run)
        done.append(push(fetch=fetch, check=check))
    return pushed_together(done)


def push_refs(
    repo: Repository,
    to: Sequence[GitRemote],
    tips: Sequence[str],
    before: Sequence[str] | None,
    progress: Progress | None = None,
) -> PayloadPushed:
    """Send payload before git pushes refs to some repositories; see `push_commits`.

    `before` are the commits where the refs are there, None if there are others. What commits there
    need is there already, in a git remote of its own; of any other store nothing follows from them.
    If that lacks what the last ones need it was set later, and gets the data of all commits, of
    earlier ones as far as they can be had.
    """
    if before is None:
        before = [oid for one in to for oid in known_commits(repo, one)]

    def choose() -> list[StoreUrl]:
        return store_url.to_push(repo, to)

    done = push_commits(repo, choose, tips, before, progress)
    is_of_git = not repo.config.get(store_url.KEY)
    if is_of_git or not before or done.lacking or not _is_new_there(repo, choose, tips, before):
        return done
    earlier = push_commits(repo, choose, tips, (), progress)
    return pushed_together([done, replace(earlier, lacking=())])


def _is_new_there(
    repo: Repository,
    choose: Callable[[], Sequence[StoreUrl]],
    tips: Sequence[str],
    before: Sequence[str],
) -> bool:
    """Tell whether a place lacks what the commits need from which pushed ones go on."""
    revisions = "".join(f"{oid}\n" for oid in (*tips, *(f"^{oid}" for oid in before)))
    listed = repo.git("rev-list", "--boundary", "--stdin", stdin=revisions.encode("ascii"))
    joints = [line[1:] for line in listed.decode("ascii").splitlines() if line.startswith("-")]
    trees = (detached_texts.of_tree(repo, oid, ()) for oid in joints or tips)
    chunks = detached_texts.chunks_of(text for texts in trees for text in texts)
    if not chunks:
        return False
    folder = store_of(repo).folder
    return any(RemotePacks(place_of(repo, url), folder).lacking(chunks) for url in choose())
