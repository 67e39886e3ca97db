"""Objects that nothing reaches yet, while git collects: the index and refs never lack one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import pytest

from tests.e2e.sealed import Sealed
from tests.kit import Repo, safetensors

MODEL = "model.safetensors"
LARGE = safetensors(*range(40_000))
COLLECTIONS = [
    ("repack", "-adq"),
    ("repack", "-Adq"),
    ("gc", "-q", "--prune=now"),
    ("prune", "--expire=now"),
    ("maintenance", "run", "--quiet", "--task=gc"),
]
ALL = pytest.mark.parametrize("collects", COLLECTIONS, ids=" ".join)
Prepare = Callable[[Sealed], object]


@pytest.fixture(params=["attached", "detached"])
def here(repo: Repo, driver: None, request: pytest.FixtureRequest) -> Sealed:
    """A repository with a commit, in which *.safetensors is tracked."""
    options = ["--detached"] if request.param == "detached" else []
    here = Sealed(repo.path)
    here.call("track", *options, "*.safetensors")
    here.write("first.safetensors", LARGE)
    here.add()
    here.commit()
    return here


def before(monkeypatch: pytest.MonkeyPatch, where: str, do: Callable[[], object]) -> None:
    """Have something done each time before a function is called."""
    module, _, name = where.rpartition(".")
    function = getattr(import_module(module), name)

    def first(*arguments: object, **options: object) -> object:
        do()
        return function(*arguments, **options)

    monkeypatch.setattr(where, first)


def keeps(repo: Sealed) -> list[Path]:
    return [*(repo.path / ".git/objects/pack").glob("*.keep")]


def assert_whole(repo: Sealed) -> None:
    """Nothing is missing, and nothing is kept from the next collection."""
    repo.git("fsck", "--full", "--strict", "--no-dangling", "--connectivity-only")
    repo.git("cat-file", "-e", f":{MODEL}")
    assert keeps(repo) == []
    repo.git("gc", "-q", "--prune=now")
    assert repo.git("count-objects", "-v").split(b"\n")[3] == b"packs: 1"
    repo.git("fsck", "--full", "--strict", "--no-dangling")


@ALL
def test_add(here: Sealed, monkeypatch: pytest.MonkeyPatch, collects: Sequence[str]) -> None:
    here.write(MODEL, safetensors(*range(50_000)))
    before(monkeypatch, "wtxtgit.filter.add.stage_files", lambda: here.git(*collects))
    here.call("add", "-A")
    assert_whole(here)
    here.commit()
    assert here.status() == b""


def unreached(repo: Sealed) -> None:
    """The blob is in a pack, and nothing reaches it any more."""
    repo.write(MODEL, safetensors(*range(50_000)))
    repo.add()
    repo.commit()
    repo.git("repack", "-adq")
    repo.git("reset", "-q", "--soft", "HEAD~1")
    repo.git("rm", "-q", "--cached", MODEL)
    repo.git("reflog", "expire", "--expire=now", "--all")
    (repo.path / ".git/ORIG_HEAD").unlink(missing_ok=True)


@ALL
def test_add_of_what_was_there_unreached(
    here: Sealed, monkeypatch: pytest.MonkeyPatch, collects: Sequence[str]
) -> None:
    unreached(here)
    calls = iter([lambda: here.git(*collects)])
    before(monkeypatch, "wtxtgit.filter.add.stage_files", lambda: next(calls, str)())
    here.call("add", "-A")
    assert_whole(here)


def test_adding_again_heals_an_index_that_names_a_missing_blob(here: Sealed) -> None:
    here.write(MODEL, safetensors(*range(50_000)))
    here.call("add", MODEL)
    for suffix in ("pack", "idx"):
        for file in (here.path / ".git/objects/pack").glob(f"*.{suffix}"):
            file.unlink()
    here.git("cat-file", "-e", f":{MODEL}", ok=(1, 128))
    here.call("add", MODEL)
    assert_whole(here)


@ALL
@pytest.mark.parametrize("word", ["import", "export"])
def test_migrate(
    repo: Repo,
    driver: None,
    monkeypatch: pytest.MonkeyPatch,
    collects: Sequence[str],
    word: str,
) -> None:
    here = Sealed(repo.path)
    if word == "export":
        here.call("track", "*.safetensors")
    for version in (1, 2):
        here.write(MODEL, safetensors(*range(version, 40_000)))
        here.add()
        here.commit()
    before(monkeypatch, "wtxtgit.rewrite.migrate.move_refs", lambda: here.git(*collects))
    include = ["--include=*.safetensors"] if word == "import" else []
    here.call("migrate", word, *include, "--everything")
    here.git("fsck", "--full", "--strict", "--no-dangling")
    assert keeps(here) == []


@pytest.mark.slow
def test_what_a_killed_add_kept_is_removed_by_the_next_one(
    here: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write(MODEL, safetensors(*range(50_000)))
    child = os.fork()
    if not child:
        kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731 - as a function
        monkeypatch.setattr("wtxtgit.filter.add.stage_files", kill)
        try:
            here.call("add", MODEL)
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert keeps(here)
    (kept,) = [*(here.path / ".git/objects/pack").glob("pack-*.pack")][:1]
    of_user = kept.with_name("pack-0.keep")
    of_user.write_bytes(b"")
    here.call("add", MODEL)
    assert keeps(here) == [of_user]
    of_user.unlink()
    assert_whole(here)
