"""What the end-to-end tests share: traces of git, real pairs of files, texts as blobs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fixtures import lone, shared
from tests.data import fixture
from tests.e2e import hostile, sealed
from tests.e2e.sealed import Sealed
from tests.e2e.weights import CHUNK, fold_with, read_fold, row_changed
from tests.kit import LAUNCHER, Repo
from tests.kit.pasting import make_pastable
from tests.kit.templates import Templates, copyable
from wtxtgit.git import run

__all__ = ["lone", "shared"]

PATTERNS = ("*.aero", "*.fold", "*.checkpoint", "*.taridx", "*.safetensors")

PAIRS = {
    "single.aero": "aero/pair_single_v?.aero",
    "none.fold": "fold/pair_none_v?.fold",
    "a.checkpoint": "mlcp/pair_v?_a.checkpoint",
    "model.safetensors": "plain/pair_v?.safetensors",
    "sub/train.taridx": "taridx/pair_v?/train.taridx",
}
"""Two versions of one model in every format: its name in the repository, and the real file."""

MORE_PAIRS = {
    "head.aero": "aero/head_pair_single_v?.aero",
    "hashed.aero": "aero/pair_ihsh_phsh_v?.aero",
    "npz.fold": "fold/pair_npz_v?.fold",
    "tsav.fold": "fold/pair_tsav_v?.fold",
    "zstd.fold": "fold/pair_zstd3_v?.fold",
}

MODEL = "model.safetensors"
KIB = 1024
MIB = 1024 * KIB
SPOOLED = 9 * MIB
"""More than what a filter keeps in memory here, see `_little_memory`."""


def version(name: str, number: int) -> bytes:
    """Version 1 or 2 of a file of PAIRS."""
    return fixture({**PAIRS, **MORE_PAIRS}[name].replace("?", str(number)))


FOLD = "none.fold"
BASE, THEIRS = version(FOLD, 1), version(FOLD, 2)
_MODEL = row_changed(read_fold(BASE)[1][CHUNK], "embed.weight", 3)
OURS = fold_with(BASE, CHUNK, row_changed(_MODEL, "layer.1.w", 90))
"""Another change of version 1: of a row that version 2 changed as well, and one far from it."""


def write_version(repo: Repo, number: int, names: Iterable[str] = PAIRS) -> None:
    for name in names:
        repo.write(name, version(name, number))


def assert_version(repo: Repo, number: int, names: Iterable[str] = PAIRS) -> None:
    """Every file is that version byte for byte, and git takes it for unchanged.

    Git filters files again that are as young as its index; an index that
    looks younger spares the time for that, after the bytes were compared here.
    """
    for name in names:
        assert (repo.path / name).read_bytes() == version(name, number), name
    index = repo.path / os.fsdecode(repo.git("rev-parse", "--git-path", "index").rstrip(b"\n"))
    times = index.stat()
    os.utime(index, (4_000_000_000, 4_000_000_000))
    assert repo.git("status", "--porcelain", "-z", env={"GIT_OPTIONAL_LOCKS": "0"}) == b""
    os.utime(index, ns=(times.st_atime_ns, times.st_mtime_ns))


def assert_clean(repo: Repo) -> None:
    assert repo.status() == b""


def assert_clean_when_touched(repo: Repo, names: Iterable[str]) -> None:
    """Clean also where git has to filter every file again."""
    for name in names:
        os.utime(repo.path / name, (1_000_000_000, 1_000_000_000))
    assert repo.git("update-index", "--refresh") == b""
    assert_clean(repo)


def hash_object(repo: Repo, content: bytes) -> str:
    """Store a blob as it is, through no filter."""
    return repo.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()


def stage_blob(repo: Repo, name: str, content: bytes) -> None:
    """Stage a blob as a machine without the driver could have made it."""
    oid = hash_object(repo, content)
    repo.git("update-index", "--add", "--cacheinfo", f"100644,{oid},{name}")


def work_tree(repo: Repo) -> set[str]:
    """All files of the work tree, git's own folder aside."""
    return {
        (Path(folder) / name).relative_to(repo.path).as_posix()
        for folder, folders, names in os.walk(repo.path)
        for name in names
        if ".git" not in Path(folder).relative_to(repo.path).parts and name != ".git"
    }


def states(repo: Repo, **options: Any) -> dict[str, str]:
    told = json.loads(repo.wtxtgit("status", "--json", **options).stdout)
    return {file["path"]: file["state"] for file in told["files"]}


def checks(repo: Repo) -> dict[str, dict[str, Any]]:
    told = json.loads(repo.wtxtgit("doctor", "--json", ok=(0, 1)).stdout)
    return {check["name"]: check for check in told["checks"]}


@dataclass(frozen=True)
class Trace:
    """A git command that was traced, with all git commands that it or its children started."""

    done: subprocess.CompletedProcess[bytes]
    events: tuple[dict[str, Any], ...]

    @property
    def filters(self) -> int:
        """How many filters were started, long-running or for one file."""
        words = ("filter-process", " clean -- ", " smudge -- ")
        return sum(
            any(word in " ".join(event["argv"]) for word in words)
            for event in self.events
            if event["event"] == "child_start"
        )

    @property
    def commands_of_filters(self) -> list[str]:
        """The git commands that were started by what git started, not by git itself."""
        by_git = {tuple(event["argv"]) for event in self.events if event["event"] == "child_start"}
        return [
            " ".join(event["argv"][1:])
            for event in self.events
            if event["event"] == "start"
            and "/" in event["sid"]
            and tuple(event["argv"]) not in by_git
        ]


def traced(
    repo: Repo, *arguments: str, ok: tuple[int, ...] = (0,), env: dict[str, str] | None = None
) -> Trace:
    """Run git and record what it starts."""
    log = repo.path.parent / "trace.json"
    log.unlink(missing_ok=True)
    done = repo.run(
        run.executable(), *arguments, ok=ok, env={**(env or {}), "GIT_TRACE2_EVENT": str(log)}
    )
    events = tuple(json.loads(line) for line in log.read_bytes().splitlines())
    assert events
    return Trace(done, events)


def set_launch(home: Path, command: str) -> None:
    """Have git start another command as its filter."""
    run.git("config", "--global", "filter.wtxt.process", command, cwd=home)


def filter_command() -> str:
    return LAUNCHER.command("filter-process")


@pytest.fixture(autouse=True)
def _one_thread_for_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting numpy's threads is half of the time that a filter takes for a small file."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def _little_memory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs need not be of hundreds of MiB to go to a file."""
    monkeypatch.setenv("WTXTGIT_MEMORY", "8MiB")


@pytest.fixture
def pairs(templates: Templates, tmp_path: Path, driver: None) -> Repo:
    """A repository with commit and tag v1, then v2, of every file of PAIRS; v2 checked out."""
    return Repo(templates.copy("pairs", _make_pairs, tmp_path / "repo"))


def _make_pairs(folder: Path) -> None:
    repo = copyable(folder)
    repo.track(*PATTERNS)
    for number in (1, 2):
        write_version(repo, number)
        repo.add()
        repo.commit(f"version {number}")
        repo.git("tag", f"v{number}")
    assert_clean_when_touched(repo, PAIRS)


@pytest.fixture
def diverged(templates: Templates, tmp_path: Path, driver: None) -> Repo:
    """The same, where main and topic changed none.fold in different ways since v1."""

    def make(folder: Path) -> None:
        repo = Repo(templates.copy("pairs", _make_pairs, folder))
        for branch, content in (("topic", THEIRS), ("main", OURS)):
            repo.git("checkout", "-q", "-B", branch, "v1")
            repo.write(FOLD, content)
            repo.git("commit", "-qam", branch)
        assert_clean_when_touched(repo, PAIRS)

    return Repo(templates.copy("diverged", make, tmp_path / "repo"))


@pytest.fixture
def undriven(home: Path) -> Any:
    """Take the driver from the global config, as a machine where nothing was installed."""

    def remove() -> None:
        for section in ("filter.wtxt", "merge.wtxt", "merge.wtxt-ledger", "diff.wtxt"):
            run.call("config", "--global", "--remove-section", section, cwd=home, ok=(0, 128))

    return remove


@pytest.fixture
def keys(templates: Templates, home: Path) -> None:
    """Keys of the names in `sealed.KEYS`, the same in all tests."""
    folder = home / ".config/wtxtgit/keys"

    def make(made: Path) -> None:
        for name in sealed.KEYS:
            Sealed(home).call("key", "new", "--name", name, "--no-passphrase")
        folder.rename(made)

    folder.parent.mkdir(parents=True)
    templates.copy("keys", make, folder).chmod(0o700)


@pytest.fixture
def chain(templates: Templates, tmp_path: Path, keys: None) -> Sealed:
    """A repository with two sealed checkpoints and one signer, alice, in its first commit."""
    return Sealed(templates.copy("chain", _make_chain, tmp_path / "chain"))


Grown = Callable[[str, Callable[[Sealed], object]], Sealed]


@pytest.fixture
def grown(templates: Templates, chain: Sealed) -> Grown:
    """The chain with what is done to it once, for all tests that name it alike."""

    def grown(name: str, grow: Callable[[Sealed], object]) -> Sealed:
        templates.grow(name, chain.path, lambda folder: grow(Sealed(folder)))
        return chain

    return grown


@pytest.fixture
def pastable(chain: Sealed) -> Sealed:
    """The chain, with trust root and key in its config: what is told of it can be pasted."""
    chain.git("config", "wtxtgit.trustRoot", sealed.ROOT)
    chain.git("config", "wtxtgit.signingKey", "alice")
    make_pastable(chain)
    return chain


def _make_chain(folder: Path) -> None:
    sealed.make(folder)
    # Git's examples would be copied each time.
    for example in (folder / ".git/hooks").glob("*.sample"):
        example.unlink()


@pytest.fixture
def base(templates: Templates, tmp_path: Path, keys: None) -> Sealed:
    """The same with a file that no filter is for (tag `root`), and a second generation (`c2`)."""
    make = partial(_make_base, templates)
    return Sealed(templates.copy("base", make, tmp_path / "chain"))


def _make_base(templates: Templates, folder: Path) -> None:
    repo = Sealed(templates.copy("chain", _make_chain, folder))
    repo.write(hostile.DATA, '{"eos": 1}\n')
    repo.add(hostile.DATA)
    repo.seal(hostile.DATA)
    repo.commit("tokenizer")
    repo.git("tag", "-f", sealed.ROOT)
    repo.generation(2.0)
    repo.git("tag", hostile.SECOND)
    hostile.honest(repo)


@pytest.fixture
def revoked(templates: Templates, base: Sealed) -> Sealed:
    """The same, where mallory was a signer up to the tag `before`, and is none any more."""

    def make(folder: Path) -> None:
        repo = Sealed(templates.copy("base", partial(_make_base, templates), folder))
        repo.add_signer("mallory")
        repo.change_signers("alice")
        repo.generation(3.0, key="mallory")
        repo.git("tag", hostile.BEFORE)
        hostile.remove_mallory(repo)
        repo.git("tag", hostile.REVOKED)
        hostile.honest(repo)

    return Sealed(templates.copy("revoked", make, base.path))


@pytest.fixture
def two(templates: Templates, base: Sealed) -> Sealed:
    """The same as `base`, where alice and bob have to agree on who the signers are; tag `two`."""

    def make(folder: Path) -> None:
        repo = Sealed(templates.copy("base", partial(_make_base, templates), folder))
        repo.add_signer("bob")
        repo.set_threshold(2)
        repo.change_signers("alice")
        repo.git("tag", "two")
        hostile.honest(repo)

    return Sealed(templates.copy("two", make, base.path))
