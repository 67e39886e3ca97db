"""Recognizing compressed files by their first bytes."""

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
    """Return the name of the compression by a file's first bytes; None for other files."""
    return next((name for magic, name in _STARTS if start.startswith(magic)), None)
