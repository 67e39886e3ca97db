"""Checks of an MLCP file: its JSON as .NET reads it, and compared with the records.

The original writer checks no sizes, shapes and dtypes: odd ones are a warning if the metadata have
them too. Everything that its reader refuses, and every difference between metadata and records, is
an error: one of the two was changed. Spec: `docs/spec/mlcp.md`, "Checks".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.mlcp import MAGIC, dotnet
from wtxtgit.containers.mlcp.read import (
    COUNT_SIZE,
    DIM_SIZE,
    DTYPE_NAMES,
    DTYPE_NUMBERS,
    ELEMENTS,
    Mlcp,
    Placement,
    TensorRecord,
    shard_list,
)
from wtxtgit.model.array import bounded_product
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ITEM_BYTES, ReadOptions

# The largest size that a record can state: sizes are int64.
MAX_SIZE = 2**63 - 1
FIRST_VERSION = "1.0.0"


def check(container: Mlcp, _options: ReadOptions) -> Findings:
    """Check everything in the file; raises nothing."""
    findings = Findings()
    _check_metadata(container, findings)
    _check_version(container, findings)
    _check_lengths(container, findings)
    confirmed = _check_shards(container, findings)
    for number, record in enumerate(container.body.records):
        say = findings.warn if number in confirmed else findings.error
        _check_record(record, say)
    placement, body = container.body.placement, container.body
    if placement is not Placement.NOWHERE:
        first = next((record.end for record in body.records), body.end)
        message = f"bytes of tensors are {placement.value}, where the original reader does not look"
        at = first if placement is Placement.AFTER_EACH else body.end
        findings.warn(message, "tensor bytes", at)
    return findings


def _check_metadata(container: Mlcp, findings: Findings) -> None:
    """Check that the original reader accepts the JSON, and that no member hides another."""
    at = container.metadata_start
    if not isinstance(container.metadata, dict):
        findings.error("metadata is not a JSON object", "metadata", at)
        return
    for where, problem in dotnet.refusals(container.metadata):
        findings.error(f"{where} {problem}", where.partition(".")[0].partition("[")[0], at)
        if len(findings.errors) > findings.errors.MOST:
            return
    if container.has_repeated_keys:
        findings.error(f"metadata repeats a key at byte {at}", "metadata", at)


def _check_version(container: Mlcp, findings: Findings) -> None:
    metadata, at = container.metadata, container.metadata_start
    if not isinstance(metadata, dict):
        return
    inside = metadata.get("version")
    if inside != container.version:
        # If metadata have no version, the writer puts the first one before them.
        is_left_out = inside is None and container.version == FIRST_VERSION
        (findings.warn if is_left_out else findings.error)(
            f"version is {_word(inside)} in the metadata, {quoted(container.version)} before it",
            "version",
            at,
        )


def _check_shards(container: Mlcp, findings: Findings) -> set[int]:
    """Compare the metadata's lists with the records; returns the records that a list confirms.

    The metadata say how many shards to read, the records how many there are.
    """
    metadata = container.metadata if isinstance(container.metadata, dict) else {}
    body, at = container.body, container.metadata_start
    shards = shard_list(metadata)
    message = f"the metadata lists {len(shards)} shards, but the file "
    if len(shards) > body.shard_count:
        findings.error(f"{message}ends after {body.shard_count}", "shards", body.end)
    elif len(shards) < body.shard_count:
        message += f"has {body.shard_count}: the original reader ignores the others"
        findings.warn(message, "shards", at)
    confirmed: set[int] = set()
    by_shard = container.by_shard()
    start = 0
    for number in sorted({*by_shard, *range(min(len(shards), body.shard_count))}):
        records = by_shard.get(number, ())
        shard = shards[number] if number < len(shards) else None
        tensors = shard.get("tensors") if isinstance(shard, dict) else None
        if isinstance(tensors, list):
            same = _compare(tensors, records, f"shard {number}", at, findings)
            confirmed.update(start + place for place in same)
        elif number < len(shards) and not isinstance(shard, dict):
            findings.error(f"shard {number} does not list its tensors", "tensors", at)
        start += len(records)
    tensors = metadata.get("tensorInfos")
    if isinstance(tensors, list):
        confirmed.update(_compare(tensors, body.records, "tensorInfos", at, findings))
    return confirmed


def _compare(
    listed: Sequence[object],
    records: Sequence[TensorRecord],
    where: str,
    at: int,
    findings: Findings,
) -> list[int]:
    """Compare a list of tensors in the metadata with the records; returns which of these it has."""
    if len(listed) != len(records):
        findings.error(
            f"{where}: the metadata lists {len(listed)} tensors, but the file has {len(records)}",
            "tensors",
            at,
        )
        return []
    same = []
    for number, (item, record) in enumerate(zip(listed, records, strict=True)):
        name = quoted(record.name)
        if not isinstance(item, dict):
            findings.error(
                f"{where}: the entry for {name} is {_word(item)}", "tensors", record.start
            )
            continue
        fields = list(different(item, record))
        for field in fields:
            message = f"{where}: {field} of tensor {name} is {_word(item.get(field))}"
            findings.error(f"{message} in the metadata, but not in its record", field, record.start)
        if not fields:
            same.append(number)
    return same


def different(item: dict[str, object], record: TensorRecord) -> Iterator[str]:
    """Yield the JSON's names of fields that differ from the record."""
    if item.get("name") != record.name:
        yield "name"
    if not _is_shape(item.get("shape"), record.shape):
        yield "shape"
    if not _is_dtype(item.get("dataType"), record.dtype):
        yield "dataType"
    if not _is_integer(item.get("size"), record.size):
        yield "size"


def _is_integer(value: object, expected: int) -> bool:
    return type(value) is int and value == expected


def _is_shape(value: object, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(value, list) and len(value) == len(shape) and all(map(_is_integer, value, shape))
    )


def _is_dtype(value: object, dtype: str) -> bool:
    """Whether a value denotes this dtype: a number, or its digits if the dtype has no name."""
    if type(value) is int:
        name = DTYPE_NAMES[value] if 0 <= value < len(DTYPE_NAMES) else str(value)
        return name == dtype
    return value == dtype


def _check_lengths(container: Mlcp, findings: Findings) -> None:
    """Warn of lengths of strings that take more bytes than needed, which could hide some."""
    version = len(container.version.encode())
    texts = [(container.metadata_start - COUNT_SIZE - len(MAGIC) - version, version, 0, "version")]
    for record in container.body.records:
        dtype = len(record.dtype.encode())
        fixed = 2 * COUNT_SIZE + DIM_SIZE * (len(record.shape) + 1)
        length_size = record.end - record.start - fixed - len(record.name.encode()) - dtype
        texts.append((length_size, dtype, record.start, "dtype"))
    for length_size, length, at, field in texts:
        if length_size > max(1, -(-length.bit_length() // 7)):
            findings.warn(f"the length of {field} takes {length_size} bytes", field, at)


def _check_record(record: TensorRecord, say: Callable[[str, str, int], None]) -> None:
    """Report what is odd in a record by itself."""
    size_at = record.end - DIM_SIZE
    shape_at = size_at - DIM_SIZE * len(record.shape)
    name = f"tensor {quoted(record.name)}"
    if record.dtype not in DTYPE_NUMBERS:
        at = shape_at - COUNT_SIZE - len(record.dtype.encode())
        say(f"{name} has unknown dtype {quoted(record.dtype)}", "dtype", at)
    negative = next((dim for dim in record.shape if dim < 0), None)
    if negative is not None:
        say(f"{name} has a negative dimension, {negative}", "shape", shape_at)
    if record.size < 0:
        say(f"{name} has size {record.size}", "size", size_at)
    elif negative is None and record.dtype in DTYPE_NUMBERS:
        needed = bounded_product(ITEM_BYTES[ELEMENTS[record.dtype]], record.shape, MAX_SIZE)
        if needed != record.size:
            makes = "more than a size field can hold" if needed > MAX_SIZE else f"{needed} bytes"
            say(
                f"{name} has size {record.size}, but its dtype and shape need {makes}",
                "size",
                size_at,
            )


def _word(value: object) -> str:
    """Return a JSON value in a few words."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str():
            return quoted(value)
        case list():
            return f"a list of {len(value)}"
        case _:
            return "an object"
