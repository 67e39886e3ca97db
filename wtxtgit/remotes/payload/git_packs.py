"""Packs of payload at a git remote: blobs under refs of their own, one pack a ref.

Spec: `docs/spec/store.md`, "Remote". Git itself pushes and fetches them, with the user's settings
and credentials. Objects that are on their way lie in a folder of their own for that time alone: the
repository never gets a second copy of what its store has, nor refs, and gc has nothing to keep.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.blobs import check_oid
from wtxtgit.git.remote_refs import RemoteRefs
from wtxtgit.git.repository import Repository
from wtxtgit.git.transfer import PLAIN, PUSH, failure, transfer, words_of
from wtxtgit.io import clock
from wtxtgit.io.files import failures, replace_file
from wtxtgit.io.temporary import new_folder
from wtxtgit.io.view import Buffer, write_all
from wtxtgit.remotes.payload.place import OutgoingPack, in_part, whole
from wtxtgit.remotes.payload.store_url import GIT, spelled
from wtxtgit.remotes.target import Span
from wtxtgit.store.pack import MAX_END

_Read = Callable[[str, int], Iterator[bytes]]
REFS = "refs/wtxt/store/"
"""Where the refs of packs are at a remote."""
_AT_ONCE = 64 * 1024 * 1024
"""Bytes of packs that are fetched together: a larger one comes alone."""
_PIECE = 1 << 20
_FETCHED = Path("wtxt", "objects")
"""The folder in git's for objects that come, which a process that is killed leaves there."""
_FORGOTTEN, _LEFT = 14 * 24 * 60 * 60, 60 * 60
# Payload is packed already: deltas and deflating would take long, for nothing.
_AS_IT_IS = (
    "-c", "core.compression=0", "-c", "core.looseCompression=0", "-c", "pack.compression=0",
    "-c", "core.bigFileThreshold=64k",
)  # fmt: skip


class GitPacks:
    """The packs of a git remote, a configured one or a URL; see `PackPlace`."""

    _place = REFS

    def __init__(self, repo: Repository, remote: str) -> None:
        self._repo = repo
        self._remote = remote
        self._refs: dict[str, str] = {}
        self.label = spelled(GIT + remote)
        self._there = RemoteRefs(repo, remote, self.label)

    def packs(self) -> Sequence[str]:
        listed = self._there.list(f"{self._place}*")
        self._refs = {ref.removeprefix(self._place): oid for ref, oid in listed.items()}
        return whole(self._refs)

    def ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        if names:
            with self._fetched([f"{name}.index" for name in names]) as read:
                for name in names:
                    end = b"".join(read(f"{name}.index", MAX_END))
                    if end:
                        yield name, end

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        for batch in _batches(sizes):
            with self._fetched([f"{name}.pack" for name in batch]) as read:
                for name in batch:
                    yield name, read(f"{name}.pack", sizes[name])

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        """Git gives objects whole alone."""

    def put(self, packs: Sequence[OutgoingPack]) -> None:
        self._push({
            file: content
            for name, path, _, end in packs
            for file, content in ((f"{name}.pack", path), (f"{name}.index", end))
        })  # fmt: skip

    def _push(self, files: Mapping[str, Path | bytes]) -> None:
        """Have blobs of files, or of bytes, at the remote, by their names below the refs."""
        with new_folder(self._repo.common_dir) as folder:
            env = self._using(folder)
            add = partial(self._repo.git, *_AS_IT_IS, "hash-object", "-w", "--no-filters", env=env)
            oids = {
                name: (
                    add("--stdin", stdin=content)
                    if isinstance(content, bytes)
                    else add("--", os.fsencode(content))
                ).decode().strip()
                for name, content in files.items()
            }  # fmt: skip
            refspecs = (f"{oid}:{self._place}{name}" for name, oid in oids.items())
            words = self._pushed(*refspecs, env=env)
        if words is not None:
            # Another one that pushes the same pack may have been faster.
            self.packs()
            if any(self._refs.get(name) != oid for name, oid in oids.items()):
                raise failure(self.label, words)

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        """See `PackPlace`: what has a ref is there."""
        return ()

    def parts(self) -> Sequence[str]:
        return in_part(self._refs)

    def times(self, names: Sequence[str]) -> Mapping[str, float | None]:
        there = {file.partition(".")[0] for file in self._refs}
        # A blob has no date, and a ref tells none.
        return {name: None for name in names if name in there}

    def remove(self, names: Sequence[str]) -> str | None:
        wanted = {f"{name}.{kind}" for name in names for kind in ("index", "pack")}
        for attempt in range(2):
            # Git takes none away where one is not there.
            self.packs()
            there = sorted(wanted & self._refs.keys())
            refs = [f":{self._place}{file}".encode("ascii") for file in there]
            failures = [words for batch in run.batches(refs) if (words := self._pushed(*batch))]
            if not failures:
                break
            if attempt:
                raise failure(self.label, failures[0])
        return None

    def _pushed(self, *refspecs: str | bytes, env: run.Environment = PLAIN) -> str | None:
        """Push refs of packs; gives what git says where it fails."""
        asked = (*_AS_IT_IS, *PUSH, "--no-signed", "--end-of-options", self._remote)
        done = transfer(self._repo, *asked, *refspecs, env=env)
        return words_of(done.stdout + b"\n" + done.stderr) if done.code else None

    def settle(self) -> None:
        """See `PackPlace`: refs are listed."""

    def _using(self, folder: Path) -> run.Environment:
        """The environment in which git has a folder for objects beside the repository's."""
        named = folder / "info/alternates"
        wanted = os.fsencode(self._repo.git_path("objects").absolute()) + b"\n"
        with failures(folder, missing=EnvironmentFailure):
            named.parent.mkdir(parents=True, exist_ok=True)
            # Others may be reading it.
            if not named.exists() or named.read_bytes() != wanted:
                replace_file(named, lambda fd: write_all(fd, (wanted,)))
        return {**PLAIN, "GIT_OBJECT_DIRECTORY": os.fspath(folder)}

    @contextmanager
    def _fetched(self, files: Sequence[str]) -> Iterator[_Read]:
        """Fetch refs' blobs; gives what reads one of them, in pieces, up to a number of bytes.

        Git writes each blob as soon as all of it came, and none is fetched again that a process
        which was killed has left. Here they are for the time that they are read.
        """
        with ExitStack() as until:
            folder = self._repo.common_dir / _FETCHED
            if self._is_promisor():
                # From there git keeps what comes in packs, with notes of where it is from.
                folder = until.enter_context(new_folder(self._repo.common_dir))
            yield self._fetched_to(folder, files)

    def _is_promisor(self) -> bool:
        """Whether the repository is a partial clone of the remote: git-config(1)."""
        config = self._repo.config
        is_old = config.get("extensions.partialClone") == self._remote
        return is_old or config.is_true(f"remote.{self._remote}.promisor")

    def _fetched_to(self, folder: Path, files: Sequence[str]) -> _Read:
        env = self._using(folder)
        _sweep(folder)
        loose = {file: _loose(folder, check_oid(self._refs[file])) for file in files}
        lacking = [f"{self._place}{file}" for file, path in loose.items() if not path.exists()]
        if lacking:
            self._there.fetch(lacking, env, only_blobs=True)

        def read(file: str, most: int) -> Iterator[bytes]:
            left = most
            try:
                with self._repo.stream("cat-file", "blob", self._refs[file], env=env) as stream:
                    while left >= 0 and (piece := stream.stdout.read(min(_PIECE, left + 1))):
                        left -= len(piece)
                        yield piece
            finally:
                # Whatever it is: what is damaged comes anew the next time.
                _drop(loose[file])

        return read


def _loose(folder: Path, oid: str) -> Path:
    """Where git has an object by itself: gitrepository-layout(5)."""
    return folder / oid[:2] / oid[2:]


def _drop(path: Path) -> None:
    # Its folder stays: another git may be about to write there.
    with suppress(OSError):
        path.unlink()


def _sweep(folder: Path) -> None:
    """Take away what was fetched long ago, and nobody has asked for since; what git has begun, and
    a killed one left, sooner."""
    now = clock.now()
    for path in (*folder.glob("??/*"), *folder.glob("pack/*")):
        age = _LEFT if path.name.startswith("tmp_") else _FORGOTTEN
        with suppress(OSError):
            if path.stat().st_mtime < now - age:
                _drop(path)


def _batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    batch: list[str] = []
    held = 0
    for name, size in sizes.items():
        if batch and held + size > _AT_ONCE:
            yield batch
            batch, held = [], 0
        batch.append(name)
        held += size
    if batch:
        yield batch
