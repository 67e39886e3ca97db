"""What differs between two files besides tensors and metadata: parts, and bytes of no part."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from wtxtgit.checkpoint.contents import Checkpoint, Side
from wtxtgit.containers.leftovers import Leftover, Leftovers, leftovers
from wtxtgit.containers.registry import detected, stored_whole
from wtxtgit.errors import MAX_NAME, FormatError, clipped
from wtxtgit.io.view import ByteView, same_bytes
from wtxtgit.model.tensor import Key, ReadOptions, keys_of
from wtxtgit.report.diff import PartChange, TensorStatus

MOST_PARTS = 1000
"""The most changes that are listed."""
_OF_ALL = PartChange(None, TensorStatus.CHANGED, None, None, None)
_NONE = ("", 0)
_NUMBER = re.compile("[0-9]{1,12}")
_GAPS = "gaps"
"""The name under which a file's rest has a hash of bytes of no part."""
_FINGERPRINT = re.compile(r"/\.data/serialization_id$")
_FINGERPRINT_SIZE = 40
_DIGITS = re.compile(rb"[0-9]+")
"""torch's fingerprint of a file, which is new in each save and tells nothing by itself."""


def part_changes(
    before: tuple[Side, Checkpoint] | None,
    after: tuple[Side, Checkpoint] | None,
    options: ReadOptions,
) -> list[PartChange]:
    """Compare what two files (None for no file) hold besides what the rest of a diff compares."""
    same = frozenset() if before is None or after is None else frozenset(_same(before, after))
    old, new = (
        _of_side(*one, options, same) if one is not None else Leftovers() for one in (before, after)
    )
    folder = list(_folder_change(old, new))
    if old.folder and new.folder:
        old = old.in_folder(new.folder)
    changes = [
        *folder,
        *_named(old.listed, new.listed),
        *_nobodys(old.listed, new.listed),
    ][:MOST_PARTS]
    if before is not None and after is not None:
        lists = (tuple(tensor.name for tensor in one.tensors) for _, one in (before, after))
        changes += _of_all(old, new, *lists)
        changes += islice(_of_documents(old, new), MOST_PARTS)
    return changes


def _folder_change(old: Leftovers, new: Leftovers) -> Iterator[PartChange]:
    """Yield the change of the name of torch's folder; different numbers in it tell nothing.

    torch takes it from the name of the file when that is saved.
    """
    names = [_NUMBER.sub("0", one.folder) for one in (old, new)]
    if all(names) and names[0] != names[1]:
        was = f"the folder of all members was named {clipped(old.folder, MAX_NAME)}"
        yield PartChange(new.folder, TensorStatus.CHANGED, None, None, None, form=was)


def _of_all(
    old: Leftovers, new: Leftovers, listed_before: Sequence[str], listed_after: Sequence[str]
) -> Iterator[PartChange]:
    """Yield what is said of many parts or tensors at once."""
    methods = _of_common(old.methods, new.methods)
    pairs = _of_common(old.orders, new.orders)
    orders = ((listed_before, listed_after), *pairs)
    if count := sum(was != now for was, now in methods):
        yield replace(_OF_ALL, recompressed=count)
    if count := max(_out_of_place(was, now) for was, now in orders):
        yield replace(_OF_ALL, reordered=count)
    if count := sum(was != now for was, now in _of_common(old.shards, new.shards)):
        yield replace(_OF_ALL, moved=count)
    beyond = (
        dict(zip(keys_of(n for n, _ in one.extents), one.extents, strict=True))
        for one in (old, new)
    )
    was, now = beyond
    if count := sum(was.get(key, _NONE)[1] != now.get(key, _NONE)[1] for key in {*was, *now}):
        yield replace(_OF_ALL, oversized=count)


def _of_documents(old: Leftovers, new: Leftovers) -> Iterator[PartChange]:
    """Yield what differs in how documents are written, besides their values."""
    known = {document.name: document for document in old.documents}
    for one in new.documents:
        before = known.get(one.name)
        if before is None or (before.raw == one.raw and same_bytes(before.stored, one.stored)):
            continue
        from wtxtgit.containers.spelling import difference  # mostly there is none

        how = difference(before, one)
        if how is not None:
            sizes = len(before.stored), len(one.stored)
            yield PartChange(one.name, TensorStatus.CHANGED, None, *sizes, form=how)


T = TypeVar("T")


def _of_common(old: Sequence[tuple[str, T]], new: Sequence[tuple[str, T]]) -> Iterator[tuple[T, T]]:
    """Yield both values of each name that both sides have."""
    was, now = (
        dict(zip(keys_of(name for name, _ in side), (value for _, value in side), strict=True))
        for side in (old, new)
    )
    yield from ((was[key], value) for key, value in now.items() if key in was)


def _out_of_place(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many of the names that both sides have stand at another place among these."""
    was, now = list(keys_of(old)), list(keys_of(new))
    if was == now:
        return 0
    both = set(was) & set(now)
    pairs = zip((k for k in was if k in both), (k for k in now if k in both), strict=True)
    return sum(a != b for a, b in pairs)


def file_of(side: Side) -> ByteView:
    """Return the bytes of the file that a side is or stands for."""
    text = side.text
    return text.view if text is not None and text.is_container else side.data


def rest_of(side: Side, metadata: object, options: ReadOptions) -> dict[str, object]:
    """Return, by name, what else somebody may have changed in a file, such as reserved fields.

    It is what a merge leaves as it is: `docs/merge.md`. Left out are bytes of no part, which
    `part_changes` compares, and what stands in `metadata`. Raises FormatError.
    """
    return {
        name: value
        for name, value in _rest(file_of(side), options).items()
        if name != _GAPS and not _has(metadata, name.split("/")[1:])
    }


def _rest(data: ByteView, options: ReadOptions) -> dict[str, object]:
    known = detected(data)
    if known is not None:
        return {} if known.rest is None else known.rest().rest(known.read().read(data), options)
    known = stored_whole(data)
    if known is None or known.whole is None or known.rest_whole is None:
        return {}
    return known.rest_whole().rest(known.whole().read(data), options)


def _has(value: object, keys: list[str]) -> bool:
    """Whether plain data have a value at a path, which is not empty."""
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return bool(keys)


def _same(before: tuple[Side, Checkpoint], after: tuple[Side, Checkpoint]) -> Iterator[str]:
    """Yield the names of chunks with files that are stored as the same bytes on both sides."""
    was, now = (
        {chunk.name: (file_of(side), chunk) for chunk in one.nested}
        for side, one in (before, after)
    )
    for name in was.keys() & now.keys():
        stored = [
            data[one.start : one.start + one.stored]
            for data, one in (was[name], now[name])
            if one.start is not None
        ]
        if len(stored) == 2 and same_bytes(stored[0], stored[1]):
            yield name


def _of_side(
    side: Side, checkpoint: Checkpoint, options: ReadOptions, same: Collection[str]
) -> Leftovers:
    """Return what a side holds, without the insides of chunks that are the `same` on both."""
    if side.text is not None and not side.text.is_container:
        return Leftovers()
    inside = checkpoint.metadata.get("in chunks")
    # Chunks whose values or tensors are compared elsewhere.
    elsewhere = {chunk.name for chunk in checkpoint.nested}
    elsewhere.update(inside if isinstance(inside, dict) else ())
    data = file_of(side)
    leftover = _without(data, leftovers(data, options), elsewhere)
    for chunk in checkpoint.nested:
        if chunk.name in same:
            continue
        # Why a file in a chunk can't be read is told elsewhere.
        with suppress(FormatError):
            inner = chunk.open()
            leftover = leftover.joined(_without(inner, leftovers(inner, options)), chunk.name)
    return leftover


def _without(data: ByteView, leftover: Leftovers, elsewhere: Collection[str] = ()) -> Leftovers:
    """Leave out parts that are told elsewhere, and what tells nothing."""
    listed = (
        one
        for one in leftover.listed
        if one.name is None or not (one.name in elsewhere or _is_fingerprint(data, one, one.name))
    )
    return replace(leftover, listed=tuple(listed))


def _is_fingerprint(data: ByteView, one: Leftover, name: str) -> bool:
    # The size first: what is not a fingerprint may be of any size.
    return (
        one.nbytes == _FINGERPRINT_SIZE
        and bool(_FINGERPRINT.search(name))
        and bool(_DIGITS.fullmatch(bytes(data[one.offset : one.offset + one.nbytes])))
    )


def _named(old: Sequence[Leftover], new: Sequence[Leftover]) -> Iterator[PartChange]:
    was, now = _keyed(old), _keyed(new)
    for key in [*now, *(key for key in was if key not in now)]:
        a, b = was.get(key), now.get(key)
        if a is not None and b is not None and a.digest == b.digest:
            continue
        yield _change(key[0], a, b)


def _keyed(listed: Sequence[Leftover]) -> dict[Key, Leftover]:
    named = [one for one in listed if one.name is not None]
    return dict(zip(keys_of(one.name or "" for one in named), named, strict=True))


def _nobodys(old: Sequence[Leftover], new: Sequence[Leftover]) -> Iterator[PartChange]:
    """Yield bytes that belong to no part and that only one side has, at whatever position."""
    was, now = (
        Counter((one.within, one.digest, one.nbytes) for one in side if one.name is None)
        for side in (old, new)
    )
    come, gone = now - was, was - now
    for side, left in ((new, come), (old, gone)):
        for one in side:
            key = one.within, one.digest, one.nbytes
            if one.name is None and left[key]:
                left[key] -= 1
                yield _change(None, *((None, one) if side is new else (one, None)))


def _change(name: str | None, a: Leftover | None, b: Leftover | None) -> PartChange:
    one = b or a
    status = TensorStatus.CHANGED
    if a is None or b is None:
        status = TensorStatus.ADDED if a is None else TensorStatus.REMOVED
    return PartChange(
        name,
        status,
        None if one is None else one.offset,
        None if a is None else a.nbytes,
        None if b is None else b.nbytes,
        are_zeros=True if one is not None and one.is_zeros else None,
        within=None if one is None else one.within,
    )


def looks_like(data: ByteView, change: PartChange) -> str | None:
    """Return the format whose magic starts bytes that belong to no part; None if there is none."""
    if change.name is not None or change.offset is None or change.after is None or change.within:
        return None
    known = detected(data[change.offset : change.offset + change.after])
    return None if known is None else known.name
