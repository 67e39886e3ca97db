"""Every file of the original writers: what the manifest says is what we find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.data import all_entries, name_of, path_of
from wtxtgit.checkpoint.members import members
from wtxtgit.containers import any_format
from wtxtgit.model.findings import Problem
from wtxtgit.model.tensor import ReadOptions, Tensor
from wtxtgit.tensors import tensor_bytes

ENTRIES = all_entries()
KINDS = {
    "aero/low_ihsh_write_a.aero": ("structure", True),
    "aero/low_file_flags_a.aero": ("structure", True),
    "fold/unfinalized_a.fold": ("structure", True),
    "mlcp/meta_more_shards_a.checkpoint": ("structure", True),
    "mlcp/sibling_multishard_a.shard": ("structure", True),
}
"""The kind of the error that a file gets which is not valid, and whether it has an offset."""
BROKEN_HASHES = "tidx_overruns_wtsh_writer_bug"
"""Files whose own writer damaged them: their tensors are what is left."""


def options_of(entry: dict[str, Any]) -> ReadOptions:
    given = entry["options"]
    key = given.get("key_hex")
    integrity = given.get("env PYFOLDS_INTEGRITY_KEY")
    return ReadOptions(
        decryption_key=bytes.fromhex(key) if key else None,
        integrity_key=integrity.encode() if integrity else None,
    )


@cache
def content(path: Path) -> memoryview:
    return memoryview(path.read_bytes())


def by_id(entry: dict[str, Any]) -> str:
    return str(entry["file"])


def tensors_of(entry: dict[str, Any]) -> Iterator[Tensor]:
    path = path_of(entry)
    options = options_of(entry)
    found = any_format.describe(content(path), options, members(str(path)))
    yield from any_format.tensors(found, options)


WITH_TENSORS = [entry for entry in ENTRIES if entry["valid"] and "tensors" in entry]


@pytest.mark.parametrize("entry", WITH_TENSORS, ids=by_id)
def test_tensors_with_their_hashes(entry: dict[str, Any]) -> None:
    found: dict[str, list[Tensor]] = {}
    for tensor in tensors_of(entry):
        found.setdefault(tensor.name, []).append(tensor)
    for wanted in entry["tensors"]:
        candidates = found[name_of(entry, wanted)]
        tensor = candidates.pop(0) if len(candidates) > 1 else candidates[0]
        assert list(tensor.shape) == list(wanted["shape"])
        digest = wanted.get("sha256_in_file", wanted.get("sha256"))
        if digest is None or tensor.absent is not None:
            assert entry["format"] in {"MLCP"} or digest is None
            continue
        hasher = sha256()
        for block in tensor_bytes.blocks(tensor):
            hasher.update(block)
        assert hasher.hexdigest() == digest, tensor.name


@pytest.mark.parametrize("entry", ENTRIES, ids=by_id)
def test_verdicts(entry: dict[str, Any]) -> None:
    path = path_of(entry)
    found = any_format.check(content(path), options_of(entry), members(str(path)))
    if not entry["valid"]:
        kind, has_offset = KINDS[entry["file"]]
        first = found.errors[0]
        assert first.kind == kind
        assert (first.offset is not None) is has_offset
        assert first.field
    elif BROKEN_HASHES in entry["quirks"]:
        assert found.errors
        assert {error.kind for error in found.errors} == {"blake3"}
    else:
        assert found.errors == []
    for problem in (*found.errors, *found.warnings):
        check_problem(problem)


def check_problem(problem: Problem) -> None:
    """Words as all messages have them: one line, lower case, no full stop."""
    assert problem.message
    assert not problem.message.endswith(".")
    assert "\n" not in problem.message
    assert re.match(r"[^A-Z]|[A-Z]{2,}|[A-Z][a-z]+[A-Z]", problem.message), problem.message
