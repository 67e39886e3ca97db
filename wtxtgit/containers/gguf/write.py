"""Writing GGUF files: version 3, little-endian, numbers only.

Spec: `docs/spec/gguf.md`, "What is written".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from struct import pack

from wtxtgit.containers.budget import refuse_many
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.format import is_in_folder
from wtxtgit.containers.gguf import MAGIC, keeps_tag
from wtxtgit.containers.gguf.read import (
    ARCHITECTURE_KEY,
    DEFAULT_ALIGNMENT,
    GGML_DIMENSIONS,
    GGML_NAME,
    INT32,
    MAX_SPLITS,
    QUANTIZATION_KEY,
    SPLIT_COUNT,
    SPLIT_KEYS,
    SPLIT_NUMBER,
    SPLIT_TENSORS,
    STRING,
    UINT16,
    UINT32,
    OwnValue,
)
from wtxtgit.containers.intervals import aligned
from wtxtgit.containers.json_text import is_text, refuse_repeated
from wtxtgit.containers.replacing import WrittenTensor
from wtxtgit.containers.set_files import filled, numbered
from wtxtgit.errors import FormatError
from wtxtgit.io.view import PIECE, Buffer, mapped
from wtxtgit.model.ggml import QUANTISED, TYPES, nbytes_of
from wtxtgit.model.tensor import TensorSource

VERSION = 3
UNKNOWN_ARCHITECTURE = "unknown"
SUFFIX = ".gguf"
QUANTIZATION = OwnValue(UINT32, memoryview(pack("<I", 2)))
"""ggml's version of what is in quantised blocks: https://github.com/ggml-org/ggml/blob/master/include/ggml.h"""

DTYPES = {
    ggml_type.element: number
    for number, ggml_type in TYPES.items()
    if ggml_type.element is not None
}
"""The number of the ggml type for each element that ggml has."""
_NUMBERS = DTYPES | {element: number for element, (number, _) in QUANTISED.items()}


def build_model(tensors: Sequence[TensorSource], tags: Mapping[str, object]) -> Iterator[Buffer]:
    """Yield a GGUF file with these tensors, and `tags` as values: texts or `OwnValue`s.

    Shapes are as in numpy; the file has them reversed. Tags are sorted by key; without a
    `general.architecture` it is set to "unknown". `OwnValue`s keep their order, and nothing is
    added to them.

    Raises FormatError, before yielding anything, for what GGUF can't hold: a dtype, over 4
    dimensions, a name over 63 bytes or repeated, a key that is not 1 to 65,535 ASCII characters or
    is the alignment's.
    """
    # A check warns of files without it ("Checks").
    is_own = any(isinstance(value, OwnValue) for value in tags.values())
    values = list((tags if is_own else {ARCHITECTURE_KEY: UNKNOWN_ARCHITECTURE, **tags}).items())
    if not is_own:
        if any(tensor.element in QUANTISED for tensor in tensors):
            values.append((QUANTIZATION_KEY, QUANTIZATION))
        values.sort(key=itemgetter(0))
    refuse_repeated((tensor.name for tensor in tensors), "two tensors are named {}")
    infos: list[bytes] = []
    end = 0
    for tensor in tensors:
        infos.append(_info(tensor, end))
        end = aligned(end + tensor.nbytes, DEFAULT_ALIGNMENT)
    header = [MAGIC, pack("<IQQ", VERSION, len(tensors), len(values))]
    header += [_entry(key, value) for key, value in values]
    return file_pieces(b"".join(header + infos), tensors, DEFAULT_ALIGNMENT)


def build_set(
    tensors: Sequence[TensorSource], tags: Mapping[str, object], stem: str, max_shard: int
) -> Iterator[tuple[str, Iterator[Buffer]]]:
    """Yield names that start with `stem`, and bytes, of files with up to `max_shard` tensor bytes.

    They are split as by llama.cpp: the first file has all the metadata, and each has the three keys
    that say its number and the totals. A model that fits in one file has none of these. Raises
    FormatError as `build_model` does, and for too many files, before yielding anything.
    """
    groups = filled(tensors, max_shard)
    refuse_many(len(groups), MAX_SPLITS, "files", SPLIT_COUNT)
    refuse_repeated((tensor.name for tensor in tensors), "two tensors are named {}")
    if not is_in_folder(stem + SUFFIX):
        raise FormatError(f"{quoted(stem)} can't be used to name the files", field="name")
    if len(groups) == 1:
        return iter([(stem + SUFFIX, build_model(tensors, tags))])
    first = {key: value for key, value in tags.items() if key not in SPLIT_KEYS}
    if not any(isinstance(value, OwnValue) for value in first.values()):
        first.setdefault(ARCHITECTURE_KEY, UNKNOWN_ARCHITECTURE)
    files = []
    for number, group in enumerate(groups):
        about = {
            SPLIT_NUMBER: OwnValue(UINT16, memoryview(pack("<H", number))),
            SPLIT_COUNT: OwnValue(UINT16, memoryview(pack("<H", len(groups)))),
            SPLIT_TENSORS: OwnValue(INT32, memoryview(pack("<i", len(tensors)))),
        }
        values = {**first, **about} if number == 0 else about
        name = numbered(stem, number + 1, len(groups), SUFFIX)
        files.append((name, build_model(group, values)))
    return iter(files)


def file_pieces(
    header: bytes, tensors: Sequence[TensorSource] | Sequence[WrittenTensor], alignment: int
) -> Iterator[Buffer]:
    """Yield a file: its header, and tensors padded to the alignment."""
    yield header
    # A file without tensors ends where the header does.
    size = len(header)
    for tensor in tensors:
        yield from _padding(size, alignment)
        yield from tensor.blocks()
        # Other tensors start at multiples of the alignment, so only the last one's length matters.
        size = tensor.nbytes
    if tensors:
        yield from _padding(size, alignment)


def _padding(size: int, alignment: int) -> Iterator[Buffer]:
    # An alignment may be up to 2 GiB.
    left = -size % alignment
    while left:
        zeros = bytes(min(left, PIECE))
        yield zeros
        left -= len(zeros)


def _info(tensor: TensorSource, offset: int) -> bytes:
    named = f"tensor {quoted(tensor.name)}"
    number = _NUMBERS.get(tensor.element)
    if number is None:
        raise FormatError(f"{named} is {tensor.element}, which GGUF does not have", field="type")
    if len(tensor.shape) > GGML_DIMENSIONS:
        raise FormatError(
            f"{named} has {len(tensor.shape)} dimensions, GGUF allows {GGML_DIMENSIONS}",
            field="n_dimensions",
        )
    if tensor.nbytes != nbytes_of(tensor.element, tensor.shape):
        raise FormatError(f"{named} has {tensor.nbytes} bytes, which do not fit its shape")
    name = _string(tensor.name, named)
    if len(name) - 8 > GGML_NAME:
        raise FormatError(f"{named} has a name of over {GGML_NAME} bytes", field="name")
    # The fastest dimension comes first ("Tensor infos").
    shape = tensor.shape[::-1]
    return name + pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset)


def _entry(key: str, value: object) -> bytes:
    if isinstance(value, OwnValue):
        return _string(key, "key") + pack("<I", value.value_type) + bytes(mapped(value.raw))
    if not keeps_tag(key):
        raise FormatError(f"tag {quoted(key)} can't be a key of a GGUF file", field="key")
    return _string(key, "key") + pack("<I", STRING) + _string(str(value), f"tag {quoted(key)}")


def _string(text: str, what: str) -> bytes:
    if not is_text(text):
        raise FormatError(f"{what} has a lone surrogate", field="string")
    raw = text.encode()
    return pack("<Q", len(raw)) + raw
