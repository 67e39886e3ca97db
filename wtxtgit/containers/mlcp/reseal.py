"""Rewriting an MLCP file with other tensors, or other values in its metadata.

Spec: `docs/spec/mlcp.md`, "Resealing"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from wtxtgit.containers import json_text
from wtxtgit.containers.budget import refuse_many
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.mlcp import metadata, write
from wtxtgit.containers.mlcp.metadata import SHARDS, SourceRecord
from wtxtgit.containers.mlcp.read import Mlcp, Placement, describe, shard_list
from wtxtgit.containers.mlcp.write import ShardPiece
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, exactly, pieces
from wtxtgit.model.tensor import Entry, NewContent, PlacedEntry, ReadOptions, Tensor


def entries(container: Mlcp, options: ReadOptions) -> list[Entry]:
    """Return the tensors of a file, with or without bytes, in the order of its records."""
    tensors = describe(container, options).tensors
    return [
        Entry(tensor.name, row.kind, container.data[stored.start : stored.end], tensor)
        for tensor, row, stored in zip(
            tensors, metadata.rows_of(container), container.tensors(), strict=True
        )
    ]


def values(container: Mlcp, options: ReadOptions) -> dict[str, object]:
    """Return the metadata without what follows from tensors, versions and the time of writing."""
    return metadata.merged_values(container)


def rest(container: Mlcp, options: ReadOptions) -> dict[str, object]:
    """Return what the metadata say of shards and tensors that differs from their records."""
    return dict(metadata.unlike_records(container))


def reseal(
    container: Mlcp,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """Yield the bytes of the file with these tensors, and these values if given.

    If only bytes of tensors change, they are changed in place. Raises FormatError before yielding
    anything.
    """
    files = _Sources(options)
    own = metadata.merged_values(container)
    new_values = own if values is None else values
    chosen = [files.chosen(container, entry) for entry in placed]
    shards = {choice.row.record.shard for choice in chosen if choice.content is not None}
    is_same = new_values == own and files.have_same_rows(container, chosen)
    # A checksum of changed bytes has to be removed, which changes the metadata.
    if is_same and not _have_checksums(container, shards):
        return _in_place(container, chosen)
    return _anew(container, chosen, new_values)


@dataclass(frozen=True, slots=True, eq=False)
class _ChosenTensor:
    """A tensor of the file being written: its record, and its bytes, from `content` or `tensor`.

    `number` is its place in the file, if it keeps its own bytes.
    """

    row: SourceRecord
    tensor: Tensor
    content: NewContent | None
    number: int | None


class _Sources:
    """The files from which tensors are taken, each listed once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._files: dict[int, list[tuple[SourceRecord, Tensor]]] = {}

    def of(self, container: object) -> list[tuple[SourceRecord, Tensor]]:
        if id(container) not in self._files:
            if not isinstance(container, Mlcp):
                raise FormatError("entries belong to another format", field="entries")
            tensors = describe(container, self._options).tensors
            pairs = zip(metadata.rows_of(container), tensors, strict=True)
            self._files[id(container)] = list(pairs)
        return self._files[id(container)]

    def chosen(self, container: Mlcp, placed: PlacedEntry) -> _ChosenTensor:
        row, tensor = self.of(placed.source)[placed.number]
        content = placed.content
        if content is not None:
            row = replace(row, is_changed=True)
            if content.nbytes != tensor.nbytes:
                has = f"tensor {quoted(tensor.name)} has {tensor.nbytes} bytes in the file"
                raise FormatError(f"{has}, not {content.nbytes}", field="entries")
        is_own = content is None and placed.source is container
        if content is None and not is_own:
            content = NewContent(tensor.nbytes, partial(pieces, tensor.view))
        number = placed.number if is_own else None
        return _ChosenTensor(row, tensor, content if tensor.nbytes else None, number)

    def have_same_rows(self, container: Mlcp, chosen: Sequence[_ChosenTensor]) -> bool:
        """Whether the tensors are those of the file, in its order, apart from their bytes."""
        own = [(row.record.name, row.kind, tensor.nbytes) for row, tensor in self.of(container)]
        chosen_rows = [
            (choice.row.record.name, choice.row.kind, choice.tensor.nbytes) for choice in chosen
        ]
        places = enumerate(choice.number for choice in chosen)
        return own == chosen_rows and all(number in (None, place) for place, number in places)


def _in_place(container: Mlcp, chosen: Sequence[_ChosenTensor]) -> Iterator[Buffer]:
    """Yield the file with other bytes of its own tensors, and otherwise unchanged."""
    data, placement = container.data, container.body.placement
    parts: list[ShardPiece] = []
    reached = container.header_end
    for stored, one in zip(container.tensors(), chosen, strict=True):
        if one.content is not None:
            parts.append(_kept(data[reached : stored.start]))
            parts.append(_new_piece(one.tensor, one.content))
            reached = stored.end
    if not parts:
        return pieces(data)
    parts.append(_kept(data[reached:]))
    write.refuse_misread(parts, len(shard_list(container.metadata)), placement)
    return write.bytes_of([_kept(data[: container.header_end]), *parts])


def _anew(
    container: Mlcp, chosen: Sequence[_ChosenTensor], values: Mapping[str, object]
) -> Iterator[Buffer]:
    """Yield the file with its records, and what the metadata say of them, rewritten."""
    refuse_many(len(chosen), MAX_TENSORS, "tensors", "records")
    # A stable sort: within a shard the given order stays ("Resealing").
    ordered = sorted(chosen, key=lambda choice: choice.row.record.shard)
    placement = _placement(container, ordered)
    rows = [choice.row for choice in ordered]
    metadata_json = metadata.updated(container, rows, values, placement)
    stated = json_text.parse(memoryview(metadata_json), "metadata")
    head = write.header(container.version, metadata_json)
    shard_count = _shard_count(container, rows, stated)
    body = write.body_pieces([_new_record(choice) for choice in ordered], shard_count, placement)
    if not _have_no_bytes(ordered):
        last = ordered[-1]
        if last.row.record.shard + 1 == shard_count and _have_no_bytes(ordered[:-1]):
            # The bytes are the same in any placement.
            placement = Placement.AFTER_EACH
        write.refuse_misread(body, len(shard_list(stated)), placement)
    return write.bytes_of([ShardPiece.fixed(head), *body])


def _placement(container: Mlcp, chosen: Sequence[_ChosenTensor]) -> Placement:
    """Return the placement of the bytes: the file's own, else that of the file they come from."""
    files = (container, *(choice.row.container for choice in chosen))
    placement = next(
        (file.body.placement for file in files if file.body.placement is not Placement.NOWHERE),
        Placement.NOWHERE,
    )
    for choice in chosen:
        if placement is not Placement.NOWHERE and choice.tensor.nbytes != choice.row.record.size:
            name = quoted(choice.tensor.name)
            raise FormatError(
                f"tensor {name} has no bytes in its file, but other tensors do", field="entries"
            )
    return placement


def _have_no_bytes(chosen: Sequence[_ChosenTensor]) -> bool:
    return not any(choice.tensor.nbytes for choice in chosen)


def _shard_count(container: Mlcp, rows: Sequence[SourceRecord], metadata: object) -> int:
    """Return how many shards there are, adjusted by how many more or fewer the metadata list."""
    most = rows[-1].record.shard + 1 if rows else 0
    was, now = (
        stated.get(SHARDS) if isinstance(stated, dict) else None
        for stated in (container.metadata, metadata)
    )
    if not isinstance(was, list) or not isinstance(now, list):
        return max(container.body.shard_count, most, len(shard_list(metadata)))
    count = max(container.body.shard_count + len(now) - len(was), 0)
    if most > count:
        raise FormatError(
            f"tensor {quoted(rows[-1].record.name)} is in shard {most - 1}, but there are only "
            f"{count} shards",
            field="entries",
        )
    return count


def _have_checksums(container: Mlcp, shards: set[int]) -> bool:
    """Whether the metadata have a checksum of one of these shards, which would become wrong."""
    if container.body.placement is Placement.NOWHERE:
        return False
    shards_listed = shard_list(container.metadata)
    items = [shards_listed[number] for number in shards if number < len(shards_listed)]
    return any(isinstance(item, dict) and item.get(metadata.CHECKSUM) is not None for item in items)


def _new_record(choice: _ChosenTensor) -> write.NewRecord:
    record, piece = choice.row.record, _kept(choice.tensor.view)
    raw = bytes(choice.row.container.data[record.start : record.end])
    if choice.content is not None:
        piece = _new_piece(choice.tensor, choice.content)
    return write.NewRecord(record.shard, raw, piece)


def _kept(raw: ByteView) -> ShardPiece:
    return ShardPiece(len(raw), partial(pieces, raw))


def _new_piece(tensor: Tensor, content: NewContent) -> ShardPiece:
    name = f"tensor {quoted(tensor.name)}"
    return ShardPiece(
        content.nbytes, lambda: exactly(content.blocks(), content.nbytes, name, "entries")
    )
