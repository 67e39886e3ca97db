"""The files of a set, opened by their paths in it, as a checkout has them; never other files."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.checkpoint.open import (
    HERE,
    TargetPlace,
    as_checked_out,
    blob,
    blob_oid,
    folder_names,
    is_blob,
    is_file,
    is_url,
    payload_for,
    payload_in,
    refuse_text,
    wsum_beside,
)
from wtxtgit.checkpoint.wsum import wsum_at, wsum_path
from wtxtgit.containers.format import SetFolder
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError
from wtxtgit.io.files import shown, view_file
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import NO_PAYLOAD, PayloadSource
from wtxtgit.remotes import urls

if TYPE_CHECKING:  # files alone take no git
    from wtxtgit.git.index import TreeEntry
    from wtxtgit.git.repository import Repository


def members(target: str, place: TargetPlace = HERE, *, threads: int | None = None) -> SetFolder:
    """Return an object that opens files listed in the set `target`, by their paths there.

    `target` is the set's index, or the folder with it. Opening raises InputError for what is not in
    the set's folder, including paths that lead out of it, directly or through a symbolic link.
    """
    # file:// is this file system, where the rules for links apply as well.
    if is_url(target, place) and (local := urls.local_path(target)) is not None:
        return members(str(local), place, threads=threads)

    @cache
    def index() -> str:
        # Only evaluated for sets, which have other files.
        from wtxtgit.checkpoint import folders

        is_folder = folder_names(target, place) is not None
        return folders.within(target, folders.INDEX) if is_folder else target

    @cache
    def name() -> str:
        from wtxtgit.checkpoint import folders

        if is_url(target, place):
            return urls.file_name(target)
        names = folder_names(target, place)
        if names is None:
            return posixpath.basename(
                target.partition(":")[2] if is_blob(target, place) else target
            )
        listing = folders.index_of(target, names)
        return listing if isinstance(listing, str) else ""

    def open_url(path: str) -> ByteView:
        if target.startswith(urls.GIT):
            from wtxtgit.remotes.git_urls import read_git_member

            data = read_git_member(target, path)
        else:
            data = urls.member_of(target, path)
        return _as_file(path, data, threads, payload=payload_for(target, data, place))

    def open_blob(path: str) -> ByteView:
        revision, _, listing = index().partition(":")
        member = f"{revision}:{posixpath.join(posixpath.dirname(listing), path)}"
        repo = place.repository()
        data = blob(repo, blob_oid(member, repo), threads)
        payload = payload_for(member, data, place)
        beside = partial(wsum_beside, member, place)
        return _as_file(member, data, threads, beside, payload)

    def open_file(path: str) -> ByteView:
        file = Path(index()).parent / path
        there, folder = place.file(file), place.file(index()).parent
        # A link in the folder may lead anywhere: what counts is where the file really is.
        if not there.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{shown(path)} leads out of the set's folder")
        if not there.is_file():
            # A pipe or a device might never end.
            raise InputError(f"{shown(path)} is not a file")
        data = view_file(file, place.folder)
        beside = partial(wsum_at, wsum_path(there))
        payload = payload_for(str(file), data, place)
        return _as_file(str(file), data, threads, beside, payload)

    opener = open_file
    if is_url(target, place):
        opener = open_url
    elif is_blob(target, place):
        opener = open_blob

    def open_member(path: str) -> ByteView:
        _refuse_outside(path)
        try:
            return opener(path)
        except (OSError, RuntimeError, ValueError, CheckError, EnvironmentFailure) as error:
            # A file of a set that can't be opened is a finding, and does not end the command.
            raise InputError.because(f"{shown(path)} can't be opened: {error}", error) from error

    @cache
    def allowed() -> str | None:
        from wtxtgit.remotes.part_urls import allowed_url

        return allowed_url()

    def fetch(url: str, path: str) -> ByteView:
        from wtxtgit.remotes.part_urls import read_part

        _refuse_outside(path)
        if is_file(target, place) and os.path.lexists(place.file(Path(index()).parent / path)):
            raise InputError("only what is missing is fetched")
        try:
            return _as_file(path, read_part(url, path, allowed()), threads)
        except (OSError, RuntimeError, ValueError, CheckError, EnvironmentFailure) as error:
            raise InputError.because(str(error), error) from error

    return SetFolder(open_member, name, fetch)


def tree_members(
    repo: Repository, tree: str, index: bytes, *, threads: int | None = None
) -> SetFolder:
    """Return the opener for a set in a tree, given by the tree's object id and the index's path.

    Files of the work tree are never used.
    """
    from wtxtgit.git import history

    def find(path: bytes) -> TreeEntry | None:
        # By the tree's id: a revision may name another commit by now.
        return next(iter(history.listing(repo, tree, path)), None)

    return entry_members(repo, find, index, threads=threads)


def entry_members(
    repo: Repository,
    find: Callable[[bytes], TreeEntry | None],
    index: bytes,
    *,
    threads: int | None = None,
) -> SetFolder:
    """Return the opener for a set whose files are entries that `find` returns by path."""

    def open_member(path: str) -> ByteView:
        _refuse_outside(path)
        try:
            entry = find(posixpath.join(posixpath.dirname(index), os.fsencode(path)))
            if entry is None or not entry.is_file:
                raise InputError("no such file")
            data = blob(repo, entry.oid, threads)
            payload = payload_in(repo, data)
            return _as_file(shown(path), data, threads, payload=payload)
        except (OSError, ValueError, CheckError, EnvironmentFailure, InputError) as error:
            raise InputError.because(f"{shown(path)} can't be opened: {error}", error) from error

    return SetFolder(open_member, lambda: os.fsdecode(posixpath.basename(index)))


def _as_file(
    name: str,
    data: ByteView,
    threads: int | None,
    wsum: Callable[[], bytes | None] = lambda: None,
    payload: PayloadSource = NO_PAYLOAD,
) -> ByteView:
    """Return a file of a set as `as_checked_out` does; raises CheckError for a damaged text."""
    opened = as_checked_out(name, data, threads, wsum, payload)
    if opened.report is not None:
        refuse_text(opened.report, shown(name))
    return opened.data


def _refuse_outside(path: str) -> None:
    parts = path.split("/")
    # Some systems treat backslashes as separators, and stores read them as slashes.
    if not path or "\0" in path or "\\" in path or path.startswith("/") or ".." in parts:
        raise InputError(f"{shown(path.replace(chr(0), '?'))} leads out of the set's folder")
