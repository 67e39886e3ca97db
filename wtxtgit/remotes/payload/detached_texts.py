"""Finding detached texts in commits, and the chunks that they need."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from wtxtgit.git import index, work_tree
from wtxtgit.git.blobs import known_sizes
from wtxtgit.git.history import listing, resolve_tree
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore, blob_heads
from wtxtgit.io.spool import LITTLE, spooled
from wtxtgit.model.array import ChunkNames
from wtxtgit.text.grammar import DETACHED_FIRST_LINE, is_detached
from wtxtgit.text.index import index as index_of

_OBJECT = re.compile(rb"([0-9a-f]{40,64}) (.*)")


class DetachedText(NamedTuple):
    """A detached text at a path: the names of its chunks, in order, and the size of its payload in
    bytes.
    """

    path: bytes
    chunks: ChunkNames
    nbytes: int

    @classmethod
    def of(cls, path: bytes, chunks: Iterable[bytes], nbytes: int) -> Self:
        return cls(path, ChunkNames(chunks), nbytes)


def chunks_of(texts: Iterable[DetachedText]) -> set[bytes]:
    """Return the names of the chunks that texts need."""
    return {name for text in texts for name in text.chunks}


def of_commits(
    repo: Repository, tips: Sequence[str], known: Iterable[str] = ()
) -> Iterator[DetachedText]:
    """Yield the texts of commits that tips reach and `known` do not, those of old commits first."""
    return of_blobs(repo, blobs_of_commits(repo, tips, known))


def standing(repo: Repository, texts: Iterable[DetachedText]) -> Iterator[DetachedText]:
    """Yield those texts that stand in the work tree in place of their files."""
    for text in texts:
        if is_detached(work_tree.file_head(repo.file(text.path)) or b""):
            yield text


def of_tree(repo: Repository, revision: str, paths: Sequence[bytes]) -> Iterator[DetachedText]:
    """Yield the texts in a commit's tree, at paths or in folders from the top level.

    Without `paths` these are all texts.
    """
    return of_blobs(repo, blobs_of_tree(repo, revision, paths))


def blobs_of_commits(
    repo: Repository, tips: Sequence[str], known: Iterable[str] = (), paths: Sequence[bytes] = ()
) -> dict[str, bytes]:
    """Return the blobs and trees of commits, whatever they are; each with a path."""
    # Git lists an object once, by one of its paths: it has to know which ones are meant.
    chosen = () if b"." in paths else paths
    literal = (f":(top,literal){os.fsdecode(path)}" for path in chosen)
    listed = repo.git(
        "rev-list", "--objects", "--full-history", "--stdin", "--", *literal,
        stdin="".join(f"{tip}\n" for tip in (*tips, *(f"^{oid}" for oid in known))).encode(),
    )  # fmt: skip
    found = [match for line in listed.splitlines() if (match := _OBJECT.fullmatch(line))]
    wanted = (match for match in reversed(found) if _is_chosen(match[2], paths))
    return {match[1].decode("ascii"): match[2] for match in wanted}


def blobs_of_tree(repo: Repository, revision: str, paths: Sequence[bytes]) -> dict[str, bytes]:
    """Return the blobs in a commit's tree, whatever they are; each with a path."""
    entries = listing(repo, resolve_tree(repo, revision))
    return {e.oid: e.path for e in entries if e.is_file and _is_chosen(e.path, paths)}


def of_index(repo: Repository, pathspecs: Sequence[str]) -> Iterator[DetachedText]:
    """Yield the texts in the index."""
    entries = index.entries(repo, pathspecs)
    return of_blobs(repo, {entry.oid: entry.path for entry in entries if entry.is_file})


def _is_chosen(path: bytes, paths: Sequence[bytes]) -> bool:
    return not paths or any(_is_within(path, chosen) for chosen in paths)


def _is_within(path: bytes, chosen: bytes) -> bool:
    return chosen == b"." or path == chosen or path.startswith(chosen.rstrip(b"/") + b"/")


def of_blobs(repo: Repository, paths: dict[str, bytes]) -> Iterator[DetachedText]:
    """Yield the texts among blobs; `paths` has a path for each blob id."""
    sizes = known_sizes(repo, paths) if paths else {}
    likely = [oid for oid, size in sizes.items() if size > len(DETACHED_FIRST_LINE)]
    heads = blob_heads(repo, likely) if likely else {}
    with ObjectStore(repo) as store:
        for oid in likely:
            if not is_detached(heads[oid].head):
                continue
            text = index_of(spooled(store.blob(oid), in_memory=LITTLE))
            if text.stop is None:
                nbytes = sum(array.nbytes for array in text.detached_arrays)
                yield DetachedText.of(paths[oid], text.payload_names, nbytes)
