"""Checks of an MLCP file: sizes, dtypes, and what its JSON lists against its records.

The original writer checks nothing, and no bytes are lost by what it writes:
all of it is a warning, except a shard that is listed and not there.
Spec: `docs/spec/mlcp.md`, "Checks".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wtxtgit.containers.cursor import quoted
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

# Largest size that a record can state: sizes are int64.
MAX_SIZE = 2**63 - 1


def check(container: Mlcp, _options: ReadOptions) -> Findings:
    """Check everything in the file; raises nothing."""
    findings = Findings()
    _check_version(container, findings)
    _check_shards(container, findings)
    for record in container.body.records:
        _check_record(record, findings)
    placement, body = container.body.placement, container.body
    if placement is not Placement.NOWHERE:
        first = next((record.end for record in body.records), body.end)
        message = (
            f"bytes of tensors stand {placement.value}, which the original reader does not read"
        )
        at = first if placement is Placement.AFTER_EACH else body.end
        findings.warn(message, "tensor bytes", at)
    return findings


def _check_version(container: Mlcp, findings: Findings) -> None:
    metadata, at = container.metadata, container.metadata_start
    if not isinstance(metadata, dict):
        findings.warn(
            "metadata is not a JSON object, the original reader refuses it", "metadata", at
        )
    elif metadata.get("version") != container.version:
        before, inside = quoted(container.version), _word(metadata.get("version"))
        findings.warn(f"version is {inside} in the metadata, {before} before it", "version", at)


def _check_shards(container: Mlcp, findings: Findings) -> None:
    """The metadata says how many shards to read; the records say how many there are."""
    metadata = container.metadata if isinstance(container.metadata, dict) else {}
    body, at = container.body, container.metadata_start
    listed, shards = metadata.get("shards"), shard_list(metadata)
    if listed is not None and not isinstance(listed, list):
        findings.warn(f"shards is {_word(listed)}, not a list", "shards", at)
    message = f"the metadata lists {len(shards)} shards, the file "
    if len(shards) > body.shard_count:
        findings.error(f"{message}ends after {body.shard_count}", "shards", body.end)
    elif len(shards) < body.shard_count:
        message += f"has {body.shard_count}: the original reader leaves out the others"
        findings.warn(message, "shards", at)
    by_shard = container.by_shard()
    for number, shard in enumerate(shards[: body.shard_count]):
        tensors = shard.get("tensors") if isinstance(shard, dict) else None
        if isinstance(tensors, list):
            _compare(tensors, by_shard.get(number, ()), f"shard {number}", at, findings)
        elif tensors is not None or not isinstance(shard, dict):
            findings.warn(f"shard {number} has no list of tensors", "tensors", at)
    tensors = metadata.get("tensorInfos")
    if isinstance(tensors, list):
        _compare(tensors, body.records, "tensorInfos", at, findings)


def _compare(
    listed: Sequence[object],
    records: Sequence[TensorRecord],
    where: str,
    at: int,
    findings: Findings,
) -> None:
    """Warn where a list of tensors in the metadata is not that of the records."""
    if len(listed) != len(records):
        findings.warn(
            f"{where}: the metadata lists {len(listed)} tensors, the file has {len(records)}",
            "tensors",
            at,
        )
        return
    for item, record in zip(listed, records, strict=True):
        name = quoted(record.name)
        if not isinstance(item, dict):
            findings.warn(
                f"{where}: what is listed for {name} is {_word(item)}", "tensors", record.start
            )
            continue
        for field in _different(item, record):
            said = f"{where}: {field} of tensor {name} is {_word(item.get(field))}"
            findings.warn(f"{said} in the metadata, not as in its record", field, record.start)


def _different(item: dict[str, object], record: TensorRecord) -> Iterator[str]:
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


def _check_record(record: TensorRecord, findings: Findings) -> None:
    size_at = record.end - DIM_SIZE
    shape_at = size_at - DIM_SIZE * len(record.shape)
    name = f"tensor {quoted(record.name)}"
    if record.dtype not in DTYPE_NUMBERS:
        at = shape_at - COUNT_SIZE - len(record.dtype.encode())
        findings.warn(f"{name} has the unknown dtype {quoted(record.dtype)}", "dtype", at)
    negative = next((dim for dim in record.shape if dim < 0), None)
    if negative is not None:
        findings.warn(f"{name} has the dimension {negative}", "shape", shape_at)
    if record.size < 0:
        findings.warn(f"{name} has the size {record.size}", "size", size_at)
    elif negative is None and record.dtype in DTYPE_NUMBERS:
        wanted = bounded_product(ITEM_BYTES[ELEMENTS[record.dtype]], record.shape, MAX_SIZE)
        if wanted != record.size:
            makes = "more than a size can say" if wanted > MAX_SIZE else f"{wanted} bytes"
            findings.warn(
                f"{name} has the size {record.size}, its dtype and shape make {makes}",
                "size",
                size_at,
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
