"""Documents in containers (JSON, MessagePack), and whether two are spelled in one way.

Values of two versions differ, and so do their bytes. What says nothing is how a writer spells
values: spaces, escapes, the forms of numbers. A document has a style if spelling its values in that
style gives exactly its bytes: then there is nothing in it besides its values and the order of keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import TypeVar

from wtxtgit.containers import json_text
from wtxtgit.errors import FormatError
from wtxtgit.model.plain import equal_values
from wtxtgit.model.tensor import Document

T = TypeVar("T")
MOST = 16 * 1024 * 1024
"""At most this many bytes of documents of one file are looked at."""
UNORDERED = "__metadata__"
"""An object whose keys stand in another order in each save: safetensors' writer hashes them."""
_INDENT = re.compile(r"\n([ \t]*)")
_SEPARATORS = ((",", ":"), (", ", ": "), (",", ": "))
_INDENTS = (None, "\t", *(" " * n for n in range(9)))
_BLANKS = " \t\n\r"
_ALIGNMENT = 8


def within_limit(documents: Iterable[tuple[int, T]]) -> Iterator[T]:
    """Yield what has at most MOST bytes in all, given with its number of bytes."""
    left = MOST
    for nbytes, document in documents:
        if nbytes <= left:
            left -= nbytes
            yield document


def difference(a: Document, b: Document) -> str | None:
    """Return how two documents that are stored as other bytes differ in what says nothing."""
    if a.raw == b.raw:
        return None if a.is_fresh or b.is_fresh else "it is compressed in another way"
    if max(len(a.raw), len(b.raw)) > MOST:
        return None
    try:
        old, new = _value(a), _value(b)
    except FormatError:
        # Its bytes are compared as those of a part.
        return None
    if _is_turned(old, new, whole=not b.lists):
        return "keys stand in another order"
    styles = [_styles(one, value) for one, value in ((a, old), (b, new))]
    if styles[0] & styles[1]:
        return None
    # Without a style nothing is known of either, but that equal values have other bytes.
    is_alike = not any(styles) and not equal_values(old, new)
    return None if is_alike else "values are spelled in another way"


def _value(document: Document) -> object:
    if document.is_json:
        return json_text.parse(memoryview(document.raw), document.name)
    from wtxtgit.containers import msgpack_limits  # only AERO needs it

    return msgpack_limits.parse(document.raw, document.name)


def _is_turned(old: object, new: object, *, whole: bool = True) -> bool:
    """Whether keys that both sides have stand in another order, outer ones only if `whole`."""
    if isinstance(old, dict) and isinstance(new, dict):
        was, now = ([key for key in a if key in b] for a, b in ((old, new), (new, old)))
        inside = (_is_turned(old[key], new[key]) for key in now if key != UNORDERED)
        return (whole and was != now) or any(inside)
    if isinstance(old, list) and isinstance(new, list):
        return any(_is_turned(a, b) for a, b in zip(old, new, strict=False))
    return False


_Style = tuple[object, ...]


def _styles(document: Document, value: object) -> set[_Style]:
    """Return the styles that give exactly the bytes of a document."""
    if not document.is_json:
        return set(_packed_styles(document.raw))
    own: set[_Style] = {
        (n,) for n, style in enumerate(document.styles) if _gives(style, value, document.raw)
    }
    text = document.raw.decode()
    # Spaces up to a multiple are padding.
    if document.lists and len(text) - len(text.rstrip(" ")) < _ALIGNMENT:
        text = text.rstrip(" ")
    return own | set(_text_styles(text, value))


def _gives(style: Callable[[object], bytes], value: object, raw: bytes) -> bool:
    try:
        return style(value) == raw
    except (FormatError, UnicodeError):
        return False


def _text_styles(text: str, value: object) -> Iterator[_Style]:
    body = text.rstrip(_BLANKS)
    end = text[len(body) :]
    is_crlf = "\r\n" in body
    if is_crlf:
        body = body.replace("\r\n", "\n")
    match = _INDENT.search(body)
    indents: Sequence[str | None] = (None,) if match is None else (match[1],)
    crlfs: Sequence[bool] = (is_crlf,)
    if not value or not isinstance(value, dict | list):
        # All writers spell it alike.
        indents, crlfs = _INDENTS, (False, True)
    for indent, separators, is_ascii in product(indents, _SEPARATORS, (True, False)):
        spelled = json.dumps(value, indent=indent, separators=separators, ensure_ascii=is_ascii)
        if spelled == body:
            yield from ((indent, separators, is_ascii, crlf, end) for crlf in crlfs)


def _packed_styles(raw: bytes) -> Iterator[_Style]:
    import msgpack

    unpacker = msgpack.Unpacker(
        read_size=max(len(raw), 1), max_buffer_size=0, strict_map_key=False, raw=False
    )
    unpacker.feed(raw)
    try:
        value = unpacker.unpack()
    except (ValueError, TypeError):
        # What is no value by itself: an extension that a library reads, a map as a key.
        return
    end = raw[unpacker.tell() :]
    if end.strip(b"\0"):
        return
    for is_bin, is_single in product((True, False), (True, False)):
        try:
            packed = msgpack.packb(value, use_bin_type=is_bin, use_single_float=is_single)
        except (ValueError, OverflowError):
            # A float that is too large for a single one, for example.
            continue
        if packed + end == raw:
            yield is_bin, is_single, "padded by", len(end)
            if end:
                yield is_bin, is_single, "padded to", len(raw)
