"""A model in several safetensors files: `model.safetensors.index.json` and the files that it lists.

A JSON object: `weight_map` has the file of each tensor, `metadata.total_size` the size of all.
Source: Hugging Face transformers and huggingface_hub. Spec: `docs/spec/safetensors.md`, "Sharded
models".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from wtxtgit.containers import json_text
from wtxtgit.containers.cursor import ListingBudget, fail, quoted
from wtxtgit.containers.format import (
    MAX_SET_FILES,
    SET_HEAD,
    FileSet,
    Opening,
    OpenMember,
    is_in_folder,
    opened_member,
    unlisted,
)
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.safetensors import check as shard_check
from wtxtgit.containers.safetensors import claims
from wtxtgit.containers.safetensors import read as shard_read
from wtxtgit.containers.safetensors.read import Safetensors
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings, MemberFindings
from wtxtgit.model.tensor import Description, ReadOptions, Tensor

FORMAT = "safetensors-index"


_KEYS = frozenset({"metadata", "weight_map"})
"""The keys of an index."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardedModel(FileSet):
    """An index that was read; `open_member` opens its files when they are needed.

    `listing` is what all files together may still list after the index.
    """

    weight_map: dict[str, str]
    metadata: object
    open_member: OpenMember
    listing: ListingBudget
    further: dict[str, object] = field(default_factory=dict)
    """Values of the index under keys that nobody specified."""

    def describe(self, options: ReadOptions) -> Description:
        """Return all tensors of all files, in the order of the index.

        Raises FormatError for a file that can't be read or lacks its tensors.
        """
        tensors: dict[str, Tensor] = {}
        tags: list[Mapping[str, str]] = []
        untold: dict[str, None] = {}
        beside: list[str] = []
        size = 0
        listing = self.listing.apart()
        for file, names in self._by_file().items():
            opened = open_shard(file, self.open_member, listing)
            size += len(opened.data)
            inner = shard_read.describe(opened, options)
            listed = {tensor.name: tensor for tensor in inner.tensors}
            for name in names:
                if name not in listed:
                    raise FormatError(_missing(name, file), field="weight_map")
                tensors[name] = replace(listed[name], offset=None)
            beside += unlisted(file, listed.keys() - set(names))
            tags.append(inner.tags)
            untold |= dict.fromkeys(inner.untold)
        common, at_odds = merged_tags(tags)
        further = {"further": self.further} if self.further else {}
        return Description(
            FORMAT,
            tuple(tensors[name] for name in self.weight_map),
            {"metadata": self.metadata, "files": list(self._by_file())} | further,
            tags=common,
            untold=(*untold, *at_odds, *self._untold()),
            size=size,
            unlisted=tuple(beside),
        )

    def _untold(self) -> list[str]:
        """Return what the index says besides the size of its tensors."""
        metadata = self.metadata if isinstance(self.metadata, dict) else {}
        return [f"metadata {quoted(key)}" for key in metadata if key != "total_size"]

    @property
    def members(self) -> tuple[str, ...]:
        """The paths of the files that the index lists."""
        return tuple(self._by_file())

    def check_members(self, paths: Iterable[str], options: ReadOptions) -> Iterator[MemberFindings]:
        """Check files, and that the index lists what they contain; raises nothing."""
        listed = self._by_file()
        for file in paths:
            findings = Findings()
            try:
                shard = open_shard(file, self.open_member, self.listing.apart())
            except FormatError as error:
                findings.refuse(error, chunk=file)
                yield findings.of_member()
                continue
            findings.add_of_file(file, shard_check.check(shard, options))
            self._check_names(shard, file, listed[file], findings)
            sizes = {tensor.name: tensor.nbytes for tensor in shard.header.tensors}
            nbytes = sum(sizes.get(name, 0) for name in listed[file])
            # One file at a time: each may list as much as the set.
            del shard, sizes
            yield findings.of_member(nbytes)

    def combine(self, members: Iterable[MemberFindings]) -> Findings:
        """Join the findings of all files, in order, and compare their size with the stated one."""
        findings, total = Findings.of_members(members)
        # The size of an unreadable file was not counted.
        if not findings.errors:
            self._check_total(total, findings)
        return findings

    def _check_names(
        self, shard: Safetensors, file: str, names: list[str], findings: Findings
    ) -> None:
        """Check that a file has exactly the tensors that the index lists for it."""
        own = {tensor.name for tensor in shard.header.tensors}
        for name in names:
            if name not in own:
                findings.error(_missing(name, file), "weight_map", chunk=file)
        for name in sorted(own.difference(names)):
            message = f"tensor {quoted(name)} is in {quoted(file)}, but the index"
            other = self.weight_map.get(name)
            if other is None:
                findings.warn(f"{message} does not list it", "weight_map", chunk=file)
            else:
                # A program that loads all files may get either one.
                findings.error(f"{message} lists it in {quoted(other)}", "weight_map", chunk=file)

    def _by_file(self) -> dict[str, list[str]]:
        files: dict[str, list[str]] = {}
        for name, file in self.weight_map.items():
            files.setdefault(file, []).append(name)
        return files

    def _check_total(self, total: int, findings: Findings) -> None:
        listed = self.metadata.get("total_size") if isinstance(self.metadata, dict) else None
        if listed is not None and (isinstance(listed, bool) or listed != total):
            shown = listed if isinstance(listed, int | float) else "not a number"
            findings.warn(
                f"total_size is {shown}, but the tensors have {total} bytes", "total_size", 0
            )


def open_shard(file: str, open_member: OpenMember, listing: ListingBudget) -> Safetensors:
    """Open a file of a set, by its path there; raises FormatError whatever is wrong with it.

    What it lists counts in the `listing` of the set.
    """
    # Files at these paths are opened: no path may lead out of the folder.
    if not is_in_folder(file):
        raise FormatError(
            f"shard {quoted(file)} is not a path in the index's folder", field="weight_map"
        )
    data = opened_member(open_member, file, "weight_map", called="shard ")
    if not claims(Opening(data)):
        raise FormatError(
            f"shard {quoted(file)} is not a safetensors file", offset=0, field="magic"
        )
    try:
        return shard_read.read(data, listing.of_file(len(data)))
    except FormatError as error:
        raise error.within(f"shard {quoted(file)}") from None


def is_index(data: ByteView) -> bool:
    """Whether a JSON file is an index of safetensors files, judged by its first bytes."""
    head = bytes(data[:SET_HEAD])
    return b'"weight_map"' in head and b'.safetensors"' in head and len(data) <= MAX_JSON


def read(data: ByteView, open_member: OpenMember) -> ShardedModel:
    """Read an index.

    `open_member` opens its files when they are needed. Raises FormatError.
    """
    listing = ListingBudget(len(data))
    value = json_text.parse(data, "index", unique_keys=True, listing=listing)
    weight_map = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(weight_map, dict):
        fail("index has no weight_map", offset=0, field="weight_map")
    if len(weight_map) > MAX_TENSORS:
        message = f"index lists {len(weight_map)} tensors"
        fail(message, offset=0, field="weight_map", kind="limit")
    for name, file in weight_map.items():
        json_text.check_name(name, "tensor name", offset=0)
        if not isinstance(file, str):
            fail(f"the index names no file for tensor {quoted(name)}", offset=0, field="weight_map")
        json_text.check_name(file, "file name", offset=0)
    files = len(set(weight_map.values()))
    if files > MAX_SET_FILES:
        fail(f"index lists {files} files", offset=0, field="weight_map", kind="limit")
    further = {key: item for key, item in value.items() if key not in _KEYS}
    return ShardedModel(weight_map, value.get("metadata"), open_member, listing, further)


def _missing(name: str, file: str) -> str:
    return f"tensor {quoted(name)} is not in {quoted(file)}, but the index lists it there"


def merged_tags(tags: Iterable[Mapping[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return the tags of all files together, and the names of those on which files disagree."""
    common: dict[str, str] = {}
    at_odds: dict[str, None] = {}
    for each in tags:
        for key, value in each.items():
            if common.setdefault(key, value) != value:
                at_odds[key] = None
    return {key: value for key, value in common.items() if key not in at_odds}, list(at_odds)
