"""What mail, forms and editors do to a text, undone.

A text is plain ASCII with LF, so what they change is known: line ends, spaces at the
ends of lines, marks of quoting, quoted-printable, a byte order mark, UTF-16, line
breaks at other places, and what stands before and after.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO

from wtxtgit.io.view import PIECE, ByteView
from wtxtgit.text import grammar
from wtxtgit.text.grammar import line_count

_QUOTED = re.compile(rb"(?m)^(?:[>|] ?)+")
_INDENTED = re.compile(rb"(?m)^[ \t]+")
_TRAILING = re.compile(rb"(?m)[ \t\r\f\v]+$")
_START = re.compile(rb"(?m)^[^\nA-Za-z0-9]*(?:WTXT 1\s*$|WTXT-DELTA 2 |WLEDGER 1 )")
_END = re.compile(rb"(?m)^[^\nA-Za-z0-9]*(endwtxt|enddelta)\s*$")
_EMPTY = re.compile(rb"\n{2,}")
_FILLED = re.compile(rb"(?m)^.")
_MOST_TRANSPORTS = 4
_WHITE = re.compile(rb"\s+")
_WHITE_OR_QUOTED = re.compile(rb"[\s>|]+")
_NEAR = 64 * 1024
"""Bytes of a text's start in which marks of a transport show."""

# Lines without the spaces between their fields, as they are found where all white space is gone.
_HASH = rb"[0-9a-f]{64}"
_SOLID = (
    (rb"WTXT1(?=meta)", b"WTXT 1"),
    (rb"metaschema=(.+?)gen=([0-9]+)ts=(.{20})build=(.+?)endian=LEhost=(.+?)cuda=(.+?)(?=capext=)",
     b"meta schema=%b gen=%b ts=%b build=%b endian=LE host=%b cuda=%b"),
    (rb"capext=(.+?)(?=root)", b"cap ext=%b"),
    (rb"rootsha256_all=(.{64})merkle_prev=(.{64})merkle_this=(.{64})fastxor=(.{16})",
     b"root sha256_all=%b merkle_prev=%b merkle_this=%b fastxor=%b"),
    (rb"root_pendingsha256_all=0{64}note=\"finalizewithWSUM\"", grammar.PENDING_LINE[:-1]),
    (rb"signed25519=(.{88})keyid=(.{16})", b"sign ed25519=%b keyid=%b"),
    ((rb"arrname=(.+?)dtype=(.+?)shape=(.+?)order=Cbytes=([0-9]+)sha256=(.{64})hmac=(.{64})"
     rb"salt=(.{16})"),
     b"arr name=%b dtype=%b shape=%b order=C bytes=%b sha256=%b hmac=%b salt=%b"),
    (rb"idxrows_per_chunk=([0-9]+)row_size=([0-9]+)row_blocking=(on|off)",
     b"idx rows_per_chunk=%b row_size=%b row_blocking=%b"),
    (rb"endch", b"endch"),
    (rb"endarr", b"endarr"),
    (rb"endwtxt", b"endwtxt"),
)  # fmt: skip
_SOLID_LINES = [(re.compile(pattern), spelled) for pattern, spelled in _SOLID]
_SOLID_CHUNK = re.compile(
    rb"chix=(.{6})off=(.{12})len=([0-9]+?)sha256=(.{64})crc32c=(.{8})b64=onwidth=76lines="
)
_CHUNK = b"ch ix=%b off=%b len=%b sha256=%b crc32c=%b b64=on width=76 lines=%d\n"


def undone(text: ByteView) -> tuple[ByteView, tuple[str, ...]]:
    """A text as it was before its transport, and what was undone; itself where nothing was.

    Where its start shows that it came line by line as it was, it is a part of `text`; what is
    changed throughout is taken into memory.
    """
    start = bytes(text[:_NEAR])
    # Whole lines: what is cut off within one looks like a space at its end.
    start = start[: start.rfind(b"\n") + 1]
    if start.startswith(_FIRST_WORDS) and _undone(start) == (start, ()) and _is_lined(start):
        if bytes(text[-_LINE:]).endswith(_LAST_LINES):
            return text, ()
        end = _end_of(text)
        return (text, ()) if end is None else (text[:end], (_AROUND,))
    plain, changes = _undone(bytes(text), _within)
    if not _is_lined(plain[:_NEAR]) and (lined := _lined(plain)) != plain:
        plain, changes = lined, (*changes, "line breaks")
    return memoryview(plain), changes


_AROUND = "text before and after"
_ON_EACH_LINE = (
    ("spaces at the ends of lines", _TRAILING, b""),
    ("marks of quoting", _QUOTED, b""),
    ("indentation", _INDENTED, b""),
    ("empty lines", _EMPTY, b"\n"),
)
_FIRST_WORDS = (grammar.FIRST_LINE, b"WTXT-DELTA 2 ", b"WLEDGER 1 ")
_LAST_LINES = (b"\nendwtxt\n", b"\nenddelta\n")


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
        if plain[:2] in (b"\xff\xfe", b"\xfe\xff"):
            change("UTF-16", plain.decode("utf-16", "replace").encode("ascii", "replace"))
        change("byte order mark", plain.removeprefix(b"\xef\xbb\xbf"))
        if b"\r" in plain:
            change("line ends", plain.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        if within is not None:
            change(_AROUND, within(plain))
        for what, pattern, instead in _ON_EACH_LINE:
            # On a few lines it is damage, which their chunks show how to mend.
            lines = sum(1 for _ in _FILLED.finditer(plain))
            if 2 * sum(1 for _ in pattern.finditer(plain)) >= lines:
                change(what, pattern.sub(instead, plain))
        # Which joins lines: what is at the beginning of each must not stand in between.
        if re.search(rb"schema=3D|ext=3D|sha256_all=3D|name=3D", plain):
            change("quoted-printable", _from_quoted_printable(plain))
        if plain == before:
            break
    return plain, tuple(changes)


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
    if b"sha256=" not in start:
        return True
    return re.search(rb"(?m)^(?:arr |ch |root ).{120,}\n", start) is not None


def _from_quoted_printable(text: bytes) -> bytes:
    import quopri

    plain = BytesIO()
    quopri.decode(BytesIO(text), plain)
    return plain.getvalue()


def _within(text: bytes) -> bytes:
    """The text from its first line to its last, where these can be made out."""
    first = _START.search(text)
    start = 0 if first is None else first.start()
    last = _END.search(text, start)
    within = text[start : len(text) if last is None else last.end()]
    return within if within.endswith(b"\n") else within + b"\n"


def _lined(text: bytes) -> bytes:
    """A text whose lines were broken elsewhere, with those that it had."""
    for between in (_WHITE, _WHITE_OR_QUOTED):
        if (lined := _lined_of(between.sub(b"", text))) is not None:
            return lined
    return text


def _lined_of(solid: bytes) -> bytes | None:
    lined = bytearray()
    at = 0
    while at < len(solid):
        if (m := _SOLID_CHUNK.match(solid, at)) is not None:
            at = _take_chunk(solid, m, lined)
            continue
        for pattern, spelled in _SOLID_LINES:
            if (m := pattern.match(solid, at)) is not None:
                lined += (spelled % m.groups() if m.groups() else spelled) + b"\n"
                at = m.end()
                break
        else:
            return None
        if lined.endswith(grammar.LAST_LINE):
            break
    return bytes(lined)


def _take_chunk(solid: bytes, m: re.Match[bytes], lined: bytearray) -> int:
    """Put a chunk's lines behind what is there; gives where it ends."""
    size = int(m[3])
    count = line_count(size)
    at = m.end() + len(str(count))
    lined += _CHUNK % (*m.groups(), count)
    step = grammar.LINE_BASE64 + 1
    end = min(at + count * step, len(solid))
    for line in range(at, end, step):
        lined += solid[line : line + step - 1] + b" " + solid[line + step - 1 : line + step] + b"\n"
    return end
