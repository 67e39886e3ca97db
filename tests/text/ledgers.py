"""Ledgers to be tried: any that can be spelled, and chains that hold."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.text.test_grammar import HASHES, METAS, TIMES, TOKENS
from wtxtgit.model.array import Meta, Signature
from wtxtgit.model.ledger import Ledger, LedgerHead, Record
from wtxtgit.text import digest
from wtxtgit.text.ledger import is_path

PATHS = (
    st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=3)
    .map(b"/".join)
    .filter(is_path)
)
HEADS = st.builds(LedgerHead, HASHES, PATHS)
SIGNATURES = st.builds(
    Signature,
    st.binary(min_size=64, max_size=64),
    st.integers(0, 2**64 - 1).map("{:016x}".format),
)
RECORDS = st.builds(
    Record,
    METAS,
    HASHES,
    HASHES,
    HASHES,
    st.lists(SIGNATURES, max_size=3).map(tuple),
    st.none() | PATHS,
)
"""Any records: nothing but their spelling has to hold."""
LEDGERS = st.builds(Ledger, HEADS, st.lists(RECORDS, min_size=1, max_size=4).map(tuple))


@st.composite
def chain_of(draw: st.DrawFn) -> Ledger:
    """A ledger in which order and chain hold; its signatures are noise."""
    count = draw(st.integers(1, 4))
    gens = sorted(draw(st.sets(st.integers(0, 2000), min_size=count, max_size=count)))
    times = sorted(draw(st.lists(TIMES, min_size=count, max_size=count)))
    head = draw(HEADS)
    prev, place = bytes(32), head.path
    records = []
    for gen, ts in zip(gens, times, strict=True):
        meta = Meta(draw(TOKENS), gen, ts, draw(TOKENS), draw(TOKENS), draw(TOKENS))
        content = draw(HASHES)
        this = digest.merkle(prev, content, meta)
        signatures = draw(st.lists(SIGNATURES, max_size=3, unique_by=lambda s: s.keyid))
        ordered = tuple(sorted(signatures, key=lambda s: s.keyid))
        at = draw(st.none() | PATHS.filter(lambda path, here=place: path != here))
        records.append(Record(meta, content, prev, this, ordered, at))
        prev, place = this, at or place
    return Ledger(head, tuple(records))
