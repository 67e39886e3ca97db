"""Undoing what mail, forms, chats, terminals and editors do to a text.

A text is plain ASCII with LF, so it is known what they change: the encoding of the whole
(`encodings.py`), marks before and after the content of each line, line ends and breaks
(`line_breaks.py`), and what comes before and after the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import chain, islice
from typing import NamedTuple

from wtxtgit.io.spool import spooled
from wtxtgit.io.view import PIECE, ByteView, pieces
from wtxtgit.text import grammar
from wtxtgit.text.recovery import encodings
from wtxtgit.text.recovery.encodings import replaced
from wtxtgit.text.recovery.line_breaks import lined


class _Mark(NamedTuple):
    """A mark to be removed from lines.

    Every match except the first involves one of the byte strings `signs`. Counting these bounds the
    number of matches, and is many times faster than searching for the pattern.
    """

    what: str
    pattern: re.Pattern[bytes]
    signs: tuple[bytes, ...] = ()


# Possessive (`++`): backtracking state for each mark would take a hundred times its memory.
_QUOTED = re.compile(rb"(?m)^(?:[>|] ?)++")
_INDENTED = re.compile(rb"(?m)^[ \t]+")
# A run of blanks is tried only from its start: trying from each blank would take quadratic time.
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
_START_OF_COPY = re.compile(
    rb"WTXT(?:-DETACHED)? 1\nmeta schema=|WTXT-DELTA 2 base_sha256_all=|WLEDGER 1 repo="
)
_END = re.compile(rb"(?m)^[^\nA-Za-z0-9]*+(endwtxt|enddelta)(?:\s*$|[\"'<\\])")
_FIRST_SIGNS = (b"WTXT", b"WLEDGER 1 ")
_MOST_BEFORE = 400
_MARKED = re.compile(
    rb"(?m)^(?P<before>[^\n]{0,%d}?)%b(?P<behind>[^\n]*+)$" % (_MOST_BEFORE, _FIRST)
)
_HASHED = re.compile(rb"(?m)^(?:arr name=[^ \n]*+ |ch |root |WSUM 1 )(?P<long>.{110})?")
_EMPTY = re.compile(rb"(?m)^\n+")
_MOST_TRANSPORTS = 4
# How many places are tried for the first line: one may be in what precedes the text.
_MOST_FIRST_LINES = 4
_NEAR = 64 * 1024
"""Only this many bytes at a text's start are searched for marks of a transport."""
AROUND = "text before and after"
NO_LINE_FEED = "missing line feed at the end"
_QUOTING, _INDENTATION = "quote marks", "indentation"
_ON_EACH_LINE = (
    _Mark("trailing spaces", _TRAILING, (b" \n", b"\t\n", b"\r\n", b"\f\n", b"\v\n")),
    _Mark(_QUOTING, _QUOTED, (b"\n>", b"\n|")),
    _Mark(_INDENTATION, _INDENTED, (b"\n ", b"\n\t")),
    _Mark("empty lines", _EMPTY, (b"\n\n",)),
)
_OF_ALL = (
    ("HTML", encodings.from_html),
    ("string escapes", encodings.from_string),
    ("percent-encoding", encodings.from_percent),
    ("base64", encodings.from_base64),
)
_FIRST_WORDS = (
    *(grammar.FIRST_LINE, grammar.DETACHED_FIRST_LINE),
    *(grammar.DELTA_MAGIC + b"2 ", b"WLEDGER 1 "),
)
_LAST_LINES = (b"\nendwtxt\n", b"\nenddelta\n")


def undone(text: ByteView) -> tuple[ByteView, tuple[str, ...]]:
    """Return a text as it was before its transport, and what was undone; unchanged if nothing was.

    If it evidently came line by line unchanged, the result is a part of `text`; a text that is
    changed throughout is read into memory.
    """
    start = bytes(text[:_NEAR])
    # Only whole lines: a line that is cut off may seem to have a space at its end.
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
        if end is None:
            return text, ()
        return text[:end], (NO_LINE_FEED if end == len(text) else AROUND,)
    plain, changes = _undone(bytes(text), _within)
    if not _is_lined(plain[:_NEAR]) and (broken := lined(plain)) != plain:
        plain, changes = broken, (*changes, "line breaks")
    return memoryview(plain), changes


def _undone(
    plain: bytes, within: Callable[[bytes], bytes] | None = None
) -> tuple[bytes, tuple[str, ...]]:
    """Do the same with bytes, except for line breaks; `within` cuts what is before and after."""
    changes: dict[str, None] = {}
    # Texts that a step has left unchanged, by step: it would leave them unchanged again.
    left: dict[str, bytes] = {}

    def change(what: str, step: Callable[[bytes], bytes]) -> None:
        nonlocal plain
        if left.get(what) is plain:
            return
        changed = step(plain)
        if changed == plain:
            left[what] = plain
        else:
            changes[what] = None
            plain = changed

    def change_each(name: str, steps: Callable[[bytes], Iterable[tuple[str, bytes]]]) -> None:
        nonlocal plain
        if left.get(name) is plain:
            return
        before = plain
        for what, changed in steps(plain):
            if changed != plain:
                changes[what] = None
                plain = changed
        if plain is before:
            left[name] = plain

    # One transport after the other: a quoted text may have been indented since.
    for _ in range(_MOST_TRANSPORTS):
        before = plain
        change("UTF-16", encodings.from_wide)
        change("byte order mark", _without_mark)
        change_each("foreign characters", encodings.from_foreign)
        change("line endings", _with_line_feeds)
        change_each("marks", _without_marks)
        for what, undo in () if encodings.is_plain(plain) else _OF_ALL:
            change(what, undo)
        if within is not None:
            cut = within(plain)
            change(NO_LINE_FEED if cut == plain + b"\n" else AROUND, within)
        for mark in _ON_EACH_LINE:
            change(mark.what, partial(_without, mark))
        # This joins lines: marks at their beginnings must be removed before.
        if not encodings.is_plain(plain):
            change("quoted-printable", encodings.from_quoted_printable)
        change("characters of base64", encodings.with_plus)
        change("hashes in capitals", encodings.with_small_hashes)
        if plain is before:
            break
    return plain, tuple(changes)


def _without_mark(plain: bytes) -> bytes:
    return plain.removeprefix(b"\xef\xbb\xbf")


def _with_line_feeds(plain: bytes) -> bytes:
    if b"\r" not in plain:
        return plain
    return plain.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _without_marks(plain: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the text without what its first line has before and after it, if most lines have it."""
    for first in islice(_first_lines(plain), _MOST_FIRST_LINES):
        marks = [m for m in _marks_of(first["before"], first["behind"]) if _is_on_most(m, plain)]
        for mark in marks:
            plain = replaced(mark.pattern, b"", plain)
            yield mark.what, plain
        if marks:
            return


def _first_lines(plain: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the lines that have the content of a first line."""
    tried = -1
    for at in merge(*(_places(sign, plain) for sign in _FIRST_SIGNS)):
        start = plain.rfind(b"\n", max(0, at - _MOST_BEFORE - 1), at) + 1
        # It may be preceded by more than this.
        if start == tried or (start == 0 and at > _MOST_BEFORE):
            continue
        tried = start
        if (match := _MARKED.match(plain, start)) is not None:
            yield match


def _places(sign: bytes, plain: bytes) -> Iterator[int]:
    at = plain.find(sign)
    while at >= 0:
        yield at
        at = plain.find(sign, at + 1)


def _marks_of(before: bytes, behind: bytes) -> Iterator[_Mark]:
    # A mark that ends with a letter would be a word, or part of the text.
    if before and not before[-1:].isalnum():
        what = "marks before each line"
        if _QUOTED.fullmatch(before):
            what = _QUOTING
        elif not before.strip(b" \t"):
            what = _INDENTATION
        alike = _alike(before)
        signs = (b"\n" + before,) if alike == re.escape(before) else ()
        yield _Mark(what, re.compile(b"(?m)^" + alike), signs)
    # If the first line says more, its LF may have been lost.
    mark = behind.strip(b" \t")
    if 0 < len(mark) <= _MOST_BEHIND and not mark[:1].isalnum():
        alike = re.escape(mark)
        pattern = re.compile(rb"(?m)(?<![ \t])[ \t]*+" + alike + rb"[ \t]*+$")
        yield _Mark("marks after each line", pattern, (mark,))


_MOST_BEHIND = 80


def _alike(mark: bytes) -> bytes:
    """Return a pattern of a mark with any numbers in place of its own: of lines, or times."""
    parts = re.findall(rb"[0-9]+|[ \t]+|[^0-9 \t]+", mark)
    if not any(part.isdigit() for part in parts):
        return re.escape(mark)
    alike = [
        rb"[0-9]++" if part.isdigit() else rb"[ \t]++" if part.isspace() else re.escape(part)
        for part in parts
    ]
    # Numbers may be right-aligned.
    return rb"[ \t]*+" + b"".join(alike[parts[0].isspace() :])


def _without(mark: _Mark, plain: bytes) -> bytes:
    """Remove a mark from the text if it is on most of its lines."""
    return replaced(mark.pattern, b"", plain) if _is_on_most(mark, plain) else plain


def _is_on_most(mark: _Mark, plain: bytes) -> bool:
    """Whether a pattern matches on most lines.

    On a few lines it is damage, which their chunks can mend.
    """
    # The number of nonempty lines, judged by consecutive LFs.
    lines = plain.count(b"\n") - plain.count(b"\n\n")
    half = (lines + 1) // 2
    if mark.signs and 1 + sum(map(plain.count, mark.signs)) < half:
        return False
    return sum(1 for _ in islice(mark.pattern.finditer(plain), half)) == half


def _is_foreign(text: ByteView) -> bool:
    """Whether there are characters anywhere that no text has and no wrong byte could make."""
    return any(
        encodings.is_foreign(bytes(text[max(0, at - encodings.OVERLAP) : at + PIECE]))
        for at in range(0, len(text), PIECE)
    )


def _end_of(text: ByteView) -> int | None:
    """Return where the last line of a text ends that starts with its first; None without one."""
    for at in range(0, len(text), PIECE):
        # The end of a piece may continue in the next one.
        first = max(0, at - _LINE)
        near = bytes(text[first : at + PIECE])
        if b"endwtxt" not in near and b"enddelta" not in near:
            continue
        if (last := _END.search(near, 1 if first else 0)) is not None:
            end = last.end(1)
            return first + end + near[end:].startswith(b"\n")
    return None


# Longest last line in bytes, with what may surround it.
_LINE = 80


def with_surroundings(text: ByteView) -> ByteView:
    """Return what `undone` gives, with what stands before and after: it may be another copy."""
    return memoryview(_undone(bytes(text))[0])


def copies(text: ByteView) -> list[ByteView]:
    """Return what may be the text if it occurs more than once in the result of `undone`.

    One copy may follow the other, or lie inside it: candidates are each part up to the next last
    line, and what remains without it.
    """
    starts = list(islice(_starts(text), _MOST_FIRST_LINES))
    if starts in ([], [0]):
        return []
    parts = [(start, start + (_end_of(text[start:]) or len(text) - start)) for start in starts]
    parts_of_text = [text[start:end] for start, end in parts]
    for start, end in parts:
        if start:
            parts_of_text.append(spooled(chain(pieces(text[:start]), pieces(text[end:]))))
    return parts_of_text


def _starts(text: ByteView) -> Iterator[int]:
    """Yield where a text begins, anywhere in a line; an audit line may say the same."""
    for at in range(0, len(text), PIECE):
        for match in _START_OF_COPY.finditer(bytes(text[at : at + PIECE + _LINE])):
            if match.start() < PIECE:
                yield at + match.start()


def _is_lined(start: bytes) -> bool:
    """Whether lines end where they should: those with hashes are longer than any wrapped line."""
    if b"sha256" not in start:
        return True
    longs = [line["long"] is not None for line in _HASHED.finditer(start)]
    # One may have an LF inside it, which is damage.
    return 2 * sum(longs) > len(longs)


def _within(text: bytes) -> bytes:
    """Return the text from its first line to its last, so far as these can be recognised."""
    first = _START.search(text)
    start = 0 if first is None else first.start()
    last = _END.search(text, start)
    within = text[start : len(text) if last is None else last.end(1)]
    return within if within.endswith(b"\n") else within + b"\n"
