"""What .NET accepts as the metadata of an MLCP file: System.Text.Json with the original's classes.

A member of another type, a number out of range, an invalid time, a text that is not Unicode: its
reader throws for each, and the file can't be loaded. It skips members that it does not know. Spec:
`docs/spec/mlcp.md`, "Metadata".
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple

INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63), 2**63)
MOST_YEARS = 9999
MOST_OFFSET = 14 * 60
"""The most minutes by which a time may differ from UTC."""

# A date alone, or with hours and minutes; then seconds, up to 16 digits of a fraction, and an
# offset, each of which may be missing. Only ASCII digits: `\d` accepts others.
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,16})?)?"
    r"(?:Z|([+-])([0-9]{2})(?::([0-9]{2}))?)?)?"
)

Check = Callable[[object], bool]
Refusal = tuple[str, str]
"""The place in the metadata, as in `shards[0].rank`, and what is wrong there."""


class _Members(NamedTuple):
    """An object of the original's classes: its members, and what each may be."""

    of: Mapping[str, Any]


class _Items(NamedTuple):
    """A list whose items are all of one kind."""

    of: Any


class _Scalar(NamedTuple):
    """A single value, and a word for what it has to be."""

    check: Check
    word: str


def refusals(metadata: dict[str, object]) -> Iterator[Refusal]:
    """Yield what the original reader throws at, or skips, in the order of its members."""
    yield from _refused(metadata, METADATA, "")
    # Two names of one member: the writer writes both, and readers take the second.
    twice = [metadata.get(key) for key in ("sharding", "shardingStrategy")]
    if None not in twice and twice[0] != twice[1]:
        yield "shardingStrategy", "differs from sharding"
    yield from _unreadable(metadata)


def is_time(value: object) -> bool:
    """Whether it is a date and time as System.Text.Json reads a `DateTime`."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return False
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= monthrange(year, month)[1]:
        return False
    if hour > 23 or minute > 59 or second > 59:
        return False
    sign, hours, minutes = match.groups()[6:]
    if sign is None:
        return True
    offset = int(hours) * 60 + int(minutes or 0)
    if int(minutes or 0) > 59 or offset > MOST_OFFSET:
        return False
    # Converted to UTC it has to be in the years 1 to 9999, too.
    past_midnight = hour * 60 + minute
    if sign == "+" and (year, month, day) == (1, 1, 1):
        return past_midnight >= offset
    if sign == "-" and (year, month, day) == (MOST_YEARS, 12, 31):
        return past_midnight + offset < 24 * 60
    return True


def _is_integer(numbers: range) -> Check:
    return lambda value: type(value) is int and value in numbers


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


_INT32 = _Scalar(_is_integer(INT32), "a 32-bit integer")
_INT64 = _Scalar(_is_integer(INT64), "a 64-bit integer")
_NUMBER = _Scalar(lambda value: type(value) in (int, float), "a number")
_TEXT = _Scalar(_is_text, "a string")
_DATE = _Scalar(is_time, "a time")
_ANY = _Scalar(lambda value: value is None or isinstance(value, dict), "an object")
"""An object whose members the user chose."""

_TENSOR = _Members(
    {"name": _TEXT, "shape": _Items(_INT64), "dataType": _INT32, "offset": _INT64, "size": _INT64}
)
_SHARDING = _Members(
    {"strategy": _TEXT, "shardCount": _INT32, "precision": _TEXT, "strategySpecificInfo": _ANY}
)
_SHARD = _Members(
    {
        "rank": _INT32,
        "filePath": _TEXT,
        "fileSize": _INT64,
        "tensors": _Items(_TENSOR),
        "checksum": _TEXT,
    }
)
_TRAINING = _Members(
    {
        "epoch": _INT32,
        "step": _INT64,
        "learningRate": _NUMBER,
        "optimizerType": _TEXT,
        "optimizerState": _ANY,
    }
)
METADATA = _Members(
    {
        "version": _TEXT,
        "timestamp": _DATE,
        "worldSize": _INT32,
        "ddpRank": _INT32,
        "sharding": _SHARDING,
        "shards": _Items(_SHARD),
        "training": _TRAINING,
        "customFields": _ANY,
        "format": _TEXT,
        "shardingStrategy": _SHARDING,
        "tensorInfos": _Items(_TENSOR),
    }
)


def _refused(value: object, kind: Any, where: str) -> Iterator[Refusal]:
    match kind:
        case _Scalar():
            if not kind.check(value):
                yield where, f"is not {kind.word}"
        case _ if value is None:
            # A reference may be null.
            return
        case _Items():
            if not isinstance(value, list):
                yield where, "is not a list"
                return
            for number, item in enumerate(value):
                yield from _refused(item, kind.of, f"{where}[{number}]")
        case _Members():
            if not isinstance(value, dict):
                yield where, "is not an object"
                return
            yield from _of_members(value, kind.of, where)


def _of_members(
    value: dict[str, object], known: Mapping[str, Any], where: str
) -> Iterator[Refusal]:
    start = f"{where}." if where else ""
    missing = [key for key in known if key not in value]
    unknown = [key for key in value if key not in known]
    # The writer leaves no member out: a renamed one is skipped.
    if missing and unknown:
        yield start + missing[0], f"is missing, and {ascii(unknown[0])[:40]} is unknown"
    for key, kind in known.items():
        if key in value:
            yield from _refused(value[key], kind, start + key)


def _unreadable(metadata: object) -> Iterator[Refusal]:
    """Yield numbers and texts that Python can read but System.Text.Json can't."""
    pending = [metadata]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, float) and not isfinite(value):
            yield "metadata", f"has the number {value}"
        elif isinstance(value, str) and not value.isascii() and _has_surrogates(value):
            yield "metadata", "has a string with a lone surrogate"


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)
