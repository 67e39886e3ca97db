"""What checks found: problems, collected up to a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wtxtgit.errors import MAX_MESSAGE, FormatError, clipped, place
from wtxtgit.model.plain import JsonObject


@dataclass(frozen=True, slots=True)
class Problem(JsonObject):
    """One thing that a check found: `kind` is a word of the verdict's list.

    `line` counts from 1, `chunk` is an `ix` of a text or the name of a
    container's chunk, `offset` a byte in the file, `field` the word of the
    format's spec for what stands there.
    """

    KEYS = "kind message line? array? chunk? offset? field?"

    kind: str
    message: str
    line: int | None = None
    array: str | None = None
    chunk: int | str | None = None
    offset: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        where = place(self.line, self.array, self.chunk, self.offset)
        message = clipped(self.message, MAX_MESSAGE)
        return f"{where}: {message}" if where else message


@dataclass(frozen=True, slots=True)
class MemberFindings:
    """What a check of one file of a set found, by itself and against the set's index.

    `nbytes` are those of its tensors that the index lists.
    """

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    nbytes: int = 0


@dataclass(slots=True)
class Findings:
    """What a check of a container found; errors and warnings in the order found.

    A problem's `kind` is structure, limit, or the name of the hash that does
    not hold: crc32, crc32c, sha256, hmac, blake3, manifest, merkle, ecc. At
    most MOST of either are kept, the last of them says so. `label` gives the
    name of a chunk that is no text. `authenticated` is True where a key was
    given and everything that it can prove holds. For who writes a file anew,
    `is_rewritten`, what only other readers refuse is a warning.
    """

    MOST = 1000

    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    authenticated: bool | None = None
    label: Callable[[Any], str] = field(default=str, compare=False, repr=False)
    is_rewritten: bool = field(default=False, compare=False, repr=False)

    def error(
        self,
        message: str,
        field: str | None,
        offset: int | None = None,
        chunk: object = None,
        *,
        kind: str = "structure",
    ) -> None:
        """Add something that does not hold."""
        name = self._name(chunk)
        self._add(self.errors, Problem(kind, message, chunk=name, offset=offset, field=field))

    def warn(
        self,
        message: str,
        field: str | None,
        offset: int | None = None,
        chunk: object = None,
        *,
        kind: str = "structure",
    ) -> None:
        """Add something that a user should know and that loses nothing."""
        name = self._name(chunk)
        self._add(self.warnings, Problem(kind, message, chunk=name, offset=offset, field=field))

    def unread(
        self,
        message: str,
        field: str | None,
        offset: int | None = None,
        chunk: object = None,
        *,
        kind: str = "structure",
    ) -> None:
        """Add what the format's own reader refuses, or passes over, though this one reads it."""
        say = self.warn if self.is_rewritten else self.error
        say(message, field, offset, chunk, kind=kind)

    def refuse(self, error: FormatError, chunk: object = None) -> None:
        """Add what a reader refused as an error."""
        # Its message ends with the place, which a problem has of its own.
        message = error.message.removesuffix(f" at byte {error.offset}")
        self.error(message, error.field, error.offset, chunk, kind=error.kind)

    def add(self, member: MemberFindings) -> None:
        """Add what was found in a file of a set."""
        for problem in member.errors:
            self._add(self.errors, problem)
        for problem in member.warnings:
            self._add(self.warnings, problem)

    def of_member(self, nbytes: int = 0) -> MemberFindings:
        """What was found, as of a file of a set."""
        return MemberFindings(tuple(self.errors), tuple(self.warnings), nbytes)

    def _name(self, chunk: object) -> str | None:
        # Only now, where something is said of it: a file can have a million chunks.
        return chunk if chunk is None or isinstance(chunk, str) else self.label(chunk)

    def _add(self, problems: list[Problem], problem: Problem) -> None:
        if len(problems) < self.MOST:
            problems.append(problem)
        elif len(problems) == self.MOST:
            problems.append(
                Problem("limit", f"more than {self.MOST} findings, the rest is left out")
            )
