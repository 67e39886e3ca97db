"""A branch of a git remote as a target: each delivery is one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from wtxtgit.errors import InputError, RemoteRefused, RemoteUnavailable
from wtxtgit.git.blobs import BlobReader, known_sizes
from wtxtgit.git.remote_branch import MOST_ATTEMPTS, RemoteBranch, named
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.trees import TreeEntry
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.sealed_branch import AS_THEY_ARE, BranchLedgers
from wtxtgit.remotes.sealed_branch import ATTRIBUTES as SEALED_ATTRIBUTES
from wtxtgit.remotes.target import (
    FileSeals,
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
from wtxtgit.text.grammar import WSUM_SUFFIX
from wtxtgit.text.ledger import MAX_SIZE, LedgerReport

ATTRIBUTES = ".gitattributes"
_WSUM = WSUM_SUFFIX.decode("ascii")


class BranchFolder:
    """The folder `path` on a branch of a remote, which is a configured one or a URL. See `Target`.

    The commits are made in the repository that contains the folder `repository`, by default the
    working directory. Its work tree, index, branches and hooks are not touched; git itself pushes,
    with the user's credentials. A delivery is one commit, complete or nothing. If somebody else has
    pushed meanwhile it is made again on top of that. Raises EnvironmentFailure if there is no
    repository, and UsageError for an invalid branch or path.
    """

    _scheme: ClassVar[str]
    _attributes: ClassVar[bytes]
    """The content of the gitattributes file of a new folder."""

    def __init__(
        self, remote: str, branch: str, path: str = "", *, repository: Path | None = None
    ) -> None:
        self._repo = Repository.discover(repository)
        self._branch = RemoteBranch(self._repo, remote, branch)
        self._folder = check_name(path) if path else ""
        self._ledgers: dict[str, LedgerReport] = {}
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
        """Deliver files as one commit; `about` goes into its message."""
        # Keeps git's process for reading objects running for the whole delivery.
        with BlobReader(self._repo):
            return self._put(files, about or {}, None, replace=replace)

    def _put(
        self,
        files: Sequence[Outgoing],
        about: Mapping[str, str],
        sealing: FileSeals | None,
        *,
        replace: bool = False,
    ) -> Sequence[str]:
        check_files(files)
        blobs = {file.name: self._blob(file) for file in files}
        message = _message(list(blobs), about)
        tip = self._branch.seen()
        is_now = False
        for _ in range(MOST_ATTEMPTS):
            entries = self._files_at(tip)
            new = [
                name
                for name, oid in blobs.items()
                if name not in entries or entries[name].oid != oid
            ]
            folders = {folder for name in entries for folder in folders_of(name)}
            other = next(
                (
                    name
                    for name in new
                    if (name in entries and not replace)
                    or name in folders
                    or not entries.keys().isdisjoint(folders_of(name))
                ),
                None,
            )
            # What was seen some time ago decides nothing, because the branch may have moved since.
            if (other is None and new) or is_now:
                if other is not None:
                    raise taken(self.label, other)
                if not new:
                    return []
                try:
                    added, lines = self._places(tip, {name: blobs[name] for name in new}, sealing)
                except RemoteRefused:
                    if is_now:
                        raise
                else:
                    self._send([file for file in files if file.name in new])
                    text = message + "".join(f"{line}\n" for line in lines)
                    if self._branch.push(self._commit(tip, added, text)):
                        return new
            tip, is_now = self._branch.fetch(), True
        raise RemoteUnavailable(f"{self.label}: others keep pushing to it")

    def get(self, name: str, sha256: str | None = None) -> ByteView:
        entry = self._entry(check_name(name))
        if entry is None:
            raise missing(self.label, name)
        return check_fetched(self.label, name, self._content(entry), sha256)

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        entries = sorted(self._now().items())
        return self._listed({n: e for n, e in entries if n.startswith(prefix) and is_name(n)})

    def has(self, name: str, sha256: str) -> bool:
        """Tell whether the file is there, by reading it."""
        try:
            self.get(name, sha256)
        except InputError:
            return False
        return True

    def _now(self) -> dict[str, TreeEntry]:
        return self._files_at(self._branch.fetch())

    def _files_at(self, tip: str | None) -> dict[str, TreeEntry]:
        """Return all files by name, including those of the history that now have another path."""
        if tip is None:
            return {}
        return {
            **self._branch.delivered(tip, self._folder),
            **self._branch.files(tip, self._folder),
        }

    def _entry(self, name: str) -> TreeEntry | None:
        return self._now().get(name)

    def _content(self, entry: TreeEntry) -> ByteView:
        with ObjectStore(self._repo) as store:
            return spooled(store.blob(entry.oid))

    def _listed(self, entries: Mapping[str, TreeEntry]) -> Sequence[StoredFile]:
        known = known_sizes(self._repo, [e.oid for e in entries.values()]) if entries else {}
        # A file that is named in a commit's message need not exist.
        return [StoredFile(n, known[e.oid]) for n, e in entries.items() if e.oid in known]

    def _send(self, files: Sequence[Outgoing]) -> None:
        """Do what has to be done before files are committed.

        Here nothing, since the commit has them.
        """

    def _blob(self, file: Outgoing) -> str:
        return self._branch.blob(checked_pieces(file))

    @property
    def _start(self) -> str:
        return f"{self._folder}/" if self._folder else ""

    def _places(
        self, tip: str | None, blobs: Mapping[str, str], sealing: FileSeals | None
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return blobs, ledgers included, by their paths, and lines that state their names."""
        if sealing is None:
            return {self._start + name: oid for name, oid in blobs.items()}, ()
        ledgers = BranchLedgers(
            self.label,
            sealing,
            lambda path: self._branch.content(tip, path, MAX_SIZE) if tip else None,
            lambda path: tip is not None and self._branch.entry(tip, path) is not None,
            self._ledgers,
        )
        places = {of: ledgers.place(self._start, of) for of in sealing.seals if of in blobs}
        placed, lines = {}, []
        for name, oid in blobs.items():
            # A WSUM goes with its text, and is not sealed itself.
            of = next((of for of in places if name == of or name == of + _WSUM), None)
            place = name if of is None else places[of] + name.removeprefix(of)
            placed[self._start + place] = oid
            if place != name:
                lines.append(named(self._start + name, oid))
        attributes = self._start + ATTRIBUTES
        if tip is not None and self._branch.entry(tip, attributes) is None:
            ledgers.added[attributes] = SEALED_ATTRIBUTES
        own = {path: self._branch.blob([content]) for path, content in ledgers.added.items()}
        return {**placed, **own}, tuple(lines)

    def _commit(self, tip: str | None, blobs: Mapping[str, str], message: str) -> str:
        added = dict(blobs)
        # An existing folder keeps the attributes that its users chose.
        if tip is None or not self._branch.files(tip, self._folder):
            added[self._start + ATTRIBUTES] = self._branch.blob([self._attributes])
        return self._branch.commit(tip, added, message)


class Git(BranchFolder):
    """A folder on a branch whose commits contain the files themselves. See `BranchFolder`."""

    _scheme = "git"
    _attributes = AS_THEY_ARE + SEALED_ATTRIBUTES

    def put_sealed(
        self, files: Sequence[Outgoing], sealing: FileSeals, *, about: Mapping[str, str]
    ) -> Sequence[str]:
        """Deliver files as `put` does, each as the next content of its path, with its ledger."""
        with BlobReader(self._repo):
            return self._put(files, about, sealing)


def _message(names: Sequence[str], about: Mapping[str, str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    lines = [f"{key}: {' '.join(value.split())}" for key, value in about.items()]
    return (
        "\n".join([f"deliver {names[0] if names else 'nothing'}{more}", "", *lines]).strip() + "\n"
    )
