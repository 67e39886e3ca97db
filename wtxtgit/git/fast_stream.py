"""Histories as `git fast-export` writes and `git fast-import` reads them: git-fast-import(1).

Both run in an empty git directory of their own that borrows the repository's objects, so replaced
objects and refs that move meanwhile do not affect what is exported. An import moves no ref of the
user, and its objects enter the repository only when it is complete: an import that ends early
leaves nothing behind. Existing blobs are named by id and never pass through the stream.
git-fast-import(1), "Input Format", describes the stream.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.attributes import quote, unquote
from wtxtgit.git.blobs import blob_id, check_oid
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.files import PACKS, Places, kept, write_failures
from wtxtgit.io.temporary import new_folder

_REF = b"refs/migrated"
_MARKS = "marks"
_OBJECTS = "objects"
# An import becomes a single pack, however small, that can be moved into place as a whole.
_CONFIG = (
    "[core]\n\trepositoryFormatVersion = {}\n\tbare = true\n{}[fastimport]\n\tunpackLimit = 0\n"
)
_SHA256 = "[extensions]\n\tobjectFormat = sha256\n"
_FATAL = re.compile(r"^fatal: (.+)$", re.MULTILINE)
_MOST_SHOWN = 300


class Change(NamedTuple):
    """A path that differs from the first parent; mode and id are None if it was deleted."""

    path: bytes
    mode: int | None = None
    oid: str | None = None


class StreamedCommit(NamedTuple):
    """A commit of the stream; `mark` and `parents` are numbers in the stream, parents in order.

    `head` has the raw lines of author, committer and encoding. `message` is not decoded.
    """

    mark: int
    oid: str
    head: bytes
    message: bytes
    parents: tuple[int, ...]
    changes: tuple[Change, ...]


class ScratchRepository:
    """A git directory with the objects of a repository but refs of its own; see `scratch`."""

    def __init__(self, places: Places, folder: Path, until: contextlib.ExitStack) -> None:
        self._folder = folder
        self._until = until
        self._places = places
        self._exports = 0
        self._env: run.Environment = {
            **run.TRUE_OBJECTS,
            "GIT_DIR": str(folder),
            "GIT_OBJECT_DIRECTORY": str(folder / _OBJECTS),
            **dict.fromkeys(("GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE")),
            "GIT_SHALLOW_FILE": None,
        }

    def exported(self, tips: Iterable[str]) -> ExportedHistory:
        """Export all commits that the tips reach, parents before their children.

        Git is asked once; the result can be iterated any number of times.
        """
        self._exports += 1
        file = self._folder / f"exported-{self._exports}"
        refs = "".join(f"{check_oid(oid)} refs/heads/{n}\n" for n, oid in enumerate(tips))
        (self._folder / "packed-refs").write_text(refs)
        options = ("--no-data", "--reencode=no", "--show-original-ids", "--use-done-feature")
        with self._stream("fast-export", *options, "--branches") as stream, file.open("wb") as out:
            shutil.copyfileobj(stream.stdout, out)
        return ExportedHistory(file)

    @contextlib.contextmanager
    def importing(self) -> Iterator[CommitWriter]:
        """Write commits; at the end of the block they become objects of the repository."""
        marks = self._folder / _MARKS
        # No other option is needed: of the user's configuration only the settings of gc apply.
        options = ("--quiet", "--done", "--force", "--date-format=raw-permissive")
        with self._stream("fast-import", *options, f"--export-marks={marks}") as stream:
            writer = CommitWriter(stream)
            yield writer
            stream.ask(b"done\n")
        # Git also writes the marks if it could not complete the import.
        if stream.code:
            raise EnvironmentFailure(f"git fast-import {self._fault()}")
        try:
            lines = marks.read_text("ascii").splitlines()
        except FileNotFoundError:
            lines = []
        pairs = (line.split(" ") for line in lines)
        writer.written = {int(mark[1:]): check_oid(oid) for mark, oid in pairs}
        if len(writer.written) != writer.count:
            raise EnvironmentFailure(f"git fast-import {self._fault()}")
        self._hand_over()

    def _hand_over(self) -> None:
        """Move the imported packs into the repository's objects, where git keeps them."""
        target = self._places.make_folder(PACKS)
        for index in (self._folder / _OBJECTS / PACKS).glob("*.idx"):
            self._until.enter_context(kept(target / index.stem))
            # The index last: its presence tells git that the pack is there.
            for file in (index.with_suffix(".pack"), index):
                self._places.put(file, target / file.name)

    def _stream(self, *arguments: str) -> run.GitStream:
        return run.GitStream(*arguments, cwd=self._folder, env=self._env)

    def _fault(self) -> str:
        """Return why an import ended, from git's crash report."""
        for report in self._folder.glob("fast_import_crash_*"):
            message = _FATAL.search(report.read_text("utf-8", "backslashreplace"))
            if message is not None:
                return f"can't read this history: {message[1][:_MOST_SHOWN]}"
        return "ended before its last commit"


class ExportedHistory:
    """The commits of an export, read from a file of the scratch repository.

    Iterating raises EnvironmentFailure if git ended before the last commit.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def __iter__(self) -> Iterator[StreamedCommit]:
        with self._file.open("rb") as stream:
            yield from _parsed(stream)


@contextlib.contextmanager
def scratch(repo: Repository) -> Iterator[ScratchRepository]:
    """Make a scratch repository, which is removed at the end; raises EnvironmentFailure.

    Until then git keeps imported objects, which no ref has to reach.
    """
    places = Places.of(repo)
    # On the same file system as the objects, because packs are moved there.
    with (
        write_failures(repo.common_dir),
        contextlib.ExitStack() as until,
        new_folder(places.folder) as folder,
    ):
        (folder / "refs").mkdir()
        (folder / "HEAD").write_text("ref: refs/heads/none\n")
        is_sha256 = places.algorithm == "sha256"
        config = _CONFIG.format(int(is_sha256), _SHA256 if is_sha256 else "")
        (folder / "config").write_text(config)
        info = folder / _OBJECTS / "info"
        info.mkdir(parents=True)
        borrowed = quote(os.fsencode(places.folder.absolute()))
        (info / "alternates").write_bytes(borrowed + b"\n")
        yield ScratchRepository(places, folder, until)


class CommitWriter:
    """Writes commits, each after its parents; `written` maps marks to ids once all are imported."""

    def __init__(self, stream: run.GitStream) -> None:
        self._stream = stream
        self.count = 0
        self.written: dict[int, str] = {}

    def blob(self, content: bytes, *, like: str) -> str:
        """Write a blob for the commits that follow; returns its id.

        `like` is any id of the repository.
        """
        self._stream.ask(b"blob\ndata %d\n%b\n" % (len(content), content))
        return blob_id((content,), len(content), like=like)

    def commit(
        self, commit: StreamedCommit, parents: Sequence[int | str], changes: Iterable[Change]
    ) -> None:
        """Write a commit with other changes; `parents` are marks, or ids of existing commits.

        Deletions are written first, since a folder may take the place of a deleted file.
        """
        self.count += 1
        lines = [b"reset " + _REF] if not parents else []
        lines += [b"commit " + _REF, b"mark :%d" % commit.mark]
        self._stream.ask(b"\n".join(lines) + b"\n" + commit.head)
        self._stream.ask(b"data %d\n%b\n" % (len(commit.message), commit.message))
        words = [b"from", *[b"merge"] * len(parents)]
        edits = [b"%b %b\n" % (w, _spelled(p)) for w, p in zip(words, parents, strict=False)]
        ordered = sorted(changes, key=lambda change: change.oid is not None)
        edits += map(_change_line, ordered)
        self._stream.ask(b"".join(edits) + b"\n")


def _spelled(parent: int | str) -> bytes:
    return b":%d" % parent if isinstance(parent, int) else check_oid(parent).encode()


def _change_line(change: Change) -> bytes:
    path = quote(change.path)
    if change.oid is None or change.mode is None:
        return b"D %b\n" % path
    return b"M %06o %b %b\n" % (change.mode, change.oid.encode(), path)


def _parsed(stream: BufferedReader) -> Iterator[StreamedCommit]:
    read = stream.readline
    line = read()
    while line and line != b"done\n":
        if not line.startswith(b"mark :"):
            # `feature`, `reset`, `commit`, and the lines between them.
            line = read()
            continue
        mark, oid, head, message = int(line[6:]), "", b"", b""
        while (line := read()) and not line.startswith(b"data "):
            if line.startswith(b"original-oid "):
                oid = check_oid(line[13:-1].decode("ascii", "replace"))
            else:
                head += line
        size = int(line[5:])
        message = stream.read(size)
        parents: list[int] = []
        changes: list[Change] = []
        while line := read():
            word, _, rest = line[:-1].partition(b" ")
            if word in (b"from", b"merge"):
                parents.append(int(rest[1:]))
            elif word == b"M":
                mode, change, path = rest.split(b" ", 2)
                changes.append(Change(unquote(path), int(mode, 8), change.decode("ascii")))
            elif word == b"D":
                changes.append(Change(unquote(rest)))
            else:
                break
        yield StreamedCommit(mark, oid, head, message, tuple(parents), tuple(changes))
    if not line:
        raise EnvironmentFailure(
            "git fast-export ended before its last commit: an object is missing or damaged",
            hint="git fsck --full",
        )
