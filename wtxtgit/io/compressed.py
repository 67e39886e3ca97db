"""Files of compressing programs, known by how they start."""

from __future__ import annotations

_STARTS = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
)


def compression(start: bytes) -> str | None:
    """What a file that starts so is compressed with, None of any other."""
    return next((name for magic, name in _STARTS if start.startswith(magic)), None)
