"""The files of a release: as a folder has them, or as a checkout of a commit would.

Numbers are those of the rules in `docs/spec/release.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from wtxtgit.checkpoint.bundle import (
    Bundle,
    ReleaseKey,
    Resource,
    parse_bundle,
    shown_key,
    verified,
)
from wtxtgit.checkpoint.open import blob, payload_in
from wtxtgit.errors import (
    CheckError,
    EnvironmentFailure,
    FormatError,
    InputError,
    LacksPayload,
    TrustError,
    UsageError,
)
from wtxtgit.filter.smudge import smudge
from wtxtgit.io.files import opened_regular, read_view, reason, shown, shown_path
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import ByteView, hashed, pieces
from wtxtgit.model.findings import Problem
from wtxtgit.remotes.lfs_pointer import refuse_pointer
from wtxtgit.report.verdict import FileVerdict, ReleasedFile, ReleaseFacts

if TYPE_CHECKING:
    from wtxtgit.git.repository import Repository

BUNDLE = "release bundle"
"""The name of a bundle's format in a verdict."""
_MOST_BESIDE = 5
_GIT = ".git"


class ReleasedFiles(Protocol):
    """Files by their paths from the top level."""

    def sha256(self, name: str, progress: Progress | None) -> str:
        """Return the SHA-256 of a file in hex; raises FileMissing if there is none."""

    def beside(self, names: frozenset[str]) -> Iterator[str]:
        """Yield the names of all other files."""


class FileMissing(CheckError):
    """A file is missing, or is no regular file."""


class FilesOfFolder:
    """The files in a folder, as they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._real = Path(os.path.realpath(folder))

    def sha256(self, name: str, progress: Progress | None) -> str:
        file = self.file(name)
        # Refuse what is outside of the folder, and what can be changed under another name.
        if os.path.realpath(file) != os.fspath(file):
            raise FileMissing("it or a folder above it is a symbolic link")
        try:
            with opened_regular(file) as (descriptor, _):
                content = read_view(descriptor, self._folder / name)
                return _sha256(content, progress)
        except OSError as error:
            raise FileMissing(reason(error)) from error

    def file(self, name: str) -> Path:
        """Return the path of a file."""
        return self._real / name

    def beside(self, names: frozenset[str]) -> Iterator[str]:
        unread: list[Path] = []

        def note(error: OSError) -> None:
            unread.append(Path(error.filename))

        for name, folders, files in os.walk(self._real, onerror=note):
            folder = Path(name)
            # The repository's own .git is not part of the model; others further down are.
            if folder == self._real:
                folders[:] = [one for one in folders if one != _GIT]
                files = [one for one in files if one != _GIT]
            folders.sort()
            # A link to a folder is not followed.
            links = [one for one in folders if (folder / one).is_symlink()]
            yield from self._others((folder / one for one in files + links), names)
        yield from self._others(unread, names)

    def _others(self, paths: Iterable[Path], names: frozenset[str]) -> Iterator[str]:
        found = (os.fspath(path.relative_to(self._real)) for path in paths)
        yield from sorted(name for name in found if name not in names)


class FilesOfCommit:
    """The files of a commit, as a checkout writes them: `filtered` go through the filter."""

    def __init__(
        self,
        repo: Repository,
        blobs: Mapping[bytes, str],
        filtered: Iterable[bytes],
        altered: Mapping[bytes, str] | None = None,
    ) -> None:
        self._repo = repo
        self._blobs = blobs
        self._filtered = frozenset(filtered)
        self._altered = altered or {}

    @classmethod
    def at(cls, repo: Repository, revision: str, names: Iterable[str]) -> FilesOfCommit:
        """Return the files of a revision; `names` are those that will be asked for.

        Raises EnvironmentFailure if it names no commit.
        """
        from wtxtgit.git.attributes import CHECKOUT
        from wtxtgit.git.commit_files import CommitFilesReader
        from wtxtgit.git.history import resolve_commit

        commit = resolve_commit(repo, revision)
        with CommitFilesReader(repo) as reader:
            listing = reader.listing(commit).items()
            blobs = {path: entry.oid for path, entry in listing if entry.is_file}
            files = reader.files(commit)
            asked = sorted({os.fsencode(name) for name in names} & blobs.keys())
            values = reader.attributes(files, asked, CHECKOUT)
            altered = {path: why for path in asked if (why := _altering(values[path])) is not None}
            return cls(repo, blobs, files.filtered, altered)

    def sha256(self, name: str, progress: Progress | None) -> str:
        path = os.fsencode(name)
        if (oid := self._blobs.get(path)) is None:
            raise FileMissing("the commit has no such file")
        if path in self._altered:
            raise CheckError(f"the {self._altered[path]} attribute changes what a checkout writes")
        content = blob(self._repo, oid)
        if path not in self._filtered:
            return _sha256(content, progress)
        refuse_pointer(shown_path(path), content)
        found = payload_in(self._repo, content)
        smudged = smudge(content, payload=lambda: found)
        if smudged.warning is not None:
            kind = LacksPayload if smudged.lacks_payload else CheckError
            raise kind(f"{shown_path(path)}: {smudged.warning}")
        return hashed(sha256(), smudged.pieces(), progress).hexdigest()

    def beside(self, names: frozenset[str]) -> Iterator[str]:
        # A commit also has code, ledgers and documents, so only unnamed checkpoints are of
        # interest.
        yield from sorted({os.fsdecode(path) for path in self._filtered & set(self._blobs)} - names)


def _altering(values: tuple[bytes, ...]) -> str | None:
    """Return the attribute by which every checkout writes other bytes than the filter returns."""
    from wtxtgit.git.attributes import altering

    # The effect of text depends on the configuration, and export-subst only concerns archives.
    mild = ("text", "export-subst")
    return next((one for one in altering(values) if not one.startswith(mild)), None)


def _sha256(content: ByteView, progress: Progress | None) -> str:
    return hashed(sha256(), pieces(content), progress).hexdigest()


def released_from(against: str | None, names: Iterable[str]) -> ReleasedFiles:
    """Return the files that --against names: a folder or a revision.

    The default is the work tree or, outside of one, the current folder. `names` are the files that
    will be asked for.
    """
    from wtxtgit.git.repository import Repository

    if against is None:
        repo = Repository.find()
        return FilesOfFolder(Path() if repo is None or repo.is_bare else repo.worktree)
    if Path(against).is_dir():
        return FilesOfFolder(Path(against))
    if os.path.lexists(against):
        raise UsageError(f"{shown(against)} is neither a folder nor a revision")
    return FilesOfCommit.at(Repository.discover(), against, names)


def bundle_verdict(
    path: str,
    data: ByteView,
    keys: Iterable[ReleaseKey],
    against: str | None,
    *,
    strict: bool = False,
    progress: Progress | None = None,
) -> FileVerdict:
    """Return the verdict on a bundle and the files that it names.

    Nothing in them raises an error.
    """
    try:
        return _verdict(path, parse_bundle(data), tuple(keys), against, strict, progress)
    except TrustError as error:
        hint = "" if keys else ": --public-key FILE or --signers FILE names one"
        return FileVerdict(path, BUNDLE, (Problem("signature", f"{error.message}{hint}"),))
    except FormatError as error:
        return FileVerdict(path, BUNDLE, (Problem(error.kind, error.message, field=error.field),))


def _verdict(
    path: str,
    bundle: Bundle,
    keys: tuple[ReleaseKey, ...],
    against: str | None,
    strict: bool,
    progress: Progress | None,
) -> FileVerdict:
    release, key = verified(bundle, keys)
    # 5.
    try:
        files = released_from(against, [one.name for one in release.resources])
    except (UsageError, EnvironmentFailure) as error:
        problem = Problem("missing", error.message)
        return FileVerdict(path, BUNDLE, (problem,), known=False, failure=error)
    looked_at = (_wrong(one, files, progress) for one in release.resources)
    errors = [problem for problem in looked_at if problem is not None]
    # 6. The bundle itself may lie there.
    names = frozenset(one.name for one in release.resources)
    beside = [name for name in files.beside(names) if not _is_same(name, path, files)]
    notes = [_not_named(beside)] if beside else []
    return FileVerdict(
        path,
        BUNDLE,
        (*errors, *(notes if strict else ())),
        () if strict else tuple(notes),
        signature=f"valid, {shown_key(key)}",
        release=ReleaseFacts(
            release.name,
            release.origin.get("commit"),
            tuple(ReleasedFile(one.name, one.sha256) for one in release.resources),
        ),
    )


def _is_same(name: str, path: str, files: ReleasedFiles) -> bool:
    if not isinstance(files, FilesOfFolder):
        return False
    try:
        return not files.file(name).is_symlink() and files.file(name).samefile(path)
    except OSError:
        return False


def _not_named(beside: list[str]) -> Problem:
    listed = ", ".join(map(shown, beside[:_MOST_BESIDE]))
    more = f" and {len(beside) - _MOST_BESIDE} more" if len(beside) > _MOST_BESIDE else ""
    return Problem("unnamed", f"files that are not signed: {listed}{more}")


def _wrong(one: Resource, files: ReleasedFiles, progress: Progress | None) -> Problem | None:
    """Return what is wrong with a file; None if nothing is."""
    try:
        has = files.sha256(one.name, progress)
    except FileMissing as error:
        return Problem("missing", f"{shown(one.name)}: {error.message}")
    except (CheckError, InputError, EnvironmentFailure) as error:
        return Problem("structure", f"{shown(one.name)}: {error.message}")
    if has != one.sha256:
        return Problem(
            "sha256", f"{shown(one.name)}: the file has {has}, but {one.sha256} is signed"
        )
    return None
