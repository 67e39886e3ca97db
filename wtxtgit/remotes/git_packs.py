"""Packs of payload at a git remote: blobs under refs of their own, one pack a ref.

Spec: `docs/spec/store.md`, "Remote". Git itself pushes and fetches them, with the user's settings
and credentials. Objects that are on their way lie in a folder of objects for that time alone: the
repository never gets a second copy of what its store has, nor refs, and gc has nothing to keep.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from wtxtgit.git import run
from wtxtgit.git.blobs import check_oid
from wtxtgit.git.remote_branch import NO_HOOKS, PATIENCE, failure, words_of
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown
from wtxtgit.io.temporary import new_folder
from wtxtgit.io.view import Buffer
from wtxtgit.remotes.pack_place import whole
from wtxtgit.remotes.store_url import GIT
from wtxtgit.remotes.urls import is_url, shown_url
from wtxtgit.store.pack import MAX_END

_Read = Callable[[str, int], Iterator[bytes]]
REFS = "refs/wtxt/store/"
_ANY = tuple(range(256))
_AT_ONCE = 64 * 1024 * 1024
"""Bytes of packs that are fetched together: a larger one comes alone."""
_PIECE = 1 << 20
# Payload is packed already: deltas and deflating would take long, for nothing.
_AS_IT_IS = (
    "-c", "core.compression=0", "-c", "core.looseCompression=0", "-c", "pack.compression=0",
    "-c", "core.bigFileThreshold=64k",
)  # fmt: skip
_NO_UPKEEP = ("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "fetch.writeCommitGraph=0")


class GitPacks:
    """The packs of a git remote, a configured one or a URL; see `PackPlace`."""

    def __init__(self, repo: Repository, remote: str) -> None:
        self._repo = repo
        self._remote = remote
        self._refs: dict[str, str] = {}
        self.label = GIT + (shown_url(remote) if is_url(remote) else shown(remote))

    def packs(self) -> Sequence[str]:
        listed = self._run("ls-remote", "--quiet", "--end-of-options", self._remote, f"{REFS}*")
        self._refs = {}
        for line in listed.decode("ascii", "replace").splitlines():
            oid, _, ref = line.partition("\t")
            self._refs[ref.removeprefix(REFS)] = oid
        return whole(list(self._refs))

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

    def put(self, name: str, pack: Path, end: bytes) -> None:
        with self._objects() as env:
            add = partial(self._repo.git, *_AS_IT_IS, "hash-object", "-w", "--no-filters")
            oids = {
                f"{name}.pack": add("--", os.fsencode(pack), env=env).decode().strip(),
                f"{name}.index": add("--stdin", stdin=end, env=env).decode().strip(),
            }
            done = self._repo.call(
                *NO_HOOKS, *PATIENCE, *_AS_IT_IS, "push", "--porcelain", "--no-verify",
                "--no-follow-tags", "--no-signed", "--recurse-submodules=no", "--end-of-options",
                self._remote, *(f"{oid}:{REFS}{file}" for file, oid in oids.items()),
                env=env, ok=_ANY,
            )  # fmt: skip
        if done.code:
            # Another one that pushes the same pack may have been faster.
            self.packs()
            if any(self._refs.get(file) != oid for file, oid in oids.items()):
                raise failure(self.label, words_of(done.stdout + b"\n" + done.stderr))

    @contextmanager
    def _objects(self) -> Iterator[run.Environment]:
        """A folder for objects on their way; gives the environment in which git uses it."""
        near = self._repo.common_dir
        with new_folder(near) as folder:
            (folder / "info").mkdir()
            own = self._repo.git_path("objects").absolute()
            (folder / "info/alternates").write_bytes(os.fsencode(own) + b"\n")
            # Their words are looked at.
            yield {"GIT_OBJECT_DIRECTORY": os.fspath(folder), "LC_ALL": "C"}

    @contextmanager
    def _fetched(self, files: Sequence[str]) -> Iterator[_Read]:
        """Fetch refs' blobs; gives what reads one of them, in pieces, up to a number of bytes."""
        with self._objects() as env:
            self._run(
                *_NO_UPKEEP, "fetch", "--quiet", "--no-tags", "--no-prune", "--refmap=",
                "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance",
                "--stdin", "--end-of-options", self._remote,
                stdin="".join(f"{REFS}{file}\n" for file in files).encode("ascii"), env=env,
            )  # fmt: skip

            def read(file: str, most: int) -> Iterator[bytes]:
                oid = check_oid(self._refs[file])
                left = most
                with self._repo.stream("cat-file", "blob", oid, env=env) as stream:
                    while left >= 0 and (piece := stream.stdout.read(min(_PIECE, left + 1))):
                        left -= len(piece)
                        yield piece

            yield read

    def _run(
        self, *arguments: str, stdin: bytes = b"", env: run.Environment | None = None
    ) -> bytes:
        done = self._repo.call(
            *NO_HOOKS, *PATIENCE, *arguments, stdin=stdin, env=env or {"LC_ALL": "C"}, ok=_ANY
        )
        if done.code:
            raise failure(self.label, words_of(done.stderr))
        return done.stdout


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
