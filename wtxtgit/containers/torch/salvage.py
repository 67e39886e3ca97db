"""Salvaging a damaged torch file: tensors whose storages' CRC-32 holds.

The pickle says which tensors there are, with names, dtypes, shapes and the storages of which they
are views. It has a CRC-32, too; without the pickle nothing can be salvaged. Its opcodes are read,
but nothing is unpickled. In a truncated storage, the tensors that still exist are unproved. Spec:
`docs/spec/torch.md`, "Salvage".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wtxtgit.containers import salvage as shared
from wtxtgit.containers import zip_salvage
from wtxtgit.containers.torch.read import BYTEORDER, STORAGE, Torch, describe, read_members
from wtxtgit.containers.torch.views import NO_STORAGE, View
from wtxtgit.containers.zip_read import STORED, ZipMember
from wtxtgit.containers.zip_salvage import CUT_OFF, LeftMember, LeftZip
from wtxtgit.io.view import ByteView
from wtxtgit.model.salvage import Salvage, SalvagedTensor, Span, TensorState
from wtxtgit.model.tensor import ReadOptions, Tensor

_NO_BYTEORDER = (
    "its byte order is not known: the file has no byteorder member, as files of old "
    "writers have none"
)


def salvage(data: ByteView, options: ReadOptions) -> Salvage:
    """Return the tensors that the pickle lists; raises FormatError if it can't be read."""
    left = zip_salvage.read(data, options)
    container = read_members(data, replace(left.whole, members=tuple(_usable(data, left))))
    by_name = {left_member.member.name: left_member for left_member in left.members}
    named = container.listing.tensors
    tensors = describe(container, options).tensors
    is_sound = left.is_listed and not any(
        left_member.lost or left_member.doubt for left_member in left.members
    )
    doubt = _doubt(container, by_name, is_sound=is_sound)
    salvaged: list[SalvagedTensor] = []
    for tensor, (_, view) in zip(tensors, named, strict=False):
        key = None if view.storage is None else view.storage.key
        storage = by_name.get(f"{container.folder}{STORAGE}{key}")
        salvaged.append(_of_view(data, tensor, view, storage, doubt))
    for tensor, number in zip(tensors[len(named) :], container.arrays, strict=True):
        member = container.directory.members[number]
        salvaged.append(_whole(tensor, doubt or by_name[member.name].doubt))
    # The pickle lists all tensors: members that it does not name are no loss.
    return Salvage(tuple(salvaged), tags=container.listing.tags)


def _usable(data: ByteView, left: LeftZip) -> Iterator[ZipMember]:
    """Yield the members that are intact, and the existing part of truncated storages."""
    for left_member in left.members:
        member = left_member.member
        if left_member.lost is None:
            yield member
        elif left_member.lost == CUT_OFF and member.method == STORED and STORAGE in member.name:
            yield replace(member, end=len(data), size=len(data) - member.start)


def _doubt(container: Torch, by_name: dict[str, LeftMember], *, is_sound: bool) -> str | None:
    """Return what is not proved for any tensor: the pickle's name, or the byte order."""
    order = by_name.get(container.folder + BYTEORDER)
    # A damaged member may have been the one that says it.
    if order is None and not is_sound:
        return _NO_BYTEORDER
    if order is not None and order.lost is not None:
        return f"member {BYTEORDER}: {order.lost}"
    doubt = by_name[container.pickle_member.name].doubt
    return doubt or (None if order is None else order.doubt)


def _of_view(
    data: ByteView, tensor: Tensor, view: View, storage: LeftMember | None, doubt: str | None
) -> SalvagedTensor:
    if view.storage is None:
        return SalvagedTensor(tensor, TensorState.ABSENT, NO_STORAGE)
    if not view.numel or storage is None:
        return _whole(tensor, doubt)
    if storage.lost is None:
        return _whole(tensor, doubt or storage.doubt)
    cut = _cut(data, storage, view)
    if storage.lost == CUT_OFF and tensor.absent is None and not cut:
        return _whole(tensor, shared.CUT_SHORT)
    why = f"member {STORAGE}{view.storage.key}: {storage.lost}"
    return shared.lost(tensor, why, cut if view.is_contiguous else ())


def _cut(data: ByteView, storage: LeftMember, view: View) -> list[Span]:
    """Return which bytes of a tensor are beyond the file's end, if its storage reaches there."""
    if storage.lost != CUT_OFF or storage.member.method != STORED:
        return []
    start, end = view.span()
    existing = max(len(data) - storage.member.start - start, 0)
    return [(existing, end - start)] if existing < end - start else []


def _whole(tensor: Tensor, doubt: str | None) -> SalvagedTensor:
    if tensor.absent is not None:
        return shared.lost(tensor, tensor.absent)
    state = TensorState.PROVED if doubt is None else TensorState.UNPROVED
    return SalvagedTensor(tensor, state, doubt)
