"""A FOLD file with other bytes in some chunks, all else where and as it was.

Spec: `docs/spec/fold.md`, "Resealing".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from wtxtgit.containers import json_edit
from wtxtgit.containers.fold import MAGIC
from wtxtgit.containers.fold.agreement import MERKLE_ROOT
from wtxtgit.containers.fold.chunks import Kept, Planned
from wtxtgit.containers.fold.integrity import CHUNK_HASHES, MANIFEST_HASH
from wtxtgit.containers.fold.read import HEADER, Fold
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.splicing import Edit, spliced
from wtxtgit.io.view import Buffer


def patched(
    fold: Fold, chunks: Sequence[Kept | Planned], index: Mapping[str, object]
) -> Iterator[Buffer] | None:
    """The file in pieces, with those of `chunks` that are planned in their places.

    `chunks` are all of the file's own, `index` is its index with their hashes.
    None where they do not fit: a length differs, or bytes that would change
    belong to something else as well.
    """
    changed = [
        (old.offset, old.end, new)
        for old, new in zip(fold.chunks, chunks, strict=True)
        if isinstance(new, Planned)
    ]
    if any(end - start != new.length for start, end, new in changed):
        return None
    places = {(start, end) for start, end, _ in changed}
    if _is_shared(fold, {*places, (0, HEADER.size), (fold.index_start, fold.index_end)}):
        return None
    text = bytes(fold.data[fold.index_start : fold.index_end]).decode()
    made = json_edit.replaced(text, _edits(fold.index, index)).encode()
    moved = len(made) != fold.index_end - fold.index_start
    if moved and (
        len(made) > MAX_JSON or any(chunk.end > fold.index_start for chunk in fold.chunks)
    ):
        return None
    header = HEADER.pack(MAGIC, HEADER.size, fold.index_start, len(made))
    patches: list[Edit] = [(start, end, new.pieces) for start, end, new in changed]
    patches.append((0, HEADER.size, lambda: iter([header])))
    patches.append((fold.index_start, fold.index_end, lambda: iter([made])))
    return spliced(fold.data, sorted(patches, key=lambda patch: patch[:2]))


def _is_shared(fold: Fold, changed: set[tuple[int, int]]) -> bool:
    """Whether one of these places overlaps another one, or any chunk."""
    spans = [(chunk.offset, chunk.end) for chunk in fold.chunks]
    spans += [(0, HEADER.size), (fold.index_start, fold.index_end)]
    reached = reached_by_changed = 0
    for start, end in sorted(spans):
        is_changed = (start, end) in changed
        if start < reached_by_changed or (is_changed and start < reached):
            return True
        reached = max(reached, end)
        reached_by_changed = max(reached_by_changed, end if is_changed else 0)
    return False


def _edits(old: Mapping[str, object], new: Mapping[str, object]) -> dict[json_edit.Path, object]:
    """The values in which the second index differs: those that hashing made."""
    edits: dict[json_edit.Path, object] = {}
    listed = zip(_entries(old), _entries(new), strict=True)
    for n, (before, after) in enumerate(listed):
        if before is not after:
            edits |= _differing(before, after, ("chunks", n))
    metadata = new.get("metadata")
    if isinstance(metadata, dict):
        before = cast(dict[str, object], old["metadata"])
        hashes = metadata.get(CHUNK_HASHES)
        if isinstance(hashes, dict):
            held = cast(dict[str, object], before[CHUNK_HASHES])
            edits |= _differing(held, hashes, ("metadata", CHUNK_HASHES))
        if MANIFEST_HASH in metadata:
            edits["metadata", MANIFEST_HASH] = metadata[MANIFEST_HASH]
    if new.get(MERKLE_ROOT) is not None:
        edits[(MERKLE_ROOT,)] = new[MERKLE_ROOT]
    return edits


def _entries(index: Mapping[str, object]) -> list[dict[str, object]]:
    return cast(list[dict[str, object]], index["chunks"])


def _differing(
    before: Mapping[str, object], after: Mapping[str, object], path: json_edit.Path
) -> dict[json_edit.Path, object]:
    return {
        (*path, key): value
        for key, value in after.items()
        if key not in before or before[key] != value
    }
