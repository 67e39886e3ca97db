"""Writing a torch file anew with other bytes of its tensors.

The pickle is a program and is not written anew: which dtypes, shapes and
strides tensors have, and everything beside them, stays as one of the files has
it. Tensors of another file that nothing else refers to can come to its dicts
(`items`).
Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import count, groupby

from wtxtgit.containers import zip_read, zip_write
from wtxtgit.containers.budget import refuse_long
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.torch import PICKLE, contents, overlay, zip_layout
from wtxtgit.containers.torch.contents import TensorPlace, TorchContents, shown, values
from wtxtgit.containers.torch.items import (
    FRAME,
    TensorItem,
    Versions,
    versions_behind,
    with_items,
)
from wtxtgit.containers.torch.overlay import TensorSpan
from wtxtgit.containers.torch.read import SERIALIZATION_ID, STORAGE, Torch
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
    """The tensors of a file, in the order of its description."""
    return TorchContents(container, options).entries


def reseal(
    container: Torch,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """The bytes of a file that has these tensors, all of those that it has.

    Where it can't have them, or other `values`, that of the files placed is taken for
    it that can. The order is that of the pickle: what comes to it stands behind the rest of its
    dict. Raises FormatError before the first of the bytes.
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
        # Without CRC-32 the fingerprint is that of zeros, and stays.
        changed += _fingerprint(file.container, changed)
    if all(one.member.stored for one in changed):
        return zip_layout.in_place(file.container, changed)
    return zip_layout.laid_out(file.container, _by_entry(changed), options)


def _by_entry(changed: Iterable[ChangedMember]) -> dict[int, ChangedMember]:
    return {one.member.entry: one for one in changed}


@dataclass(slots=True)
class _FittingFile:
    """The file to be written, the bytes of its tensors that are not its own, and what comes to it.

    `gained` are tensors with their bytes, `versions` what is said of modules.
    """

    file: TorchContents
    contents: dict[int, NewContent]
    gained: list[tuple[TensorItem, NewContent]]
    versions: dict[str, Versions]

    @property
    def is_larger(self) -> bool:
        return bool(self.gained or self.versions)


class _TensorFiles:
    """The files that tensors are taken from, each listed once."""

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
        """The file to be written, with what is not its own.

        Raises FormatError with the reason why `container` is not that file,
        where none is.
        """
        sources = {id(one.source): one.source for one in placed}
        files = {id(one): one for one in map(self.of, (container, *sources.values()))}
        why: FormatError | None = None
        for file in files.values():
            if file.container is not container and wanted is None:
                wanted = values(container, self._options)
            try:
                gained = self._gained(file, placed)
                versions = self._versions(file, wanted)
            except FormatError as error:
                why = why or error
                continue
            if (gained or versions) and FRAME in file.container.pickle.opcodes:
                raise _refused("gain anything if their pickles are in frames")
            there = [one for place, one in enumerate(placed) if place not in gained]
            contents = self._contents(file, there)
            items = [(item, self._bytes_of(placed[place])) for place, item in gained.items()]
            return _FittingFile(file, contents, items, versions)
        raise why or _refused("have no file")

    def _gained(self, file: TorchContents, placed: Sequence[PlacedEntry]) -> dict[int, TensorItem]:
        """Which of the tensors, by their places in `placed`, come to a file as items of its dicts.

        Raises FormatError where the file can't have just these tensors.
        """
        # Names may be there more than once: they are paired in their order.
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
        """A tensor of another file that a dict of this one can hold; raises FormatError."""
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
        """What is said of modules that is not said in this file; raises FormatError.

        Nor may the file have another value than is `wanted`, None for those of the file itself.
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
        """The bytes of tensors that are not to be the file's own, by number."""
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
        """The bytes of a tensor that comes to a file; raises FormatError."""
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
        """The bytes of a tensor of another file, whose storage must not be damaged."""
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
    """The members that other contents change; each is put together once, to see that it can be."""
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
    """The changed members of a file to which something comes, and new storages, with the last one.

    The last one is known by its entry.
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
    """Keys that no storage has, as torch counts them."""
    taken = {storage.key for storage in container.named} | container.storages.keys()
    return (key for key in map(str, count(len(taken))) if key not in taken)


def _spans_of(
    written: TorchContents, contents: Mapping[int, NewContent], members: set[int]
) -> dict[int, list[TensorSpan]]:
    """The spans of tensors in these members; of equal ones that keep their bytes only one."""
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
    """torch's own fingerprint of all members, made anew where it was right."""
    member = container.member(SERIALIZATION_ID)
    size = 2 * contents.ID_DIGITS
    if member is None or member.size != size:
        return []
    old = bytes(zip_read.content(container.data, member, size))
    by_entry = _by_entry(changed)
    # torch passes over members that are empty.
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
    """What the zip has beside its members, and what `values` does not tell of these.

    Where storages are: one word where they are all on one device, else each
    device with how many of them follow one another there. Names of compressed
    members, their comments, and hashes of members that are not told by their
    names: folders, and all but the last of one name. The folder that all are
    in is none of that: it is called as the file was when it was saved. Raises
    FormatError where members share bytes.
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
        DEVICES: _devices(container, TorchContents(container, options).items.storages),
        COMPRESSED: sorted(shown(container, member) for member in members if not member.stored),
        COMMENTS: comments,
        REPEATED: _hashes(container, repeated),
        FOLDERS: _hashes(container, folders),
    }
    beside = {name: value for name, value in parts.items() if value}
    return {**zip_write.rest(data, container.directory), **beside}


def _devices(container: Torch, of_items: Set[str]) -> object:
    devices = (storage.device for storage in container.named if storage.key not in of_items)
    runs = [[device, len(list(group))] for device, group in groupby(devices)]
    return runs[0][0] if len(runs) == 1 else runs


def _hashes(container: Torch, members: Iterable[ZipMember]) -> list[tuple[str, bytes]]:
    """Names of members, with the SHA-256 of their payloads as they are stored."""
    return [
        (
            shown(container, member),
            hashed(sha256(), pieces(container.data[member.start : member.end])).digest(),
        )
        for member in members
    ]
