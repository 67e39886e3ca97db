"""Two repositories that get the same git commands: one with wtxtgit, one with raw bytes.

What the second one has is what the first one has to show.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import kit
from tests.kit import LAUNCHER, Repo
from tests.torture.operations.contents import is_tracked
from tests.torture.operations.merges import Merges, blob_id, raw_of

CONFIG = f"""\
{kit.CONFIG}[gc]
\tauto = 0
[advice]
\tdetachedHead = false
[core]
\teditor = true
\tquotePath = false
[merge]
\t; Renames with changes are found by how alike blobs are, which texts and raw bytes are not alike.
\trenames = false
[diff]
\trenames = false
[status]
\trenames = false
[rebase]
\tbackend = merge
"""
_START = 1_700_000_000


class Violation(Exception):
    """What does not hold."""


@dataclass(frozen=True)
class Side(Repo):
    """A repository with a home of its own."""

    home: Path
    config: Mapping[str, str]

    def run(
        self,
        *command: str | bytes | Path,
        ok: Sequence[int] = (0,),
        cwd: str = "",
        env: dict[str, str] | None = None,
        stdin: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        own = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_STATE_HOME": str(self.home / ".local/state"),
            "GIT_CONFIG_COUNT": str(len(self.config)),
        }
        for number, (key, value) in enumerate(self.config.items()):
            own |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return super().run(*command, ok=ok, cwd=cwd, env={**own, **(env or {})}, stdin=stdin)

    def at(self, path: Path) -> Side:
        """Another repository of the same user."""
        return Side(path, self.home, self.config)

    def names(self) -> list[str]:
        """What stands in the work tree."""
        found = []
        for folder, folders, files in os.walk(self.path):
            if ".git" in folders:
                folders.remove(".git")
            here = Path(folder).relative_to(self.path)
            found += [(here / file).as_posix() for file in files if file != ".git"]
        return sorted(found)

    def files(self) -> dict[str, tuple[bool, bytes]]:
        """Of each file of the work tree whether it can be executed, and its bytes."""
        found = {}
        for name in self.names():
            file = self.path / name
            found[name] = (os.access(file, os.X_OK), file.read_bytes())
        return found

    def entries(self, *command: str) -> dict[bytes, tuple[bytes, bytes]]:
        """Of each path (and stage) of a tree or the index, mode and object."""
        found = {}
        for line in self.git(*command).split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            words = about.split()
            if command[0] == "ls-files":
                found[words[2] + b" " + path] = words[0], words[1]
            else:
                found[path] = words[0], words[2]
        return found


@dataclass
class Pair:
    """Both repositories, what was done with them, and what is known of their blobs."""

    top: Path
    filtered: Side
    plain: Side
    merges: Merges
    log: list[str] = field(default_factory=list)
    clock: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    raw: dict[bytes, str] = field(default_factory=dict)
    """By a blob's id, the id that the raw file has."""
    unfiltered: set[bytes] = field(default_factory=set)
    """Blobs that were stored as they are on purpose."""
    bypassed: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """Path and kind of what an audit has to tell at a commit."""
    head: bytes = b""

    @classmethod
    def at(cls, top: Path) -> Pair:
        """Those of a folder; `record` of it is new."""
        merges = Merges(top / "merges")
        # For keys that are used in this process.
        os.environ["XDG_CONFIG_HOME"] = str(top / "home/.config")
        filtered = Side(top / "filtered", top / "home", merges.recording())
        plain = Side(top / "plain", top / "home-plain", merges.looking_up())
        return cls(top, filtered, plain, merges)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.filtered, self.plain

    def tick(self) -> None:
        """Let both repositories have the same next moment."""
        self.clock += 1
        for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):
            os.environ[name] = f"{_START + self.clock} +0000"

    def git(self, *arguments: str, ok: Sequence[int] | None = None, stdin: bytes = b"") -> int:
        """Give both the same command; gives the exit code, which has to be the same."""
        self.tick()
        self.log.append("git " + " ".join(map(_quoted, arguments)))
        first = self.filtered.run("git", *arguments, ok=range(256), stdin=stdin)
        self.learn()
        second = self.plain.run("git", *arguments, ok=range(256), stdin=stdin)
        if first.returncode != second.returncode:
            raise Violation(
                f"git {arguments[0]} ends with {first.returncode}, plain git's with "
                f"{second.returncode}: {_last(first)} | {_last(second)}"
            )
        if ok is not None and first.returncode not in ok:
            raise Violation(f"git {arguments[0]} ends with {first.returncode}: {_last(first)}")
        return first.returncode

    def wtxtgit(
        self, *arguments: str, plain: Sequence[str] = (), ok: Sequence[int] = (0,)
    ) -> subprocess.CompletedProcess[bytes]:
        """Give the filtered one a command of wtxtgit, and plain git the one that it stands for."""
        self.tick()
        self.log.append("wtxtgit " + " ".join(map(_quoted, arguments)))
        done = self.filtered.run(*LAUNCHER.arguments, *arguments, ok=range(256))
        if done.returncode not in ok:
            raise Violation(f"wtxtgit {arguments[0]} ends with {done.returncode}: {_last(done)}")
        if plain:
            other = self.plain.run("git", *plain, ok=range(256))
            if bool(done.returncode) != bool(other.returncode):
                raise Violation(
                    f"wtxtgit {arguments[0]} ends with {done.returncode}, git {plain[0]} with "
                    f"{other.returncode}: {_last(done)} | {_last(other)}"
                )
        return done

    def learn(self) -> None:
        wrong = self.merges.learn()
        if wrong:
            raise Violation("; ".join(wrong))

    def write(self, name: str, content: bytes, *, executable: bool | None = None) -> None:
        """Write a file on both sides."""
        self.log.append(f"write {_quoted(name)}  # {len(content)} bytes, {blob_id(content)[:12]}")
        for side in self.sides:
            file = side.write(name, content)
            if executable is not None:
                file.chmod(0o755 if executable else 0o644)

    def remove(self, name: str) -> None:
        self.log.append(f"rm {_quoted(name)}")
        for side in self.sides:
            (side.path / name).unlink()

    def check(self) -> None:
        """Hold work tree, status, index and HEAD against the other's."""
        self.check_files()
        first, second = (
            side.git("status", "--porcelain", "-z", "--untracked-files=all") for side in self.sides
        )
        if first != second:
            raise Violation(f"git status tells {first!r}, plain git's {second!r}")
        self.check_entries("ls-files", "-s", "-z")
        head = self.filtered.git("rev-parse", "-q", "--verify", "HEAD", ok=(0, 1))
        if head != self.head:
            self.head = head
            self.check_entries("ls-tree", "-r", "-z", "HEAD")

    def check_files(self, filtered: Side | None = None, plain: Side | None = None) -> None:
        """The same files stand in both work trees."""
        first, second = (filtered or self.filtered).files(), (plain or self.plain).files()
        for name in sorted(first.keys() | second.keys()):
            found, wanted = first.get(name), second.get(name)
            if found != wanted and _unlabelled(found) != _unlabelled(wanted):
                raise Violation(f"{name}: {_about(found)}, has to be {_about(wanted)}")

    def check_entries(self, *command: str) -> None:
        """Each blob of a tree, or of the index, stands for the other one's."""
        first, second = (side.entries(*command) for side in self.sides)
        if first.keys() != second.keys():
            raise Violation(f"git {command[0]} has other paths: {first.keys() ^ second.keys()}")
        unknown = {oid for _, oid in first.values() if oid not in self.raw}
        self._read(sorted(unknown))
        for path, (mode, oid) in first.items():
            name = os.fsdecode(path[2:] if command[0] == "ls-files" else path)
            if mode != second[path][0] or self.raw[oid] != second[path][1].decode():
                raise Violation(f"git {command[0]}: {name} stands for another file")
            is_raw = self.raw[oid] == oid.decode() and oid not in (_EMPTY, *self.unfiltered)
            if is_raw and is_tracked(name):
                raise Violation(f"git {command[0]}: {name} is a raw binary")

    def _read(self, oids: Sequence[bytes]) -> None:
        if not oids:
            return
        told = self.filtered.git("cat-file", "--batch", stdin=b"\n".join(oids) + b"\n")
        at = 0
        for oid in oids:
            end = told.index(b"\n", at)
            words = told[at:end].split()
            if words[1] == b"missing":
                raise Violation(f"{oid.decode()} is missing")
            size = int(words[2])
            content = told[end + 1 : end + 1 + size]
            self.raw[oid] = blob_id(raw_of(content))
            at = end + size + 2

    def check_objects(self) -> None:
        """`git fsck` finds nothing, and all commits are alike."""
        self.filtered.git("fsck", "--strict", "--no-dangling", "--no-progress")
        # What passed by a rule, and was mended, is not in plain git's commits.
        names = () if self.bypassed else ("--name-status", "-m")
        command = ("log", "--branches", "--tags", "--format=%s %ct", "-z", *names)
        first, second = (side.git(*command) for side in self.sides)
        if first != second:
            raise Violation("git log tells of other commits")


_EMPTY = blob_id(b"").encode()


def _unlabelled(file: tuple[bool, bytes] | None) -> tuple[bool, bytes] | None:
    """A file without what a conflict's markers say of commits, whose ids are not the same."""
    return file and (file[0], re.sub(rb"(?m)^([<>|]{7}) .*$", rb"\1", file[1]))


def _quoted(word: str) -> str:
    return shlex.quote(word)


def _last(done: subprocess.CompletedProcess[bytes]) -> str:
    return (done.stderr or done.stdout).decode(errors="replace").strip()[-300:]


def _about(file: tuple[bool, bytes] | None) -> str:
    if file is None:
        return "not there"
    is_executable, content = file
    return f"{len(content)} bytes, {content[:8]!r}, executable: {is_executable}"
