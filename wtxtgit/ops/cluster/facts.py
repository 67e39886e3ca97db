"""Facts about blobs, found on a cluster whose workers have a clone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.git.blobs import BlobReader, sizes
from wtxtgit.git.repository import Repository
from wtxtgit.ops.artifact import ArtifactFacts
from wtxtgit.ops.cluster.client import Cluster
from wtxtgit.ops.cluster.clone import clone_at
from wtxtgit.ops.cluster.tasks import Progress
from wtxtgit.ops.examine import examine
from wtxtgit.ops.facts import Examiner
from wtxtgit.ops.spool import spooled

_BYTES = 64 * 1024 * 1024
_BLOBS = 64
"""Blobs of a task, and their bytes, unless a single one has more: neighbours share deltas."""


@dataclass(frozen=True, slots=True)
class _Blobs:
    clone: Path
    oids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    facts: tuple[ArtifactFacts, ...]


def examiner(cluster: Cluster, repo: Repository, clone: Path | None) -> Examiner:
    """Find facts on a cluster; `clone` is its workers' clone, None for `repo`'s path."""
    folder = clone or repo.home

    def examined(oids: list[str]) -> Iterator[tuple[str, ArtifactFacts]]:
        items = [_Blobs(folder, batch) for batch in _batches(repo, oids)]
        for number, found in cluster.run(_examine, items, _Found):
            yield from zip(items[number].oids, found.facts, strict=True)

    return examined


def _batches(repo: Repository, oids: list[str]) -> Iterator[tuple[str, ...]]:
    batch: list[str] = []
    total = 0
    for oid, size in (sizes(repo, oids) if oids else {}).items():
        if batch and (len(batch) == _BLOBS or total + size > _BYTES):
            yield tuple(batch)
            batch, total = [], 0
        batch.append(oid)
        total += size
    if batch:
        yield tuple(batch)


def _examine(blobs: _Blobs, _progress: Progress) -> _Found:
    with clone_at(blobs.clone) as repo, BlobReader(repo) as reader:
        return _Found(tuple(examine(spooled(reader.chunks(oid)), threads=1) for oid in blobs.oids))
