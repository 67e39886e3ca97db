"""MessagePack from untrusted files, read within limits that do not depend on the library.

The bytes are scanned before the library sees them, so it gets exactly one whole value without false
counts. Extension values mean nothing to the formats read here; their type codes are masked, because
libraries interpret the payload of some of them (timestamps). Spec: `docs/spec/containers.md`, "What
is opaque"; https://github.com/msgpack/msgpack
"""

from __future__ import annotations

from wtxtgit.containers.cursor import CONTAINER, TEXT, VALUE, ListingBudget, fail
from wtxtgit.containers.json_text import MAX_DEPTH
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import MAX_JSON

FIXMAP, FIXARRAY, FIXSTR, NIL = 0x80, 0x90, 0xA0, 0xC0
NEVER_USED = 0xC1
NEGATIVE_FIXINT = 0xE0
ARRAY16, MAP16, MAP32 = 0xDC, 0xDE, 0xDF
_MAPS = frozenset((*range(FIXMAP, FIXARRAY), MAP16, MAP32))
STR8 = 0xD9
# For a string of fewer bytes, its characters are included in the count of its value.
LONG = 32
FIXEXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
EXT_LENGTHS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
"""Width of the length before an extension's type code."""
RAW_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Width of the length of bin and str values."""
NUMBERS = {
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
}
"""Size of floats and integers, without their first byte."""
NEUTRAL_EXT_CODE = 0
"""An extension type to which no library gives a meaning."""


# The most values, and arrays and maps, in one index: each becomes an object in memory, for as
# little as one byte of the file.
MAX_VALUES = 32 * MAX_TENSORS
MAX_CONTAINERS = 4 * MAX_TENSORS


def _fixed_sizes() -> list[int]:
    """Return the size of a value by its first byte; 0 if that byte does not tell it."""
    sizes = [0] * 256
    for byte in (*range(FIXMAP), *range(NIL, NIL + 4), *range(NEGATIVE_FIXINT, 256)):
        sizes[byte] = 1
    sizes[NEVER_USED] = 0
    for byte in range(FIXSTR, NIL):
        sizes[byte] = 1 + byte - FIXSTR
    for byte, width in NUMBERS.items():
        sizes[byte] = 1 + width
    return sizes


_FIXED_SIZES = _fixed_sizes()


def parse(
    raw: bytes, what: str, *, offset: int = 0, listing: ListingBudget | None = None
) -> object:
    """Return the first value in `raw`; bytes after it are ignored.

    Maps keep only their string keys, and of equal ones the last. Extensions become None. `what` and
    `offset` (of the value in its file) are for errors; its values count in the `listing` of the
    file.

    Raises FormatError (limit or structure).
    """
    if len(raw) > MAX_JSON:
        fail(f"{what} of {len(raw)} bytes is too long", offset=offset, field=what, kind="limit")
    listing = listing or ListingBudget(len(raw))
    listing.count(TEXT * len(raw), offset, what)
    end, codes = _walk(raw, what, offset, listing)
    value: memoryview | bytearray = memoryview(raw)[:end]
    if codes:
        listing.count(end, offset, what)
        value = bytearray(value)
        for position in codes:
            value[position] = NEUTRAL_EXT_CODE

    import msgpack  # only AERO needs it, and it is slow to import

    try:
        unpacked: object = msgpack.unpackb(
            value,
            raw=False,
            strict_map_key=False,
            object_pairs_hook=_string_keys,
            ext_hook=_no_meaning,
        )
    except UnicodeDecodeError:
        fail(f"{what} has a string that is not UTF-8", offset=offset, field=what)
    except ValueError as error:
        fail(f"{what} is not MessagePack ({error})", offset=offset, field=what)
    return unpacked


def end_of(raw: bytes, what: str) -> int:
    """Return where the first value in `raw` ends; raises FormatError (limit or structure)."""
    return _walk(raw, what, 0, ListingBudget(len(raw)))[0]


def _string_keys(pairs: list[tuple[object, object]]) -> dict[str, object]:
    return {key: value for key, value in pairs if isinstance(key, str)}


def _no_meaning(_code: int, _payload: bytes) -> None:
    return None


def _walk(raw: bytes, what: str, offset: int, listing: ListingBudget) -> tuple[int, list[int]]:
    """Return where the first value ends, and the positions of all extension codes."""
    size = len(raw)
    codes: list[int] = []
    open_counts: list[int] = []
    left = 1
    pos = 0
    values = containers = 0
    while True:
        while left == 0:
            if not open_counts:
                return pos, codes
            left = open_counts.pop()
        left -= 1
        values += 1
        if values > MAX_VALUES or containers > MAX_CONTAINERS:
            fail(f"{what} has too many values", offset=offset, field=what, kind="limit")
        if pos >= size:
            fail(f"{what} is cut short", offset=offset + size, field=what)
        first = raw[pos]
        step = _FIXED_SIZES[first]
        if step:
            pos += step
        elif first in RAW_LENGTHS:
            width = RAW_LENGTHS[first]
            start = pos + 1 + width
            pos = start + int.from_bytes(raw[pos + 1 : start], "big")
            # A Python string uses four bytes for each character if any needs them.
            if pos - start >= LONG and first >= STR8 and not raw[start:pos].isascii():
                listing.count(3 * (pos - start), offset, what)
        elif first in FIXEXT:
            codes.append(pos + 1)
            listing.count(VALUE, offset, what)
            pos += 2 + FIXEXT[first]
        elif first in EXT_LENGTHS:
            width = EXT_LENGTHS[first]
            codes.append(pos + 1 + width)
            listing.count(VALUE, offset, what)
            pos += 2 + width + int.from_bytes(raw[pos + 1 : pos + 1 + width], "big")
        elif first == NEVER_USED:
            fail(f"{what} is not MessagePack", offset=offset + pos, field=what)
        else:
            items, pos = _open_container(raw, pos)
            if items > size - pos:
                fail(f"{what} claims more items than it has bytes", offset=offset + pos, field=what)
            if len(open_counts) >= MAX_DEPTH:
                fail(f"{what} is nested too deeply", offset=offset, field=what, kind="limit")
            containers += 1
            counted = VALUE * items
            if first in _MAPS:
                counted = (VALUE + CONTAINER) * items // 2
            listing.count(CONTAINER + counted, offset, what)
            open_counts.append(left)
            left = items
        if pos > size:
            fail(f"{what} is cut short", offset=offset + size, field=what)


def _open_container(raw: bytes, pos: int) -> tuple[int, int]:
    """Return how many values an array or a map at `pos` holds, and where they start."""
    first = raw[pos]
    if FIXMAP <= first < FIXARRAY:
        return 2 * (first - FIXMAP), pos + 1
    if FIXARRAY <= first < FIXSTR:
        return first - FIXARRAY, pos + 1
    width = 2 if first in (ARRAY16, MAP16) else 4
    count = int.from_bytes(raw[pos + 1 : pos + 1 + width], "big")
    return count * (2 if first in (MAP16, MAP32) else 1), pos + 1 + width
