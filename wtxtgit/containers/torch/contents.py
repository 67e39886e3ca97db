"""What a torch file holds: its tensors, where their bytes are, and everything else.

Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from wtxtgit.containers import zip_directory
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.torch import PICKLE, overlay, pickle_digest, serialization_id
from wtxtgit.containers.torch.dtypes import PACKED
from wtxtgit.containers.torch.overlay import Said, Steps
from wtxtgit.containers.torch.read import ALIGNMENT, BYTEORDER, MAX_WORD, STORAGE, Torch, describe
from wtxtgit.containers.torch.views import View
from wtxtgit.containers.zip_directory import Member
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, mapped, pieces
from wtxtgit.model.tensor import Entry, Packed, ReadOptions, Tensor

FROM_LAYOUT = frozenset({ALIGNMENT, serialization_id.NAME})
"""Members that say how the file is written, and which one it is."""
OUTSIDE = "../"
"""What the names of members outside of the folder are shown with."""
PICKLED = "pickle"
ARRAY = "npy"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor's bytes are: [start, end) of what a member holds; see `Said`."""

    member: Member
    start: int
    end: int
    steps: Steps | None = None
    item: int = 1

    def said(self, blocks: Callable[[], Iterable[Buffer]] | None = None) -> Said:
        return Said(self.start, self.end, blocks, self.steps, self.item)


class Contents:
    """The tensors of a file, as entries too, and the place of each, None where it has no bytes."""

    def __init__(self, container: Torch, options: ReadOptions) -> None:
        self.container = container
        self.tensors = tensors = describe(container, options).tensors
        views = [view for _, view in container.listing.tensors]
        self.entries: list[Entry] = []
        self.places: list[Place | None] = []
        for tensor, view in zip(tensors, views, strict=False):
            self.entries.append(_entry(tensor, PICKLED))
            self.places.append(_place(container, tensor, view))
        for number, tensor in zip(container.arrays, tensors[len(views) :], strict=True):
            self.entries.append(_entry(tensor, ARRAY))
            member, array = container.directory.members[number], container.arrays[number]
            place = Place(member, array.start - member.start, array.end - member.start)
            self.places.append(place if tensor.nbytes else None)


def values(container: Torch, options: ReadOptions) -> dict[str, object]:
    """What a file holds beside its tensors, hashes of what is long.

    By the names of members below the folder: `data.pkl`, whatever the keys of
    storages; all that is neither a storage nor an array; and of a storage
    `data/<n>`, where it has bytes that are no tensor's; n counts the storages
    that the pickle names, `data/-<key>` is one that it does not name. Raises
    FormatError where members share bytes.
    """
    members = container.directory.members
    if zip_directory.overlapping(members, container.directory.start):
        raise FormatError("members share bytes", field="payload")
    content = partial(zip_directory.content, container.data, container.pickle_member, MAX_JSON)
    found: dict[str, object] = {
        PICKLE: pickle_digest.digest(container.pickle, lambda: mapped(content())),
        BYTEORDER: container.byteorder,
    }
    tensors = _members_of_tensors(container)
    for member in members:
        name = shown(container, member)
        is_told = member.entry in tensors or name in (PICKLE, BYTEORDER, *FROM_LAYOUT)
        if not is_told and not name.endswith("/"):
            blocks, size = _readable(container, member, options)
            found[name] = _short(blocks(), size)
    said: dict[int, list[Said]] = {}
    for place in dict.fromkeys(Contents(container, options).places):
        if place is not None:
            said.setdefault(place.member.entry, []).append(place.said())
    for entry, (name, member) in tensors.items():
        blocks, size = _readable(container, member, options)
        told = said.get(entry, [])
        overlay.refuse_bomb(told, size)
        rest = overlay.unsaid(blocks, size, told)
        if rest is not None:
            found[name] = rest
    return found


def _short(blocks: Iterable[Buffer], size: int) -> bytes:
    """A word or a number as it is, of anything longer the SHA-256."""
    if size <= MAX_WORD:
        return b"".join(blocks)
    found = sha256()
    for block in blocks:
        found.update(block)
    return found.digest()


def content_blocks(container: Torch, member: Member, options: ReadOptions) -> Iterator[Buffer]:
    """What a member holds, in pieces; raises FormatError."""
    most = max(options.max_chunk, member.end - member.start)
    return zip_directory.blocks(container.data, member, most)


def _members_of_tensors(container: Torch) -> dict[int, tuple[str, Member]]:
    """Storages and arrays, with the names that `values` has for them, by their entries."""
    found = {
        container.directory.members[number].entry: container.directory.members[number]
        for number in container.arrays
    }
    named = {entry: (shown(container, member), member) for entry, member in found.items()}
    numbers = {key: n for n, key in enumerate(dict.fromkeys(s.key for s in container.named))}
    for key, member in container.storages.items():
        name = f"{STORAGE}{numbers[key]}" if key in numbers else f"{STORAGE}-{key}"
        named[member.entry] = name, member
    return named


def shown(container: Torch, member: Member) -> str:
    """The member's name below the folder."""
    is_inside = member.name.startswith(container.folder)
    return member.name.removeprefix(container.folder) if is_inside else OUTSIDE + member.name


def _readable(
    container: Torch, member: Member, options: ReadOptions
) -> tuple[Callable[[], Iterator[Buffer]], int]:
    """What a member holds and its size; where that can't be read, its payload."""
    try:
        zip_directory.check_size(member, max(options.max_chunk, member.end - member.start))
    except FormatError:
        payload = container.data[member.start : member.end]
        return partial(pieces, payload), len(payload)
    return partial(content_blocks, container, member, options), member.size


def _entry(tensor: Tensor, kind: str) -> Entry:
    form = (
        kind,
        tensor.dtype,
        tensor.shape,
        tensor.element,
        tensor.order,
        tensor.byteorder,
        tensor.strides,
        tensor.absent,
    )
    held = None if isinstance(tensor.held, Packed) else tensor.held
    return Entry(tensor.name, form, held, tensor)


def _place(container: Torch, tensor: Tensor, view: View) -> Place | None:
    if view.storage is None or tensor.nbytes == 0:
        return None
    start, end = view.span()
    steps = None
    if view.dtype not in PACKED:
        steps = overlay.item_steps(view.shape, view.strides)
    return Place(container.storages[view.storage.key], start, end, steps, view.item)
