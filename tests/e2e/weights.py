"""A small model in files of several formats, made and read from the specs alone.

Nothing of the package makes or reads them: what a merge has written is looked
at by a reader that refuses whatever the format's own one would.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import crc32c
import numpy as np
import reedsolo
import zstandard
from numpy.typing import NDArray
from safetensors.numpy import load, save

from tests.containers import aero_files

Model = dict[str, NDArray[Any]]
Rows = Mapping[str, Mapping[int, float]]
"""Rows by tensor, and the number that each is full of."""

FOLD_HEADER, FOLD_CHUNK = ">8sIQQ", ">4sIQQII"
CHUNK = "torch_state"
NOTES = b'{"note":"kept"}'
AERO_DTYPES = {"float16": 0, "float32": 1}
PAGE = 256


def base() -> Model:
    """What both sides begin with."""
    return {
        "embed": np.arange(64 * 8, dtype="<f4").reshape(64, 8),
        "head": np.arange(16 * 4, dtype="<f2").reshape(16, 4),
        "norm": np.ones(8, "<f4"),
    }


def edited(model: Model, rows: Rows) -> Model:
    """The model with these rows full of these numbers."""
    made = {name: array.copy() for name, array in model.items()}
    for name, numbers in rows.items():
        for row, number in numbers.items():
            assert (made[name][row] != number).any(), "no change"
            made[name][row] = number
    return made


def row_changed(file: bytes, name: str, row: int) -> bytes:
    """A safetensors file with another number at the start of a row, all else byte for byte."""
    items = load(file)[name][row]
    assert file.count(items.tobytes()) == 1
    at = file.index(items.tobytes())
    return file[:at] + (items[:1] + 1).tobytes() + file[at + items.itemsize :]


def assert_model(found: Model, wanted: Model) -> None:
    """The same tensors, in any order, to the bit."""
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == array.tobytes(), name


@dataclass(frozen=True)
class Kind:
    """A format: the file's name, how it is made of a model, how it is read."""

    name: str
    make: Callable[[Model], bytes]
    read: Callable[[bytes], Model]


# FOLD


def fold(
    contents: Mapping[str, tuple[bytes, bytes]], *, compress: bool = False, ecc: int = 0
) -> bytes:
    """A file of chunks, by name (type, content), with a merkle root."""
    entry = {"flags": int(compress), "ecc_algo": f"rs({ecc})" if ecc else "none"}
    chunks = [
        {"name": name, "ctype": ctype.decode(), **entry, "header_len": 32}
        for name, (ctype, _) in contents.items()
    ]
    index = {
        "format": "fold",
        "version": "1.2.0",
        "created_at_unix": 7.5,
        "metadata": {"model_type": "Small", "tags": {"run": "1"}},
        "chunks": chunks,
        "merkle_root": "",
    }
    return _fold_of(index, [content for _, content in contents.values()])


def fold_with(data: bytes, name: str, content: bytes) -> bytes:
    """A file with another content in one of its chunks."""
    index, contents = read_fold(data)
    return _fold_of(index, list({**contents, name: content}.values()))


def read_fold(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The index and the contents by name of a file that has to follow every rule."""
    magic, length, index_start, index_length = struct.unpack_from(FOLD_HEADER, data)
    assert (magic, length) == (b"FOLDv1\0\0", 28)
    assert index_start + index_length == len(data)
    index = json.loads(data[index_start:])
    assert index["format"] == "fold"
    contents: dict[str, bytes] = {}
    end = 28
    for entry in index["chunks"]:
        assert (entry["offset"], entry["header_len"]) == (end, 32)
        head = struct.unpack_from(FOLD_CHUNK, data, end)
        assert head == _head(entry)
        payload = data[end + 32 :][: entry["comp_len"]]
        parity = data[end + 32 + len(payload) :][: entry["ecc_len"]]
        assert entry == {**entry, **_about(payload, parity)}
        assert parity == _parity(payload, entry["ecc_algo"])
        content = zstandard.decompress(payload) if entry["flags"] else payload
        assert len(content) == entry["uncomp_len"] + _tag(entry)
        assert entry["name"] not in contents
        contents[entry["name"]] = content
        end += 32 + len(payload) + len(parity)
    assert end == index_start
    metadata = index["metadata"]
    assert metadata == _hashed(metadata, index["chunks"])
    if "merkle_root" in index:
        assert index["merkle_root"] == _merkle_root(index["chunks"])
    return index, contents


def _fold_of(index: dict[str, Any], contents: list[bytes]) -> bytes:
    body = b""
    for entry, content in zip(index["chunks"], contents, strict=True):
        payload = zstandard.compress(content) if entry["flags"] else content
        parity = _parity(payload, entry["ecc_algo"])
        length = len(content) - _tag(entry)
        entry |= {"offset": 28 + len(body), "uncomp_len": length, **_about(payload, parity)}
        body += struct.pack(FOLD_CHUNK, *_head(entry)) + payload + parity
    index["metadata"] = _hashed(index["metadata"], index["chunks"])
    if "merkle_root" in index:
        index["merkle_root"] = _merkle_root(index["chunks"])
    raw = _json(index)
    return struct.pack(FOLD_HEADER, b"FOLDv1\0\0", 28, 28 + len(body), len(raw)) + body + raw


def _head(entry: Mapping[str, Any]) -> tuple[bytes, int, int, int, int, int]:
    return (
        entry["ctype"].encode(),
        entry["flags"],
        entry["uncomp_len"],
        entry["comp_len"],
        entry["crc32c"],
        entry["ecc_len"],
    )


def _tag(entry: Mapping[str, Any]) -> int:
    """Bytes that encryption adds; the content of such a chunk is what is stored."""
    return 16 if entry.get("encrypted") else 0


def _about(payload: bytes, parity: bytes) -> dict[str, Any]:
    return {
        "comp_len": len(payload),
        "crc32c": crc32c.crc32c(payload),
        "sha256": "sha256:" + hashlib.sha256(payload).hexdigest(),
        "ecc_len": len(parity),
    }


def _parity(payload: bytes, algorithm: str) -> bytes:
    if algorithm == "none":
        return b""
    n = int(algorithm.removeprefix("rs(").removesuffix(")"))
    codec, size = reedsolo.RSCodec(n), 255 - n
    blocks = [payload[start : start + size] for start in range(0, len(payload), size)]
    return b"".join(bytes(codec.encode(block)[len(block) :]) for block in blocks)


def _hashed(metadata: Mapping[str, Any], chunks: list[dict[str, Any]]) -> dict[str, Any]:
    hashes = {entry["name"]: entry["sha256"] for entry in chunks}
    made = {**metadata, "chunk_hashes": hashes}
    made.pop("manifest_hash", None)
    spelled = json.dumps(made, sort_keys=True, separators=(",", ":")).encode()
    return {**made, "manifest_hash": "sha256:" + hashlib.sha256(spelled).hexdigest()}


def _merkle_root(chunks: list[dict[str, Any]]) -> str:
    def hashed(*parts: bytes) -> bytes:
        return hashlib.blake2b(b"".join(parts), digest_size=32).digest()

    keys = ("name", "offset", "sha256")
    row = [hashed(b"L", _json({key: entry[key] for key in keys})) for entry in chunks]
    while len(row) > 1:
        row += row[-1:] * (len(row) % 2)
        row = [hashed(b"N", left, right) for left, right in zip(row[::2], row[1::2], strict=True)]
    return row[0].hex()


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# The model in each format


def _fold_model(model: Model, **options: Any) -> bytes:
    return fold({CHUNK: (b"STEN", save(model)), "notes": (b"JSON", NOTES)}, **options)


def _read_fold_model(data: bytes) -> Model:
    _, contents = read_fold(data)
    assert contents["notes"] == NOTES
    return load(contents[CHUNK])


def _aero_model(model: Model) -> bytes:
    """Two shards with page hashes; all tensors but the last one in the first."""
    shards: list[bytes] = [b"", b""]
    entries = []
    for place, (name, array) in enumerate(model.items()):
        number = int(place == len(model) - 1)
        raw = array.tobytes()
        kind = {"dtype": AERO_DTYPES[array.dtype.name], "shard_id": number}
        start = len(shards[number])
        entries.append(aero_files.entry(name, list(array.shape), start, len(raw), **kind))
        shards[number] += raw
    names = [f"weights.shard{number}" for number in range(2)]
    chunks = [aero_files.tidx(*entries)]
    chunks += [aero_files.shard(content, number) for number, content in enumerate(shards)]
    for name, content in zip(names, shards, strict=True):
        chunks.append(aero_files.phsh(name, PAGE, aero_files.pages(content, PAGE)))
    return aero_files.file(chunks, ihsh=True)


def _read_aero_model(data: bytes) -> Model:
    found = aero_files.read_strictly(data)
    kinds = {fourcc for fourcc, _ in found.chunks}
    assert kinds == {b"TIDX", b"WTSH", b"PHSH", b"IHSH"}
    dtypes = {number: name for name, number in AERO_DTYPES.items()}
    return {
        name: np.frombuffer(raw, dtypes[dtype]).reshape(shape)
        for name, (dtype, shape, raw) in found.tensors.items()
    }


def _safetensors_model(model: Model) -> bytes:
    return save(model, metadata={"run": "1"})


SAFETENSORS = Kind("model.safetensors", _safetensors_model, load)
FOLD = Kind("model.fold", lambda model: _fold_model(model, ecc=16), _read_fold_model)
FOLD_ZSTD = Kind(
    "zstd.fold", lambda model: _fold_model(model, compress=True, ecc=16), _read_fold_model
)
AERO = Kind("model.aero", _aero_model, _read_aero_model)
KINDS = (SAFETENSORS, FOLD, FOLD_ZSTD, AERO)
