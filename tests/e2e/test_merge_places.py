"""Where merges happen: worktrees, bare repositories, odd names, renames, virtual bases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.conftest import assert_clean, hash_object
from tests.e2e.merging import (
    Sides,
    assert_merged,
    bring,
    diverge,
    file_of,
    open_names,
    records,
    resolve,
    unmerged,
)
from tests.e2e.weights import SAFETENSORS, Model, base, edited
from tests.kit import ATTRIBUTES, Repo

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("driver")]

NAME = SAFETENSORS.name
MINE = edited(base(), {"embed": {3: -1.0}})
OTHER = edited(base(), {"embed": {4: -2.0}})
CROSSING = edited(base(), {"embed": {3: -3.0}})
BOTH = edited(MINE, {"embed": {4: -2.0}})


def of(*models: Model) -> Sides:
    first, second, third = (SAFETENSORS.make(model) for model in models)
    return first, second, third


APART, IN_CONFLICT = of(base(), MINE, OTHER), of(base(), MINE, CROSSING)

ODD_NAMES = (
    "with space.safetensors",
    'it\'s "quoted" $(id) `id`.safetensors',
    "-o.safetensors",
    "sub/deep er/%A %O.safetensors",
    "*?[x].safetensors",
    ":(top)x.safetensors",
    "gewicht-ü.safetensors",
)


def test_odd_names(repo: Repo) -> None:
    apart = dict.fromkeys(ODD_NAMES, APART)
    conflict = {f"c/{name}": IN_CONFLICT for name in ODD_NAMES}
    diverge(repo, {**apart, **conflict})
    said = bring(repo, "merge", ok=(1,)).stderr.decode()
    assert unmerged(repo) == sorted(conflict)
    assert sorted(records(repo)) == sorted(conflict)
    for name in ODD_NAMES:
        assert_merged(repo, SAFETENSORS, BOTH, name)
        assert f"wtxtgit: error: c/{name}: both sides changed it" in said
        resolve(repo, "--take", "embed=theirs", "--", f"c/{name}")
        assert_merged(repo, SAFETENSORS, CROSSING, f"c/{name}")
    assert not (repo.path / ".git/wtxt-conflicts").exists()


def test_a_hint_can_be_pasted(repo: Repo) -> None:
    name = "it's $(touch x) -- a.safetensors"
    diverge(repo, {name: IN_CONFLICT})
    said = bring(repo, "merge", ok=(1,)).stderr.decode()
    commands = said.rpartition("; ")[2].replace(" takes the other file, then ", " && ")
    repo.run("sh", "-c", commands.strip())
    assert unmerged(repo) == []
    assert file_of(repo, name) == SAFETENSORS.make(CROSSING)
    assert not (repo.path / "x").exists()


def test_a_name_that_is_not_utf8(repo: Repo) -> None:
    name = b"\xff\xfe.safetensors"
    shown = os.fsdecode(name)
    diverge(repo, {shown: IN_CONFLICT})
    said = bring(repo, "merge", ok=(1,)).stderr
    assert b"both sides changed it" in said
    assert b"Traceback" not in said
    assert file_of(repo, shown) == IN_CONFLICT[1]
    repo.wtxtgit("resolve", shown, "--take", "embed=theirs")
    assert_merged(repo, SAFETENSORS, CROSSING, shown)


def test_a_linked_worktree_has_records_of_its_own(repo: Repo, tmp_path: Path) -> None:
    diverge(repo, {NAME: IN_CONFLICT})
    repo.git("worktree", "add", "-q", "-b", "linked", str(tmp_path / "linked"), "main")
    linked = Repo(tmp_path / "linked")
    bring(linked, "merge", ok=(1,))
    assert (repo.path / f".git/worktrees/linked/wtxt-conflicts/{NAME}.json").is_file()
    assert records(repo) == {}
    assert "no conflict" in resolve(repo, NAME, ok=(3,)).err
    bring(repo, "merge", ok=(1,))
    resolve(linked, NAME, "--take", "embed=theirs")
    assert_merged(linked, SAFETENSORS, CROSSING)
    assert open_names(repo, NAME) == {"embed": [[3, 4]]}
    assert unmerged(repo) == [NAME]


def test_one_side_renames_the_file(repo: Repo) -> None:
    diverge(repo, {NAME: APART, "sub/two.safetensors": IN_CONFLICT})
    repo.git("mv", NAME, "renamed.safetensors")
    repo.git("mv", "sub", "moved")
    repo.commit("renamed")
    bring(repo, "merge", ok=(1,))
    assert_merged(repo, SAFETENSORS, BOTH, "renamed.safetensors")
    assert not (repo.path / NAME).exists()
    assert unmerged(repo) == ["moved/two.safetensors"]
    resolve(repo, "moved/two.safetensors", "--take", "embed=theirs")
    repo.git("commit", "-q", "--no-edit")
    assert_clean(repo)


def test_one_side_removes_what_the_other_changed(repo: Repo) -> None:
    diverge(repo, {NAME: APART})
    repo.git("rm", "-q", NAME)
    repo.commit("removed")
    merge = bring(repo, "merge", ok=(1,))
    assert b"CONFLICT (modify/delete)" in merge.stdout
    assert b"wtxtgit" not in merge.stderr
    assert file_of(repo, NAME) == APART[2]
    assert records(repo) == {}


def test_bases_that_are_merged_themselves(repo: Repo) -> None:
    """Two branches that merged each other: git merges their two bases first."""
    diverge(repo, {NAME: APART})
    repo.git("branch", "mine", "main")
    repo.git("branch", "other", "topic")
    bring(repo, "merge")
    repo.git("checkout", "-q", "topic")
    repo.git("merge", "-q", "--no-edit", "mine")
    for branch, row in (("topic", 10), ("main", 11)):
        repo.git("checkout", "-q", branch)
        repo.write(NAME, SAFETENSORS.make(edited(BOTH, {"embed": {row: 9.0}})))
        repo.git("commit", "-qam", branch)
    assert len(repo.git("merge-base", "--all", "main", "topic").split()) == 2
    bring(repo, "merge")
    assert_merged(repo, SAFETENSORS, edited(BOTH, {"embed": {10: 9.0, 11: 9.0}}))


def test_bases_that_conflict_with_each_other(repo: Repo) -> None:
    """Git goes on with what the driver leaves of them; what is told is of the merge itself."""
    diverge(repo, {NAME: IN_CONFLICT})
    repo.git("branch", "mine", "main")
    settled = edited(base(), {"embed": {3: -9.0}})
    for branch, other in (("main", "topic"), ("topic", "mine")):
        repo.git("checkout", "-q", branch)
        repo.run("git", "merge", "-q", other, ok=(1,))
        repo.write(NAME, SAFETENSORS.make(settled))
        repo.add()
        repo.commit("settled")
    for branch, row in (("topic", 10), ("main", 11)):
        repo.git("checkout", "-q", branch)
        repo.write(NAME, SAFETENSORS.make(edited(settled, {"embed": {row: 9.0}})))
        repo.git("commit", "-qam", branch)
    bring(repo, "merge", ok=(0, 1))
    assert unmerged(repo) == []
    assert_merged(repo, SAFETENSORS, edited(settled, {"embed": {10: 9.0, 11: 9.0}}))
    assert_clean(repo)


@pytest.mark.parametrize("bare", [True, False])
def test_a_merge_of_trees(repo: Repo, bare: bool) -> None:
    """What forges run: there is no work tree, and nothing of a merge is under way."""
    diverge(repo, {"apart.safetensors": APART, "two.safetensors": IN_CONFLICT})
    where = repo.clone("bare", "--bare") if bare else repo
    folder = where.path / ("info" if bare else ".git/info")
    folder.mkdir(exist_ok=True)
    (folder / "attributes").write_text(f"*.safetensors {ATTRIBUTES}\n")
    before = where.git("for-each-ref")
    done = where.run("git", "merge-tree", "--write-tree", "main", "topic", ok=(1,))
    assert b"wtxtgit: error: two.safetensors: both sides changed it" in done.stdout + done.stderr
    tree = done.stdout.split()[0].decode()
    blobs = {name: where.blob(name, tree) for name in ("apart.safetensors", "two.safetensors")}
    assert blobs["two.safetensors"] == repo.blob("two.safetensors", "main")
    merged = hash_object(repo, blobs["apart.safetensors"])
    repo.git("update-index", "--cacheinfo", f"100644,{merged},apart.safetensors")
    repo.git("checkout", "--", "apart.safetensors")
    assert_merged(repo, SAFETENSORS, BOTH, "apart.safetensors")
    assert where.git("for-each-ref") == before


def test_an_octopus_asks_no_driver(repo: Repo) -> None:
    """Git merges lines then, which conflict: it gives up, and nothing is blended."""
    diverge(repo, {NAME: APART})
    repo.git("checkout", "-q", "-b", "third", "base")
    repo.write("readme", "x")
    repo.add()
    repo.commit("third")
    repo.git("checkout", "-q", "main")
    done = repo.run("git", "merge", "-q", "--no-edit", "topic", "third", ok=(2,))
    assert b"Should not be doing an octopus." in done.stdout
    repo.git("reset", "-q", "--hard")
    assert file_of(repo, NAME) == APART[1]
    assert_clean(repo)


def test_a_merge_that_is_taken_back(repo: Repo) -> None:
    diverge(repo, {NAME: IN_CONFLICT})
    bring(repo, "merge", ok=(1,))
    repo.git("merge", "--abort")
    assert file_of(repo, NAME) == IN_CONFLICT[1]
    assert_clean(repo)
    assert "no conflict" in resolve(repo, NAME, ok=(3,)).err


def test_squash_and_no_commit(repo: Repo) -> None:
    diverge(repo, {NAME: APART})
    for option in ("--squash", "--no-commit"):
        repo.git("merge", "-q", option, "topic")
        assert_merged(repo, SAFETENSORS, BOTH)
        repo.git("reset", "-q", "--hard", "main")


def test_revert_of_an_older_commit(repo: Repo) -> None:
    """A revert is a merge whose base is the commit: it takes back its rows, and no others."""
    diverge(repo, {NAME: APART})
    repo.write(NAME, SAFETENSORS.make(BOTH))
    repo.git("commit", "-qam", "another row")
    repo.git("revert", "--no-edit", "HEAD~1")
    assert_merged(repo, SAFETENSORS, OTHER)
    assert_clean(repo)
