"""Zips put together by hand, so that every field can be wrong."""

from __future__ import annotations

import io
import re
import struct
import zlib
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wtxtgit.model.tensor import Tensor

SPEC = Path(__file__).parents[2] / "docs" / "spec"


def npy(array: ArrayLike, version: tuple[int, int] | None = None) -> bytes:
    """What numpy writes for an array."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), version, allow_pickle=False)
    return buffer.getvalue()


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    """The array of an npy tensor, by what its description says alone."""
    descr = literal_eval(tensor.dtype) if tensor.dtype.startswith("[") else tensor.dtype
    flat = np.frombuffer(tensor.data, np.dtype(descr))
    return flat.reshape(tensor.shape, order="F" if tensor.order == "F" else "C")


def npy_text(text: str | bytes, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """An npy file with a header as it is given."""
    raw = text if isinstance(text, bytes) else text.encode()
    width = "<H" if version == (1, 0) else "<I"
    return b"\x93NUMPY" + bytes(version) + struct.pack(width, len(raw)) + raw + data


def npy_fields(
    descr: str = "'<f4'", fortran_order: str = "False", shape: str = "(1,)", data: bytes = b""
) -> bytes:
    """An npy file with the header's values as they are given."""
    text = f"{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}"
    return npy_text(text, data)


def deflate(data: bytes) -> bytes:
    codec = zlib.compressobj(wbits=-15)
    return codec.compress(data) + codec.flush()


def example(page: str) -> bytes:
    """The file of the worked example of a page of the spec."""
    text = (SPEC / page).read_text("utf-8").partition("## A worked example in bytes")[2]
    lines = re.findall(r"^[0-9a-f]{8}: ((?:[0-9a-f]{4} ?){1,8})(?: .*)?$", text, re.MULTILINE)
    assert lines
    return bytes.fromhex("".join(lines))


@dataclass(frozen=True)
class Entry:
    """A member; fields that are None follow from the content."""

    name: bytes
    content: bytes = b""
    method: int = 0
    flags: int = 0
    payload: bytes | None = None
    crc32: int | None = None
    length: int | None = None
    size: int | None = None
    offset: int | None = None
    extra: bytes = b""
    disk: int = 0
    magic: bytes = b"PK\1\2"
    local_name: bytes | None = None
    local_extra: bytes = b""
    local_flags: int | None = None
    local_method: int | None = None
    local_crc32: int | None = None
    local_size: int | None = None
    local_length: int | None = None
    local_magic: bytes = b"PK\3\4"


def filled(entry: Entry) -> Entry:
    """The entry with everything that follows from its content."""
    payload = entry.payload
    if payload is None:
        payload = deflate(entry.content) if entry.method == 8 else entry.content
    return replace(
        entry,
        payload=payload,
        crc32=zlib.crc32(entry.content) if entry.crc32 is None else entry.crc32,
        length=len(payload) if entry.length is None else entry.length,
        size=len(entry.content) if entry.size is None else entry.size,
    )


def or_else(value: int | None, other: int | None) -> int:
    found = other if value is None else value
    assert found is not None
    return found


def local(entry: Entry) -> bytes:
    """A local header and what stands behind it."""
    name = entry.name if entry.local_name is None else entry.local_name
    head = struct.pack(
        "<4sHHHHHIIIHH",
        entry.local_magic,
        20,
        or_else(entry.local_flags, entry.flags),
        or_else(entry.local_method, entry.method),
        0,
        33,
        or_else(entry.local_crc32, entry.crc32),
        or_else(entry.local_length, entry.length),
        or_else(entry.local_size, entry.size),
        len(name),
        len(entry.local_extra),
    )
    return head + name + entry.local_extra + (entry.payload or b"")


def central(entry: Entry, offset: int) -> bytes:
    head = struct.pack(
        "<4sHHHHHHIIIHHHHHII",
        entry.magic,
        20,
        20,
        entry.flags,
        entry.method,
        0,
        33,
        entry.crc32,
        entry.length,
        entry.size,
        len(entry.name),
        len(entry.extra),
        0,
        entry.disk,
        0,
        0,
        offset if entry.offset is None else entry.offset,
    )
    return head + entry.name + entry.extra


def zipped(
    entries: Sequence[Entry],
    /,
    *,
    prefix: bytes = b"",
    comment: bytes = b"",
    before_end: bytes = b"",
    **end: int,
) -> bytes:
    """A zip; `end` replaces fields of the end record: disk, directory_disk, disk_entries,
    entries, size, offset, comment_length."""
    out, directory = prefix, b""
    for entry in map(filled, entries):
        directory += central(entry, len(out))
        out += local(entry)
    fields = {
        "disk": 0,
        "directory_disk": 0,
        "disk_entries": len(entries),
        "entries": len(entries),
        "size": len(directory),
        "offset": len(out),
        "comment_length": len(comment),
    }
    last = struct.pack("<4sHHHHIIH", b"PK\5\6", *(fields | end).values())
    return out + directory + before_end + last + comment


def zip64_end(
    entries: int, size: int, offset: int, /, *, at: int | None = None, **changes: int
) -> bytes:
    """A zip64 end record that stands behind the directory, and its locator."""
    fields = {
        "record_size": 44,
        "version": 45,
        "needed": 45,
        "disk": 0,
        "directory_disk": 0,
        "disk_entries": entries,
        "entries": entries,
        "size": size,
        "offset": offset,
    }
    locator = {"locator_disk": 0, "at": offset + size if at is None else at, "disks": 1}
    for key in locator:
        locator[key] = changes.pop(key, locator[key])
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", *(fields | changes).values())
    return record + struct.pack("<4sIQI", b"PK\6\7", *locator.values())
