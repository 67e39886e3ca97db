"""The repository that workers read: a path where they all have a clone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import reason, shown

_HINT = "the workers' clone is at --worker-clone, and has all that this one has"


@contextmanager
def clone_at(folder: Path) -> Iterator[Repository]:
    """The repository at `folder` on a worker; raises EnvironmentFailure for what it lacks."""
    try:
        yield Repository.discover(folder)
    except OSError as error:
        message = f"{shown(folder)} on a worker: {reason(error)}"
        raise EnvironmentFailure(message, hint=_HINT) from error
    except EnvironmentFailure as error:
        message = f"{shown(folder)} on a worker: {error.message}"
        raise EnvironmentFailure(message, hint=_HINT) from error
