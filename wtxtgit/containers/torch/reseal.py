"""Writing a torch file anew with other bytes of its tensors.

The pickle is a program and is not written anew: what tensors there are, of
which dtypes, shapes and strides, and everything beside them stays as one of
the files has it.
Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import groupby

from wtxtgit.containers import zip_read, zip_write
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.torch import contents, overlay, zip_layout
from wtxtgit.containers.torch.contents import TensorPlace, TorchContents, shown, values
from wtxtgit.containers.torch.overlay import TensorSpan
from wtxtgit.containers.torch.read import SERIALIZATION_ID, Torch
from wtxtgit.containers.torch.zip_layout import ChangedMember
from wtxtgit.containers.zip_read import ZipMember
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

    Where it has not, or other `values`, that of the files placed is taken for
    it that has them all: one side may have gained a tensor. The order is that
    of the pickle. Raises FormatError before the first of the bytes.
    """
    files = _TensorFiles(options)
    written, contents = files.fit(container, placed, values)
    if not contents:
        return pieces(written.container.data)
    written.container.refuse_shared_bytes()
    changed = _changed(written, contents, options)
    if all(one.member.stored for one in changed):
        return zip_layout.in_place(written.container, changed)
    by_entry = {one.member.entry: one for one in changed}
    return zip_layout.laid_out(written.container, by_entry, options)


class _TensorFiles:
    """The files that tensors are taken from, each listed once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._files: dict[int, TorchContents] = {}
        self._checked: set[tuple[int, int]] = set()

    def of(self, container: object) -> TorchContents:
        if id(container) not in self._files:
            if not isinstance(container, Torch):
                raise FormatError("entries are those of another format", field="entries")
            self._files[id(container)] = TorchContents(container, self._options)
        return self._files[id(container)]

    def fit(
        self, container: Torch, placed: Sequence[PlacedEntry], wanted: Mapping[str, object] | None
    ) -> tuple[TorchContents, dict[int, NewContent]]:
        """The file to be written, and the bytes of its tensors that are not its own.

        Raises FormatError with the reason why `container` is not that file,
        where none is.
        """
        first = self.of(container)
        why = self._why_not(first, placed, wanted)
        if why is None:
            return first, self._contents(first, placed)
        if wanted is not None:
            for source in {id(one.source): one.source for one in placed}.values():
                other = self.of(source)
                if other is not first and self._why_not(other, placed, wanted) is None:
                    return other, self._contents(other, placed)
        raise why

    def _why_not(
        self,
        file: TorchContents,
        placed: Sequence[PlacedEntry],
        wanted: Mapping[str, object] | None,
    ) -> FormatError | None:
        # Names may be there more than once: they are paired in their order.
        own = dict(zip(_keys(file.entries), file.entries, strict=True))
        listed = [self.of(one.source).entries[one.number] for one in placed]
        given = dict(zip(_keys(listed), listed, strict=True))
        gained = next((name for name, n in given if (name, n) not in own), None)
        if gained is not None:
            return _refused(f"gain tensor {quoted(gained)}")
        for key, entry in own.items():
            name = quoted(entry.name)
            if key not in given:
                return _refused(f"lose tensor {name}")
            if given[key].form != entry.form:
                return _refused(f"give tensor {name} another dtype, shape or strides")
        if wanted is not None:
            by_member = values(file.container, self._options)
            missing = object()
            for member in {**by_member, **wanted}:
                if by_member.get(member, missing) != wanted.get(member, missing):
                    return _refused(f"take another {quoted(member)}")
        return None

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
    # Without CRC-32 the fingerprint is that of zeros, and stays.
    return changed + (
        _fingerprint(written.container, changed) if written.container.has_crc32 else []
    )


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


def _fingerprint(container: Torch, changed: Sequence[ChangedMember]) -> list[ChangedMember]:
    """torch's own fingerprint of all members, made anew where it was right."""
    member = container.member(SERIALIZATION_ID)
    size = 2 * contents.ID_DIGITS
    if member is None or member.size != size:
        return []
    old = bytes(zip_read.content(container.data, member, size))
    now = {one.member.entry: one.crc32 for one in changed}
    # torch passes over members that are empty.
    others = [m for m in container.directory.members if m is not member and m.size]
    fingerprint = contents.updated_id(
        old,
        (other.crc32 for other in others),
        (now.get(other.entry, other.crc32) for other in others),
    )
    if fingerprint == old:
        return []
    return [ChangedMember(member, partial(iter, (fingerprint,)), zip_write.crc32_of([fingerprint]))]


def _refused(what: str) -> FormatError:
    return FormatError(
        f"torch files can't {what}: only bytes of tensors are changed in them", field="entries"
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
        DEVICES: _devices(container),
        COMPRESSED: sorted(shown(container, member) for member in members if not member.stored),
        COMMENTS: comments,
        REPEATED: _hashes(container, repeated),
        FOLDERS: _hashes(container, folders),
    }
    beside = {name: value for name, value in parts.items() if value}
    return {**zip_write.rest(data, container.directory), **beside}


def _devices(container: Torch) -> object:
    runs = [
        [device, len(list(group))]
        for device, group in groupby(storage.device for storage in container.named)
    ]
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
