"""Damaged packs of a repository whose remote has all: each hint leads on, until all is whole."""

from __future__ import annotations

import os

import pytest

from tests.e2e.test_detached import NAME
from tests.e2e.test_store_prune import model, there
from tests.e2e.test_store_prune import own as own
from tests.kit import Repo
from tests.store.chunks import damage

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
