"""Git's own lock files, and which of them no process can hold any more.

Git makes `FILE.lock` before it writes FILE, and a killed git leaves it. A lock may be removed only
if it is certain that nobody holds it: it belongs to this user, no process has it open, and no git
that works in this repository has been running since before it was made (git closes some locks while
it holds them, as while the user edits a commit message). A system without /proc can't tell that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wtxtgit.git import index_file
from wtxtgit.git.held import is_ours
from wtxtgit.git.repository import Repository
from wtxtgit.git.work_tree import work_trees
from wtxtgit.io import clock
from wtxtgit.io.temporary import looked_at

_FOLDERS = frozenset(("refs", "logs", "info", "objects", "worktrees", "reftable"))
"""Those of a git folder's own in which git makes locks: gitrepository-layout(5)."""
_IN_OBJECTS = frozenset(("info", "pack"))
_OWN = re.compile(
    r"(?:index|config|config\.worktree|packed-refs|shallow|gc\.pid|next-index-[0-9]+|[A-Z_]+)\.lock"
)
"""Locks beside HEAD: those of other names there may be other tools'."""
_PROCESSES = Path("/proc")
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", -1)
_START = 19
"""The field of /proc/PID/stat, counted from the state on, with the start in ticks: proc(5)."""
_SLACK = 1.0
"""Seconds by which a process that was started later counts as older: the clock may be set."""
_GIT_DIR = re.compile(rb"(?:^|\0)(?:GIT_DIR|--git-dir|--work-tree)=([^\0]+)")
_Identity = tuple[int, int]
"""Device and inode of a file."""


class Lock(NamedTuple):
    """A lock of git's: its age in seconds, and the processes that may hold it.

    `holders` is None if nobody can tell.
    """

    path: Path
    seconds: float
    holders: tuple[int, ...] | None

    @property
    def is_left_behind(self) -> bool:
        return self.holders == ()


class _Process(NamedTuple):
    pid: int
    started: float
    is_git: bool
    opened: frozenset[_Identity]


def find(repo: Repository) -> list[Lock]:
    """List git's locks in all parts of a repository, its linked worktrees included."""
    files = sorted(set(_files(repo)))
    processes = _processes(repo) if files else None
    return [lock for file in files if (lock := _lock(file, processes)) is not None]


def remove(repo: Repository) -> list[Path]:
    """Remove the locks that nobody holds; return their paths."""
    removed = []
    for lock in find(repo):
        with contextlib.suppress(OSError), _unopened(lock.path) as status:
            # By now it may be another file of that name.
            is_same = status is not None and os.path.samestat(status, lock.path.lstat())
            if lock.is_left_behind and is_same:
                lock.path.unlink()
                removed.append(lock.path)
    return removed


def _files(repo: Repository) -> Iterator[Path]:
    yield index_file.lock_path(repo)
    top = str(repo.common_dir)
    for folder, folders, names in os.walk(top):
        inside = Path(folder).relative_to(top).parts
        is_git_dir = not inside or (inside[0] == "worktrees" and len(inside) > 1 and not inside[2:])
        if is_git_dir:
            folders[:] = _FOLDERS.intersection(folders)
        elif inside == ("objects",):
            folders[:] = _IN_OBJECTS.intersection(folders)
        for name in names:
            if name.endswith(".lock") and (not is_git_dir or _OWN.fullmatch(name)):
                yield Path(folder, name)


def _lock(file: Path, processes: list[_Process] | None) -> Lock | None:
    """Return what is known of a lock; None if there is none, or one of ours."""
    try:
        status = file.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or is_ours(file):
        return None
    age = max(0.0, clock.now() - status.st_mtime)
    # Another user's processes need not be visible.
    if processes is None or status.st_uid != os.geteuid():
        return Lock(file, age, None)
    identity = (status.st_dev, status.st_ino)
    holders = tuple(
        one.pid
        for one in processes
        if identity in one.opened or (one.is_git and one.started < status.st_mtime + _SLACK)
    )
    with _unopened(file) as unopened:
        # A process that is not visible here, as in another container, has it open.
        return Lock(file, age, None if not holders and unopened is None else holders)


@contextlib.contextmanager
def _unopened(file: Path) -> Iterator[os.stat_result | None]:
    """Yield a file's stat result if the system knows of no process that has it open, else None."""
    with looked_at(file) as descriptor:
        is_free = descriptor is not None and _takes_lease(descriptor)
        yield os.fstat(descriptor) if descriptor is not None and is_free else None


def _takes_lease(descriptor: int) -> bool:
    """Tell whether the system would promise to ask this process before anybody opens the file.

    It does so only for a file that nobody else has open: fcntl(2), F_SETLEASE.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return False
    # On a file system without leases the visible processes have to do.
    except (OSError, AttributeError):
        return True
    return True


def _processes(repo: Repository) -> list[_Process] | None:
    """List this user's processes; None if the system does not show them."""
    places = {os.path.realpath(os.fsdecode(tree[b"worktree"])) for tree in work_trees(repo)}
    places |= {os.path.realpath(repo.common_dir), os.path.realpath(repo.git_dir)}
    found = []
    try:
        pids = [entry for entry in _PROCESSES.iterdir() if entry.name.isdecimal()]
        now, since_boot = clock.now(), time.clock_gettime(_BOOT_CLOCK)
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    for process in pids:
        # It may end at any moment, or belong to somebody else.
        with contextlib.suppress(OSError):
            if process.stat().st_uid != os.geteuid() or int(process.name) == os.getpid():
                continue
            name, _, rest = (process / "stat").read_bytes().rpartition(b")")
            started = now - since_boot + int(rest.split()[_START]) / ticks
            is_git = name.partition(b"(")[2].startswith(b"git") and _works_in(process, places)
            found.append(_Process(int(process.name), started, is_git, _opened(process)))
    return found if any(pid.name == str(os.getpid()) for pid in pids) else None


def _opened(process: Path) -> frozenset[_Identity]:
    """Return the files that a process has open."""
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                status = descriptor.stat()
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def _works_in(process: Path, places: set[str]) -> bool:
    """Tell whether a git works in one of these folders, by where it runs and what it was told."""
    here = os.fsencode((process / "cwd").readlink())
    told = (process / "environ").read_bytes() + b"\0" + (process / "cmdline").read_bytes()
    for path in (here, *(os.path.join(here, word) for word in _GIT_DIR.findall(told))):  # noqa: PTH118
        real = os.path.realpath(os.fsdecode(path))
        if any(real == place or real.startswith(place.rstrip("/") + "/") for place in places):
            return True
    return False
