"""Track and untrack: the pattern lines of a folder's gitattributes file.

Each of our lines has `-text`. Otherwise git would convert line endings before smudge, and so change
the text.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wtxtgit.errors import CheckError, EnvironmentFailure, UsageError, WtxtgitError
from wtxtgit.filter.status import (
    filtered,
    stored_forms,
    unfiltered_texts,
)
from wtxtgit.git import attributes, index, work_tree
from wtxtgit.git.attributes import Line, TreeAttributes
from wtxtgit.git.blobs import blob_id
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import FILTERS, Repository
from wtxtgit.git.turn import turn
from wtxtgit.io.files import failures, replace_file, view_file
from wtxtgit.io.view import write_all
from wtxtgit.model.plain import JsonObject
from wtxtgit.setup import sizes
from wtxtgit.setup.diagnosis import arguments, arguments_here, listed, shown
from wtxtgit.setup.sizes import MAX_DIFF_TEXT, BlobSettings, Machine, TextSize, max_blob
from wtxtgit.text import grammar
from wtxtgit.text.grammar import binary_size

FILTER, DETACHED = b"filter=wtxt", b"filter=wtxt-detached"
"""The attributes by which files are kept as texts, and as detached ones."""
_FILTERS = (FILTER, DETACHED)
_LFS_FILTER = b"filter=lfs"
DRIVER_ATTRIBUTES = (b"diff=wtxt", b"merge=wtxt", b"-text")
"""The other attributes of such a line."""
COMPANIONS = (
    (b"*.wtxt", (b"text", b"eol=lf", b"diff=wtxt")),
    (b"*.wtxt.age", (b"-text", b"diff=wtxt", b"merge=binary")),
    (b"*.wtxtdelta", (b"text", b"eol=lf")),
    (b"*.wsum", (b"text", b"eol=lf", b"merge=wtxt-ledger")),
    (b".wtxt/*", (b"text", b"eol=lf")),
)
"""Lines for our text files, which git must not convert."""
_LEFT_OUT = (b"!filter", b"!text", b"!diff", b"!merge")


def _left_out(*names: bytes) -> tuple[bytes, ...]:
    keys = {name.lstrip(b"-").partition(b"=")[0] for name in names}
    return (*(name for name in _LEFT_OUT if name[1:] not in keys), *names)


_DOCUMENTS = (
    b".git*", b"README*", b"LICENSE*", b"*.md", b"*.txt", b"*.json", b"*.yaml", b"*.yml", b"*.py",
)  # fmt: skip
"""What else stands beside checkpoints in a folder that is tracked as a whole."""
BESIDE = {pattern: _left_out(*names) for pattern, names in COMPANIONS}
"""The lines of COMPANIONS where a pattern before them does not name an ending."""
_ENDINGS = tuple(pattern.lstrip(b"*") for pattern, _ in COMPANIONS if pattern[:1] == b"*")
_WILDCARD = re.compile(rb"[*?\[\]\\]")
_MERGED_ALONE = (b"merge=wtxt",)
"""The attribute of indexes that a merge rebuilds; they are text in the work tree, too."""
ABOUT = (
    b"# Kept as text by wtxtgit: pip install wtxtgit, then wtxtgit install. "
    b"A file that begins with WTXT: docs/met-a-text.md in its source"
)
"""The line that explains ours to people who have a clone and do not know wtxtgit."""

SUCH_AS = "give patterns with an ending, such as '*.safetensors'"
"""The hint for patterns that can't be meant."""

MEMORY_HINT_SIZE = 256 * 1024 * 1024
"""From this size of a binary on, git's use of memory is mentioned."""


@dataclass(frozen=True, slots=True)
class SizeWarning(JsonObject):
    """A file that is large for git: `size` is in bytes of binary, `message` names the limit."""

    path: bytes
    size: int
    message: str


@dataclass(frozen=True, slots=True)
class OddFile(JsonObject):
    """A file that is not what its name says, or not whole; `message` says what it is."""

    path: bytes
    message: str


@dataclass(frozen=True, slots=True)
class Consequences:
    """What tracking or untracking means for existing files.

    `raw` are committed as raw binary; `git add --renormalize` makes them text. `pointers` are
    git-lfs pointers committed in place of files; `of_lfs` are patterns with a line of git-lfs that
    no longer counts. `sizes` are warnings of large files, largest first; `settings` are values of
    git's keys that suit them better. `long` counts the files whose diff forges may not show,
    `over_forges` those that forges may refuse. `other_form` are committed in the other form, whole
    or detached, than they are tracked in. `texts` are no longer tracked but still text in git.
    `odd` are files that `git add` would add and that are not what their name says, or not whole.
    """

    raw: tuple[bytes, ...] = ()
    sizes: tuple[SizeWarning, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    long: int = 0
    over_forges: int = 0
    other_form: tuple[bytes, ...] = ()
    texts: tuple[bytes, ...] = ()
    pointers: tuple[bytes, ...] = ()
    of_lfs: tuple[bytes, ...] = ()
    odd: tuple[OddFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Tracking(JsonObject):
    """What track or untrack did to `file`; `unchanged` are the patterns that were already as
    wanted.
    """

    KEYS = (
        "file changed unchanged raw=consequences.raw sizes=consequences.sizes "
        "settings=consequences.settings over_diff_limit=consequences.long texts=consequences.texts "
        "other_form=consequences.other_form pointers=consequences.pointers "
        "of_lfs=consequences.of_lfs odd=consequences.odd"
    )

    file: Path
    changed: tuple[bytes, ...]
    unchanged: tuple[bytes, ...]
    consequences: Consequences = field(default_factory=Consequences)


@dataclass(frozen=True, slots=True)
class Pattern(JsonObject):
    """A tracked pattern, and the gitattributes file (from the top level) that has it.

    The data of files that match a `detached` pattern are kept in the store.
    """

    KEYS = "pattern file detached=detached_or_none?"

    pattern: bytes
    file: bytes
    detached: bool = False

    @property
    def detached_or_none(self) -> bool | None:
        return self.detached or None


@dataclass(frozen=True, slots=True)
class Patterns(JsonObject):
    """The patterns in the gitattributes files of a repository."""

    patterns: tuple[Pattern, ...]


def track(repo: Repository, patterns: Sequence[bytes], *, detached: bool = False) -> Tracking:
    """Track patterns in the folder that `repo` was found from, whole or detached.

    Raises UsageError for a pattern that git would not obey.
    """
    for pattern in patterns:
        _check_reach(repo, pattern)
    with turn(repo):
        file = _file(repo)
        content = before = _read(file)
        # Only with the first pattern: if somebody removes the line later, it is not wanted.
        if not any(is_filter_line(line) or is_about(line) for line in attributes.parse(content)):
            content = attributes.append_comment(content, ABOUT)
        content, changed = _with_lines(content, patterns, DETACHED if detached else FILTER)
        _write(repo, file, content)
        try:
            _refuse_own(repo)
        except UsageError:
            _write(repo, file, before)
            raise
        # With the first pattern: texts that reach the work tree must keep their line endings.
        content = attributes.append(content, companions(content).items())
        _write(repo, file, content)
        consequences = _consequences(repo, sizes.machine())
        of_lfs = _formerly_lfs(content, patterns)
        return _tracking(file, patterns, changed, replace(consequences, of_lfs=of_lfs))


def _check_reach(repo: Repository, pattern: bytes) -> None:
    """Raise UsageError for a pattern that is the path of a file or folder, but matches no file.

    Git takes a slash at the beginning for the folder of the gitattributes file, and no `.` or `..`.
    """
    given = os.fsdecode(pattern)
    is_whole = given.startswith(f"{repo.worktree}/")
    is_folder = bool(given.strip("/")) and os.path.isdir(repo.here / given)  # noqa: PTH112 - names may be too long
    if not (is_whole or is_folder or {b".", b".."} & set(pattern.split(b"/"))):
        return
    below = os.path.relpath(repo.here / given, repo.here)
    if below == "." or below.startswith(".."):
        hint = SUCH_AS
    else:
        hint = f"wtxtgit track -- {shown(os.fsencode(below) + b'/**' * is_folder)}"
    why = "names a folder, but git matches only files" if is_folder else "matches no file"
    raise UsageError(f"the pattern {given!a} {why}", hint=hint)


def _refuse_own(repo: Repository) -> None:
    """Raise UsageError if the patterns match the gitattributes file that has them.

    They are not meant for single checkpoints then. Those of other folders are left out by lines.
    """
    own = repo.prefix + attributes.FILE_NAME.encode()
    if repo.attributes([own], ("filter",))[own]["filter"] in FILTERS:
        raise UsageError(
            f"the patterns match {listed([own])}, which git itself reads", hint=SUCH_AS
        )


def untrack(repo: Repository, patterns: Sequence[bytes]) -> Tracking:
    """Stop tracking patterns; with the last one, our other lines are removed too.

    Those are the lines for our text files and the line that explains them. Raises CheckError, with
    nothing changed, if a file that would lose its filter is missing or still text in the work tree:
    then only its text could be stored.
    """
    with turn(repo):
        file = _file(repo)
        before = _read(file)
        entries = filtered(repo, index.entries(repo))
        content, changed = _without_lines(before, patterns)
        if not changed:
            return _tracking(file, patterns, changed)
        # Lines that a user changed are theirs, and stay.
        if not any(map(is_filter_line, attributes.parse(content))):
            content = attributes.content(
                line for line in attributes.parse(content) if not is_companion(line)
            )
        _write(repo, file, content)
        try:
            texts = _texts_left(repo, entries)
        except WtxtgitError:
            _write(repo, file, before)
            raise
        return _tracking(file, patterns, changed, Consequences(texts=texts))


def _texts_left(repo: Repository, entries: Sequence[TreeEntry]) -> tuple[bytes, ...]:
    """Return those files that lost their filter and are text in git.

    Raises CheckError if one of them is outside a sparse checkout, or still text in the work tree.
    """
    filtered_paths = {entry.path for entry in filtered(repo, entries)}
    lost = [entry for entry in entries if entry.path not in filtered_paths]
    if skipped := [entry.path for entry in lost if entry.skipped]:
        raise CheckError(
            f"outside the sparse checkout, so they would stay texts: {listed(skipped)}",
            hint="git sparse-checkout disable",
        )
    texts = [entry.path for entry in unfiltered_texts(repo, lost)]
    heads = {path: work_tree.file_head(repo.file(path)) or b"" for path in texts}
    if still_text := [path for path in texts if grammar.is_text(heads[path])]:
        is_detached = any(grammar.is_detached(heads[path]) for path in still_text)
        raise CheckError(
            f"still text in the work tree: {listed(still_text)}",
            hint="wtxtgit fetch" if is_detached else "wtxtgit install",
        )
    return tuple(texts)


def list_patterns(repo: Repository) -> Patterns:
    """List the tracked patterns in all gitattributes files of the work tree."""
    repo.check_worktree()
    return Patterns(tuple(pattern for pattern, _ in _pattern_lines(repo)))


def repair(repo: Repository) -> list[bytes]:
    """Complete the attributes of every pattern line of ours; return the files that were changed."""
    with turn(repo):
        repaired = []
        for path in attribute_files(repo):
            file = repo.file(path)
            before = _read(file)
            after = attributes.content(
                _complete(line) if is_filter_line(line) else line
                for line in attributes.parse(before)
            )
            after = attributes.append(after, _beside_lines(after).items())
            if after != before:
                _write(repo, file, after)
                repaired.append(path)
        return repaired


def incomplete_lines(repo: Repository) -> list[Pattern]:
    """Find those of our pattern lines that lack an attribute."""
    return [pattern for pattern, line in _pattern_lines(repo) if _complete(line) != line]


def attribute_files(repo: Repository) -> list[bytes]:
    """List the gitattributes files of the work tree, in the index or untracked."""
    name = attributes.FILE_NAME.encode()
    paths = {entry.path for entry in index.entries(repo)} | set(index.untracked_paths(repo))
    files = sorted(path for path in paths if path.rpartition(b"/")[2] == name)
    return [path for path in files if work_tree.file_size(repo.file(path)) is not None]


def _formerly_lfs(content: bytes, patterns: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the patterns with a line of ours right after one of git-lfs, lines for other patterns
    aside.
    """
    is_lfs: dict[bytes, bool] = {}
    overridden = set()
    wanted = dict.fromkeys(patterns)
    for line in attributes.parse(content):
        if line.pattern in wanted:
            if is_lfs.get(line.pattern) and is_filter_line(line):
                overridden.add(line.pattern)
            is_lfs[line.pattern] = _LFS_FILTER in line.attributes
    return tuple(pattern for pattern in wanted if pattern in overridden)


def _tracking(
    file: Path,
    patterns: Iterable[bytes],
    changed: Container[bytes],
    consequences: Consequences | None = None,
) -> Tracking:
    wanted = dict.fromkeys(patterns)
    return Tracking(
        file,
        tuple(pattern for pattern in wanted if pattern in changed),
        tuple(pattern for pattern in wanted if pattern not in changed),
        consequences or Consequences(),
    )


def _with_lines(
    content: bytes, patterns: Iterable[bytes], driver: bytes
) -> tuple[bytes, Container[bytes]]:
    """Return a file's content with lines of ours for these patterns, and the patterns that
    changed.
    """
    wanted = dict.fromkeys(patterns)
    for pattern in wanted:
        attributes.check_pattern(pattern)
    # If there are several lines for a pattern, the last one counts.
    last_lines: dict[bytes, int] = {}
    for number, line in enumerate(attributes.parse(content)):
        if line.pattern in wanted and is_filter_line(line):
            last_lines[line.pattern] = number
    added = [pattern for pattern in wanted if pattern not in last_lines]
    changed = set(added)

    def edited() -> Iterator[Line]:
        for number, line in enumerate(attributes.parse(content)):
            if line.pattern is None or last_lines.get(line.pattern) != number:
                yield line
                continue
            complete = _complete(line, driver)
            if complete != line:
                changed.add(line.pattern)
            yield complete

    after = attributes.content(edited())
    return attributes.append(after, ((one, (driver, *DRIVER_ATTRIBUTES)) for one in added)), changed


def _without_lines(content: bytes, patterns: Iterable[bytes]) -> tuple[bytes, Container[bytes]]:
    """Return a file's content without lines of ours for these patterns, and the patterns that
    had one.
    """
    wanted = frozenset(patterns)
    changed: set[bytes] = set()

    def edited() -> Iterator[Line]:
        for line in attributes.parse(content):
            if line.pattern not in wanted or not is_filter_line(line):
                yield line
                continue
            changed.add(line.pattern)
            if others := [
                name for name in line.attributes if name not in (*_FILTERS, *DRIVER_ATTRIBUTES)
            ]:
                yield attributes.with_attributes(line, others)

    return attributes.content(edited()), changed


def _complete(line: Line, driver: bytes | None = None) -> Line:
    """Complete the attributes of a line of ours, for `driver` or else for the filter that it
    names.
    """
    # gitattributes(5): of several values the last one counts.
    filters = [name for name in line.attributes if name in _FILTERS]
    required = (driver or filters[-1], *DRIVER_ATTRIBUTES)
    kept = [
        name
        for name in line.attributes
        if name not in (*_FILTERS, *DRIVER_ATTRIBUTES) and not _conflicts(name)
    ]
    if (
        all(name in line.attributes for name in required)
        and set(filters) == {required[0]}
        and not any(_conflicts(name) for name in line.attributes)
    ):
        return line
    return attributes.with_attributes(line, (*required, *kept))


def _conflicts(name: bytes) -> bool:
    """Tell whether an attribute on one of our lines contradicts our attributes."""
    # gitattributes(5): `-` unsets, `!` makes unspecified, `=` gives a value.
    key = name.lstrip(b"-!").partition(b"=")[0]
    return key in (b"text", b"eol", b"crlf", b"binary") and name not in (b"-text", b"-eol")


def _pattern_lines(repo: Repository) -> Iterator[tuple[Pattern, Line]]:
    for path in attribute_files(repo):
        for line in attributes.parse(_read(repo.file(path))):
            if line.pattern is not None and is_filter_line(line):
                yield Pattern(line.pattern, path, is_detached(line)), line


def is_filter_line(line: Line) -> bool:
    """Tell whether a line makes git keep files as texts."""
    return line.pattern is not None and any(name in line.attributes for name in _FILTERS)


def is_about(line: Line) -> bool:
    """Tell whether a line is the one that explains our lines."""
    return line.raw.rstrip(b"\r\n") == ABOUT


def is_companion(line: Line) -> bool:
    """Tell whether a line of ours is removed with the last pattern."""
    from wtxtgit.containers import registry

    indexes = _index_lines(registry.hashing_indexes())
    companion_lines = (*COMPANIONS, *BESIDE.items(), *indexes)
    is_left_out = line.attributes == _LEFT_OUT
    return is_about(line) or is_left_out or (line.pattern, line.attributes) in companion_lines


def companions(content: bytes, patterns: Iterable[bytes] = ()) -> dict[bytes, tuple[bytes, ...]]:
    """Return the lines that a file with our lines for `patterns`, and those that it has, also
    needs and lacks. `patterns` are those of lines that will come after what it has.
    """
    # Imported here: the hooks that look for our lines need no formats.
    from wtxtgit.containers import registry

    lines = list(attributes.parse(content))
    tracked = [*patterns, *(line.pattern or b"" for line in lines if is_filter_line(line))]
    sets = (registry.of_hashed_set(os.fsdecode(pattern)) for pattern in tracked)
    endings = dict.fromkeys(end for f in sets if f is not None for end in f.index_endings)
    own = {n: line.pattern for n, line in enumerate(lines) if is_filter_line(line)}
    own.update(enumerate(patterns, start=len(lines)))
    reaching = {number: pattern for number, pattern in own.items() if pattern and reaches(pattern)}
    missing = {**(BESIDE if reaching else dict(COMPANIONS)), **dict(_index_lines(endings))}
    for pattern in reaching.values():
        missing.update(dict.fromkeys(_documents(pattern), _LEFT_OUT))
    for number, line in enumerate(lines):
        # Of the lines that match a path, the last one counts.
        if not (line.pattern in BESIDE and number < max(reaching, default=0)):
            missing.pop(line.pattern or b"", None)
    return missing


def _documents(pattern: bytes) -> list[bytes]:
    """Return patterns for the documents in the folder that a pattern tracks as a whole."""
    folder, slash, last = pattern.rpartition(b"/")
    if last.strip(b"*"):
        return []
    below = b"**/" if slash and last != b"*" else b""
    return [folder + slash + below + one for one in _DOCUMENTS]


def reaches(pattern: bytes) -> bool:
    """Tell whether a pattern may match files that stand beside checkpoints: it names no ending, or
    one of theirs.
    """
    tail = _WILDCARD.split(pattern.rpartition(b"/")[2])[-1]
    return any(ending.endswith(tail) or tail.endswith(ending) for ending in _ENDINGS)


def beside(repo: Repository) -> tuple[list[bytes], bool]:
    """List the files of the index that stand beside checkpoints and yet go through the filter.

    Also returns whether `repair` adds lines that leave them out.
    """
    files = map(repo.file, attribute_files(repo))
    is_repaired = any(_beside_lines(_read(file)) for file in files)
    paths = [entry.path for entry in index.entries(repo) if entry.is_file]
    chosen = [p for p in dict.fromkeys(paths) if (is_beside if is_repaired else _is_own)(p)]
    drivers = repo.attributes(chosen, ("filter",))
    return [path for path in chosen if drivers[path]["filter"] in FILTERS], is_repaired


def _beside_lines(content: bytes) -> dict[bytes, tuple[bytes, ...]]:
    """Return the lines that leave out what stands beside checkpoints, where a file lacks some."""
    needed = companions(content).items()
    return {pattern: names for pattern, names in needed if names == BESIDE.get(pattern, _LEFT_OUT)}


def is_beside(path: bytes) -> bool:
    """Tell whether a line of BESIDE is for this path."""
    name = path.rpartition(b"/")[2]
    return _is_own(path) or any(fnmatch.fnmatchcase(name, pattern) for pattern in _DOCUMENTS)


def _is_own(path: bytes) -> bool:
    return path.endswith(_ENDINGS) or b"/.wtxt/" in b"/" + path or path.endswith(b".gitattributes")


def _index_lines(endings: Iterable[str]) -> list[tuple[bytes, tuple[bytes, ...]]]:
    return [(b"*" + os.fsencode(ending), _MERGED_ALONE) for ending in endings]


def is_detached(line: Line) -> bool:
    """Tell whether a line of ours keeps data in the store."""
    return [name for name in line.attributes if name in _FILTERS][-1:] == [DETACHED]


def _file(repo: Repository) -> Path:
    return repo.file(repo.prefix + attributes.FILE_NAME.encode())


def _read(file: Path) -> bytes:
    if file.is_symlink():
        # Git does not follow the link either, and a file elsewhere is not ours to change.
        raise EnvironmentFailure(f"{os.fspath(file)!r} is a symbolic link, which git ignores")
    if not file.exists():
        return b""
    with failures(file):
        return file.read_bytes()


def _write(repo: Repository, file: Path, content: bytes) -> None:
    # A rewritten file would look changed to git and to editors.
    if content == _read(file):
        return
    # Without the file, git would still obey the copy in the index. So a file that is in the index
    # is left empty instead.
    path = os.fsencode(file.relative_to(repo.worktree))
    if content or any(entry.path == path for entry in index.entries(repo)):
        replace_file(file, lambda descriptor: write_all(descriptor, (content,)))
    else:
        file.unlink()


def _consequences(repo: Repository, machine: Machine) -> Consequences:
    """Find out what tracking means for the files that are tracked now, staged or not."""
    entries = filtered(repo, index.entries(repo))
    forms = stored_forms(repo, entries)
    texts = sizes.text_sizes(repo, entries)
    now = sizes.settings(repo, machine)
    limit = max_blob(repo)
    return Consequences(
        tuple(entry.path for entry in forms.raw),
        tuple(
            SizeWarning(size.path, size.binary, message)
            for size in texts
            if (message := size_message(size, now, limit))
        ),
        sizes.changes(now, sizes.suited(texts, now, machine)),
        sum(size.text > MAX_DIFF_TEXT for size in texts),
        sum(size.text > limit for size in texts),
        tuple(entry.path for entry in forms.other_form),
        pointers=tuple(entry.path for entry in forms.pointers),
        odd=tuple(_odd_files(repo, {size.path for size in texts} - {e.path for e in entries})),
    )


def _odd_files(repo: Repository, paths: Iterable[bytes]) -> Iterator[OddFile]:
    """Yield those of the files that are not what their names say; hooks judge what is staged."""
    # Imported here: mostly there is no such file yet.
    from wtxtgit.containers.identity import identity, wrong_under

    for path in sorted(paths):
        if work_tree.file_head(repo.file(path)) is None:
            continue
        data = view_file(repo.file(path))
        if grammar.is_text(data):
            continue
        if (wrong := wrong_under(os.fsdecode(path), identity(data))) is not None:
            yield OddFile(path, wrong)


def own_filtered(repo: Repository) -> set[bytes]:
    """Return the paths of the index that the work tree's gitattributes files alone have filtered.

    Git also takes the settings of this clone into account: see `filtered_here_alone`.
    """
    contents = {path: _read(repo.file(path)) for path in attribute_files(repo)}
    like = "0" * (64 if repo.object_format == "sha256" else 40)
    oids = {path: blob_id((one,), len(one), like=like) for path, one in contents.items()}
    unwritten = {oid: contents[path] for path, oid in oids.items()}
    paths = [entry.path for entry in index.entries(repo) if entry.is_file]
    with TreeAttributes(repo, unwritten) as own:
        return own.filtered(oids, paths)


def here_alone_hint(repo: Repository, paths: Sequence[bytes]) -> str:
    """Return the commands that track files which git filters in this clone alone."""
    top = repo.path_from_here(b".")
    there = "" if top == "." else f"cd {shown(os.fsencode(top))} && "
    return f"{there}wtxtgit track -- {arguments(paths)}, then git add -- :/.gitattributes"


def pull_hint(repo: Repository, paths: Sequence[bytes]) -> str:
    """Return the commands that turn git-lfs pointers committed in place of files into texts."""
    return f"wtxtgit fetch, then git add --renormalize -- {arguments_here(repo, paths)}"


def form_hint(repo: Repository, paths: Sequence[bytes]) -> str:
    """Return the commands that store files in the form that they are tracked in."""
    command = f"git add --renormalize -- {arguments_here(repo, paths)}"
    # A work-tree file that is a detached text is stored as one, regardless of its attributes.
    heads = (work_tree.file_head(repo.file(path)) or b"" for path in paths)
    if any(map(grammar.is_detached, heads)):
        return f"wtxtgit fetch, then {command}"
    return command


def size_message(size: TextSize, now: BlobSettings, limit: int) -> str | None:
    """Describe the limits that a file of this size meets as text; returns None if it meets none."""
    parts = []
    if size.text > now.threshold:
        parts.append(
            f"over {sizes.BIG_FILE_THRESHOLD} as text, so git makes no deltas (from about "
            f"{sizes.human(binary_size(now.threshold))} of binary)"
        )
    if size.text > limit:
        parts.append(
            f"about {sizes.human(size.text)} as text: most forges refuse a blob over "
            f"{sizes.human(limit)} (about {sizes.human(binary_size(limit))} of binary)"
        )
    if size.binary > MEMORY_HINT_SIZE:
        memory = sizes.human(size.checkout_memory)
        parts.append(f"git checkout needs up to {memory} of memory, wtxtgit checkout does not")
    return "; ".join(parts) or None
