"""One character of a delta edited: refused, or the same target, or told that no hash covers it."""

from __future__ import annotations

import pytest

from tests.data import delta_named
from tests.text.deltas import side, target_of
from tests.text.edits import edits
from wtxtgit.errors import TextError
from wtxtgit.text.delta import sides
from wtxtgit.text.delta.patch import Regeneration


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
