"""Writing an AERO file again with other tensors or metadata.

A tensor stays in its shard; one of another file goes to the shard with the
number that it had there, or to the last one. A shard that keeps its tensors
keeps their places, any other one is laid out anew.
Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import cast

import zstandard

from wtxtgit.containers import flat
from wtxtgit.containers.aero import extras, metadata, repack
from wtxtgit.containers.aero.check import check
from wtxtgit.containers.aero.chunks import ZSTD_LEVEL, Payload
from wtxtgit.containers.aero.content import Allowance, content
from wtxtgit.containers.aero.describe import json_object, shape_order
from wtxtgit.containers.aero.hashes import MAX_PAGES, parse_pages
from wtxtgit.containers.aero.metadata import NewMetadata, ShardFacts, like, renewed
from wtxtgit.containers.aero.msgpack_edit import edited, packed
from wtxtgit.containers.aero.new_shards import Item, NewShard, Part, Source, as_it_was, laid_out
from wtxtgit.containers.aero.read import (
    HASH_KEY,
    INDEX,
    MANIFEST,
    MMAP_CRITICAL,
    NO_HASH,
    PAGES,
    SHARD,
    SHARD_NAME,
    Aero,
    Chunk,
    chunk_name,
)
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.tensor import Entry, Packed, Placed, ReadOptions


def entries(container: Aero, options: ReadOptions) -> list[Entry]:
    """The tensors, in the index's order; raises FormatError (limit) for too long maps in it."""
    source = Source(container, options)
    found = []
    for number in range(len(container.entries)):
        tensor = source.tensor(number)
        plain = not isinstance(tensor.held, Packed) and tensor.absent is None
        stored = cast(ByteView, tensor.held) if plain else None
        found.append(Entry(tensor.name, source.form(number, tensor), stored, tensor))
    return found


def values(container: Aero, options: ReadOptions) -> dict[str, object]:
    """What MJSN and MMSG hold, and small unknown chunks; see the page.

    Raises FormatError where unknown chunks can't be decoded, and (limit)
    where they hold too much.
    """
    return metadata.read(container, options)


def rest(container: Aero, options: ReadOptions) -> dict[str, object]:
    """What else the file holds: reserved fields, bytes between chunks, what chunks say beside.

    Raises FormatError (limit) as `remains.rest` does.
    """
    return extras.rest(container, options)


def reseal(
    container: Aero,
    placed: Sequence[Placed],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """The file with these tensors and, where not None, these values, in pieces.

    Raises FormatError, before the first piece: for files with errors, a name
    that is there twice, contents of another length, tensors that share bytes
    and are to have different ones or have none, shapes in another order than
    the file's, hashes that no check looks at, what is over the limits.
    """
    sources = {id(container): Source(container, options)}
    for each in placed:
        if id(each.source) not in sources:
            sources[id(each.source)] = Source(cast(Aero, each.source), options)
    own = sources[id(container)]
    items = list(_items(own, sources, placed))
    new = _metadata(container, values, options)
    stays = _are_own(own, items)
    if stays and not any(item.content for item in items) and not new.is_change:
        return pieces(container.data)
    for source in sources.values():
        flat.refuse_errors(check(source.aero, options))
    _check_items(items)
    _check_shapes(items, new)
    if not stays:
        _check_names(items)
    allowance = Allowance(sum(len(source.aero.data) for source in sources.values()), options)
    shards = reshard(own, items, allowance)
    replaced = new.replaced | shards.replaced | _index(own, items, shards)
    replaced |= _manifest(container, new, shards)
    added = [*new.added, *([] if shards.added is None else [shards.added[0]])]
    return repack.written(container, replaced, new.removed, added, allowance)


def _items(own: Source, sources: Mapping[int, Source], placed: Sequence[Placed]) -> Iterator[Item]:
    """The tensors; those that differ from one of the file in their bytes alone are that one.

    So they keep its place and what else the file says of it.
    """
    counts = Counter(entry.name for entry in own.aero.entries)
    numbers = {entry.name: n for n, entry in enumerate(own.aero.entries)}
    for each in placed:
        source = sources[id(each.source)]
        item = Item(source, each.number, each.content)
        number = numbers.get(item.entry.name)
        if source is own or number is None or counts[item.entry.name] > 1:
            yield item
        elif _is_like(Item(own, number, None), item):
            content = each.content or source.content(each.number)
            yield Item(own, number, content)
        else:
            yield item


def _is_like(a: Item, b: Item) -> bool:
    """Whether nothing but bytes, their place and their hash can differ."""
    forms = (item.source.form(item.number, item.source.tensor(item.number)) for item in (a, b))
    return (a.entry.shape, a.entry.data_len) == (b.entry.shape, b.entry.data_len) and next(
        forms
    ) == next(forms)


def _metadata(
    container: Aero, values: Mapping[str, object] | None, options: ReadOptions
) -> NewMetadata:
    if values is None:
        return NewMetadata.unchanged(container, options)
    return metadata.changes(container, metadata.read(container, options), values, options)


def _are_own(own: Source, items: Sequence[Item]) -> bool:
    """Whether the tensors are those of the file, in its order."""
    return len(items) == len(own.aero.entries) and all(
        item.source is own and item.number == place for place, item in enumerate(items)
    )


def _check_items(items: Sequence[Item]) -> None:
    for item in items:
        if item.content is None:
            continue
        name, tensor = quoted(item.entry.name), item.source.tensor(item.number)
        if tensor.absent is not None:
            raise FormatError(f"tensor {name} has no bytes: {tensor.absent}", field="entries")
        if item.content.nbytes != tensor.nbytes:
            raise FormatError(
                f"tensor {name} has {tensor.nbytes} bytes, {item.content.nbytes} are given",
                field="entries",
            )


def _check_shapes(items: Sequence[Item], new: NewMetadata) -> None:
    """Refuse tensors whose shapes would be read otherwise than they were."""
    order = shape_order({} if new.json is None else json_object(memoryview(new.json)))
    for item in items:
        shape = item.entry.shape
        if item.source.order != order and shape != shape[::-1]:
            raise FormatError(
                f"tensor {quoted(item.entry.name)} has the dimensions of its shape in the other "
                "order",
                field="entries",
            )


def _check_names(items: Sequence[Item]) -> None:
    if len(items) > MAX_TENSORS:
        raise FormatError(f"{len(items)} tensors are too many", kind="limit", field="entries")
    taken: set[str] = set()
    for item in items:
        if item.entry.name in taken:
            raise FormatError(f"tensor {quoted(item.entry.name)} is there twice", field="name")
        taken.add(item.entry.name)


def _index(own: Source, items: Sequence[Item], shards: Resharded) -> dict[int, Payload]:
    """The index, where it changes, by its place in the TOC."""
    if own.index is None:
        if items:
            raise FormatError("the file has no TIDX chunk", field="entries")
        return {}
    maps = []
    for place, item in enumerate(items):
        raw, edits = item.source.map(item.number), shards.edits(place, item)
        maps.append(edited(raw, edits) if edits else raw)
    raw = own.index.with_maps(maps)
    return {} if raw == own.index.raw else _chunk(own.aero, INDEX, raw)


def _manifest(container: Aero, new: NewMetadata, shards: Resharded) -> dict[int, Payload]:
    """The manifest, where it changes, by its place in the TOC."""
    if new.manifest is None or container.first(MANIFEST) is None:
        return {}
    stay = [place for place in range(len(container.chunks)) if place not in new.removed]
    places = {old: place for place, old in enumerate(stay)}
    added: list[tuple[bytes, ShardFacts | None]] = [(one.fourcc, None) for one in new.added]
    if shards.added is not None:
        added.append((shards.added[0].fourcc, shards.added[1]))
    raw = renewed(new.manifest, places, new.removed, shards.facts, added)
    return {} if raw == new.manifest_before else _chunk(container, MANIFEST, raw)


def _chunk(aero: Aero, fourcc: bytes, raw: bytes) -> dict[int, Payload]:
    """The first chunk of a type with another content, by its place in the TOC."""
    place = next(place for place, chunk in enumerate(aero.chunks) if chunk.fourcc == fourcc)
    return {place: like(aero, aero.chunks[place], raw)}


_NUMBERED = re.compile(rb"weights\.shard(0|[1-9][0-9]{0,18})")
"""Names of shards that an index without tensors in them can number: up to 19 digits."""


@dataclass(slots=True)
class Resharded:
    """What becomes of the shards of a file, and where tensors are then.

    `homes` are the numbers of the tensors' shards, None where that is in
    another file, by their places among all that is written; `shards` are
    those that are written, by number. `replaced` are the payloads of these and
    of their page hashes by their places in the TOC, `facts` what a manifest
    says of those whose tensors came or went. `added` is a first shard, where
    the file had none.
    """

    homes: list[int | None]
    shards: dict[int, NewShard] = field(default_factory=dict)
    replaced: dict[int, Payload] = field(default_factory=dict)
    facts: dict[int, ShardFacts] = field(default_factory=dict)
    added: tuple[Payload, ShardFacts] | None = None

    def edits(self, place: int, item: Item) -> dict[str, bytes]:
        """What changes of a tensor's map in the index."""
        entry, home = item.entry, self.homes[place]
        if home is None:
            return {}
        edits = {} if home == entry.shard_id else {"shard_id": packed(home)}
        shard = self.shards.get(home)
        if shard is None:
            return edits
        offset = shard.offsets[place]
        if offset != entry.data_off:
            edits["data_off"] = packed(offset)
        told = entry.digest
        if item.content is not None and entry.data_len and told is not None:
            made = shard.digests[offset, offset + entry.data_len]
            if made != told:
                edits[HASH_KEY] = packed(made.hex())
        return edits


def reshard(own: Source, items: Sequence[Item], allowance: Allowance) -> Resharded:
    """Put the tensors into the shards of the file `own`.

    Its hashes and those of the other files were checked before. Raises
    FormatError: for a tensor that has no bytes and would be taken for one of
    a shard of the file, or the other way round; for tensors that share bytes
    and are to have different ones; for page hashes that no check looks at;
    (limit) for what takes too long to hash.
    """
    numbered = _numbered(own)
    made = Resharded(list(_homes(own, items, numbered)))
    parts: dict[int, list[Part]] = {}
    for place, (item, home) in enumerate(zip(items, made.homes, strict=True)):
        held = item.source.held(item.number)
        if home is not None and held is not None:
            parts.setdefault(home, []).append(Part(place, item.entry, held, item.content))
    before: dict[int, list[Item]] = {}
    for number, entry in enumerate(own.aero.entries):
        before.setdefault(entry.shard_id, []).append(Item(own, number, None))
    _allow_decoding(parts, allowance)
    places, pages = _places(own.aero), _Pages(own)
    for number in sorted(numbered.keys() | parts.keys()):
        held_now = parts.get(number, [])
        stays = _identities(items[part.place] for part in held_now) == _identities(
            before.get(number, ())
        )
        if stays and not any(part.is_given for part in held_now):
            continue
        chunk = numbered.get(number)
        told = None if chunk is None else pages.of(places[id(chunk)])
        size = None if told is None else told[1]
        if stays and chunk is not None:
            shard = as_it_was(own.shard(chunk), held_now, size)
        else:
            shard = laid_out(held_now, size)
        _check_pages(shard)
        shard.check(allowance)
        made.shards[number] = shard
        facts = ShardFacts(number, shard.size, len(held_now))
        if chunk is None:
            made.added = _new_payload(number, shard), facts
            continue
        place = places[id(chunk)]
        made.replaced[place] = _payload(own, chunk, shard)
        if told is not None:
            made.replaced[told[0]] = _pages_payload(own, told[0], shard)
        if not stays:
            made.facts[place] = facts
    return made


def _identities(items: Iterable[Item]) -> list[tuple[int, int]]:
    """Which tensors these are, in whatever order."""
    return sorted((id(item.source), item.number) for item in items)


def _allow_decoding(parts: Mapping[int, Sequence[Part]], allowance: Allowance) -> None:
    seen: set[tuple[int, Chunk]] = set()
    for part in chain.from_iterable(parts.values()):
        key = (id(part.held.aero), part.held.chunk)
        if part.held.chunk.is_compressed and key not in seen:
            seen.add(key)
            allowance.decode(part.held.chunk)


def _numbered(own: Source) -> dict[int, Chunk]:
    """The shards that an index can name, by number."""
    found: dict[int, Chunk] = {}
    for entry in own.aero.entries:
        chunk = own.aero.shard(entry.shard_id)
        if chunk is not None:
            found[entry.shard_id] = chunk
    for name, chunk in own.aero.shards.items():
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            found[int(match[1])] = chunk
    return found


def _homes(own: Source, items: Sequence[Item], numbered: dict[int, Chunk]) -> Iterator[int | None]:
    """The number of each tensor's shard, None where it is in another file."""
    elsewhere = next(
        (entry for entry in own.aero.entries if own.aero.shard(entry.shard_id) is None), None
    )
    for item in items:
        entry = item.entry
        if item.source.held(item.number) is None:
            if own.aero.shard(entry.shard_id) is not None:
                raise FormatError(
                    f"tensor {quoted(entry.name)} is in another file, and shard "
                    f"{entry.shard_id} of this one is not its own",
                    field="entries",
                )
            yield None
        elif item.source is own or entry.shard_id in numbered:
            yield entry.shard_id
        elif numbered:
            yield max(numbered)
        elif elsewhere is None:
            yield 0
        else:
            raise FormatError(
                f"the file has no weight shard for tensor {quoted(entry.name)}: "
                "those of its own tensors are in other files",
                field="entries",
            )


def _payload(own: Source, chunk: Chunk, shard: NewShard) -> Payload:
    name = chunk_name(own.aero.data, own.aero.header, chunk)
    digest = NO_HASH if chunk.digest == NO_HASH else shard.digests[0, shard.size]
    blocks = partial(_compressed, shard) if chunk.is_compressed else shard.blocks
    # What it is compressed to is not held: it is made once for its length.
    length = sum(map(len, blocks())) if chunk.is_compressed else shard.size
    return Payload(SHARD, name, chunk.flags, length, shard.size, digest, blocks)


def _new_payload(number: int, shard: NewShard) -> Payload:
    digest = shard.digests[0, shard.size]
    name = SHARD_NAME % number
    return Payload(SHARD, name, MMAP_CRITICAL, shard.size, shard.size, digest, shard.blocks)


def _compressed(shard: NewShard) -> Iterator[Buffer]:
    made = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj(size=shard.size)
    for block in shard.blocks():
        yield made.compress(block)
    yield made.flush()


class _Pages:
    """The page hashes of a file, read when they are first asked for."""

    def __init__(self, own: Source) -> None:
        self._own = own

    def of(self, shard: int) -> tuple[int, int] | None:
        """Place and page size of those of the shard in this place; None where it has none.

        Raises FormatError where it has them twice, or any of the file are
        compressed: no check has looked at these.
        """
        found = self._found.get(shard, [])
        if len(found) > 1:
            chunk = self._own.aero.chunks[found[1][0]]
            fail("a shard has page hashes twice", offset=chunk.offset, field="shard_name")
        return found[0] if found else None

    @cached_property
    def _found(self) -> dict[int, list[tuple[int, int]]]:
        aero = self._own.aero
        places = _places(aero)
        found: dict[int, list[tuple[int, int]]] = {}
        for place, chunk in enumerate(aero.chunks):
            if chunk.fourcc != PAGES:
                continue
            if chunk.is_compressed:
                fail("page hashes are compressed", offset=chunk.offset, field="chunk_flags")
            pages = parse_pages(aero, chunk)
            shard = aero.shards.get(pages.shard_name.encode())
            if shard is not None:
                found.setdefault(places[id(shard)], []).append((place, pages.page_size))
        return found


def _places(aero: Aero) -> dict[int, int]:
    """The places of chunks in the TOC, by their identity."""
    return {id(chunk): place for place, chunk in enumerate(aero.chunks)}


def _check_pages(shard: NewShard) -> None:
    if shard.page_size is not None and -(-shard.size // shard.page_size) > MAX_PAGES:
        raise FormatError("a shard would have too many pages", kind="limit", field="digests")


def _pages_payload(own: Source, place: int, shard: NewShard) -> Payload:
    chunk = own.aero.chunks[place]
    raw = bytes(content(own.aero, chunk))
    digests = [shard.digests[page] for page in shard.pages]
    return like(own.aero, chunk, edited(raw, {"digests": packed(digests)}))
