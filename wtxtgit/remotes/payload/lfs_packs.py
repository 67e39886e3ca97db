"""Packs of payload on a git-lfs server, each as an object.

Spec: `docs/spec/store.md`, "Remote". Such a server can't list what it has. So the git remote does,
as with `GitPacks`, but with a pointer in place of a pack; servers that drop objects without a
pointer keep it. Objects are uploaded before pointers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence

from wtxtgit.errors import InputError
from wtxtgit.git.remotes import GitRemote, asked
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import view_file
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, mapped
from wtxtgit.remotes.lfs_batch import LfsServer
from wtxtgit.remotes.lfs_pointer import LfsObject, format_pointer
from wtxtgit.remotes.payload.git_packs import GitPacks
from wtxtgit.remotes.payload.place import OutgoingPack, divisible_anywhere
from wtxtgit.remotes.target import Outgoing, Span
from wtxtgit.remotes.urls import shown_url


class LfsPacks(GitPacks):
    """The packs on the git-lfs server of a git remote, or at a URL; see `PackPlace`.

    `at` is the one of the remote's repositories that lists them.
    """

    _place = "refs/wtxt/lfs/"

    def __init__(
        self, repo: Repository, remote: str, url: str | None = None, at: GitRemote | None = None
    ) -> None:
        super().__init__(repo, *(at or asked(remote)))
        server = "lfs" if url is None else f"lfs+{shown_url(url)}"
        self.label = f"{server} of {self.label}"
        self._server = LfsServer(repo, remote, self.label, url)
        self._gives_parts: bool | None = None

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        objects = [LfsObject(name, size) for name, size in sizes.items()]
        for one, pieces in self._server.contents(objects):
            yield one.sha256, pieces

    def divisible(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        return divisible_anywhere(self, sizes)

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        pack = LfsObject(name, size)
        if self._gives_parts is None:
            # Tested once: what a server supports only shows when it sends something.
            with contextlib.suppress(InputError):
                self._gives_parts = self._server.gives_parts(pack)
        if self._gives_parts is False:
            return None
        return map(mapped, self._server.ranges(pack, spans))

    def gives_parts(self, pack: str | None = None, size: int = 0) -> bool | None:
        if pack is not None:
            self.ranges(pack, size, ())
        return self._gives_parts

    def put(self, packs: Sequence[OutgoingPack], progress: Progress | None = None) -> None:
        self._server.upload([
            Outgoing(f"{name}.pack", view_file(path), name, progress) for name, path, _, _ in packs
        ])  # fmt: skip
        self._push({
            file: content
            for name, _, size, end in packs
            for file, content in (
                (f"{name}.pack", format_pointer(LfsObject(name, size))),
                (f"{name}.index", end),
            )
        })  # fmt: skip

    def remove(self, names: Sequence[str]) -> str:
        super().remove(names)
        return "the git-lfs server keeps the objects: it can't be asked to delete any"

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        objects = [LfsObject(name, size) for name, size in sizes.items()]
        present = self._server.held(objects) if objects else set()
        return [lfs_object.sha256 for lfs_object in objects if lfs_object not in present]
