"""The weight shards of a file that is written again: which tensors go where.

A tensor stays in its shard; one of another file goes to the shard with the
number that it had there, or to the last one. A shard that keeps its tensors
keeps their places, any other one is laid out anew.
Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain

import zstandard

from wtxtgit.containers.aero.assembly import Payload
from wtxtgit.containers.aero.content import Allowance, content
from wtxtgit.containers.aero.content_rules import MAX_PAGES, parse_pages
from wtxtgit.containers.aero.index import HASH_KEY
from wtxtgit.containers.aero.manifest_lists import ShardFacts
from wtxtgit.containers.aero.new_shards import NewShard, Part, as_it_was, laid_out
from wtxtgit.containers.aero.payloads import ZSTD_LEVEL
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import (
    MMAP_CRITICAL,
    NO_HASH,
    PAGES,
    SHARD,
    SHARD_NAME,
    Chunk,
    chunk_name,
)
from wtxtgit.containers.aero.sources import Item, Source
from wtxtgit.containers.aero.spelling import edited, packed
from wtxtgit.containers.aero.tensor_rules import hash_of
from wtxtgit.containers.aero.values import like
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer

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
        told = hash_of(entry)
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
