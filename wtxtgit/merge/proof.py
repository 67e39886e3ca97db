"""What makes entries the same, and the proof that a merged file holds what it has to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from wtxtgit import containers
from wtxtgit.containers import Container, Resealer
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.merge import values as metadata
from wtxtgit.merge.kinds import kind_of
from wtxtgit.merge.side import Key
from wtxtgit.model.entries import Content, Entry, Placed
from wtxtgit.model.reading import ReadOptions, Tensor
from wtxtgit.tensors.compare import as_numbers, equal_bytes, is_same


class Opener(Protocol):
    """Opens files in files, so many bytes of them."""

    options: ReadOptions

    def opened(self, entry: Entry) -> memoryview:
        """The content of a file; raises FormatError."""


def is_same_entry(a: Entry, b: Entry, opener: Opener) -> bool:
    """Whether two entries hold the same, whatever form it has; raises FormatError."""
    if kind_of(a) != kind_of(b):
        return False
    if a.stored is not None and b.stored is not None and a.form == b.form:
        if equal_bytes(a.stored, b.stored):
            return True
        if a.tensor is not None and a.tensor.strides is None:
            return False
    if a.tensor is not None and b.tensor is not None:
        if a.tensor.absent is not None or b.tensor.absent is not None:
            # Its form is all that a file knows of a tensor whose bytes are elsewhere.
            return a.form == b.form
        return _same_items(a.tensor, b.tensor)
    if a.unread is not None or b.unread is not None:
        return False
    return equal_bytes(opener.opened(a), opener.opened(b))


def prove(
    data: ByteView,
    resealer: Resealer,
    placed: Sequence[tuple[Key, Placed]],
    sources: Mapping[int, Sequence[Entry]],
    values: Mapping[str, object],
    opener: Opener,
) -> Container:
    """Read again what was merged; raises FormatError unless it is what it has to be.

    `sources` has the entries of each file that something was taken from, by
    the file's id().
    """
    for problem in containers.check(data, opener.options).errors:
        raise FormatError(f"what was merged does not hold: {problem}")
    container = containers.read(data)
    written = resealer.entries(container, opener.options)
    if [entry.name for entry in written] != [key[0] for key, _ in placed]:
        raise FormatError("what was merged does not hold what it should", field="entries")
    for entry, (key, one) in zip(written, placed, strict=True):
        wanted = sources[id(one.source)][one.number]
        if entry.form != wanted.form or not _holds(entry, wanted, one.content, opener):
            raise FormatError(f"{key[0]!a} would not be what was merged", field="entries")
    if not metadata.is_same(resealer.values(container, opener.options), values):
        raise FormatError("the metadata would not be what was merged", field="metadata")
    return container


def _holds(entry: Entry, wanted: Entry, content: Content | None, opener: Opener) -> bool:
    """Whether an entry that was written holds what was wanted of it."""
    if kind_of(entry) != kind_of(wanted):
        return False
    if content is not None:
        held = opener.opened(entry) if entry.tensor is None else entry.tensor.data
        return _is_made_of(held, content.blocks())
    if entry.unread is not None and entry.stored is not None and wanted.stored is not None:
        return equal_bytes(entry.stored, wanted.stored)
    return is_same_entry(entry, wanted, opener)


def _same_items(a: Tensor, b: Tensor) -> bool:
    x, y = as_numbers(a), as_numbers(b)
    return is_same(x or a, y or b, lambda _count: None)


def _is_made_of(data: memoryview, blocks: Iterable[Buffer]) -> bool:
    at = 0
    for block in blocks:
        piece = memoryview(block).cast("B")
        if not equal_bytes(data[at : at + len(piece)], piece):
            return False
        at += len(piece)
    return at == len(data)
