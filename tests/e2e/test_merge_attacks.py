"""Ways in which a merge or its settling lost what somebody had done: each is found or refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.merging import Sides, bring, diverge, held, resolve, unmerged
from tests.e2e.sealed import Sealed
from tests.e2e.weights import SAFETENSORS, Model, assert_model, base, edited
from tests.kit import Repo
from tests.kit.uncommitted import assert_kept, uncommitted
from wtxtgit.setup import install

pytestmark = pytest.mark.usefixtures("driver")
slow = pytest.mark.slow

NAME = SAFETENSORS.name


def one_row(row: int, value: float) -> Model:
    return edited(base(), {"embed": {row: value}})


def conflicting(repo: Repo) -> Repo:
    sides: Sides = (
        SAFETENSORS.make(base()),
        SAFETENSORS.make(edited(base(), {"embed": {3: 1.0, 10: 1.0}})),
        SAFETENSORS.make(edited(base(), {"embed": {3: 2.0, 20: 2.0}})),
    )
    diverge(repo, {NAME: sides})
    bring(repo, "merge", ok=(1,))
    return repo


def commit(repo: Repo, model: Model, subject: str) -> None:
    repo.write(NAME, SAFETENSORS.make(model))
    repo.git("commit", "-q", "--allow-empty", "-am", subject)


@pytest.mark.slow
def test_a_conflict_is_none_the_less_one_where_histories_cross(repo: Repo) -> None:
    """The ancestor that git makes up must not look as if one side had changed nothing."""
    repo.track(NAME)
    repo.write(NAME, SAFETENSORS.make(base()))
    repo.add()
    repo.commit("base")
    repo.git("branch", "other")
    commit(repo, one_row(5, 1.0), "one")
    repo.git("tag", "one")
    repo.git("checkout", "-q", "other")
    commit(repo, one_row(5, 2.0), "two")
    repo.git("tag", "two")
    for branch, tag, value in (("main", "two", 1.0), ("other", "one", 2.0)):
        repo.git("checkout", "-q", branch)
        repo.run("git", "merge", "-q", tag, ok=(1,))
        repo.write(NAME, SAFETENSORS.make(one_row(5, value)))
        repo.add()
        repo.commit(f"{branch} keeps {value}")
    repo.git("checkout", "-q", "main")
    merge = repo.run("git", "merge", "--no-edit", "other", ok=(1,))
    assert merge.stderr.count(b"both sides changed it") == 1
    assert unmerged(repo) == [NAME]
    assert_model(held(repo, SAFETENSORS), one_row(5, 1.0))


class TestResolveNeverOverwrites:
    def test_what_was_put_there_since(self, repo: Repo) -> None:
        conflicting(repo)
        trained = SAFETENSORS.make(one_row(40, 7.0))
        repo.write(NAME, trained)
        said = resolve(repo, NAME, "--take", "*=ours", ok=(1,))
        assert "changed since the merge" in said.err
        assert f"git add -- {NAME}" in said.err
        assert (repo.path / NAME).read_bytes() == trained
        assert unmerged(repo) == [NAME]
        repo.git("checkout", "--ours", "--", NAME)
        resolve(repo, NAME, "--take", "*=ours")
        assert_clean_index(repo)

    @slow
    def test_a_side_or_no_file_is_no_work(self, repo: Repo) -> None:
        conflicting(repo)
        repo.git("checkout", "--theirs", "--", NAME)
        resolve(repo, NAME, "--take", "*=base")
        wanted = edited(base(), {"embed": {10: 1.0, 20: 2.0}})
        assert_model(held(repo, SAFETENSORS), wanted)
        repo.git("checkout", "-q", "-m", "--", NAME)
        (repo.path / NAME).unlink()
        resolve(repo, NAME, "--take", "*=base")
        assert_model(held(repo, SAFETENSORS), wanted)

    @slow
    def test_through_a_link_into_gits_own_folder(self, repo: Repo) -> None:
        conflicting(repo)
        entries = repo.git("ls-files", "-s", "-z", "--", NAME).split(b"\0")[:-1]
        (repo.path / "sub").symlink_to(".git")
        moved = b"".join(entry.partition(b"\t")[0] + b"\tsub/config\0" for entry in entries)
        repo.git("update-index", "-z", "--index-info", stdin=moved)
        before = (repo.path / ".git" / "config").read_bytes()
        resolve(repo, "sub/config", "--take", "*=theirs", ok=(1, 3, 5))
        assert (repo.path / ".git" / "config").read_bytes() == before


def assert_clean_index(repo: Repo) -> None:
    assert unmerged(repo) == []
    assert repo.git("show", f":{NAME}").startswith(b"WTXT 1")


@slow
def test_what_is_settled_without_the_driver_is_a_text(repo: Repo, tmp_path: Path) -> None:
    sides = [
        SAFETENSORS.make(m) for m in (base(), one_row(3, 1.0), edited(base(), {"embed": {9: 2.0}}))
    ]
    diverge(repo, {NAME: (sides[0], sides[1], sides[2])})
    install.unset_driver(scope="global")
    clone = repo.clone("clone")
    clone.run("git", "merge", "--no-edit", "origin/topic", ok=(1,))
    assert b"\n<<<<<<< " in (clone.path / NAME).read_bytes()
    resolve(clone, NAME)
    assert_clean_index(clone)
    # As every checkout without the driver leaves it.
    assert (clone.path / NAME).read_bytes() == clone.git("show", f":{NAME}")
    assert clone.status() == f"M  {NAME}\0".encode()


def test_a_raw_file_of_a_branch_becomes_text(repo: Repo) -> None:
    """A branch from before the pattern was tracked still has the file as it is."""
    raw = [SAFETENSORS.make(model) for model in (base(), one_row(3, 1.0))]
    repo.write(NAME, raw[0])
    repo.add()
    repo.commit("raw")
    repo.git("checkout", "-q", "-b", "topic")
    repo.write(NAME, raw[1])
    repo.git("commit", "-qam", "trained")
    repo.git("checkout", "-q", "main")
    repo.track(NAME)
    repo.git("add", "--renormalize", ".")
    repo.add()
    repo.commit("tracked")
    repo.run("git", "merge", "--no-edit", "topic", ok=(0, 1))
    if unmerged(repo):
        resolve(repo, NAME)
    assert_clean_index(repo)
    assert_model(held(repo, SAFETENSORS), one_row(3, 1.0))


@slow
def test_a_strategy_that_settled_something_is_kept(repo: Repo) -> None:
    """What average can't settle is asked for, what it settled is not asked for again."""
    model = {**base(), "flag": base()["norm"] > 100}
    ours = {**one_row(3, 1.0), "flag": ~model["flag"]}
    theirs = {**one_row(3, 3.0), "flag": model["flag"].copy()}
    theirs["flag"][:1] ^= True
    sides = [SAFETENSORS.make(side) for side in (model, ours, theirs)]
    diverge(repo, {NAME: (sides[0], sides[1], sides[2])})
    if bring(repo, "merge", ok=(0, 1)).returncode == 0:
        pytest.fail("nothing is in conflict")
    resolve(repo, NAME, "--strategy", "average", ok=(0, 1))
    if unmerged(repo):
        resolve(repo, NAME, "--take", "flag=theirs")
    assert held(repo, SAFETENSORS)["embed"][3].tolist() == one_row(3, 2.0)["embed"][3].tolist()


@slow
def test_our_file_committed_in_the_place_of_a_merge_is_told(repo: Repo) -> None:
    Sealed(repo.path).call("install", "--local", "--hooks")
    conflicting(repo)
    told = repo.run("git", "commit", "-qam", "merged").stderr.decode()
    assert f"wtxtgit: warning: {NAME}: its conflict is not settled: our side" in told
    (hint,) = re.findall(r"hint: (git stash .*?) restores the conflict", told)
    repo.write(NAME, SAFETENSORS.make(one_row(5, 7.0)))
    before = uncommitted(repo)
    assert subprocess.run(["sh", "-c", hint], cwd=repo.path, check=False).returncode == 0
    assert_kept(repo, before)
    assert unmerged(repo)
    resolve(repo, NAME, "--strategy", "theirs")
    assert b"not settled" not in repo.run("git", "commit", "--amend", "-qm", "merged").stderr
    assert held(repo, SAFETENSORS)["embed"][20].tolist() == one_row(20, 2.0)["embed"][20].tolist()


@slow
def test_our_file_that_was_chosen_by_hand_in_another_merge_is_not(repo: Repo) -> None:
    Sealed(repo.path).call("install", "--local", "--hooks")
    conflicting(repo)
    resolve(repo, NAME, "--take", "*=theirs")
    told = repo.run("git", "commit", "-qm", "merged").stderr.decode()
    assert "is not settled" not in told


@slow
@pytest.mark.parametrize("name", ["n" * 243 + ".safetensors", "m.safetensors"])
def test_a_record_that_has_no_place_stops_no_merge(repo: Repo, name: str) -> None:
    far = edited(base(), {"embed": {20: 2.0}})
    sides: Sides = (
        SAFETENSORS.make(base()),
        SAFETENSORS.make(one_row(3, 1.0)),
        SAFETENSORS.make(far),
    )
    (repo.path / ".git" / "wtxt-conflicts" / f"{name[:240]}.json" / "x").mkdir(parents=True)
    diverge(repo, {name: sides})
    bring(repo, "merge")
    assert unmerged(repo) == []


@slow
def test_a_hint_from_a_subfolder(repo: Repo) -> None:
    name = f"sub/{NAME}"
    sides = [SAFETENSORS.make(m) for m in (base(), one_row(3, 1.0), one_row(3, 2.0))]
    diverge(repo, {name: (sides[0], sides[1], sides[2])})
    merge = repo.run("git", "merge", "topic", ok=(1,), cwd="sub")
    assert f"wtxtgit: error: {name}: both sides" in merge.stderr.decode()
    assert f"wtxtgit: hint: wtxtgit resolve {NAME} lists all conflicts" in merge.stderr.decode()


@slow
def test_conflicts_are_listed(repo: Repo) -> None:
    conflicting(repo)
    said = resolve(repo, ok=(1,))
    assert f"wtxtgit resolve {NAME}" in said.out
    resolve(repo, NAME, "--take", "*=ours")
    assert resolve(repo).out == "no checkpoint is in conflict\n"


@slow
def test_what_a_strategy_took_is_told(repo: Repo) -> None:
    repo.git("config", "wtxtgit.mergeStrategy", "theirs")
    repo.track("x.fold")
    diverge(repo, {"x.fold": (b"base", b"ours", b"theirs")})
    told = bring(repo, "merge").stderr.decode()
    assert "x.fold: theirs (incoming) is taken, by the strategy" in told
