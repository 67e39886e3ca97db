"""`.metadata` of torch's distributed checkpoints: which tensors there are, and where their chunks.

It is a pickle of `torch.distributed.checkpoint.metadata.Metadata`. Its opcodes are read like those
of any pickle, and nothing runs: objects of the classes that torch writes there are interpreted by
their names and attributes. A pickle that names anything else could only be read by running it, and
is refused with that name. Spec: `docs/spec/torch.md`, "Distributed checkpoints";
torch/distributed/checkpoint/metadata.py and filesystem.py of torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from wtxtgit.containers import json_text
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.format import MAX_SET_FILES, is_in_folder
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.tensor_chunks import ChunkBox
from wtxtgit.containers.torch import pickle_read
from wtxtgit.containers.torch.pickle_read import CallResult, Dict, Global, List
from wtxtgit.containers.torch.values import plain
from wtxtgit.containers.torch.views import SIZES, dtype_name, is_size, sizes
from wtxtgit.errors import PICKLE
from wtxtgit.io.view import ByteView

FIELD = ".metadata"
METADATA = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"
_SHARDED = "torch.distributed._shard.sharded_tensor.metadata"
"""The module with the properties of tensors in torch 2.0 and 2.1."""
_HEAD = 128
"""The name of the class is within this many bytes."""
# PROTO, an optional FRAME, and the class: an object's pickle starts with them.
_START = re.compile(
    rb"\x80[\x02-\x05](?:\x95.{8})?(?:c|\x8c%c)%b(?:\n|\x94?\x8c\x08\x94?)Metadata"
    % (len(METADATA), re.escape(METADATA.encode())),
    re.DOTALL,
)
_CLASSES = {
    METADATA: (
        "Metadata",
        "TensorStorageMetadata",
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "TensorProperties",
        "MetadataIndex",
        "StorageMeta",
        "_MEM_FORMAT_ENCODING",
    ),
    _SHARDED: ("TensorProperties", "MEM_FORMAT_ENCODING"),
    FILESYSTEM: ("_StorageInfo", "_StoragePrefix"),
    "torch": ("Size", *SIZES),
    "torch.serialization": ("_get_layout",),
    "collections": ("OrderedDict",),
    **dict.fromkeys(
        ("pathlib", "pathlib._local"),
        ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath"),
    ),
}
_KNOWN = {(module, name) for module, names in _CLASSES.items() for name in names}
# More attributes than the largest of these classes has; a limit, as a file may refer to one dict
# many times.
_MOST_ATTRIBUTES = 16
_MOST_TRANSFORMS = 8
_PLAN = "planner_data"
_READ = {"state_dict_metadata", "storage_data", "version"}
_SET_ANEW = {"checkpoint_id", "save_id", "load_id"}
"""Attributes of StorageMeta that each save sets."""

Place = tuple[str, tuple[int, ...] | None]
"""The name of a tensor or value; for a tensor's chunk also the index of its first item."""


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor as the metadata list it."""

    dtype: str
    shape: tuple[int, ...]
    boxes: tuple[ChunkBox, ...]


@dataclass(frozen=True, slots=True)
class SavedItem:
    """Where a chunk or a value is saved: `length` bytes of a file from `start` on.

    `transforms` are the extensions that were applied to the bytes.
    """

    path: str
    start: int
    length: int
    transforms: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True, eq=False)
class DistributedMetadata:
    """The content of `.metadata`: tensors by name, names of other values, and all their places.

    `others` is what else it says, as plain data, without what each save sets anew; `of_items` what
    it says of tensors and values, by kind and name.
    """

    tensors: Mapping[str, SavedTensor]
    values: Sequence[str]
    items: Mapping[Place, SavedItem]
    version: str | None
    others: Mapping[str, object]
    of_items: Mapping[str, Mapping[str, object]]

    def places(self) -> Iterator[Place]:
        """Yield everything that has to be saved somewhere, in the order of the metadata."""
        for name, tensor in self.tensors.items():
            for box in tensor.boxes:
                yield name, box.offsets
        for name in self.values:
            yield name, None


def claims(data: ByteView) -> bool:
    """Whether a file starts like such a pickle."""
    return _START.match(bytes(data[:_HEAD])) is not None


def read(data: ByteView) -> DistributedMetadata:
    """Read `.metadata`.

    Raises FormatError: of the kind PICKLE if reading it would require running the pickle, since it
    names things that torch does not write there.
    """
    pickle = pickle_read.parse(data, FIELD, _no_storage)
    for named in pickle.globals:
        if (named.module, named.name) not in _KNOWN:
            fail(
                f"torch distributed checkpoint, {FIELD} can't be read without running a pickle: "
                f"it names {quoted(named.path)}",
                offset=0,
                field=FIELD,
                kind=PICKLE,
            )
    if pickle.end != len(data):
        _refuse(f"has {len(data) - pickle.end} bytes after its end", offset=pickle.end)
    return _MetadataReader().read(pickle.root)


def _no_storage(_pid: object, offset: int) -> NoReturn:
    _refuse("refers to a storage", offset=offset)


class _MetadataReader:
    """One reading; what is visited is counted, since objects may be referred to many times."""

    def __init__(self) -> None:
        self._left = MAX_TENSORS
        self._properties: dict[str, object] = {}

    def read(self, root: object) -> DistributedMetadata:
        own = _attributes(root, METADATA, "Metadata")
        tensors: dict[str, SavedTensor] = {}
        values: list[str] = []
        for name, saved in self._pairs(own.get("state_dict_metadata"), "state_dict_metadata"):
            if not isinstance(name, str):
                _refuse("has a name that is not a string")
            json_text.check_name(name, "tensor name", offset=0)
            if _is(saved, METADATA, "BytesStorageMetadata"):
                values.append(name)
            else:
                tensors[name] = self._tensor(name, saved)
        if len(tensors) + len(set(values)) < len(tensors) + len(values) or tensors.keys() & values:
            _refuse("lists a name more than once")
        items: dict[Place, SavedItem] = {}
        for index, info in self._pairs(own.get("storage_data"), "storage_data"):
            place, item = self._place(index), self._item(info)
            if place in items:
                _refuse(f"has {quoted(place[0])} stored twice at the same place")
            items[place] = item
        if len({item.path for item in items.values()}) > MAX_SET_FILES:
            _refuse("names too many files", kind="limit")
        version = own.get("version")
        if version is not None and not (isinstance(version, str) and json_text.is_text(version)):
            _refuse("has a version that is not a string")
        others = {key: plain(value) for key, value in own.items() if key not in _READ}
        of_items: dict[str, Mapping[str, object]] = {"properties": self._properties}
        planned = others.get(_PLAN)
        if isinstance(planned, dict):
            # By default the path of each tensor and value in the state that was saved.
            known = {*tensors, *values}
            of_items[_PLAN] = {name: one for name, one in planned.items() if name in known}
            others[_PLAN] = {name: one for name, one in planned.items() if name not in known}
        return DistributedMetadata(tensors, values, items, version, _kept(others), of_items)

    def _count(self, more: int) -> None:
        self._left -= more
        if self._left < 0:
            _refuse(f"lists over {MAX_TENSORS} chunks and values", kind="limit")

    def _pairs(self, value: object, what: str) -> list[tuple[object, object]]:
        if not isinstance(value, Dict):
            _refuse(f"has no dictionary {what}")
        if len(value.pairs) > MAX_TENSORS:
            _refuse(f"has {len(value.pairs)} entries in {what}", kind="limit")
        return value.pairs

    def _tensor(self, name: str, value: object) -> SavedTensor:
        own = _attributes(value, METADATA, "TensorStorageMetadata")
        dtype, shape, chunks = (
            self._dtype(own.get("properties")),
            own.get("size"),
            own.get("chunks"),
        )
        # The dtype is the first of them.
        state = _state(own.get("properties"))
        self._properties[name] = plain(state[1:]) if isinstance(state, tuple) else None
        dims = sizes(shape)
        if dims is None or not isinstance(chunks, List):
            _refuse(f"has tensor {quoted(name)} without sizes or chunks")
        self._count(1 + len(chunks.items))
        boxes = tuple(map(self._box, chunks.items))
        if len({box.offsets for box in boxes}) < len(boxes):
            _refuse(f"has two chunks of tensor {quoted(name)} at the same place")
        return SavedTensor(dtype, dims, boxes)

    def _dtype(self, value: object) -> str:
        for module in (METADATA, _SHARDED):
            if _is(value, module, "TensorProperties"):
                state = _state(value)
                if isinstance(state, tuple) and state and isinstance(state[0], Global):
                    return dtype_name(state[0])
        return _refuse("has a tensor without a dtype")

    def _box(self, value: object) -> ChunkBox:
        own = _attributes(value, METADATA, "ChunkStorageMetadata")
        offsets, extents = sizes(own.get("offsets")), sizes(own.get("sizes"))
        if offsets is None or extents is None:
            _refuse("has a chunk without offsets or sizes")
        return ChunkBox(offsets, extents)

    def _place(self, value: object) -> Place:
        own = _attributes(value, METADATA, "MetadataIndex")
        name, offset = own.get("fqn"), own.get("offset")
        place = None if offset is None else sizes(offset)
        if not isinstance(name, str) or (offset is not None and place is None):
            _refuse("has an invalid key in storage_data")
        return name, place

    def _item(self, value: object) -> SavedItem:
        own = _attributes(value, FILESYSTEM, "_StorageInfo")
        path, start, length = (own.get(key) for key in ("relative_path", "offset", "length"))
        if not isinstance(path, str):
            _refuse("has a file with no path")
        json_text.check_name(path, "path", offset=0)
        # Files at these paths are opened: no path may lead out of the folder.
        if not is_in_folder(path):
            _refuse(f"names {quoted(path)}, which is not a path in its folder")
        if not is_size(start) or not is_size(length):
            _refuse(f"has an invalid offset or length in {quoted(path)}")
        return SavedItem(path, start, length, _transforms(own.get("transform_descriptors")))


def _kept(value: object) -> dict[str, object]:
    """Return a dictionary of plain data without what each save sets anew, at all levels."""
    return {
        key: _kept(child) if isinstance(child, dict) else child
        for key, child in (value.items() if isinstance(value, dict) else ())
        if key not in _SET_ANEW
    }


def _transforms(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    items = value.items if isinstance(value, List) else value
    if not isinstance(items, list | tuple) or len(items) > _MOST_TRANSFORMS:
        _refuse("has invalid transform_descriptors")
    if not all(isinstance(item, str) for item in items):
        _refuse("has a transform that is not a string")
    return tuple(map(str, items))


def _is(value: object, module: str, name: str) -> bool:
    """Whether a value is an object of a class, as Python's picklers write it."""
    return (
        isinstance(value, CallResult)
        and value.callee == Global(module, name)
        and not (value.args or value.kwargs or value.items or value.pairs)
        and len(value.states) <= 1
    )


def _state(value: object) -> object:
    return value.states[0] if isinstance(value, CallResult) and value.states else None


def _attributes(value: object, module: str, name: str) -> dict[str, object]:
    """Return the attributes of an object of a class; raises FormatError for anything else."""
    state = _state(value)
    if not _is(value, module, name) or not isinstance(state, Dict):
        _refuse(f"has something else where {name} is expected")
    if len(state.pairs) > _MOST_ATTRIBUTES:
        _refuse(f"has a {name} with too many attributes", kind="limit")
    own = {key: attribute for key, attribute in state.pairs if isinstance(key, str)}
    if len(own) < len(state.pairs):
        _refuse(f"has a {name} with an invalid attribute")
    return own


def _refuse(message: str, *, offset: int = 0, kind: str = "structure") -> NoReturn:
    fail(f"{FIELD} {message}", offset=offset, field=FIELD, kind=kind)
