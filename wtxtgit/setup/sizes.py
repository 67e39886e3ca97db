"""Large texts: how large tracked files are for git, and the settings that suit them.

What git needs was measured with git 2.39.5 (`docs/git.md`, "Limits"), in
multiples of the largest text: repacking twelve versions holds 25 of them a
thread, and less with a bound on the window, down to 5. With a window of four
the pack is as small as without a bound, with a window of one it is half as
large again, and without deltas ten times as large.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wtxtgit.git import attributes, config, index, tuning
from wtxtgit.git.index import Entry
from wtxtgit.git.repository import Repository
from wtxtgit.text.blocking import text_size

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
DIFF_TEXTS = 5
"""Texts' worth of memory that `git diff --no-ext-diff` takes."""

_MIB = 1024 * 1024
_UNITS = ((1024 * _MIB, "g"), (_MIB, "m"), (1024, "k"))


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes of memory and number of processors that git has here."""

    memory: int
    cores: int


@dataclass(frozen=True, slots=True)
class TextSize:
    """A tracked file's size in bytes as text, as it is staged or would be.

    `binary` is the size of the file in the work tree, 0 where there is none.
    """

    path: bytes
    text: int
    binary: int


@dataclass(frozen=True, slots=True)
class Settings:
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


def settings(repo: Repository, here: Machine) -> Settings:
    """Read the settings that git obeys in a repository."""
    threshold = config.size(tuning.BIG_FILE_THRESHOLD, DEFAULT_THRESHOLD, cwd=repo.home)
    window = config.size(tuning.WINDOW_MEMORY, 0, cwd=repo.home)
    threads = config.size(tuning.THREADS, 0, cwd=repo.home)
    return Settings(threshold, window, threads or here.cores)


def text_sizes(repo: Repository, entries: Iterable[Entry]) -> list[TextSize]:
    """Find the sizes of tracked files, largest text first.

    `entries` are those of the index that go through the filter; files that
    `git add` would take up are looked for here.
    """
    present = [entry for entry in entries if not entry.skipped]
    blobs = index.blob_sizes(repo, {entry.oid for entry in present}) if present else {}
    texts: dict[bytes, int] = {}
    for entry in present:
        texts[entry.path] = max(texts.get(entry.path, 0), blobs[entry.oid])
    others = index.untracked_paths(repo)
    names = attributes.effective(repo, others, ("filter",))
    driver = config.DRIVER.encode()
    texts.update((path, 0) for path in others if names[path]["filter"] == driver)
    found = [_size(repo, path, text) for path, text in texts.items()]
    return sorted(found, key=lambda size: (-size.text, size.path))


def suited(sizes: Sequence[TextSize], now: Settings, here: Machine) -> Settings:
    """Choose settings with which git packs these texts in the memory that is here.

    What is set stays as far as it does; deltas are for texts of which a
    thread can hold what it needs.
    """
    most = min(here.memory // REPACK_LEAST, MAX_DELTA_TEXT)
    threshold = now.threshold
    wanted = max((size.text for size in sizes if size.text <= most), default=0)
    if wanted > threshold:
        # Room to grow: a larger text would be stored whole again.
        threshold = min(_next_power(wanted), max(wanted, most // _MIB * _MIB))
    largest = max((size.text for size in sizes if size.text <= threshold), default=0)
    room = here.memory // 2
    if now.window or REPACK_UNBOUND * largest * now.threads <= room:
        return Settings(threshold, now.window, now.threads)
    threads = min(now.threads, max(1, room // (REPACK_LEAST * largest)))
    spare = room // threads - (REPACK_LEAST - 1) * largest
    window = min(max(spare, largest), FULL_WINDOW * largest)
    return Settings(threshold, -(-window // _MIB) * _MIB, threads)


def tune(repo: Repository, entries: Iterable[Entry]) -> list[str]:
    """Give a repository's config the settings that suit it; say what was set."""
    here = machine()
    now = settings(repo, here)
    values = changes(now, suited(text_sizes(repo, entries), now, here))
    tuning.tune(values, cwd=repo.home)
    return [f"set {key} to {value} for this repository" for key, value in values.items()]


def changes(now: Settings, wanted: Settings) -> dict[str, str]:
    """The keys whose values differ, with those that are wanted, spelled for git."""
    pairs = (
        (tuning.BIG_FILE_THRESHOLD, now.threshold, wanted.threshold, spelled),
        (tuning.WINDOW_MEMORY, now.window, wanted.window, spelled),
        (tuning.THREADS, now.threads, wanted.threads, str),
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


def _size(repo: Repository, path: bytes, blob: int) -> TextSize:
    binary = index.file_size(repo.file(path)) or 0
    # A file that is larger than its text was changed since it was staged.
    return TextSize(path, text_size(binary) if binary > blob else blob, binary)


def _next_power(size: int) -> int:
    """The power of two above half as much again."""
    return 1 << (size + size // 2).bit_length()
