"""The rows of an index as text and as JSON, in blocks: an index may have millions.

Numbers are made digits by whole columns. In both forms they are padded to the
width of their column, which JSON allows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from wtxtgit.containers.tar_index import Rows, TarIndex
from wtxtgit.errors import escaped

NUMBERS = {"fid": "fid", "offset": "offset", "size": "size", "crash": "crashid"}
"""Columns of numbers, and the fields of a row that they are."""
HASH = "keyhash"
HASH_DIGITS = 16
MAX_COLUMN = 40
"""Characters to which extensions are padded; longer ones move what follows."""
BLOCK_ROWS = 1 << 16
"""Rows that are formatted at a time."""
UNKNOWN = "?"
"""Shown for an id that is in no table."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

Text = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _RowForm:
    """How a row is spelled: a literal before each number, the extension, and an end.

    `extensions` and `ends` are by extid and crashid, their last for ids that
    are in no table; `padded` are the extensions of rows with a crash stem.
    """

    literals: Sequence[str]
    extensions: Sequence[bytes]
    padded: Sequence[bytes]
    ends: Sequence[bytes]


def text_lines(index: TarIndex, encoding: str) -> Iterator[bytes]:
    """A table: fid, offset, size, crash, keyhash, ext, and the stem where it is known."""

    def encoded(text: str) -> bytes:
        return text.encode(encoding, "backslashreplace")

    extensions = [*map(escaped, index.extensions()), UNKNOWN]
    stems = [*map(escaped, index.crash_stems()), UNKNOWN]
    column = min(max(len(name) for name in [*extensions, "ext"]), MAX_COLUMN)
    form = _RowForm(
        ["", *["  "] * len(NUMBERS), "  "],
        [encoded(name) for name in extensions],
        [encoded(name.ljust(column) + "  ") for name in extensions],
        [b"\n", *(encoded(stem + "\n") for stem in stems)],
    )
    widths = _widths(index.rows(), least=[len(name) for name in NUMBERS])
    words = [name.rjust(width) for name, width in zip(NUMBERS, widths, strict=True)]
    words.append(HASH.ljust(HASH_DIGITS))
    words += ["ext"] if len(stems) == 1 else ["ext".ljust(column), "stem"]
    yield encoded("  ".join(words) + "\n")
    for pieces in _blocks(index, widths, form):
        yield b"".join(pieces)


def json_lines(index: TarIndex, path: str) -> Iterator[bytes]:
    """A JSON object: what the header says, both tables, and a list of rows."""
    extensions, stems = index.extensions(), index.crash_stems()
    facts = {
        "path": path,
        "format": "taridx",
        "version": index.version,
        "n_stems": index.n_stems,
        "n_rows": len(index.rows()),
        "contiguous": index.is_contiguous,
        "extensions": extensions,
        "crash_stems": stems,
    }
    yield json.dumps(facts).removesuffix("}").encode() + b', "rows": ['
    spelled = [json.dumps(name).encode() for name in [*extensions, None]]
    form = _RowForm(
        [
            ',\n{"fid": ',
            ', "offset": ',
            ', "size": ',
            ', "crash": ',
            ', "keyhash": "',
            '", "ext": ',
        ],
        spelled,
        spelled,
        [f', "stem": {json.dumps(stem)}}}'.encode() for stem in [None, *stems, None]],
    )
    widths = _widths(index.rows(), least=[1] * len(NUMBERS))
    # The first row has no comma before it.
    comma = b","
    for pieces in _blocks(index, widths, form):
        yield b"".join(pieces).removeprefix(comma)
        comma = b""
    yield b"\n]}\n"


def _widths(rows: Rows, *, least: list[int]) -> list[int]:
    """Return the width of the longest number of each column."""
    widths = least
    for start in range(0, len(rows), BLOCK_ROWS):
        part = rows[start : start + BLOCK_ROWS]
        largest = [int(part[field].max()) for field in NUMBERS.values()]
        widths = [max(w, len(str(n))) for w, n in zip(widths, largest, strict=True)]
    return widths


def _blocks(index: TarIndex, widths: Sequence[int], form: _RowForm) -> Iterator[Iterator[bytes]]:
    """Yield the lines of the rows, some rows at a time."""
    rows = index.rows()
    words = [*form.extensions, *form.padded]
    for start in range(0, len(rows), BLOCK_ROWS):
        part = rows[start : start + BLOCK_ROWS]
        extids = np.minimum(part["extid"], len(form.extensions) - 1).astype(np.intp)
        extids[part["crashid"] > 0] += len(form.extensions)
        crashids = np.minimum(part["crashid"], len(form.ends) - 1)
        yield chain.from_iterable(
            zip(
                _heads(part, widths, form.literals),
                map(words.__getitem__, extids.tolist()),
                map(form.ends.__getitem__, crashids.tolist()),
                strict=True,
            )
        )


def _heads(part: Rows, widths: Sequence[int], literals: Sequence[str]) -> list[bytes]:
    """Return each row up to its extension; all have the same length."""
    columns = [
        _decimal(part[field].astype(np.uint64), width)
        for field, width in zip(NUMBERS.values(), widths, strict=True)
    ]
    columns.append(_hexadecimal(part[HASH].astype(np.uint64)))
    pieces = []
    for literal, column in zip(literals, columns, strict=False):
        pieces += [_same(literal, len(part)), column]
    lines = np.hstack([*pieces, _same(literals[-1], len(part))])
    heads: list[bytes] = lines.view(f"S{lines.shape[1]}").ravel().tolist()
    return heads


def _same(literal: str, count: int) -> Text:
    return np.tile(np.frombuffer(literal.encode(), np.uint8), (count, 1))


def _decimal(values: npt.NDArray[np.uint64], width: int) -> Text:
    """Return numbers as digits, aligned to the right in `width` characters."""
    out = np.empty((len(values), width), np.uint8)
    for column in range(width - 1, -1, -1):
        rest = values // 10
        digits = (values - rest * 10).astype(np.uint8) + ord("0")
        out[:, column] = digits if column == width - 1 else np.where(values > 0, digits, ord(" "))
        values = rest
    return out


def _hexadecimal(values: npt.NDArray[np.uint64]) -> Text:
    octets = values.astype(">u8").view(np.uint8).reshape(-1, 8)
    return _HEX[np.stack([octets >> 4, octets & 15], axis=-1)].reshape(-1, HASH_DIGITS)
