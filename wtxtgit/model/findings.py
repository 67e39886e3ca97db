"""Findings of checks: problems, stored up to a limit and only counted beyond it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, final, overload

from wtxtgit.errors import (
    MAX_MESSAGE,
    CheckError,
    EnvironmentFailure,
    FormatError,
    clipped,
    place,
)
from wtxtgit.model.plain import JsonObject

LIMITS = frozenset({"limit"})
"""Kinds of problems that say nothing about a file but that it is more than is read."""


@dataclass(frozen=True, slots=True)
class Problem(JsonObject):
    """One thing that a check found; `kind` is one of the words that a verdict lists.

    `line` counts from 1. `chunk` is the `ix` of a text's chunk or the name of a container's chunk,
    `offset` the position of a byte in the file, `field` the name that the format's spec gives to
    what is there. If `more` is set, the problem represents that many problems of its kind, which
    were counted but not stored: see `Problems`. `refused` says that the system refused to read
    something.
    """

    KEYS = "kind message line? array? chunk? offset? field? more?"

    kind: str
    message: str
    line: int | None = None
    array: str | None = None
    chunk: int | str | None = None
    offset: int | None = None
    field: str | None = None
    more: int | None = None
    refused: bool = False

    @property
    def is_unread(self) -> bool:
        """Whether this says nothing about a file but that it was not read."""
        return self.refused or self.kind in LIMITS

    def error(self, message: str, *, hint: str | None = None) -> CheckError | EnvironmentFailure:
        """Return the error that ends a command because of this problem."""
        return (EnvironmentFailure if self.is_unread else CheckError)(message, hint=hint)

    def __str__(self) -> str:
        where = place(self.line, self.array, self.chunk, self.offset)
        message = clipped(self.message, MAX_MESSAGE)
        return f"{where}: {message}" if where else message


def total(problems: Iterable[Problem]) -> int:
    """Return how many problems were found, including those that were only counted."""
    return sum(problem.more or 1 for problem in problems)


@final
class Problems(Sequence[Problem]):
    """The problems that a check found, in order: all of them, or a part and counts of the rest.

    The first MOST are stored, and always the first one of each kind. If there are more, the last
    entries give the number of the others by kind. So a file in which everything is wrong does not
    take memory for each problem, and a verdict, which asks whether there are any and of which
    kinds, is the same.
    """

    __slots__ = ("_kept", "_kinds", "_more")

    MOST = 1000

    def __init__(self, found: Iterable[Problem] = ()) -> None:
        self._kept: list[Problem] = []
        self._kinds: set[str] = set()
        self._more: Counter[str] = Counter()
        self.extend(found)

    def append(self, problem: Problem) -> None:
        if len(self._kept) < self.MOST or problem.kind not in self._kinds:
            self._kept.append(problem)
            self._kinds.add(problem.kind)
        else:
            self._more[problem.kind] += problem.more or 1

    def extend(self, found: Iterable[Problem]) -> None:
        for problem in found:
            self.append(problem)

    def sort(self, key: Callable[[Problem], Any]) -> None:
        """Sort the problems that are stored."""
        self._kept.sort(key=key)

    def __iter__(self) -> Iterator[Problem]:
        yield from self._kept
        for kind, count in self._more.items():
            yield Problem(kind, f"and {count:,} more ({kind})", more=count)

    def __len__(self) -> int:
        return len(self._kept) + len(self._more)

    @overload
    def __getitem__(self, place: int) -> Problem: ...
    @overload
    def __getitem__(self, place: slice) -> list[Problem]: ...
    def __getitem__(self, place: int | slice) -> Problem | list[Problem]:
        return list(self)[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Problems({list(self)!r})"


@dataclass(frozen=True, slots=True)
class MemberFindings:
    """What a check of one file of a set found, in the file and compared with the set's index.

    `nbytes` is the size of those of its tensors that the index lists.
    """

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    nbytes: int = 0


@dataclass(slots=True)
class Findings:
    """What a check of a container found; errors and warnings in the order in which they were found.

    A problem's `kind` is structure, limit, or the name of the hash that does not hold: crc32,
    crc32c, sha256, hmac, blake3, manifest, merkle, ecc, signature. `label` gives the name of a
    chunk whose name is not text. `authenticated` is True if a key was given and everything that
    it can prove holds. `signature` is "valid" if the file is signed by one of the given keys.
    With `is_rewritten`, for callers that write the file anew, problems that only other readers
    refuse are warnings.
    """

    errors: Problems = field(default_factory=Problems)
    warnings: Problems = field(default_factory=Problems)
    authenticated: bool | None = None
    signature: str | None = None
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
        """Add a problem that makes the file invalid."""
        name = self._name(chunk)
        self.errors.append(Problem(kind, message, chunk=name, offset=offset, field=field))

    def warn(
        self,
        message: str,
        field: str | None,
        offset: int | None = None,
        chunk: object = None,
        *,
        kind: str = "structure",
    ) -> None:
        """Add something that a user should know although no data is lost by it."""
        name = self._name(chunk)
        self.warnings.append(Problem(kind, message, chunk=name, offset=offset, field=field))

    def unread(
        self,
        message: str,
        field: str | None,
        offset: int | None = None,
        chunk: object = None,
        *,
        kind: str = "structure",
    ) -> None:
        """Add something that the format's own reader refuses or skips, though this one reads it."""
        say = self.warn if self.is_rewritten else self.error
        say(message, field, offset, chunk, kind=kind)

    def refuse(self, error: FormatError, chunk: object = None) -> None:
        """Add the error with which a reader refused the file."""
        # Cut the place off the message's end: a problem has fields for it.
        message = error.message.removesuffix(f" at byte {error.offset}")
        problem = Problem(error.kind, message, None, None, self._name(chunk), error.offset)
        refused = error.exit_code == EnvironmentFailure.exit_code
        self.errors.append(replace(problem, field=error.field, refused=refused))

    def add(self, member: MemberFindings) -> None:
        """Add what was found in one file of a set."""
        self.errors.extend(member.errors)
        self.warnings.extend(member.warnings)

    @classmethod
    def of_members(cls, members: Iterable[MemberFindings]) -> tuple[Self, int]:
        """Return the findings of a set's files, in their order, and the sum of their `nbytes`."""
        findings, total = cls(), 0
        for member in members:
            findings.add(member)
            total += member.nbytes
        return findings, total

    def add_of_file(self, path: str, found: Findings) -> None:
        """Add the findings of one file of a set, each with that file's `path`."""
        for kept, problems in ((self.errors, found.errors), (self.warnings, found.warnings)):
            kept.extend(replace(problem, chunk=path) for problem in problems)

    def of_member(self, nbytes: int = 0) -> MemberFindings:
        """Return these findings as those of one file of a set."""
        return MemberFindings(tuple(self.errors), tuple(self.warnings), nbytes)

    def _name(self, chunk: object) -> str | None:
        # Only now that a problem mentions it is the chunk labelled: a file can have a million
        # chunks.
        return chunk if chunk is None or isinstance(chunk, str) else self.label(chunk)
