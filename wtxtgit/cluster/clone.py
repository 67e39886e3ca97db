"""Work of workers that have a clone: facts about blobs, and comparisons of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.chain.contents import Examiner, Wanted
from wtxtgit.cluster.client import Cluster, Progress
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.filter.content import ArtifactFacts, examine
from wtxtgit.git.blobs import BlobReader, sizes
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.io.files import reason, shown
from wtxtgit.io.spool import spooled
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.review.changes import Branch, ChangedCheckpoint
from wtxtgit.review.contents import BranchReader, Comparer, Comparison

_HINT = "the workers' clone is at --worker-clone, and has all that this one has"
_BYTES = 64 * 1024 * 1024
_BLOBS = 64
"""Blobs of a task, and their bytes, unless a single one has more: neighbours share deltas."""


@contextmanager
def clone_at(folder: Path) -> Iterator[Repository]:
    """The repository at `folder` on a worker; raises EnvironmentFailure for what it lacks."""
    try:
        yield Repository.discover(folder)
    except OSError as error:
        message = f"{shown(folder)} on a worker: {reason(error)}"
        raise EnvironmentFailure(message, hint=_HINT) from error
    except EnvironmentFailure as error:
        message = f"{shown(folder)} on a worker: {error.message}"
        raise EnvironmentFailure(message, hint=_HINT) from error


@dataclass(frozen=True, slots=True)
class _Blobs:
    clone: Path
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class _TaskFindings:
    facts: tuple[ArtifactFacts, ...]


def examiner(cluster: Cluster, repo: Repository, clone: Path | None) -> Examiner:
    """Find facts on a cluster; `clone` is its workers' clone, None for `repo`'s path."""
    folder = clone or repo.home

    def examined(blobs: list[Wanted]) -> Iterator[tuple[str, ArtifactFacts]]:
        items = [_Blobs(folder, batch) for batch in _batches(repo, blobs)]
        for number, found in cluster.run(_examine, items, _TaskFindings):
            oids = (oid for oid, _ in items[number].wanted)
            yield from zip(oids, found.facts, strict=True)

    return examined


def _batches(repo: Repository, blobs: list[Wanted]) -> Iterator[tuple[Wanted, ...]]:
    batch: list[Wanted] = []
    total = 0
    known = sizes(repo, (oid for oid, _ in blobs)) if blobs else {}
    for oid, opaque in blobs:
        # Each task opens the clone anew: small ones are put together, a large blob goes alone.
        if batch and (len(batch) == _BLOBS or total + known[oid] > _BYTES):
            yield tuple(batch)
            batch, total = [], 0
        batch.append((oid, opaque))
        total += known[oid]
    if batch:
        yield tuple(batch)


def _examine(blobs: _Blobs, _progress: Progress) -> _TaskFindings:
    with clone_at(blobs.clone) as repo, BlobReader(repo) as reader:
        found = (
            examine(spooled(reader.chunks(oid)), threads=1, opaque=opaque)
            for oid, opaque in blobs.wanted
        )
        return _TaskFindings(tuple(found))


@dataclass(frozen=True, slots=True)
class _ComparisonTask:
    """A checkpoint to be compared: the fields of a BranchReader, and the clone's folder."""

    clone: Path
    branch: Branch
    options: ReadOptions
    with_distributions: bool
    changed: ChangedCheckpoint


def comparer(cluster: Cluster, clone: Path | None) -> Comparer:
    """Compare on a cluster; `clone` is where workers have a clone, by default at the same path."""

    def compared(reader: BranchReader, found: Sequence[ChangedCheckpoint]) -> Iterator[Comparison]:
        if reader.options.decryption_key is not None:
            cluster.refuse_secrets("a key")
        folder = clone or reader.repo.home
        items = [
            _ComparisonTask(folder, reader.branch, reader.options, reader.with_distributions, one)
            for one in found
        ]
        done = dict(cluster.run(_compare, items, Comparison, reader.progress))
        return (done[number] for number in range(len(items)))

    return compared


def _compare(asked: _ComparisonTask, progress: Progress) -> Comparison:
    with clone_at(asked.clone) as repo, ObjectStore(repo) as store:
        reader = BranchReader(
            repo, store, asked.branch, asked.options, 1, asked.with_distributions, progress
        )
        return reader.compare(asked.changed)
