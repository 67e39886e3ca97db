"""What a changed checkpoint holds on both sides, compared so far as possible."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from wtxtgit.checkpoint.contents import (
    Checkpoint,
    NoCheckpoint,
    Side,
    open_side,
    refuse_part,
    to_read,
)
from wtxtgit.checkpoint.delta import checked
from wtxtgit.checkpoint.delta_base import change_made, delta_in, opened_base
from wtxtgit.checkpoint.encrypted import refuse_encrypted
from wtxtgit.checkpoint.members import tree_members
from wtxtgit.checkpoint.open import payload_in
from wtxtgit.comparison import compare
from wtxtgit.comparison.compare import Compared
from wtxtgit.comparison.parts import file_of
from wtxtgit.comparison.problems import NOT_CHECKED, can_check, new_problems
from wtxtgit.containers import registry
from wtxtgit.errors import (
    MAX_NAME,
    CheckError,
    FormatError,
    InputError,
    LacksPayload,
    NotRead,
    clipped,
)
from wtxtgit.git.history import Commit
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, Pages
from wtxtgit.io.workers import default_threads
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.remotes.lfs_pointer import read_pointer
from wtxtgit.report.diff import DiffReport, TensorStatus
from wtxtgit.report.figures import OID_SHOWN
from wtxtgit.report.review import (
    DeltaState,
    Distributions,
    Fate,
    Flag,
    LayerGroup,
    ReviewedDelta,
    Risk,
)
from wtxtgit.review.changes import Branch, ChangedCheckpoint
from wtxtgit.review.flags import flags_of, groups, limited, part_flags
from wtxtgit.tensors.quantised import not_finite
from wtxtgit.tensors.statistics import statistics
from wtxtgit.tensors.tensor_bytes import as_numbers
from wtxtgit.text.grammar import is_text

_BASE, _HEAD = "base", "head"
_STORED_WHOLE = "opaque"


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob's size, and whether it begins like a text; the empty blob counts as a text.

    `is_pointer` marks a pointer of git-lfs, which is not a text.
    """

    size: int
    is_text: bool
    is_pointer: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison.

    `sizes` are those of the files before and after, `stored` the blobs that git has of them, None
    for what is not a file.
    """

    report: DiffReport | None = None
    reason: str | None = None
    groups: tuple[LayerGroup, ...] = ()
    flags: tuple[Flag, ...] = ()
    sizes: tuple[int | None, int | None] = (None, None)
    stored: tuple[StoredBlob | None, StoredBlob | None] = (None, None)
    distributions: dict[str, Distributions] = field(default_factory=dict)
    delta: ReviewedDelta | None = None


@dataclass(frozen=True, slots=True)
class BranchReader:
    """Compares changed checkpoints of a branch; `progress` receives counts of bytes read."""

    repo: Repository
    store: ObjectStore
    branch: Branch
    options: ReadOptions
    threads: int | None
    with_distributions: bool
    progress: Progress | None = None

    def compare(self, changed: ChangedCheckpoint) -> Comparison:
        """Compare a checkpoint's two sides; if that fails, the result has a reason and a flag.

        Raises EnvironmentFailure if git can't provide a blob.
        """
        threads = self.threads or default_threads()
        ends = self._ends(changed)
        blobs = {
            name: spooled(self.store.blob(entry.oid, threads), self.repo.state_dir)
            for name, _, entry in ends
            if entry.is_file
        }
        stored = _stored(blobs.get(_BASE)), _stored(blobs.get(_HEAD))
        if len(blobs) < len(ends):
            unread = _unread(Risk.UNREAD, "replaced by a link or submodule")
            return replace(unread, stored=stored)
        pages = Pages(self.progress)
        if changed.is_delta:
            return replace(self._of_delta(changed, blobs.get(_HEAD), pages), stored=stored)
        sides: dict[str, Side] = {}
        with ExitStack() as until:
            try:
                refuse_encrypted(blobs.get(_BASE), blobs.get(_HEAD))
                if changed.part_of is None:
                    refuse_part(os.fsdecode(changed.path))
                for name, commit, entry in ends:
                    members = tree_members(self.repo, commit.tree, entry.path, threads=self.threads)
                    blob = blobs[name]
                    payload = payload_in(self.repo, blob)
                    sides[name] = open_side(
                        name, blob, members, pages, self.threads, until, payload
                    )
                expect(self.progress, to_read(sides.values()))
                if changed.part_of is None:
                    comparison = self._compared(changed, sides, pages)
                else:
                    whole = clipped(os.fsdecode(changed.part_of), MAX_NAME)
                    comparison = Comparison(
                        reason=f"a part of {whole}, which is compared as one",
                        flags=tuple(self._beside_tensors(os.fsdecode(changed.path), sides, pages)),
                    )
            except LacksPayload as error:
                comparison = _unread(Risk.UNREAD, f"{error.message}; {self._fetching(changed)}")
            except CheckError as error:
                comparison = _unread(Risk.DAMAGED, error.message)
            # NoCheckpoint is a subclass of InputError, so it comes first.
            except NoCheckpoint as error:
                comparison = _unread(Risk.OPAQUE, error.message)
            except InputError as error:
                comparison = _unread(Risk.UNREAD, error.message)
            sizes = [sides[name].size if name in sides else None for name in (_BASE, _HEAD)]
        return replace(comparison, sizes=(sizes[0], sizes[1]), stored=stored)

    def _fetching(self, changed: ChangedCheckpoint) -> str:
        """Say which command fetches the payload of a checkpoint at both ends, or a delta's base."""
        revisions = [commit.oid[:OID_SHOWN] for _, commit, _ in self._ends(changed)]
        if changed.delta_base is not None:
            revisions = [one.revision for one in changed.delta_base.chain()]
        return f"wtxtgit fetch {' '.join(dict.fromkeys(revisions))} fetches it"

    def _ends(self, changed: ChangedCheckpoint) -> list[tuple[str, Commit, TreeEntry]]:
        """Return the ends of the branch at which the checkpoint exists, with what stands there."""
        before = (_BASE, self.branch.before, changed.before)
        after = (_HEAD, self.branch.after, changed.after)
        return [(name, commit, one) for name, commit, one in (before, after) if one is not None]

    def _compared(
        self, changed: ChangedCheckpoint, sides: dict[str, Side], pages: Pages
    ) -> Comparison:
        """Compare, or list, the open sides; raises CheckError and InputError."""
        if changed.fate in (Fate.ADDED, Fate.REMOVED):
            (side,) = sides.values()
            return self._listed(changed, side, pages)
        before, after = sides[_BASE], sides[_HEAD]
        compared = compare.compare(before, after, self.options, pages, self.threads)
        report = self._named(changed, compared.report)
        return self._told(compared, report, (before, after), pages)

    def _beside_tensors(self, path: str, sides: dict[str, Side], pages: Pages) -> Iterator[Flag]:
        """Yield flags for what no tensor holds in a part of a set.

        The set's own comparison has its tensors. Raises CheckError.
        """
        if len(sides) < 2:
            return
        before, after = sides[_BASE], sides[_HEAD]
        # Of parts that can't be read alone their set tells all.
        with suppress(NoCheckpoint):
            refuse_part(path)
            compared = compare.compare(
                before, after, self.options, pages, self.threads, only=lambda _: False
            )
            yield from part_flags(compared.report)

    def _told(
        self, compared: Compared, report: DiffReport, sides: tuple[Side, Side], pages: Pages
    ) -> Comparison:
        """Return the comparison of two sides, with the names that `report` has for them."""
        before, after = sides
        by_layer = groups(report)
        flags = [
            *flags_of(report, by_layer),
            *part_flags(report),
            *_not_numbers(compared.after, report, pages),
            *_held_back(compared.after, after),
        ]
        if can_check(after):
            flags += _problem_flags(before, after, self.options)
        else:
            report = replace(report, notes=(*report.notes, NOT_CHECKED))
        counted = {}
        if self.with_distributions:
            counted = dict(compare.distributions_of(compared, pages, self.threads))
        return Comparison(report, groups=tuple(by_layer), flags=tuple(flags), distributions=counted)

    def _of_delta(
        self, changed: ChangedCheckpoint, data: ByteView | None, pages: Pages
    ) -> Comparison:
        """Compare a delta's base, wherever in the repository, with what the delta makes of it."""
        if data is None:
            return Comparison(reason="a delta, which is gone")
        path = os.fsdecode(changed.path)
        base = changed.delta_base
        named = None if base is None else base.name
        wanted = None
        try:
            delta = delta_in(data, path, self.repo, self.threads)
            checked_delta = checked(path, delta)
            wanted = (checked_delta.index.base or b"").hex()
            if base is None:
                message = (
                    f"verified by itself, but its base, with sha256_all {wanted[:16]}..., is not "
                    "in the repository, so its changes are unknown"
                )
                verdict = ReviewedDelta(DeltaState.VERIFIED, message, None, wanted)
                return replace(_unread(Risk.UNREAD, message), delta=verdict)
            on = opened_base(self.repo, base, threads=self.threads)
            made = change_made(
                path,
                delta,
                base.name,
                on,
                checked_delta,
                threads=self.threads,
                progress=self.progress,
            )
            with ExitStack() as until:
                before, after = (
                    open_side(name, side, _no_member, pages, self.threads, until)
                    for name, side in ((base.name, made.before), (path, made.after))
                )
                compared = compare.compare(before, after, self.options, pages, self.threads)
                head = f"{self.branch.after.oid[:OID_SHOWN]}:{path}"
                notes = tuple(
                    f"no hash covers {one}: it is known only from the delta"
                    for one in made.uncovered
                )
                report = replace(
                    compared.report, a=base.name, b=head, notes=notes + compared.report.notes
                )
                verdict = ReviewedDelta(
                    DeltaState.APPLIED, f"applied to {base.name}", base.name, wanted
                )
                told = self._told(compared, report, (before, after), pages)
                return replace(told, sizes=(before.size, after.size), delta=verdict)
        except LacksPayload as error:
            message = f"{error.message}; {self._fetching(changed)}"
            verdict = ReviewedDelta(DeltaState.VERIFIED, message, named, wanted)
            return replace(_unread(Risk.UNREAD, message), delta=verdict)
        except CheckError as error:
            message = f"damaged: {error.message}"
            verdict = ReviewedDelta(DeltaState.DAMAGED, message, named, wanted)
            return replace(_unread(Risk.DAMAGED, error.message), delta=verdict)
        except NoCheckpoint as error:
            verdict = ReviewedDelta(DeltaState.APPLIED, f"applied to {named}", named, wanted)
            return replace(_unread(Risk.OPAQUE, error.message), delta=verdict)
        except InputError as error:
            verdict = ReviewedDelta(DeltaState.APPLIED, f"applied to {named}", named, wanted)
            return replace(_unread(Risk.UNREAD, error.message), delta=verdict)

    def _listed(self, changed: ChangedCheckpoint, side: Side, pages: Pages) -> Comparison:
        # A removed checkpoint has no risky content; its removal is a separate flag (`review`).
        is_new = changed.fate is Fate.ADDED
        status = TensorStatus.ADDED if is_new else TensorStatus.REMOVED
        listed, checkpoint = compare.listed(side, status, self.options, pages)
        report = self._named(changed, listed)
        flags = []
        if is_new:
            flags = [
                *_not_numbers(checkpoint, report, pages),
                *part_flags(report),
                *_held_back(checkpoint, side),
            ]
            # The text of a new one is verified whole, which needs all of its payload, too.
            flags += _problem_flags(None, side, self.options)
        return Comparison(report, groups=tuple(groups(report)), flags=tuple(flags))

    def _named(self, changed: ChangedCheckpoint, report: DiffReport) -> DiffReport:
        """Return a report that names its sides in a form that commands accept."""
        names = {
            name: f"{commit.oid[:OID_SHOWN]}:{os.fsdecode(entry.path)}"
            for name, commit, entry in self._ends(changed)
        }
        return replace(report, a=names.get(_BASE, ""), b=names.get(_HEAD, ""))


Comparer = Callable[[BranchReader, Sequence[ChangedCheckpoint]], Iterator[Comparison]]
"""Compares all changed checkpoints of a branch, in their order."""


def here(reader: BranchReader, changed: Sequence[ChangedCheckpoint]) -> Iterator[Comparison]:
    """Compare checkpoints one after the other, in this process."""
    for one in changed:
        yield reader.compare(one)
        finish_file(reader.progress)


def _not_numbers(checkpoint: Checkpoint, report: DiffReport, pages: Pages) -> Iterator[Flag]:
    """Yield flags for NaN and Inf in tensors of the head that the base lacks; raises CheckError."""
    added = {tensor.name for tensor in report.of(TensorStatus.ADDED)}
    nan: list[tuple[str, str]] = []
    inf: list[tuple[str, str]] = []
    unread = []
    for tensor in checkpoint.tensors:
        if tensor.name not in added:
            continue
        why = tensor.absent or checkpoint.budget.refusal(tensor)
        if why is not None:
            # Of tensors that a file only lists nothing can be said.
            if isinstance(why, NotRead):
                unread.append((tensor.name, why))
            continue
        checkpoint.prepare(tensor)
        try:
            if tensor.packing is not None:
                counts, what = not_finite(tensor), "blocks"
            else:
                values = statistics(as_numbers(tensor) or tensor)
                counts = (0, 0, 0) if values is None else (values.nan, values.inf, values.count)
                what = "items"
        except FormatError as error:
            unread.append((tensor.name, NotRead.because(error)))
            continue
        pages.advance(tensor.nbytes)
        for found, count, word in ((nan, counts[0], "NaN"), (inf, counts[1], "Inf")):
            if count:
                message = f"{count} of {counts[2]} {what} of a new tensor are {word}"
                found.append((tensor.name, message))
    yield from limited(Risk.NEW_NAN, nan)
    yield from limited(Risk.NEW_INF, inf)
    yield from limited(Risk.UNREAD, unread)


def _held_back(checkpoint: Checkpoint, side: Side) -> Iterator[Flag]:
    """Yield flags for what of the head is not examined."""
    for note in checkpoint.notes:
        yield Flag(Risk.UNREAD, note.removeprefix(f"{checkpoint.name}: "))
    layout = side.text.layout if side.text is not None else None
    is_whole = layout is not None and layout.format == _STORED_WHOLE
    known = registry.stored_whole(file_of(side)) if is_whole else None
    is_compared = known is not None and known.rest_whole is not None
    if is_whole and not is_compared and checkpoint.format not in registry.set_names():
        message = f"{checkpoint.format}, stored whole: its parts cannot be compared"
        yield Flag(Risk.OPAQUE, message)


def _problem_flags(before: Side | None, after: Side, options: ReadOptions) -> Iterator[Flag]:
    """Yield flags for what the check of a container finds at the head, and not at the base.

    Of a file without a base only errors count. Raises CheckError and LacksPayload.
    """
    found = new_problems(before, after, options)
    errors, warnings = (
        ((None, f"wtxtgit verify: {one}") for one in problems)
        for problems in (found.errors, found.warnings)
    )
    yield from limited(Risk.DAMAGED, errors, "problem")
    if before is not None:
        yield from limited(Risk.PART, warnings, "problem")


def _no_member(path: str) -> ByteView:
    raise InputError(f"{path}: a delta applies to a single file")


def _stored(blob: ByteView | None) -> StoredBlob | None:
    if blob is None:
        return None
    is_pointer = read_pointer(blob) is not None
    return StoredBlob(len(blob), is_text(blob) or not len(blob), is_pointer)


def _unread(risk: Risk, reason: str) -> Comparison:
    return Comparison(reason=reason, flags=(Flag(risk, reason),))
