"""What a torch file holds: its tensors, where their bytes are, and everything else.

The content of its pickle is summarised by a hash that does not depend on its opcodes or on the keys
of its storages. Two pickles have the same hash if they make the same value from the same parts:
texts and numbers count by value, everything else by its place in the value and by where it is
referred to again. Storages count by the order in which they are named; their devices do not count.
Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from wtxtgit.containers import zip_read
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.torch import PICKLE, overlay, zip_layout
from wtxtgit.containers.torch.items import FRAME
from wtxtgit.containers.torch.overlay import TensorSpan
from wtxtgit.containers.torch.pickle_read import (
    FLOAT,
    CallResult,
    Dict,
    Global,
    List,
    LongInteger,
    Pickle,
)
from wtxtgit.containers.torch.pickle_read import Set as PickledSet
from wtxtgit.containers.torch.read import (
    ALIGNMENT,
    BYTEORDER,
    MAX_WORD,
    SERIALIZATION_ID,
    STORAGE,
    Torch,
)
from wtxtgit.containers.torch.sources import FileContents
from wtxtgit.containers.torch.views import PACKED, Storage, View
from wtxtgit.containers.zip_read import ZipMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, hashed, mapped, pieces
from wtxtgit.model.tensor import ReadOptions, Tensor

ID_DIGITS = 20
"""Digits of each of the two numbers in a file's fingerprint."""
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B9
FROM_LAYOUT = frozenset({ALIGNMENT, SERIALIZATION_ID})
"""Members that say how the file is written, or that identify it."""
OUTSIDE = "../"
"""Prefix of shown names of members outside of the folder."""
# Bytes that are collected before they are hashed: most values are a few bytes long.
FLUSH = 1 << 16
_NUMBER = 8
"""Size in bytes of a count or a number."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor's bytes are: a range of the content of a member."""

    member: ZipMember
    span: TensorSpan


class TorchContents(FileContents):
    """The tensors of a zip, and the place of each, None if it has no bytes."""

    container: Torch

    def __init__(self, container: Torch, options: ReadOptions) -> None:
        arrays = [array.listed(container.data) for array in container.arrays.values()]
        super().__init__(container, options, arrays)
        self._checked: set[int] = set()
        self.places: list[TensorPlace | None] = [
            _place(container, tensor, view)
            for tensor, (_, view) in zip(self.tensors, container.listing.tensors, strict=False)
        ]
        for number, array in container.arrays.items():
            member = container.directory.members[number]
            span = TensorSpan(array.start - member.start, array.end - member.start)
            self.places.append(TensorPlace(member, span) if span.end > span.start else None)

    def is_framed(self) -> bool:
        return FRAME in self.container.pickle.opcodes

    def refuse_damaged(self, number: int) -> None:
        place = self.places[number]
        if place is not None and place.member.entry not in self._checked:
            self._checked.add(place.member.entry)
            zip_layout.check_crc32(self.container, place.member, self.options)

    def values(self) -> dict[str, object]:
        """Return what the file holds besides its tensors, with hashes in place of long values.

        By the names of members below the folder: `data.pkl`, independent of the keys of storages;
        every member that is neither a storage nor an array; and for a storage `data/<n>`, if it has
        bytes in no tensor. n counts the storages that the pickle names; `data/-<key>` is one that
        it does not name. Raises FormatError if members share bytes.
        """
        container, options, items = self.container, self.options, self.items
        container.refuse_shared_bytes()
        content = partial(zip_read.content, container.data, container.pickle_member, MAX_JSON)
        by_name: dict[str, object] = {
            PICKLE: digest(container.pickle, lambda: mapped(content()), items.left_out),
            BYTEORDER: container.byteorder,
            **items.versions,
        }
        tensors = _members_of_tensors(container, items.storages)
        for member in container.directory.members:
            name = shown(container, member)
            is_told = member.entry in tensors or name in (PICKLE, BYTEORDER, *FROM_LAYOUT)
            if not is_told and not name.endswith("/"):
                blocks, size = _readable(container, member, options)
                by_name[name] = _short(blocks(), size)
        spans_of: dict[int, list[TensorSpan]] = {}
        for place in dict.fromkeys(self.places):
            if place is not None:
                spans_of.setdefault(place.member.entry, []).append(place.span)
        for entry, (name, member) in tensors.items():
            blocks, size = _readable(container, member, options)
            spans = spans_of.get(entry, [])
            overlay.refuse_bomb(spans, size)
            rest = overlay.uncovered(blocks, size, spans)
            if rest is not None:
                by_name[name] = rest
        return by_name


def _short(blocks: Iterable[Buffer], size: int) -> bytes:
    """Return a word or a number as it is, and the SHA-256 of anything longer."""
    if size <= MAX_WORD:
        return b"".join(blocks)
    return hashed(sha256(), blocks).digest()


def _members_of_tensors(container: Torch, of_items: Set[str]) -> dict[int, tuple[str, ZipMember]]:
    """Return storages and arrays, by entry, with the names that `values` has for them."""
    arrays = {
        container.directory.members[number].entry: container.directory.members[number]
        for number in container.arrays
    }
    named = {entry: (shown(container, member), member) for entry, member in arrays.items()}
    keys = dict.fromkeys(s.key for s in container.named if s.key not in of_items)
    numbers = {key: n for n, key in enumerate(keys)}
    for key, member in container.storages.items():
        name = f"{STORAGE}{numbers[key]}" if key in numbers else f"{STORAGE}-{key}"
        named[member.entry] = name, member
    return named


def shown(container: Torch, member: ZipMember) -> str:
    """Return the member's name below the folder."""
    is_inside = member.name.startswith(container.folder)
    return member.name.removeprefix(container.folder) if is_inside else OUTSIDE + member.name


def _readable(
    container: Torch, member: ZipMember, options: ReadOptions
) -> tuple[Callable[[], Iterator[Buffer]], int]:
    """Return a member's content and its size; if that can't be read, its payload."""
    try:
        zip_read.check_size(member, max(options.max_chunk, member.end - member.start))
    except FormatError:
        payload = container.data[member.start : member.end]
        return partial(pieces, payload), len(payload)
    return partial(container.blocks, member, options), member.size


def _place(container: Torch, tensor: Tensor, view: View) -> TensorPlace | None:
    if view.storage is None or tensor.nbytes == 0:
        return None
    return TensorPlace(container.storages[view.storage.key], span_of(view))


def span_of(view: View) -> TensorSpan:
    """Return which bytes of its storage are a tensor's."""
    is_packed = view.dtype in PACKED
    steps = None if is_packed else overlay.item_steps(view.shape, view.strides)
    return TensorSpan(*view.span(), steps, view.item)


def digest(
    pickle: Pickle, content: Callable[[], Buffer], left_out: Set[int] = frozenset()
) -> bytes:
    """Return the SHA-256 of the value of a pickle; `content` returns its bytes.

    The bytes count as well if they have an integer that was skipped. `left_out` are the ids of
    objects that are ignored in their dicts.
    """
    walk = _ValueWalk(left_out)
    walk.run(pickle.root)
    if walk.has_unknown:
        walk.add(b"*", sha256(content()).digest())
    return walk.finish()


class _ValueWalk:
    """A walk over a value that visits each object once, in the order of the pickle."""

    def __init__(self, left_out: Set[int]) -> None:
        self.left_out = left_out
        self.has_unknown = False
        self.hash = sha256()
        self.buffer = bytearray()
        self.left: list[object] = []
        self.met: dict[int, int] = {}
        self.texts: dict[int, int] = {}
        self.equal_texts: dict[str | bytes, int] = {}
        self.keys: dict[str, int] = {}

    def run(self, root: object) -> None:
        self.left.append(root)
        while self.left:
            self._value(self.left.pop())

    def add(self, word: bytes, *parts: bytes | int) -> None:
        self.buffer += word
        for part in parts:
            self.buffer += part.to_bytes(_NUMBER, "little") if isinstance(part, int) else part
        if len(self.buffer) >= FLUSH:
            self.hash.update(self.buffer)
            self.buffer.clear()

    def finish(self) -> bytes:
        self.hash.update(self.buffer)
        return self.hash.digest()

    def _value(self, value: object) -> None:
        match value:
            case None:
                self.add(b"N")
            case bool():
                self.add(b"T" if value else b"F")
            case int():
                raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
                self.add(b"i", len(raw), raw)
            case float():
                self.add(b"f", FLOAT.pack(value))
            case str() | bytes():
                self._text(value)
            case Storage():
                self._storage(value)
            case Global():
                self.add(b"g")
                self.left += (value.name, value.module)
            case ():
                self.add(b"t", 0)
            case _:
                self._object(value)

    def _text(self, text: str | bytes) -> None:
        """Add a text in full on its first occurrence; any number of places may refer to it."""
        number = self.texts.get(id(text))
        if number is None:
            # By value: a pickler may write a text again, or take it from its memo.
            number = self.equal_texts.setdefault(text, len(self.equal_texts))
            self.texts[id(text)] = number
            if number == len(self.equal_texts) - 1:
                raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
                self.add(b"b" if isinstance(text, bytes) else b"s", len(raw), raw)
                return
        self.add(b"=", number)

    def _storage(self, storage: Storage) -> None:
        # By the order of their first occurrence: keys are arbitrary.
        key = self.keys.setdefault(storage.key, len(self.keys))
        part = storage.part or ()
        self.add(b"P", key, storage.numel, len(part), *part)
        self.left.append(storage.dtype)

    def _object(self, value: object) -> None:
        if id(value) in self.met:
            self.add(b"@", self.met[id(value)])
            return
        self.met[id(value)] = len(self.met)
        match value:
            case tuple():
                self._children(b"t", value)
            case List():
                self._children(b"l", value.items)
            case PickledSet():
                self._children(b"e", value.items)
            case Dict():
                self._children(b"d", self._flat(value.pairs))
            case CallResult():
                self.add(b"m", len(value.states), len(value.items))
                pairs = self._flat(value.pairs)
                children = (
                    value.callee,
                    value.args,
                    value.kwargs,
                    *value.states,
                    *value.items,
                    *pairs,
                )
                self._children(b"c", children)
            case LongInteger():
                self.has_unknown = True
                self.add(b"n", value.nbytes)
            case _:
                self.has_unknown = True
                self.add(b"?")

    def _children(self, word: bytes, children: list[object] | tuple[object, ...]) -> None:
        self.add(word, len(children))
        self.left += reversed(children)

    def _flat(self, pairs: list[tuple[object, object]]) -> list[object]:
        return [value for pair in pairs if id(pair[1]) not in self.left_out for value in pair]


def updated_id(old: bytes, was: Iterable[int], now: Iterable[int]) -> bytes:
    """Return the fingerprint after members' CRC-32s changed from `was` to `now`.

    If the old one was not computed from `was` in this way, it is returned unchanged.
    """
    if len(old) != 2 * ID_DIGITS or old[ID_DIGITS:] != _hashed(was):
        return old
    return old[:ID_DIGITS] + _hashed(now)


def _hashed(crc32s: Iterable[int]) -> bytes:
    """Combine the CRC-32s of all members to one number, like c10's hash_combine."""
    seed = 0
    for crc32 in crc32s:
        seed ^= (crc32 + _GOLDEN + (seed << 6) + (seed >> 2)) & _MASK
    return f"{seed:0{ID_DIGITS}}".encode("ascii")
