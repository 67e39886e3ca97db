"""What workers do: facts about blobs, comparisons, texts, verdicts.

For facts and comparisons, workers read a clone of their own. When texts are emitted, each file is a
task, and its worker writes the text to its destination: through the client, a text of 1.4 times the
file's size would cross the network twice. A text is hashed in one go, from its first array to its
last, so one file is never divided. When files are verified, each file is a task, and of a set each
shard: first the set's index is read, then each file is checked against it, and finally the findings
are put together. If a set has very many files, a task takes several, since each task reads the
index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.chain.reader import Examiner, Wanted, read_facts
from wtxtgit.checkpoint.emit import NewGeneration, emit, write_text
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import HERE, TargetPlace, checkpoint_oid, is_blob, read_checkpoint
from wtxtgit.checkpoint.verify import Demands, unreadable, verify_data
from wtxtgit.cluster.client import Cluster
from wtxtgit.cluster.payload import payload_of, url_for_workers
from wtxtgit.containers import any_format
from wtxtgit.containers.format import OpenMember, in_same_folder
from wtxtgit.errors import EnvironmentFailure, UsageError, WtxtgitError
from wtxtgit.filter.content import ArtifactFacts
from wtxtgit.git import history
from wtxtgit.git.blobs import BlobReader, sizes
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.io.files import reason, shown
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import MemberFindings
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.remotes import urls
from wtxtgit.remotes.payload.store_url import StoreUrl
from wtxtgit.report.verdict import FileVerdict, Verdict
from wtxtgit.review.changes import Branch, ChangedCheckpoint
from wtxtgit.review.contents import BranchReader, Comparer, Comparison

_HINT = "--worker-clone is where the workers' clone is; it must have all that this one has"
_BYTES = 64 * 1024 * 1024
_BLOBS = 64
"""Most blobs of a task, and their bytes, unless a single one has more: neighbours share deltas."""


@contextmanager
def clone_at(folder: Path) -> Iterator[Repository]:
    """Open the repository at `folder` on a worker; a context manager.

    Raises EnvironmentFailure if the repository lacks anything that the block needs.
    """
    try:
        yield Repository.discover(folder)
    except OSError as error:
        message = f"{shown(folder)} on a worker: {reason(error)}"
        raise EnvironmentFailure(message, hint=_HINT) from error
    except EnvironmentFailure as error:
        message = f"{shown(folder)} on a worker: {error.message}"
        raise EnvironmentFailure(message, hint=_HINT) from error


@dataclass(frozen=True, slots=True)
class _Blobs:
    clone: Path
    blobs: tuple[Wanted, ...]
    store: StoreUrl | None


def examiner(
    cluster: Cluster, repo: Repository, clone: Path | None, note: Callable[[str], None]
) -> Examiner:
    """Return a function that finds facts on a cluster.

    `clone` is the path of the workers' clone, by default that of `repo`. `note` is called with a
    line if the workers lack payload and can't open the place where it is.
    """
    folder = clone or repo.home

    def examined(blobs: list[Wanted]) -> Iterator[tuple[str, ArtifactFacts]]:
        url, fault = url_for_workers(repo)
        items = [_Blobs(folder, batch, url) for batch in _batches(repo, blobs)]
        lacks_payload = False
        for _, facts in cluster.run(_examine, items, tuple):
            lacks_payload = lacks_payload or any(one.lacks_payload for _, one in facts)
            yield from facts
        if lacks_payload and fault is not None:
            note(fault)

    return examined


def _batches(repo: Repository, blobs: list[Wanted]) -> Iterator[tuple[Wanted, ...]]:
    batch: list[Wanted] = []
    total = 0
    size_of = sizes(repo, (oid for oid, _ in blobs)) if blobs else {}
    for oid, opaque in blobs:
        # Each task opens the clone again, so small blobs share a task, and a large one has its own.
        if batch and (len(batch) == _BLOBS or total + size_of[oid] > _BYTES):
            yield tuple(batch)
            batch, total = [], 0
        batch.append((oid, opaque))
        total += size_of[oid]
    if batch:
        yield tuple(batch)


def _examine(task: _Blobs, _progress: Progress) -> tuple[tuple[str, ArtifactFacts], ...]:
    facts = []
    with clone_at(task.clone) as repo, BlobReader(repo) as reader:
        for blob in task.blobs:
            with payload_of(repo, task.store) as payload:
                facts.append(read_facts(reader, blob, 1, payload))
    return tuple(facts)


@dataclass(frozen=True, slots=True)
class _ComparisonTask:
    """A checkpoint to compare: the fields of a BranchReader, and the clone's folder."""

    clone: Path
    branch: Branch
    options: ReadOptions
    with_distributions: bool
    changed: ChangedCheckpoint
    store: StoreUrl | None


def comparer(cluster: Cluster, clone: Path | None) -> Comparer:
    """Return a function that compares on a cluster; `clone` is the workers' clone, by default at
    the same path.
    """

    def compared(
        reader: BranchReader, changed: Sequence[ChangedCheckpoint]
    ) -> Iterator[Comparison]:
        if reader.options.decryption_key is not None:
            cluster.refuse_secrets("a key")
        folder = clone or reader.repo.home
        url, _ = url_for_workers(reader.repo)
        settings = reader.branch, reader.options, reader.with_distributions
        items = [_ComparisonTask(folder, *settings, checkpoint, url) for checkpoint in changed]
        comparisons = dict(cluster.run(_compare, items, Comparison, reader.progress))
        return (comparisons[number] for number in range(len(items)))

    return compared


def _compare(task: _ComparisonTask, progress: Progress) -> Comparison:
    with (
        clone_at(task.clone) as repo,
        ObjectStore(repo) as store,
        payload_of(repo, task.store),
    ):
        reader = BranchReader(
            repo, store, task.branch, task.options, 1, task.with_distributions, progress
        )
        return reader.compare(task.changed)


@dataclass(frozen=True, slots=True)
class _EmitTask:
    """An order to write the text of the file `path` to `out`; both may be URLs."""

    path: str
    out: str
    folder: Path
    generation: NewGeneration

    # Dask shows the arguments of its tasks, and a URL may hold credentials.
    def __repr__(self) -> str:
        return "<a text to be made>"


@dataclass(frozen=True, slots=True)
class _Written:
    """What a worker wrote: the number of bytes if it wrote to a path, and a warning about the
    file.
    """

    nbytes: int | None
    warning: str | None


def emit_files(
    cluster: Cluster,
    paths: Sequence[str],
    outs: Sequence[str],
    generation: NewGeneration,
    *,
    progress: Progress | None = None,
) -> Iterator[tuple[str, str]]:
    """Write the text of each file to the path or URL in `outs`.

    Yields warnings as (file path, message). Raises UsageError if a text would need a secret or a
    second file, and EnvironmentFailure if a text that a worker wrote to a path can't be found from
    here.
    """
    # Keys are files of this machine, and a WSUM is a second file, which nobody has named.
    if generation.sign is not None or generation.hmac_key is not None or generation.pending:
        raise UsageError("signed, authenticated and pending texts can't be made by workers")
    folder = Path.cwd()
    items = [_EmitTask(*pair, folder, generation) for pair in zip(paths, outs, strict=True)]
    warnings = {}
    for number, written in cluster.run(_emit, items, _Written, progress):
        if written.nbytes is not None:
            _check_here(folder / outs[number], outs[number], written.nbytes)
        if written.warning is not None:
            warnings[number] = written.warning
    return ((paths[number], warnings[number]) for number in sorted(warnings))


def _check_here(file: Path, out: str, nbytes: int) -> None:
    try:
        size = file.stat().st_size
    except OSError:
        size = None
    if size != nbytes:
        raise EnvironmentFailure(
            f"{shown(out)}: a worker wrote {nbytes} bytes, but not to this folder",
            hint="-o takes a folder that is shared with the workers, or a URL",
        )


def _emit(text: _EmitTask, progress: Progress) -> _Written:
    emitted = emit(text.path, text.generation, text.folder, threads=1, progress=progress)
    if urls.is_url(text.out):
        write_text(emitted, text.out)
        return _Written(None, emitted.warning)
    file = text.folder / text.out
    write_text(emitted, file)
    return _Written(file.stat().st_size, emitted.warning)


_ROUNDS = 8
"""Most tasks of a set for each thread of the workers."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file to verify; for a blob, also its id and, if it has a revision, the id of its tree."""

    # The name may hold credentials, and Dask shows the arguments of its tasks.
    name: str
    demands: Demands
    place: TargetPlace
    blob: str | None = None
    tree: str | None = None

    def __repr__(self) -> str:
        return "<a file to be verified>"


@dataclass(frozen=True, slots=True)
class _Shards:
    """Some files of a set, to be checked."""

    file: _File
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A set whose files have been checked; `members` are in the order of the set."""

    file: _File
    members: tuple[MemberFindings, ...]


@dataclass(frozen=True, slots=True)
class _InspectedFile:
    """The verdict on a file, or None and the files that it lists."""

    verdict: FileVerdict | None
    members: tuple[str, ...] = ()


def verify_files(
    cluster: Cluster,
    names: Sequence[str],
    demands: Demands,
    clone: Path | None = None,
    *,
    progress: Progress | None = None,
) -> Verdict:
    """Verify files on a cluster, as `checkpoint.verify.verify_files` does on this machine.

    `names` are paths that the workers have as well, URLs, or REV:PATH in the workers' clone.
    `clone` is the path of that clone, by default that of the clone here. Raises what
    `checkpoint.verify.verify_files` raises, and EnvironmentFailure for problems with the cluster.
    """
    if demands.has_secrets:
        cluster.refuse_secrets("a key")
    verdicts: dict[int, FileVerdict] = {}
    files: dict[int, _File] = {}
    for number, name in enumerate(names):
        try:
            files[number] = _file(name, demands, clone)
        except WtxtgitError as error:
            verdicts[number] = unreadable(name, error)
    numbers = list(files)
    members_by_number: dict[int, tuple[str, ...]] = {}
    for n, inspected in cluster.run(_inspect, list(files.values()), _InspectedFile, progress):
        if inspected.verdict is not None:
            verdicts[numbers[n]] = inspected.verdict
        else:
            members_by_number[numbers[n]] = inspected.members
    verdicts |= _verify_sets(cluster, files, members_by_number, progress)
    return Verdict(tuple(verdicts[number] for number in range(len(names))))


def _verify_sets(
    cluster: Cluster,
    files: dict[int, _File],
    members_by_number: dict[int, tuple[str, ...]],
    progress: Progress | None,
) -> dict[int, FileVerdict]:
    """Verify sets, given the files that each of them lists; return verdicts by the set's number."""
    shards = [
        (number, _Shards(files[number], paths))
        for number, members in members_by_number.items()
        for paths in _split(members, _ROUNDS * cluster.threads)
    ]
    findings = dict(cluster.run(_check_shards, [item for _, item in shards], tuple, progress))
    numbers = list(members_by_number)
    checked = [
        _Checked(
            files[number],
            tuple(m for n, (owner, _) in enumerate(shards) if owner == number for m in findings[n]),
        )
        for number in numbers
    ]
    verdicts = cluster.run(_conclude, checked, FileVerdict, progress)
    return {numbers[n]: verdict for n, verdict in verdicts}


def _split(paths: tuple[str, ...], limit: int) -> list[tuple[str, ...]]:
    """Divide paths into at most `limit` runs of equal length, of which the last may be shorter."""
    step = -(-len(paths) // max(limit, 1))
    return [paths[start : start + step] for start in range(0, len(paths), step)]


def _file(name: str, demands: Demands, clone: Path | None) -> _File:
    """Return a file as workers are asked for it.

    Raises the error of a blob's name that is refused.
    """
    place = TargetPlace(folder=Path.cwd())
    if not is_blob(name):
        return _File(name, demands, place)
    repo = Repository.discover()
    place = replace(place, clone=clone or repo.home, prefix=repo.prefix)
    return _File(name, demands, place, *_names(name, HERE))


def _names(name: str, place: TargetPlace) -> tuple[str, str | None]:
    """Return the ids of a blob named REV:PATH and of its revision's tree, None if it is in the
    index.
    """
    repo = place.repository()
    blob = checkpoint_oid(name, repo)
    revision = name.partition(":")[0]
    return blob, history.resolve_tree(repo, revision) if revision else None


def _inspect(file: _File, progress: Progress) -> _InspectedFile:
    """Verify a file; of a set of several files only list them."""
    try:
        data = _read(file)
    except _CloneFailure as error:
        raise EnvironmentFailure(error.message, hint=error.hint) from error
    except WtxtgitError as error:
        return _InspectedFile(unreadable(file.name, error))
    listed_members = any_format.members(data, members(file.name, file.place, threads=1))
    if len(listed_members) > 1:
        return _InspectedFile(None, listed_members)
    verdict = verify_data(file.name, data, file.demands, file.place, threads=1, progress=progress)
    return _InspectedFile(verdict)


def _check_shards(shards: _Shards, progress: Progress) -> tuple[MemberFindings, ...]:
    file = shards.file
    open_member = members(file.name, file.place, threads=1)
    options = replace(file.demands.reading, integrity_key=file.demands.hmac_key)
    opened = _counting(open_member, progress)
    return tuple(any_format.check_members(_read(file), shards.paths, options, opened))


def _conclude(checked: _Checked, progress: Progress) -> FileVerdict:
    file = checked.file
    return verify_data(
        file.name,
        _read(file),
        file.demands,
        file.place,
        checked.members,
        threads=1,
        progress=progress,
    )


class _CloneFailure(EnvironmentFailure):
    """The workers' clone is not as it should be; this says nothing about a file."""


def _read(file: _File) -> ByteView:
    """Read a file on a worker; raises _CloneFailure if its clone has another blob of that name."""
    if file.blob is None:
        return read_checkpoint(file.name, file.place)
    folder = file.place.clone
    try:
        with clone_at(folder or Path()):
            is_same = _names(file.name, file.place) == (file.blob, file.tree)
    except EnvironmentFailure as error:
        raise _CloneFailure(error.message, hint=error.hint) from error
    if not is_same:
        raise _CloneFailure(f"a worker's clone has a different {file.name!r} than this one")
    return read_checkpoint(file.name, file.place)


def _counting(open_member: OpenMember, progress: Progress) -> OpenMember:
    def opened(path: str) -> ByteView:
        data = open_member(path)
        progress(len(data))
        return data

    return in_same_folder(open_member, opened)
