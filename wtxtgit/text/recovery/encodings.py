"""Undoing what forms, mail, chats and terminals do to a text as a whole.

Each function returns a text as it was before one of them, or unchanged if nothing indicates that. A
text has few kinds of characters: those that may be spelled in another way are restored one kind
after the other, which takes less memory than a list of all positions.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, a2b_qp
from collections.abc import Callable, Iterator

from wtxtgit.io.view import PIECE

_NEAR = 64 * 1024
"""Only this many bytes at a text's start are searched for signs of how all of it is encoded."""


def _first(blank: bytes) -> bytes:
    """Return a pattern of how a text, delta or ledger starts, with its blanks spelled as given."""
    return b"(?:WTXT(?:-DETACHED)?" + blank + b"1|WTXT-DELTA" + blank + b"2|WLEDGER" + blank + b"1)"


_WIDE = re.compile(rb"[\x01-\x7f]\0")


def _between(first: int, last: int) -> tuple[str, ...]:
    return tuple(map(chr, range(first, last + 1)))


_UNSEEN = ("\u00ad", "\ufeff", *_between(0x200B, 0x200F), *_between(0x202A, 0x202E))
_CHARACTERS = (
    ("invisible characters", (*_UNSEEN, *_between(0x2060, 0x2069)), b""),
    ("unusual spaces", ("\u00a0", *_between(0x2000, 0x200A), "\u202f", "\u3000"), b" "),
    ("line endings", ("\u0085", "\u2028", "\u2029"), b"\n"),
    ("typographic quotation marks", _between(0x201C, 0x201F), b'"'),
    ("typographic dashes", (*_between(0x2010, 0x2013), "\u2212"), b"-"),
)
_FOREIGN = re.compile(
    b"|".join(re.escape(one.encode()) for _, characters, _ in _CHARACTERS for one in characters)
)
_COLOUR = re.compile(
    rb"\x1b(?:\[[0-9;:?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)|[()][0-9A-Z]|[=>])"
)
_LONGEST_FOREIGN = 8

_BLANK = rb"(?: |&nbsp;|&#160;)"
_HTML_LINES = (
    rb"sha256_all=0{64} note=&quot;finalize"
    rb"|(?m:^[A-Za-z0-9+/=]*+&(?:#0*4[37]|#[xX]0*2[bBfF]|plus|sol);)"
)
_HTML = re.compile(
    rb"[a-z\"/]>" + _first(_BLANK) + rb"|" + _first(_BLANK) + rb"(?: |&nbsp;)*+<(?:br|/)"
    rb"|(?:schema|sha256|repo)&(?:#0*61|#[xX]0*3[dD]|equals);|note=&quot;finalize"
    rb"|" + _HTML_LINES
)  # fmt: skip
_IN_HTML = re.compile(_HTML_LINES)
_PLAIN = re.compile(
    rb"(?m)^(?:WTXT(?:-DETACHED)? 1|WTXT-DELTA 2 base_sha256_all=[0-9a-f]{64})\n"
    rb"meta schema=[^\n]*? ts=[0-9]{4}-"
)
_BREAK = re.compile(rb"(?i)<br\b[^<>]{0,200}>|</(?:p|div|li|tr|pre|h[1-6])>")
_TAG = re.compile(rb"<[!/a-zA-Z][^<>]{0,2000}>")
_NAMED = {
    b"nbsp": b" ", b"quot": b'"', b"apos": b"'", b"lt": b"<", b"gt": b">", b"plus": b"+",
    b"equals": b"=", b"sol": b"/", b"lowbar": b"_", b"colon": b":", b"period": b".",
    b"comma": b",", b"commat": b"@", b"NewLine": b"\n", b"Tab": b"\t",
}  # fmt: skip

_STRING = re.compile(_first(b" ") + rb"(?:[^\\\n]|\\/){0,400}\\[nru]")
_PERCENT = re.compile(_first(rb"(?:%20|\+)") + rb"[^\s&]{0,400}%0[AaDd]")
_BASE64 = re.compile(rb"(?:V1RYVCAx|V1RYVC1E|V0xFREdFUiAx)[A-Za-z0-9+/\r\n]*+={0,2}")

_PRINTABLE = re.compile(rb"(?:schema|ext|sha256_all|name|repo)=3D")
_KEYS = (
    rb"\b(?:schema|gen|ts|build|endian|host|cuda|ext|repo|path|(?:base_)?sha256(?:_all)?|fastxor"
    rb"|merkle_(?:prev|this)|ed25519|keyid|name|dtype|shape|order|bytes|hmac|salt|rows_per_chunk"
    rb"|row_(?:size|blocking)|ix|off|len|crc32c|b64|width|lines)"
)
_CUT = re.compile(
    rb"(?P<before>" + _KEYS + rb")=\n(?=3D)|=3\n(?=D)"
    rb"|(?<==3D=3D)=\n(?=3D)|=\n(?=3D(?:=\n?3\n?D| [0-9a-f]\n))"
)

_PLUS = re.compile(rb"(?m)^[A-Za-z0-9/= ]{76} [0-9a-f]$")
_PLUS_GONE = re.compile(rb"(?m)^(?=[A-Za-z0-9/= ]{76} [0-9a-f]$)[A-Za-z0-9/=]{0,75}+ ")
_URL_SAFE = re.compile(rb"(?m)^(?=[A-Za-z0-9_=-]{76} [0-9a-f]$)[A-Za-z0-9=]*+[_-]")
_URL_SAFE_LINE = re.compile(rb"(?m)^[A-Za-z0-9_=-]{76} [0-9a-f]$")
_USUAL = re.compile(rb"(?m)^(?=[A-Za-z0-9+/=]{76} [0-9a-f]$)[A-Za-z0-9=]*+[+/]")
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")
# On fewer lines it may just be a wrong character on each.
_FEW = 3


def replaced(
    pattern: re.Pattern[bytes],
    instead: bytes | Callable[[re.Match[bytes]], bytes],
    text: bytes,
    start: bytes | None = None,
) -> bytes:
    """Apply `pattern.sub` to matches within one line, or that begin with the byte `start`.

    It works piece by piece: a list of very many matches takes much more memory than the text.
    """
    if pattern.search(text) is None:
        return text
    done = bytearray()
    at = 0
    while at < len(text):
        end = text.find(start or b"\n", at + PIECE)
        end = len(text) if end < 0 else end + (start is None)
        done += pattern.sub(instead, text[at:end])
        at = end
    return bytes(done)


def is_foreign(near: bytes) -> bool:
    """Whether there are characters that no text has and no wrong byte could make."""
    return (not near.isascii() and _FOREIGN.search(near) is not None) or (
        _ESCAPE in near and _COLOUR.search(near) is not None
    )


_ESCAPE = b"\x1b"
OVERLAP = _LONGEST_FOREIGN
"""The end of a piece that is examined again with the next one, in bytes."""


def from_wide(text: bytes) -> bytes:
    """Decode UTF-16 and UTF-32, even if bytes were damaged since: a text's characters are ASCII."""
    start = text[:_NEAR]
    pairs = sum(1 for _ in _WIDE.finditer(start))
    # A quarter of the bytes in UTF-32.
    if 5 * pairs < len(start):
        return text
    text = text.lstrip(b"\xff\xfe\0")
    width = 2 if 3 * pairs > len(start) else 4
    for at in range(width):
        column = text[at::width]
        # Wrong bytes between them do not matter if none are missing or inserted.
        if 1000 * column.count(0) <= len(column):
            return column
    return text.replace(b"\0", b"")


def from_foreign(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the text without each kind of characters that no text has, one kind after the other."""
    if _ESCAPE in text:
        text = replaced(_COLOUR, b"", text, _ESCAPE)
        yield "terminal colours", text
    if text.isascii():
        return
    for what, characters, instead in _CHARACTERS:
        for character in characters:
            text = text.replace(character.encode(), instead)
        yield what, text


def is_plain(text: bytes) -> bool:
    """Whether first lines look as no encoding of a whole text would leave them.

    Then an audit line, which may say anything, is not taken as a sign of one.
    """
    if _PLAIN.search(text) is None:
        return False
    return b"&" not in text or _IN_HTML.search(text) is None


def from_html(text: bytes) -> bytes:
    """Remove tags and decode character references."""
    # Found many times faster than by a pattern, as below.
    if not any(mark in text for mark in (b"<", b">", b"&")) or _HTML.search(text) is None:
        return text
    text = replaced(_TAG, b"", replaced(_BREAK, b"\n", text, b"<"), b"<")
    for name, character in _NAMED.items():
        text = text.replace(b"&%b;" % name, character)
    for code in range(127):
        if not chr(code).isalnum() and code != ord("&"):
            for spelled in (b"%d", b"%03d", b"x%x", b"x%X", b"x%02X"):
                text = text.replace(b"&#%b;" % (spelled % code), bytes((code,)))
    return text.replace(b"&amp;", b"&").replace(b"&#38;", b"&")


def from_string(text: bytes) -> bytes:
    """Decode a string of JSON or a programming language."""
    if _STRING.search(text) is None:
        return text
    for letter, character in ((rb"\n", b"\n"), (rb"\r", b"\r"), (rb"\t", b"\t")):
        text = text.replace(letter, character)
    for code in range(32, 127):
        if not chr(code).isalnum() and code != ord("\\"):
            for spelled in (rb"\u%04x", rb"\u%04X", rb"\x%02x"):
                text = text.replace(spelled % code, bytes((code,)))
            text = text.replace(b"\\" + bytes((code,)), bytes((code,)))
    return text.replace(rb"\\", b"\\")


def from_percent(text: bytes) -> bytes:
    """Decode the percent-encoding of a form or an address."""
    match = _PERCENT.search(text)
    if match is None:
        return text
    end = text.find(b"&", match.start())
    text = text[match.start() : None if end < 0 else end]
    if b"+" in match[0].partition(b"1")[0]:
        text = text.replace(b"+", b" ")
    for code in range(127):
        if code != ord("%"):
            for spelled in (b"%%%02X", b"%%%02x"):
                text = text.replace(spelled % code, bytes((code,)))
    return text.replace(b"%25", b"%")


def from_base64(text: bytes) -> bytes:
    """Decode an attachment that was saved together with its mail."""
    if b"endwtxt" in text or b"enddelta" in text or (match := _BASE64.search(text)) is None:
        return text
    body = match[0].translate(None, b"\r\n")
    try:
        return a2b_base64(body[: len(body) // 4 * 4])
    except Base64Error:
        return text


def from_quoted_printable(text: bytes) -> bytes:
    """Decode a mail as it was sent, even if its lines were broken within `=3D` since."""
    if b"=3D" not in text or _PRINTABLE.search(text) is None:
        return text
    return a2b_qp(_CUT.sub(_joined, text))


def _joined(cut: re.Match[bytes]) -> bytes:
    return b"=3" if cut[0] == b"=3\n" else (cut["before"] or b"") + b"="


_CAPITAL = re.compile(
    rb"(?m)^(?:arr|ch|root|WSUM|detached|WTXT-DELTA|WLEDGER) [^\n]*?\b"
    rb"(?:sha256|sha256_all|base_sha256_all|repo)=(?=[0-9]*+[A-F])[0-9A-F]{64}(?:[ \n]|$)"
)
_HASH_LINE = re.compile(rb"(?m)^(?:arr|ch|root|sign|WSUM|detached|WTXT-DELTA|WLEDGER) [^\n]*+$")
_HASH = re.compile(
    rb"\b((?:base_)?sha256(?:_all)?|merkle_prev|merkle_this|fastxor|crc32c|hmac|salt|keyid|repo)"
    rb"=([0-9A-Fa-f]{8,64})(?=[ \n]|$)"
)


def with_small_hashes(text: bytes) -> bytes:
    """Return the text with hashes in small letters, if any near its start has capitals."""
    if _CAPITAL.search(text[:_NEAR]) is None:
        return text
    return replaced(_HASH_LINE, lambda line: _HASH.sub(_small, line[0]), text)


def _small(match: re.Match[bytes]) -> bytes:
    return match[1] + b"=" + match[2].lower()


def with_plus(text: bytes) -> bytes:
    """Restore `+` that a form turned into blanks, and characters of URL-safe base64."""
    if b"+" not in text and sum(1 for _ in _PLUS_GONE.finditer(text)) > _FEW:
        return _PLUS.sub(lambda line: line[0][:76].replace(b" ", b"+") + line[0][76:], text)
    if _USUAL.search(text) is None and sum(1 for _ in _URL_SAFE.finditer(text)) > _FEW:
        return _URL_SAFE_LINE.sub(lambda line: line[0].translate(_FROM_URL_SAFE), text)
    return text
