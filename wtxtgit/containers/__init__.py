"""Container formats: which one a file is, its extents, its tensors.

One module a format, loaded when a file of that format is met; none knows
another. Everything here is a pure function of the file's bytes, and nothing
in a file is executed.
Spec: `docs/spec/containers.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Protocol, cast

from wtxtgit.containers import cutting, opaque
from wtxtgit.containers.magic import MLCP_SHARD_MAGIC, detect
from wtxtgit.containers.ranges import Range
from wtxtgit.errors import FormatError
from wtxtgit.model import Cut, Description

__all__ = ["describe", "detect", "split"]

CUT_FORMATS = frozenset({"fold", "aero", "mlcp", "taridx", "safetensors"})
"""Formats that have a module; files of the others are stored whole."""


class Container(Protocol):
    """A file that a format's module has read."""

    def ranges(self) -> Iterable[Range]:
        """Which bytes are tensors and parts."""

    def describe(self) -> Description:
        """What the file says of itself."""


class _Format(Protocol):
    """What a format's module offers."""

    def read(self, data: memoryview) -> Container:
        """Read a file with the format's magic; raises FormatError."""


def split(data: memoryview) -> Cut:
    """Cut a file into extents that give its bytes when put together.

    `data` is the whole file as flat bytes; the arrays are views of it. A file
    that can't be read becomes opaque, with the reason: no content raises.
    """
    name = detect(data)
    if name not in CUT_FORMATS:
        return opaque.split(data, _why_whole(data, name))
    try:
        return cutting.cut(name, data, _read(name, data).ranges())
    except FormatError as error:
        return opaque.split(data, error.message)


def describe(data: memoryview) -> Description:
    """List a file's tensors and metadata; a file of no known format has none.

    Raises FormatError where the file has a format's magic and can't be read.
    """
    name = detect(data)
    if name in CUT_FORMATS:
        return _read(name, data).describe()
    reason = _why_whole(data, name)
    if _is_mlcp_shard(data):
        raise FormatError(reason, offset=0, field="magic")
    return Description("opaque", metadata={"reason": reason})


def _read(name: str, data: memoryview) -> Container:
    return cast(_Format, import_module(f"{__name__}.{name}")).read(data)


def _why_whole(data: memoryview, name: str) -> str:
    if name != "opaque":
        return f"{name} is stored whole"
    if _is_mlcp_shard(data):
        return "file is a .shard file (magic RAHS), which is not read, not an MLCP checkpoint"
    return "file has no known magic" if len(data) else "file is empty"


def _is_mlcp_shard(data: memoryview) -> bool:
    return data[: len(MLCP_SHARD_MAGIC)] == MLCP_SHARD_MAGIC
