"""FOLD files for tests: built, damaged, and with an index that says something else."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from tests.containers.samples import safetensors, tensor_item
from wtxtgit.containers.any_format import check
from wtxtgit.containers.fold import read
from wtxtgit.containers.fold.write import ChunkSource, build
from wtxtgit.model.findings import Findings, Problem
from wtxtgit.model.tensor import ReadOptions

AES_KEY = bytes(range(32))
"""The key of the encrypted fixtures."""
HMAC_KEY = b"s3cret-a"
"""The key of the fixtures whose hashes are HMACs."""
NOISE = bytes(n * n * 31 % 251 for n in range(1000))
MODEL = safetensors({"w": tensor_item("F32", [125, 2], 0, 1000)}, NOISE)


def source(name: str, ctype: bytes, content: bytes) -> ChunkSource:
    return ChunkSource(name, ctype, len(content), lambda: iter([content]))


def built(*chunks: tuple[str, bytes, bytes], **options: Any) -> bytes:
    """A file of (name, ctype, content)."""
    return b"".join(build([source(*chunk) for chunk in chunks], **options))


def model_file(**options: Any) -> bytes:
    """A file with a model of 1,000 bytes and a JSON chunk."""
    return built(("torch_state", b"STEN", MODEL), ("notes", b"JSON", b'{"a":1}'), **options)


def index_of(data: bytes) -> dict[str, Any]:
    held = read.read(memoryview(data))
    return json.loads(data[held.index_start : held.index_end])  # type: ignore[no-any-return]


def with_index(data: bytes, index: object) -> bytes:
    """The file with another index after its chunks."""
    start = read.read(memoryview(data)).index_start
    raw = json.dumps(index, ensure_ascii=False, separators=(",", ":")).encode()
    return struct.pack(">8sIQQ", b"FOLDv1\0\0", 28, start, len(raw)) + data[28:start] + raw


def edited(data: bytes, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """The file with an index that `edit` has changed in place."""
    index = index_of(data)
    edit(index)
    return with_index(data, index)


def flipped(data: bytes, *places: int, mask: int = 0xFF) -> bytes:
    """The file with the bytes at `places` turned round."""
    changed = bytearray(data)
    for at in places:
        changed[at] ^= mask
    return bytes(changed)


def checked(data: bytes, **options: Any) -> Findings:
    return check(memoryview(data), ReadOptions(**options))


def told(problems: list[Problem]) -> list[tuple[str, str | None, int | None, int | str | None]]:
    """Kind, field, offset and chunk of each problem."""
    return [(p.kind, p.field, p.offset, p.chunk) for p in problems]
