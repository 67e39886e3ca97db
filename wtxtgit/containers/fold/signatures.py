"""ed25519 signatures in FOLD files: `trust_block` of the index, `signature` of its metadata.

Both sign canonical JSON: sorted keys, no spaces. The original writer escapes what is not ASCII in
the block, but not in the metadata. The block contains the hashes of the metadata and of the rest of
the index, and so covers all chunks. The other one is made before a file is written, and covers only
what the program says of the model. Spec: `docs/spec/fold.md`, "Signatures".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence

from wtxtgit.containers import json_text
from wtxtgit.containers.fold.describe import OF_THE_WRITING
from wtxtgit.containers.fold.payloads import parse_hash
from wtxtgit.containers.fold.read import TRUST_BLOCK, Fold
from wtxtgit.errors import FormatError
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

KIND = "signature"
METADATA, SIGNATURE = "metadata", "signature"
ALGORITHM = "ed25519"
VALID = "valid"
"""What a verdict says of a file that is signed by one of the keys."""
_HEX = re.compile(r"[0-9a-fA-F]{128}")
_AFTER_SIGNING = frozenset({"expression", *OF_THE_WRITING})
"""Metadata that are added once the others are signed."""


def check_signatures(fold: Fold, options: ReadOptions, findings: Findings) -> None:
    """Check the signatures of the file, if it has any.

    Without `options.public_keys` no signature can be checked: signed data that has changed is then
    a warning, with keys an error. All signatures of a file have to hold.
    """
    verdicts = [
        verdict
        for verdict in (_trust_block(fold, options, findings), _metadata(fold, options, findings))
        if verdict is not None
    ]
    if verdicts and all(verdicts):
        findings.signature = VALID


def _trust_block(fold: Fold, options: ReadOptions, findings: Findings) -> bool | None:
    """Whether the signature holds; None if there is none to check."""
    text, at = fold.index.get(TRUST_BLOCK), fold.index_start
    if text is None:
        return None
    try:
        encoded = text.encode() if isinstance(text, str) else b""
        block = json_text.parse(memoryview(encoded), TRUST_BLOCK, listing=fold.listing.apart())
    except (FormatError, UnicodeEncodeError):
        block = None
    if not isinstance(block, dict):
        findings.error("trust_block is not a JSON object in a string", TRUST_BLOCK, at)
        return None
    rest = {k: v for k, v in fold.index.items() if k not in (TRUST_BLOCK, METADATA)}
    signed = {"metadata_hash": fold.index.get(METADATA), "index_hash": rest}
    changed = [
        key
        for key, value in signed.items()
        if not _is_hash_of(block.get(key), _canonical(value), options)
    ]
    message = _canonical({key: value for key, value in block.items() if key != SIGNATURE})
    return _judged(
        TRUST_BLOCK,
        at,
        block.get("signature_algo"),
        block.get(SIGNATURE),
        () if message is None else (message,),
        f"{changed[0]} in trust_block belongs to another file" if changed else None,
        options,
        findings,
    )


def _metadata(fold: Fold, options: ReadOptions, findings: Findings) -> bool | None:
    metadata = fold.index.get(METADATA)
    signature = metadata.get(SIGNATURE) if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(signature, dict):
        return None
    payload = _canonical(
        {key: value for key, value in metadata.items() if key not in _AFTER_SIGNING},
        escaped=False,
    )
    why = None
    if not _is_hash_of(signature.get("payload_sha256"), payload, options):
        why = "payload_sha256 in metadata.signature does not match the metadata"
    return _judged(
        "metadata.signature",
        fold.index_start,
        signature.get("algorithm"),
        signature.get("value"),
        () if payload is None else tuple(_messages(payload)),
        why,
        options,
        findings,
    )


def _messages(payload: bytes) -> Iterator[bytes]:
    """Yield the equivalent messages that a signature of metadata may cover."""
    digest = hashlib.sha256(payload)
    yield from (payload, f"sha256:{digest.hexdigest()}".encode())
    yield from (digest.hexdigest().encode(), digest.digest())


def _judged(
    field: str,
    at: int,
    algorithm: object,
    value: object,
    messages: Sequence[bytes],
    why: str | None,
    options: ReadOptions,
    findings: Findings,
) -> bool | None:
    if why is None and algorithm != ALGORITHM:
        why = f"{field} uses an algorithm other than {ALGORITHM}"
    if why is None and options.public_keys and not _is_signed(value, messages, options):
        why = f"{field} was not made with any of the given keys"
    if why is not None:
        # Without a key the user did not ask whether it is signed.
        say = findings.error if options.public_keys else findings.warn
        say(why, field, at, kind=KIND)
    elif not options.public_keys:
        return None
    return why is None


def _is_signed(value: object, messages: Sequence[bytes], options: ReadOptions) -> bool:
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        return False
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for key in options.public_keys:
        for message in messages:
            try:
                Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(value), message)
            except (InvalidSignature, ValueError):
                continue
            return True
    return False


def _is_hash_of(stored: object, canonical: bytes | None, options: ReadOptions) -> bool:
    stated_hash = parse_hash(stored)
    if canonical is None or stated_hash is None:
        return False
    # An HMAC can't be checked without its key: the signature covers it all the same.
    return (
        stated_hash.holds(hashlib.sha256(canonical).hexdigest(), options.integrity_key) is not False
    )


def _canonical(value: object, *, escaped: bool = True) -> bytes | None:
    """Return a value as JSON, None if it can't be; without `escaped`, non-ASCII is UTF-8."""
    try:
        text = json.dumps(value, ensure_ascii=escaped, sort_keys=True, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError):
        return None
