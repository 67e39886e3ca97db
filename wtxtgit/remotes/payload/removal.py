"""Which packs of a remote a push may rely on, and when which of them may go.

Spec: `docs/spec/store.md`, "Removal", whose rules are cited here by their numbers. Nothing here
reads, writes or asks anything: the tests run these functions in all orders in which two clones can
take the steps of pushing, fetching and pruning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

from wtxtgit.store.pack import ChunkIndex

IndexOf = Callable[[str], ChunkIndex]
"""Returns the index of a pack that is there with both files."""


class Seen(NamedTuple):
    """What a prune saw of a remote, before it asked for the refs.

    `packs` are there with both files, `parts` with one of them. `marked` names have a mark, whether
    there is a pack or not; `gone` are those of them without any.
    """

    packs: Set[str]
    parts: Set[str]
    marked: Set[str]
    gone: Set[str]


class Removal(NamedTuple):
    """What a prune does: packs to `mark`, packs and parts to `remove`, and marks to `forget`.

    Nothing needs those that are `young`, which stay as they are.
    """

    mark: Set[str]
    remove: Set[str]
    forget: Set[str]
    young: Set[str]


def removal(
    seen: Seen,
    needed: Set[bytes],
    index: IndexOf,
    is_elsewhere: Callable[[bytes], bool],
    old: Callable[[Set[str]], Set[str]],
) -> Removal:
    """Decide what a prune does, by the chunks that refs need (rules 1 to 5).

    `is_elsewhere` tells whether packs without a mark have a chunk, and all that it is decoded with.
    `old` returns which of some names were longer in their state than the grace time when the prune
    began: gone, marked, or else there.
    """
    kept = holding(seen.packs, needed, index)
    unneeded = (seen.packs | seen.parts) - kept
    copied: Set[str] = kept & seen.marked
    if copied:
        lacking = [chunk for chunk in needed if not is_elsewhere(chunk)]
        copied -= holding(seen.packs, lacking, index)
    aged = old(unneeded | copied | seen.gone)
    remove = (unneeded | copied) & aged & seen.marked
    fresh = (unneeded & seen.packs) - seen.marked - aged
    of_fresh = {held.name(row) for held in map(index, fresh) for row in range(held.count)}
    mark = (unneeded & aged) - remove - holding(seen.packs, of_fresh, index)
    return Removal(mark, remove, seen.gone & aged, unneeded - mark - remove)


def holding(packs: Iterable[str], chunks: Iterable[bytes], index: IndexOf) -> set[str]:
    """Return the packs with a copy of a chunk, or of anything that a copy is decoded with."""
    wanted = set(chunks)
    names = sorted(packs)
    found: set[str] = set()
    count = -1
    while count != len(wanted):
        count = len(wanted)
        for name in names:
            held = index(name)
            rows = [row for row in range(held.count) if held.name(row) in wanted]
            if rows:
                found.add(name)
                wanted.update(base for entry in held.entries(rows) for base in entry.bases)
    return found


def reliable(packs: Set[str], marked: Set[str]) -> Set[str]:
    """Return the packs of a remote that a push, or a prune here, may rely on (rule 6)."""
    return packs - marked


def commits_count(marked: Set[str]) -> bool:
    """Tell whether a push may leave out the data of commits that the remote has (rule 6)."""
    return not marked


def unreliable(relied: Set[str], packs: Set[str], marked: Set[str]) -> Set[str]:
    """Return the packs that a push relied on, or sent, and that it can't rely on now (rule 7)."""
    return relied - reliable(packs, marked)
