"""A review as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator

from wtxtgit.errors import clipped
from wtxtgit.report.diff import TensorStatus
from wtxtgit.report.figures import OID_SHOWN, count, rounded
from wtxtgit.report.html.bounds import (
    MOST_CHECKPOINTS,
    MOST_LISTED,
    MOST_NAME,
    MOST_TEXT,
    Excerpt,
    first,
    rooms,
)
from wtxtgit.report.html.checkpoint import checkpoint
from wtxtgit.report.html.page import rendered
from wtxtgit.report.html.tensors import Shown
from wtxtgit.report.review import Review, chips
from wtxtgit.report.tables import parameters_changed

_UNFOLDED = 3
"""Up to this many checkpoints are all unfolded; of more, only the first one is."""


def page(review: Review) -> str:
    """Return the page, a pure function of the review.

    It shows at most what `report.html.bounds` allows: the worst first, then the largest change.
    """
    return rendered("review.html", _view(review))


def _view(review: Review) -> Shown:
    """Return what a page shows: the worst checkpoints, with what changed most in each."""
    listed = first(review.artifacts, MOST_CHECKPOINTS)
    shown = tuple(
        checkpoint(one, f"c{n}", room, unfolded=not n or len(listed.lines) <= _UNFOLDED)
        for n, (one, room) in enumerate(zip(listed.lines, rooms(listed.lines), strict=True))
    )
    base, head = (clipped(end, MOST_NAME) for end in (review.base, review.head))
    has_filter = len(shown) > 1 or any(len(part["table"]["rows"].lines) > 1 for part in shown)
    return {
        "title": f"Review of weights: {base} to {head}",
        "kind": "Review of weights",
        "base": base,
        "head": head,
        "base_commit": review.base_commit[:OID_SHOWN],
        "head_commit": review.head_commit[:OID_SHOWN],
        "totals": list(_totals(review)),
        "chips": chips(flag for artifact in review.artifacts for flag in artifact.flags),
        "checkpoints": Excerpt(shown, listed.more),
        "notes": first(review.notes, MOST_LISTED).each(lambda note: clipped(note, MOST_TEXT)),
        "filter": {"placeholder": "Tensor, checkpoint or risk", "noun": "changed tensors"}
        if has_filter
        else None,
    }


def _totals(review: Review) -> Iterator[tuple[str, str]]:
    diffs = [artifact.diff for artifact in review.artifacts if artifact.diff is not None]
    yield "Commits", count(review.commits)
    yield "Checkpoints", count(len(review.artifacts))
    yield "Tensors changed", count(sum(diff.summary.counts[TensorStatus.CHANGED] for diff in diffs))
    yield "Parameters changed", parameters_changed(*diffs, spell=rounded)
    yield "Flags", count(review.flags)
