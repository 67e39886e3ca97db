"""Parsing targets as written on a command line or in a setting: docs/targets.md, "Spelling"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from wtxtgit.errors import UsageError
from wtxtgit.io.files import shown
from wtxtgit.remotes.target import Target
from wtxtgit.remotes.urls import is_url, shown_url

# Neither the branch nor the folder of a target contains a colon: git-check-ref-format(1).
_BRANCH = re.compile(r"(?P<remote>[^#].*)#(?P<branch>[^#:]+)(?::(?P<path>[^#:]+))?")
_RELEASE = re.compile(r"(?P<repo>[^@]+)@(?P<tag>.+)")


def parse_target(spelled: str, repository: Path | None = None) -> Target:
    """Parse a target. `repository` is a folder in the repository that `git:` and `lfs:` work in.

    Raises UsageError for an invalid target, and as the target's class does.
    """
    kind, colon, rest = spelled.partition(":")
    if colon and kind in _KINDS and not is_url(spelled):
        return _KINDS[kind](rest, repository)
    if not spelled:
        raise UsageError("a target without a name")
    from wtxtgit.remotes.folder import Folder

    return Folder(spelled)


def _git(rest: str, repository: Path | None) -> Target:
    from wtxtgit.remotes.git_target import Git

    parts = _parts(_BRANCH, rest, "git:REMOTE#BRANCH or git:REMOTE#BRANCH:FOLDER")
    return Git(parts["remote"], parts["branch"], parts["path"] or "", repository=repository)


def _lfs(rest: str, repository: Path | None) -> Target:
    from wtxtgit.remotes.lfs_target import LFS

    parts = _parts(_BRANCH, rest, "lfs:REMOTE#BRANCH or lfs:REMOTE#BRANCH:FOLDER")
    return LFS(parts["remote"], parts["branch"], parts["path"] or "", repository=repository)


def _release(rest: str, _: Path | None) -> Target:
    from wtxtgit.remotes.release import Release

    parts = _parts(_RELEASE, rest, "release:OWNER/NAME@TAG")
    return Release(parts["repo"], parts["tag"])


def _registry(rest: str, _: Path | None) -> Target:
    from wtxtgit.remotes.registry import Registry

    return Registry(rest)


_KINDS: Mapping[str, Callable[[str, Path | None], Target]] = {
    "git": _git,
    "lfs": _lfs,
    "release": _release,
    "oci": _registry,
}


def _parts(pattern: re.Pattern[str], rest: str, form: str) -> Mapping[str, str]:
    match = pattern.fullmatch(rest)
    if match is None:
        # It may contain a password.
        spelled = shown_url(rest) if is_url(rest) else shown(rest)
        raise UsageError(f'"{spelled}" is not a target; write {form}')
    return match.groupdict()
