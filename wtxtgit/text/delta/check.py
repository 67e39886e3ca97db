"""Checking a delta alone: its chunks, whole arrays, merkle and signature.

`docs/spec/delta.md`, section "What a delta alone shows".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model import Problem
from wtxtgit.model.checksum import crc32c
from wtxtgit.text import armor, digest, grammar, signature
from wtxtgit.text.blocks import mismatch
from wtxtgit.text.delta.index import Change, DeltaChunk, DeltaIndex, index
from wtxtgit.text.signature import SignatureState

_ROOT_LINE = 4
"""Where a bound delta has its root line."""


@dataclass(slots=True)
class DeltaReport:
    """What a check of a delta found; `signature` is that of its target."""

    index: DeltaIndex
    problems: list[Problem] = field(default_factory=list)
    signature: SignatureState = SignatureState.ABSENT

    @property
    def ok(self) -> bool:
        return not self.problems


def check(text: ByteView, *, public_keys: Sequence[bytes] = ()) -> DeltaReport:
    """Check a delta without its base; never raises because of its content."""
    found = index(text)
    report = DeltaReport(found)
    for change in found.changes:
        report.problems += _check_change(text, change)
    if found.stop is not None:
        report.problems.append(found.stop)
    if found.head is not None:
        head = found.head
        this = digest.merkle(head.root.merkle_prev, head.root.sha256_all, head.meta)
        if this != head.root.merkle_this:
            message = mismatch("merkle_this", this, head.root.merkle_this)
            report.problems.append(Problem("merkle", message, line=_ROOT_LINE))
        if head.signature is not None:
            report.signature = signature.check_header(head.signature, head.covered, public_keys)
        if report.signature is SignatureState.INVALID:
            message = "the target's signature does not fit the delta and the keys given"
            report.problems.append(Problem("signature", message))
    return report


def decode(text: ByteView, chunk: DeltaChunk) -> memoryview | None:
    """A chunk's bytes, None where a line is not as it should be."""
    held = np.frombuffer(mapped(_lines(text, chunk)), dtype=np.uint8)
    raw = armor.decode(held, 1, chunk.claim.size, 0, 0)
    return None if raw is None else raw.reshape(-1).data


def _check_change(text: ByteView, change: Change) -> list[Problem]:
    problems: list[Problem] = []
    # With an `idx` line a block is whole, so the array's own hash can be compared.
    own = sha256()
    for chunk in change.chunks:
        raw = decode(text, chunk)
        problems += _diagnosed(text, chunk, change.name) if raw is None else ()
        if raw is not None:
            problems += _compared(raw, chunk, change.name)
            own.update(raw)
    claim = change.claim
    whole = claim is not None and change.rows is not None and not problems
    if whole and claim is not None and own.digest() != claim.sha256:
        message = mismatch("the array's sha256", own.digest(), claim.sha256)
        problems.append(Problem("array_sha256", message, line=change.line, array=change.name))
    return problems


def _compared(raw: memoryview, chunk: DeltaChunk, array: str) -> list[Problem]:
    problems = []
    crc, found = crc32c(raw), sha256(raw).digest()
    if crc != chunk.claim.crc32c:
        message = f"crc32c is {crc:08x}, the line says {chunk.claim.crc32c:08x}"
        problems.append(("crc32c", message))
    if found != chunk.claim.sha256:
        message = mismatch("the chunk's sha256", found, chunk.claim.sha256)
        problems.append(("chunk_sha256", message))
    return [
        Problem(kind, message, line=chunk.line - 1, array=array, chunk=chunk.claim.ix)
        for kind, message in problems
    ]


def _lines(text: ByteView, chunk: DeltaChunk) -> ByteView:
    return text[chunk.start : chunk.start + chunk.claim.lines * grammar.LINE_TEXT]


def _diagnosed(text: ByteView, chunk: DeltaChunk, array: str) -> list[Problem]:
    faults, raw = armor.diagnose(_lines(text, chunk), chunk.claim.size)
    problems = [
        Problem(f.kind, f.message, line=chunk.line + f.index, array=array, chunk=chunk.claim.ix)
        for f in faults
    ]
    if any(fault.stops for fault in faults):
        return problems
    return problems + _compared(memoryview(raw), chunk, array)
