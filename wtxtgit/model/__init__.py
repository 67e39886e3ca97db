"""The nouns that all rooms share: plain data, without I/O, hashing or policy."""

from wtxtgit.model.array import (
    CONTAINER_FORMATS,
    EPOCH,
    ITEM_SIZE,
    LAYOUT_ARRAY,
    LAYOUT_VERSION,
    MAX_HEX,
    MAX_ZEROS,
    NATIVE_FORMAT,
    ZEROS_ALLOWANCE,
    Array,
    Cut,
    Extent,
    Layout,
    Meta,
    Rows,
    Signature,
    Snapshot,
)
from wtxtgit.model.findings import Problem

__all__ = [
    "CONTAINER_FORMATS",
    "EPOCH",
    "ITEM_SIZE",
    "LAYOUT_ARRAY",
    "LAYOUT_VERSION",
    "MAX_HEX",
    "MAX_ZEROS",
    "NATIVE_FORMAT",
    "ZEROS_ALLOWANCE",
    "Array",
    "Cut",
    "Extent",
    "Layout",
    "Meta",
    "Problem",
    "Rows",
    "Signature",
    "Snapshot",
]
