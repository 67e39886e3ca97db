"""A review as one HTML page that needs nothing else: no network, no other file.

Whatever comes out of a repository is text of the page, never markup: each
expression of the template is made harmless (`escaped`) and then escaped, all
attributes are quoted, none of it gets into the script or the style sheet. A
policy (CSP 3, section "Hash-source") allows this script and this style sheet,
by their hashes, and nothing else.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from wtxtgit.errors import clipped, escaped
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
from wtxtgit.report.html.tensors import COLUMNS, Shown
from wtxtgit.report.review import Review, chips
from wtxtgit.report.tables import parameters_changed

if TYPE_CHECKING:
    from jinja2 import Template


_PART_END = re.compile(r"[./_:]+")
_UNFOLDED = 3
"""Checkpoints up to which all are unfolded; of more, the first alone is."""


def page(review: Review) -> str:
    """The page, the same for the same review.

    It shows at most what `report.html.bounds` says, the worst and what changed
    most first.
    """
    style, script = _source("review.css"), _source("review.js")
    return _template().render(
        page=_view(review),
        columns=COLUMNS,
        # Both are files of this package.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.from_string(_source("review.html"))


def _shown(value: object) -> object:
    """A leaf of the page. Markup is ours."""
    # Markup is escaped by Jinja; this takes out what controls a terminal or the order of
    # letters.
    return value if isinstance(value, Markup) or not isinstance(value, str) else escaped(value)


def _breakable(name: str) -> Markup:
    """A name that breaks after the dots and slashes between its parts."""
    # The references that escape() makes have none of these.
    safe = str(escape(escaped(name)))
    return Markup(_PART_END.sub(r"\g<0><wbr>", safe))  # noqa: S704


def _source(name: str) -> str:
    return (files("wtxtgit.report.html") / "templates" / name).read_text("utf-8")


def _hash(source: str) -> str:
    """A hash of what stands between the tags (CSP 3)."""
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"


def _view(review: Review) -> Shown:
    """What a page shows of a review: the worst checkpoints, of each what changed most."""
    listed = first(review.artifacts, MOST_CHECKPOINTS)
    shown = tuple(
        checkpoint(one, f"c{n}", room, unfolded=not n or len(listed.lines) <= _UNFOLDED)
        for n, (one, room) in enumerate(zip(listed.lines, rooms(listed.lines), strict=True))
    )
    return {
        "base": clipped(review.base, MOST_NAME),
        "head": clipped(review.head, MOST_NAME),
        "base_commit": review.base_commit[:OID_SHOWN],
        "head_commit": review.head_commit[:OID_SHOWN],
        "totals": list(_totals(review)),
        "chips": chips(flag for one in review.artifacts for flag in one.flags),
        "checkpoints": Excerpt(shown, listed.more),
        "notes": first(review.notes, MOST_LISTED).each(lambda note: clipped(note, MOST_TEXT)),
        "has_filter": len(shown) > 1 or any(len(one["rows"].lines) > 1 for one in shown),
    }


def _totals(review: Review) -> Iterator[tuple[str, str]]:
    diffs = [one.diff for one in review.artifacts if one.diff is not None]
    yield "Commits", count(review.commits)
    yield "Checkpoints", count(len(review.artifacts))
    yield "Tensors changed", count(sum(diff.summary.counts[TensorStatus.CHANGED] for diff in diffs))
    yield "Parameters changed", parameters_changed(*diffs, spell=rounded)
    yield "Flags", count(review.flags)
