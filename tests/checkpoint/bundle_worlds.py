"""A release bundle, every one-step edit of it and of the folder that it is held against.

What really happened is known besides: which statements somebody signed, with which key.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm

from tests.checkpoint.naive_bundle import Key

Secret = ec.EllipticCurvePrivateKey | Ed25519PrivateKey
FILES: dict[str, bytes | str] = {
    "a.bin": b"one",
    "b.bin": b"two",
    "empty": b"",
    "sub": "folder",
    "sub/a.bin": b"three",
    "sub/ü.bin": b"four",
}
"""Before any edit; a folder has the word for it."""
OWN = "model.sig"
_TYPE = "application/vnd.in-toto+json"
_HASHES: dict[int, type[HashAlgorithm]] = {256: SHA256, 384: SHA384, 521: SHA512}


def secrets() -> dict[str, Secret]:
    """The same keys each time."""
    return {
        "P-256": ec.derive_private_key(7, ec.SECP256R1()),
        "P-384": ec.derive_private_key(8, ec.SECP384R1()),
        "P-521": ec.derive_private_key(9, ec.SECP521R1()),
        "ed25519": Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32),
        "mallory": ec.derive_private_key(10, ec.SECP256R1()),
        "mallory's ed25519": Ed25519PrivateKey.from_private_bytes(bytes([2]) * 32),
    }


def covered(payload: bytes, kind: str) -> bytes:
    return f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload


def sign(key: Secret, message: bytes) -> bytes:
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(message)
    return key.sign(message, ec.ECDSA(_HASHES[key.curve.key_size]()))


def digest(content: bytes | str) -> str:
    assert isinstance(content, bytes)
    return sha256(content).hexdigest()


def resource(name: str, content: bytes | str) -> dict[str, Any]:
    return {"name": name, "algorithm": "sha256", "digest": digest(content)}


def statement(listed: list[dict[str, Any]], name: str = "v1") -> dict[str, Any]:
    whole = sha256(b"".join(bytes.fromhex(one["digest"]) for one in listed)).hexdigest()
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": whole}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False},
            "resources": listed,
            "wtxtgit": {"tag": name, "commit": "0" * 40, "trust_root": "1" * 40},
        },
    }


def honest() -> list[dict[str, Any]]:
    return [resource(name, what) for name, what in FILES.items() if isinstance(what, bytes)]


@dataclass
class Bundles:
    """Bundles, and what was signed: payloads by the name of the key, with what they were to say."""

    keys: dict[str, Secret] = field(default_factory=secrets)
    signed: dict[bytes, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """By the signature: by which key, and the files that its maker meant."""

    def public(self, *names: str) -> list[Key]:
        return [self.keys[name].public_key() for name in names]

    def bundle(
        self,
        payload: bytes,
        by: str,
        *,
        meant: dict[str, str] | None = None,
        kind: str = _TYPE,
    ) -> dict[str, Any]:
        signature = sign(self.keys[by], covered(payload, kind))
        if meant is not None:
            self.signed[signature] = by, meant
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": "x"}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": base64.b64encode(payload).decode(),
                "payloadType": _TYPE,
                "signatures": [{"sig": base64.b64encode(signature).decode()}],
            },
        }

    def of(self, told: dict[str, Any], by: str) -> dict[str, Any]:
        meant = {one["name"]: one["digest"] for one in told["predicate"]["resources"]}
        return self.bundle(json.dumps(told).encode(), by, meant=meant)

    def worlds(self, by: str) -> Iterator[tuple[str, bytes]]:
        """Every edit of the bundle that this key makes."""
        yield "honest", json.dumps(self.of(statement(honest()), by)).encode()
        meant = {one["name"]: one["digest"] for one in honest()[:2]}
        for how, told in statements():
            yield f"signed: {how}", json.dumps(self.bundle(told, by, meant=meant)).encode()
            # What nobody signed: the signature is that of the honest one.
            right = self.of(statement(honest()), by)
            right["dsseEnvelope"]["payload"] = base64.b64encode(told).decode()
            yield f"not signed: {how}", json.dumps(right).encode()
        for how, listed in lists():
            yield f"a list: {how}", json.dumps(self.of(statement(listed), by)).encode()
        yield from self._envelopes(by)

    def _envelopes(self, by: str) -> Iterator[tuple[str, bytes]]:
        payload = json.dumps(statement(honest())).encode()
        right = self.of(statement(honest()), by)
        spelled = json.dumps(right)
        yield from _with_other_values(right)
        envelope = right["dsseEnvelope"]
        sig, told = envelope["signatures"][0]["sig"], envelope["payload"]
        for how, more in {
            "two signatures": {"signatures": envelope["signatures"] * 2},
            "url-safe": {"payload": base64.urlsafe_b64encode(b"\xff\xfe" + payload).decode()},
            "a blank in base64": {"signatures": [{"sig": sig[:8] + " " + sig[8:]}]},
            "a line in base64": {"payload": told[:76] + "\n" + told[76:]},
            "no padding": {"payload": told.rstrip("=")[:-1]},
            "a letter that is none": {"payload": "é" + told},
            "of another type": self.bundle(payload, by, kind="text/plain")["dsseEnvelope"],
            "another type of its own": {
                **self.bundle(payload, by, kind="text/plain")["dsseEnvelope"],
                "payloadType": "text/plain",
            },
        }.items():
            yield how, json.dumps({**right, "dsseEnvelope": {**envelope, **more}}).encode()
        for how, changed_text in {
            "a key twice": spelled.replace('{"payload"', '{"payload": "", "payload"'),
            "the envelope twice": spelled[:-1] + ', "dsseEnvelope": {}}',
            "behind it": spelled + "x",
            "a line behind it": spelled + "\n",
            "cut off": spelled[:-9],
            "NaN": spelled.replace('"x"', "NaN"),
            "64 deep": spelled.replace('"x"', "[" * 61 + "]" * 61),
            "65 deep": spelled.replace('"x"', "[" * 62 + "]" * 62),
            "Infinity": spelled.replace('"x"', "-Infinity"),
            "deep": spelled.replace('"x"', "[" * 100_000 + "]" * 100_000),
            "a list of it": f"[{spelled}]",
        }.items():
            yield how, changed_text.encode()
        yield "a mark of order", b"\xef\xbb\xbf" + spelled.encode()
        yield "no UTF-8", spelled.encode().replace(b'"x"', b'"\xff"')
        yield "UTF-16", spelled.encode("utf-16")
        for other in self.keys:
            if other != by:
                yield f"by {other}", json.dumps(self.of(statement(honest()), other)).encode()


VALUES: dict[str, Any] = {
    "null": None, "a number": 1, "empty": "", "a word": "other", "a list": [], "an object": {},
}  # fmt: skip


def paths(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of each value within another one."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in pairs:
        yield (*above, key)
        if isinstance(below, (dict, list)):
            yield from paths(below, (*above, key))


def put(value: Any, path: tuple[str | int, ...], other: Any) -> None:
    *above, last = path
    for key in above:
        value = value[key]
    if other is ...:
        del value[last]
    else:
        value[last] = other


def _with_other_values(right: Any) -> Iterator[tuple[str, bytes]]:
    """JSON of which each value is gone, or another."""
    spelled = json.dumps(right)
    for path in paths(right):
        for how, value in (("gone", ...), *VALUES.items()):
            changed = json.loads(spelled)
            put(changed, path, value)
            yield f"{path} {how}", json.dumps(changed).encode()


def statements() -> Iterator[tuple[str, bytes]]:
    """Every edit of the statement, as bytes."""
    right = statement(honest()[:2])
    spelled = json.dumps(right)
    yield from _with_other_values(right)
    one = json.dumps(right["predicate"]["resources"][0])
    yield (
        "a name twice",
        spelled.replace('"name": "a.bin"', '"name": "x", "name": "a.bin"').encode(),
    )
    yield (
        "a resource in another spelling",
        spelled.replace(one, one.replace("a.bin", "\\u0061.bin")).encode(),
    )
    yield "upper case", spelled.replace(digest(b"one"), digest(b"one").upper()).encode()
    yield "a digest less a digit", spelled.replace(digest(b"one"), digest(b"one")[:-1]).encode()
    yield "the subject twice", json.dumps({**right, "subject": right["subject"] * 2}).encode()
    yield "behind it", spelled.encode() + b"x"
    yield "no bytes", b""


def lists() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every edit of what is listed; the subject is the one that follows."""
    listed = honest()
    for n, one in enumerate(listed):
        yield f"{n} dropped", [*listed[:n], *listed[n + 1 :]]
        yield f"{n} twice", [*listed, one]
        yield (
            f"{n} of another digest",
            [*listed[:n], {**one, "digest": digest(b"evil")}, *listed[n + 1 :]],
        )
        other = listed[n - 1]
        yield f"{n} swapped", [
            *listed[:n], {**one, "digest": other["digest"]}, *listed[n + 1 :],
        ]  # fmt: skip
        for name in (
            "", "/", ".", "..", "/a.bin", "a.bin/", "./a.bin", "../a.bin", "sub/../a.bin",
            "sub//a.bin", "sub/./a.bin", "a\0.bin", "\ud800", "A.BIN", "sub", "none",
            "a.bin/x", "sub\\a.bin",
            "model.sig", "sub/u\u0308.bin", "a.bin ", ".git/config", "-", "~", "a\nb", "x" * 300,
            "x/" * 3000 + "x",
        ):  # fmt: skip
            if n == 0:
                yield f"named {name!a}", [{**one, "name": name}, *listed[1:]]
    yield "reversed", listed[::-1]
    yield "one more", [*listed, resource("more.bin", b"more")]


def folders() -> Iterator[tuple[str, dict[str, bytes | str]]]:
    """Every edit of the folder. A link has the word `link`, and where it leads to."""
    files = dict(FILES)
    yield "as it is", files
    for path, what in FILES.items():
        without = {
            name: one
            for name, one in files.items()
            if name != path and not name.startswith(f"{path}/")
        }
        yield f"without {path}", without
        yield f"a folder for {path}", {**without, path: "folder"}
        yield f"a link out for {path}", {**without, path: "link ../elsewhere/" + path}
        yield f"a broken link for {path}", {**without, path: "link nowhere"}
        if isinstance(what, bytes):
            yield f"{path} longer", {**files, path: what + b"\0"}
            yield f"{path} empty", {**files, path: b""}
            yield f"{path} in capitals", {**without, path.upper().replace("SUB/", "sub/"): what}
            aside = f"{path}.old"
            yield (
                f"a link within for {path}",
                {**without, aside: what, path: f"link {aside.split('/')[-1]}"},
            )
            for other, content in FILES.items():
                if isinstance(content, bytes) and other != path:
                    yield f"{path} with what {other} has", {**files, path: content}
    yield "sub moved, and a link to it", {
        **{name: one for name, one in files.items() if not name.startswith("sub")},
        "real": "folder", "real/a.bin": b"three", "real/ü.bin": b"four", "sub": "link real",
    }  # fmt: skip
    yield (
        "a file for sub",
        {**{n: o for n, o in files.items() if not n.startswith("sub")}, "sub": b""},
    )
    besides: dict[str, bytes | str] = {
        "more.bin": b"more", "sub/more.bin": b"", ".hidden": b"", "link": "link a.bin",
        "folder": "link sub", "other.sig": f"link {OWN}", "nowhere": "link nowhere",
    }  # fmt: skip
    for name, what in besides.items():
        yield f"besides {name}", {**files, name: what}
    yield "besides .git", {**files, ".git": "folder", ".git/config": b""}
    yield "besides a file .git", {**files, ".git": b"gitdir: x\n"}
    yield "besides sub/.git", {**files, "sub/.git": "folder", "sub/.git/config": b""}
    yield "besides an empty folder", {**files, "new": "folder"}


def write(folder: Path, files: dict[str, bytes | str]) -> None:
    """Make a folder as it is told, in the place of what stands there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, what in files.items():
        file = folder / path
        if isinstance(what, bytes):
            file.write_bytes(what)
        elif what == "folder":
            file.mkdir()
        else:
            file.symlink_to(what.removeprefix("link "))
