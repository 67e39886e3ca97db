"""Opening what a command is given: a file, a URL, or a blob of a repository as REV:PATH.

A text that stands for a container is opened as that container. Files that a set lists are looked
for beside it, and nowhere else.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.checkpoint.wsum import ENDING, wsum_at, wsum_path
from wtxtgit.errors import MENDS_STORE, CheckError, EnvironmentFailure, LacksPayload, UsageError
from wtxtgit.io.files import failures, shown, view_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.io.workers import default_threads
from wtxtgit.model.array import NO_PAYLOAD, PAYLOAD_DAMAGED, PayloadSource
from wtxtgit.remotes import urls
from wtxtgit.remotes.lfs_pointer import refuse_pointer
from wtxtgit.text.grammar import MAX_WSUM, WSUM_MAGIC, is_detached, is_text

if TYPE_CHECKING:  # Files alone take neither git nor what reads texts.
    from wtxtgit.git.repository import Repository
    from wtxtgit.io.progress import Progress
    from wtxtgit.text.verify import TextReport


@dataclass(frozen=True, slots=True, eq=False)
class OpenedTarget:
    """The content of a target: the file that a checkout would write.

    `report` is set for a text that stands for no container, `warning` if it should stand for one.
    """

    name: str
    data: ByteView
    report: TextReport | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class TargetPlace:
    """Where targets are looked for.

    Relative paths start from `folder`. `clone` is a folder of the repository, and `prefix` the path
    in it from which `./PATH` starts. The defaults are those of this process.
    """

    folder: Path | None = None
    clone: Path | None = None
    prefix: bytes = b""

    def file(self, path: Path | str) -> Path:
        """Return the file that is named by `path`."""
        return Path(path) if self.folder is None else self.folder / path

    def repository(self) -> Repository:
        """Return the repository; raises EnvironmentFailure if there is none."""
        from wtxtgit.git.repository import Repository

        if self.clone is None:
            return Repository.discover(self.folder)
        repo = Repository.discover(self.clone)
        repo.prefix = self.prefix
        return repo


HERE = TargetPlace()


def is_url(target: str, place: TargetPlace = HERE) -> bool:
    """Tell whether a target is a URL; an existing file takes precedence."""
    return urls.is_url(target) and not _exists(target, place)


def is_blob(target: str, place: TargetPlace = HERE) -> bool:
    """Tell whether a target is REV:PATH; an existing file takes precedence."""
    return ":" in target and not urls.is_url(target) and not _exists(target, place)


def is_file(target: str, place: TargetPlace = HERE) -> bool:
    """Tell whether a target is a path, whatever stands there."""
    return not (is_url(target, place) or is_blob(target, place))


def _exists(target: str, place: TargetPlace) -> bool:
    return os.path.lexists(place.file(target))


def file_of(target: str, otherwise: str) -> Path:
    """Return the path of a target beside which something is written, or that is replaced.

    Raises UsageError for a blob or URL; `otherwise` says what the user can do.
    """
    if is_file(target):
        return Path(target)
    where = "in a commit" if is_blob(target) else "at a URL"
    raise UsageError(f"{shown_name(target)} is {where}: {otherwise}")


def output_beside(target: str, ending: str) -> Path:
    """Return the output path beside a text or delta: its name without `ending`.

    Raises UsageError if the target is no file, for another ending, and if that file exists: what is
    overwritten has to be named.
    """
    path = file_of(target, "name the output with -o")
    if path.suffix != ending or not path.stem:
        raise UsageError(f"{shown(path)} does not end in {ending}: name the output with -o")
    out = path.with_suffix("")
    if os.path.lexists(out):
        quoted = shlex.quote(shown(out))
        raise UsageError(
            f"{shown(out)} already exists",
            hint=f"mv -i -- {quoted} {quoted}.old keeps it; or name another file with -o",
        )
    return out


def public_name(target: str) -> str:
    """Return the name of a target for reports: a URL without possible credentials."""
    return urls.shown_url(target) if urls.is_url(target) else target


def shown_name(target: str) -> str:
    """Return the name of a target for messages."""
    return shown(public_name(target))


def read(target: str, place: TargetPlace = HERE, *, threads: int | None = None) -> ByteView:
    """Return the bytes of a target as they are; a blob is inflated on up to `threads` threads.

    Raises InputError, also for a git-lfs pointer, and EnvironmentFailure.
    """
    if is_url(target, place):
        data = _read_url(target)
        refuse_pointer(shown_name(target), data, hint="another URL has the file itself")
        return data
    if is_file(target, place):
        data = view_file(Path(target), place.folder)
        refuse_pointer(shown_name(target), data)
        return data
    repo = place.repository()
    data = blob(repo, blob_oid(target, repo), threads)
    hint = f"git show {shlex.quote(target)} | git lfs smudge > FILE writes the file"
    refuse_pointer(shown_name(target), data, hint)
    return data


def _read_url(target: str) -> ByteView:
    if target.startswith(urls.GIT):
        from wtxtgit.remotes.git_urls import read_git_url

        return read_git_url(target)
    return urls.read_url(target)


def read_checkpoint(
    target: str, place: TargetPlace = HERE, *, threads: int | None = None
) -> ByteView:
    """Return the bytes of a target, for a folder those of the index of its set.

    Of URLs only file:// can name a folder.
    """
    # Stores name folders in ways of their own: there the index has to be named.
    if is_url(target, place) and (local := urls.local_path(target)) is not None:
        return read_checkpoint(str(local), place, threads=threads)
    try:
        if not _is_folder(target, place):
            return read(target, place, threads=threads)
    except EnvironmentFailure:
        # Git is asked for the blob first; only if there is none a folder is looked for.
        if not is_blob(target, place) or (names := folder_names(target, place)) is None:
            raise
    else:
        names = folder_names(target, place) or []
    return _index_in(target, names, place, threads)


def _is_folder(target: str, place: TargetPlace) -> bool:
    # Not Path.is_dir, which raises where a folder above may not be entered; reading says why.
    return is_file(target, place) and os.path.isdir(place.file(target))  # noqa: PTH112


def folder_names(target: str, place: TargetPlace = HERE) -> list[str] | None:
    """Return the names of files in a folder of the work tree or a commit; None if it is no folder.

    Raises EnvironmentFailure.
    """
    if _is_folder(target, place):
        folder = place.file(target)
        with failures(folder), os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.is_dir()]
    if not is_blob(target, place):
        return None
    from wtxtgit.git import history

    repo = place.repository()
    oid, kind = history.resolve_path(repo, _from_here(target, repo))
    return history.names_in(repo, oid) if kind == "tree" else None


def _index_in(target: str, names: list[str], place: TargetPlace, threads: int | None) -> ByteView:
    """Return the index of the set in a folder, as a checkout has it; raises InputError if none."""
    from wtxtgit.checkpoint import folders

    index = folders.index_of(shown_name(target), names)
    if isinstance(index, str):
        file = folders.within(target, index)
        data = read(file, place, threads=threads)
        beside = partial(wsum_beside, file, place)
        return as_checked_out(file, data, threads, beside, payload_for(file, data, place)).data
    return index


def wsum_beside(text: str, place: TargetPlace = HERE) -> bytes | None:
    """Return the WSUM beside a text (a file or REV:PATH), well-formed or not; None if there is
    none.

    Nothing is fetched for URLs. Raises EnvironmentFailure for a file that can't be read.
    """
    if is_file(text, place):
        return wsum_at(wsum_path(place.file(text)))
    if is_url(text, place):
        return None
    from wtxtgit.git.blobs import BlobReader

    try:
        repo = place.repository()
        with BlobReader(repo) as blobs:
            content = blobs.read(blob_oid(text + ENDING, repo), MAX_WSUM)
    except EnvironmentFailure:
        # There is none, or it is a folder or too large.
        return None
    return content if content.startswith(WSUM_MAGIC) else None


def payload_for(target: str | None, data: ByteView, place: TargetPlace = HERE) -> PayloadSource:
    """Return where the payload of a target is looked for, if its content `data` is a detached text.

    This is the store of the repository of a file or blob, and its remote; for any other target, or
    none, that of `place`. Without a repository there is no payload.
    """
    if not is_detached(data):
        return NO_PAYLOAD
    try:
        return payload_in(repository_of(target, place), data)
    except EnvironmentFailure:
        return NO_PAYLOAD


def repository_of(target: str | None, place: TargetPlace = HERE) -> Repository:
    """Return the repository that a target is in, else that of `place`.

    Raises EnvironmentFailure if there is none.
    """
    from wtxtgit.git.repository import Repository

    if target is not None and target.startswith(urls.GIT) and is_url(target, place):
        from wtxtgit.remotes.git_urls import repository_at

        return repository_at(target)
    if target is not None and is_file(target, place):
        with contextlib.suppress(EnvironmentFailure):
            return Repository.discover(place.file(target).resolve().parent)
    return place.repository()


def payload_in(repo: Repository, data: ByteView) -> PayloadSource:
    """Return the payload source of a repository, if a content is a detached text."""
    if not is_detached(data):
        return NO_PAYLOAD
    from wtxtgit.remotes.payload.on_demand import FetchedPayload

    return FetchedPayload.of(repo)


def read_attached(
    target: str, place: TargetPlace = HERE, *, threads: int | None = None
) -> ByteView:
    """Return the bytes of a target as `read` does, but the attached form of a detached text.

    For callers that work on the lines of a text. Raises CheckError for a detached text that does
    not verify, or whose payload is not at hand.
    """
    return attached_text(target, read(target, place, threads=threads), place, threads=threads)


def attached_text(
    target: str, data: ByteView, place: TargetPlace = HERE, *, threads: int | None = None
) -> ByteView:
    """Return the attached form of a detached text that was read of a target.

    Other data unchanged.
    """
    payload = payload_for(target, data, place)
    return attached_with(shown_name(target), data, payload, threads=threads)


def attached_with(
    name: str, data: ByteView, payload: PayloadSource, *, threads: int | None = None
) -> ByteView:
    """Return the attached form of `data`, which messages call `name`, with the payload given."""
    if not is_detached(data):
        return data
    return spooled(attached_pieces(name, data, payload, threads=threads))


def attached_pieces(
    name: str,
    data: ByteView,
    payload: PayloadSource,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Buffer]:
    """Yield the attached form of a detached text in pieces.

    Errors are raised before the first one.
    """
    from wtxtgit.text.detached import attached
    from wtxtgit.text.index import index
    from wtxtgit.text.verify import verify

    indexed = index(data, payload=payload)
    indexed.want_payload()
    report = verify(data, indexed=indexed, threads=threads, progress=progress)
    refuse_text(report, name)
    return attached(data, report.index, report.layout, name=name, threads=threads)


def refuse_text(report: TextReport, name: str) -> None:
    """Raise CheckError for a text that does not verify, with a helpful hint."""
    if report.ok:
        return
    problem = report.problems[0]
    if report.lacks_payload:
        raise LacksPayload(f"{name}: {problem}")
    if problem.kind == "pending":
        hint = f"--wsum FILE names its WSUM; wtxtgit finalize {shlex.quote(name)} makes one"
    elif problem.kind == PAYLOAD_DAMAGED:
        hint = MENDS_STORE
    else:
        quoted = shlex.quote(name)
        hint = f"wtxtgit recover -- {quoted} shows what can be mended, or healed from other copies"
    raise CheckError(f"{name}: {problem}", hint=hint)


def blob_oid(target: str, repo: Repository) -> str:
    """Return the object id of REV:PATH; `./PATH` starts from the current folder, as in git."""
    from wtxtgit.git import history

    return history.resolve_blob(repo, _from_here(target, repo))


def checkpoint_oid(target: str, repo: Repository) -> str:
    """Return the object id of a blob, or for a folder that of its tree."""
    from wtxtgit.git import history

    name = _from_here(target, repo)
    oid, kind = history.resolve_path(repo, name)
    if kind not in ("blob", "tree"):
        raise EnvironmentFailure(f"{name!r} names a {kind}, not a file")
    return oid


def _from_here(target: str, repo: Repository) -> str:
    revision, _, path = target.partition(":")
    if path.startswith(("./", "../")):
        path = posixpath.normpath(os.fsdecode(repo.prefix) + path)
    return f"{revision}:{path}"


def blob(repo: Repository, oid: str, threads: int | None = None) -> ByteView:
    """Return the content of a blob; raises EnvironmentFailure."""
    from wtxtgit.git.store.reader import ObjectStore

    with ObjectStore(repo) as store:
        return spooled(store.blob(oid, threads or default_threads()), repo.state_dir)


def open_target(target: str, *, threads: int | None = None) -> OpenedTarget:
    """Open a target as the file that a checkout would write, a pending text with its WSUM."""
    data = read_checkpoint(target, threads=threads)
    payload = payload_for(target, data)
    return as_checked_out(target, data, threads, partial(wsum_beside, target), payload)


def as_checked_out(
    name: str,
    data: ByteView,
    threads: int | None,
    wsum: Callable[[], bytes | None] = lambda: None,
    payload: PayloadSource = NO_PAYLOAD,
) -> OpenedTarget:
    """Return what a checkout makes of bytes that git stores, or that are in a file.

    `wsum` returns the WSUM that belongs to a text; together they count as a text with a root.
    """
    if not is_text(data):
        # A member of a set, for which this was not checked yet.
        refuse_pointer(shown(name), data)
        return OpenedTarget(name, data)
    from wtxtgit.filter.smudge import smudge_verified
    from wtxtgit.text.index import index
    from wtxtgit.text.verify import verify

    indexed = index(data, payload=payload)
    indexed.want_payload()
    report = verify(data, wsum=wsum(), threads=threads, indexed=indexed)
    smudged = smudge_verified(data, report, threads=threads)
    if smudged.layout is None:
        return OpenedTarget(name, data, report, smudged.warning)
    return OpenedTarget(name, spooled(smudged.pieces()))


def refuse_itself(out: Path, source: str) -> None:
    """Raise UsageError if the damaged file would be overwritten."""
    if _is_at(out, source):
        raise UsageError(
            f"{shown_name(source)} is the damaged file, which is never overwritten",
            hint="-o names another file; --as-commit mends a tracked text in its place",
        )


def refuse_loss(out: Path, *sources: str) -> None:
    """Raise UsageError if one of the files that are read would be replaced by less than it is."""
    for source in sources:
        if _is_at(out, source):
            raise UsageError(
                f"{shown_name(source)}: the output would replace the file that is read"
            )


def _is_at(out: Path, source: str) -> bool:
    with contextlib.suppress(OSError):
        return is_file(source) and out.samefile(source)
    return False


def described(data: ByteView) -> str:
    """End a message about a file that is not what was wanted: with its kind, or how it starts."""
    # Imported here: most files are what was wanted.
    from wtxtgit.containers.identity import identity, told
    from wtxtgit.text.index import start_of

    found = identity(data)
    return f": {start_of(data)}" if found.says_little else f", but {told(found)}"
