"""Install and uninstall: the driver's config, the hooks, and files that stand as text.

Git does not smudge a file again when a driver appears: its stat still
matches. So install has git write those files once more.
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

from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.filter.checkout import UNNOTED, write_files
from wtxtgit.filter.process import FilterSettings
from wtxtgit.filter.status import filtered_alone, tracked
from wtxtgit.git import index, index_file, run, staging, work_tree
from wtxtgit.git.driver import COMMANDS, KEYS, PROGRAMS, Launcher, is_ours
from wtxtgit.git.filter_protocol import PacketReader, ProtocolError, check_greeting, greeting
from wtxtgit.git.index import FileChange, TreeEntry
from wtxtgit.git.repository import Config, Repository, change_config, values_like
from wtxtgit.git.work_tree import moment, work_trees
from wtxtgit.io.files import shown_path
from wtxtgit.io.temporary import temporary_folder
from wtxtgit.model.plain import JsonObject
from wtxtgit.setup import hooks, sizes, track
from wtxtgit.text import grammar


@dataclass(frozen=True, slots=True)
class Resmudged(JsonObject):
    """What became of tracked files that stood as text in the work tree.

    `written` are restored. `changed` were edited since, and `left` stay text
    because smudge leaves them so (damaged, native, or not wanted).
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
    """What uninstall took back; `foreign` are values of other makers that stay.

    `settings` are keys of this repository's config that doctor had set. `patterns` are those that
    the repository tracks, and for which nothing is set up any more.
    """

    scope: str
    keys: tuple[str, ...]
    foreign: Mapping[str, str]
    hooks: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    patterns: tuple[bytes, ...] = ()


def install(
    *,
    scope: str,
    with_hooks: bool,
    force: bool,
    repo: Repository | None,
    settings: FilterSettings | None = None,
) -> Installed:
    """Set the driver up, and write tracked files that stand as text.

    `repo` is the repository around, None outside one: then only the global
    config can be set. Raises CheckError where something of another maker is
    in the way, with nothing changed.
    """
    if repo is None and (scope == "local" or with_hooks):
        raise EnvironmentFailure(
            "not in a git repository", hint="wtxtgit install --global sets up all repositories"
        )
    launcher = find_launcher()
    cwd = repo.home if repo else None
    if repo is not None and with_hooks:
        hooks.check_place(repo, force=force)
    # The filter first: hooks that judge texts are of no use without what makes them.
    changed = set_driver(launcher, scope=scope, force=force, cwd=cwd)
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
        raise EnvironmentFailure("not in a git repository")
    if repo is not None:
        hooks.check_unedited(repo)
        _refresh(repo)
    # Nothing was changed up to here: a hook that was edited stops it all.
    changed = unset_driver(scope=scope, cwd=repo.home if repo else None)
    removed = hooks.uninstall(repo) if repo else ()
    undone = sizes.put_back(cwd=repo.home) if repo else ()
    names = tuple(map(os.fspath, removed))
    left = _tracked_still(repo) if repo and not repo.is_bare else ()
    return Uninstalled(scope, changed.keys, changed.foreign, names, undone, left)


def _refresh(repo: Repository) -> None:
    """Have git know of all files as they stand, in each work tree: later it can't clean them."""
    for folder in (os.fsdecode(one[b"worktree"]) for one in work_trees(repo)):
        # Exit code 1 tells of files that did change; one that is gone, or bare, has no index.
        refresh = ("-C", folder, "update-index", "-q", "--refresh")
        repo.call(*refresh, ok=(0, 1, 128))


def _tracked_still(repo: Repository) -> tuple[bytes, ...]:
    """The patterns of a repository where no filter is set up."""
    known = Config(repo.home)
    if known.get("filter.wtxt.process") or known.get("filter.wtxt.clean"):
        return ()
    patterns = track.list_patterns(repo).patterns
    return tuple(dict.fromkeys(pattern.pattern for pattern in patterns))


def resmudge(repo: Repository, settings: FilterSettings | None = None) -> Resmudged:
    """Write tracked files again that stand as their blob's text.

    Raises EnvironmentFailure, with nothing written, where the driver does not start.
    """
    # Where no text is left nobody writes the index.
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
        # Deleted or of another type for git: a link on the way leads elsewhere.
        is_gone = changes.get(entry.path) in (FileChange.DELETED, FileChange.TYPE)
        if not is_gone and work_tree.file_is_blob(repo.file(entry.path), entry.oid):
            unchanged[entry.path] = entry
        else:
            changed.append(entry.path)
    if not unchanged:
        return Resmudged(changed=tuple(changed))
    # With `filter.wtxt.required` git would refuse each file if the driver did not start.
    check_start(repo.config.get("filter.wtxt.process") or "")
    alone = filtered_alone(repo, unchanged)
    files = {unchanged[path]: moment(repo.worktree, path) for path in alone}
    # What is damaged stays text, which is told.
    outcome = write_files(repo, files, settings or FilterSettings(), lambda *_: None)
    # What other conversions change on the way is git's to write.
    ours = set(alone)
    others = [path for path in unchanged if path not in ours]
    staging.rewrite_files(repo, others)
    if outcome.failed:
        path, message = outcome.failed[0]
        raise EnvironmentFailure(f"{shown_path(path)}: {message}")
    if outcome.unnoted is not None:
        raise EnvironmentFailure(f"could not update the index: {outcome.unnoted}", hint=UNNOTED)
    left = set(outcome.as_text)
    heads = {path: work_tree.file_head(repo.file(path)) or b"" for path in others}
    left |= {path for path, head in heads.items() if grammar.is_text(head)}
    written = tuple(path for path in unchanged if path not in left)
    return Resmudged(written, tuple(changed), tuple(sorted(left)))


_START_SECONDS = 60
_DRIVERS = r"^(filter|diff|merge)\.wtxt"
"""Where the driver's keys are, for git's own regular expressions."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What setting or unsetting did: keys set or unset, and foreign values."""

    keys: tuple[str, ...]
    foreign: Mapping[str, str]


def find_launcher() -> Launcher:
    """Choose how git starts wtxtgit, by really starting it in an empty folder.

    The interpreter with -E and -P is first choice: it takes no module from
    the folder where git runs it, the untrusted work tree, and nothing from
    PYTHONPATH. Raises EnvironmentFailure where nothing starts.
    """
    # The script that runs now is tried before others of the same name.
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
    """Start a filter process as git would, and greet it; raises EnvironmentFailure.

    It runs in an empty folder, so nothing that lies about can help it.
    """
    with temporary_folder() as empty:
        try:
            done = subprocess.run(
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
            raise EnvironmentFailure(f"{command}: can't be started: {error.strerror}") from error
    try:
        check_greeting(PacketReader(BytesIO(done.stdout)))
    except ProtocolError as error:
        words = done.stderr.decode("utf-8", "backslashreplace").strip().rpartition("\n")[2]
        raise EnvironmentFailure(f"{command}: {words or error.message}") from error
    # A greeting alone does not tell that the process also ends well.
    if done.returncode:
        raise EnvironmentFailure(f"{command}: exited with {done.returncode}")


def set_driver(
    launcher: Launcher, *, scope: str, force: bool = False, cwd: Path | None = None
) -> Changed:
    """Set the driver's keys in one scope.

    Raises CheckError, with nothing changed, where a value is not ours.
    """
    wanted = launcher.values()
    present = driver_values(scope=scope, cwd=cwd)
    foreign = _foreign(present)
    # Before the first key is written: either all are ours, or nothing changes.
    if foreign and not force:
        key, value = next(iter(foreign.items()))
        raise CheckError(
            f"{key} is set to {value!r} in the {scope} config, not by wtxtgit",
            hint=f"wtxtgit install --{scope} --force replaces it",
        )
    # Only what differs is written: a second install leaves the file's bytes alone.
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


def driver_values(*, scope: str, cwd: Path | None = None) -> dict[str, list[str]]:
    """The values of the driver's keys in one scope."""
    found = values_like(_DRIVERS, scope=scope, cwd=cwd)
    return {key: found.get(key, []) for key in KEYS}


def _foreign(present: Mapping[str, Iterable[str]]) -> dict[str, str]:
    return {
        key: value for key, values in present.items() for value in values if not is_ours(key, value)
    }
