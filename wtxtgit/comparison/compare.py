"""Comparing two open checkpoints: tensor by tensor, then their metadata.

Of two texts, only those arrays are decoded whose lines differ.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import islice
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING

from wtxtgit.checkpoint.contents import (
    REST,
    Checkpoint,
    NoCheckpoint,
    Shared,
    Side,
    open_checkpoint,
    refuse_part,
)
from wtxtgit.comparison.parts import file_of, looks_like, part_changes, rest_of
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import FormatError, InputError, NotRead, clipped, counted
from wtxtgit.io.view import ByteView, Pages, same_bytes
from wtxtgit.model.plain import equal_values, pointer_part
from wtxtgit.model.tensor import OF_ITEMS, Key, PackedBytes, ReadOptions, Tensor, keys_of
from wtxtgit.report.diff import (
    ByteChange,
    DiffReport,
    MetadataChange,
    Numbers,
    PartChange,
    RepeatedName,
    TensorDiff,
    TensorStatus,
)
from wtxtgit.report.figures import apart
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.compare import are_reordered, compare_bytes, compare_numbers
from wtxtgit.tensors.row_risks import row_states
from wtxtgit.tensors.tensor_bytes import as_numbers, as_values, is_same
from wtxtgit.text.grammar import is_detached, is_text

if TYPE_CHECKING:  # a diff starts for every file, and must not load the reports of a review
    from wtxtgit.report.review import Distributions

MAX_CHANGES = 1000
"""The most changes of metadata that are listed."""
MAX_VALUE = 200
"""The longest string in characters that is shown whole."""
_DECIDING = re.compile(
    # Which text a model reads, and which code runs it.
    r"templat|tokeniz|token_id|vocab|merges|architect|auto_map|model_type|base_model"
    # What is computed with its weights.
    r"|dtype|quant|rope|theta|epsilon|(^|[^a-z])eps([^a-z]|$)|activation|hidden_(act|size|dim)"
    r"|heads?(_count|_dim|_size|$)|head_count|(num|n)_[a-z_]*(heads|layers|experts)|block_count"
    r"|context_length|max_position|window|soft_?cap|temperature|top_[kp]$"
    # Who answers for it, and what may be done with it.
    r"|licen[cs]e|public_?key|key_id|signer|author|encrypted"
    # What a format sets for chunks, and what it has no name for.
    r"|(^|[^a-z])flags$|^/(rest|tidx)/|/further/",
    re.IGNORECASE,
)
"""Names of values that always matter, even numbers."""
_HASH = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}"
_ANEW = re.compile(rf"{_HASH}|[0-9]+", re.IGNORECASE)
"""Hashes, ids and numbers, of which times consist too."""
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?|[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
MOST_DISTRIBUTIONS = 100
"""The values of at most this many tensors are counted: those that changed most."""
_SAMPLE = 64
"""Bytes at three places of a tensor by which others are ruled out before it is compared."""
_MOST_ALIKE = 4
"""With at most this many tensors that are alike there another one is compared."""
_FILES = "files"
"""Where in the metadata of a set those of its files are."""
_UNMEASURED = "how much the values changed is not known"
_ABSENT = object()


class _Weight(IntEnum):
    """How much a change of metadata matters, most first: `docs/review.md`, "Metadata".

    DECIDING goes by the name of what changed, the others by how it changed.
    """

    DECIDING = 0
    OTHER = 1
    ROUTINE = 2


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Two checkpoints and what differs; they stay open as long as their sides are."""

    report: DiffReport
    before: Checkpoint
    after: Checkpoint


Chosen = Callable[[str], bool]
"""Whether a tensor of this name was requested."""


def compare(
    a: Side,
    b: Side,
    options: ReadOptions,
    pages: Pages,
    threads: int | None,
    *,
    only: Chosen | None = None,
) -> Compared:
    """Compare two sides, `a` before and `b` after; with `only`, just some of their tensors.

    Damaged texts are refused so far as they are read. Raises InputError, CheckError and
    EnvironmentFailure.
    """
    shared: tuple[Shared, Shared] = {}, {}
    if a.text is not None and b.text is not None:
        from wtxtgit.text.file import shared_arrays
        from wtxtgit.text.index import want_payload

        of_a, of_b = shared_arrays(a.text, b.text)
        shared = {**of_a, **left_out(a, only)}, {**of_b, **left_out(b, only)}
        # Both sides together, so that all missing payload is fetched in one go.
        differing = [
            array
            for text, known in zip((a.text, b.text), shared, strict=True)
            for array in text.by_name.values()
            if array.name not in known
        ]
        want_payload(differing)
    before = _opened(a, shared[0], options, pages, only)
    after = _opened(b, shared[1], options, pages, only)
    tensors = _Diff(before, after, pages, threads).run()
    changes, notes, unread = _metadata((a, before), (b, after), options)
    report = DiffReport(
        before.name,
        after.name,
        before.format,
        after.format,
        tuple(tensors),
        tuple(changes),
        (
            *before.notes,
            *after.notes,
            *_tensor_notes(before, after, tensors),
            *notes,
            *_form_notes(a, b),
        ),
        tuple(_parts((a, before), (b, after), options)),
        _new_imports(before.imports, after.imports),
        _newly_repeated(before.repeated, after.repeated),
    )
    report = replace(report, unread=(*before.unread, *after.unread, *unread))
    is_unread = bool(report.unread or report.of(TensorStatus.UNREAD))
    # Two files of the same bytes are the same, whatever can be read; of sets only indexes are here.
    is_one_file = only is None and after.format not in registry.set_names()
    if is_unread and is_one_file and not _differ(a, b, pages):
        report = _without_unread(report)
    if only is None and is_empty(report) and _differ(a, b, pages):
        other = PartChange(None, TensorStatus.CHANGED, None, a.size, b.size)
        report = replace(report, parts=(other,))
    return Compared(report, before, after)


def _without_unread(report: DiffReport) -> DiffReport:
    """Return the report on two files of the same bytes, of which something could not be read."""
    tensors = (
        replace(told, status=TensorStatus.SAME, reason=None)
        if told.status is TensorStatus.UNREAD
        else told
        for told in report.tensors
    )
    return replace(report, tensors=tuple(tensors), unread=())


def _new_imports(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    known = frozenset(before)
    return tuple(dict.fromkeys(name for name in after if name not in known))


def _newly_repeated(
    before: Mapping[str, int], after: Mapping[str, int]
) -> tuple[RepeatedName, ...]:
    new = (
        RepeatedName(clipped(name, MAX_VALUE), n)
        for name, n in after.items()
        if n > before.get(name, 1)
    )
    return tuple(islice(new, MAX_CHANGES))


def is_empty(report: DiffReport) -> bool:
    """Whether nothing differs, although everything of two files of one format was compared."""
    is_same = all(tensor.status is TensorStatus.SAME for tensor in report.tensors)
    return (
        is_same
        and not report.unread
        and report.a_format == report.b_format
        and not (report.metadata or report.parts or report.imports or report.repeated)
    )


def _differ(a: Side, b: Side, pages: Pages) -> bool:
    """Whether the files are not the same, byte by byte."""
    if a.text is not None and b.text is not None:
        if not (a.text.is_container and b.text.is_container):
            return False
        # Arrays that one text shares with the other need not be decoded again.
        from wtxtgit.text.file import shared_arrays

        shared = shared_arrays(a.text, b.text)
        texts = zip((a.text, b.text), shared, strict=True)
        are_shared = all(known.keys() >= text.by_name.keys() for text, known in texts)
        # Zeros between and behind arrays are in the layout alone.
        if are_shared and a.text.layout == b.text.layout:
            return False
    for side in (a, b):
        if side.text is not None:
            side.text.fill_all()
    return not same_bytes(file_of(a), file_of(b), pages.advance)


def distributions_of(
    compared: Compared, pages: Pages, threads: int | None
) -> Iterator[tuple[str, Distributions]]:
    """Count the values of the tensors that changed most, by reading them a second time."""
    # Imported late: a comparison without distributions does not need it.
    from wtxtgit.tensors.statistics import distributions

    before, after = (
        {t.name: t for t in checkpoint.tensors} for checkpoint in (compared.before, compared.after)
    )
    changes = ((t.name, t.change) for t in compared.report.by_change())
    measured = [(name, change) for name, change in changes if isinstance(change, Numbers)]
    for name, change in measured[:MOST_DISTRIBUTIONS]:
        try:
            counts = distributions(before[name], after[name], change, threads=threads)
        except FormatError:
            # Several tensors may have the same name.
            continue
        pages.advance(before[name].nbytes)
        if counts is not None:
            yield name, counts


def _opened(
    side: Side, shared: Shared, options: ReadOptions, pages: Pages, only: Chosen | None
) -> Checkpoint:
    checkpoint = open_checkpoint(side, shared, options, pages)
    if only is None:
        return checkpoint
    chosen = [tensor for tensor in checkpoint.tensors if only(tensor.name)]
    return replace(checkpoint, tensors=chosen)


def left_out(side: Side, only: Chosen | None) -> Shared:
    """Return the arrays of tensors that `only` excludes, to stay undecoded as shared ones do."""
    text = side.text
    if text is None or only is None:
        return {}
    extents = () if text.layout is None else text.layout.extents
    names = {extent.array: extent.name or extent.array for extent in extents if extent.is_tensor}
    if not text.is_container:
        names = {array: names.get(array, array) for array in text.by_name}
    # Numbers of shared contents are never negative.
    return {array: -1 for array, name in names.items() if array and name and not only(name)}


def _parts(
    before: tuple[Side, Checkpoint] | None,
    after: tuple[Side, Checkpoint] | None,
    options: ReadOptions,
) -> Iterator[PartChange]:
    """Yield what differs besides tensors and metadata, if both files have one format."""
    if before is not None and after is not None and before[1].format != after[1].format:
        return
    for change in part_changes(before, after, options):
        alike = None if after is None else looks_like(file_of(after[0]), change)
        yield replace(change, looks_like=alike)


def with_members(
    report: DiffReport,
    sides: tuple[Side, Side],
    options: ReadOptions,
    pages: Pages,
    threads: int | None,
) -> DiffReport:
    """Add what differs besides tensors in files that both sides have, if they are sets.

    The set's own comparison has its tensors. Raises what `compare` does.
    """
    if report.a_format != report.b_format or report.a_format not in registry.set_names():
        return report
    of_before, of_after = (any_format.members(side.data, side.open_member) for side in sides)
    before_names = frozenset(of_before)
    metadata, parts, unread = list(report.metadata), list(report.parts), list(report.unread)
    # The set has the metadata of some of its files.
    of_set = [(change.path, change.before, change.after) for change in metadata]
    for name in of_after:
        if name not in before_names:
            continue
        try:
            refuse_part(name)
            before, after = (Side(name, side.open_member(name), _none, None) for side in sides)
            one = compare(before, after, options, pages, threads, only=lambda _: False).report
        except NoCheckpoint:
            # Of files that can't be read alone the set tells all.
            continue
        except InputError as error:
            unread.append(NotRead.because(error))
        else:
            where = f"/{_FILES}/{pointer_part(clipped(name, MAX_VALUE))}"
            metadata += [
                replace(each, path=where + each.path)
                for each in one.metadata
                if (each.path, each.before, each.after) not in of_set
            ]
            parts += [replace(each, file=name) for each in one.parts]
    metadata.sort(key=lambda each: not each.matters)
    return replace(
        report,
        metadata=tuple(metadata[:MAX_CHANGES]),
        parts=tuple(parts[:MAX_CHANGES]),
        unread=tuple(unread),
    )


def _none(path: str) -> ByteView:
    raise InputError(f"{path} is not opened")


def form_note(before: ByteView, after: ByteView) -> str | None:
    """Describe how the stored forms before and after differ, from the first bytes of both."""
    forms = [_form(head) for head in (before, after)]
    return None if forms[0] == forms[1] else f"stored as {forms[0]} before, as {forms[1]} after"


def _form(head: ByteView) -> str:
    if is_detached(head):
        return "a detached text"
    return "a whole text" if is_text(head) else "a binary"


def _form_notes(a: Side, b: Side) -> Iterator[str]:
    # A file and its text are the same thing in a checkout.
    if a.text is not None and b.text is not None:
        note = form_note(a.text.text, b.text.text)
        if note is not None:
            yield note


def listed(
    side: Side,
    status: TensorStatus,
    options: ReadOptions,
    pages: Pages,
    *,
    only: Chosen | None = None,
) -> tuple[DiffReport, Checkpoint]:
    """List a checkpoint that only one side has, giving its tensors (or `only` some) this status.

    The listing is read, but no tensor. Raises what `compare` does.
    """
    # A text's tensors are treated as shared, so that they stay undecoded.
    shared = {} if side.text is None else dict.fromkeys(side.text.by_name, 0)
    checkpoint = _opened(side, shared, options, pages, only)
    tensors = tuple(_listed(tensor, status) for tensor in checkpoint.tensors)
    name, kind, notes = checkpoint.name, checkpoint.format, checkpoint.notes
    if status is TensorStatus.REMOVED:
        return DiffReport(name, "", kind, "", tensors, notes=notes), checkpoint
    # Of a new file only bytes that belong to no part are reported: all its parts are new.
    parts = tuple(part for part in _parts(None, (side, checkpoint), options) if part.name is None)
    imports = _new_imports((), checkpoint.imports)
    report = DiffReport("", name, "", kind, tensors, notes=notes, parts=parts, imports=imports)
    repeated = _newly_repeated({}, checkpoint.repeated)
    return replace(report, repeated=repeated, unread=checkpoint.unread), checkpoint


@dataclass(slots=True)
class _Diff:
    """The comparison of two checkpoints' tensors."""

    before: Checkpoint
    after: Checkpoint
    pages: Pages
    threads: int | None
    samples: dict[Tensor, Hashable] = field(default_factory=dict)

    def run(self) -> list[TensorDiff]:
        """Compare all tensors: those of `after` in its order, then those that are gone."""
        old, new = _keyed(self.before.tensors), _keyed(self.after.tensors)
        removed = {key: tensor for key, tensor in old.items() if key not in new}
        added = {key: tensor for key, tensor in new.items() if key not in old}
        renamed = self._renamed(removed, added)
        rows: list[TensorDiff] = []
        changed: list[tuple[int, Tensor]] = []
        # In the order of the file after the change: that is the one that a reader has.
        for key, tensor in new.items():
            if key in old:
                rows.append(self._compared(old[key], tensor))
                if _has_values(rows[-1]):
                    changed.append((len(rows) - 1, tensor))
            elif key in renamed:
                base = removed.pop(renamed[key])
                rows.append(_listed(tensor, TensorStatus.RENAMED, base_name=base.name))
            else:
                rows.append(_listed(tensor, TensorStatus.ADDED))
        for place, name in self._moved(changed):
            rows[place] = replace(rows[place], values_of=clipped(name, MAX_VALUE))
        rows += [_listed(tensor, TensorStatus.REMOVED) for tensor in removed.values()]
        return rows

    def _moved(self, changed: list[tuple[int, Tensor]]) -> Iterator[tuple[int, str]]:
        """Yield the changed tensors, by place, that have the values of another one before."""
        kinds = {_kind(tensor) for _, tensor in changed}
        # Bytes that are decoded have no number, also if those of the other side have one.
        decoded = {_kind(tensor) for _, tensor in changed if isinstance(tensor.held, PackedBytes)}
        by_identity: defaultdict[Hashable, list[Tensor]] = defaultdict(list)
        for tensor in self.before.tensors:
            kind = _kind(tensor)
            if kind not in kinds:
                continue
            content = self.before.content(tensor)
            identities: set[Hashable] = set() if content is None else {(kind, content)}
            if content is None or kind in decoded:
                identities.add(self._sampled(self.before, tensor))
            for identity in identities - {None}:
                if len(by_identity[identity]) < _MOST_ALIKE:
                    by_identity[identity].append(tensor)
        for place, tensor in changed:
            content = self.after.content(tensor)
            which = (
                self._sampled(self.after, tensor) if content is None else (_kind(tensor), content)
            )
            for other in by_identity.get(which, ()):
                if content is not None or self._are_equal(other, tensor):
                    yield place, other.name
                    break

    def _are_equal(self, a: Tensor, b: Tensor) -> bool:
        try:
            return is_same(as_numbers(a) or a, as_numbers(b) or b, self.pages.passed)
        except FormatError:
            return False

    def _sampled(self, side: Checkpoint, tensor: Tensor) -> Hashable:
        """Return what tensors of equal values share, by some of the bytes; None if not known."""
        if tensor.absent is not None:
            return None
        if isinstance(tensor.held, PackedBytes):
            # Of those that were compared the samples were taken while they were decoded.
            if tensor not in self.samples and side.budget.refusal(tensor) is None:
                self._sample(side, tensor)
            return self.samples.get(tensor)
        side.prepare(tensor)
        return _sample_of(tensor, tensor.held)

    def _sample(self, side: Checkpoint, tensor: Tensor) -> None:
        """Take the sample of a tensor that has to be decoded, while that is at hand."""
        if not isinstance(tensor.held, PackedBytes):
            return
        side.prepare(tensor)
        with suppress(FormatError):
            self.samples[tensor] = _sample_of(tensor, tensor.view)

    def _compared(self, a: Tensor, b: Tensor) -> TensorDiff:
        """Compare a tensor whose name is on both sides."""
        dtype, shape = a.label, a.logical_shape
        base_dtype = dtype if dtype != b.label else None
        base_shape = shape if shape != b.logical_shape else None
        is_alike = base_dtype is None and base_shape is None and a.packing == b.packing
        change: Numbers | ByteChange | None = None
        reason = _absence(a, b)
        if reason is None and is_alike and self._is_known_same(a, b):
            return _listed(b, TensorStatus.SAME)
        if reason is None and base_shape is None:
            try:
                change, reason = self._values(a, b, is_alike=is_alike)
            except FormatError as error:
                reason = NotRead.because(error, "not compared: ")
            if is_alike and change is None and reason is None:
                return _listed(b, TensorStatus.SAME)
        has_none = is_alike and a.absent is not None and b.absent is not None
        is_unread = has_none or isinstance(reason, NotRead)
        status = TensorStatus.UNREAD if is_unread else TensorStatus.CHANGED
        return _listed(
            b,
            status,
            base_dtype=base_dtype,
            base_shape=base_shape,
            change=change,
            reason=reason,
        )

    def _is_known_same(self, a: Tensor, b: Tensor) -> bool:
        content = self.before.content(a)
        return content is not None and content == self.after.content(b)

    def _values(
        self, a: Tensor, b: Tensor, *, is_alike: bool
    ) -> tuple[Numbers | ByteChange | None, str | None]:
        """Return how values differ, or why they are not compared; neither if they don't differ.

        Raises FormatError.
        """
        values_a, values_b = as_values(a), as_values(b)
        if not is_alike and (values_a is None or values_b is None):
            return (
                None,
                None if a.label != b.label else f"packed as {a.packing or 'unknown'} before",
            )
        reason = self.before.budget.refusal(a) or self.after.budget.refusal(b)
        if reason is not None:
            return None, reason
        self.before.prepare(a)
        self.after.prepare(b)
        if values_a is not None and values_b is not None and not prod(b.logical_shape):
            return None, None
        self._sample(self.before, a)
        self._sample(self.after, b)
        # Compare bytes first: most tensors of two generations are equal, or differ early.
        if is_alike and self._is_same(as_numbers(a) or a, as_numbers(b) or b):
            return None, None
        if values_a is None or values_b is None:
            return self._of_bytes(a, b)
        if as_numbers(a) is not None and as_numbers(b) is not None:
            return self._of_numbers(values_a, values_b, is_alike=is_alike), None
        return self._of_quantised(a, b, (values_a, values_b), is_alike=is_alike)

    def _of_numbers(
        self, a: Tensor, b: Tensor, *, is_alike: bool, stored: int | None = None
    ) -> Numbers:
        """Compare numbers; of quantised ones `stored` are the bytes of `a` in its file."""
        is_decoded = stored is not None
        nbytes = max(a.nbytes, 1)

        def advance(count: int) -> None:
            self.pages.advance(count if stored is None else count * stored // nbytes)

        change = compare_numbers(a, b, advance, threads=self.threads, is_decoded=is_decoded)
        # What quantising makes of small rows is no risk of its own.
        if change.after.is_zero or change.is_flat or (is_decoded and not is_alike):
            return change
        if is_alike and change.is_alike and are_reordered(a, b):
            change = replace(change, is_reordered=True)
        norm = change.before.root_mean_square
        # The progress bar counts bytes that are read once.
        states = row_states(a, b, norm, threads=self.threads)
        return replace(change, states=states)

    def _of_quantised(
        self, a: Tensor, b: Tensor, values: tuple[Tensor, Tensor], *, is_alike: bool
    ) -> tuple[Numbers, str | None]:
        """Compare by value where at least one side is quantised."""
        change = self._of_numbers(*values, is_alike=is_alike, stored=a.nbytes)
        if not is_alike:
            return change, None
        from wtxtgit.tensors.quantised import scale_states  # few files have packed tensors

        change = replace(change, scales=scale_states(a, b))
        if change.changed:
            return change, None
        return change, f"{counted(change.changed_bytes or 0, 'byte')} differ, but no value"

    def _of_bytes(self, a: Tensor, b: Tensor) -> tuple[ByteChange | None, str | None]:
        """Compare packed items of one dtype, where only the format knows what their bytes mean."""
        from wtxtgit.tensors.quantised import scale_states

        # Without an element it is not known which bytes make up an item.
        if a.nbytes != b.nbytes:
            return None, f"{a.nbytes} bytes before, {b.nbytes} after"
        bytes_change = compare_bytes(a, b, self.pages.advance)
        return replace(bytes_change, states=scale_states(a, b)), None

    def _is_same(self, a: Tensor, b: Tensor) -> bool:
        """Whether two tensors have the same bytes; of others, what follows counts the bytes."""
        same = is_same(a, b, self.pages.passed)
        if same:
            self.pages.advance(b.nbytes)
        return same

    def _renamed(self, removed: dict[Key, Tensor], added: dict[Key, Tensor]) -> dict[Key, Key]:
        """Return the removed tensor's key for each added one of equal content, dtype and shape."""
        # By hashes in texts, which reads nothing; then by computed hash, which reads all of both.
        renamed = self._paired(removed, added, Checkpoint.content)
        removed = {key: tensor for key, tensor in removed.items() if key not in renamed.values()}
        added = {key: tensor for key, tensor in added.items() if key not in renamed}
        # Only tensors that could match one of the other side are read.
        kinds = {_kind(tensor) for tensor in removed.values()}
        kinds &= {_kind(tensor) for tensor in added.values()}
        removed, added = (
            {key: tensor for key, tensor in side.items() if _kind(tensor) in kinds}
            for side in (removed, added)
        )
        return renamed | self._paired(removed, added, self._hash)

    def _paired(
        self,
        removed: dict[Key, Tensor],
        added: dict[Key, Tensor],
        identity: Callable[[Checkpoint, Tensor], Hashable],
    ) -> dict[Key, Key]:
        """Return the removed tensor's key for each added one of its identity; None has no match."""
        by_identity: defaultdict[object, list[Key]] = defaultdict(list)
        for key, tensor in removed.items():
            by_identity[_kind(tensor), identity(self.before, tensor)].append(key)
        pairs = {}
        for key, tensor in added.items():
            which = identity(self.after, tensor)
            candidates = by_identity.get((_kind(tensor), which))
            if which is not None and candidates:
                pairs[key] = candidates.pop(0)
        return pairs

    def _hash(self, side: Checkpoint, tensor: Tensor) -> bytes | None:
        """Return the SHA-256 of a tensor's bytes in C order; None if they can't be read."""
        if tensor.absent is not None or side.budget.refusal(tensor) is not None:
            return None
        side.prepare(tensor)
        try:
            return tensor_bytes.sha256_of(as_numbers(tensor) or tensor, self.pages.advance)
        except FormatError:
            return None


def _sample_of(tensor: Tensor, data: ByteView) -> Hashable:
    middle = len(data) // 2
    parts = data[:_SAMPLE], data[middle : middle + _SAMPLE], data[-_SAMPLE:]
    layout = (tensor.order, tensor.byteorder, tensor.strides)
    return _kind(tensor), layout, tuple(map(bytes, parts))


def _has_values(row: TensorDiff) -> bool:
    """Whether a tensor changed to values that say which tensor it is: not all one number."""
    if row.status is not TensorStatus.CHANGED or row.change is None:
        return False
    if isinstance(row.change, Numbers):
        return row.change.elements > 1 and not row.change.after.is_constant
    states = row.change.states
    return states is None or states.zero_after < states.blocks


def _keyed(tensors: list[Tensor]) -> dict[Key, Tensor]:
    return dict(zip(keys_of(tensor.name for tensor in tensors), tensors, strict=True))


def _kind(tensor: Tensor) -> tuple[str, tuple[int, ...], int]:
    """Return what tensors of equal bytes must share to count as one tensor under two names."""
    fitted = as_numbers(tensor)
    # For numbers the shape gives the size; more bytes may be stored, or a strided view.
    return tensor.label, tensor.logical_shape, tensor.nbytes if fitted is None else -1


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
        tensor.label,
        tensor.logical_shape,
        base_name,
        base_dtype,
        base_shape,
        change,
        reason,
    )


def _absence(a: Tensor, b: Tensor) -> str | None:
    """Return why the values of a tensor can't be compared, if it has none."""
    if a.absent is None and b.absent is None:
        return None
    sides = (("before", a.absent), ("after", b.absent))
    where = [side for side, absent in sides if absent is not None]
    there = [absent for _, absent in sides if absent is not None]
    told = f"no bytes {'on either side' if len(where) > 1 else where[0]}: "
    # What can't be read says more than what a file never had.
    failed = [absent for absent in there if isinstance(absent, NotRead)]
    return failed[-1].within(told) if failed else f"{told}{there[-1]}"


def _tensor_notes(
    before: Checkpoint, after: Checkpoint, tensors: list[TensorDiff]
) -> Iterator[str]:
    matched = {TensorStatus.CHANGED, TensorStatus.SAME, TensorStatus.RENAMED}
    if before.tensors and after.tensors and not any(t.status in matched for t in tensors):
        yield "the two have no tensor in common"
    elif not before.tensors and not after.tensors:
        yield "neither side has tensors"
    for kind, what in (("scales", "bytes and scales"), ("bytes", "bytes")):
        of_kind = [
            t.dtype
            for t in tensors
            if isinstance(t.change, ByteChange) and t.change.compared_by == kind
        ]
        if of_kind:
            yield f"{_listed_dtypes(of_kind)} compared by {what}: {_UNMEASURED}"
    of_two = [
        f"{t.base_dtype} -> {t.dtype}"
        for t in tensors
        if t.base_dtype and t.change is None and t.reason is None and t.base_shape is None
    ]
    if of_two:
        yield f"{_listed_dtypes(of_two)} compared by dtype and shape: {_UNMEASURED}"


def _listed_dtypes(dtypes: list[str]) -> str:
    """Return `2 tensors (IQ1_S, IQ2_XS)`."""
    named = clipped(", ".join(sorted(set(dtypes))), MAX_VALUE)
    return f"{counted(len(dtypes), 'tensor')} ({named})"


def _metadata(
    a: tuple[Side, Checkpoint], b: tuple[Side, Checkpoint], options: ReadOptions
) -> tuple[list[MetadataChange], Iterator[str], tuple[NotRead, ...]]:
    """Return changes of metadata, notes, and what could not be read.

    Of two formats only tags are compared, which mean the same in all formats.
    """
    notes = []
    unread: tuple[NotRead, ...] = ()
    before, after = a[1], b[1]
    if before.format == after.format:
        try:
            rests = [_rest(side, one, options) for side, one in (a, b)]
        except FormatError as error:
            rests, unread = [{}, {}], (NotRead.because(error),)
        _leave_shared(*rests)
        old, new = (
            one.metadata | {REST: rest} for one, rest in zip((before, after), rests, strict=True)
        )
    else:
        # Different formats name the same thing differently.
        old, new = dict(before.tags), dict(after.tags)
        notes.append(f"{before.format} and {after.format}: of the metadata only tags are compared")
    changed, is_all = metadata_changes(old, new)
    if not is_all:
        notes.append(f"more than {len(changed)} metadata changes, the rest are left out")
    return changed, iter(notes), unread


def _rest(side: Side, checkpoint: Checkpoint, options: ReadOptions) -> dict[str, object]:
    rest = checkpoint.metadata.get(REST)
    return rest_of(side, checkpoint.metadata, options) | (rest if isinstance(rest, dict) else {})


def _leave_shared(*rests: dict[str, object]) -> None:
    """Drop facts about items that only one side has: these are listed as added or removed."""
    of_items = [one if isinstance(one := rest.get(OF_ITEMS), dict) else {} for rest in rests]
    for rest, kinds, others in zip(rests, of_items, of_items[::-1], strict=True):
        rest[OF_ITEMS] = {
            kind: {name: one for name, one in named.items() if name in others.get(kind, {})}
            for kind, named in kinds.items()
        }


def metadata_changes(before: object, after: object) -> tuple[list[MetadataChange], bool]:
    """Return how two values of plain data differ, leaf by leaf; and whether that is all of it.

    What decides how a model is used comes first, and is the last to be left out.
    """
    kept: defaultdict[_Weight, list[tuple[int, MetadataChange]]] = defaultdict(list)
    total = 0
    # To the end: a flood of other values must not hide those that matter.
    for weight, change in _walk("", before, after):
        if len(kept[weight]) < MAX_CHANGES:
            kept[weight].append((total, change))
        total += 1
    first = kept.pop(_Weight.DECIDING, [])
    others = [*kept[_Weight.OTHER], *kept[_Weight.ROUTINE]][: MAX_CHANGES - len(first)]
    others.sort(key=itemgetter(0))
    return [change for _, change in (*first, *others)], total <= MAX_CHANGES


_Weighed = tuple[_Weight, MetadataChange]


def _walk(path: str, before: object, after: object) -> Iterator[_Weighed]:
    """Yield differences in order of their paths; the depth is bounded by what readers accept."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            below = f"{path}/{pointer_part(clipped(str(key), MAX_VALUE))}"
            yield from _walk(below, before.get(key, _ABSENT), after.get(key, _ABSENT))
        return
    if isinstance(before, list) and isinstance(after, list):
        for n in range(max(len(before), len(after))):
            old = before[n] if n < len(before) else _ABSENT
            new = after[n] if n < len(after) else _ABSENT
            yield from _walk(f"{path}/{n}", old, new)
        return
    if equal_values(before, after):
        return
    if before is _ABSENT:
        yield from _leaves(path, after, TensorStatus.ADDED)
    elif after is _ABSENT:
        yield from _leaves(path, before, TensorStatus.REMOVED)
    elif _is_leaf(before) and _is_leaf(after):
        # Before strings are shortened: what differs may be in what is left out.
        weight = _weight_of(path, before, after)
        if isinstance(before, str) and isinstance(after, str):
            before, after = apart(before, after, MAX_VALUE)
        yield _weighed(weight, path, TensorStatus.CHANGED, before, after)
    else:
        yield from _leaves(path, before, TensorStatus.REMOVED)
        yield from _leaves(path, after, TensorStatus.ADDED)


def _weighed(
    weight: _Weight, path: str, kind: TensorStatus, before: object, after: object
) -> _Weighed:
    matters = weight is not _Weight.ROUTINE
    return weight, MetadataChange(path, kind, _shown(before), _shown(after), matters)


def _leaves(path: str, value: object, kind: TensorStatus) -> Iterator[_Weighed]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(f"{path}/{pointer_part(clipped(str(key), MAX_VALUE))}", item, kind)
    elif isinstance(value, list | tuple) and value:
        for n, item in enumerate(value):
            yield from _leaves(f"{path}/{n}", item, kind)
    else:
        weight = _weight_of_one(path, value)
        sides = (None, value) if kind is TensorStatus.ADDED else (value, None)
        yield _weighed(weight, path, kind, *sides)


def _is_leaf(value: object) -> bool:
    return not isinstance(value, dict | list | tuple) or not value


def _shown(value: object) -> object:
    if isinstance(value, str):
        return clipped(value, MAX_VALUE)
    if isinstance(value, bytes):
        return clipped(value.hex(), MAX_VALUE)
    return value


def _weight_of(path: str, before: object, after: object) -> _Weight:
    """Return the weight of the change from one value at `path` to another."""
    if _DECIDING.search(path):
        return _Weight.DECIDING
    if _is_number(before) and _is_number(after):
        return _Weight.ROUTINE
    if isinstance(before, str) and isinstance(after, str):
        same = _ANEW.sub("#", before) == _ANEW.sub("#", after)
        return _Weight.ROUTINE if same else _Weight.OTHER
    return _Weight.OTHER


def _weight_of_one(path: str, value: object) -> _Weight:
    """Return the weight of a value at `path` that one side alone has."""
    if _DECIDING.search(path):
        return _Weight.DECIDING
    # An empty list or dict says nothing, and is gone with its first tensor.
    is_empty_one = isinstance(value, dict | list | tuple) and not value
    return _Weight.ROUTINE if is_empty_one or _is_number(value) else _Weight.OTHER


def _is_number(value: object) -> bool:
    """Whether a value is a number, or text that is one."""
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)
