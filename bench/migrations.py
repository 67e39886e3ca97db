"""Long histories of small checkpoints into texts, and out of them again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from bench.measure import WTXTGIT, BenchError, Entrant, Place, Row, Sample, command, race

COMMITS = (2_500, 5_000, 10_000)
FILES, CONTENTS, VALUES = 100, 1_000, 256
"""Checkpoints, one of which a commit changes, and how many different ones there are: of 1 KiB."""
_STEP = 13
"""By which the content that a file gets differs from the one before; it shares no factor with
`CONTENTS`."""


def migrations(place: Place) -> list[Row]:
    """Histories of different lengths: what a commit costs is the same if the times say so."""
    rows: list[Row] = []
    for commits in COMMITS:
        repo = place.folder(f"migrated-{commits}")
        command(place, "git", "init", "-q", "-b", "main", repo)
        command(place, *WTXTGIT, "install", "--local", cwd=repo)
        _add_commits(repo, commits)
        command(place, "git", "reset", "--hard", "--quiet", "main", cwd=repo)
        before = _tip(place, repo)
        note = f"{commits} commits, {FILES} checkpoints with {CONTENTS} contents of 1 KiB"

        def entrant(name: str, *words: str, repo: Path = repo, note: str = note) -> Entrant:
            action: Callable[[], Sample] = partial(
                command, place, *WTXTGIT, "migrate", *words, cwd=repo
            )
            return Entrant(f"migrate {name}", note=note, action=action)

        rows += race(
            [
                entrant(f"import, {commits} commits", "import", "--include", "*.safetensors"),
                entrant(f"export, {commits} commits", "export"),
            ],
            1,
        )
        if _tip(place, repo) != before:
            raise BenchError("an export of an import gives another commit")
    return rows


def _add_commits(repo: Path, commits: int) -> None:
    with subprocess.Popen(
        ("git", "fast-import", "--quiet"), cwd=repo, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None  # noqa: S101
        out = process.stdin
        values = np.random.default_rng(1).standard_normal((CONTENTS, VALUES), np.float32)
        for mark, some in enumerate(values, 1):
            content = save({"w": some})
            out.write(b"blob\nmark :%d\ndata %d\n%b\n" % (mark, len(content), content))
        for number in range(commits):
            file, version = number % FILES, number // FILES
            mark = 1 + (file + _STEP * version) % CONTENTS
            who = f"committer A <a@example.com> {1_700_000_000 + number} +0000\ndata 0\n"
            changed = f"M 100644 :{mark} model-{file}.safetensors\n"
            out.write(f"commit refs/heads/main\n{who}{changed}".encode())
        out.close()
    if process.returncode:
        raise BenchError("git fast-import failed")


def _tip(place: Place, repo: Path) -> bytes:
    return subprocess.check_output(("git", "rev-parse", "main"), cwd=repo, env=place.env)
