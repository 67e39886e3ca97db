"""Where snapshots are delivered to."""

from __future__ import annotations

from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.git_target import Git

__all__ = ["Folder", "Git"]
