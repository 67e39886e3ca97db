"""Indexes of tar shards: making one, finding a member, checking one against its shards.

Shards are files of one folder and are only named by its listing: nothing in an index is used as a
path, and links are not followed.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from wtxtgit.checkpoint.open import file_of, is_blob, is_url, open_target, public_name, shown_name
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.tar_index import SHARD_ENDING, Tar, TarIndex
from wtxtgit.errors import CheckError, FormatError, InputError, UsageError, counted
from wtxtgit.io.files import failures, shown, view_file, write_output
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView, write_all
from wtxtgit.model.findings import Problem
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.remotes import urls
from wtxtgit.report.verdict import FileVerdict, Verdict

TEXT_ENDING = ".wtxt"

_FORMAT, _INDEXING = next((f, f.tar_index) for f in registry.FORMATS if f.tar_index is not None)
_ENDING = _FORMAT.endings[0]


@dataclass(frozen=True, slots=True, eq=False)
class Hit:
    """A member that was found: its bytes, and warnings about the choice."""

    data: ByteView
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _ShardListing:
    """The shards of a folder; `guessed` if none is named after the index."""

    paths: tuple[Path, ...]
    guessed: bool


def build(
    shards: Sequence[Path],
    out: Path | None,
    *,
    contiguous: bool = False,
    write_out: Callable[[Iterable[Buffer]], None] | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Index tars into the file `out`, or through `write_out` if it is None; returns warnings.

    Shards are taken in the order in which readers find them. Raises UsageError for two shards with
    the same name, InputError for a file that is no tar.
    """
    indexing = _INDEXING()
    ordered = sorted(shards, key=lambda path: indexing.shard_order(path.name))
    for path, following in pairwise(ordered):
        if path.name == following.name:
            raise UsageError(f"two shards are named {shown(path.name)}")
    # By file identity, not by name: a link or another spelling may lead to a shard.
    if out is not None and any(out.exists() and out.samefile(path) for path in ordered):
        raise UsageError(f"{shown(out)} is one of the shards, which the index would overwrite")
    index = indexing.index(_opened(ordered, progress), contiguous=contiguous)
    if out is not None:
        write_output(out, lambda descriptor: write_all(descriptor, index.pieces()))
    elif write_out is not None:
        write_out(index.pieces())
    warnings = []
    if index.sparse:
        warnings.append(
            f"{index.sparse} members are sparse: rows address their bytes without the holes"
        )
    fold = "" if out is None else out.name.removesuffix(_ENDING)
    if out is not None and not all(indexing.is_shard_of(p.name, fold) for p in ordered):
        warnings.append(
            f"readers look for {shown(fold)}_*.tar, but not all shards are named like that"
        )
    return warnings


def open_index(target: str) -> TarIndex:
    """Return the index in a file or a blob, with readable tables; raises InputError."""
    data = _opened_index(target)
    try:
        index: TarIndex = _INDEXING().read(data)
        index.extensions()
        index.crash_stems()
    except FormatError as error:
        raise InputError(f"{shown_name(target)}: {error.message}") from error
    return index


def find(target: str, name: str, folder: Path) -> Hit:
    """Find the member STEM.EXT of an index, checked against its header in the shards.

    Among several the one whose whole name is `name` is preferred, else the first row's. Raises
    CheckError if there is none.
    """
    index = open_index(target)
    indexing = _INDEXING()
    wanted = indexing.decoded(os.fsencode(name))
    places = indexing.find(index, wanted)
    if not len(places):
        raise CheckError(f'{shown_name(target)}: no member "{shown(name)}"')
    shards = _map(_list(folder, fold_of(target)).paths)
    members = list(indexing.find_in_shards(index, places, wanted, shards))
    if not members:
        raise CheckError(
            f'{shown_name(target)}: no row for "{shown(name)}" leads to it '
            f"in {counted(len(shards), 'shard')} in {shown(folder)}",
            hint=f"wtxtgit taridx verify {shlex.quote(shown_name(target))} "
            f"--shards {shlex.quote(shown(folder))} lists all problems",
        )
    # Several members may have the same STEM.EXT.
    best = next((member for member in members if member.name == wanted), members[0])
    warnings = []
    if len(members) > 1:
        others = f"{len(members) - 1} more members match"
        warnings.append(f'{others} "{shown(name)}", this is "{best.name}" of {best.shard}')
    if not best.by_place:
        warnings.append(
            f"taken from {best.shard}, because older writers skip empty shards when counting"
        )
    return Hit(best.data, tuple(warnings))


def verify(target: str, folder: Path, *, progress: Progress | None = None) -> Verdict:
    """Check an index by itself, and each row against the header that it points to.

    Raises InputError if there is no index, or no folder of shards.
    """
    data = _opened_index(target)
    listing = _list(folder, fold_of(target))
    try:
        index = any_format.read(data)
    except FormatError as error:
        problem = Problem(error.kind, error.message, offset=error.offset, field=error.field)
        return Verdict((FileVerdict(public_name(target), _FORMAT.name, (problem,)),))
    alone = _FORMAT.check().check(index, ReadOptions())
    together = _INDEXING().check_shards(index, _map(listing.paths), progress)
    warnings = [*alone.warnings, *together.warnings]
    # No error by itself: shards may have been renamed together.
    if listing.guessed:
        message = f"no shard is named {fold_of(target)}_*.tar, so all tars were taken in order"
        warnings.append(Problem("structure", message, field="fid"))
    errors = (*alone.errors, *together.errors)
    return Verdict((FileVerdict(public_name(target), _FORMAT.name, errors, tuple(warnings)),))


def shards_size(target: str, folder: Path) -> int:
    """Return the total size of an index's shards in bytes; 0 if they can't be listed."""
    try:
        return sum(path.stat().st_size for path in _list(folder, fold_of(target)).paths)
    except (OSError, InputError):
        return 0


def folder_of(target: str) -> Path:
    """Return the default folder of an index's shards, beside the index.

    Raises UsageError for a blob, or a URL that is not in this file system.
    """
    local = urls.local_path(target) if is_url(target) else None
    return (local or file_of(target, "--shards says where the tars are")).parent


def fold_of(target: str) -> str:
    """Return the name that the shards share with their index: its own without endings."""
    path = target.partition(":")[2] if is_blob(target) else target
    name = urls.file_name(target) if is_url(target) else Path(path).name
    return name.removesuffix(TEXT_ENDING).removesuffix(_ENDING)


def _opened_index(target: str) -> ByteView:
    """Return the bytes of an index; raises InputError if the target is none."""
    data = open_target(target).data
    if registry.detected(data) is not _FORMAT:
        name = _FORMAT.name.upper()
        raise InputError(f"{shown_name(target)}: not an index of tars: a {name} file is needed")
    return data


def _list(folder: Path, fold: str) -> _ShardListing:
    """Return the shards of an index in a folder, ordered by fid."""
    with failures(folder), os.scandir(folder) as entries:
        modes = {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in entries}
    indexing = _INDEXING()
    chosen = indexing.shards_of(modes, fold)
    guessed = not chosen
    if guessed:
        tars = (name for name in modes if name.endswith(SHARD_ENDING))
        chosen = sorted(tars, key=indexing.shard_order)
    for name in chosen:
        if not stat.S_ISREG(modes[name]):
            # Skipping it would shift the fids of all later shards.
            raise InputError(
                f"{shown(folder / name)}: a shard has to be a regular file, not a link"
            )
    if not chosen:
        raise InputError(f"{shown(folder)}: no tars")
    return _ShardListing(tuple(folder / name for name in chosen), guessed)


def _map(paths: Sequence[Path]) -> list[Tar]:
    return [Tar(shown(path.name), view_file(path)) for path in paths]


def _opened(paths: Sequence[Path], progress: Progress | None) -> Iterable[tuple[str, ByteView]]:
    """Yield shards one after the other; each is reported as done when the next is asked for."""
    for path in paths:
        data = view_file(path)
        yield shown(path), data
        if progress is not None:
            progress(len(data))
