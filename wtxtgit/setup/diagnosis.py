"""The findings of doctor, how they name files, and the checks of large texts.

Each check makes one finding. A limit of forges, of git's deltas, or of memory is reported only if a
tracked file exceeds it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from wtxtgit.errors import clipped, counted
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import Repository
from wtxtgit.model.plain import JsonObject
from wtxtgit.setup import sizes
from wtxtgit.setup.sizes import (
    MAX_BLOB_KEY,
    MAX_DIFF_TEXT,
    MAX_FORGE_BLOB,
    BlobSettings,
    Machine,
    TextSize,
    max_blob,
)
from wtxtgit.text.grammar import binary_size

_SHOWN_PATHS = 5
_SHOWN_CHARACTERS = 200
"""Most characters of a path in a message."""
_COMMAND_CHARACTERS = 1000
"""A command with more characters names fewer paths."""


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CheckResult(JsonObject):
    """One finding of doctor: `fix` says what helps, `fixable` whether `--fix` does it."""

    name: str
    level: Level
    message: str
    fix: str | None = None
    fixable: bool = False
    paths: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis(JsonObject):
    """All findings of doctor, and what was mended before they were made."""

    KEYS = "ok checks mended"

    checks: tuple[CheckResult, ...]
    mended: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.level is not Level.ERROR for check in self.checks)


def listed(paths: Iterable[bytes]) -> str:
    """Name the first few paths, quoted for a shell; very long ones are shortened in the middle."""
    all_paths = list(paths)
    names = " ".join(clipped(shown(path), _SHOWN_CHARACTERS) for path in all_paths[:_SHOWN_PATHS])
    more = len(all_paths) - _SHOWN_PATHS
    return f"{names} and {more} more" if more > 0 else names


def arguments(paths: Sequence[bytes]) -> str:
    """Return paths as arguments of a command, unshortened; "..." stands for those left out."""
    quoted = [shown(path) for path in paths[:_SHOWN_PATHS]]
    while len(quoted) > 1 and sum(map(len, quoted)) > _COMMAND_CHARACTERS:
        quoted.pop()
    more = " ..." if len(paths) > len(quoted) else ""
    return " ".join(quoted) + more


def arguments_here(repo: Repository, paths: Sequence[bytes]) -> str:
    """Do what `arguments` does with paths from the top level, for a command run in the current
    folder.
    """
    here = repo.prefix or b"."
    # Only these are converted, since there may be thousands of paths.
    relative = [os.path.relpath(path, here) for path in paths[: _SHOWN_PATHS + 1]]
    return arguments([*relative, *paths[len(relative) :]])


def shown(path: bytes) -> str:
    """Quote a path for a shell."""
    return shlex.quote(path.decode("utf-8", "backslashreplace"))


def counted_files(entries: Iterable[TreeEntry]) -> str:
    """Return "1 tracked file", "2 tracked files" and so on; a file in conflict counts once."""
    return counted(len(distinct(entries)), "tracked file")


def distinct(entries: Iterable[TreeEntry]) -> list[bytes]:
    """Return the paths of entries, each once: a conflict has up to three entries for a path."""
    return list(dict.fromkeys(entry.path for entry in entries))


_SMALLER = (
    "wtxtgit track --detached PATTERN keeps the data in the store, and a small text of hashes in "
    "git; or wtxtgit convert A B --max-shard 64MiB splits a checkpoint into shards, but not a "
    "tensor"
)


def checks(repo: Repository, texts: Sequence[TextSize], machine: Machine) -> list[CheckResult]:
    """Check texts against the limits of forges and of git."""
    now = sizes.settings(repo, machine)
    suited = sizes.suited(texts, now, machine)
    return [
        forge(texts, max_blob(repo)),
        deltas(texts, now, suited, machine),
        archive(texts, now),
        memory(texts, now, suited, machine),
    ]


def forge(texts: Sequence[TextSize], limit: int) -> CheckResult:
    """Check whether forges accept the blobs and show their diffs."""
    if large := [size for size in texts if size.text > limit]:
        return CheckResult(
            "sizes",
            Level.WARN,
            f"over {sizes.human(limit)} as text, {_whose_limit(limit)} for a blob (about "
            f"{sizes.human(binary_size(limit))} of binary): {_listed(large)}",
            f"{_SMALLER}; if the forge takes more, set git config {MAX_BLOB_KEY} to its limit",
            paths=_paths(large),
        )
    long = [size for size in texts if size.text > MAX_DIFF_TEXT]
    message = "all texts are small enough for forges"
    if long:
        cut = counted(len(long), "text")
        message += f"; pull requests may not show a diff of {cut}, but wtxtgit review does"
    return CheckResult("sizes", Level.OK, message)


def deltas(
    texts: Sequence[TextSize], now: BlobSettings, suited: BlobSettings, machine: Machine
) -> CheckResult:
    """Check whether git makes deltas of the texts: core.bigFileThreshold decides that."""
    whole = [size for size in texts if size.text > now.threshold]
    if not whole:
        message = f"git makes deltas of texts up to {sizes.human(now.threshold)}"
        return CheckResult("deltas", Level.OK, message)
    values = sizes.changes(now, suited)
    # Offsets in a delta have 32 bits, and making one takes memory, so some texts are always stored
    # whole.
    hopeless = [size for size in whole if size.text > suited.threshold]
    return CheckResult(
        "deltas",
        Level.WARN,
        f"over {sizes.BIG_FILE_THRESHOLD} ({sizes.human(now.threshold)}), "
        f"git stores every version whole: {_listed(whole)}",
        "; ".join(
            part
            for part in (
                _commands(values) if len(hopeless) < len(whole) else "",
                f"{_too_large(hopeless, machine)}: {_SMALLER}" if hopeless else "",
            )
            if part
        ),
        fixable=suited.threshold > now.threshold,
        paths=_paths(whole),
    )


def archive(texts: Sequence[TextSize], now: BlobSettings) -> CheckResult:
    """Check whether `git archive` writes the files: larger blobs are streamed, past the filter."""
    if large := [size for size in texts if size.text > now.threshold]:
        enough = sizes.spelled(sizes.next_power(large[0].text))
        return CheckResult(
            "archive",
            Level.WARN,
            f"over {sizes.BIG_FILE_THRESHOLD} ({sizes.human(now.threshold)}), git archive writes "
            f"texts in place of files: {_listed(large)}",
            f"git -c {sizes.BIG_FILE_THRESHOLD}={enough} archive HEAD writes the files; wtxtgit "
            f"restore converts one text",
            paths=_paths(large),
        )
    return CheckResult("archive", Level.OK, "git archive writes files, if the filter is set up")


def memory(
    texts: Sequence[TextSize], now: BlobSettings, suited: BlobSettings, machine: Machine
) -> CheckResult:
    """Check whether this machine has the memory that git's own commands need for the texts."""
    if large := [size for size in texts if sizes.CHECKOUT_TEXTS * size.text > machine.memory]:
        need = sizes.CHECKOUT_TEXTS * large[0].text
        return CheckResult(
            "memory",
            Level.WARN,
            f"git checkout needs up to {sizes.human(need)} of memory, this machine has "
            f"{sizes.human(machine.memory)}: {_listed(large)}",
            "wtxtgit checkout writes files piece by piece",
            paths=_paths(large),
        )
    # Only reported if git would take more memory than this machine has.
    if suited.window != now.window:
        largest = max(size.text for size in texts if size.text <= suited.threshold)
        need = sizes.REPACK_UNBOUND * largest * now.threads
        return CheckResult(
            "memory",
            Level.WARN,
            f"without {sizes.WINDOW_MEMORY}, git gc may need {sizes.human(need)} of memory; this "
            f"machine has {sizes.human(machine.memory)}",
            _commands(sizes.changes(now, suited)),
            fixable=True,
        )
    if huge := [size for size in texts if sizes.DIFF_TEXTS * size.text > machine.memory]:
        need = sizes.DIFF_TEXTS * huge[0].text
        return CheckResult(
            "memory",
            Level.WARN,
            f"git diff --no-ext-diff needs up to {sizes.human(need)} of memory, this machine has "
            f"{sizes.human(machine.memory)}: {_listed(huge)}",
            "git diff and wtxtgit diff read only changed tensors",
            paths=_paths(huge),
        )
    return CheckResult(
        "memory", Level.OK, "this machine has enough memory for git to handle all texts"
    )


def _commands(values: dict[str, str]) -> str:
    return " && ".join(f"git config {key} {value}" for key, value in values.items())


def _too_large(texts: Sequence[TextSize], machine: Machine) -> str:
    if texts[0].text > sizes.MAX_DELTA_TEXT:
        return f"git makes no deltas of texts over {sizes.human(sizes.MAX_DELTA_TEXT)}"
    need = sizes.human(sizes.REPACK_LEAST * texts[0].text)
    return f"deltas would need {need} of memory, this machine has {sizes.human(machine.memory)}"


def _whose_limit(limit: int) -> str:
    return "the limit of most forges" if limit == MAX_FORGE_BLOB else f"the limit in {MAX_BLOB_KEY}"


def _listed(texts: Iterable[TextSize]) -> str:
    return listed(size.path for size in texts)


def _paths(texts: Iterable[TextSize]) -> tuple[bytes, ...]:
    return tuple(size.path for size in texts)
