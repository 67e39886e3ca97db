"""Install and uninstall: the driver's config, the hooks, and files that are still text.

Git does not smudge a file again when a driver is set up, since its stat still matches the index. So
install writes those files again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from wtxtgit.errors import CheckError, EnvironmentFailure, phrase
from wtxtgit.filter.checkout import UNNOTED, write_files
from wtxtgit.filter.process import FilterSettings
from wtxtgit.filter.status import filtered_alone, tracked, unfiltered_texts
from wtxtgit.git import index, index_file, run, staging, work_tree
from wtxtgit.git.driver import COMMANDS, KEYS, PROGRAMS, Launcher, is_ours
from wtxtgit.git.filter_protocol import PacketReader, ProtocolError, check_greeting, greeting
from wtxtgit.git.index import FileChange, TreeEntry
from wtxtgit.git.repository import (
    Config,
    Repository,
    Setting,
    change_config,
    settings_like,
    values_like,
)
from wtxtgit.git.work_tree import moment, work_trees
from wtxtgit.io.files import shown_path
from wtxtgit.io.temporary import temporary_folder
from wtxtgit.model.plain import JsonObject
from wtxtgit.setup import hooks, sizes, track
from wtxtgit.text import grammar


@dataclass(frozen=True, slots=True)
class Resmudged(JsonObject):
    """The outcome for tracked files that were text in the work tree.

    `written` were converted to files. `changed` were edited, so they stay. `left` stay text because
    smudge leaves them as text (damaged, native, or not wanted).
    """

    written: tuple[bytes, ...] = ()
    changed: tuple[bytes, ...] = ()
    left: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Installed(JsonObject):
    """What install set; `replaced` are foreign values that --force overwrote."""

    scope: str
    command: str
    keys: tuple[str, ...]
    replaced: Mapping[str, str] = field(default_factory=dict)
    hooks: tuple[str, ...] = ()
    files: Resmudged = field(default_factory=Resmudged)


@dataclass(frozen=True, slots=True)
class Uninstalled(JsonObject):
    """What uninstall removed; `foreign` are values set by others, which stay.

    `settings` are keys of this repository's config that doctor had set. `patterns` are those that
    the repository still tracks although no filter is set up any more. `texts` are files that are
    in the work tree while git has their text, which no pattern matches.
    """

    scope: str
    keys: tuple[str, ...]
    foreign: Mapping[str, str]
    hooks: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    patterns: tuple[bytes, ...] = ()
    texts: tuple[bytes, ...] = ()


def install(
    *,
    scope: str,
    with_hooks: bool,
    force: bool,
    repo: Repository | None,
    settings: FilterSettings | None = None,
) -> Installed:
    """Set up the driver, and convert tracked files that are still text in the work tree.

    `repo` is the current repository, None outside of one: then only the global config can be set.
    Raises CheckError, with nothing changed, if something that others set is in the way.
    """
    if repo is None and (scope == "local" or with_hooks):
        raise EnvironmentFailure(
            "not in a git repository", hint="wtxtgit install --global sets up all repositories"
        )
    launcher = find_launcher()
    cwd = repo.home if repo else None
    if repo is not None and with_hooks:
        hooks.check_place(repo, force=force)
    # The filter first: hooks that check texts are useless without the filter that makes them.
    changed = set_driver(launcher, scope=scope, force=force, cwd=cwd)
    placed: dict[Path, None] = {}
    if repo is not None:
        # Those that are there must not go on starting an installation that is gone.
        placed.update(dict.fromkeys(hooks.renew(repo, launcher)))
        if with_hooks:
            placed.update(dict.fromkeys(hooks.install(repo, launcher, force=force)))
    files = Resmudged() if repo is None or repo.is_bare else resmudge(repo, settings)
    names = tuple(map(os.fspath, placed))
    return Installed(scope, launcher.command(), changed.keys, changed.foreign, names, files)


def uninstall(*, scope: str, repo: Repository | None) -> Uninstalled:
    """Undo what install set in one scope, and remove this repository's hooks and settings.

    Raises CheckError, with nothing changed, if a hook was edited.
    """
    if repo is None and scope == "local":
        raise EnvironmentFailure("not in a git repository")
    if repo is not None:
        hooks.check_unedited(repo)
        _refresh(repo)
    # Nothing has been changed up to here: an edited hook stops everything.
    changed = unset_driver(scope=scope, cwd=repo.home if repo else None)
    removed = hooks.uninstall(repo) if repo else ()
    settings = sizes.restore_values(cwd=repo.home) if repo else ()
    names = tuple(map(os.fspath, removed))
    patterns, texts = _left_behind(repo) if repo and not repo.is_bare else ((), ())
    return Uninstalled(scope, changed.keys, changed.foreign, names, settings, patterns, texts)


def _refresh(repo: Repository) -> None:
    """Have git refresh the index of each worktree, because without a filter it can't compare files
    with their blobs.
    """
    for folder in (os.fsdecode(one[b"worktree"]) for one in work_trees(repo)):
        # Exit code 1 means that files did change; 128 that a worktree is gone or bare, so it has no
        # index.
        refresh = ("-C", folder, "update-index", "-q", "--refresh")
        repo.call(*refresh, ok=(0, 1, 128))


def _left_behind(repo: Repository) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the patterns that a repository tracks, and the files that no pattern matches although
    git has their text; nothing if a filter is still set up.
    """
    config = Config(repo.home)
    if config.get("filter.wtxt.process") or config.get("filter.wtxt.clean"):
        return (), ()
    patterns = track.list_patterns(repo).patterns
    heads = (
        (entry.path, work_tree.file_head(repo.file(entry.path)))
        for entry in unfiltered_texts(repo, index.entries(repo))
    )
    # A file that is text in the work tree needs no note: its content shows what git has.
    texts = tuple(path for path, head in heads if head is not None and not grammar.is_text(head))
    return tuple(dict.fromkeys(pattern.pattern for pattern in patterns)), texts


def resmudge(repo: Repository, settings: FilterSettings | None = None) -> Resmudged:
    """Convert tracked files that are their blob's text in the work tree.

    Raises EnvironmentFailure, with nothing written, if the driver does not start, and later if a
    file or the index can't be written.
    """
    # If there are no texts, the index is not written below, so leftovers are removed here.
    index_file.sweep(repo)
    texts = [
        entry
        for entry in tracked(repo)
        if entry.stage == 0
        and not entry.skipped
        and not entry.intended
        and grammar.is_text(work_tree.file_head(repo.file(entry.path)) or b"")
    ]
    if not texts:
        return Resmudged()
    changes = index.changes(repo)
    unchanged: dict[bytes, TreeEntry] = {}
    changed: list[bytes] = []
    for entry in texts:
        # To git, a path that leads through a symbolic link is deleted or of another type.
        is_gone = changes.get(entry.path) in (FileChange.DELETED, FileChange.TYPE)
        if not is_gone and work_tree.file_is_blob(repo.file(entry.path), entry.oid):
            unchanged[entry.path] = entry
        else:
            changed.append(entry.path)
    if not unchanged:
        return Resmudged(changed=tuple(changed))
    # With `filter.wtxt.required`, git would refuse each file if the driver did not start.
    check_start(repo.config.get("filter.wtxt.process") or "")
    filtered_paths = filtered_alone(repo, unchanged)
    files = {unchanged[path]: moment(repo.worktree, path) for path in filtered_paths}
    # A damaged text stays text, and is reported.
    outcome = write_files(repo, files, settings or FilterSettings(), lambda *_: None)
    # Files that other conversions change as well are left to git to write.
    written_by_us = set(filtered_paths)
    for_git = [path for path in unchanged if path not in written_by_us]
    staging.rewrite_files(repo, for_git)
    if outcome.failed:
        path, message = outcome.failed[0]
        raise EnvironmentFailure(f"{shown_path(path)}: {message}")
    if outcome.unnoted is not None:
        raise EnvironmentFailure(f"could not update the index: {outcome.unnoted}", hint=UNNOTED)
    still_text = set(outcome.as_text)
    heads = {path: work_tree.file_head(repo.file(path)) or b"" for path in for_git}
    still_text |= {path for path, head in heads.items() if grammar.is_text(head)}
    written = tuple(path for path in unchanged if path not in still_text)
    return Resmudged(written, tuple(changed), tuple(sorted(still_text)))


_START_SECONDS = 60
_DRIVERS = r"^(filter|diff|merge)\.wtxt"
"""The driver's keys, as a regular expression for git."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What setting or unsetting the driver did: keys that were set or unset, and foreign values."""

    keys: tuple[str, ...]
    foreign: Mapping[str, str]


def find_launcher() -> Launcher:
    """Choose the command with which git starts wtxtgit, by actually starting it in an empty folder.

    First choice is the interpreter with -E and -P: it loads no module from the folder in which git
    runs it, the untrusted work tree, and nothing from PYTHONPATH. Raises EnvironmentFailure if
    nothing starts.
    """
    # The script that is running now is tried before others of the same name.
    script = Path(sys.argv[0]).absolute()
    candidates = [Launcher((sys.executable, "-E", "-P", "-m", "wtxtgit"))]
    folders = [Path(sys.executable).parent]
    if script.name in PROGRAMS:
        folders.insert(0, script.parent)
    for folder in folders:
        installed = shutil.which(PROGRAMS[0], path=str(folder))
        if installed is not None:
            candidates.append(Launcher((installed,)))
    failures = []
    for candidate in dict.fromkeys(candidates):
        try:
            check_start(candidate.command(COMMANDS["filter.wtxt.process"]))
        except EnvironmentFailure as error:
            failures.append(error.message)
        else:
            return candidate
    raise EnvironmentFailure(
        f"wtxtgit does not start when git runs it: {failures[0]}",
        hint=f"install it for the interpreter {sys.executable}",
    )


def check_start(command: str) -> None:
    """Start a filter process as git would, and exchange greetings with it.

    It runs in an empty folder, so it can't depend on files that happen to be in the current one.
    Raises EnvironmentFailure if it does not start, answer, and exit with 0.
    """
    with temporary_folder() as empty:
        try:
            result = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=empty,
                env=run.environment(),
                input=greeting(),
                capture_output=True,
                timeout=_START_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFailure(f"{command}: no answer within {_START_SECONDS} s") from error
        except OSError as error:
            why = phrase(error.strerror or "")
            raise EnvironmentFailure(f"{command}: can't be started: {why}") from error
    try:
        check_greeting(PacketReader(BytesIO(result.stdout)))
    except ProtocolError as error:
        message = result.stderr.decode("utf-8", "backslashreplace").strip().rpartition("\n")[2]
        raise EnvironmentFailure(f"{command}: {message or error.message}") from error
    # The greeting alone does not show that the process also ends well.
    if result.returncode:
        raise EnvironmentFailure(f"{command}: exited with {result.returncode}")


def set_driver(
    launcher: Launcher, *, scope: str, force: bool = False, cwd: Path | None = None
) -> Changed:
    """Set the driver's keys in one scope.

    Raises CheckError, with nothing changed, if a value is not ours, unless `force`.
    """
    wanted = launcher.values()
    present = driver_values(scope=scope, cwd=cwd)
    foreign = _foreign(present)
    # Checked before the first key is written: either all are ours, or nothing changes.
    if foreign and not force:
        key, value = next(iter(foreign.items()))
        raise CheckError(
            f"{key} is set to {value!r} in the {scope} config, not by wtxtgit",
            hint=f"wtxtgit install --{scope} --force replaces it",
        )
    # Only what differs is written, so a second install leaves the file's bytes alone.
    stale = [key for key in KEYS if present[key] != [wanted[key]]]
    for key in stale:
        change_config(scope, "--replace-all", key, os.fsencode(wanted[key]), cwd=cwd)
    return Changed(tuple(stale), foreign)


def unset_driver(*, scope: str, cwd: Path | None = None) -> Changed:
    """Unset the driver's keys in one scope; values that are not ours stay."""
    present = driver_values(scope=scope, cwd=cwd)
    foreign = _foreign(present)
    ours = [key for key in KEYS if present[key] and key not in foreign]
    for key in ours:
        change_config(scope, "--unset-all", key, cwd=cwd)
    return Changed(tuple(ours), foreign)


def effective(*, scope: str | None = None, cwd: Path | None = None) -> dict[str, Setting]:
    """Return those of the driver's keys that are set, with the values that git obeys.

    With `scope` only those in the file of that scope, to which `install` writes.
    """
    settings = settings_like(_DRIVERS, scope=scope, cwd=cwd)
    return {key: settings[key] for key in KEYS if key in settings}


def driver_values(*, scope: str, cwd: Path | None = None) -> dict[str, list[str]]:
    """Return the values of each of the driver's keys in one scope."""
    values = values_like(_DRIVERS, scope=scope, cwd=cwd)
    return {key: values.get(key, []) for key in KEYS}


def _foreign(present: Mapping[str, Iterable[str]]) -> dict[str, str]:
    return {
        key: value for key, values in present.items() for value in values if not is_ours(key, value)
    }
