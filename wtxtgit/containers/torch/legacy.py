"""Files of torch.save before its zips: five pickles, then the storages.

The pickles are a magic number, a protocol version, facts about the writing machine, the saved
value, and the keys of the storages in the order of their bytes, each of which is an int64 count of
items and the items. Everything is little-endian. Such a file is stored whole: cutting it is not
defined. Spec: `docs/spec/torch.md`, "Legacy files"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from wtxtgit.containers.cursor import Cursor, ListingBudget, fail, quoted
from wtxtgit.containers.torch import listing, pickle_read, views
from wtxtgit.containers.torch.check import (
    check_loading,
    check_pickle,
    check_storages,
    check_views,
)
from wtxtgit.containers.torch.listing import PickledTensors
from wtxtgit.containers.torch.loading import refusals_of_value
from wtxtgit.containers.torch.pickle_read import List, Pickle
from wtxtgit.containers.torch.read import (
    MISSING,
    StorageBytes,
    by_value,
    global_names,
    tensor,
    views_of,
)
from wtxtgit.containers.torch.safe_globals import imports_of
from wtxtgit.containers.torch.values import values_of
from wtxtgit.containers.torch.views import Storage
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import Description, ReadOptions, Tensor

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
MAGIC_PICKLE = b"\x8a\x0a" + MAGIC.to_bytes(10, "little") + b"."
"""The magic number as the end of a pickle: LONG1, the number, STOP."""
PROTO = 0x80
PROTO_SIZE = 2
FRAME = 0x95
FRAME_SIZE = 9
COUNT_SIZE = 8
REASON = "legacy torch file (not a zip): it is stored whole"


class StoragePlace(NamedTuple):
    """The bytes [start, end) of a storage in its file."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, eq=False)
class Legacy:
    """A legacy file that was read; `storages` are their places by key.

    `end` is where the last storage ends, `start` where the value's pickle starts, `others` are the
    other pickles, the last two of them the facts and the storages' keys.
    """

    data: ByteView
    start: int
    others: tuple[Pickle, ...]
    pickle: Pickle
    listing: PickledTensors
    named: tuple[Storage, ...]
    storages: dict[str, StoragePlace]
    end: int
    byteorder: ClassVar[str] = "little"

    def find(self, storage: Storage) -> StorageBytes | str:
        place = self.storages.get(storage.key)
        if place is None:
            return MISSING
        return StorageBytes(self.data[place.start : place.end], place.start)

    def tensors(self, options: ReadOptions) -> Iterator[Tensor]:
        for name, view in self.listing.tensors:
            yield tensor(name, view, self.find, options.max_chunk)


def claims(data: ByteView) -> bool:
    """Whether a file starts like torch's legacy files."""
    head = bytes(data[: PROTO_SIZE + FRAME_SIZE + len(MAGIC_PICKLE)])
    start = PROTO_SIZE + (FRAME_SIZE if head[PROTO_SIZE : PROTO_SIZE + 1] == bytes([FRAME]) else 0)
    return head[:1] == bytes([PROTO]) and head[start:].startswith(MAGIC_PICKLE)


def read(data: ByteView, counts: ListingBudget | None = None) -> Legacy:
    """Read a legacy file; raises FormatError."""
    counts = counts or ListingBudget(len(data))
    load, saved = views.NamedStorages().load, views.NamedStorages()
    magic = pickle_read.parse(data, "magic", load, listing=counts)
    if magic.root != MAGIC:
        fail("magic is not that of a legacy torch file", offset=0, field="magic")
    # Pickles are contiguous: each shows where it ends.
    version = pickle_read.parse(data, "protocol version", load, start=magic.end, listing=counts)
    if version.root != PROTOCOL_VERSION:
        fail("protocol version is not 1001", offset=magic.end, field="protocol version")
    facts = pickle_read.parse(data, "system info", load, start=version.end, listing=counts)
    start = facts.end
    pickle = pickle_read.parse(data, "pickle", saved.load, start=start, listing=counts)
    listed = listing.list_tensors(pickle, start, "pickle", counts)
    keys = pickle_read.parse(data, "storage keys", saved.load, start=pickle.end, listing=counts)
    named = tuple(saved.named)
    storages, end = _storages(data, keys, named)
    others = magic, version, facts, keys
    return Legacy(data, start, others, pickle, listed, named, storages, end)


def describe(
    data: ByteView, options: ReadOptions, listing: ListingBudget | None = None
) -> Description:
    """List a legacy file's tensors; raises FormatError."""
    legacy = read(data, listing)
    return Description(
        "torch",
        tuple(map(by_value, legacy.tensors(options), views_of(legacy.listing))),
        {
            "reason": REASON,
            "protocol": legacy.pickle.protocol,
            "byteorder": legacy.byteorder,
            "globals": global_names(legacy.pickle),
            "storages": len(legacy.storages),
        },
        tags=legacy.listing.tags,
        untold=legacy.listing.untold,
        imports=imports_of(legacy.pickle),
        values=partial(values_of, legacy.pickle, 0, legacy.listing.tags),
    )


def check(data: ByteView) -> Findings:
    """Check a legacy file: there are no hashes in it. Raises nothing."""
    findings = Findings()
    try:
        legacy = read(data)
    except FormatError as error:
        findings.refuse(error)
        return findings
    places = {key: (place.start, place.size) for key, place in legacy.storages.items()}
    check_storages(findings, legacy.named, places, legacy.start)
    check_views(findings, legacy.listing.tensors, places)
    check_pickle(findings, legacy.pickle, legacy.start, "pickle")
    parts = (legacy.pickle, legacy.named, legacy.listing, legacy.start)
    check_loading(findings, *parts, "pickle", is_legacy=True)
    for other in legacy.others:
        for why in refusals_of_value(other):
            findings.error(why, "pickle", other.end)
        check_pickle(findings, other, other.end, "pickle")
    if legacy.end < len(data):
        findings.error(
            f"{len(data) - legacy.end} bytes follow the last storage", "storage", legacy.end
        )
    return findings


def _storages(
    data: ByteView, keys: Pickle, named: tuple[Storage, ...]
) -> tuple[dict[str, StoragePlace], int]:
    """Return where the storages are, and where the last one ends."""
    # The class in a key's first occurrence determines the size of its items.
    sizes: dict[str, int | None] = {}
    for storage in named:
        sizes.setdefault(storage.key, storage.item)
    cursor = Cursor(data, keys.end)
    places: dict[str, StoragePlace] = {}
    for key in _keys(keys):
        if key not in sizes:
            message = f"storage {quoted(key)} is not used by any tensor"
            fail(message, offset=keys.end, field="storage keys")
        if key in places:
            fail(
                f"storage {quoted(key)} appears more than once",
                offset=keys.end,
                field="storage keys",
            )
        size = sizes[key]
        if size is None:
            message = f"storage {quoted(key)} has an unknown class"
            fail(message, offset=keys.end, field="storage keys")
        count = cursor.integer(COUNT_SIZE, "numel", signed=True)
        start = cursor.skip(count * size, "storage")
        places[key] = StoragePlace(start, cursor.pos)
    return places, cursor.pos


def _keys(keys: Pickle) -> Iterator[str]:
    items = keys.root.items if isinstance(keys.root, List) else None
    if items is None:
        fail("storage keys are not a list", offset=keys.end, field="storage keys")
    for key in items:
        if not isinstance(key, str):
            fail("storage keys are not all strings", offset=keys.end, field="storage keys")
        yield key
