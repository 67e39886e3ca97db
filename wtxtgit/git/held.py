"""Files of git's own kind that this process holds: locks, and `.keep` beside a new pack.

Git only looks whether such a file exists. Ours have a content of their own, and are locked while a
process needs them: so what a killed process left is recognised, and removed by the next one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from wtxtgit.io.files import opened_regular
from wtxtgit.io.temporary import FileInMaking, left_behind, new_file, opened_folder, remove

_OURS = b"held by wtxtgit\n"


@contextlib.contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold a file, which is removed at the end of the block; raises FileExistsError."""
    drop_stale(file)
    with opened_folder(file.parent) as folder, new_file(folder, file.parent, 0o666) as made:
        os.write(made.descriptor, _OURS)
        try:
            # A signal may come right after it has its name.
            made.put(file.name, is_new=True)
            yield
        finally:
            _release(made, file)


def _release(made: FileInMaking, file: Path) -> None:
    """Remove the file if it is still the one that was made for it."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(made.descriptor), file.stat(follow_symlinks=False)):
            file.unlink()


def is_stale(file: Path) -> bool:
    """Tell whether a process of ours that no longer runs left a file."""
    return is_ours(file) and left_behind(file)


def drop_stale(file: Path) -> None:
    """Remove a file if a process of ours left it that no longer runs."""
    if is_ours(file):
        remove(file)


def is_ours(file: Path) -> bool:
    """Tell whether a process of ours made a file, which may run or not."""
    try:
        with opened_regular(file) as (descriptor, _):
            return os.read(descriptor, len(_OURS) + 1) == _OURS
    except OSError:
        return False
