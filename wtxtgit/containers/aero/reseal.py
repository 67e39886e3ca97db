"""Writing an AERO file again with other tensors or metadata.

Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from wtxtgit.containers import flat
from wtxtgit.containers.aero import remains, rewriting
from wtxtgit.containers.aero import values as metadata
from wtxtgit.containers.aero.assembly import Payload
from wtxtgit.containers.aero.check import check
from wtxtgit.containers.aero.content import Allowance
from wtxtgit.containers.aero.description import json_object, shape_order
from wtxtgit.containers.aero.manifest_lists import ShardFacts, renewed
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import INDEX, MANIFEST
from wtxtgit.containers.aero.resharding import Resharded, reshard
from wtxtgit.containers.aero.sources import Item, Source
from wtxtgit.containers.aero.spelling import edited
from wtxtgit.containers.aero.values import NewMetadata, like
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.entries import Entry, Placed
from wtxtgit.model.reading import Packed, ReadOptions


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
    return remains.rest(container, options)


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
    return rewriting.written(container, replaced, new.removed, added, allowance)


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
