"""safetensors files. Spec: `docs/spec/containers.md`, "safetensors"."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wtxtgit.containers import ranges, tensor_header
from wtxtgit.containers.tensor_header import METADATA_KEY, TensorHeader
from wtxtgit.model import Buffer, Description

HEADER_ROLE = "_header"
ALIGNMENT = 8
"""Where a writer lets the tensors' bytes start."""


@dataclass(frozen=True, slots=True, eq=False)
class Safetensors:
    """A safetensors file that was read."""

    data: memoryview
    header: TensorHeader

    def ranges(self) -> Iterator[ranges.Range]:
        yield ranges.part(0, self.header.end, HEADER_ROLE)
        for tensor in self.header.tensors:
            yield ranges.tensor(tensor, tensor_header.NUMERIC.get(tensor.dtype))

    def describe(self) -> Description:
        return Description(
            "safetensors",
            tuple(tensor.listed(self.data) for tensor in self.header.tensors),
            {METADATA_KEY: self.header.metadata},
        )


def read(data: memoryview) -> Safetensors:
    """Read a safetensors file; raises FormatError."""
    return Safetensors(data, tensor_header.read(data, 0, len(data)))


def build(tensors: Sequence[tuple[str, str, tuple[int, ...], memoryview]]) -> Iterator[Buffer]:
    """Write a safetensors file: names, dtypes as the format calls them, shapes, raw bytes."""
    header: dict[str, object] = {}
    end = 0
    for name, dtype, shape, raw in tensors:
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [end, end + raw.nbytes],
        }
        end += raw.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for _, _, _, raw in tensors:
        yield raw
