"""Facts about blobs, each found once: before, in this process, or in several.

Facts say what a blob is, never whether it is trusted, so they hold wherever
the blob stands. Blobs are read as git gives them, whatever their size: what
is judged is what a checkout will have, and the hash of it is the blob's id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Self

from wtxtgit.filter.content import ArtifactFacts, ContentCache, examine
from wtxtgit.git.blobs import BlobReader, sizes
from wtxtgit.git.repository import Repository
from wtxtgit.io.spool import spooled

FEW = 64 * 1024 * 1024
"""Bytes of blobs up to which processes cost more than they give."""
_BATCH = 8
"""Blobs that a process is given at a time: neighbours share deltas."""

Progress = Callable[[int], None]
Wanted = tuple[str, bool]
"""A blob by its id, and whether the hash of its opaque text is asked for."""
Examiner = Callable[[list[Wanted]], Iterator[tuple[str, ArtifactFacts]]]
"""Finds the facts of blobs, in any order."""


class Facts:
    """Facts about blobs of a repository, found by up to `processes` processes.

    What is known under the secret in `key_file` is not found again, and what
    is found is known the next time; without a secret all is found. Where there
    is an `examiner`, it finds them in the processes' place.
    """

    def __init__(
        self,
        repo: Repository,
        processes: int,
        *,
        key_file: Path | None = None,
        examiner: Examiner | None = None,
    ) -> None:
        self._repo = repo
        self._processes = processes
        self._key_file = key_file
        self._examiner = examiner

    def of(
        self,
        oids: Iterable[str],
        progress: Progress | None = None,
        *,
        opaque: Collection[str] = (),
    ) -> dict[str, ArtifactFacts]:
        """Find the facts of blobs; `progress` gets how many bytes more are done.

        Of those in `opaque` the hash of the opaque text, too.
        """
        wanted = list(dict.fromkeys(oids))
        with ContentCache(self._repo, self._key_file) as known:
            found = {
                oid: facts
                for oid, facts in known.facts(wanted).items()
                if facts.opaque is not None or not (oid in opaque or facts.is_native)
            }
            missing = [(oid, oid in opaque) for oid in wanted if oid not in found]
            for oid, facts in self._examined(missing):
                found[oid] = facts
                known.put_facts({oid: facts})
                if progress is not None:
                    progress(facts.size)
        return found

    def _examined(self, blobs: list[Wanted]) -> Iterator[tuple[str, ArtifactFacts]]:
        if self._examiner is not None:
            yield from self._examiner(blobs)
            return
        # Of few blobs each one can have all threads.
        if len(blobs) < self._processes or self._processes < 2 or self._bytes(blobs) <= FEW:
            with _FactsReader(self._repo, self._processes) as reader:
                for oid, opaque in blobs:
                    yield oid, reader.examine(oid, opaque=opaque)
            return
        # Started anew: a forked process would share the git processes of this one.
        with ProcessPoolExecutor(
            self._processes, get_context("spawn"), _Worker.start, (self._repo,)
        ) as pool:
            yield from pool.map(_Worker.examine, blobs, chunksize=_BATCH)

    def _bytes(self, blobs: list[Wanted]) -> int:
        return sum(sizes(self._repo, (oid for oid, _ in blobs)).values()) if blobs else 0


class _FactsReader:
    """Reads blobs, and finds out what they are; a context manager."""

    def __init__(self, repo: Repository, threads: int) -> None:
        self._threads = threads
        self._blobs = BlobReader(repo)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._blobs.__exit__()

    def examine(self, oid: str, *, opaque: bool) -> ArtifactFacts:
        """Find the facts of a blob; raises EnvironmentFailure."""
        pieces = self._blobs.chunks(oid)
        return examine(spooled(pieces), threads=self._threads, opaque=opaque)


class _Worker:
    """What a process of the pool holds."""

    reader: _FactsReader

    @classmethod
    def start(cls, repo: Repository) -> None:
        cls.reader = _FactsReader(repo, 1)

    @classmethod
    def examine(cls, blob: Wanted) -> tuple[str, ArtifactFacts]:
        oid, opaque = blob
        return oid, cls.reader.examine(oid, opaque=opaque)
