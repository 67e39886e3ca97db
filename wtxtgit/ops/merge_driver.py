"""The merge driver that git calls: it never asks, and always leaves a valid file.

A change of one side alone is taken. Where both sides changed the file, ours
stays as it is and the conflict is reported: the text of two generations is
never blended line by line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wtxtgit.model import Buffer
from wtxtgit.ops.files import map_file, replace_file, write_all


@dataclass(frozen=True, slots=True)
class Merged:
    """How a merge ended: `taken` is ours, theirs, or None for a conflict."""

    taken: str | None

    @property
    def is_conflict(self) -> bool:
        return self.taken is None


def merge(base: Path, ours: Path, theirs: Path) -> Merged:
    """Merge three texts, given as files; the result stands in `ours`.

    `base` is empty where both sides added the file.
    """
    before, mine, other = map_file(base), map_file(ours), map_file(theirs)
    if _same(mine, other) or _same(before, other):
        return Merged("ours")
    if len(before) and _same(before, mine):
        replace_file(ours, lambda descriptor: write_all(descriptor, (other,)))
        return Merged("theirs")
    return Merged(None)


def _same(one: Buffer, other: Buffer) -> bool:
    return len(one) == len(other) and one == other
