"""Verify: everything that can be checked of files, as a verdict.

A text is checked to its last hash; a ledger in its order, its chain and its signatures; a delta as
far as possible without its base; a container in its structure, its limits and every hash that it
contains; a set with all files that it lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.checkpoint.bundle import MAX_PUBLIC_KEY, is_bundle, parse_release_key
from wtxtgit.checkpoint.key_file import key_bytes
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import (
    HERE,
    TargetPlace,
    described,
    payload_for,
    public_name,
    read_checkpoint,
    wsum_beside,
)
from wtxtgit.checkpoint.wsum import given_wsum
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.identity import identity, wrong_under
from wtxtgit.errors import PICKLE, AgeError, InputError, WtxtgitError
from wtxtgit.io.files import read_small, shown, shown_path
from wtxtgit.io.progress import Portion, Progress, expect, finish_file
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.array import PAYLOAD_MISSING
from wtxtgit.model.findings import Findings, MemberFindings, Problem
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.verdict import ArrayFacts, DeltaFacts, FileVerdict, RecordFacts, Verdict
from wtxtgit.text import ledger
from wtxtgit.text.delta.index import DeltaReport
from wtxtgit.text.delta.index import check as check_delta
from wtxtgit.text.digest import SignatureState
from wtxtgit.text.grammar import MAGIC, MAX_WSUM, is_delta, is_text
from wtxtgit.text.ledger import signed_by
from wtxtgit.text.verify import TextReport, read_wsum, verify
from wtxtgit.trust.age.armor import is_age
from wtxtgit.trust.openssh import MAX_SIGNERS_FILE, parse_signers

if TYPE_CHECKING:  # what opens age files takes long to load
    from wtxtgit.checkpoint.bundle import ReleaseKey
    from wtxtgit.trust.age.identities import AgeIdentity

LEDGER = "ledger"
"""The name of a ledger's format in a verdict."""
DELTA = "delta"
AGE, OPENED = "age", "wtxt in age"
"""The names for an encrypted text, and for one that was decrypted."""
_WORST_FIRST = (
    SignatureState.INVALID,
    SignatureState.ABSENT,
    SignatureState.UNKNOWN_KEY,
    SignatureState.VALID,
)


@dataclass(frozen=True, slots=True)
class Demands:
    """What a verification knows and demands, so that it reads no other file."""

    wsum: bytes | None
    hmac_key: bytes | None = field(repr=False)
    public_keys: tuple[bytes, ...]
    require_signed: bool
    allow_unauthenticated: bool
    reading: ReadOptions
    strict: bool = False
    identities: tuple[AgeIdentity, ...] = field(default=(), repr=False)
    require_payload: bool = False
    release_keys: tuple[ReleaseKey, ...] = ()
    against: str | None = None

    @property
    def has_secrets(self) -> bool:
        return (
            bool(self.identities)
            or self.hmac_key is not None
            or self.reading.decryption_key is not None
        )


def demands(
    *,
    wsum: Path | None = None,
    hmac_key: Path | None = None,
    signers: Path | None = None,
    require_signed: bool = False,
    allow_unauthenticated: bool = False,
    strict: bool = False,
    reading: ReadOptions | None = None,
    identities: Iterable[AgeIdentity] = (),
    require_payload: bool = False,
    release_key: Path | None = None,
    against: str | None = None,
) -> Demands:
    """Read the files that state what is demanded.

    `reading` has limits and keys for containers; `hmac_key` is also their HMAC key. With `strict`
    notes about containers are errors. `identities` decrypt encrypted texts. With `require_payload`
    all payload of detached texts has to be at hand. Release bundles are verified with the public
    key in `release_key`, or with those of signers, for the files of the folder or revision
    `against`. Raises InputError, KeyFileError or EnvironmentFailure.
    """
    public_keys = public_keys_of(signers)
    return Demands(
        None if wsum is None else given_wsum(wsum),
        key_bytes(hmac_key),
        public_keys,
        require_signed,
        allow_unauthenticated,
        ReadOptions() if reading is None else reading,
        strict,
        tuple(identities),
        require_payload,
        (*_release_keys(release_key), *public_keys),
        against,
    )


def verify_files(
    paths: Sequence[Path | str],
    asked: Demands,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Verify files, URLs, or blobs as REV:PATH; an unreadable one is a finding and ends nothing."""
    if len(paths) > 1:
        # How many bytes are in each shows when it is opened.
        expect(progress, None, len(paths))
    verdicts = []
    for path in paths:
        verdicts.append(verify_file(str(path), asked, threads=threads, progress=progress))
        finish_file(progress)
    return Verdict(tuple(verdicts))


def verify_file(
    name: str,
    asked: Demands,
    place: TargetPlace = HERE,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> FileVerdict:
    """Verify a file, URL or REV:PATH; nothing in it raises an error."""
    try:
        data = read_checkpoint(name, place)
    except WtxtgitError as error:
        return unreadable(name, error)
    return verify_data(name, data, asked, place, threads=threads, progress=progress)


def unreadable(name: str, error: WtxtgitError) -> FileVerdict:
    """Return the verdict on something that could not be read at all."""
    problem = Problem("structure", error.message)
    return FileVerdict(public_name(name), "unreadable", (problem,), known=False, failure=error)


def verify_data(
    name: str,
    data: ByteView,
    asked: Demands,
    place: TargetPlace = HERE,
    checked: Iterable[MemberFindings] | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> FileVerdict:
    """Verify what was read of `name`; `checked` are findings on files of a set checked before."""
    path = public_name(name)
    if is_text(data):
        report = verify(
            data,
            payload=payload_for(name, data, place),
            wsum=wsum_beside(name, place) if asked.wsum is None else asked.wsum,
            hmac_key=asked.hmac_key,
            public_keys=asked.public_keys,
            allow_unauthenticated=asked.allow_unauthenticated,
            threads=threads,
            progress=progress,
        )
        return _text_verdict(path, report, asked)
    if is_bundle(data):
        return _bundle_verdict(path, data, asked, progress)
    # Files of a set are counted when they are checked by themselves, and parity reads again.
    told = Portion(progress, data.nbytes)
    if data[: len(ledger.MAGIC)] == ledger.MAGIC:
        verdict = _ledger_verdict(path, data, asked.public_keys, asked.require_signed)
        verdict = _with_demands(asked, verdict)
    # Texts, ledgers and deltas have magics that no container shares, so the order does not matter.
    elif is_delta(data):
        verdict = _delta_verdict(path, check_delta(data, public_keys=asked.public_keys), asked)
    elif is_age(data):
        verdict = _encrypted_verdict(path, data, asked, threads)
    else:
        signers = tuple(key for key in asked.release_keys if isinstance(key, bytes))
        options = replace(
            asked.reading, integrity_key=asked.hmac_key, public_keys=signers, progress=told
        )
        findings = any_format.check(data, options, members(name, place, threads=threads), checked)
        verdict = _container_verdict(path, data, findings)
        if asked.strict:
            verdict = replace(verdict, errors=(*verdict.errors, *verdict.warnings), warnings=())
        verdict = _with_demands(asked, verdict)
    told.finish()
    return verdict


def _bundle_verdict(
    path: str, data: ByteView, asked: Demands, progress: Progress | None
) -> FileVerdict:
    # Imported here: few files are bundles, and this reads commits.
    from wtxtgit.checkpoint.released_files import bundle_verdict

    keys, strict = asked.release_keys, asked.strict
    return bundle_verdict(path, data, keys, asked.against, strict=strict, progress=progress)


def _release_keys(path: Path | None) -> tuple[ReleaseKey, ...]:
    if path is None:
        return ()
    return (parse_release_key(read_small(path, MAX_PUBLIC_KEY, "a public key"), shown(path)),)


def _encrypted_verdict(
    path: str, data: ByteView, asked: Demands, threads: int | None
) -> FileVerdict:
    """Return the verdict on an age file and, with identities, on the text in it."""
    from wtxtgit.checkpoint.encrypted import envelope
    from wtxtgit.trust.age.identities import opened

    if not asked.identities:
        try:
            told = envelope(data, path)
        except InputError as error:
            return FileVerdict(path, AGE, (_problem(path, error),))
        note = Problem(
            "structure", f"{told}: the age file is well-formed; -i FILE checks the content"
        )
        return _with_demands(asked, FileVerdict(path, AGE, (), (note,)))
    try:
        text = opened(data, asked.identities, path)
        if text[: len(MAGIC)] != MAGIC:
            return FileVerdict(
                path, AGE, (Problem("structure", "the encrypted content is not a text"),)
            )
        report = verify(
            text,
            hmac_key=asked.hmac_key,
            public_keys=asked.public_keys,
            allow_unauthenticated=asked.allow_unauthenticated,
            threads=threads,
        )
    except AgeError as error:
        return FileVerdict(path, AGE, (_problem(path, error),))
    return replace(_text_verdict(path, report, asked), format=OPENED)


def _problem(path: str, error: InputError) -> Problem:
    return Problem("structure", error.message.removeprefix(f"{path}: "))


def _with_demands(asked: Demands, verdict: FileVerdict) -> FileVerdict:
    """Add errors for demands that no file of this kind can satisfy."""
    return replace(verdict, errors=(*verdict.errors, *_demands(asked, verdict)))


def _demands(asked: Demands, verdict: FileVerdict) -> Iterator[Problem]:
    # The signatures of a ledger's records are checked one by one.
    is_signed = verdict.format == LEDGER or verdict.signature == "valid"
    if asked.require_signed and not is_signed:
        yield Problem("signature", "a signature is required, and the file has no valid one")
    is_told_of_key = verdict.authenticated or any(error.kind == "hmac" for error in verdict.errors)
    if asked.hmac_key is not None and not (asked.allow_unauthenticated or is_told_of_key):
        yield Problem("hmac", "a key was given, but this file has no hmac")


def public_keys_of(path: Path | None) -> tuple[bytes, ...]:
    """Return the keys in a file of signers, 32 bytes each; none if `path` is None."""
    if path is None:
        return ()
    content = read_small(path, MAX_SIGNERS_FILE, "a signers file")
    return tuple(signer.public_key for signer in parse_signers(content, shown(path)))


def _text_verdict(path: str, report: TextReport, asked: Demands) -> FileVerdict:
    errors = [p for p in report.problems if asked.require_payload or p.kind != PAYLOAD_MISSING]
    if asked.require_signed and (missing := _missing(report.signature)) is not None:
        errors.append(Problem("signature", missing))
    arrays = tuple(
        ArrayFacts(a.name, a.claim.dtype, a.claim.shape, a.claim.sha256.hex())
        for a in report.index.arrays
    )
    return FileVerdict(
        path,
        "wtxt",
        tuple(errors),
        sha256_all=report.sha256_all.hex() if report.sha256_all is not None else None,
        signature=str(report.signature) if report.index.has_header else None,
        keyid=report.keyid,
        authenticated=report.authenticated if report.index.has_header else None,
        arrays=arrays if report.sha256_all is not None or report.payload is not None else None,
        payload=None if report.payload is None else str(report.payload),
    )


def _ledger_verdict(
    path: str, data: ByteView, public_keys: Sequence[bytes], require_signed: bool
) -> FileVerdict:
    report = ledger.read(mapped(data))
    if report.ledger is None:
        return FileVerdict(path, LEDGER, report.problems)
    errors = list(report.problems)
    records, states = [], set()
    lines = ledger.record_lines(report.ledger)
    for record, line in zip(report.ledger.records, lines, strict=True):
        signed = signed_by(report.ledger.head, record, public_keys)
        states.add(signed.state)
        for keyid in signed.invalid:
            message = f"the signature of keyid {keyid} does not match the record and the given keys"
            errors.append(Problem("signature", message, line=line))
        if require_signed and (missing := _missing(signed.state)) is not None:
            errors.append(Problem("signature", missing, line=line))
        facts = RecordFacts(
            record.meta.gen,
            record.meta.ts,
            record.meta.build,
            record.sha256_all.hex(),
            signed.signatures,
            tuple(signature.keyid for signature in record.signatures),
            None if record.at is None else shown_path(record.at),
            None if record.detached is None else record.detached.hex(),
        )
        records.append(facts)
    # One record without a good signature is what the user needs to know.
    worst = next(state for state in _WORST_FIRST if state in states)
    return FileVerdict(path, LEDGER, tuple(errors), signature=str(worst), records=tuple(records))


def _delta_verdict(path: str, report: DeltaReport, asked: Demands) -> FileVerdict:
    index = report.index
    errors = list(report.problems)
    if asked.require_signed and (missing := _missing(report.signature)) is not None:
        errors.append(Problem("signature", missing))
    if asked.hmac_key is not None and not asked.allow_unauthenticated:
        what = (
            "a key was given, but checking the arrays' hmacs needs the base: wtxtgit delta "
            "apply --hmac-key does it"
        )
        errors.append(Problem("hmac", what))
    # Truncated in its header: there are no facts to report.
    if index.base is None or index.stop is not None:
        return FileVerdict(path, DELTA, tuple(errors))
    head = index.head
    facts = DeltaFacts(
        "plain" if head is None else "bound",
        index.base.hex(),
        None if head is None else head.root.sha256_all.hex(),
        None if head is None else head.meta.gen,
        tuple(change.name for change in index.changes if not change.removed),
        tuple(change.name for change in index.changes if change.removed),
        sum(len(change.chunks) for change in index.changes),
    )
    note = Problem(
        "root", "checking its target's hashes needs the base: wtxtgit delta apply does it"
    )
    return FileVerdict(
        path,
        DELTA,
        tuple(errors),
        (note,),
        signature=str(report.signature),
        keyid=None if head is None or head.signature is None else head.signature.keyid,
        delta=facts,
    )


def _missing(state: SignatureState) -> str | None:
    """Return what a demand for a signature says about its state; None if it is met or reported."""
    if state in (SignatureState.VALID, SignatureState.INVALID):
        return None
    what = "not signed" if state is SignatureState.ABSENT else "by an unknown key"
    return f"a signature by a known key is required: {what}"


def _container_verdict(path: str, data: ByteView, findings: Findings) -> FileVerdict:
    kind = any_format.identify(data)
    alone = registry.part_note(path)
    if alone is not None:
        hint = f"{alone}: verify the folder instead"
        return FileVerdict(path, kind or "unknown", (Problem("structure", hint),), known=False)
    found = identity(data)
    unread = [problem for problem in findings.errors if problem.kind == PICKLE]
    if unread and kind is not None:
        return FileVerdict(path, kind, tuple(unread), known=False)
    if kind is None:
        problem = findings.errors[0]
        if not any_format.is_foreign(data):
            problem = Problem("syntax", _unknown(data))
        return FileVerdict(path, "unknown", (problem,), known=False)
    errors, warnings = list(findings.errors), list(findings.warnings)
    # First in a user's words, then as the reader says it.
    if errors and found.is_fault and not found.is_told_by(errors[0].message):
        errors.insert(0, Problem("structure", found.what or ""))
    elif (wrong := wrong_under(path, found)) is not None and not found.is_fault:
        warnings.insert(0, Problem("structure", wrong))
    return FileVerdict(
        path,
        kind,
        tuple(errors),
        tuple(warnings),
        authenticated=findings.authenticated,
        signature=findings.signature,
    )


def _unknown(data: ByteView) -> str:
    """Return the message for a file of no known kind."""
    if len(data) <= MAX_WSUM and read_wsum(bytes(data)) is not None:
        return "a WSUM means nothing without its text: verify the text, with --wsum and this file"
    return f"not a WTXT text, ledger, delta or known container{described(data)}"
