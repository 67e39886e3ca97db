"""Packs of payload at a git remote: blobs under refs of their own, one pack per ref.

Spec: `docs/spec/store.md`, "Remote". Git itself pushes and fetches them, with the user's settings
and credentials. During a transfer the objects lie in a temporary folder of their own: the
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
"""The prefix of the refs of packs at a remote."""
_AT_ONCE = 64 * 1024 * 1024
"""Most bytes of packs that are fetched together; a larger one is fetched alone."""
_PIECE = 1 << 20
_FETCHED = Path("wtxt", "objects")
"""The folder in git's own for objects being fetched; a killed process leaves them there."""
_FORGOTTEN, _LEFT = 14 * 24 * 60 * 60, 60 * 60
# Payload is compressed already: delta compression and deflating would only take time.
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
        """Return None: git transfers whole objects only."""

    def put(self, packs: Sequence[OutgoingPack]) -> None:
        self._push({
            file: content
            for name, path, _, end in packs
            for file, content in ((f"{name}.pack", path), (f"{name}.index", end))
        })  # fmt: skip

    def _push(self, files: Mapping[str, Path | bytes]) -> None:
        """Push files, or bytes, as blobs to the remote, by their names below the refs."""
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
            # Another process that pushed the same pack may have been faster.
            self.packs()
            if any(self._refs.get(name) != oid for name, oid in oids.items()):
                raise failure(self.label, words)

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        """See `PackPlace`: a pack with a ref exists."""
        return ()

    def parts(self) -> Sequence[str]:
        return in_part(self._refs)

    def times(self, names: Sequence[str]) -> Mapping[str, float | None]:
        there = {file.partition(".")[0] for file in self._refs}
        # A blob has no date, and neither has a ref.
        return {name: None for name in names if name in there}

    def remove(self, names: Sequence[str]) -> str | None:
        wanted = {f"{name}.{kind}" for name in names for kind in ("index", "pack")}
        for attempt in range(2):
            # Git removes none of the refs if one of them does not exist.
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
        """Push refs of packs; returns git's message if that fails, else None."""
        asked = (*_AS_IT_IS, *PUSH, "--no-signed", "--end-of-options", self._remote)
        done = transfer(self._repo, *asked, *refspecs, env=env)
        return words_of(done.stdout + b"\n" + done.stderr) if done.code else None

    def settle(self) -> None:
        """See `PackPlace`: refs can always be listed."""

    def _using(self, folder: Path) -> run.Environment:
        """Return an environment in which git writes objects to a folder beside the repository's."""
        named = folder / "info/alternates"
        wanted = os.fsencode(self._repo.git_path("objects").absolute()) + b"\n"
        with failures(folder, missing=EnvironmentFailure):
            named.parent.mkdir(parents=True, exist_ok=True)
            # Other processes may be reading it.
            if not named.exists() or named.read_bytes() != wanted:
                replace_file(named, lambda fd: write_all(fd, (wanted,)))
        return {**PLAIN, "GIT_OBJECT_DIRECTORY": os.fspath(folder)}

    @contextmanager
    def _fetched(self, files: Sequence[str]) -> Iterator[_Read]:
        """Fetch the blobs of refs.

        Yields a function that reads one, in pieces, up to a number of bytes. Git writes each blob
        as soon as it has arrived, and blobs that a killed process left are not fetched again. A
        blob is removed once it was read.
        """
        with ExitStack() as until:
            folder = self._repo.common_dir / _FETCHED
            if self._is_promisor():
                # There git would keep what it fetches in packs marked with their origin.
                folder = until.enter_context(new_folder(self._repo.common_dir))
            yield self._fetched_to(folder, files)

    def _is_promisor(self) -> bool:
        """Tell whether the repository is a partial clone of the remote: git-config(1)."""
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
                # In any case: a damaged blob is then fetched again next time.
                _drop(loose[file])

        return read


def _loose(folder: Path, oid: str) -> Path:
    """Return the path of a loose object: gitrepository-layout(5)."""
    return folder / oid[:2] / oid[2:]


def _drop(path: Path) -> None:
    # Its folder stays, since another git may be about to write there.
    with suppress(OSError):
        path.unlink()


def _sweep(folder: Path) -> None:
    """Remove what was fetched long ago and never read.

    Temporary files that killed git processes left are removed sooner.
    """
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
