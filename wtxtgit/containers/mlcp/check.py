"""Checks of an MLCP file: sizes, dtypes, and what its JSON lists against its records.

The original writer checks nothing, and no bytes are lost by what it writes:
all of it is a warning, except a shard that is listed and not there.
Spec: `docs/spec/mlcp.md`, "Checks".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.mlcp.read import (
    COUNT_SIZE,
    DIM_SIZE,
    DTYPE_NAMES,
    DTYPE_NUMBERS,
    ELEMENTS,
    Mlcp,
    Placement,
    Record,
)
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ITEM_BYTES, ReadOptions

MAX_SIZE = 2**63 - 1
"""Largest size that a record can state."""


def check(container: Mlcp, _options: ReadOptions) -> Findings:
    """Check everything in the file; raises nothing."""
    findings = Findings()
    _check_version(container, findings)
    _check_shards(container, findings)
    for record in container.body.records:
        _check_record(record, findings)
    _check_placement(container, findings)
    return findings


def _check_version(container: Mlcp, findings: Findings) -> None:
    metadata = container.metadata
    if not isinstance(metadata, dict):
        findings.warn(
            "structure",
            "metadata is not a JSON object, the original reader refuses it",
            offset=container.metadata_start,
            field="metadata",
        )
        return
    listed = metadata.get("version")
    if listed != container.version:
        said = quoted(listed) if isinstance(listed, str) else _word(listed)
        findings.warn(
            "structure",
            f"version is {said} in the metadata, {quoted(container.version)} before it",
            offset=container.metadata_start,
            field="version",
        )


def _check_shards(container: Mlcp, findings: Findings) -> None:
    """The metadata says how many shards to read; the records say how many there are."""
    metadata, body = container.metadata, container.body
    listed = metadata.get("shards") if isinstance(metadata, dict) else None
    at = container.metadata_start
    if listed is not None and not isinstance(listed, list):
        message = f"shards is {_word(listed)}, not a list"
        findings.warn("structure", message, offset=at, field="shards")
    shards = listed if isinstance(listed, list) else []
    if len(shards) > body.shard_count:
        findings.error(
            "structure",
            f"the metadata lists {len(shards)} shards, the file ends after {body.shard_count}",
            offset=body.end,
            field="shards",
        )
    elif len(shards) < body.shard_count:
        findings.warn(
            "structure",
            f"the metadata lists {len(shards)} shards, the file has {body.shard_count}: "
            "the original reader leaves out the others",
            offset=at,
            field="shards",
        )
    for number, records in _records_of(body.records, min(len(shards), body.shard_count)):
        shard = shards[number]
        tensors = shard.get("tensors") if isinstance(shard, dict) else None
        if isinstance(tensors, list):
            _compare(tensors, records, f"shard {number}", at, findings)
        elif tensors is not None or not isinstance(shard, dict):
            message = f"shard {number} has no list of tensors"
            findings.warn("structure", message, offset=at, field="tensors")
    tensors = metadata.get("tensorInfos") if isinstance(metadata, dict) else None
    if isinstance(tensors, list):
        _compare(tensors, body.records, "tensorInfos", at, findings)


def _records_of(records: Sequence[Record], count: int) -> Iterator[tuple[int, Sequence[Record]]]:
    """The first `count` shards with their records, of which some have none."""
    groups = groupby(records, lambda record: record.shard)
    ahead = next(groups, None)
    for number in range(count):
        if ahead is not None and ahead[0] == number:
            yield number, tuple(ahead[1])
            ahead = next(groups, None)
        else:
            yield number, ()


def _compare(
    listed: Sequence[object], records: Sequence[Record], where: str, at: int, findings: Findings
) -> None:
    """Warn where a list of tensors in the metadata is not that of the records."""
    if len(listed) != len(records):
        findings.warn(
            "structure",
            f"{where}: the metadata lists {len(listed)} tensors, the file has {len(records)}",
            offset=at,
            field="tensors",
        )
        return
    for item, record in zip(listed, records, strict=True):
        if not isinstance(item, dict):
            message = f"{where}: what is listed for {quoted(record.name)} is {_word(item)}"
            findings.warn("structure", message, offset=record.start, field="tensors")
            continue
        for field in _different(item, record):
            findings.warn(
                "structure",
                f"{where}: {field} of tensor {quoted(record.name)} is "
                f"{_word(item.get(field))} in the metadata, not as in its record",
                offset=record.start,
                field=field,
            )


def _different(item: dict[str, object], record: Record) -> Iterator[str]:
    """The JSON's names of what it says otherwise than the record."""
    if item.get("name") != record.name:
        yield "name"
    if not _is_shape(item.get("shape"), record.shape):
        yield "shape"
    if not _is_dtype(item.get("dataType"), record.dtype):
        yield "dataType"
    if not _is_integer(item.get("size"), record.size):
        yield "size"


def _is_integer(value: object, wanted: int) -> bool:
    return type(value) is int and value == wanted


def _is_shape(value: object, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(value, list) and len(value) == len(shape) and all(map(_is_integer, value, shape))
    )


def _is_dtype(value: object, dtype: str) -> bool:
    """Numbers stand for dtypes; one that has no name is written as its digits."""
    if type(value) is int:
        name = DTYPE_NAMES[value] if 0 <= value < len(DTYPE_NAMES) else str(value)
        return name == dtype
    return value == dtype


def _check_record(record: Record, findings: Findings) -> None:
    size_at = record.end - DIM_SIZE
    shape_at = size_at - DIM_SIZE * len(record.shape)
    name = quoted(record.name)
    if record.dtype not in DTYPE_NUMBERS:
        findings.warn(
            "structure",
            f"tensor {name} has the unknown dtype {quoted(record.dtype)}",
            offset=shape_at - COUNT_SIZE - len(record.dtype.encode()),
            field="dtype",
        )
    negative = next((dim for dim in record.shape if dim < 0), None)
    if negative is not None:
        message = f"tensor {name} has the dimension {negative}"
        findings.warn("structure", message, offset=shape_at, field="shape")
    if record.size < 0:
        message = f"tensor {name} has the size {record.size}"
        findings.warn("structure", message, offset=size_at, field="size")
    elif negative is None and record.dtype in DTYPE_NUMBERS:
        wanted = _size(record)
        if wanted != record.size:
            said = "more than a size can say" if wanted is None else f"{wanted} bytes"
            findings.warn(
                "structure",
                f"tensor {name} has the size {record.size}, its dtype and shape make {said}",
                offset=size_at,
                field="size",
            )


def _size(record: Record) -> int | None:
    """Bytes that dtype and shape make, None where no size can say so many."""
    if 0 in record.shape:
        return 0
    total = ITEM_BYTES[ELEMENTS[record.dtype]]
    for dim in record.shape:
        total *= dim
        if total > MAX_SIZE:
            return None
    return total


def _check_placement(container: Mlcp, findings: Findings) -> None:
    placement = container.body.placement
    if placement is Placement.NOWHERE:
        return
    first = next((record.end for record in container.body.records), container.body.end)
    findings.warn(
        "structure",
        f"bytes of tensors stand {placement.value}, which the original reader does not read",
        offset=first if placement is Placement.AFTER_EACH else container.body.end,
        field="tensor bytes",
    )


def _word(value: object) -> str:
    """A JSON value in a few words."""
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
