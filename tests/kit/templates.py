"""Repositories and folders that are made once in a process, and copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kit import Repo


@dataclass(frozen=True)
class Templates:
    """Folders that are made once and copied."""

    folder: Path

    def copy(self, name: str, make: Callable[[Path], object], to: Path) -> Path:
        """Copy what `make` makes of a folder that is not there; `to` is replaced."""
        template = self.folder / name
        if not template.exists():
            making = self.folder / f"{name}.making"
            make(making)
            making.rename(template)
        if to.exists():
            shutil.rmtree(to)
        shutil.copytree(template, to)
        return to

    def grow(self, name: str, folder: Path, grow: Callable[[Path], object]) -> Path:
        """Replace a folder by what `grow` makes of a copy of it; always the same one."""

        def make(made: Path) -> None:
            shutil.copytree(folder, made)
            grow(made)

        return self.copy(name, make, folder)


def copyable(folder: Path) -> Repo:
    """Make an empty repository whose copies git takes for unchanged."""
    repo = Repo(folder)
    folder.mkdir()
    repo.git("init", "-q")
    # The copies' stat differs in device and inode; without these git filters all again.
    repo.git("config", "core.checkStat", "minimal")
    repo.git("config", "core.trustctime", "false")
    return repo
