"""What formats have in common in finding out which tensors of a damaged file are whole.

A truncated file, as from a download that stopped, has no bytes after its end. A file that was first
given its full length has zeros there; without hashes these can't be distinguished from weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from wtxtgit.containers import intervals
from wtxtgit.containers.ranges import Stored
from wtxtgit.io.view import PIECE, ByteView, is_zeros
from wtxtgit.model.salvage import SalvagedTensor, Span, TensorState
from wtxtgit.model.tensor import Tensor

CUT_OFF = "the file ends before it does"
CUT_SHORT = "the bytes that its hash covers were cut off, so nothing proves it"
SHARED = "another tensor claims the same bytes"
ZEROS = "it is all zeros up to the end of the file, so it may never have been written"
# This many zeros at the end of a file are more than a tensor's own zeros or padding: a page, the
# unit in which file systems allocate.
_LEAST_ZEROS = 4096
# The largest size of a file: beyond it messages give no numbers, which might be of any length.
_MOST_END = 2**63 - 1


def of_places(data: ByteView, listed: Sequence[tuple[Stored, str | None]]) -> list[SalvagedTensor]:
    """Judge tensors of a format without hashes by their positions; results are in the same order.

    A position may be beyond the end of the file. `listed` has each tensor with the reason why it
    can't be whole, None if there is none. Bytes that two tensors claim belong to neither.
    """
    zeros = len(data) - _zero_tail(data)
    salvaged = [_of_place(data, stored, why, zeros) for stored, why in listed]
    shared: set[int] = set()
    numbers = [n for n, (stored, _) in enumerate(listed) if 0 < stored.nbytes <= _MOST_END]
    for one, other in intervals.overlaps(numbers, lambda n: (listed[n][0].start, listed[n][0].end)):
        shared |= {one, other}
    return [lost(one.tensor, SHARED) if n in shared else one for n, one in enumerate(salvaged)]


def lost(tensor: Tensor, why: str, ranges: Iterable[Span] = ()) -> SalvagedTensor:
    """Return the tensor as a lost one."""
    return SalvagedTensor(
        replace(tensor, absent=tensor.absent or why), TensorState.LOST, why, tuple(ranges)
    )


def cut_off(stored: Stored, size: int) -> Span:
    """Return which of a tensor's bytes lie beyond the end of a file of `size` bytes."""
    return min(max(size - stored.start, 0), stored.nbytes), stored.nbytes


def _of_place(data: ByteView, stored: Stored, why: str | None, zeros: int) -> SalvagedTensor:
    tensor = stored.listed(data)
    if why is not None:
        return lost(tensor, why)
    if stored.end > _MOST_END:
        return lost(tensor, "no file can have that many bytes")
    if stored.nbytes and stored.end > len(data):
        return lost(tensor, CUT_OFF, [cut_off(stored, len(data))])
    is_blank = stored.nbytes > 0 and stored.end > zeros
    return SalvagedTensor(tensor, TensorState.UNPROVED, ZEROS if is_blank else None)


def _zero_tail(data: ByteView) -> int:
    """Return how many zeros end a file, 0 if they are too few to be significant."""
    end = len(data)
    while end and is_zeros(data[max(end - PIECE, 0) : end]):
        end = max(end - PIECE, 0)
    tail = bytes(data[max(end - PIECE, 0) : end])
    count = len(data) - end + len(tail) - len(tail.rstrip(b"\0"))
    return count if count >= _LEAST_ZEROS else 0
