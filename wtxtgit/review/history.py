"""The versions of a checkpoint over time: each content that it had, and its values in it.

Each version is compared with the one before, as `diff` compares two. Of texts, only those arrays
are decoded whose lines differ; an unchanged tensor keeps its numbers.
"""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import sqrt
from pathlib import Path

from wtxtgit.chain import log
from wtxtgit.chain.log import LogEntry
from wtxtgit.chain.walk import Walk, commit_of
from wtxtgit.checkpoint.contents import Checkpoint, Side, open_side
from wtxtgit.checkpoint.encrypted import refuse_encrypted
from wtxtgit.checkpoint.members import tree_members
from wtxtgit.checkpoint.open import payload_in
from wtxtgit.comparison import compare
from wtxtgit.errors import (
    CheckError,
    FormatError,
    InputError,
    NotRead,
    UsageError,
    clipped,
    counted,
)
from wtxtgit.git import history
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.trees import TreeEntry, TreeReader
from wtxtgit.io.files import shown
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Pages
from wtxtgit.io.workers import default_threads
from wtxtgit.model.ledger import LEDGER_SUFFIX, Ledger
from wtxtgit.model.tensor import ReadOptions, Tensor
from wtxtgit.report.diff import DiffReport, Numbers, SideFacts, TensorDiff, TensorStatus
from wtxtgit.report.history import History, PastVersion, Point, Points, Series, in_order, joined
from wtxtgit.report.inspect import Statistics
from wtxtgit.review.flags import group_of
from wtxtgit.tensors.statistics import statistics
from wtxtgit.tensors.tensor_bytes import as_values
from wtxtgit.text.index import want_payload

_MOST_AUTHOR = 100
_MOST_SUBJECT = 200
"""The longest subject of a commit in characters."""


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """Which checkpoint's history is requested, up to which revision.

    `tensors` is a shell pattern of names: if given, no other tensor is read. `most` is how many
    versions are examined, the latest ones. `trust_root` is as for `log`.
    """

    path: str
    revision: str = "HEAD"
    trust_root: str | None = None
    tensors: str | None = None
    most: int | None = None
    options: ReadOptions = field(default_factory=ReadOptions)


@dataclass(frozen=True, slots=True)
class _Content:
    """A commit that gave the checkpoint another blob, and the first record that sealed it."""

    commit: Commit
    entry: TreeEntry
    gen: int | None = None


def life(
    repo: Repository,
    request: HistoryRequest,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> History:
    """Read the versions of a checkpoint along first parents; `progress` gets bytes read.

    A version that can't be read has a reason. Raises InputError if no commit of the revision has
    the path, UsageError for a pattern that matches no tensor, EnvironmentFailure, and what `log`
    raises for a ledger.
    """
    artifact = repo.path_from_top(request.path).removesuffix(LEDGER_SUFFIX)
    tip = commit_of(repo, request.revision)
    is_sealed = True
    records: dict[int, LogEntry] = {}
    with ExitStack() as until:
        try:
            walk, entries = until.enter_context(
                log.walked(
                    repo,
                    request.path,
                    revision=request.revision,
                    trust_root=request.trust_root,
                )
            )
            records = {entry.gen: entry for entry in entries}
            contents = list(_sealed(walk, artifact, tip))
        except log.NoLedger:
            is_sealed = False
            contents = list(_contents(repo, tip, [artifact], lambda _path, _oid: None))
        if not contents:
            raise InputError(f"{shown(Path(request.path))}: no commit of {request.revision} has it")
        contents = contents[-request.most :] if request.most is not None else contents
        commits = until.enter_context(CommitReader(repo))
        store = until.enter_context(ObjectStore(repo))
        blobs = until.enter_context(BlobReader(repo))
        reading = _Reading(repo, store, request, threads, progress)
        try:
            expect(progress, None, len(contents))
            versions = []
            for one in contents:
                versions.append(reading.add(_version(one, commits, blobs, records), one))
                finish_file(progress)
        finally:
            reading.close()
    tensors = reading.series()
    is_read = any(one.reason is None for one in versions)
    if request.tensors is not None and is_read and not reading.has_tensors:
        raise UsageError(
            f"{shown(Path(request.path))}: no tensor matches {request.tensors!a}",
            hint=f"wtxtgit inspect {shlex.quote(shown(Path(request.path)))} lists all tensors",
        )
    return History(
        artifact, request.revision, tuple(versions), _layers(tensors), tuple(tensors), is_sealed
    )


def _sealed(walk: Walk, artifact: bytes, tip: str) -> Iterator[_Content]:
    """Yield the contents of a path that has a ledger, through all its moves."""
    report = walk.reader.ledger_in(walk.snapshots.files(tip), artifact)
    own = None if report is None else report.ledger
    places = [artifact] if own is None else log.places(own, artifact)

    def last_gen(path: bytes, oid: str) -> int | None:
        found = walk.reader.ledger(path, oid)
        ledger: Ledger | None = None if found is None else found.ledger
        # Another ledger was here before: its records are about another artifact.
        is_own = ledger is not None and own is not None and ledger.head == own.head
        return ledger.last.meta.gen if is_own and ledger is not None else None

    yield from _contents(walk.repo, tip, places, last_gen)


def _contents(
    repo: Repository,
    tip: str,
    places: list[bytes],
    last_gen: Callable[[bytes, str], int | None],
) -> Iterator[_Content]:
    """Yield each new blob at the last of these places that has one, commit by commit."""
    paths = [path for place in places for path in (place, place + LEDGER_SUFFIX)]
    specs = [b":(top,literal)" + path for path in paths]
    known: set[int | None] = {None}
    found: list[_Content] = []
    before: str | None = None
    with TreeReader(repo) as trees:
        for commit in history.commits(repo, [tip], first_parent=True, touching=specs):
            entries = {
                path: one for path, one in trees.at(commit.tree, paths).items() if one.is_file
            }
            place = next((one for one in reversed(places) if one in entries), None)
            if place is None:
                before = None
                continue
            if entries[place].oid != before:
                before = entries[place].oid
                found.append(_Content(commit, entries[place]))
            ledger = entries.get(place + LEDGER_SUFFIX)
            gen = None if ledger is None else last_gen(ledger.path, ledger.oid)
            if gen in known:
                continue
            known.add(gen)
            # A move seals the same content again: the version keeps the generation that brought it.
            if found[-1].gen is None:
                found[-1] = replace(found[-1], gen=gen)
    yield from found


def _version(
    content: _Content, commits: CommitReader, blobs: BlobReader, records: Mapping[int, LogEntry]
) -> PastVersion:
    author, date = commits.author(content.commit.oid)
    record = None if content.gen is None else records.get(content.gen)
    version = PastVersion(
        content.commit.oid,
        date,
        clipped(author, _MOST_AUTHOR),
        clipped(commits.subject(content.commit.oid), _MOST_SUBJECT),
        content.entry.path,
        blobs.size(content.entry.oid),
    )
    if record is None:
        return version
    return replace(
        version, gen=record.gen, ts=record.ts, signers=record.signers, verdict=record.verdict
    )


class _Reading:
    """Versions as they are read, each compared with the last one that could be read."""

    def __init__(
        self,
        repo: Repository,
        store: ObjectStore,
        request: HistoryRequest,
        threads: int | None,
        progress: Progress | None,
    ) -> None:
        self._repo = repo
        self._store = store
        self._options = request.options
        self._pattern = request.tensors
        self._threads = threads
        self._progress = progress
        self._count = 0
        self._points: defaultdict[str, dict[int, Point]] = defaultdict(dict)
        self._kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._before: Side | None = None
        self._until = ExitStack()
        """Closes the previous side."""

    def close(self) -> None:
        self._until.close()

    def add(self, version: PastVersion, content: _Content) -> PastVersion:
        """Read a version; returns it with what is known of its tensors."""
        until = ExitStack()
        pages = Pages(self._progress)
        threads = self._threads or default_threads()
        blob = spooled(self._store.blob(content.entry.oid, threads), self._repo.state_dir)
        name = os.fsdecode(content.entry.path)
        try:
            refuse_encrypted(None, blob)
            members = tree_members(
                self._repo, content.commit.tree, content.entry.path, threads=self._threads
            )
            payload = payload_in(self._repo, blob)
            side = open_side(name, blob, members, pages, self._threads, until, payload)
            version = self._read(version, side, pages)
        except (CheckError, InputError) as error:
            until.close()
            version = replace(version, reason=error.message)
        else:
            self._until.close()
            self._before, self._until = side, until
        self._count += 1
        return version

    @property
    def has_tensors(self) -> bool:
        """Whether any tensor matched the request."""
        return bool(self._kinds)

    def series(self) -> list[Series]:
        """Return all tensors that have numbers."""
        return in_order(
            Series(name, self._line(points), *self._kinds[name])
            for name, points in self._points.items()
        )

    def _line(self, points: Mapping[int, Point]) -> Points:
        return tuple(points.get(n) for n in range(self._count))

    def _is_chosen(self, name: str) -> bool:
        return self._pattern is None or fnmatchcase(name, self._pattern)

    def _read(self, version: PastVersion, side: Side, pages: Pages) -> PastVersion:
        only = None if self._pattern is None else self._is_chosen
        if self._before is None:
            if side.text is not None:
                apart = compare.left_out(side, only)
                arrays = side.text.by_name.values()
                # Fetch all of its missing payload in one go.
                want_payload(array for array in arrays if array.name not in apart)
            report, after = compare.listed(
                side, TensorStatus.ADDED, self._options, pages, only=only
            )
            version = replace(version, format=report.b_format)
        else:
            compared = compare.compare(
                self._before, side, self._options, pages, self._threads, only=only
            )
            report, after = compared.report, compared.after
            version = _compared(version, report)
        version = replace(version, reason=_unread(report, after))
        points = dict(self._points_of(report, after, pages))
        for tensor in report.tensors:
            if tensor.status is not TensorStatus.REMOVED:
                self._kinds[tensor.name] = tensor.dtype, tensor.shape
        for name, point in points.items():
            self._points[name][self._count] = point
        tensors = len(report.tensors) - report.summary.counts[TensorStatus.REMOVED]
        return replace(version, file_size=side.size, tensors=tensors)

    def _points_of(
        self, report: DiffReport, after: Checkpoint, pages: Pages
    ) -> Iterator[tuple[str, Point]]:
        by_name = {tensor.name: tensor for tensor in after.tensors}
        for told in report.tensors:
            if told.status is TensorStatus.REMOVED:
                continue
            if isinstance(told.change, Numbers):
                yield told.name, _changed(told.change)
                continue
            point = self._kept(told)
            if point is None:
                point = self._counted(by_name[told.name], after, pages)
            if point is not None:
                yield told.name, point

    def _kept(self, told: TensorDiff) -> Point | None:
        """Return the numbers of an unchanged tensor, also if it was renamed."""
        if told.status not in (TensorStatus.SAME, TensorStatus.RENAMED):
            return None
        points = self._points.get(told.base_name or told.name)
        # It was compared with the last version that could be read.
        return None if not points else replace(points[max(points)], l2=0.0, base_norm=0.0)

    def _counted(self, tensor: Tensor, after: Checkpoint, pages: Pages) -> Point | None:
        if tensor.absent is not None or as_values(tensor) is None:
            return None
        if after.budget.refusal(tensor) is not None:
            return None
        after.prepare(tensor)
        try:
            values = statistics(as_values(tensor) or tensor)
        except FormatError:
            return None
        pages.advance(tensor.nbytes)
        return None if values is None else _point(values)


def _compared(version: PastVersion, report: DiffReport) -> PastVersion:
    counts = report.summary.counts
    return replace(
        version,
        format=report.b_format,
        # None changed as far as is known.
        changed=counts[TensorStatus.CHANGED] or (None if counts[TensorStatus.UNREAD] else 0),
        added=counts[TensorStatus.ADDED],
        removed=counts[TensorStatus.REMOVED],
        renamed=counts[TensorStatus.RENAMED],
        relative_change=None if counts[TensorStatus.UNREAD] else report.summary.relative_l2,
    )


def _unread(report: DiffReport, after: Checkpoint) -> str | None:
    """Return what of a version could not be read, in words; None if nothing."""
    uncompared = report.of(TensorStatus.UNREAD)
    if uncompared:
        return f"{counted(len(uncompared), 'tensor')} not compared: {uncompared[0].reason}"
    reasons = (*after.unread, *(tensor.absent for tensor in after.tensors))
    failed = [why for why in reasons if isinstance(why, NotRead)]
    return f"not all read: {failed[0]}" if failed else None


def _point(values: Statistics | SideFacts) -> Point:
    side = SideFacts(values.count, values.mean, values.std, values.zeros, values.nan, values.inf)
    finite = side.count - side.nan - side.inf
    norm = side.root_mean_square * sqrt(finite)
    return Point(side.count, norm, side.zeros, side.nan, side.inf)


def _changed(change: Numbers) -> Point:
    return replace(_point(change.after), l2=change.l2, base_norm=change.base_norm)


def _layers(tensors: list[Series]) -> tuple[Series, ...]:
    """Combine the tensors into series of their layers."""
    grouped: defaultdict[str, list[Series]] = defaultdict(list)
    for one in tensors:
        grouped[group_of(one.name)].append(one)
    layers = (
        Series(
            name,
            tuple(
                joined([point for point in points if point is not None])
                for points in zip(*(one.points for one in group), strict=True)
            ),
        )
        for name, group in grouped.items()
    )
    return tuple(in_order(layers))
