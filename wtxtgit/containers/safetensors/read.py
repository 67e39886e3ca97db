"""safetensors files: a header, then the tensors' bytes.

Spec: `docs/spec/containers.md`, "safetensors"; `docs/spec/safetensors.md`; what the reference
library reads of it: https://github.com/huggingface/safetensors, `src/tensor.rs` of 0.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from wtxtgit.containers import json_text, ranges, tensor_header
from wtxtgit.containers.cursor import ListingBudget
from wtxtgit.containers.format import Container
from wtxtgit.containers.signatures import SAFETENSORS_LENGTH_SIZE
from wtxtgit.containers.tensor_header import METADATA_KEY, TensorHeader
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import Description, Document, ReadOptions

HEADER_ROLE = "_header"
# Length in bytes of the longest header that the reference library reads.
MAX_HEADER = 100_000_000
ITEM_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits of an item of each dtype of the reference library, in its order of alignment."""


@dataclass(frozen=True, slots=True, eq=False)
class Safetensors(Container):
    """A safetensors file that was read."""

    data: ByteView
    header: TensorHeader

    def ranges(self) -> Iterator[ranges.Range]:
        yield ranges.part(0, self.header.end, HEADER_ROLE)
        for tensor in self.header.tensors:
            yield ranges.tensor(tensor)

    def is_padding(self, start: int, end: int) -> bool:
        return False

    def untold(self) -> tuple[str, ...]:
        """What `__metadata__` has besides the texts that the format allows."""
        metadata = self.header.metadata
        if not isinstance(metadata, dict):
            return () if metadata is None else (METADATA_KEY,)
        kept = json_text.texts(metadata)
        return tuple(
            f"{METADATA_KEY}.{json_text.shown_key(key)}" for key in metadata if key not in kept
        )


def describe(container: Safetensors, options: ReadOptions) -> Description:
    """Describe the file."""
    return Description(
        "safetensors",
        tuple(tensor.listed(container.data) for tensor in container.header.tensors),
        {METADATA_KEY: container.header.metadata},
        tags=json_text.texts(container.header.metadata),
        untold=container.untold(),
        rest=partial(_rest, container),
    )


def _rest(container: Safetensors) -> dict[str, object]:
    """Return further keys of tensors, if there are any."""
    further = container.header.further
    return {"further keys": dict(further)} if further else {}


def documents(container: Safetensors, options: ReadOptions) -> Iterator[Document]:
    """Yield the header."""
    stored = container.data[SAFETENSORS_LENGTH_SIZE : container.header.end]
    yield Document("header", bytes(stored), stored, lists=True)


def read(data: ByteView, listing: ListingBudget | None = None) -> Safetensors:
    """Read a safetensors file; raises FormatError."""
    return Safetensors(data, tensor_header.read(data, 0, len(data), listing=listing))
