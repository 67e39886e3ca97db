"""Facts about blobs, each found once: in this process, or in several.

Facts say what a blob is, never whether it is trusted, so they hold wherever
the blob stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from wtxtgit.git.blobs import BlobReader, sizes
from wtxtgit.git.repository import Repository
from wtxtgit.ops.artifact import ArtifactFacts, examine
from wtxtgit.ops.facts_cache import FactsCache
from wtxtgit.ops.spool import spooled

FEW = 64 * 1024 * 1024
"""Bytes of blobs up to which processes cost more than they give."""
_BATCH = 8
"""Blobs that a process is given at a time: neighbours share deltas."""

Progress = Callable[[int], None]


class Facts:
    """Facts about blobs of a repository, found by up to `processes` processes.

    With `is_kept` they are kept in the repository for the next time.
    """

    def __init__(self, repo: Repository, processes: int, *, is_kept: bool = False) -> None:
        self._repo = repo
        self._processes = processes
        self._is_kept = is_kept

    def of(self, oids: Iterable[str], progress: Progress | None = None) -> dict[str, ArtifactFacts]:
        """Find the facts of blobs; `progress` gets how many bytes more are done."""
        wanted = list(dict.fromkeys(oids))
        if not self._is_kept:
            return self._found(wanted, progress)
        with FactsCache(self._repo) as cache:
            known = cache.get(wanted)
            found = self._found([oid for oid in wanted if oid not in known], progress)
            cache.put(found)
        return known | found

    def _found(self, oids: list[str], progress: Progress | None) -> dict[str, ArtifactFacts]:
        found = {}
        for oid, facts in self._examined(oids):
            found[oid] = facts
            if progress is not None:
                progress(facts.size)
        return found

    def _examined(self, oids: list[str]) -> Iterator[tuple[str, ArtifactFacts]]:
        total = sum(sizes(self._repo, oids).values()) if oids else 0
        if self._processes < 2 or total <= FEW:
            with BlobReader(self._repo) as reader:
                for oid in oids:
                    yield oid, _examine(reader, oid)
            return
        # Started anew: a forked process would share the git processes of this one.
        with ProcessPoolExecutor(
            self._processes, get_context("spawn"), _Worker.start, (self._repo,)
        ) as pool:
            yield from pool.map(_Worker.examine, oids, chunksize=_BATCH)


class _Worker:
    """What a process of the pool holds."""

    reader: BlobReader

    @classmethod
    def start(cls, repo: Repository) -> None:
        cls.reader = BlobReader(repo)

    @classmethod
    def examine(cls, oid: str) -> tuple[str, ArtifactFacts]:
        return oid, _examine(cls.reader, oid)


def _examine(reader: BlobReader, oid: str) -> ArtifactFacts:
    return examine(spooled(reader.chunks(oid)), threads=1)
