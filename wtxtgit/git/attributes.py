"""Gitattributes: lines of a file, read and edited; and what git makes of all of them.

gitattributes(5). A file is kept as it is, byte for byte, but for the lines
that are added, changed or removed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import UsageError
from wtxtgit.git import run
from wtxtgit.git.repository import Repository

FILE_NAME = ".gitattributes"
MAX_LINE = 2048
"""Git ignores a line that is longer."""

UNSET = b"unset"

_BLANK = b" \t\r\n"
_BLANKS = re.compile(rb"[" + _BLANK + rb"]+")
_MACRO = b"[attr]"
_ESCAPES = {
    0x07: b"a", 0x08: b"b", 0x09: b"t", 0x0A: b"n", 0x0B: b"v", 0x0C: b"f", 0x0D: b"r",
    0x22: b'"', 0x5C: b"\\",
}  # fmt: skip
_UNESCAPES = {letter[0]: code for code, letter in _ESCAPES.items()}
_NEEDS_QUOTES = re.compile(rb'[\x00-\x20"\x7f]')
_QUOTED = re.compile(rb'"((?:[^"\\]|\\[abtnvfr"\\]|\\[0-3][0-7]{2})*)"')
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its ending.

    `pattern` is unquoted, None for a comment, an empty line, a macro, or
    what git can't read. `attributes` are as written: `text`, `-text`,
    `!text`, `eol=lf`.
    """

    raw: bytes
    pattern: bytes | None = None
    attributes: tuple[bytes, ...] = ()


def parse(content: bytes) -> list[Line]:
    """Cut a gitattributes file into lines; joined, their `raw` is the content."""
    return [_parse_line(raw) for raw in _LINE.findall(content)]


def content(lines: Iterable[Line]) -> bytes:
    """Join lines again."""
    return b"".join(line.raw for line in lines)


def format_line(pattern: bytes, attributes: Sequence[bytes], ending: bytes = b"\n") -> Line:
    """Make a line; raises UsageError for a pattern that git would not obey."""
    check_pattern(pattern)
    raw = b" ".join((quote(pattern), *attributes)) + ending
    if len(raw) > MAX_LINE:
        raise UsageError(f"the pattern {_shown(pattern)} is too long: git ignores such a line")
    return Line(raw, pattern, tuple(attributes))


def append(lines: Sequence[Line], pattern: bytes, attributes: Sequence[bytes]) -> list[Line]:
    """Add a line at the end, with the file's own line ending."""
    ending = b"\r\n" if lines and lines[0].raw.endswith(b"\r\n") else b"\n"
    before = list(lines)
    if before and not before[-1].raw.endswith(b"\n"):
        last = before[-1]
        before[-1] = Line(last.raw + ending, last.pattern, last.attributes)
    return [*before, format_line(pattern, attributes, ending)]


def with_attributes(line: Line, attributes: Sequence[bytes]) -> Line:
    """Give a line other attributes; its ending stays."""
    if line.pattern is None:
        raise ValueError("a line without a pattern has no attributes")
    ending = line.raw[len(line.raw.rstrip(b"\r\n")) :]
    return format_line(line.pattern, attributes, ending)


def check_pattern(pattern: bytes) -> None:
    """Raise UsageError for a pattern that can't match a file."""
    if not pattern or b"\0" in pattern:
        raise UsageError("a pattern is empty")
    if pattern.startswith(b"!"):
        raise UsageError(
            f"git takes no negative pattern in {FILE_NAME}: {_shown(pattern)}",
            hint="a later line can take the attribute back: PATTERN -filter",
        )
    if pattern.endswith(b"/"):
        raise UsageError(
            f"the pattern {_shown(pattern)} names a folder, and git matches files only",
            hint="wtxtgit track -- "
            + shlex.quote(pattern.decode("utf-8", "backslashreplace") + "**"),
        )


def quote(pattern: bytes) -> bytes:
    """Spell a pattern as git reads it: C-style in quotes where it has to be."""
    if not _NEEDS_QUOTES.search(pattern) and not pattern.startswith((b"#", _MACRO)):
        return pattern
    spelled = bytearray(b'"')
    for byte in pattern:
        if byte in _ESCAPES:
            spelled += b"\\" + _ESCAPES[byte]
        elif byte < 0x20 or byte == 0x7F:
            spelled += b"\\%03o" % byte
        else:
            spelled.append(byte)
    return bytes(spelled + b'"')


def effective(
    repo: Repository,
    paths: Iterable[bytes],
    names: Sequence[str],
    *,
    from_index: bool = False,
    index_file: Path | None = None,
) -> dict[bytes, dict[str, bytes]]:
    """Ask git for attributes of paths, relative to the top level.

    `from_index` takes the gitattributes files of the index, not those of the
    work tree; `index_file` is another index than the repository's. Values are
    git's: a value, `set`, `unset` or `unspecified`.
    """
    wanted = run.joined(dict.fromkeys(paths))
    if not wanted:
        return {}
    cached = ("--cached",) if from_index else ()
    env = {"GIT_INDEX_FILE": str(index_file)} if index_file else None
    output = repo.git("check-attr", *cached, "-z", "--stdin", *names, stdin=wanted, env=env)
    fields = run.records(output)
    found: dict[bytes, dict[str, bytes]] = {}
    for path, name, value in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        found.setdefault(path, {})[name.decode("ascii")] = value
    return found


def _parse_line(raw: bytes) -> Line:
    text = raw.strip(_BLANK)
    if not text or text.startswith((b"#", _MACRO)):
        return Line(raw)
    if text.startswith(b'"'):
        quoted = _QUOTED.match(text)
        if quoted is None:
            return Line(raw)
        pattern = _ESCAPE.sub(_unescaped, quoted[1])
        rest = text[quoted.end() :]
    else:
        pattern, *others = _BLANKS.split(text, maxsplit=1)
        rest = others[0] if others else b""
    return Line(raw, pattern, tuple(word for word in _BLANKS.split(rest) if word))


def _unescaped(found: re.Match[bytes]) -> bytes:
    what = found[1]
    return bytes([int(what, 8) if len(what) == 3 else _UNESCAPES[what[0]]])


def _shown(pattern: bytes) -> str:
    return ascii(pattern.decode("utf-8", "surrogateescape"))
