"""A review as a page shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wtxtgit.errors import clipped
from wtxtgit.report.diff import Status
from wtxtgit.report.figures import count, rounded
from wtxtgit.report.html.bounds import (
    MOST_CHECKPOINTS,
    MOST_LISTED,
    MOST_NAME,
    MOST_TEXT,
    Listed,
    first,
    rooms,
)
from wtxtgit.report.html.checkpoint import Checkpoint, checkpoint
from wtxtgit.report.html.history import OID_SHOWN
from wtxtgit.report.review import Review
from wtxtgit.report.review_figures import parameters_changed
from wtxtgit.report.risks import Chip, chips

_UNFOLDED = 3
"""Checkpoints up to which all are unfolded; of more, the first alone is."""


@dataclass(frozen=True, slots=True)
class Page:
    """All that a page shows; `chips` are the risks of all checkpoints."""

    base: str
    head: str
    base_commit: str
    head_commit: str
    totals: tuple[tuple[str, str], ...]
    chips: tuple[Chip, ...]
    checkpoints: Listed[Checkpoint]
    notes: Listed[str]
    filters: bool


def view(review: Review) -> Page:
    """What a page shows of a review: the worst checkpoints, of each what changed most."""
    listed = first(review.artifacts, MOST_CHECKPOINTS)
    shown = tuple(
        checkpoint(one, f"c{n}", room, unfolded=not n or len(listed.lines) <= _UNFOLDED)
        for n, (one, room) in enumerate(zip(listed.lines, rooms(listed.lines), strict=True))
    )
    return Page(
        clipped(review.base, MOST_NAME),
        clipped(review.head, MOST_NAME),
        review.base_commit[:OID_SHOWN],
        review.head_commit[:OID_SHOWN],
        tuple(_totals(review)),
        chips(flag for one in review.artifacts for flag in one.flags),
        Listed(shown, listed.more),
        first(review.notes, MOST_LISTED).each(lambda note: clipped(note, MOST_TEXT)),
        len(shown) > 1 or any(len(one.rows.lines) > 1 for one in shown),
    )


def _totals(review: Review) -> Iterator[tuple[str, str]]:
    diffs = [one.diff for one in review.artifacts if one.diff is not None]
    yield "Commits", count(review.commits)
    yield "Checkpoints", count(len(review.artifacts))
    yield "Tensors changed", count(sum(diff.summary.counts[Status.CHANGED] for diff in diffs))
    yield "Parameters changed", parameters_changed(*diffs, spell=rounded)
    yield "Flags", count(review.flags)
