"""What mail, forms, chats, terminals and editors do to a text, undone.

A text is plain ASCII with LF, so what they change is known: how all of it is encoded
(`encodings.py`), what stands on each line before and behind what it said, line ends and
breaks (`line_breaks.py`), and what stands before and after the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from wtxtgit.io.view import PIECE, ByteView
from wtxtgit.text import grammar
from wtxtgit.text.recovery import encodings
from wtxtgit.text.recovery.encodings import replaced
from wtxtgit.text.recovery.line_breaks import lined

# What could be given back is noted for each mark, in a hundred times its memory: `++` gives none.
_QUOTED = re.compile(rb"(?m)^(?:[>|] ?)++")
_INDENTED = re.compile(rb"(?m)^[ \t]+")
# A run of blanks is tried from its start alone: from each of them would take the square of it.
_TRAILING = re.compile(rb"(?m)(?<![ \t\r\f\v])[ \t\r\f\v]++$")
_FIRST = (
    rb"(?:WTXT(?:-DETACHED)? 1|WTXT-DELTA 2 (?:base_sha256_all=[0-9a-f]{64})?"
    rb"|WLEDGER 1 repo=[0-9a-f]{64} path=[A-Za-z0-9._/%-]++)"
)
_START = re.compile(
    rb"(?m)^[^\nA-Za-z0-9]*+(?:WTXT(?:-DETACHED)? 1\s*$|WTXT-DELTA 2 |WLEDGER 1 )"
    rb"|(?<=[^\nA-Za-z0-9])(?:WTXT(?:-DETACHED)? 1(?=\s++[^\nA-Za-z0-9]*+meta )"
    rb"|WTXT-DELTA 2 (?=base_)|WLEDGER 1 (?=repo=))"
)
_END = re.compile(rb"(?m)^[^\nA-Za-z0-9]*+(endwtxt|enddelta)(?:\s*$|[\"'<\\])")
_MARKED = re.compile(rb"(?m)^(?P<before>[^\n]{0,400}?)" + _FIRST + rb"(?P<behind>[^\n]*+)$")
_HASHED = re.compile(rb"(?m)^(?:arr name=[^ \n]*+ |ch |root |WSUM 1 )(?P<long>.{110})?")
_EMPTY = re.compile(rb"(?m)^\n+")
_MOST_TRANSPORTS = 4
# Places where a first line may be, of which one may be in what stands before the text.
_MOST_FIRST_LINES = 4
_NEAR = 64 * 1024
"""Bytes of a text's start in which marks of a transport show."""
_AROUND = "text before and after"
_QUOTING, _INDENTATION = "marks of quoting", "indentation"
_ON_EACH_LINE = (
    ("spaces at the end of lines", _TRAILING),
    (_QUOTING, _QUOTED),
    (_INDENTATION, _INDENTED),
    ("empty lines", _EMPTY),
)
_OF_ALL = (
    ("HTML", encodings.from_html),
    ("escapes of a string", encodings.from_string),
    ("percent-encoding", encodings.from_percent),
    ("base64", encodings.from_base64),
)
_FIRST_WORDS = (
    *(grammar.FIRST_LINE, grammar.DETACHED_FIRST_LINE),
    *(grammar.DELTA_MAGIC + b"2 ", b"WLEDGER 1 "),
)
_LAST_LINES = (b"\nendwtxt\n", b"\nenddelta\n")


def undone(text: ByteView) -> tuple[ByteView, tuple[str, ...]]:
    """A text as it was before its transport, and what was undone; itself where nothing was.

    Where it shows that it came line by line as it was, it is a part of `text`; what is
    changed throughout is taken into memory.
    """
    start = bytes(text[:_NEAR])
    # Whole lines: what is cut off within one looks like a space at its end.
    start = start[: start.rfind(b"\n") + 1]
    if (
        start.startswith(_FIRST_WORDS)
        and _undone(start) == (start, ())
        and _is_lined(start)
        and not _is_foreign(text)
    ):
        if bytes(text[-_LINE:]).endswith(_LAST_LINES):
            return text, ()
        end = _end_of(text)
        return (text, ()) if end is None else (text[:end], (_AROUND,))
    plain, changes = _undone(bytes(text), _within)
    if not _is_lined(plain[:_NEAR]) and (broken := lined(plain)) != plain:
        plain, changes = broken, (*changes, "line breaks")
    return memoryview(plain), changes


def _undone(
    plain: bytes, within: Callable[[bytes], bytes] | None = None
) -> tuple[bytes, tuple[str, ...]]:
    """The same of bytes, but for line breaks; `within` cuts what is before and after."""
    changes: dict[str, None] = {}

    def change(what: str, changed: bytes) -> None:
        nonlocal plain
        if changed != plain:
            changes[what] = None
            plain = changed

    # One transport after the other: what was quoted may have been indented since.
    for _ in range(_MOST_TRANSPORTS):
        before = plain
        change("UTF-16", encodings.from_wide(plain))
        change("byte order mark", plain.removeprefix(b"\xef\xbb\xbf"))
        for what, changed in encodings.from_foreign(plain):
            change(what, changed)
        if b"\r" in plain:
            change("line ends", plain.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        for what, pattern in _marks(plain):
            change(what, replaced(pattern, b"", plain))
        for what, undo in () if encodings.is_plain(plain) else _OF_ALL:
            change(what, undo(plain))
        if within is not None:
            change(_AROUND, within(plain))
        for what, pattern in _ON_EACH_LINE:
            if _is_on_most(pattern, plain):
                change(what, replaced(pattern, b"", plain))
        # Which joins lines: what is at the beginning of each must not stand in between.
        if not encodings.is_plain(plain):
            change("quoted-printable", encodings.from_quoted_printable(plain))
        change("characters of base64", encodings.with_plus(plain))
        if plain == before:
            break
    return plain, tuple(changes)


def _marks(plain: bytes) -> Iterator[tuple[str, re.Pattern[bytes]]]:
    """What the first line has before and behind what it said, where most lines have it too."""
    for found in islice(_MARKED.finditer(plain), _MOST_FIRST_LINES):
        marks = list(_marks_of(found["before"], found["behind"]))
        if any(_is_on_most(pattern, plain) for _, pattern in marks):
            yield from ((what, pattern) for what, pattern in marks if _is_on_most(pattern, plain))
            return


def _marks_of(before: bytes, behind: bytes) -> Iterator[tuple[str, re.Pattern[bytes]]]:
    # What ends with a letter is a word, or the text's own.
    if before and not before[-1:].isalnum():
        what = "marks before each line"
        if _QUOTED.fullmatch(before):
            what = _QUOTING
        elif not before.strip(b" \t"):
            what = _INDENTATION
        yield what, re.compile(b"(?m)^" + _alike(before))
    # Of a first line that says more, its LF may have been lost.
    mark = behind.strip(b" \t")
    if 0 < len(mark) <= _MOST_BEHIND and not mark[:1].isalnum():
        alike = re.escape(mark)
        pattern = re.compile(rb"(?m)(?<![ \t])[ \t]*+" + alike + rb"[ \t]*+$")
        yield "marks behind each line", pattern


_MOST_BEHIND = 80


def _alike(mark: bytes) -> bytes:
    """A pattern of a mark, with any numbers in the place of its numbers: of lines, or times."""
    parts = re.findall(rb"[0-9]+|[ \t]+|[^0-9 \t]+", mark)
    if not any(part.isdigit() for part in parts):
        return re.escape(mark)
    alike = [
        rb"[0-9]++" if part.isdigit() else rb"[ \t]++" if part.isspace() else re.escape(part)
        for part in parts
    ]
    # Numbers are set flush right.
    return rb"[ \t]*+" + b"".join(alike[parts[0].isspace() :])


def _is_on_most(pattern: re.Pattern[bytes], plain: bytes) -> bool:
    """Whether what a pattern finds is on most lines.

    On a few it is damage, which their chunks show how to mend.
    """
    # Lines that are not empty, as far as two LFs in a row tell.
    lines = plain.count(b"\n") - plain.count(b"\n\n")
    half = (lines + 1) // 2
    return sum(1 for _ in islice(pattern.finditer(plain), half)) == half


def _is_foreign(text: ByteView) -> bool:
    """Whether there are characters anywhere that no text has, and no wrong byte makes."""
    return any(
        encodings.is_foreign(bytes(text[max(0, at - encodings.OVERLAP) : at + PIECE]))
        for at in range(0, len(text), PIECE)
    )


def _end_of(text: ByteView) -> int | None:
    """Where the last line of a text ends that starts with its first one, None without one."""
    for at in range(0, len(text), PIECE):
        # What a piece ends with may go on in the next one.
        first = max(0, at - _LINE)
        near = bytes(text[first : at + PIECE])
        if b"endwtxt" not in near and b"enddelta" not in near:
            continue
        if (last := _END.search(near, 1 if first else 0)) is not None:
            end = last.end(1)
            return first + end + near[end:].startswith(b"\n")
    return None


# Bytes of a last line, with what may stand around it.
_LINE = 80


def _is_lined(start: bytes) -> bool:
    """Whether lines end where they should: those of hashes are longer than any wrapped one."""
    if b"sha256" not in start:
        return True
    longs = [line["long"] is not None for line in _HASHED.finditer(start)]
    # One may have an LF within it, which is damage.
    return 2 * sum(longs) > len(longs)


def _within(text: bytes) -> bytes:
    """The text from its first line to its last, where these can be made out."""
    first = _START.search(text)
    start = 0 if first is None else first.start()
    last = _END.search(text, start)
    within = text[start : len(text) if last is None else last.end(1)]
    return within if within.endswith(b"\n") else within + b"\n"
