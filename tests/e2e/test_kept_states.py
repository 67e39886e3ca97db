"""States that hooks keep: the same as a walk of all finds, and no walk where they lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.sealed import MODEL, ROOT, Sealed, text
from wtxtgit.chain.reader import ChainReader
from wtxtgit.chain.state_cache import StateCache
from wtxtgit.chain.walk import Walk
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.repository import Repository
from wtxtgit.trust.state import TrustState


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "facts.key"


def walked(repo: Sealed, key_file: Path | None, root: str = ROOT) -> tuple[TrustState, int]:
    """The state at HEAD, and how many commits were walked for it."""
    found = Repository.discover(repo.path)
    kept = None if key_file is None else StateCache(found, key_file)
    with BlobReader(found) as blobs, CommitFilesReader(found) as snapshots:
        walk = Walk.to(found, [repo.head], root, ChainReader(blobs), snapshots, cache=kept)
        return walk.state(repo.head), len(walk.commits)


def history(repo: Sealed) -> None:
    """Generations, a rotation, two branches that were joined, a move, a deletion."""
    repo.generation(2.0)
    repo.add_signer("bob")
    repo.change_signers("alice")
    repo.branch("side")
    repo.generation(3.0, key="bob")
    repo.switch("main")
    repo.generation(4.0)
    repo.git("merge", "-q", "-s", "ours", "--no-commit", "side")
    repo.seal("--reseal")
    repo.commit("joined")
    for suffix in ("", ".wsum"):
        repo.git("mv", MODEL + suffix, "moved" + MODEL + suffix)
    repo.seal()
    repo.commit("moved")


def test_a_kept_state_is_the_one_that_a_walk_finds(chain: Sealed, key_file: Path) -> None:
    history(chain)
    whole, commits = walked(chain, None)
    assert walked(chain, key_file) == (whole, commits)
    assert walked(chain, key_file) == (whole, 0)
    chain.generation(5.0, name="moved" + MODEL)
    assert walked(chain, key_file) == (walked(chain, None)[0], 1)


def test_of_another_root_nothing_is_kept(chain: Sealed, key_file: Path) -> None:
    history(chain)
    walked(chain, key_file)
    later = chain.oid("HEAD~1")
    assert walked(chain, key_file, later) == walked(chain, None, later)


def test_of_another_home_nothing_is_believed(chain: Sealed, key_file: Path, tmp_path: Path) -> None:
    history(chain)
    _, commits = walked(chain, key_file)
    assert walked(chain, tmp_path / "other" / "facts.key")[1] == commits


def test_what_broke_a_rule_is_not_kept(chain: Sealed, key_file: Path) -> None:
    chain.write(MODEL, text(2.0))
    chain.git("rm", "-q", "--cached", MODEL + ".wsum")
    chain.add(MODEL)
    chain.commit("its ledger is gone")
    assert walked(chain, key_file)[1] == walked(chain, key_file)[1] == 1
