"""Packs of payload at a git remote: blobs, or trees of them, one pack per ref.

Spec: `docs/spec/store.md`, "Remote". Git itself pushes and fetches them, with the user's settings
and credentials. During a transfer the objects lie in a temporary folder of their own: the
repository never gets a second copy of what its store has, nor refs, and gc has nothing to keep.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, InputError
from wtxtgit.git import run
from wtxtgit.git.blobs import blob_id, check_oid
from wtxtgit.git.remote_refs import RemoteRefs
from wtxtgit.git.repository import Repository
from wtxtgit.git.transfer import PLAIN, PUSH, failure, transfer, words_of
from wtxtgit.io import clock
from wtxtgit.io.files import failures, replace_file
from wtxtgit.io.progress import Progress
from wtxtgit.io.temporary import new_folder
from wtxtgit.io.view import Buffer, write_all
from wtxtgit.remotes.payload.cut_packs import (
    CUT,
    INDEX,
    PARTS,
    ArrivedObjects,
    PackParts,
    drop,
    write_objects,
)
from wtxtgit.remotes.payload.place import (
    FORGOTTEN,
    UNNEEDED,
    OutgoingPack,
    in_part,
    whole,
    with_mark,
)
from wtxtgit.remotes.payload.store_url import GIT, spelled
from wtxtgit.remotes.target import Span
from wtxtgit.store.pack import MAX_END

_Read = Callable[[str, int], Iterator[bytes]]
REFS = "refs/wtxt/store/"
"""The prefix of the refs of packs at a remote."""
_AT_ONCE = 64 * 1024 * 1024
"""Most bytes of packs that are fetched or pushed together; a larger one is alone."""
_LISTS = 4096
"""Packs whose lists of parts are remembered; each has some 10 KB."""
_FETCHED = Path("wtxt", "objects")
"""The folder in git's own for objects being fetched; a killed process leaves them there."""
_LEFT = 60 * 60
# Payload is compressed already: delta compression and deflating would only take time.
_AS_IT_IS = (
    "-c", "core.compression=0", "-c", "core.looseCompression=0", "-c", "pack.compression=0",
    "-c", "core.bigFileThreshold=64k", "-c", "pack.window=0",
)  # fmt: skip


class GitPacks:
    """The packs of a git remote; see `PackPlace`. The parameters are those of a `GitRemote`."""

    _place = REFS

    def __init__(
        self, repo: Repository, told: str, address: str | None = None, env: run.Environment = PLAIN
    ) -> None:
        self._repo = repo
        self._remote = told
        self._env = env
        self._refs: dict[str, str] = {}
        self.label = spelled(GIT + (address or told))
        self._remote_refs = RemoteRefs(repo, told, self.label, env)
        self._lists: dict[str, bytes] = {}
        self._gives_ids: bool | None = None

    def packs(self) -> Sequence[str]:
        listed = self._remote_refs.list(f"{self._place}*")
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

    def divisible(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        cut = [name for name in sizes if sizes[name] > CUT and f"{name}.index" in self._refs]
        unknown = [name for name in cut if name not in self._lists]
        if self._gives_ids is not False:
            # The lists come with the ends.
            for _ in self.ends(unknown):
                pass
        parts_of = {name: parts for name in cut if (parts := self._parts(name, sizes[name]))}
        if parts_of and self._gives_ids is None:
            self._gives_ids = self._test_ids(next(iter(parts_of)))
        return {name: parts.grain for name, parts in parts_of.items()} if self._gives_ids else {}

    def _parts(self, name: str, size: int) -> PackParts | None:
        return PackParts.parse(self._lists.get(name, b""), size)

    def _test_ids(self, name: str) -> bool:
        """Tell whether the server gives objects by their ids, by asking for a list of parts."""
        listed = self._lists[name]
        oid = blob_id((listed,), len(listed), like=self._refs[f"{name}.index"])
        # Where git does not have it yet: it would not ask for it.
        with new_folder(self._repo.common_dir) as folder, suppress(EnvironmentFailure):
            self._remote_refs.fetch([oid], self._using(folder), only_blobs=True)
            return True
        return False

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        if f"{name}.pack" not in self._refs:
            raise InputError(f"{self.label}: {name}.pack: not found")
        is_cut = name in self.divisible({name: size})
        parts = self._parts(name, size) if is_cut else None
        return None if parts is None else self._ranges(name, parts, spans)

    def _ranges(self, name: str, parts: PackParts, spans: Sequence[Span]) -> Iterator[Buffer]:
        needed = [oid for span in spans for oid in parts.between(*span)[0]]
        with self._arrived() as arrived:
            if lacking := arrived.lacking(needed):
                self._remote_refs.fetch(lacking, arrived.env, only_blobs=True)
            try:
                for start, stop in spans:
                    oids, skipped = parts.between(start, stop)
                    content = b"".join(arrived.content(oids, len(oids) * parts.grain))
                    if len(content) < skipped + stop - start:
                        raise InputError(f"{self.label}: {name}.pack: ends early")
                    yield memoryview(content)[skipped : skipped + stop - start]
            finally:
                arrived.drop(needed)

    def gives_parts(self, pack: str | None = None, size: int = 0) -> bool | None:
        """See `PackPlace`: since 2018 git's servers do, and each test is a fetch."""
        return True

    def put(self, packs: Sequence[OutgoingPack], progress: Progress | None = None) -> None:
        """See `PackPlace`: git counts nothing for us, so what was sent counts push by push.

        What a killed one had sent is lost.
        """
        by_name = {pack.name: pack for pack in packs}
        for batch in _batches({name: pack.size for name, pack in by_name.items()}):
            together = [by_name[name] for name in batch]
            small = [pack for pack in together if pack.size <= CUT]
            self._push(
                {
                    file: content
                    for name, path, _, end in small
                    for file, content in ((f"{name}.pack", path), (f"{name}.index", end))
                },
                [pack for pack in together if pack.size > CUT],
            )
            if progress is not None:
                progress(sum(pack.size for pack in together))

    def _push(self, files: Mapping[str, Path | bytes], cut: Sequence[OutgoingPack] = ()) -> None:
        """Push files, or bytes, as blobs to the remote, by their names below the refs; `cut` packs
        as trees.
        """
        with new_folder(self._repo.common_dir) as folder:
            env = self._using(folder)
            oids = write_objects(self._repo, folder, env, files, cut)
            refspecs = (f"{oid}:{self._place}{name}" for name, oid in oids.items())
            batches = run.batches(refspec.encode("ascii") for refspec in refspecs)
            failures = [words for batch in batches if (words := self._pushed(*batch, env=env))]
        if failures:
            # Another process that pushed the same pack may have been faster.
            self.packs()
            if any(self._refs.get(name) != oid for name, oid in oids.items()):
                raise failure(self.label, failures[0])

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        """See `PackPlace`: a pack with a ref exists."""
        return ()

    def parts(self) -> Sequence[str]:
        return in_part(self._refs)

    def times(self, names: Sequence[str]) -> Mapping[str, float | None]:
        present = {file.partition(".")[0] for file in self._refs}
        # A blob has no date, and neither has a ref.
        return {name: None for name in names if name in present}

    def marked(self) -> Collection[str]:
        return with_mark(self._refs)

    def mark(self, names: Sequence[str]) -> None:
        self._push({f"{name}.{UNNEEDED}": b"" for name in names})

    def remove(self, names: Sequence[str]) -> str | None:
        self._remove({f"{name}.{kind}" for name in names for kind in ("index", "pack")})
        return None

    def forget(self, names: Sequence[str]) -> None:
        self._remove({f"{name}.{UNNEEDED}" for name in names})

    def _remove(self, files: Set[str]) -> None:
        for attempt in range(2):
            # Git removes none of the refs if one of them does not exist.
            self.packs()
            present = sorted(files & self._refs.keys())
            refs = [f":{self._place}{file}".encode("ascii") for file in present]
            failures = [words for batch in run.batches(refs) if (words := self._pushed(*batch))]
            if not failures:
                break
            if attempt:
                raise failure(self.label, failures[0])

    def _pushed(self, *refspecs: str | bytes, env: run.Environment | None = None) -> str | None:
        """Push refs of packs; returns git's message if that fails, else None."""
        arguments = (*_AS_IT_IS, *PUSH, "--no-signed", "--end-of-options", self._remote)
        done = transfer(self._repo, *arguments, *refspecs, env=env or self._env)
        return words_of(done.stdout + b"\n" + done.stderr) if done.code else None

    def settle(self) -> None:
        """See `PackPlace`: refs can always be listed."""

    def _using(self, folder: Path) -> run.Environment:
        """Return an environment in which git writes objects to a folder beside the repository's."""
        named = folder / "info/alternates"
        line = os.fsencode(self._repo.git_path("objects").absolute()) + b"\n"
        with failures(folder, missing=EnvironmentFailure):
            named.parent.mkdir(parents=True, exist_ok=True)
            # Other processes may be reading it.
            if not named.exists() or named.read_bytes() != line:
                replace_file(named, lambda fd: write_all(fd, (line,)))
        return {**self._env, "GIT_OBJECT_DIRECTORY": os.fspath(folder)}

    @contextmanager
    def _arrived(self) -> Iterator[ArrivedObjects]:
        """Open the folder that objects are fetched into.

        Git writes each as soon as it has arrived, and those that a killed process left are not
        fetched again.
        """
        with ExitStack() as until:
            folder = self._repo.common_dir / _FETCHED
            if self._is_promisor():
                # There git would keep what it fetches in packs marked with their origin.
                folder = until.enter_context(new_folder(self._repo.common_dir))
            env = self._using(folder)
            _sweep(folder)
            yield ArrivedObjects(self._repo, folder, env)

    @contextmanager
    def _fetched(self, files: Sequence[str]) -> Iterator[_Read]:
        """Fetch what refs lead to.

        Yields a function that reads a pack or an end, in pieces, up to a number of bytes. Its
        objects are removed then.
        """
        with self._arrived() as arrived:
            yield self._fetched_to(arrived, files)

    def _is_promisor(self) -> bool:
        """Tell whether the repository is a partial clone of the remote: git-config(1)."""
        config = self._repo.config
        is_old = config.get("extensions.partialClone") == self._remote
        return is_old or config.is_true(f"remote.{self._remote}.promisor")

    def _fetched_to(self, arrived: ArrivedObjects, files: Sequence[str]) -> _Read:
        oids = {file: check_oid(self._refs[file]) for file in files}
        lacking = {*arrived.lacking(oids.values())}
        self._fetch_refs(arrived, [file for file in files if oids[file] in lacking])
        trees = arrived.trees(oids.values())
        # Of a tree that a killed process left, blobs may be missing.
        left = {
            oid: missing
            for oid, tree in trees.items()
            if oid not in lacking and (missing := arrived.lacking(tree.values()))
        }
        if left:
            try:
                blobs = [oid for missing in left.values() for oid in missing]
                self._remote_refs.fetch(blobs, arrived.env, only_blobs=True)
            except EnvironmentFailure:
                # Not every server gives objects by their ids.
                self._fetch_refs(arrived, [file for file in files if oids[file] in left])

        def read(file: str, most: int) -> Iterator[bytes]:
            tree = trees.get(oids[file])
            try:
                if tree is None:
                    blobs = [oids[file]]
                elif file.endswith(".pack"):
                    blobs = [oid for _, oid in sorted(tree.items())]
                else:
                    blobs = [tree[INDEX]] if INDEX in tree else []
                    self._keep_list(file, arrived, tree.get(PARTS))
                yield from arrived.content(blobs, most)
            finally:
                # In any case: what is damaged is then fetched again next time. The tree goes last:
                # if this process is killed here, the next one fetches by it only what is gone.
                arrived.drop((*(tree or {}).values(), oids[file]))

        return read

    def _fetch_refs(self, arrived: ArrivedObjects, files: Sequence[str]) -> None:
        if files:
            refs = [f"{self._place}{file}" for file in files]
            self._remote_refs.fetch(refs, arrived.env, only_blobs=True)

    def _keep_list(self, file: str, arrived: ArrivedObjects, oid: str | None) -> None:
        """Remember the list of the parts of a pack."""
        if oid is not None and len(self._lists) < _LISTS:
            self._lists[file.removesuffix(".index")] = b"".join(arrived.content([oid], MAX_END))


def forget_fetched(repo: Repository) -> None:
    """Remove what killed fetches left in a repository long ago."""
    _sweep(repo.common_dir / _FETCHED)


def _sweep(folder: Path) -> None:
    """Remove what was fetched into a folder long ago and never read.

    Temporary files that killed git processes left are removed sooner.
    """
    now = clock.now()
    for path in (*folder.glob("??/*"), *folder.glob("pack/*")):
        age = _LEFT if path.name.startswith("tmp_") else FORGOTTEN
        with suppress(OSError):
            if path.stat().st_mtime < now - age:
                drop(path)


def _batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    batch: list[str] = []
    total = 0
    for name, size in sizes.items():
        if batch and total + size > _AT_ONCE:
            yield batch
            batch, total = [], 0
        batch.append(name)
        total += size
    if batch:
        yield batch
