"""A branch of a remote to which files are delivered, without work tree, index or local branch.

Blobs, trees and commits are made in this process; git fetches and pushes them. A ref of ours keeps
the remote branch as it was last seen. No hook and no filter of the user runs: files are stored as
they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from wtxtgit.errors import (
    ASKS_HELPERS,
    EnvironmentFailure,
    RemoteRefused,
    RemoteUnavailable,
    UsageError,
)
from wtxtgit.git import run
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.history import is_ancestor, resolve_tree
from wtxtgit.git.repository import Repository
from wtxtgit.git.transfer import (
    FETCH,
    NO_HOOKS,
    PLAIN,
    PUSH,
    WITH_PASSWORD,
    failure,
    lock_there,
    transfer,
    words_of,
)
from wtxtgit.git.trees import MODE_FILE, TreeEntry, TreeReader
from wtxtgit.io.files import shown
from wtxtgit.io.view import Buffer

if TYPE_CHECKING:
    import pygit2

_REFS = "refs/wtxtgit/targets"
# Deliveries have no terminal: a prompt would wait forever.
_ENVIRONMENT: run.Environment = {**PLAIN, "GIT_TERMINAL_PROMPT": "0"}
_NO_BRANCH = "couldn't find remote ref"
_PUSHED = re.compile(rb"^[ *]\t", re.MULTILINE)
_MOVED_ON = re.compile(
    r"\[rejected\]|incorrect old value|but expected [0-9a-f]|reference already exists"
    r"|\[remote rejected\].*lock failure"
)
"""The message of git-push(1) if somebody else was faster."""
_UNTOLD = "[remote rejected] (failed to update ref)"
_REASON = "remote: error: "
"""What the reason begins with why a ref was not updated, where the server sends it."""
_LOCKED = re.compile(r"unable to (?:lock|create|update)|cannot lock ref|shallow file has changed")
"""The message of git if another process was changing the same ref in this repository."""
_FILE = re.compile(rb"^file: ([A-Za-z0-9._/-]+) ([0-9a-f]{40})$", re.MULTILINE)
_IDENTITY = re.compile(r"(.*) <(.*)> ([0-9]+) ([+-])([0-9]{2})([0-9]{2})")


class RemoteBranch:
    """A branch of a remote; `remote` is the name of a configured remote, or a URL.

    Raises UsageError if the branch name is invalid, or if the URL contains a password, which git
    would show to all users of the machine.
    """

    def __init__(self, repo: Repository, remote: str, branch: str) -> None:
        if not remote or remote.startswith("-"):
            raise UsageError(f'"{shown(remote)}" is not a remote')
        if WITH_PASSWORD.match(remote):
            raise UsageError("the remote's URL contains credentials", hint=ASKS_HELPERS)
        if run.call("check-ref-format", f"refs/heads/{branch}", ok=(0, 1)).code:
            raise UsageError(f'"{shown(branch)}" is not a valid branch name')
        self._repo = repo
        self._remote = remote
        self._remote_ref = f"refs/heads/{branch}"
        # A remote may be a URL, which can't always be part of a ref's name.
        digest = hashlib.sha256(os.fsencode(remote)).hexdigest()[:16]
        self._local_ref = f"{_REFS}/{digest}/{branch}"
        self._cached: tuple[str | None, dict[bytes, str]] = None, {}
        self.label = f"{shown(remote)}#{branch}"

    def seen(self) -> str | None:
        """Return the branch's commit as last seen; None if it did not exist, or was never seen."""
        result = self._repo.call("rev-parse", "--verify", "-q", self._local_ref, ok=(0, 1))
        return result.stdout.decode("ascii").strip() or None

    def fetch(self) -> str | None:
        """Fetch the branch and return its commit; None if the remote has no such branch.

        Raises RemoteUnavailable and RemoteRefused.
        """
        for is_last in _attempts():
            # Only this one ref is written: no tags, no remote-tracking branch.
            refspec = f"+{self._remote_ref}:{self._local_ref}"
            command = (*FETCH, "--end-of-options", self._remote, refspec)
            result = transfer(self._repo, *command, env=_ENVIRONMENT)
            message = words_of(result.stderr)
            if result.code == 0:
                return self.seen()
            if _NO_BRANCH in message:
                self._delete_local_ref()
                return None
            if is_last or not _LOCKED.search(message):
                raise self._failure(message)
        return None

    def push(self, commit: str) -> bool:
        """Push a commit to the remote's branch.

        Returns False if the branch was at that commit already, or if somebody else moved it first.
        Raises RemoteUnavailable and RemoteRefused.
        """
        command = (*PUSH, "--end-of-options", self._remote, f"{commit}:{self._remote_ref}")
        message = ""
        for _ in range(_LOCK_ATTEMPTS):
            result = transfer(self._repo, *command, env=_ENVIRONMENT)
            if result.code == 0:
                # A commit made in the same second may equal one that was pushed before: then no
                # line is printed.
                self._set_local_ref(commit)
                return _PUSHED.search(result.stdout) is not None
            message = words_of(result.stdout + b"\n" + result.stderr)
            is_untold = _UNTOLD in message and _REASON not in message
            if is_untold or _MOVED_ON.search(message):
                return False
            # Another push holds the lock for a moment; a killed one has left it for good.
            if lock_there(message) is None:
                break
        raise self._failure(message)

    def files(self, commit: str, folder: str) -> dict[str, TreeEntry]:
        """Return the files of a commit below a folder, by path from there.

        An empty folder means all. Raises RemoteRefused if the folder is a file.
        """
        tree = resolve_tree(self._repo, commit)
        with TreeReader(self._repo) as trees:
            if folder:
                entry, above = trees.standing(tree, folder.encode())
                if above is not None or (entry is not None and not entry.is_folder):
                    raise RemoteRefused(
                        f"{self.label}: a file is in the place of the folder {folder}"
                    )
                if entry is None:
                    return {}
                tree = entry.oid
            entries = trees.listing(tree).items()
        return {os.fsdecode(path): entry for path, entry in entries if entry.is_file}

    def delivered(self, commit: str, folder: str) -> dict[str, TreeEntry]:
        """Return the blobs that a commit's history says were delivered, by name below a folder.

        The newest blob of each name counts. A line in a commit's message, made with `named`, says
        which blob the commit delivered, and under which path.
        """
        start = f"{folder}/".encode("ascii") if folder else b""
        return {
            path.removeprefix(start).decode("ascii"): TreeEntry(path, MODE_FILE, oid)
            for path, oid in self._deliveries(commit).items()
            if path.startswith(start)
        }

    def _deliveries(self, commit: str) -> dict[bytes, str]:
        """Return the deliveries in all messages of a history; reads only commits that are new."""
        last_read, deliveries = self._cached
        if last_read != commit:
            is_later = last_read is not None and is_ancestor(self._repo, last_read, commit)
            messages = self._repo.git(
                "rev-list", "--format=%B", "--fixed-strings", "--grep=file: ", commit,
                *((f"^{last_read}",) if is_later else ()),
            )  # fmt: skip
            new: dict[bytes, str] = {}
            for path, oid in _FILE.findall(messages):
                new.setdefault(path, oid.decode("ascii"))
            deliveries = {**(deliveries if is_later else {}), **new}
            self._cached = commit, deliveries
        return deliveries

    def entry(self, commit: str, path: str) -> TreeEntry | None:
        """Return the entry at a path of a commit, folders included; None if there is none."""
        with TreeReader(self._repo) as trees:
            return trees.standing(resolve_tree(self._repo, commit), path.encode("ascii")).entry

    def content(self, commit: str, path: str, most: int) -> bytes | None:
        """Return a file's content; None if there is none.

        Raises EnvironmentFailure over `most` bytes.
        """
        entry = self.entry(commit, path)
        if entry is None or not entry.is_file:
            return None
        with BlobReader(self._repo) as blobs:
            return blobs.read(entry.oid, most)

    def blob(self, pieces: Iterable[Buffer]) -> str:
        """Store a blob and return its id. If iterating `pieces` raises, nothing is left behind."""
        with self._opened() as store:
            return str(store.create_blob_fromiobase(io.BufferedReader(_Pieces(pieces))))

    def commit(self, parent: str | None, blobs: Mapping[str, str], message: str) -> str:
        """Store a commit that adds blobs, by path, to the files of its parent; returns its id."""
        import pygit2

        author, committer = (self._identity(f"GIT_{who}_IDENT") for who in ("AUTHOR", "COMMITTER"))
        with self._opened() as store:
            index = pygit2.Index()
            if parent is not None:
                index.read_tree(store[parent].peel(pygit2.Tree))
            for path, oid in blobs.items():
                index.add(pygit2.IndexEntry(path, pygit2.Oid(hex=oid), MODE_FILE))  # type: ignore[arg-type]
            tree = index.write_tree(store)
            parents = [] if parent is None else [pygit2.Oid(hex=parent)]
            return str(store.create_commit(None, author, committer, message, tree, parents))

    def _identity(self, variable: str) -> pygit2.Signature:
        import pygit2

        output = self._repo.git("var", variable).decode("utf-8", "replace").strip()
        match = _IDENTITY.fullmatch(output)
        if match is None:
            raise EnvironmentFailure(
                f"git var {variable} says {shown(output)}", hint="git config user.name"
            )
        name, email, time, sign, hours, minutes = match.groups()
        offset = (int(hours) * 60 + int(minutes)) * (-1 if sign == "-" else 1)
        return pygit2.Signature(name, email, int(time), offset, "utf-8")

    def _set_local_ref(self, commit: str) -> None:
        # This only saves the next fetch time, and another process may be writing the ref.
        with contextlib.suppress(EnvironmentFailure):
            self._repo.git(*NO_HOOKS, "update-ref", self._local_ref, commit)

    def _delete_local_ref(self) -> None:
        with contextlib.suppress(EnvironmentFailure):
            self._repo.git(*NO_HOOKS, "update-ref", "-d", self._local_ref)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[pygit2.Repository]:
        """Open the repository with pygit2, for objects that this process makes.

        Its errors become ours.
        """
        import pygit2

        try:
            store = pygit2.Repository(os.fspath(self._repo.common_dir))
            try:
                yield store
            finally:
                store.free()
        except (pygit2.GitError, OSError, ValueError) as error:
            message = " ".join(str(error).split())
            raise RemoteUnavailable(f"{shown(self._repo.common_dir)}: {shown(message)}") from None

    def _failure(self, message: str) -> EnvironmentFailure:
        return failure(self.label, message)


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a readable file."""

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._source = iter(pieces)
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:  # type: ignore[override]
        while not self._piece.nbytes:
            piece = next(self._source, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        place = memoryview(buffer)
        count = min(place.nbytes, self._piece.nbytes)
        place[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count


_LOCK_ATTEMPTS = 5
"""Attempts where a lock of the ref is at the remote."""
MOST_ATTEMPTS = 20
"""Most attempts if other processes are faster."""


def named(path: str, oid: str) -> str:
    """Return the line of a commit message that names a delivered blob.

    See `RemoteBranch.delivered`.
    """
    return f"file: {path} {oid}"


def _attempts() -> Iterator[bool]:
    """Yield for each attempt whether it is the last one."""
    for number in range(1, MOST_ATTEMPTS + 1):
        yield number == MOST_ATTEMPTS
