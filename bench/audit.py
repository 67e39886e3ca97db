"""Audits of sealed histories, against `git fsck` plus SHA-256 of the texts in them; hooks there."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.history import ROWS_OF_A_MIB, add_generations
from bench.measure import (
    MIB,
    WTXTGIT,
    Against,
    BenchError,
    Entrant,
    Place,
    Row,
    Sample,
    command,
    output,
    race,
    timed,
)
from wtxtgit.text import ledger as ledger_text
from wtxtgit.trust.signing import seed_key

FILES = 10
"""Checkpoints of 1 MiB each, one of which a commit changes."""
LONG_COMMITS, LONG_FILES, LONG_ROWS = 10_000, 100, 4
"""A long history of small checkpoints, of 16 KiB each: what walking it takes."""


def long_history(place: Place) -> list[Row]:
    """A long history, audited once anew and once with what is known; and a commit's hook in it."""
    repo = place.folder("long-history")
    root = sealed_history(place, repo, LONG_COMMITS, LONG_FILES, LONG_ROWS)
    git(place, repo, "config", "wtxtgit.trustRoot", root)
    git(place, repo, "reset", "--hard", "--quiet", "main")
    log = partial(command, place, "git", "log", "--raw", "--format=", cwd=repo)
    hook = partial(command, place, *WTXTGIT, "hook", "pre-commit", cwd=repo)
    nbytes = LONG_COMMITS * LONG_ROWS * 4096
    note = f"{LONG_COMMITS} commits, {LONG_FILES} checkpoints of {LONG_ROWS * 4} KiB"
    entrants = _entrants(place, repo, root, "git log --raw, all commits", log, nbytes, note)
    again = Entrant("hook pre-commit, the next time", nbytes, (), note, action=hook, before=hook)
    return race([*entrants, again], 1)


def audits(place: Place, commits: int, runs: int) -> list[Row]:
    """All commits, and all of them again when what was found is known."""
    repo = place.folder("history")
    root = sealed_history(place, repo, commits, FILES, ROWS_OF_A_MIB)
    listed = git(place, repo, "rev-list", "--objects", "main").decode().splitlines()
    texts = [line[:40] for line in listed if line.endswith(".safetensors")]

    def floor() -> Sample:
        """Of the reading of texts, the hashing alone is counted."""
        fsck = command(place, "git", "fsck", "--full", "--no-progress", cwd=repo)
        seconds = 0.0
        for oid in texts:
            content = git(place, repo, "cat-file", "blob", oid)
            seconds += timed(lambda content=content: hashlib.sha256(content)).seconds  # type: ignore[misc]
        return Sample(fsck.seconds + seconds, fsck.resident, fsck.anonymous)

    name = "git fsck, and SHA-256 of the texts"
    nbytes, note = len(texts) * MIB, f"{commits} commits, {len(texts)} texts of 1 MiB"
    return race(_entrants(place, repo, root, name, floor, nbytes, note), runs)


def _entrants(
    place: Place,
    repo: Path,
    root: str,
    floor: str,
    of_floor: Callable[[], Sample],
    nbytes: int,
    note: str,
) -> list[Entrant]:
    """What reads a history as fast as it goes, an audit of it, and one with what is known."""
    audit = (*WTXTGIT, "audit", "main", "--trust-root", root)
    known = partial(command, place, *audit, cwd=repo)
    anew = partial(command, place, *audit, "--no-cache", cwd=repo)
    against = (Against(floor),)
    return [
        Entrant(floor, nbytes, note=note, action=of_floor),
        Entrant("audit --no-cache", nbytes, against, note, action=anew),
        Entrant("audit, again", nbytes, against, note, action=known, before=known),
    ]


def sealed_history(place: Place, repo: Path, commits: int, files: int, rows: int) -> str:
    """Make a history; gives its first commit."""
    command(place, "git", "init", "-q", "-b", "main", repo)
    # A run makes several histories in one home.
    name = repo.name
    for words in (
        ("install", "--local"),
        ("track", "*.safetensors"),
        ("key", "new", "--name", name, "--no-passphrase"),
        ("signers", "add", "a@example.com", name),
    ):
        command(place, *WTXTGIT, *words, cwd=repo)
    command(place, "git", "add", ".gitattributes", ".wtxt", cwd=repo)
    command(place, *WTXTGIT, "seal", "--staged", "--key", name, cwd=repo)
    command(place, "git", "commit", "-q", "-m", "signers", cwd=repo)
    signers = ledger_text.read((repo / ".wtxt" / "signers.wsum").read_bytes()).ledger
    if signers is None:
        raise BenchError("the signers ledger does not read")
    secret = (place.top / "home/.config/wtxtgit/keys" / name).read_bytes()
    key = seed_key(secret, name, None)
    add_generations(repo, key, signers.last.merkle_this, commits, files, rows)
    first = ("git", "rev-list", "--max-parents=0", "main")
    return output(place, *first, cwd=repo)[1].decode().strip()


def git(place: Place, repo: Path, *words: str, stdin: bytes = b"") -> bytes:
    """What git prints."""
    return subprocess.check_output(("git", *words), cwd=repo, env=place.env, input=stdin)
