"""Bytes that belong to nothing: told whatever zeros and places there are around them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.containers import intervals

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda p: (min(p), max(p))))


def digest(data: bytes, *spans: intervals.Span) -> bytes | None:
    return intervals.digest(memoryview(data), spans)


def test_zeros_and_what_is_read_do_not_count() -> None:
    assert digest(b"") is None
    assert digest(bytes(9), (2, 5)) is None
    assert digest(b"abc" + bytes(9), (0, 3)) is None
    assert (
        digest(b"\0ab\0c\0\0", (5, 99)) == digest(b"ab\0c") == digest(b"xxab\0cyy", (0, 2), (6, 8))
    )


def test_gaps_tell_what_they_hold() -> None:
    found = [
        digest(b"ab"),
        digest(b"ba"),
        digest(b"a\0b"),
        digest(b"a-b", (1, 2)),
        digest(b"a-b-", (1, 2)),
        digest(b"b-a", (1, 2)),
        digest(b"a" + bytes(2**21) + b"b"),
        digest(b"a" + bytes(2**21 + 1) + b"b"),
    ]
    assert None not in found
    assert len(set(found)) == len(found)


@given(st.binary(max_size=40), SPANS, st.integers(1, 9))
def test_blocks_tell_the_same(data: bytes, spans: list[intervals.Span], step: int) -> None:
    places = intervals.gaps(spans, len(data))
    covered = {n for start, end in spans for n in range(start, end)}
    assert [n for start, end in places for n in range(start, end)] == [
        n for n in range(len(data)) if n not in covered
    ]
    blocks = [data[n : n + step] for n in range(0, len(data), step)]
    assert intervals.digest_of(blocks, places) == digest(data, *spans)
