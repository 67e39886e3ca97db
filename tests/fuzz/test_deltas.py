"""Mutated and hostile deltas: refused, or what their hashes cover is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.data import DeltaCase, delta_cases, delta_named, seeded
from tests.fuzz.mutations import text_mutant
from tests.fuzz.test_memory import (
    BASE,
    FACTOR,
    HUGE,
    HUGE_LINES,
    LINE,
    TB,
    TB_LINES,
    arr,
    ch,
    idx,
    peak_of,
)
from tests.kit.changes import TEXT, why_all
from tests.text.deltas import applied, made, side
from tests.text.edits import in_turn, inside_of_words
from wtxtgit.errors import TextError
from wtxtgit.io.view import Buffer
from wtxtgit.model.array import Snapshot
from wtxtgit.tensors.program_arrays import snapshot_from
from wtxtgit.text.delta import sides
from wtxtgit.text.delta.index import check
from wtxtgit.text.delta.patch import Regeneration, apply, make
from wtxtgit.text.delta.sides import DeltaSide, side_of_text, side_of_writer
from wtxtgit.text.index import index
from wtxtgit.text.verify import verify
from wtxtgit.text.write import TextWriter, dumps

pytestmark = pytest.mark.slow

SMALL = 1300
MUTANTS = 150
OTHER = b"\x00\n =-0A1"


def facts(text: bytes) -> tuple[Any, ...]:
    """All of a target that the hashes cover."""
    found = index(memoryview(text))
    meta = found.meta
    lines = [array.header for array in found.arrays]
    return found.root, meta.gen, meta.ts, meta.build, lines


def check_mutant(case: DeltaCase, mutant: bytes, **given: Any) -> bool:
    """Whether it is accepted; then it says the same, in the one spelling there is."""
    check(memoryview(mutant))
    try:
        target = applied(case.base, mutant, **given)
    except TextError:
        return False
    assert verify(memoryview(target)).ok
    assert made(case.base, target, plain=case.plain) == mutant
    assert facts(target) == facts(case.target)
    return True


def given(case: DeltaCase) -> dict[str, Any]:
    return {"ts": case.ts, "build": case.build, "hmac_key": case.hmac_key}


@pytest.mark.parametrize(
    "case", [case for case in delta_cases() if len(case.delta) <= SMALL], ids=lambda c: c.name
)
def test_every_byte_changed(case: DeltaCase) -> None:
    text = case.delta
    accepted = 0
    for at in range(0, len(text), 1 if why_all(TEXT) else 3):
        kinds: Sequence[int] = (*OTHER, text[at] ^ 1, text[at] ^ 0x20)
        if at in inside_of_words(text):
            kinds = in_turn(kinds, at)
        for other in {*kinds} - {text[at]}:
            mutant = text[:at] + bytes([other]) + text[at + 1 :]
            accepted += check_mutant(case, mutant, **given(case))
    # Only what no hash covers can be something else: schema, host, cuda, cap, audit.
    assert 0 < accepted < len(text) * 4


@pytest.mark.parametrize("case", delta_cases(), ids=lambda c: c.name)
def test_a_mutant_is_refused_or_says_the_same(case: DeltaCase) -> None:
    rng = seeded(case.name)
    for _ in range(MUTANTS if len(case.delta) <= SMALL else MUTANTS // 10):
        check_mutant(case, text_mutant(case.delta, rng), **given(case))


@pytest.mark.parametrize("name", ["one_chunk", "plain", "signed"])
def test_bytes_all_over_a_larger_one(name: str) -> None:
    case = delta_named(name)
    text = case.delta
    for at in (*range(0, 700, 3), *range(700, len(text), 4999), *range(len(text) - 40, len(text))):
        mutant = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        check_mutant(case, mutant, **given(case))


HEAD = b"".join(delta_named("unchanged").delta.splitlines(keepends=True)[:4])
PLAIN = delta_named("plain").delta.splitlines(keepends=True)[0]
END = b"endch\nendarr\nenddelta\n"

HOSTILE = {
    "a new array of 1 TB in one chunk": HEAD + arr(TB, TB) + idx(TB, b"1") + ch(TB, TB_LINES) + END,
    "an array of 1 TB and some lines": HEAD
    + arr(TB, TB)
    + idx(TB, b"1")
    + ch(TB, TB_LINES)
    + LINE * 500
    + END,
    "an array of 10**20 bytes": HEAD + arr(HUGE, HUGE) + ch(HUGE, HUGE_LINES) + LINE * 3 + END,
    "a plain chunk of 10**20 bytes": PLAIN + b"arr name=R\n" + ch(HUGE, HUGE_LINES) + LINE + END,
    "more chunks than have numbers": HEAD + arr(HUGE, HUGE) + idx(b"1", b"1") + END,
    "a million chunks": HEAD
    + arr(b"1000000", b"1000000")
    + idx(b"1", b"1")
    + ch(b"1", b"1")
    + LINE
    + END,
    "a shape of many dimensions": HEAD + arr(b",".join([b"1"] * 50_000) + b",8", b"8"),
    "a shape of many large dimensions": HEAD + arr(b",".join([HUGE] * 20_000), b"8"),
    "a name without an end": HEAD + b"del name=" + b"W" * 500_000,
    "a plain name without an end": PLAIN + b"arr name=" + b"W" * 500_000,
    "many names": HEAD + b"".join(b"del name=a%06d\n" % k for k in range(30_000)),
    "a first line without an end": PLAIN.rstrip() + b"0" * 500_000,
    "many empty lines": HEAD + b"\n" * 300_000,
    "an audit line of many quotes": HEAD + b"audit " + b'a="" ' * 60_000 + b"\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_claim_is_refused_within_its_own_size(name: str) -> None:
    text = HOSTILE[name]
    view = memoryview(text)
    assert not check(view).ok
    assert peak_of(lambda: check(view)) < BASE + FACTOR * len(text)


def swallow(pieces: Iterable[Buffer]) -> None:
    """Take pieces and keep none."""
    for piece in pieces:
        assert len(piece) < 4 * 1024 * 1024


def side_of(text: memoryview) -> DeltaSide:
    return side_of_text(text, index(text))


def _side_of(snapshot: Snapshot, threads: int) -> DeltaSide:
    return side_of_writer(TextWriter(snapshot, threads=threads))


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_does_not_grow_with_the_file(threads: int) -> None:
    """Of 48 MiB only a window is held, on the way to a delta and back."""
    most = 16 * 1024 * 1024
    rng = np.random.default_rng(1)
    before = rng.integers(0, 256, (48 * 1024, 1024), "u1")
    after = before.copy()
    after[::640] += 1
    snapshots = [snapshot_from({"w.w": array}) for array in (before, after)]
    texts = [memoryview(dumps(snapshot)) for snapshot in snapshots]
    raw = [partial(_side_of, snapshot, threads) for snapshot in snapshots]
    written = [partial(side_of, text) for text in texts]
    for pair in (raw, written):

        def making(pair: Sequence[Callable[[], DeltaSide]] = pair) -> None:
            base, target = (opened() for opened in pair)
            swallow(make(base, target).pieces(threads=threads))

        assert peak_of(making) < most
    delta = made(bytes(texts[0]), bytes(texts[1]))
    assert len(delta) > 6 * 1024 * 1024
    view = memoryview(delta)

    for opened in (raw[0], written[0]):

        def applying(opened: Callable[[], DeltaSide] = opened) -> None:
            found = check(view).index
            done = apply(opened(), view, found, Regeneration(), threads=threads)
            swallow(sides.text_pieces(done.side, threads=threads))

        assert peak_of(applying) < most


def test_a_claim_that_fits_no_base_is_refused_within_its_own_size() -> None:
    case = delta_named("one_chunk")
    base = side(case.base)
    line = case.delta.splitlines(keepends=True)[4]
    for text in (
        case.delta.replace(b"ix=000001 off=000000065536", b"ix=999999 off=000000065536"),
        case.delta.replace(line, line.replace(b"name=R", b"name=Q")),
    ):
        report = check(memoryview(text))
        assert report.ok

        def run(text: bytes = text, found: Any = report.index) -> None:
            with pytest.raises(TextError):
                apply(base, memoryview(text), found, Regeneration())

        assert peak_of(run) < BASE
