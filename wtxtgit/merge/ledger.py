"""Merging two sides of a ledger: the one that has all of the other is taken.

Records are never put together here: one that joins diverged sides has to be
signed, and names what it follows.
"""

from __future__ import annotations

from pathlib import Path

from wtxtgit.io.files import map_file, replace_file, write_all
from wtxtgit.io.view import Buffer
from wtxtgit.merge.driver import one_sided
from wtxtgit.model.ledger import Ledger, extends
from wtxtgit.text import ledger as text


def merge_ledgers(base: Path, ours: Path, theirs: Path) -> str | None:
    """Merge two ledgers, given as files; gives the side that stands in `ours` then.

    None is a conflict, and ours stays. What is no ledger, such as the WSUM
    line of one text, is merged as any other file that only one side may
    change. A ledger that does not hold is never taken, unless both sides have
    the same.
    """
    mine, other = map_file(ours), map_file(theirs)
    if len(mine) == len(other) and mine == other:
        return "ours"
    if not (_is_ledger(mine) or _is_ledger(other)):
        return one_sided(base, ours, theirs)
    first, second = _ledger(mine), _ledger(other)
    if first is None or second is None:
        return None
    if extends(first, second):
        return "ours"
    if extends(second, first):
        replace_file(ours, lambda descriptor: write_all(descriptor, (other,)))
        return "theirs"
    return None


def _is_ledger(data: Buffer) -> bool:
    return bytes(data[: len(text.MAGIC)]) == text.MAGIC


def _ledger(data: Buffer) -> Ledger | None:
    report = text.read(bytes(data))
    return report.ledger if report.ok else None
