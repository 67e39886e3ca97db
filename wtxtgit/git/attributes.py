"""Gitattributes: lines of a file, read and edited; and what git makes of them.

gitattributes(5). A file is kept as it is, byte for byte, but for the lines
that are added, changed or removed.

`Repository.attributes` asks git about paths as it filters them here.
`TreeAttributes` asks what a tree's own gitattributes files say, and nothing
else: what a clone has of its own (configuration, `info/attributes`, the files
of the user and the system) must not change that answer. So git is asked in an
empty repository: a temporary folder, with the tree's gitattributes files alone
in its work tree. They are not put into an index instead: of a file that begins
with a byte order mark git then takes another first line than in a checkout.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git import run
from wtxtgit.git.blobs import BlobReader, TooLarge
from wtxtgit.git.repository import FILTERS, UNSPECIFIED, Repository

FILE_NAME = ".gitattributes"
MAX_LINE = 2048
"""Git ignores a line that has so many bytes before its ending, or more."""

_UNSET = (UNSPECIFIED, b"unset")
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
_FOLDABLE = re.compile(rb"[A-Z\\\[]")
"""What a line has for which `core.ignoreCase` can matter, capitals that are escaped and classes
included: [[:upper:]] and [@-^] match lower case then. Git folds ASCII letters alone."""
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')


class Line(NamedTuple):
    """A line with its ending.

    `pattern` is unquoted, None for a comment, an empty line, a macro, or
    what git can't read or ignores. `attributes` are as written: `text`, `-text`,
    `!text`, `eol=lf`.
    """

    raw: bytes
    pattern: bytes | None = None
    attributes: tuple[bytes, ...] = ()


def parse(content: bytes) -> Iterator[Line]:
    """Cut a gitattributes file into lines; joined, their `raw` is the content.

    One after the other: a file of very many short lines would take thirty times its bytes.
    """
    return (_parse_line(found[0]) for found in _LINE.finditer(content))


def content(lines: Iterable[Line]) -> bytes:
    """Join lines again."""
    # Not a join, which has all of them at once.
    joined = BytesIO()
    for line in lines:
        joined.write(line.raw)
    return joined.getvalue()


def format_line(pattern: bytes, attributes: Sequence[bytes], ending: bytes = b"\n") -> Line:
    """Make a line; raises UsageError for a pattern that git would not obey."""
    check_pattern(pattern)
    # Quoted as git reads it back: gitattributes(5) has the rules of C strings.
    raw = b" ".join((quote(pattern), *attributes)) + ending
    if _is_ignored(raw):
        raise UsageError(f"the pattern {_shown(pattern)} is too long: git ignores such a line")
    return Line(raw, pattern, tuple(attributes))


def append(content: bytes, patterns: Iterable[tuple[bytes, Sequence[bytes]]]) -> bytes:
    """Add lines of patterns, and their attributes, at the end, with the file's own line ending."""
    end = ending(content)
    return _appended(content, [format_line(pattern, names, end) for pattern, names in patterns])


def append_comment(content: bytes, comment: bytes) -> bytes:
    """Add a comment in the same way, which begins with `#`."""
    return _appended(content, [Line(comment + ending(content))])


def ending(content: bytes) -> bytes:
    """The line ending of a file: that of its first line."""
    return b"\r\n" if content[: content.find(b"\n") + 1].endswith(b"\r\n") else b"\n"


def _appended(content: bytes, lines: Sequence[Line]) -> bytes:
    # Else the first new line would go on where the last one ends.
    is_open = lines and content and not content.endswith(b"\n")
    between = ending(content) if is_open else b""
    return b"".join((content, between, *(line.raw for line in lines)))


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
    # gitattributes(5): negative patterns are forbidden.
    if pattern.startswith(b"!"):
        raise UsageError(
            f"git allows no negative patterns in {FILE_NAME}: {_shown(pattern)}",
            hint="a later line can unset the attribute: PATTERN -filter",
        )
    if pattern.endswith(b"/"):
        raise UsageError(
            f"the pattern {_shown(pattern)} names a folder, but git matches only files",
            hint="wtxtgit track -- "
            + shlex.quote(pattern.decode("utf-8", "backslashreplace") + "**"),
        )


def quote(pattern: bytes) -> bytes:
    """Spell a pattern as git reads it: C-style in quotes where it has to be."""
    if not _NEEDS_QUOTES.search(pattern) and not pattern.startswith((b"#", _MACRO)):
        return pattern
    spelled = bytearray(b'"')
    for byte in pattern:
        # Bytes over 0x7F stand as they are: git unquotes bytes, not characters.
        if byte in _ESCAPES:
            spelled += b"\\" + _ESCAPES[byte]
        elif byte < 0x20 or byte == 0x7F:
            spelled += b"\\%03o" % byte
        else:
            spelled.append(byte)
    return bytes(spelled + b'"')


def unquote(spelled: bytes) -> bytes:
    """Undo `quote`, and whatever else git quotes so: a path in one of its lists."""
    quoted = _QUOTED.fullmatch(spelled)
    return spelled if quoted is None else _ESCAPE.sub(_unescaped, quoted[1])


def _parse_line(raw: bytes) -> Line:
    text = raw.strip(_BLANK)
    # Git reads a macro only at the top level, and gives it no path: no line of ours.
    if not text or text.startswith((b"#", _MACRO)) or _is_ignored(raw):
        return Line(raw)
    if text.startswith(b'"'):
        quoted = _QUOTED.match(text)
        # Git takes a quote that does not end for the pattern's first letter: never ours.
        if quoted is None:
            return Line(raw)
        pattern = _ESCAPE.sub(_unescaped, quoted[1])
        rest = text[quoted.end() :]
    else:
        pattern, *others = _BLANKS.split(text, maxsplit=1)
        rest = others[0] if others else b""
    return Line(raw, pattern, tuple(word for word in _BLANKS.split(rest) if word))


def _is_ignored(raw: bytes) -> bool:
    """Whether git passes over a line of a file, which loses its ending first."""
    return len(raw.removesuffix(b"\n").removesuffix(b"\r")) >= MAX_LINE


def _unescaped(escape: re.Match[bytes]) -> bytes:
    spelled = escape[1]
    return bytes([int(spelled, 8) if len(spelled) == 3 else _UNESCAPES[spelled[0]]])


def altering(values: tuple[bytes, ...]) -> Iterator[str]:
    """The attributes by which a checkout writes other bytes than a blob has, as they are spelled.

    `values` are those of `CHECKOUT`, or none. A filter of ours is none of them. Nor need `text`
    be one, which says what a user's own configuration makes of a file.
    """
    if not values:
        return
    driver, text, crlf, eol, ident, encoding, subst = values
    # Another filter's smudge writes what it likes in the place of what is sealed.
    if driver not in (*_UNSET, *FILTERS):
        yield f"filter={_spelled(driver)}"
    # What `crlf` says counts where `text` says nothing.
    kind = crlf if text == UNSPECIFIED else text
    if kind == b"unset" or kind == b"input" or eol == b"lf":
        pass  # where it is unset `eol` says nothing
    elif eol not in _UNSET:
        yield f"eol={_spelled(eol)}"
    elif kind != UNSPECIFIED:
        yield "text" if kind == b"set" else f"text={_spelled(kind)}"
    for name, value in (("ident", ident), ("working-tree-encoding", encoding),
                        ("export-subst", subst)):  # fmt: skip
        if value not in _UNSET:
            yield name


def _spelled(value: bytes) -> str:
    return _shown(value)[1:-1]


def _shown(pattern: bytes) -> str:
    return ascii(pattern.decode("utf-8", "surrogateescape"))


_ALIVE = 8
"""So many processes at most, each for one set of gitattributes files."""
_REMEMBERED = 1 << 16
"""So many answers at most, for each of them."""
_BATCH = 4096
"""Bytes asked at once. No pipe holds less, so git and we never both wait to write."""
_BLOCK = 1 << 16
CHECKOUT = (
    "filter", "text", "crlf", "eol", "ident", "working-tree-encoding", "export-subst",
)  # fmt: skip
"""Attributes that decide what a checkout or an archive writes, gitattributes(5)."""

MAX_FILE = 100 * 1024 * 1024
"""Bytes of a gitattributes file from which git ignores it (ATTR_MAX_FILE_SIZE)."""

_CONFIG = """\
[core]
\trepositoryFormatVersion = 0
\tignoreCase = false
"""
_FOREIGN = (
    "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_ATTR_SOURCE",
    "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
)  # fmt: skip


_Key = tuple[frozenset[tuple[bytes, str]], tuple[str, ...], bool]


class TreeAttributes:
    """Asks git about paths, under sets of gitattributes files; a context manager.

    One process for each set, and the attributes asked for, kept for the next question. Blobs that
    are in `unwritten` need not be in the repository.
    """

    def __init__(self, repo: Repository, unwritten: Mapping[str, bytes] | None = None) -> None:
        self._repo = repo
        self._unwritten = {} if unwritten is None else unwritten
        self._closing = contextlib.ExitStack()
        self._folder: Path | None = None
        self._blobs = BlobReader(repo)
        self._asked: OrderedDict[_Key, _Question] = OrderedDict()
        self._begun = 0

    def __enter__(self) -> TreeAttributes:
        return self

    def __exit__(self, *_: object) -> None:
        for question in self._asked.values():
            question.close()
        self._asked.clear()
        self._folder = None
        self._blobs.__exit__()
        self._closing.close()

    def filtered(self, attribute_files: Mapping[bytes, str], paths: Iterable[bytes]) -> set[bytes]:
        """Choose the paths that a filter of ours is for.

        `attribute_files` are a tree's gitattributes files, path to blob, the
        regular files alone: git reads none through a link. Raises
        EnvironmentFailure where a blob of them is not there, or a path can be
        none of a checkout.
        """
        return set(self.drivers(attribute_files, paths))

    def drivers(
        self, attribute_files: Mapping[bytes, str], paths: Iterable[bytes]
    ) -> dict[bytes, bytes]:
        """The same paths, with the filter of ours that each one has."""
        # More than is needed: who asks for them next needs no other process.
        values = self.values(attribute_files, paths, CHECKOUT)
        return {path: driver for path, (driver, *_) in values.items() if driver in FILTERS}

    def values(
        self,
        attribute_files: Mapping[bytes, str],
        paths: Iterable[bytes],
        names: tuple[str, ...],
        *,
        ignore_case: bool = False,
    ) -> dict[bytes, tuple[bytes, ...]]:
        """Give what these attributes are of each path, as git says it: `unspecified`, `wtxt`.

        With `ignore_case` as git says it where core.ignoreCase is set, as it is
        on macOS and Windows. Raises EnvironmentFailure as `filtered` does.
        """
        wanted = list(dict.fromkeys(paths))
        if not attribute_files or not wanted:
            return dict.fromkeys(wanted, (UNSPECIFIED,) * len(names))
        question = self._question(attribute_files, names)
        # Where nothing can be folded both answers are one, and one process is enough.
        if ignore_case and (question.is_foldable or any(map(_FOLDABLE.search, wanted))):
            question = self._question(attribute_files, names, ignore_case=True)
        return question.values(wanted)

    def _question(
        self,
        attribute_files: Mapping[bytes, str],
        names: tuple[str, ...],
        *,
        ignore_case: bool = False,
    ) -> _Question:
        key = frozenset(attribute_files.items()), names, ignore_case
        question = self._asked.pop(key, None)
        if question is None:
            # The one that was asked longest ago ends: a walk comes back to the last few sets.
            if len(self._asked) >= _ALIVE:
                self._asked.popitem(last=False)[1].close()
            question = self._begin(attribute_files, names, ignore_case=ignore_case)
        self._asked[key] = question
        return question

    def _begin(
        self, attribute_files: Mapping[bytes, str], names: tuple[str, ...], *, ignore_case: bool
    ) -> _Question:
        if self._folder is None:
            self._folder = self._make()
        self._begun += 1
        work_tree = self._folder / f"tree-{self._begun}"
        try:
            work_tree.mkdir()
            written = [self._write(work_tree, *file) for file in attribute_files.items()]
        except OSError as error:
            raise EnvironmentFailure(
                f"the gitattributes files of a tree can't be written: {error.strerror}"
            ) from error
        env = {
            **dict.fromkeys(_FOREIGN),
            "GIT_DIR": str(self._folder / "git"),
            "GIT_WORK_TREE": str(work_tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            # Where git looks for what is the user's own: nothing is there.
            "HOME": str(self._folder / "home"),
            "XDG_CONFIG_HOME": str(self._folder / "home"),
        }
        settings = ("-c", "core.ignoreCase=true") if ignore_case else ()
        asked = ("check-attr", "-z", "--stdin", *names)
        stream = run.GitStream(*settings, *asked, cwd=work_tree, env=env)
        is_foldable = any(map(_FOLDABLE.search, [*attribute_files, *written]))
        return _Question(stream, work_tree, names, is_foldable)

    def _write(self, work_tree: Path, path: bytes, oid: str) -> bytes:
        """Write a gitattributes file; gives what git takes of it."""
        # A hostile tree must not have us write outside of the folder.
        if {b"", b".", b".."} & set(path.split(b"/")):
            raise EnvironmentFailure(f"no checkout can have a file named {os.fsdecode(path)!a}")
        content = self._unwritten.get(oid)
        try:
            content = self._blobs.read(oid, MAX_FILE - 1) if content is None else content
        except TooLarge:
            # Git takes nothing of it. It is read all the same: what is missing may say anything.
            for _ in self._blobs.chunks(oid):
                pass
            return b""
        file = work_tree / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        # "x": two paths that this file system takes for one would hide one another's lines.
        with file.open("xb") as out:
            out.write(content)
        return content

    def _make(self) -> Path:
        try:
            import tempfile

            # Removed with all in it, even where a question is still open.
            temporary = tempfile.TemporaryDirectory(prefix="wtxtgit-")
            folder = Path(self._closing.enter_context(temporary))
            for name in ("git/objects", "git/refs"):
                (folder / name).mkdir(parents=True)
            (folder / "git/HEAD").write_text("ref: refs/heads/main\n")
            (folder / "git/config").write_text(_CONFIG)
        except OSError as error:
            raise EnvironmentFailure(f"can't make a temporary folder: {error.strerror}") from error
        return folder


class _Question:
    """A running `git check-attr`, and what it said."""

    def __init__(
        self, stream: run.GitStream, work_tree: Path, names: tuple[str, ...], is_foldable: bool
    ) -> None:
        self.is_foldable = is_foldable
        """Whether `core.ignoreCase` can matter to the gitattributes files, or to their paths."""
        self._stream = stream
        self._work_tree = work_tree
        self._names = names
        self._known: dict[bytes, tuple[bytes, ...]] = {}

    def close(self) -> None:
        self._stream.__exit__()
        import shutil

        shutil.rmtree(self._work_tree, ignore_errors=True)

    def values(self, paths: list[bytes]) -> dict[bytes, tuple[bytes, ...]]:
        answers = {path: self._known[path] for path in paths if path in self._known}
        asked = (path for path in paths if path not in self._known)
        for batch in run.batches(asked, _BATCH):
            # All at once: what is asked again soon is asked in batches anyway.
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            values = dict(zip(batch, self._answers(batch), strict=True))
            self._known.update(values)
            answers.update(values)
        return answers

    def _answers(self, batch: list[bytes]) -> list[tuple[bytes, ...]]:
        self._stream.ask(run.joined(batch))
        # Path, attribute and value of each attribute of each path, each ended by NUL.
        several = len(self._names)
        missing = 3 * several * len(batch)
        output = bytearray()
        while missing > 0:
            block = self._stream.stdout.read1(_BLOCK)
            if not block:
                raise EnvironmentFailure("git check-attr ended before its last answer")
            missing -= block.count(b"\0")
            output += block
        fields = run.records(bytes(output))
        # An answer that is out of step would give one path another's attributes.
        if fields[:: 3 * several] != batch:
            raise EnvironmentFailure("git check-attr gave an answer to something else")
        values = fields[2::3]
        return [tuple(values[n : n + several]) for n in range(0, len(values), several)]
