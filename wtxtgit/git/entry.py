"""What stands at a path of a tree or of the index."""

from __future__ import annotations

from dataclasses import dataclass

MODE_FOLDER = 0o040000
MODE_FILE = 0o100644
MODE_EXECUTABLE = 0o100755
MODE_LINK = 0o120000
MODE_SUBMODULE = 0o160000


@dataclass(frozen=True, slots=True)
class Entry:
    """A path of the index, or of a tree (stage 0).

    `mode` as in a tree. `stage` is 0, or 1 to 3 in a conflict. `skipped` is
    the skip-worktree bit: a sparse checkout has no file for it. `intended` is
    the mark of `git add -N`: nothing is staged yet, `oid` is the empty blob's.
    """

    path: bytes
    mode: int
    oid: str
    stage: int = 0
    skipped: bool = False
    intended: bool = False

    @property
    def is_file(self) -> bool:
        return self.mode not in (MODE_LINK, MODE_SUBMODULE, MODE_FOLDER)

    @property
    def is_folder(self) -> bool:
        return self.mode == MODE_FOLDER
