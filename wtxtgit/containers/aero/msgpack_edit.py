"""Editing MessagePack maps in place: whatever is not changed keeps its bytes.

Keys that are not strings, extension values and unusual widths of lengths stay as they were written.
The bytes given here were parsed by `msgpack_limits.parse` before, or are part of such bytes; there
may be more after the value, which stays. Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgpack

from wtxtgit.containers.aero.read import TENSORS_KEY
from wtxtgit.containers.msgpack_limits import FIXSTR, NIL
from wtxtgit.errors import FormatError

# The most keys of a map to be changed: each becomes an object in memory ("Resealing", what is
# refused).
MAX_FIELDS = 10_000
_STR_HEADS = {0xD9: 2, 0xDA: 3, 0xDB: 5}
"""Size of a string's head, by its first byte; 1 for all others."""


@dataclass(frozen=True, slots=True)
class Field:
    """A key and its value in a map; `key` is None if it is not a string."""

    key: str | None
    start: int
    value: int
    end: int


def fields(raw: bytes) -> list[Field]:
    """Return the fields of the map with which `raw` starts, in order; a key may be repeated.

    Raises FormatError (limit) if there are too many.
    """
    unpacker = _unpacker(raw)
    count = unpacker.read_map_header()
    if count > MAX_FIELDS:
        raise FormatError(
            f"a map has {count} keys, too many to edit", kind="limit", field="MessagePack"
        )
    listed: list[Field] = []
    for _ in range(count):
        start = unpacker.tell()
        unpacker.skip()
        value = unpacker.tell()
        unpacker.skip()
        listed.append(Field(_text(raw[start:value]), start, value, unpacker.tell()))
    return listed


def edited(raw: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """Return the map with these packed values in place of its own; None removes a key.

    New keys come after the existing ones. If a changed key is repeated, the last one stays, since
    that is the one that counts. Raises FormatError as `fields` does.
    """
    own = fields(raw)
    last = {field.key: field for field in own}
    pieces: list[bytes] = []
    for field in own:
        if field.key is None or field.key not in changes:
            pieces.append(raw[field.start : field.end])
            continue
        value = changes[field.key]
        if value is not None and last[field.key] is field:
            pieces.append(raw[field.start : field.value] + value)
    for key, value in changes.items():
        if key not in last and value is not None:
            pieces.append(packed(key) + value)
    first, end = (own[0].start, own[-1].end) if own else (_head(raw), _head(raw))
    # If the count does not change, neither does the width of its spelling.
    head = raw[:first] if len(pieces) == len(own) else msgpack.Packer().pack_map_header(len(pieces))
    return b"".join((head, *pieces, raw[end:]))


def packed(value: object) -> bytes:
    """Encode a value as MessagePack."""
    raw: bytes = msgpack.packb(value)
    return raw


@dataclass(frozen=True, slots=True)
class TensorMaps:
    """The content of a TIDX chunk; `ends` are where the tensors' maps end, which are contiguous.

    `start` is where their array starts, `first` where its first map does.
    """

    raw: bytes
    start: int
    first: int
    ends: Sequence[int]

    @staticmethod
    def of(raw: bytes) -> TensorMaps:
        """Return the maps of a TIDX that `index.parse` has read; raises as `fields` does."""
        tensors = [field for field in fields(raw) if field.key == TENSORS_KEY][-1]
        unpacker = _unpacker(raw[tensors.value : tensors.end])
        count = unpacker.read_array_header()
        first = tensors.value + unpacker.tell()
        ends = []
        for _ in range(count):
            unpacker.skip()
            ends.append(tensors.value + unpacker.tell())
        return TensorMaps(raw, tensors.value, first, ends)

    def map(self, number: int) -> bytes:
        """Return the map of tensor `number`."""
        start = self.ends[number - 1] if number else self.first
        return self.raw[start : self.ends[number]]

    def with_maps(self, maps: Sequence[bytes]) -> bytes:
        """Return the content with these maps in place of its own."""
        if len(maps) == len(self.ends):
            head = self.raw[self.start : self.first]
        else:
            head = msgpack.Packer().pack_array_header(len(maps))
        end = self.ends[-1] if self.ends else self.first
        return b"".join((self.raw[: self.start], head, *maps, self.raw[end:]))


def _text(raw: bytes) -> str | None:
    first = raw[0]
    if FIXSTR <= first < NIL or first in _STR_HEADS:
        return raw[_STR_HEADS.get(first, 1) :].decode()
    return None


def _head(raw: bytes) -> int:
    """Return where the items of an empty map would start."""
    unpacker = _unpacker(raw)
    unpacker.read_map_header()
    end: int = unpacker.tell()
    return end


def _unpacker(raw: bytes) -> msgpack.Unpacker:
    # Lengths were checked when the bytes were read; 0 disables the library's own limit.
    unpacker = msgpack.Unpacker(read_size=max(len(raw), 1), max_buffer_size=0)
    unpacker.feed(raw)
    return unpacker
