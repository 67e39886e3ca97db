"""Names: of members (stem and extension), and of the shards of an index.

An index names no shards: its fid is a place in the sorted list of the tars
`{fold}_{x}.tar` beside it, and the index is called `{fold}.taridx`.
Spec: `docs/spec/taridx.md`, "Names".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import xxhash

SHARD_ENDING = ".tar"
DELIMITER = "_"


def decoded(raw: bytes) -> str:
    """A member's name as the index's writer reads it."""
    return raw.decode("utf-8", "replace")


def split_name(name: str) -> tuple[str, str]:
    """A member's stem and extension: what stands before and after the first dot.

    The folder is dropped, the extension is in lower case and without its dot.
    """
    stem, _, extension = name.rpartition("/")[2].partition(".")
    return stem, extension.lower()


def keyhash(stem: str) -> int:
    """The xxh64 of a stem, seed 0."""
    return int(xxhash.xxh64_intdigest(stem.encode()))


def shard_order(name: str) -> tuple[str, str]:
    """What shards are sorted by: fold, then the rest without the ending.

    Without the ending, as `a_1` comes before `a_1-x` and `a_1.tar` after `a_1-x.tar`.
    """
    fold, _, rest = name.removesuffix(SHARD_ENDING).rpartition(DELIMITER)
    return fold, rest


def is_shard_of(name: str, fold: str) -> bool:
    """Whether a file is called as a shard of the fold is."""
    return name.endswith(SHARD_ENDING) and DELIMITER in name and shard_order(name)[0] == fold


def shards_of(names: Iterable[str], fold: str) -> list[str]:
    """Of the names in a folder those of the fold's shards, the place of each is its fid."""
    return sorted((name for name in names if is_shard_of(name, fold)), key=shard_order)


def fids_of_old_writer(empty: Sequence[bool], first: int = 1) -> list[int]:
    """Which fid a writer gave each shard that took it from the last row before.

    An empty shard has no row, so later fids are too small. Before the first row
    it read memory that was not set, mostly zeros: `first` is the fid after that.
    """
    fids: list[int] = []
    last: int | None = None
    for place, without_rows in enumerate(empty):
        following = first if last is None else last + 1
        fid = 0 if place == 0 else following
        fids.append(fid)
        if not without_rows:
            last = fid
    return fids
