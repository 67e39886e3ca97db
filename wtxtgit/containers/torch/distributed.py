"""Distributed checkpoints of torch: a folder with `.metadata` and files of chunks, `.distcp`.

Such a file contains one archive of `torch.save` after another, each a chunk of a tensor or another
value, at the positions that the metadata say. Newer writers put the tensors of a file into one
safetensors file at its end. Tensors are assembled from their chunks, whichever files these are in.
Spec: `docs/spec/torch.md`, "Distributed checkpoints"; torch/distributed/checkpoint/filesystem.py
of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice

from wtxtgit.containers import tensor_header
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.cursor import ListingBudget, check_inside, quoted
from wtxtgit.containers.format import FileSet, OpenMember, opened_member
from wtxtgit.containers.intervals import gaps, overlaps
from wtxtgit.containers.signatures import ZIP_MAGIC
from wtxtgit.containers.tensor_chunks import Chunk, ChunkBox, ChunkedTensor, flaw, mismatch
from wtxtgit.containers.torch import PICKLE, distributed_metadata, reseal
from wtxtgit.containers.torch import check as archive_check
from wtxtgit.containers.torch import read as archive_read
from wtxtgit.containers.torch.distributed_metadata import (
    FIELD,
    DistributedMetadata,
    Place,
    SavedItem,
)
from wtxtgit.containers.torch.listing import ROOT_NAME
from wtxtgit.containers.torch.values import OTHER, plain_value
from wtxtgit.containers.torch.views import ELEMENTS, PACKED, SIZES
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, hashed, pieces
from wtxtgit.model.findings import Findings, MemberFindings, Problem
from wtxtgit.model.tensor import OF_ITEMS, Description, ReadOptions, Tensor

FORMAT = "torch-distributed"
# How many files stay open: each may have a chunk of a tensor, and opening a blob inflates it.
KEPT = 128
# The most values other than tensors that are read when the checkpoint is listed.
MAX_VALUES = 10_000
UNREAD_VALUE = "unread"

is_index = distributed_metadata.claims


@dataclass(frozen=True, slots=True)
class _Located:
    """Where an item is: the item, and its bytes; `header` is that of a safetensors file there."""

    place: Place
    start: int
    end: int
    header: tensor_header.TensorHeader | None = None


class ShardFile:
    """An open file of the checkpoint, and which of `items` is where in it."""

    def __init__(self, data: ByteView, items: Iterable[tuple[Place, SavedItem]]) -> None:
        self.data = data
        self.refused: dict[Place, FormatError] = {}
        self._located: dict[Place, _Located] = {}
        # Any number of headers may be claimed to be in it, and many files are open at a time.
        self._listing = ListingBudget(len(data), files=KEPT)
        headers: dict[int, tensor_header.TensorHeader] = {}
        for place, item in items:
            try:
                self._located[place] = self._locate(place, item, headers)
            except FormatError as error:
                self.refused[place] = error
        self._refuse_shared()

    def _refuse_shared(self) -> None:
        """Refuse items that share bytes, so that each byte is read once.

        Tensors of one safetensors file share one place.
        """
        apart = {
            one.start if one.header is not None else place: one
            for place, one in self._located.items()
        }
        overlapping = overlaps(apart.values(), lambda one: (one.start, one.end))
        sharing = {id(one.header or one): other for one, other in overlapping}
        for place, one in self._located.items():
            other = sharing.get(id(one.header or one))
            if other is not None:
                message = f"{_shown(place)} shares bytes with {_shown(other.place)}"
                self.refused[place] = FormatError(message, offset=one.start, field="offset")

    def _locate(
        self, place: Place, item: SavedItem, headers: dict[int, tensor_header.TensorHeader]
    ) -> _Located:
        size = len(self.data)
        if item.transforms:
            words = quoted(", ".join(item.transforms))
            raise FormatError(
                f"{_shown(place)} was stored through {words}, which wtxtgit can't undo",
                offset=item.start,
                field="transform_descriptors",
            )
        is_tensor = place[1] is not None
        # For tensors in safetensors, torch records the start of the file and the length of the
        # items.
        if is_tensor and item.start < size and self.data[item.start : item.start + 4] != ZIP_MAGIC:
            if item.start not in headers:
                headers[item.start] = tensor_header.read(
                    self.data, item.start, size, listing=self._listing
                )
            return _Located(place, item.start, size, headers[item.start])
        check_inside(item.start, item.length, size, _shown(place))
        return _Located(place, item.start, item.end)

    def at(self, place: Place) -> _Located:
        """Return where a chunk or value is; raises FormatError if it is nowhere."""
        refused = self.refused.get(place)
        if refused is not None:
            raise refused
        return self._located[place]

    def archive(self, place: Place) -> archive_read.Torch:
        """Return the archive of a chunk or value; raises FormatError."""
        one = self.at(place)
        try:
            return archive_read.read(self.data[one.start : one.end])
        except FormatError as error:
            raise _moved(error, f"{_shown(place)}: ", one.start) from None

    def tensor(
        self, place: Place, options: ReadOptions, archive: archive_read.Torch | None = None
    ) -> Tensor:
        """Return a chunk of a tensor, from its `archive` if that is given; raises FormatError."""
        one = self.at(place)
        if one.header is not None:
            for stored in one.header.tensors:
                if stored.name == place[0]:
                    return stored.listed(self.data)
            message = f"{_shown(place)} is not in the safetensors file at byte {one.start}"
            raise FormatError(message, offset=one.start, field="fqn")
        tensors = list((archive or self.archive(place)).tensors(options))
        if len(tensors) != 1 or tensors[0].name != ROOT_NAME:
            message = f"{_shown(place)} is saved as something other than one tensor"
            raise FormatError(message, offset=one.start, field="data.pkl")
        return tensors[0]

    def unclaimed(self) -> Iterator[tuple[int, int]]:
        """Yield runs of bytes that the metadata assign to nothing."""
        yield from gaps(
            ((place.start, place.end) for place in self._located.values()), len(self.data)
        )


@dataclass(frozen=True, eq=False)
class DistributedCheckpoint(FileSet):
    """A checkpoint whose `.metadata` were read; `open_member` opens its files."""

    metadata: DistributedMetadata
    open_member: OpenMember

    def describe(self, options: ReadOptions) -> Description:
        """Return all tensors, in the order of the metadata, each assembled when it is read."""
        files = _OpenFiles(self)
        parts = DecodedParts(options)
        tensors = tuple(
            self._tensor(
                name,
                [
                    Chunk(box, partial(files.tensor, (name, box.offsets), options))
                    for box in saved.boxes
                ],
            ).listed(parts)
            for name, saved in self.metadata.tensors.items()
        )
        size, beside = files.sizes()
        parts.of_file(size)
        values: dict[str, object] = {}
        tags: dict[str, str] = {}
        untold: list[str] = []
        for name in self.metadata.values[:MAX_VALUES]:
            values[name] = value = files.value((name, None))
            if isinstance(value, str):
                tags[name] = value
            else:
                untold.append(name)
        if len(self.metadata.values) > MAX_VALUES:
            untold.append(f"{len(self.metadata.values) - MAX_VALUES} more values")
        about: dict[str, object] = {
            "version": self.metadata.version,
            "files": list(self.members),
            "values": values,
        }
        return Description(
            FORMAT,
            tensors,
            about,
            tags=tags,
            untold=tuple(untold),
            size=size,
            unlisted=tuple(beside),
            rest=partial(self._rest, files, options),
        )

    def _rest(self, files: _OpenFiles, options: ReadOptions) -> dict[str, object]:
        """Return what else the metadata say, and what archives hold besides what is saved."""
        archives: dict[str, object] = {}
        for place in islice(self.metadata.items, MAX_VALUES):
            # Why an item can't be read is reported elsewhere.
            with suppress(FormatError):
                file = files.file(place)
                if file.at(place).header is None:
                    archives[_shown(place)] = _beside(file.archive(place), options, place)
        of_items = {**self.metadata.of_items, "archives": archives}
        return {FIELD: self.metadata.others, OF_ITEMS: of_items}

    def _tensor(self, name: str, chunks: Sequence[Chunk] = ()) -> ChunkedTensor:
        saved = self.metadata.tensors[name]
        # Items of less than a byte can't be assembled from chunks.
        item = 0 if saved.dtype in PACKED else SIZES.get(saved.dtype, 0)
        element = ELEMENTS.get(saved.dtype)
        return ChunkedTensor(name, saved.dtype, saved.shape, element, item, chunks)

    @property
    def members(self) -> tuple[str, ...]:
        """The paths of the files that the metadata name."""
        return tuple(self.by_file)

    @cached_property
    def by_file(self) -> dict[str, list[tuple[Place, SavedItem]]]:
        """What is saved in each file."""
        files: dict[str, list[tuple[Place, SavedItem]]] = {}
        for place, item in self.metadata.items.items():
            files.setdefault(item.path, []).append((place, item))
        return files

    def open(self, path: str) -> ShardFile:
        """Open a file of the checkpoint; raises FormatError."""
        data = opened_member(self.open_member, path, "relative_path")
        return ShardFile(data, self.by_file[path])

    def check_members(self, paths: Iterable[str], options: ReadOptions) -> Iterator[MemberFindings]:
        """Check files: each archive in them, and that it is what the metadata say."""
        for path in paths:
            findings = Findings()
            try:
                file = self.open(path)
            except FormatError as error:
                findings.refuse(error, chunk=path)
            else:
                for place, _ in self.by_file[path]:
                    self._check_item(file, place, path, options, findings)
                for start, end in file.unclaimed():
                    message = f"{end - start} bytes from byte {start} are in no chunk or value"
                    findings.error(message, "offset", start, path)
            yield findings.of_member()

    def _check_item(
        self, file: ShardFile, place: Place, path: str, options: ReadOptions, findings: Findings
    ) -> None:
        box = self._boxes.get(place)
        try:
            one, archive = file.at(place), None
            if one.header is None:
                archive = file.archive(place)
                _check_archive(archive, one, path, options, findings)
            if box is None:
                return
            chunk = file.tensor(place, options, archive)
        except FormatError as error:
            findings.refuse(error, chunk=path)
            return
        why = chunk.absent or mismatch(self._tensor(place[0]), box, chunk)
        if why is not None:
            findings.error(f"{_shown(place)} {why}", "sizes", one.start, path)

    @cached_property
    def _boxes(self) -> dict[Place, ChunkBox]:
        return {
            (name, box.offsets): box
            for name, tensor in self.metadata.tensors.items()
            for box in tensor.boxes
        }

    def combine(self, members: Iterable[MemberFindings]) -> Findings:
        """Join the findings of all files, in order, and add those of the metadata themselves."""
        findings, _ = Findings.of_members(members)
        used = dict.fromkeys(self.metadata.places())
        for place in used:
            if place not in self.metadata.items:
                findings.error(f"{_shown(place)} is in no file", "storage_data")
        for place in self.metadata.items:
            if place not in used:
                message = f"{_shown(place)} is stored, but nothing uses it"
                findings.error(message, "storage_data")
        for name, tensor in self.metadata.tensors.items():
            if tensor.dtype not in SIZES:
                findings.error(f"tensor {quoted(name)} has an unknown dtype", "properties")
            why = flaw(tensor.shape, tensor.boxes)
            if why is not None:
                findings.error(f"tensor {quoted(name)}: {why}", "chunks")
        return findings


class _OpenFiles:
    """The open files of a checkpoint: those used most recently."""

    def __init__(self, checkpoint: DistributedCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._files: dict[str, ShardFile] = {}

    def tensor(self, place: Place, options: ReadOptions) -> Tensor:
        """Return a chunk of a tensor; raises FormatError."""
        return self.file(place).tensor(place, options)

    def file(self, place: Place) -> ShardFile:
        """Return the file that contains a chunk or value; raises FormatError."""
        item = self._checkpoint.metadata.items.get(place)
        if item is None:
            raise FormatError(f"{_shown(place)} is in no file", field="storage_data")
        file = self._files.pop(item.path, None)
        if file is None:
            while len(self._files) >= KEPT:
                del self._files[next(iter(self._files))]
            file = self._checkpoint.open(item.path)
        self._files[item.path] = file
        return file

    def value(self, place: Place) -> object:
        """Return a value that is not a tensor as plain data, else its hash and the globals in it.

        For a value that can't be read, return the reason.
        """
        try:
            file = self.file(place)
            one, pickle = file.at(place), file.archive(place).pickle
        except FormatError as error:
            return {UNREAD_VALUE: error.message}
        value = plain_value(pickle)
        if value is OTHER:
            # The hash still distinguishes it from other values.
            digest = hashed(sha256(), pieces(file.data[one.start : one.end])).hexdigest()
            return {"sha256": digest, "globals": archive_read.global_names(pickle)}
        return value

    def sizes(self) -> tuple[int, list[str]]:
        """Return the size of all files that can be opened, and words on their unused bytes."""
        total, beside = 0, []
        for path, items in self._checkpoint.by_file.items():
            try:
                file = self.file(items[0][0])
            except FormatError:
                # Reported when its tensors are read.
                continue
            total += len(file.data)
            nobodys = sum(end - start for start, end in file.unclaimed())
            if nobodys:
                beside.append(f"{nobodys} bytes of {quoted(path)} are in no chunk or value")
        return total, beside


def read(data: ByteView, open_member: OpenMember) -> DistributedCheckpoint:
    """Read `.metadata`; `open_member` opens its files when they are needed.

    Raises FormatError, of kind "pickle" if a pickle would have to be run.
    """
    return DistributedCheckpoint(distributed_metadata.read(data), open_member)


def _beside(archive: archive_read.Torch, options: ReadOptions, place: Place) -> dict[str, object]:
    """Return hashes of what an archive holds besides the one value that is saved in it.

    Of a value `describe` tells, of a tensor the pickle says more than its items.
    """
    hashes = reseal.values(archive, options) | reseal.rest(archive, options)
    if place[1] is None:
        hashes.pop(PICKLE, None)
    return hashes


def _check_archive(
    archive: archive_read.Torch,
    one: _Located,
    path: str,
    options: ReadOptions,
    findings: Findings,
) -> None:
    archive_findings = archive_check.check(archive, options)

    def within_set(problem: Problem) -> Problem:
        offset = None if problem.offset is None else one.start + problem.offset
        message = f"{_shown(one.place)}: {problem.message}"
        return replace(problem, message=message, chunk=path, offset=offset)

    findings.add(
        MemberFindings(
            tuple(map(within_set, archive_findings.errors)),
            tuple(map(within_set, archive_findings.warnings)),
        )
    )


def _moved(error: FormatError, before: str, start: int) -> FormatError:
    """Return an error in a part of a file, with the offset in the whole file."""
    offset = None if error.offset is None else start + error.offset
    message = error.message.removesuffix(f" at byte {error.offset}")
    return FormatError(f"{before}{message}", kind=error.kind, offset=offset, field=error.field)


def _shown(place: Place) -> str:
    name, offsets = place
    if offsets is None:
        return f"value {quoted(name)}"
    return f"tensor {quoted(name)} (chunk at {list(offsets)})"
