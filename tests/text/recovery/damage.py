"""Damage that happens to texts: wrong characters, lines that move, and what mail does."""

from __future__ import annotations

import quopri
from collections.abc import Callable
from functools import cache
from random import Random

from tests.data import FIXTURES, all_entries
from wtxtgit.filter.clean import clean
from wtxtgit.text.recovery.reading import read
from wtxtgit.text.recovery.rebuilding import recover, text_of

PRINTABLE = range(32, 127)
LINE = 79

SMALL = 400_000
"""Bytes of the files whose texts are damaged."""


@cache
def texts() -> tuple[bytes, ...]:
    """The texts of real files that are not too large, and of broken ones too."""
    files = sorted(FIXTURES / str(entry["file"]) for entry in all_entries())
    raws = [path.read_bytes() for path in files if path.is_file()]
    return tuple(
        b"".join(map(bytes, clean(memoryview(raw)).pieces()))
        for raw in raws
        if 0 < len(raw) <= SMALL and not raw.startswith(b"WTXT ")
    )


def wrong_characters(text: bytes, places: list[int], rng: Random) -> bytes:
    """The text with another character at each of the places, an LF now and then."""
    damaged = bytearray(text)
    for at in places:
        damaged[at] = rng.choice([c for c in (*PRINTABLE, 10) if c != text[at]])
    return bytes(damaged)


def is_mendable(text: bytes, places: list[int]) -> bool:
    """Whether no chunk has more than two wrong characters in different lines, nor two in one."""
    for array in read(memoryview(text)).arrays:
        for chunk in array:
            start, end = chunk.body
            lines = [(at - start) // LINE for at in places if start <= at < end]
            if len(lines) > 2 or len(set(lines)) < len(lines):
                return False
    return not _are_beyond_hashes(text, places)


def _are_beyond_hashes(text: bytes, places: list[int]) -> bool:
    """Whether two of them are in one line of those that tell what a text is."""
    lines = [text.count(b"\n", 0, at) for at in places if _is_told(text, at)]
    return len(set(lines)) < len(lines)


def _is_told(text: bytes, at: int) -> bool:
    start = text.rfind(b"\n", 0, at) + 1
    return len(text[start : text.find(b"\n", start)]) != LINE - 1


def recovered(damaged: bytes) -> bytes | None:
    """The text that comes out, None where it is not whole."""
    snapshot = recover(memoryview(damaged)).snapshot
    return None if snapshot is None else b"".join(map(bytes, text_of(snapshot)))


def crlf(text: bytes) -> bytes:
    return text.replace(b"\n", b"\r\n")


def quoted(text: bytes) -> bytes:
    lines = (b"> " + line for line in text.splitlines(keepends=True))
    return b"On Monday somebody wrote:\n\n" + b"".join(lines) + b"\n-- \nSomebody\n"


def twice_quoted(text: bytes) -> bytes:
    return b"".join(b"> > " + line for line in text.splitlines(keepends=True))


def printable(text: bytes) -> bytes:
    return quopri.encodestring(text)


def wrapped(text: bytes) -> bytes:
    """Broken hard at 72 columns."""
    whole = (line[at : at + 72] for line in text.splitlines() for at in range(0, len(line), 72))
    return b"".join(piece + b"\n" for piece in whole)


def folded(text: bytes) -> bytes:
    """Broken at 60 columns, wherever that is."""
    return b"\n".join(text[at : at + 60] for at in range(0, len(text), 60))


def marked(text: bytes) -> bytes:
    return b"\xef\xbb\xbf" + text


def wide(text: bytes) -> bytes:
    return text.decode("ascii").encode("utf-16")


def spaced(text: bytes) -> bytes:
    return b"".join(line + b"  \t\n" for line in text.splitlines())


def indented(text: bytes) -> bytes:
    return b"".join(b"    " + line for line in text.splitlines(keepends=True))


def unended(text: bytes) -> bytes:
    return text.removesuffix(b"\n")


def double_spaced(text: bytes) -> bytes:
    return text.replace(b"\n", b"\n\n")


TRANSPORTS: tuple[Callable[[bytes], bytes], ...] = (
    *(crlf, quoted, twice_quoted, printable, wrapped, folded, marked, wide, spaced, indented),
    *(unended, double_spaced),
)
