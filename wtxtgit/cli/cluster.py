"""Options of commands that can work on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wtxtgit.cli import environment
from wtxtgit.errors import UsageError

if TYPE_CHECKING:
    from wtxtgit.chain.contents import Examiner
    from wtxtgit.cluster.client import Cluster
    from wtxtgit.git.repository import Repository
    from wtxtgit.review.contents import Comparer

CLUSTER_KEY = "cluster-facts.key"
_Command = TypeVar("_Command", bound=Callable[..., Any])

scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on the Dask cluster with this scheduler, such as tcp://HOST:8786.",
)


def cluster_options(command: _Command) -> _Command:
    """Add --scheduler and --worker-clone to a command."""
    clone = click.option(
        "--worker-clone",
        type=click.Path(path_type=Path, readable=False),
        metavar="PATH",
        help="With --scheduler: where its workers have a clone. Default: the path of this one.",
    )
    return scheduler_option(clone(command))


@contextmanager
def cluster(scheduler: str | None, worker_clone: Path | None = None) -> Iterator[Cluster | None]:
    """Connect to the cluster that is asked for, if one is."""
    if scheduler is None:
        if worker_clone is not None:
            raise UsageError("--worker-clone goes with --scheduler")
        yield None
        return
    if worker_clone is not None and not worker_clone.is_absolute():
        raise UsageError(
            "--worker-clone is a path from the root: workers have folders of their own"
        )
    from wtxtgit.cluster.client import connected

    with connected(scheduler) as found:
        yield found


def facts_key(workers: Cluster | None, no_cache: bool) -> Path | None:
    """Where the secret is under which facts about blobs are kept.

    What a cluster's workers said is known to later calls that name a cluster:
    who asks this machine gets what this machine found.
    """
    key = environment.facts_key(no_cache)
    return key if key is None or workers is None else key.with_name(CLUSTER_KEY)


def examiner(workers: Cluster | None, repo: Repository, clone: Path | None) -> Examiner | None:
    """What finds facts about blobs on the cluster, if there is one."""
    if workers is None:
        return None
    from wtxtgit.cluster import contents

    return contents.examiner(workers, repo, clone)


def comparer(workers: Cluster | None, clone: Path | None) -> Comparer:
    """What compares checkpoints: the cluster, or this process."""
    if workers is None:
        from wtxtgit.review.contents import here

        return here
    from wtxtgit.cluster import review

    return review.comparer(workers, clone)
