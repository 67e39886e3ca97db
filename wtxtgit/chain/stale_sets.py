"""Sets in what is staged whose index has other hashes than the files: these were changed alone.

A merge does that: it has one file at a time, and no say in others.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Set

from wtxtgit.checkpoint.members import entry_members
from wtxtgit.checkpoint.open import as_checked_out, blob, payload_in
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import WtxtgitError
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown


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
    for path in indexes:
        entry, name = entries[path], os.fsdecode(path)
        if not (entry.is_file and posixpath.dirname(path) in folders):
            continue
        opener = entry_members(repo, entries.get, path)
        content = blob(repo, entry.oid)
        try:
            data = as_checked_out(name, content, None, payload=payload_in(repo, content)).data
            known = registry.listed_by(data)
            if known is None or known.reseal_set is None:
                continue
            folder = posixpath.dirname(path)
            listed = any_format.members(data, opener)
            wanted = {
                one
                for one in listed
                if path in changed or posixpath.join(folder, os.fsencode(one)) in changed
            }
            stale = next(known.reseal_set().stale_files(data, opener, wanted), None)
        except WtxtgitError:
            continue
        if stale is not None:
            yield (
                path,
                f"the size or hash that it lists for {shown(stale)} is not that of the staged file",
            )


def _above(path: bytes) -> Iterator[bytes]:
    """The folders that a path is in."""
    while path:
        path = posixpath.dirname(path)
        yield path
