"""Files of the original writers: tensors by their hashes, texts by theirs."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from wtxtgit.containers import describe, detect, split
from wtxtgit.errors import FormatError
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.write import dumps

from .samples import check_cut, cut_vectors, fixture, manifest_entries

VECTORS = cut_vectors()
LISTED = ("FOLD", "AERO", "MLCP", "safetensors")


@pytest.mark.parametrize("path", VECTORS)
def test_the_text_of_each_file(path: str) -> None:
    data = fixture(path)
    result = split(memoryview(data))
    check_cut(result, data)
    assert result.layout.format == VECTORS[path]["format"]
    text = dumps(snapshot_of(result))
    assert len(text) == VECTORS[path]["bytes"]
    assert sha256(text).hexdigest() == VECTORS[path]["sha256"]


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
    absent = found.metadata.get("absent", [])
    assert isinstance(absent, list)
    without_bytes = {item["name"] for item in absent}
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
        assert fixture(entry["file"])[start : start + len(tensor.data)] == tensor.data


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
