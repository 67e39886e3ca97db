"""Packs that are cut into blobs, and such blobs and trees as they arrive from a git remote.

Spec: `docs/spec/store.md`, "Remote". Git transfers whole objects only: of a pack in one blob all of
it, of one that is a tree of blobs those that are asked for by their ids.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.blobs import check_oid
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.files import Places
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.store.streams import PlainContent
from wtxtgit.git.store.writing import PackWriter
from wtxtgit.io.files import view_file
from wtxtgit.io.view import Buffer, mapped
from wtxtgit.io.workers import default_threads
from wtxtgit.remotes.payload.place import OutgoingPack

CUT = 128 * 1024
"""A pack with more bytes is cut."""
INDEX, PARTS = "index", "parts"
"""What is in the tree beside that of a pack: the pack's end, and the list of its parts."""
# Least bytes of a part, and most parts.
_LEAST, _MOST = 32 * 1024, 256
# What is taken of another writer: most bytes of a part, most parts, and most bytes of a tree.
_MOST_GRAIN, _MOST_PARTS, _MOST_TREE = 4 * 1024 * 1024, 65536, 8 * 1024 * 1024
_PIECE = 1 << 20
_FILE = "100644"
_NUMBER = re.compile("[0-9]{1,8}")


class PackParts(NamedTuple):
    """The parts of a pack: their ids, and the bytes of each but the last, which may have less."""

    grain: int
    oids: Sequence[str]

    @classmethod
    def parse(cls, content: bytes, size: int) -> PackParts | None:
        """Parse the list of parts of a pack of `size` bytes; None if it is not one."""
        first, *oids = content.decode("ascii", "replace").splitlines() or [""]
        grain = int(first) if _NUMBER.fullmatch(first) else 0
        if not 0 < grain <= _MOST_GRAIN or len(oids) != min(-(-size // grain), _MOST_PARTS):
            return None
        with suppress(EnvironmentFailure):
            return cls(grain, [*map(check_oid, oids)])
        return None

    def format(self) -> bytes:
        return "".join(f"{line}\n" for line in (self.grain, *self.oids)).encode("ascii")

    def between(self, start: int, stop: int) -> tuple[Sequence[str], int]:
        """Return the parts that have the bytes [start, stop), and where these begin in the
        first.
        """
        first = start // self.grain
        return self.oids[first : -(-stop // self.grain)], start - first * self.grain


def write_objects(
    repo: Repository,
    folder: Path,
    env: run.Environment,
    files: Mapping[str, Path | bytes],
    cut: Sequence[OutgoingPack],
) -> dict[str, str]:
    """Write files as blobs, and packs that are `cut` as trees, to a folder, which `env` names.

    Returns the blobs and trees by the names of the files. Raises EnvironmentFailure.
    """
    places = Places(folder, (), repo.object_format, 0)
    grains = [max(_LEAST, -(-pack.size // _MOST)) for pack in cut]
    count = sum(-(-pack.size // grain) + 2 for pack, grain in zip(cut, grains, strict=True))
    trees: dict[str, dict[str, str]] = {}
    with PackWriter(ObjectStore(repo, places), count + len(files), default_threads()) as writer:

        def add(content: Buffer) -> str:
            return writer.add(PlainContent(memoryview(content)))

        written = {
            name: add(mapped(view_file(content)) if isinstance(content, Path) else content)
            for name, content in files.items()
        }
        for pack, grain in zip(cut, grains, strict=True):
            content = mapped(view_file(pack.path))
            oids = [add(content[at : at + grain]) for at in range(0, pack.size, grain)]
            # In the order of their names they are the pack.
            trees[f"{pack.name}.pack"] = {f"{n:04x}": oid for n, oid in enumerate(oids)}
            listed = PackParts(grain, oids).format()
            trees[f"{pack.name}.index"] = {INDEX: add(pack.end), PARTS: add(listed)}
        writer.finish()
    if trees:
        lines = "\n".join(
            "".join(f"{_FILE} blob {oid}\t{name}\n" for name, oid in tree.items())
            for tree in trees.values()
        )
        oids_of_trees = (
            repo.git("mktree", "--batch", stdin=lines.encode("ascii"), env=env).decode().split()
        )
        written |= dict(zip(trees, oids_of_trees, strict=True))
    return written


class ArrivedObjects:
    """Blobs, and trees of them, in a folder of objects that `env` names."""

    def __init__(self, repo: Repository, folder: Path, env: run.Environment) -> None:
        self._repo = repo
        self._folder = folder
        self.env = env

    def lacking(self, oids: Iterable[str]) -> list[str]:
        """Return those that have not arrived; whatever does so is a loose object."""
        return [oid for oid in dict.fromkeys(oids) if not self._path(oid).exists()]

    def trees(self, oids: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Return the blobs in those of the objects that are trees, by name."""
        unique = list(dict.fromkeys(oids))
        names = "".join(f"{oid}\n" for oid in unique).encode("ascii")
        answers = self._repo.git(
            "cat-file", "--batch-check", stdin=names, env=self.env
        ).splitlines()
        trees: dict[str, Mapping[str, str]] = {}
        for oid, line in zip(unique, answers, strict=True):
            words = line.split()
            if words[1:2] == [b"tree"] and int(words[2]) <= _MOST_TREE:
                listed = self._repo.git("ls-tree", "-z", oid, env=self.env)
                trees[oid] = dict(_entries(listed))
        return trees

    def content(self, oids: Iterable[str], most: int) -> Iterator[bytes]:
        """Yield the bytes of blobs, one after the other, in pieces, as far as they have arrived.

        Ends after at most `most` bytes and one.
        """
        left = most + 1
        with self._repo.stream("cat-file", "--batch", env=self.env) as stream:
            for oid in oids:
                stream.ask(f"{oid}\n".encode("ascii"))
                words = stream.stdout.readline().split()
                if words[1:2] != [b"blob"]:
                    return
                # With the line feed behind it.
                size = int(words[2])
                while size and left:
                    piece = stream.stdout.read(min(_PIECE, size, left))
                    if not piece:
                        return
                    size -= len(piece)
                    left -= len(piece)
                    yield piece
                if not left or stream.stdout.read(1) != b"\n":
                    return

    def drop(self, oids: Iterable[str]) -> None:
        """Remove objects: damaged ones arrive again next time."""
        for oid in oids:
            drop(self._path(oid))

    def _path(self, oid: str) -> Path:
        """Return the path of a loose object: gitrepository-layout(5)."""
        return self._folder / oid[:2] / oid[2:]


def drop(path: Path) -> None:
    # Its folder stays, since another git may be about to write there.
    with suppress(OSError):
        path.unlink()


def _entries(listed: bytes) -> Iterator[tuple[str, str]]:
    """Yield names and ids of the blobs in the output of `git ls-tree -z`."""
    for entry in listed.split(b"\0"):
        what, _, name = entry.partition(b"\t")
        words = what.split()
        if words[1:2] == [b"blob"]:
            yield os.fsdecode(name), check_oid(words[2].decode("ascii"))
