"""`wtxtgit store`: what it says, and its exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.kit import Repo
from tests.store.chunks import SIZE, added, damage, named, nbytes, packs, weights
from wtxtgit.report.figures import size
from wtxtgit.store.store import Store


@pytest.fixture
def store(repo: Repo) -> Store:
    """The store of a repository, with two packs."""
    made = Store(repo.path / ".git/wtxt/store")
    added(made, weights(2))
    added(made, weights(1, seed=5))
    return made


def run(repo: Repo, verb: str, *options: str, code: int = 0) -> subprocess.CompletedProcess[bytes]:
    return repo.wtxtgit("store", verb, *options, ok=[code])


class TestList:
    def test_packs(self, repo: Repo, store: Store) -> None:
        said = run(repo, "ls").stdout.decode()
        for path in packs(store):
            assert path.stem[:12] in said
        assert said.endswith(
            f"{store.folder}: 2 packs, {size(nbytes(store))}; they hold 3 chunks, 48 KiB\n"
        )
        told = json.loads(run(repo, "ls", "--json").stdout)
        assert [pack["pack"] for pack in told["packs"]] == [path.stem for path in packs(store)]
        assert (told["chunks"], told["payload"]) == (3, 3 * SIZE)

    def test_nothing(self, repo: Repo) -> None:
        assert run(repo, "ls").stdout.decode() == (
            f"{repo.path / '.git/wtxt/store'}: 0 packs, 0 B; they hold 0 chunks, 0 B\n"
        )

    def test_stores_of_alternates_are_told(self, repo: Repo, store: Store) -> None:
        repo.commit()
        clone = repo.clone("clone", "--shared")
        assert f"also reads: {store.folder}\n" in run(clone, "ls").stdout.decode()


class TestVerify:
    def test_all_is_well(self, repo: Repo, store: Store) -> None:
        assert run(repo, "verify").stdout == b"ok  2 packs, 3 chunks, 48 KiB\n"
        assert json.loads(run(repo, "verify", "--json").stdout)["ok"] is True

    def test_damage(self, repo: Repo, store: Store) -> None:
        path = next(path for path in packs(store) if path.stat().st_size > SIZE * 3 // 2)
        damage(path, at=100)
        done = run(repo, "verify", code=1)
        error = done.stderr.decode()
        assert f"wtxtgit: error: {path} has a SHA-256 other than its name states\n" in error
        lost = named(weights(2)[0]).hex()
        assert f"wtxtgit: error: {path}: chunk {lost} does not match its SHA-256\n" in error
        assert f"wtxtgit: error: chunk {lost} is lost\n" in error
        assert "wtxtgit: error: 1 pack of 2 damaged\nwtxtgit: hint: wtxtgit store repack" in error
        assert done.stdout == b""
        told = json.loads(run(repo, "verify", "--json", code=1).stdout)
        assert told["lost"] == [lost]
        assert told["damaged"][0]["pack"] == path.stem


class TestRepack:
    def test_small_packs(self, repo: Repo, store: Store) -> None:
        said = run(repo, "repack").stdout.decode()
        assert said.startswith(f"{store.folder}: 2 packs, ")
        assert " before, 1 pack, " in said
        assert said.endswith(" now; 0 duplicate chunks dropped\n")
        assert run(repo, "verify").stdout == b"ok  1 pack, 3 chunks, 48 KiB\n"

    def test_damage_is_set_aside(self, repo: Repo, store: Store) -> None:
        path = next(path for path in packs(store) if path.stat().st_size > SIZE * 3 // 2)
        damage(path, at=100)
        done = run(repo, "repack", "--json", code=1)
        assert json.loads(done.stdout)["aside"][0]["pack"] == path.stem
        assert Path(f"{path}.damaged").exists()
        assert run(repo, "verify").stdout == b"ok  1 pack, 2 chunks, 32 KiB\n"


def test_outside_of_a_repository(tmp_path: Path) -> None:
    for verb in ("ls", "verify", "repack"):
        done = run(Repo(tmp_path), verb, code=5)
        assert b"not in a git repository" in done.stderr
