"""`wtxtgit fetch` and `push`: the payload of detached texts, from and to a remote."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.options import Revision, completed, discover, revisions_and_paths
from wtxtgit.cli.output import is_printed, print_line, progress
from wtxtgit.errors import EnvironmentFailure, counted
from wtxtgit.report.figures import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wtxtgit.git.repository import Repository
    from wtxtgit.remotes.payload.detached_texts import DetachedText
    from wtxtgit.report.store import LackingPayload, PayloadFetched

_json = click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")


@click.command()
@click.argument(
    "words",
    nargs=-1,
    metavar="[REV...] [PATH...]",
    type=Revision(),
    shell_complete=completed("targets"),
)
@click.option("-n", "--dry-run", is_flag=True, help="Fetch nothing; show what would be fetched.")
@_json
def fetch(words: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Fetch the data of detached texts, and restore files that are still text.

    Fetches the data that the index needs, or the commits REV; with PATH, only for those
    files and folders. Tracked files that are git-lfs pointers are fetched from git-lfs.
    An interrupted fetch continues where it stopped, and damaged data is fetched again.
    The exit code is 5 if anything did not arrive.

    \b
    wtxtgit fetch
    wtxtgit fetch main~3 model.safetensors
    """
    from wtxtgit.git import index
    from wtxtgit.remotes.payload.fetch import fetch_payload, set_damaged_aside
    from wtxtgit.remotes.payload.remote import places_to_fetch
    from wtxtgit.store.place import store_of

    repo = discover()
    revisions, paths = revisions_and_paths(repo, words)
    texts = _texts_of(repo, revisions, paths)
    store = store_of(repo)
    if not (dry_run or revisions or repo.is_bare):
        # Files whose data are here stand as text where these are damaged, most likely.
        for damaged in set_damaged_aside(repo, store, texts):
            boundary.complain(
                f"{store.folder}: pack {damaged.pack} is damaged and was set aside: "
                f"{counted(len(damaged.chunks), 'chunk')} lost"
            )
    of_lfs = None
    if not (revisions or repo.is_bare):
        of_lfs = _write_of_lfs(repo, paths, dry_run=dry_run, as_json=as_json)
    with progress("fetching", None, noun="pack") as advance:
        done = fetch_payload(
            store,
            lambda: places_to_fetch(repo, revisions or ("HEAD",)),
            texts,
            advance,
            dry_run=dry_run,
        )
    if not is_printed(done, as_json):
        if done.remote is not None:
            _print_fetched(done, dry_run=dry_run)
            _warn_of_short(repo, done, revisions or ("HEAD",))
        elif of_lfs is None:
            print_line("nothing is missing")
    # What other commits have need not be tracked now.
    is_elsewhere = bool(revisions and paths) and not index.entries(repo, paths)
    is_written = True
    if not (dry_run or repo.is_bare or is_elsewhere):
        is_written = _write_files(
            repo,
            paths,
            is_all_here=not done.lacking,
            # Of the index nothing was asked where commits were named.
            remote_lacks=bool(done.lacking) and not revisions,
            as_json=as_json,
        )
    is_done = is_written and of_lfs is not False and not (done.lacking or done.refused)
    return 0 if is_done else EnvironmentFailure.exit_code


def _texts_of(
    repo: Repository, revisions: Sequence[str], paths: Sequence[str]
) -> list[DetachedText]:
    """Return the detached texts at these paths in revisions; without any, in the index."""
    from wtxtgit.remotes.payload import detached_texts

    if not revisions:
        return list(detached_texts.of_index(repo, paths))
    places = [repo.path_from_top(path) for path in paths]
    return [
        text for revision in revisions for text in detached_texts.of_tree(repo, revision, places)
    ]


def _print_fetched(done: PayloadFetched, *, dry_run: bool) -> None:
    """Print what was fetched, and errors for what was not."""
    from wtxtgit.filter.process import NOT_SENT
    from wtxtgit.remotes.payload.on_demand import SEND_AGAIN

    for pack in done.refused:
        boundary.complain(f"{done.remote}: pack {pack.pack} {pack.why}", SEND_AGAIN)
    for failure in done.failures if done.lacking else ():
        boundary.complain(failure)
    _complain_of(done.lacking, f"not at {done.remote}", hint=None if done.refused else NOT_SENT)
    would = "would be fetched" if dry_run else "fetched"
    print_line(
        f"{counted(done.chunks, 'chunk')} {would} from {done.remote}: "
        f"{counted(len(done.packs), 'pack')}, {size(done.nbytes)}"
    )


def _warn_of_short(repo: Repository, done: PayloadFetched, revisions: Sequence[str]) -> None:
    """Warn of remotes that have the commits without their data, as after a merge on a forge."""
    from wtxtgit.git import remotes
    from wtxtgit.remotes.payload.store_url import GIT, spelled

    for name in remotes.that_have(repo, revisions) if done.short else ():
        label = spelled(GIT + name)
        if label in done.short:
            tips = " ".join(map(shlex.quote, revisions))
            boundary.warn(
                f"{label} has the commit, but not all of its data, which another remote gave",
                f"wtxtgit push {shlex.quote(name)} {tips}",
            )


@click.command()
@click.argument("words", nargs=-1, metavar="[REMOTE] [REV...]", type=Revision())
@click.option("-n", "--dry-run", is_flag=True, help="Send nothing; show what would be sent.")
@click.option(
    "--check", is_flag=True, help="Verify the data on the remote, and send damaged data again."
)
@_json
def push(words: tuple[str, ...], dry_run: bool, check: bool, as_json: bool) -> int:
    """Send the data of detached texts to the place where others fetch it.

    Sends what the remote lacks for all commits that REV (default HEAD) reaches. REMOTE
    is a git remote, or the URL of one; the default is the store that `wtxtgit store use`
    has set, otherwise the remote that git push takes. After `wtxtgit install --hooks`, git
    push does this by itself. The exit code is 5 if some data is in no store here.

    \b
    wtxtgit push
    wtxtgit push origin main
    """
    from wtxtgit.git import remotes
    from wtxtgit.git.history import resolve_commit
    from wtxtgit.remotes.payload import store_url
    from wtxtgit.remotes.payload.remote import push_commits

    repo = discover()
    remote = words[0] if words and _is_remote(repo, words[0]) else None
    revisions = words if remote is None else words[1:]
    tips = [resolve_commit(repo, revision) for revision in revisions or ("HEAD",)]

    def choose() -> list[store_url.StoreUrl]:
        if remote is not None:
            return store_url.given(repo, remote)
        return store_url.to_push(repo, remotes.pushed_by_default(repo))

    with progress("sending", None, noun="pack") as advance:
        done = push_commits(repo, choose, tips, progress=advance, dry_run=dry_run, check=check)
    if is_printed(done, as_json):
        pass
    elif done.remote is None:
        print_line("no commit has a detached text")
    else:
        for pack in done.damaged:
            boundary.complain(f"{done.remote}: pack {pack.pack} {pack.why}")
        _complain_of(done.lacking, "in no store here")
        sent = "would be sent" if dry_run else "sent"
        print_line(
            f"{counted(done.chunks, 'chunk')} {sent} to {done.remote}"
            + ("" if dry_run else f": {counted(len(done.packs), 'pack')}, {size(done.nbytes)}")
        )
    return EnvironmentFailure.exit_code if done.lacking else 0


def _is_remote(repo: Repository, word: str) -> bool:
    """Tell whether a word names a remote, or is a URL or path and no revision."""
    from wtxtgit.git import history, remotes

    is_place = "/" in word or ":" in word
    return word in remotes.names(repo) or (is_place and history.find(repo, word) is None)


def _write_files(
    repo: Repository,
    paths: list[str],
    *,
    is_all_here: bool,
    remote_lacks: bool,
    as_json: bool,
) -> bool:
    """Write files that stand as detached texts; those that were changed are left.

    Tells whether all others could be; where not all data are here those are others, too.
    """
    from wtxtgit.cli.plumbing import settings
    from wtxtgit.filter import checkout as filter_checkout

    with progress("checking out", None) as advance:
        done = filter_checkout.checkout(
            repo,
            paths,
            # All that can come has come.
            settings(repo)._replace(fetched=lambda: None),
            boundary.warn,
            key_file=environment.facts_key(),
            progress=advance,
            remote_lacks=remote_lacks,
        )
    for failure in done.failed:
        boundary.complain(f"{os.fsdecode(failure.path)}: {failure.message}")
    if done.unnoted is not None:
        boundary.complain(f"could not update the index: {done.unnoted}", filter_checkout.UNNOTED)
    is_left = is_all_here and bool(done.lacking_payload)
    if not as_json and (done.written or not (done.failed or is_left)):
        print_line(f"{counted(len(done.written), 'file')} written")
    if is_left and not done.failed:
        files = counted(len(done.lacking_payload), "file")
        boundary.complain(f"{files} left as text, although all data is here")
    return not (done.failed or is_left or done.unnoted is not None)


def _write_of_lfs(
    repo: Repository, paths: list[str], *, dry_run: bool, as_json: bool
) -> bool | None:
    """Write tracked files that stand as pointers of git-lfs; tells whether all could be, None if
    there are none.
    """
    from wtxtgit.filter.from_lfs import write_pointed

    with progress("fetching", None) as advance:
        done = write_pointed(repo, paths, dry_run=dry_run, progress=advance)
    if done.written and not as_json:
        them = "it" if len(done.written) == 1 else "them"
        files = counted(len(done.written), "file")
        print_line(f"{files} of git-lfs written; git add stores {them} as text")
    if done.lacking and dry_run:
        count = counted(len(done.lacking), "object")
        whole = size(sum(lack.nbytes for lack in done.lacking))
        boundary.warn(f"{count} would be fetched from git-lfs, {whole}")
        return True
    for lack in done.lacking:
        boundary.complain(f"{os.fsdecode(lack.path)}: {lack.object[:12]}: {lack.why}")
    for path, why in done.failed:
        boundary.complain(f"{os.fsdecode(path)}: {why}")
    if done.lacking:
        if done.why is not None:
            boundary.complain(done.why)
        count = counted(len(done.lacking), "object")
        boundary.complain(f"{count} of git-lfs missing", "git lfs fetch --all")
    if done.lacking or done.failed:
        return False
    return True if done.written else None


def _complain_of(lacking: Sequence[LackingPayload], where: str, hint: str | None = None) -> None:
    for left, text in enumerate(lacking, 1 - len(lacking)):
        message = f"{os.fsdecode(text.path)}: {counted(text.chunks, 'chunk')} {where}"
        # Once for all.
        boundary.complain(message, None if left else hint)
