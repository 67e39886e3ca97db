"""Gitattributes: reading and editing lines of a file, and asking git what they mean for paths.

gitattributes(5). Editing keeps a file byte for byte, except for the lines that are added, changed
or removed.

`Repository.attributes` asks git which attributes paths have in this repository, as its filters see
them. `TreeAttributes` asks what a tree's own gitattributes files say, and nothing else: the
settings of a clone (configuration, `info/attributes`, the files of the user and the system) must
not change that answer. So git is asked in an empty repository: a temporary folder with only the
tree's gitattributes files in its work tree. They are not put into an index instead, because git
then reads the first line of a file that begins with a byte order mark differently than in a
checkout.
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

from wtxtgit.errors import EnvironmentFailure, UsageError, phrase
from wtxtgit.git import run
from wtxtgit.git.blobs import BlobReader, TooLarge
from wtxtgit.git.repository import FILTERS, UNSPECIFIED, Repository

FILE_NAME = ".gitattributes"
MAX_LINE = 2048
"""Git ignores a line with at least this many bytes before its ending."""

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
"""Matches lines and paths for which `core.ignoreCase` can matter, including escaped capitals and
classes: [[:upper:]] and [@-^] then match lower case. Git only folds ASCII letters."""
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')


class Line(NamedTuple):
    """One line of a gitattributes file, with its ending.

    `pattern` is unquoted. It is None for a comment, an empty line, a macro, and a line that git
    can't read or ignores. `attributes` are as written: `text`, `-text`, `!text`, `eol=lf`.
    """

    raw: bytes
    pattern: bytes | None = None
    attributes: tuple[bytes, ...] = ()


def parse(content: bytes) -> Iterator[Line]:
    """Yield the lines of a gitattributes file; joining their `raw` gives `content` again.

    Lazily: a list of the lines of a file with very many short ones would take thirty times its
    size.
    """
    return (_parse_line(match[0]) for match in _LINE.finditer(content))


def content(lines: Iterable[Line]) -> bytes:
    """Join lines into the content of a file; the inverse of `parse`."""
    # No `b"".join`, which would hold all lines in memory at once.
    joined = BytesIO()
    for line in lines:
        joined.write(line.raw)
    return joined.getvalue()


def format_line(pattern: bytes, attributes: Sequence[bytes], ending: bytes = b"\n") -> Line:
    """Build the line for a pattern; raises UsageError for one that git would not obey."""
    check_pattern(pattern)
    # Quoted as git reads it back: gitattributes(5) has the rules of C strings.
    raw = b" ".join((quote(pattern), *attributes)) + ending
    if _is_ignored(raw):
        raise UsageError(f"the pattern {_shown(pattern)} is too long: git ignores such a line")
    return Line(raw, pattern, tuple(attributes))


def append(content: bytes, patterns: Iterable[tuple[bytes, Sequence[bytes]]]) -> bytes:
    """Append lines, each a pattern and its attributes, with the line ending that the file uses."""
    end = ending(content)
    return _appended(content, [format_line(pattern, names, end) for pattern, names in patterns])


def append_comment(content: bytes, comment: bytes) -> bytes:
    """Append a comment line, with the line ending that the file uses. `comment` begins with `#`."""
    return _appended(content, [Line(comment + ending(content))])


def ending(content: bytes) -> bytes:
    """Return the line ending that a file uses, judged by its first line."""
    return b"\r\n" if content[: content.find(b"\n") + 1].endswith(b"\r\n") else b"\n"


def _appended(content: bytes, lines: Sequence[Line]) -> bytes:
    # Without a line break in between, the first new line would continue the last old one.
    is_open = lines and content and not content.endswith(b"\n")
    between = ending(content) if is_open else b""
    return b"".join((content, between, *(line.raw for line in lines)))


def with_attributes(line: Line, attributes: Sequence[bytes]) -> Line:
    """Return the line with other attributes and the same line ending."""
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
    quoted = bytearray(b'"')
    for byte in pattern:
        # Bytes over 0x7F are not escaped: git unquotes bytes, not characters.
        if byte in _ESCAPES:
            quoted += b"\\" + _ESCAPES[byte]
        elif byte < 0x20 or byte == 0x7F:
            quoted += b"\\%03o" % byte
        else:
            quoted.append(byte)
    return bytes(quoted + b'"')


def unquote(text: bytes) -> bytes:
    """Undo `quote`; this also works for paths that git quotes in its own output."""
    quoted = _QUOTED.fullmatch(text)
    return text if quoted is None else _ESCAPE.sub(_unescaped, quoted[1])


def _parse_line(raw: bytes) -> Line:
    text = raw.strip(_BLANK)
    # Git reads macros only at the top level, and they apply to no path: `pattern` stays None.
    if not text or text.startswith((b"#", _MACRO)) or _is_ignored(raw):
        return Line(raw)
    if text.startswith(b'"'):
        quoted = _QUOTED.match(text)
        # Git takes an unterminated quote for the pattern's first letter. No such line is ours.
        if quoted is None:
            return Line(raw)
        pattern = _ESCAPE.sub(_unescaped, quoted[1])
        rest = text[quoted.end() :]
    else:
        pattern, *others = _BLANKS.split(text, maxsplit=1)
        rest = others[0] if others else b""
    return Line(raw, pattern, tuple(word for word in _BLANKS.split(rest) if word))


def _is_ignored(raw: bytes) -> bool:
    """Tell whether git ignores this line for its length, not counting the line ending."""
    return len(raw.removesuffix(b"\n").removesuffix(b"\r")) >= MAX_LINE


def _unescaped(escape: re.Match[bytes]) -> bytes:
    spelled = escape[1]
    return bytes([int(spelled, 8) if len(spelled) == 3 else _UNESCAPES[spelled[0]]])


def altering(values: tuple[bytes, ...]) -> Iterator[str]:
    """Yield, as written, the attributes that make a checkout write other bytes than the blob has.

    `values` are the values of the attributes `CHECKOUT`, in that order, or empty. Filters of ours
    are not yielded, and neither is `text` where it only leaves the choice to the user's
    configuration.
    """
    if not values:
        return
    driver, text, crlf, eol, ident, encoding, subst = values
    # The smudge command of another filter may write anything in place of the sealed bytes.
    if driver not in (*_UNSET, *FILTERS):
        yield f"filter={_spelled(driver)}"
    # `crlf` only counts where `text` is unspecified.
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


_MOST_PROCESSES = 8
"""Most processes, each for one set of gitattributes files."""
_MOST_ANSWERS = 1 << 16
"""Most answers that are kept for each of them."""
_BATCH = 4096
"""Most bytes of one question: every pipe holds as many, so writing it can't deadlock."""
_BLOCK = 1 << 16
CHECKOUT = (
    "filter", "text", "crlf", "eol", "ident", "working-tree-encoding", "export-subst",
)  # fmt: skip
"""Attributes that decide what a checkout or an archive writes, gitattributes(5)."""

MAX_FILE = 100 * 1024 * 1024
"""Git ignores a gitattributes file with at least this many bytes (ATTR_MAX_FILE_SIZE)."""

_CONFIG = """\
[core]
\trepositoryFormatVersion = 0
\tignoreCase = false
"""
_UNSET_VARIABLES = (
    "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_ATTR_SOURCE",
    "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
)  # fmt: skip


_Key = tuple[frozenset[tuple[bytes, str]], tuple[str, ...], bool]


class TreeAttributes:
    """Asks git for attributes of paths under a given set of gitattributes files; a context manager.

    Runs one process for each set of files and attribute names, and keeps it for the next question.
    Contents of gitattributes files are taken from `unwritten` (by blob id), else from the
    repository.
    """

    def __init__(self, repo: Repository, unwritten: Mapping[str, bytes] | None = None) -> None:
        self._repo = repo
        self._unwritten = {} if unwritten is None else unwritten
        self._closing = contextlib.ExitStack()
        self._folder: Path | None = None
        self._blobs = BlobReader(repo)
        self._questions: OrderedDict[_Key, _Question] = OrderedDict()
        self._started = 0

    def __enter__(self) -> TreeAttributes:
        return self

    def __exit__(self, *_: object) -> None:
        for question in self._questions.values():
            question.close()
        self._questions.clear()
        self._folder = None
        self._blobs.__exit__()
        self._closing.close()

    def filtered(self, attribute_files: Mapping[bytes, str], paths: Iterable[bytes]) -> set[bytes]:
        """Return those of the paths that one of our filters applies to.

        `attribute_files` maps the paths of a tree's gitattributes files to blob ids, regular files
        only: git reads none through a link. Raises EnvironmentFailure if one of these blobs is
        missing, or if a path could not exist in any checkout.
        """
        return set(self.drivers(attribute_files, paths))

    def drivers(
        self, attribute_files: Mapping[bytes, str], paths: Iterable[bytes]
    ) -> dict[bytes, bytes]:
        """Return the paths that one of our filters applies to, each with the name of its filter."""
        # Asks for more attributes than needed here, so that the next caller can use the same
        # process.
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
        """Return for each path the values of the attributes `names`, as git prints them
        (`unspecified`, `wtxt`).

        With `ignore_case` patterns match as they do where core.ignoreCase is set, which is the
        default on macOS and Windows. Raises EnvironmentFailure as `filtered` does.
        """
        ordered = list(dict.fromkeys(paths))
        if not attribute_files or not ordered:
            return dict.fromkeys(ordered, (UNSPECIFIED,) * len(names))
        question = self._question(attribute_files, names)
        # If no letter could be folded both answers are the same, and one process is enough.
        if ignore_case and (question.is_foldable or any(map(_FOLDABLE.search, ordered))):
            question = self._question(attribute_files, names, ignore_case=True)
        return question.values(ordered)

    def _question(
        self,
        attribute_files: Mapping[bytes, str],
        names: tuple[str, ...],
        *,
        ignore_case: bool = False,
    ) -> _Question:
        key = frozenset(attribute_files.items()), names, ignore_case
        question = self._questions.pop(key, None)
        if question is None:
            # The least recently used process ends: a walk through history returns to the last few
            # sets.
            if len(self._questions) >= _MOST_PROCESSES:
                self._questions.popitem(last=False)[1].close()
            question = self._start(attribute_files, names, ignore_case=ignore_case)
        self._questions[key] = question
        return question

    def _start(
        self, attribute_files: Mapping[bytes, str], names: tuple[str, ...], *, ignore_case: bool
    ) -> _Question:
        if self._folder is None:
            self._folder = self._make_repository()
        self._started += 1
        work_tree = self._folder / f"tree-{self._started}"
        try:
            work_tree.mkdir()
            written = [self._write(work_tree, *file) for file in attribute_files.items()]
        except OSError as error:
            why = phrase(error.strerror or "")
            raise EnvironmentFailure(
                f"the gitattributes files of a tree can't be written: {why}"
            ) from error
        env = {
            **dict.fromkeys(_UNSET_VARIABLES),
            "GIT_DIR": str(self._folder / "git"),
            "GIT_WORK_TREE": str(work_tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            # Where git looks for the user's own configuration: these folders do not exist.
            "HOME": str(self._folder / "home"),
            "XDG_CONFIG_HOME": str(self._folder / "home"),
        }
        settings = ("-c", "core.ignoreCase=true") if ignore_case else ()
        command = ("check-attr", "-z", "--stdin", *names)
        stream = run.GitStream(*settings, *command, cwd=work_tree, env=env)
        is_foldable = any(map(_FOLDABLE.search, [*attribute_files, *written]))
        return _Question(stream, work_tree, names, is_foldable)

    def _write(self, work_tree: Path, path: bytes, oid: str) -> bytes:
        """Write a gitattributes file into the work tree.

        Returns the bytes that git will use of it.
        """
        # A hostile tree must not have us write outside of the folder.
        if {b"", b".", b".."} & set(path.split(b"/")):
            raise EnvironmentFailure(f"no checkout can have a file named {os.fsdecode(path)!a}")
        content = self._unwritten.get(oid)
        try:
            content = self._blobs.read(oid, MAX_FILE - 1) if content is None else content
        except TooLarge:
            # Git ignores a file of this size. It is read anyway: a missing blob must be an error.
            for _ in self._blobs.chunks(oid):
                pass
            return b""
        file = work_tree / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        # "x": if the file system treats two paths as one, their lines must not replace each other.
        with file.open("xb") as out:
            out.write(content)
        return content

    def _make_repository(self) -> Path:
        try:
            import tempfile

            # Removed with its contents at the end, even if a process still runs there.
            temporary = tempfile.TemporaryDirectory(prefix="wtxtgit-")
            folder = Path(self._closing.enter_context(temporary))
            for name in ("git/objects", "git/refs"):
                (folder / name).mkdir(parents=True)
            (folder / "git/HEAD").write_text("ref: refs/heads/main\n")
            (folder / "git/config").write_text(_CONFIG)
        except OSError as error:
            why = phrase(error.strerror or "")
            raise EnvironmentFailure(f"can't make a temporary folder: {why}") from error
        return folder


class _Question:
    """A running `git check-attr`, with its answers so far."""

    def __init__(
        self, stream: run.GitStream, work_tree: Path, names: tuple[str, ...], is_foldable: bool
    ) -> None:
        self.is_foldable = is_foldable
        """Whether `core.ignoreCase` can matter to the gitattributes files, or to their paths."""
        self._stream = stream
        self._work_tree = work_tree
        self._names = names
        self._answered: dict[bytes, tuple[bytes, ...]] = {}

    def close(self) -> None:
        self._stream.__exit__()
        import shutil

        shutil.rmtree(self._work_tree, ignore_errors=True)

    def values(self, paths: list[bytes]) -> dict[bytes, tuple[bytes, ...]]:
        answers = {path: self._answered[path] for path in paths if path in self._answered}
        unanswered = (path for path in paths if path not in self._answered)
        for batch in run.batches(unanswered, _BATCH):
            # Forget all answers at once: what is needed again soon is asked in batches anyway.
            if len(self._answered) > _MOST_ANSWERS:
                self._answered.clear()
            values = dict(zip(batch, self._answers(batch), strict=True))
            self._answered.update(values)
            answers.update(values)
        return answers

    def _answers(self, batch: list[bytes]) -> list[tuple[bytes, ...]]:
        self._stream.ask(run.joined(batch))
        # The answer for each attribute of each path is path, attribute and value, each ended by
        # NUL.
        count = len(self._names)
        missing = 3 * count * len(batch)
        output = bytearray()
        while missing > 0:
            block = self._stream.stdout.read1(_BLOCK)
            if not block:
                raise EnvironmentFailure("git check-attr ended before its last answer")
            missing -= block.count(b"\0")
            output += block
        fields = run.records(bytes(output))
        # If answers were out of step, one path would get the attributes of another.
        if fields[:: 3 * count] != batch:
            raise EnvironmentFailure("git check-attr gave an answer to something else")
        values = fields[2::3]
        return [tuple(values[n : n + count]) for n in range(0, len(values), count)]
