"""Rewrites a commit's gitattributes file when its files become texts, and when texts become files.

`imported` adds and replaces lines in such a way that `exported` restores the former file, byte for
byte:

    # wtxtgit migrate export makes this line again: *.bin filter=lfs diff=lfs merge=lfs -text
    *.bin filter=wtxt diff=wtxt merge=wtxt -text
    # wtxtgit migrate import: what follows came with the texts
    # Kept as text by wtxtgit: pip install wtxtgit, then wtxtgit install. A file that begins ...
    *.safetensors filter=wtxt diff=wtxt merge=wtxt -text
    # wtxtgit migrate import: end

The first two lines replace git-lfs's line in its place. Added lines go to the end, where they
override all earlier ones; the first of them says what was there before. Lines that somebody
inserts later stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from wtxtgit.git import attributes
from wtxtgit.git.attributes import Line
from wtxtgit.setup.track import (
    ABOUT,
    DETACHED,
    DRIVER_ATTRIBUTES,
    FILTER,
    companions,
    is_about,
    is_companion,
    is_detached,
    is_filter_line,
)

LFS = b"filter=lfs"
_LFS_ATTRIBUTES = (LFS, b"diff=lfs", b"merge=lfs", b"-text")
_FORMER = b"# wtxtgit migrate export makes this line again: "
_BEGIN = b"# wtxtgit migrate import: what follows came with the texts"
_NO_FILE = b" (there was no file)"
_NO_NEWLINE = b" (the line before did not end)"
_OVER_LFS = b" (over git-lfs)"
_END = b"# wtxtgit migrate import: end"
_BOM = b"\xef\xbb\xbf"
"""Git ignores this only at the beginning of a file, so it stays there."""
_LFS_KEYS = (b"filter", b"diff", b"merge", b"text")


class ImportLines(NamedTuple):
    """What an import does to gitattributes files: which patterns become texts, and in which form.

    Without patterns, git-lfs's patterns are used. With `from_lfs` its lines for them are replaced.
    """

    patterns: tuple[bytes, ...]
    detached: bool
    from_lfs: bool

    @property
    def attributes(self) -> tuple[bytes, ...]:
        return (DETACHED if self.detached else FILTER, *DRIVER_ATTRIBUTES)

    def replaces(self, content: bytes) -> bool:
        """Whether a file has lines of git-lfs that are replaced."""
        return self.from_lfs and any(map(self.is_replaced, attributes.parse(content)))

    def is_replaced(self, line: Line) -> bool:
        is_meant = not self.patterns or line.pattern in self.patterns
        return self.from_lfs and is_meant and LFS in line.attributes


def added_lines(lines: ImportLines) -> bytes:
    """Return the lines for the patterns only."""
    return b"".join(
        attributes.format_line(pattern, lines.attributes).raw for pattern in lines.patterns
    )


def imported(content: bytes | None, lines: ImportLines, *, at_top: bool) -> bytes | None:
    """Return the gitattributes file of a commit whose files become texts; None for no file.

    `content` is the former file, None if there was none. `at_top` says that it is the one at the
    top level, which gets the patterns. Raises UsageError for a pattern that git would not obey.
    """
    if content is not None and content.startswith(_BOM):
        return _BOM + (imported(content[len(_BOM) :], lines, at_top=at_top) or b"")
    new_content = attributes.content(_replaced(content or b"", lines))
    if at_top and (missing := _missing_patterns(new_content, lines)):
        new_content = _append_lines(new_content, missing, lines, is_new=content is None)
    return new_content if new_content or content is not None else None


def _missing_patterns(content: bytes, lines: ImportLines) -> list[tuple[bytes, tuple[bytes, ...]]]:
    """Return the patterns, with their attributes, for which a file has no line yet."""
    patterns, extra = frozenset(lines.patterns), companions(content, lines.patterns)
    present = set()
    for line in attributes.parse(content):
        if line.pattern in patterns and is_filter_line(line):
            present.add(line.pattern)
    return [*((p, lines.attributes) for p in lines.patterns if p not in present), *extra.items()]


def exported(content: bytes | None, *, to_lfs: bool) -> bytes | None:
    """Return the gitattributes file of a commit whose texts become files, or git-lfs's pointers.

    `content` is the former file, None for none. Returns None if no file is to be left.
    """
    if content is None:
        return None
    if content.startswith(_BOM):
        return _BOM + (exported(content[len(_BOM) :], to_lfs=to_lfs) or b"")
    kept = bytearray()
    was_new = is_inside = is_over_lfs = is_plain = False
    former_line: bytes | None = None
    for line in attributes.parse(content):
        text = line.raw.strip()
        if text.startswith(_FORMER):
            former_line = line.raw.lstrip()[len(_FORMER) :].rstrip(b"\r\n")
        elif text.startswith(_BEGIN):
            is_inside = True
            was_new, is_over_lfs = _NO_FILE in text, _OVER_LFS in text
            if _NO_NEWLINE in text:
                kept = kept.removesuffix(_ending(line))
        elif text == _END and is_inside:
            is_inside = False
        elif is_filter_line(line):
            if former_line is not None and to_lfs:
                new_lines = [Line(former_line + _ending(line))]
            elif to_lfs and not (is_inside and is_over_lfs):
                new_lines = [attributes.with_attributes(line, (*_LFS_ATTRIBUTES, *_others(line)))]
                is_plain |= not is_inside
            else:
                new_lines = [] if is_inside else _plain(line)
                is_plain |= not is_inside
            former_line = None
            _extend(kept, new_lines)
        elif not (is_inside and is_companion(line)):
            _extend(kept, [line])
    # As `untrack` does: the lines for texts are removed with the last pattern of `track`.
    new_content = bytes(kept)
    del kept
    if is_plain:
        new_content = attributes.content(
            line for line in attributes.parse(new_content) if not is_companion(line)
        )
    return None if not new_content and (was_new or is_plain) else new_content


def _replaced(content: bytes, lines: ImportLines) -> Iterator[Line]:
    """Yield the lines of a file, with ours in the place of those of git-lfs."""
    # `git lfs migrate import` adds its line for a pattern after ours, which names the form.
    filters: dict[bytes | None, bytes] = {}
    for line in attributes.parse(content):
        if lines.is_replaced(line):
            former = None if lines.detached else filters.get(line.pattern)
            yield from _replace(line, lines, former or lines.attributes[0])
            continue
        if is_filter_line(line):
            filters[line.pattern] = DETACHED if is_detached(line) else FILTER
        yield line


def _replace(line: Line, lines: ImportLines, own: bytes) -> Iterator[Line]:
    ending = _ending(line)
    body = line.raw[: len(line.raw) - len(ending)]
    yield Line(_FORMER + body + (ending or b"\n"))
    names = (own, *lines.attributes[1:], *_others(line))
    yield attributes.format_line(line.pattern or b"", names, ending)


def _append_lines(
    content: bytes,
    patterns: Iterable[tuple[bytes, tuple[bytes, ...]]],
    lines: ImportLines,
    *,
    is_new: bool,
) -> bytes:
    notes = _NO_FILE if is_new else b""
    if content and not content.endswith(b"\n"):
        notes += _NO_NEWLINE
    if lines.from_lfs:
        notes += _OVER_LFS
    has_about = any(map(is_about, attributes.parse(content)))
    content = attributes.append_comment(content, _BEGIN + notes)
    if not has_about:
        content = attributes.append_comment(content, ABOUT)
    content = attributes.append(content, patterns)
    return attributes.append_comment(content, _END)


def _extend(kept: bytearray, lines: Iterable[Line]) -> None:
    """Append lines after one that may have lost its line ending."""
    for line in lines:
        if kept and not kept.endswith(b"\n"):
            kept += b"\n"
        kept += line.raw


def _plain(line: Line) -> list[Line]:
    """Return a line of ours without our attributes; nothing if no attribute is left."""
    others = [
        name for name in line.attributes if name not in (FILTER, DETACHED, *DRIVER_ATTRIBUTES)
    ]
    return [attributes.with_attributes(line, others)] if others else []


def _others(line: Line) -> list[bytes]:
    """Return the attributes that have nothing to do with how a file is stored."""
    return [
        name for name in line.attributes if name.lstrip(b"-!").partition(b"=")[0] not in _LFS_KEYS
    ]


def _ending(line: Line) -> bytes:
    return line.raw[len(line.raw.rstrip(b"\r\n")) :]
