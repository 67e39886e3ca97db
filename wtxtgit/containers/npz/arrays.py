"""Writing numpy's arrays to npz files, of whatever dtypes: what native texts are restored to."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from wtxtgit.containers.signatures import NPY_SUFFIX

_MAX_MEMBER_NAME = 65_535 - len(NPY_SUFFIX)
"""Bytes of a name that a zip file can hold."""


def can_hold(name: str) -> bool:
    """Whether a member can have this name."""
    return "\0" not in name and len(name.encode()) <= _MAX_MEMBER_NAME


def write_arrays(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write members as numpy.savez does; it takes names as keywords, which some can't be."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in arrays:
            # ZipInfo's own date is 1980: the same arrays give the same bytes.
            member = zipfile.ZipInfo(name + NPY_SUFFIX)
            with archive.open(member, "w", force_zip64=True) as opened:
                np.lib.format.write_array(opened, arrays[name], allow_pickle=False)
