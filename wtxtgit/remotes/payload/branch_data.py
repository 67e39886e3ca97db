"""Whether the data of a remote's branch is where fetches look for it.

A merge that was made on a forge brings texts from a fork into the branch, and leaves their data at
the fork. Nothing is fetched here: the indexes of packs tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import history, remotes
from wtxtgit.git.repository import Repository
from wtxtgit.remotes.payload import detached_texts, needed_texts, store_url
from wtxtgit.store.place import store_of


@dataclass(frozen=True, slots=True)
class BranchData:
    """What a place lacks of the data that the tip of a remote-tracking branch needs.

    `chunks` are missing there, of the texts at `paths`. `elsewhere` is another remote that has all
    of them; `is_here` tells that this clone does.
    """

    remote: str
    branch: str
    place: str
    chunks: int = 0
    paths: tuple[bytes, ...] = ()
    is_here: bool = False
    elsewhere: str | None = None


def main_branch(repo: Repository) -> tuple[str, str] | None:
    """Return the main remote, and its branch that counts: the present one's upstream, or HEAD."""
    name = remotes.main(repo)
    if name is None:
        return None
    for revision in ("@{upstream}", f"refs/remotes/{name}/HEAD"):
        command = ("rev-parse", "--verify", "--quiet", "--symbolic-full-name", revision)
        ref = repo.call(*command, ok=(0, 1, 128)).stdout.decode("utf-8", "surrogateescape").strip()
        if ref.startswith(f"refs/remotes/{name}/") and history.find(repo, ref) is not None:
            return name, ref.removeprefix("refs/remotes/")
    return None


def of_main_branch(repo: Repository) -> BranchData | None:
    """Ask the place of payload for what the main branch needs; None if nothing is needed.

    Raises as the place does.
    """
    found = main_branch(repo)
    if found is None:
        return None
    remote, branch = found
    tip = history.resolve_commit(repo, f"refs/remotes/{branch}")
    texts, is_whole = needed_texts.of_commit(repo, tip)
    if not is_whole:
        # A check fetches nothing.
        raise EnvironmentFailure(f"this partial clone lacks files of {branch}")
    if not texts or not store_url.trusted(repo):
        return None
    # Imported here: doctor asks this, and also has to work where numpy can't be loaded.
    from wtxtgit.remotes.payload.remote import place_of
    from wtxtgit.remotes.payload.remote_packs import RemotePacks

    store = store_of(repo)
    first = store_url.chosen(repo)
    others = [url for url in store_url.to_fetch(repo) if url != first]
    packs = RemotePacks(place_of(repo, first), store.folder)
    missing = packs.lacking(detached_texts.chunks_of(texts))
    if not missing:
        return BranchData(remote, branch, packs.place.label)
    elsewhere = None
    for other in others:
        try:
            there = RemotePacks(place_of(repo, other), store.folder)
        except EnvironmentFailure:
            continue
        if not there.lacking(missing):
            elsewhere = there.place.label
            break
    paths = tuple(text.path for text in texts if not missing.isdisjoint(text.chunks))
    is_here = store.has(missing) == missing
    return BranchData(remote, branch, packs.place.label, len(missing), paths, is_here, elsewhere)
