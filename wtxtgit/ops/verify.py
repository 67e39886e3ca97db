"""Verify: everything that can be checked of files, as a verdict.

A text is checked to its last hash; a ledger in its order, its chain and its
signatures; a delta as far as that goes without its base; a container in its
structure, its limits and every hash that it holds; a set with all files that it
lists.
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
from wtxtgit.report.verdict import ArrayFacts, DeltaFacts, FileVerdict, RecordFacts, Verdict
from wtxtgit.text import ledger
from wtxtgit.text.delta import lines as delta_lines
from wtxtgit.text.delta.check import DeltaReport
from wtxtgit.text.delta.check import check as check_delta
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.index import quote
from wtxtgit.text.ledger_chain import signed_by
from wtxtgit.text.signature import SignatureState
from wtxtgit.text.verify import Report, read_wsum, verify
from wtxtgit.trust.signers import MAX_SIGNERS_FILE, parse_signers

LEDGER = "ledger"
"""What the verdict calls a ledger's format."""
DELTA = "delta"
_QUOTED = 16
"""How many of the first bytes of an unknown file a message shows."""
_WORST_FIRST = (
    SignatureState.INVALID,
    SignatureState.ABSENT,
    SignatureState.UNKNOWN_KEY,
    SignatureState.VALID,
)


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
        elif data[: len(ledger.MAGIC)] == ledger.MAGIC:
            verdict = _ledger_verdict(path, data, public_keys, keys.require_signed)
            verdicts.append(_with_demands(keys, verdict))
            if progress is not None:
                progress(data.nbytes)
        elif data[: len(delta_lines.MAGIC)] == delta_lines.MAGIC:
            verdicts.append(_delta_verdict(path, check_delta(data, public_keys=public_keys), keys))
            if progress is not None:
                progress(data.nbytes)
        else:
            options = replace(keys.reading, integrity_key=key)
            verdict = _container_verdict(path, data, options, threads)
            verdicts.append(_with_demands(keys, verdict))
            if progress is not None:
                progress(data.nbytes)
    return Verdict(tuple(verdicts))


def _with_demands(keys: Keys, verdict: FileVerdict) -> FileVerdict:
    """A verdict, and as errors what is asked for that no file of its kind has."""
    return replace(verdict, errors=(*verdict.errors, *_demands(keys, verdict)))


def _demands(keys: Keys, verdict: FileVerdict) -> Iterator[Problem]:
    if keys.require_signed and verdict.format != LEDGER:
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
    if require_signed and (missing := _missing(report.signature)) is not None:
        errors.append(Problem("signature", missing))
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


def _ledger_verdict(
    path: Path, data: memoryview, public_keys: Sequence[bytes], require_signed: bool
) -> FileVerdict:
    report = ledger.read(data)
    if report.ledger is None:
        return FileVerdict(str(path), LEDGER, report.problems)
    errors = list(report.problems)
    records, states = [], set()
    lines = ledger.record_lines(report.ledger)
    for record, line in zip(report.ledger.records, lines, strict=True):
        found = signed_by(report.ledger.head, record, public_keys)
        states.add(found.state)
        for keyid in found.invalid:
            message = f"the signature of keyid {keyid} does not fit the record and the keys given"
            errors.append(Problem("signature", message, line=line))
        if require_signed and (missing := _missing(found.state)) is not None:
            errors.append(Problem("signature", missing, line=line))
        facts = RecordFacts(
            record.meta.gen,
            record.meta.ts,
            record.meta.build,
            record.sha256_all.hex(),
            found.signatures,
            tuple(signature.keyid for signature in record.signatures),
        )
        records.append(facts)
    worst = next(state for state in _WORST_FIRST if state in states)
    return FileVerdict(
        str(path), LEDGER, tuple(errors), signature=str(worst), records=tuple(records)
    )


def _delta_verdict(path: Path, report: DeltaReport, keys: Keys) -> FileVerdict:
    found = report.index
    errors = list(report.problems)
    if keys.require_signed and (missing := _missing(report.signature)) is not None:
        errors.append(Problem("signature", missing))
    if keys.hmac_key is not None and not keys.allow_unauthenticated:
        what = "a key is given: delta apply --hmac-key checks the arrays' hmacs, with the base"
        errors.append(Problem("hmac", what))
    if found.base is None or found.stop is not None:
        return FileVerdict(str(path), DELTA, tuple(errors))
    head = found.head
    facts = DeltaFacts(
        "plain" if head is None else "bound",
        found.base.hex(),
        None if head is None else head.root.sha256_all.hex(),
        None if head is None else head.meta.gen,
        tuple(change.name for change in found.changes if not change.removed),
        tuple(change.name for change in found.changes if change.removed),
        sum(len(change.chunks) for change in found.changes),
    )
    note = Problem("root", "its target's hashes need the base: wtxtgit delta apply checks them")
    return FileVerdict(
        str(path),
        DELTA,
        tuple(errors),
        (note,),
        signature=str(report.signature),
        keyid=None if head is None or head.signature is None else head.signature.keyid,
        delta=facts,
    )


def _missing(state: SignatureState) -> str | None:
    """What a demand for a signature says of its state; None where it needs no word."""
    if state in (SignatureState.VALID, SignatureState.INVALID):
        return None
    what = "not signed" if state is SignatureState.ABSENT else "by an unknown key"
    return f"a signature by a known key is required: {what}"


def _container_verdict(
    path: Path, data: memoryview, options: ReadOptions, threads: int | None
) -> FileVerdict:
    kind = containers.identify(data)
    found = containers.check(data, options, members(str(path), threads=threads))
    if kind is None:
        problem = found.errors[0]
        if not containers.is_foreign(data):
            problem = Problem("syntax", _unknown(data))
        return FileVerdict(str(path), "unknown", (problem,), known=False)
    return FileVerdict(
        str(path),
        kind,
        tuple(found.errors),
        tuple(found.warnings),
        authenticated=found.authenticated,
    )


def _unknown(data: memoryview) -> str:
    """What to say of a file that is nothing that we know."""
    if len(data) <= MAX_WSUM and read_wsum(bytes(data)) is not None:
        return "a WSUM says nothing without its text: verify the text with --wsum and this file"
    head = quote(bytes(data[:_QUOTED])) if len(data) else "nothing: it is empty"
    return f"no WTXT text, no ledger, delta or container that we know, it starts with {head}"
