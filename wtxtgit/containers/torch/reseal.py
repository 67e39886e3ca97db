"""Rewriting a torch file with other bytes of its tensors.

The pickle is a program and is not rewritten: dtypes, shapes and strides of tensors, and everything
besides them, stay as one of the files has them. Tensors of another file to which nothing else
refers can be added to its dicts (`items`). Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import groupby

from wtxtgit.containers import zip_read, zip_write
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.torch import contents, overlay, zip_layout
from wtxtgit.containers.torch.contents import TensorPlace, TorchContents, shown
from wtxtgit.containers.torch.overlay import TensorSpan
from wtxtgit.containers.torch.read import SERIALIZATION_ID, STORAGE, Torch
from wtxtgit.containers.torch.sources import FittingFile, TensorFiles
from wtxtgit.containers.torch.views import Storage
from wtxtgit.containers.torch.zip_layout import ChangedMember
from wtxtgit.containers.zip_read import ZipMember
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.io.view import Buffer, hashed, pieces
from wtxtgit.model.tensor import Entry, NewContent, PlacedEntry, ReadOptions

DEVICES, COMPRESSED = "devices", "compressed"
COMMENTS, REPEATED, FOLDERS = "comments of members", "repeated members", "folders"


def entries(container: Torch, options: ReadOptions) -> list[Entry]:
    """Return the tensors of a file, in the order of its description."""
    return TorchContents(container, options).entries


def values(container: Torch, options: ReadOptions) -> dict[str, object]:
    """Return what a file holds besides its tensors; raises FormatError."""
    return TorchContents(container, options).values()


def reseal(
    container: Torch,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """Yield the bytes of a file that has exactly these tensors.

    If `container` can't have them, or these `values`, one of the other source files is used instead
    that can. The order is that of the pickle: added items come last in their dict. Raises
    FormatError before yielding anything.
    """
    written = TensorFiles(TorchContents, options).fit(container, placed, values)
    file = written.file
    if not written.contents and not written.is_larger:
        return pieces(file.container.data)
    file.container.refuse_shared_bytes()
    changed = _changed(file, written.contents, options)
    if written.is_larger:
        changed, added = _larger(written, changed, options)
        return zip_layout.laid_out(file.container, _by_entry(changed), options, added=added)
    if file.container.has_crc32:
        # Without CRC-32s the fingerprint is that of zeros, and does not change.
        changed += _fingerprint(file.container, changed)
    if all(change.member.stored for change in changed):
        return zip_layout.in_place(file.container, changed)
    return zip_layout.laid_out(file.container, _by_entry(changed), options)


def _by_entry(changed: Iterable[ChangedMember]) -> dict[int, ChangedMember]:
    return {change.member.entry: change for change in changed}


def _changed(
    written: TorchContents,
    contents: Mapping[int, NewContent],
    options: ReadOptions,
) -> list[ChangedMember]:
    """Return the members that new contents change.

    The bytes of each are produced once, for its CRC-32 and to see that they can be.
    """
    touched = {
        place.member.entry: place.member
        for place in (written.places[number] for number in contents)
        if place is not None
    }
    changed: list[ChangedMember] = []
    for entry, spans in _spans_of(written, contents, set(touched)).items():
        member = touched[entry]
        overlay.refuse_bomb(spans, member.size)
        zip_layout.check_crc32(written.container, member, options)
        old = partial(written.container.blocks, member, options)
        blocks = partial(overlay.overlaid, old, member.size, spans)
        changed.append(ChangedMember(member, blocks, zip_write.crc32_of(blocks())))
    return changed


def _larger(
    written: FittingFile[TorchContents], changed: list[ChangedMember], options: ReadOptions
) -> tuple[list[ChangedMember], dict[int, list[NewMember]]]:
    """Return the changed members of a file to which something is added, and its new storages.

    The storages are by the entry of the member that they follow: the last storage, or the pickle.
    """
    container = written.file.container
    pickle = container.pickle_member
    raw = bytes(zip_read.content(container.data, pickle, MAX_JSON))
    raw = written.larger_pickle(raw, pickle.start if pickle.stored else 0)
    changed.append(
        ChangedMember(pickle, partial(iter, (raw,)), zip_write.crc32_of([raw]), len(raw))
    )
    storages = [
        zip_layout.new_member(
            f"{container.folder}{STORAGE}{key}".encode(), content.nbytes, content.blocks
        )
        for _, key, content in written.gained
    ]
    last = max((m.entry for m in container.storages.values()), default=pickle.entry)
    added = {last: storages}
    changed += _fingerprint(container, changed, added)
    return changed, added


def _spans_of(
    written: TorchContents, contents: Mapping[int, NewContent], members: set[int]
) -> dict[int, list[TensorSpan]]:
    """Return the spans of tensors in these members; of equal unchanged ones only one."""
    by_member: dict[int, list[TensorSpan]] = {}
    kept: set[TensorPlace] = set()
    for number, place in enumerate(written.places):
        if place is None or place.member.entry not in members:
            continue
        content = contents.get(number)
        if content is not None:
            span = replace(place.span, blocks=content.blocks)
        elif place in kept:
            continue
        else:
            kept.add(place)
            span = place.span
        by_member.setdefault(place.member.entry, []).append(span)
    return by_member


def _fingerprint(
    container: Torch,
    changed: Sequence[ChangedMember],
    added: Mapping[int, Sequence[NewMember]] | None = None,
) -> list[ChangedMember]:
    """Return a change of torch's own fingerprint of all members, if it was right and changes."""
    member = container.member(SERIALIZATION_ID)
    size = 2 * contents.ID_DIGITS
    if member is None or member.size != size:
        return []
    old = bytes(zip_read.content(container.data, member, size))
    by_entry = _by_entry(changed)
    # torch skips empty members.
    others = [m for m in container.directory.members if m is not member and m.size]
    now: list[int] = []
    for other in container.directory.members:
        one = by_entry.get(other.entry)
        if other is not member and (other.size if one is None else one.size or other.size):
            now.append(other.crc32 if one is None else one.crc32)
        added_here = (added or {}).get(other.entry, ())
        now += [zip_write.crc32_of(new.payload()) for new in added_here if new.size]
    fingerprint = contents.updated_id(old, (other.crc32 for other in others), now)
    if fingerprint == old:
        return []
    return [ChangedMember(member, partial(iter, (fingerprint,)), zip_write.crc32_of([fingerprint]))]


def rest(container: Torch, options: ReadOptions) -> dict[str, object]:
    """Return what the zip has besides its members, and what `values` omits about these.

    Devices of storages: one word if they are all on one device, else each device with how many
    follow one another there. Also names of compressed members, their comments, and hashes of
    members that can't be identified by name: folders, and all but the last of one name. The common
    folder is not included: its name is that of the file when it was saved. Raises FormatError if
    members share bytes.
    """
    container.refuse_shared_bytes()
    data, members = container.data, container.directory.members
    counts = Counter(member.name for member in members)
    folders: list[ZipMember] = []
    repeated: list[ZipMember] = []
    for member in members:
        counts[member.name] -= 1
        if counts[member.name]:
            repeated.append(member)
        elif member.name.endswith("/") and member.name != container.folder:
            folders.append(member)
    comments = {
        shown(container, member): comment
        for member in members
        if (comment := zip_write.kept(data, member).comment)
    }
    parts: dict[str, object] = {
        DEVICES: devices(container.named, TorchContents(container, options).items.storages),
        COMPRESSED: sorted(shown(container, member) for member in members if not member.stored),
        COMMENTS: comments,
        REPEATED: _hashes(container, repeated),
        FOLDERS: _hashes(container, folders),
    }
    beside = {name: value for name, value in parts.items() if value}
    return {**zip_write.rest(data, container.directory), **beside}


def devices(named: Iterable[Storage], of_items: Set[str] = frozenset()) -> object:
    """Return the devices of storages, in their order, without those of items, as in `rest`."""
    devices_in_order = (storage.device for storage in named if storage.key not in of_items)
    runs = [[device, len(list(group))] for device, group in groupby(devices_in_order)]
    return runs[0][0] if len(runs) == 1 else runs


def _hashes(container: Torch, members: Iterable[ZipMember]) -> list[tuple[str, bytes]]:
    """Return names of members, with the SHA-256 of their stored payloads."""
    return [
        (
            shown(container, member),
            hashed(sha256(), pieces(container.data[member.start : member.end])).digest(),
        )
        for member in members
    ]
