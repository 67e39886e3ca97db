"""What can be checked of a GGUF file that `read` does not look at.

A GGUF file has no hashes. Errors are what makes a file ambiguous or breaks
the format; what ggml's reader refuses, or a writer forgot, is a warning.
Spec: `docs/spec/gguf.md`, "Checks".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from wtxtgit.containers.cursor import Cursor, quoted, unpack_at
from wtxtgit.containers.gguf.metadata import (
    ARRAY,
    BOOL,
    COUNT_SIZE,
    LEAST_SIZES,
    LENGTHS,
    STRING,
    Entry,
    read_array_head,
)
from wtxtgit.containers.gguf.read import ALIGNMENT_KEY, Gguf, Info, aligned
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

ALIGNMENT_UNIT = 8
"""The spec wants an alignment that is a multiple of it."""
GGML_DIMENSIONS = 4
GGML_NAME = 63
"""Bytes of a tensor's name that ggml has room for."""
MAX_KEY = 65_535
ARCHITECTURE_KEY = "general.architecture"
QUANTIZATION_KEY = "general.quantization_version"
BLOCK = 1 << 20
"""Bytes that are compared with zeros at a time."""

_ZEROS = bytes(BLOCK)
_NO_BOOL = re.compile(rb"[^\0\1]")


def check(container: Gguf, options: ReadOptions) -> Findings:
    """Check metadata, tensor infos and the bytes around the tensors; raises nothing."""
    findings = Findings()
    _check_entries(container, findings)
    _check_infos(container, findings)
    _check_overlaps(container.infos, findings)
    _check_padding(container, findings)
    return findings


def _check_entries(container: Gguf, findings: Findings) -> None:
    seen: dict[str, Entry] = {}
    for entry in container.entries:
        if entry.key in seen:
            findings.error(
                "structure",
                f"key {quoted(entry.key)} is there twice",
                offset=entry.offset,
                field="key",
            )
        seen[entry.key] = entry
        _check_key(entry, findings)
        _Value(entry, findings).check(container.cursor(entry.start), entry.value_type)
    if container.alignment % ALIGNMENT_UNIT:
        findings.warn(
            "structure",
            f"alignment {container.alignment} is no multiple of {ALIGNMENT_UNIT}",
            offset=seen[ALIGNMENT_KEY].start,
            field=ALIGNMENT_KEY,
        )
    architecture = seen.get(ARCHITECTURE_KEY)
    if architecture is None or architecture.value_type != STRING:
        findings.warn(
            "structure", f"{ARCHITECTURE_KEY} is missing or no string", field=ARCHITECTURE_KEY
        )
    for info in container.infos:
        if not info.is_known:
            findings.warn(
                "structure",
                f"tensor {quoted(info.tensor.name)} has the unknown type {info.tensor.dtype}",
                offset=info.offset,
                field="type",
            )
    quantised = (info.tensor for info in container.infos if info.tensor.element is None)
    if QUANTIZATION_KEY not in seen and next(quantised, None) is not None:
        findings.warn(
            "structure",
            f"{QUANTIZATION_KEY} is missing, and there are quantised tensors",
            field=QUANTIZATION_KEY,
        )


def _check_key(entry: Entry, findings: Findings) -> None:
    if not entry.key or not entry.key.isascii() or len(entry.key) > MAX_KEY:
        findings.warn(
            "structure",
            f"key {quoted(entry.key)} is not 1 to {MAX_KEY} ASCII characters",
            offset=entry.offset,
            field="key",
        )


@dataclass(slots=True)
class _Value:
    """A value that is walked for wrong strings and booleans; the first of each kind is told."""

    entry: Entry
    findings: Findings
    told: set[int] = field(default_factory=set)

    def check(self, cursor: Cursor, value_type: int) -> None:
        """Check a value and move past it; it is nested no deeper than `read` lets pass."""
        if value_type == STRING:
            self._check_strings(cursor, 1)
        elif value_type == ARRAY:
            start = cursor.pos
            item_type, count = read_array_head(cursor)
            if item_type == STRING:
                self._check_strings(cursor, count)
            elif item_type == ARRAY:
                self._tell(ARRAY, "an array of arrays, which ggml refuses", start, "array type")
                for _ in range(count):
                    self.check(cursor, ARRAY)
            else:
                self._check_numbers(cursor, item_type, count)
        else:
            self._check_numbers(cursor, value_type, 1)

    def _check_strings(self, cursor: Cursor, count: int) -> None:
        data, length, pos = cursor.data, LENGTHS[cursor.order], cursor.pos
        for _ in range(count):
            start = pos + COUNT_SIZE
            pos = start + unpack_at(length, data, pos)[0]
            try:
                bytes(data[start:pos]).decode()
            except UnicodeDecodeError:
                self._tell(STRING, "a string that is not UTF-8", start, "string")
        cursor.pos = pos

    def _check_numbers(self, cursor: Cursor, value_type: int, count: int) -> None:
        start = cursor.skip(count * LEAST_SIZES[value_type], "value")
        if value_type == BOOL:
            for piece in pieces(cursor.data[start : cursor.pos]):
                wrong = _NO_BOOL.search(piece)
                if wrong is not None:
                    offset = start + wrong.start()
                    self._tell(BOOL, f"a boolean that is {wrong[0][0]}", offset, "bool")
                    return
                start += len(piece)

    def _tell(self, value_type: int, what: str, offset: int, name: str) -> None:
        if value_type in self.told:
            return
        self.told.add(value_type)
        report = self.findings.error if value_type == BOOL else self.findings.warn
        report("structure", f"key {quoted(self.entry.key)} has {what}", offset=offset, field=name)


def _check_infos(container: Gguf, findings: Findings) -> None:
    seen: set[str] = set()
    expected = container.data_start
    in_order = True
    for info in container.infos:
        tensor = info.tensor
        named = f"tensor {quoted(tensor.name)}"
        if tensor.name in seen:
            findings.error("structure", f"{named} is there twice", offset=info.offset, field="name")
        seen.add(tensor.name)
        _check_ggml_limits(info, findings)
        start = tensor.start - container.data_start
        if start % container.alignment:
            findings.warn(
                "structure",
                f"{named} has the offset {start}, no multiple of {container.alignment}",
                offset=info.offset,
                field="offset",
            )
        elif in_order and tensor.start != expected:
            # What follows is moved as well: told once.
            in_order = False
            findings.warn(
                "structure",
                f"{named} has the offset {start}, ggml wants "
                f"{expected - container.data_start} here",
                offset=info.offset,
                field="offset",
            )
        expected = aligned(tensor.end, container.alignment)


def _check_ggml_limits(info: Info, findings: Findings) -> None:
    tensor = info.tensor
    named = f"tensor {quoted(tensor.name)}"
    length = len(tensor.name.encode())
    if length > GGML_NAME:
        findings.warn(
            "structure",
            f"{named} has a name of {length} bytes, ggml has room for {GGML_NAME}",
            offset=info.offset,
            field="name",
        )
    if len(tensor.shape) > GGML_DIMENSIONS:
        findings.warn(
            "structure",
            f"{named} has {len(tensor.shape)} dimensions, ggml has {GGML_DIMENSIONS}",
            offset=info.offset,
            field="n_dimensions",
        )
    if 0 in tensor.shape:
        findings.warn(
            "structure",
            f"{named} has a dimension of 0",
            offset=info.offset,
            field="dimensions",
        )


def _in_file_order(infos: Iterable[Info]) -> list[Info]:
    """Those that have bytes, by where these start."""
    held = [info for info in infos if info.tensor.end > info.tensor.start]
    return sorted(held, key=lambda info: (info.tensor.start, info.tensor.end))


def _check_overlaps(infos: tuple[Info, ...], findings: Findings) -> None:
    before: Info | None = None
    for info in _in_file_order(infos):
        if before is not None and info.tensor.start < before.tensor.end:
            both = f"{quoted(before.tensor.name)} and {quoted(info.tensor.name)}"
            here, there = info.tensor, before.tensor
            if (here.start, here.end) == (there.start, there.end):
                findings.warn(
                    "structure",
                    f"tensors {both} share all their bytes",
                    offset=here.start,
                    field="offset",
                )
            else:
                findings.error(
                    "structure",
                    f"tensors {both} overlap",
                    offset=here.start,
                    field="offset",
                )
        if before is None or info.tensor.end > before.tensor.end:
            before = info


def _check_padding(container: Gguf, findings: Findings) -> None:
    """Look at the bytes that belong to nothing."""
    data, alignment = container.data, container.alignment
    end = container.infos_end
    for info in _in_file_order(container.infos):
        _check_zeros(data, end, info.tensor.start, findings)
        end = max(end, info.tensor.end)
    wanted = aligned(end, alignment)
    has_data = end > container.infos_end
    if has_data and len(data) < wanted:
        findings.warn(
            "structure",
            f"file ends {wanted - len(data)} bytes before the padding of the last tensor",
            offset=len(data),
            field="padding",
        )
    _check_zeros(data, end, min(wanted, len(data)), findings)
    if len(data) > wanted:
        findings.warn(
            "structure",
            f"{len(data) - wanted} bytes follow the last tensor",
            offset=wanted,
            field="tensor_data",
        )


def _check_zeros(data: ByteView, start: int, end: int, findings: Findings) -> None:
    for pos in range(start, end, BLOCK):
        stop = min(pos + BLOCK, end)
        if data[pos:stop] != _ZEROS[: stop - pos]:
            findings.warn(
                "structure",
                f"padding from byte {start} to {end} is not zero",
                offset=start,
                field="padding",
            )
            return
