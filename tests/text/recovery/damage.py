"""Damage that happens to texts: wrong characters, lines that move, and what mail does."""

from __future__ import annotations

import html
import json
import quopri
import re
from base64 import encodebytes
from collections.abc import Callable
from functools import cache
from random import Random
from urllib.parse import quote_plus

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


def capital_hashes(text: bytes) -> bytes:
    """As a database or a form for hashes spells them; words of the audit line stay."""
    lines = text.splitlines(keepends=True)
    small = re.compile(rb"(?<=[a-z0-9_]=)(?:[0-9a-f]{8}|[0-9a-f]{16}|[0-9a-f]{64})(?=[ \n])")
    return b"".join(
        line if line.startswith((b"audit ", b"meta ")) else small.sub(lambda m: m[0].upper(), line)
        for line in lines
    )


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
"""Each of which may follow each other one."""


def _lines(text: bytes) -> list[bytes]:
    return text.splitlines(keepends=True)


def _numbered(text: bytes, mark: str) -> bytes:
    """Each line behind a mark with its number."""
    lines = enumerate(_lines(text), 1)
    return b"".join(mark.format(number).encode() + line for number, line in lines)


def numbered(text: bytes) -> bytes:
    """As `cat -n` does."""
    return _numbered(text, "{:6d}\t")


def searched(text: bytes) -> bytes:
    """As `grep -Hn` does."""
    return _numbered(text, "runs/model.wtxt:{}:")


def logged(text: bytes) -> bytes:
    """As a CI shows what a step printed."""
    return _numbered(text, "2026-11-23T10:00:00.{:07d}Z ")


def added(text: bytes) -> bytes:
    """As a patch has a file that is new, in colours."""
    head = b"diff --git a/m b/m\n--- /dev/null\n+++ b/m\n@@ -0,0 +1,9 @@\n"
    lines = (b"\x1b[32m+\x1b[m\x1b[32m" + line[:-1] + b"\x1b[m\n" for line in _lines(text))
    return head + b"".join(lines)


def cited(text: bytes) -> bytes:
    return b"".join(b"Bob> " + line for line in _lines(text))


def commented(text: bytes) -> bytes:
    return b"".join(b"// " + line for line in _lines(text))


def tabled(text: bytes) -> bytes:
    return b"".join(b"| " + line[:-1].ljust(200) + b" |\n" for line in _lines(text))


def spelled(text: bytes) -> bytes:
    """As the lines of a string in C."""
    return b"".join(b'    "' + line[:-1] + b'\\n"\n' for line in _lines(text))


def fenced(text: bytes) -> bytes:
    return b"* here:\n  ```text\n" + b"".join(b"  " + line for line in _lines(text)) + b"  ```\n"


def in_json(text: bytes) -> bytes:
    return json.dumps({"text": text.decode()}).replace("/", "\\/").encode()


def in_form(text: bytes) -> bytes:
    return b"name=model&text=" + quote_plus(text).encode() + b"&send=1"


def in_html(text: bytes) -> bytes:
    escaped = html.escape(text.decode()).replace("+", "&#43;").replace("=", "&#x3D;")
    return b"<html><body><pre>" + escaped.encode() + b"</pre></body></html>"


def in_paragraph(text: bytes) -> bytes:
    return b"<p>" + text.replace(b"\n", b"<br/>").replace(b" ", b"&nbsp;") + b"</p>"


def attached(text: bytes) -> bytes:
    return b"Content-Transfer-Encoding: base64\n\n" + encodebytes(text) + b"\n--x--\n"


def hard(text: bytes) -> bytes:
    """With blanks that do not break."""
    return text.replace(b" ", "\u00a0".encode())


def breakable(text: bytes) -> bytes:
    """With places where a line may be broken."""
    parts = (text[at : at + 40] for at in range(0, len(text), 40))
    return "\u200b".encode().join(parts)


def joined(text: bytes) -> bytes:
    """Two parts, each saved with a byte order mark."""
    half = len(text) // 2
    return marked(text[:half]) + marked(text[half:])


def separated(text: bytes) -> bytes:
    return text.replace(b"\n", "\u2028".encode())


def wide_then_crlf(text: bytes) -> bytes:
    """As git makes of UTF-16 that it takes for text."""
    return wide(text).replace(b"\n", b"\r\n")


def wide_unmarked(text: bytes) -> bytes:
    return text.decode("ascii").encode("utf-16-be")


def wider(text: bytes) -> bytes:
    return text.decode("ascii").encode("utf-32")


def padded(text: bytes) -> bytes:
    return text + bytes(4096)


MORE_TRANSPORTS: tuple[Callable[[bytes], bytes], ...] = (
    capital_hashes,
    *(numbered, searched, logged, added, cited, commented, tabled, spelled, fenced, in_json),
    *(in_form, in_html, in_paragraph, attached, hard, breakable, joined, separated),
    *(wide_then_crlf, wide_unmarked, wider, padded),
)


def unplussed(text: bytes) -> bytes:
    """As a form is read that was not encoded."""
    return text.replace(b"+", b" ")


def for_addresses(text: bytes) -> bytes:
    """In the base64 that may stand in a URL."""
    changed = bytes.maketrans(b"+/", b"-_")
    return b"".join(line.translate(changed) if len(line) == LINE else line for line in _lines(text))


def paged(text: bytes) -> bytes:
    """As it is printed, with a head on each page."""
    head = b"\n\f2026-11-23 12:30          model.wtxt          Page %d\n\n"
    lines = enumerate(_lines(text))
    return b"".join(line + (head % (at // 60) if at % 60 == 59 else b"") for at, line in lines)


def chatted(text: bytes) -> bytes:
    """In several messages."""
    said = "Bob \u2014 today at 12:30\n".encode()
    lines = enumerate(_lines(text))
    return b"".join(line + (said if at % 24 == 23 else b"") for at, line in lines)


OF_LINES: tuple[Callable[[bytes], bytes], ...] = (unplussed, for_addresses, paged, chatted)
"""Those that show in texts of some length alone."""
