"""Ledgers as values: kept in sets, and one held against another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.ledgers import LEDGERS, PATHS, SIGNATURES, chain_of
from wtxtgit.model.array import Meta
from wtxtgit.model.ledger import Ledger, LedgerHead, Record, extends

HEAD = LedgerHead(bytes(32), b"model.fold")


class TestHash:
    @given(LEDGERS)
    def test_equal_ledgers_have_equal_hashes(self, made: Ledger) -> None:
        records = tuple(replace(record) for record in made.records)
        other = Ledger(replace(made.head), records)
        assert other == made
        assert hash(other) == hash(made)
        assert len({made, other}) == 1

    @pytest.mark.slow
    @given(LEDGERS)
    def test_other_ledgers_are_others_in_a_set(self, made: Ledger) -> None:
        changed = replace(made.last, at=b"some/where/else")
        others = {
            made,
            Ledger(made.head, (*made.records[:-1], changed)),
            Ledger(made.head, (*made.records, made.last)),
            Ledger(replace(made.head, path=made.head.path + b"x"), made.records),
        }
        assert len(others) == 4

    def test_it_does_not_read_all_records(self) -> None:
        class Counted(bytes):
            hashed = 0

            def __hash__(self) -> int:
                Counted.hashed += 1
                return super().__hash__()

        record = Record(Meta(), Counted(32), Counted(32), Counted(32))
        made = Ledger(HEAD, (record,) * 1000)
        hash(made)
        assert Counted.hashed == 1

    def test_one_without_records(self) -> None:
        assert hash(Ledger(HEAD, ())) == hash(Ledger(HEAD, ()))
        assert Ledger(HEAD, ()).place == HEAD.path


class TestExtends:
    @given(chain_of())
    def test_what_a_ledger_was(self, made: Ledger) -> None:
        for count in range(1, len(made.records) + 1):
            was = Ledger(made.head, made.records[:count])
            assert extends(made, was)
            assert extends(was, made) is (count == len(made.records))

    @pytest.mark.slow
    @given(chain_of(), st.data())
    def test_a_move_that_was_changed(self, made: Ledger, data: st.DataObject) -> None:
        """What signatures cover is what a record is: a move is not dropped beside another one."""
        which = data.draw(st.integers(0, len(made.records) - 1))
        record = made.records[which]
        at = data.draw((st.none() | PATHS).filter(lambda path: path != record.at))
        records = (*made.records[:which], replace(record, at=at), *made.records[which + 1 :])
        assert not extends(Ledger(made.head, records), made)
        assert not extends(made, Ledger(made.head, records))

    @given(chain_of(), SIGNATURES)
    def test_signatures_are_added_and_not_taken(self, made: Ledger, signature: object) -> None:
        record = made.last
        more = replace(record, signatures=(*record.signatures, signature))  # type: ignore[arg-type]
        assert extends(Ledger(HEAD, (more,)), Ledger(HEAD, (record,)))
        assert extends(Ledger(HEAD, (record,)), Ledger(HEAD, (more,))) is (
            signature in record.signatures
        )
        other = replace(more, merkle_this=bytes(32))
        assert not extends(Ledger(HEAD, (other,)), Ledger(HEAD, (record,)))

    @given(chain_of())
    def test_another_first_line(self, made: Ledger) -> None:
        other = Ledger(replace(made.head, path=made.head.path + b"x"), made.records)
        assert not extends(other, made)
