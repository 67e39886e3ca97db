"""GGUF files put together by hand, so that every field can be wrong."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from wtxtgit.model.ggml import TYPES

ARRAY, STRING, BOOL, UINT32 = 9, 8, 7, 4
F32, Q4_0 = 0, 2


def string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str | bytes, value_type: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", value_type) + value


def array(item_type: int, count: int, items: bytes) -> bytes:
    return struct.pack("<IQ", item_type, count) + items


def info(
    name: str | bytes, shape: Sequence[int], offset: int, number: int = F32, rank: int | None = None
) -> bytes:
    rank = len(shape) if rank is None else rank
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", rank, *shape, number, offset)


ARCHITECTURE = entry("general.architecture", STRING, string("llama"))


def alignment(value: int) -> bytes:
    return entry("general.alignment", UINT32, struct.pack("<I", value))


def head(
    entries: Sequence[bytes] = (ARCHITECTURE,),
    infos: Sequence[bytes] = (),
    *,
    version: int = 3,
    kv_count: int | None = None,
    tensor_count: int | None = None,
) -> bytes:
    """Header, metadata and tensor infos."""
    kv_count = len(entries) if kv_count is None else kv_count
    tensor_count = len(infos) if tensor_count is None else tensor_count
    counts = struct.pack("<IQQ", version, tensor_count, kv_count)
    return b"GGUF" + counts + b"".join(entries) + b"".join(infos)


def padded(raw: bytes, unit: int = 32, fill: bytes = b"\0") -> bytes:
    return raw + fill * (-len(raw) % unit)


def gguf(
    entries: Sequence[bytes] = (ARCHITECTURE,),
    infos: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    unit: int = 32,
) -> bytes:
    """A file with `data` at the place that offsets count from."""
    return padded(head(entries, infos), unit) + data


def quantised_file(**tensors: tuple[str, bytes]) -> bytes:
    """A file of tensors in rows of 256 items, each with the name of its type and its bytes."""
    numbers = {kind.name: (number, kind) for number, kind in TYPES.items()}
    infos, data = [], b""
    for name, (word, raw) in tensors.items():
        number, kind = numbers[word]
        items = len(raw) // kind.size * kind.block
        infos.append(info(name, (256, items // 256), len(data), number))
        data += padded(raw)
    version = entry("general.quantization_version", UINT32, struct.pack("<I", 2))
    return gguf((ARCHITECTURE, version), infos, data)
