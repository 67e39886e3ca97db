"""Damaged packs of a repository whose remote has all: each hint leads on, until all is whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.test_detached import NAME
from tests.e2e.test_store_prune import model, there
from tests.e2e.test_store_prune import own as own
from tests.kit import Repo
from tests.store.chunks import damage
from tests.store.forged import forge
from wtxtgit.store.folder import ChunkTable, format_table, parse_table

__all__ = ["own", "there"]

pytestmark = pytest.mark.slow


def left_as_text(repo: Repo) -> None:
    repo.write(NAME, repo.blob(NAME, "HEAD"))
    repo.git("update-index", "-q", "--refresh", ok=(0, 1))


def test_a_changed_byte(own: Repo) -> None:
    for pack in own.path.glob(".git/wtxt/store/packs/*.pack"):
        damage(pack, 40)
    checked = own.wtxtgit("store", "verify", ok=(1,))
    assert b"hint: wtxtgit store repack" in checked.stderr
    mended = own.wtxtgit("store", "repack", ok=(1,))
    assert b"hint: wtxtgit fetch" in mended.stderr
    left_as_text(own)
    own.wtxtgit("fetch", "HEAD~2", "HEAD~1", "HEAD")
    assert own.path.joinpath(NAME).read_bytes() == model(2)
    own.wtxtgit("store", "verify")


def test_a_pack_that_is_cut_short(own: Repo) -> None:
    for pack in own.path.glob(".git/wtxt/store/packs/*.pack"):
        pack.chmod(0o644)
        os.truncate(pack, pack.stat().st_size // 2)
    left_as_text(own)
    own.wtxtgit("fetch", "HEAD~2", "HEAD~1", "HEAD")
    assert own.path.joinpath(NAME).read_bytes() == model(2)
    own.wtxtgit("store", "verify", ok=(0, 1))
    own.wtxtgit("store", "repack", ok=(0, 1))
    own.wtxtgit("store", "verify")


@pytest.mark.parametrize(
    "lie", ["rows of others", "chunks that are missing", "chunks too many", "one place of all"]
)
def test_an_index_that_lies_keeps_nothing_from_being_written(
    own: Repo, there: Path, lie: str
) -> None:
    """Nor what only the index has from being fetched: its places stay, and the packs are others."""
    own.wtxtgit("push")
    store = own.path / ".git/wtxt/store"
    own.path.joinpath(NAME).unlink()
    forge(store, lie)
    own.wtxtgit("checkout", NAME)
    assert own.path.joinpath(NAME).read_bytes() == model(2)
    forge(store, lie)
    own.git("checkout", "-q", "HEAD~2")
    assert own.path.joinpath(NAME).read_bytes() == model(0)
    forge(store, lie)
    own.wtxtgit("verify", "--require-payload", NAME)
    forge(store, lie)
    own.wtxtgit("store", "verify")
    forge(store, lie)
    own.write(NAME, model(3))
    own.git("add", NAME)
    forge(store, lie)
    own.wtxtgit("fetch", "main", "main~1", "main~2")
    own.wtxtgit("store", "verify")
    assert own.status().startswith(b"M  ")


@pytest.mark.parametrize("words", [("fetch", "HEAD"), ("checkout", NAME), ()])
def test_what_the_index_alone_has_is_fetched(own: Repo, there: Path, words: Sequence[str]) -> None:
    own.wtxtgit("push")
    store = own.path / ".git/wtxt/store"
    index = (store / "index").read_bytes()
    packs = sorted((store / "packs").glob("*.pack"), key=lambda path: path.stat().st_size)
    packs[-1].unlink()
    # The index has all, and says it of what is there.
    told = parse_table(memoryview(index))
    kept = [(packs[0].stem, packs[0].stat().st_size)]
    numbers = memoryview(bytes(4 * told.count)).cast("I")
    forged = ChunkTable(kept, told.names, numbers, told.rows)
    (store / "index").unlink()
    (store / "index").write_bytes(b"".join(format_table(forged)))
    left_as_text(own)
    if words:
        own.wtxtgit(*words)
    else:
        own.path.joinpath(NAME).unlink()
        own.git("checkout", "--", NAME)
    assert own.path.joinpath(NAME).read_bytes() == model(2)
