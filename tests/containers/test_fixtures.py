"""Files of the original writers: tensors by their hashes, texts by theirs."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from tests.containers.samples import check_cut, manifest_entries
from tests.data import fixture, golden
from wtxtgit.containers.any_format import describe, split
from wtxtgit.containers.registry import detect
from wtxtgit.errors import FormatError
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.write import dumps

LISTED = ("FOLD", "AERO", "MLCP", "safetensors")


@pytest.mark.parametrize("path", golden())
def test_the_text_of_each_file(path: str) -> None:
    data = fixture(path)
    result = split(memoryview(data))
    check_cut(result, data)
    assert result.layout.format == golden()[path]["format"]
    text = dumps(snapshot_of(result))
    assert len(text) == golden()[path]["bytes"]
    assert sha256(text).hexdigest() == golden()[path]["sha256"]


def shows_tensors(entry: dict[str, Any]) -> bool:
    """Entries whose tensors stand in the file as they are, undamaged."""
    damaged = "ecc_recoverable_damage" in entry["quirks"]
    return entry["format"] in LISTED and entry["valid"] and "tensors" in entry and not damaged


SHOWN = [entry for entry in manifest_entries() if shows_tensors(entry)]


def raw_chunks(entry: dict[str, Any]) -> set[str]:
    """The chunks of a FOLD file whose tensors are not compressed or encrypted."""
    metadata = describe(memoryview(fixture(entry["file"]))).metadata
    chunks = metadata["chunks"]
    assert isinstance(chunks, list)
    return {
        chunk["name"]
        for chunk in chunks
        if chunk["ctype"] == "STEN" and chunk["flags"] == 0 and not chunk["encrypted"]
    }


@pytest.mark.parametrize("entry", SHOWN, ids=lambda e: e["file"])
def test_the_tensors_of_each_file(entry: dict[str, Any]) -> None:
    found = describe(memoryview(fixture(entry["file"])))
    listed: dict[str, Any] = {}
    for tensor in found.tensors:
        listed.setdefault(tensor.name, tensor)
    without_bytes = {tensor.name for tensor in found.tensors if tensor.absent}
    raw = raw_chunks(entry) if entry["format"] == "FOLD" else set()
    for wanted in entry["tensors"]:
        if entry["format"] == "FOLD":
            if wanted["path"][0] not in raw:
                continue
            tensor = listed["/".join(wanted["path"])]
        else:
            tensor = listed[wanted["name"]]
        assert tensor.shape == tuple(wanted["shape"])
        if "sha256" not in wanted or wanted["name"] in without_bytes:
            continue
        assert sha256(tensor.data).hexdigest() == wanted.get("sha256_in_file", wanted["sha256"])
        start = tensor.offset
        if start is None:
            assert "wtsh_compressed_zstd" in entry["quirks"]
            continue
        assert fixture(entry["file"])[start : start + len(tensor.data)] == tensor.data


@pytest.mark.parametrize("path", [path for path in golden() if path.endswith(".pt")])
def test_the_tensors_of_each_torch_file(path: str) -> None:
    sums = golden()[path]["tensors"]
    found = describe(memoryview(fixture(path))).tensors
    assert [tensor.name for tensor in found] == list(sums)
    assert {tensor.name: sha256(tensor.data).hexdigest() for tensor in found} == sums


@pytest.mark.parametrize("entry", manifest_entries(), ids=lambda e: e["file"])
def test_every_file_is_described_or_refused(entry: dict[str, Any]) -> None:
    data = memoryview(fixture(entry["file"]))
    check_cut(split(data), bytes(data))
    if entry["valid"]:
        json.dumps(describe(data).metadata)
        return
    try:
        describe(data)
    except FormatError:
        # Magic and rules are at odds: the file is stored whole.
        assert split(data).layout.format == "opaque"
    else:
        assert split(data).layout.format == detect(data)
