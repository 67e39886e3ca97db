"""Verify: everything that can be checked of files, as a verdict.

A text is checked to its last hash; a container in its structure, its limits
and every hash that it holds; a set with all files that it lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wtxtgit import containers
from wtxtgit.errors import WtxtgitError
from wtxtgit.model import Problem
from wtxtgit.model.reading import ReadOptions
from wtxtgit.ops.emit import MAX_WSUM, hmac_key
from wtxtgit.ops.files import read_small, shown
from wtxtgit.ops.target import members, read
from wtxtgit.report.verdict import ArrayFacts, FileVerdict, Verdict
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.index import quote
from wtxtgit.text.signature import SignatureState
from wtxtgit.text.verify import Report, verify
from wtxtgit.trust.keys import MAX_SIGNERS_FILE, parse_signers

_QUOTED = 16
"""How many of the first bytes of an unknown file a message shows."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What a verification knows and demands.

    `reading` are limits and keys for containers; `hmac_key` is their HMAC key
    as well.
    """

    wsum: Path | None = None
    hmac_key: Path | None = None
    signers: Path | None = None
    require_signed: bool = False
    allow_unauthenticated: bool = False
    reading: ReadOptions = field(default_factory=ReadOptions)


def verify_files(
    paths: Sequence[Path],
    keys: Keys,
    *,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Verify each file, or blob as REV:PATH; what can't be read is a finding, not the end.

    Raises InputError, KeyFileError or EnvironmentFailure for key and WSUM files.
    """
    key = hmac_key(keys.hmac_key)
    wsum = None if keys.wsum is None else read_small(keys.wsum, MAX_WSUM, "a WSUM")
    public_keys = _public_keys(keys.signers)
    verdicts = []
    for path in paths:
        try:
            data = read(str(path))
        except WtxtgitError as error:
            problem = Problem("structure", error.message)
            verdict = FileVerdict(str(path), "unreadable", (problem,), known=False, failure=error)
            verdicts.append(verdict)
            continue
        if data[: len(MAGIC)] == MAGIC:
            report = verify(
                data,
                wsum=wsum,
                hmac_key=key,
                public_keys=public_keys,
                allow_unauthenticated=keys.allow_unauthenticated,
                threads=threads,
                progress=progress,
            )
            verdicts.append(_text_verdict(path, report, keys.require_signed))
        else:
            options = replace(keys.reading, integrity_key=key)
            verdict = _container_verdict(path, data, options, threads)
            verdicts.append(replace(verdict, errors=(*verdict.errors, *_demands(keys, verdict))))
            if progress is not None:
                progress(data.nbytes)
    return Verdict(tuple(verdicts))


def _demands(keys: Keys, verdict: FileVerdict) -> Iterator[Problem]:
    """What is asked for that the file does not have."""
    if keys.require_signed:
        yield Problem("signature", "a signature is required: a container carries none, a text can")
    told = verdict.authenticated or any(error.kind == "hmac" for error in verdict.errors)
    if keys.hmac_key is not None and not (keys.allow_unauthenticated or told):
        yield Problem("hmac", "a key is given: this file carries no hmac")


def _public_keys(path: Path | None) -> list[bytes]:
    if path is None:
        return []
    content = read_small(path, MAX_SIGNERS_FILE, "a signers file")
    return [signer.public_key for signer in parse_signers(content, shown(path))]


def _text_verdict(path: Path, report: Report, require_signed: bool) -> FileVerdict:
    errors = list(report.problems)
    if require_signed and report.signature in (SignatureState.ABSENT, SignatureState.UNKNOWN_KEY):
        what = "not signed" if report.signature is SignatureState.ABSENT else "by an unknown key"
        errors.append(Problem("signature", f"a signature by a known key is required: {what}"))
    arrays = tuple(
        ArrayFacts(a.name, a.claim.dtype, a.claim.shape, a.claim.sha256.hex())
        for a in report.index.arrays
    )
    complete = report.sha256_all is not None
    return FileVerdict(
        str(path),
        "wtxt",
        tuple(errors),
        sha256_all=report.sha256_all.hex() if report.sha256_all is not None else None,
        signature=str(report.signature) if report.index.has_header else None,
        keyid=report.keyid,
        authenticated=report.authenticated if report.index.has_header else None,
        arrays=arrays if complete else None,
    )


def _container_verdict(
    path: Path, data: memoryview, options: ReadOptions, threads: int | None
) -> FileVerdict:
    kind = containers.identify(data)
    found = containers.check(data, options, members(str(path), threads=threads))
    if kind is None:
        problem = found.errors[0]
        if not containers.is_foreign(data):
            message = f"no WTXT text and no container that we know, it starts with {_head(data)}"
            problem = Problem("syntax", message)
        return FileVerdict(str(path), "unknown", (problem,), known=False)
    return FileVerdict(
        str(path),
        kind,
        tuple(found.errors),
        tuple(found.warnings),
        authenticated=found.authenticated,
    )


def _head(data: memoryview) -> str:
    return quote(bytes(data[:_QUOTED])) if len(data) else "nothing: it is empty"
