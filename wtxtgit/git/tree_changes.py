"""What differs between trees, many pairs of them from one running `git diff-tree`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.blobs import check_oid
from wtxtgit.git.index import Entry
from wtxtgit.git.repository import Repository

_BLOCK = 1 << 16
# A line that is no object id: git gives it back, and all that it has to say before.
_END = b"end\n"


@dataclass(frozen=True, slots=True)
class Change:
    """A path of two trees: what stands there before and after, None for nothing."""

    path: bytes
    before: Entry | None
    after: Entry | None


class TreeChanges:
    """Compares trees file by file, without renames; a context manager.

    With `paths`, there alone, unless git takes no paths that long: then
    everywhere. A path that is a folder stands for all in it.
    """

    def __init__(self, repo: Repository, paths: Sequence[bytes] = ()) -> None:
        self._repo = repo
        self._paths = tuple(paths) if run.fit(paths) else ()
        self._stream: run.Stream | None = None

    def __enter__(self) -> TreeChanges:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.__exit__()
            self._stream = None

    def between(self, before: str, after: str) -> list[Change]:
        """List what differs, by two trees' object ids, every path once.

        Raises EnvironmentFailure for a tree that is not there or names a path
        twice.
        """
        if self._stream is None:
            self._stream = self._repo.stream(
                "--literal-pathspecs", "diff-tree", "--stdin", "-r", "-z", "--raw",
                "--no-renames", "--no-abbrev",
                # .gitmodules of the work tree could hide them.
                "--ignore-submodules=none", "--", *self._paths,
                env=run.TRUE_OBJECTS,
            )  # fmt: skip
        pair = f"{check_oid(before)} {check_oid(after)}\n".encode("ascii")
        with contextlib.suppress(BrokenPipeError):
            self._stream.stdin.write(pair + _END)
            self._stream.stdin.flush()
        said = bytearray()
        while not _is_whole(said):
            block = self._stream.stdout.read1(_BLOCK)
            if not block:
                self.__exit__()
                raise EnvironmentFailure(f"git can't compare the trees {before} and {after}")
            said += block
        if not said.startswith(pair):
            raise EnvironmentFailure(f"git compares other trees than {before} and {after}")
        return _parse(bytes(said[len(pair) : -len(_END)]))


def renames(
    repo: Repository, before: str, after: str, paths: Sequence[bytes]
) -> dict[bytes, bytes] | None:
    """Find which of these paths came from which other one of them: path after to path before.

    By content, the same or as similar as git takes for renamed. `before` and
    `after` are trees' object ids. None where git takes no paths that long.
    """
    if not run.fit(paths):
        return None
    output = repo.git(
        "--literal-pathspecs", "diff-tree", "-r", "-z", "--name-status", "--find-renames",
        "--diff-filter=R", check_oid(before), check_oid(after), "--", *paths,
        env=run.TRUE_OBJECTS,
    )  # fmt: skip
    fields = run.records(output)
    return dict(zip(fields[2::3], fields[1::3], strict=True))


def _is_whole(said: bytearray) -> bool:
    # With an odd number of NULs these are the first bytes of a path.
    return said.endswith(_END) and said.count(b"\0") % 2 == 0


def _parse(output: bytes) -> list[Change]:
    fields = run.records(output)
    changes = {}
    for about, path in zip(fields[::2], fields[1::2], strict=True):
        mode_before, mode_after, before, after, _ = about.removeprefix(b":").split(b" ")
        if path in changes:
            raise EnvironmentFailure(f"a tree has {os.fsdecode(path)!a} twice")
        changes[path] = Change(
            path, _entry(path, mode_before, before), _entry(path, mode_after, after)
        )
    return list(changes.values())


def _entry(path: bytes, mode: bytes, oid: bytes) -> Entry | None:
    number = int(mode, 8)
    return Entry(path, number, oid.decode("ascii")) if number else None
