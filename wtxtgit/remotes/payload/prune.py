"""Dropping local payload that a remote has and that is not needed now: `wtxtgit store prune`.

Whatever nobody else has stays: chunks are only dropped if the remote is shown to have them, and
everything that they are decoded from there, and if refs that git remotes have now lead to them. A
remote that only the tree names is not asked: whoever proposes a change could name one that claims
to have everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import remotes as git_remotes
from wtxtgit.git.repository import Repository
from wtxtgit.io.progress import Progress
from wtxtgit.remotes.payload import needed_texts, store_url
from wtxtgit.remotes.payload.detached_texts import chunks_of
from wtxtgit.remotes.payload.git_packs import forget_fetched
from wtxtgit.remotes.payload.incoming import forget_begun
from wtxtgit.remotes.payload.remote import place_of, refs_of
from wtxtgit.remotes.payload.remote_packs import RemotePacks, UsableChunks
from wtxtgit.remotes.payload.store_url import StoreUrl
from wtxtgit.report.store import StorePruned
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import MAX_DEPTH
from wtxtgit.store.place import is_own, store_of
from wtxtgit.store.prune import prune_store

RECENT = "wtxtgit.pruneRecent"
"""The key for the number of days for which a commit counts as recent."""
_RECENT_DAYS = 10
_EXPIRE = "gc.pruneExpire"
_EXPIRE_DAYS = 14
DAY = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class PruneRules:
    """What stays: payload of commits not older than `recent`, in seconds since 1970.

    Unreachable payload stays unless it is older than `expire`; None means that it is never dropped.
    With `verify`, packs that a remote claims to have are read before they count.
    """

    recent: float
    expire: float | None
    verify: bool = False


def rules(
    repo: Repository, now: float, recent: int | None, expire: int | None, *, verify: bool = False
) -> PruneRules:
    """Return the rules of the configuration, unless they are given in days.

    Unreachable payload is dropped when git's own gc would drop it, the key gc.pruneExpire. A store
    outside of the repository may belong to several: there it is only dropped after a given number
    of days.
    """
    days = repo.config.size(RECENT, _RECENT_DAYS) if recent is None else recent
    limit = None
    if expire is not None:
        limit = now - expire * DAY
    elif is_own(repo):
        limit = expiry(repo, now)
    return PruneRules(now - days * DAY, limit, verify)


def expiry(repo: Repository, now: float) -> float:
    """Return the time before which unreachable payload counts as old, by the configuration."""
    told = repo.call("config", "--type=expiry-date", "--get", _EXPIRE, ok=(0, 1)).stdout
    return min(now, float(int(told))) if told else now - _EXPIRE_DAYS * DAY


def prune_payload(
    repo: Repository, what: PruneRules, progress: Progress | None = None, *, dry_run: bool = False
) -> StorePruned:
    """Drop chunks of the store; `progress` gets counts of bytes that were read and moved.

    Raises UsageError if only the tree names the remote, and EnvironmentFailure if the repository's
    objects are precious, as the place does, and as `prune_store`.
    """
    # git-config(1): other repositories, unknown to git, may need any object.
    if repo.config.is_true("extensions.preciousObjects"):
        raise EnvironmentFailure(
            "nothing is dropped in a repository with extensions.preciousObjects"
        )
    url = store_url.find(repo)
    if url is not None:
        url.check_chosen()
    store = store_of(repo)
    if not dry_run:
        forget_fetched(repo)
        forget_begun(store)
    remote, unsent, young = None, 0, 0

    def judge(chunks: Mapping[bytes, float]) -> Set[bytes]:
        nonlocal remote, unsent, young
        recent = (needed_texts.of_now(repo), needed_texts.since(repo, what.recent))
        kept = chunks.keys() & chunks_of(text for listed in recent for text in listed.texts)
        rest = chunks.keys() - kept
        if not rest:
            return kept
        if url is not None:
            # Before the packs: these refs are what keeps them there.
            tips = _remote_tips(repo, url)
            kept |= rest & chunks_of(needed_texts.only_here(repo, tips).texts)
            rest -= kept
        reached = needed_texts.reached(repo)
        needed = chunks_of(reached.texts)
        there: Set[bytes] = set()
        if url is not None:
            packs = RemotePacks(place_of(repo, url), store.folder)
            remote = packs.place.label
            folders = (store.own, *store.borrowed)
            there = proved(packs, rest, progress, verify=folders if what.verify else None)
        expire = what.expire if reached.is_whole else None
        for chunk in rest - there:
            if chunk in needed:
                unsent += 1
            elif expire is None or chunks[chunk] >= expire:
                young += 1
            else:
                continue
            kept.add(chunk)
        return kept

    done = prune_store(store, judge, progress, dry_run=dry_run)
    return replace(done, remote=remote, unsent=unsent, young=young)


def _remote_tips(repo: Repository, url: StoreUrl) -> set[str]:
    """Return what the refs lead to that keep payload at a place: they are asked for now.

    At a git remote or its git-lfs server these are its own, elsewhere those of all remotes. Raises
    EnvironmentFailure if a remote does not answer.
    """
    every = [git_remotes.asked(name) for name in git_remotes.names(repo)]
    try:
        listed = [refs_of(repo, one) for one in ([url.git] if url.git is not None else every)]
    except EnvironmentFailure as error:
        raise type(error)(f"nothing is dropped: {error.message}") from None
    return {oid for refs in listed for oid in refs.values()}


def proved(
    remote: RemotePacks,
    chunks: Iterable[bytes],
    progress: Progress | None = None,
    *,
    verify: Sequence[PackFolder] | None = None,
) -> set[bytes]:
    """Return those chunks that a remote has, with everything that they are decoded from there.

    A pack counts if it is there with its end, which is read now, and has the size that the end
    states, as far as the remote tells. With `verify` it is read, and has to match the SHA-256 in
    its name; of its chunks those count that match theirs, decoded with bases in these folders.
    """
    wanted = list(chunks)
    remote.reread()
    remote.keep_reliable()
    damaged: set[str] = set()
    checked: set[str] = set()
    while True:
        usable = UsableChunks(remote, damaged)
        found = {chunk for chunk in wanted if usable.has(chunk, MAX_DEPTH)}
        unchecked = usable.used - checked
        if verify is None or not unchecked:
            return found
        damaged |= remote.damage(sorted(unchecked), verify, progress).keys()
        checked |= unchecked
