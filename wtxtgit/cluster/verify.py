"""Verify on a cluster: a task a file, and of a set a task a shard.

The index of a set is read first; then its files are checked, each against the
index, and last what was found is put together. Of a set with very many files a
task takes several, since each task reads the index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.checkpoint.open import HERE, TargetPlace, blob_oid, is_blob, members, read
from wtxtgit.checkpoint.verify import Demands, unreadable, verify_data
from wtxtgit.cluster.client import Cluster, Progress
from wtxtgit.cluster.clone import clone_at
from wtxtgit.containers import any_format
from wtxtgit.errors import EnvironmentFailure, WtxtgitError
from wtxtgit.git import history
from wtxtgit.git.repository import Repository
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import MemberFindings
from wtxtgit.report.verdict import FileVerdict, Verdict

_ROUNDS = 8
"""Tasks of a set for each thread of the workers, at most."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file to be verified; of a blob its id, and its revision's tree, where there is one."""

    # May hold credentials: Dask shows what its tasks are given.
    name: str
    asked: Demands
    place: TargetPlace
    blob: str | None = None
    tree: str | None = None

    def __repr__(self) -> str:
        return "<a file to be verified>"


@dataclass(frozen=True, slots=True)
class _Shards:
    """Files of a set to be checked."""

    file: _File
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A set whose files were checked, in their order."""

    file: _File
    members: tuple[MemberFindings, ...]


@dataclass(frozen=True, slots=True)
class _Looked:
    """A file's verdict, or the files that it lists."""

    verdict: FileVerdict | None
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _SetFindings:
    """What was found in files of a set."""

    members: tuple[MemberFindings, ...]


def verify_files(
    cluster: Cluster,
    names: Sequence[str],
    asked: Demands,
    clone: Path | None = None,
    *,
    progress: Progress | None = None,
) -> Verdict:
    """Verify files on a cluster, as `checkpoint.verify.verify_files` does here.

    `names` are paths that the workers have as well, URLs, or REV:PATH in the
    workers' clone; where `clone` is not given that is at the path of the one here.
    Raises as that does, and EnvironmentFailure for the cluster.
    """
    if asked.has_secrets:
        cluster.refuse_secrets("a key")
    verdicts: dict[int, FileVerdict] = {}
    files: dict[int, _File] = {}
    for number, name in enumerate(names):
        try:
            files[number] = _file(name, asked, clone)
        except WtxtgitError as error:
            verdicts[number] = unreadable(name, error)
    numbers = list(files)
    listed: dict[int, tuple[str, ...]] = {}
    for n, looked in cluster.run(_look, list(files.values()), _Looked, progress):
        if looked.verdict is not None:
            verdicts[numbers[n]] = looked.verdict
        else:
            listed[numbers[n]] = looked.members
    verdicts |= _verify_sets(cluster, files, listed, progress)
    return Verdict(tuple(verdicts[number] for number in range(len(names))))


def _verify_sets(
    cluster: Cluster,
    files: dict[int, _File],
    listed: dict[int, tuple[str, ...]],
    progress: Progress | None,
) -> dict[int, FileVerdict]:
    """Verify sets by what they list."""
    shards = [
        (number, _Shards(files[number], paths))
        for number, every in listed.items()
        for paths in _parted(every, _ROUNDS * cluster.threads)
    ]
    found: dict[int, tuple[MemberFindings, ...]] = {}
    for n, one in cluster.run(_check_shards, [item for _, item in shards], _SetFindings, progress):
        found[n] = one.members
    numbers = list(listed)
    checked = [
        _Checked(
            files[number],
            tuple(m for n, (of, _) in enumerate(shards) if of == number for m in found[n]),
        )
        for number in numbers
    ]
    verdicts = cluster.run(_conclude, checked, FileVerdict, progress)
    return {numbers[n]: verdict for n, verdict in verdicts}


def _parted(paths: tuple[str, ...], most: int) -> list[tuple[str, ...]]:
    """Paths in at most `most` runs of the same length, the last one aside."""
    step = -(-len(paths) // max(most, 1))
    return [paths[start : start + step] for start in range(0, len(paths), step)]


def _file(name: str, asked: Demands, clone: Path | None) -> _File:
    """A file as workers are asked for it; raises what a blob's name is refused with."""
    place = TargetPlace(folder=Path.cwd())
    if not is_blob(name):
        return _File(name, asked, place)
    repo = Repository.discover()
    place = replace(place, clone=clone or repo.home, prefix=repo.prefix)
    return _File(name, asked, place, *_names(name, HERE))


def _names(name: str, place: TargetPlace) -> tuple[str, str | None]:
    """The ids of a blob, named REV:PATH, and of the revision's tree; None for the index."""
    repo = place.repository()
    blob = blob_oid(name, repo)
    revision = name.partition(":")[0]
    return blob, history.resolve_tree(repo, revision) if revision else None


def _look(file: _File, progress: Progress) -> _Looked:
    """Verify a file, unless it is a set of several."""
    try:
        data = _read(file)
    except _CloneFailure as error:
        raise EnvironmentFailure(error.message, hint=error.hint) from error
    except WtxtgitError as error:
        return _Looked(unreadable(file.name, error))
    listed = any_format.members(data, members(file.name, file.place, threads=1))
    if len(listed) > 1:
        return _Looked(None, listed)
    verdict = verify_data(file.name, data, file.asked, file.place, threads=1, progress=progress)
    return _Looked(verdict)


def _check_shards(shards: _Shards, progress: Progress) -> _SetFindings:
    file = shards.file
    open_member = members(file.name, file.place, threads=1)
    options = replace(file.asked.reading, integrity_key=file.asked.hmac_key)
    counted = _counting(open_member, progress)
    return _SetFindings(
        tuple(any_format.check_members(_read(file), shards.paths, options, counted))
    )


def _conclude(checked: _Checked, progress: Progress) -> FileVerdict:
    file = checked.file
    return verify_data(
        file.name,
        _read(file),
        file.asked,
        file.place,
        checked.members,
        threads=1,
        progress=progress,
    )


class _CloneFailure(EnvironmentFailure):
    """The workers' clone is not what it should be: no finding about a file."""


def _read(file: _File) -> ByteView:
    """Read a file on a worker; raises _CloneFailure where its clone has another blob."""
    if file.blob is None:
        return read(file.name, file.place)
    folder = file.place.clone
    try:
        with clone_at(folder or Path()):
            same = _names(file.name, file.place) == (file.blob, file.tree)
    except EnvironmentFailure as error:
        raise _CloneFailure(error.message, hint=error.hint) from error
    if not same:
        raise _CloneFailure(f"a worker's clone has another {file.name!r} than this one")
    return read(file.name, file.place)


def _counting(
    open_member: Callable[[str], ByteView], progress: Progress
) -> Callable[[str], ByteView]:
    def opened(path: str) -> ByteView:
        data = open_member(path)
        progress(len(data))
        return data

    return opened
