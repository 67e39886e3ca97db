"""Rules of the TIDX chunk's entries: names, shapes, sizes, places in shards."""

from __future__ import annotations

import re

from wtxtgit.containers.aero.index import DTYPES, HASH_KEY, PACKED, IndexEntry
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import INDEX, Chunk
from wtxtgit.containers.cursor import quoted
from wtxtgit.model.reading import Findings

MOST_PADDING = 31
"""Bytes after a tensor's items that writers who align to 32 count as its own."""

_HASH = re.compile(r"[0-9a-fA-F]{64}")


def check(aero: Aero, found: Findings, *, shards_elsewhere: bool) -> None:
    """Check the entries; `shards_elsewhere` is for the index of a set of files."""
    chunk = aero.first(INDEX)
    if chunk is None:
        return
    rules = _Rules(aero, chunk, found)
    names: set[str] = set()
    for entry in aero.entries:
        if entry.name in names:
            rules.warn(entry, "is there twice", "name")
        names.add(entry.name)
        rules.check_size(entry)
        rules.check_hash(entry)
        if not shards_elsewhere:
            rules.check_place(entry)
    rules.check_overlaps()


def hash_of(entry: IndexEntry) -> bytes | None:
    """The BLAKE3 that the index has of the tensor's bytes; None where there is none."""
    value = entry.extra.get(HASH_KEY)
    return bytes.fromhex(value) if isinstance(value, str) and _HASH.fullmatch(value) else None


def is_inside(entry: IndexEntry, shard: Chunk) -> bool:
    """Whether the shard's content has the tensor's bytes."""
    return entry.data_len == 0 or 0 <= entry.data_off < entry.data_end <= shard.ulen


class _Rules:
    """Findings on entries, told with the place of the index chunk."""

    def __init__(self, aero: Aero, chunk: Chunk, found: Findings) -> None:
        self._aero = aero
        self._found = found
        self._offset = chunk.offset
        self._chunk = aero.label(chunk)

    def warn(self, entry: IndexEntry, problem: str, field: str) -> None:
        self._found.warn(
            "structure",
            f"tensor {quoted(entry.name)} {problem}",
            offset=self._offset,
            field=field,
            chunk=self._chunk,
        )

    def error(self, entry: IndexEntry, problem: str, field: str) -> None:
        self._found.error(
            "structure",
            f"tensor {quoted(entry.name)} {problem}",
            offset=self._offset,
            field=field,
            chunk=self._chunk,
        )

    def check_size(self, entry: IndexEntry) -> None:
        if any(dim < 0 for dim in entry.shape):
            self.error(entry, "has a negative dimension", "shape")
            return
        if entry.dtype not in DTYPES and entry.dtype != PACKED:
            self.warn(entry, f"has the unknown dtype {entry.dtype}", "dtype")
        least = entry.least_size()
        if least is None:
            return
        if entry.data_len < least:
            self.error(entry, f"has {entry.data_len} bytes, fewer than its shape needs", "data_len")
        elif entry.data_len - least > MOST_PADDING:
            self.warn(entry, f"has {entry.data_len} bytes, its shape needs {least}", "data_len")

    def check_hash(self, entry: IndexEntry) -> None:
        # Upstream readers take an empty hash for none.
        if entry.extra.get(HASH_KEY) and hash_of(entry) is None:
            self.error(entry, "has a hash_b3 that is no BLAKE3 in hex", HASH_KEY)

    def check_place(self, entry: IndexEntry) -> None:
        shard = self._aero.shard(entry.shard_id)
        if shard is None:
            self.error(entry, f"is in shard {entry.shard_id}, which is not there", "shard_id")
        elif not is_inside(entry, shard):
            self.error(entry, f"reaches outside of shard {entry.shard_id}", "data_off")

    def check_overlaps(self) -> None:
        held = [entry for entry in self._aero.entries if entry.data_len > 0]
        held.sort(key=lambda entry: (entry.shard_id, entry.data_off))
        last: IndexEntry | None = None
        for entry in held:
            if last is None or last.shard_id != entry.shard_id:
                last = entry
                continue
            if entry.data_off < last.data_end:
                self.warn(entry, f"shares bytes with {quoted(last.name)}", "data_off")
            if entry.data_end > last.data_end:
                last = entry
