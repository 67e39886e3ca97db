"""How time grows: each of files, commits, versions, packs, tensors and refs doubled in turn.

CPU seconds of a command and all that it starts, the least of some runs: those grow with the work
alone, whatever else the machine does. The time at a count of one is what each run takes, such as
its start. Without it, t at n and at 4n, the exponent is log4(t(4n) / t(n)).
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from bench.audit import git, sealed_history
from bench.measure import WTXTGIT, BenchError, Place, Row

MOST = 1.1
_FLAT = 0.25
"""What takes at most so much longer, as a share, for 4n than for one is flat."""
_ROWS, _COLUMNS = 160, 256
"""Of a small checkpoint: 160 KiB of float32, which is detached where that is asked for."""

Took = Iterator[tuple[str, float]]


@dataclass(frozen=True)
class Ground:
    """A scratch repository with hooks, whose detached checkpoints have a remote to go to."""

    place: Place
    path: Path

    @classmethod
    def made(cls, place: Place, *track: str) -> Ground:
        """A new one, in which `track` says what is tracked, and how."""
        ground = cls(place, place.top / "ground")
        ground.remove()
        ground.run("git", "init", "-q", "-b", "main", str(ground.path), cwd=place.top)
        ground.run("git", "init", "-q", "--bare", str(ground.remote))
        ground.run("git", "remote", "add", "origin", str(ground.remote))
        ground.run(*WTXTGIT, "install", "--local", "--hooks")
        ground.run(*WTXTGIT, "track", *track)
        ground.run("git", "add", "-A")
        ground.run("git", "commit", "-q", "-m", "track")
        return ground

    @property
    def remote(self) -> Path:
        return self.path.with_name("remote.git")

    def remove(self) -> None:
        for path in (self.path, self.remote, self.place.top / "home/.config"):
            shutil.rmtree(path, ignore_errors=True)

    def run(self, *argv: str, cwd: Path | None = None) -> float:
        """CPU seconds of a command, which has to end well, and of all that it waits for."""
        with subprocess.Popen(
            argv,
            cwd=cwd or self.path,
            env=self.place.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stderr is not None  # noqa: S101
            said = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise BenchError(f"{' '.join(argv)} ended with {process.returncode}: {said.decode()}")
        return usage.ru_utime + usage.ru_stime

    def write(self, name: str, seed: int, tensors: int = 1) -> None:
        """A small checkpoint, other values for each seed."""
        chance = np.random.default_rng(seed)
        shape = (_ROWS, _COLUMNS) if tensors == 1 else (4, 4)
        arrays = {f"w{n}": chance.standard_normal(shape, np.float32) for n in range(tensors)}
        (self.path / name).write_bytes(save(arrays))

    def timed(self, *argv: str) -> tuple[str, float]:
        """A command by the words that tell it from others, and its seconds."""
        program = WTXTGIT if argv[0] == "wtxtgit" else ("git",)
        return " ".join(argv), self.run(*program, *argv[1:])


def _files(place: Place, count: int, *how: str) -> Took:
    ground = Ground.made(place, *how, "*.safetensors")
    for number in range(count):
        ground.write(f"{number}.safetensors", number)
    yield ground.timed("git", "add", "-A")
    yield ground.timed("wtxtgit", "check", "--staged")
    yield ground.timed("git", "commit", "-q", "-m", "files")
    for path in ground.path.glob("*.safetensors"):
        os.utime(path, ns=(1, 1))
    yield ground.timed("git", "status")
    yield ground.timed("wtxtgit", "status")
    yield ground.timed("git", "push", "-q", "-u", "origin", "main")
    for path in ground.path.glob("*.safetensors"):
        path.unlink()
    yield ground.timed("git", "checkout", "-q", ".")
    for path in ground.path.glob("*.safetensors"):
        path.unlink()
    yield ground.timed("wtxtgit", "checkout")
    shutil.rmtree(ground.path / ".git/wtxt", ignore_errors=True)
    yield ground.timed("wtxtgit", "fetch")
    for number in range(count):
        ground.write(f"{number}.safetensors", count + number)
    yield ground.timed("wtxtgit", "add", "-A")


def _detached_files(place: Place, count: int) -> Took:
    yield from _files(place, count, "--detached")


def _commits(place: Place, count: int) -> Took:
    """Sealed commits of ten checkpoints."""
    yield from _history(place, count, 10)


def _versions(place: Place, count: int) -> Took:
    """Sealed commits of one checkpoint."""
    yield from _history(place, count, 1)


def _history(place: Place, count: int, files: int) -> Took:
    path = place.top / "ground"
    ground = Ground(place, path)
    ground.remove()
    root = sealed_history(place, path, count, files, 1)
    ground.run("git", "config", "wtxtgit.trustRoot", root)
    ground.run("git", "reset", "-q", "--hard", "main")
    name = "model0.safetensors"
    yield ground.timed("wtxtgit", "audit", "--no-cache")
    yield ground.timed("wtxtgit", "audit")
    yield ground.timed("wtxtgit", "history", name)
    yield ground.timed("wtxtgit", "log", name)
    yield ground.timed("wtxtgit", "review", "HEAD~1..HEAD")
    yield ground.timed("wtxtgit", "status")
    yield ground.timed("wtxtgit", "doctor")
    ground.write(name, 1)
    yield ground.timed("wtxtgit", "add", name)
    yield ground.timed("wtxtgit", "seal", "--staged", "--key", path.name)
    yield ground.timed("wtxtgit", "check", "--staged")
    ground.run("git", "commit", "-q", "-m", "next")
    yield ground.timed("wtxtgit", "migrate", "export", "--dry-run", "--everything")


def _packs(place: Place, count: int) -> Took:
    """Detached versions of a checkpoint, each added by a command of its own."""
    ground = Ground.made(place, "--detached", "*.safetensors")
    for number in range(count):
        ground.write("m.safetensors", number)
        ground.run("git", "add", "m.safetensors")
        ground.run("git", "commit", "-q", "--no-verify", "-m", "version")
    yield ground.timed("wtxtgit", "store", "ls")
    yield ground.timed("wtxtgit", "store", "verify")
    yield ground.timed("git", "push", "-q", "-u", "origin", "main")
    yield ground.timed("git", "checkout", "-q", "HEAD~1")
    yield ground.timed("git", "checkout", "-q", "main")
    yield ground.timed("wtxtgit", "history", "m.safetensors")
    yield ground.timed("wtxtgit", "store", "prune", "--remote")
    yield ground.timed("wtxtgit", "store", "prune", "--dry-run")
    shutil.rmtree(ground.path / ".git/wtxt")
    every = git(place, ground.path, "rev-list", "main").decode().split()
    yield "wtxtgit fetch of every commit", ground.run(*WTXTGIT, "fetch", *every[:-1])
    yield ground.timed("wtxtgit", "store", "repack")


def _tensors(place: Place, count: int) -> Took:
    ground = Ground.made(place, "*.safetensors")
    name = "m.safetensors"
    ground.write(name, 1, count)
    yield ground.timed("git", "add", name)
    ground.run("git", "commit", "-q", "-m", "tensors")
    ground.write(name, 2, count)
    yield ground.timed("git", "diff")
    yield ground.timed("wtxtgit", "diff", name)
    ground.run("git", "commit", "-qam", "more")
    yield ground.timed("wtxtgit", "review", "HEAD~1..HEAD")
    yield ground.timed("wtxtgit", "verify", name)
    yield ground.timed("wtxtgit", "inspect", name)
    yield ground.timed("wtxtgit", "history", name)
    yield ground.timed("wtxtgit", "convert", name, "../m.npz")
    yield ground.timed("wtxtgit", "delta", "make", "HEAD~1:" + name, name, "-o", "../m.delta")
    (ground.path / name).unlink()
    yield ground.timed("git", "checkout", "-q", name)


def _refs(place: Place, count: int) -> Took:
    """Branches of one commit each, with a detached checkpoint that all share."""
    ground = Ground.made(place, "--detached", "*.safetensors")
    ground.write("m.safetensors", 1)
    ground.run("git", "add", "-A")
    ground.run("git", "commit", "-q", "-m", "first")
    about = "committer A <a@example.com> 1700000000 +0000\ndata 0\n"
    stream = "".join(
        f"commit refs/heads/b{n}\n{about}from refs/heads/main^0\nM 644 inline {n}\ndata 0\n\n"
        for n in range(count)
    )
    git(place, ground.path, "fast-import", "--quiet", stdin=stream.encode())
    yield ground.timed("git", "push", "-q", "--all", "origin")
    branches = [f"b{n}" for n in range(count)]
    yield "wtxtgit push of every branch", ground.run(*WTXTGIT, "push", "origin", *branches)
    yield "wtxtgit fetch of every branch", ground.run(*WTXTGIT, "fetch", *branches)
    yield ground.timed("wtxtgit", "store", "prune", "--dry-run")
    yield ground.timed("wtxtgit", "store", "prune", "--remote")
    yield ground.timed("wtxtgit", "audit", "--all")
    yield ground.timed("wtxtgit", "status")
    yield ground.timed("wtxtgit", "doctor")


_AXES: dict[str, tuple[int, Callable[[Place, int], Took]]] = {
    "files": (250, _files),
    "detached files": (250, _detached_files),
    "commits": (500, _commits),
    "versions": (250, _versions),
    "packs": (50, _packs),
    "tensors": (2500, _tensors),
    "refs": (500, _refs),
}
"""What is doubled, with the least count."""


def doublings(place: Place, runs: int) -> list[Row]:
    """Each command at several counts of each thing, with its exponent."""
    return [row for axis in _AXES for row in doubling(place, axis, runs)]


def doubling(place: Place, axis: str, runs: int) -> list[Row]:
    """Each command at a count of one, and at n, 2n and 4n, of one thing."""
    least, take = _AXES[axis]
    taken: dict[str, dict[int, float]] = {}
    for count in (1, least, 2 * least, 4 * least):
        for name, seconds in (step for _ in range(runs) for step in take(place, count)):
            times = taken.setdefault(name, {})
            times[count] = min(seconds, times.get(count, seconds))
    return [_row(f"{axis}: {name}", times) for name, times in taken.items()]


def _row(name: str, times: dict[int, float]) -> Row:
    told = ", ".join(f"{count}: {seconds:.2f} s" for count, seconds in times.items())
    one, first, _, last = times.values()
    longest = max(times.values())
    note = f"{told}; {growth(one, first, last)}"
    return Row(name, tuple(times.values()), one, longest, None, None, None, (), note)


def growth(one: float, first: float, last: float) -> str:
    """The exponent of what grows, and whether it is met: seconds at one, at n and at 4n."""
    if last - one <= _FLAT * one:
        return "flat"
    if first <= one:
        return "too noisy to tell"
    exponent = math.log((last - one) / (first - one), 4)
    return f"exponent {exponent:.2f} (at most {MOST}: {'met' if exponent <= MOST else 'missed'})"
