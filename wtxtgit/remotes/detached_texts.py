"""Detached texts in commits, and the chunks that they need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from wtxtgit.git import index
from wtxtgit.git.blobs import known_sizes
from wtxtgit.git.history import listing, resolve_tree
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore, blob_heads
from wtxtgit.io.spool import spooled
from wtxtgit.text.grammar import DETACHED_FIRST_LINE, is_detached
from wtxtgit.text.index import index as index_of

_OBJECT = re.compile(rb"([0-9a-f]{40,64}) (.+)")


class DetachedText(NamedTuple):
    """A detached text at a path: the names of its chunks (32 bytes), in order."""

    path: bytes
    chunks: tuple[bytes, ...]


def of_commits(
    repo: Repository, tips: Sequence[str], known: Iterable[str] = ()
) -> Iterator[DetachedText]:
    """The texts of all commits that tips reach and those `known` do not, the oldest ones first."""
    listed = repo.git(
        "rev-list", "--objects", "--stdin",
        stdin="".join(f"{tip}\n" for tip in (*tips, *(f"^{oid}" for oid in known))).encode(),
    )  # fmt: skip
    found = [match for line in listed.splitlines() if (match := _OBJECT.fullmatch(line))]
    return _read(repo, {match[1].decode("ascii"): match[2] for match in reversed(found)})


def of_tree(repo: Repository, revision: str, paths: Sequence[bytes]) -> Iterator[DetachedText]:
    """The texts of a commit's tree, at paths or in folders from the top level; none means all."""
    entries = listing(repo, resolve_tree(repo, revision))
    wanted = [
        entry
        for entry in entries
        if entry.is_file and (not paths or any(_is_within(entry.path, path) for path in paths))
    ]
    return _read(repo, {entry.oid: entry.path for entry in wanted})


def of_index(repo: Repository, pathspecs: Sequence[str]) -> Iterator[DetachedText]:
    """The texts of the index."""
    entries = index.entries(repo, pathspecs)
    return _read(repo, {entry.oid: entry.path for entry in entries if entry.is_file})


def _is_within(path: bytes, chosen: bytes) -> bool:
    return chosen == b"." or path == chosen or path.startswith(chosen.rstrip(b"/") + b"/")


def _read(repo: Repository, paths: dict[str, bytes]) -> Iterator[DetachedText]:
    sizes = known_sizes(repo, paths) if paths else {}
    likely = [oid for oid, size in sizes.items() if size > len(DETACHED_FIRST_LINE)]
    heads = blob_heads(repo, likely) if likely else {}
    with ObjectStore(repo) as store:
        for oid in likely:
            if not is_detached(heads[oid].head):
                continue
            text = index_of(spooled(store.blob(oid)))
            if text.stop is None:
                named = [a.sha256 for a in text.arrays if a.payload is not None]
                yield DetachedText(paths[oid], tuple(name for names in named for name in names))
