"""Files that are taken apart and put together again, whatever their format is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from wtxtgit.containers import any_format, registry
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import Entry, NewContent, PlacedEntry, ReadOptions

OPTIONS = ReadOptions()


def opened(data: bytes) -> Any:
    """The file as its format reads it."""
    return any_format.read(memoryview(data))


def resealer(container: Any) -> Any:
    """The module that reseals files of the format, whose package the container's class is in."""
    known = registry.by_name(type(container).__module__.split(".")[2])
    assert known is not None
    assert known.reseal is not None
    return known.reseal()


def resealed(
    container: Any,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None = None,
    options: ReadOptions = OPTIONS,
) -> bytes:
    """The file with these entries and, where they are given, these values."""
    return b"".join(resealer(container).reseal(container, placed, values, options))


def refused(
    container: Any,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None = None,
    options: ReadOptions = OPTIONS,
) -> FormatError:
    """The error, which comes before the first piece."""
    with pytest.raises(FormatError) as caught:
        resealer(container).reseal(container, placed, values, options)
    return caught.value


def content(raw: bytes) -> NewContent:
    """New bytes of an entry, in blocks of odd sizes."""
    step = 7 if len(raw) < 1000 else (1 << 16) - 1

    def blocks() -> Iterator[Buffer]:
        for start in range(0, len(raw), step):
            yield memoryview(raw)[start : start + step]

    return NewContent(len(raw), blocks)


def own(
    source: object, count: int, contents: Mapping[int, bytes] | None = None
) -> list[PlacedEntry]:
    """All entries of a file, some of them with other bytes."""
    return changed([PlacedEntry(source, number) for number in range(count)], contents or {})


def own_by_name(
    source: Any, contents: Mapping[str, bytes] | None = None, options: ReadOptions = OPTIONS
) -> list[PlacedEntry]:
    """All entries of a file, those of these names with other bytes."""
    names = [entry.name for entry in resealer(source).entries(source, options)]
    assert (contents or {}).keys() <= set(names)
    named = {n: (contents or {})[name] for n, name in enumerate(names) if name in (contents or {})}
    return own(source, len(names), named)


def changed(placed: Sequence[PlacedEntry], contents: Mapping[int, bytes]) -> list[PlacedEntry]:
    """The same entries, some of them with other bytes."""
    return [
        PlacedEntry(each.source, each.number, content(contents[n])) if n in contents else each
        for n, each in enumerate(placed)
    ]


def inverted(raw: bytes | memoryview) -> bytes:
    """As many other bytes."""
    return bytes(byte ^ 0xFF for byte in raw)


def file_of(entry: Entry) -> bytes:
    """The content of an entry that is a file."""
    assert entry.file is not None, entry.unread
    return bytes(entry.file if isinstance(entry.file, memoryview) else entry.file.open())
