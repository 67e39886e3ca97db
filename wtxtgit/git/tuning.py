"""Settings of git that are made for one repository, and can be taken back.

Beside a value in the repository's config stands what was set, and what was
there before:

    [core]
        bigFileThreshold = 2g
    [wtxtgit "core.bigFileThreshold"]
        set = 2g
        before = 512k

A value that somebody has changed since is theirs, and stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wtxtgit.git import config, run

BIG_FILE_THRESHOLD = "core.bigFileThreshold"
WINDOW_MEMORY = "pack.windowMemory"
THREADS = "pack.threads"
KEYS = (BIG_FILE_THRESHOLD, WINDOW_MEMORY, THREADS)

_SCOPE = "local"


def tune(values: Mapping[str, str], *, cwd: Path) -> None:
    """Set keys out of KEYS in the repository's config, and note what was there."""
    for key, value in values.items():
        present = config.get_all(key, scope=_SCOPE, cwd=cwd)
        if present != _noted(key, "set", cwd):
            _put(_note(key, "before"), present, cwd)
        _put(_note(key, "set"), [value], cwd)
        _put(key, [value], cwd)


def undo(*, cwd: Path) -> tuple[str, ...]:
    """Put back what was there before `tune`; give the keys that were put back."""
    undone = []
    for key in KEYS:
        was_set = _noted(key, "set", cwd)
        if not was_set:
            continue
        if config.get_all(key, scope=_SCOPE, cwd=cwd) == was_set:
            _put(key, _noted(key, "before", cwd), cwd)
            undone.append(key)
        for note in ("set", "before"):
            _put(_note(key, note), [], cwd)
    return tuple(undone)


def _note(key: str, name: str) -> str:
    return f"wtxtgit.{key}.{name}"


def _noted(key: str, name: str, cwd: Path) -> list[str]:
    return config.get_all(_note(key, name), scope=_SCOPE, cwd=cwd)


def _put(key: str, values: list[str], cwd: Path) -> None:
    """Make these all values of a key in the repository's config."""
    if config.get_all(key, scope=_SCOPE, cwd=cwd):
        run.git("config", f"--{_SCOPE}", "--unset-all", key, cwd=cwd)
    for value in values:
        run.git("config", f"--{_SCOPE}", "--add", key, value, cwd=cwd)
