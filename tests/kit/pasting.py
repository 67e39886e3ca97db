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


def typed(repo: Repo, *lines: str, folder: str = HERE) -> tuple[int, str, str]:
    """Give lines to a shell, one after the other; gives its exit code and what it prints."""
    path = f"{repo.path.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=repo.path / folder,
        env={**os.environ, "PATH": path, "GIT_EDITOR": "true"},
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def paste(repo: Repo, command: str, folder: str = HERE, ok: Sequence[int] = (0,)) -> str:
    """Run a command in a shell, as one who pastes it."""
    code, out, err = typed(repo, command, folder=folder)
    assert code in ok, (command, out, err)
    return out
