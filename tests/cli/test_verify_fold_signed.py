"""`wtxtgit verify --public-key`: signatures within FOLD files."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import wtxtgit as api
from tests.cli.command import Command
from tests.data import all_entries, path_of
from wtxtgit.containers.fold import payloads, read
from wtxtgit.containers.fold.write import ChunkSource, build, format_index

SIGNED = next(e for e in all_entries() if e["file"] == "fold/trust_block_high_a.fold")
MADE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def pem(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def keys(wtxtgit: Command) -> None:
    (wtxtgit.folder / "right.pem").write_text(SIGNED["options"]["public_key_pem"])
    (wtxtgit.folder / "made.pem").write_bytes(pem(MADE))
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    (wtxtgit.folder / "wrong.pem").write_bytes(pem(other))


def canonical(value: object) -> bytes:
    """As pyfolds spells what it signs of metadata: non-ASCII is not escaped."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def with_index(path: Path, **changes: Any) -> bytes:
    """The file with other values in its metadata, whose hash is made anew."""
    data = path.read_bytes()
    fold = read.read(memoryview(data))
    metadata = {**fold.index["metadata"], **changes}  # type: ignore[dict-item]
    metadata["manifest_hash"] = f"sha256:{payloads.manifest_sha256(metadata)}"
    index = format_index({**fold.index, "metadata": metadata})
    start = fold.index_start
    return data[:20] + len(index).to_bytes(8, "big") + data[28:start] + index


def signed_metadata(**later: Any) -> bytes:
    """A file as a program signs its metadata before the writer adds more."""
    about = {"model_type": "x", "tags": {"a": "ü"}}
    signature = {
        "algorithm": "ed25519",
        "key_id": "k",
        "payload_sha256": f"sha256:{hashlib.sha256(canonical(about)).hexdigest()}",
        "value": MADE.sign(canonical(about)).hex(),
    }
    chunk = ChunkSource("c", b"BLOB", 1, partial(lambda: iter([b"x"])))
    return b"".join(build([chunk], metadata={**about, "signature": signature, **later}))


@pytest.mark.usefixtures("keys")
def test_the_original_writers_trust_block(wtxtgit: Command) -> None:
    path = path_of(SIGNED)
    done = wtxtgit("verify", path, "--public-key", "right.pem", "--require-signed")
    assert (done.code, b"signature valid" in done.out) == (0, True), done
    done = wtxtgit("verify", path, "--public-key", "wrong.pem")
    assert (done.code, b"not made with any of the given keys" in done.out) == (4, True)
    assert wtxtgit("verify", path).code == 0
    assert wtxtgit("verify", path, "--require-signed").code == 4


@pytest.mark.usefixtures("keys")
def test_a_file_that_was_changed_is_not_what_was_signed(wtxtgit: Command) -> None:
    (wtxtgit.folder / "m.fold").write_bytes(with_index(path_of(SIGNED), owner="another"))
    done = wtxtgit("verify", "m.fold", "--public-key", "right.pem")
    assert (done.code, b"metadata_hash in trust_block" in done.out) == (4, True)
    done = wtxtgit("verify", "m.fold")
    assert (done.code, b"note: " in done.out) == (0, True)
    data = bytearray(path_of(SIGNED).read_bytes())
    at = data.index(b'"signature":"'.replace(b'"', b'\\"')) + 20
    data[at] = ord("0") if data[at] != ord("0") else ord("1")
    (wtxtgit.folder / "m.fold").write_bytes(data)
    done = wtxtgit("verify", "m.fold", "--public-key", "right.pem")
    assert (done.code, b"not made with any of the given keys" in done.out) == (4, True)


@pytest.mark.usefixtures("keys")
def test_signed_metadata(wtxtgit: Command) -> None:
    (wtxtgit.folder / "m.fold").write_bytes(signed_metadata(expression={"step_id": 1}))
    assert wtxtgit("verify", "m.fold", "--public-key", "made.pem", "--require-signed").code == 0
    assert wtxtgit("verify", "m.fold", "--public-key", "wrong.pem").code == 4
    changed = with_index(wtxtgit.folder / "m.fold", model_type="y")
    (wtxtgit.folder / "m.fold").write_bytes(changed)
    done = wtxtgit("verify", "m.fold", "--public-key", "made.pem")
    assert (done.code, b"does not match the metadata" in done.out) == (4, True)


@pytest.mark.usefixtures("keys")
def test_what_the_original_writer_signed_holds_its_hash(wtxtgit: Command) -> None:
    """Its key is nowhere; that the payload is what was hashed is no note."""
    entry = next(e for e in all_entries() if e["file"] == "fold/neuron_signed_high_a.fold")
    done = wtxtgit("verify", path_of(entry))
    assert (done.code, b"payload_sha256" in done.out) == (0, False)
    assert wtxtgit("verify", path_of(entry), "--public-key", "wrong.pem").code == 4


@pytest.mark.usefixtures("keys")
def test_a_file_without_signatures_is_not_signed(wtxtgit: Command) -> None:
    entry = next(e for e in all_entries() if e["file"] == "fold/none_json_a.fold")
    assert wtxtgit("verify", path_of(entry), "--public-key", "made.pem").code == 0
    done = wtxtgit("verify", path_of(entry), "--public-key", "made.pem", "--require-signed")
    assert (done.code, b"the file has no valid one" in done.out) == (4, True)


def test_from_python(tmp_path: Path) -> None:
    path = tmp_path / "m.fold"
    path.write_bytes(signed_metadata())
    right, wrong = (
        key.public_key().public_bytes_raw()
        for key in (MADE, Ed25519PrivateKey.from_private_bytes(bytes(32)))
    )
    assert api.verify(path, public_keys=[right]).ok
    assert not api.verify(path, public_keys=[wrong]).ok
