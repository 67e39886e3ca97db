"""The result of salvaging a damaged container: which tensors are whole, and what is lost.

A tensor is proved if a hash in the file holds for its bytes and for what names it. It is
unproved if all its bytes are there but nothing in the file says what they have to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import Nested, Tensor

Span = tuple[int, int]
"""First byte and end."""


class TensorState(StrEnum):
    """What is known of a tensor of a damaged file; an absent one never had bytes in it."""

    PROVED = "proved"
    UNPROVED = "unproved"
    LOST = "lost"
    ABSENT = "absent"

    @property
    def is_whole(self) -> bool:
        """Whether all bytes of the tensor are there."""
        return self in (TensorState.PROVED, TensorState.UNPROVED)


@dataclass(frozen=True, slots=True, eq=False)
class SalvagedTensor:
    """A tensor of a damaged file; the bytes of one that is not whole must not be used.

    `why` says what is not proved, or why the tensor is lost. `lost` are the ranges of its stored
    bytes that are known to be lost; it is empty if it is not known which are.
    """

    tensor: Tensor
    state: TensorState
    why: str | None = None
    lost: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SalvagedFile:
    """A file in a chunk, with the state of the chunk, which is that of all tensors in the file."""

    nested: Nested
    state: TensorState
    why: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Salvage:
    """What a damaged file still holds.

    `missing` describes what is lost besides listed tensors, `notes` what else was found. `keep`
    writes the file in its own format with only the tensors of the given numbers; it is set where
    that format can hold tensors that no other format can.
    """

    tensors: tuple[SalvagedTensor, ...] = ()
    files: tuple[SalvagedFile, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    keep: Callable[[Sequence[int]], Iterator[Buffer]] | None = None
