"""The complete values of a GGUF file's metadata: a text as it is, all others as JSON.

Spec: `docs/spec/gguf.md`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial

from wtxtgit.containers.cursor import Cursor
from wtxtgit.containers.gguf.read import (
    ARRAY,
    COUNT_SIZE,
    STRING,
    Gguf,
    KeyValue,
    decode,
    read_array_head,
)
from wtxtgit.io.view import Buffer, pieces
from wtxtgit.model.tensor import NamedPart, ReadOptions

_TOGETHER = 1000
"""Items of an array that are formatted as one piece."""


def named_parts(container: Gguf, options: ReadOptions) -> Iterator[NamedPart]:
    """Yield the metadata by key."""
    entries = container.entries
    ends = [entry.offset for entry in entries[1:]] + [container.infos_end]
    for entry, end in zip(entries, ends, strict=True):
        blocks = partial(_content, container, entry)
        yield NamedPart(entry.key, entry.start, max(end - entry.start, 0), blocks)


def _content(container: Gguf, entry: KeyValue) -> Iterator[Buffer]:
    cursor = container.cursor(entry.start)
    if entry.value_type == STRING:
        yield from pieces(cursor.take(cursor.integer(COUNT_SIZE, "string length"), "string"))
        return
    for text in _spelled(cursor, entry.value_type):
        yield text.encode()
    yield b"\n"


def _spelled(cursor: Cursor, value_type: int) -> Iterator[str]:
    """Yield the value at the cursor as JSON; a vocabulary is never held as a whole."""
    if value_type != ARRAY:
        yield _json(decode(cursor, value_type))
        return
    item_type, count = read_array_head(cursor)
    lead = "["
    for start in range(0, count, _TOGETHER):
        items = (_spelled(cursor, item_type) for _ in range(min(_TOGETHER, count - start)))
        yield lead + ", ".join(map("".join, items))
        lead = ", "
    yield "[]" if count == 0 else "]"


def _json(value: object) -> str:
    # JSON has no word for these numbers.
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(str(value))
    return json.dumps(value)
