"""Tars and rows built by hand."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Sequence

import xxhash

from tests.containers import samples
from wtxtgit.containers.tar_index import Tar

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def row(
    fid: int = 0,
    offset: int = 0,
    size: int = 1,
    extid: int = 0,
    crashid: int = 0,
    keyhash: int = 1,
) -> bytes:
    return struct.pack("<HQQHIQ", fid, offset, size, extid, crashid, keyhash)


def index(rows: Sequence[bytes], extensions: str = "jpg", **changes: object) -> memoryview:
    """An index of rows of one stem, unless `changes` say otherwise."""
    return memoryview(samples.taridx(extensions.encode(), b"", b"".join(rows), **changes))


def with_stems(rows: Sequence[bytes], stems: str, **changes: object) -> memoryview:
    """An index whose crash stems are the lines of `stems`."""
    fields = {"n_crash": stems.count("\n") + 1} | changes
    return memoryview(samples.taridx(b"jpg", stems.encode(), b"".join(rows), **fields))


def tar(*members: tuple[str, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar of files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def header(name: bytes = b"a.txt", size: bytes = b"0", kind: bytes = b"0", **more: bytes) -> bytes:
    """A header block with these fields; `checksum` replaces the right one, `at482` a byte."""
    block = bytearray(512)
    block[: len(name)] = name
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[482:483] = more.get("at482", b"\0")
    block[148:156] = b" " * 8
    block[148:156] = more.get("checksum", b"%06o\0 " % sum(block))
    return bytes(block)


def pax(**records: str) -> bytes:
    """A PAX header of records, with its block."""
    payload = b""
    for key, value in records.items():
        rest = f" {key.replace('__', '.')}={value}\n".encode()
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        payload += str(length).encode() + rest
    padding = bytes(-len(payload) % 512)
    return header(b"x", b"%o" % len(payload), b"x") + payload + padding


def shards(*contents: bytes) -> list[Tar]:
    return [Tar(f"t_{n}.tar", memoryview(data)) for n, data in enumerate(contents)]


def key_of(stem: str) -> int:
    return xxhash.xxh64(stem.encode(), seed=0).intdigest()
