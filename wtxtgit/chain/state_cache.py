"""A cache of the states of commits, so that a hook need not walk where an earlier one has.

A state is a function of the trust root, the commit and the program's version, so it can be reused
whenever these are the same. It is no verdict: what is about to be committed or pushed is judged
anew, and `wtxtgit audit` always walks all commits. Only states of commits that violate no rule are
kept. `io.cache_file` explains which rows are trusted.

A row names ledgers by their blobs at that commit; other ledgers are stored as text.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wtxtgit.chain.reader import ChainReader
from wtxtgit.errors import WtxtgitError
from wtxtgit.git.commit_files import CommitFiles
from wtxtgit.git.repository import Repository
from wtxtgit.io.cache_file import MAX_VALUE, CacheFile
from wtxtgit.model.ledger import Ledger
from wtxtgit.text import ledger as text
from wtxtgit.trust.local_secret import local_secret
from wtxtgit.trust.state import (
    Introduction,
    LedgerLine,
    SignersContent,
    SignersState,
    TrustState,
    cut,
    line_of,
)

FILE_NAME = "states.sqlite"
_MOST = 8 * 1024 * 1024
"""Most bytes of a state before compression; larger ones are not cached."""


class StateCache:
    """States cached under the secret in `key_file`; none without one.

    Nothing is raised if nothing can be read or written.
    """

    def __init__(self, repo: Repository, key_file: Path | None) -> None:
        self._file = repo.state_path / FILE_NAME
        self._key_file = key_file

    def get(self, root: str, oids: Iterable[str], reader: ChainReader) -> dict[str, TrustState]:
        """Return the cached states of these commits, by id."""
        names = {_name(root, oid): oid for oid in oids}
        rows = self._rows(make=False)
        if rows is None:
            return {}
        states = {}
        try:
            for name, value in rows.get(names).items():
                state = _parsed(value, reader)
                if state is not None:
                    states[names[name]] = state
        finally:
            rows.close()
        return states

    def put(
        self, root: str, oid: str, state: TrustState, snapshot: CommitFiles, reader: ChainReader
    ) -> None:
        """Cache the state of a commit, unless it is too large."""
        value = _formatted(state, snapshot, reader)
        rows = self._rows(make=True) if len(value) <= MAX_VALUE else None
        if rows is not None:
            rows.put({_name(root, oid): value})
            rows.close()

    def _rows(self, *, make: bool) -> CacheFile | None:
        if self._key_file is None:
            return None
        secret = local_secret(self._key_file, make=make)
        return None if secret is None else CacheFile(self._file, secret)


def _name(root: str, oid: str) -> bytes:
    return f"state of {oid} from {root}".encode("ascii")


def _formatted(state: TrustState, snapshot: CommitFiles, reader: ChainReader) -> bytes:
    by_line: dict[object, list[tuple[bytes, Ledger]]] = {}
    for path, ledger in reader.tree(snapshot).ledgers.items():
        by_line.setdefault(line_of(ledger), []).append((path, ledger))
    ledgers: dict[Ledger, int] = {}

    def number(ledger: Ledger | None) -> int | None:
        return None if ledger is None else ledgers.setdefault(ledger, len(ledgers))

    signers = sorted(state.signers, key=lambda one: (one.keys != frozenset(), repr(one)))
    numbers = {one: n for n, one in enumerate(signers)}
    record = {
        "signers": [_format_signers(one, number(one.ledger)) for one in signers],
        "lines": [
            (
                [(number(ledger), numbers[one]) for ledger, one in line.stands],
                [(number(ledger), number(by)) for ledger, by in line.joined],
            )
            for line in state.lines.values()
        ],
        "places": sorted(path.decode("latin-1") for path in state.places),
        "introductions": [
            (numbers[one.signers], [number(ledger) for ledger in one.ledgers])
            for one in state.introductions
        ],
    }
    record["ledgers"] = [
        _format_ledger(ledger, by_line.get(line_of(ledger), ()), snapshot) for ledger in ledgers
    ]
    return zlib.compress(json.dumps(record).encode())


def _format_ledger(
    ledger: Ledger, candidates: Iterable[tuple[bytes, Ledger]], snapshot: CommitFiles
) -> list[object]:
    for path, other in candidates:
        if len(other.records) >= len(ledger.records) and cut(other, len(ledger.records)) == ledger:
            oid = snapshot.entries[path].oid
            return [path.decode("latin-1"), oid, len(ledger.records)]
    return [text.format_ledger(ledger).decode("ascii")]


def _format_signers(signers: SignersState, ledger: int | None) -> list[object]:
    file = signers.file
    content = None
    if file is not None:
        principals = [(key.hex(), who) for key, who in sorted(file.principals)]
        content = [principals, file.threshold, file.sha256_all.hex()]
    return [content, ledger]


def _parsed(value: bytes, reader: ChainReader) -> TrustState | None:
    """Parse the state in a row; None if it is not one that this version writes."""
    try:
        unpacker = zlib.decompressobj()
        # Bounded: the compressed size says nothing about the result's.
        record: dict[str, Any] = json.loads(unpacker.decompress(value, _MOST))
        ledgers = [_parse_ledger(one, reader) for one in record["ledgers"]]
        signers = [_parse_signers(one, ledgers) for one in record["signers"]]
        lines: dict[Any, LedgerLine] = {}
        for stands, joined in record["lines"]:
            line = LedgerLine(
                frozenset((ledgers[n], signers[m]) for n, m in stands),
                frozenset((ledgers[n], ledgers[m]) for n, m in joined),
            )
            lines[line_of(next(iter(line.stands))[0])] = line
        places = frozenset(path.encode("latin-1") for path in record["places"])
        introductions = frozenset(
            Introduction(signers[n], frozenset(ledgers[m] for m in accepted))
            for n, accepted in record["introductions"]
        )
        return TrustState(frozenset(signers), lines, places, introductions)
    except (ValueError, TypeError, KeyError, IndexError, StopIteration, zlib.error, WtxtgitError):
        return None


def _parse_ledger(fields: list[Any], reader: ChainReader) -> Ledger:
    if len(fields) == 1:
        report = text.read(fields[0].encode("ascii"))
        length = None
    else:
        path, oid, length = fields
        at_path = reader.ledger(path.encode("latin-1"), oid)
        if at_path is None:
            raise ValueError(oid)
        report = at_path
    if report.ledger is None:
        raise ValueError("no ledger")
    return report.ledger if length is None else cut(report.ledger, length)


def _parse_signers(fields: list[Any], ledgers: list[Ledger]) -> SignersState:
    content, number = fields
    file = None
    if content is not None:
        principals, threshold, sha256_all = content
        keys = frozenset((bytes.fromhex(key), str(who)) for key, who in principals)
        file = SignersContent(keys, int(threshold), bytes.fromhex(sha256_all))
    return SignersState(file, None if number is None else ledgers[number])
