"""All small worlds of one place with a text and its WSUM, held against the claim of an audit.

A world is what was sealed there last, and what stands there now: each a file and what stands in the
place of its WSUM. The predicate knows none of the rules: which WSUM is one of which text is kept by
who made them. `docs/spec/trust.md`, section "Texts with a WSUM".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from nacl.signing import SigningKey

import wtxtgit
from tests.e2e.sealed import text as container_text
from wtxtgit.chain.judge import JudgedFiles, judge
from wtxtgit.chain.reader import ChainReader
from wtxtgit.chain.seal_state import After, content_of
from wtxtgit.filter.content import ArtifactFacts, examine, with_wsum
from wtxtgit.git.trees import TreeEntry
from wtxtgit.model.array import Meta, Signature
from wtxtgit.model.ledger import Ledger, LedgerHead
from wtxtgit.report.audit import Finding, Severity
from wtxtgit.tensors.program_arrays import snapshot_from
from wtxtgit.text import digest
from wtxtgit.text.ledger import LedgerReport, native_record
from wtxtgit.text.write import TextWriter
from wtxtgit.trust.state import TrustFacts

PATH, LEDGER, WSUM = b"p", b"p.wsum", b"p.root.wsum"
SEED, OTHER_SEED = bytes(32), bytes(range(32))
ALICE = bytes(SigningKey(SEED).verify_key)
A, B = ({"W": np.full(5, value)} for value in (1.0, 2.0))
META = Meta("weights/v1", 3, "2026-01-31T12:00:00Z", "x")


def by_alice(message: bytes) -> Signature:
    return digest.sign(SEED, message)


def by_mallory(message: bytes) -> Signature:
    return digest.sign(OTHER_SEED, message)


def wsum(arrays: dict[str, Any], prev: int = 0, sign: Any = None) -> bytes:
    snapshot = snapshot_from(arrays, meta=META, prev=bytes([prev]) * 32, pending=True)
    return TextWriter(snapshot, sign=sign).wsum()


FILES = {
    "pending A": wtxtgit.dumps(A, meta=META, pending=True),
    "pending B": wtxtgit.dumps(B, meta=META, pending=True),
    "whole A": wtxtgit.dumps(A, meta=META),
    "container": container_text(1.0),
    "nonsense": b"WTXT 1\nnonsense\n",
    "binary": b"\0\1",
    # The pair of two files as one.
    "both": wtxtgit.dumps(A, meta=META, pending=True) + wsum(A),
}
BESIDE = {
    "nothing": None,
    "of A": wsum(A),
    "of A, elsewhere": wsum(A, 1),
    "of A, by alice": wsum(A, sign=by_alice),
    "of A, by mallory": wsum(A, sign=by_mallory),
    "of B": wsum(B),
    "broken": wsum(A)[:-1],
    "ledger": b"WLEDGER 1 repo=",
    "link": wsum(A),
}
BELONGS = {
    "pending A": {key for key in BESIDE if key.startswith("of A")},
    "whole A": {key for key in BESIDE if key.startswith("of A")},
    "pending B": {"of B"},
}
World = tuple[str, str]
"""What stands at the path, and what in the place of its WSUM."""
WORLDS = list(product(FILES, BESIDE))


def seen(world: World, *, is_filtered: bool) -> bytes | None:
    """The WSUM that goes with a file, well-formed or not."""
    file, beside = world
    if beside in ("nothing", "ledger", "link") or not FILES[file].startswith(b"WTXT "):
        return None
    # Of a filtered file a checkout writes something else, but where it can't.
    is_written = not is_filtered or file in BELONGS
    return BESIDE[beside] if is_written else None


def is_what_was_sealed(sealed: World, now: World, *, is_filtered: bool) -> bool:
    """The claim: what stands there is to the byte what was sealed, and holds."""
    pairs = [(FILES[one[0]], seen(one, is_filtered=is_filtered)) for one in (sealed, now)]
    file, beside = now
    if pairs[0] != pairs[1]:
        return False
    if pairs[1][1] is not None and beside not in BELONGS.get(file, ()):
        return False
    if not is_filtered:
        return True
    if file.startswith("pending"):
        return pairs[1][1] is not None
    return file in ("whole A", "container")


@cache
def facts(file: str) -> ArtifactFacts:
    return examine(memoryview(FILES[file]), threads=1, opaque=True)


@dataclass
class Reader:
    """What a chain's reader gives of one ledger."""

    report: LedgerReport

    def wsum(self, oid: str) -> bytes | None:
        content = BESIDE[oid]
        return content if content is not None and content.startswith(b"WSUM ") else None

    def ledger(self, path: bytes, oid: str) -> LedgerReport:
        assert (path, oid) == (LEDGER, "ledger")
        return self.report


def sealed_as(world: World, *, is_filtered: bool) -> LedgerReport | None:
    """The ledger that sealing gives; None for what can't be sealed."""
    beside = seen(world, is_filtered=is_filtered)
    whole = facts(world[0])
    if beside is not None:
        whole = with_wsum(whole, beside, is_filtered=is_filtered)
    content = content_of(whole, is_filtered=is_filtered)
    if content is None:
        return None
    record = content.record(None, After("2026-02-01T00:00:00Z"), build="none")
    return LedgerReport(Ledger(LedgerHead(bytes(32), PATH), (record,)), ())


def judged(report: LedgerReport, now: World, *, is_filtered: bool) -> list[Finding]:
    file, beside = now
    entries = {
        PATH: TreeEntry(PATH, 0o100644, file),
        LEDGER: TreeEntry(LEDGER, 0o100644, "ledger"),
    }
    if beside != "nothing":
        entries[WSUM] = TreeEntry(WSUM, 0o120000 if beside == "link" else 0o100644, beside)
    files = JudgedFiles((PATH,), frozenset([PATH] if is_filtered else []), entries)
    standing = cast(TrustFacts, SimpleNamespace(is_signed=True, trusted=frozenset([ALICE])))
    return list(judge("c", files, cast(ChainReader, Reader(report)), facts, standing))


@pytest.mark.parametrize("is_filtered", [False, True])
def test_what_is_accepted_is_what_was_sealed(is_filtered: bool) -> None:
    accepted = 0
    for sealed in WORLDS:
        report = sealed_as(sealed, is_filtered=is_filtered)
        if report is None:
            continue
        for now in WORLDS:
            every = judged(report, now, is_filtered=is_filtered)
            found = [one for one in every if one.severity is Severity.ERROR]
            holds = is_what_was_sealed(sealed, now, is_filtered=is_filtered)
            assert (not found) == holds, (sealed, now, found)
            accepted += holds
    assert accepted > len(FILES)


def test_a_wsum_by_a_stranger_is_told_of() -> None:
    for beside, wanted in (("of A, by alice", set()), ("of A, by mallory", {"untrusted-signer"})):
        world = ("pending A", beside)
        report = sealed_as(world, is_filtered=False)
        assert report is not None
        assert {one.kind for one in judged(report, world, is_filtered=False)} == wanted


def test_no_older_spelling_of_a_seal_is_of_a_text_with_a_wsum() -> None:
    """A record of the text's own root binds no WSUM."""
    known = facts("whole A")
    assert known.sha256_all is not None
    old = native_record(None, sha256_all=known.sha256_all, meta=META)
    report = LedgerReport(Ledger(LedgerHead(bytes(32), PATH), (old,)), ())
    told = {"nothing": ("unsealed", "warning"), "of A": ("content-mismatch", "error")}
    for beside, wanted in told.items():
        (found,) = judged(report, ("whole A", beside), is_filtered=False)
        assert (found.kind, found.severity) == wanted
