"""Sets in what is staged whose index has other hashes than the files: these were changed alone.

A merge does that: it has one file at a time, and no say in others.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from hashlib import sha256

from wtxtgit.checkpoint.members import entry_members
from wtxtgit.checkpoint.open import as_checked_out, blob, payload_in
from wtxtgit.containers import registry
from wtxtgit.containers.format import ListedFile, OpenMember
from wtxtgit.errors import InputError, WtxtgitError
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView, hashed, pieces


def stale_sets(
    repo: Repository,
    entries: Mapping[bytes, TreeEntry],
    indexes: Iterable[bytes],
    changed: Set[bytes],
) -> Iterator[tuple[bytes, str]]:
    """Those of `indexes` that are stale, and what to say of each; only `changed` files are read.

    What can't be read is for other checks. Raises EnvironmentFailure where git can't give a blob.
    """
    folders = {above for path in changed for above in _above(path)}
    # Any number of entries may be one blob, which is read once.
    alike: dict[str, list[bytes]] = {}
    for path in indexes:
        if entries[path].is_file and posixpath.dirname(path) in folders:
            alike.setdefault(entries[path].oid, []).append(path)
    known: dict[str, tuple[int, bytes]] = {}
    found: dict[bytes, str] = {}
    for oid, paths in alike.items():
        listed = _listed(repo, oid)
        for path in paths:
            wanted = []
            for one in listed:
                file = posixpath.join(posixpath.dirname(path), os.fsencode(one.path))
                if file in entries and (path in changed or file in changed):
                    wanted.append((one, entries[file].oid))
            stale = _stale(wanted, entry_members(repo, entries.get, path), known)
            if stale is not None:
                found[path] = (
                    f"the size or hash that it lists for {shown(stale)} is not that of the staged "
                    "file"
                )
    yield from sorted(found.items())


def _listed(repo: Repository, oid: str) -> Sequence[ListedFile]:
    """The files of the set whose index a blob is; none of what is no index, or can't be read."""
    content = blob(repo, oid)
    try:
        data = as_checked_out(oid, content, None, payload=payload_in(repo, content)).data
        known = registry.listed_by(data)
        if known is None or known.reseal_set is None:
            return ()
        return known.reseal_set().listed_files(data, _unopened)
    except WtxtgitError:
        return ()


def _unopened(path: str) -> ByteView:
    raise InputError(f"{shown(path)} is not asked for")


def _stale(
    wanted: Iterable[tuple[ListedFile, str]],
    open_member: OpenMember,
    known: dict[str, tuple[int, bytes]],
) -> str | None:
    """The path of the first file that is not what the index says, by its blob's id.

    `known` has sizes and hashes of those that were read before.
    """
    for listed, oid in wanted:
        if oid not in known:
            try:
                data = open_member(listed.path)
            except WtxtgitError:
                return None
            known[oid] = len(data), hashed(sha256(), pieces(data)).digest()
        size, digest = known[oid]
        if listed.size not in (None, size) or listed.sha256 not in (None, digest):
            return listed.path
    return None


def _above(path: bytes) -> Iterator[bytes]:
    """The folders that a path is in."""
    while path:
        path = posixpath.dirname(path)
        yield path
