"""Release bundles: the hashes of files, signed by one key, in the format of OpenSSF Model Signing.

The format and what it proves are in `docs/spec/release.md`; numbers are those of its rules, of
which 5 and 6 are in `released_files`. Pure: bytes and keys in, a value out.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from wtxtgit.containers.json_text import parse
from wtxtgit.errors import FormatError, TrustError
from wtxtgit.io.view import ByteView
from wtxtgit.text.digest import signed_with
from wtxtgit.trust.openssh import fingerprint, parse_public_file

if TYPE_CHECKING:  # what reads PEM takes longer to load than all that most files need
    from wtxtgit.trust.pem_keys import EcPublicKey

MAX_SIZE = 64 * 1024 * 1024
_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_MAGIC = b'"application/vnd.dev.sigstore.bundle'
_MAGIC_WITHIN = 4096
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"
_DIGEST = re.compile(r"[0-9a-f]{64}")
MAX_PUBLIC_KEY = 16 * 1024
_HINT_SHOWN = 16

ReleaseKey: TypeAlias = "EcPublicKey | bytes"
"""A key that verifies bundles: an EC key, or the 32 bytes of an ed25519 one."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A file named by a bundle: its path from the top level, and its SHA-256 in hex."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a bundle: its name, its files, and what the signer states about the
    repository.
    """

    name: str
    resources: tuple[Resource, ...]
    origin: dict[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of all digests joined, in hex."""
        return sha256(b"".join(bytes.fromhex(one.sha256) for one in self.resources)).hexdigest()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose signature has not been verified."""

    payload: bytes
    signature: bytes


def is_bundle(data: ByteView) -> bool:
    """Tell whether a file looks like a bundle."""
    head = bytes(data[:_MAGIC_WITHIN])
    return head.startswith(b"{") and _MAGIC in head


def in_order(resources: Iterable[Resource]) -> tuple[Resource, ...]:
    """Return the files of a release in the order in which they are written."""
    return tuple(sorted(resources, key=lambda one: one.name.split("/")))


def signed_bundle(release: Manifest, sign: Callable[[bytes], bytes], hint: str) -> bytes:
    """Return the bytes of a bundle; `sign` returns the signature of a message."""
    statement = {
        "_type": _STATEMENT,
        "subject": [{"name": release.name, "digest": {"sha256": release.digest}}],
        "predicateType": _PREDICATE,
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False},
            "resources": [
                {"name": one.name, "algorithm": "sha256", "digest": one.sha256}
                for one in release.resources
            ],
            "wtxtgit": release.origin,
        },
    }
    payload = json.dumps(statement, separators=(",", ":")).encode("ascii")
    bundle = {
        "mediaType": _MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": _PAYLOAD_TYPE,
            "signatures": [{"sig": base64.b64encode(sign(_covered(payload))).decode()}],
        },
    }
    return json.dumps(bundle, separators=(",", ":")).encode("ascii") + b"\n"


def parse_bundle(data: ByteView) -> Bundle:
    """Parse a bundle without verifying anything: rule 1. Raises FormatError."""
    if len(data) > MAX_SIZE:
        raise FormatError(f"{len(data)} bytes, but a bundle has at most {MAX_SIZE}", kind="limit")
    bundle = _object(_json(data, "bundle"), "bundle")
    _expect(bundle.get("mediaType"), _MEDIA_TYPE, "mediaType")
    envelope = _object(bundle.get("dsseEnvelope"), "dsseEnvelope")
    _expect(envelope.get("payloadType"), _PAYLOAD_TYPE, "payloadType")
    match envelope.get("signatures"):
        case [dict(signature)]:
            pass
        case _:
            _refuse("signatures", "is not a list of one signature")
    return Bundle(_bytes(envelope.get("payload"), "payload"), _bytes(signature.get("sig"), "sig"))


def verified(bundle: Bundle, keys: Sequence[ReleaseKey]) -> tuple[Manifest, ReleaseKey]:
    """Return what a bundle states, and the key that signed it.

    Raises TrustError if none of the keys has, and FormatError if the payload is no statement.
    """
    # 2.
    message = _covered(bundle.payload)
    for key in keys:
        if isinstance(key, bytes):
            is_its = signed_with(bundle.signature, message, [key]) is not None
        else:
            is_its = key.made(bundle.signature, message)
        if is_its:
            return _release(bundle.payload), key
    if not keys:
        raise TrustError("no key was given that could have signed it")
    raise TrustError("not signed with any of the given keys")


def _covered(payload: bytes) -> bytes:
    """Return the bytes that a signature covers: DSSE's pre-authentication encoding."""
    head = f"DSSEv1 {len(_PAYLOAD_TYPE)} {_PAYLOAD_TYPE} {len(payload)} "
    return head.encode("ascii") + payload


def _release(payload: bytes) -> Manifest:
    # 3.
    told = _object(_json(memoryview(payload), "statement"), "statement")
    _expect(told.get("_type"), _STATEMENT, "_type")
    _expect(told.get("predicateType"), _PREDICATE, "predicateType")
    predicate = _object(told.get("predicate"), "predicate")
    serialization = _object(predicate.get("serialization"), "serialization")
    _expect(serialization.get("method"), "files", "method")
    _expect(serialization.get("hash_type"), "sha256", "hash_type")
    listed = predicate.get("resources")
    if not isinstance(listed, list) or not listed:
        _refuse("resources", "is not a list of files")
    resources = tuple(map(_resource, listed))
    if len({one.name for one in resources}) < len(resources):
        _refuse("resources", "has a name more than once")
    match told.get("subject"):
        case [{"name": str(name), "digest": {"sha256": str(digest)}}]:
            pass
        case _:
            _refuse("subject", "is not a list of one name with its sha256")
    origin = predicate.get("wtxtgit")
    said = origin if isinstance(origin, dict) else {}
    words = {key: value for key, value in said.items() if isinstance(value, str)}
    release = Manifest(name, resources, words)
    # 4.
    if release.digest != digest:
        raise FormatError("the subject's digest does not match its files", kind="manifest")
    return release


def _resource(one: object) -> Resource:
    match one:
        case {"name": str(name), "algorithm": "sha256", "digest": str(digest)}:
            pass
        case _:
            _refuse("resources", "has an entry without name, sha256 and digest")
    if _DIGEST.fullmatch(digest) is None:
        _refuse("digest", "is not 64 lowercase hex digits")
    check_file_name(name)
    return Resource(name, digest)


def check_file_name(name: str) -> None:
    """Raise FormatError unless a name is a path below the top level."""
    try:
        name.encode()
    except UnicodeEncodeError:
        _refuse("name", f"{name!a} is not UTF-8")
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        _refuse("name", f"{name!a} is not a path inside the repository")


def _json(text: ByteView, what: str) -> object:
    return parse(text, what, unique_keys=True, constants=False)


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        _refuse(what, "is not an object")
    return value


def _bytes(value: object, what: str) -> bytes:
    if not isinstance(value, str):
        _refuse(what, "is not base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        _refuse(what, "is not base64")


def _expect(value: object, wanted: str, what: str) -> None:
    if value != wanted:
        _refuse(what, f"is not {wanted}")


def _refuse(what: str, why: str) -> NoReturn:
    raise FormatError(f"{what} {why}", field=what)


def parse_release_key(content: bytes, name: str) -> ReleaseKey:
    """Parse a public key file in PEM or OpenSSH's format; raises KeyFileError."""
    from wtxtgit.trust.pem_keys import is_pem, parse_pem_public

    if is_pem(content):
        return parse_pem_public(content, name)
    return parse_public_file(content, name).key


def shown_key(key: ReleaseKey) -> str:
    """Return the name of a key as people know it: an EC key by its hint, as model-signing shows
    it.
    """
    return fingerprint(key) if isinstance(key, bytes) else f"EC key {key.hint[:_HINT_SHOWN]}"
