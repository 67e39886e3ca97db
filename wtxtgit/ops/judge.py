"""Judging a commit, or what is about to become one, against its parents.

The rules on ledgers and signers are `trust.policy`'s; here they meet the
artifacts: what stands at a path, whether it is what clean gives, and whether
the last record of its ledger is of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from wtxtgit.git.index import Entry
from wtxtgit.git.snapshots import Snapshot
from wtxtgit.model.ledger import LEDGER_SUFFIX
from wtxtgit.ops.artifact import ArtifactFacts
from wtxtgit.ops.chain import ChainReader, artifacts
from wtxtgit.report.audit import Finding, Severity
from wtxtgit.trust.policy import Trust

FactsOf = Callable[[str], ArtifactFacts]
"""What is known of a blob, by its id."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a state has at an artifact's path, and of its ledger."""

    artifact: Entry | None
    ledger: Entry | None
    is_filtered: bool


def place(state: Snapshot, path: bytes) -> Place:
    """What stands at a path."""
    entries = state.entries
    return Place(entries.get(path), entries.get(path + LEDGER_SUFFIX), path in state.filtered)


def changed(
    state: Snapshot, parents: Sequence[Snapshot], vouched: Sequence[Snapshot]
) -> list[bytes]:
    """Artifacts to be judged: those that are as in none of the `vouched` parents.

    Artifacts of the parents count as well: one of them may have lost its
    filter, its ledger, or both.
    """
    if any(parent is state for parent in vouched):
        return []
    paths = artifacts(state).union(*(artifacts(parent) for parent in parents))
    return sorted(
        path
        for path in paths
        if not any(place(state, path) == place(parent, path) for parent in vouched)
    )


def blob_of(state: Snapshot, path: bytes) -> str | None:
    """The blob whose facts judging a path takes."""
    entry = state.entries.get(path)
    return entry.oid if entry is not None and entry.is_file else None


def judge_artifact(
    commit: str,
    path: bytes,
    state: Snapshot,
    parents: Sequence[Snapshot],
    reader: ChainReader,
    facts_of: FactsOf,
    trust: Trust,
    *,
    require_signed: bool = False,
) -> Iterator[Finding]:
    """What is wrong with an artifact and its seal, the ledger's history aside."""
    here = place(state, path)
    before = [place(parent, path) for parent in parents]

    def finding(kind: str, message: str, severity: Severity = Severity.ERROR) -> Finding:
        return Finding(commit, path, kind, message, severity)

    yield from _judge_ledger_entry(here, before, path, reader, finding)
    if here.artifact is None:
        return
    if not here.artifact.is_file:
        yield finding("untracked-artifact", "a link or submodule stands in its place")
        return
    was_filtered = any(parent.is_filtered for parent in before)
    if was_filtered and not here.is_filtered:
        yield finding("untracked-artifact", "its attributes no longer name the filter")
    facts = facts_of(here.artifact.oid)
    if here.is_filtered or was_filtered:
        yield from _judge_content(facts, finding)
    elif facts.is_text and facts.fault is None and facts.meta is None:
        yield finding("not-canonical", "the text of a file stands in the file's place")
    if facts.sha256_all is not None:
        needed = bool(trust.keys) or require_signed
        yield from _judge_seal(here, path, facts, reader, finding, needed)


_Make = Callable[..., Finding]


def _judge_ledger_entry(
    here: Place, before: Sequence[Place], path: bytes, reader: ChainReader, finding: _Make
) -> Iterator[Finding]:
    """A ledger that can't be one, told where it came in."""
    entry = here.ledger
    if entry is None or any(parent.ledger == entry for parent in before[:1]):
        return
    if not entry.is_file:
        yield finding("bad-record", "a link or submodule stands in the ledger's place")
        return
    report = reader.ledger(path + LEDGER_SUFFIX, entry.oid)
    if report is not None and report.problems:
        more = len(report.problems) - 1
        others = f", and {more} more" if more else ""
        yield finding("bad-record", f"{report.problems[0]}{others}")


def _judge_content(facts: ArtifactFacts, finding: _Make) -> Iterator[Finding]:
    if not facts.is_text:
        yield finding("raw-binary", "a binary, not the text that the filter makes of it")
    elif facts.fault is not None:
        yield finding("corrupt-text", facts.fault)
    elif not facts.is_canonical:
        yield finding("not-canonical", "a valid text, but not the one that clean gives")


def _judge_seal(
    here: Place,
    path: bytes,
    facts: ArtifactFacts,
    reader: ChainReader,
    finding: _Make,
    needed: bool,
) -> Iterator[Finding]:
    """Whether the last record is of the content."""
    report = None
    if here.ledger is not None and here.ledger.is_file:
        report = reader.ledger(path + LEDGER_SUFFIX, here.ledger.oid)
    if report is None:
        severity = Severity.ERROR if needed else Severity.WARNING
        yield finding("unsealed", "no ledger has a record of it", severity)
        return
    if report.ledger is None:
        return
    last = report.ledger.last
    if last.sha256_all != facts.sha256_all:
        gen = last.meta.gen
        yield finding("content-mismatch", f"generation {gen} of its ledger is of other content")
    elif facts.meta is not None and facts.meta != last.meta:
        yield finding("bad-record", "the last record has another meta line than the text")
