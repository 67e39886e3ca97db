"""MLCP checkpoints in several files: `NAME.metadata.json`, and a file of each rank beside it.

The JSON is that of the single-file form. A rank's file has the bytes of its tensors, after a short
header (`NAME_shard_0.shard`) or without one (`NAME_shard_0.bin`). It does not name its tensors:
only the JSON says which they are, and where. Spec: `docs/spec/mlcp.md`, "Checkpoints in shards".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from struct import pack

from wtxtgit.containers import json_text
from wtxtgit.containers.cursor import Cursor, ListingBudget, fail, quoted
from wtxtgit.containers.format import (
    MAX_SET_FILES,
    SET_HEAD,
    FileSet,
    OpenMember,
    is_in_folder,
    name_of_index,
    opened_member,
)
from wtxtgit.containers.intervals import gaps, overlaps
from wtxtgit.containers.mlcp import INDEX_ENDING, SHARD_ENDING, SHARD_MAGIC, dotnet
from wtxtgit.containers.mlcp.read import (
    COUNT_SIZE,
    DTYPE_NAMES,
    ELEMENTS,
    custom_fields,
    lists_told,
    own_values,
    untold,
)
from wtxtgit.containers.ranges import MAX_TENSORS, Stored
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError, NotRead
from wtxtgit.io.view import ByteView, hashed, pieces
from wtxtgit.model.array import bounded_product
from wtxtgit.model.findings import Findings, MemberFindings
from wtxtgit.model.tensor import ITEM_BYTES, Description, ReadOptions, Tensor

FORMAT = "sharded-mlcp"
RAW_ENDING = ".bin"
"""The ending of files from other parts of the framework: bytes of tensors without a header."""
MAX_RANK_NUMBER = 2**31 - 1
_WORDS = (b'"ddpRank"', b'"shards"')
_MOST_CHECKSUM = 128
"""Length of a SHA-512 in hex: a longer checksum is something else."""
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ListedTensor:
    """A tensor as the JSON lists it: `size` bytes at `offset` of its shard's data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard as the JSON lists it, and the file that contains it."""

    rank: int
    path: str
    tensors: tuple[ListedTensor, ...]
    file_size: object
    checksum: str

    @property
    def has_header(self) -> bool:
        return not self.path.endswith(RAW_ENDING)


@dataclass(frozen=True, slots=True, eq=False)
class RankFile:
    """A shard's file that was read: its data are [start, end); `checksum_end` is in the header."""

    file: ByteView
    start: int
    end: int
    checksum: str = ""
    checksum_end: int = 0

    @property
    def data(self) -> ByteView:
        return self.file[self.start : self.end]

    def digests(self) -> Iterator[str]:
        """Yield what a checksum may be: SHA-256 of the data, the file, or the file without it."""
        yield hashed(sha256(), pieces(self.data)).hexdigest()
        yield hashed(sha256(), pieces(self.file)).hexdigest()
        if self.checksum_end:
            # A file can't contain its own hash: the framework computes it before writing it.
            head = shard_header(_rank_of(self.file), "", 0)[:-COUNT_SIZE]
            rest = pieces(self.file[self.checksum_end :])
            yield hashed(hashed(sha256(), [head]), rest).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class ShardedCheckpoint(FileSet):
    """A checkpoint whose JSON was read; `open_member` opens its files when they are needed."""

    metadata: dict[str, object]
    shards: tuple[ListedShard, ...]
    open_member: OpenMember
    has_repeated_keys: bool

    def describe(self, options: ReadOptions) -> Description:
        """Return all tensors, shard by shard; those of a shard that can't be opened are absent."""
        tensors: list[Tensor] = []
        beside: list[str] = []
        size = 0
        counts = Counter(tensor.name for shard in self.shards for tensor in shard.tensors)
        for shard in self.shards:
            opened, why = None, None
            try:
                opened = self.open(shard)
            except FormatError as error:
                why = NotRead.because(error)
            else:
                size += len(opened.file)
                beside += (
                    f"{end - start} bytes of {quoted(shard.path)} belong to no tensor"
                    for start, end in unclaimed(shard, opened)
                )
                length = opened.checksum_end - len(SHARD_MAGIC) - 2 * COUNT_SIZE
                if length > _MOST_CHECKSUM:
                    beside.append(f"{length} bytes of {quoted(shard.path)} are not a checksum")
            for tensor in shard.tensors:
                # Ranks of one training may each have a part of a tensor, under the same name.
                alike = counts[tensor.name] > 1
                name = f"shard_{shard.rank}/{tensor.name}" if alike else tensor.name
                tensors.append(replace(_tensor(tensor, opened, why), name=name, offset=None))
        return Description(
            FORMAT,
            tuple(tensors),
            {"metadata": self.metadata, "files": list(self.members)} | lists_told(self.metadata),
            tags=custom_fields(self.metadata),
            untold=untold(self.metadata),
            own=own_values(self.metadata),
            size=size,
            unlisted=tuple(beside),
        )

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the shards' files."""
        return tuple(shard.path for shard in self.shards)

    def open(self, shard: ListedShard) -> RankFile:
        """Read a shard's file; raises FormatError if the framework's reader would refuse it."""
        data = opened_member(self.open_member, shard.path, "rank")
        if not shard.has_header:
            return RankFile(data, 0, len(data))
        try:
            return _read_file(data, shard)
        except FormatError as error:
            raise error.within(quoted(shard.path)) from None

    def check_members(self, paths: Iterable[str], options: ReadOptions) -> Iterator[MemberFindings]:
        """Check shards, and what the JSON says of each; raises nothing."""
        by_path = {shard.path: shard for shard in self.shards}
        for path in paths:
            findings = Findings()
            try:
                opened = self.open(by_path[path])
            except FormatError as error:
                findings.refuse(error, chunk=path)
            else:
                _check_shard(by_path[path], opened, findings)
            yield findings.of_member()

    def combine(self, members: Iterable[MemberFindings]) -> Findings:
        """Join the findings of all shards, in order, and add those of the JSON itself."""
        findings, _ = Findings.of_members(members)
        for where, problem in dotnet.refusals(self.metadata):
            findings.error(f"{where} {problem}", where.partition(".")[0].partition("[")[0], 0)
            if len(findings.errors) > findings.errors.MOST:
                return findings
        if self.has_repeated_keys:
            findings.error("metadata repeats a key", "metadata", 0)
        for key in ("sharding", "shardingStrategy"):
            sharding = self.metadata.get(key)
            count = sharding.get("shardCount") if isinstance(sharding, dict) else None
            if type(count) is int and count not in (0, len(self.shards)):
                message = f"{key}.shardCount is {count}, but {len(self.shards)} shards are listed"
                findings.error(message, "shardCount", 0)
        infos = self.metadata.get("tensorInfos")
        if isinstance(infos, list) and infos != _all_listed(self.metadata):
            findings.error("tensorInfos are not the tensors of all shards", "tensorInfos", 0)
        return findings


def is_index(data: ByteView) -> bool:
    """Whether a JSON file has the metadata of such a checkpoint, judged by its first bytes."""
    head = bytes(data[:SET_HEAD])
    return all(word in head for word in _WORDS) and len(data) <= MAX_JSON


def read(data: ByteView, open_member: OpenMember) -> ShardedCheckpoint:
    """Read the JSON.

    `open_member` opens the shards when they are needed. Raises FormatError.
    """
    listing = ListingBudget(len(data))
    repeated: list[str] = []
    metadata = json_text.parse(data, "metadata", listing=listing, repeated=repeated)
    shards = metadata.get("shards") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(shards, list):
        fail("metadata has no list of shards", offset=0, field="shards")
    if len(shards) > MAX_SET_FILES:
        fail(f"metadata lists {len(shards)} shards", offset=0, field="shards", kind="limit")
    listed = tuple(_shard(shard, name_of_index(open_member), listing) for shard in shards)
    for one, what in (("rank", "rank"), ("path", "filePath")):
        earlier: set[object] = set()
        for shard in listed:
            value = getattr(shard, one)
            if value in earlier:
                fail(f"two shards have the {what} {value!a}", offset=0, field=what)
            earlier.add(value)
    if sum(len(shard.tensors) for shard in listed) > MAX_TENSORS:
        fail("shards list too many tensors", offset=0, field="tensors", kind="limit")
    return ShardedCheckpoint(metadata, listed, open_member, bool(repeated))


def shard_header(rank: int, checksum: str, count: int) -> bytes:
    """Return the header up to the length of a shard's data."""
    raw = checksum.encode()
    return SHARD_MAGIC + pack("<ii", rank, len(raw)) + raw + pack("<i", count)


def shard_name(prefix: str, rank: int, ending: str = SHARD_ENDING) -> str:
    """Return the name that the framework's writer gives a shard's file."""
    return f"{prefix}_shard_{rank}{ending}"


def unclaimed(shard: ListedShard, opened: RankFile) -> Iterator[tuple[int, int]]:
    """Yield runs of bytes, as positions in the file, that are in no tensor."""
    spans = [(opened.start + tensor.offset, opened.start + tensor.end) for tensor in shard.tensors]
    yield from gaps([(0, opened.start), *spans], len(opened.file))


def _shard(value: object, index: str, listing: ListingBudget) -> ListedShard:
    """Parse a shard of the list; raises FormatError."""
    if not isinstance(value, dict):
        fail("a shard is not an object", offset=0, field="shards")
    rank, stated, checksum = (value.get(key) for key in ("rank", "filePath", "checksum"))
    if type(rank) is not int or not 0 <= rank <= MAX_RANK_NUMBER:
        fail("a shard has a wrong rank", offset=0, field="rank")
    path = stated if isinstance(stated, str) else ""
    # The framework's reader uses the JSON's own name; the path is where the file was once written.
    if index.endswith(INDEX_ENDING):
        ending = RAW_ENDING if path.endswith(RAW_ENDING) else SHARD_ENDING
        path = shard_name(index.removesuffix(INDEX_ENDING), rank, ending)
    json_text.check_name(path, "filePath", offset=0)
    if not is_in_folder(path):
        fail(f"{quoted(path)} is not a path in the folder", offset=0, field="filePath")
    tensors = value.get("tensors")
    if not isinstance(tensors, list):
        if tensors is not None:
            fail(f"shard {rank} has no list of tensors", offset=0, field="tensors")
        tensors = []
    own = tuple(_listed(tensor, rank, listing) for tensor in tensors)
    if not isinstance(checksum, str | None):
        fail(f"the checksum of shard {rank} is not a string", offset=0, field="checksum")
    return ListedShard(rank, path, _placed(own), value.get("fileSize"), checksum or "")


def _listed(value: object, rank: int, listing: ListingBudget) -> ListedTensor:
    """Parse a tensor of a shard's list; raises FormatError."""
    if not isinstance(value, dict):
        fail(f"a tensor of shard {rank} is not an object", offset=0, field="tensors")
    name, shape, dtype = (value.get(key) for key in ("name", "shape", "dataType"))
    if not isinstance(name, str):
        fail(f"a tensor of shard {rank} has no name", offset=0, field="name")
    json_text.check_name(name, "tensor name", offset=0)
    if not isinstance(shape, list) or not all(type(dim) is int for dim in shape):
        fail(f"tensor {quoted(name)} has a wrong shape", offset=0, field="shape")
    if type(dtype) is not int:
        fail(f"tensor {quoted(name)} has a wrong dtype", offset=0, field="dataType")
    offset, size = (_place(value, key, name) for key in ("offset", "size"))
    spelled = DTYPE_NAMES[dtype] if 0 <= dtype < len(DTYPE_NAMES) else str(dtype)
    listing.item((name, spelled), 0, "tensors", rank=len(shape))
    return ListedTensor(name, spelled, tuple(shape), offset, size)


def _place(tensor: dict[str, object], key: str, name: str) -> int:
    value = tensor.get(key)
    if type(value) is not int or value < 0:
        fail(f"tensor {quoted(name)} has a wrong {key}", offset=0, field=key)
    return value


def _placed(tensors: tuple[ListedTensor, ...]) -> tuple[ListedTensor, ...]:
    """Return tensors with their offsets; if these are all 0, the tensors are contiguous."""
    filled = [tensor for tensor in tensors if tensor.size]
    # In parts of the framework no writer sets the offsets.
    if len(filled) < 2 or any(tensor.offset for tensor in filled):
        return tensors
    placed, end = [], 0
    for tensor in tensors:
        placed.append(replace(tensor, offset=end))
        end += tensor.size
    return tuple(placed)


def _read_file(data: ByteView, shard: ListedShard) -> RankFile:
    """Read a shard's file; raises FormatError."""
    if data[: len(SHARD_MAGIC)] != SHARD_MAGIC:
        fail("not a .shard file", offset=0, field="magic")
    rank = _rank_of(data)
    cursor = Cursor(data, len(SHARD_MAGIC) + COUNT_SIZE)
    if rank != shard.rank:
        fail(f"rank is {rank}, not {shard.rank}", offset=len(SHARD_MAGIC), field="rank")
    at = cursor.pos
    checksum = cursor.text(cursor.integer(COUNT_SIZE, "checksum length", signed=True), "checksum")
    checksum_end = cursor.pos
    if shard.checksum and checksum != shard.checksum:
        fail("checksum is not that of the metadata", offset=at, field="checksum")
    count = cursor.integer(COUNT_SIZE, "tensor count", signed=True)
    if count != len(shard.tensors):
        message = f"tensor count is {count}, but the metadata lists {len(shard.tensors)}"
        fail(message, offset=checksum_end, field="tensor count")
    length = cursor.integer(COUNT_SIZE, "data length", signed=True)
    start = cursor.skip(length, "data")
    return RankFile(data, start, cursor.pos, checksum, checksum_end)


def _rank_of(data: ByteView) -> int:
    return Cursor(data, len(SHARD_MAGIC)).integer(COUNT_SIZE, "rank", signed=True)


def _tensor(tensor: ListedTensor, opened: RankFile | None, why: str | None) -> Tensor:
    element = ELEMENTS.get(tensor.dtype)
    if opened is None or tensor.end > opened.end - opened.start:
        why = why or NotRead("its bytes reach past the end of its shard")
        none = memoryview(b"")
        return Tensor(tensor.name, tensor.dtype, tensor.shape, none, None, element, absent=why)
    stored = Stored(tensor.name, tensor.dtype, tensor.shape, tensor.offset, tensor.end, element)
    return stored.listed(opened.data)


def _check_shard(shard: ListedShard, opened: RankFile, findings: Findings) -> None:
    size = opened.end - opened.start
    for name, count in Counter(tensor.name for tensor in shard.tensors).items():
        if count > 1:
            message = f"{count} tensors are named {quoted(name)}"
            findings.error(message, "name", chunk=shard.path)
    for tensor in shard.tensors:
        name = f"tensor {quoted(tensor.name)}"
        if tensor.end > size:
            message = f"{name} ends at byte {tensor.end} of {size} bytes of data"
            findings.error(message, "offset", chunk=shard.path)
        if tensor.dtype not in DTYPE_NAMES:
            message = f"{name} has unknown dtype {quoted(tensor.dtype)}"
            findings.warn(message, "dataType", chunk=shard.path)
        elif min(tensor.shape, default=0) < 0:
            findings.error(f"{name} has a negative dimension", "shape", chunk=shard.path)
        else:
            item = ITEM_BYTES[ELEMENTS[tensor.dtype]]
            if bounded_product(item, tensor.shape, tensor.size) != tensor.size:
                message = f"{name} has {tensor.size} bytes, which do not fit its dtype and shape"
                findings.error(message, "size", chunk=shard.path)
    filled = (tensor for tensor in shard.tensors if tensor.size)
    for tensor, other in overlaps(filled, lambda tensor: (tensor.offset, tensor.end)):
        message = f"tensor {quoted(tensor.name)} shares bytes with {quoted(other.name)}"
        findings.error(message, "offset", chunk=shard.path)
    for start, end in unclaimed(shard, opened):
        message = f"{end - start} bytes belong to no tensor"
        findings.error(message, "offset", start, shard.path)
    # Writers differ in which of the two they count.
    if shard.file_size not in (len(opened.file), size):
        message = (
            f"fileSize is {_number(shard.file_size)}, but the file has {len(opened.file)} bytes"
        )
        findings.error(message, "fileSize", chunk=shard.path)
    _check_checksum(shard, opened, findings)


def _check_checksum(shard: ListedShard, opened: RankFile, findings: Findings) -> None:
    stated = shard.checksum or opened.checksum
    if not stated:
        return
    match = _SHA256.fullmatch(stated)
    if match is None:
        message = f"checksum {quoted(stated)} is not a SHA-256, so nothing was checked against it"
        findings.warn(message, "checksum", chunk=shard.path)
    elif match[1].lower() not in opened.digests():
        message = "checksum does not match the data or the file"
        findings.error(message, "checksum", chunk=shard.path, kind="sha256")


def _all_listed(metadata: dict[str, object]) -> list[object]:
    shards = metadata["shards"]
    lists = (shard.get("tensors") for shard in shards) if isinstance(shards, list) else ()
    return [tensor for tensors in lists for tensor in tensors or ()]


def _number(value: object) -> str:
    return str(value) if type(value) is int else "not a number"
