"""A ring: a folder with the last generations of a training, and the state of each.

Two logs record what happened: `requests`, written by the training, and `wal`, written by the
process that works on the ring. A line of `wal` makes a generation count: its files are first
written under other names, and renamed once the line is on disk. Only one process at a time works on
a ring: it has a lock, which ends with the process. If several ranks share a ring, each has logs and
a lock of its own, and only works on its own parts; a generation counts once an index lists all its
parts. `docs/stream.md` describes guarantees and files.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from itertools import compress
from pathlib import Path
from typing import Self

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.io.files import failures, shown, sync_folder
from wtxtgit.stream.index import GenerationIndex
from wtxtgit.stream.log import Log, LogLine, entry
from wtxtgit.stream.ranks import (
    ALONE,
    LOCK,
    WAL,
    PartListing,
    Rank,
    index_name,
    join_world,
    list_parts,
    write_once,
)
from wtxtgit.stream.state import (
    Delivery,
    DeliveryState,
    Generation,
    RingState,
    awaited,
    delivery_line,
    index_part,
    part_name,
    read_state,
    requested,
)

_log = logging.getLogger("wtxtgit.stream")
NEW = ".new"
"""The ending of the names of files whose generation does not count yet."""
_SPARE_LINES = 1000
"""A log is compacted once more lines than this were added."""


class Ring:
    """A rank's part of a ring, on which only this process works; any thread may call it."""

    def __init__(self, folder: Path, *, rank: Rank = ALONE, is_training: bool = False) -> None:
        """Open the ring at `folder`, which is created if missing.

        Steps that a killed process left half done are finished or undone. Unanswered requests are
        lost, unless the training that made them still runs (`is_training`). Raises RingBusy if
        another process works on the ring, and UsageError for a ring with another number of ranks.
        """
        self.folder = folder
        self.rank = rank
        with failures(folder, missing=EnvironmentFailure):
            folder.mkdir(parents=True, exist_ok=True)
        self.world = join_world(folder, rank)
        self._lock = _take_lock(folder, rank)
        self._change = threading.RLock()
        try:
            exists = (folder / rank.own(WAL)).is_file()
            self.state = read_state(folder, rank) if exists else RingState()
            last = -1 if self.state.last is None else self.state.last
            requests = {} if is_training else requested(folder, rank)
            unanswered = {gen: is_wanted for gen, is_wanted in requests.items() if gen > last}
            self.newly_lost = [gen for gen, is_wanted in unanswered.items() if is_wanted]
            for gen, is_wanted in unanswered.items():
                self.state.take(entry("lost" if is_wanted else "dropped", gen=gen))
            self._finish_files()
            self._wal = Log(folder / rank.own(WAL), self.state.lines())
            sync_folder(folder)
            self.complete()
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        with self._change:
            try:
                self._wal.close()
            finally:
                self._release()

    def _release(self) -> None:
        """Release the lock, and remove the holder's number from its file."""
        os.truncate(self._lock, 0)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def path(self, file: str) -> Path:
        return self.folder / file

    def emitted(self, generation: Generation) -> None:
        """Make a generation count whose files have NEW at the end of their names."""
        with self._change:
            # The files' contents are on disk; so must be their names, before a line refers to them.
            sync_folder(self.folder)
            self._append(
                generation.line(),
                *(delivery_line(generation.gen, one) for one in generation.deliveries),
                is_durable=True,
            )
            self._put_in_place(generation)
            sync_folder(self.folder)
        self.complete()

    def complete(self) -> None:
        """Write the index of each generation that has a part of every rank by now.

        Older generations come first, so one without an index that is older than an index can never
        become whole. If an index can't be written the next call does it.
        """
        if self.rank.is_alone:
            return
        try:
            # While a folder is being read, parts may appear that the listing misses. Any older part
            # that is missing from the first listing is in the second one.
            if self._lacking_index():
                for gen in self._lacking_index():
                    self._write_index(gen)
                sync_folder(self.folder)
        except EnvironmentFailure as error:
            _log.warning("%s", error)

    def is_whole(self, gen: int) -> bool:
        """Tell whether a generation counts; with a single rank it always does."""
        return self.rank.is_alone or os.path.lexists(self.path(index_name(gen)))

    def remove_unfinished(self) -> None:
        """Remove files of generations that do not count."""
        with self._change:
            self._finish_files()

    def failed(self, gen: int, why: str) -> None:
        """Log that a generation could not be emitted."""
        with self._change:
            self._append(entry("failed", gen=gen, why=why))

    def passed_over(self, gens: Iterable[int]) -> None:
        """Log that generations were dropped for newer ones; repeating this does no harm."""
        with self._change:
            last = -1 if self.state.last is None else self.state.last
            self._append(*(entry("dropped", gen=gen) for gen in gens if gen > last))

    def delivery(self, gen: int, delivery: Delivery) -> None:
        """Log the progress of a generation's delivery to a target."""
        with self._change:
            self._append(delivery_line(gen, delivery), is_durable=True)

    def under_way(self, target: str) -> Iterator[tuple[Generation, Delivery]]:
        """Yield the generations that count and that a target has yet to get, oldest first."""
        for generation, delivery in self._waiting(target):
            if delivery.state is DeliveryState.SENT or self.is_whole(generation.gen):
                yield generation, delivery

    def waits_for_ranks(self, target: str, *, looks_closely: bool = False) -> bool:
        """Tell whether a target waits for something that other ranks may still complete, or send.

        With `looks_closely` their logs are read, which show what they can't write any more.
        """
        if self.rank.is_alone:
            return False
        waiting = {generation.gen: one.state for generation, one in self._waiting(target)}
        if not waiting:
            return False
        listing = list_parts(self.folder, self.rank.world)
        newest = max(listing.indexed, default=-1)
        if any(waiting[gen] is DeliveryState.SENT or gen in listing.indexed for gen in waiting):
            return True
        candidates = [gen for gen in waiting if gen > newest]
        if not looks_closely:
            return bool(candidates)
        missing = {gen: listing.missing(gen, self.rank) for gen in candidates}
        missing_ranks = {rank for ranks in missing.values() for rank in ranks}
        states = {rank: read_state(self.folder, rank) for rank in missing_ranks}
        return any(all(states[rank].may_have(gen) for rank in missing[gen]) for gen in candidates)

    def _waiting(self, target: str) -> Iterator[tuple[Generation, Delivery]]:
        with self._change:
            generations = self.state.generations
        for generation in generations:
            for delivery in generation.deliveries:
                waits = delivery.state in (DeliveryState.QUEUED, DeliveryState.SENT)
                if delivery.target == target and waits:
                    yield generation, delivery

    def prune(self, keep: int, *, named: Iterable[int] = ()) -> list[int]:
        """Remove all but the last `keep` generations, and those in `named`; returns their numbers.

        A generation stays if it is pinned, if a target has yet to get it, or if a delta that stays
        is based on it. With several ranks `keep` counts only whole generations; others stay if they
        may become whole: see `_may_become_whole`. Raises UsageError if a named one has to stay.
        """
        with self._change:
            removed = self.removable(keep, named=named)
            for one in removed if not self.rank.is_alone else ():
                # The index first: a generation that lost a part must not count as whole.
                self._remove(index_name(one.gen))
            if removed:
                self._append(*(entry("pruned", gen=one.gen) for one in removed), is_durable=True)
            for one in removed:
                self._remove(*one.files)
            return [one.gen for one in removed]

    def removable(self, keep: int, *, named: Iterable[int] = ()) -> list[Generation]:
        """Return what `prune` would remove; raises UsageError as that does."""
        with self._change:
            generations = self.state.generations
        named_gens = set(named)
        if unknown := named_gens - {one.gen for one in generations}:
            raise UsageError(f"the ring holds no generation {min(unknown)}")
        whole, unfinished = generations, set[int]()
        if not self.rank.is_alone:
            listing = list_parts(self.folder, self.rank.world)
            # While a folder is listed, indexes may appear: the listing may have a newer one, but
            # lack an older one.
            has_index = (
                one.gen in listing.indexed or self.is_whole(one.gen) for one in generations
            )
            whole = tuple(compress(generations, has_index))
            unfinished = self._may_become_whole(listing, keep)
        newest = {one.gen for one in whole[max(0, len(whole) - keep) :]}
        staying = {
            one.gen
            for one in whole
            if one.gen not in named_gens and (one.gen in newest or one.is_pinned)
        }
        staying |= {one.gen for one in whole if one.is_under_way} | unfinished - named_gens
        staying |= {one.base for one in generations if one.gen in staying and one.base is not None}
        if kept := named_gens & staying:
            raise UsageError(
                f"generation {min(kept)} can't be removed: a target has not received it yet, or a "
                "delta needs it"
            )
        return [one for one in generations if one.gen not in staying]

    def _may_become_whole(self, listing: PartListing, keep: int) -> set[int]:
        """Return own generations without an index that other ranks may still complete.

        Generations of a rank only increase: those older than the last whole one can't be completed.
        Of the newer ones the last `keep` stay, and the others while all ranks with a missing part
        are working on them: parts that a dead rank will never add must not fill the disk.
        """
        newest = max(listing.indexed, default=-1)
        candidates = [one.gen for one in self.state.generations if one.gen > newest]
        older = candidates[: max(0, len(candidates) - keep)]
        missing_ranks = {rank for gen in older for rank in listing.missing(gen, self.rank)}
        awaited_by = {rank: awaited(self.folder, rank) for rank in missing_ranks}
        abandoned = {
            gen
            for gen in older
            if any(gen not in awaited_by[rank] for rank in listing.missing(gen, self.rank))
        }
        return set(candidates) - abandoned

    def _lacking_index(self) -> list[int]:
        """Return own generations, in order, that lack nothing but their index."""
        listing = list_parts(self.folder, self.rank.world)
        newest = max(listing.indexed, default=-1)
        gens = (one.gen for one in self.state.generations)
        return [gen for gen in gens if gen > newest and not listing.missing(gen, self.rank)]

    def _write_index(self, gen: int) -> None:
        parts = []
        for rank in self.rank.all():
            state = self.state if rank == self.rank else read_state(self.folder, rank)
            if gen not in state.generations_by_number:
                return  # its rank has just pruned it
            parts.append(index_part(state.generations_by_number[gen], rank))
        index = GenerationIndex(gen, tuple(parts))
        write_once(self.path(index_name(gen)), index.content())

    def _append(self, *lines: LogLine, is_durable: bool = False) -> None:
        self._wal.append(*lines, is_durable=is_durable)
        for line in lines:
            self.state.take(line)
        if self._wal.lines > _SPARE_LINES:
            self._wal.compact(self.state.lines())

    def _put_in_place(self, generation: Generation) -> None:
        for file in generation.files:
            with failures(self.path(file), missing=EnvironmentFailure):
                self.path(file + NEW).replace(self.path(file))

    def _remove(self, *files: str) -> None:
        for file in files:
            with contextlib.suppress(FileNotFoundError), failures(self.path(file)):
                self.path(file).unlink(missing_ok=True)

    def _finish_files(self) -> None:
        """Rename the files of generations that count, and remove files that belong to none."""
        live = {file for one in self.state.generations for file in one.files}
        with failures(self.folder, missing=EnvironmentFailure):
            names = sorted(path.name for path in self.folder.iterdir())
        for file in names:
            own = file.removesuffix(NEW)
            part = part_name(own)
            if part is None or part.rank != self.rank:
                continue
            if own not in live:
                self._remove(file)
            elif file != own:
                with failures(self.path(own), missing=EnvironmentFailure):
                    self.path(file).replace(self.path(own))


def _take_lock(folder: Path, rank: Rank) -> int:
    """Take the lock of a ring, which ends with this process; raises EnvironmentFailure."""
    path = folder / rank.own(LOCK)
    with failures(path, missing=EnvironmentFailure):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            subject = "this ring" if rank.is_alone else f"rank {rank.number} of this ring"
            raise RingBusy(
                f"{shown(folder)}: process {holder or '?'} is using {subject}",
                hint="each training run needs its own ring; this one is free when that process "
                "ends",
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return descriptor


class RingBusy(EnvironmentFailure):
    """Another process works on the ring."""
