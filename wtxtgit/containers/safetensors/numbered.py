"""A model in several safetensors files without an index, recognised by the numbers in their names.

`model-00001-of-00002.safetensors` and so on are all files of a model. The files that torch writes
for each rank (`shard-00001-model-00001-of-00001.safetensors`) contain chunks of tensors, and say in
their metadata where these start. Spec: `docs/spec/safetensors.md`, "Numbered shards";
torch/distributed/checkpoint/hf_storage.py of torch 2.13.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from wtxtgit.containers import json_text, set_files
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.cursor import ListingBudget, fail, quoted
from wtxtgit.containers.format import MAX_SET_FILES, ListedFiles, OpenMember
from wtxtgit.containers.ranges import MAX_TENSORS, Stored
from wtxtgit.containers.safetensors import check as shard_check
from wtxtgit.containers.safetensors import read as shard_read
from wtxtgit.containers.safetensors.read import Safetensors
from wtxtgit.containers.safetensors.sharded import FORMAT, merged_tags, open_shard
from wtxtgit.containers.tensor_chunks import Chunk, ChunkBox, ChunkedTensor, flaw
from wtxtgit.errors import FormatError, InputError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings, MemberFindings
from wtxtgit.model.tensor import ITEM_BYTES, Description, ReadOptions, Tensor

SHARDING_KEY = "DCP_SHARDING_INFO"
"""The tag in which torch says where a file's chunks start in their tensors."""
OFFSETS_KEY = "saved_offsets"
TORCH_TAGS = frozenset({SHARDING_KEY, "DCP_VERSION"})
MAX_RANK = 64
_FILES_KEY = "numbered_shards"
is_index = partial(set_files.is_index, _FILES_KEY)
_NUMBERED = re.compile(
    r"(?P<rank>shard-[0-9]{5,9}-)?(?P<stem>.*)-(?P<number>[0-9]{5,9})-of-(?P<count>[0-9]{5,9})"
    r"\.safetensors",
    re.DOTALL,
)


def make_index(names: Sequence[str]) -> ByteView | None:
    """Make an index of the set that file names show, including missing files."""
    stems: dict[tuple[str, int, bool], list[str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            key = match["stem"], int(match["count"]), match["rank"] is not None
            stems.setdefault(key, []).append(name)
    if not stems:
        return None
    if len(stems) > 1:
        raise InputError(
            f"the folder holds {len(stems)} sets of numbered shards", hint="name a file"
        )
    (((stem, count, has_ranks), files),) = stems.items()
    # A rank only has those files to which it contributes something.
    if not has_ranks and count <= MAX_SET_FILES:
        width = len(files[0].removesuffix(".safetensors").rpartition("-")[2])
        expected = (
            f"{stem}-{number:0{width}}-of-{count:0{width}}.safetensors"
            for number in range(1, count + 1)
        )
        files = list(dict.fromkeys((*expected, *files)))
    return set_files.index_of(_FILES_KEY, files)


def read(data: ByteView, open_member: OpenMember) -> NumberedShards:
    """Read such an index; raises FormatError."""
    return NumberedShards(set_files.listed(_FILES_KEY, data, MAX_SET_FILES), open_member)


class NumberedShards(ListedFiles):
    """A model in numbered files."""

    __slots__ = ()

    def describe(self, options: ReadOptions) -> Description:
        """Return all tensors of all files, in the files' order; raises FormatError."""
        placed: dict[str, list[_Placed]] = {}
        tags: list[Mapping[str, str]] = []
        untold: dict[str, None] = {}
        size = count = 0
        listing = ListingBudget(0)
        for file in self.files:
            shard = open_shard(file, self.open_member, listing)
            size += len(shard.data)
            count += len(shard.header.tensors)
            if count > MAX_TENSORS:
                fail("shards list too many tensors", offset=0, field="tensors", kind="limit")
            for tensor in _placed(shard, file, listing):
                placed.setdefault(tensor.stored.name, []).append(tensor)
            inner = shard_read.describe(shard, options)
            tags.append({key: tag for key, tag in inner.tags.items() if key not in TORCH_TAGS})
            untold |= dict.fromkeys(inner.untold)
        parts = DecodedParts(options).of_file(size)
        common, at_odds = merged_tags(tags)
        return Description(
            FORMAT,
            tuple(_listed(name, chunks, parts) for name, chunks in placed.items()),
            {"metadata": None, "files": list(self.files)},
            tags=common,
            untold=(*untold, *at_odds),
            size=size,
        )

    def check_members(self, paths: Iterable[str], options: ReadOptions) -> Iterator[MemberFindings]:
        """Check files, each by itself; raises nothing."""
        for file in paths:
            findings = Findings()
            try:
                listing = ListingBudget(0)
                shard = open_shard(file, self.open_member, listing)
                findings.add_of_file(file, shard_check.check(shard, options))
                deque(_placed(shard, file, listing), maxlen=0)
                # One file at a time: each may list as much as the set.
                del shard
            except FormatError as error:
                findings.refuse(error, chunk=file)
            yield findings.of_member()

    def combine(self, members: Iterable[MemberFindings]) -> Findings:
        """Join the findings of all files, and check that their chunks make up whole tensors."""
        findings, _ = Findings.of_members(members)
        placed: dict[str, list[_Placed]] = {}
        listing = ListingBudget(0)
        for file in self.files:
            try:
                shard = open_shard(file, self.open_member, listing)
                for tensor in _placed(shard, file, listing):
                    placed.setdefault(tensor.stored.name, []).append(tensor)
            except FormatError as error:
                # Already reported for the file, without which nothing can be shown to be whole.
                # Only that all files together list too much is reported here.
                if error.kind == "limit" and not findings.errors:
                    findings.refuse(error, chunk=file)
                return findings
        for name, chunks in placed.items():
            whole = _whole(name, chunks)
            why = flaw(whole.shape, [chunk.box for chunk in whole.chunks])
            kinds = {chunk.stored.dtype for chunk in chunks}
            if len(kinds) > 1:
                why = f"its chunks have different dtypes: {quoted(', '.join(sorted(kinds)))}"
            if why is not None:
                files = quoted(", ".join(dict.fromkeys(chunk.file for chunk in chunks)))
                findings.error(f"tensor {quoted(name)} of {files}: {why}", OFFSETS_KEY)
        return findings


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """A tensor of a file, and which chunk of the model's tensor it is."""

    file: str
    data: ByteView
    stored: Stored
    box: ChunkBox

    def listed(self) -> Tensor:
        return self.stored.listed(self.data)


def _placed(shard: Safetensors, file: str, listing: ListingBudget) -> Iterator[_Placed]:
    """Yield the tensors of a file with their places; raises FormatError if these can't be read."""
    offsets_of = _offsets(shard, file, listing)
    for stored in shard.header.tensors:
        if len(stored.shape) > MAX_RANK:
            fail(f"tensor {quoted(stored.name)} of {quoted(file)} has over {MAX_RANK} dimensions",
                 offset=stored.start, field="shape", kind="limit")  # fmt: skip
        offsets = offsets_of.get(stored.name, (0,) * len(stored.shape))
        if len(offsets) != len(stored.shape):
            _refuse(file, f"has a different number of dimensions for {quoted(stored.name)}")
        yield _Placed(file, shard.data, stored, ChunkBox(offsets, stored.shape))


def _offsets(shard: Safetensors, file: str, listing: ListingBudget) -> dict[str, tuple[int, ...]]:
    """Return the positions of a file's chunks, from torch's metadata; {} for whole tensors."""
    metadata = shard.header.metadata
    text = metadata.get(SHARDING_KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        return {}
    try:
        value = json_text.parse(memoryview(text.encode()), SHARDING_KEY, listing=listing)
    except (FormatError, UnicodeEncodeError):
        value = None
    if not isinstance(value, dict):
        _refuse(file, "is not a JSON object")
    offsets_of = {}
    for name, about in value.items():
        offsets = about.get(OFFSETS_KEY) if isinstance(about, dict) else None
        if not isinstance(offsets, list) or any(type(n) is not int or n < 0 for n in offsets):
            _refuse(file, f"has no {OFFSETS_KEY} for {quoted(name)}")
        offsets_of[name] = tuple(offsets)
    return offsets_of


def _refuse(file: str, why: str) -> NoReturn:
    fail(f"{SHARDING_KEY} of {quoted(file)} {why}", offset=0, field=SHARDING_KEY)


def _listed(name: str, placed: Sequence[_Placed], parts: DecodedParts) -> Tensor:
    if len(placed) == 1 and not any(placed[0].box.offsets):
        # No offset: it would be a position in another file.
        return replace(placed[0].listed(), offset=None)
    return _whole(name, placed).listed(parts)


def _whole(name: str, placed: Sequence[_Placed]) -> ChunkedTensor:
    """Return the model's tensor of which files have chunks, as large as these reach."""
    first = placed[0].stored
    rank = len(first.shape)
    ends = [
        tuple(map(sum, zip(tensor.box.offsets, tensor.box.sizes, strict=True)))
        for tensor in placed
        if len(tensor.box.sizes) == rank
    ]
    shape = tuple(max(sizes) for sizes in zip(*ends, strict=True))
    item = ITEM_BYTES.get(first.element or "", 0)
    chunks = [Chunk(tensor.box, partial(tensor.listed)) for tensor in placed]
    return ChunkedTensor(name, first.dtype, shape, first.element, item, chunks)
