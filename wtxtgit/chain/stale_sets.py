"""Finds sets in the index whose files changed without the file that lists their hashes.

Merges cause that: they see one file at a time, and can't change others.
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
from wtxtgit.errors import InputError, NotRead, WtxtgitError
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
    """Yield those of `indexes` that are stale, each with a message; only `changed` files are read.

    The message is a NotRead if that is not known, since a file can't be read. Raises
    EnvironmentFailure if git can't return a blob.
    """
    folders = {above for path in changed for above in _above(path)}
    # Many entries may be the same blob, which is read once.
    paths_by_oid: dict[str, list[bytes]] = {}
    for path in indexes:
        if entries[path].is_file and posixpath.dirname(path) in folders:
            paths_by_oid.setdefault(entries[path].oid, []).append(path)
    digests: dict[str, tuple[int, bytes]] = {}
    messages: dict[bytes, str] = {}
    for oid, paths in paths_by_oid.items():
        listed = _listed(repo, oid)
        for path in paths:
            if isinstance(listed, NotRead):
                messages[path] = listed
                continue
            listed_blobs = []
            for one in listed:
                file = posixpath.join(posixpath.dirname(path), os.fsencode(one.path))
                if file in entries and (path in changed or file in changed):
                    listed_blobs.append((one, entries[file].oid))
            stale = _stale(listed_blobs, entry_members(repo, entries.get, path), digests)
            if stale is not None:
                messages[path] = stale
    yield from sorted(messages.items())


def _listed(repo: Repository, oid: str) -> Sequence[ListedFile] | NotRead:
    """Return the files that the index of a set lists; none if the blob is no such index."""
    content = blob(repo, oid)
    try:
        data = as_checked_out(oid, content, None, payload=payload_in(repo, content)).data
        format_ = registry.listed_by(data)
        if format_ is None or format_.reseal_set is None:
            return ()
        return format_.reseal_set().listed_files(data, _unopened)
    except WtxtgitError as error:
        return NotRead.because(error, "its files were not compared: ")


def _unopened(path: str) -> ByteView:
    raise InputError(f"{shown(path)} is not asked for")


def _stale(
    listed_blobs: Iterable[tuple[ListedFile, str]],
    open_member: OpenMember,
    digests: dict[str, tuple[int, bytes]],
) -> str | None:
    """Return a message about the first file that differs from what the index lists, or that can't
    be read; None if there is none.

    `digests` has the sizes and hashes of blobs that were read before, by blob id.
    """
    for listed, oid in listed_blobs:
        if oid not in digests:
            try:
                data = open_member(listed.path)
            except WtxtgitError as error:
                where = f"what it lists for {shown(listed.path)} was not compared: "
                return NotRead.because(error, where)
            digests[oid] = len(data), hashed(sha256(), pieces(data)).digest()
        size, digest = digests[oid]
        if listed.size not in (None, size) or listed.sha256 not in (None, digest):
            return (
                f"the size or hash that it lists for {shown(listed.path)} does not match the "
                "staged file"
            )
    return None


def _above(path: bytes) -> Iterator[bytes]:
    """Yield the folders that contain a path."""
    while path:
        path = posixpath.dirname(path)
        yield path
