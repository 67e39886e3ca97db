"""A write-ahead log with a line for each step; a crash may truncate it but not falsify it.

A line is a word, fields and a checksum: `delivered gen=500 target=s3://b/run crc32c=1f2a0c3d`.
Values are percent-encoded if they contain anything that could end them. Readers ignore truncated or
damaged lines. `docs/stream.md`, section "The ring's files".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.files import failures, replace_file
from wtxtgit.io.view import write_all, write_on
from wtxtgit.model.checksum import crc32c

MAX_SIZE = 64 * 1024 * 1024
"""Most bytes that are read; a log is compacted long before."""
_LINE = re.compile(rb"([a-z]+)((?: [a-z0-9_]+=[!-~]*)*) crc32c=([0-9a-f]{8})")
_PLAIN = "/:@+,;!*()[]{}|~$&'<>?^`\\\"#"
"""Characters that are not encoded: all except space, control characters, `=` and `%`."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: what happened, and to what."""

    word: str
    fields: dict[str, str] = field(default_factory=dict)

    def line(self) -> bytes:
        words = (f" {key}={quote(value, safe=_PLAIN)}" for key, value in self.fields.items())
        content = "".join((self.word, *words)).encode("ascii")
        return b"%b crc32c=%08x\n" % (content, crc32c(content))


def entry(word: str, **fields: str | int | None) -> LogLine:
    """Return an entry with those fields that are not None."""
    return LogLine(word, {key: str(value) for key, value in fields.items() if value is not None})


def read(path: Path) -> list[LogLine]:
    """Read the entries of a log; empty if there is no file. Raises EnvironmentFailure."""
    try:
        with failures(path, missing=EnvironmentFailure), path.open("rb") as file:
            content = file.read(MAX_SIZE)
    except EnvironmentFailure:
        if not os.path.lexists(path):
            return []
        raise
    return list(entries(content))


def entries(content: bytes) -> Iterator[LogLine]:
    """Yield the entries in a log's content, except lines that are truncated or damaged."""
    for line in content.splitlines():
        match = _LINE.fullmatch(line)
        if match is not None and crc32c(line[: match.end(2)]) == int(match[3], 16):
            words = match[2].decode("ascii").split()
            pairs = (word.split("=", 1) for word in words)
            yield LogLine(match[1].decode(), {key: unquote(value) for key, value in pairs})


class Log:
    """A log that only this process writes; has to be closed.

    `lines` counts lines written since it was opened or compacted.
    """

    def __init__(self, path: Path, entries: Iterable[LogLine] = ()) -> None:
        """Start the log with `entries`, replacing an existing one."""
        self._path = path
        self._descriptor = -1
        self._is_cut_short = False
        self.lines = 0
        self.compact(entries)

    def append(self, *entries: LogLine, is_durable: bool = False) -> None:
        """Write entries at once; `is_durable` waits until they would survive a crash of the
        machine.
        """
        lines = b"".join(one.line() for one in entries)
        with failures(self._path, missing=EnvironmentFailure):
            # If the disk was full, half of the previous line may have been written.
            before = b"\n" if self._is_cut_short else b""
            self._is_cut_short = True
            write_on(self._descriptor, before + lines)
            self._is_cut_short = False
            if is_durable:
                # macOS has no fdatasync(2).
                getattr(os, "fdatasync", os.fsync)(self._descriptor)
        self.lines += len(entries)

    def compact(self, entries: Iterable[LogLine]) -> None:
        """Replace the log by entries that summarize everything written so far."""
        lines = [one.line() for one in entries]
        replace_file(self._path, lambda descriptor: write_all(descriptor, lines))
        self.close()
        with failures(self._path, missing=EnvironmentFailure):
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._is_cut_short = False
        self.lines = 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
