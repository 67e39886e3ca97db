"""What git-lfs has fetched becomes payload and texts, without a checkout."""

from __future__ import annotations

import json
import shutil
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.test_detached import ATTRIBUTES, MODEL, NAME
from tests.kit import Repo, safetensors
from tests.kit.lfs import kept_by_lfs
from wtxtgit.filter.from_lfs import import_objects
from wtxtgit.git import run
from wtxtgit.remotes.lfs_objects import DAMAGED, MISSING
from wtxtgit.report.store import StoreImported
from wtxtgit.store.place import store_of
from wtxtgit.store.store import Store

OTHER = b"no checkpoint" * 10_000


def changed(model: bytes, seed: int = 1) -> bytes:
    """The next version: some of its last bytes are others."""
    return model[:-400] + np.random.default_rng(seed).bytes(400)


def put(repo: Repo, path: str, content: bytes) -> Path:
    """What git-lfs does when it adds a file; gives its object."""
    pointer, place = kept_by_lfs(repo.path / ".git/lfs", content)
    repo.write(path, pointer)
    return place


@pytest.fixture
def repo(repo: Repo) -> Repo:
    """Two versions of a checkpoint, and something else, as git-lfs keeps them."""
    put(repo, NAME, MODEL)
    put(repo, "other.bin", OTHER)
    repo.add()
    repo.commit()
    put(repo, NAME, changed(MODEL))
    repo.write("plain.txt", "version of nothing")
    repo.add()
    repo.commit()
    return repo


def imported(repo: Repo, *paths: bytes, history: bool = False) -> StoreImported:
    return import_objects(repo.repository, ["HEAD"], paths, with_history=history)


def packs(repo: Repo) -> int:
    return sum(Store(repo.path / ".git/wtxt/store").own.names.values())


def test_a_version_gets_in_without_a_checkout(repo: Repo, driver: None) -> None:
    done = imported(repo)
    assert (done.lacking, done.others) == ((), 1)
    (one,) = done.objects
    assert (one.path, one.object) == (NAME.encode(), sha256(changed(MODEL)).hexdigest())
    assert one.detached
    assert done.nbytes == packs(repo)
    # The text is the one that git would get from the file.
    repo.write(".gitattributes", ATTRIBUTES)
    repo.write(NAME, changed(MODEL))
    repo.add()
    assert repo.git("rev-parse", f":{NAME}").decode().strip() == one.blob
    assert imported(repo).nbytes == 0


def test_its_blob_is_all_that_the_index_needs(repo: Repo, driver: None) -> None:
    (one,) = imported(repo).objects
    repo.write(".gitattributes", ATTRIBUTES)
    repo.git("update-index", "--cacheinfo", f"100644,{one.blob},{NAME}")
    repo.git("checkout", "--", NAME)
    assert (repo.path / NAME).read_bytes() == changed(MODEL)


@pytest.mark.parametrize("command", [("wtxtgit", "add"), ("git", "add")])
def test_a_pointer_that_is_added_is_told(repo: Repo, driver: None, command: list[str]) -> None:
    repo.write(".gitattributes", ATTRIBUTES)
    call = repo.wtxtgit if command[0] == "wtxtgit" else partial(repo.run, run.executable())
    put(repo, "new.safetensors", MODEL)
    done = call("add", "new.safetensors")
    assert (
        "new.safetensors: a git-lfs pointer, not the file that it points to" in done.stderr.decode()
    )
    assert repo.blob("new.safetensors") == (repo.path / "new.safetensors").read_bytes()
    assert not packs(repo)


def test_of_a_history_a_version_takes_what_it_differs_by(repo: Repo) -> None:
    first = packs(repo)
    imported_all = imported(repo, history=True)
    assert [one.object for one in imported_all.objects] == [
        sha256(content).hexdigest() for content in (MODEL, changed(MODEL))
    ]
    assert imported_all.others == 1
    both = packs(repo) - first
    shutil.rmtree(repo.path / ".git/wtxt/store")
    imported(repo)
    assert both < packs(repo) * 1.2


def test_of_a_folder_all_versions_are_taken_wherever_else_they_were(repo: Repo) -> None:
    # Git lists an object once, by one of its paths.
    put(repo, "kept/here.safetensors", MODEL)
    put(repo, "a.safetensors", MODEL)
    repo.add()
    repo.commit()
    # Equal to one parent of a merge, so that git's own log would leave out the other one.
    repo.git("checkout", "-q", "-b", "side")
    put(repo, "kept/here.safetensors", changed(MODEL, 2))
    repo.add()
    repo.commit()
    repo.git("checkout", "-q", "-")
    put(repo, "other.bin", OTHER + b"2")
    repo.add()
    repo.commit()
    repo.git("merge", "-q", "-s", "ours", "-m", "m", "side")
    done = imported(repo, b"kept", history=True)
    assert {(one.path, one.object) for one in done.objects} == {
        (b"kept/here.safetensors", sha256(content).hexdigest())
        for content in (MODEL, changed(MODEL, 2))
    }


def test_what_is_named_is_taken_whatever_it_is(repo: Repo) -> None:
    (one,) = imported(repo, b"other.bin").objects
    assert one.detached
    assert store_of(repo.repository).own.names
    repo.write("small.safetensors", b"")
    put(repo, "small.safetensors", safetensors(1.0))
    repo.add()
    repo.commit()
    (small,) = imported(repo, b"small.safetensors").objects
    assert not small.detached


@pytest.mark.parametrize("history", [(), ("--all",)])
@pytest.mark.parametrize("name", ["nothing", "../elsewhere", "/etc"])
def test_a_path_at_which_there_is_nothing(repo: Repo, name: str, history: tuple[str, ...]) -> None:
    done = repo.wtxtgit("store", "import", "--from-lfs", *history, name, ok=[2])
    assert done.stderr.startswith(b"wtxtgit: error: no file of 'HEAD' matches ")
    assert name.encode() in done.stderr
    repo.wtxtgit("store", "import", "--from-lfs", *history, "plain.txt")


def test_what_git_lfs_lacks_is_told(repo: Repo) -> None:
    gone = put(repo, "a/gone.safetensors", b"1" + MODEL)
    damaged = put(repo, "damaged.safetensors", b"2" + MODEL)
    short = put(repo, "short.safetensors", b"3" + MODEL)
    repo.add()
    repo.commit()
    gone.unlink()
    damaged.write_bytes(b"x" + MODEL)
    short.write_bytes(MODEL)
    done = imported(repo)
    assert [(one.path, one.why) for one in done.lacking] == [
        (b"a/gone.safetensors", MISSING),
        (b"damaged.safetensors", DAMAGED),
        (b"short.safetensors", MISSING),
    ]
    assert len(done.objects) == 1


@pytest.mark.parametrize("is_absolute", [False, True])
def test_where_git_lfs_has_its_objects(repo: Repo, is_absolute: bool) -> None:
    elsewhere = repo.path.parent / "elsewhere" if is_absolute else repo.path / ".git/elsewhere"
    (repo.path / ".git/lfs").rename(elsewhere)
    assert imported(repo).lacking
    repo.git("config", "lfs.storage", str(elsewhere) if is_absolute else "elsewhere")
    assert len(imported(repo).objects) == 1


def test_objects_of_alternates_are_found(repo: Repo) -> None:
    clone = repo.clone("clone", "--shared")
    assert len(imported(clone).objects) == 1


def test_a_link_is_not_followed(repo: Repo) -> None:
    place = put(repo, NAME, changed(MODEL))
    place.rename(repo.path / "elsewhere")
    place.symlink_to(repo.path / "elsewhere")
    assert [one.why for one in imported(repo).lacking] == [MISSING]


@pytest.mark.slow
def test_the_command(repo: Repo) -> None:
    def call(*words: str, code: int = 0) -> tuple[str, str]:
        done = repo.wtxtgit("store", "import", *words, ok=[code])
        return done.stdout.decode(), done.stderr.decode()

    assert "--from-lfs" in call(code=2)[1]
    said, _ = call("--from-lfs", "-n")
    assert "1 object skipped, not checkpoints\n1 object of git-lfs would be" in said
    assert packs(repo) == 0
    said, _ = call("--from-lfs", "HEAD~1", NAME)
    told = json.loads(call("--from-lfs", "--json", "HEAD~1", NAME)[0])
    (one,) = told["objects"]
    assert (one["path"], one["detached"], told["lacking"]) == (NAME, True, [])
    assert f"{sha256(MODEL).hexdigest()[:12]}" in said
    assert one["blob"] in said
    shutil.rmtree(repo.path / ".git/lfs")
    _, error = call("--from-lfs", "--all", code=5)
    assert error.count(MISSING) == 3
    assert error.count("git lfs fetch --all") == 1
    assert call("--from-lfs", code=5)[1].endswith("hint: git lfs fetch --all\n")


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("git-lfs") is None, reason="git-lfs is not installed: apt install git-lfs"
)
def test_of_git_lfs_itself(repo: Repo, home: Path) -> None:
    repo.git("config", "filter.lfs.clean", "git-lfs clean -- %f")
    repo.write(".gitattributes", "*.safetensors filter=lfs -text\n")
    model = changed(MODEL, 3)
    repo.write(NAME, model)
    repo.add()
    repo.commit()
    (one,) = imported(repo, NAME.encode()).objects
    assert one.object == sha256(model).hexdigest()
