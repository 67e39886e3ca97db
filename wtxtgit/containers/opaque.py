"""Files that are stored whole. Spec: `docs/spec/containers.md`, "opaque"."""

from __future__ import annotations

from dataclasses import replace

from wtxtgit.containers import cutting, ranges
from wtxtgit.io.view import ByteView
from wtxtgit.model import Cut

DATA_ROLE = "data"
PIECE = 32 * 1024**3
"""Bytes of one array: half of what the text's chunks can number."""


def split(data: ByteView, reason: str) -> Cut:
    """The file as arrays of at most PIECE bytes; `reason` says why."""
    pieces = (
        ranges.part(start, min(start + PIECE, len(data)), DATA_ROLE)
        for start in range(0, len(data), PIECE)
    )
    return replace(cutting.cut("opaque", data, pieces), reason=reason)
