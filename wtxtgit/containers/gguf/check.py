"""Checks of a GGUF file beyond what `read` does.

A GGUF file has no hashes. Errors are what makes a file ambiguous, what ggml refuses, and bytes that
belong to no tensor; what a writer forgot is a warning. Spec: `docs/spec/gguf.md`, "Checks".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from operator import attrgetter

from wtxtgit.containers.cursor import Cursor, quoted, unpack_at
from wtxtgit.containers.gguf import ALIGNMENT_KEY, MAX_KEY
from wtxtgit.containers.gguf.read import (
    ARCHITECTURE_KEY,
    ARRAY,
    BOOL,
    COUNT_SIZE,
    GGML_DIMENSIONS,
    GGML_NAME,
    LEAST_SIZES,
    LENGTHS,
    NUMBERS,
    QUANTIZATION_KEY,
    SPLIT_NUMBER,
    STRING,
    Gguf,
    KeyValue,
    decode,
    read_array_head,
)
from wtxtgit.containers.intervals import aligned, overlaps
from wtxtgit.io.view import ByteView, is_zeros, pieces
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

ALIGNMENT_UNIT = 8
"""The spec requires an alignment that is a multiple of this."""
BFLOAT = "bf16"
MADE_BY_READER = frozenset({"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"})
GIVEN_UP = frozenset({"Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8"})

_SAYS = {STRING: Findings.warn, BOOL: Findings.error}
"""A string is complete whatever its bytes are; an odd boolean leaves open what is meant."""
_NO_BOOL = re.compile(rb"[^\0\1]")


def check(container: Gguf, options: ReadOptions) -> Findings:
    """Check metadata, tensor infos and the bytes around the tensors; raises nothing."""
    findings = Findings()
    check_into(container, findings)
    return findings


def check_into(container: Gguf, findings: Findings) -> None:
    """Do the same, adding to findings that may be of a file to be written anew."""
    _check_entries(container, findings)
    _check_infos(container, findings)
    _check_placement(container, findings)


def _check_entries(container: Gguf, findings: Findings) -> None:
    by_key: dict[str, KeyValue] = {}
    for entry in container.entries:
        key = quoted(entry.key)
        if entry.key in by_key:
            findings.error(f"key {key} appears more than once", "key", entry.offset)
        elif entry.key in MADE_BY_READER:
            message = f"key {key} is reserved by gguf's Python reader, which refuses the file"
            findings.warn(message, "key", entry.offset)
        by_key[entry.key] = entry
        if not entry.key:
            findings.unread("key is empty", "key", entry.offset)
        elif not entry.key.isascii() or len(entry.key) > MAX_KEY:
            findings.warn(
                f"key {key} is not between 1 and {MAX_KEY} ASCII characters", "key", entry.offset
            )
        _Value(entry, findings).check(container.cursor(entry.start), entry.value_type)
    if container.alignment % ALIGNMENT_UNIT:
        findings.warn(
            f"alignment {container.alignment} is not a multiple of {ALIGNMENT_UNIT}",
            ALIGNMENT_KEY,
            by_key[ALIGNMENT_KEY].start,
        )
    architecture = by_key.get(ARCHITECTURE_KEY)
    is_first = _is_first(container, by_key.get(SPLIT_NUMBER))
    if is_first and (architecture is None or architecture.value_type != STRING):
        findings.warn(f"{ARCHITECTURE_KEY} is missing or not a string", ARCHITECTURE_KEY, None)
    for info in container.infos:
        named, dtype = f"tensor {quoted(info.tensor.name)}", info.tensor.dtype
        if not info.is_known:
            findings.unread(f"{named} has unknown type {dtype}", "type", info.offset)
        elif dtype in GIVEN_UP:
            message = f"{named} has type {dtype}, which ggml has dropped: it refuses the file"
            findings.unread(message, "type", info.offset)
    is_quantised = any(info.tensor.element is None for info in container.infos)
    if QUANTIZATION_KEY not in by_key and is_quantised and is_first:
        findings.warn(
            f"{QUANTIZATION_KEY} is missing, though there are quantised tensors",
            QUANTIZATION_KEY,
            None,
        )


def _is_first(container: Gguf, split: KeyValue | None) -> bool:
    """Whether a file has the metadata of its model: in a split model only the first file does."""
    if split is None or split.value_type not in NUMBERS:
        return True
    return decode(container.cursor(split.start), split.value_type) == 0


@dataclass(slots=True)
class _Value:
    """Searches a value for invalid strings and booleans; reports the first of each kind."""

    entry: KeyValue
    findings: Findings
    reported: set[int] = field(default_factory=set)

    def check(self, cursor: Cursor, value_type: int) -> None:
        """Check a value and move past it; it is not nested deeper than `read` allows."""
        start, count = cursor.pos, 1
        if value_type == ARRAY:
            value_type, count = read_array_head(cursor)
        if value_type == STRING:
            self._check_strings(cursor, count)
        elif value_type == ARRAY:
            self._tell(ARRAY, "an array of arrays, which ggml refuses", start, "array type")
            for _ in range(count):
                self.check(cursor, ARRAY)
        else:
            self._check_numbers(cursor, value_type, count)

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
        if value_type not in self.reported:
            self.reported.add(value_type)
            say = _SAYS.get(value_type, Findings.unread)
            say(self.findings, f"key {quoted(self.entry.key)} has {what}", name, offset)


def _check_infos(container: Gguf, findings: Findings) -> None:
    names: set[str] = set()
    expected = container.data_start
    in_order = True
    for info in container.infos:
        tensor, at = info.tensor, info.offset
        named, name_bytes = f"tensor {quoted(tensor.name)}", len(tensor.name.encode())
        if tensor.name in names:
            findings.error(f"{named} appears more than once", "name", at)
        names.add(tensor.name)
        if name_bytes > GGML_NAME:
            findings.unread(
                f"{named} has a name of {name_bytes} bytes, ggml allows {GGML_NAME}",
                "name",
                at,
            )
        if len(tensor.shape) > GGML_DIMENSIONS:
            findings.unread(
                f"{named} has {len(tensor.shape)} dimensions, ggml allows {GGML_DIMENSIONS}",
                "n_dimensions",
                at,
            )
        if not tensor.shape and tensor.element == BFLOAT:
            message = (
                f"{named} has no dimensions, which gguf's Python reader does not accept "
                f"for {BFLOAT}"
            )
            findings.warn(message, "n_dimensions", at)
        if 0 in tensor.shape:
            findings.warn(f"{named} has a dimension of 0", "dimensions", at)
        start, expected_offset = (
            tensor.start - container.data_start,
            expected - container.data_start,
        )
        if start % container.alignment:
            findings.unread(
                f"{named} has offset {start}, which is not a multiple of {container.alignment}",
                "offset",
                at,
            )
        elif in_order and tensor.start != expected:
            # Everything after it is misaligned too: report it once.
            in_order = False
            findings.unread(
                f"{named} has offset {start}, ggml expects {expected_offset} here", "offset", at
            )
        expected = aligned(tensor.end, container.alignment)


def _check_placement(container: Gguf, findings: Findings) -> None:
    """Check for bytes that belong to several tensors, and for bytes that belong to nothing."""
    data, alignment = container.data, container.alignment
    span = attrgetter("start", "end")
    placed = [info.tensor for info in container.infos if info.tensor.end > info.tensor.start]
    for tensor, before in overlaps(placed, span):
        both = f"{quoted(before.name)} and {quoted(tensor.name)}"
        if span(tensor) == span(before):
            findings.unread(f"tensors {both} share all their bytes", "offset", tensor.start)
        else:
            findings.error(f"tensors {both} overlap", "offset", tensor.start)
    end = container.infos_end
    for tensor in sorted(placed, key=span):
        _check_zeros(data, end, tensor.start, findings)
        end = max(end, tensor.end)
    padded_end = aligned(end, alignment)
    if placed and len(data) < padded_end:
        missing = padded_end - len(data)
        findings.warn(
            f"file ends {missing} bytes before the end of the last tensor's padding",
            "padding",
            len(data),
        )
    _check_zeros(data, end, min(padded_end, len(data)), findings)
    if len(data) > padded_end:
        say = findings.warn if is_zeros(data[padded_end:]) else findings.unread
        say(f"{len(data) - padded_end} bytes follow the last tensor", "tensor_data", padded_end)


def _check_zeros(data: ByteView, start: int, end: int, findings: Findings) -> None:
    if not is_zeros(data[start:end]):
        findings.unread(f"padding from byte {start} to {end} is not all zero", "padding", start)
