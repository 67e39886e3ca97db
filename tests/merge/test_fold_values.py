"""JSON chunks of FOLD merged value by value, rules for what writers make anew, encrypted chunks."""

from __future__ import annotations

import json
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import wtxtgit as api
from tests.cli.command import Command
from tests.data import fixture
from tests.kit import Repo
from wtxtgit.containers import any_format
from wtxtgit.containers.fold.describe import chunk_values
from wtxtgit.containers.fold.write import ChunkSource, build
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.merge.container import Merged, Merger
from wtxtgit.merge.policy import Policy
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.merge import Strategy

KEY = bytes(range(32))
MANIFEST = {
    "format": "fold",
    "created_at_unix": 100.5,
    "hyperparameters": {"max_steps": 3, "theta": 1.5},
    "tags": {},
    "expression": {"step_id": 3, "mean_N": 1.0},
}
METRICS = {"step_count": 3, "theta": 1.5, "id": 17, "mode": "online"}


def model(**rows: float) -> bytes:
    values = np.zeros((4, 2), "f4")
    for row, value in rows.items():
        values[int(row[1:])] = value
    header = json.dumps({"w": {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}}).encode()
    return struct.pack("<Q", len(header)) + header + values.tobytes()


def chunk(name: str, ctype: bytes, content: bytes) -> ChunkSource:
    return ChunkSource(name, ctype, len(content), partial(pieces, memoryview(content)))


def spelled(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def fold(
    manifest: dict[str, Any] | None = None,
    metrics: dict[str, Any] | None = None,
    *,
    raw: bytes | None = None,
    metadata: dict[str, Any] | None = None,
    **rows: float,
) -> ByteView:
    """A file as pyfolds writes it: a state, a manifest and metrics, and a time of writing."""
    written = {**MANIFEST, **(manifest or {})}
    chunks = [
        chunk("torch_state", b"STEN", model(**rows)),
        chunk("llm_manifest", b"JSON", raw or spelled(written)),
        chunk("metrics", b"JSON", spelled({**METRICS, **(metrics or {})})),
    ]
    made = float(written["created_at_unix"])  # type: ignore[arg-type]
    about = metadata or {"expression": {"step_id": 3}}
    return memoryview(b"".join(build(chunks, metadata=about, created_at_unix=made)))


def merged(base: ByteView, ours: ByteView, theirs: ByteView, **policy: Any) -> Merged:
    return Merger(Policy(**policy)).merge(base, ours, theirs)


def values_of(found: Merged) -> dict[str, Any]:
    assert not found.conflicts, found.conflicts
    assert not any_format.check(found.data).errors
    return dict(chunk_values(found.data, ReadOptions()))


def test_two_runs_merge_and_say_how() -> None:
    ours = fold(
        {"created_at_unix": 200.5, "expression": {"step_id": 9, "mean_N": 2.0}},
        {"step_count": 9, "theta": 1.7, "id": 18},
        metadata={"expression": {"step_id": 9}},
        r0=1,
    )
    theirs = fold(
        {"created_at_unix": 300.25, "expression": {"step_id": 5, "mean_N": 3.0}},
        {"step_count": 5, "theta": 1.9, "id": 19, "added": True},
        metadata={"expression": {"step_id": 5}},
        r3=2,
    )
    found = merged(fold(), ours, theirs)
    values = values_of(found)
    assert values["llm_manifest"]["created_at_unix"] == 300.25
    assert values["llm_manifest"]["expression"] == {"step_id": 9, "mean_N": 2.0}
    assert values["metrics"] == {
        "step_count": 9,
        "theta": 1.7,
        "id": 18,
        "mode": "online",
        "added": True,
    }
    hows = {one.name: (one.how, one.strategy) for one in found.settled}
    assert hows["llm_manifest:/created_at_unix"] == ("later", None)
    assert hows["metrics:/step_count"] == ("larger", None)
    assert hows["metrics:/theta"] == ("measured", None)
    assert hows["metadata:/expression/step_id"] == ("larger", None)
    assert hows["metrics:/added"] == ("theirs", None)
    assert hows["torch_state/w"] == ("both", None)
    rows = api.loads(found.data)["torch_state/w"]
    assert (rows == [[1, 1], [0, 0], [0, 0], [2, 2]]).all()


def test_what_no_rule_speaks_of_is_a_conflict() -> None:
    ours = fold({"hyperparameters": {"max_steps": 4, "theta": 1.5}, "tags": {"a": "x"}})
    theirs = fold({"hyperparameters": {"max_steps": 5, "theta": 1.5}, "tags": {"a": "y", "b": ""}})
    names = {one.name for one in merged(fold(), ours, theirs).conflicts}
    assert names == {"llm_manifest:/hyperparameters/max_steps", "llm_manifest:/tags/a"}
    found = merged(fold(), ours, theirs, takes=(("llm_manifest:/tags/a", Strategy.THEIRS),))
    assert [one.name for one in found.conflicts] == ["llm_manifest:/hyperparameters/max_steps"]


@pytest.mark.parametrize("strategy", [Strategy.OURS, Strategy.THEIRS])
def test_a_strategy_that_names_a_side_goes_before_rules(strategy: Strategy) -> None:
    ours, theirs = fold({"created_at_unix": 300.0}), fold({"created_at_unix": 200.0})
    found = merged(fold(), ours, theirs, strategy=strategy)
    wanted = 300.0 if strategy is Strategy.OURS else 200.0
    assert values_of(found)["llm_manifest"]["created_at_unix"] == wanted
    assert all(one.how not in ("later", "larger") for one in found.settled)


def test_rules_hold_without_a_base_and_under_average() -> None:
    ours, theirs = fold({"created_at_unix": 300.0}, r0=2), fold({"created_at_unix": 200.0}, r0=4)
    found = merged(fold(), ours, theirs, strategy=Strategy.AVERAGE)
    assert values_of(found)["llm_manifest"]["created_at_unix"] == 300.0
    found = Merger(Policy()).merge(None, ours, fold({"created_at_unix": 200.0}, r0=2))
    assert values_of(found)["llm_manifest"]["created_at_unix"] == 300.0


@pytest.mark.parametrize(
    "spelling",
    [
        {"separators": (",", ":")},
        {"ensure_ascii": False, "separators": (",", ":")},
        {"indent": 2},
        {},
    ],
    ids=["compact", "unicode", "indented", "default"],
)
def test_the_spelling_of_ours_stays(spelling: dict[str, Any]) -> None:
    def file(**changes: Any) -> ByteView:
        return fold(raw=json.dumps({"é": "ü", "a": 1, "b": 1.5, **changes}, **spelling).encode())

    found = merged(file(), file(a=2), file(b=2.5, c=float("nan")))
    wanted = json.dumps({"é": "ü", "a": 2, "b": 2.5, "c": float("nan")}, **spelling).encode()
    assert wanted in bytes(found.data)


@pytest.mark.parametrize("raw", [b"{}x", b'{"a":1,"a":2}', b"[1]", b'{ "a":1 }', b"not json"])
def test_what_can_not_be_taken_apart_is_one_value(raw: bytes) -> None:
    ours, theirs = fold(raw=raw), fold(raw=b'{"a":3}')
    (conflict,) = merged(fold(), ours, theirs).conflicts
    assert conflict.name == "llm_manifest"


def test_the_original_writers_files_merge() -> None:
    base = memoryview(fixture("fold/neuron_default_a.fold"))
    before = dict(chunk_values(base, ReadOptions()))["llm_manifest"]

    def later(seconds: float, tag: str) -> ByteView:
        value = {**before, "created_at_unix": before["created_at_unix"] + seconds}
        value["tags"] = {**value["tags"], tag: "1"}
        return resealed(base, "llm_manifest", spelled(value), ReadOptions())

    found = merged(base, later(10, "x"), later(20, "y"))
    after = values_of(found)["llm_manifest"]
    assert after["created_at_unix"] == before["created_at_unix"] + 20
    assert after["tags"] == {**before["tags"], "x": "1", "y": "1"}


def resealed(data: ByteView, name: str, content: bytes, options: ReadOptions) -> ByteView:
    """The file with other content in a chunk."""
    from wtxtgit.containers.fold import read, reseal
    from wtxtgit.model.tensor import NewContent, PlacedEntry

    container = read.read(data)
    placed = []
    for n, one in enumerate(container.chunks):
        new = NewContent(len(content), lambda: iter([content])) if one.name == name else None
        placed.append(PlacedEntry(container, n, new))
    return memoryview(b"".join(reseal.reseal(container, placed, None, options)))


ENCRYPTED = "fold/encrypted_high_a.fold"


def encrypted_versions(tmp_path: Path) -> tuple[list[Path], ReadOptions]:
    """Base, ours and theirs of an encrypted file, whose two sides changed another row."""
    from tests.data import all_entries

    entry = next(e for e in all_entries() if e["file"] == ENCRYPTED)
    options = ReadOptions(decryption_key=bytes.fromhex(entry["options"]["key_hex"]))
    (tmp_path / "key").write_text(entry["options"]["key_hex"])
    base = memoryview(fixture(ENCRYPTED))
    tensor = max(
        (t for t in any_format.tensors(any_format.describe(base, options), options)),
        key=lambda t: t.shape[0] if len(t.shape) == 2 else 0,
    )
    name = tensor.name.partition("/")[0]
    from wtxtgit.containers.fold import read
    from wtxtgit.containers.fold.payloads import payload

    inside = next(c for c in read.read(base).chunks if c.name == name)
    plain = bytes(payload(base, inside, options))
    at = plain.index(bytes(tensor.data))
    row = tensor.nbytes // tensor.shape[0]
    files = [tmp_path / one for one in ("base.fold", "ours.fold", "theirs.fold")]
    files[0].write_bytes(base)
    for file, start in ((files[1], at), (files[2], at + tensor.nbytes - row)):
        changed = plain[:start] + bytes(row) + plain[start + row :]
        file.write_bytes(resealed(base, name, changed, options))
    return files, options


def test_encrypted_chunks_merge_with_their_key(tmp_path: Path) -> None:
    wtxtgit = Command(tmp_path, tmp_path)
    files, _ = encrypted_versions(tmp_path)
    for file in files:
        assert wtxtgit("verify", file, "--key", "key", "--strict").code == 0
    done = wtxtgit("merge-file", *files, "-o", "out.fold")
    assert done.code == 1
    assert b"encrypted" in done.out
    done = wtxtgit("merge-file", *files, "-o", "out.fold", "--key", "key")
    assert (done.code, b"row by row" in done.out) == (0, True), done
    assert wtxtgit("verify", "out.fold", "--key", "key", "--strict").code == 0
    again = wtxtgit("merge-file", *files, "-o", "again.fold", "--key", "key")
    out, twice = (wtxtgit.folder / n for n in ("out.fold", "again.fold"))
    assert (again.code, out.read_bytes()) == (0, twice.read_bytes())


def test_what_is_encrypted_anew_has_another_nonce(tmp_path: Path) -> None:
    from wtxtgit.containers.fold import read

    files, options = encrypted_versions(tmp_path)
    nonces = set()
    for file in files:
        data = memoryview(file.read_bytes())
        for one in read.read(data).chunks:
            nonces.add((one.name, one.entry["nonce_hex"]))
            # By the library alone: the tag holds, with the name as further data.
            key, nonce = options.decryption_key or b"", bytes.fromhex(str(one.entry["nonce_hex"]))
            AESGCM(key).decrypt(nonce, bytes(one.payload(data)), one.name.encode())
    changed = {name for name, _ in nonces if len([n for n, _ in nonces if n == name]) > 1}
    assert len([n for n, _ in nonces if n in changed]) == 3 * len(changed) == 3


def test_the_driver_takes_keys_from_the_config(repo: Repo, driver: None, tmp_path: Path) -> None:
    files, _ = encrypted_versions(tmp_path)
    repo.git("config", "wtxtgit.foldKey", str(tmp_path / "key"))
    repo.track("*.fold")
    for branch, file in (("main", files[0]), ("topic", files[2]), ("main", files[1])):
        if branch != "main" or file is files[1]:
            repo.git("checkout", "-q", *(("-b", "topic") if branch == "topic" else ("main",)))
        repo.write("m.fold", file.read_bytes())
        repo.add()
        repo.commit()
    repo.git("merge", "-q", "--no-edit", "topic")
    assert repo.wtxtgit("verify", "m.fold", "--key", str(tmp_path / "key")).returncode == 0
