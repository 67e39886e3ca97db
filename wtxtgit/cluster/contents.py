"""Facts about blobs, found on a cluster whose workers have a clone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.chain.contents import Examiner, Wanted
from wtxtgit.cluster.client import Cluster
from wtxtgit.cluster.clone import clone_at
from wtxtgit.cluster.tasks import Progress
from wtxtgit.filter.clean import examine
from wtxtgit.filter.content import ArtifactFacts
from wtxtgit.git.blobs import BlobReader, sizes
from wtxtgit.git.repository import Repository
from wtxtgit.io.spool import spooled

_BYTES = 64 * 1024 * 1024
_BLOBS = 64
"""Blobs of a task, and their bytes, unless a single one has more: neighbours share deltas."""


@dataclass(frozen=True, slots=True)
class _Blobs:
    clone: Path
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    facts: tuple[ArtifactFacts, ...]


def examiner(cluster: Cluster, repo: Repository, clone: Path | None) -> Examiner:
    """Find facts on a cluster; `clone` is its workers' clone, None for `repo`'s path."""
    folder = clone or repo.home

    def examined(blobs: list[Wanted]) -> Iterator[tuple[str, ArtifactFacts]]:
        items = [_Blobs(folder, batch) for batch in _batches(repo, blobs)]
        for number, found in cluster.run(_examine, items, _Found):
            oids = (oid for oid, _ in items[number].wanted)
            yield from zip(oids, found.facts, strict=True)

    return examined


def _batches(repo: Repository, blobs: list[Wanted]) -> Iterator[tuple[Wanted, ...]]:
    batch: list[Wanted] = []
    total = 0
    known = sizes(repo, (oid for oid, _ in blobs)) if blobs else {}
    for oid, opaque in blobs:
        if batch and (len(batch) == _BLOBS or total + known[oid] > _BYTES):
            yield tuple(batch)
            batch, total = [], 0
        batch.append((oid, opaque))
        total += known[oid]
    if batch:
        yield tuple(batch)


def _examine(blobs: _Blobs, _progress: Progress) -> _Found:
    with clone_at(blobs.clone) as repo, BlobReader(repo) as reader:
        found = (
            examine(spooled(reader.chunks(oid)), threads=1, opaque=opaque)
            for oid, opaque in blobs.wanted
        )
        return _Found(tuple(found))
