"""Places, in which a command is killed: a home, a repository, and what is beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kit.packs import blobs_of, content_of
from tests.torture.processes import run_forked
from wtxtgit.git.driver import Launcher
from wtxtgit.merge import conflicts
from wtxtgit.remotes.payload.place import whole
from wtxtgit.store.check import check_store
from wtxtgit.store.store import Store
from wtxtgit.stream.ranks import LOCK, REQUESTS, WAL
from wtxtgit.stream.state import read_state
from wtxtgit.text.grammar import is_detached
from wtxtgit.text.index import index

CONFIG = """\
[user]
\tname = A
\temail = a@example.com
[init]
\tdefaultBranch = main
[maintenance]
\tauto = false
"""
PROGRAM = (sys.executable, "-E", "-s", str(Path(__file__).parents[1] / "processes.py"))
"""What git starts: not as one's own program would be, but it is the same code."""
REMOTE = "remote.git"
"""A repository beside that of a place, which is pushed to."""
IDENTITY = "identity"
"""Beside the repository: what opens encrypted texts."""
THERE = "there"
"""The folder beside the repository that payload is sent to."""
RING, SENT = "run", "sent"
"""A ring in the repository, or beside it, and the folder that it is sent to."""
_LOGS = frozenset({LOCK, REQUESTS, WAL})


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
            "PYTHONPATH": str(Path(__file__).parents[3]),
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

    @property
    def rings(self) -> tuple[Path, ...]:
        return tuple(ring for ring in (self.repo / RING, self.top / RING) if ring.is_dir())

    def payload(self) -> dict[str, str | None]:
        """The chunks of the store by name, and why each can't be read, None for one that can."""
        return _chunks(Store(self.repo / ".git/wtxt/store"))

    def unpaid(self) -> set[str]:
        """The chunks that detached texts in the index name, and the store does not have."""
        named: set[str] = set()
        for line in self.git("ls-files", "-s", "-z").split(b"\0")[:-1]:
            oid = line.split()[1].decode()
            content = memoryview(self.git("cat-file", "blob", oid))
            if is_detached(content):
                named.update(name.hex() for name in index(content).payload_names)
        return named - {name for name, why in self.payload().items() if why is None}

    def payload_there(self) -> dict[str, str | None]:
        """The same of the packs at the remotes, a folder and the other repository."""
        found = {}
        names = [file.name for file in (self.top / THERE).glob("*")]
        found.update({name: self.top / THERE / name for name in names})
        with TemporaryDirectory() as folder:
            packs = Path(folder, "packs")
            packs.mkdir()
            for name in whole(found):
                shutil.copy(found[f"{name}.pack"], packs)
            refs = self._refs_of_packs()
            for name in whole(refs):
                content = content_of(self.top / REMOTE, refs[f"{name}.pack"])
                (packs / f"{name}.pack").write_bytes(content)
            return _chunks(Store(Path(folder)))

    def _refs_of_packs(self) -> dict[str, str]:
        """The objects of packs at the other repository, by the names of their refs."""
        if not (self.top / REMOTE).is_dir():
            return {}
        listed = ("for-each-ref", "--format=%(refname:lstrip=3) %(objectname)", "refs/wtxt/store")
        said = self.git("--git-dir", f"../{REMOTE}", *listed).decode()
        return dict(line.split() for line in said.splitlines())

    def spoil_what_came(self) -> Callable[[], None]:
        """Have packs that came whole be unreadable at the remotes; gives what undoes that."""
        store = self.repo / ".git/wtxt/store"
        came = {path.name for path in store.rglob("*.pack")}
        refs = self._refs_of_packs()
        remote = self.top / REMOTE
        oids = [oid for name in came & refs.keys() for oid in blobs_of(remote, refs[name]).values()]
        oids += [path.parent.name + path.name for path in self.repo.glob(".git/wtxt/objects/??/*")]
        files = [self.top / THERE / name for name in came]
        files += [self.top / REMOTE / "objects" / oid[:2] / oid[2:] for oid in oids]
        held = {file: file.read_bytes() for file in files if file.exists()}
        for file, content in held.items():
            file.chmod(0o644)
            file.write_bytes(bytes(len(content)))

        def undo() -> None:
            for file, content in held.items():
                file.write_bytes(content)

        return undo

    def files(self) -> dict[str, bytes]:
        """What stands in the work tree, among the keys, and in rings but their logs."""
        folders = (self.repo, self.top / "home/.config", self.top / RING, self.top / SENT)
        return {
            file.relative_to(self.top).as_posix(): file.read_bytes()
            for folder in folders
            for file in folder.rglob("*")
            if file.is_file() and file.relative_to(folder).parts[0] != ".git"
            if not (file.name in _LOGS and file.parent in self.rings)
        }

    def settings(self) -> tuple[list[bytes], dict[str, bytes]]:
        """Git's configuration, and the hooks by name."""
        return sorted(self.git("config", "--list", "-z").split(b"\0")), self.hooks()

    def hooks(self) -> dict[str, bytes]:
        found = (self.repo / ".git/hooks").glob("*[!e]")
        return {file.name: file.read_bytes() for file in found}

    def state(self) -> tuple[object, ...]:
        """The index, what HEAD has, what is stashed and what is open of a merge; what rings and the
        store hold, and was pushed."""
        tree = self.git("rev-parse", "-q", "--verify", "HEAD^{tree}", ok=None)
        open_paths = (self.repo / ".git" / conflicts.FOLDER).rglob("*.json")
        records = {path.name: path.read_bytes() for path in open_paths}
        said = [json.dumps(read_state(ring).as_dict()) for ring in self.rings]
        payload = self.payload(), self.payload_there()
        staged = self.git("ls-files", "-s", "-z")
        stashed = self.git("stash", "list", "--format=%gs %T", ok=None)
        return staged, tree, stashed, records, said, self._pushed(), payload

    def packs(self) -> int:
        """How many packs the store has."""
        return len(Store(self.repo / ".git/wtxt/store").own.names)

    def ledgers(self) -> bytes:
        """Ledgers that are not as HEAD has them, or not staged."""
        return self.git("status", "--porcelain", "--", "*.wsum")

    def _pushed(self) -> bytes:
        """What each branch of the other repository holds, and of how many commits it is."""
        if not (self.top / REMOTE).is_dir():
            return b""
        there = ("--git-dir", f"../{REMOTE}")
        branches = self.git(*there, "for-each-ref", "--format=%(refname) %(tree)", "refs/heads")
        return branches + self.git(*there, "rev-list", "--branches", "--count")


def _chunks(store: Store) -> dict[str, str | None]:
    verdict = check_store(store, 1)
    lost = {name: why for pack in verdict.damaged for name, why in pack.chunks.items()}
    packs = [pack for name in store.own.names if (pack := store.own.opened(name)) is not None]
    there = [pack.index.name(row) for pack in packs for row in range(pack.index.count)]
    return {name.hex(): lost.get(name.hex()) for name in there}


@dataclass(frozen=True)
class Killed:
    """A command: what it starts from, and how its end is judged where it differs each time.

    `is_git` commands start what is killed. `healed` are git commands that a user gives before the
    next try. `code` is what a run ends with, `over` one that finds all done. `may_miss` files are
    git's to write, and gone for a moment. `is_random` ends have other bytes each time: files are
    compared by name, ledgers by their records, encrypted texts by what is in them and for how many.
    After `same_packs` the store has as many packs, whatever happened. What `fetches` has to go on
    where what came whole can't be had from a remote any more.
    """

    name: str
    prepare: Callable[[Place], None]
    command: Sequence[str]
    is_git: bool = False
    is_random: bool = False
    may_miss: bool = False
    code: int = 0
    over: int = 0
    healed: Sequence[Sequence[str]] = ()
    same_packs: bool = False
    fetches: bool = False


def new_place(folder: Path) -> Place:
    """An empty repository, and a home with the driver in its configuration."""
    place = Place(folder)
    (place.top / "home").mkdir(parents=True)
    place.repo.mkdir()
    (place.top / "home/.gitconfig").write_text(CONFIG)
    place.git("init", "-q")
    for key, value in Launcher((sys.executable, "-E", "-P", "-m", "wtxtgit")).values().items():
        place.git("config", "--global", key, value)
    return place
