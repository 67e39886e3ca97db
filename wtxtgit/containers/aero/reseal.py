"""Rewriting an AERO file with other tensors or metadata.

A tensor stays in its shard; one from another file goes to the shard with the number that it had
there, or to the last one. A shard with unchanged tensors keeps their places, any other is laid out
anew. Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from wtxtgit.containers import replacing, zstd_limits
from wtxtgit.containers.aero import metadata, repack
from wtxtgit.containers.aero.check import check
from wtxtgit.containers.aero.chunks import ZSTD_LEVEL, Payload
from wtxtgit.containers.aero.content import Allowance, content
from wtxtgit.containers.aero.describe import json_object, shape_order
from wtxtgit.containers.aero.extras import rest
from wtxtgit.containers.aero.hashes import MAX_PAGES
from wtxtgit.containers.aero.metadata import NewMetadata, ShardFacts, like, renewed, values
from wtxtgit.containers.aero.msgpack_edit import edited, packed
from wtxtgit.containers.aero.new_shards import (
    Item,
    NewShard,
    Source,
    as_it_was,
    laid_out,
)
from wtxtgit.containers.aero.read import (
    HASH_KEY,
    INDEX,
    MANIFEST,
    NO_HASH,
    SHARD,
    SHARD_NAME,
    Aero,
    AeroChunk,
)
from wtxtgit.containers.budget import refuse_many
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.json_text import refuse_repeated
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.tensor import Entry, PackedBytes, PlacedEntry, ReadOptions

__all__ = ["entries", "reseal", "rest", "values"]


def entries(container: Aero, options: ReadOptions) -> list[Entry]:
    """Return the tensors, in the index's order; raises FormatError (limit) for too long maps."""
    source = Source(container, options)
    entries = []
    for number in range(len(container.entries)):
        tensor = source.tensor(number)
        is_plain = not isinstance(tensor.held, PackedBytes) and tensor.absent is None
        stored = cast(ByteView, tensor.held) if is_plain else None
        entries.append(Entry(tensor.name, source.form(number, tensor), stored, tensor))
    return entries


def reseal(
    container: Aero,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """Yield the file with these tensors and, unless None, these values.

    Raises FormatError, before the first piece: for files with errors, repeated names, contents of
    another length, tensors that share bytes but are to have different ones or none, shapes in
    another order than the file's, hashes that no check covers, and exceeded limits.
    """
    sources = {id(container): Source(container, options)}
    for each in placed:
        if id(each.source) not in sources:
            sources[id(each.source)] = Source(cast(Aero, each.source), options)
    own = sources[id(container)]
    items = list(_items(own, sources, placed))
    new = NewMetadata.unchanged(container, options)
    if values is not None:
        new = metadata.changes(container, metadata.values(container, options), values, options)
    stays = len(items) == len(container.entries) and all(
        item.source is own and item.number == item.place for item in items
    )
    # If nothing changes the file stays byte for byte the same, even with errors.
    if stays and not any(item.content for item in items) and not new.is_change:
        return pieces(container.data)
    # Hashes are computed anew below: they must not make damage look intact.
    for source in sources.values():
        replacing.refuse_errors(check(source.aero, options))
    _check_items(items, new)
    if not stays:
        refuse_repeated((item.entry.name for item in items), "two tensors are named {}")
    allowance = Allowance(sum(len(source.aero.data) for source in sources.values()), options)
    shards = reshard(own, items, allowance)
    replaced = new.replaced | shards.replaced | _index(own, items, shards)
    replaced |= _manifest(container, new, shards)
    added = [*new.added, *(payload for payload, _ in shards.added)]
    return repack.written(container, replaced, new.removed, added, allowance)


def _items(
    own: Source, sources: Mapping[int, Source], placed: Sequence[PlacedEntry]
) -> Iterator[Item]:
    """Yield the tensors; one that differs from the file's own only in its bytes is taken as that.

    So it keeps its place and whatever else the file says of it.
    """
    counts = Counter(entry.name for entry in own.aero.entries)
    numbers = {entry.name: n for n, entry in enumerate(own.aero.entries)}
    for place, each in enumerate(placed):
        item = Item(place, sources[id(each.source)], each.number, each.content)
        number = numbers.get(item.entry.name)
        if item.source is own or number is None or counts[item.entry.name] > 1:
            yield item
        elif _is_like(Item(place, own, number), item):
            yield Item(place, own, number, each.content or item.source.content(each.number))
        else:
            yield item


def _is_like(a: Item, b: Item) -> bool:
    """Whether only bytes, their place and their hash can differ."""
    if (a.entry.shape, a.entry.data_len) != (b.entry.shape, b.entry.data_len):
        return False
    forms = {item.source.form(item.number, item.source.tensor(item.number)) for item in (a, b)}
    return len(forms) == 1


def _check_items(items: Sequence[Item], new: NewMetadata) -> None:
    """Refuse what can't be written, and shapes that would be read differently than before."""
    refuse_many(len(items), MAX_TENSORS, "tensors", "entries")
    order = shape_order({} if new.json is None else json_object(memoryview(new.json)))
    for item in items:
        name, shape = f"tensor {quoted(item.entry.name)}", item.entry.shape
        if item.content is not None:
            tensor = item.source.tensor(item.number)
            if tensor.absent is not None:
                raise FormatError(f"{name} has no bytes: {tensor.absent}", field="entries")
            if item.content.nbytes != tensor.nbytes:
                raise FormatError(
                    f"{name} has {tensor.nbytes} bytes, but {item.content.nbytes} were given",
                    field="entries",
                )
        if item.source.order != order and shape != shape[::-1]:
            raise FormatError(
                f"the two files list the dimensions of {name} in opposite orders", field="entries"
            )


def _index(own: Source, items: Sequence[Item], shards: Resharded) -> dict[int, Payload]:
    """Return the new index, if it changes, by its place in the TOC."""
    chunk = own.aero.first(INDEX)
    if chunk is None or own.index is None:
        if items:
            raise FormatError("the file has no TIDX chunk", field="entries")
        return {}
    maps = []
    for item in items:
        raw, edits = item.source.map(item.number), shards.edits(item)
        maps.append(edited(raw, edits) if edits else raw)
    raw = own.index.with_maps(maps)
    return {} if raw == own.index.raw else {chunk.place: like(own.aero, chunk, raw)}


def _manifest(container: Aero, new: NewMetadata, shards: Resharded) -> dict[int, Payload]:
    """Return the new manifest, if it changes, by its place in the TOC."""
    chunk = container.first(MANIFEST)
    if new.manifest is None or chunk is None:
        return {}
    stay = [place for place in range(len(container.chunks)) if place not in new.removed]
    places = {old: place for place, old in enumerate(stay)}
    added: list[tuple[bytes, ShardFacts | None]] = [(payload.fourcc, None) for payload in new.added]
    added += [(payload.fourcc, facts) for payload, facts in shards.added]
    raw = renewed(new.manifest, places, new.removed, shards.facts, added)
    return {} if raw == new.manifest_before else {chunk.place: like(container, chunk, raw)}


_NUMBERED = re.compile(rb"weights\.shard(0|[1-9][0-9]{0,18})")
"""Names of shards to which an index can refer without listing tensors in them."""


@dataclass(slots=True)
class Resharded:
    """What becomes of the shards of a file, and where tensors are then.

    `homes` are the numbers of the tensors' shards by their places among all that is written, None
    for a shard in another file. `shards` are those that are written, by number. `replaced` are the
    payloads of these and of their page hashes by their places in the TOC, `facts` what a manifest
    says of those with added or removed tensors. `added` has a first shard, if the file had none.
    """

    homes: list[int | None]
    shards: dict[int, NewShard] = field(default_factory=dict)
    replaced: dict[int, Payload] = field(default_factory=dict)
    facts: dict[int, ShardFacts] = field(default_factory=dict)
    added: list[tuple[Payload, ShardFacts]] = field(default_factory=list)

    def edits(self, item: Item) -> dict[str, bytes]:
        """Return what changes in a tensor's map in the index."""
        entry, home = item.entry, self.homes[item.place]
        if home is None:
            return {}
        edits = {} if home == entry.shard_id else {"shard_id": packed(home)}
        shard = self.shards.get(home)
        if shard is None:
            return edits
        offset = shard.offsets[item.place]
        if offset != entry.data_off:
            edits["data_off"] = packed(offset)
        if item.content is not None and entry.data_len and entry.digest is not None:
            digest = shard.digests[offset, offset + entry.data_len]
            if digest != entry.digest:
                edits[HASH_KEY] = packed(digest.hex())
        return edits


def reshard(own: Source, items: Sequence[Item], allowance: Allowance) -> Resharded:
    """Distribute the tensors to the shards of the file `own`.

    Its hashes and those of the other files were checked before. Raises FormatError: if a tensor
    without bytes would be taken for one in a shard of the file, or vice versa; for tensors that
    share bytes but are to have different ones; for page hashes that no check covers; (limit) if
    hashing would take too long.
    """
    numbered = _numbered(own)
    resharded = Resharded(list(_homes(own, items, numbered)))
    parts: dict[int, list[Item]] = {}
    decoded: set[tuple[int, AeroChunk]] = set()
    for item, home in zip(items, resharded.homes, strict=True):
        if home is None or item.shard is None:
            continue
        parts.setdefault(home, []).append(item)
        if (id(item.source), item.shard) not in decoded:
            decoded.add((id(item.source), item.shard))
            allowance.decode(item.shard)
    before: dict[int, list[int]] = {}
    for number, entry in enumerate(own.aero.entries):
        before.setdefault(entry.shard_id, []).append(number)
    # Ordered by number, so that the same merge gives the same bytes.
    for number in sorted(numbered.keys() | parts.keys()):
        inside = parts.get(number, [])
        numbers = sorted(part.number for part in inside if part.source is own)
        stays = len(numbers) == len(inside) and numbers == before.get(number, [])
        if stays and not any(part.is_replaced for part in inside):
            continue
        chunk = numbered.get(number)
        pages = [] if chunk is None else own.pages.get(chunk.place, [])
        if len(pages) > 1:
            fail("a shard has page hashes twice", offset=pages[1][0].offset, field="shard_name")
        page_size = pages[0][1] if pages else None
        if stays and chunk is not None:
            shard = as_it_was(own, chunk, inside, page_size)
        else:
            shard = laid_out(inside, page_size)
        # A page may be a single byte: the count is checked before the pages are listed.
        if page_size is not None and -(-shard.size // page_size) > MAX_PAGES:
            raise FormatError("a shard would have too many pages", kind="limit", field="digests")
        shard.check(allowance)
        resharded.shards[number] = shard
        facts = ShardFacts(number, shard.size, len(inside))
        if chunk is None:
            resharded.added.append((shard.payload(SHARD_NAME % number), facts))
            continue
        resharded.replaced[chunk.place] = _payload(own, chunk, shard)
        for paged, _ in pages:
            digests = packed([shard.digests[page] for page in shard.pages])
            raw = edited(bytes(content(own.aero, paged)), {"digests": digests})
            resharded.replaced[paged.place] = like(own.aero, paged, raw)
        if not stays:
            resharded.facts[chunk.place] = facts
    return resharded


def _numbered(own: Source) -> dict[int, AeroChunk]:
    """Return the shards that an index can refer to, by number."""
    ids = {entry.shard_id for entry in own.aero.entries}
    matches = map(_NUMBERED.fullmatch, own.aero.shards)
    ids.update(int(match[1]) for match in matches if match is not None)
    shards = ((number, own.aero.shard(number)) for number in ids)
    return {number: chunk for number, chunk in shards if chunk is not None}


def _homes(
    own: Source, items: Sequence[Item], numbered: dict[int, AeroChunk]
) -> Iterator[int | None]:
    """Yield the number of each tensor's shard, None if it is in another file."""
    elsewhere = next(
        (entry for entry in own.aero.entries if own.aero.shard(entry.shard_id) is None), None
    )
    for item in items:
        entry = item.entry
        if item.shard is None:
            if own.aero.shard(entry.shard_id) is not None:
                raise FormatError(
                    f"tensor {quoted(entry.name)} is in another file, and shard {entry.shard_id} "
                    "of this file is not the one that holds it",
                    field="entries",
                )
            yield None
        # A tensor goes to the shard with the number that it had ("Resealing").
        elif item.source is own or entry.shard_id in numbered:
            yield entry.shard_id
        elif numbered:
            yield max(numbered)
        elif elsewhere is None:
            yield 0
        else:
            raise FormatError(
                f"the file has no weight shard for tensor {quoted(entry.name)}: its own tensors "
                "are in other files",
                field="entries",
            )


def _payload(own: Source, chunk: AeroChunk, shard: NewShard) -> Payload:
    name = own.aero.name(chunk)
    digest = NO_HASH if chunk.digest == NO_HASH else shard.digests[0, shard.size]
    blocks = partial(_compressed, shard) if chunk.is_compressed else shard.blocks
    # The compressed bytes are not kept: they are made once for their length.
    length = sum(map(len, blocks())) if chunk.is_compressed else shard.size
    return Payload(SHARD, name, chunk.flags, length, shard.size, digest, blocks)


def _compressed(shard: NewShard) -> Iterator[Buffer]:
    return zstd_limits.packed(shard.blocks(), shard.size, ZSTD_LEVEL)
