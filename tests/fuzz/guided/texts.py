"""Targets: texts, layouts, deltas, ledgers, and what mends them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.data import cases, delta_cases, fixture, golden, ledger_cases
from tests.fuzz.guided.target import Target, refused
from tests.fuzz.mutations import text_mutant
from tests.fuzz.oracle import KINDS, check_text
from tests.fuzz.test_memory import LAYOUTS, with_raw_layout
from tests.text import edge_detached
from tests.text.deltas import applied, made
from wtxtgit.errors import TextError
from wtxtgit.filter.clean import text_of
from wtxtgit.text import ledger
from wtxtgit.text.delta.index import check
from wtxtgit.text.file import assumed_layout
from wtxtgit.text.index import index
from wtxtgit.text.layout import format_layout, parse_layout
from wtxtgit.text.recovery import deltas as recovered_deltas
from wtxtgit.text.recovery import ledgers as recovered_ledgers
from wtxtgit.text.recovery.rebuilding import recover
from wtxtgit.text.recovery.rebuilding import text_of as rebuilt
from wtxtgit.text.restoring import verify_into
from wtxtgit.text.verify import verify

SMALL = 4000
"""Bytes of the files whose texts are seeds."""


def vectors() -> Iterator[bytes]:
    yield from (case.text for case in cases())
    yield from (made.text for made in edge_detached.made().values())
    files = (path for path, record in golden().items() if record["bytes"] <= SMALL)
    yield from (b"".join(text_of(memoryview(fixture(path))).pieces()) for path in files)


def text(data: bytes) -> bool:
    """All readers of a text agree; the one that writes the file on its way too."""
    report = check_text(data)
    view = memoryview(data)
    indexed = index(view)
    layout = assumed_layout(view, indexed)
    if layout is None:
        return report.ok
    descriptor = os.memfd_create("file")
    try:
        again, is_whole = verify_into(descriptor, view, indexed, layout)
        assert again.ok == report.ok
        assert is_whole == (report.ok and report.layout is not None)
        size = os.fstat(descriptor).st_size
        assert size == (layout.size if is_whole else 0)
    finally:
        os.close(descriptor)
    return report.ok


def wsum(data: bytes) -> bool:
    """Any bytes as the WSUM of a text whose root is pending."""
    case = _pending()
    report = verify(memoryview(case), wsum=data)
    assert {problem.kind for problem in report.problems} <= KINDS
    return report.ok


@cache
def _pending() -> bytes:
    return next(case.text for case in cases() if case.wsum_file is not None and case.valid)


def wsums() -> Iterator[bytes]:
    yield from (case.wsum for case in cases() if case.wsum is not None)


def layout(data: bytes) -> bool:
    """One spelling: what is read is written as it was."""
    text = with_raw_layout(data)
    report = verify(memoryview(text))
    assert {problem.kind for problem in report.problems} <= KINDS
    try:
        parsed = parse_layout(data)
    except TextError as refusal:
        assert not report.ok
        return refused(refusal)
    assert format_layout(parsed) == data
    return True


def layouts() -> Iterator[bytes]:
    yield from LAYOUTS.values()
    for one in vectors():
        parsed = assumed_layout(memoryview(one), index(memoryview(one)))
        if parsed is not None:
            yield format_layout(parsed)


def delta(data: bytes) -> bool:
    """What a delta says of its base is refused, or is the one spelling of that change."""
    report = check(memoryview(data))
    assert {problem.kind for problem in report.problems} <= KINDS
    if not report.ok:
        return False
    taken = False
    for case in _small_deltas():
        try:
            target = applied(case.base, data, ts=case.ts, build=case.build, hmac_key=case.hmac_key)
        except TextError as refusal:
            refused(refusal)
            continue
        assert verify(memoryview(target)).ok
        assert made(case.base, target, plain=report.index.head is None) == data
        taken = True
    return taken


@cache
def _small_deltas() -> list[Any]:
    found = [case for case in delta_cases() if len(case.delta) + len(case.base) < 6000]
    assert found
    return found


def deltas() -> Iterator[bytes]:
    yield from (case.delta for case in delta_cases())


def ledger_text(data: bytes) -> bool:
    """One spelling, whole and read on; what is mended holds."""
    report = ledger.read(data)
    assert {problem.kind for problem in report.problems} <= KINDS
    if report.ok:
        assert report.ledger is not None
        assert ledger.format_ledger(report.ledger) == data
    half = data.rfind(b"\nmeta ") + 1
    assert ledger.read(data, ledger.read(data[:half])).problems == report.problems
    return report.ok


def ledgers() -> Iterator[bytes]:
    yield from (case.text for case in ledger_cases())


def recovery(data: bytes) -> bool:
    """What is mended has the hashes that it names; what was whole comes back."""
    try:
        found = recover(memoryview(data))
        if found.snapshot is None:
            return False
        whole = b"".join(map(bytes, rebuilt(found.snapshot)))
    except TextError as refusal:
        return refused(refusal)
    kinds = {problem.kind for problem in verify(memoryview(whole)).problems}
    # Hashes don't say what a layout has to be, nor that a root stands somewhere else.
    assert kinds <= {"layout", "pending"}
    return not kinds


def delta_recovery(data: bytes) -> bool:
    """What is mended holds."""
    mended, _, _ = recovered_deltas.mended(data)
    assert mended is None or check(memoryview(mended)).ok
    return mended is not None


def ledger_recovery(data: bytes) -> bool:
    """What is mended holds; what held comes back."""
    mended, _ = recovered_ledgers.mended(data)
    assert mended is None or ledger.read(mended).ok
    assert mended == data or not ledger.read(data).ok
    return mended is not None


def damaged() -> Iterator[bytes]:
    # What no hash settles takes seconds in a longer one.
    yield from (case.text for case in cases() if len(case.text) <= 1100)


TARGETS = {
    "text": Target(vectors, text, text_mutant, longest=12_000),
    "wsum": Target(wsums, wsum, text_mutant),
    "layout": Target(layouts, layout, text_mutant),
    "delta": Target(deltas, delta, text_mutant),
    "ledger": Target(ledgers, ledger_text, text_mutant),
    "recovery": Target(damaged, recovery, text_mutant, longest=1500, fewer=4),
    "delta-recovery": Target(deltas, delta_recovery, text_mutant, longest=1500),
    "ledger-recovery": Target(ledgers, ledger_recovery, text_mutant, longest=1500),
}
