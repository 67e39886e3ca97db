"""How each commit changes: which files get another form, and what its gitattributes say.

A migration is a function of a commit's tree, with one exception: the lines of an import are in all
commits from the first one that has such a file. Commits before it keep their ids and signatures.
Commits are processed as changes against their first parent, so that the work grows with the
changes. If a commit's gitattributes change the form of files that it does not touch, those are
looked up in its tree.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple, Protocol, Self

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git import attributes
from wtxtgit.git.attributes import CHECKOUT, MAX_FILE, TreeAttributes
from wtxtgit.git.blobs import BlobReader, blob_id
from wtxtgit.git.fast_stream import Change, StreamedCommit
from wtxtgit.git.history import CommitReader
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import MODE_EXECUTABLE, MODE_FILE, TreeReader
from wtxtgit.io.files import shown_path
from wtxtgit.setup.track import SUCH_AS

_TOP = attributes.FILE_NAME.encode()
_FILES = (MODE_FILE, MODE_EXECUTABLE)

_Entry = tuple[int, str]
_AttributeFiles = dict[bytes, _Entry]
"""A tree's gitattributes files: mode and blob by path."""
Values = Mapping[bytes, tuple[bytes, ...]]
"""The attributes of paths, as git prints them: values for each attribute in `CHECKOUT`."""


class Migration(Protocol):
    """What a migration does to files and to gitattributes."""

    @property
    def makes_texts(self) -> bool:
        """Whether files become texts; if not, texts become files."""

    def content(self, content: bytes | None, *, at_top: bool) -> bytes | None:
        """Return the new gitattributes file of a commit that has files to migrate."""

    def begins(self, content: bytes) -> bool:
        """Whether this gitattributes file alone makes a commit one that has files to migrate."""

    def candidates(self, before: Iterable[Values], top: Values) -> set[bytes]:
        """Return paths that may be migrated.

        `before` has the attributes of all paths, for each set of gitattributes files that there
        was. `top` has those with `lines` alone.
        """

    @property
    def lines(self) -> bytes | None:
        """A gitattributes file that selects paths; None if those of the commits do."""

    def forms(self, before: Values, after: Values) -> dict[bytes, bytes]:
        """Return the form that files get, by path, from their attributes before and after."""


class FileVersion(NamedTuple):
    """A blob that gets another form."""

    oid: str
    form: bytes


class MigratedCommit(NamedTuple):
    """A commit, and the changes in its new version; a FileVersion marks blobs that get a new form.

    If it is not `touched` neither it nor its parents change.
    """

    commit: StreamedCommit
    touched: bool
    changes: tuple[tuple[Change, FileVersion | None], ...]


class _CommitState(NamedTuple):
    """What a commit's children need: its former gitattributes files, and whether it changes."""

    before: int
    touched: bool


class HistoryWalk(AbstractContextManager["HistoryWalk"]):
    """Reads commits, first with `look`, then with `commits` as often as needed.

    `followers` are ids of commits that change only if a parent does.
    """

    def __init__(
        self, repo: Repository, migration: Migration, followers: Container[str] = ()
    ) -> None:
        self._repo = repo
        self._migration = migration
        self._followers = followers
        self._closing = ExitStack()
        self.unwritten: dict[str, bytes] = {}
        """Contents of new gitattributes files by id, which the repository may lack."""
        self._blobs = BlobReader(repo)
        self._attributes_reader = TreeAttributes(repo, self.unwritten)
        self._commits = CommitReader(repo)
        self._trees = TreeReader(repo)
        self._sets: list[_AttributeFiles] = []
        self._numbers: dict[frozenset[tuple[bytes, _Entry]], int] = {}
        self._migrated: dict[int, int] = {}
        self._forms: dict[_CommitState, dict[bytes, bytes]] = {}
        self._begins: dict[int, bool] = {}
        self.paths: set[bytes] = set()
        self.candidates: set[bytes] = set()
        self.states: dict[int, _CommitState] = {}

    def __enter__(self) -> Self:
        for reader in (self._blobs, self._attributes_reader, self._commits, self._trees):
            self._closing.enter_context(reader)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def look(self, commits: Iterable[StreamedCommit]) -> int:
        """Find the paths that may change their form; returns the number of commits."""
        sets: dict[int, int] = {}
        for commit in commits:
            sets[commit.mark] = self._attribute_set(commit, sets)
            if commit.parents or commit.oid not in self._followers:
                self.paths.update(c.path for c in commit.changes if c.mode in _FILES)
        values = (self._values(number, self.paths) for number in range(len(self._sets)))
        lines = self._migration.lines
        top: Values = {}
        if lines is not None:
            files = {_TOP: (MODE_FILE, self._keep(lines))}
            top = self._values(self._set_number(files), {*self.paths, _TOP})
        self.candidates = self._migration.candidates(values, top)
        _refuse_own(self.candidates)
        return len(sets)

    def commits(self, commits: Iterable[StreamedCommit]) -> Iterator[MigratedCommit]:
        """Yield how each commit changes; the result is the same on each call."""
        self.states = states = {}
        sets: dict[int, int] = {}
        for commit in commits:
            number = sets[commit.mark] = self._attribute_set(commit, sets)
            state = states[commit.mark] = _CommitState(number, self._is_touched(commit, number))
            changes = tuple(self._changes(commit, state)) if state.touched else ()
            yield MigratedCommit(commit, state.touched, changes)

    def attribute_files(self, state: _CommitState) -> Mapping[bytes, _Entry]:
        """Return the gitattributes files of the new commit."""
        return self._sets[self._new_set(state)]

    def forms(self, state: _CommitState) -> Mapping[bytes, bytes]:
        """Return the new forms of a commit's files, by path."""
        if state not in self._forms:
            forms: dict[bytes, bytes] = {}
            if state.touched and self.candidates:
                before = self._values(state.before, self.candidates)
                after = self._values(self._new_set(state), self.candidates)
                forms = self._migration.forms(before, after)
            self._forms[state] = forms
        return self._forms[state]

    def _is_touched(self, commit: StreamedCommit, number: int) -> bool:
        if any(self.states[parent].touched for parent in commit.parents):
            return True
        if commit.oid in self._followers:
            return False
        if number not in self._begins:
            blobs = [oid for _, oid in self._sets[number].values()]
            self._begins[number] = any(self._migration.begins(self._read(oid)) for oid in blobs)
        if self._begins[number]:
            return True
        chosen = [c.path for c in commit.changes if c.mode in _FILES and c.path in self.candidates]
        return bool(chosen) and not self.forms(_CommitState(number, True)).keys().isdisjoint(chosen)

    def _changes(
        self, commit: StreamedCommit, state: _CommitState
    ) -> Iterator[tuple[Change, FileVersion | None]]:
        parent = self.states[commit.parents[0]] if commit.parents else None
        old_files = self.attribute_files(parent) if parent is not None else {}
        new_files = self.attribute_files(state)
        for path in old_files.keys() - new_files.keys():
            yield Change(path), None
        for path, (mode, oid) in new_files.items():
            if old_files.get(path) != (mode, oid):
                yield Change(path, mode, oid), None
        forms = self.forms(state)
        for change in commit.changes:
            # Handled above, unless it is no longer a regular file.
            if _is_attributes(change.path) and change.mode in (None, *_FILES):
                continue
            yield change, _version(change, forms)
        parent_forms = self.forms(parent) if parent is not None else forms
        if parent_forms is not forms and parent_forms != forms:
            yield from self._reformed(commit, parent_forms, forms)

    def _reformed(
        self,
        commit: StreamedCommit,
        parent_forms: Mapping[bytes, bytes],
        forms: Mapping[bytes, bytes],
    ) -> Iterator[tuple[Change, FileVersion | None]]:
        """Yield files that get another form although the commit does not change them."""
        differing = {
            p for p in parent_forms.keys() | forms.keys() if parent_forms.get(p) != forms.get(p)
        }
        differing -= {change.path for change in commit.changes}
        tree = self._commits.commit(commit.oid).tree
        for entry in self._trees.at(tree, differing).values():
            if entry.is_file:
                change = Change(entry.path, entry.mode, entry.oid)
                yield change, _version(change, forms)

    def _attribute_set(self, commit: StreamedCommit, sets: Mapping[int, int]) -> int:
        """Return the number of the set of a commit's gitattributes files."""
        inherited = sets[commit.parents[0]] if commit.parents else self._set_number({})
        changed = [change for change in commit.changes if _is_attributes(change.path)]
        if not changed:
            return inherited
        files = dict(self._sets[inherited])
        for change in changed:
            if change.oid is not None and change.mode in _FILES:
                files[change.path] = change.mode, change.oid
                continue
            files.pop(change.path, None)
            if change.oid is not None and change.path == _TOP:
                raise EnvironmentFailure(
                    f"commit {commit.oid}: {shown_path(_TOP)} is not a regular file, so git "
                    f"ignores its lines"
                )
        return self._set_number(files)

    def _set_number(self, files: _AttributeFiles) -> int:
        key = frozenset(files.items())
        if key not in self._numbers:
            self._numbers[key] = len(self._sets)
            self._sets.append(files)
        return self._numbers[key]

    def _new_set(self, state: _CommitState) -> int:
        if not state.touched:
            return state.before
        if state.before not in self._migrated:
            files = self._sets[state.before]
            migrated: _AttributeFiles = {}
            for path in {_TOP, *files}:
                mode, oid = files.get(path, (MODE_FILE, None))
                content = None if oid is None else self._read(oid)
                new = self._migration.content(content, at_top=path == _TOP)
                if new is not None:
                    migrated[path] = mode, (self._keep(new) if new != content else oid or "")
            self._migrated[state.before] = self._set_number(migrated)
        return self._migrated[state.before]

    def _values(self, number: int, paths: Iterable[bytes]) -> Values:
        blobs = {path: oid for path, (_, oid) in self._sets[number].items()}
        return self._attributes_reader.values(blobs, paths, CHECKOUT)

    def _read(self, oid: str) -> bytes:
        return self.unwritten[oid] if oid in self.unwritten else self._blobs.read(oid, MAX_FILE)

    def _keep(self, content: bytes) -> str:
        like = "0" * (64 if self._repo.object_format == "sha256" else 40)
        oid = blob_id((content,), len(content), like=like)
        self.unwritten[oid] = content
        return oid


def _refuse_own(candidates: Iterable[bytes]) -> None:
    matched = min(filter(_is_attributes, candidates), default=None)
    if matched is not None:
        raise UsageError(
            f"the patterns match {shown_path(matched)}, which git itself reads",
            hint=SUCH_AS,
        )


def _is_attributes(path: bytes) -> bool:
    return path.rpartition(b"/")[2] == _TOP


def _version(change: Change, forms: Mapping[bytes, bytes]) -> FileVersion | None:
    form = forms.get(change.path)
    if form is None or change.oid is None or change.mode not in _FILES:
        return None
    return FileVersion(change.oid, form)
