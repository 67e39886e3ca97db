"""`docs/spec/release.md` read once more, as plainly as can be, to hold `verify` against.

Written from the page alone. A folder is what stands at its paths: the bytes of a file, or another
word for whatever else stands there.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm

Key = ec.EllipticCurvePublicKey | Ed25519PublicKey
Folder = Mapping[str, bytes | str]
_HASHES: dict[int, type[HashAlgorithm]] = {256: SHA256, 384: SHA384, 521: SHA512}


class Wrong(Exception):
    """What is refused, by its kind."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise Wrong("structure")
    return dict(pairs)


def _no_constant(word: str) -> None:
    raise Wrong("structure")


def depth(value: Any) -> int:
    below = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if below is None else 1 + max(map(depth, below), default=0)


def read_json(content: bytes) -> Any:
    try:
        value = json.loads(
            content.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_no_constant
        )
    except ValueError:
        raise Wrong("structure") from None
    except RecursionError:
        raise Wrong("limit") from None
    if depth(value) > 64:
        raise Wrong("limit")
    return value


def at(value: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise Wrong("structure")
        value = value[key]
    return value


def must(what: bool) -> None:
    if not what:
        raise Wrong("structure")


def b64(value: Any) -> bytes:
    must(isinstance(value, str))
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Wrong("structure") from None


def made(key: Key, signature: bytes, message: bytes) -> bool:
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, message)
        else:
            key.verify(signature, message, ec.ECDSA(_HASHES[key.curve.key_size]()))
    except InvalidSignature:
        return False
    return True


def is_name(name: Any) -> bool:
    if not isinstance(name, str) or "\0" in name or re.search("[\ud800-\udfff]", name):
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))


def resources(content: bytes, keys: Sequence[Key]) -> list[tuple[str, str]]:
    """Names and digests of what keys have signed; raises Wrong: rules 1 to 4."""
    if len(content) > 67_108_864:
        raise Wrong("limit")
    bundle = read_json(content)
    must(at(bundle, "mediaType") == "application/vnd.dev.sigstore.bundle.v0.3+json")
    envelope = at(bundle, "dsseEnvelope")
    must(at(envelope, "payloadType") == "application/vnd.in-toto+json")
    signatures = at(envelope, "signatures")
    must(isinstance(signatures, list) and len(signatures) == 1)
    payload, signature = b64(at(envelope, "payload")), b64(at(signatures[0], "sig"))
    message = b"DSSEv1 28 application/vnd.in-toto+json %d " % len(payload) + payload
    if not any(made(key, signature, message) for key in keys):
        raise Wrong("signature")
    told = read_json(payload)
    must(at(told, "_type") == "https://in-toto.io/Statement/v1")
    must(at(told, "predicateType") == "https://model_signing/signature/v1.0")
    must(at(told, "predicate", "serialization", "method") == "files")
    must(at(told, "predicate", "serialization", "hash_type") == "sha256")
    listed = at(told, "predicate", "resources")
    must(isinstance(listed, list) and listed != [])
    for one in listed:
        must(at(one, "algorithm") == "sha256" and is_name(at(one, "name")))
        digest = at(one, "digest")
        must(isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) is not None)
    names = [one["name"] for one in listed]
    must(len({*names}) == len(names))
    subject = at(told, "subject")
    must(isinstance(subject, list) and len(subject) == 1)
    must(isinstance(at(subject[0], "name"), str))
    whole = at(subject[0], "digest", "sha256")
    must(isinstance(whole, str))
    if whole != sha256(b"".join(bytes.fromhex(one["digest"]) for one in listed)).hexdigest():
        raise Wrong("manifest")
    return [(one["name"], one["digest"]) for one in listed]


def verdict(
    content: bytes, keys: Sequence[Key], folder: Folder, own: str, *, strict: bool
) -> list[str]:
    """The kinds of what is wrong, none where it says ok; `own` is where the bundle lies."""
    try:
        named = resources(content, keys)
    except Wrong as wrong:
        return [str(wrong)]
    kinds = []
    for name, digest in named:
        parts = name.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts))]
        file = folder.get(name)
        if not isinstance(file, bytes) or any(folder.get(one) != "folder" for one in above):
            kinds.append("missing")
        elif sha256(file).hexdigest() != digest:
            kinds.append("sha256")
    wanted = {name for name, _ in named}
    beside = [
        path
        for path, what in folder.items()
        if what != "folder" and path not in wanted and path.split("/")[0] != ".git"
    ]
    if strict and any(path != own for path in beside):
        kinds.append("unnamed")
    return kinds
