"""What a tree's own gitattributes files say of paths, and nothing else: which are filtered.

What a clone has of its own (configuration, `info/attributes`, the files of
the user and the system) must not change the answer, so git is asked in an
empty repository: a temporary folder, with the gitattributes files alone in
its work tree. They are not put into an index instead: of a file that begins
with a byte order mark git then takes another first line than in a checkout.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import config, run
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.repository import Repository

_ALIVE = 8
"""So many processes at most, each for one set of gitattributes files."""
_REMEMBERED = 1 << 16
"""So many answers at most, for each of them."""
_BATCH = 4096
"""Bytes asked at once. No pipe holds less, so git and we never both wait to write."""
_BLOCK = 1 << 16
_DRIVER = config.DRIVER.encode()
_FILTER = ("filter",)

UNSPECIFIED = b"unspecified"
"""What git says of an attribute that no line is about."""

MAX_FILE = 100 * 1024 * 1024
"""Bytes of a gitattributes file from which git ignores it (ATTR_MAX_FILE_SIZE)."""

_CONFIG = """\
[core]
\trepositoryFormatVersion = 0
\tignoreCase = false
"""
_FOREIGN = (
    "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_ATTR_SOURCE",
    "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
)  # fmt: skip


_Key = tuple[frozenset[tuple[bytes, str]], tuple[str, ...], bool]


class TreeAttributes:
    """Asks git about paths, under sets of gitattributes files; a context manager.

    One process for each set, and the attributes asked for, kept for the next question.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._closing = contextlib.ExitStack()
        self._folder: Path | None = None
        self._blobs = BlobReader(repo)
        self._asked: OrderedDict[_Key, _Question] = OrderedDict()
        self._begun = 0

    def __enter__(self) -> TreeAttributes:
        return self

    def __exit__(self, *_: object) -> None:
        for question in self._asked.values():
            question.close()
        self._asked.clear()
        self._folder = None
        self._blobs.__exit__()
        self._closing.close()

    def filtered(self, attribute_files: Mapping[bytes, str], paths: Iterable[bytes]) -> set[bytes]:
        """Choose the paths that the filter `wtxt` is for.

        `attribute_files` are a tree's gitattributes files, path to blob, the
        regular files alone: git reads none through a link. Raises
        EnvironmentFailure where a blob of them is not there, or a path can be
        none of a checkout.
        """
        found = self.values(attribute_files, paths, _FILTER)
        return {path for path, (value,) in found.items() if value == _DRIVER}

    def values(
        self,
        attribute_files: Mapping[bytes, str],
        paths: Iterable[bytes],
        names: tuple[str, ...],
        *,
        ignore_case: bool = False,
    ) -> dict[bytes, tuple[bytes, ...]]:
        """Give what these attributes are of each path, as git says it: `unspecified`, `wtxt`.

        With `ignore_case` as git says it where core.ignoreCase is set, as it is
        on macOS and Windows. Raises EnvironmentFailure as `filtered` does.
        """
        wanted = list(dict.fromkeys(paths))
        if not attribute_files or not wanted:
            return dict.fromkeys(wanted, (UNSPECIFIED,) * len(names))
        return self._question(attribute_files, names, ignore_case).values(wanted)

    def _question(
        self, attribute_files: Mapping[bytes, str], names: tuple[str, ...], ignore_case: bool
    ) -> _Question:
        key = frozenset(attribute_files.items()), names, ignore_case
        found = self._asked.pop(key, None)
        if found is None:
            if len(self._asked) >= _ALIVE:
                self._asked.popitem(last=False)[1].close()
            found = self._begin(attribute_files, names, ignore_case)
        self._asked[key] = found
        return found

    def _begin(
        self, attribute_files: Mapping[bytes, str], names: tuple[str, ...], ignore_case: bool
    ) -> _Question:
        if self._folder is None:
            self._folder = self._make()
        self._begun += 1
        work_tree = self._folder / f"tree-{self._begun}"
        try:
            work_tree.mkdir()
            for path, oid in attribute_files.items():
                self._write(work_tree, path, oid)
        except OSError as error:
            raise EnvironmentFailure(
                f"the gitattributes files of a tree can't be written: {error.strerror}"
            ) from error
        env = {
            **dict.fromkeys(_FOREIGN),
            "GIT_DIR": str(self._folder / "git"),
            "GIT_WORK_TREE": str(work_tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            # Where git looks for what is the user's own: nothing is there.
            "HOME": str(self._folder / "home"),
            "XDG_CONFIG_HOME": str(self._folder / "home"),
        }
        settings = ("-c", "core.ignoreCase=true") if ignore_case else ()
        asked = ("check-attr", "-z", "--stdin", *names)
        stream = run.Stream(*settings, *asked, cwd=work_tree, env=env)
        return _Question(stream, work_tree, names)

    def _write(self, work_tree: Path, path: bytes, oid: str) -> None:
        if {b"", b".", b".."} & set(path.split(b"/")):
            raise EnvironmentFailure(f"no checkout has a file {os.fsdecode(path)!a}")
        # Each is read, also those not taken: what is missing may say anything.
        if self._blobs.size(oid) >= MAX_FILE:
            for _ in self._blobs.chunks(oid):
                pass
            return
        file = work_tree / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as out:
            out.write(self._blobs.read(oid, MAX_FILE))

    def _make(self) -> Path:
        try:
            made = tempfile.TemporaryDirectory(prefix="wtxtgit-")
            folder = Path(self._closing.enter_context(made))
            for name in ("git/objects", "git/refs"):
                (folder / name).mkdir(parents=True)
            (folder / "git/HEAD").write_text("ref: refs/heads/main\n")
            (folder / "git/config").write_text(_CONFIG)
        except OSError as error:
            raise EnvironmentFailure(f"no temporary folder: {error.strerror}") from error
        return folder


class _Question:
    """A running `git check-attr`, and what it said."""

    def __init__(self, stream: run.Stream, work_tree: Path, names: tuple[str, ...]) -> None:
        self._stream = stream
        self._work_tree = work_tree
        self._names = names
        self._known: dict[bytes, tuple[bytes, ...]] = {}

    def close(self) -> None:
        self._stream.__exit__()
        shutil.rmtree(self._work_tree, ignore_errors=True)

    def values(self, paths: list[bytes]) -> dict[bytes, tuple[bytes, ...]]:
        found = {path: self._known[path] for path in paths if path in self._known}
        for batch in _batches(path for path in paths if path not in self._known):
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            values = dict(zip(batch, self._said(batch), strict=True))
            self._known.update(values)
            found.update(values)
        return found

    def _said(self, batch: list[bytes]) -> list[tuple[bytes, ...]]:
        with contextlib.suppress(BrokenPipeError):
            self._stream.stdin.write(run.joined(batch))
            self._stream.stdin.flush()
        # Path, attribute and value of each attribute of each path, each ended by NUL.
        several = len(self._names)
        missing = 3 * several * len(batch)
        said = bytearray()
        while missing > 0:
            block = self._stream.stdout.read1(_BLOCK)
            if not block:
                raise EnvironmentFailure("git check-attr ended before its last answer")
            missing -= block.count(b"\0")
            said += block
        fields = run.records(bytes(said))
        if fields[:: 3 * several] != batch:
            raise EnvironmentFailure("git check-attr answers what it was not asked")
        values = fields[2::3]
        return [tuple(values[n : n + several]) for n in range(0, len(values), several)]


def _batches(paths: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for path in paths:
        if batch and size + len(path) + 1 > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += len(path) + 1
    if batch:
        yield batch
