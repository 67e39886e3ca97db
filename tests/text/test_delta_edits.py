"""One character of a delta edited: refused, or the same target, or told that no hash covers it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.data import delta_named
from tests.text.deltas import side, target_of
from wtxtgit.errors import TextError
from wtxtgit.text import grammar
from wtxtgit.text.delta import sides
from wtxtgit.text.delta.patch import Regeneration

# What takes the place of a character: one that is next to it, and some that change its kind.
_OTHERS = b"01af \n"


def edits(text: bytes) -> Iterator[bytes]:
    """All texts with one character of a line that is no armor changed, dropped or doubled."""
    at = 0
    for line in text.splitlines(keepends=True):
        if len(line) != grammar.LINE_TEXT:
            for place in range(at, at + len(line)):
                before, one, after = text[:place], text[place], text[place + 1 :]
                for other in {*_OTHERS, one ^ 1, one ^ 0x20} - {one}:
                    yield before + bytes((other,)) + after
                yield before + after
                yield before + bytes((one, one)) + after
        at += len(line)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("one_chunk", {"schema", "host", "cuda", "cap ext"}),
        ("added_removed", {"schema", "host", "cuda", "cap ext", "idx of the array"}),
        ("retyped", {"schema", "host", "cuda", "cap ext", "idx of the array"}),
        ("signed", {"schema", "host", "cuda", "cap ext", "the signature"}),
        ("audit", {"schema", "host", "cuda", "cap ext", "audit"}),
        ("hmac", {"schema", "host", "cuda", "cap ext"}),
        ("salt_rotated", {"schema", "host", "cuda", "cap ext"}),
        ("plain", set()),
    ],
)
def test_a_single_edit(name: str, told: set[str]) -> None:
    case = delta_named(name)
    base, given = side(case.base), Regeneration(case.ts, case.build, case.hmac_key)
    usual = target_of(base, case.delta, given)
    expected = b"".join(sides.text_pieces(usual.side, threads=1))
    found: set[str] = set()
    refused = tried = 0
    for edited in edits(case.delta):
        tried += 1
        try:
            target = target_of(base, edited, given, threads=1)
        except TextError:
            refused += 1
            continue
        text = b"".join(sides.text_pieces(target.side, threads=1))
        if text != expected:
            more = {*target.uncovered} - {*usual.uncovered} or {*target.uncovered}
            assert more, edited
            found |= more
    assert refused > tried // 2
    assert {word for word in told if any(one.startswith(word) for one in found)} == told
    assert all(one.startswith(tuple(told)) for one in found)


def test_what_a_delta_alone_says_is_told() -> None:
    case = delta_named("one_chunk")
    base = side(case.base)
    assert target_of(base, case.delta, Regeneration()).uncovered == ()
    edited = case.delta.replace(b" cuda=off", b" cuda=on")
    assert target_of(base, edited, Regeneration()).uncovered == ("cuda=on",)
