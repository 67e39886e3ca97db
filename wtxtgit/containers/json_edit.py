"""JSON texts in which some values are others, and all else is spelled as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from wtxtgit.errors import FormatError

Path = tuple[str | int, ...]
"""Where a value is: keys of objects and numbers in lists, from the outside in."""

_Found = list[tuple[int, int, str]]
"""Where a value starts and ends, and the text that takes its place."""
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class _Text:
    """What takes a value's place."""

    text: str


_Tree = dict[str | int, "_Tree | _Text"]


def replaced(text: str, edits: Mapping[Path, object]) -> str:
    """The text with the values at these places replaced; none is inside another.

    `text` is one that `json_limits.parse` has read. Of equal keys the last one
    counts, as it does there. Raises FormatError for a place that is not there.
    """
    tree: _Tree = {}
    for path, value in edits.items():
        _plant(tree, path, _Text(json.dumps(value)))
    found: _Found = []
    _find(text, _skip(text, 0), tree, found)
    if len(found) != len(edits):
        raise FormatError("JSON text lacks a value that is replaced")
    pieces, pos = [], 0
    for start, end, new in sorted(found):
        pieces += [text[pos:start], new]
        pos = end
    return "".join([*pieces, text[pos:]])


def _plant(tree: _Tree, path: Path, new: _Text) -> None:
    *outer, last = path
    for key in outer:
        inner = tree.setdefault(key, {})
        if isinstance(inner, _Text):
            raise FormatError("JSON text is replaced inside of what is replaced")
        tree = inner
    tree[last] = new


def _find(text: str, pos: int, tree: _Tree | _Text | None, found: _Found) -> int:
    """Where the value at `pos` ends; `found` is given what is replaced in it."""
    if not isinstance(tree, dict) or text[pos] not in "{[":
        _, end = _DECODER.raw_decode(text, pos)
        if isinstance(tree, _Text):
            found.append((pos, end, tree.text))
        return end
    is_object = text[pos] == "{"
    last: dict[str | int, _Found] = {}
    pos, number = _skip(text, pos + 1), 0
    while text[pos] not in "}]":
        key: str | int = number
        if is_object:
            key, pos = _DECODER.raw_decode(text, pos)
            pos = _skip(text, _skip(text, pos) + 1)
        inner: _Found = []
        pos = _skip(text, _find(text, pos, tree.get(key), inner))
        if key in tree:
            last[key] = inner
        if text[pos] == ",":
            pos = _skip(text, pos + 1)
        number += 1
    for inner in last.values():
        found += inner
    return pos + 1


def _skip(text: str, pos: int) -> int:
    """Where what is no space starts."""
    space = _SPACE.match(text, pos)
    return pos if space is None else space.end()
