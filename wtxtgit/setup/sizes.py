"""Large texts: what forges and git take, and the settings of git that suit them.

What git needs was measured with git 2.39.5 (`docs/git.md`, "Limits"), in
multiples of the largest text: repacking twelve versions holds 25 of them a
thread, and less with a bound on the window, down to 5. With a window of four
the pack is as small as without a bound, with a window of one it is half as
large again, and without deltas ten times as large.

Settings are made for one repository, and can be taken back. Beside a value in
the repository's config stands what was set, and what was there before:

    [core]
        bigFileThreshold = 2g
    [wtxtgit "core.bigFileThreshold"]
        set = 2g
        before = 512k

A value that somebody has changed since is theirs, and stays.
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
"""What the big forges take as one blob."""
MAX_BLOB_KEY = "wtxtgit.maxBlob"
MAX_DIFF_LINES = 20_000
"""What forges show at most of a pull request's diff."""
MAX_DIFF_TEXT = MAX_DIFF_LINES * grammar.LINE_TEXT
"""Bytes of text from which on a diff of all its lines is longer than that."""

_MIB = 1024 * 1024


def large_blob(size: int, limit: int) -> str | None:
    """Say of a blob over the limit, or over half of it, how large it is; None of a smaller one."""
    if size > limit:
        return f"{_mib(size)} as text, over the limit of {_mib(limit)} for a blob"
    if 2 * size > limit:
        return f"{_mib(size)} as text, limit {_mib(limit)} per blob"
    return None


def max_blob(repo: Repository) -> int:
    """The most bytes that a blob may have, as configured."""
    return repo.config.size(MAX_BLOB_KEY, MAX_FORGE_BLOB)


def _mib(size: int) -> str:
    return f"{size / _MIB:.3g} MiB"


DEFAULT_THRESHOLD = 512 * 1024 * 1024
"""Git's own core.bigFileThreshold."""
MAX_DELTA_TEXT = 4 * 1024 * 1024 * 1024
"""Offsets in git's deltas have 32 bits: of a longer text the rest finds no base."""

REPACK_UNBOUND = 25
"""Texts that a thread of `git repack` holds without pack.windowMemory."""
REPACK_LEAST = 5
"""Texts that a thread holds at least, and one that makes deltas at all."""
FULL_WINDOW = 4
"""Texts in a window with which packs are as small as without a bound."""
CHECKOUT_TEXTS = 2
"""Texts' worth of memory that `git checkout` takes: the blob, and what smudge makes of it."""
DETACHED_PART = 400
"""A detached text has about this part of its file's bytes."""
DIFF_TEXTS = 5
"""Texts' worth of memory that `git diff --no-ext-diff` takes."""

_UNITS = ((1024 * _MIB, "g"), (_MIB, "m"), (1024, "k"))


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes of memory and number of processors that git has here."""

    memory: int
    cores: int


@dataclass(frozen=True, slots=True)
class TextSize:
    """A tracked file's size in bytes as text, as it is staged or would be.

    `binary` is the size of the file in the work tree, 0 where there is none. The text is a
    detached one where `detached` says so.
    """

    path: bytes
    text: int
    binary: int
    detached: bool = False

    @property
    def held(self) -> int:
        """What git holds of it while it checks it out: the blob, and what smudge makes of it."""
        return self.text + self.binary if self.detached else CHECKOUT_TEXTS * self.text


@dataclass(frozen=True, slots=True)
class BlobSettings:
    """Git's settings for large blobs: bytes of a blob up to which it makes deltas,
    bytes of a thread's window (0 without a bound), and threads.
    """

    threshold: int
    window: int
    threads: int


def machine() -> Machine:
    """Ask how large this machine is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(memory, max(1, os.sysconf("SC_NPROCESSORS_ONLN")))


def settings(repo: Repository, here: Machine) -> BlobSettings:
    """Read the settings that git obeys in a repository."""
    threshold = repo.config.size(BIG_FILE_THRESHOLD, DEFAULT_THRESHOLD)
    window = repo.config.size(WINDOW_MEMORY, 0)
    return BlobSettings(threshold, window, repo.config.size(THREADS, 0) or here.cores)


def text_sizes(repo: Repository, entries: Iterable[TreeEntry]) -> list[TextSize]:
    """Find the sizes of tracked files, largest text first.

    `entries` are those of the index that go through the filter; files that
    `git add` would take up are looked for here.
    """
    present = [entry for entry in entries if not entry.skipped]
    stored = blobs.sizes(repo, {entry.oid for entry in present}) if present else {}
    texts: dict[bytes, int] = {}
    for entry in present:
        texts[entry.path] = max(texts.get(entry.path, 0), stored[entry.oid])
    # What git add would take up is judged as well: after the commit it is too late.
    others = index.untracked_paths(repo)
    drivers = repo.attributes([*others, *texts], ("filter",))
    texts.update((path, 0) for path in others if drivers[path]["filter"] in FILTERS)
    sizes = [
        _size(repo, path, text, detached=drivers[path]["filter"] == DETACHED_DRIVER)
        for path, text in texts.items()
    ]
    return sorted(sizes, key=lambda size: (-size.text, size.path))


def suited(sizes: Sequence[TextSize], now: BlobSettings, here: Machine) -> BlobSettings:
    """Choose settings with which git packs these texts in the memory that is here.

    What is set stays as far as it does; deltas are for texts of which a
    thread can hold what it needs.
    """
    most = min(here.memory // REPACK_LEAST, MAX_DELTA_TEXT)
    threshold = now.threshold
    wanted = max((size.text for size in sizes if size.text <= most), default=0)
    if wanted > threshold:
        # Room to grow: a larger text would be stored whole again.
        threshold = min(next_power(wanted), max(wanted, most // _MIB * _MIB))
    largest = max((size.text for size in sizes if size.text <= threshold), default=0)
    room = here.memory // 2
    # A bound that somebody set, or no need for one.
    if now.window or REPACK_UNBOUND * largest * now.threads <= room:
        return BlobSettings(threshold, now.window, now.threads)
    # Fewer threads before smaller windows: a window below its text finds no delta at all.
    threads = min(now.threads, max(1, room // (REPACK_LEAST * largest)))
    spare = room // threads - (REPACK_LEAST - 1) * largest
    window = min(max(spare, largest), FULL_WINDOW * largest)
    return BlobSettings(threshold, -(-window // _MIB) * _MIB, threads)


def tune(repo: Repository, entries: Iterable[TreeEntry]) -> list[str]:
    """Give a repository's config the settings that suit it; say what was set."""
    here = machine()
    now = settings(repo, here)
    values = changes(now, suited(text_sizes(repo, entries), now, here))
    set_values(values, cwd=repo.home)
    return [f"set {key} to {value} for this repository" for key, value in values.items()]


def changes(now: BlobSettings, wanted: BlobSettings) -> dict[str, str]:
    """The keys whose values differ, with those that are wanted, spelled for git."""
    pairs = (
        (BIG_FILE_THRESHOLD, now.threshold, wanted.threshold, spelled),
        (WINDOW_MEMORY, now.window, wanted.window, spelled),
        (THREADS, now.threads, wanted.threads, str),
    )
    return {key: spell(new) for key, old, new, spell in pairs if new != old}


def spelled(size: int) -> str:
    """Spell a number of bytes as git does, exactly: 2g, 1536m."""
    for unit, letter in _UNITS:
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def told(size: int) -> str:
    """Say a number of bytes to people: 368 MiB, 1.5 GiB."""
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
    """The power of two above half as much again."""
    return 1 << (size + size // 2).bit_length()


BIG_FILE_THRESHOLD = "core.bigFileThreshold"
WINDOW_MEMORY = "pack.windowMemory"
THREADS = "pack.threads"
TUNED = (BIG_FILE_THRESHOLD, WINDOW_MEMORY, THREADS)

_SCOPE = "local"


def set_values(values: Mapping[str, str], *, cwd: Path) -> None:
    """Set keys out of TUNED in the repository's config, and note what was there."""
    for key, value in values.items():
        present = values_in(key, scope=_SCOPE, cwd=cwd)
        # What was there before the first time is kept, not what we set since.
        if present != _noted(key, "set", cwd):
            _put(_note(key, "before"), present, cwd)
        _put(_note(key, "set"), [value], cwd)
        _put(key, [value], cwd)


def put_back(*, cwd: Path) -> tuple[str, ...]:
    """Put back what was there before `tune`; give the keys that were put back."""
    undone = []
    for key in TUNED:
        was_set = _noted(key, "set", cwd)
        if not was_set:
            continue
        # Somebody's later value is theirs, and stays.
        if values_in(key, scope=_SCOPE, cwd=cwd) == was_set:
            _put(key, _noted(key, "before", cwd), cwd)
            undone.append(key)
        for note in ("set", "before"):
            _put(_note(key, note), [], cwd)
    return tuple(undone)


def _note(key: str, name: str) -> str:
    return f"wtxtgit.{key}.{name}"


def _noted(key: str, name: str, cwd: Path) -> list[str]:
    return values_in(_note(key, name), scope=_SCOPE, cwd=cwd)


def _put(key: str, values: list[str], cwd: Path) -> None:
    """Make these all values of a key in the repository's config."""
    if values_in(key, scope=_SCOPE, cwd=cwd):
        change_config(_SCOPE, "--unset-all", key, cwd=cwd)
    for value in values:
        change_config(_SCOPE, "--add", key, value, cwd=cwd)
