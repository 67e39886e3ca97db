"""Changed checkpoints of a branch, compared on a cluster: a task a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.cluster.client import Cluster
from wtxtgit.cluster.clone import clone_at
from wtxtgit.cluster.tasks import Progress
from wtxtgit.git.blobs import BlobReader
from wtxtgit.model.reading import ReadOptions
from wtxtgit.review.changes import Branch, Changed
from wtxtgit.review.contents import Comparer, Contents, Reader


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A checkpoint to be compared; the fields are those of a Reader, and the clone's folder."""

    clone: Path
    branch: Branch
    options: ReadOptions
    with_distributions: bool
    changed: Changed


def comparer(cluster: Cluster, clone: Path | None) -> Comparer:
    """Compare on a cluster; `clone` is where workers have a clone, by default at the same path."""

    def compared(reader: Reader, found: Sequence[Changed]) -> Iterator[Contents]:
        if reader.options.decryption_key is not None:
            cluster.refuse_secrets("a key")
        folder = clone or reader.repo.home
        items = [
            _Comparison(folder, reader.branch, reader.options, reader.with_distributions, one)
            for one in found
        ]
        done = dict(cluster.run(_compare, items, Contents, reader.progress))
        return (done[number] for number in range(len(items)))

    return compared


def _compare(asked: _Comparison, progress: Progress) -> Contents:
    with clone_at(asked.clone) as repo, BlobReader(repo) as blobs:
        reader = Reader(
            repo, blobs, asked.branch, asked.options, 1, asked.with_distributions, progress
        )
        return reader.compare(asked.changed)
