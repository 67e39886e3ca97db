"""safetensors files: a header, then the tensors' bytes.

Spec: `docs/spec/containers.md`, "safetensors"; `docs/spec/safetensors.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wtxtgit.containers import ranges, tags, tensor_header
from wtxtgit.containers.tensor_header import METADATA_KEY, TensorHeader
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import Description, ReadOptions

HEADER_ROLE = "_header"


@dataclass(frozen=True, slots=True, eq=False)
class Safetensors:
    """A safetensors file that was read."""

    data: ByteView
    header: TensorHeader

    def ranges(self) -> Iterator[ranges.Range]:
        yield ranges.part(0, self.header.end, HEADER_ROLE)
        for tensor in self.header.tensors:
            yield ranges.tensor(tensor)

    def untold(self) -> tuple[str, ...]:
        """What `__metadata__` has beyond the texts that the format allows."""
        metadata = self.header.metadata
        if not isinstance(metadata, dict):
            return () if metadata is None else (METADATA_KEY,)
        kept = tags.texts(metadata)
        return tuple(f"{METADATA_KEY}.{tags.shown_key(key)}" for key in metadata if key not in kept)


def describe(container: Safetensors, options: ReadOptions) -> Description:
    """What the file says of itself."""
    return Description(
        "safetensors",
        tuple(tensor.listed(container.data) for tensor in container.header.tensors),
        {METADATA_KEY: container.header.metadata},
        tags=tags.texts(container.header.metadata),
        untold=container.untold(),
    )


def read(data: ByteView) -> Safetensors:
    """Read a safetensors file; raises FormatError."""
    return Safetensors(data, tensor_header.read(data, 0, len(data)))
