"""Dropping packs of a remote that no ref needs: `wtxtgit store prune --remote`.

All present refs of the repository's git remotes count, and its own; missing objects of their
commits are fetched first. A pack is marked first, and removed by a later prune: the refs of a push
that relied on it may still be on their way (`docs/spec/store.md`, "Removal").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git import remotes as git_remotes
from wtxtgit.git.history import refuse_altered
from wtxtgit.git.remote_refs import RemoteRefs
from wtxtgit.git.repository import Repository
from wtxtgit.io import clock
from wtxtgit.remotes.payload import needed_texts, store_url
from wtxtgit.remotes.payload.detached_texts import chunks_of
from wtxtgit.remotes.payload.place import UNNEEDED
from wtxtgit.remotes.payload.remote import place_of
from wtxtgit.remotes.payload.remote_packs import GONE, RemotePacks, UsableChunks
from wtxtgit.remotes.payload.removal import Seen, removal
from wtxtgit.remotes.payload.store_url import GIT, StoreUrl, spelled
from wtxtgit.report.store import PlacedPack, RemotePruned
from wtxtgit.store.pack import MAX_DEPTH
from wtxtgit.store.place import store_of

_PATIENCE = 24 * 60 * 60
_OWN = "refs/wtxt/"
"""The prefix of the refs of packs, which lead to no commit."""


def prune_remote(
    repo: Repository, now: float, expire: float, *, force: bool = False
) -> RemotePruned:
    """Find the packs that nobody needs and that were stored, or marked, before `expire`.

    Times are in seconds since 1970. With `force` they are marked, and removed if they were marked
    before `expire`; if that is `now`, all is done at once. Raises UsageError if there is no git
    remote to tell what is needed, or only the tree names the place; EnvironmentFailure if the local
    history is incomplete, or refs changed meanwhile; and as the place does.
    """
    url = store_url.chosen(repo)
    url.check_chosen()
    refuse_altered(repo)
    remotes = [RemoteRefs(repo, name, spelled(name)) for name in _remotes(repo, url)]
    # What is listed is removed, and not what git would push to.
    at = url if url.git is None else replace(url, git=git_remotes.alone(repo, url.git))
    place = place_of(repo, at)
    # Before the refs, as the rules say.
    packs = RemotePacks(place, store_of(repo).folder)
    # What is cached of them must not be the reason why one counts as unneeded.
    packs.reread()
    seen = _seen(packs)
    refs = [_refs(remote) for remote in remotes]
    for remote, known in zip(remotes, refs, strict=True):
        _fetch(repo, remote, known)
    needed = _needed(repo, {oid for known in refs for oid in known.values()})
    usable = UsableChunks(packs, seen.marked)
    is_at_once = now <= expire
    todo = removal(
        seen,
        needed,
        packs.index,
        lambda chunk: usable.has(chunk, MAX_DEPTH),
        lambda names: names if is_at_once else _old(packs, seen, names, expire),
    )
    gone = todo.remove | (todo.mark if is_at_once else set())
    forgotten = todo.forget | (gone if is_at_once else set())
    note = None
    if force and (gone or todo.mark):
        if todo.mark:
            place.mark(sorted(todo.mark))
        if [_refs(remote) for remote in remotes] != refs:
            raise EnvironmentFailure("refs have changed in the meantime", hint="run it again")
        if clock.now() - now > max(now - expire, _PATIENCE):
            raise EnvironmentFailure("it took longer than the grace time", hint="run it again")
        if gone:
            note = place.remove(sorted(gone))
        place.settle()
        for name in gone:
            packs.forget(name)
            packs.first_seen(name, GONE)
        for name in todo.mark:
            packs.first_seen(name, UNNEEDED)
    if force and forgotten:
        place.forget(sorted(forgotten))

    def placed(names: Set[str]) -> tuple[PlacedPack, ...]:
        return tuple(PlacedPack(name, packs.sizes.get(name)) for name in sorted(names))

    return RemotePruned(
        place.label,
        tuple(remote.label for remote in remotes),
        sum(map(len, refs)),
        len(seen.packs | seen.parts),
        placed(gone),
        placed(todo.mark - gone),
        len(todo.young),
        force,
        note,
    )


def _seen(packs: RemotePacks) -> Seen:
    whole, marked, damaged = {*packs.packs}, packs.marked, packs.damaged.keys()
    # Of a pack whose end is damaged nobody can read anything.
    parts = {*packs.place.parts()} | (damaged & marked)
    return Seen(whole, parts, marked, marked - whole - parts)


def _old(packs: RemotePacks, seen: Seen, names: Set[str], expire: float) -> set[str]:
    """Return the names that have been in their state since before `expire`."""
    # A place may know when it was marked, or stored, but not when it went.
    times = dict(packs.place.times(sorted(names - seen.gone)))
    for name, time in times.items():
        if time is None:
            times[name] = packs.first_seen(name, UNNEEDED if name in seen.marked else "index")
    times |= {name: packs.first_seen(name, GONE) for name in names & seen.gone}
    return {name for name, time in times.items() if time is not None and time < expire}


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
