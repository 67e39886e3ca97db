"""The WSUM of a text as a file: its path, reading and writing it.

`docs/spec/wtxt.md`, section "Pending and WSUM". `checkpoint.open` finds the one beside a text.
"""

from __future__ import annotations

import os
from pathlib import Path

from wtxtgit.errors import UsageError
from wtxtgit.io.files import failures, opened_regular, read_small, replace_file, shown
from wtxtgit.io.view import write_all
from wtxtgit.text.grammar import MAX_WSUM, WSUM_MAGIC, WSUM_SUFFIX

ENDING = os.fsdecode(WSUM_SUFFIX)


def wsum_path(text: Path) -> Path:
    """Return the path of the WSUM beside a text."""
    return text.with_name(text.name + ENDING)


def wsum_at(path: Path) -> bytes | None:
    """Return what stands at a path and begins as a WSUM, well-formed or not; None if nothing does.

    Raises EnvironmentFailure for a file that can't be read.
    """
    # A link or a larger file is not accepted as a WSUM.
    if path.is_symlink() or not path.is_file():
        return None
    with failures(path), opened_regular(path) as (descriptor, status):
        content = os.read(descriptor, MAX_WSUM)
    return content if status.st_size <= MAX_WSUM and content.startswith(WSUM_MAGIC) else None


def given_wsum(path: Path) -> bytes:
    """Return the content of a WSUM that the user named; raises InputError."""
    return read_small(path, MAX_WSUM, "a WSUM")


def write_wsum(path: Path, line: bytes) -> None:
    """Write a WSUM; raises UsageError if anything but a WSUM stands there."""
    # Any other file of that name is somebody's, such as a ledger.
    if os.path.lexists(path) and wsum_at(path) is None:
        raise UsageError(f"{shown(path)} already exists, and is not a WSUM")
    replace_file(path, lambda descriptor: write_all(descriptor, (line,)))
