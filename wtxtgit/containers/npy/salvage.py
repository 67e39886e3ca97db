"""Salvaging a damaged npy file: one array, which has no hash.

Spec: `docs/spec/npy.md`, "Salvage".
"""

from __future__ import annotations

from wtxtgit.containers import npy_header
from wtxtgit.containers import salvage as shared
from wtxtgit.containers.npy.file import TENSOR
from wtxtgit.io.view import ByteView
from wtxtgit.model.salvage import Salvage
from wtxtgit.model.tensor import ReadOptions

# The largest end of an array: beyond the end of any file.
_REACH = 2**63


def salvage(data: ByteView, _options: ReadOptions) -> Salvage:
    """Return the array if its bytes exist; raises FormatError if the header can't be read."""
    header = npy_header.read(data, 0, len(data))
    why = "Python objects are never read" if header.has_objects else None
    stored = header.stored(TENSOR, len(data) if header.has_objects else _REACH)
    return Salvage(tuple(shared.of_places(data, [(stored, why)])))
