"""A branch of a git remote as a target, with file contents on the remote's git-lfs server.

The branch has pointers: whoever clones it with git-lfs gets the files.
https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from wtxtgit.git.trees import TreeEntry
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.git_target import BranchFolder
from wtxtgit.remotes.lfs_batch import LfsServer
from wtxtgit.remotes.lfs_pointer import LfsObject, format_pointer, pointed
from wtxtgit.remotes.target import Outgoing, StoredFile, check_fetched, check_name


class LFS(BranchFolder):
    """As `Git`, with contents on the git-lfs server of the remote.

    Commits contain pointers to them. The server is `url`, or the one in git's configuration
    (`remote.NAME.lfsurl`, `lfs.url`), or that of the remote's own host. An address in `.lfsconfig`
    is ignored, because it comes from the work tree. Passwords come from git's credential helpers.
    Contents are uploaded before the commit.
    """

    _scheme = "lfs"
    _attributes = b"* filter=lfs diff=lfs merge=lfs -text\n.gitattributes !filter !diff !merge\n"

    def __init__(
        self,
        remote: str,
        branch: str,
        path: str = "",
        *,
        repository: Path | None = None,
        url: str | None = None,
    ) -> None:
        super().__init__(remote, branch, path, repository=repository)
        self._server = LfsServer(self._repo, remote, self.label, url)
        self._ref = f"refs/heads/{branch}"

    def has(self, name: str, sha256: str) -> bool:
        """Tell whether there is a pointer to that content, and the server states that it has it."""
        entry = self._entry(check_name(name))
        lfs_object = pointed(self._repo, [entry.oid])[entry.oid] if entry is not None else None
        if lfs_object is None:
            return super().has(name, sha256)
        return lfs_object.sha256 == sha256 and bool(self._server.held([lfs_object]))

    def _blob(self, file: Outgoing) -> str:
        if not len(file.content):
            return super()._blob(file)
        to = LfsObject(file.sha256, len(file.content))
        return self._branch.blob([format_pointer(to)])

    def _send(self, files: Sequence[Outgoing]) -> None:
        self._server.upload(files, self._ref)

    def _content(self, entry: TreeEntry) -> ByteView:
        lfs_object = pointed(self._repo, [entry.oid])[entry.oid]
        if lfs_object is None:
            return super()._content(entry)
        return check_fetched(
            self.label, lfs_object.sha256, self._server.fetch(lfs_object), lfs_object.sha256
        )

    def _listed(self, entries: Mapping[str, TreeEntry]) -> list[StoredFile]:
        known_to = pointed(self._repo, {entry.oid for entry in entries.values()})
        plain = {name: entry for name, entry in entries.items() if known_to[entry.oid] is None}
        known = {stored.name: stored for stored in super()._listed(plain)}
        for name, entry in entries.items():
            if (lfs_object := known_to[entry.oid]) is not None:
                known[name] = StoredFile(name, lfs_object.nbytes, lfs_object.sha256)
        return [known[name] for name in entries]
