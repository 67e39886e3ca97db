"""Writing npz files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from wtxtgit.containers import npy_header, replacing, zip_write
from wtxtgit.containers.signatures import NPY_SUFFIX
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

DTYPES = npy_header.DESCR


def build_model(
    tensors: Sequence[TensorSource],
    tags: Mapping[str, str],
) -> Iterator[Buffer]:
    """Yield an npz file, uncompressed, with members as by numpy.savez; `tags` are dropped.

    Each tensor's blocks are read twice: the CRC-32 precedes them. Raises FormatError before
    yielding anything.
    """
    if not tensors:
        raise FormatError("npz holds at least one array", field="entries")
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise FormatError("two arrays have the same name", field="name")
    headers = [npy_header.build(tensor.element, tensor.shape) for tensor in tensors]
    names = [zip_write.encoded_name(tensor.name + NPY_SUFFIX) for tensor in tensors]
    listed = zip(names, headers, tensors, strict=True)
    return zip_write.build(_array(*name, header, tensor) for name, header, tensor in listed)


def _array(name: bytes, flags: int, header: bytes, tensor: TensorSource) -> NewMember:
    payload = partial(replacing.behind, header, [tensor])
    size = len(header) + tensor.nbytes
    return NewMember(name, zip_write.crc32_of(payload()), size, size, payload, flags=flags)
