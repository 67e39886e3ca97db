"""Two checkpoints compared, as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wtxtgit.errors import clipped
from wtxtgit.report.diff import DiffReport
from wtxtgit.report.html.bounds import MOST_NAME, WHOLE_PAGE, Excerpt
from wtxtgit.report.html.checkpoint import comparison, formats
from wtxtgit.report.html.page import rendered
from wtxtgit.report.review import Distributions, Flag, LayerGroup, chips


def page(
    diff: DiffReport,
    flags: Sequence[Flag],
    groups: Sequence[LayerGroup],
    distributions: Mapping[str, Distributions],
) -> str:
    """Return the page, a pure function of its input; flags and layers are those of a review."""
    base, head = (clipped(end, MOST_NAME) for end in (diff.a, diff.b))
    one = comparison(diff, flags, groups, distributions, "c0", WHOLE_PAGE)
    return rendered(
        "diff.html",
        {
            "title": f"Diff of weights: {base} to {head}",
            "kind": f"Diff of weights, {formats(diff)}",
            "base": base,
            "head": head,
            "totals": one["totals"],
            "chips": chips(flags),
            "notes": Excerpt((), 0),
            "one": {**one, "totals": []},
            "filter": {"placeholder": "Tensor or risk", "noun": "changed tensors"}
            if len(one["table"]["rows"].lines) > 1
            else None,
        },
    )
