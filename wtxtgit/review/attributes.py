"""What a branch changes of how git merges and shows checkpoints: their gitattributes.

A line `wtxt-merge=theirs` changes no checkpoint, and what the next merge makes
of all of them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping

from wtxtgit.errors import MAX_NAME, clipped, counted
from wtxtgit.git import config
from wtxtgit.git.attributes import FILE_NAME, UNSPECIFIED, TreeAttributes
from wtxtgit.git.commit_files import CommitFiles
from wtxtgit.git.repository import Repository

NAMES = ("filter", "merge", "wtxt-merge", "diff")
MOST_NOTES = 20
_DRIVER = config.DRIVER.encode()
_TRACKED = (_DRIVER, _DRIVER, UNSPECIFIED, _DRIVER)
"""What `wtxtgit track` makes of them: what is tracked first is compared with that."""


def attribute_notes(repo: Repository, old: CommitFiles, new: CommitFiles) -> Iterator[str]:
    """Say which attributes other than the filter are different at the head, and of what.

    Raises EnvironmentFailure where a gitattributes file is not there.
    """
    files = [_attribute_files(state) for state in (old, new)]
    if files[0] == files[1]:
        return
    paths = sorted(new.filtered)
    with TreeAttributes(repo) as attributes:
        before, after = (attributes.values(one, paths, NAMES) for one in files)
    found: defaultdict[tuple[str, bytes, bytes], list[bytes]] = defaultdict(list)
    for path in paths:
        was = before[path] if before[path][0] == _DRIVER else _TRACKED
        for name, old_value, value in list(zip(NAMES, was, after[path], strict=True))[1:]:
            if old_value != value:
                found[name, old_value, value].append(path)
    for (name, old_value, value), changed in list(found.items())[:MOST_NOTES]:
        more = f" and {counted(len(changed) - 1, 'more checkpoint')}" if len(changed) > 1 else ""
        where = clipped(os.fsdecode(changed[0]), MAX_NAME) + more
        yield f"attribute {name}: {_shown(old_value)} -> {_shown(value)}, of {where}"
    if len(found) > MOST_NOTES:
        yield f"and {counted(len(found) - MOST_NOTES, 'more change')} of attributes"


def _attribute_files(state: CommitFiles) -> Mapping[bytes, str]:
    name = FILE_NAME.encode()
    return {
        path: entry.oid
        for path, entry in state.entries.items()
        if entry.is_file and (path == name or path.endswith(b"/" + name))
    }


def _shown(value: bytes) -> str:
    return clipped(os.fsdecode(value), MAX_NAME)
