"""Finding the base of a delta in a repository, and the change that the delta makes.

A delta names its base only by a hash. Any blob whose content has that hash is its base, at any path
of any commit; so is what another delta there makes. Blobs are found by what their first lines
state; the base is proved when the delta is applied.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from wtxtgit.checkpoint.delta import checked, opened_side
from wtxtgit.checkpoint.open import as_checked_out, attached_with, blob, payload_in
from wtxtgit.containers import registry
from wtxtgit.errors import CheckError, TextError
from wtxtgit.filter.content import examine
from wtxtgit.git import history
from wtxtgit.git.blobs import known_sizes
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import BlobHead, blob_heads
from wtxtgit.git.work_tree import HEAD_SIZE
from wtxtgit.io.progress import Progress
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.payload.detached_texts import blobs_of_commits, blobs_of_tree
from wtxtgit.text import grammar
from wtxtgit.text.delta import index as delta_index
from wtxtgit.text.delta import sides
from wtxtgit.text.delta.index import DeltaReport
from wtxtgit.text.delta.patch import Regeneration
from wtxtgit.text.delta.patch import apply as apply_to

MOST_STEPS = 30
"""Most deltas that are applied one after the other, each verified with its whole result."""
_OID_SHOWN = 12
_FIRST_LINE = 256
"""The first line of a delta ends within this many bytes."""


@dataclass(frozen=True, slots=True)
class StoredBase:
    """A blob that holds a delta's base: the base itself, or a delta that makes it from `on`.

    `name` is REV:PATH, by which it can be opened.
    """

    name: str
    oid: str
    on: StoredBase | None = None

    @property
    def revision(self) -> str:
        """The commit that has it."""
        return self.name.partition(":")[0]

    def chain(self) -> Iterator[StoredBase]:
        """Yield this, and what it is made from."""
        one: StoredBase | None = self
        while one is not None:
            yield one
            one = one.on


@dataclass(frozen=True, slots=True)
class _Said:
    """What a blob's first lines state: the root of its content, and the base if it is a delta."""

    root: bytes | None
    base: bytes | None = None


def base_of(delta: ByteView) -> bytes | None:
    """Return the sha256_all of the base that a delta names; None if its first line is invalid."""
    first = delta_index.parse_first(bytes(delta[:_FIRST_LINE]), 0)
    return None if first is None else first[0]


@dataclass(slots=True)
class BaseFinder:
    """Searches for bases: first in some commits, then in all that they descend from.

    Last in all that the `further` commits descend from.
    """

    repo: Repository
    commits: Sequence[str]
    further: Sequence[str] = ()
    _found: dict[bytes, list[tuple[str, str, _Said]]] = field(default_factory=dict)
    """What was found by hash: its place, the blob, and what its first lines state."""
    _looked_at: set[str] = field(default_factory=set)
    _places: Iterator[Iterable[tuple[str, str, _Said]]] | None = None

    def find(self, wanted: bytes) -> StoredBase | None:
        """Return the content with this sha256_all; None if it is not found.

        Raises EnvironmentFailure.
        """
        return self._find(wanted, frozenset())

    def _find(self, wanted: bytes, before: frozenset[bytes]) -> StoredBase | None:
        # Deltas may be based on each other in a circle.
        if wanted in before or len(before) > MOST_STEPS:
            return None
        tried = 0
        while True:
            known = self._found.get(wanted, [])
            for name, oid, said in known[tried:]:
                if said.base is None:
                    return StoredBase(self._named(name, oid), oid)
                on = self._find(said.base, before | {wanted})
                if on is not None:
                    return StoredBase(self._named(name, oid), oid, on)
            tried = len(known)
            if not self._look_further():
                return None

    def _look_further(self) -> bool:
        if self._places is None:
            self._places = self._all_places()
        place = next(self._places, None)
        for name, oid, said in place or ():
            if said.root is not None:
                self._found.setdefault(said.root, []).append((name, oid, said))
        return place is not None

    def _all_places(self) -> Iterator[Iterable[tuple[str, str, _Said]]]:
        """Yield what is found in each place, cheapest places first."""
        trees = {oid: blobs_of_tree(self.repo, oid, ()) for oid in self.commits}
        raw: dict[str, str] = {}
        for commit, blobs in trees.items():
            yield list(self._of_heads(blobs, commit, raw))
        yield list(
            self._of_heads(blobs_of_commits(self.repo, [*self.commits, *self.further]), None, {})
        )
        # For a file that is no text the hash has to be computed.
        for oid, name in raw.items():
            yield list(self._of_file(name, oid))

    def _of_heads(
        self, paths: dict[str, bytes], commit: str | None, raw: dict[str, str]
    ) -> Iterator[tuple[str, str, _Said]]:
        fresh = [oid for oid in paths if oid not in self._looked_at]
        self._looked_at.update(fresh)
        for oid, head in _heads(self.repo, fresh).items():
            path = os.fsdecode(paths[oid])
            # For a whole history git lists paths without commits.
            name = path if commit is None else f"{commit[:_OID_SHOWN]}:{path}"
            said = _said(head.head)
            if said is not None:
                yield name, oid, said
            elif head.size and registry.detected(memoryview(head.head)) is not None:
                raw[oid] = name

    def _of_file(self, name: str, oid: str) -> Iterator[tuple[str, str, _Said]]:
        facts = examine(blob(self.repo, oid))
        yield name, oid, _Said(facts.sha256_all)

    def _named(self, name: str, oid: str) -> str:
        """Return REV:PATH; if no commit is known, that of the first commit with the blob."""
        if ":" in name and name.partition(":")[0] in {c[:_OID_SHOWN] for c in self.commits}:
            return name
        first = history.first_with(self.repo, [*self.commits, *self.further], oid)
        return name if first is None else f"{first[:_OID_SHOWN]}:{name}"


def _heads(repo: Repository, oids: Sequence[str]) -> dict[str, BlobHead]:
    # For a history folders are listed too.
    return blob_heads(repo, known_sizes(repo, oids)) if oids else {}


def _said(head: bytes) -> _Said | None:
    """Return what the first bytes of a text or a delta state; None for anything else."""
    base = None
    if grammar.is_delta(head):
        first = delta_index.parse_first(head, 0)
        if first is None:
            return _Said(None)
        base, position = first
    elif grammar.is_text(head):
        position = head.find(b"\n") + 1
    else:
        return None
    meta = grammar.parse_meta(head, position)
    cap = None if meta is None else grammar.parse_cap(head, meta[1])
    root = None if cap is None else grammar.parse_root(head, cap[1])
    return _Said(None if root is None else root[0].sha256_all, base)


@dataclass(frozen=True, slots=True)
class MadeChange:
    """The change that a delta makes: the text or file before, and the text after.

    `uncovered` lists what is known only from the delta.
    """

    before: ByteView
    after: ByteView
    uncovered: tuple[str, ...]


def has_root(data: ByteView, wanted: bytes) -> bool:
    """Tell whether a text states this sha256_all, or a file's text has it."""
    said = _said(bytes(data[:HEAD_SIZE]))
    return (examine(data).sha256_all if said is None else said.root) == wanted


def change_made(
    name: str,
    delta: ByteView,
    base_name: str,
    base: ByteView,
    report: DeltaReport | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> MadeChange:
    """Apply a delta to its base, a file or an attached text, and verify the result.

    `report` is the result of `checked`, if it was called before. Raises CheckError if either is
    invalid, or they don't belong together.
    """
    report = report or checked(name, delta)
    side = opened_side(base_name, base, threads=threads).side
    try:
        given = Regeneration()
        target = apply_to(side, delta, report.index, given, threads=threads, progress=progress)
    except TextError as error:
        raise CheckError(f"{name}, applied to its base: {error}") from error
    after = spooled(sides.text_pieces(target.side, threads=threads))
    return MadeChange(base, after, target.uncovered)


def opened_base(repo: Repository, base: StoredBase, *, threads: int | None = None) -> ByteView:
    """Return the base, an attached text or a file, from its blob or by applying deltas.

    Raises CheckError, and EnvironmentFailure.
    """
    data = delta_in(blob(repo, base.oid, threads), base.name, repo, threads)
    if base.on is None:
        return attached_with(base.name, data, payload_in(repo, data), threads=threads)
    on = opened_base(repo, base.on, threads=threads)
    return change_made(base.name, data, base.on.name, on, threads=threads).after


def delta_in(data: ByteView, name: str, repo: Repository, threads: int | None) -> ByteView:
    """Return the delta in a blob, even if the filter made a text of it.

    Else the blob's own bytes.
    """
    if not grammar.is_text(data):
        return data
    opened = as_checked_out(name, data, threads, payload=payload_in(repo, data)).data
    return opened if grammar.is_delta(opened) else data
