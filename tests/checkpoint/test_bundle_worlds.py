"""What `verify` says ok to keeps the claim of docs/spec/release.md, in all small worlds."""

from __future__ import annotations

import base64
import json
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.checkpoint import naive_bundle as naive
from tests.checkpoint.bundle_worlds import (
    FILES,
    OWN,
    Bundles,
    folders,
    honest,
    lists,
    statement,
    write,
)
from wtxtgit.checkpoint.bundle import ReleaseKey
from wtxtgit.checkpoint.released_files import bundle_verdict
from wtxtgit.trust.pem_keys import EcPublicKey

pytestmark = pytest.mark.slow

KEYS = ("P-256", "P-384", "P-521", "ed25519")


def release_key(key: naive.Key) -> ReleaseKey:
    return key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else EcPublicKey(key)


class Worlds:
    """Bundles held against a folder, and what becomes of them."""

    def __init__(self, folder: Path) -> None:
        self.bundles = Bundles()
        self.folder = folder
        self.files: dict[str, bytes | str] = {}
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []

    def put(self, files: dict[str, bytes | str]) -> None:
        self.files = {**files, OWN: b"{}"}
        write(self.folder, self.files)

    def judge(self, how: str, content: bytes, *names: str, strict: bool = False) -> None:
        keys = self.bundles.public(*names)
        wanted = naive.verdict(content, keys, self.files, OWN, strict=strict)
        own, against = str(self.folder / OWN), str(self.folder)
        given = map(release_key, keys)
        told = bundle_verdict(own, memoryview(content), given, against, strict=strict)
        kinds = [error.kind for error in told.errors]
        self.count[",".join(wanted) or "ok"] += 1
        if sorted(kinds) != sorted(wanted):
            self.wrong.append(f"{how}: {kinds} is told, {wanted} by the naive reader")
        if not kinds and not self._is_so(content, names):
            self.wrong.append(f"{how}: ok, and it is not so")

    def _is_so(self, content: bytes, names: tuple[str, ...]) -> bool:
        """The claim, by what was signed and what stands there."""
        (signature,) = json.loads(content)["dsseEnvelope"]["signatures"]
        by, meant = self.bundles.signed[base64.b64decode(signature["sig"])]
        there = {path: what for path, what in self.files.items() if isinstance(what, bytes)}
        return by in names and all(
            path in there and sha256(there[path]).hexdigest() == wanted
            for path, wanted in meant.items()
        )


@pytest.fixture
def worlds(tmp_path: Path) -> Worlds:
    return Worlds(tmp_path / "model")


@pytest.mark.parametrize("by", KEYS)
def test_every_edit_of_a_bundle(worlds: Worlds, by: str) -> None:
    worlds.put(FILES)
    for how, content in worlds.bundles.worlds(by):
        worlds.judge(how, content, by)
    assert not worlds.wrong, "\n".join(worlds.wrong)
    assert {"ok", "structure", "signature", "manifest", "missing", "sha256"} <= {*worlds.count}
    assert worlds.count.total() > 400


def test_every_edit_of_a_folder(worlds: Worlds) -> None:
    """Held against what is listed, rightly and not."""
    content = {
        how: json.dumps(worlds.bundles.of(statement(listed), "P-256")).encode()
        for how, listed in lists()
    }
    whole = json.dumps(worlds.bundles.of(statement(honest()), "P-256")).encode()
    for where, files in folders():
        worlds.put(files)
        worlds.judge(where, whole, "P-256")
        worlds.judge(f"{where}, strict", whole, "P-256", strict=True)
        for how, bundle in content.items():
            # The names that no file has are tried once.
            if files == FILES or not how.startswith("named"):
                worlds.judge(f"{where}, {how}", bundle, "P-256")
    assert not worlds.wrong, "\n".join(worlds.wrong[:20])
    assert {"ok", "missing", "sha256", "unnamed"} <= {*worlds.count}


def test_every_choice_of_keys(worlds: Worlds) -> None:
    worlds.put(FILES)
    every = [*worlds.bundles.keys]
    for by in every:
        content = json.dumps(worlds.bundles.of(statement(honest()), by)).encode()
        worlds.judge(f"{by}, no key", content)
        for one in every:
            for other in every:
                worlds.judge(f"{by}, {one}, {other}", content, one, other)
    assert not worlds.wrong, "\n".join(worlds.wrong)
    assert worlds.count["ok"] == len(every) * (2 * len(every) - 1)
