"""Diff: what changed from one checkpoint to another, tensor by tensor.

Either side is a file of any format or a blob as REV:PATH. Of two texts only
those arrays are decoded whose lines differ. What is known to be one content is
not read at all.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path

from wtxtgit.checkpoint import metadata
from wtxtgit.checkpoint.open import blob_name, is_blob, members, read
from wtxtgit.diff.side import (
    Checkpoint,
    Contents,
    Side,
    Source,
    open_checkpoint,
    open_source,
    side_of,
)
from wtxtgit.errors import FormatError
from wtxtgit.filter.content import Known, file_digest
from wtxtgit.git import history
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import view_file
from wtxtgit.io.view import ByteView, Pages
from wtxtgit.model.tensor import ReadOptions, Tensor
from wtxtgit.remotes import urls
from wtxtgit.report.diff import (
    ByteChange,
    DiffReport,
    MetadataChange,
    Numbers,
    TensorDiff,
    TensorStatus,
)
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.compare import compare_bytes, compare_numbers, is_same, label, logical_shape
from wtxtgit.tensors.tensor_bytes import as_numbers
from wtxtgit.text.file import TextFile, shared_arrays


def same_content(a: str, b: str, key_file: Path | None) -> ByteView | None:
    """The one content of two targets, where it is known that they have one; None else.

    Two blobs are one by their ids. A file and a blob are where the cache (`filter.cache`)
    knows, under the secret in `key_file`, that clean makes the blob of that
    file: that takes one hash, where git would inflate the blob. Raises what
    reading a target does.
    """
    blobs = [target for target in (a, b) if is_blob(target)]
    if not blobs:
        return None
    repo = Repository.discover()
    oids = [history.resolve_blob(repo, blob_name(target, repo)) for target in blobs]
    if len(oids) > 1:
        return read(a) if oids[0] == oids[1] else None
    file = b if blobs == [a] else a
    if urls.is_url(file):
        return None
    with Known.open(repo, key_file) as known:
        held = known.file_of(oids[0])
    return view_file(Path(file)) if held is not None and _is(file, *held) else None


def _is(file: str, digest: bytes, size: int) -> bool:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # Whoever reads it says why that can't be.
        return False
    try:
        status = os.fstat(descriptor)
        is_as_long = stat.S_ISREG(status.st_mode) and status.st_size == size
        return is_as_long and file_digest(descriptor) == (digest, size)
    except OSError:
        return False
    finally:
        os.close(descriptor)


_Key = tuple[str, int]
"""A tensor's name, and how many of that name came before it."""


def diff(
    a: str,
    b: str,
    options: ReadOptions,
    *,
    key_file: Path | None = None,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> DiffReport:
    """Compare two checkpoints, `a` before and `b` after.

    A file that exists wins over a revision. A text is compared as the file
    that it stands for; damaged texts are refused as far as they are read.
    What the cache (`filter.cache`) knows under the secret in `key_file` is not read again.
    `progress` gets counts of bytes read. Raises InputError, CheckError and
    EnvironmentFailure.
    """
    pages = Pages(progress)
    shared = same_content(a, b, key_file)
    with ExitStack() as until:
        before, after = (
            open_source(
                side_of(name, threads)
                if shared is None
                else Side(name, shared, members(name, threads=threads)),
                pages,
                threads,
                until,
            )
            for name in (a, b)
        )
        return compare(before, after, options, pages, threads).report


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Two checkpoints and what differs; they are open as long as their sources are."""

    report: DiffReport
    before: Checkpoint
    after: Checkpoint


def compare(
    a: Source, b: Source, options: ReadOptions, pages: Pages, threads: int | None
) -> Compared:
    """Compare two checkpoints that are open; raises what `diff` does."""
    before, after = (
        open_checkpoint(source, shared, options, pages)
        for source, shared in zip((a, b), _shared(a.text, b.text), strict=True)
    )
    tensors = _Diff(before, after, pages, threads).run()
    changes, notes = _metadata(before, after)
    report = DiffReport(
        before.name,
        after.name,
        before.format,
        after.format,
        tuple(tensors),
        tuple(changes),
        (*before.notes, *after.notes, *_tensor_notes(before, after, tensors), *notes),
    )
    return Compared(report, before, after)


def listed(
    source: Source, status: TensorStatus, options: ReadOptions, pages: Pages
) -> tuple[DiffReport, Checkpoint]:
    """List a checkpoint that is on one side alone, with the status of all its tensors.

    What it lists is read, and no tensor. Raises what `diff` does.
    """
    # A text's tensors count as known, so that they stay undecoded.
    known = {} if source.text is None else dict.fromkeys(source.text.by_name, 0)
    held = open_checkpoint(source, known, options, pages)
    tensors = tuple(_listed(tensor, status) for tensor in held.tensors)
    notes = tuple(held.notes)
    if status is TensorStatus.REMOVED:
        return DiffReport(held.name, "", held.format, "", tensors, notes=notes), held
    return DiffReport("", held.name, "", held.format, tensors, notes=notes), held


def _shared(a: TextFile | None, b: TextFile | None) -> tuple[Contents, Contents]:
    """What both texts hold; nothing where one side is none."""
    if a is None or b is None:
        return {}, {}
    numbered = shared_arrays(a, b)
    sides: dict[str, dict[str, int]] = {"a": {}, "b": {}}
    for (side, name), number in numbered.items():
        sides[side][name] = number
    return sides["a"], sides["b"]


@dataclass(slots=True)
class _Diff:
    """The tensors of two checkpoints on their way through the comparison."""

    before: Checkpoint
    after: Checkpoint
    pages: Pages
    threads: int | None

    def run(self) -> list[TensorDiff]:
        """All tensors: those of `after` in its order, then those that are gone."""
        old, new = _keyed(self.before.tensors), _keyed(self.after.tensors)
        gone = {key: tensor for key, tensor in old.items() if key not in new}
        come = {key: tensor for key, tensor in new.items() if key not in old}
        renamed = self._renamed(gone, come)
        found = []
        for key, tensor in new.items():
            if key in old:
                found.append(self._compared(old[key], tensor))
            elif key in renamed:
                base = gone.pop(renamed[key])
                found.append(_listed(tensor, TensorStatus.RENAMED, base_name=base.name))
            else:
                found.append(_listed(tensor, TensorStatus.ADDED))
        found += [_listed(tensor, TensorStatus.REMOVED) for tensor in gone.values()]
        return found

    def _compared(self, a: Tensor, b: Tensor) -> TensorDiff:
        """What became of a tensor that has its name on both sides."""
        dtype, shape = label(a), logical_shape(a)
        base_dtype = dtype if dtype != label(b) else None
        base_shape = shape if shape != logical_shape(b) else None
        is_alike = base_dtype is None and base_shape is None
        change: Numbers | ByteChange | None = None
        reason = _absence(a, b)
        if reason is None and is_alike and self._is_known_same(a, b):
            return _listed(b, TensorStatus.SAME)
        if reason is None and base_shape is None:
            try:
                change, reason = self._values(a, b, is_alike=is_alike)
            except FormatError as error:
                reason = f"not compared: {error.message}"
            if is_alike and change is None and reason is None:
                return _listed(b, TensorStatus.SAME)
        is_unknown = is_alike and a.absent is not None and b.absent is not None
        status = TensorStatus.SAME if is_unknown else TensorStatus.CHANGED
        return _listed(
            b,
            status,
            base_dtype=base_dtype,
            base_shape=base_shape,
            change=change,
            reason=reason,
        )

    def _is_known_same(self, a: Tensor, b: Tensor) -> bool:
        held = self.before.content(a)
        return held is not None and held == self.after.content(b)

    def _values(
        self, a: Tensor, b: Tensor, *, is_alike: bool
    ) -> tuple[Numbers | ByteChange | None, str | None]:
        """How values differ, or why that is not told; neither where they don't.

        Raises FormatError.
        """
        numbers_a, numbers_b = as_numbers(a), as_numbers(b)
        are_numbers = numbers_a is not None and numbers_b is not None
        if not is_alike and not are_numbers:
            return None, None
        reason = self.before.take(a) or self.after.take(b)
        if reason is not None:
            return None, reason
        self.before.prepare(a)
        self.after.prepare(b)
        if numbers_a is not None and numbers_b is not None:
            if not prod(logical_shape(b)):
                return None, None
            if is_alike and is_same(numbers_a, numbers_b, self.pages.advance):
                return None, None
            found = compare_numbers(numbers_a, numbers_b, self.pages.advance, threads=self.threads)
            return found, None
        if is_same(a, b, self.pages.advance):
            return None, None
        if a.nbytes != b.nbytes:
            return None, f"{a.nbytes} bytes before, {b.nbytes} after"
        return compare_bytes(a, b, self.pages.advance), None

    def _renamed(self, gone: dict[_Key, Tensor], come: dict[_Key, Tensor]) -> dict[_Key, _Key]:
        """Which tensor of `gone` each one of `come` is, by content, dtype and shape."""
        found = self._paired(gone, come, Checkpoint.content)
        gone = {key: tensor for key, tensor in gone.items() if key not in found.values()}
        come = {key: tensor for key, tensor in come.items() if key not in found}
        # Only what could be one of the other side is read.
        kinds = {_kind(tensor) for tensor in gone.values()}
        kinds &= {_kind(tensor) for tensor in come.values()}
        gone, come = (
            {key: tensor for key, tensor in side.items() if _kind(tensor) in kinds}
            for side in (gone, come)
        )
        return found | self._paired(gone, come, self._hash)

    def _paired(
        self,
        gone: dict[_Key, Tensor],
        come: dict[_Key, Tensor],
        identity: Callable[[Checkpoint, Tensor], Hashable],
    ) -> dict[_Key, _Key]:
        """Which tensor of `gone` each of `come` is by its identity; None is no identity."""
        there: defaultdict[object, list[_Key]] = defaultdict(list)
        for key, tensor in gone.items():
            there[_kind(tensor), identity(self.before, tensor)].append(key)
        found = {}
        for key, tensor in come.items():
            which = identity(self.after, tensor)
            candidates = there.get((_kind(tensor), which))
            if which is not None and candidates:
                found[key] = candidates.pop(0)
        return found

    def _hash(self, side: Checkpoint, tensor: Tensor) -> bytes | None:
        """The SHA-256 of a tensor's bytes in C order; None where they can't be read."""
        if tensor.absent is not None or side.take(tensor) is not None:
            return None
        side.prepare(tensor)
        hasher = sha256()
        try:
            for block in tensor_bytes.blocks(as_numbers(tensor) or tensor):
                hasher.update(block)
                self.pages.advance(len(block))
        except FormatError:
            return None
        return hasher.digest()


def _keyed(tensors: list[Tensor]) -> dict[_Key, Tensor]:
    seen: Counter[str] = Counter()
    found = {}
    for tensor in tensors:
        found[tensor.name, seen[tensor.name]] = tensor
        seen[tensor.name] += 1
    return found


def _kind(tensor: Tensor) -> tuple[str, tuple[int, ...], int]:
    """What tensors of equal bytes have to share to be one under another name."""
    fitted = as_numbers(tensor)
    # Of numbers the shape tells how many bytes; what is stored may be more, or a view.
    return label(tensor), logical_shape(tensor), tensor.nbytes if fitted is None else -1


def _listed(
    tensor: Tensor,
    status: TensorStatus,
    *,
    base_name: str | None = None,
    base_dtype: str | None = None,
    base_shape: tuple[int, ...] | None = None,
    change: Numbers | ByteChange | None = None,
    reason: str | None = None,
) -> TensorDiff:
    return TensorDiff(
        tensor.name,
        status,
        label(tensor),
        logical_shape(tensor),
        base_name,
        base_dtype,
        base_shape,
        change,
        reason,
    )


def _absence(a: Tensor, b: Tensor) -> str | None:
    """Why the values of a tensor can't be compared, where it has none."""
    if a.absent is None and b.absent is None:
        return None
    if a.absent is not None and b.absent is not None:
        return f"no bytes on either side: {b.absent}"
    side, absent = ("before", a.absent) if a.absent is not None else ("after", b.absent)
    return f"no bytes {side}: {absent}"


def _tensor_notes(
    before: Checkpoint, after: Checkpoint, tensors: list[TensorDiff]
) -> Iterator[str]:
    matched = {TensorStatus.CHANGED, TensorStatus.SAME, TensorStatus.RENAMED}
    if before.tensors and after.tensors and not any(t.status in matched for t in tensors):
        yield "the two have no tensor in common"
    elif not before.tensors and not after.tensors:
        yield "neither side has tensors"


def _metadata(before: Checkpoint, after: Checkpoint) -> tuple[list[MetadataChange], Iterator[str]]:
    """Changes of metadata; of two formats only tags, which mean the same in all of them."""
    notes = []
    old, new = before.metadata, after.metadata
    if before.format != after.format:
        old, new = dict(before.tags), dict(after.tags)
        notes.append(f"{before.format} and {after.format}: of the metadata only tags are compared")
    found, is_all = metadata.changes(old, new)
    if not is_all:
        notes.append(f"more than {len(found)} changes of metadata, the rest is left out")
    return found, iter(notes)
