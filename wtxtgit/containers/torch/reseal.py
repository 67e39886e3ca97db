"""Rewriting a torch file with other bytes of its tensors.

The pickle is a program and is not rewritten: dtypes, shapes and strides of tensors, and everything
besides them, stay as one of the files has them. Tensors of another file to which nothing else
refers can be added to its dicts (`items`). Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from itertools import count, groupby

from wtxtgit.containers import zip_read, zip_write
from wtxtgit.containers.budget import refuse_long
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.torch import PICKLE, contents, overlay, zip_layout
from wtxtgit.containers.torch.contents import (
    TensorPlace,
    TorchContents,
    first_fitting,
    shown,
    values,
)
from wtxtgit.containers.torch.items import (
    FRAME,
    TensorItem,
    Versions,
    versions_behind,
    with_items,
)
from wtxtgit.containers.torch.overlay import TensorSpan
from wtxtgit.containers.torch.read import SERIALIZATION_ID, STORAGE, Torch
from wtxtgit.containers.torch.views import Storage
from wtxtgit.containers.torch.zip_layout import ChangedMember
from wtxtgit.containers.zip_read import ZipMember
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, hashed, pieces
from wtxtgit.model.tensor import Entry, Key, NewContent, PlacedEntry, ReadOptions, keys_of

__all__ = ["entries", "reseal", "rest", "values"]


DEVICES, COMPRESSED = "devices", "compressed"
COMMENTS, REPEATED, FOLDERS = "comments of members", "repeated members", "folders"


def entries(container: Torch, options: ReadOptions) -> list[Entry]:
    """Return the tensors of a file, in the order of its description."""
    return TorchContents(container, options).entries


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
    written = _TensorFiles(options).fit(container, placed, values)
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
    if all(one.member.stored for one in changed):
        return zip_layout.in_place(file.container, changed)
    return zip_layout.laid_out(file.container, _by_entry(changed), options)


def _by_entry(changed: Iterable[ChangedMember]) -> dict[int, ChangedMember]:
    return {one.member.entry: one for one in changed}


@dataclass(slots=True)
class _FittingFile:
    """The file to be written, new bytes for its tensors, and what is added to it.

    `gained` are added tensors with their bytes, `versions` what is said of modules.
    """

    file: TorchContents
    contents: dict[int, NewContent]
    gained: list[tuple[TensorItem, NewContent]]
    versions: dict[str, Versions]

    @property
    def is_larger(self) -> bool:
        return bool(self.gained or self.versions)


class _TensorFiles:
    """The files from which tensors are taken, each listed once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._files: dict[int, TorchContents] = {}
        self._checked: set[tuple[int, int]] = set()

    def of(self, container: object) -> TorchContents:
        if id(container) not in self._files:
            if not isinstance(container, Torch):
                raise FormatError("entries belong to another format", field="entries")
            self._files[id(container)] = TorchContents(container, self._options)
        return self._files[id(container)]

    def fit(
        self, container: Torch, placed: Sequence[PlacedEntry], wanted: Mapping[str, object] | None
    ) -> _FittingFile:
        """Return the file to be written, with everything that is not its own.

        If no file fits, raises FormatError with the reason why `container` does not.
        """
        files = [self.of(one) for one in (container, *(one.source for one in placed))]
        values_of_container = cache(partial(values, container, self._options))

        def added(file: TorchContents) -> tuple[dict[int, TensorItem], dict[str, Versions]]:
            is_other = file.container is not container
            told = values_of_container() if wanted is None and is_other else wanted
            return self._gained(file, placed), self._versions(file, told)

        file, (gained, versions) = first_fitting(files, lambda file: (file, added(file)))
        if (gained or versions) and FRAME in file.container.pickle.opcodes:
            raise _refused("gain anything if their pickles are in frames")
        there = [one for place, one in enumerate(placed) if place not in gained]
        contents = self._contents(file, there)
        items = [(item, self._bytes_of(placed[place])) for place, item in gained.items()]
        return _FittingFile(file, contents, items, versions)

    def _gained(self, file: TorchContents, placed: Sequence[PlacedEntry]) -> dict[int, TensorItem]:
        """Return which tensors, by their places in `placed`, are added to a file's dicts.

        Raises FormatError if the file can't have exactly these tensors.
        """
        # Names may be repeated: they are paired in their order.
        own = dict(zip(_keys(file.entries), file.entries, strict=True))
        listed = [self.of(one.source).entries[one.number] for one in placed]
        given = dict(zip(_keys(listed), enumerate(listed), strict=True))
        for key, entry in own.items():
            name = quoted(entry.name)
            if key not in given:
                raise _refused(f"lose tensor {name}")
            if given[key][1].form != entry.form:
                raise _refused(f"change the dtype, shape or strides of tensor {name}")
        return {
            place: self._item(file, self.of(placed[place].source), entry.name)
            for key, (place, entry) in given.items()
            if key not in own
        }

    def _item(self, file: TorchContents, source: TorchContents, name: str) -> TensorItem:
        """Return a tensor of another file that a dict of this one can hold; raises FormatError."""
        item = source.items.tensors.get(name)
        if item is None or item.path not in file.items.dicts:
            raise _refused(f"gain tensor {quoted(name)}")
        if file.items.has_key(item.path, item.key):
            raise _refused(f"gain tensor {quoted(name)}")
        if source.container.byteorder != file.container.byteorder:
            raise _refused(f"gain tensor {quoted(name)}, whose byte order differs")
        return item

    def _versions(
        self, file: TorchContents, wanted: Mapping[str, object] | None
    ) -> dict[str, Versions]:
        """Return what is said of modules that this file does not say; raises FormatError.

        Also raises it if the file has another value than is `wanted`; None stands for the file's
        own.
        """
        if wanted is None:
            return {}
        by_member = values(file.container, self._options)
        missing = object()
        further: dict[str, Versions] = {}
        for member in {**by_member, **wanted}:
            before, after = by_member.get(member, missing), wanted.get(member, missing)
            if before == after:
                continue
            more = versions_behind(before, after) if member in file.items.versions else None
            if more is None:
                raise _refused(f"change {quoted(member)}")
            further[member] = more
        return further

    def _contents(
        self, written: TorchContents, placed: Sequence[PlacedEntry]
    ) -> dict[int, NewContent]:
        """Return, by number, the bytes of tensors that are not the file's own."""
        numbers = {key: n for n, key in enumerate(_keys(written.entries))}
        contents: dict[int, NewContent] = {}
        listed = [self.of(one.source).entries[one.number] for one in placed]
        for one, key in zip(placed, _keys(listed), strict=True):
            source, number = self.of(one.source), numbers[key]
            size = written.tensors[number].nbytes
            if one.content is not None and one.content.nbytes != size:
                raise FormatError(
                    f"tensor {quoted(key[0])} has {size} bytes, not {one.content.nbytes}",
                    field="entries",
                )
            if one.content is not None:
                content = one.content
            elif source is written and one.number == number:
                continue
            else:
                content = self._taken(source, one.number)
            if written.places[number] is not None:
                contents[number] = content
        return contents

    def _bytes_of(self, one: PlacedEntry) -> NewContent:
        """Return the bytes of a tensor that is added to a file; raises FormatError."""
        source = self.of(one.source)
        size = source.tensors[one.number].nbytes
        content = one.content or self._taken(source, one.number)
        if content.nbytes != size:
            name = quoted(source.tensors[one.number].name)
            raise FormatError(
                f"tensor {name} has {size} bytes, not {content.nbytes}", field="entries"
            )
        return content

    def _taken(self, source: TorchContents, number: int) -> NewContent:
        """Return the bytes of a tensor of another file, whose storage must not be damaged."""
        place, container = source.places[number], source.container
        if place is not None and (id(source), place.member.entry) not in self._checked:
            self._checked.add((id(source), place.member.entry))
            zip_layout.check_crc32(container, place.member, self._options)
        tensor = source.tensors[number]
        return NewContent(tensor.nbytes, lambda: pieces(tensor.view))


def _keys(entries: Iterable[Entry]) -> Iterator[Key]:
    return keys_of(entry.name for entry in entries)


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
    written: _FittingFile, changed: list[ChangedMember], options: ReadOptions
) -> tuple[list[ChangedMember], dict[int, list[NewMember]]]:
    """Return the changed members of a file to which something is added, and its new storages.

    The storages are by the entry of the member that they follow: the last storage, or the pickle.
    """
    container = written.file.container
    pickle, keys = container.pickle_member, _new_keys(container)
    gained = [(item, next(keys), content) for item, content in written.gained]
    raw = bytes(zip_read.content(container.data, pickle, MAX_JSON))
    start = pickle.start if pickle.stored else 0
    tensors = [(item, key) for item, key, _ in gained]
    raw = with_items(raw, start, written.file.items, tensors, written.versions)
    refuse_long(len(raw), MAX_JSON, PICKLE, PICKLE)
    changed.append(
        ChangedMember(pickle, partial(iter, (raw,)), zip_write.crc32_of([raw]), len(raw))
    )
    storages = [
        zip_layout.new_member(
            f"{container.folder}{STORAGE}{key}".encode(), content.nbytes, content.blocks
        )
        for _, key, content in gained
    ]
    last = max((m.entry for m in container.storages.values()), default=pickle.entry)
    added = {last: storages}
    changed += _fingerprint(container, changed, added)
    return changed, added


def _new_keys(container: Torch) -> Iterator[str]:
    """Yield keys that no storage has, counting as torch does."""
    taken = {storage.key for storage in container.named} | container.storages.keys()
    return (key for key in map(str, count(len(taken))) if key not in taken)


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
        here = (added or {}).get(other.entry, ())
        now += [zip_write.crc32_of(new.payload()) for new in here if new.size]
    fingerprint = contents.updated_id(old, (other.crc32 for other in others), now)
    if fingerprint == old:
        return []
    return [ChangedMember(member, partial(iter, (fingerprint,)), zip_write.crc32_of([fingerprint]))]


def _refused(what: str) -> FormatError:
    return FormatError(
        f"torch files can't {what}: their pickles are only added to", field="entries"
    )


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
    told = (storage.device for storage in named if storage.key not in of_items)
    runs = [[device, len(list(group))] for device, group in groupby(told)]
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
