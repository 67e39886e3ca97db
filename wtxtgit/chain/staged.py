"""Judging the index as the audit will judge the commit made of it.

Git does not tell a hook that a commit is an amend. It is judged as one if a ledger does not
continue HEAD's, but continues that of HEAD's parents with a record that they lack; an older ledger
that came back has no such record.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from wtxtgit.chain import judge
from wtxtgit.chain.encrypted import is_encrypted, judge_encrypted
from wtxtgit.chain.judge import JudgedFiles
from wtxtgit.chain.reader import ChainReader, Facts, signed
from wtxtgit.chain.state_cache import StateCache
from wtxtgit.chain.strict import judge_contents
from wtxtgit.chain.walk import BadRoot, Walk
from wtxtgit.containers import registry
from wtxtgit.errors import NotRead
from wtxtgit.filter.content import ArtifactFacts, with_wsum, wrong_content
from wtxtgit.filter.status import NATIVE, filtered_here_alone, text_format
from wtxtgit.git import history, index, staging
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.blobs import sizes as blob_sizes
from wtxtgit.git.commit_files import CommitFiles, CommitFilesReader
from wtxtgit.git.history import AlteredHistory
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import blob_heads
from wtxtgit.io.files import shown_path
from wtxtgit.io.progress import Progress
from wtxtgit.model.ledger import ENCRYPTED_SUFFIX, LEDGER_SUFFIX, SIGNERS_PATH, TEXT_SUFFIX
from wtxtgit.report.audit import (
    ODD_CHECKPOINT,
    UNCHECKED,
    DetachedTexts,
    Finding,
    Severity,
    as_errors,
)
from wtxtgit.report.check import (
    LARGE_BLOB,
    STALE_INDEX,
    UNFILTERED,
    CheckedFile,
    CheckReport,
    Occasion,
    restages,
)
from wtxtgit.setup.sizes import large_blob, max_blob
from wtxtgit.text.grammar import WSUM_SUFFIX
from wtxtgit.trust.state import SignersState, Tree, TrustFacts, join, start
from wtxtgit.trust.step import step

if TYPE_CHECKING:  # what opens age files takes long to load
    from wtxtgit.checkpoint.encrypted import EncryptedTexts
    from wtxtgit.trust.age.identities import AgeIdentity

_LOSSES = frozenset({"ledger-rewritten", "ledger-removed"})
"""The kinds of findings about ledgers that lost something."""


@dataclass(frozen=True, slots=True)
class StagedCommit:
    """A commit about to be made: its files, what they are, and its parents.

    `texts` are unfiltered texts that have to be verified; `identities` decrypt encrypted ones. With
    `is_whole` all files are judged, else only those that differ from HEAD. With `is_sealed`
    everything has to be sealed, whether there are signers or not. With `is_strict` checkpoints are
    checked, and warnings are errors.
    """

    entries: dict[bytes, TreeEntry]
    snapshot: CommitFiles
    parents: tuple[str, ...]
    texts: tuple[TreeEntry, ...]
    is_whole: bool
    is_sealed: bool
    is_strict: bool
    identities: tuple[AgeIdentity, ...] = field(default=(), repr=False)


def judge_staged(
    repo: Repository,
    staged: StagedCommit,
    trust_root: str | None,
    snapshots: CommitFilesReader,
    facts: Facts,
    cache: StateCache,
    progress: Progress | None = None,
) -> CheckReport:
    """Judge a commit about to be made; `progress` and what is raised are as for `check.check`."""
    with BlobReader(repo) as blobs:
        reader = ChainReader(blobs)
        notes = []
        try:
            history.refuse_altered(repo)
            walk = Walk.to(repo, staged.parents, trust_root, reader, snapshots, cache=cache)
        except AlteredHistory as error:
            # Even a shallow or altered repository has to accept commits; its audit will fail.
            walk = Walk(repo, reader, snapshots)
            trees = [walk.tree(oid) for oid in staged.parents]
            if trees:
                walk.start = join([start(SignersState(), tree) for tree in trees])
            if trust_root is not None or any(map(_seals, (*trees, reader.tree(staged.snapshot)))):
                notes.append(f"it is not known who is trusted: {error.message}")
        except BadRoot as error:
            return CheckReport(
                findings=(Finding("", b"", "bad-root", error.message),), is_sealing=True
            )
        return _CheckWork(repo, staged, walk, facts, progress).report(notes)


def _seals(tree: Tree) -> bool:
    """Tell whether anything in a tree is sealed, or names signers."""
    signers = tree.signers is not None or tree.signers_fault is not None
    return signers or bool(tree.ledgers or tree.broken)


HERE_ALONE = (
    "only core.ignoreCase or attributes of this clone have it filtered, so a checkout elsewhere "
    "leaves the text"
)


@dataclass(frozen=True, slots=True)
class _ParentFindings:
    """Findings compared with some parents, the state after the commit, and the paths judged."""

    findings: tuple[Finding, ...]
    after: TrustFacts
    paths: tuple[bytes, ...]


@dataclass
class _CheckWork:
    """A check in progress; without slots, for cached properties."""

    _repo: Repository
    _staged: StagedCommit
    _walk: Walk
    _facts_of: Facts
    _progress: Progress | None

    def __post_init__(self) -> None:
        self._facts: dict[str, ArtifactFacts] = {}
        self._text_facts: Mapping[str, ArtifactFacts] = {}
        self._tree = self._walk.reader.tree(self._staged.snapshot)

    def report(self, notes: Sequence[str]) -> CheckReport:
        judged = self._judged()
        all_findings = [*judged.findings, *self._judge_texts(judged.after)]
        opener = self._opener()
        if opener is not None:
            blobs = {entry.path: entry.oid for entry in self._encrypted}
            all_findings += judge_encrypted(self._repo, "", blobs, opener)
            notes = [*notes, *filter(None, [opener.note()])]
        paths = sorted({*judged.paths, *(entry.path for entry in self._staged.texts)})
        sizes = self._sizes(paths)
        all_findings += self._judge_sizes(self._new(sizes))
        all_findings += self._judge_identities(self._new(sizes))
        all_findings += self._judge_unfiltered({one.path for one in all_findings})
        all_findings += self._judge_sets()
        findings = tuple(dict.fromkeys(all_findings))
        if self._staged.is_strict:
            findings = as_errors([*findings, *self._judge_contents(self._new(sizes))])
        by_path: dict[bytes, list[Finding]] = {}
        for finding in findings:
            by_path.setdefault(finding.path, []).append(finding)
        files = tuple(
            self._file(
                path,
                judged.after,
                by_path.get(path, []),
                sizes.get(path),
                has_content=not self._lacks_payload(path),
            )
            for path in paths
            if path in self._staged.entries
            or path + LEDGER_SUFFIX in self._staged.entries
            or path in by_path
        )
        is_sealing = bool(self._tree.ledgers or self._tree.broken or judged.after.is_signed)
        notes = [*notes, *self._notes()]
        is_needed = any(restages(finding, self._occasion) for finding in findings)
        half_staged = self._half_staged() if is_needed else frozenset()
        return CheckReport(files, findings, tuple(notes), is_sealing, self._occasion, half_staged)

    @cached_property
    def _staged_paths(self) -> set[bytes]:
        return index.staged_paths(self._repo)

    def _half_staged(self) -> frozenset[bytes]:
        if self._repo.is_bare:
            return frozenset()
        return frozenset(index.half_staged(self._repo))

    @cached_property
    def _encrypted(self) -> list[TreeEntry]:
        return [entry for entry in self._staged.texts if is_encrypted(entry.path)]

    def _opener(self) -> EncryptedTexts | None:
        """Return what opens encrypted texts; None if there are none."""
        if not self._encrypted:
            return None
        from wtxtgit.checkpoint.encrypted import EncryptedTexts

        return EncryptedTexts(self._staged.identities)

    @cached_property
    def _occasion(self) -> Occasion:
        if len(self._staged.parents) > 1:
            return Occasion.MERGE
        is_unstaged = staging.stages_by_itself(self._repo)
        return Occasion.UNSTAGED if is_unstaged else Occasion.COMMIT

    def _judged(self) -> _ParentFindings:
        """Judge against the parents, or as an amend if it looks like one."""
        parents = self._staged.parents
        judged = self._against(parents)
        rewritten = {one.path for one in judged.findings if one.kind in _LOSSES}
        head = history.head(self._repo) if rewritten and len(parents) == 1 else None
        if head is None or head.oid == self._walk.root:
            return judged
        if head.oid in history.shallow_boundary(self._repo):
            return judged
        earlier = head.parents
        amended = {path for path in rewritten if self._has_new_record(path, earlier)}
        if not amended:
            return judged
        as_amend = self._against(earlier)
        if SIGNERS_PATH in amended:
            # Then other signers are trusted, which concerns every path.
            return as_amend
        own = [finding for finding in judged.findings if finding.path not in amended]
        amend_findings = [finding for finding in as_amend.findings if finding.path in amended]
        return _ParentFindings((*own, *amend_findings), judged.after, judged.paths)

    def _has_new_record(self, path: bytes, earlier: Sequence[str]) -> bool:
        """Tell whether a ledger has a record that none of these commits has."""
        ledger = self._tree.ledgers.get(path + LEDGER_SUFFIX)
        if ledger is None:
            return False
        earlier_records = {
            record.merkle_this
            for oid in earlier
            for other in self._walk.tree(oid).ledgers.values()
            if other.head == ledger.head
            for record in other.records
        }
        return any(record.merkle_this not in earlier_records for record in ledger.records)

    def _against(self, parents: Sequence[str]) -> _ParentFindings:
        """Judge all that is staged, since an audit will judge the whole tree of the commit.

        While nobody is trusted, files that are the same as in HEAD are skipped, unless everything
        is to be judged.
        """
        walk, snapshot = self._walk, self._staged.snapshot
        state, violations = step(self._tree, walk.before(parents), signed)
        after = state.facts
        files = judge.whole(walk.snapshots, snapshot, self._staged.entries, after)
        if not (after.is_signed or self._staged.is_whole) and parents:
            before = walk.snapshot(parents[0])
            same = (path for path in files.paths if judge.is_same_place(snapshot, before, path))
            files = files.only(frozenset(files.paths).difference(same))
            known = self._known_violations(parents[0])
            violations = [one for one in violations if (one.path, one.kind) not in known]
        facts = self._find_facts(files)
        findings = [judge.of_violation("", one) for one in violations]
        findings += judge.judge("", files, walk.reader, facts.__getitem__, after)
        if self._staged.is_sealed:
            findings = [_required(finding) for finding in findings]
        return _ParentFindings(tuple(findings), after, files.paths)

    def _known_violations(self, parent: str) -> set[tuple[bytes, str]]:
        """Return what was already wrong with ledgers, at files that are unchanged."""
        before = self._walk.snapshot(parent)
        return {
            (one.path, one.kind)
            for one in self._walk.violations(parent)
            if judge.is_same_place(self._staged.snapshot, before, one.path)
        }

    def _find_facts(self, files: JudgedFiles) -> dict[str, ArtifactFacts]:
        opaque = files.unfiltered
        missing = {
            oid: None
            for oid in files.blobs.values()
            if oid not in self._facts or (oid in opaque and self._facts[oid].opaque is None)
        }
        self._facts |= self._facts_of.of(missing, self._progress, opaque=opaque)
        return self._facts

    def _judge_texts(self, after: TrustFacts) -> Iterator[Finding]:
        """Verify native texts, each with the WSUM beside it."""
        texts = [entry for entry in self._staged.texts if not is_encrypted(entry.path)]
        facts = self._facts_of.of((entry.oid for entry in texts), self._progress)
        self._text_facts = facts
        for entry in texts:
            text_facts = facts[entry.oid]
            if (wsum := self._wsum(entry.path)) is not None:
                text_facts = with_wsum(text_facts, wsum, is_filtered=False)
            if not text_facts.is_text:
                yield Finding("", entry.path, "corrupt-text", "this is not a WTXT text")
            elif text_facts.fault is not None and not text_facts.lacks_payload:
                yield Finding("", entry.path, "corrupt-text", text_facts.fault)
            else:
                yield from judge.judge_sign_line("", entry.path, text_facts, after)

    def _notes(self) -> Iterator[str]:
        """Yield notes about files that are staged without what belongs to them, but break no
        rule.
        """
        lacking = sum(facts.lacks_payload for facts in self._facts.values())
        if lacking:
            yield str(DetachedTexts(0, lacking))
        for path in self._staged.entries:
            text = path.removesuffix(WSUM_SUFFIX)
            if path != text and text not in self._staged.entries and self._wsum(text) is not None:
                name = shown_path(text)
                yield f"{name}{os.fsdecode(WSUM_SUFFIX)} is useless without {name}"

    def _wsum(self, path: bytes) -> bytes | None:
        entry = self._staged.entries.get(path + WSUM_SUFFIX)
        is_file = entry is not None and entry.is_file
        return self._walk.reader.wsum(entry.oid) if entry is not None and is_file else None

    def _new(self, sizes: Mapping[bytes, int]) -> Mapping[bytes, int]:
        """Return the files that are new to a forge; all of them if everything is asked for."""
        if self._staged.is_whole:
            return sizes
        staged = self._staged_paths
        return {path: size for path, size in sizes.items() if path in staged}

    def _judge_sizes(self, sizes: Mapping[bytes, int]) -> Iterator[Finding]:
        limit = max_blob(self._repo)
        for path, size in sizes.items():
            message = large_blob(size, limit)
            if message is not None:
                severity = Severity.ERROR if size > limit else Severity.WARNING
                yield Finding("", path, LARGE_BLOB, message, severity)

    def _judge_identities(self, paths: Iterable[bytes]) -> Iterator[Finding]:
        """Yield warnings for files that are not what their name says, or not whole."""
        for path in paths:
            facts = self._facts.get(self._staged.entries[path].oid)
            if facts is None or path not in self._staged.snapshot.filtered:
                continue
            if (wrong := wrong_content(path, facts)) is not None:
                yield Finding("", path, ODD_CHECKPOINT, wrong, Severity.WARNING)

    def _judge_unfiltered(self, reported: Container[bytes]) -> Iterator[Finding]:
        """Yield warnings for texts that went through the filter in a parent, but no longer do.

        The file was renamed, or its pattern removed; a checkout now leaves the text.
        """
        parent_blobs: set[str] = set()
        unfiltered: set[bytes] = set()
        filtered = self._staged.snapshot.filtered
        for parent in self._staged.parents:
            files = self._walk.snapshot(parent)
            parent_blobs.update(files.entries[path].oid for path in files.filtered)
            unfiltered |= files.filtered - filtered
        alone = set(self._filtered_here_alone())
        for path in sorted(path for path in alone if path not in reported):
            yield Finding("", path, UNFILTERED, HERE_ALONE, Severity.WARNING)
        if not unfiltered:
            return
        unfiltered |= self._staged_paths
        texts = {
            path: entry.oid
            for path, entry in self._staged.entries.items()
            if entry.oid in parent_blobs
            and entry.is_file
            and path in unfiltered
            and path not in filtered
            and path not in reported
            and path not in alone
            and not path.endswith((TEXT_SUFFIX, ENCRYPTED_SUFFIX))
        }
        heads = blob_heads(self._repo, texts.values()) if texts else {}
        for path, oid in texts.items():
            if text_format(heads[oid].head) not in (None, NATIVE):
                message = "no pattern matches its name, so a checkout leaves the text"
                yield Finding("", path, UNFILTERED, message, Severity.WARNING)

    def _filtered_here_alone(self) -> list[bytes]:
        if self._repo.is_bare or not self._repo.has_own_attributes():
            return []
        entries = self._staged.entries
        chosen = entries.keys() if self._staged.is_whole else self._staged_paths
        given = [entries[path] for path in chosen if path in entries]
        alone = filtered_here_alone(self._repo, given, self._staged.snapshot.filtered)
        heads = blob_heads(self._repo, [entry.oid for entry in alone]) if alone else {}
        return [e.path for e in alone if text_format(heads[e.oid].head) not in (None, NATIVE)]

    def _judge_sets(self) -> Iterator[Finding]:
        """Yield warnings for sets whose files were changed, or merged, without their index."""
        entries = self._staged.entries
        endings = tuple(map(os.fsencode, registry.hashing_indexes()))
        indexes = [path for path in entries if path.endswith(endings)]
        if not indexes:
            return
        # Imported here: few repositories have a set.
        from wtxtgit.chain.stale_sets import stale_sets

        changed = entries.keys() if self._staged.is_whole else self._staged_paths
        for path, message in stale_sets(self._repo, entries, indexes, set(changed)):
            kind = UNCHECKED if isinstance(message, NotRead) else STALE_INDEX
            yield Finding("", path, kind, message, Severity.WARNING)

    def _judge_contents(self, paths: Iterable[bytes]) -> Iterator[Finding]:
        blobs = {path: self._staged.entries[path].oid for path in paths}
        return judge_contents(self._repo, "", blobs)

    def _sizes(self, paths: Sequence[bytes]) -> dict[bytes, int]:
        entries = [entry for path in paths if (entry := self._staged.entries.get(path))]
        files = {entry.path: entry.oid for entry in entries if entry.is_file}
        size_of = blob_sizes(self._repo, files.values())
        return {path: size_of[oid] for path, oid in files.items()}

    def _lacks_payload(self, path: bytes) -> bool:
        entry = self._staged.entries.get(path)
        if entry is None:
            return False
        facts = self._facts.get(entry.oid) or self._text_facts.get(entry.oid)
        return facts is not None and facts.lacks_payload

    def _file(
        self,
        path: bytes,
        after: TrustFacts,
        findings: Sequence[Finding],
        size: int | None,
        *,
        has_content: bool,
    ) -> CheckedFile:
        ledger = self._tree.ledgers.get(path + LEDGER_SUFFIX)
        gen = None
        signers: tuple[str, ...] = ()
        if ledger is not None:
            gen = ledger.last.meta.gen
            valid = signed(ledger, len(ledger.records) - 1, after.trusted).valid
            principals = self._walk.reader.principals
            signers = tuple(sorted(principals.get(key, key.hex()) for key in valid))
        if findings:
            worst = min(findings, key=lambda finding: finding.severity is not Severity.ERROR)
            state = f"{worst.kind}: {worst.message}"
        elif gen is None:
            state = "verified" if has_content else "its data is not here"
        else:
            signed_by = f"by {', '.join(signers)}" if signers else "by no trusted signer"
            is_there = path in self._staged.entries
            state = (
                f"{'sealed' if is_there else 'deleted, last sealed'}, generation {gen} {signed_by}"
            )
        return CheckedFile(path, state, size, gen, signers)


def _required(finding: Finding) -> Finding:
    """Turn "unsealed" into an error if everything has to be sealed."""
    return replace(finding, severity=Severity.ERROR) if finding.kind == "unsealed" else finding
