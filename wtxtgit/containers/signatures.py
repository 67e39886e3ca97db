"""Signatures that several formats share, and the start of a file as detection looks at it.

The magic of one format alone stands in its package.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView

NPY_MAGIC = b"\x93NUMPY"
NPY_SUFFIX = ".npy"
ZIP_MAGIC = b"PK\x03\x04"
SAFETENSORS_BRACE = ord("{")
SAFETENSORS_LENGTH_SIZE = 8
MAX_JSON = 100 * 1024 * 1024
"""Longest index or header, in bytes once decoded."""

_ZIP_NAME_LENGTH = slice(26, 28)
_ZIP_NAME_START = 30


class MemberNames(NamedTuple):
    """Names of a zip's members; where it has no directory that can be read, the first one alone."""

    names: tuple[str, ...]
    is_whole: bool


class Opening:
    """What detection looks at: the first bytes of a file, and the names in a zip."""

    def __init__(self, data: ByteView) -> None:
        self.data = data
        self.head = bytes(data[:_ZIP_NAME_START])

    @cached_property
    def zip(self) -> MemberNames | None:
        """The names of the members, read once for all formats that ask; None where it is no zip."""
        if not self.head.startswith(ZIP_MAGIC):
            return None
        from wtxtgit.containers import zip_read  # only zips need it

        try:
            members = zip_read.read(self.data).members
        except FormatError:
            # A file that was cut off is still known by its first member: it is told as damaged.
            length = int.from_bytes(self.head[_ZIP_NAME_LENGTH], "little")
            first = bytes(self.data[_ZIP_NAME_START : _ZIP_NAME_START + length])
            return MemberNames((first.decode("ascii", "replace"),), is_whole=False)
        return MemberNames(tuple(member.name for member in members), is_whole=True)
