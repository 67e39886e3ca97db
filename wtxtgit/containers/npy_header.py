"""The header of an npy file, also of one that is a member of a zip.

Magic, version (2 bytes), length (u16; u32 from version 2.0), and that many bytes of text: a Python
literal, the dictionary of descr, fortran_order and shape. The array's bytes follow. Spec:
`docs/spec/npy.md`; numpy.lib.format
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from wtxtgit.containers import npy_literal
from wtxtgit.containers.cursor import Cursor, ListingBudget, check_inside, fail
from wtxtgit.containers.ranges import Stored
from wtxtgit.containers.signatures import NPY_MAGIC, NPY_SUFFIX
from wtxtgit.containers.zip_read import ZipMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import bounded_product
from wtxtgit.model.dtypes import DTYPES
from wtxtgit.model.tensor import ITEM_BYTES

VERSIONS = {(1, 0): (2, "latin-1"), (2, 0): (4, "latin-1"), (3, 0): (4, "utf-8")}
"""For each version, the size of the length field and the encoding of the text."""
KEYS = frozenset({"descr", "fortran_order", "shape"})
# The longest text of a header in bytes ("Limits"). numpy writes version 2.0, with 4 bytes for the
# length, if it is over 65,535 bytes; without a limit a header of gigabytes would be parsed whole.
MAX_TEXT = 2**20
FIXED = len(NPY_MAGIC) + 2 + 4
"""Bytes before the text, in the version that has most of them."""
"""Bytes of a whole header, at most."""
# What a byte of a header's text counts while it is parsed.
PARSED = 30
# Largest item in bytes. Nested subarrays can claim any product, which must not become a long
# integer.
MAX_ITEM = 2**31 - 1
# Dimensions that numpy's arrays can have, since numpy 2.
MAX_RANK = 64
# Bytes of all npy headers in a zip per byte of the zip, in addition to MAX_TEXT: members may share
# bytes, so any number of them can have one long header.
HEADERS_A_BYTE = 4
# Parsed headers of up to this many characters are cached for further arrays of the same shape:
# longer ones would fill the memory, and are hardly ever repeated.
_MOST_KEPT = 512
ALIGNMENT = 64
"""The alignment of the array in numpy's files; 16 before 1.14."""
GROWTH_DIGITS = 21
"""Space that numpy leaves for more digits of the dimension that may grow."""


class _Descrs(dict[str, str]):
    """numpy's descr for each element that it has; strings, times and void are their own."""

    def __contains__(self, element: object) -> bool:
        is_own = isinstance(element, str) and _OWN.fullmatch(element) is not None
        return is_own or super().__contains__(element)

    def __missing__(self, descr: str) -> str:
        return descr


_OWN = re.compile(r"\|[SV][0-9]+|<U[0-9]+|<[mM]8(\[[A-Za-z0-9/]{1,32}\])?")
DESCR = _Descrs({e: dtype.numpy for e, dtype in DTYPES.items() if not dtype.is_extension})
"""numpy's descr for each element that it has, little-endian."""
_ELEMENTS = {descr[1:]: element for element, descr in DESCR.items()}
_SCALAR = re.compile(r"([<>|=]?)(?:([biufcmMSaVU])([0-9]{1,10})(?:\[[A-Za-z0-9/]{1,32}\])?|O8?)")


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What a header says; the array's bytes start at `data`.

    `dtype` is the descr, or its Python literal in ASCII if it is not a string; `element` is None if
    the items are not numbers of `model.dtypes`. Items have `item_size` bytes, unless
    `has_objects`: then a pickle follows. `characters` counts those of the header's text.
    """

    version: tuple[int, int]
    start: int
    data: int
    dtype: str
    shape: tuple[int, ...]
    fortran_order: bool
    item_size: int
    has_objects: bool
    element: str | None
    byteorder: str
    characters: int
    has_newline: bool
    is_one_line: bool

    def stored(self, name: str, end: int) -> Stored:
        """Return the array, in a file or member that ends at `end`; raises FormatError."""
        length = end - self.data if self.has_objects else self._length(end)
        return Stored(
            name,
            self.dtype,
            self.shape,
            self.data,
            self.data + length,
            self.element,
            "F" if self.fortran_order else "C",
            self.byteorder,
        )

    def _length(self, end: int) -> int:
        """Return item size times product of the shape, without long intermediate products."""
        length = bounded_product(self.item_size, self.shape, end - self.data)
        check_inside(self.data, length, end, "data")
        return length


def read(data: ByteView, start: int, end: int, listing: ListingBudget | None = None) -> NpyHeader:
    """Read the header of the npy file that is data[start:end]; raises FormatError.

    It counts in the `listing` of the whole file, if that is given.
    """
    cursor = Cursor(data[:end], start)
    version, length = _fixed(cursor)
    _, encoding = VERSIONS[version]
    offset = cursor.pos
    raw = bytes(cursor.take(length, "header"))
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        fail("header is not UTF-8", offset=offset + error.start, field="header")
    if listing is not None:
        listing.count(PARSED * length, start, "header")
    try:
        fields = _fields(text, offset, version < (3, 0))
    finally:
        if listing is not None:
            listing.left += PARSED * length
    if not isinstance(fields, dict) or fields.keys() != KEYS:
        fail(
            "header's keys are not exactly descr, fortran_order and shape",
            offset=offset,
            field="header",
        )
    fortran_order = fields["fortran_order"]
    if not isinstance(fortran_order, bool):
        fail("fortran_order is not a boolean", offset=offset, field="fortran_order")
    shape = _sizes(fields["shape"])
    if shape is None:
        fail("shape is not a tuple of non-negative integers", offset=offset, field="shape")
    descr = fields["descr"]
    size, has_objects = _item(descr, offset)
    element, byteorder = _number(descr)
    dtype = descr if isinstance(descr, str) else ascii(descr)
    if listing is not None:
        listing.item((dtype,), start, "header", rank=len(shape))
    return NpyHeader(
        version,
        start,
        cursor.pos,
        dtype,
        shape,
        fortran_order,
        size,
        has_objects,
        element,
        byteorder,
        len(text),
        text.endswith("\n"),
        len(text.splitlines()) <= 1,
    )


def _fields(text: str, offset: int, long_integers: bool) -> object:
    """Return the value of a header's text; cached, since many arrays share what it says."""
    if len(text) <= _MOST_KEPT:
        # An error has the wrong offset here: it is raised again below.
        with contextlib.suppress(FormatError):
            return _parsed(text, long_integers)
    return npy_literal.parse(text, offset, long_integers=long_integers)


@lru_cache(maxsize=256)
def _parsed(text: str, long_integers: bool) -> object:
    return npy_literal.parse(text, long_integers=long_integers)


def read_members(
    data: ByteView, members: Sequence[ZipMember], message: str, listing: ListingBudget | None = None
) -> dict[int, tuple[NpyHeader, Stored]]:
    """Return, by position, the arrays of stored members that are npy files.

    A member that has the name of an npy file but is not one has no array. Members may claim the
    same bytes: raises FormatError (limit), with `message`, if headers are many times as long as the
    file, and if they list too much.
    """
    listing = listing or ListingBudget(len(data))
    left = HEADERS_A_BYTE * len(data) + MAX_TEXT
    arrays: dict[int, tuple[NpyHeader, Stored]] = {}
    for n, member in enumerate(members):
        if not member.stored or not member.name.endswith(NPY_SUFFIX):
            continue
        with contextlib.suppress(FormatError):
            # Parsing the text takes time: its length is counted before.
            cursor = Cursor(data[: member.end], member.start)
            _, length = _fixed(cursor)
            cursor.skip(length, "header")
            left -= cursor.pos - member.start
            if left >= 0:
                header = read(data, member.start, member.end, listing)
                name = member.name.removesuffix(NPY_SUFFIX)
                arrays[n] = header, header.stored(name, member.end)
        if left < 0 or listing.left < 0:
            fail(message, offset=member.start, field="header", kind="limit")
    return arrays


def header_end(start: bytes) -> int:
    """Return where the header ends of a file that starts like this; raises as `read` does."""
    cursor = Cursor(memoryview(start), 0)
    _, length = _fixed(cursor)
    return cursor.pos + length


def _fixed(cursor: Cursor) -> tuple[tuple[int, int], int]:
    """Read the version and the length of the text, which follows."""
    start = cursor.pos
    if cursor.take(len(NPY_MAGIC), "magic") != NPY_MAGIC:
        fail("npy file has no magic", offset=start, field="magic")
    version = (cursor.integer(1, "version"), cursor.integer(1, "version"))
    if version not in VERSIONS:
        major, minor = version
        fail(
            f"npy version {major}.{minor} is not supported", offset=cursor.pos - 2, field="version"
        )
    width, _ = VERSIONS[version]
    length = cursor.integer(width, "header length")
    if length > MAX_TEXT:
        fail(
            f"header of {length} bytes is too long",
            offset=cursor.pos - width,
            field="header length",
            kind="limit",
        )
    return version, length


def build(element: str, shape: tuple[int, ...]) -> bytes:
    """Return the header that numpy writes for an array in C order, little-endian.

    Raises FormatError if numpy has no such array.
    """
    if element not in DESCR:
        raise FormatError(f"numpy has no {element}", field="descr")
    if len(shape) > MAX_RANK:
        raise FormatError(
            f"numpy does not support arrays of {len(shape)} dimensions", field="shape"
        )
    fields = {"descr": DESCR[element], "fortran_order": False, "shape": shape}
    text = "{" + "".join(f"{key!r}: {value!r}, " for key, value in fields.items()) + "}"
    if shape:
        # numpy pads the shape so that arrays can grow in place.
        text += " " * (GROWTH_DIGITS - len(str(shape[0])))
    fixed = NPY_MAGIC + bytes((1, 0))
    text += " " * (-(len(fixed) + 2 + len(text) + 1) % ALIGNMENT) + "\n"
    return fixed + len(text).to_bytes(2, "little") + text.encode("ascii")


def _number(descr: object) -> tuple[str | None, str]:
    """Return the element of a descr, None if it is not a named number, and its byte order."""
    if not isinstance(descr, str):
        return None, "little"
    element = _ELEMENTS.get(descr[1:])
    # For items of one byte the order does not matter.
    if element is not None and ITEM_BYTES[element] == 1:
        return element if descr[0] in "|<>=" else None, "little"
    return element if descr[0] in "<>" else None, "big" if descr[0] == ">" else "little"


def _item(descr: object, offset: int) -> tuple[int, bool]:
    """Return the size of an item in bytes, and whether it holds Python objects."""
    size, has_objects = 0, False
    waiting: list[tuple[object, int]] = [(descr, 1)]
    while waiting:
        described, times = waiting.pop()
        if isinstance(described, str):
            scalar = _SCALAR.fullmatch(described)
            if scalar is None:
                fail("descr is unknown", offset=offset, field="descr")
            _, kind, digits = scalar.groups()
            has_objects = has_objects or kind is None
            size += times * int(digits or 0) * (4 if kind == "U" else 1)
        else:
            waiting.extend(_parts(described, times, offset))
        if size > MAX_ITEM:
            fail("items are too long", offset=offset, field="descr", kind="limit")
    return size, has_objects


def _parts(descr: object, times: int, offset: int) -> list[tuple[object, int]]:
    """Return what a descr that is not a string consists of: fields, or the items of a subarray."""
    if isinstance(descr, list):
        return [_field(field, times, offset) for field in descr]
    if not isinstance(descr, tuple) or len(descr) != 2:
        fail("descr is unknown", offset=offset, field="descr")
    return [(descr[0], _repeated(times, descr[1], offset))]


def _field(field: object, times: int, offset: int) -> tuple[object, int]:
    """Parse a field: a name, or a title and a name; a descr; and a shape if it is an array."""
    if not isinstance(field, tuple) or len(field) not in (2, 3):
        fail("descr has an invalid field", offset=offset, field="descr")
    names = field[0] if isinstance(field[0], tuple) else (field[0],)
    if not 1 <= len(names) <= 2 or not all(isinstance(name, str) for name in names):
        fail("descr has a field without a name", offset=offset, field="descr")
    return field[1], _repeated(times, field[2], offset) if len(field) == 3 else times


def _repeated(times: int, shape: object, offset: int) -> int:
    sizes = (shape,) if type(shape) is int and shape >= 0 else _sizes(shape)
    if sizes is None:
        fail("descr has an invalid shape", offset=offset, field="descr")
    times = bounded_product(times, sizes, MAX_ITEM)
    if times > MAX_ITEM:
        fail("items are too long", offset=offset, field="descr", kind="limit")
    return times


def _sizes(value: object) -> tuple[int, ...] | None:
    """Return a tuple of integers >= 0, None for anything else, such as booleans."""
    if not isinstance(value, tuple):
        return None
    for size in value:
        if type(size) is not int or size < 0:
            return None
    return value
