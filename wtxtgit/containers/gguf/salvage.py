"""Salvaging a damaged GGUF file: the format has no hashes, so nothing is proved.

Spec: `docs/spec/gguf.md`, "Salvage".
"""

from __future__ import annotations

from functools import partial

from wtxtgit.containers import salvage as shared
from wtxtgit.containers.gguf.read import UNKNOWN_TYPE, describe, read
from wtxtgit.containers.gguf.reseal import keep
from wtxtgit.io.view import ByteView
from wtxtgit.model.salvage import Salvage
from wtxtgit.model.tensor import ReadOptions


def salvage(data: ByteView, options: ReadOptions) -> Salvage:
    """Return the tensors whose bytes exist; raises FormatError if the header can't be read."""
    container = read(data, is_cut=True)
    listed = [(info.tensor, None if info.is_known else UNKNOWN_TYPE) for info in container.infos]
    tensors = shared.of_places(data, listed)
    tags = describe(container, options).tags
    return Salvage(tuple(tensors), tags=tags, keep=partial(keep, container))
