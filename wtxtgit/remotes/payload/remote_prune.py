"""Dropping packs of a remote that no ref needs: `wtxtgit store prune --remote`.

All present refs of the repository's git remotes count, and its own; missing objects of their
commits are fetched first. A pack stays if any chunk in it is needed, directly or for decoding
another, or if it is young: the refs of the push that brought it may still be on their way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git import remotes as git_remotes
from wtxtgit.git.history import refuse_altered
from wtxtgit.git.remote_refs import RemoteRefs
from wtxtgit.git.repository import Repository
from wtxtgit.remotes.payload import needed_texts, store_url
from wtxtgit.remotes.payload.detached_texts import chunks_of
from wtxtgit.remotes.payload.place import PackPlace
from wtxtgit.remotes.payload.remote import place_of
from wtxtgit.remotes.payload.remote_packs import RemotePacks
from wtxtgit.remotes.payload.store_url import GIT, StoreUrl, spelled
from wtxtgit.report.store import PlacedPack, RemotePruned
from wtxtgit.store.place import store_of

_OWN = "refs/wtxt/"
"""The prefix of the refs of packs, which lead to no commit."""


def prune_remote(repo: Repository, expire: float, *, force: bool = False) -> RemotePruned:
    """Find the packs that nobody needs and that were stored before `expire`, in seconds since 1970.

    With `force` they are removed. Raises UsageError if there is no git remote to tell what is
    needed, or only the tree names the place; EnvironmentFailure if the local history is incomplete,
    or refs changed meanwhile; and as the place does.
    """
    url = store_url.chosen(repo)
    url.check_chosen()
    refuse_altered(repo)
    remotes = [RemoteRefs(repo, name, spelled(name)) for name in _remotes(repo, url)]
    # What is listed is removed, and not what git would push to.
    at = url if url.git is None else replace(url, git=git_remotes.alone(repo, url.git))
    place = place_of(repo, at)
    # Before the refs: packs that are pushed meanwhile are not listed here.
    packs = RemotePacks(place, store_of(repo).folder)
    # What is cached of them must not be the reason why one counts as unneeded.
    packs.reread()
    refs = [_refs(remote) for remote in remotes]
    for remote, known in zip(remotes, refs, strict=True):
        _fetch(repo, remote, known)
    needed = _needed(repo, {oid for known in refs for oid in known.values()})
    parts = list(place.parts())
    unneeded = sorted(packs.packs - _kept(packs, needed)) + parts
    times = _times(place, packs, unneeded)
    gone = [name for name in unneeded if (time := times.get(name)) is not None and time < expire]
    note = None
    if force and gone:
        if [_refs(remote) for remote in remotes] != refs:
            raise EnvironmentFailure("refs have changed in the meantime", hint="run it again")
        note = place.remove(gone)
        place.settle()
        for name in gone:
            packs.forget(name)
    return RemotePruned(
        place.label,
        tuple(remote.label for remote in remotes),
        sum(map(len, refs)),
        len(packs.packs) + len(parts),
        tuple(PlacedPack(name, packs.sizes.get(name)) for name in gone),
        len(unneeded) - len(gone),
        force,
        note,
    )


def _remotes(repo: Repository, url: StoreUrl) -> list[str]:
    """Return the git remotes whose refs count."""
    remotes = git_remotes.names(repo)
    named = url.url.removeprefix(GIT)
    if url.url.startswith(GIT) and named not in remotes:
        remotes.append(named)
    if not remotes:
        raise UsageError(
            "without a git remote, nothing says what is needed", hint="git remote add NAME URL"
        )
    return remotes


def _refs(remote: RemoteRefs) -> dict[str, str]:
    """Return the refs of a remote, without those of packs."""
    return {ref: oid for ref, oid in remote.list().items() if not ref.startswith(_OWN)}


def _fetch(repo: Repository, remote: RemoteRefs, refs: Mapping[str, str]) -> None:
    """Fetch what refs lead to; since no local ref keeps it, git's gc will drop it later."""
    present = set(needed_texts.there(repo, list(refs.values())))
    lacking = [ref for ref, oid in refs.items() if oid not in present]
    if lacking:
        remote.fetch(lacking)


def _needed(repo: Repository, tips: Collection[str]) -> set[bytes]:
    """Return the chunks that any ref leads to, at the remotes or here."""
    listed = needed_texts.reached(repo, sorted(tips))
    if not listed.is_whole:
        what = "some files of some commits are missing here"
        raise EnvironmentFailure(what, hint="run it in a complete clone")
    return chunks_of(listed.texts)


def _kept(packs: RemotePacks, needed: set[bytes]) -> set[str]:
    """Return the packs with a chunk that is needed, or that a needed one is decoded from."""
    needed = set(needed)
    kept: set[str] = set()
    size = -1
    while size != len(needed):
        size = len(needed)
        for name in packs.packs:
            index = packs.index(name)
            for row in range(index.count):
                if index.name(row) in needed:
                    kept.add(name)
                    needed.update(index.entry(row).bases)
    return kept


def _times(place: PackPlace, packs: RemotePacks, names: Sequence[str]) -> dict[str, float | None]:
    """Return when packs were stored or, if the place does not tell, first seen here."""
    return {
        name: packs.first_seen(name) if time is None else time
        for name, time in place.times(names).items()
    }
