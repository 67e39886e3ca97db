"""Commits of any shape, made from trees without a work tree."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit import Repo
from wtxtgit.git import run

FILE = 0o100644
EXECUTABLE = 0o100755
LINK = 0o120000
SUBMODULE = 0o160000

Files = Mapping[bytes, bytes | tuple[int, bytes]]
"""Content by path, with a mode where it is no plain file. A submodule's is a commit's id."""


@dataclass
class History:
    """Makes trees and commits in a repository."""

    repo: Repo
    blobs: dict[bytes, bytes] = field(default_factory=dict)

    def tree(self, files: Files) -> str:
        lines = []
        for path, about in files.items():
            mode, content = about if isinstance(about, tuple) else (FILE, about)
            oid = content if mode == SUBMODULE else self.blob(content)
            lines.append(b"%06o %b\t%b" % (mode, oid, path))
        env = {"GIT_INDEX_FILE": "made-index"}
        self.repo.git("read-tree", "--empty", env=env)
        given = run.joined(lines)
        self.repo.git("update-index", "-z", "--index-info", stdin=given, env=env)
        return self.repo.git("write-tree", env=env).decode().strip()

    def blob(self, content: bytes) -> bytes:
        if content not in self.blobs:
            made = self.repo.git("hash-object", "-w", "--stdin", "--no-filters", stdin=content)
            self.blobs[content] = made.strip()
        return self.blobs[content]

    def commit(self, files: Files | str, parents: Sequence[str] = (), message: str = "c") -> str:
        tree = files if isinstance(files, str) else self.tree(files)
        named = [word for parent in parents for word in ("-p", parent)]
        return self.repo.git("commit-tree", "-m", message, *named, tree).decode().strip()


def put_in_place(repo: Repo, oid: str, kind: bytes, content: bytes) -> None:
    """Write a loose object under a name that is not its hash; git gives its bytes all the same."""
    file = repo.path / ".git/objects" / oid[:2] / oid[2:]
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_bytes(zlib.compress(b"%b %d\0" % (kind, len(content)) + content))


def new_repo(folder: Path, kind: str = "sha1", *options: str) -> Repo:
    """Make a repository with a hash of this kind."""
    folder.mkdir(parents=True)
    made = Repo(folder)
    made.git("init", "-q", f"--object-format={kind}", *options)
    return made
