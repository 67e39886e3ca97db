"""Files from which a torch file is made: which of them is written, and what is added to it.

The same for zips and for legacy files, which differ in where they have the bytes of storages.
Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, Generic, TypeVar

from wtxtgit.containers.budget import refuse_long
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.torch import PICKLE
from wtxtgit.containers.torch.items import (
    TensorItem,
    Versions,
    items_of,
    versions_behind,
    with_items,
)
from wtxtgit.containers.torch.legacy import Legacy
from wtxtgit.containers.torch.read import Torch
from wtxtgit.errors import FormatError
from wtxtgit.io.view import pieces
from wtxtgit.model.tensor import (
    Entry,
    Key,
    NewContent,
    PackedBytes,
    PlacedEntry,
    ReadOptions,
    Tensor,
    keys_of,
)

PICKLED = "pickle"
ARRAY = "npy"


class FileContents(ABC):
    """The tensors of a file, also as entries, and which of them are items."""

    def __init__(
        self, container: Torch | Legacy, options: ReadOptions, arrays: Iterable[Tensor] = ()
    ) -> None:
        self.container = container
        self.options = options
        # In the form of their storages: conjugated or negated values could not be written there.
        pickled, arrays = tuple(container.tensors(options)), tuple(arrays)
        self.tensors = (*pickled, *arrays)
        names = Counter(tensor.name for tensor in self.tensors if tensor.absent is None)
        self.items = items_of(container, names)
        items = (self.items.tensors.get(tensor.name) for tensor in pickled)
        self.entries = [
            *(
                _entry(tensor, PICKLED, None if item is None else item.form)
                for tensor, item in zip(pickled, items, strict=True)
            ),
            *(_entry(tensor, ARRAY) for tensor in arrays),
        ]

    @abstractmethod
    def values(self) -> dict[str, object]:
        """Return what the file holds besides its tensors."""

    @abstractmethod
    def is_framed(self) -> bool:
        """Whether a pickle to which something would be added is in frames."""

    @abstractmethod
    def refuse_damaged(self, number: int) -> None:
        """Raise FormatError if a tensor's bytes are not those that were saved."""


def _entry(tensor: Tensor, kind: str, item: Hashable = None) -> Entry:
    """Return a tensor as an entry; `kind` and `item` say what else its form depends on."""
    form = (
        kind,
        item,
        tensor.dtype,
        tensor.shape,
        tensor.element,
        tensor.order,
        tensor.byteorder,
        tensor.strides,
        tensor.absent,
    )
    stored = None if isinstance(tensor.held, PackedBytes) else tensor.held
    return Entry(tensor.name, form, stored, tensor)


_File = TypeVar("_File", bound=FileContents)


@dataclass(slots=True)
class FittingFile(Generic[_File]):
    """The file to be written, new bytes for its tensors, and what is added to it.

    `gained` are added tensors with the keys of their new storages and their bytes, `versions` what
    is said of modules.
    """

    file: _File
    contents: dict[int, NewContent]
    gained: list[tuple[TensorItem, str, NewContent]]
    versions: dict[str, Versions]

    @property
    def is_larger(self) -> bool:
        return bool(self.gained or self.versions)

    def larger_pickle(self, raw: bytes, start: int) -> bytes:
        """Return the pickle `raw`, read at `start`, with what is added; raises FormatError."""
        tensors = [(item, key) for item, key, _ in self.gained]
        raw = with_items(raw, start, self.file.items, tensors, self.versions)
        refuse_long(len(raw), MAX_JSON, PICKLE, PICKLE)
        return raw


class TensorFiles(Generic[_File]):
    """The files from which tensors are taken, each listed once by `open_contents`."""

    def __init__(
        self, open_contents: Callable[[Any, ReadOptions], _File], options: ReadOptions
    ) -> None:
        self._open = open_contents
        self._options = options
        self._files: dict[int, _File] = {}

    def of(self, container: object) -> _File:
        if id(container) not in self._files:
            self._files[id(container)] = self._open(container, self._options)
        return self._files[id(container)]

    def fit(
        self,
        container: object,
        placed: Sequence[PlacedEntry],
        new_values: Mapping[str, object] | None,
    ) -> FittingFile[_File]:
        """Return the file to be written, with everything that is not its own.

        If no file fits, raises FormatError with the reason why `container` does not.
        """
        sources = {id(one): one for one in (container, *(entry.source for entry in placed))}
        if any(type(source) is not type(container) for source in sources.values()):
            raise FormatError("entries belong to another format", field="entries")
        values_of_container = cache(self.of(container).values)
        refusals: list[FormatError] = []
        for file in map(self.of, sources.values()):
            is_other = file.container is not container
            values = values_of_container() if new_values is None and is_other else new_values
            try:
                gained, versions = self._gained(file, placed), self._versions(file, values)
                if (gained or versions) and file.is_framed():
                    raise _refused("gain anything if their pickles are in frames")
            except FormatError as error:
                refusals.append(error)
                continue
            own = [one for place, one in enumerate(placed) if place not in gained]
            keys = _new_keys(file.container)
            items = [
                (item, next(keys), self._bytes_of(placed[place])) for place, item in gained.items()
            ]
            return FittingFile(file, self._contents(file, own), items, versions)
        raise refusals[0]

    def _gained(self, file: _File, placed: Sequence[PlacedEntry]) -> dict[int, TensorItem]:
        """Return which tensors, by their places in `placed`, are added to a file's dicts.

        Raises FormatError if the file can't have exactly these tensors.
        """
        # Names may be repeated: they are paired in their order.
        own = dict(zip(_keys(file.entries), file.entries, strict=True))
        listed = [self.of(entry.source).entries[entry.number] for entry in placed]
        by_key = dict(zip(_keys(listed), enumerate(listed), strict=True))
        for key, entry in own.items():
            name = quoted(entry.name)
            if key not in by_key:
                raise _refused(f"lose tensor {name}")
            if by_key[key][1].form != entry.form:
                raise _refused(f"change the dtype, shape or strides of tensor {name}")
        return {
            place: self._item(file, self.of(placed[place].source), entry.name)
            for key, (place, entry) in by_key.items()
            if key not in own
        }

    def _item(self, file: _File, source: _File, name: str) -> TensorItem:
        """Return a tensor of another file that a dict of this one can hold; raises FormatError."""
        item = source.items.tensors.get(name)
        if item is None or item.path not in file.items.dicts:
            raise _refused(f"gain tensor {quoted(name)}")
        if file.items.has_key(item.path, item.key):
            raise _refused(f"gain tensor {quoted(name)}")
        if source.container.byteorder != file.container.byteorder:
            raise _refused(f"gain tensor {quoted(name)}, whose byte order differs")
        return item

    def _versions(self, file: _File, values: Mapping[str, object] | None) -> dict[str, Versions]:
        """Return the versions of modules that `values` have and this file lacks.

        Without `values`, the file's own are kept. Raises FormatError for any other difference.
        """
        if values is None:
            return {}
        by_name = file.values()
        missing = object()
        further: dict[str, Versions] = {}
        for name in {**by_name, **values}:
            before, after = by_name.get(name, missing), values.get(name, missing)
            if before == after:
                continue
            more = versions_behind(before, after) if name in file.items.versions else None
            if more is None:
                raise _refused(f"change {quoted(name)}")
            further[name] = more
        return further

    def _contents(self, written: _File, placed: Sequence[PlacedEntry]) -> dict[int, NewContent]:
        """Return, by number, the bytes of tensors that are not the file's own."""
        numbers = {key: n for n, key in enumerate(_keys(written.entries))}
        contents: dict[int, NewContent] = {}
        listed = [self.of(entry.source).entries[entry.number] for entry in placed]
        for one, key in zip(placed, _keys(listed), strict=True):
            number = numbers[key]
            is_kept = one.content is None and one.number == number
            if is_kept and self.of(one.source) is written:
                continue
            content = self._bytes_of(one)
            if written.tensors[number].nbytes:
                contents[number] = content
        return contents

    def _bytes_of(self, entry: PlacedEntry) -> NewContent:
        """Return the bytes that a tensor is to have; raises FormatError if they do not fit it."""
        source = self.of(entry.source)
        tensor = source.tensors[entry.number]
        if entry.content is None:
            source.refuse_damaged(entry.number)
            return NewContent(tensor.nbytes, lambda: pieces(tensor.view))
        if entry.content.nbytes != tensor.nbytes:
            name, size = quoted(tensor.name), tensor.nbytes
            raise FormatError(
                f"tensor {name} has {size} bytes, not {entry.content.nbytes}", field="entries"
            )
        return entry.content


def _keys(entries: Iterable[Entry]) -> Iterator[Key]:
    return keys_of(entry.name for entry in entries)


def _new_keys(container: Torch | Legacy) -> Iterator[str]:
    """Yield keys that no storage has, counting as torch does."""
    used = {storage.key for storage in container.named} | container.storages.keys()
    return (key for key in map(str, count(len(used))) if key not in used)


def _refused(what: str) -> FormatError:
    return FormatError(
        f"torch files can't {what}: their pickles are only added to", field="entries"
    )
