"""A command tried under a fault of the system, and what has to hold of it.

`FAULTS` is the table of faults. Of each command it is known what it does without one; under a
fault it does the same, or ends with exit code 5 and one line that names what is lacking.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.faults.world import COMMANDS, Call, World, make
from tests.kit import text_of
from tests.kit.refusals import REFUSED, refuse

_PATIENCE = 120
_LIKE = re.compile(rb"20\d\d-\d\d-\d\dT[\d:]+Z|[0-9a-f]{8,64}|SHA256:\S+|\d+(\.\d+)? ?m?s\b")
"""What differs from run to run: times, keys and what is signed."""


def _limit(kind: int, soft: int) -> None:
    if kind == resource.RLIMIT_FSIZE:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))


@dataclass(frozen=True)
class Fault:
    """What the system refuses: by the environment, by limits, or as another standard output.

    `read_only` folders of the world, and all in them, have no permission to write.
    """

    env: dict[str, str] = field(default_factory=dict)
    limit: Callable[[], None] | None = None
    stdout: str | None = None
    read_only: tuple[str, ...] = ()


_NO_RIGHTS = {"env": {REFUSED: "rights"}, "limit": partial(refuse, "rights")}
"""Without which root writes what it likes."""


_REPOSITORIES = ("repo", "staged", "merging", "detached", "lacking", "raw")
FAULTS = {
    "no threads": Fault({REFUSED: "threads"}),
    **{f"{more} MiB": Fault({REFUSED: f"memory:{more}"}) for more in (1, 2, 4, 8, 16)},
    "8 MiB, no threads": Fault({REFUSED: "threads memory:8"}),
    **{
        f"{count} descriptors": Fault(limit=partial(_limit, resource.RLIMIT_NOFILE, count))
        for count in (4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24, 32)
    },
    **{
        f"files of {size} bytes": Fault(limit=partial(_limit, resource.RLIMIT_FSIZE, size))
        for size in (0, 100, 4096, 65536)
    },
    "a full disk behind standard output": Fault(stdout="/dev/full"),
    "a read-only repository": Fault(**_NO_RIGHTS, read_only=_REPOSITORIES),
    "a read-only home": Fault(**_NO_RIGHTS, read_only=("home",)),
    "nothing can be written": Fault(**_NO_RIGHTS, read_only=(".",)),
}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: bytes
    err: str
    files: dict[str, bytes]
    staged: bytes
    left: list[str]


class Trials:
    """Trials of commands in copies of one world; `folder` is for them alone."""

    def __init__(self, folder: Path) -> None:
        self._template = folder / "template"
        self._copy = folder / "copy"
        self._usual: dict[str, Outcome] = {}
        make(self._template)
        self._before = World(self._template).files

    def usual(self, name: str) -> Outcome:
        """What a command does where nothing is wrong."""
        if name not in self._usual:
            self._usual[name] = self._run(COMMANDS[name], Fault())
        return self._usual[name]

    def run(self, name: str, fault: str) -> str:
        """Try a command; gives the outcome in a word or two. Raises AssertionError for all else."""
        call = COMMANDS[name]
        usual, found = self.usual(name), self._run(call, FAULTS[fault])
        told = (name, fault, found.code, found.out[-400:], found.err)
        for word in ("Traceback", "this is a bug", "panicked", "Error:", "Exception", "Failure"):
            assert word not in found.err, told
        # Git itself leaves half of what it could not write, and has taken a file away before it
        # finds that it can't start a filter.
        is_gits = fault.startswith("files of ") or "error: cannot fork to run" in found.err
        if not (call.by_git and is_gits):
            self._check_files(usual, found, told)
        if "left as text" in found.err:
            return "left as text"
        # What it finds wrong is the fault.
        if call.finds and found.code == 1:
            return "found"
        if found.code == usual.code:
            if FAULTS[fault].stdout is None:
                assert alike(found.out) == alike(usual.out), told
            if not call.by_git:
                assert alike_files(found.files) == alike_files(usual.files), told
                assert len(found.staged) == len(usual.staged), told
            return "as usual"
        if call.by_git:
            # Git's own words and code, after ours or for want of something itself.
            assert found.code in (1, 5, 128, 255), told
            return "refused"
        assert found.code == 5, told
        lines = found.err.splitlines()
        errors = [line for line in lines if line.startswith("wtxtgit: error: ")]
        assert len(errors) == 1, told
        assert all(re.match("wtxtgit: (error|hint|warning|note): ", line) for line in lines), told
        assert usual.out.startswith(found.out) or not found.out, told
        return "refused"

    def _check_files(self, usual: Outcome, found: Outcome, told: object) -> None:
        """Every file is as it was before or as it is usually afterwards; nothing else is there."""
        assert found.left == [], (found.left, told)
        for path, content in found.files.items():
            wanted = {alike(one.get(path, b"")) for one in (self._before, usual.files)}
            # A checkout goes on, and says of which file it could not be made of its text.
            if f"{Path(path).name}: " in found.err and "left as text" in found.err:
                wanted.add(alike(text_of(usual.files[path])))
            assert path in self._before or path in usual.files, (path, told)
            if Path(path).name == "wal" and found.code == 1:
                continue  # A ring's log tells of tries that failed, too.
            assert alike(content) in wanted, (path, told)
        for path in self._before:
            assert path in found.files or path not in usual.files, (path, told)

    def _run(self, call: Call, fault: Fault) -> Outcome:
        if self._copy.exists():
            shutil.rmtree(self._copy)
        shutil.copytree(self._template, self._copy, symlinks=True)
        world = World(self._copy)
        with _opened(fault.stdout) as stdout, _read_only(self._copy, fault.read_only):
            process = world.start(call, fault.env, stdout=stdout, preexec_fn=fault.limit)
            out, err = process.communicate(timeout=_PATIENCE)
        return Outcome(
            process.returncode,
            out or b"",
            err.decode("utf-8", "replace"),
            world.files,
            world.staged(call.folder),
            world.left_behind(),
        )


def chosen(most: int | None = None) -> list[tuple[str, str]]:
    """Commands and faults: all, or `most` of them, the same each time."""
    every = [(name, fault) for name in COMMANDS for fault in FAULTS]
    return every if most is None else random.Random(1).sample(every, min(most, len(every)))  # noqa: S311


def alike(content: bytes) -> bytes:
    """A content without what differs from run to run; of a ledger its first line."""
    if content.startswith((b"WLEDGER", b"-----BEGIN", b"ssh-")):
        return content.partition(b"\n")[0].split()[0]
    return _LIKE.sub(b"#", content) if len(content) < 100_000 else content


def alike_files(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same of all files."""
    return {path: alike(content) for path, content in files.items()}


@contextmanager
def _read_only(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """Take the permission to write from folders and all that is in them."""
    modes = {}
    for name in names:
        for path in (folder / name, *(folder / name).rglob("*")):
            if not path.is_symlink():
                modes[path] = path.stat().st_mode
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


@contextmanager
def _opened(path: str | None) -> Iterator[int]:
    if path is None:
        yield subprocess.PIPE
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
