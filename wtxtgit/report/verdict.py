"""What a check of files found, as data: the contract of `verify --json`."""

from __future__ import annotations

from dataclasses import dataclass, field

from wtxtgit.errors import (
    CheckError,
    EnvironmentFailure,
    InputError,
    TrustError,
    WtxtgitError,
    counted,
)
from wtxtgit.model.findings import Problem, total
from wtxtgit.model.plain import JsonObject

UNTRUSTED = frozenset({"signature"})
"""Kinds that concern trust, not integrity."""


@dataclass(frozen=True, slots=True)
class ArrayFacts(JsonObject):
    """An array of a text: `sha256` in hex, as its line claims it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class RecordFacts(JsonObject):
    """A record of a ledger: `sha256_all` in hex.

    `keyids` are those of its signatures, `signed_by` counts the signatures that a known key made.
    `at` is the path to which the record moves the ledger, None if it stays. `detached` (hex) is the
    SHA-256 of the blob if that is a detached text.
    """

    KEYS = "gen ts build sha256_all signed_by keyids at? detached?"

    gen: int
    ts: str
    build: str
    sha256_all: str
    signed_by: int
    keyids: tuple[str, ...]
    at: str | None = None
    detached: str | None = None


@dataclass(frozen=True, slots=True)
class DeltaFacts(JsonObject):
    """A delta: hashes in hex; `target_sha256_all` and `gen` are set if it is a bound delta.

    `changed` and `removed` name arrays, `chunks` counts the chunks that it carries.
    """

    KEYS = "form base_sha256_all target_sha256_all? gen? changed removed chunks"

    form: str
    base_sha256_all: str
    target_sha256_all: str | None
    gen: int | None
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    chunks: int


@dataclass(frozen=True, slots=True)
class ReleasedFile(JsonObject):
    """A file that a release names, by its path from the top level; `sha256` in hex."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ReleaseFacts(JsonObject):
    """What a release bundle says: its tag, its commit if it names one, and its files."""

    KEYS = "tag commit? files"

    tag: str
    commit: str | None
    files: tuple[ReleasedFile, ...]


@dataclass(frozen=True, slots=True, repr=False)
class FileVerdict(JsonObject):
    """The result of checking one file.

    `known` is False if the file is of no kind that can be checked; `failure` is the error if it
    could not be read at all. The optional fields are set for texts, ledgers and deltas that could
    be read to the end. `signature` is the worst of a ledger's records, and for a delta that of its
    target. `payload` says how much of a detached text's payload is available: complete, partly or
    absent. `release` is what a release bundle says that a known key signed.
    """

    KEYS = (
        "path format ok errors warnings sha256_all? signature? keyid? authenticated? arrays? "
        "records? delta? payload? release?"
    )

    path: str
    format: str
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    known: bool = True
    sha256_all: str | None = None
    signature: str | None = None
    keyid: str | None = None
    authenticated: bool | None = None
    arrays: tuple[ArrayFacts, ...] | None = None
    records: tuple[RecordFacts, ...] | None = None
    delta: DeltaFacts | None = None
    payload: str | None = None
    release: ReleaseFacts | None = None
    failure: WtxtgitError | None = None

    def __repr__(self) -> str:
        return f"<FileVerdict {self._summary()}>"

    def _summary(self) -> str:
        verdict = "ok" if self.ok else f"not ok, {counted(total(self.errors), 'error')}"
        if self.is_unread:
            verdict = "not checked"
        return f"{self.path}: {self.format}, {verdict}"

    def _repr_html_(self) -> str:
        """Return a table of the problems as HTML, for IPython."""
        from wtxtgit.model.notebook import table

        problems = [("error", error) for error in self.errors]
        problems += [("warning", warning) for warning in self.warnings]
        rows = ((severity, one.kind, one) for severity, one in problems)
        return table(self._summary(), ("", "kind", "problem"), rows, len(problems))

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def is_unread(self) -> bool:
        """Whether all that is wrong is that something could not be read, or is over a limit."""
        return bool(self.errors) and all(error.is_unread for error in self.errors)


@dataclass(frozen=True, slots=True)
class Verdict(JsonObject):
    """The result of checking all files of a command."""

    KEYS = "ok files"

    files: tuple[FileVerdict, ...] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        return all(file.ok for file in self.files)

    @property
    def exit_code(self) -> int:
        """0 if all holds; 1 for damage; 4 if only signatures fail; 5 if something could not be read
        or is over a limit; 3 if nothing can be checked.
        """
        if self.ok:
            return 0
        errors = [problem for file in self.files if file.known for problem in file.errors]
        kinds = {problem.kind for problem in errors}
        if not all(problem.is_unread or problem.kind in UNTRUSTED for problem in errors):
            return CheckError.exit_code
        if kinds:
            error = TrustError if kinds & UNTRUSTED else EnvironmentFailure
            return error.exit_code
        failures = [file.failure for file in self.files if file.failure is not None]
        return max((failure.exit_code for failure in failures), default=InputError.exit_code)
