"""Seal, commits and sizes of a checkpoint as a page shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from wtxtgit.errors import clipped
from wtxtgit.report.figures import count, percent, size
from wtxtgit.report.html import svg
from wtxtgit.report.html.bounds import (
    MOST_LISTED,
    MOST_NAME,
    MOST_SIGNERS,
    MOST_TEXT,
    Listed,
    first,
)
from wtxtgit.report.review import Commit, Fate, Generation, Reviewed, Seal, Sealing, Sizes
from wtxtgit.report.risks import Chip

OID_SHOWN = 12

_SEALINGS = {
    Sealing.SEALED: Chip("Sealed", "good"),
    Sealing.UNTRUSTED: Chip("Untrusted", "severe"),
    Sealing.STALE: Chip("Stale seal", "severe"),
    Sealing.UNSEALED: Chip("Unsealed", "look"),
}
_FATES = {
    Fate.CHANGED: Chip("Changed", "plain"),
    Fate.ADDED: Chip("Added", "plain"),
    Fate.REMOVED: Chip("Removed", "plain"),
    Fate.RENAMED: Chip("Renamed", "plain"),
}


@dataclass(frozen=True, slots=True)
class GenerationLine:
    """A record of the ledger, and the commit that brought it."""

    gen: int
    ts: str
    commit: str
    signers: str
    verdict: str


@dataclass(frozen=True, slots=True)
class CommitLine:
    """A commit, and the generations that it brought."""

    oid: str
    subject: str
    generations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class History:
    """What the chain says, and the commits."""

    fate: Chip
    sealing: Chip
    message: str
    generations: Listed[GenerationLine]
    commits: Listed[CommitLine]


@dataclass(frozen=True, slots=True)
class SizeLine:
    """A size, with a bar that is longer the nearer it is to the limit."""

    label: str
    text: str
    bar: Markup


@dataclass(frozen=True, slots=True)
class SizeChart:
    """Sizes before and after, and words on the limit."""

    lines: tuple[SizeLine, ...]
    limit: str


def history(one: Reviewed, most: int) -> History:
    """What the chain says of a checkpoint, and commits that changed it, at most so many."""
    seal = one.seal
    return History(
        _FATES[one.fate],
        _SEALINGS[seal.state],
        clipped(seal.message, MOST_TEXT),
        first(seal.generations, most).each(_generation),
        first(one.commits, most).each(lambda commit: _commit(commit, seal)),
    )


def size_chart(sizes: Sizes) -> SizeChart:
    """Bars over the limit, or over the largest where that is larger or no limit is known."""
    known = [value for _, value in _sizes(sizes) if value is not None]
    limit = sizes.limit
    most = max((*known, limit or 0, 1))
    mark = None if limit is None else limit / most
    lines = [
        SizeLine(label, size(value), _bar(value, most, limit, mark))
        for label, value in _sizes(sizes)
        if value is not None
    ]
    if limit is None:
        return SizeChart(tuple(lines), "")
    words = f"The forge takes {size(limit)} as one blob"
    if sizes.text_after is not None and limit:
        words += f"; the text takes {percent(sizes.text_after / limit)} of that"
    return SizeChart(tuple(lines), words)


def _generation(one: Generation) -> GenerationLine:
    listed = first(one.signers, MOST_SIGNERS).each(lambda signer: clipped(signer, MOST_NAME))
    signers = ", ".join(listed.lines) or "nobody"
    return GenerationLine(
        one.gen,
        clipped(one.ts, MOST_NAME),
        (one.commit or "")[:OID_SHOWN],
        f"{signers} and {count(listed.more)} more" if listed.more else signers,
        clipped(one.verdict, MOST_TEXT),
    )


def _commit(one: Commit, seal: Seal) -> CommitLine:
    brought = first([g.gen for g in seal.generations if g.commit == one.oid], MOST_LISTED)
    return CommitLine(one.oid[:OID_SHOWN], clipped(one.subject, MOST_NAME), brought.lines)


def _sizes(sizes: Sizes) -> Iterator[tuple[str, int | None]]:
    yield "File before", sizes.file_before
    yield "File after", sizes.file_after
    yield "Text before", sizes.text_before
    yield "Text after", sizes.text_after


def _bar(value: int, most: int, limit: int | None, mark: float | None) -> Markup:
    over = limit is not None and value > limit
    return svg.bar(value / most, "over" if over else "fill", mark)
