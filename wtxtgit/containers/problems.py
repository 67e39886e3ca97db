"""Findings of one file's check, said in a line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from wtxtgit.errors import FormatError
from wtxtgit.model.findings import Findings

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class ChunkProblems(Generic[C]):
    """Findings on a file whose chunks are called what `label` says.

    Most findings are of kind "structure". A chunk's label is only made where
    there is something to be said of it: files can have a million chunks.
    """

    findings: Findings
    label: Callable[[C], str]

    def error(
        self,
        message: str,
        field: str | None,
        offset: int | None,
        chunk: C | None = None,
        *,
        kind: str = "structure",
    ) -> None:
        """Add something that does not hold."""
        name = None if chunk is None else self.label(chunk)
        self.findings.error(kind, message, offset=offset, field=field, chunk=name)

    def warn(
        self,
        message: str,
        field: str | None,
        offset: int | None,
        chunk: C | None = None,
        *,
        kind: str = "structure",
    ) -> None:
        """Add something that a user should know and that loses nothing."""
        name = None if chunk is None else self.label(chunk)
        self.findings.warn(kind, message, offset=offset, field=field, chunk=name)

    def refuse(self, error: FormatError, chunk: C) -> None:
        """Add what a reader refused as an error."""
        self.findings.refuse(error, chunk=self.label(chunk))
