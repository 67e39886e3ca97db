"""What checkpoints say of themselves beside their tensors, and how two differ in it.

What only tells where bytes stand, how many there are and what they hash to is
left out: it changes with every tensor, and is not what anybody wrote down.
"""

from __future__ import annotations

from collections.abc import Iterator

from wtxtgit import containers
from wtxtgit.containers.format import ANY
from wtxtgit.errors import FormatError, clipped
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import Description, ReadOptions
from wtxtgit.report.diff import MetadataChange, Status
from wtxtgit.text.index import TextIndex

MAX_CHANGES = 1000
"""Changes that are told."""
MAX_VALUE = 200
"""Characters of a string that are told."""
_ABSENT = object()


def metadata_of(
    data: ByteView, description: Description, options: ReadOptions
) -> dict[str, object]:
    """A container's metadata, that of files and of JSON in its chunks included."""
    found: dict[str, object] = dict(description.metadata)
    known = containers.by_name(description.format)
    if known is not None:
        is_set = description.format == known.set_name
        for path in known.derived_of_set if is_set else known.derived:
            found = _without(found, path)  # type: ignore[assignment]
        if known.tags_apart:
            found["tags"] = description.tags
    inner: dict[str, object] = {}
    for chunk in description.nested:
        try:
            tags = containers.describe(chunk.open(), options).tags
        except FormatError:
            # Why a chunk has no tensors is told elsewhere.
            continue
        if tags:
            inner[chunk.name] = tags
    if known is not None and known.chunk_values is not None:
        inner.update(known.chunk_values().chunk_values(data, options))
    if inner:
        found["in chunks"] = inner
    return found


def native_metadata(index: TextIndex) -> dict[str, object]:
    """What a native text says of its generation."""
    meta = index.meta
    found: dict[str, object] = {
        key: getattr(meta, key) for key in ("schema", "gen", "ts", "build", "host", "cuda")
    }
    if index.audit is not None:
        found["audit"] = index.audit
    return found


def changes(before: object, after: object) -> tuple[list[MetadataChange], bool]:
    """How two values of plain data differ, leaf by leaf; and whether that is all of it."""
    found: list[MetadataChange] = []
    for change in _walk("", before, after):
        if len(found) == MAX_CHANGES:
            return found, False
        found.append(change)
    return found, True


def _walk(path: str, before: object, after: object) -> Iterator[MetadataChange]:
    """Differences in order of their paths; depth is that of what the readers let in."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            below = f"{path}/{_escaped(str(key))}"
            yield from _walk(below, before.get(key, _ABSENT), after.get(key, _ABSENT))
        return
    if isinstance(before, list) and isinstance(after, list):
        for n in range(max(len(before), len(after))):
            old = before[n] if n < len(before) else _ABSENT
            new = after[n] if n < len(after) else _ABSENT
            yield from _walk(f"{path}/{n}", old, new)
        return
    if _is_same(before, after):
        return
    if before is _ABSENT:
        yield from _leaves(path, after, Status.ADDED)
    elif after is _ABSENT:
        yield from _leaves(path, before, Status.REMOVED)
    elif _is_leaf(before) and _is_leaf(after):
        yield MetadataChange(path, Status.CHANGED, _shown(before), _shown(after))
    else:
        yield from _leaves(path, before, Status.REMOVED)
        yield from _leaves(path, after, Status.ADDED)


def _leaves(path: str, value: object, kind: Status) -> Iterator[MetadataChange]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(f"{path}/{_escaped(str(key))}", item, kind)
    elif isinstance(value, list | tuple) and value:
        for n, item in enumerate(value):
            yield from _leaves(f"{path}/{n}", item, kind)
    elif kind is Status.ADDED:
        yield MetadataChange(path, kind, after=_shown(value))
    else:
        yield MetadataChange(path, kind, before=_shown(value))


def _is_leaf(value: object) -> bool:
    return not isinstance(value, dict | list | tuple) or not value


def _is_same(before: object, after: object) -> bool:
    if type(before) is not type(after):
        return False
    # NaN is what it was.
    return before is after or before == after or (before != before and after != after)


def _shown(value: object) -> object:
    if isinstance(value, str):
        return clipped(value, MAX_VALUE)
    if isinstance(value, bytes):
        return clipped(value.hex(), MAX_VALUE)
    return value


def _escaped(key: str) -> str:
    """A key in a JSON pointer (RFC 6901, section 3)."""
    return clipped(key, MAX_VALUE).replace("~", "~0").replace("/", "~1")


def _without(value: object, path: tuple[str, ...]) -> object:
    """The value without what is at a path; nothing is changed in place."""
    head, rest = path[0], path[1:]
    if head == ANY:
        return [_without(item, rest) for item in value] if isinstance(value, list) else value
    if not isinstance(value, dict) or head not in value:
        return value
    if not rest:
        return {key: item for key, item in value.items() if key != head}
    return {**value, head: _without(value[head], rest)}
