"""What is left of a damaged container: which tensors are whole, and what is lost.

A tensor is proved where a hash of the file holds for its bytes, and what names it holds
as well; unproved where all its bytes are there and nothing in the file says what they
have to be.
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
    """What is known of a tensor of a damaged file; of an absent one it never had the bytes."""

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
    """A tensor of a damaged file; nobody may look at the bytes of one that is not whole.

    `why` says what is not proved, or why it is lost. `lost` are ranges of its stored bytes that
    are known to be lost, none where it is not known which are.
    """

    tensor: Tensor
    state: TensorState
    why: str | None = None
    lost: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SalvagedFile:
    """A file in a chunk: as whole as its chunk, and so are all tensors in it."""

    nested: Nested
    state: TensorState
    why: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Salvage:
    """What a damaged file still holds.

    `missing` has words on what is lost beside tensors that are listed, `notes` on what else was
    found. `keep` gives the file in its own format with the tensors of these numbers alone, where
    the format can hold tensors that no other can.
    """

    tensors: tuple[SalvagedTensor, ...] = ()
    files: tuple[SalvagedFile, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    keep: Callable[[Sequence[int]], Iterator[Buffer]] | None = None
