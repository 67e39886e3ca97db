"""Status: the state of every tracked file, in the index and in the work tree.

Git is asked once for each kind of fact. Blobs are recognized by their first bytes; only a text that
should not stand in the work tree is verified.

Git compares files by stat fields; if these differ it filters the whole file, each time. Here its
content is hashed once, and cached facts about that content tell the blob that clean makes of it; if
nothing is known clean is run once. For unchanged files the stat fields in the index are updated, so
that git need not read them either. This only applies to files on which git would run our filter and
nothing else; about others git is asked.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.filter.content import (
    ArtifactFacts,
    ContentCache,
    file_digest,
    written_facts,
    wrong_content,
)
from wtxtgit.git import index, work_tree
from wtxtgit.git.blobs import blob_id
from wtxtgit.git.driver import is_ours
from wtxtgit.git.index import FileChange, TreeEntry, touched
from wtxtgit.git.index_file import StagedFile, refresh_stats
from wtxtgit.git.repository import (
    DETACHED_DRIVER,
    DRIVER,
    FILTERS,
    UNSET,
    UNSPECIFIED,
    Repository,
)
from wtxtgit.git.store import reader
from wtxtgit.git.store.reader import BlobHead
from wtxtgit.git.work_tree import moment_of
from wtxtgit.io.files import opened_regular, read_view, view_file
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.model.array import CONTAINER_FORMATS
from wtxtgit.model.ledger import (
    ENCRYPTED_SUFFIX,
    TEXT_SUFFIX,
    stands_beside,
)
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes import lfs_pointer
from wtxtgit.text import grammar
from wtxtgit.text.grammar import DETACHED_MAGIC, is_text
from wtxtgit.trust.age.armor import is_armored

_OURS_ALONE = {"text": UNSET, "ident": UNSPECIFIED, "working-tree-encoding": UNSPECIFIED}
"""Attributes with which git runs a filter and does not change its output."""


class Differences(NamedTuple):
    """How files differ from their index entries; unchanged ones are not in `changes`.

    `unnoted` are unchanged files for which the index could not be updated.
    """

    changes: dict[bytes, FileChange]
    unnoted: list[StagedFile]


def file_changes(
    repo: Repository,
    entries: Iterable[TreeEntry],
    known: ContentCache,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Differences:
    """Compare filtered files with their index entries; `progress` gets counts of bytes compared.

    Entries in a conflict, without a file in the work tree, or of `git add -N` are left out.
    """
    touched_files = touched(repo)
    examined = {
        entry.path: entry
        for entry in entries
        if entry.path in touched_files and not (entry.stage or entry.skipped or entry.intended)
    }
    changes = {path: touched_files[path].change for path in examined}
    doubtful = {path: entry for path, entry in examined.items() if touched_files[path].is_content}
    unchanged = []
    ours = drivers_alone(repo, doubtful) if doubtful else {}
    driven = {driver for driver in {*ours.values()} if is_driven(repo, driver)}
    compared = [path for path, driver in ours.items() if driver in driven]
    sizes = {path: work_tree.file_size(repo.file(path)) or 0 for path in compared}
    expect(progress, sum(sizes.values()), len(sizes))
    for path in compared:
        driver = ours[path]
        entry = doubtful[path]
        detached = driver == DETACHED_DRIVER
        outcome = _compare(repo.file(path), entry, known, threads, detached=detached)
        if outcome is not None:
            del doubtful[entry.path]
            if outcome.is_same:
                del changes[entry.path]
                unchanged.append(StagedFile(entry.path, entry.mode, entry.oid, outcome.status))
        if progress is not None:
            progress(sizes[path])
        finish_file(progress)
    # From now on git sees them as unchanged, and does not read them again.
    is_noted = refresh_stats(repo, unchanged)
    # The others may be changed by other conversions, or be texts: git compares them.
    if doubtful:
        by_git = index.changes(repo)
        for path in doubtful:
            if by_git.get(path, FileChange.NONE) is FileChange.NONE:
                del changes[path]
    return Differences(changes, [] if is_noted else unchanged)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Whether a file matches its index entry, and its stat result when it was read."""

    is_same: bool
    status: os.stat_result


def filtered_alone(repo: Repository, paths: Iterable[bytes]) -> list[bytes]:
    """Return those of the paths whose content only our filter changes on the way into git."""
    return list(drivers_alone(repo, paths))


def drivers_alone(repo: Repository, paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return our filter for each path whose content nothing else changes on the way into git."""
    values = repo.attributes(paths, ("filter", *_OURS_ALONE))
    return {
        path: attributes["filter"]
        for path, attributes in values.items()
        if attributes["filter"] in FILTERS and {**attributes, **_OURS_ALONE} == attributes
    }


def is_driven(repo: Repository, driver: bytes = DRIVER) -> bool:
    """Tell whether the filter that git would start for one of our drivers is wtxtgit's."""
    for command in ("process", "clean"):
        key = f"filter.{driver.decode()}.{command}"
        value = repo.config.get(key)
        # If there is a process, even an empty one, git ignores the other key.
        if value is not None:
            return is_ours(key, value)
    return False


def _compare(
    file: Path, entry: TreeEntry, known: ContentCache, threads: int | None, *, detached: bool
) -> _Outcome | None:
    """Compare a file with its entry; None if git has to: it is unreadable, changing, or a text.

    Several texts may have the same blob, so their content tells less than their size.
    """
    try:
        with opened_regular(file) as (descriptor, before):
            if is_text(os.pread(descriptor, len(DETACHED_MAGIC), 0)):
                return None
            is_same = _is_blob(file, descriptor, entry.oid, known, threads, detached=detached)
            after = os.fstat(descriptor)
    except (OSError, EnvironmentFailure):
        return None
    # It changed while it was read, so the hash may be of neither state.
    if is_same is None or moment_of(before) != moment_of(after):
        return None
    return _Outcome(is_same, before)


def _is_blob(
    file: Path,
    descriptor: int,
    oid: str,
    known: ContentCache,
    threads: int | None,
    *,
    detached: bool,
) -> bool | None:
    """Tell whether clean makes this blob of a file; None if the file changes meanwhile."""
    digest, size = file_digest(descriptor)
    blob = known.blob_of(digest, size, detached=detached)
    # The blob of this very content is known, so comparing ids is enough.
    if blob is not None:
        return blob == oid
    binary = known.file_of(oid)
    # Detached or not, a file has different blobs.
    if binary is not None and not detached:
        # Two files that are no texts always have different blobs.
        return binary == (digest, size)
    # Imported here: nothing else here needs numpy.
    from wtxtgit.filter.clean import clean, clean_detached

    data = read_view(descriptor, file)
    # Nothing is added, so no payload is stored.
    cleaned = (
        clean_detached(data, None, threads=threads) if detached else clean(data, threads=threads)
    )
    length = len(cleaned.source) if cleaned.writer is None else cleaned.writer.size
    blob = blob_id(cleaned.pieces(), length, like=oid)
    # A program that has mapped the file can change it without changing its times: cache nothing
    # then.
    if file_digest(descriptor) != (digest, size):
        return None
    known.put_blob(digest, size, blob, is_binary=not detached, detached=detached)
    if cleaned.writer is not None and not cleaned.writer.is_detached:
        known.put_facts({blob: written_facts(cleaned.writer, cleaned.source)})
    return blob == oid


NATIVE = "wtxt"
RAW = "raw"
OPAQUE = "opaque"
POINTER = "lfs-pointer"
ENCRYPTED = "age"


class State(StrEnum):
    """The state of a tracked file; `HELP` says what to do about it."""

    OK = "ok"
    MODIFIED = "modified"
    TEXT = "text"
    POINTER = "lfs-pointer"
    RAW = "raw-binary"
    CORRUPT = "corrupt"
    MISSING = "missing"
    CONFLICT = "conflict"
    SPARSE = "sparse"
    DETACHED = "detached"
    PLAIN = "not-encrypted"


HELP = {
    State.DETACHED: "a detached text without its data: wtxtgit fetch fetches it and writes the "
    "file",
    State.MODIFIED: "git add -- PATH stages the change",
    State.TEXT: "still text in the work tree: wtxtgit install restores the files",
    State.POINTER: f"{lfs_pointer.POINTER}: wtxtgit fetch fetches it, git add -- PATH stages its "
    f"text",
    State.RAW: "the index holds a raw binary: git add --renormalize -- PATH",
    State.PLAIN: "named like an encrypted file, but not an armored age file: wtxtgit encrypt "
    "makes one",
    State.CORRUPT: "the text is damaged: wtxtgit verify -- PATH shows where",
    State.MISSING: "the file is missing: git checkout -- PATH restores it",
    State.CONFLICT: "wtxtgit resolve PATH lists and settles the conflicts; if one side deleted "
    "the file, git add -- PATH keeps it and git rm --cached -- PATH drops it",
}


@dataclass(frozen=True, slots=True)
class FileStatus(JsonObject):
    """A tracked file.

    Sizes are in bytes; None if there is none, or git would have to fetch the blob. `claims` is the
    format that the name's ending stands for, if the content is stored whole because it could not be
    read as a checkpoint of any format. `wrong` says what is wrong with the content under this name,
    in words.
    """

    path: bytes
    state: State
    oid: str
    format: str | None = None
    blob_size: int | None = None
    file_size: int | None = None
    claims: str | None = None
    wrong: str | None = None


_OWN_SUFFIXES = (TEXT_SUFFIX, ENCRYPTED_SUFFIX)
"""Of files that are texts in the work tree, too."""
_NO_FAULT = (State.OK, State.SPARSE, State.MODIFIED, State.DETACHED)


@dataclass(frozen=True, slots=True)
class Status(JsonObject):
    """Every tracked file, and whether all are in order."""

    KEYS = "ok files"
    files: tuple[FileStatus, ...]

    @property
    def ok(self) -> bool:
        return all(file.state in _NO_FAULT for file in self.files)


@dataclass(frozen=True, slots=True)
class Listed(JsonObject):
    """A tracked file of the index or of a revision; `format` is `raw` for a raw binary."""

    path: bytes
    oid: str
    size: int | None
    format: str | None


@dataclass(frozen=True, slots=True)
class Listing(JsonObject):
    """The tracked files of the index, or of a revision."""

    files: tuple[Listed, ...]


def text_format(head: bytes) -> str | None:
    """Return the format in a text's first lines: a container's, or `wtxt` for a native text.

    Returns None if they are not the first lines of a text, in either form.
    """
    first = grammar.FIRST_LINE
    if grammar.is_detached(head):
        first = grammar.DETACHED_FIRST_LINE
    pos = len(first)
    if not head.startswith(first):
        return None
    if (meta := grammar.parse_meta(head, pos)) is None:
        return None
    if (cap := grammar.parse_cap(head, meta[1])) is None:
        return None
    name, _, version = meta[0].schema.partition("/")
    if grammar.CAP_LAYOUT in cap[0] and version == "v1" and name in CONTAINER_FORMATS:
        return name
    return NATIVE


def format_of(head: bytes, size: int | None = None) -> str:
    """Name the content of a blob: a container's format, `wtxt`, or `raw` for what is no text.

    A git-lfs pointer is `lfs-pointer`. If `head` is not the whole blob, `size` is its size in
    bytes.
    """
    if not head:
        return OPAQUE
    if grammar.is_text(head):
        return text_format(head) or NATIVE
    is_whole = size in (None, len(head))
    return POINTER if is_whole and lfs_pointer.read_pointer(head) is not None else RAW


def tracked(repo: Repository) -> list[TreeEntry]:
    """List the index entries of regular files that go through the filter."""
    return filtered(repo, index.entries(repo))


def filtered(
    repo: Repository,
    entries: Iterable[TreeEntry],
    *,
    from_index: bool = False,
    index_file: Path | None = None,
) -> list[TreeEntry]:
    """Keep the entries of regular files whose attributes name a filter of ours."""
    files = [entry for entry in entries if entry.is_file and not stands_beside(entry.path)]
    paths = (entry.path for entry in files)
    drivers = repo.attributes(paths, ("filter",), from_index=from_index, index_file=index_file)
    return [entry for entry in files if drivers[entry.path]["filter"] in FILTERS]


def filtered_here_alone(
    repo: Repository, entries: Iterable[TreeEntry], own: Collection[bytes]
) -> list[TreeEntry]:
    """Keep the entries that git filters in this clone alone.

    `own` are the paths that the gitattributes files of the tree itself send through our filter.
    Elsewhere neither core.ignoreCase nor patterns in info/attributes and core.attributesFile are
    the same, so a checkout there writes the text.
    """
    others = [entry for entry in entries if entry.path not in own]
    return filtered(repo, others) if repo.has_own_attributes() else []


def status(
    repo: Repository,
    key_file: Path | None = None,
    *,
    pathspecs: Sequence[str] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> Status:
    """Find the state of every tracked file of the work tree, or of those that `pathspecs` match.

    Facts that are cached under the secret in `key_file` are reused. `progress` gets counts of the
    bytes of files that are compared with the index. Raises UsageError for pathspecs that match
    nothing.
    """
    repo.check_worktree()
    everything = index.entries(repo, pathspecs)
    if pathspecs and not everything:
        raise UsageError(f"no tracked file matches {' '.join(map(ascii, pathspecs))}")
    entries = filtered(repo, everything)
    with ContentCache(repo, key_file) as known:
        changes = file_changes(repo, entries, known, threads, progress).changes
        present = _with_content(entries)
        facts = known.facts(entry.oid for entry in present)
    heads = reader.blob_heads(repo, (entry.oid for entry in present))
    # A conflict has up to three entries for one path.
    by_path = {entry.path: entry for entry in reversed(entries)}
    states = [
        _status_of(repo, entry, changes.get(path, FileChange.NONE), heads, facts)
        for path, entry in by_path.items()
    ]
    states += _encrypted(repo, everything, by_path.keys())
    return Status(tuple(sorted(states, key=lambda status: status.path)))


def _status_of(
    repo: Repository,
    entry: TreeEntry,
    change: FileChange,
    heads: Mapping[str, BlobHead],
    facts: Mapping[str, ArtifactFacts],
) -> FileStatus:
    if entry.skipped:
        return FileStatus(entry.path, State.SPARSE, entry.oid)
    file = repo.file(entry.path)
    size = work_tree.file_size(file)
    if entry.stage:
        return FileStatus(entry.path, State.CONFLICT, entry.oid, file_size=size)
    if entry.intended:
        state = State.MISSING if size is None else State.MODIFIED
        return FileStatus(entry.path, state, entry.oid, file_size=size)
    head = heads[entry.oid]
    state = _state(file, entry.oid, head, change)
    kind = format_of(head.head, head.size)
    wrong = _wrong(file, entry, kind, facts.get(entry.oid))
    claims = _claimed(entry.path) if wrong is not None and kind == OPAQUE else None
    return FileStatus(entry.path, state, entry.oid, kind, head.size, size, claims, wrong)


def _wrong(file: Path, entry: TreeEntry, kind: str, facts: ArtifactFacts | None) -> str | None:
    """Say what is wrong with a content under its name, as is known of the blob or the file."""
    if facts is not None:
        return wrong_content(entry.path, facts)
    if kind not in CONTAINER_FORMATS and kind != OPAQUE:
        return None
    from wtxtgit.containers.identity import FileIdentity, identity, wrong_under

    name = os.fsdecode(entry.path)
    if kind != OPAQUE:
        return wrong_under(name, FileIdentity(kind))
    # The blob has the file's bytes, but in lines that would have to be decoded.
    if work_tree.file_head(file) is None:
        return None
    data = view_file(file)
    return None if is_text(data) else wrong_under(name, identity(data))


def _claimed(path: bytes) -> str | None:
    """Return the format that the ending of a name stands for."""
    # Imported here: most files are what they claim to be.
    from wtxtgit.containers import registry

    known = registry.by_ending(os.path.splitext(os.fsdecode(path))[1])  # noqa: PTH122 - git's path
    return None if known is None else known.name


def list_files(
    repo: Repository, revision: str | None = None, progress: Progress | None = None
) -> Listing:
    """List the tracked files of the index, or of a revision by the revision's own attributes.

    `progress` counts the blobs of which the first bytes are read as files.
    """
    if revision is None:
        repo.check_worktree()
        entries = [entry for entry in tracked(repo) if entry.stage == 0]
    else:
        # Imported here: a checkout and a status need no history.
        from wtxtgit.git import history
        from wtxtgit.io.temporary import temporary_folder

        # With an index of its own, check-attr reads the gitattributes of that tree.
        with temporary_folder() as folder:
            index_file = folder / "index"
            tree = history.resolve_tree(repo, revision)
            repo.git("read-tree", tree, env={"GIT_INDEX_FILE": str(index_file)})
            entries = filtered(
                repo, history.listing(repo, tree), from_index=True, index_file=index_file
            )
    # A sparse checkout of a partial clone lacks the blobs of what it skips.
    heads = reader.blob_heads(repo, (entry.oid for entry in _with_content(entries)), progress)
    files = []
    for entry in entries:
        # `git add -N` stages no content: the empty blob says nothing about the file.
        head = None if entry.intended else heads.get(entry.oid)
        size, kind = (None, None) if head is None else (head.size, format_of(head.head, head.size))
        files.append(Listed(entry.path, entry.oid, size, kind))
    return Listing(tuple(files))


def _encrypted(
    repo: Repository, entries: Iterable[TreeEntry], filtered_paths: Container[bytes]
) -> list[FileStatus]:
    """Return the states of encrypted texts that no filter is for, judged by their first bytes.

    Nothing can be said about their content without a key.
    """
    encrypted = [
        entry
        for entry in entries
        if entry.is_file
        and entry.path.endswith(ENCRYPTED_SUFFIX)
        and entry.path not in filtered_paths
    ]
    by_path = {entry.path: entry for entry in reversed(encrypted)}
    if not by_path:
        return []
    heads = reader.blob_heads(repo, (entry.oid for entry in _with_content(by_path.values())))
    changes = index.changes(repo)
    states = []
    for path, entry in by_path.items():
        head, size = heads.get(entry.oid), work_tree.file_size(repo.file(path))
        kind = ENCRYPTED
        if entry.skipped:
            state = State.SPARSE
        elif entry.stage:
            state = State.CONFLICT
        elif size is None:
            state = State.MISSING
        elif not is_armored(memoryview(work_tree.file_head(repo.file(path)) or b"")):
            state, kind = State.PLAIN, RAW
        else:
            unchanged = changes.get(path, FileChange.NONE) is FileChange.NONE
            state = State.OK if unchanged else State.MODIFIED
        blob_size = None if head is None else head.size
        states.append(FileStatus(path, state, entry.oid, kind, blob_size, size))
    return states


class StoredForms(NamedTuple):
    """Entries of filtered files whose blob is not in the form that it should have.

    `raw` are no texts, `pointers` are those of git-lfs, whose files are elsewhere. `other_form` are
    attached texts where attributes ask for detached ones, or the reverse, until they are added
    again; texts that are the same in both forms, such as native and small ones, are not listed.
    """

    raw: list[TreeEntry]
    pointers: list[TreeEntry]
    other_form: list[TreeEntry]


def stored_forms(repo: Repository, entries: Sequence[TreeEntry]) -> StoredForms:
    """Look at the first bytes of each blob, once."""
    with_content = _with_content(entries)
    heads = reader.blob_heads(repo, (entry.oid for entry in with_content))
    kinds = {oid: format_of(blob.head, blob.size) for oid, blob in heads.items()}
    drivers = repo.attributes([entry.path for entry in with_content], ("filter",))
    return StoredForms(
        [entry for entry in with_content if kinds[entry.oid] == RAW],
        [entry for entry in with_content if kinds[entry.oid] == POINTER],
        [
            entry
            for entry in with_content
            if _is_other_form(heads[entry.oid], drivers[entry.path]["filter"] == DETACHED_DRIVER)
        ],
    )


def unfiltered_texts(repo: Repository, entries: Iterable[TreeEntry]) -> list[TreeEntry]:
    """Return the entries whose blob is a checkpoint's text, but to which no filter of ours applies.

    For such a file a checkout writes the text.
    """
    candidates = [
        e for e in _with_content(entries) if e.is_file and not e.path.endswith(_OWN_SUFFIXES)
    ]
    through = {entry.path for entry in filtered(repo, candidates)}
    others = [entry for entry in candidates if entry.path not in through]
    heads = reader.blob_heads(repo, (entry.oid for entry in others)) if others else {}
    return [e for e in others if text_format(heads[e.oid].head) not in (None, NATIVE)]


def _is_other_form(blob: BlobHead, becomes_detached: bool) -> bool:
    if not becomes_detached:
        return grammar.is_detached(blob.head)
    is_large = blob.size > grammar.MOST_ATTACHED
    return (
        is_large
        and text_format(blob.head) not in (None, NATIVE)
        and not grammar.is_detached(blob.head)
    )


def _with_content(entries: Iterable[TreeEntry]) -> list[TreeEntry]:
    """Keep the entries whose blob is what is staged, and exists here."""
    return [e for e in entries if e.stage == 0 and not e.skipped and not e.intended]


def _state(path: Path, oid: str, blob: BlobHead, change: FileChange) -> State:
    # Missing files first: they have no content to judge.
    if change is FileChange.DELETED:
        return State.MISSING
    kind = format_of(blob.head, blob.size)
    if kind == RAW:
        return State.RAW
    unchanged = change is FileChange.NONE
    if kind == POINTER and unchanged:
        return State.POINTER
    file = work_tree.file_head(path)
    if file is None or not grammar.is_text(file):
        return State.OK if unchanged else State.MODIFIED
    if grammar.is_detached(file):
        return State.DETACHED if unchanged else State.MODIFIED
    # A text stands in the work tree.
    if unchanged and text_format(file) == NATIVE:
        return State.OK
    # Imported here: verifying needs numpy, which takes longer to load than the rest of a status.
    from wtxtgit.text.verify import verify

    report = verify(view_file(path))
    if not report.ok and not report.is_pending:
        return State.CORRUPT
    # Git compares sizes, and does not see that a blob's own text is no change.
    if not unchanged and not work_tree.file_is_blob(path, oid):
        return State.MODIFIED
    return State.TEXT if report.ok else State.OK
