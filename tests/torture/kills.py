"""Commands and hooks that write are killed (SIGKILL), and started again.

Each is killed before each call that changes the file system, and at random moments of its run.
Afterwards `git fsck` passes, every file is an old or a new one, ledgers are whole, and what git
would add is nothing else. Then the same command is run again, and ends as if it had not been
killed; nothing of the killed one is left.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit import ATTRIBUTES, safetensors
from tests.torture.processes import (
    WHEN,
    Ended,
    adopt_orphans,
    run_forked,
    wait_for_orphans,
)
from tests.torture.tables import Table
from wtxtgit.git.driver import Launcher
from wtxtgit.io.temporary import NAME
from wtxtgit.text import ledger as text_ledger

MODEL, OTHER = "model.safetensors", "sub/other.safetensors"
OLD, NEW = safetensors(*range(3000)), safetensors(*range(1, 3001))
_CONFIG = """\
[user]
\tname = A
\temail = a@example.com
[init]
\tdefaultBranch = main
[maintenance]
\tauto = false
"""
_PROGRAM = (sys.executable, "-E", "-s", str(Path(__file__).with_name("processes.py")))
"""What git starts: not as one's own program would be, but it is the same code."""
_LEDGER = ".wsum"
_KEY = ("--key", "alice")


@dataclass(frozen=True)
class Place:
    """A home and a repository, in one folder that is copied for each try."""

    top: Path

    @property
    def repo(self) -> Path:
        return self.top / "repo"

    @property
    def env(self) -> dict[str, str]:
        home = str(self.top / "home")
        return {
            "HOME": home, "XDG_CONFIG_HOME": f"{home}/.config",
            "XDG_STATE_HOME": f"{home}/.local/state", "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0", "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }  # fmt: skip

    def git(self, *arguments: str, ok: Sequence[int] | None = (0,), **more: str) -> bytes:
        env = {**os.environ, **self.env, **more}
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=self.repo, env=env, capture_output=True, check=False)
        assert ok is None or done.returncode in ok, (command, done)
        return done.stdout

    def call(self, *arguments: str) -> None:
        ended = run_forked(arguments, self.repo, self.env)
        assert ended.code == 0, (arguments, ended.code)

    def write(self, name: str, content: bytes) -> None:
        file = self.repo / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--no-verify", "-m", "c")

    def files(self) -> dict[str, bytes]:
        """What stands in the work tree and among the keys."""
        folders = (self.repo, self.top / "home/.config")
        return {
            file.relative_to(self.top).as_posix(): file.read_bytes()
            for folder in folders
            for file in folder.rglob("*")
            if file.is_file() and file.relative_to(folder).parts[0] != ".git"
        }

    def state(self) -> tuple[bytes, ...]:
        """The index and what HEAD has."""
        tree = self.git("rev-parse", "-q", "--verify", "HEAD^{tree}", ok=None)
        return self.git("ls-files", "-s", "-z"), tree


@dataclass(frozen=True)
class Killed:
    """A command: what it starts from, and how its end is judged where it differs each time.

    `is_git` commands start what is killed. `healed` are git commands that a user gives before the
    next try; `over` is the code of a run that finds all done. `may_miss` files are git's to write,
    and gone for a moment. `is_random` ends have other bytes each time: files are compared by name,
    and ledgers by their records.
    """

    name: str
    prepare: Callable[[Place], None]
    command: Sequence[str]
    is_git: bool = False
    is_random: bool = False
    may_miss: bool = False
    over: int = 0
    healed: Sequence[Sequence[str]] = ()


def plain(place: Place) -> None:
    """A commit with two checkpoints."""
    place.write(".gitattributes", f"*.safetensors {ATTRIBUTES}\n".encode())
    place.write(MODEL, OLD)
    place.write(OTHER, OLD)
    place.call("add", ".")
    place.commit()


def changed(place: Place) -> None:
    plain(place)
    place.write(MODEL, NEW)
    place.write("new.safetensors", NEW)
    place.write("plain", b"not filtered")


def missing(place: Place) -> None:
    plain(place)
    (place.repo / MODEL).unlink()
    (place.repo / OTHER).write_bytes(place.git("cat-file", "blob", f"HEAD:{OTHER}"))
    place.git("update-index", "-q", "--refresh", ok=None)


def texts(place: Place) -> None:
    changed(place)
    place.call("emit", MODEL, "-o", "model.wtxt")
    place.call("emit", OTHER, "-o", "other.wtxt")


def delta(place: Place) -> None:
    changed(place)
    place.call("delta", "make", OTHER, MODEL, "-o", "change.wtxtdelta")


def keys(place: Place) -> None:
    plain(place)
    for name in ("alice", "bob"):
        place.call("key", "new", "--name", name, "--no-passphrase")


def signers(place: Place) -> None:
    keys(place)
    for name in ("alice", "bob"):
        place.call("signers", "add", f"{name}@example.com", name)
    place.commit()


def unsealed(place: Place) -> None:
    signers(place)
    place.write(MODEL, NEW)
    place.call("add", MODEL)


def sealed(place: Place) -> None:
    unsealed(place)
    place.call("seal", "--staged", *_KEY)
    place.commit()
    place.write(MODEL, OLD)
    place.call("add", MODEL)


def hooked(place: Place) -> None:
    """Sealed and staged, with the hooks."""
    sealed(place)
    place.call("seal", "--staged", *_KEY)
    hook = place.repo / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nexec {' '.join(_PROGRAM)} hook pre-commit\n")
    hook.chmod(0o755)


def branches(place: Place) -> None:
    """Two branches that change rows of one tensor that are far from each other."""
    diverge(place, {"topic": (10, -1.0), "main": (2000, -1.0)})


def conflict(place: Place) -> None:
    """Two branches that change the same row, and their merge."""
    diverge(place, {"topic": (10, -1.0), "main": (10, -2.0)})
    place.git("merge", "-q", "topic", ok=(1,))


def diverge(place: Place, rows: Mapping[str, tuple[int, float]]) -> None:
    plain(place)
    place.git("branch", "base")
    values = list(map(float, range(3000)))
    for branch, (row, value) in rows.items():
        place.git("checkout", "-q", "-B", branch, "base")
        place.write(MODEL, safetensors(*values[:row], value, *values[row + 1 :]))
        place.call("add", MODEL)
        place.commit()


CASES = (
    Killed("add", changed, ("add", ".")),
    Killed("checkout", missing, ("checkout",)),
    Killed("emit -o", texts, ("emit", MODEL, "-o", "other.wtxt")),
    Killed("restore -o", texts, ("restore", "model.wtxt", "-o", OTHER)),
    Killed("recover -o", texts, ("recover", "model.wtxt", "-o", OTHER)),
    Killed("convert", changed, ("convert", MODEL, OTHER)),
    Killed("convert --max-shard", changed,
           ("convert", MODEL, "set.safetensors", "--max-shard", "4KiB")),
    Killed("delta make", delta, ("delta", "make", OTHER, MODEL, "-o", "change.wtxtdelta")),
    Killed("delta apply", delta, ("delta", "apply", OTHER, "change.wtxtdelta", "-o", MODEL)),
    Killed("key new", plain, ("key", "new", "--name", "alice", "--no-passphrase"), is_random=True,
           over=2),
    Killed("signers add", keys, ("signers", "add", "alice@example.com", "alice")),
    Killed("signers remove", signers, ("signers", "remove", "bob@example.com"), over=2),
    Killed("seal", unsealed, ("seal", *_KEY), is_random=True),
    Killed("seal --staged", sealed, ("seal", "--staged", *_KEY), is_random=True),
    Killed("seal --reseal", sealed, ("seal", "--reseal", *_KEY), is_random=True),
    Killed("install --hooks", missing, ("install", "--local", "--hooks")),
    Killed("track", changed, ("track", "*.npz")),
    Killed("resolve", conflict, ("resolve", MODEL, "--strategy", "theirs"), over=3),
    Killed("git add: filter", changed, ("add", "."), is_git=True),
    Killed("git checkout: filter", missing, ("checkout", "-q", "--", "."), is_git=True,
           may_miss=True),
    Killed("git commit: pre-commit", hooked, ("commit", "-q", "-m", "c"), is_git=True,
           is_random=True, over=1),
    Killed("git merge: driver", branches, ("merge", "-q", "--no-edit", "topic"), is_git=True,
           may_miss=True, healed=(("merge", "--abort"), ("reset", "-q", "--hard"))),
)  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """A case's start, and its end where nothing is killed."""

    case: Killed
    start: Place
    end: Place
    ended: Ended
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]


def run(folder: Path, tries: int, seed: int, only: Sequence[str] | None = None) -> Table:
    """Kill each command so often; gives a row a command."""
    adopt_orphans()
    # In the one process from which all are forked.
    import wtxtgit.cli.main  # noqa: F401

    rows: list[tuple[str, ...]] = []
    broken: list[str] = []
    for case in CASES:
        if only and case.name not in only:
            continue
        reference = _reference(case, folder / str(len(rows)))
        count, calls, ended = 0, 0, 0
        for at, call, seconds in _moments(reference, tries, _chance(seed, case)):
            place = Place(folder / "try")
            shutil.copytree(reference.start.top, place.top, symlinks=True)
            outcome = _run(case, place, call, seconds)
            count += 1
            calls += bool(call)
            ended += not outcome.is_killed
            found = list(_wrong(reference, place)) or list(_wrong_again(reference, place))
            broken += [f"{case.name}, killed at {at}: {one}" for one in found]
            shutil.rmtree(place.top)
        rows.append((
            f"`{case.name}`", str(count), str(calls), f"{ended / count:.0%}",
            str(sum(one.startswith(f"{case.name}, ") for one in broken)),
        ))  # fmt: skip
        # It takes long: who waits sees how far it is.
        wrong = [one for one in broken if one.startswith(f"{case.name}, ")]
        print(*rows[-1], *wrong, sep="\n  ", file=sys.stderr, flush=True)
        shutil.rmtree(reference.start.top.parent)
    head = ("command", "tries", "of them at a call", "run had ended", "violations")
    return Table(head, rows, broken)


def _reference(case: Killed, folder: Path) -> Reference:
    start, end = Place(folder / "start"), Place(folder / "end")
    (start.top / "home").mkdir(parents=True)
    start.repo.mkdir()
    (start.top / "home/.gitconfig").write_text(_CONFIG)
    start.git("init", "-q")
    for key, value in Launcher((sys.executable, "-E", "-P", "-m", "wtxtgit")).values().items():
        start.git("config", "--global", key, value)
    case.prepare(start)
    if case.is_git:
        for key, value in Launcher(_PROGRAM).values().items():
            start.git("config", key, value)
    shutil.copytree(start.top, end.top, symlinks=True)
    ended = _run(case, end, 0, None)
    assert ended.code == 0, (case.name, ended.code)
    return Reference(case, start, end, ended, start.files(), end.files())


def _moments(
    reference: Reference, tries: int, chosen: random.Random
) -> Iterator[tuple[str, int, float | None]]:
    """When to kill: at each call, as far as half of the tries reach, and at random times."""
    calls = range(1, reference.ended.calls + 1)
    if len(calls) > tries // 2:
        calls = sorted(chosen.sample(calls, tries // 2))  # type: ignore[assignment]
    for call in calls:
        yield f"call {call} of {reference.ended.calls}", call, None
    for _ in range(tries - len(calls)):
        seconds = chosen.uniform(0, reference.ended.seconds)
        yield f"{seconds:.4f} s of {reference.ended.seconds:.4f}", 0, seconds


def _chance(seed: int, case: Killed) -> random.Random:
    return random.Random(f"{seed} {case.name}")  # noqa: S311 - the same each time


def _run(case: Killed, place: Place, call: int, seconds: float | None) -> Ended:
    if not case.is_git:
        return run_forked(case.command, place.repo, place.env, call=call, seconds=seconds)
    log = place.top / "log"
    when = f"call {call} {log}" if seconds is None else f"time {seconds} {log}"
    env = {**os.environ, **place.env, WHEN: when}
    begin = os.times().elapsed
    done = subprocess.run(
        ["git", *case.command], cwd=place.repo, env=env, capture_output=True, check=False
    )
    took = os.times().elapsed - begin
    wait_for_orphans()
    told = log.read_text() if log.exists() else ""
    log.unlink(missing_ok=True)
    if "killed" in told:
        return Ended(-9, 0, took)
    return Ended(done.returncode, max(map(int, told.split()), default=0), took)


def _wrong(reference: Reference, place: Place) -> Iterator[str]:
    """What is not as it may be after a kill."""
    case, before, after = reference.case, reference.before, reference.after
    try:
        place.git("fsck", "--strict", "--no-dangling")
    except AssertionError as error:
        yield f"git fsck: {error}"
    files = place.files()
    for name, content in files.items():
        if NAME.search(os.fsencode(name)):
            yield f"{name} stays"
        elif name not in before and name not in after:
            yield f"{name} is neither old nor new"
        elif name.endswith(_LEDGER):
            if not text_ledger.read(content).ok:
                yield f"{name} is no whole ledger"
        elif content not in (before.get(name), after.get(name)) and not _is_free(reference, name):
            yield f"{name} has neither its old nor its new content"
    if not case.may_miss:
        for name in before:
            if name in after and name not in files:
                yield f"{name} is gone"


def _is_free(reference: Reference, name: str) -> bool:
    """Whether a file may have other bytes: new ones each time, or git's own of a merge."""
    is_changed = reference.before.get(name) != reference.after.get(name)
    return (reference.case.is_random or reference.case.may_miss) and is_changed


def _wrong_again(reference: Reference, place: Place) -> Iterator[str]:
    """What is not as it should be once the command was run again."""
    case = reference.case
    for command in case.healed:
        place.git(*command, ok=None)
    ended = _run(case, place, 0, None)
    if ended.code not in (0, case.over):
        yield f"run again it ends with {ended.code}"
        return
    files, after = place.files(), reference.after
    if files.keys() != after.keys():
        yield f"run again there are {sorted(files.keys() ^ after.keys())}"
    if not case.is_random:
        different = [name for name in files if files[name] != after.get(name)]
        if different:
            yield f"run again {different} differ"
        if place.state() != reference.end.state():
            yield "run again the index differs"
    else:
        for name, content in files.items():
            if name.endswith(_LEDGER) and _sealed(content) != _sealed(after.get(name)):
                yield f"run again {name} seals other content"
    lock, aside = place.repo / ".git/index.lock", place.repo / ".git/wtxtgit/tmp"
    if lock.exists():
        yield "run again the index is locked"
    if aside.exists() and any(aside.iterdir()) and case.name in _SWEEPING:
        yield f"run again {[path.name for path in aside.iterdir()]} stay"


_SWEEPING = frozenset({"add", "checkout"})
"""Commands that always need a name in git's folder, and so remove what is left there."""


def _sealed(content: bytes | None) -> bytes | None:
    """The content that a ledger's last record seals."""
    ledger = text_ledger.read(content).ledger if content is not None else None
    return None if ledger is None else ledger.last.sha256_all
