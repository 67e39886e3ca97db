"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wtxtgit.cli import environment
from wtxtgit.errors import EnvironmentFailure, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from wtxtgit.chain.reader import Examiner
    from wtxtgit.cluster.client import Cluster
    from wtxtgit.git.repository import Repository
    from wtxtgit.model.tensor import ReadOptions
    from wtxtgit.review.contents import Comparer
    from wtxtgit.trust.age.identities import AgeIdentity


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SIZE = re.compile(r"([0-9]{1,18})([KMG]I?)?B?", re.IGNORECASE)

_Command = TypeVar("_Command", bound=Callable[..., Any])
_PAGE = b"<!doctype html"
"""How pages begin, in any case."""
_MAX_PIPED = 1024 * 1024
_GIT_URL = "git+"
"""Begins the URL of a file in a repository elsewhere."""
_GENERATION = ("@gen:", "@latest", "@signed-by:")
CLUSTER_KEY = "cluster-facts.key"


def _refuse_nothing(name: object) -> None:
    """Raise UsageError for a variable of a script that was not set: to the system, ".", to git, all
    files.
    """
    if not name:
        raise UsageError("a file is expected, not an empty name")


class FilePath(click.Path):
    """A path that is not empty. Whether it exists and can be read is checked when it is read."""

    def __init__(self, path_type: type[Path] | None = None) -> None:
        super().__init__(readable=False, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        _refuse_nothing(value)
        return super().convert(value, param, ctx)


FILE = FilePath(Path)
"""A file or folder."""
no_cache_option = click.option(
    "--no-cache",
    is_flag=True,
    help="Read everything again instead of using cached facts about blobs.",
)
passphrase_option = click.option(
    "--passphrase-fd",
    type=click.IntRange(min=0),
    metavar="N",
    help="Read the passphrase from the first line of this file descriptor.",
)
identity_option = click.option(
    "-i",
    "--identity",
    "identities",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Decrypt with the age or OpenSSH keys in this file; repeatable.",
)
scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Run on the Dask cluster of this scheduler, such as tcp://HOST:8786.",
)


def _page_to_replace(
    _context: click.Context, _parameter: click.Parameter, out: Path | None
) -> Path | None:
    """Raise UsageError for a file that is no page: --html takes the next word for its file."""
    if out is not None and out.is_file():
        with suppress(OSError), out.open("rb") as file:
            start = file.read(len(_PAGE))
            if start and start.lower() != _PAGE:
                raise UsageError(f"{out}: not a page, so --html does not replace it")
    return out


html_option = click.option(
    "--html",
    type=FILE,
    metavar="OUT",
    callback=_page_to_replace,
    help="Write a self-contained HTML page to this file; - is standard output.",
)


class Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number of bytes: 1048576, 64MiB, 1GiB, 100MB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        count = 0 if match is None else int(match[1]) * _UNITS[(match[2] or "").upper()]
        if count < 1:
            self.fail(f"'{value}' is not a size, such as 64MiB", param, ctx)
        return count


def completed(what: str) -> Callable[..., list[CompletionItem]]:
    """Return a function that completes an argument, which loads `completion` when it is called."""

    def complete(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
        from wtxtgit.cli import completion

        items: list[CompletionItem] = getattr(completion, what)(ctx, param, typed)
        return items

    return complete


class CheckpointTarget(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A file, a URL, REV:PATH, or a generation by its name, which becomes COMMIT:PATH.

    So does a file in a repository elsewhere, unless the URL is kept for who knows more of it.
    """

    name = "target"

    def __init__(self, *, keeps_urls: bool = False) -> None:
        self.keeps_urls = keeps_urls

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        target = str(value)
        _refuse_nothing(target)
        is_elsewhere = target.startswith(_GIT_URL)
        if ("@" not in target and not is_elsewhere) or (is_elsewhere and self.keeps_urls):
            return target
        # What finds generations reads ledgers and walks commits.
        from wtxtgit.chain.generation_names import resolved

        return resolved(target)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from wtxtgit.cli import completion

        return completion.targets(ctx, param, incomplete)


class Revision(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A revision or a range; the name of a generation becomes the commit that brought it."""

    name = "revision"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        revision = str(value)
        if not any(mark in revision for mark in _GENERATION):
            return revision
        from wtxtgit.chain.generation_names import resolved_revision

        return resolved_revision(revision)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from wtxtgit.cli import completion

        return completion.revisions(ctx, param, incomplete)


class PathOrUrl(CheckpointTarget):  # type: ignore[type-arg,unused-ignore]
    """A path, as the system spells it, or a URL or another target as it is."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from wtxtgit.remotes.urls import is_url

        target = super().convert(value, param, ctx)
        return target if is_url(target) else str(Path(target))


def _most_of_a_chunk() -> int:
    # Most commands look at no tensor.
    from wtxtgit.model.tensor import MAX_CHUNK

    return MAX_CHUNK


max_chunk_option = click.option(
    "--max-chunk",
    type=Size(),
    default=_most_of_a_chunk,
    metavar="SIZE",
    help="Refuse chunks of more than this, stored or decoded. Default: 1GiB.",
)


key_option = click.option(
    "--key",
    type=FILE,
    metavar="F",
    help="File with the AES-256 key of encrypted FOLD chunks: 32 bytes, or 64 hex digits.",
)
sign_option = click.option(
    "--sign", type=FILE, metavar="KEY", help="Sign with the ed25519 key in this file."
)


def reading_options(command: _Command) -> _Command:
    """Add --key and --max-chunk to a command, as `key` and `max_chunk`."""
    return key_option(max_chunk_option(command))


def rewriting_options(command: _Command) -> _Command:
    """Add --hmac-key and --max-chunk to a command that writes a container again."""
    key = click.option(
        "--hmac-key",
        type=FILE,
        metavar="F",
        help="File with the key of FOLD's HMACs.",
    )
    return key(max_chunk_option(command))


def read_options(key: Path | None, max_chunk: int) -> ReadOptions:
    """Return what --key and --max-chunk say; raises InputError for a key file without a key."""
    from wtxtgit.model.tensor import ReadOptions

    if key is None:
        return ReadOptions(max_chunk, decoding=environment.decoding())
    from wtxtgit.checkpoint.key_file import aes_key

    return ReadOptions(max_chunk, aes_key(key), decoding=environment.decoding())


def cluster_options(command: _Command) -> _Command:
    """Add --scheduler and --worker-clone to a command."""
    clone = click.option(
        "--worker-clone",
        type=FILE,
        metavar="PATH",
        help="With --scheduler: the path of the workers' clone. Default: the path of this one.",
    )
    return scheduler_option(clone(command))


def discover() -> Repository:
    """Return the repository around; raises EnvironmentFailure outside of one.

    Processes of `git cat-file` run until the command ends: a start takes as long as many answers.
    """
    from wtxtgit.git.blobs import CatFiles
    from wtxtgit.git.repository import Repository

    repo = Repository.discover()
    click.get_current_context().with_resource(CatFiles.of(repo).kept())
    return repo


def root_of_trust(repo: Repository, given: str | None = None) -> str | None:
    """Return where trust starts: --trust-root, else the config wtxtgit.trustRoot."""
    # With what runs git, which commands on files alone do without.
    from wtxtgit.git.repository import TRUST_ROOT

    return repo.config.get(TRUST_ROOT) if given is None else given


trust_root_option = click.option(
    "--trust-root",
    metavar="COMMIT|FILE",
    shell_complete=completed("targets"),
    help="Where trust starts, as for audit. Default: config wtxtgit.trustRoot.",
)


def needed_root(repo: Repository, given: str | None, why: str) -> str:
    """Return where trust starts; without one, raises UsageError, which says `why` it is needed."""
    root = root_of_trust(repo, given)
    if root is None:
        raise UsageError(
            f"no trust root is given, and {why} from one",
            hint="--trust-root COMMIT, or git config wtxtgit.trustRoot COMMIT",
        )
    return root


strict_option = click.option(
    "--strict",
    is_flag=True,
    help="Treat warnings as errors, as the config wtxtgit.strict does.",
)


def findings_format(command: _Command) -> _Command:
    """Add the options of how findings are printed."""
    form = click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "sarif", "github"]),
        default="text",
        help="How findings are printed.",
    )
    json = click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
    return form(json(command))


def is_strict(repo: Repository, *, given: bool = False) -> bool:
    """Whether warnings are errors: --strict, or the config wtxtgit.strict."""
    from wtxtgit.git.repository import STRICT

    return given or repo.config.is_true(STRICT)


@contextmanager
def cluster(scheduler: str | None, worker_clone: Path | None = None) -> Iterator[Cluster | None]:
    """Connect to the cluster of --scheduler, if that is given."""
    if scheduler is None:
        if worker_clone is not None:
            raise UsageError("--worker-clone needs --scheduler")
        yield None
        return
    if worker_clone is not None and not worker_clone.is_absolute():
        raise UsageError("--worker-clone needs an absolute path: workers run in other folders")
    from wtxtgit.cluster.client import connected

    with connected(scheduler) as workers:
        yield workers


def facts_key(workers: Cluster | None, no_cache: bool) -> Path | None:
    """Return the path of the secret that authenticates cached facts about blobs.

    What a cluster's workers said is known to later calls that name a cluster:
    who asks this machine gets what this machine found.
    """
    key = environment.facts_key(no_cache)
    return key if key is None or workers is None else key.with_name(CLUSTER_KEY)


def examiner(workers: Cluster | None, repo: Repository, clone: Path | None) -> Examiner | None:
    """Return what finds facts about blobs on the cluster; None without one."""
    if workers is None:
        return None
    from wtxtgit.cli.boundary import note
    from wtxtgit.cluster.tasks import examiner as on_cluster

    return on_cluster(workers, repo, clone, note)


def comparer(workers: Cluster | None, clone: Path | None) -> Comparer:
    """Return what compares checkpoints: the cluster, or this process."""
    if workers is None:
        from wtxtgit.review.contents import here

        return here
    from wtxtgit.cluster.tasks import comparer as on_cluster

    return on_cluster(workers, clone)


def opening_keys(files: Sequence[Path], passphrase_fd: int | None) -> tuple[AgeIdentity, ...]:
    """Return the identities in files; asks for the passphrase of a protected one."""
    if not files:
        return ()
    from wtxtgit.checkpoint.encrypted import read_identities
    from wtxtgit.cli.passphrase import asker

    ask = asker(passphrase_fd)
    return tuple(identity for file in files for identity in read_identities(file, ask, piped))


def piped() -> bytes:
    """Read keys from standard input, at most as many bytes as any keys have."""
    return sys.stdin.buffer.read(_MAX_PIPED)


def revisions_and_paths(repo: Repository, words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split words into revisions and paths; raises UsageError for a word that may be either."""
    from wtxtgit.git.history import resolve_tree

    revisions: list[str] = []
    paths: list[str] = []
    for word in words:
        try:
            is_revision = not paths and not word.startswith("-") and bool(resolve_tree(repo, word))
        except EnvironmentFailure:
            is_revision = False
        if is_revision and os.path.lexists(repo.here / word):
            raise UsageError(
                f"{word!a} is both a revision and a file", hint=f"./{word} names the file"
            )
        (revisions if is_revision else paths).append(word)
    return revisions, paths


def write_page(out: Path, page: str) -> None:
    """Write a page to a file, completely or not at all; to standard output if it is `-`."""
    from wtxtgit.io.files import write_output
    from wtxtgit.io.view import write_all

    content = page.encode("utf-8", "backslashreplace")
    if str(out) == "-":
        # In UTF-8 whatever the terminal's encoding is: the page says so itself.
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    else:
        write_output(out, lambda stream: write_all(stream, [content]))
