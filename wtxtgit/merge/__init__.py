"""Three-way merges: of checkpoints by tensor, then by row, then by strategy; of ledgers."""

from __future__ import annotations

from wtxtgit.io.view import ByteView, same_bytes


def side_taken(base: ByteView, ours: ByteView, theirs: ByteView) -> str | None:
    """The side that alone changed a content, ours where both are the same; None if both did."""
    if same_bytes(ours, theirs) or same_bytes(base, theirs):
        return "ours"
    return "theirs" if len(base) and same_bytes(base, ours) else None
