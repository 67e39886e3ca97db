"""What the hashes of a damaged AERO file prove for the tensors in a weight shard.

A tensor is proved by its own hash, by that of its shard, or by those of its pages. A shard may
reach beyond the end of the file: then its own hash proves nothing. Spec: `docs/spec/aero.md`,
"Salvage".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wtxtgit.containers import salvage as shared
from wtxtgit.containers.aero.content import Allowance, content, digest_spans, page_spans
from wtxtgit.containers.aero.hashes import MAX_PAGES, parse_pages
from wtxtgit.containers.aero.read import NO_HASH, PAGES, Aero, AeroChunk, IndexEntry
from wtxtgit.containers.intervals import Span
from wtxtgit.containers.salvage import CUT_OFF
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.model.tensor import ReadOptions

WRONG = "its hash does not match"
NO_HASHES = "the file has no hash of it"


class ShardProofs:
    """What the hashes of a shard prove for its tensors; `there` is what exists of the shard."""

    def __init__(
        self,
        data: ByteView,
        aero: Aero,
        chunk: AeroChunk,
        entries: Sequence[IndexEntry],
        allowance: Allowance,
        options: ReadOptions,
    ) -> None:
        size = len(data)
        self.chunk = chunk
        self.there = chunk
        self.why: str | None = None
        self.spans: dict[Span, bytes] = {}
        self.pages: list[tuple[Span, bytes]] = []
        self.is_cut = is_cut = chunk.end > size
        if is_cut and not chunk.is_compressed:
            length = max(size - chunk.offset, 0)
            self.there = replace(chunk, length=length, ulen=length)
        elif is_cut:
            self.why = CUT_OFF
        self.pages = _pages(aero, chunk)
        hashed = {entry.span for entry in entries if entry.digest is not None}
        hashed |= {span for span, _ in self.pages} | {(0, chunk.ulen)}
        reached = self.there.ulen
        hashed = {(start, end) for start, end in hashed if 0 <= start <= end <= reached}
        try:
            if self.why is None:
                allowance.decode(chunk)
                allowance.hash(sum(end - start for start, end in hashed), chunk.offset)
                limit = options.max_chunk if chunk.is_compressed else chunk.ulen
                stored = content(aero, self.there, limit)
                self.spans = digest_spans(pieces(stored), hashed)
        except FormatError as error:
            self.why = error.message
        self.is_whole = chunk.digest != NO_HASH and self.spans.get((0, chunk.ulen)) == chunk.digest

    def lost(self, entry: IndexEntry) -> tuple[str | None, list[Span]]:
        """Return why a tensor is lost, and which bytes are known to be; None if it is not lost."""
        needed = entry.least_size()
        if self.why is not None:
            return self.why, []
        if entry.data_len < 0 or entry.data_off < 0:
            return "its place is not known", []
        # Some writers include padding in the size.
        if needed is not None and not 0 <= needed <= entry.data_len:
            return "it has fewer bytes than its dtype and shape need", []
        if not entry.data_len:
            return None, []
        if entry.data_end > self.chunk.ulen:
            return "it reaches past the end of its shard", []
        # Its own hash takes precedence over the shard's: the index may be what is damaged.
        has_hash = entry.digest is not None
        if self._holds(entry) or (self.is_whole and not has_hash):
            return None, []
        cut = [self._cut(entry)] if entry.data_end > self.there.ulen else []
        damaged = self._damaged(entry)
        if cut or damaged:
            return (CUT_OFF if cut else WRONG), damaged + cut
        # The hash of a truncated shard can't be computed.
        is_free = self.pages or self.is_cut or self.chunk.digest == NO_HASH
        return (None if is_free and not has_hash else WRONG), []

    def _holds(self, entry: IndexEntry) -> bool:
        return entry.digest is not None and self.spans.get(entry.span) == entry.digest

    def doubt(self, entry: IndexEntry) -> str | None:
        """Return what is not proved of a tensor that is not lost."""
        if not entry.data_len or self.is_whole or self._holds(entry) or self.pages:
            return None
        return shared.CUT_SHORT if self.is_cut else NO_HASHES

    def _cut(self, entry: IndexEntry) -> Span:
        return max(self.there.ulen - entry.data_off, 0), entry.data_len

    def _damaged(self, entry: IndexEntry) -> list[Span]:
        """Return which of a tensor's bytes are in pages whose hash does not hold."""
        start, end = entry.span
        spans: list[Span] = []
        for (first, last), expected in self.pages:
            if first >= end or last <= start or self.spans.get((first, last)) == expected:
                continue
            if last > self.there.ulen:
                break
            first, last = max(first, start) - start, min(last, end) - start
            if spans and spans[-1][1] == first:
                first = spans.pop()[0]
            spans.append((first, last))
        return spans


def _pages(aero: Aero, shard: AeroChunk) -> list[tuple[Span, bytes]]:
    """Return the pages of a shard and their hashes, from a PHSH that holds."""
    name = aero.name(shard) if shard.name_len else None
    for chunk in aero.chunks:
        if chunk.fourcc != PAGES or chunk.is_compressed or name is None:
            continue
        if chunk.digest == NO_HASH:
            continue
        try:
            pages = parse_pages(aero, chunk)
        except FormatError:
            continue
        if pages.shard_name.encode("utf-8", "replace") != name or len(pages.digests) > MAX_PAGES:
            continue
        if len(pages.digests) == -(-shard.ulen // pages.page_size):
            spans = page_spans(shard.ulen, pages.page_size)
            return list(zip(spans, pages.digests, strict=True))
    return []
