"""What a reader of many ledgers says of one is what reading that one alone says."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain

import pytest

from tests.kit import Repo
from tests.trust import histories
from wtxtgit.chain import reader
from wtxtgit.chain.reader import ChainReader
from wtxtgit.git.blobs import BlobReader
from wtxtgit.model.ledger import Ledger
from wtxtgit.text import ledger as text
from wtxtgit.text.ledger import LedgerReport, format_ledger

SEEDS = range(40)
ROOM = reader.MAX_CACHED_BYTES


def written(repo: Repo, contents: list[bytes]) -> list[str]:
    """Write blobs, all by one process; gives their ids."""
    folder = repo.path / "contents"
    folder.mkdir()
    names = []
    for n, content in enumerate(contents):
        (folder / str(n)).write_bytes(content)
        names.append(f"contents/{n}")
    told = repo.git(
        "hash-object", "-w", "--no-filters", "--stdin-paths", stdin="\n".join(names).encode()
    )
    return told.decode().split()


def spelled(ledger: Ledger) -> bytes:
    """A ledger as text, whose symbolic signatures have 64 bytes."""
    records = []
    for record in ledger.records:
        signatures = [replace(s, signature=s.signature.ljust(64, b"-")) for s in record.signatures]
        records.append(replace(record, signatures=tuple(signatures)))
    return format_ledger(Ledger(ledger.head, tuple(records)))


@pytest.mark.parametrize("room", [ROOM, 4000, 0], ids=["all", "some", "none"])
def test_readings_that_are_used_again(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Ledgers of random histories: grown, cut, branched, moved, signed again, and broken."""
    monkeypatch.setattr(reader, "MAX_CACHED_BYTES", room)
    asked = []
    for seed in SEEDS:
        trees = [commit.tree for commit in histories.run(histories.random_program(seed)).commits]
        asked += [
            (b"%d/%b" % (seed, path), spelled(ledger))
            for path, ledger in chain.from_iterable(tree.ledgers.items() for tree in trees)
        ]
    # What is broken in the middle is read before and after what is whole.
    asked += [(path, content.replace(b"gen=000002", b"gen=000001")) for path, content in asked[::7]]
    asked += [(path, content.replace(b"gen=000002", b"gen=no")) for path, content in asked[::9]]
    oids = written(repo, [content for _, content in asked])
    order = [*range(len(asked)), *random.Random(1).choices(range(len(asked)), k=2 * len(asked))]  # noqa: S311
    kinds = set()
    with BlobReader(repo.repository) as blobs:
        chain_reader = ChainReader(blobs)
        for n in order:
            path, content = asked[n]
            alone = text.read(content)
            wanted = LedgerReport(alone.ledger if alone.ok else None, alone.problems)
            found = chain_reader.ledger(path, oids[n])
            assert found is not None
            assert (found.ledger, found.problems) == (wanted.ledger, wanted.problems)
            kinds.update(one.kind for one in found.problems)
    assert {"structure", "merkle", "syntax"} <= kinds
