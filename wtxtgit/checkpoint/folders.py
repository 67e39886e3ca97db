"""Folders that are a checkpoint in several files: finds the file that lists the others.

If none does, numbered shards are combined by their numbers. Spec: `docs/spec/containers.md`,
"Sets".
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from wtxtgit.containers import registry
from wtxtgit.errors import InputError
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView

INDEX = "*"
"""Stands for the index, in place of a file's name, if a folder is meant."""
_TOLD = 3
"""Most names in a message."""


def index_of(folder: str, names: Iterable[str]) -> str | ByteView:
    """Return the name of the index among a folder's files, or a constructed index of numbered
    shards.

    Messages call the folder `folder`. Raises InputError if there is no set, or more than one.
    """
    present = sorted(names)
    endings = registry.index_endings()
    indexes = [name for name in present if name.endswith(endings)]
    # Ranks of one checkpoint may have indexes of their own beside the common one.
    common = tuple(ending for ending in endings if ending in indexes)
    indexes = [name for name in indexes if name in common or not name.endswith(common)]
    made = registry.index_made(present)
    # Other programs use such names too: an index counts less if no part stands beside it.
    proper = registry.endings_with_parts(present)
    with_parts = [name for name in indexes if name.endswith(proper)]
    if with_parts or made is not None:
        indexes = with_parts
    if len(indexes) == 1:
        return indexes[0]
    if indexes:
        raise InputError(
            f"{folder}: a folder with {len(indexes)} indexes: {_listed(indexes)}",
            hint=f"name the index, such as {shlex.quote(within(folder, indexes[0]))}",
        )
    if made is not None:
        return made
    raise InputError(
        f"{folder}: a folder without an index that lists a checkpoint's files",
        hint="name a file in it",
    )


def within(folder: str, name: str) -> str:
    """Return the target for a file in a folder, which is a target too."""
    return f"{folder}{name}" if folder.endswith(("/", ":")) else f"{folder}/{name}"


def _listed(names: list[str]) -> str:
    more = "" if len(names) <= _TOLD else ", ..."
    return ", ".join(map(shown, names[:_TOLD])) + more
