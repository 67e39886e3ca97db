"""Judging the artifacts of a commit, by the state of trust at that commit.

Used by audits, hooks, checks, logs and reviews. `trust.step` decides what a commit did to ledgers
and signers; this module compares that with the files: what is at a path, whether a checkout writes
it unchanged, and whether the last record of its ledger is for it. `docs/spec/trust.md`, section
"Artifacts", has the table. Names are judged here too: what is in a file's way, names that are the
same to some file systems, checkpoints that nothing tracks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cache, cached_property

from wtxtgit.chain.reader import ChainReader, artifacts
from wtxtgit.containers.registry import FORMATS
from wtxtgit.filter.content import ArtifactFacts, with_wsum
from wtxtgit.git.attributes import CHECKOUT, FILE_NAME, Line, altering
from wtxtgit.git.commit_files import CommitFiles, CommitFilesReader
from wtxtgit.git.repository import FILTERS
from wtxtgit.git.trees import TreeChange, TreeEntry
from wtxtgit.model.findings import total
from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    Ledger,
    Record,
    is_deletion,
    stands_beside,
)
from wtxtgit.report.audit import DetachedTexts, Finding, Severity
from wtxtgit.text.digest import SignatureState, check_header, check_wsum
from wtxtgit.text.grammar import WSUM_SUFFIX
from wtxtgit.trust.state import TrustFacts, Violation, quoted

FactsOf = Callable[[str], ArtifactFacts]
"""Returns the facts about a blob, given by its id."""

_Verdict = tuple[str, str, Severity]
_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
_FILTERS = {b"filter=" + name for name in FILTERS}
# HFS+ ignores these, Technical Note TN1150, "Unicode Subtleties"; git's utf8.c has the list.
_IGNORED_CHARACTERS = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)
_TRAILING = re.compile(r"[ .]+$")
_WILDCARD = re.compile(rb"[*?[]")
_MOST_WILDCARDS = 1000
"""Most patterns with wildcards elsewhere than at the start that names are compared with."""


def is_same_place(one: CommitFiles, other: CommitFiles, path: bytes) -> bool:
    """Tell whether two trees have the same files at an artifact's path, and filter it alike."""
    return (path in one.filtered) == (path in other.filtered) and all(
        one.entries.get(name) == other.entries.get(name) for name in _files_of(path)
    )


def _files_of(path: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the paths of an artifact, of its ledger, and of the WSUM that a text may have."""
    return path, path + LEDGER_SUFFIX, path + WSUM_SUFFIX


def judged_paths(snapshot: CommitFiles, trust: TrustFacts) -> set[bytes]:
    """Return the artifacts of a commit; while anybody is trusted, former artifacts are included."""
    paths = artifacts(snapshot)
    return paths | trust.places if trust.is_signed else paths


@dataclass(frozen=True)
class JudgedFiles:
    """The files to be judged, of a commit or of one about to be made.

    `paths` are the artifacts, `filtered` those of them that go through the filter, `entries` the
    tree's entries at these paths and at those of their ledgers. `obstacles` describes, by path,
    something in the place of the file or of a folder above it, or a file whose name is the same on
    some file systems. `attributes` are the values of `CHECKOUT`, `folded` the values if git matches
    patterns regardless of case.
    """

    paths: tuple[bytes, ...]
    filtered: frozenset[bytes]
    entries: Mapping[bytes, TreeEntry]
    obstacles: Mapping[bytes, str] = field(default_factory=dict)
    attributes: Mapping[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    folded: Mapping[bytes, tuple[bytes, ...]] = field(default_factory=dict)

    @cached_property
    def blobs(self) -> dict[bytes, str]:
        """The blobs whose facts are needed to judge, by path."""
        entries = ((path, self.entries.get(path)) for path in self.paths)
        return {path: entry.oid for path, entry in entries if entry is not None and entry.is_file}

    def only(self, paths: Container[bytes]) -> JudgedFiles:
        """Return the same restricted to some paths."""
        return replace(self, paths=tuple(path for path in self.paths if path in paths))

    @property
    def unfiltered(self) -> set[str]:
        """The blobs that a checkout writes unchanged."""
        return {oid for path, oid in self.blobs.items() if path not in self.filtered}


def whole(
    snapshots: CommitFilesReader,
    snapshot: CommitFiles,
    listing: Mapping[bytes, TreeEntry],
    trust: TrustFacts,
) -> JudgedFiles:
    """Return all artifacts of a tree, to be judged as a state."""
    paths = tuple(sorted(judged_paths(snapshot, trust)))
    folder = PathsOfTree(listing)
    obstacles = {path: why for path in paths if (why := folder.obstacle(path)) is not None}
    for path, other in twins(listing, paths).items():
        obstacles.setdefault(path, f"{_unquoted(other)} has the same name on some file systems")
    entries = {name: listing[name] for path in paths for name in _files_of(path) if name in listing}
    present = _checked_out(paths, entries)
    attributes = snapshots.attributes(snapshot, present, CHECKOUT)
    folded = snapshots.attributes(snapshot, present, CHECKOUT, ignore_case=True)
    filtered = snapshot.filtered.intersection(paths)
    return JudgedFiles(paths, filtered, entries, obstacles, attributes, folded)


def changed(
    snapshots: CommitFilesReader,
    oid: str,
    snapshot: CommitFiles,
    before: CommitFiles | None,
    changes: Iterable[TreeChange],
    trust: TrustFacts,
) -> JudgedFiles:
    """Return the artifacts whose files, ledgers or attributes differ from `before`."""
    now = {change.path: change.after for change in changes}
    current = judged_paths(snapshot, trust)
    paths = {path for path in current if any(name in now for name in _files_of(path))}
    # A folder may have replaced a file, or a link a folder.
    paths |= {above for path in now for above in above_of(path) if above in current}
    # Only an added entry can have replaced a folder.
    if any(after is not None for after in now.values()):
        paths |= {path for path in current if any(now.get(above) for above in above_of(path))}
    # A changed attribute may alter how files are checked out that the commit does not touch.
    if before is not None and snapshot.attribute_files != before.attribute_files:
        paths |= _with_other_attributes(snapshots, snapshot, before, current)
    needed = [one for path in paths for one in _files_of(path)]
    unknown = [
        path
        for path in needed
        if path not in now
        and path not in snapshot.entries
        # A snapshot contains all files whose names end in .wsum.
        and not path.endswith(LEDGER_SUFFIX)
    ]
    present = {**snapshot.entries, **(snapshots.at(oid, unknown) if unknown else {})}
    entries = {
        path: entry for path in needed if (entry := now.get(path, present.get(path))) is not None
    }
    folder = PathsOfTree({path: after for path, after in now.items() if after is not None})
    obstacles = {path: why for path in paths if (why := folder.obstacle(path)) is not None}
    ordered = tuple(sorted(paths))
    attributes = snapshots.attributes(snapshot, _checked_out(ordered, entries), CHECKOUT)
    filtered = snapshot.filtered.intersection(paths)
    return JudgedFiles(ordered, filtered, entries, obstacles, attributes)


def _checked_out(paths: Iterable[bytes], entries: Mapping[bytes, TreeEntry]) -> list[bytes]:
    """Return the files whose attributes are judged: the artifacts and WSUMs, not the ledgers."""
    names = (one for path in paths for one in (path, path + WSUM_SUFFIX))
    return [name for name in names if name in entries]


def _with_other_attributes(
    snapshots: CommitFilesReader, snapshot: CommitFiles, before: CommitFiles, paths: Iterable[bytes]
) -> set[bytes]:
    artifact_paths = list(paths)
    values = [snapshots.attributes(one, artifact_paths, CHECKOUT) for one in (snapshot, before)]
    return {path for path in artifact_paths if values[0][path] != values[1][path]}


def judge(
    commit: str, files: JudgedFiles, reader: ChainReader, facts_of: FactsOf, trust: TrustFacts
) -> Iterator[Finding]:
    """Yield what is wrong with artifacts and their seals.

    The history of ledgers is judged elsewhere. `trust` belongs to the state after the commit.
    """
    for path in files.paths:
        for kind, message, severity in _judge_path(path, files, reader, facts_of, trust):
            yield Finding(commit, path, kind, message, severity)


def judge_sign_line(
    commit: str, path: bytes, facts: ArtifactFacts, trust: TrustFacts
) -> Iterator[Finding]:
    """Yield what is wrong with a native text's own signature, whether it is an artifact or not."""
    for kind, message, severity in _judge_sign_line(facts, trust):
        yield Finding(commit, path, kind, message, severity)


def of_violation(commit: str, violation: Violation) -> Finding:
    """Turn the violation of a rule into a finding."""
    return Finding(commit, violation.path, violation.kind, violation.message)


def _judge_path(
    path: bytes, files: JudgedFiles, reader: ChainReader, facts_of: FactsOf, trust: TrustFacts
) -> Iterator[_Verdict]:
    # The rows of the table, in order. Faults of the ledger are reported whatever is at the path.
    entry = files.entries.get(path)
    ledger, ledger_fault = _ledger_at(path, files, reader)
    if ledger_fault is not None:
        yield "bad-record", ledger_fault, _ERROR
    if path in files.obstacles:
        yield "untracked-artifact", files.obstacles[path], _ERROR
    if entry is None:
        return
    if not entry.is_file:
        yield "untracked-artifact", "replaced by a link or submodule", _ERROR
        return
    yield from _judge_attributes(path, files)
    # Facts require reading the blob: they are asked for last, and only for regular files.
    is_filtered = path in files.filtered
    facts = facts_at(path, files, reader, facts_of(entry.oid))
    if facts.has_wsum:
        yield from _judge_attributes(path + WSUM_SUFFIX, files)
    if (is_filtered or facts.has_wsum) and (fault := _wrong_text(facts)) is not None:
        yield *fault, _ERROR
    yield from _judge_sign_line(facts, trust)
    if ledger is not None:
        yield from _judge_seal(facts, is_filtered, ledger.last)
    elif ledger_fault is None:
        severity = _ERROR if trust.is_signed else _WARNING
        yield "unsealed", "no record in any ledger", severity


def _judge_attributes(path: bytes, files: JudgedFiles) -> Iterator[_Verdict]:
    values, folded = files.attributes.get(path, ()), files.folded.get(path, ())
    altered = next(altering(values), None)
    if altered is not None:
        yield "altered-checkout", f"the attribute {altered} changes what a checkout writes", _ERROR
    elif folded and (folded[0] != values[0] or any(altering(folded))):
        change = next(altering(folded), None) or f"filter={_unquoted(folded[0])}"
        message = f"on file systems that ignore case, {change} changes what a checkout writes"
        yield "altered-checkout", message, _ERROR


def facts_at(
    path: bytes, files: JudgedFiles, reader: ChainReader, facts: ArtifactFacts
) -> ArtifactFacts:
    """Return the facts of the blob at a path, combined with its WSUM if it has one."""
    entry = files.entries.get(path + WSUM_SUFFIX)
    wsum = reader.wsum(entry.oid) if entry is not None and entry.is_file else None
    return facts if wsum is None else with_wsum(facts, wsum, is_filtered=path in files.filtered)


def _ledger_at(
    path: bytes, files: JudgedFiles, reader: ChainReader
) -> tuple[Ledger | None, str | None]:
    """Return the ledger of an artifact, or why it has no valid one; neither if there is none."""
    entry = files.entries.get(path + LEDGER_SUFFIX)
    if entry is None:
        return None, None
    if not entry.is_file:
        return None, "its ledger was replaced by a link or submodule"
    report = reader.ledger(path + LEDGER_SUFFIX, entry.oid)
    if report is None or not report.problems:
        return (None, None) if report is None else (report.ledger, None)
    unlisted = total(report.problems) - 1
    suffix = f", and {unlisted} more" if unlisted else ""
    return None, f"{report.problems[0]}{suffix}"


def detached_texts(files: Iterable[JudgedFiles], facts_of: FactsOf) -> DetachedTexts | None:
    """Count the verified detached texts among some files, and those without their payload.

    Returns None if there are none.
    """
    oids = {oid for some in files for path, oid in some.blobs.items() if path in some.filtered}
    detached = [facts for facts in map(facts_of, oids) if facts.detached is not None]
    without_payload = sum(facts.lacks_payload for facts in detached)
    verified = sum(facts.fault is None for facts in detached)
    return DetachedTexts(verified, without_payload) if verified or without_payload else None


def _wrong_text(facts: ArtifactFacts) -> tuple[str, str] | None:
    if facts.is_pointer:
        # Imported here: few audits meet a pointer.
        from wtxtgit.remotes.lfs_pointer import POINTER

        return "lfs-pointer", POINTER
    if facts.is_raw:
        return "raw-binary", "a raw binary, not the text that the filter makes"
    if facts.fault is not None and not facts.lacks_payload:
        return "corrupt-text", facts.fault
    if not facts.is_canonical:
        return "not-canonical", "a valid text, but not the one that the filter makes"
    return None


def _judge_sign_line(facts: ArtifactFacts, trust: TrustFacts) -> Iterator[_Verdict]:
    """Yield what is wrong with a native text's own signature, which a seal does not replace."""
    if not trust.is_signed:
        return
    if facts.wsum_signed is not None:
        line, signature_line = facts.wsum_signed
        if check_wsum(signature_line, line, sorted(trust.trusted)) is not SignatureState.VALID:
            message_ = "its WSUM is not signed by any trusted key"
            yield "untrusted-signer", message_, _WARNING
    if facts.signed is None:
        return
    message, signature = facts.signed
    state = check_header(signature, message, sorted(trust.trusted))
    if state is SignatureState.INVALID:
        message_ = f"its sign line does not verify with key {signature.keyid}"
        yield "bad-signature", message_, _ERROR
    elif state is SignatureState.UNKNOWN_KEY:
        message_ = f"its sign line is by key {signature.keyid}, which is not trusted"
        yield "untrusted-signer", message_, _WARNING


def _judge_detached(facts: ArtifactFacts, is_filtered: bool, last: Record) -> Iterator[_Verdict]:
    """Yield what is wrong if a record is not of this detached text; its payload may be missing."""
    is_named = facts.detached == last.detached
    if not is_filtered:
        # A checkout writes the text as it is, so its own bytes have to be sealed.
        if facts.opaque == last.sha256_all:
            return
        if is_named:
            message = "its attributes no longer name the filter, so a checkout writes the text"
            yield "untracked-artifact", message, _ERROR
        else:
            yield _of_other_content(last)
        return
    if not is_named:
        message = f"generation {last.meta.gen} of its ledger does not match this detached text"
        yield "content-mismatch", message, _ERROR
        return
    content = facts.attached_opaque if facts.is_native else facts.sha256_all
    if not facts.lacks_payload and facts.fault is None and content != last.sha256_all:
        yield _of_other_content(last)


def _judge_seal(facts: ArtifactFacts, is_filtered: bool, last: Record) -> Iterator[_Verdict]:
    """Yield what is wrong if a record is not of what a checkout writes."""
    # Deletions come first: their records have no content to compare with.
    if is_deletion(last):
        yield "content-mismatch", "its deletion is sealed, but the file exists", _ERROR
        return
    if facts.detached is not None:
        yield from _judge_detached(facts, is_filtered, last)
        return
    if is_filtered and not facts.is_native:
        is_text = facts.sha256_all is not None and not facts.is_raw
        if is_text and facts.sha256_all != last.sha256_all:
            yield _of_other_content(last)
        return
    # The opaque hash covers every byte, so it is compared before the text's own root.
    if facts.opaque == last.sha256_all:
        return
    if facts.has_wsum or facts.sha256_all != last.sha256_all:
        yield _of_other_content(last)
    elif facts.is_text and not facts.is_native:
        message = "its attributes no longer name the filter, so a checkout writes the text"
        yield "untracked-artifact", message, _ERROR
    elif facts.is_native:
        if facts.meta != last.meta:
            yield "bad-record", "the meta line of the last record differs from the text's", _ERROR
            return
        message = "its seal covers arrays and meta, but not the cap, audit and sign lines"
        yield "unsealed", f"{message}: seal it again", _WARNING


def _of_other_content(last: Record) -> _Verdict:
    message = f"generation {last.meta.gen} of its ledger does not match the content"
    return "content-mismatch", message, _ERROR


def _unquoted(name: bytes) -> str:
    return quoted(name).strip("'")


class PathsOfTree:
    """Tells which files and folders of a tree are in the way of a file."""

    def __init__(self, files: Mapping[bytes, TreeEntry]) -> None:
        self._files = files
        self._folders = {above for path in files for above in above_of(path)}

    def obstacle(self, path: bytes) -> str | None:
        """Return why there can't be a regular file at a path; None if there can."""
        if path in self._folders:
            return "replaced by a folder"
        for above in above_of(path):
            entry = self._files.get(above)
            if entry is not None:
                kind = "file" if entry.is_file else "link or submodule"
                return f"a {kind} replaces the folder {quoted(above)}"
        return None


def twins(files: Collection[bytes], paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return for each path another one, if any, that some file system takes for the same file.

    Such names differ in case, in Unicode normalization, or in characters that HFS+ and NTFS ignore.
    The names of folders count as well.
    """
    # Most trees have lower-case ASCII names only, which can't collide.
    first_by_name: dict[str, bytes] = {}
    shared_names: dict[str, bytes] = {}
    for path in files:
        for name in (path, *above_of(path)):
            key = _folded(name)
            other = first_by_name.setdefault(key, name)
            if other != name:
                shared_names[key] = name
    if not shared_names:
        return {}
    pairs: dict[bytes, bytes] = {}
    for path in paths:
        for name in (*_files_of(path), *above_of(path)):
            key = _folded(name)
            if key in shared_names:
                other = first_by_name[key] if first_by_name[key] != name else shared_names[key]
                pairs.setdefault(path, other)
    return pairs


def attribute_twins(files: Iterable[bytes]) -> list[bytes]:
    """Return files that some file systems open when git asks for a gitattributes file."""
    name = FILE_NAME.encode()
    last = ((path, path.rpartition(b"/")[2]) for path in files)
    return [path for path, one in last if one != name and _folded_name(one) == FILE_NAME]


def untracked(
    files: Iterable[bytes], artifacts: Collection[bytes], lines: Iterable[Line]
) -> Iterator[tuple[bytes, str]]:
    """Yield files that look like checkpoints but are no artifacts, with the reason."""
    patterns = {
        line.pattern.rpartition(b"/")[2]
        for line in lines
        if line.pattern is not None and not _FILTERS.isdisjoint(line.attributes)
    }
    endings = tuple(ending.encode() for f in FORMATS for ending in f.endings)
    matches = _any_of(sorted(pattern for pattern in patterns if pattern.strip(b"*")))
    for path in files:
        if path in artifacts or stands_beside(path):
            continue
        name = path.rpartition(b"/")[2]
        if matches(name):
            yield path, "its name matches a tracked pattern, but it is not tracked"
        elif name.lower().endswith(endings):
            yield path, "it is named like a checkpoint, but not tracked or sealed"


def _any_of(patterns: Iterable[bytes]) -> Callable[[bytes], bool]:
    """Return a function that tells whether a name matches one of the patterns, as in fnmatch.

    Literal names and `*.ending`s are looked up in sets: comparing very many patterns and files one
    by one would take hours. Of patterns with other wildcards only `_MOST_WILDCARDS` are used.
    """
    exact: set[bytes] = set()
    tails: set[bytes] = set()
    others: list[re.Pattern[str]] = []
    for pattern in patterns:
        tail = pattern.removeprefix(b"*")
        if _WILDCARD.search(tail) is None:
            (exact if tail == pattern else tails).add(tail)
        elif len(others) < _MOST_WILDCARDS:
            others.append(re.compile(translate(pattern.decode("latin-1"))))

    def matches(name: bytes) -> bool:
        return (
            name in exact
            or (bool(tails) and any(name[n:] in tails for n in range(len(name) + 1)))
            or any(one.match(name.decode("latin-1")) for one in others)
        )

    return matches


@cache
def _folded_name(name: bytes) -> str:
    # Nearly every name needs no folding, and a tree may have a million.
    if name.isascii() and name.islower() and not name.endswith((b".", b" ")):
        return name.decode("ascii")
    text = name.decode("utf-8", "surrogateescape").translate(_IGNORED_CHARACTERS)
    text = unicodedata.normalize("NFD", text).casefold()
    return _TRAILING.sub("", unicodedata.normalize("NFC", text))


def _folded(path: bytes) -> str:
    return "/".join(map(_folded_name, path.split(b"/")))


def above_of(path: bytes) -> Iterator[bytes]:
    """Yield the folders above a path, nearest first."""
    end = path.rfind(b"/")
    while end > 0:
        yield path[:end]
        end = path.rfind(b"/", 0, end)
