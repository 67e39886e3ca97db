"""Hooks: installed beside a foreign hook, removed exactly, and what pre-commit checks.

The check reads the index alone, since that is what will be committed:
GIT_INDEX_FILE may be a temporary one, and the work tree may hold anything.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.git import index
from wtxtgit.git.config import Launcher
from wtxtgit.git.index import Entry
from wtxtgit.git.repository import Repository
from wtxtgit.model import Problem
from wtxtgit.ops.clean import is_pending
from wtxtgit.ops.files import failures, replace_file, write_all
from wtxtgit.ops.spool import spooled
from wtxtgit.ops.status import filtered
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.verify import verify

NAME = "pre-commit"
BEFORE = "pre-commit.before-wtxtgit"
EDITED = "pre-commit.edited"
ID_LINE = b"# wtxtgit-hook: pre-commit\n"
TEXT_SUFFIX = b".wtxt"
WSUM_SUFFIX = b".wsum"
MAX_FORGE_BLOB = 100 * 1024 * 1024
"""What the big forges take as one blob."""

_CALL = b"exec wtxtgit hook pre-commit"
_READY = "pre-commit.new-wtxtgit"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A staged file that must not be committed; `kind` is raw-binary or corrupt-text."""

    path: bytes
    kind: str
    problem: Problem

    def as_dict(self) -> dict[str, object]:
        about = self.problem.as_dict()
        return {"path": os.fsdecode(self.path), "kind": self.kind, "problem": about}


@dataclass(frozen=True, slots=True)
class HookReport:
    """What pre-commit found; `large` are paths and sizes over the forges' limit."""

    checked: int
    refusals: tuple[Refusal, ...]
    large: tuple[tuple[bytes, int], ...] = ()

    @property
    def ok(self) -> bool:
        return not self.refusals

    def as_dict(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "checked": self.checked,
            "refusals": [refusal.as_dict() for refusal in self.refusals],
            "large": [{"path": os.fsdecode(path), "size": size} for path, size in self.large],
        }


def template() -> bytes:
    """Read the hook as it is shipped: in the package, or beside it in a source tree."""
    package = files("wtxtgit")
    for place in (package / "share" / "hooks" / NAME, Path(str(package)).parent / "hooks" / NAME):
        if place.is_file():
            return place.read_bytes()
    raise EnvironmentFailure("the pre-commit hook is not part of this installation")


def is_ours(hook: Path) -> bool:
    """Tell whether a hook is one that wtxtgit installed, by its id line."""
    try:
        return ID_LINE in hook.read_bytes()
    except OSError:
        return False


def check_unedited(repo: Repository) -> None:
    """Raise CheckError where our hook holds more than install writes."""
    hook = repo.hooks_dir / NAME
    if is_ours(hook) and not _is_as_written(hook):
        quoted = _quoted(hook)
        raise CheckError(
            f"{quoted} was edited, or is of another version of wtxtgit",
            hint=f"mv -i -- {quoted} {_quoted(hook.with_name(EDITED))} keeps it; then try again",
        )


def check_place(repo: Repository, *, force: bool = False) -> None:
    """Raise CheckError where the hook can't be installed politely."""
    folder = repo.hooks_dir
    if not force and not folder.is_relative_to(repo.common_dir):
        raise CheckError(
            f"core.hooksPath names {_quoted(folder)}, which is not this repository's own",
            hint="call wtxtgit hook pre-commit from the pre-commit hook there, "
            "or wtxtgit install --hooks --force",
        )
    check_unedited(repo)
    hook, before = folder / NAME, folder / BEFORE
    if os.path.lexists(hook) and not is_ours(hook) and os.path.lexists(before):
        raise CheckError(
            f"{_quoted(hook)} is not ours, and {_quoted(before)} is there already",
            hint="remove the one that is not needed",
        )


def install(repo: Repository, launcher: Launcher, *, force: bool = False) -> Path:
    """Install the pre-commit hook; a foreign one is kept beside it and runs first."""
    check_place(repo, force=force)
    folder = repo.hooks_dir
    hook, before = folder / NAME, folder / BEFORE
    start, end = _template_parts()
    script = start + os.fsencode(f"exec {launcher.command()} hook pre-commit") + end
    ready = folder / _READY
    with failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
        foreign = os.path.lexists(hook) and not is_ours(hook)
        try:
            replace_file(ready, lambda descriptor: write_all(descriptor, (script,)))
            ready.chmod(0o755)
            if foreign:
                hook.rename(before)
            ready.replace(hook)
        except BaseException:
            if foreign and not os.path.lexists(hook):
                before.rename(hook)
            ready.unlink(missing_ok=True)
            raise
    return hook


def uninstall(repo: Repository) -> Path | None:
    """Remove our hook and put back the one before it; None where there is nothing of ours.

    Raises CheckError for a hook that was edited since.
    """
    check_unedited(repo)
    folder = repo.hooks_dir
    hook, before = folder / NAME, folder / BEFORE
    kept = os.path.lexists(before)
    # Ours may have been moved away, with the one before it still aside.
    if not (is_ours(hook) or (kept and not os.path.lexists(hook))):
        return None
    with failures(hook):
        if kept:
            before.replace(hook)
        else:
            hook.unlink()
    return hook


def pre_commit(repo: Repository, *, threads: int | None = None) -> HookReport:
    """Check every staged checkpoint and text: no raw binary, no text that does not verify."""
    staged = index.staged_paths(repo)
    entries = {
        entry.path: entry
        for entry in index.entries(repo)
        if entry.stage == 0 and not entry.intended
    }
    candidates = [entries[path] for path in sorted(staged) if path in entries]
    through_filter = {entry.path for entry in filtered(repo, candidates, from_index=True)}
    chosen = [
        entry
        for entry in candidates
        if entry.is_file and (entry.path in through_filter or entry.path.endswith(TEXT_SUFFIX))
    ]
    heads = index.blob_heads(repo, (entry.oid for entry in chosen))
    refusals = []
    for entry in chosen:
        if not heads[entry.oid].head.startswith(MAGIC):
            refusals.append(_raw(entry, entry.path in through_filter))
            continue
        problem = _verify(repo, entry, entries, threads)
        if problem is not None:
            refusals.append(Refusal(entry.path, "corrupt-text", problem))
    large = [
        (entry.path, size) for entry in chosen if (size := heads[entry.oid].size) > MAX_FORGE_BLOB
    ]
    return HookReport(len(chosen), tuple(refusals), tuple(large))


def _template_parts() -> tuple[bytes, bytes]:
    """Give what stands before and after the command in the hook."""
    start, call, end = template().partition(_CALL)
    if ID_LINE not in start or not call:
        raise EnvironmentFailure("the pre-commit hook of this installation is damaged")
    return start, end


def _is_as_written(hook: Path) -> bool:
    """Tell whether a hook differs from the shipped one in nothing but the command."""
    start, end = _template_parts()
    with failures(hook):
        script = hook.read_bytes()
    if not (script.startswith(start) and script.endswith(end)):
        return False
    call = os.fsdecode(script[len(start) : len(script) - len(end)])
    try:
        words = shlex.split(call)
    except ValueError:
        return False
    # Spelled as a launcher spells it: one command, whose words nothing can follow.
    return words[:1] == ["exec"] and words[-2:] == ["hook", NAME] and shlex.join(words) == call


def _raw(entry: Entry, is_filtered: bool) -> Refusal:
    if is_filtered:
        problem = Problem("raw-binary", "a raw binary is staged, the filter did not run")
        return Refusal(entry.path, "raw-binary", problem)
    return Refusal(entry.path, "corrupt-text", Problem("syntax", "this is no WTXT text"))


def _verify(
    repo: Repository, entry: Entry, entries: dict[bytes, Entry], threads: int | None
) -> Problem | None:
    text = spooled(index.blob_chunks(repo, entry.oid), repo.state_dir)
    report = verify(text, threads=threads)
    if is_pending(report) and (seal := entries.get(entry.path + WSUM_SUFFIX)) is not None:
        wsum = index.blob_heads(repo, (seal.oid,))[seal.oid]
        if wsum.size == len(wsum.head):
            report = verify(text, wsum=wsum.head, threads=threads)
    return report.problems[0] if report.problems else None


def _quoted(path: Path) -> str:
    return shlex.quote(os.fspath(path))
