"""Storing the payload of detached texts in the local store, for clean.

The store is also told which chunks a new one may resemble: those at the same places of the path's
previous text. The output of clean does not depend on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import index
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.io.spool import LITTLE, spooled
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import ChunkNames, Keep
from wtxtgit.store.place import store_of
from wtxtgit.text.grammar import is_detached
from wtxtgit.text.index import index as index_of

if TYPE_CHECKING:  # Most filters never write.
    from wtxtgit.store.writer import StoreWriter

Before = Callable[[], ByteView | None]
"""Returns the previous detached text; None if there is none."""


@contextmanager
def keeping(repo: Repository, before: Before = lambda: None) -> Iterator[Keep]:
    """Yield a function that stores chunks for a repository; at the end they are on disk.

    Raises EnvironmentFailure if they can't be written.
    """
    with store_of(repo).writing() as writer:
        yield keep_in(writer, before)


def keep_in(writer: StoreWriter, before: Before) -> Keep:
    """Return a function that adds chunks of a text by a writer; they are on disk at its end."""
    bases: dict[str, ChunkNames] | None = None

    def keep(
        names: Sequence[bytes], data: memoryview, size: int, item: int, array: str, first: int
    ) -> None:
        nonlocal bases
        if bases is None:
            bases = _names(before())
        known = bases.get(array, ChunkNames())[first : first + len(names)]
        none = [None] * (len(names) - len(known))
        writer.put_all(names, data, size, item, [*known, *none])

    return keep


class StagedTexts:
    """The detached texts in the index, by path, as it was when the first was asked for."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._oids: dict[bytes, str] | None = None

    def text(self, path: bytes) -> ByteView | None:
        """Return the detached text of a path; None if it has none, or it can't be read."""
        try:
            if self._oids is None:
                listed = index.entries(self._repo)
                self._oids = {entry.path: entry.oid for entry in listed if not entry.stage}
            oid = self._oids.get(path)
            if oid is None:
                return None
            with ObjectStore(self._repo) as store, closing(store.blob(oid)) as pieces:
                first = next(pieces, b"")
                # An attached text may be large, and is of no use here.
                if not is_detached(first):
                    return None
                return spooled(chain((first,), pieces), in_memory=LITTLE)
        except EnvironmentFailure:
            return None


def _names(text: ByteView | None) -> dict[str, ChunkNames]:
    """Return the names of the chunks of a detached text, by array."""
    if text is None:
        return {}
    return {array.name: array.sha256 for array in index_of(text).detached_arrays}
