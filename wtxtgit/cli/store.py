"""`wtxtgit store`: the payload of detached texts that is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import complain
from wtxtgit.cli.output import is_printed, print_line, print_table, progress
from wtxtgit.errors import counted
from wtxtgit.report.figures import size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wtxtgit.report.store import DamagedPack
    from wtxtgit.store.store import Store

_json = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
_FOUND = 1


@click.group()
def store() -> None:
    """List, check and repack the payload of detached texts; say where it is sent.

    It lies in packs in the repository's git directory, or where the config
    wtxtgit.storePath says.

    \b
    wtxtgit store ls
    wtxtgit store verify
    """


def _here() -> Store:
    from wtxtgit.git.repository import Repository
    from wtxtgit.store.place import store_of

    return store_of(Repository.discover())


@store.command("ls")
@_json
def list_packs(as_json: bool) -> None:
    """List the packs of the store, and what they hold.

    \b
    wtxtgit store ls
    wtxtgit store ls --json
    """
    from wtxtgit.store.check import list_store

    listed = list_store(_here())
    if is_printed(listed, as_json):
        return
    if listed.packs:
        columns = ("pack", "size", "chunks", "payload")
        rows = [
            (pack.pack[:12], size(pack.size), str(pack.chunks), pack.why or size(pack.payload))
            for pack in listed.packs
        ]
        print_table(columns, rows, right=("size", "chunks"))
        print_line()
    print_line(
        f"{listed.store}: {counted(len(listed.packs), 'pack')}, {size(listed.size)}, which hold "
        f"{counted(listed.chunks, 'chunk')}, {size(listed.payload)}"
    )
    for folder in listed.borrowed:
        print_line(f"read as well: {folder}")


@store.command()
@_json
def verify(as_json: bool) -> int:
    """Check every chunk of the store against its name.

    Exit code 1 where anything is damaged. Chunks that are lost are those of
    which no copy is whole.

    \b
    wtxtgit store verify
    wtxtgit store verify --json
    """
    from wtxtgit.store.check import check_store, packs_size

    there = _here()
    with progress("verifying", packs_size(there)) as advance:
        verdict = check_store(there, environment.threads(), advance)
    if not is_printed(verdict, as_json):
        _complain_of(verdict.store, verdict.damaged)
        for chunk in verdict.lost:
            complain(f"chunk {chunk} is lost")
        if verdict.damaged:
            complain(f"{counted(len(verdict.damaged), 'pack')} of {verdict.packs} damaged")
        else:
            print_line(
                f"ok  {counted(verdict.packs, 'pack')}, {counted(verdict.chunks, 'chunk')}, "
                f"{size(verdict.payload)}"
            )
    return 0 if verdict.ok else _FOUND


@store.command()
@click.argument("url", required=False)
@_json
def use(url: str | None, as_json: bool) -> None:
    """Say which remote payload is sent to and fetched from.

    URL is git+REMOTE, or a folder as fsspec knows it: file:///FOLDER,
    s3://BUCKET/FOLDER. It becomes the config wtxtgit.store of this repository.
    Without it what is in use is shown, and who says so.

    \b
    wtxtgit store use
    wtxtgit store use s3://models/store
    """
    from wtxtgit.git.repository import Repository
    from wtxtgit.remotes import store_url

    repo = Repository.discover()
    found = store_url.chosen(repo) if url is None else store_url.use(repo, url)
    if is_printed(found, as_json):
        return
    why = {
        store_url.UrlOrigin.CONFIG: f"the config {store_url.KEY} says so",
        store_url.UrlOrigin.TREE: f"{store_url.FILE.decode()} says so; nothing is sent there "
        "before wtxtgit store use URL has",
    }
    print_line(f"{found.shown}: {why.get(found.origin, 'since nothing else is said')}")


@store.command()
@_json
def repack(as_json: bool) -> int:
    """Put small packs together, and drop what is there twice.

    Packs that are damaged are set aside, with the ending .damaged: what is
    lost of them can be added again. Exit code 1 where there are any.

    \b
    wtxtgit store repack
    """
    from wtxtgit.store.check import packs_size
    from wtxtgit.store.repack import repack_store

    there = _here()
    with progress("repacking", packs_size(there)) as advance:
        done = repack_store(there, advance)
    if not is_printed(done, as_json):
        _complain_of(done.store, done.aside)
        print_line(
            f"{done.store}: {counted(done.packs_before, 'pack')}, {size(done.size_before)} before, "
            f"{counted(done.packs_after, 'pack')}, {size(done.size_after)} now; "
            f"{counted(done.dropped, 'doubled chunk')} dropped"
        )
    return _FOUND if done.aside else 0


def _complain_of(folder: Path, damaged: Iterable[DamagedPack]) -> None:
    for pack in damaged:
        where = f"{folder / 'packs' / pack.pack}.pack"
        if pack.why is not None:
            complain(f"{where} {pack.why}")
        for chunk, why in pack.chunks.items():
            complain(f"{where}: chunk {chunk} {why}")
