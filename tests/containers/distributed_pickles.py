"""`.metadata` of distributed checkpoints, put together by hand, opcode by opcode, without torch."""

from __future__ import annotations

from collections.abc import Sequence

from tests.containers.torch_files import (
    call,
    dict_of,
    list_of,
    name,
    named,
    number,
    pickled,
    sizes,
    text,
    tuple_of,
)

METADATA = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"
NONE = b"N"


def made(kind: str, module: str = METADATA, state: bytes | None = None, **more: bytes) -> bytes:
    """An object of a class, with a state, or these attributes."""
    return name(module, kind) + b")\x81" + (named(**more) if state is None else state) + b"b"


def size(values: Sequence[int]) -> bytes:
    """A torch.Size."""
    return call(name("torch", "Size"), sizes(values))


def chunk(offsets: Sequence[int], held: Sequence[int]) -> bytes:
    """A chunk of a tensor."""
    return made("ChunkStorageMetadata", offsets=size(offsets), sizes=size(held))


def tensor(shape: Sequence[int], *chunks: bytes, dtype: str = "float32") -> bytes:
    """What the metadata say of a tensor."""
    layout = call(name("torch.serialization", "_get_layout"), text("torch.strided"))
    memory = call(name(METADATA, "_MEM_FORMAT_ENCODING"), number(0))
    state = tuple_of(name("torch", dtype), layout, b"\x89", memory, b"\x89")
    properties = made("TensorProperties", state=state)
    return made(
        "TensorStorageMetadata", properties=properties, size=size(shape), chunks=list_of(*chunks)
    )


VALUE = made("BytesStorageMetadata")


def index(of: str, offset: Sequence[int] | None = None) -> bytes:
    """A key of what is saved."""
    where = NONE if offset is None else size(offset)
    return made("MetadataIndex", fqn=text(of), index=NONE, offset=where)


def saved(path: str, start: int, length: int, **more: bytes) -> bytes:
    """Where something is saved."""
    place = {"relative_path": text(path), "offset": number(start), "length": number(length)}
    return made("_StorageInfo", FILESYSTEM, **place, **more)


def metadata(listed: dict[str, bytes], *items: tuple[bytes, bytes], **more: bytes) -> bytes:
    """The whole: what is listed, by name, and pairs of keys and places."""
    every = dict_of(*((text(key), value) for key, value in listed.items()))
    attributes = {"planner_data": NONE, "version": text("1.0.0")} | more
    return pickled(
        made("Metadata", state_dict_metadata=every, storage_data=dict_of(*items), **attributes)
    )
