"""Inspect: what a file holds, as data."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from wtxtgit import containers
from wtxtgit.errors import FormatError, InputError
from wtxtgit.git import index as git_index
from wtxtgit.git.repository import Repository
from wtxtgit.model import Extent, Tensor
from wtxtgit.ops.files import map_file
from wtxtgit.ops.smudge import smudge_verified
from wtxtgit.ops.spool import spooled
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.verify import Report, verify

_HASHED_TIMES = 4


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a container: where it stands and which array of the text holds it."""

    offset: int
    size: int
    kind: str
    array: str | None = None
    name: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def as_dict(self) -> dict[str, object]:
        record = {
            "offset": self.offset,
            "size": self.size,
            "kind": self.kind,
            "array": self.array,
            "name": self.name,
            "dtype": self.dtype,
            "shape": None if self.shape is None else list(self.shape),
        }
        return {key: value for key, value in record.items() if value is not None}


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor as its file lists it; `sha256` (hex) is over its stored bytes.

    `array` is its name in the text: `git log -L` and hunk headers have that.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    sha256: str | None
    offset: int | None = None
    array: str | None = None

    def as_dict(self) -> dict[str, object]:
        record = {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "size": self.size,
            "offset": self.offset,
            "array": self.array,
            "sha256": self.sha256,
        }
        return {key: value for key, value in record.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a file holds. `reason` says why it is stored whole, if it is."""

    path: str
    format: str
    size: int
    stored_as: str
    reason: str | None = None
    parts: tuple[Part, ...] = ()
    tensors: tuple[TensorFacts, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        record: dict[str, object] = {
            "path": self.path,
            "format": self.format,
            "size": self.size,
            "stored_as": self.stored_as,
        }
        if self.reason is not None:
            record["reason"] = self.reason
        record["parts"] = [part.as_dict() for part in self.parts]
        record["tensors"] = [tensor.as_dict() for tensor in self.tensors]
        record["metadata"] = self.metadata
        return record


def inspect(target: str, *, threads: int | None = None) -> Inspection:
    """Inspect a file, or a blob of a repository as REV:PATH.

    A file that exists wins over a revision. A blob is looked at as the file
    that a checkout would give.
    """
    path = Path(target)
    data = _blob(target) if ":" in target and not path.exists() else map_file(path)
    if data[: len(MAGIC)] == MAGIC:
        report = verify(data, threads=threads)
        smudged = smudge_verified(data, report, threads=threads)
        if smudged.layout is None:
            return _inspect_text(target, len(data), report)
        data = spooled(smudged.pieces())
    return _inspect_container(target, data)


def _blob(target: str) -> memoryview:
    repo = Repository.discover()
    revision, _, path = target.partition(":")
    if path.startswith(("./", "../")):
        # Relative to the folder here, as for git itself.
        path = posixpath.normpath(os.fsdecode(repo.prefix) + path)
    oid = git_index.resolve_blob(repo, f"{revision}:{path}")
    return spooled(git_index.blob_chunks(repo, oid), repo.state_dir)


def _inspect_container(target: str, data: memoryview) -> Inspection:
    cut = containers.split(data)
    sizes = {array.name: array.data.nbytes for array in cut.arrays}
    parts = []
    offset = 0
    for extent in cut.layout.extents:
        part = _part(extent, offset, sizes)
        parts.append(part)
        offset += part.size
    arrays = {(part.offset, part.name): part.array for part in parts if part.kind == "tensor"}
    kind = containers.detect(data)
    try:
        description = containers.describe(data)
    except FormatError:
        return Inspection(target, kind, len(data), cut.layout.format, cut.reason, tuple(parts))
    return Inspection(
        target,
        kind,
        len(data),
        cut.layout.format,
        cut.reason,
        tuple(parts),
        _facts(description.tensors, arrays, len(data)),
        description.metadata,
    )


def _inspect_text(target: str, size: int, report: Report) -> Inspection:
    """A native text, or one that is damaged: its own arrays."""
    if report.index.stop is not None and not report.index.has_header:
        raise InputError(f"{target}: {report.index.stop}")
    tensors = tuple(
        TensorFacts(a.name, a.claim.dtype, a.claim.shape, a.nbytes, a.claim.sha256.hex())
        for a in report.index.arrays
    )
    reason = None if report.ok else f"{len(report.problems)} problems, wtxtgit verify lists them"
    return Inspection(
        target, "wtxt", size, "wtxt", reason, tensors=tensors, metadata=_header(report)
    )


def _header(report: Report) -> dict[str, object]:
    meta = report.index.meta
    root = report.index.root
    header: dict[str, object] = {
        "schema": meta.schema,
        "gen": meta.gen,
        "ts": meta.ts,
        "build": meta.build,
        "host": meta.host,
        "cuda": meta.cuda,
        "pending": report.index.pending,
    }
    if root is not None:
        header["sha256_all"] = root.sha256_all.hex()
        header["merkle_prev"] = root.merkle_prev.hex()
        header["merkle_this"] = root.merkle_this.hex()
    if report.index.signature is not None:
        header["keyid"] = report.index.signature.keyid
    if report.index.audit is not None:
        header["audit"] = report.index.audit
    return header


def _part(extent: Extent, offset: int, sizes: dict[str, int]) -> Part:
    if extent.array is None:
        kind, size = ("zeros", extent.zeros) if extent.zeros else ("hex", len(extent.hex or b""))
        return Part(offset, size or 0, kind)
    kind = "tensor" if extent.is_tensor else "part"
    size = sizes[extent.array]
    return Part(offset, size, kind, extent.array, extent.name, extent.dtype, extent.shape)


def _facts(
    tensors: Iterable[Tensor], arrays: Mapping[tuple[int, str | None], str | None], size: int
) -> tuple[TensorFacts, ...]:
    """What is to be told of each tensor.

    Tensors of a hostile file may all span all of it: hashing ends when
    `_HASHED_TIMES` the file's size is hashed.
    """
    left = _HASHED_TIMES * size
    digests: dict[tuple[int, int], str] = {}
    facts = []
    for tensor in tensors:
        span = (tensor.offset, tensor.data.nbytes)
        if span not in digests and left >= span[1]:
            left -= span[1]
            digests[span] = sha256(tensor.data).hexdigest()
        array = arrays.get((tensor.offset, tensor.name))
        facts.append(
            TensorFacts(
                tensor.name, tensor.dtype, tensor.shape, span[1], digests.get(span), span[0], array
            )
        )
    return tuple(facts)
