"""Checks of a safetensors file: lengths, and what the reference library refuses.

Errors are what the library refuses, and bytes that belong to no tensor or to two. Spec:
`docs/spec/safetensors.md`, "Checks".
"""

from __future__ import annotations

from operator import attrgetter

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.ranges import Stored
from wtxtgit.containers.safetensors.read import ITEM_BITS, MAX_HEADER, Safetensors
from wtxtgit.containers.signatures import SAFETENSORS_LENGTH_SIZE
from wtxtgit.containers.tensor_header import ALIGNMENT, METADATA_KEY
from wtxtgit.model.array import bounded_product
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ITEM_BYTES, ReadOptions

REFUSED = "the reference library refuses the file"
BYTE = 8
"""Bits of a byte."""
MAX_ITEMS = 2**64 - 1
# More bits than the distance of any two offsets.
MAX_BITS = BYTE * (2**64 - 1)


def check(container: Safetensors, _options: ReadOptions) -> Findings:
    """Check everything in the file; raises nothing."""
    findings = Findings()
    check_into(container, findings)
    return findings


def check_into(container: Safetensors, findings: Findings) -> None:
    """Do the same, adding to findings that may be of a file to be written anew."""
    _check_header(container, findings)
    for tensor in container.header.tensors:
        _check_tensor(tensor, findings)
    _check_coverage(container, findings)


def _check_header(container: Safetensors, findings: Findings) -> None:
    length = container.header.end - SAFETENSORS_LENGTH_SIZE
    if length > MAX_HEADER:
        findings.unread(
            f"header of {length} bytes is over {MAX_HEADER}: {REFUSED}",
            "header length",
            0,
            kind="limit",
        )
    if length % ALIGNMENT:
        findings.warn(f"header of {length} bytes is not padded to {ALIGNMENT}", "header length", 0)
    at = SAFETENSORS_LENGTH_SIZE
    for what in container.header.lax:
        findings.unread(f"header has {what}: {REFUSED}", "header", at)
    metadata = container.header.metadata
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        findings.unread(f"{METADATA_KEY} is not an object: {REFUSED}", METADATA_KEY, at)
        return
    for key, value in metadata.items():
        if not isinstance(value, str):
            findings.unread(
                f"{METADATA_KEY} has {quoted(key)}, which is not a string: {REFUSED}",
                METADATA_KEY,
                at,
            )


def _check_tensor(tensor: Stored, findings: Findings) -> None:
    """Check that a tensor has exactly as many bits as its dtype and shape need."""
    name = quoted(tensor.name)
    bits = ITEM_BITS.get(tensor.dtype)
    if bits is None:
        findings.unread(
            f"tensor {name} has dtype {quoted(tensor.dtype)}: {REFUSED}",
            "dtype",
            SAFETENSORS_LENGTH_SIZE,
        )
        if tensor.element is None:
            return
        bits = BYTE * ITEM_BYTES[tensor.element]
    needed = bounded_product(bits, tensor.shape, MAX_BITS)
    # The library multiplies dimensions in order, and overflows before it comes to the 0.
    before = tensor.shape[: tensor.shape.index(0)] if 0 in tensor.shape else ()
    if bounded_product(1, before, MAX_ITEMS) > MAX_ITEMS:
        findings.unread(
            f"tensor {name} has more items before a dimension of 0 than 64 bits can count: "
            f"{REFUSED}",
            "shape",
            SAFETENSORS_LENGTH_SIZE,
        )
    if needed == BYTE * tensor.nbytes:
        return
    if needed > MAX_BITS:
        needs = "more than offsets can hold"
    elif needed % BYTE:
        needs = f"{needed} bits, which are not whole bytes"
    else:
        needs = str(needed // BYTE)
    findings.error(
        f"tensor {name} has {tensor.nbytes} bytes, but its dtype and shape need {needs}",
        "data_offsets",
        tensor.start,
    )


def _check_coverage(container: Safetensors, findings: Findings) -> None:
    """Check that tensors cover everything after the header exactly once."""
    end = container.header.end
    for tensor in sorted(container.header.tensors, key=attrgetter("start", "end")):
        name = quoted(tensor.name)
        if tensor.start > end and tensor.end > tensor.start:
            findings.unread(
                f"{tensor.start - end} bytes before tensor {name} belong to no tensor: {REFUSED}",
                "data_offsets",
                end,
            )
        # The library requires tensors back to back, in any order in the header.
        elif tensor.start != end:
            what = (
                "begins inside another one"
                if tensor.start < end
                else "has 0 bytes but lies away from the others"
            )
            findings.unread(f"tensor {name} {what}: {REFUSED}", "data_offsets", tensor.start)
        if tensor.end > tensor.start:
            end = max(end, tensor.end)
    size = len(container.data)
    if end < size:
        findings.unread(
            f"{size - end} bytes after the last tensor belong to no tensor: {REFUSED}",
            "data_offsets",
            end,
        )
