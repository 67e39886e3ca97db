"""What numpy.load refuses of an array, and what numpy does not write.

`npy_header` reads more than numpy does: what it accepts decides how files are cut, and so can never
change. Spec: `docs/spec/npy.md`, "Checks"; numpy.lib.format
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from wtxtgit.containers import npy_header, npy_literal
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.npy_header import MAX_RANK, NpyHeader
from wtxtgit.containers.ranges import Stored
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import bounded_product
from wtxtgit.model.findings import Findings

LEAST_ALIGNMENT = 16
"""The alignment of the array in files by numpy before 1.14."""
# The longest header, in characters, that numpy.load reads unless it is told to trust the file.
MOST_TRUSTED = 10_000
# numpy counts bytes in signed 64 bits; dimensions of 0 are left out of the product.
MAX_BYTES = 2**63 - 1
SIZES = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 16),
    "c": (8, 16, 32),
    "m": (8,),
    "M": (8,),
}
"""Sizes in bytes that items of each kind can have; any size for kinds that are not listed."""
OBJECTS = "array holds Python objects: a pickle, which wtxtgit never reads"
_SCALAR = re.compile(r"[<>|=]?(?:([biufcmMSaVU])([0-9]+)(\[.*\])?|O8?)")
_UNIT = re.compile(r"\[[0-9]*(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as|generic)\]")
_TIMES = "mM"


def check_array(
    data: ByteView | None,
    header: NpyHeader,
    stored: Stored,
    end: int,
    findings: Findings,
    *,
    chunk: str | None = None,
    place: int | None = None,
) -> None:
    """Check the array of an npy file, or of a member, that ends at `end`.

    `data` is the file that contains it, None if it was decoded: then errors have the offset
    `place`, and warnings have none.
    """

    def tell(message: str, at: int, field: str, *, is_error: bool = True) -> None:
        say = findings.error if is_error else findings.warn
        decoded_at = place if is_error else None
        say(message, field, at if data is not None else decoded_at, chunk)

    length = header.data - header.start
    for message, field in _refusals(header):
        tell(message, header.start, field)
    if header.characters > MOST_TRUSTED:
        size = f"{header.characters} characters"
        message = f"numpy.load refuses a header of {size} unless max_header_size allows it"
        tell(message, header.start, "header length", is_error=False)
    if length % LEAST_ALIGNMENT:
        message = f"header of {length} bytes is not aligned to {LEAST_ALIGNMENT}"
        tell(message, header.start, "header length", is_error=False)
    if not header.has_newline:
        tell("header does not end with a newline", header.data, "header", is_error=False)
    if header.has_objects:
        tell(OBJECTS, header.data, "descr", is_error=False)
    elif header.item_size == 0:
        message = "items have no bytes: numpy.load refuses such an array in a file"
        tell(message, header.data, "descr", is_error=False)
    if stored.end < end:
        more = _count_following(data, stored.end) if data is not None and chunk is None else 0
        if data is not None and more:
            message = f"{more} more arrays follow the first one"
            findings.warn(message, "data", stored.end)
            for following in _following(data, stored.end):
                _tell_following(following, findings)
        else:
            tell(f"{end - stored.end} bytes follow the array", stored.end, "data")


def _tell_following(header: NpyHeader, findings: Findings) -> None:
    """Report what numpy.load refuses of a further array, which it reads in a call of its own."""
    for message, field in _refusals(header):
        findings.error(message, field, header.start)
    if header.has_objects:
        findings.warn(OBJECTS, "descr", header.data)


def _refusals(header: NpyHeader) -> Iterator[tuple[str, str]]:
    """Yield what numpy refuses, and the field."""
    if not header.is_one_line:
        yield "header is not a single line of text", "header"
    if len(header.shape) > MAX_RANK:
        yield f"array has {len(header.shape)} dimensions, numpy allows {MAX_RANK}", "shape"
    sizes = [size for size in header.shape if size]
    if bounded_product(max(header.item_size, 1), sizes, MAX_BYTES) > MAX_BYTES:
        yield "array is larger than numpy supports", "shape"
    descr = _descr(header)
    for message in _of_descr(descr):
        yield message, "descr"
    # numpy would make it an array of more dimensions, from the dtype rather than from the file.
    if not header.has_objects and 0 not in header.shape and _places(descr) > 1:
        yield "numpy.load can't read an array whose dtype is an array of several items", "descr"


def _descr(header: NpyHeader) -> object:
    """Return the descr, parsed from its literal if it has fields or a shape."""
    return npy_literal.parse(header.dtype) if header.dtype[:1] in ("[", "(") else header.dtype


def _of_descr(descr: object) -> Iterator[str]:
    """Yield why numpy has no such dtype; `npy_header` has checked how the descr is built."""
    waiting = [descr]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield from _of_scalar(one)
        elif isinstance(one, tuple):
            waiting.append(one[0])
        elif isinstance(one, list):
            names = [name for field in one for name in _names(field[0])]
            waiting += [field[1] for field in one]
            if len(set(names)) < len(names):
                yield "two fields of the dtype have the same name"


def _places(descr: object) -> int:
    """Return how many items an array item consists of, if its dtype has a shape as a whole."""
    count = 1
    while isinstance(descr, tuple):
        descr, shape = descr
        count = bounded_product(count, shape if isinstance(shape, tuple) else (shape,), MAX_BYTES)
    return count


def _names(name: object) -> Iterator[object]:
    """Yield title and name of a field; fields without a name are padding."""
    yield from (part for part in (name if isinstance(name, tuple) else (name,)) if part)


def _of_scalar(descr: str) -> Iterator[str]:
    scalar = _SCALAR.fullmatch(descr)
    if scalar is None or scalar[1] is None:
        return
    kind, size, unit = scalar[1], int(scalar[2]), scalar[3]
    sizes = SIZES.get(kind)
    is_of_time = unit is None or (kind in _TIMES and _UNIT.fullmatch(unit))
    if (sizes is not None and size not in sizes) or not is_of_time:
        yield f"numpy has no dtype {quoted(descr)}"


def _count_following(data: ByteView, start: int) -> int:
    """Return how many arrays fill the file exactly from byte `start` on; 0 if they don't."""
    try:
        return sum(1 for _ in _following(data, start))
    except FormatError:
        return 0


def _following(data: ByteView, start: int) -> Iterator[NpyHeader]:
    """Yield the arrays from byte `start` on; raises FormatError for anything else."""
    while start < len(data):
        header = npy_header.read(data, start, len(data))
        yield header
        start = header.stored("", len(data)).end
