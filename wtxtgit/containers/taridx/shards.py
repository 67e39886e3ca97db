"""Comparing an index with its tars: every row with the header to which it points.

An index does not name its shards; which one a fid means follows from their order. An older writer's
fids are one too small after an empty shard: if that fits the shards better, it is assumed and
reported. Spec: `docs/spec/taridx.md`, "Shards" and "Lookup".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from wtxtgit.containers.tar_index import FoundMember, Places, Rows, Tar
from wtxtgit.containers.taridx import tar
from wtxtgit.containers.taridx.check import row_offset, table
from wtxtgit.containers.taridx.read import Taridx, key_bits, read, slices
from wtxtgit.containers.taridx.tar import (
    decoded,
    is_shard_of,
    keyhash,
    shard_order,
    shards_of,
    split_name,
)
from wtxtgit.containers.taridx.write import index
from wtxtgit.errors import FormatError
from wtxtgit.io.progress import Progress
from wtxtgit.model.findings import Findings

__all__ = [
    "check_shards",
    "decoded",
    "find",
    "find_in_shards",
    "index",
    "is_shard_of",
    "read",
    "shard_order",
    "shards_of",
]
"""These are the functions of `containers.tar_index.TarIndexing`."""

# The most rows looked up for one name: a hostile index can have the same hash in every row.
MAX_TRIED = 1000

Mask = npt.NDArray[np.bool_]


def check_shards(
    index: Taridx, shards: Sequence[Tar], progress: Progress | None = None
) -> Findings:
    """Check each row against its shard; raises nothing.

    A finding's `chunk` is the shard's name. `progress` receives counts of the shards' bytes.
    """
    findings = Findings()
    rows = _RowsByFid(index)
    ways = [_Tally(fids) for fids in _orders(index, shards)]
    for place, shard in enumerate(shards):
        scan = _Scan(shard, rows.extension_numbers)
        if scan.stopped is not None:
            error = scan.stopped
            findings.error(error.message, error.field, None, shard.name, kind=error.kind)
        for way in ways:
            fid = way.fids[place]
            if fid is not None:
                rows.compare(fid, shard, scan, way)
        if progress is not None:
            progress(len(shard.data))
    for way in ways:
        rows.check_fids(way)
    # If several ways fit equally, the first one is taken, which is that of the spec.
    best = min(ways, key=lambda way: way.bad)
    if best is not ways[0]:
        findings.warn(
            "fids after an empty shard are too small, as an older writer counts them",
            "fid",
            index.header.off_arr,
        )
    best.tell(index, findings)
    return findings


def find_in_shards(
    index: Taridx, places: Places, name: str, shards: Sequence[Tar]
) -> Iterator[FoundMember]:
    """Yield those of the rows at `places` whose header has the stem and extension of `name`.

    At most MAX_TRIED rows are tried; raises nothing.
    """
    stem_and_extension = tar.split_name(name)
    rows = index.rows()
    ways = [dict(zip(fids, shards, strict=True)) for fids in _orders(index, shards)]
    for place in places[:MAX_TRIED].tolist():
        row = rows[place]
        for number, way in enumerate(ways):
            shard = way.get(int(row["fid"]))
            member = None if shard is None else _member_at(shard, row)
            if shard is None or member is None or tar.split_name(member.name) != stem_and_extension:
                continue
            start = member.offset + tar.BLOCK
            data = shard.data[start : start + member.size]
            yield FoundMember(member.name, data, shard.name, number == 0)
            break


def _member_at(shard: Tar, row: np.void) -> tar.TarMember | None:
    """Return the member to which a row points, if it exists with the row's size."""
    try:
        return tar.member_at(shard.data, int(row["offset"]), int(row["size"]))
    except FormatError:
        return None


def _orders(index: Taridx, shards: Sequence[Tar]) -> list[list[int | None]]:
    """Return the fid of each shard: by its place, then as the older writer may have counted.

    An empty shard has no rows, so that writer's fid for it means nothing.
    """
    empty = [tar.is_empty(shard.data) for shard in shards]
    orders: list[list[int | None]] = [list(range(len(shards)))]
    smallest = min((int(part["fid"].min()) for _, part in slices(index.rows())), default=1)
    for first in (1, max(smallest, 1)):
        fids = tar.fids_of_old_writer(empty, first)
        counted = [None if e else fid for fid, e in zip(fids, empty, strict=True)]
        by_place = [None if e else place for place, e in enumerate(empty)]
        if counted != by_place and counted not in orders:
            orders.append(counted)
    return orders


class _Scan:
    """The content of a tar's headers, as columns: offset, size, xxh64 of the stem, extension."""

    def __init__(self, shard: Tar, extension_numbers: dict[str, int]) -> None:
        offsets, sizes, keys, extensions = array("Q"), array("Q"), array("Q"), array("q")
        self.stopped: FormatError | None = None
        try:
            for member in tar.members(shard.data):
                stem, extension = tar.split_name(member.name)
                offsets.append(member.offset)
                sizes.append(member.size)
                keys.append(tar.keyhash(stem))
                extensions.append(extension_numbers.get(extension, -1))
        except FormatError as error:
            self.stopped = error
        self.offsets = np.array(offsets, np.uint64)
        self.sizes = np.array(sizes, np.uint64)
        self.keys = np.array(keys, np.uint64)
        self.extensions = np.array(extensions, np.int64)


@dataclass(slots=True)
class _Tally:
    """What holds, and what does not, if the shards have these fids."""

    fids: list[int | None]
    wrong: list[tuple[int, str | None, str, str, int]] = field(default_factory=list)
    """First row, shard, field, what is wrong, and how many rows."""
    bad: int = 0
    left_out: int = 0

    def add(self, shard: str | None, name: str, what: str, places: Places) -> None:
        if len(places):
            self.wrong.append((int(places[0]), shard, name, what, len(places)))
            self.bad += len(places)

    def tell(self, index: Taridx, findings: Findings) -> None:
        for first, shard, name, what, count in sorted(self.wrong, key=itemgetter(0)):
            rows = f"{count} rows" if count > 1 else "a row"
            findings.error(
                f"{rows} {what}, the first is row {first}",
                name,
                row_offset(index, first),
                shard,
            )
        if self.left_out:
            findings.warn(
                f"{self.left_out} members of the shards have no row: a filtered index", "n_rows"
            )


class _RowsByFid:
    """The rows by fid, for comparison with shards; 8 bytes per row."""

    def __init__(self, index: Taridx) -> None:
        self._rows: Rows = index.rows()
        fids = self._rows["fid"].astype(np.uint16)
        self._order = np.argsort(fids, kind="stable")
        self._counts = np.bincount(fids, minlength=1 << 16)
        self._starts = np.concatenate([[0], np.cumsum(self._counts)])
        self._key_mask = np.uint64((1 << key_bits(self._rows)) - 1)
        # The check of the index reports a table over its limit.
        extensions, stems = (
            table(lines, Findings()) for lines in (index.extensions, index.crash_stems)
        )
        self.extension_numbers: dict[str, int] = {}
        numbers = [
            # Upper and lower case count: a reader uses the extension as in the table.
            self.extension_numbers.setdefault(name, len(self.extension_numbers))
            for name in extensions
        ]
        # An extid that is not in the table counts as no extension.
        self._numbers = np.full(1 << 16, -2, np.int64)
        self._numbers[: len(numbers)] = numbers
        self._crashids = {stem: crashid for crashid, stem in enumerate(stems, 1)}
        self._crash_keys = np.unique(np.array([tar.keyhash(s) for s in stems], np.uint64))

    def check_fids(self, way: _Tally) -> None:
        known = np.zeros(1 << 16, bool)
        known[[fid for fid in way.fids if fid is not None and fid < len(known)]] = True
        lost = self._order[~known[self._rows["fid"][self._order]]]
        what = f"with a fid that none of the {len(way.fids)} shards has"
        way.add(None, "fid", what, np.sort(lost))

    def compare(self, fid: int, shard: Tar, scan: _Scan, way: _Tally) -> None:
        """Compare the rows of `fid` with a shard."""
        if fid >= len(self._counts):
            return
        places = self._order[self._starts[fid] : self._starts[fid + 1]]
        rows = self._rows[places]
        if not len(scan.offsets):
            way.add(shard.name, "offset", "that do not point to a tar header", places)
            return
        at = np.searchsorted(scan.offsets, rows["offset"].astype(np.uint64))
        at = np.minimum(at, len(scan.offsets) - 1)
        hit = scan.offsets[at] == rows["offset"]
        way.add(shard.name, "offset", "that do not point to a tar header", places[~hit])
        way.left_out += len(scan.offsets) - len(np.unique(at[hit]))
        places, rows, at = places[hit], rows[hit], at[hit]
        way.add(
            shard.name,
            "size",
            "whose size differs from the tar header's",
            places[scan.sizes[at] != rows["size"]],
        )
        way.add(
            shard.name,
            "keyhash",
            "whose keyhash does not match the name in the tar header",
            places[scan.keys[at] & self._key_mask != rows["keyhash"]],
        )
        way.add(
            shard.name,
            "extid",
            "whose extension differs from the name in the tar header",
            places[scan.extensions[at] != self._numbers[rows["extid"]]],
        )
        doubtful = (rows["crashid"] > 0) | np.isin(scan.keys[at], self._crash_keys)
        way.add(
            shard.name,
            "crashid",
            "whose crash stem differs from the name in the tar header",
            places[self._crashes(shard, rows, doubtful)],
        )

    def _crashes(self, shard: Tar, rows: Rows, doubtful: Mask) -> Places:
        """Return which of the rows have a crashid that is not their stem's."""
        wrong = []
        for n in np.flatnonzero(doubtful).tolist():
            start = int(rows["offset"][n])
            raw = bytes(shard.data[start : start + tar.BLOCK][tar.NAME]).partition(b"\0")[0]
            stem, _ = tar.split_name(tar.decoded(raw))
            if self._crashids.get(stem, 0) != rows["crashid"][n]:
                wrong.append(n)
        return np.array(wrong, np.intp)


def find(index: Taridx, name: str) -> Places:
    """Return the places of the rows that may be a member's, in order.

    `name` is STEM.EXT, with or without a folder. A crash stem is identified by its id, every other
    only by its hash: whether it is that stem only the tar's header tells. Raises FormatError for
    tables over their limits.
    """
    stem, extension = split_name(name)
    extids = [n for n, other in enumerate(index.extensions()) if other.lower() == extension]
    crash_stems = index.crash_stems()
    rows = index.rows()
    if not extids or not len(rows):
        return np.empty(0, np.intp)
    crashids = [n for n, other in enumerate(crash_stems, 1) if other == stem] or [0]
    key = np.uint64(keyhash(stem) & ((1 << key_bits(rows)) - 1))
    places = [np.empty(0, np.intp)]
    for start, part in slices(rows):
        is_wanted = np.isin(part["extid"], extids) & np.isin(part["crashid"], crashids)
        if crashids == [0]:
            is_wanted &= part["keyhash"] == key
        places.append(np.flatnonzero(is_wanted) + start)
    return np.concatenate(places)
