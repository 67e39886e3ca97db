"""Salvaging a damaged AERO file: tensors that a BLAKE3 in the file proves.

Header, TOC and names come first, so a truncated file has them. A tensor is proved by its own hash
in the index, by that of its shard, or by those of its pages. If the TOC is unusable, the file is
searched for the index, and for shards by the hashes of their tensors. Spec: `docs/spec/aero.md`,
"Salvage".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from wtxtgit.containers import msgpack_limits
from wtxtgit.containers import salvage as shared
from wtxtgit.containers.aero.check_chunks import usual_type
from wtxtgit.containers.aero.content import Allowance, content, digest
from wtxtgit.containers.aero.describe import OTHER_FILE, SOURCE_KEY, TensorReader, mjsn, model_tags
from wtxtgit.containers.aero.read import (
    HEADER,
    INDEX,
    JSON,
    MANIFEST,
    MAX_SHARD_NAME,
    METADATA,
    NO_HASH,
    PAYLOAD_ALIGNMENT,
    SHARD,
    SHARD_NAME,
    TOC_ENTRY,
    TOC_HEADER,
    Aero,
    AeroChunk,
    FileHeader,
    IndexEntry,
    index_content,
    parse_index,
    read,
)
from wtxtgit.containers.aero.shard_proofs import WRONG, ShardProofs
from wtxtgit.containers.budget import Budget, DecodedParts, DecodingBudget
from wtxtgit.containers.cursor import fail, unpack_at
from wtxtgit.containers.intervals import aligned
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.salvage import CUT_OFF
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.zstd_limits import FRAME_MAGIC, Frame
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.salvage import Salvage, SalvagedTensor, TensorState
from wtxtgit.model.tensor import ReadOptions

TWO_SHARDS = "two chunks have the name of its shard"
NOWHERE = "its shard was not found"
_SOURCES = ("gguf", "safetensors")
"""Values of MJSN for the format from which a file's tensors come."""
_SHARD_START = b"weights."
_INDEX_START = b"\xa7tensors"
"""How the key of an index starts, after the byte that starts its map."""
# How many bytes are read in the search for an index and shards, as a multiple of the file's size.
_PASSES = 8
_LEAST = 1 << 20
# What searching for a shard at one place costs, in bytes.
_LOOK = 1024


@dataclass(frozen=True, slots=True)
class _Toc:
    """A table of contents so far as it can be read; chunks may reach beyond the end of the file."""

    header: FileHeader
    chunks: tuple[AeroChunk, ...]


@dataclass(frozen=True, slots=True)
class _FoundIndex:
    """The index that was found, and where it ends; `doubt` is what its hash does not prove."""

    entries: tuple[IndexEntry, ...]
    end: int
    doubt: str | None


def salvage(data: ByteView, options: ReadOptions) -> Salvage:
    """Return the tensors that the index lists; raises FormatError if no index can be found."""
    search = _IndexSearch(data, options)
    toc, index = search.index()
    return _FoundShards(search, toc, index).salvage()


def _tocs(data: ByteView) -> Iterator[_Toc]:
    """Yield the TOC at the place that the header says, then at the place that all writers use."""
    if len(data) < HEADER.size:
        fail("file header is cut short", offset=0, field="file header")
    _, _, _, _, *rest, _ = unpack_at(HEADER, data, 0)
    header = FileHeader(*rest)
    for at in dict.fromkeys((header.toc_offset, HEADER.size)):
        start = at + TOC_HEADER.size
        if start > len(data):
            continue
        count = unpack_at(TOC_HEADER, data, at)[0]
        most = min((len(data) - start) // TOC_ENTRY.size, MAX_TENSORS)
        for entries in dict.fromkeys((count, header.toc_length // TOC_ENTRY.size)):
            if 0 < entries <= most:
                end = start + entries * TOC_ENTRY.size
                fields = TOC_ENTRY.iter_unpack(mapped(data[start:end]))
                chunks = tuple(AeroChunk(place, *entry) for place, entry in enumerate(fields))
                yield _Toc(replace(header, toc_offset=at, toc_length=end - at), chunks)


class _IndexSearch:
    """The bounded search for an index in a file."""

    def __init__(self, data: ByteView, options: ReadOptions) -> None:
        self.data = data
        self.options = options
        self.allowance = Allowance(len(data), options)
        self.decoding = DecodingBudget(len(data), options, "chunk_ulen")
        self.work = Budget(max(_PASSES * len(data), _LEAST), "", "chunk_offset")

    def index(self) -> tuple[_Toc | None, _FoundIndex]:
        """Return the index, found through a TOC if possible, and that TOC."""
        best: tuple[_Toc | None, _FoundIndex] | None = None
        first: _Toc | None = None
        digests: set[bytes] = set()
        for toc in _tocs(self.data):
            index = self._index_of(toc)
            if index is not None and index.doubt is None:
                return toc, index
            first = first or toc
            best = best or (None if index is None else (toc, index))
            digests.update(chunk.digest for chunk in toc.chunks)
        for raw, end in self._scanned():
            is_proved = digest(raw) in digests
            if not is_proved and best is not None:
                continue
            try:
                entries = tuple(parse_index(raw, end))
            except FormatError:
                continue
            doubt = None if is_proved else "the index: no hash of it was found"
            best = first, _FoundIndex(entries, end, doubt)
            if is_proved:
                break
        if best is None and self._has_none():
            return first, _FoundIndex((), 0, None)
        if best is None:
            fail("no index was found", offset=0, field="TIDX")
        return best

    def _has_none(self) -> bool:
        """Whether it is a file without tensors, which needs no index."""
        try:
            chunks = read(self.data).chunks
        except FormatError:
            return False
        return not any(chunk.fourcc in (INDEX, SHARD) for chunk in chunks)

    def _index_of(self, toc: _Toc) -> _FoundIndex | None:
        chunk = next((chunk for chunk in toc.chunks if chunk.fourcc == INDEX), None)
        if chunk is None or chunk.end > len(self.data):
            return None
        try:
            if chunk.is_compressed:
                self.allowance.decode(chunk)
            raw = index_content(self.data, chunk)
            entries = tuple(parse_index(raw, chunk.offset))
        except FormatError:
            return None
        if chunk.digest == NO_HASH:
            return _FoundIndex(entries, chunk.end, "the index: the file has no hash of it")
        doubt = None if digest(raw) == chunk.digest else "the index: its hash does not match"
        return _FoundIndex(entries, chunk.end, doubt)

    def _scanned(self) -> Iterator[tuple[bytes, int]]:
        """Yield what may be an index, compressed or not, by its first bytes; and where it ends."""
        for at in _places(self.data, _INDEX_START):
            start = at - 1
            length = min(MAX_JSON, len(self.data) - start)
            if start % PAYLOAD_ALIGNMENT == 0 and self.work.spend(length):
                raw = bytes(self.data[start : start + length])
                try:
                    end = msgpack_limits.end_of(raw, "tidx")
                except FormatError:
                    continue
                yield raw[:end], start + end
        for start in _places(self.data, FRAME_MAGIC):
            if start % PAYLOAD_ALIGNMENT == 0:
                yield from self._framed(start)

    def _framed(self, start: int) -> Iterator[tuple[bytes, int]]:
        """Yield the index in the frame at `start`, if it is one."""
        try:
            frame = Frame(self.data[start:], "tidx", offset=start)
            content = bytearray()
            for block in frame.content(MAX_JSON):
                content += block
                if content[1 : 1 + len(_INDEX_START)] != _INDEX_START:
                    return
                if not self.decoding.spend(len(block)):
                    return
        except FormatError:
            return
        yield bytes(content), start + frame.end


class _FoundShards:
    """The tensors of an index, shard by shard."""

    def __init__(self, search: _IndexSearch, toc: _Toc | None, index: _FoundIndex) -> None:
        self.search = search
        self.data = search.data
        self.index = index
        header = FileHeader(0, 0, 0, 0, 0, bytes(16)) if toc is None else toc.header
        self.chunks = () if toc is None else toc.chunks
        self.missing: list[str] = []
        sound = tuple(chunk for chunk in self.chunks if self._is_sound(chunk))
        self.aero = Aero(self.data, header, sound, {}, index.entries, ())
        places = {chunk.place for chunk in sound}
        self.is_listed = toc is not None and all(
            self._is_usual(chunk, is_sound=chunk.place in places) for chunk in self.chunks
        )
        # Names follow the TOC, whatever a damaged header says.
        usual = replace(header, names_offset=header.toc_offset + header.toc_length)
        self.named = self._named(header) or self._named(usual)
        ends = (header.control_end, *(chunk.end for chunk in self.chunks))
        starts = (aligned(end, PAYLOAD_ALIGNMENT) for end in ends)
        self.ends = tuple(dict.fromkeys(start for start in starts if start < len(self.data)))

    def _named(self, header: FileHeader) -> dict[bytes, list[AeroChunk]]:
        """Return the shards by their names."""
        named: dict[bytes, list[AeroChunk]] = {}
        for chunk in self.chunks:
            if chunk.fourcc == SHARD and chunk.name_len <= MAX_SHARD_NAME:
                name = header.name(self.data, chunk)
                if name.startswith(_SHARD_START):
                    named.setdefault(name, []).append(chunk)
        return named

    def _is_usual(self, chunk: AeroChunk, *, is_sound: bool) -> bool:
        """Whether nothing indicates that the TOC's entry of a chunk is damaged."""
        name = self.aero.header.name(self.data, chunk, MAX_SHARD_NAME)
        is_known = chunk.fourcc in METADATA | {SHARD} or is_sound
        return is_known and usual_type(name) in (None, chunk.fourcc)

    def _is_sound(self, chunk: AeroChunk) -> bool:
        """Whether a chunk that is not a shard matches its hash; others are reported as missing."""
        if chunk.fourcc == SHARD or chunk.is_wiped:
            return False
        why = WRONG
        if chunk.end > len(self.data):
            why = CUT_OFF
        else:
            try:
                self.search.allowance.decode(chunk)
                self.search.allowance.hash(chunk.ulen, chunk.offset)
                blank = Aero(self.data, FileHeader(0, 0, 0, 0, 0, b""), (), {}, (), ())
                raw = content(blank, chunk, max(self.search.options.max_chunk, chunk.length))
                if len(raw) == chunk.ulen and chunk.digest in (NO_HASH, digest(raw)):
                    return True
            except FormatError as error:
                why = error.message
        # What index and hashes prove is reported with the tensors.
        if chunk.fourcc in (JSON, MANIFEST) or chunk.fourcc not in METADATA:
            kind = chunk.fourcc.decode("ascii", "backslashreplace")
            self.missing.append(f"chunk {chunk.place} of type {kind}: {why}")
        return False

    def salvage(self) -> Salvage:
        by_shard: dict[int, list[int]] = {}
        for number, entry in enumerate(self.index.entries):
            by_shard.setdefault(entry.shard_id, []).append(number)
        salvaged: dict[int, SalvagedTensor] = {}
        before = self.index.end
        options = self.search.options
        reader = TensorReader(self.aero, options, DecodedParts(options).of_file(len(self.data)))
        for shard_id, numbers in by_shard.items():
            entries = [self.index.entries[n] for n in numbers]
            chunk, why = self._shard(shard_id, entries, before)
            if chunk is not None:
                before = max(before, chunk.offset + max(entry.data_end for entry in entries))
                self.aero.shards[SHARD_NAME % shard_id] = chunk
            of_shard = self._of_shard(reader, chunk, entries, why)
            salvaged.update(zip(numbers, of_shard, strict=True))
        tags, _ = model_tags(self.aero)
        tensors = tuple(salvaged[number] for number in range(len(self.index.entries)))
        return Salvage(tensors, missing=tuple(self.missing), tags=tags)

    def _shard(
        self, shard_id: int, entries: list[IndexEntry], before: int
    ) -> tuple[AeroChunk | None, str | None]:
        """Return the chunk of a shard, so far as it exists, or why there is none."""
        named = self.named.get(SHARD_NAME % shard_id, [])
        places = {(chunk.offset, chunk.length, chunk.flags) for chunk in named}
        fits = [chunk for chunk in named[:1] if chunk.is_compressed or chunk.length == chunk.ulen]
        if len(places) == 1 and fits and fits[0].end <= len(self.data):
            return fits[0], None
        by_hash = self._by_hash(entries, before)
        if by_hash is not None or (len(places) == 1 and fits):
            return by_hash or fits[0], None
        return None, TWO_SHARDS if len(places) > 1 else NOWHERE

    def _by_hash(self, entries: list[IndexEntry], before: int) -> AeroChunk | None:
        """Find a shard by the hash of one of its tensors, after another chunk or the TOC."""
        hashed = [entry for entry in entries if entry.digest is not None and entry.data_len > 0]
        first = aligned(before, PAYLOAD_ALIGNMENT)
        for entry in sorted(hashed, key=lambda entry: entry.data_len)[:2]:
            for base in chain((first,), self.ends):
                start, end = base + entry.data_off, base + entry.data_end
                if not self.search.work.spend(max(entry.data_len, _LOOK)):
                    return None
                if not 0 <= start < end <= len(self.data):
                    continue
                if digest(self.data[start:end]) == entry.digest:
                    length = max(entry.data_end for entry in entries)
                    return AeroChunk(-1, SHARD, 0, base, length, length, 0, 0, 0, NO_HASH)
        return None

    def _of_shard(
        self,
        reader: TensorReader,
        chunk: AeroChunk | None,
        entries: list[IndexEntry],
        why: str | None,
    ) -> Iterator[SalvagedTensor]:
        if chunk is None:
            is_elsewhere = why == NOWHERE and self.is_listed and self.index.doubt is None
            for entry in entries:
                tensor = reader.tensor(entry, entry.shard_id)
                if is_elsewhere:
                    yield SalvagedTensor(tensor, TensorState.ABSENT, OTHER_FILE)
                else:
                    yield shared.lost(tensor, why or NOWHERE)
            return
        search = self.search
        parts = (entries, search.allowance, search.options)
        proofs = ShardProofs(self.data, self.aero, chunk, *parts)
        # Tensors are read from the part of the shard that exists.
        self.aero.shards[SHARD_NAME % entries[0].shard_id] = proofs.there
        doubt = self._doubt()
        for entry in entries:
            tensor = reader.tensor(entry, entry.shard_id)
            reason, ranges = proofs.lost(entry)
            if reason is not None:
                yield shared.lost(tensor, reason, ranges)
            elif tensor.absent is not None:
                yield shared.lost(tensor, tensor.absent)
            else:
                reason_unproved = doubt[len(entry.shape) > 1] or proofs.doubt(entry)
                state = TensorState.UNPROVED if reason_unproved else TensorState.PROVED
                yield SalvagedTensor(tensor, state, reason_unproved)

    def _doubt(self) -> tuple[str | None, str | None]:
        """Return what is not proved for any tensor, and for tensors of several dimensions."""
        message = None if self.index.doubt is None else f"nothing proves {self.index.doubt}"
        if message is None and not self._is_order_known():
            return None, "nothing proves the order of its dimensions: it is stated in MJSN"
        return message, message

    def _is_order_known(self) -> bool:
        """Whether the order of dimensions in shapes is known: MJSN says it, if there is one."""
        chunk = self.aero.first(JSON)
        if chunk is None:
            return self.is_listed and not any(chunk.fourcc == JSON for chunk in self.chunks)
        if chunk.digest != NO_HASH:
            return True
        # Writers leave the hash out. A key or word that nearly equals the expected one is damaged.
        metadata = mjsn(self.aero)
        if SOURCE_KEY in metadata:
            return metadata[SOURCE_KEY] in _SOURCES
        return bool(metadata) and not any(_is_nearly(key, SOURCE_KEY) for key in metadata)


def _is_nearly(key: str, expected: str) -> bool:
    same = sum(one == other for one, other in zip(key, expected, strict=False))
    return len(key) == len(expected) and 2 * same > len(expected)


def _places(data: ByteView, magic: bytes) -> Iterator[int]:
    """Yield where the magic occurs in a file."""
    step = 1 << 20
    for start in range(0, len(data), step):
        piece = bytes(data[start : start + step + len(magic) - 1])
        at = piece.find(magic)
        while at >= 0:
            yield start + at
            at = piece.find(magic, at + 1)
