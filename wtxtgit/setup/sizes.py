"""Large texts: the limits of forges and of git, and the settings of git that suit them.

Git's need of memory was measured with git 2.39.5 (`docs/git.md`, "Limits"), in multiples of the
largest text. When twelve versions are repacked, each thread has 25 texts in memory; if the memory
of the window is bounded, fewer, but at least 5. With a window of four texts the pack is as small as
without a bound, with a window of one text it is half as large again, and without deltas ten times
as large.

Settings are made for one repository, and can be undone. The repository's config also records, for
each value, what was set and what was there before:

    [core]
        bigFileThreshold = 2g
    [wtxtgit "core.bigFileThreshold"]
        set = 2g
        before = 512k

A value that somebody changed since then is theirs, and stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.git import blobs, index, work_tree
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import DETACHED_DRIVER, FILTERS, Repository, change_config, values_in
from wtxtgit.text import grammar
from wtxtgit.text.grammar import text_size

MAX_FORGE_BLOB = 100 * 1024 * 1024
"""The largest blob that the big forges accept."""
MAX_BLOB_KEY = "wtxtgit.maxBlob"
MAX_DIFF_LINES = 20_000
"""Most lines of a pull request's diff that forges show."""
MAX_DIFF_TEXT = MAX_DIFF_LINES * grammar.LINE_TEXT
"""A diff of all lines of a text with more bytes is longer than that."""

_MIB = 1024 * 1024


def large_blob(size: int, limit: int) -> str | None:
    """Describe the size of a blob over the limit, or over half of it.

    Returns None for a smaller one.
    """
    if size > limit:
        return f"{_mib(size)} as text, over the limit of {_mib(limit)} for a blob"
    if 2 * size > limit:
        return f"{_mib(size)} as text, limit {_mib(limit)} per blob"
    return None


def max_blob(repo: Repository) -> int:
    """Return the configured limit of a blob, in bytes."""
    return repo.config.size(MAX_BLOB_KEY, MAX_FORGE_BLOB)


def _mib(size: int) -> str:
    return f"{size / _MIB:.3g} MiB"


DEFAULT_THRESHOLD = 512 * 1024 * 1024
"""Git's own core.bigFileThreshold."""
MAX_DELTA_TEXT = 4 * 1024 * 1024 * 1024
"""Offsets in git's deltas have 32 bits, so the part of a text beyond this gets no delta."""

REPACK_UNBOUND = 25
"""Texts that a thread of `git repack` holds in memory without pack.windowMemory."""
REPACK_LEAST = 5
"""Fewest texts that a thread holds in memory if it makes deltas at all."""
FULL_WINDOW = 4
"""Texts in a window with which packs are as small as without a bound."""
CHECKOUT_TEXTS = 2
"""Texts' worth of memory that `git checkout` takes: the blob, and what smudge makes of it."""
DETACHED_PART = 400
"""A detached text has about one part in this many of its file's bytes."""
DIFF_TEXTS = 5
"""Texts' worth of memory that `git diff --no-ext-diff` takes."""

_UNITS = ((1024 * _MIB, "g"), (_MIB, "m"), (1024, "k"))


@dataclass(frozen=True, slots=True)
class Machine:
    """What git has on this machine: bytes of memory, and processors."""

    memory: int
    cores: int


@dataclass(frozen=True, slots=True)
class TextSize:
    """The size of a tracked file in bytes as text, as it is staged or would be.

    `binary` is the size of the file in the work tree, 0 if there is none. `detached` tells whether
    the text is a detached one.
    """

    path: bytes
    text: int
    binary: int
    detached: bool = False

    @property
    def checkout_memory(self) -> int:
        """Bytes of memory that git needs to check it out: the blob, and what smudge makes of it."""
        return self.text + self.binary if self.detached else CHECKOUT_TEXTS * self.text


@dataclass(frozen=True, slots=True)
class BlobSettings:
    """Git's settings for large blobs.

    `threshold` is the largest blob, in bytes, of which git makes deltas. `window` is the memory of
    a thread's window in bytes, 0 if unbounded.
    """

    threshold: int
    window: int
    threads: int


def machine() -> Machine:
    """Return the memory and the processors of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(memory, max(1, os.sysconf("SC_NPROCESSORS_ONLN")))


def settings(repo: Repository, hardware: Machine) -> BlobSettings:
    """Return the settings that git uses in a repository."""
    threshold = repo.config.size(BIG_FILE_THRESHOLD, DEFAULT_THRESHOLD)
    window = repo.config.size(WINDOW_MEMORY, 0)
    return BlobSettings(threshold, window, repo.config.size(THREADS, 0) or hardware.cores)


def text_sizes(repo: Repository, entries: Iterable[TreeEntry]) -> list[TextSize]:
    """Return the sizes of tracked files, largest text first.

    `entries` are those of the index that go through the filter; files that `git add` would add are
    found here.
    """
    present = [entry for entry in entries if not entry.skipped]
    stored = blobs.sizes(repo, {entry.oid for entry in present}) if present else {}
    texts: dict[bytes, int] = {}
    for entry in present:
        texts[entry.path] = max(texts.get(entry.path, 0), stored[entry.oid])
    # Files that git add would add are included: after the commit it is too late.
    others = index.untracked_paths(repo)
    drivers = repo.attributes([*others, *texts], ("filter",))
    texts.update((path, 0) for path in others if drivers[path]["filter"] in FILTERS)
    sizes = [
        _size(repo, path, text, detached=drivers[path]["filter"] == DETACHED_DRIVER)
        for path, text in texts.items()
    ]
    return sorted(sizes, key=lambda size: (-size.text, size.path))


def suited(sizes: Sequence[TextSize], now: BlobSettings, hardware: Machine) -> BlobSettings:
    """Choose settings with which git can pack these texts in the memory of this machine.

    Existing values are kept if they suffice. Deltas are made of those texts for which a thread has
    enough memory.
    """
    limit = min(hardware.memory // REPACK_LEAST, MAX_DELTA_TEXT)
    threshold = now.threshold
    largest_wanted = max((size.text for size in sizes if size.text <= limit), default=0)
    if largest_wanted > threshold:
        # With room to grow: a larger version would otherwise be stored whole again.
        threshold = min(next_power(largest_wanted), max(largest_wanted, limit // _MIB * _MIB))
    largest = max((size.text for size in sizes if size.text <= threshold), default=0)
    room = hardware.memory // 2
    # Somebody has set a bound, or none is needed.
    if now.window or REPACK_UNBOUND * largest * now.threads <= room:
        return BlobSettings(threshold, now.window, now.threads)
    # Fewer threads rather than smaller windows: a window smaller than its text finds no delta at
    # all.
    threads = min(now.threads, max(1, room // (REPACK_LEAST * largest)))
    spare = room // threads - (REPACK_LEAST - 1) * largest
    window = min(max(spare, largest), FULL_WINDOW * largest)
    return BlobSettings(threshold, -(-window // _MIB) * _MIB, threads)


def tune(repo: Repository, entries: Iterable[TreeEntry]) -> list[str]:
    """Set the values that suit a repository in its config; return a line for each that was set."""
    hardware = machine()
    now = settings(repo, hardware)
    values = changes(now, suited(text_sizes(repo, entries), now, hardware))
    set_values(values, cwd=repo.home)
    return [f"set {key} to {value} for this repository" for key, value in values.items()]


def changes(now: BlobSettings, suited: BlobSettings) -> dict[str, str]:
    """Return the keys whose values differ, with the suited values as git spells them."""
    pairs = (
        (BIG_FILE_THRESHOLD, now.threshold, suited.threshold, spelled),
        (WINDOW_MEMORY, now.window, suited.window, spelled),
        (THREADS, now.threads, suited.threads, str),
    )
    return {key: spell(new) for key, old, new, spell in pairs if new != old}


def spelled(size: int) -> str:
    """Spell a number of bytes exactly, as git does: 2g, 1536m."""
    for unit, letter in _UNITS:
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def human(size: int) -> str:
    """Spell a number of bytes for people: 368 MiB, 1.5 GiB."""
    if size >= 1024 * _MIB:
        return f"{size / (1024 * _MIB):.3g} GiB"
    return f"{size // _MIB} MiB" if size >= _MIB else f"{size} bytes"


def _size(repo: Repository, path: bytes, blob: int, *, detached: bool) -> TextSize:
    binary = work_tree.file_size(repo.file(path)) or 0
    if detached:
        return TextSize(path, max(blob, binary // DETACHED_PART), binary, detached=True)
    # A file that is larger than its text was changed since it was staged.
    return TextSize(path, text_size(binary) if binary > blob else blob, binary)


def next_power(size: int) -> int:
    """Return the power of two above one and a half times the size."""
    return 1 << (size + size // 2).bit_length()


BIG_FILE_THRESHOLD = "core.bigFileThreshold"
WINDOW_MEMORY = "pack.windowMemory"
THREADS = "pack.threads"
TUNED = (BIG_FILE_THRESHOLD, WINDOW_MEMORY, THREADS)

_SCOPE = "local"


def set_values(values: Mapping[str, str], *, cwd: Path) -> None:
    """Set keys of TUNED in the repository's config, and note their earlier values."""
    for key, value in values.items():
        present = values_in(key, scope=_SCOPE, cwd=cwd)
        # "before" is the value before the first change, not one that we set later.
        if present != _noted(key, "set", cwd):
            _set_only(_note(key, "before"), present, cwd)
        _set_only(_note(key, "set"), [value], cwd)
        _set_only(key, [value], cwd)


def restore_values(*, cwd: Path) -> tuple[str, ...]:
    """Restore the values before `tune`; return the keys that were restored."""
    restored = []
    for key in TUNED:
        noted = _noted(key, "set", cwd)
        if not noted:
            continue
        # A value that somebody set later is theirs, and stays.
        if values_in(key, scope=_SCOPE, cwd=cwd) == noted:
            _set_only(key, _noted(key, "before", cwd), cwd)
            restored.append(key)
        for note in ("set", "before"):
            _set_only(_note(key, note), [], cwd)
    return tuple(restored)


def _note(key: str, name: str) -> str:
    return f"wtxtgit.{key}.{name}"


def _noted(key: str, name: str, cwd: Path) -> list[str]:
    return values_in(_note(key, name), scope=_SCOPE, cwd=cwd)


def _set_only(key: str, values: list[str], cwd: Path) -> None:
    """Make these the only values of a key in the repository's config."""
    if values_in(key, scope=_SCOPE, cwd=cwd):
        change_config(_SCOPE, "--unset-all", key, cwd=cwd)
    for value in values:
        change_config(_SCOPE, "--add", key, value, cwd=cwd)
