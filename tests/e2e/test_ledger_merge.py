"""The merge driver of ledgers, through git: one side that goes on is taken, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Grown
from tests.e2e.sealed import LEDGER, MODEL, OTHER, OTHER_LEDGER, Sealed, text
from tests.kit import LAUNCHER, Repo
from wtxtgit.git.repository import Config
from wtxtgit.merge.driver import merge_ledgers

ATTRIBUTES = (
    "*.safetensors filter=wtxt diff=wtxt merge=wtxt -text\n*.wsum text eol=lf merge=wtxt-ledger\n"
)


@pytest.fixture
def driven(grown: Grown) -> Sealed:
    """The merge drivers are set up; the filter is not, texts stay texts."""
    return grown("driven", _drive)


def _drive(chain: Sealed) -> None:
    for key, value in LAUNCHER.values().items():
        if key.startswith("merge."):
            chain.git("config", key, value)
    chain.write(".gitattributes", ATTRIBUTES)
    chain.add()
    chain.commit("attributes")


@pytest.fixture
def sides(grown: Grown) -> Sealed:
    """`side` is one generation of MODEL ahead, `main` is checked out at where it began."""

    def grow(chain: Sealed) -> None:
        _drive(chain)
        chain.branch("side")
        chain.generation(2.0)
        chain.switch("main")

    return grown("sides", grow)


def merge_of(repo: Sealed, way: str, name: str, ok: tuple[int, ...] = (0,)) -> str:
    """Bring a branch in: by a merge, or by taking its last commit, or by moving onto it."""
    commands = {
        "merge": ("merge", "-q", "--no-ff", "--no-edit", name),
        "cherry-pick": ("cherry-pick", name),
        "rebase": ("rebase", "-q", name),
    }
    return repo.run("git", *commands[way], ok=ok).stderr.decode()


WAYS = pytest.mark.parametrize("way", ["merge", "cherry-pick", "rebase"])


@WAYS
def test_one_side_went_on(sides: Sealed, way: str) -> None:
    sides.generation(5.0, name=OTHER)
    merge_of(sides, way, "side")
    assert sides.ledger() == sides.ledger(revision="side")
    assert sides.ledger(OTHER_LEDGER).count(b"WSUM 1") == 2
    assert sides.audit().found == []


@pytest.mark.slow
def test_a_side_that_goes_on_from_the_other(sides: Sealed) -> None:
    """Both changed the ledger, one of them has all of the other: git alone has a conflict."""
    ledger, model = sides.ledger(revision="side"), sides.blob(MODEL, "side")
    sides.write(LEDGER, ledger)
    sides.write(MODEL, model)
    sides.add()
    sides.commit("copied")
    sides.switch("side")
    sides.generation(3.0)
    for start, branch in (("side", "main"), ("main", "side")):
        sides.branch("merging", start)
        said = merge_of(sides, "merge", branch, ok=(1,))
        assert f"{MODEL}: both sides changed it" in said
        assert LEDGER not in said
        assert LEDGER not in sides.git("ls-files", "-u").decode()
        assert sides.ledger(revision="") == sides.ledger(revision="side")
        sides.git("checkout", "-q", "side", "--", MODEL)
        sides.git("commit", "-q", "--no-edit")
        assert sides.audit().found == []


def test_signatures_of_both_kinds(sides: Sealed) -> None:
    """A record with one more signature goes on from the one without."""
    sides.git("merge", "-q", "side")
    sides.branch("cosigned")
    sides.seal("--cosign", MODEL, key="bob")
    sides.commit("cosigned")
    sides.switch("main")
    sides.seal("--cosign", MODEL, key="carol")
    sides.commit("cosigned by another")
    said = merge_of(sides, "merge", "cosigned", ok=(1,))
    assert "wtxtgit seal --reseal" in said


@WAYS
def test_both_sides_went_on(sides: Sealed, way: str) -> None:
    sides.generation(3.0)
    mine = sides.ledger(LEDGER, "HEAD" if way != "rebase" else "side")
    said = merge_of(sides, way, "side", ok=(1,))
    lines = [line for line in said.splitlines() if LEDGER in line and "wtxtgit" in line]
    (line,) = lines
    assert line == (
        f"wtxtgit: error: {LEDGER}: both sides added records; ours is kept for now: settle the "
        f"file it seals, git add that file, then run wtxtgit seal --reseal"
    )
    assert (sides.path / LEDGER).read_bytes() == mine
    assert LEDGER in sides.git("ls-files", "-u").decode()


def test_a_conflict_is_settled_as_it_says(sides: Sealed) -> None:
    sides.generation(3.0)
    merge_of(sides, "merge", "side", ok=(1,))
    sides.git("checkout", "-q", "--theirs", "--", MODEL)
    sides.add(MODEL)
    sides.call("seal", "--reseal", "--key", "alice")
    sides.git("commit", "-q", "--no-edit")
    assert sides.audit().found == []
    assert sides.blob(MODEL, "HEAD") == text(2.0)


def test_both_sides_began_one(driven: Sealed) -> None:
    new = "new.safetensors"
    driven.branch("side")
    driven.generation(2.0, name=new)
    driven.switch("main")
    driven.generation(3.0, name=new)
    mine = driven.ledger(f"{new}.wsum")
    said = merge_of(driven, "merge", "side", ok=(1,))
    assert f"{new}.wsum: both sides added records" in said
    assert (driven.path / f"{new}.wsum").read_bytes() == mine


TAKEN = [
    ("base", "one", "one", "ours"),
    ("base", "base", "one", "theirs"),
    ("base", "one", "base", "ours"),
    ("none", "base", "one", "theirs"),
    ("none", "one", "base", "ours"),
    ("base", "one", "two", None),
    ("base", "one", "other", None),
    ("base", "one", "broken", None),
    ("base", "broken", "one", None),
    ("base", "base", "broken", None),
    ("base", "broken", "base", None),
    ("base", "broken", "broken", "ours"),
    ("base", "base", "wsum", None),
    ("wsum", "wsum", "one", None),
    ("wsum", "wsum", "wsum2", "theirs"),
    ("wsum", "wsum2", "wsum", "ours"),
    ("none", "wsum", "wsum2", None),
    ("none", "wsum", "wsum", "ours"),
    ("base", "none", "one", None),
]
"""Of the base, ours and theirs: which side is taken, if any."""


class TestFiles:
    """The driver by itself, on three files."""

    @pytest.fixture
    def ledgers(self, sides: Sealed) -> dict[str, bytes]:
        sides.generation(3.0)
        return {
            "base": sides.ledger(revision="HEAD~1"),
            "one": sides.ledger(revision="side"),
            "two": sides.ledger(),
            "other": sides.ledger(OTHER_LEDGER),
            "broken": sides.ledger() + b"meta\n",
            "none": b"",
            "wsum": b"WSUM 1 a\n",
            "wsum2": b"WSUM 1 b\n",
        }

    def test_what_is_taken(self, ledgers: dict[str, bytes], tmp_path: Path) -> None:
        files = [tmp_path / name for name in ("O", "A", "B")]
        for *names, taken in TAKEN:
            for file, name in zip(files, names, strict=True):
                file.write_bytes(ledgers[name])
            assert merge_ledgers(*files) == taken, names
            _, ours, theirs = names
            wanted = theirs if taken == "theirs" else ours
            assert files[1].read_bytes() == ledgers[wanted], names


def test_install_sets_it_up_and_uninstall_takes_it_back(repo: Repo) -> None:
    repo.wtxtgit("install", "--local")
    repository = repo.repository
    value = Config(repository.home).get("merge.wtxt-ledger.driver")
    assert value == f"{LAUNCHER.command()} merge-driver --ledger -- %O %A %B %L %P"
    assert Config(repository.home).get("merge.wtxt-ledger.name")
    repo.wtxtgit("track", "*.fold")
    told = repo.git("check-attr", "merge", "a.fold.wsum", ".wtxt/signers.wsum").decode()
    assert told.count(": merge: wtxt-ledger\n") == 2
    repo.wtxtgit("uninstall", "--local")
    assert b"wtxt-ledger" not in repo.git("config", "--list")
