"""Salvaging a damaged npz file: arrays of members whose CRC-32 holds.

The CRC-32 covers dtype, shape and bytes of an array. Its name is in the member's local header and
in the directory. Spec: `docs/spec/npz.md`, "Salvage".
"""

from __future__ import annotations

from dataclasses import replace

from wtxtgit.containers import npy_header, zip_salvage
from wtxtgit.containers import salvage as shared
from wtxtgit.containers.npz.read import Npz, array_name, describe
from wtxtgit.containers.signatures import NPY_SUFFIX
from wtxtgit.containers.zip_read import DEFLATED, STORED, ZipMember
from wtxtgit.containers.zip_salvage import CUT_OFF, LeftMember, first_bytes
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.salvage import Salvage, SalvagedTensor, TensorState
from wtxtgit.model.tensor import ReadOptions, Tensor

# The largest end of an array: beyond the end of any file.
_REACH = 2**63
# Headers of arrays are mostly 128 bytes long, and rarely longer than this.
_HEAD = 4096


def salvage(data: ByteView, options: ReadOptions) -> Salvage:
    """Return the arrays that can be found; raises FormatError (limit) for too many members."""
    left = zip_salvage.read(data, options)
    whole = left.whole
    arrays = npy_header.read_members(data, whole.members, "headers of arrays are too long")
    listed = iter(describe(Npz(data, whole, arrays, frozenset()), options).tensors)
    salvaged = []
    for left_member in left.members:
        if not left_member.member.name.endswith(NPY_SUFFIX):
            continue
        if left_member.lost is None:
            salvaged.append(_whole(next(listed), left_member))
        else:
            salvaged.append(_lost(data, left_member.member, left_member.lost))
    return Salvage(tuple(salvaged), missing=left.missing)


def _whole(tensor: Tensor, left_member: LeftMember) -> SalvagedTensor:
    if tensor.absent is not None:
        return shared.lost(tensor, tensor.absent)
    state = TensorState.PROVED if left_member.doubt is None else TensorState.UNPROVED
    return SalvagedTensor(tensor, state, left_member.doubt)


def _lost(data: ByteView, member: ZipMember, why: str) -> SalvagedTensor:
    """Return an array of a damaged member, with what its header says if that can be read."""
    tensor = Tensor(array_name(member), "", (), memoryview(b""), None)
    if member.method not in (STORED, DEFLATED) or member.encrypted:
        return shared.lost(tensor, why)
    start = member.start
    if member.method == DEFLATED:
        data, start = first_bytes(data, member, _HEAD), 0
    try:
        header = npy_header.read(data, start, len(data))
        stored = header.stored(array_name(member), _REACH)
    except FormatError:
        return shared.lost(tensor, why)
    if member.method == DEFLATED:
        return shared.lost(replace(stored.listed(memoryview(b"")), offset=None), why)
    if why != CUT_OFF:
        return shared.lost(stored.listed(data), why)
    if stored.end <= len(data) and not header.has_objects:
        return SalvagedTensor(stored.listed(data), TensorState.UNPROVED, shared.CUT_SHORT)
    return shared.lost(stored.listed(data), why, [shared.cut_off(stored, len(data))])
