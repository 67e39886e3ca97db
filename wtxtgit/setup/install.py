"""Install and uninstall: the driver's config, the hooks, and files that stand as text.

Git does not smudge a file again when a driver appears: its stat still
matches. So install has git write those files once more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.filter.checkout import write_files
from wtxtgit.filter.process import Settings
from wtxtgit.filter.status import tracked
from wtxtgit.filter.worktree import filtered_alone
from wtxtgit.git import config, index, tuning
from wtxtgit.git.index import Change, Entry
from wtxtgit.git.repository import Repository
from wtxtgit.git.work_tree import moment
from wtxtgit.io.files import shown_path
from wtxtgit.setup import hooks
from wtxtgit.text import grammar


@dataclass(frozen=True, slots=True)
class Resmudged:
    """What became of tracked files that stood as text in the work tree.

    `written` are restored. `changed` were edited since, and `left` stay text
    because smudge leaves them so (damaged, native, or not wanted).
    """

    written: tuple[bytes, ...] = ()
    changed: tuple[bytes, ...] = ()
    left: tuple[bytes, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return {
            "written": [os.fsdecode(path) for path in self.written],
            "changed": [os.fsdecode(path) for path in self.changed],
            "left": [os.fsdecode(path) for path in self.left],
        }


@dataclass(frozen=True, slots=True)
class Installed:
    """What install set; `replaced` are foreign values that --force overwrote."""

    scope: str
    command: str
    keys: tuple[str, ...]
    replaced: Mapping[str, str] = field(default_factory=dict)
    hooks: tuple[str, ...] = ()
    files: Resmudged = field(default_factory=Resmudged)

    def as_dict(self) -> dict[str, object]:
        return {
            "scope": self.scope,
            "command": self.command,
            "keys": list(self.keys),
            "replaced": dict(self.replaced),
            "hooks": list(self.hooks),
            "files": self.files.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Uninstalled:
    """What uninstall took back; `foreign` are values of other makers that stay.

    `settings` are keys of this repository's config that doctor had set.
    """

    scope: str
    keys: tuple[str, ...]
    foreign: Mapping[str, str]
    hooks: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return {
            "scope": self.scope,
            "keys": list(self.keys),
            "foreign": dict(self.foreign),
            "hooks": list(self.hooks),
            "settings": list(self.settings),
        }


def install(
    *,
    scope: str,
    with_hooks: bool,
    force: bool,
    repo: Repository | None,
    settings: Settings | None = None,
) -> Installed:
    """Set the driver up, and write tracked files that stand as text.

    `repo` is the repository around, None outside one: then only the global
    config can be set. Raises CheckError where something of another maker is
    in the way, with nothing changed.
    """
    if repo is None and (scope == "local" or with_hooks):
        raise EnvironmentFailure(
            "this is not in a git repository", hint="wtxtgit install --global sets up all of them"
        )
    launcher = config.find_launcher()
    cwd = repo.home if repo else None
    if repo is not None and with_hooks:
        hooks.check_place(repo, force=force)
    changed = config.install(launcher, scope=scope, force=force, cwd=cwd)
    placed: tuple[Path, ...] = ()
    if repo is not None and with_hooks:
        placed = hooks.install(repo, launcher, force=force)
    files = Resmudged() if repo is None or repo.is_bare else resmudge(repo, settings)
    names = tuple(map(os.fspath, placed))
    return Installed(scope, launcher.command(), changed.keys, changed.foreign, names, files)


def uninstall(*, scope: str, repo: Repository | None) -> Uninstalled:
    """Take back what install set in one scope, and this repository's hooks and settings.

    Raises CheckError for a hook that was edited, with nothing changed.
    """
    if repo is None and scope == "local":
        raise EnvironmentFailure("this is not in a git repository")
    if repo is not None:
        hooks.check_unedited(repo)
    changed = config.uninstall(scope=scope, cwd=repo.home if repo else None)
    removed = hooks.uninstall(repo) if repo else ()
    undone = tuning.undo(cwd=repo.home) if repo else ()
    names = tuple(map(os.fspath, removed))
    return Uninstalled(scope, changed.keys, changed.foreign, names, undone)


def resmudge(repo: Repository, settings: Settings | None = None) -> Resmudged:
    """Write tracked files again that stand as their blob's text.

    Raises EnvironmentFailure, with nothing written, where the driver does not start.
    """
    texts = [
        entry
        for entry in tracked(repo)
        if entry.stage == 0
        and not entry.skipped
        and not entry.intended
        and (index.file_head(repo.file(entry.path)) or b"").startswith(grammar.MAGIC)
    ]
    if not texts:
        return Resmudged()
    changes = index.changes(repo)
    unchanged: dict[bytes, Entry] = {}
    changed: list[bytes] = []
    for entry in texts:
        # Deleted or of another type for git: a link on the way leads elsewhere.
        gone = changes.get(entry.path) in (Change.DELETED, Change.TYPE)
        if not gone and index.file_is_blob(repo, repo.file(entry.path), entry.oid):
            unchanged[entry.path] = entry
        else:
            changed.append(entry.path)
    if not unchanged:
        return Resmudged(changed=tuple(changed))
    config.check_start(config.effective("filter.wtxt.process", cwd=repo.home) or "")
    alone = filtered_alone(repo, unchanged)
    files = {unchanged[path]: moment(repo.worktree, path) for path in alone}
    # What is damaged stays text, which is told.
    done = write_files(repo, files, settings or Settings(), lambda *_: None)
    # What other conversions change on the way is git's to write.
    ours = set(alone)
    others = [path for path in unchanged if path not in ours]
    index.rewrite_files(repo, others)
    if done.failed:
        path, message = done.failed[0]
        raise EnvironmentFailure(f"{shown_path(path)}: {message}")
    left = set(done.as_text)
    left |= {p for p in others if (index.file_head(repo.file(p)) or b"").startswith(grammar.MAGIC)}
    written = tuple(path for path in unchanged if path not in left)
    return Resmudged(written, tuple(changed), tuple(sorted(left)))
