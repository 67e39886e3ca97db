"""A ring: a folder with the last generations of a training, and the state of each.

Two logs record what happened: `requests`, written by the training, and `wal`, written by whoever
works on the ring. A line of `wal` makes a generation count: its files are first written under other
names, and renamed when the line is on disk. One process works on a ring at a time: its lock ends
with it. If several ranks share a ring, each has logs and a lock of its own, and only works on its
own parts; a generation counts when an index lists all its parts. `docs/stream.md` describes
guarantees and files.
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
    joined,
    listed,
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

        What a killed process left half done is finished or undone. Unanswered requests are lost,
        unless the training that made them still runs (`is_training`). Raises RingBusy if another
        process works on the ring, and UsageError for a ring of another world.
        """
        self.folder = folder
        self.rank = rank
        with failures(folder, missing=EnvironmentFailure):
            folder.mkdir(parents=True, exist_ok=True)
        self.world = joined(folder, rank)
        self._lock = _locked(folder, rank)
        self._change = threading.RLock()
        try:
            there = (folder / rank.own(WAL)).is_file()
            self.state = read_state(folder, rank) if there else RingState()
            last = -1 if self.state.last is None else self.state.last
            requests = {} if is_training else requested(folder, rank)
            unanswered = {gen: stands for gen, stands in requests.items() if gen > last}
            self.newly_lost = [gen for gen, stands in unanswered.items() if stands]
            for gen, stands in unanswered.items():
                self.state.take(entry("lost" if stands else "dropped", gen=gen))
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
            self._tell(
                generation.line(),
                *(delivery_line(generation.gen, one) for one in generation.deliveries),
                is_durable=True,
            )
            self._put_in_place(generation)
            sync_folder(self.folder)
        self.complete()

    def complete(self) -> None:
        """Write the index of each generation of which all ranks have a part now.

        Older generations come first, so one without an index that is older than an index can never
        become whole. If an index can't be written the next call does it.
        """
        if self.rank.is_alone:
            return
        try:
            # While a folder is being read, parts may appear that the listing misses. Any older part
            # that is missing from the first listing is in the second one.
            if self._completed():
                for gen in self._completed():
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
            self._tell(entry("failed", gen=gen, why=why))

    def passed_over(self, gens: Iterable[int]) -> None:
        """Log that generations were dropped for newer ones; repeating this does no harm."""
        with self._change:
            last = -1 if self.state.last is None else self.state.last
            self._tell(*(entry("dropped", gen=gen) for gen in gens if gen > last))

    def delivery(self, gen: int, delivery: Delivery) -> None:
        """Log the progress of a generation's delivery to a target."""
        with self._change:
            self._tell(delivery_line(gen, delivery), is_durable=True)

    def under_way(self, target: str) -> Iterator[tuple[Generation, Delivery]]:
        """Yield what a target has yet to get, oldest first, of generations that count."""
        for generation, one in self._waiting(target):
            if one.state is DeliveryState.SENT or self.is_whole(generation.gen):
                yield generation, one

    def waits_for_ranks(self, target: str, *, looks_closely: bool = False) -> bool:
        """Tell whether a target waits for something that other ranks may still complete, or send.

        With `looks_closely` their logs are read, which show what they will never write.
        """
        if self.rank.is_alone:
            return False
        waiting = {generation.gen: one.state for generation, one in self._waiting(target)}
        if not waiting:
            return False
        listing = listed(self.folder, self.rank.world)
        newest = max(listing.indexed, default=-1)
        if any(waiting[gen] is DeliveryState.SENT or gen in listing.indexed for gen in waiting):
            return True
        hoped = [gen for gen in waiting if gen > newest]
        if not looks_closely:
            return bool(hoped)
        missing = {gen: listing.missing(gen, self.rank) for gen in hoped}
        late = {rank for ranks in missing.values() for rank in ranks}
        states = {rank: read_state(self.folder, rank) for rank in late}
        return any(all(states[rank].may_have(gen) for rank in missing[gen]) for gen in hoped)

    def _waiting(self, target: str) -> Iterator[tuple[Generation, Delivery]]:
        with self._change:
            generations = self.state.generations
        for generation in generations:
            for one in generation.deliveries:
                waits = one.state in (DeliveryState.QUEUED, DeliveryState.SENT)
                if one.target == target and waits:
                    yield generation, one

    def prune(self, keep: int, *, named: Iterable[int] = ()) -> list[int]:
        """Remove all but the last `keep` generations, and those in `named`; returns their numbers.

        Generations stay if they are pinned, if a target has yet to get them, or if one that stays
        is a delta based on them. With several ranks only whole generations are counted; of the
        others those stay that may become whole: see `_may_become_whole`. Raises UsageError if a
        named one has to stay.
        """
        with self._change:
            going = self.going(keep, named=named)
            for one in going if not self.rank.is_alone else ():
                # The index first: a generation that lost a part must not count as whole.
                self._remove(index_name(one.gen))
            if going:
                self._tell(*(entry("pruned", gen=one.gen) for one in going), is_durable=True)
            for one in going:
                self._remove(*one.files)
            return [one.gen for one in going]

    def going(self, keep: int, *, named: Iterable[int] = ()) -> list[Generation]:
        """Return what `prune` would remove; raises UsageError as that does."""
        with self._change:
            generations = self.state.generations
        wanted = set(named)
        if unknown := wanted - {one.gen for one in generations}:
            raise UsageError(f"the ring holds no generation {min(unknown)}")
        whole, others = generations, set[int]()
        if not self.rank.is_alone:
            listing = listed(self.folder, self.rank.world)
            # A folder is listed name by name: of two indexes written meanwhile the older one may be
            # missing.
            has_index = (
                one.gen in listing.indexed or self.is_whole(one.gen) for one in generations
            )
            whole = tuple(compress(generations, has_index))
            others = self._may_become_whole(listing, keep)
        newest = {one.gen for one in whole[max(0, len(whole) - keep) :]}
        staying = {
            one.gen
            for one in whole
            if one.gen not in wanted and (one.gen in newest or one.is_pinned)
        }
        staying |= {one.gen for one in whole if one.is_under_way} | others - wanted
        staying |= {one.base for one in generations if one.gen in staying and one.base is not None}
        if bound := wanted & staying:
            raise UsageError(
                f"generation {min(bound)} can't be removed: a target has not received it yet, or a "
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
        hoped = [one.gen for one in self.state.generations if one.gen > newest]
        older = hoped[: max(0, len(hoped) - keep)]
        late = {rank for gen in older for rank in listing.missing(gen, self.rank)}
        at_work = {rank: awaited(self.folder, rank) for rank in late}
        given_up = {
            gen
            for gen in older
            if any(gen not in at_work[rank] for rank in listing.missing(gen, self.rank))
        }
        return set(hoped) - given_up

    def _completed(self) -> list[int]:
        """Return own generations, in order, that lack nothing but their index."""
        listing = listed(self.folder, self.rank.world)
        newest = max(listing.indexed, default=-1)
        gens = (one.gen for one in self.state.generations)
        return [gen for gen in gens if gen > newest and not listing.missing(gen, self.rank)]

    def _write_index(self, gen: int) -> None:
        parts = []
        for rank in self.rank.all():
            state = self.state if rank == self.rank else read_state(self.folder, rank)
            if gen not in state.generations_by_number:
                return  # pruned in this moment
            parts.append(index_part(state.generations_by_number[gen], rank))
        index = GenerationIndex(gen, tuple(parts))
        write_once(self.path(index_name(gen)), index.content())

    def _tell(self, *lines: LogLine, is_durable: bool = False) -> None:
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
            there = sorted(path.name for path in self.folder.iterdir())
        for file in there:
            own = file.removesuffix(NEW)
            part = part_name(own)
            if part is None or part.rank != self.rank:
                continue
            if own not in live:
                self._remove(file)
            elif file != own:
                with failures(self.path(own), missing=EnvironmentFailure):
                    self.path(file).replace(self.path(own))


def _locked(folder: Path, rank: Rank) -> int:
    """Take the lock of a ring, which ends with this process; raises EnvironmentFailure."""
    path = folder / rank.own(LOCK)
    with failures(path, missing=EnvironmentFailure):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            what = "this ring" if rank.is_alone else f"rank {rank.number} of this ring"
            raise RingBusy(
                f"{shown(folder)}: process {holder or '?'} is using {what}",
                hint="each training run needs its own ring; this one is free when that process "
                "ends",
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return descriptor


class RingBusy(EnvironmentFailure):
    """Another process works on the ring."""
