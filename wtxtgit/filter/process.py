"""The filter: answers git's requests by clean and smudge.

Git starts one process for all files of a command. It answers the handshake before it loads anything
large, which happens while git sends the first content. No content makes it fail: clean stores what
it can't read as it is, smudge passes it through. Only the environment (such as a full disk while a
text is made) makes it refuse a file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from wtxtgit.errors import EnvironmentFailure, counted, explain
from wtxtgit.git.filter_protocol import CAN_DELAY, LIST, FilterProcess, Request
from wtxtgit.io import progress, view
from wtxtgit.io.files import shown_path
from wtxtgit.io.progress import Progress
from wtxtgit.io.spool import IN_MEMORY, LITTLE, Spool
from wtxtgit.io.view import Buffer, ByteView, Windowed
from wtxtgit.io.workers import in_background

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from wtxtgit.filter.clean import Cleaned
    from wtxtgit.filter.delayed import DelayedSmudges, FindFetched
    from wtxtgit.filter.proved import ProvedTexts
    from wtxtgit.filter.replaced import ReplacedFiles
    from wtxtgit.filter.smudge import Smudged
    from wtxtgit.git.store.reader import ObjectStore
    from wtxtgit.io.spool import IncomingBytes
    from wtxtgit.model.array import Keep, PayloadSource
    from wtxtgit.text.index import TextIndex
    from wtxtgit.text.write import TextWriter

Warn = Callable[[str, str | None], None]
"""Takes a message and a hint."""

WORTH_STORING = 1024 * 1024
"""Texts of this size take git longer to deflate than we need to find the object store."""
_MOST_EXPECTED = 64 * 1024**3
"""Most bytes that are planned for: a file can claim any length for free, but plans cost."""


class FilterSettings(NamedTuple):
    """What the environment and the configuration say about filtering.

    `skip_smudge` leaves all texts as they are; `wanted` tells whether a path is smudged; `folder`
    returns where inputs of over `in_memory` bytes are spooled. `store` returns the object store in
    which texts are written before git deflates them, None if git only looks; `learn` records a
    content, its text, and the blob that this became. With `keeping`, which stores the payload of a
    path, texts are detached as the driver `wtxt-detached` does; `payload` returns where that of
    blobs is, None if it can't be had, and `fetched` where it is fetched from a remote, None if
    nothing may be; `proved` returns the detached texts that need not be verified again; `replaced`
    holds the files that git may be about to replace, None if it is not. `here` is the folder, from
    the top level, to which the paths in hints are relative.
    """

    skip_smudge: bool = False
    wanted: Callable[[bytes], bool] = lambda _path: True
    store: Callable[[], ObjectStore | None] = lambda: None
    learn: Callable[[ByteView, TextWriter, str], None] = lambda _data, _text, _oid: None
    folder: Callable[[], Path | None] = lambda: None
    in_memory: int = IN_MEMORY
    threads: int | None = None
    keeping: Callable[[bytes], AbstractContextManager[Keep]] | None = None
    payload: Callable[[], PayloadSource | None] = lambda: None
    fetched: FindFetched = lambda: None
    proved: Callable[[], ProvedTexts | None] = lambda: None
    replaced: Callable[[], ReplacedFiles | None] = lambda: None
    here: bytes = b""


_SHOWN = {"clean": "adding", "smudge": "restoring"}
"""The name of a command while its progress is shown."""


def serve(process: FilterProcess, settings: FilterSettings, warn: Warn) -> None:
    """Answer requests until git has no more."""
    process.handshake()
    lacking = _LackingFiles(settings)
    try:
        for request in process.requests():
            if request.command == LIST:
                process.available(lacking.delayed.available())
            else:
                word = _SHOWN.get(request.command, request.command)
                about = f"{word} {os.fsdecode(request.pathname)}"
                with progress.shown(about, _expected(request)) as advance:
                    _answer(process, request, settings, warn, lacking, advance or _unseen)
    finally:
        warn_of_payload(lacking.paths, warn, lacking.why, remote_lacks=lacking.remote_lacks)


class _LackingFiles:
    """The files of one process that lack payload: `paths` stay texts, `delayed` wait for it."""

    def __init__(self, settings: FilterSettings) -> None:
        self._settings = settings
        self._delayed: DelayedSmudges | None = None
        self.paths: list[bytes] = []

    @property
    def delayed(self) -> DelayedSmudges:
        if self._delayed is None:
            # Imported here: clean does not need it.
            from wtxtgit.filter.delayed import DelayedSmudges

            settings = self._settings
            self._delayed = DelayedSmudges(settings.fetched, settings.folder)
        return self._delayed

    @property
    def why(self) -> str | None:
        """What went wrong with fetching; None if nothing did."""
        return None if self._delayed is None else self._delayed.why

    @property
    def remote_lacks(self) -> bool:
        """Whether the remote was asked, and lacks some."""
        return self._delayed is not None and self._delayed.remote_lacks

    def take(self, request: Request, sent: ByteView) -> tuple[ByteView | None, TextIndex | None]:
        """Return the text of a smudge, `sent` by git now or earlier; None if it has to wait.

        Also returns its index if that was made.
        """
        if (text := self.delayed.take(request.pathname)) is not None:
            return text, None
        if CAN_DELAY not in request.keys or not is_smudged(request.pathname, self._settings):
            return sent, None
        from wtxtgit.filter.delayed import index_of_detached

        indexed = index_of_detached(sent, self._settings.payload)
        return None if self.delayed.takes(request.pathname, sent, indexed) else sent, indexed

    def note(self, request: Request) -> None:
        """Record that a smudge left a text, unless git only wants to show something.

        gitattributes(5): what is written to a work tree, or an archive, may be delayed, or git
        names its tree. Whoever shows a diff fetches what is needed itself.
        """
        is_written = request.keys.keys() & {CAN_DELAY, "ref", "treeish"}
        was_delayed = self.delayed.take(request.pathname) is not None
        if is_written or was_delayed or self._settings.fetched() is None:
            self.paths.append(request.pathname)

    def done(self, request: Request) -> None:
        """Release a request's text."""
        if self._delayed is not None:
            self._delayed.done(request.pathname)


def _answer(
    process: FilterProcess,
    request: Request,
    settings: FilterSettings,
    warn: Warn,
    lacking: _LackingFiles,
    advance: Progress,
) -> None:
    spool = Spool(settings.folder, in_memory=settings.in_memory, expected=_expected(request))
    ahead = _Ahead(request, spool.incoming, settings)
    takes, gives = _shares(request, settings)
    try:
        ahead.start()
        _receive(request, spool, takes, advance)
        cleaned = ahead.result()
        sent = spool.view()
        data, indexed = _with_payload(request, sent, lacking)
        if data is None:
            process.delayed()
            return
        # Git sent another number of bytes than the file had, so what was made ahead is of no use.
        if not spool.is_as_expected:
            cleaned = None
        as_text: list[bytes] = []
        try:
            answer = filtered(
                request.command, data, request.pathname, settings, warn, cleaned, as_text, indexed
            )
            if as_text:
                # The store's index may have listed missing data, which may still be fetched.
                if lacking.take(request, sent)[0] is None:
                    process.delayed()
                    return
                lacking.note(request)
        except Exception as error:  # noqa: BLE001 - a checkout goes on, an add is refused
            about = f"{shown_path(request.pathname)}: {explain(error)}"
            if request.command == "smudge":
                warn(f"{about}, left as text", None)
                answer = Answer(view.pieces(data))
            else:
                warn(about, None)
                process.error()
                return
        if indexed is not None:
            # A detached text is a small part of its file.
            gives = 1.0
        process.success(_counted(answer.pieces, gives, advance))
        # Git has everything, and is hashing it.
        answer.done()
    finally:
        replaced = settings.replaced()
        if replaced is not None and request.command == "clean":
            replaced.hold(request.pathname, spool)
        else:
            spool.close()
        lacking.done(request)
        ahead.result()


def _receive(request: Request, spool: Spool, share: float, advance: Progress) -> None:
    """Read a request's content to the end; each byte counts with this share."""
    content = iter(request.content)
    first = next(content, b"")
    if request.command == "smudge":
        from wtxtgit.text.grammar import is_detached

        if is_detached(memoryview(first)):
            spool.hold_at_most(LITTLE)
    for piece in chain((first,), content):
        spool.write(piece)
        advance(int(len(piece) * share))
    spool.end()


def _with_payload(
    request: Request, content: ByteView, lacking: _LackingFiles
) -> tuple[ByteView | None, TextIndex | None]:
    """Return what to answer from, and the index of a detached text; None for an answer later."""
    if request.command == "smudge":
        # Errors here are ignored: answering the request repeats the work and reports them.
        with contextlib.suppress(Exception):
            return lacking.take(request, content)
    return content, None


def _unseen(_count: int) -> None:
    """Ignore progress that nobody watches."""


def _shares(request: Request, settings: FilterSettings) -> tuple[float, float]:
    """Return for how many bytes of the file a received byte counts, and a sent one.

    Receiving and sending are half of the work each: together they count up to the file's size.
    """
    from wtxtgit.text.grammar import LINE_RAW, LINE_TEXT

    of_text = LINE_RAW / LINE_TEXT / 2
    if request.command == "smudge":
        return of_text, 0.5
    return (0.5, of_text) if settings.keeping is None else (1.0, of_text)


def _counted(pieces: Iterable[Buffer], share: float, advance: Progress) -> Iterator[Buffer]:
    """Yield the pieces; each is counted, with its share, once git has taken it."""
    for piece in pieces:
        yield piece
        advance(int(len(piece) * share))


class Answer(NamedTuple):
    """The answer to a request; `done` is called when all pieces were sent."""

    pieces: Iterable[Buffer]
    done: Callable[[], None] = lambda: None


def filtered(
    command: str,
    data: ByteView,
    path: bytes,
    settings: FilterSettings,
    warn: Warn,
    cleaned: Cleaned | None = None,
    lacking: list[bytes] | None = None,
    indexed: TextIndex | None = None,
) -> Answer:
    """Return what `command` (clean or smudge) makes of a content; warnings name `path`.

    `cleaned` is the result of clean if known, `indexed` the index of a text with its payload. Paths
    that lack payload are added to `lacking`, for a single warning about all of them.
    """
    if command == "smudge":
        return Answer(smudged(data, path, settings, warn, lacking, indexed))
    if command != "clean":
        raise EnvironmentFailure(f"git asks for {command!r}")
    if cleaned is None:
        cleaned = _cleaned(data, path, settings)
    if cleaned.warning is not None:
        warn(f"{shown_path(path)}: {cleaned.warning}; stored unchanged", None)
    writer = cleaned.writer
    text = cleaned.pieces
    if writer is not None and writer.is_detached and writer.size < WORTH_STORING:
        # Made once, for git and for its hash.
        whole = b"".join(writer.stream())
        text = lambda: (whole,)  # noqa: E731 - in place of the other one

    def prove() -> None:
        if writer is None or not writer.is_detached:
            return
        if (proved := settings.proved()) and (source := settings.payload()) is not None:
            proved.put_kept(text(), source, writer.payload())

    # Git deflates small texts faster than we find the object store.
    if writer is None or writer.size < WORTH_STORING:
        return Answer(text(), prove)
    store = settings.store()
    if store is None:
        return Answer(text(), prove)
    from wtxtgit.git.store.writing import stored
    from wtxtgit.io.workers import default_threads

    threads = settings.threads or default_threads()
    oids: list[str] = []

    def learn() -> None:
        prove()
        # What can't be cached is computed again when needed.
        with contextlib.suppress(EnvironmentFailure):
            for oid in oids:
                settings.learn(data, writer, oid)

    return Answer(stored(store, writer, threads, oids.append), learn)


def _cleaned(data: ByteView, path: bytes, settings: FilterSettings) -> Cleaned:
    """Clean a content as the driver does; its payload is in the store afterwards."""
    if settings.keeping is None:
        from wtxtgit.filter.clean import clean

        return clean(data, threads=settings.threads)
    from wtxtgit.filter.clean import clean_keeping

    return clean_keeping(data, partial(settings.keeping, path), threads=settings.threads)


def smudged(
    data: ByteView,
    path: bytes,
    settings: FilterSettings,
    warn: Warn,
    lacking: list[bytes] | None = None,
    indexed: TextIndex | None = None,
) -> Iterable[Buffer]:
    """Smudge a blob; warnings name `path`, the rest is as for `filtered`."""
    if not is_smudged(path, settings):
        return view.pieces(data)
    from wtxtgit.filter.smudge import smudge

    outcome = smudge(
        data,
        threads=settings.threads,
        payload=settings.payload,
        proved=settings.proved,
        indexed=indexed,
    )
    if outcome.lacks_payload and lacking is not None:
        lacking.append(path)
    elif outcome.lacks_payload:
        warn_of_payload([path], warn)
    elif outcome.warning is not None:
        warn_of_text(path, outcome, warn, settings.here)
        _keep_replaced(path, settings, warn)
    return outcome.pieces(may_fork=True)


def _keep_replaced(path: bytes, settings: FilterSettings, warn: Warn) -> None:
    """Keep the file in whose place a damaged text comes, and say where."""
    replaced = settings.replaced()
    if replaced is None:
        return
    try:
        oid = replaced.keep(path, lambda data: _cleaned(data, path, settings))
    except Exception as error:  # noqa: BLE001 - the text is written all the same
        warn(f"{shown_path(path)}: the file that stood there can't be kept: {explain(error)}", None)
        return
    if oid is not None:
        warn(f"{shown_path(path)}: the file that stood there is kept by git", restoring_hint(oid))


def restoring_hint(oid: str) -> str:
    """Return the commands that write the file of a text of which only the blob is known."""
    return f"git cat-file blob {oid} >OUT.wtxt && wtxtgit restore OUT.wtxt"


NOT_SENT = (
    "whoever committed it has to run wtxtgit push, in the clone that has the data; data of another "
    "fork comes once git remote add NAME URL names that"
)
"""What is to be done about payload that the remote was asked for and does not have."""


def warn_of_payload(
    paths: Sequence[bytes], warn: Warn, why: str | None = None, *, remote_lacks: bool = False
) -> None:
    """Warn once about all files that stand as detached texts because their payload is missing.

    `why` says what went wrong when it was fetched; fetching again is no use if the `remote_lacks`
    it.
    """
    if not paths:
        return
    first, *others = paths
    names = shown_path(first) + (f" and {counted(len(others), 'more file')}" if others else "")
    reason = "" if why is None else f" ({why})"
    hint = f"wtxtgit fetch {'tries again' if why else 'fetches them'}, and writes the files"
    if remote_lacks:
        hint = NOT_SENT
    warn(
        f"left as detached texts, because some of their data is not in the store{reason}: {names}",
        hint,
    )


def warn_of_text(path: bytes, smudged: Smudged, warn: Warn, folder: bytes) -> None:
    """Warn why a text is left as it is.

    The path in a hint's command is relative to `folder`.
    """
    hint = "wtxtgit fetch sets the damaged pack aside, and fetches its data again"
    if not smudged.damaged_payload:
        name = shlex.quote(shown_path(os.path.relpath(path, folder or b".")))
        hint = f"wtxtgit recover -- {name} shows what can be mended, or healed from other copies"
    warn(f"{shown_path(path)}: {smudged.warning}", hint)


class _Ahead:
    """Prepares on threads what a request needs, while git still sends content.

    This saves time and decides nothing: errors here are ignored, because answering the request
    repeats the work and reports them.
    """

    def __init__(
        self, request: Request, incoming: IncomingBytes | None, settings: FilterSettings
    ) -> None:
        self._request = request
        self._settings = settings
        self._cleaned: Cleaned | None = None
        self._incoming = incoming
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start threads, which end by `result`, or when the spool is closed."""
        if self._incoming is not None:
            self._start(self._settings.store)
            self._start(partial(self._clean, Windowed(self._incoming)))
        elif self._module not in sys.modules:
            self._start(self._load)
            if self._request.command == "smudge" and self._settings.keeping is not None:
                # Git is asked about the repository while modules are loaded.
                self._start(self._settings.payload)

    def result(self) -> Cleaned | None:
        """Wait for the threads.

        Returns the result of clean if the content was as expected, else None.
        """
        for thread in self._threads:
            thread.join()
        return self._cleaned

    @property
    def _module(self) -> str:
        return f"wtxtgit.filter.{self._request.command}"

    def _start(self, task: Callable[[], object]) -> None:
        if (thread := in_background(task)) is not None:
            self._threads.append(thread)

    def _load(self) -> None:
        request = self._request
        if request.command == "clean" or is_smudged(request.pathname, self._settings):
            import_module(self._module)

    def _clean(self, data: ByteView) -> None:
        cleaned = _cleaned(data, self._request.pathname, self._settings)
        if cleaned.writer is not None:
            _ = cleaned.writer.root
        self._cleaned = cleaned


def _expected(request: Request) -> int | None:
    """Return the number of bytes that git will probably send: the size of the file that it names.

    Git need not read that file, nor find as many bytes. The file itself is not read.
    """
    # Smudge gets a blob, whose size no file tells.
    if request.command != "clean":
        return None
    try:
        status = os.lstat(request.pathname)
    except (OSError, ValueError):
        return None
    is_likely = stat.S_ISREG(status.st_mode) and WORTH_STORING <= status.st_size <= _MOST_EXPECTED
    return status.st_size if is_likely else None


def is_smudged(path: bytes, settings: FilterSettings) -> bool:
    """Tell whether the settings allow a path to be smudged."""
    return not settings.skip_smudge and settings.wanted(path)


INCLUDE = "wtxtgit.smudgeInclude"
EXCLUDE = "wtxtgit.smudgeExclude"


def selected(value: Callable[[str], str | None]) -> Callable[[bytes], bool]:
    """Return the selection of paths in a repository's configuration, of which `value` returns a
    key.
    """
    return select(*(_patterns(value(key) or "") for key in (INCLUDE, EXCLUDE)))


def select(include: list[str], exclude: list[str]) -> Callable[[bytes], bool]:
    """Return a function that tells whether a path (from the top) is to be smudged."""
    included = [_compile(pattern) for pattern in include]
    excluded = [_compile(pattern) for pattern in exclude]

    def selected(path: bytes) -> bool:
        name = path.decode("utf-8", "surrogateescape")
        if included and not any(pattern.match(name) for pattern in included):
            return False
        return not any(pattern.match(name) for pattern in excluded)

    return selected


def _patterns(value: str) -> list[str]:
    return [pattern for part in value.split(",") if (pattern := part.strip())]


def _compile(pattern: str) -> re.Pattern[str]:
    anchored = "/" in pattern.rstrip("/")
    body = pattern.strip("/")
    out = [] if anchored else ["(?:.*/)?"]
    i = 0
    while i < len(body):
        if body.startswith("**/", i):
            out.append("(?:.*/)?")
            i += 3
        elif body.startswith("**", i):
            out.append(".*")
            i += 2
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(body[i], re.escape(body[i])))
            i += 1
    return re.compile("".join(out) + "(?:/.*)?$", re.DOTALL)


_ADDING = ("add", "stage")
_WITH_VALUE = {
    "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix",
    "--attr-source",
}  # fmt: skip
_ONLY_LOOKING = ("--dry-run", "--intent-to-add", "--refresh", "--interactive", "--patch", "--edit")
_LETTERS = re.compile(r"-[A-Za-z]*[nNpie]")
_COMMIT_LETTERS = re.compile(r"-([A-Za-z]*)")
_COMMIT_VALUES = frozenset("mFCctSu")
"""Letters of options of commit whose value is the rest of the word, or the next one."""
_COMMIT_LOOKING = (
    "--dry-run", "--patch", "--interactive", "--short", "--porcelain", "--long", "--null",
)  # fmt: skip
_COMMIT_ALONE = (
    "--all", "--include", "--only", "--amend", "--signoff", "--no-signoff", "--verbose",
    "--quiet", "--no-verify", "--edit", "--no-edit", "--no-status", "--no-gpg-sign",
    "--reset-author", "--allow-empty", "--allow-empty-message", "--no-post-rewrite",
)  # fmt: skip
"""Options of commit that never take the next word as their value."""
_COMMIT_WITH_VALUE = (
    "--message", "--file", "--author", "--date", "--cleanup", "--template", "--reuse-message",
    "--reedit-message", "--fixup", "--squash", "--trailer",
)  # fmt: skip
_MERGING = ("merge", "rebase", "cherry-pick", "revert", "stash", "am")
_SHELLS = ("sh", "dash", "bash", "busybox")
_MOST = 64 * 1024


def is_adding() -> bool:
    """Tell whether this process was started by a git command that stores the filter's output."""
    return stores(_git_words())


def is_merging() -> bool:
    """Tell whether this process was started by a git command that stores what it merges."""
    return merges(_git_words())


def git_command() -> list[str]:
    """Return the git command that started this process and its arguments; empty if unknown."""
    return _command(_git_words())


def merges(words: Sequence[str]) -> bool:
    """Tell whether a command line is that of a git command that stores what it merges."""
    rest = _command(words)
    return bool(rest) and rest[0] in _MERGING


def _git_words() -> list[str]:
    """Return the command line of the process that started this one."""
    process = os.getppid()
    for _ in range(2):
        words = _command_line(process)
        if not words or words[0].rpartition("/")[2] not in _SHELLS:
            return words
        # Git starts a command with quotes in it through a shell.
        process = _parent(process)
    return []


def stores(words: Sequence[str]) -> bool:
    """Tell whether a command line is that of a git command that stores the filter's output."""
    rest = _command(words)
    if rest and rest[0] == "commit":
        return _commits_files(rest[1:])
    if rest and rest[0] == "update-index":
        # This is how a stash is made: changed paths come on standard input.
        return {"--add", "--remove", "--stdin"} <= set(rest)
    if not rest or rest[0] not in _ADDING:
        return False
    # Options that only look, or make git ask the user, may lead to nothing being stored.
    for word in rest[1:]:
        if word == "--":
            return True
        if _LETTERS.match(word) and not word.startswith("--"):
            return False
        # Git accepts abbreviated options.
        if len(word) > 2 and any(option.startswith(word) for option in _ONLY_LOOKING):
            return False
    return True


def _command(words: Sequence[str]) -> list[str]:
    """Return a git command and its arguments, without git's own options; empty if it is not git."""
    if not words or words[0].rpartition("/")[2] != "git":
        return []
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in _WITH_VALUE and rest:
            rest.pop(0)
    return rest


def _commits_files(words: Sequence[str]) -> bool:
    """Tell whether arguments of `git commit` make it add files: named ones, or all.

    Returns False if the arguments alone do not show that; git then writes the objects by itself.
    """
    adds = False
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return adds or bool(rest)
        if word.startswith("--"):
            if len(word) > 2 and any(option.startswith(word) for option in _COMMIT_LOOKING):
                return False
            adds = adds or word == "--all"
            if word in _COMMIT_WITH_VALUE:
                del rest[:1]
            elif "=" not in word and word not in _COMMIT_ALONE:
                # The next word may be its value.
                return adds
        elif match := _COMMIT_LETTERS.match(word):
            letters = match[1]
            for place, letter in enumerate(letters):
                if letter in _COMMIT_VALUES:
                    # For two of these letters the value can only be in the same word.
                    if letter not in "uS" and len(word) == place + 2:
                        del rest[:1]
                    break
                if letter in "pz":
                    return False
                adds = adds or letter == "a"
        else:
            adds = True
    return adds


def _command_line(process: int) -> list[str]:
    try:
        with Path(f"/proc/{process}/cmdline").open("rb") as file:
            content = file.read(_MOST)
    except OSError:
        return []
    return [os.fsdecode(word) for word in content.split(b"\0")[:-1]]


def _parent(process: int) -> int:
    try:
        # The name, in parentheses, may contain anything.
        return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
