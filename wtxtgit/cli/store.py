"""`wtxtgit store`: the payload of detached texts that is at hand."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import complain
from wtxtgit.cli.options import completed
from wtxtgit.cli.output import is_printed, print_line, print_table, progress
from wtxtgit.errors import MENDS_STORE, EnvironmentFailure, UsageError, counted
from wtxtgit.io import clock
from wtxtgit.report.figures import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wtxtgit.remotes.lfs_objects import LfsObjects
    from wtxtgit.report.store import DamagedPack, LackingObject
    from wtxtgit.store.store import Store

_json = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
_FOUND = 1


@click.group()
def store() -> None:
    """Manage the payload of detached texts: list, check, repack, prune, import.

    Payload is kept in packs, in the repository's git directory or in the folder that
    the config wtxtgit.storePath names.

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
        f"{listed.store}: {counted(len(listed.packs), 'pack')}, {size(listed.size)}; they hold "
        f"{counted(listed.chunks, 'chunk')}, {size(listed.payload)}"
    )
    for folder in listed.borrowed:
        print_line(f"also reads: {folder}")


@store.command()
@_json
def verify(as_json: bool) -> int:
    """Check every chunk of the store against its name.

    A chunk is lost if no copy of it is whole. The exit code is 1 if anything is
    damaged.

    \b
    wtxtgit store verify
    wtxtgit store verify --json
    """
    from wtxtgit.store.check import check_store, packs_size

    own_store = _here()
    with progress("verifying", packs_size(own_store), noun="pack", waits=True) as advance:
        verdict = check_store(own_store, environment.threads(), advance)
    if not is_printed(verdict, as_json):
        _complain_of(verdict.store, verdict.damaged)
        for chunk in verdict.lost:
            complain(f"chunk {chunk} is lost")
        if verdict.more_lost:
            complain(f"and {verdict.more_lost:,} more lost chunks")
        if verdict.damaged:
            complain(
                f"{counted(len(verdict.damaged), 'pack')} of {verdict.packs} damaged",
                MENDS_STORE,
            )
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
    """Set the remote that payload is sent to and fetched from.

    URL is git+REMOTE, oci://HOST/NAME for a container registry, or a folder that fsspec
    knows, such as file:///FOLDER or s3://BUCKET/FOLDER. https://example.com/FOLDER is
    read-only. URL is written to the config wtxtgit.store of this repository. Without URL,
    shows the remote in use and where it is set.

    \b
    wtxtgit store use
    wtxtgit store use s3://models/store
    """
    from wtxtgit.git.repository import Repository
    from wtxtgit.remotes.payload import store_url

    repo = Repository.discover()
    chosen = store_url.chosen(repo) if url is None else store_url.use(repo, url)
    if is_printed(chosen, as_json):
        return
    why = {
        store_url.UrlOrigin.CONFIG: f"set by the config {store_url.KEY}",
        store_url.UrlOrigin.TREE: f"set by {store_url.FILE.decode()}; nothing is sent there "
        f"until you run wtxtgit store use URL",
    }
    print_line(f"{chosen.shown}: {why.get(chosen.origin, 'the default')}")


@store.command()
@_json
def repack(as_json: bool) -> int:
    """Combine small packs, and drop duplicate chunks.

    Damaged packs are set aside with the ending .damaged, so that their lost chunks can
    be added again; the exit code is then 1.

    \b
    wtxtgit store repack
    """
    from wtxtgit.store.repack import repack_store

    own_store = _here()
    with progress("repacking", None, noun="pack", waits=True) as advance:
        done = repack_store(own_store, advance)
    if not is_printed(done, as_json):
        _complain_of(done.store, done.aside)
        print_line(
            f"{done.store}: {counted(done.packs_before, 'pack')}, {size(done.size_before)} before, "
            f"{counted(done.packs_after, 'pack')}, {size(done.size_after)} now; "
            f"{counted(done.dropped, 'duplicate chunk')} dropped"
        )
        if done.aside:
            complain(
                f"{counted(len(done.aside), 'pack')} set aside",
                "wtxtgit fetch fetches lost chunks from the remote",
            )
    return _FOUND if done.aside else 0


_days = click.IntRange(min=0, max=1_000_000)


@store.command()
@click.option("--remote", is_flag=True, help="Prune packs on the remote that no ref needs.")
@click.option("-n", "--dry-run", is_flag=True, help="Drop nothing; show what would be dropped.")
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="With --remote: mark and delete packs instead of listing them.",
)
@click.option(
    "--recent",
    type=_days,
    metavar="DAYS",
    help="Keep data that commits of the last DAYS days need.",
)
@click.option(
    "--expire", type=_days, metavar="DAYS", help="Drop data that nothing refers to after DAYS days."
)
@click.option(
    "--verify-remote", is_flag=True, help="Read and hash the remote's data before relying on it."
)
@_json
def prune(
    remote: bool,
    dry_run: bool,
    force: bool,
    recent: int | None,
    expire: int | None,
    verify_remote: bool,
    as_json: bool,
) -> None:
    """Drop data that is on the remote and not needed here now.

    Keeps data that work trees, indexes, stashes, unpushed commits or recent commits
    need (10 days, or the config wtxtgit.pruneRecent), and data that the remote does not
    have. As in git gc, data that no commit, index or reflog refers to is dropped after
    two weeks (or the config gc.pruneExpire), even if the remote does not have it. Do
    not use this on a store that other repositories borrow from.

    With --remote, lists packs on the remote that no ref of the git remotes needs.
    --force marks those that are older than gc.pruneExpire, so that no push relies on
    them, and deletes those that were marked so long ago.

    \b
    wtxtgit store prune --dry-run
    wtxtgit store prune --recent 30
    wtxtgit store prune --remote --force
    """
    if remote and (recent is not None or verify_remote):
        raise UsageError("--recent and --verify-remote cannot be combined with --remote")
    if force and (dry_run or not remote):
        raise UsageError("--force needs --remote, and cannot be combined with --dry-run")
    if remote:
        _prune_remote(expire, force=force, as_json=as_json)
    else:
        _prune_here(recent, expire, dry_run=dry_run, verify=verify_remote, as_json=as_json)


def _prune_here(
    recent: int | None, expire: int | None, *, dry_run: bool, verify: bool, as_json: bool
) -> None:
    from wtxtgit.git.repository import Repository
    from wtxtgit.remotes.payload.prune import prune_payload, rules

    repo = Repository.discover()
    what = rules(repo, clock.now(), recent, expire, verify=verify)
    with progress("pruning", None, noun="pack") as advance:
        done = prune_payload(repo, what, advance, dry_run=dry_run)
    if is_printed(done, as_json):
        return
    if done.unsent:
        where = done.remote or "a remote"
        print_line(f"kept: {counted(done.unsent, 'chunk')} of old commits, not found at {where}")
    if done.young:
        print_line(f"kept: {counted(done.young, 'chunk')} that nothing refers to, not old enough")
    summary = f"{done.store}: {counted(done.chunks, 'chunk')}, {size(done.nbytes)}"
    if dry_run:
        print_line(f"{summary} would be dropped, of {size(done.size_before)}")
    else:
        print_line(
            f"{summary} dropped; {counted(done.packs_before, 'pack')}, {size(done.size_before)} "
            f"before, {counted(done.packs_after, 'pack')}, {size(done.size_after)} now"
        )


def _prune_remote(expire: int | None, *, force: bool, as_json: bool) -> None:
    from wtxtgit.git.repository import Repository
    from wtxtgit.remotes.payload.prune import DAY, expiry
    from wtxtgit.remotes.payload.remote_prune import prune_remote

    repo = Repository.discover()
    now = clock.now()
    limit = expiry(repo, now) if expire is None else now - expire * DAY
    done = prune_remote(repo, now, limit, force=force)
    if is_printed(done, as_json):
        return
    would = "" if force else "would be "
    kinds = ((done.gone, f"{would}deleted"), (done.marked, f"{would}marked"))
    rows = [
        (pack.pack[:12], "" if pack.size is None else size(pack.size), what)
        for packs, what in kinds
        for pack in packs
    ]
    if rows:
        print_table(("pack", "size", ""), rows, right=("size",))
        print_line()
    refs = f"{counted(done.refs, 'ref')} of {', '.join(done.git_remotes)}"
    for packs, what in kinds:
        if packs or packs is done.gone:
            total = sum(pack.size or 0 for pack in packs)
            print_line(
                f"{done.remote}: {len(packs)} of {counted(done.packs, 'pack')}, {size(total)}, "
                f"{what}; {refs} and local refs need none of them"
            )
    if done.marked and force:
        print_line("a later prune deletes marked packs that nothing needs by then")
    if done.young:
        print_line(f"kept: {counted(done.young, 'pack')} not needed, but not old enough")
    if rows and not force:
        print_line("--force does that")
    if done.note is not None:
        print_line(done.note)


@store.command("import")
@click.argument(
    "words", nargs=-1, metavar="[REV...] [PATH...]", shell_complete=completed("targets")
)
@click.option(
    "--from-lfs", is_flag=True, required=True, expose_value=False, help="Import from git-lfs."
)
@click.option(
    "--all", "with_history", is_flag=True, help="Import from all commits that REV reaches."
)
@click.option("-n", "--dry-run", is_flag=True, help="Import nothing; show what would be imported.")
@_json
def import_from(words: tuple[str, ...], with_history: bool, dry_run: bool, as_json: bool) -> int:
    """Import files that git-lfs has fetched, without a checkout.

    Use this when a pattern moves from git-lfs to `track --detached`. The data of every
    checkpoint that has a pointer in HEAD, or in the commits REV, goes into the store,
    so that later versions only add what changed. The texts go into git, and their blob
    ids are printed. With PATH, only those files and folders are imported, whether they
    are checkpoints or not. The exit code is 5 if git-lfs lacks any of them.

    \b
    wtxtgit store import --from-lfs
    wtxtgit store import --from-lfs --all model.safetensors
    """
    from wtxtgit.cli.options import discover, revisions_and_paths
    from wtxtgit.filter.from_lfs import import_objects
    from wtxtgit.remotes.lfs_objects import LfsObjects

    repo = discover()
    revisions, paths = revisions_and_paths(repo, words)
    with progress("importing", None, waits=True) as advance:
        done = import_objects(
            repo,
            revisions or ["HEAD"],
            [repo.path_from_top(path) for path in paths],
            with_history=with_history,
            dry_run=dry_run,
            threads=environment.threads(),
            progress=advance,
        )
    if not is_printed(done, as_json):
        if done.objects:
            columns = ("object", "size", "form", "blob", "path")
            rows = [
                (
                    lfs_object.object[:12],
                    size(lfs_object.nbytes),
                    "" if dry_run else "detached" if lfs_object.detached else "attached",
                    lfs_object.blob or "",
                    os.fsdecode(lfs_object.path),
                )
                for lfs_object in done.objects
            ]
            print_table(columns, rows, right=("size",), whole=("blob",))
            print_line()
        _complain_of_lfs(done.lacking, LfsObjects(repo))
        if done.others:
            print_line(f"{counted(done.others, 'object')} skipped, not checkpoints")
        print_line(
            f"{counted(len(done.objects), 'object')} of git-lfs "
            + ("would be imported" if dry_run else f"imported: {size(done.nbytes)} in new packs")
        )
    return EnvironmentFailure.exit_code if done.lacking else 0


def _complain_of_lfs(lacking: Sequence[LackingObject], objects: LfsObjects) -> None:
    from wtxtgit.remotes.lfs_pointer import LfsObject

    last = lacking[-1] if lacking else None
    for lack in lacking:
        # git-lfs takes what has the right size for the object, and looks only at HEAD's by itself.
        damaged = objects.place(LfsObject(lack.object, lack.nbytes))
        hint = None
        if damaged is not None:
            name = shlex.quote(os.fspath(damaged))
            hint = f"mv -i -- {name} {name}.damaged, then git lfs fetch --all"
        elif lack is last:
            # Once, after all of them.
            hint = "git lfs fetch --all"
        complain(f"{os.fsdecode(lack.path)}: {lack.object[:12]}: {lack.why}", hint)


def _complain_of(folder: Path, damaged: Iterable[DamagedPack]) -> None:
    for pack in damaged:
        where = f"{folder / 'packs' / pack.pack}.pack"
        if pack.why is not None:
            complain(f"{where} {pack.why}")
        for chunk, why in pack.chunks.items():
            complain(f"{where}: chunk {chunk} {why}")
        if pack.more:
            complain(f"{where}: and {pack.more:,} more chunks are damaged")
