"""Small torch files put together by hand, opcode by opcode, without torch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wtxtgit.model.tensor import ITEM_BYTES, Tensor

FOLDER = "archive/"
LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
LEGACY_VERSION = b"\x80\x02M\xe9\x03."


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + len(raw).to_bytes(4, "little") + raw


def number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def tuple_of(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def list_of(*items: bytes) -> bytes:
    return b"](" + b"".join(items) + b"e"


def dict_of(*pairs: tuple[bytes, bytes]) -> bytes:
    return b"}(" + b"".join(key + value for key, value in pairs) + b"u"


def named(**values: bytes) -> bytes:
    return dict_of(*((text(key), value) for key, value in values.items()))


def call(function: bytes, *args: bytes) -> bytes:
    return function + tuple_of(*args) + b"R"


def storage(kind: str, key: str, numel: int, *more: bytes) -> bytes:
    module = "torch.storage" if kind == "UntypedStorage" else "torch"
    words = text("storage"), name(module, kind), text(key), text("cpu"), number(numel)
    return tuple_of(*words, *more) + b"Q"


def sizes(values: Sequence[int]) -> bytes:
    return tuple_of(*map(number, values))


EMPTY_HOOKS = call(name("collections", "OrderedDict"))


def tensor(
    key: str,
    numel: int,
    shape: Sequence[int],
    strides: Sequence[int],
    *,
    kind: str = "FloatStorage",
    offset: int = 0,
    metadata: bytes = b"",
    more: Sequence[bytes] = (),
) -> bytes:
    """A call that makes a tensor; `more` are further items of the storage's persistent id."""
    return call(
        name("torch._utils", "_rebuild_tensor_v2"),
        storage(kind, key, numel, *more),
        number(offset),
        sizes(shape),
        sizes(strides),
        b"\x89",
        EMPTY_HOOKS,
        metadata,
    )


def vector(key: str, numel: int, kind: str = "FloatStorage") -> bytes:
    return tensor(key, numel, [numel], [1], kind=kind)


def pickled(value: bytes, protocol: int = 2) -> bytes:
    return b"\x80" + bytes([protocol]) + value + b"."


def archive(
    value: bytes,
    storages: Mapping[str, bytes] | None = None,
    *,
    byteorder: bytes | None = b"little",
    deflated: Sequence[str] = (),
    folder: str = FOLDER,
    more: Mapping[str, bytes] | None = None,
) -> bytes:
    """A torch file of a pickled value and storages by key."""
    members = {"data.pkl": pickled(value)}
    if byteorder is not None:
        members["byteorder"] = byteorder
    members |= {f"data/{key}": raw for key, raw in (storages or {}).items()}
    members |= {"version": b"3\n", **(more or {})}
    return zipped({folder + key: raw for key, raw in members.items()}, deflated)


def zipped(members: Mapping[str, bytes], deflated: Sequence[str] = ()) -> bytes:
    """A zip; members whose names end in one of `deflated` are."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for key, raw in members.items():
            is_deflated = key.endswith(tuple(deflated)) if deflated else False
            method = zipfile.ZIP_DEFLATED if is_deflated else zipfile.ZIP_STORED
            file.writestr(zipfile.ZipInfo(key), raw, method)
    return made.getvalue()


def legacy(value: bytes, storages: Mapping[str, tuple[int, bytes]]) -> bytes:
    """A legacy file of a pickled value; storages by key, as counts of items and bytes."""
    facts = named(protocol_version=number(1001), little_endian=b"\x88")
    keys = list_of(*map(text, storages))
    held = b"".join(count.to_bytes(8, "little") + raw for count, raw in storages.values())
    pickles = LEGACY_MAGIC + LEGACY_VERSION + pickled(facts) + pickled(value) + pickled(keys)
    return pickles + held


def items_of(found: Tensor) -> bytes:
    """A tensor's items in C order, as its file has their bytes."""
    if found.strides is None:
        return bytes(found.data)
    assert found.element is not None
    item = ITEM_BYTES[found.element]
    strides = [stride * item for stride in found.strides]
    return np.ndarray(found.shape, f"V{item}", found.data, strides=strides).tobytes()


def saved(torch: Any, value: object, **options: object) -> bytes:
    """What torch itself makes of a value."""
    made = io.BytesIO()
    torch.save(value, made, **options)
    return made.getvalue()
