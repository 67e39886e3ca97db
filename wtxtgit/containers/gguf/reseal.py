"""Rewriting a GGUF file with other tensors or metadata.

Spec: `docs/spec/gguf.md`, "Resealing".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Literal, cast

from wtxtgit.containers import intervals, json_text, replacing
from wtxtgit.containers.budget import refuse_long, refuse_many
from wtxtgit.containers.cursor import Cursor, quoted
from wtxtgit.containers.gguf import MAGIC
from wtxtgit.containers.gguf.check import check_into
from wtxtgit.containers.gguf.read import (
    COUNT_SIZE,
    MAX_ENTRIES,
    TYPE_SIZE,
    UNKNOWN_TYPE,
    Gguf,
    Info,
    alignment_of,
    read_entry,
)
from wtxtgit.containers.gguf.write import file_pieces
from wtxtgit.containers.intervals import aligned
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.replacing import WrittenTensor
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.array import ZEROS_ALLOWANCE
from wtxtgit.model.tensor import Entry, PlacedEntry, ReadOptions

GAPS = "gaps"

Value = tuple[int, bytes, str]
"""The type of a value, its bytes in the file, and their byte order."""


def entries(container: Gguf, options: ReadOptions) -> list[Entry]:
    """Return the tensors, in the order of their infos.

    For a tensor of an unknown type `stored` is everything up to the next tensor: its length is not
    known.
    """
    # The length of a tensor of an unknown type is not known ("Resealing").
    starts = sorted({info.tensor.start for info in container.infos})
    listed: list[Entry] = []
    for number, info in enumerate(container.infos):
        name, form = info.tensor.name, _form(container, number)
        if info.is_known:
            tensor = info.tensor.listed(container.data)
            listed.append(Entry(name, form, tensor.view, tensor))
        else:
            start = info.tensor.start
            after = bisect_right(starts, start)
            end = starts[after] if after < len(starts) else len(container.data)
            listed.append(Entry(name, form, container.data[start:end], unread=UNKNOWN_TYPE))
    return listed


def values(container: Gguf, options: ReadOptions) -> dict[str, object]:
    """Return each key's value type and bytes, and the byte order of the file."""
    return dict(_values(container))


def rest(container: Gguf, options: ReadOptions) -> dict[str, object]:
    """Return the version and the byte order, and a hash of bytes in no tensor, if there are any.

    Bytes after a tensor of an unknown type are in `entries`.
    """
    spans = [(0, container.infos_end)]
    for info, entry in zip(container.infos, entries(container, options), strict=True):
        length = 0 if entry.stored is None else len(entry.stored)
        spans.append((info.tensor.start, info.tensor.start + length))
    facts: dict[str, object] = {"version": container.version, "byte order": container.byteorder}
    gaps = intervals.digest(container.data, spans)
    return facts if gaps is None else {**facts, GAPS: gaps}


def reseal(
    container: Gguf,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """Yield the file with these tensors and, unless None, this metadata.

    If names, types, dimensions, their order and metadata stay, so does the whole file except
    tensors' bytes. Otherwise it is laid out anew, and bytes in no tensor are dropped. Raises
    FormatError, before the first piece: for files with errors, repeated names, tensors or values of
    another byte order, tensors of unknown types that would be moved, tensors that share bytes but
    are given different ones, and for results that exceed the format's limits or would be mostly
    padding.
    """
    sources = replacing.refuse_damaged((container, *map(_source, placed)), check_into)
    parts = [WrittenTensor(_info(each).tensor, _source(each).data, each.content) for each in placed]
    replacing.check_lengths(parts)
    own = _values(container)
    new = own if values is None else cast(Mapping[str, Value], values)
    if list(new.items()) == list(own.items()) and _has_places(container, placed):
        return replacing.replaced(container.data, [info.tensor for info in container.infos], parts)
    replacing.check_size(parts, (source.data for source in sources))
    return _laid_out(container, new, placed, parts)


def keep(container: Gguf, numbers: Sequence[int]) -> Iterator[Buffer]:
    """Yield the file with only the tensors of these numbers, whose bytes must exist.

    Nothing else in the file has to hold. Raises FormatError before the first piece.
    """
    placed = [PlacedEntry(container, number) for number in numbers]
    parts = [WrittenTensor(_info(each).tensor, container.data, None) for each in placed]
    return _laid_out(container, _values(container), placed, parts)


def _laid_out(
    container: Gguf,
    values: Mapping[str, Value],
    placed: Sequence[PlacedEntry],
    parts: Sequence[WrittenTensor],
) -> Iterator[Buffer]:
    metadata, alignment = _metadata(values, container.byteorder)
    header = _header(container, metadata, len(values), _infos(container, placed, alignment))
    _check_padding(header, parts, alignment)
    return file_pieces(header, parts, alignment)


def _values(container: Gguf) -> dict[str, Value]:
    listed, infos = container.entries, container.infos
    ends = [entry.offset for entry in listed[1:]]
    ends.append(infos[0].offset if infos else container.infos_end)
    return {
        entry.key: (
            entry.value_type,
            bytes(container.data[entry.start : end]),
            container.byteorder,
        )
        for entry, end in zip(listed, ends, strict=False)
    }


def _has_places(container: Gguf, placed: Sequence[PlacedEntry]) -> bool:
    """Whether the tensors fit in the places of the file's own tensors, one for one."""
    return len(placed) == len(container.infos) and all(
        _info(each).tensor.name == own.tensor.name
        and _form(_source(each), each.number) == _form(container, n)
        # For an unknown type it is not known which bytes would go to the place.
        and (own.is_known or each.source is container)
        for n, (own, each) in enumerate(zip(container.infos, placed, strict=True))
    )


def _form(container: Gguf, number: int) -> Hashable:
    """Return dimensions and type, as they are in the file."""
    record = _record(container, number)
    name = len(container.infos[number].tensor.name.encode())
    return container.byteorder, bytes(record[COUNT_SIZE + name :])


def _record(container: Gguf, number: int) -> ByteView:
    """Return a tensor info without its offset."""
    infos = container.infos
    end = infos[number + 1].offset if number + 1 < len(infos) else container.infos_end
    return container.data[infos[number].offset : end - COUNT_SIZE]


def _metadata(values: Mapping[str, Value], order: Literal["little", "big"]) -> tuple[bytes, int]:
    """Return key-value pairs, and the alignment that they say."""
    refuse_many(len(values), MAX_ENTRIES, "keys", "metadata_kv_count")
    pairs: list[bytes] = []
    for key, (value_type, raw, byteorder) in values.items():
        if byteorder != order:
            raise FormatError(
                f"key {quoted(key)} comes from a {byteorder}-endian file", field="key"
            )
        name = key.encode()
        pairs += (len(name).to_bytes(COUNT_SIZE, order), name)
        pairs += (value_type.to_bytes(TYPE_SIZE, order), raw)
    metadata = b"".join(pairs)
    # Read back as a reader would: a given value must not break the file.
    cursor = Cursor(memoryview(metadata), order=order)
    return metadata, alignment_of(cursor, tuple(read_entry(cursor) for _ in values))


def _infos(container: Gguf, placed: Sequence[PlacedEntry], alignment: int) -> list[bytes]:
    """Return the tensor infos of consecutive tensors."""
    refuse_many(len(placed), MAX_TENSORS, "tensors", "tensor_count")
    names = (_info(each).tensor.name for each in placed)
    json_text.refuse_repeated(names, "two tensors are named {}")
    infos: list[bytes] = []
    end = 0
    for each in placed:
        info, source = _info(each), _source(each)
        named = f"tensor {quoted(info.tensor.name)}"
        if source.byteorder != container.byteorder:
            raise FormatError(
                f"{named} comes from a {source.byteorder}-endian file", field="entries"
            )
        if not info.is_known:
            raise FormatError(
                f"{named} can't be moved: its type {info.tensor.dtype} is unknown", field="type"
            )
        offset = end.to_bytes(COUNT_SIZE, container.byteorder)
        infos.append(bytes(_record(source, each.number)) + offset)
        end = aligned(end + info.tensor.nbytes, alignment)
    return infos


def _header(container: Gguf, metadata: bytes, keys: int, infos: Sequence[bytes]) -> bytes:
    order = container.byteorder
    header = b"".join(
        (
            MAGIC,
            container.version.to_bytes(TYPE_SIZE, order),
            len(infos).to_bytes(COUNT_SIZE, order),
            keys.to_bytes(COUNT_SIZE, order),
            metadata,
            *infos,
        )
    )
    # No reader would take it ("Limits").
    refuse_long(len(header), MAX_JSON, "header", "header")
    return header


def _check_padding(header: bytes, parts: Sequence[WrittenTensor], alignment: int) -> None:
    """Refuse an alignment that makes a huge file of a few tensors."""
    sizes = [len(header), *(part.nbytes for part in parts)]
    # An alignment of 2 GiB is a power of two as well.
    padding = sum(-size % alignment for size in sizes)
    if padding > ZEROS_ALLOWANCE + sum(sizes):
        raise FormatError(
            f"alignment {alignment} would need {padding} bytes of padding",
            kind="limit",
            field="padding",
        )


def _info(placed: PlacedEntry) -> Info:
    return _source(placed).infos[placed.number]


def _source(placed: PlacedEntry) -> Gguf:
    return cast(Gguf, placed.source)
