"""Writing npz files, from tensors and from numpy arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from wtxtgit.containers import npy_header, replacing, zip_write
from wtxtgit.containers.signatures import NPY_SUFFIX
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

DTYPES = npy_header.DESCR
# Longest name of an array in bytes: a zip has 16 bits for the length of a member's name, which
# includes `.npy`.
_MAX_MEMBER_NAME = 65_535 - len(NPY_SUFFIX)


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


def can_hold(name: str) -> bool:
    """Whether a member can have this name."""
    return "\0" not in name and len(name.encode()) <= _MAX_MEMBER_NAME


def write_arrays(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write members as numpy.savez does, which itself takes names only as keyword arguments."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in arrays:
            # ZipInfo's own date is 1980: the same arrays give the same bytes.
            member = zipfile.ZipInfo(name + NPY_SUFFIX)
            with archive.open(member, "w", force_zip64=True) as opened:
                np.lib.format.write_array(opened, arrays[name], allow_pickle=False)
