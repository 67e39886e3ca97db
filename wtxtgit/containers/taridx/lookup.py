"""Finding rows by name. Spec: `docs/spec/taridx.md`, "Lookup"."""

from __future__ import annotations

import numpy as np

from wtxtgit.containers.taridx.names import keyhash, split_name
from wtxtgit.containers.taridx.read import Taridx
from wtxtgit.containers.taridx.rows import Places, key_bits, rows_of, slices


def find(index: Taridx, name: str) -> Places:
    """The places of the rows that may be a member's, in order.

    `name` is STEM.EXT, after a folder or not. A crash stem is known by its id,
    every other by its hash alone: whether it is that stem only the tar's
    header tells. Raises FormatError for tables over their limits.
    """
    stem, extension = split_name(name)
    extids = [n for n, held in enumerate(index.extensions()) if held.lower() == extension]
    crash_stems = index.crash_stems()
    rows = rows_of(index)
    if not extids or not len(rows):
        return np.empty(0, np.intp)
    crashids = [n for n, held in enumerate(crash_stems, 1) if held == stem] or [0]
    key = np.uint64(keyhash(stem) & ((1 << key_bits(rows)) - 1))
    found = [np.empty(0, np.intp)]
    for start, part in slices(rows):
        held = np.isin(part["extid"], extids) & np.isin(part["crashid"], crashids)
        if crashids == [0]:
            held &= part["keyhash"] == key
        found.append(np.flatnonzero(held) + start)
    return np.concatenate(found)
