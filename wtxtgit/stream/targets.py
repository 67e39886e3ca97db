"""Targets that snapshots are delivered to."""

from __future__ import annotations

from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.git_target import Git
from wtxtgit.remotes.lfs_target import LFS
from wtxtgit.remotes.registry import Registry
from wtxtgit.remotes.release import Release
from wtxtgit.remotes.spelling import parse_target

__all__ = ["LFS", "Folder", "Git", "Registry", "Release", "parse_target"]
