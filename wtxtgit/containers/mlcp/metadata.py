"""The JSON of an MLCP file: what its writer lists, and how it spells it.

Written by .NET's System.Text.Json: two spaces of indent, nulls kept, and
everything but plain ASCII letters, digits and signs escaped.
Spec: `docs/spec/mlcp.md`, "Metadata".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from wtxtgit.containers import tags
from wtxtgit.model import EPOCH
from wtxtgit.model.reading import TensorSource

VERSION = "1.0.0"
"""What the original writer writes where the metadata have none."""

DTYPE_NAMES = (
    "Float16",
    "Float32",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Bool",
    "BFloat16",
)
"""Records have the name, the JSON its place in this enumeration."""
DTYPE_NUMBERS = {name: number for number, name in enumerate(DTYPE_NAMES)}

_REPEATED = frozenset({"version", "format", "shards", "customFields", "tensorInfos"})
"""Members that the file's structure, its tensors or the tags tell again."""
_ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|.)|[<>&'+`\x7f]")
"""An escape as Python writes it, or ASCII that .NET escapes and Python does not."""


def shard_list(metadata: object) -> list[object]:
    """What `shards` lists; nothing where it is null, missing or no list."""
    shards = metadata.get("shards") if isinstance(metadata, dict) else None
    return shards if isinstance(shards, list) else []


def stated_version(metadata: object) -> str:
    """The version that the original writer puts before the metadata."""
    version = metadata.get("version") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) and tags.is_text(version) else VERSION


def custom_fields(metadata: object) -> dict[str, str]:
    """The custom fields that are texts; they go to other formats as tags."""
    return tags.texts(metadata.get("customFields") if isinstance(metadata, dict) else None)


def untold(metadata: object) -> tuple[str, ...]:
    """Members that hold something beyond tensors and texts among the custom fields."""
    if not isinstance(metadata, dict):
        return () if metadata is None else ("metadata",)
    told = [
        key
        for key, value in metadata.items()
        if key not in _REPEATED and value is not None and not _repeats_sharding(key, metadata)
    ]
    if len(shard_list(metadata)) > 1:
        told.append("shards")
    fields = metadata.get("customFields")
    if isinstance(fields, dict):
        kept = custom_fields(metadata)
        told += [f"customFields.{key}" for key in fields if key not in kept]
    elif fields is not None:
        told.append("customFields")
    return tuple(tags.shown_key(key) for key in told)


def describe_shards(
    shards: Sequence[Sequence[TensorSource]],
    version: str,
    fields: Mapping[str, str],
    dtypes: Mapping[str, str],
) -> dict[str, object]:
    """The metadata that the original writer gives for these shards.

    `fields` are the custom ones, `dtypes` has each element's name in the
    format. The time is a fixed one:
    the same tensors give the same bytes.
    """
    sharding = {
        "strategy": "none",
        "shardCount": len(shards),
        "precision": _precision(shards),
        "strategySpecificInfo": {},
    }
    return {
        "version": version,
        "timestamp": EPOCH,
        "worldSize": len(shards),
        "ddpRank": 0,
        "sharding": sharding,
        "shards": [_shard(rank, shard, dtypes) for rank, shard in enumerate(shards)],
        "training": None,
        "customFields": dict(fields) or None,
        "format": "single_file",
        "shardingStrategy": sharding,
        "tensorInfos": None,
    }


def format_json(value: object) -> bytes:
    """JSON as System.Text.Json spells it; strings have no lone surrogates."""
    return _ESCAPED.sub(_escape, json.dumps(value, indent=2)).encode("ascii")


def _escape(match: re.Match[str]) -> str:
    found = match[0]
    if found.startswith("\\u"):
        return "\\u" + found[2:].upper()
    if found == '\\"' or not found.startswith("\\"):
        return f"\\u{ord(found[-1]):04X}"
    return found


def _shard(
    rank: int, tensors: Sequence[TensorSource], dtypes: Mapping[str, str]
) -> dict[str, object]:
    listed = []
    end = 0
    for tensor in tensors:
        listed.append(
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "dataType": DTYPE_NUMBERS[dtypes[tensor.element]],
                "offset": end,
                "size": tensor.nbytes,
            }
        )
        end += tensor.nbytes
    return {
        "rank": rank,
        "filePath": f"shard_{rank}.shard",
        "fileSize": end,
        "tensors": listed,
        "checksum": None,
    }


def _precision(shards: Iterable[Iterable[TensorSource]]) -> str:
    """The one float dtype of all tensors that are floats, `mixed` where there are more."""
    short = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64"}
    found = {short[t.element] for tensors in shards for t in tensors if t.element in short}
    return found.pop() if len(found) == 1 else "mixed"


def _repeats_sharding(key: str, metadata: Mapping[str, object]) -> bool:
    return key == "shardingStrategy" and metadata[key] == metadata.get("sharding")
