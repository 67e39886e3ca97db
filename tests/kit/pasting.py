"""Commands that are pasted into a shell as a message of the product spells them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tests.kit import LAUNCHER, Repo

HERE = "a folder"
"""Where messages are told, and pasted: paths in them start there."""


def make_pastable(repo: Repo) -> None:
    """Put a `wtxtgit` beside a repository, which `paste` finds, and the folder into it."""
    folder = repo.path.parent / "bin"
    folder.mkdir()
    script = folder / "wtxtgit"
    script.write_text(f'#!/bin/sh\nexec {LAUNCHER.command()} "$@"\n')
    script.chmod(0o755)
    (repo.path / HERE).mkdir()


def paste(repo: Repo, command: str, folder: str = HERE, ok: Sequence[int] = (0,)) -> str:
    """Run a command in a shell, as one who pastes it."""
    path = f"{repo.path.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=repo.path / folder,
        env={**os.environ, "PATH": path, "GIT_EDITOR": "true"},
        capture_output=True,
        check=False,
    )
    assert done.returncode in ok, (command, done.stdout, done.stderr)
    return done.stdout.decode()
