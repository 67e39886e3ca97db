"""JSON in containers: parsing it within limits, editing it without reformatting, texts in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import isinf

from wtxtgit.containers.cursor import (
    CONTAINER,
    MAX_QUOTED,
    TEXT,
    VALUE,
    ListingBudget,
    fail,
    quoted,
)
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView

# Greatest depth of nesting, the outermost container counted as 1. Python's own parser recurses, and
# its limit depends on how much stack is left: clean's result must not.
MAX_DEPTH = 64
# Integers must fit 64 bits, signed or unsigned: other readers have no larger ones, and Python's
# arbitrary ones take quadratic time.
MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**64 - 1
MAX_INTEGER_CHARACTERS = len(str(MIN_INTEGER))
# Bytes searched first for a NUL, which no JSON text contains; then twice as many each time. Weights
# mistaken for JSON contain one soon.
FIRST_SCAN = 256

# Brackets are counted in blocks of this many bytes.
DEPTH_STEP = 1 << 20
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Brackets as signed bytes: what each adds to the depth."""
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b'[{]}"')
# Characters that make Python use four bytes for each character of a string: those of four bytes in
# UTF-8, and escapes, which may be a surrogate pair. From U+0100 on it uses two.
_WIDE = re.compile(rb"[\xf0-\xff]|\\u")
_BEYOND_LATIN = re.compile(rb"[\xc4-\xef]")
Path = tuple[str | int, ...]
"""The place of a value: keys of objects and numbers in lists, outermost first."""
_Replacements = list[tuple[int, int, str]]
"""Start and end of a value, and the text that replaces it."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_Tree = dict[str | int, "_Tree | _NewText"]


def parse(
    data: ByteView,
    what: str,
    *,
    offset: int = 0,
    unique_keys: bool = False,
    constants: bool = True,
    listing: ListingBudget | None = None,
    repeated: list[str] | None = None,
    lax: set[str] | None = None,
) -> object:
    """Return the value of a JSON text that starts at `offset` of its file.

    NaN and Infinity are accepted unless `constants` is false. Of equal keys the last one counts,
    unless `unique_keys` refuses them; they are added to `repeated`. What a strict reader refuses,
    or does not take for an integer, is added to `lax`. `what` names the text in errors; its values
    count in the `listing` of its file.

    Raises FormatError (limit or structure).
    """
    text = _text(data, what, offset, listing)

    def integer(digits: str) -> int:
        if lax is not None and digits == "-0":
            lax.add("the number -0")
        # int() takes quadratic time, and longer digits exceed 64 bits anyway.
        value = int(digits) if len(digits) <= MAX_INTEGER_CHARACTERS else MAX_INTEGER + 1
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            fail(f"{what} has an integer of over 64 bits", offset=offset, field=what, kind="limit")
        return value

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(pairs)
        if len(value) < len(pairs):
            if repeated is None:
                fail(f"{what} repeats a key", offset=offset, field=what)
            repeated.append(what)
        return value

    def constant(word: str) -> float:
        if not constants:
            fail(f"{what} has {word}, which JSON does not allow", offset=offset, field=what)
        if lax is not None:
            lax.add(word)
        return float(word)

    def number(digits: str) -> float:
        value = float(digits)
        if lax is not None and isinf(value):
            lax.add("a number that is too large")
        return value

    hook = unique if unique_keys or repeated is not None else None
    try:
        value: object = json.loads(
            text,
            parse_int=integer,
            parse_float=None if lax is None else number,
            parse_constant=constant,
            object_pairs_hook=hook,
        )
    except json.JSONDecodeError as error:
        fail(f"{what} is not JSON", offset=offset + _bytes_before(text, error.pos), field=what)
    except RecursionError:
        fail(f"{what} is nested too deeply", offset=offset, field=what, kind="limit")
    if lax is not None and any(escape[1] for escape in _ESCAPES.finditer(text)):
        lax.add("a lone surrogate")
    return value


# The group is a surrogate that is not part of a pair.
_ESCAPES = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u([dD][89a-fA-F]..)|.)", re.DOTALL)


def _text(data: ByteView, what: str, offset: int, listing: ListingBudget | None) -> str:
    """Decode a JSON text after checking the bounds on its values and its depth."""
    if len(data) > MAX_JSON:
        fail(f"{what} of {len(data)} bytes is too long", offset=offset, field=what, kind="limit")
    listing = listing or ListingBudget(len(data))
    # Checked before it is copied: a few compressed bytes can expand to a text of any length.
    listing.count(TEXT * len(data), offset, what)
    # Also before: binary data is refused at its first NUL.
    _refuse_nul(data, what, offset)
    raw = bytes(data)
    listing.count(_counted(raw), offset, what)
    # json.loads recurses, and its own limit depends on how much stack is left.
    is_deep = _depth(raw) > MAX_DEPTH
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        fail(f"{what} is not UTF-8", offset=offset + error.start, field=what)
    if is_deep:
        fail(f"{what} is nested too deeply", offset=offset, field=what, kind="limit")
    return text


def _counted(raw: bytes) -> int:
    """Return what the values of a JSON text count besides TEXT, from its bytes, without parsing it.

    Commas, colons and brackets inside strings count as well.
    """
    width = 1
    if b"\\" in raw or not raw.isascii():
        if _WIDE.search(raw):
            width = 4
        elif _BEYOND_LATIN.search(raw):
            width = 2
    opened = raw.count(b"[") + raw.count(b"{") + raw.count(b":")
    return TEXT * (width - 1) * len(raw) + CONTAINER * opened + VALUE * raw.count(b",")


def _bytes_before(text: str, end: int) -> int:
    """Return the length in bytes of this many characters, without copying the whole text."""
    return sum(
        len(text[start : min(start + DEPTH_STEP, end)].encode())
        for start in range(0, end, DEPTH_STEP)
    )


def check_name(name: str, what: str, *, offset: int) -> None:
    """Refuse a name that UTF-8 can't encode (a lone surrogate)."""
    if not is_text(name):
        raise FormatError(f"{what} {quoted(name)} has a lone surrogate", offset=offset, field=what)


def refuse_repeated(names: Iterable[str], message: str) -> None:
    """Raise FormatError if a name occurs twice; `message` has a placeholder for it."""
    earlier: set[str] = set()
    for name in names:
        if name in earlier:
            raise FormatError(message.format(quoted(name)), field="name")
        earlier.add(name)


def _refuse_nul(data: ByteView, what: str, offset: int) -> None:
    """Refuse binary data by reading it only up to its first NUL.

    Files may claim the same bytes as many texts; each claim must cost no more than it deserves.
    """
    start, step = 0, FIRST_SCAN
    while start < len(data):
        nul = bytes(data[start : start + step]).find(0)
        if nul >= 0:
            fail(f"{what} is not JSON", offset=offset + start + nul, field=what)
        start, step = start + step, min(step * 2, DEPTH_STEP)


def _depth(raw: bytes) -> int:
    """Return how deep a JSON text nests; any number if it is not JSON."""
    # Mostly there are too few brackets to exceed the limit, and nothing is copied.
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return 0
    deepest = depth = 0
    in_string = False
    rest = b""
    for start in range(0, len(raw), DEPTH_STEP):
        block = rest + raw[start : start + DEPTH_STEP]
        if b"\\" in block:
            # An escape that continues in the next block is handled there.
            rest = b"\\" if (len(block) - len(block.rstrip(b"\\"))) % 2 else b""
            block = _ESCAPE.sub(b"", block)
        else:
            rest = b""
        parts = block.translate(None, _NOT_BRACKETS).split(b'"')
        outside = b"".join(parts[int(in_string) :: 2])
        in_string ^= len(parts) % 2 == 0
        steps = memoryview(outside.translate(_STEPS)).cast("b")
        deepest = max(deepest, max(accumulate(steps, initial=depth)))
        depth += sum(steps)
    return deepest


@dataclass(frozen=True, slots=True)
class _NewText:
    """The replacement for a value."""

    text: str


def replaced(text: str, edits: Mapping[Path, object]) -> str:
    """Return the text with the values at these places replaced; no place is inside another.

    `text` has been read by `parse`. Of equal keys the last one counts, as there. Raises FormatError
    for a place that does not exist.
    """
    tree: _Tree = {}
    for path, value in edits.items():
        _plant(tree, path, _NewText(json.dumps(value)))
    replacements: _Replacements = []
    _find(text, _skip(text, 0), tree, replacements)
    if len(replacements) != len(edits):
        raise FormatError("JSON text lacks a value that is replaced")
    pieces, pos = [], 0
    for start, end, new in sorted(replacements):
        pieces += [text[pos:start], new]
        pos = end
    return "".join([*pieces, text[pos:]])


def _plant(tree: _Tree, path: Path, new: _NewText) -> None:
    *outer, last = path
    for key in outer:
        inner = tree.setdefault(key, {})
        if isinstance(inner, _NewText):
            raise FormatError("JSON text is replaced inside of what is replaced")
        tree = inner
    tree[last] = new


def _find(text: str, pos: int, tree: _Tree | _NewText | None, replacements: _Replacements) -> int:
    """Return where the value at `pos` ends; add the replacements in it to `replacements`."""
    if not isinstance(tree, dict) or text[pos] not in "{[":
        _, end = _DECODER.raw_decode(text, pos)
        if isinstance(tree, _NewText):
            replacements.append((pos, end, tree.text))
        return end
    is_object = text[pos] == "{"
    last: dict[str | int, _Replacements] = {}
    pos, number = _skip(text, pos + 1), 0
    while text[pos] not in "}]":
        key: str | int = number
        if is_object:
            key, pos = _DECODER.raw_decode(text, pos)
            pos = _skip(text, _skip(text, pos) + 1)
        inner: _Replacements = []
        pos = _skip(text, _find(text, pos, tree.get(key), inner))
        if key in tree:
            # Of equal keys the last one counts, as in `parse`.
            last[key] = inner
        if text[pos] == ",":
            pos = _skip(text, pos + 1)
        number += 1
    for inner in last.values():
        replacements += inner
    return pos + 1


def _skip(text: str, pos: int) -> int:
    """Return the position after white space."""
    space = _SPACE.match(text, pos)
    return pos if space is None else space.end()


def texts(value: object) -> dict[str, str]:
    """Return the members of a JSON object that are texts; nothing for any other value.

    A string with a lone surrogate, which JSON can spell, does not count as text.
    """
    if not isinstance(value, dict):
        return {}
    return {
        key: member
        for key, member in value.items()
        if isinstance(member, str) and is_text(key) and is_text(member)
    }


def is_text(text: str) -> bool:
    """Whether a string out of JSON can be written as UTF-8."""
    return text.isascii() or _SURROGATE.search(text) is None


def shown_key(key: str) -> str:
    """Return a key of the input as reports show it."""
    return key if len(key) <= MAX_QUOTED and key.isprintable() else quoted(key)
