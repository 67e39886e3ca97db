"""A branch of a git remote as a target: each delivery is one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from wtxtgit.errors import InputError, RemoteUnavailable
from wtxtgit.git.blobs import sizes
from wtxtgit.git.remote_branch import MOST_ATTEMPTS, RemoteBranch
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.trees import TreeEntry
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.target import (
    Outgoing,
    StoredFile,
    check_fetched,
    check_files,
    check_name,
    checked_pieces,
    folders_of,
    is_name,
    missing,
    taken,
)

ATTRIBUTES = ".gitattributes"
_AS_THEY_ARE = b"* -text\n"
"""gitattributes(5) for a checkout: line ends stay, whatever core.autocrlf says."""


class Git:
    """The folder `path` of a branch of a remote, a configured one or a URL. See `Target`.

    `repository` is a folder in the repository that the commits are made in, by default the one
    around the working directory. Work tree, index, branches and hooks of it are left alone; the
    branch is pushed to with git's own program and credentials. A delivery is one commit, all of it
    or nothing. Where somebody else pushed meanwhile, it is made anew on top of that.

    Raises EnvironmentFailure where there is no repository, and UsageError for a branch or a path
    that can't be.
    """

    _scheme = "git"
    _attributes = _AS_THEY_ARE
    """What a folder that is made anew gets, as its gitattributes file."""

    def __init__(
        self, remote: str, branch: str, path: str = "", *, repository: Path | None = None
    ) -> None:
        self._repo = Repository.discover(repository)
        self._branch = RemoteBranch(self._repo, remote, branch)
        self._folder = check_name(path) if path else ""
        self.label = f"{self._scheme}:{self._branch.label}" + (f":{path}" if path else "")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"

    def put(
        self,
        files: Sequence[Outgoing],
        *,
        about: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sequence[str]:
        """Deliver files as one commit, whose message says what `about` does."""
        check_files(files)
        blobs = {file.name: self._blob(file) for file in files}
        message = _message(list(blobs), about or {})
        tip = self._branch.seen()
        is_now = False
        for _ in range(MOST_ATTEMPTS):
            there = self._branch.files(tip, self._folder) if tip else {}
            new = [
                name for name, oid in blobs.items() if name not in there or there[name].oid != oid
            ]
            folders = {folder for name in there for folder in folders_of(name)}
            other = next(
                (
                    name
                    for name in new
                    if (name in there and not replace)
                    or name in folders
                    or not there.keys().isdisjoint(folders_of(name))
                ),
                None,
            )
            # What was seen a while ago settles nothing: the branch may be another one by now.
            if (other is None and new) or is_now:
                if other is not None:
                    raise taken(self.label, other)
                if not new:
                    return []
                self._send([file for file in files if file.name in new])
                commit = self._commit(tip, there, {name: blobs[name] for name in new}, message)
                if self._branch.push(commit):
                    return new
            tip, is_now = self._branch.fetch(), True
        raise RemoteUnavailable(f"{self.label}: others push without a break")

    def get(self, name: str, sha256: str | None = None) -> ByteView:
        entry = self._entry(check_name(name))
        if entry is None:
            raise missing(self.label, name)
        return check_fetched(self.label, name, self._content(entry), sha256)

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        found = sorted(self._now().items())
        return self._listed({n: e for n, e in found if n.startswith(prefix) and is_name(n)})

    def has(self, name: str, sha256: str) -> bool:
        """Whether it is there, by reading it."""
        try:
            self.get(name, sha256)
        except InputError:
            return False
        return True

    def _now(self) -> dict[str, TreeEntry]:
        tip = self._branch.fetch()
        return self._branch.files(tip, self._folder) if tip else {}

    def _entry(self, name: str) -> TreeEntry | None:
        return self._now().get(name)

    def _content(self, entry: TreeEntry) -> ByteView:
        with ObjectStore(self._repo) as store:
            return spooled(store.blob(entry.oid))

    def _listed(self, found: Mapping[str, TreeEntry]) -> Sequence[StoredFile]:
        known = sizes(self._repo, [entry.oid for entry in found.values()]) if found else {}
        return [StoredFile(name, known[entry.oid]) for name, entry in found.items()]

    def _send(self, files: Sequence[Outgoing]) -> None:
        """What has to be done before files are committed: nothing, they are in the commit."""

    def _blob(self, file: Outgoing) -> str:
        return self._branch.blob(checked_pieces(file))

    def _commit(
        self,
        tip: str | None,
        there: Mapping[str, TreeEntry],
        blobs: Mapping[str, str],
        message: str,
    ) -> str:
        start = f"{self._folder}/" if self._folder else ""
        added = {start + name: oid for name, oid in blobs.items()}
        # A folder that was there has the attributes that its users want.
        if not there:
            added[start + ATTRIBUTES] = self._branch.blob([self._attributes])
        return self._branch.commit(tip, added, message)


def _message(names: Sequence[str], about: Mapping[str, str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    lines = [f"{key}: {' '.join(value.split())}" for key, value in about.items()]
    return (
        "\n".join([f"deliver {names[0] if names else 'nothing'}{more}", "", *lines]).strip() + "\n"
    )
