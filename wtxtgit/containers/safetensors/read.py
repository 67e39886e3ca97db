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

    def describe(self, options: ReadOptions) -> Description:
        return Description(
            "safetensors",
            tuple(tensor.listed(self.data) for tensor in self.header.tensors),
            {METADATA_KEY: self.header.metadata},
            tags=tags.texts(self.header.metadata),
            untold=self._untold(),
        )

    def _untold(self) -> tuple[str, ...]:
        """What `__metadata__` has beyond the texts that the format allows."""
        metadata = self.header.metadata
        if not isinstance(metadata, dict):
            return () if metadata is None else (METADATA_KEY,)
        kept = tags.texts(metadata)
        return tuple(f"{METADATA_KEY}.{tags.shown_key(key)}" for key in metadata if key not in kept)


def read(data: ByteView) -> Safetensors:
    """Read a safetensors file; raises FormatError."""
    return Safetensors(data, tensor_header.read(data, 0, len(data)))
