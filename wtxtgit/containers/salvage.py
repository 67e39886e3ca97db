"""What formats share in telling which tensors of a damaged file are whole.

A file that was cut off, as a download that stopped, has no bytes behind its end. One that was
given its full length first has zeros there, which no format without hashes tells from weights.
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
# Bytes of zeros at the end of a file that are more than a tensor's own, or padding: a page, in
# which file systems give room.
_LEAST_ZEROS = 4096
# Where a file can end: what reaches further is told without numbers, which may be of any length.
_MOST_END = 2**63 - 1


def of_places(data: ByteView, listed: Sequence[tuple[Stored, str | None]]) -> list[SalvagedTensor]:
    """Tensors of a format without hashes by where their bytes have to be, in the same order.

    A place may reach past the end of the file. Beside each stands why it can't be whole, if it
    can't. What two tensors claim is no one's.
    """
    zeros = len(data) - _zero_tail(data)
    found = [_of_place(data, stored, why, zeros) for stored, why in listed]
    shared: set[int] = set()
    numbers = [n for n, (stored, _) in enumerate(listed) if 0 < stored.nbytes <= _MOST_END]
    for one, other in intervals.overlaps(numbers, lambda n: (listed[n][0].start, listed[n][0].end)):
        shared |= {one, other}
    return [lost(one.tensor, SHARED) if n in shared else one for n, one in enumerate(found)]


def lost(tensor: Tensor, why: str, ranges: Iterable[Span] = ()) -> SalvagedTensor:
    """The tensor as one that is lost."""
    return SalvagedTensor(
        replace(tensor, absent=tensor.absent or why), TensorState.LOST, why, tuple(ranges)
    )


def cut_off(stored: Stored, size: int) -> Span:
    """Which of a tensor's bytes are behind the end of a file of `size` bytes."""
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
    """How many zeros end a file, none where they are so few that they say nothing."""
    end = len(data)
    while end and is_zeros(data[max(end - PIECE, 0) : end]):
        end = max(end - PIECE, 0)
    tail = bytes(data[max(end - PIECE, 0) : end])
    count = len(data) - end + len(tail) - len(tail.rstrip(b"\0"))
    return count if count >= _LEAST_ZEROS else 0
