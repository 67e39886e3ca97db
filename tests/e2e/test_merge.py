"""Merges that conflict: never blended, never lost, and settled with git's own commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import BASE, MODEL, OURS, THEIRS, assert_clean, states, version
from tests.e2e.conftest import FOLD as NAME
from tests.e2e.weights import row_changed
from tests.kit import Repo

pytestmark = pytest.mark.slow

ROWS = "torch_state/embed.weight row 3"


def assert_told(said: bytes, name: str = NAME, what: str = ROWS, ours: str = "HEAD") -> None:
    theirs = {"HEAD": "incoming", "what you rebase onto": "your own commit"}[ours]
    assert (
        f"wtxtgit: error: {name}: both sides changed it; ours ({ours}) is kept for now: {what}; "
        f"the file has no changes from theirs ({theirs}) yet\n"
        f"wtxtgit: hint: wtxtgit resolve {name} lists all conflicts, and --take NAME=theirs "
        f"settles one; git checkout --theirs -- {name} takes the other file, then git add -- "
        f"{name}\n"
    ) in said.decode()


def test_both_sides_changed_it(diverged: Repo) -> None:
    merge = diverged.run("git", "merge", "topic", ok=(1,))
    assert_told(merge.stderr)
    assert f"CONFLICT (content): Merge conflict in {NAME}".encode() in merge.stdout
    assert (diverged.path / NAME).read_bytes() == OURS
    assert diverged.status() == f"UU {NAME}\0".encode()
    assert states(diverged)[NAME] == "conflict"


@pytest.mark.parametrize(("side", "expected"), [("--ours", OURS), ("--theirs", THEIRS)])
def test_a_conflict_is_settled_by_a_checkout_of_one_side(
    diverged: Repo, side: str, expected: bytes
) -> None:
    diverged.run("git", "merge", "topic", ok=(1,))
    diverged.git("checkout", side, "--", NAME)
    assert (diverged.path / NAME).read_bytes() == expected
    diverged.git("add", "--", NAME)
    diverged.git("commit", "-q", "--no-edit")
    assert len(diverged.git("log", "-1", "--format=%P").split()) == 2
    assert (diverged.path / NAME).read_bytes() == expected
    assert_clean(diverged)


def test_a_conflict_is_settled_by_a_file_trained_anew(diverged: Repo) -> None:
    diverged.run("git", "merge", "topic", ok=(1,))
    diverged.write(NAME, BASE)
    diverged.git("commit", "-qam", "merged by hand")
    assert diverged.blob(NAME, "HEAD") == diverged.blob(NAME, "v1")
    assert_clean(diverged)


def test_a_merge_is_taken_back(diverged: Repo) -> None:
    diverged.run("git", "merge", "topic", ok=(1,))
    diverged.git("merge", "--abort")
    assert (diverged.path / NAME).read_bytes() == OURS
    assert_clean(diverged)


def test_a_change_of_one_side_is_taken(pairs: Repo) -> None:
    pairs.git("checkout", "-q", "-B", "topic", "v1")
    pairs.write(NAME, THEIRS)
    pairs.git("commit", "-qam", "theirs")
    pairs.git("checkout", "-q", "-B", "main", "v1")
    pairs.write("readme", "ours\n")
    pairs.add("readme")
    pairs.commit("ours")
    pairs.git("merge", "-q", "--no-edit", "topic")
    assert (pairs.path / NAME).read_bytes() == THEIRS
    assert (pairs.path / "readme").read_text() == "ours\n"
    assert_clean(pairs)


@pytest.mark.slow
def test_the_same_change_of_both_sides_is_taken(pairs: Repo) -> None:
    for branch in ("topic", "main"):
        pairs.git("checkout", "-q", "-B", branch, "v1")
        pairs.write(NAME, THEIRS)
        pairs.write(branch, "x")
        pairs.add()
        pairs.commit(branch)
    pairs.git("merge", "-q", "--no-edit", "topic")
    assert (pairs.path / NAME).read_bytes() == THEIRS
    assert_clean(pairs)


@pytest.mark.slow
def test_conflicts_of_several_files_are_told_one_by_one(pairs: Repo) -> None:
    ours = {NAME: OURS, MODEL: row_changed(version(MODEL, 1), "embed", 2)}
    for branch in ("topic", "main"):
        pairs.git("checkout", "-q", "-B", branch, "v1")
        for name, content in ours.items():
            pairs.write(name, version(name, 2) if branch == "topic" else content)
        pairs.write("single.aero", version("single.aero", 2))
        pairs.git("commit", "-qam", branch)
    merge = pairs.run("git", "merge", "topic", ok=(1,))
    for name, what in ((NAME, ROWS), (MODEL, "embed row 2")):
        assert_told(merge.stderr, name, what)
        assert (pairs.path / name).read_bytes() == ours[name]
    assert merge.stderr.count(b"wtxtgit: error: ") == len(ours)
    assert (pairs.path / "single.aero").read_bytes() == version("single.aero", 2)


def test_rebase_with_a_conflict(diverged: Repo) -> None:
    """In a rebase ours is the branch that one rebases onto."""
    diverged.git("checkout", "-q", "topic")
    said = diverged.run("git", "rebase", "main", ok=(1,)).stderr
    assert_told(said, ours="what you rebase onto")
    assert (diverged.path / NAME).read_bytes() == OURS
    diverged.git("checkout", "--theirs", "--", NAME)
    diverged.git("add", "--", NAME)
    diverged.git("rebase", "--continue", env={"GIT_EDITOR": "true"})
    assert (diverged.path / NAME).read_bytes() == THEIRS
    assert diverged.git("log", "-2", "--format=%s") == b"topic\nmain\n"
    assert_clean(diverged)


@pytest.mark.slow
def test_rebase_skip_and_abort(diverged: Repo) -> None:
    diverged.git("checkout", "-q", "topic")
    diverged.run("git", "rebase", "main", ok=(1,))
    diverged.git("rebase", "--abort")
    assert (diverged.path / NAME).read_bytes() == THEIRS
    diverged.run("git", "rebase", "main", ok=(1,))
    diverged.git("rebase", "--skip")
    assert (diverged.path / NAME).read_bytes() == OURS
    assert_clean(diverged)


@pytest.mark.slow
def test_cherry_pick_and_stash_pop_with_a_conflict(diverged: Repo) -> None:
    assert_told(diverged.run("git", "cherry-pick", "topic", ok=(1,)).stderr)
    assert (diverged.path / NAME).read_bytes() == OURS
    diverged.git("cherry-pick", "--abort")
    diverged.write(NAME, BASE)
    diverged.git("stash", "push", "-q")
    diverged.write(NAME, THEIRS)
    diverged.git("commit", "-qam", "theirs")
    diverged.run("git", "stash", "pop", "-q", ok=(1,))
    assert (diverged.path / NAME).read_bytes() == THEIRS
    assert diverged.git("stash", "list") != b"", "a stash that conflicts is kept"


@pytest.mark.parametrize("same", [pytest.param(True, marks=pytest.mark.slow), False])
def test_both_sides_add_a_file(pairs: Repo, same: bool) -> None:
    for branch, data in (("topic", THEIRS), ("main", THEIRS if same else OURS)):
        pairs.git("checkout", "-q", "-B", branch, "v1")
        pairs.write("new.fold", data)
        pairs.write(branch, "x")
        pairs.add()
        pairs.commit(branch)
    merge = pairs.run("git", "merge", "--no-edit", "topic", ok=(0 if same else 1,))
    if same:
        assert (pairs.path / "new.fold").read_bytes() == THEIRS
        assert_clean(pairs)
        return
    assert b"wtxtgit: error: new.fold: both sides changed it; ours (HEAD) is kept" in merge.stderr
    assert (pairs.path / "new.fold").read_bytes() == OURS
    pairs.git("checkout", "--theirs", "--", "new.fold")
    pairs.git("add", "--", "new.fold")
    pairs.git("commit", "-q", "--no-edit")
    assert (pairs.path / "new.fold").read_bytes() == THEIRS


def test_one_side_removes_what_the_other_changed(diverged: Repo) -> None:
    diverged.git("rm", "-q", NAME)
    diverged.git("commit", "-qm", "removed")
    merge = diverged.run("git", "merge", "topic", ok=(1,))
    assert b"CONFLICT (modify/delete)" in merge.stdout
    assert (diverged.path / NAME).read_bytes() == THEIRS
    diverged.git("add", "--", NAME)
    diverged.git("commit", "-q", "--no-edit")
    assert_clean(diverged)


@pytest.mark.slow
def test_one_side_renames_what_the_other_changed(diverged: Repo) -> None:
    diverged.git("checkout", "-q", "-B", "main", "v1")
    diverged.git("mv", NAME, "renamed.fold")
    diverged.commit("rename")
    diverged.git("merge", "-q", "--no-edit", "topic")
    assert (diverged.path / "renamed.fold").read_bytes() == THEIRS
    assert not (diverged.path / NAME).exists()
    assert_clean(diverged)


@pytest.mark.parametrize(("option", "expected"), [("ours", OURS), ("theirs", THEIRS)])
def test_a_preferred_side_is_taken_whole_or_stays_a_conflict(
    diverged: Repo, option: str, expected: bytes
) -> None:
    """Git gives a driver no word of -X: what must never happen is a blend."""
    diverged.run("git", "merge", "--no-edit", f"-X{option}", "topic", ok=(0, 1))
    assert (diverged.path / NAME).read_bytes() in (OURS, THEIRS)
    if diverged.status() == b"":
        assert (diverged.path / NAME).read_bytes() == expected


def test_the_strategy_ours(diverged: Repo) -> None:
    diverged.git("merge", "-q", "--no-edit", "-s", "ours", "topic")
    assert (diverged.path / NAME).read_bytes() == OURS
    assert_clean(diverged)


def test_without_the_driver_git_conflicts_at_the_root_line(
    diverged: Repo, undriven: Callable[[], None]
) -> None:
    undriven()
    clone = diverged.clone("clone")
    clone.run("git", "merge", "origin/topic", ok=(1,))
    lines = (clone.path / NAME).read_bytes().split(b"\n")
    start, end = lines.index(b"<<<<<<< HEAD"), lines.index(b">>>>>>> origin/topic")
    assert [line[:4] for line in lines[start:end] if line.startswith(b"root")] == [b"root"] * 2
    clone.wtxtgit("verify", NAME, ok=(1, 3))


def test_without_the_driver_changes_far_apart_conflict_too(
    pairs: Repo, undriven: Callable[[], None]
) -> None:
    """Rows at opposite ends of a tensor: line by line they would blend."""
    base = version(MODEL, 1)
    half = len(base) // 2
    for branch, at in (("topic", half - 50_000), ("main", half + 50_000)):
        pairs.git("checkout", "-q", "-B", branch, "v1")
        pairs.write(MODEL, base[:at] + bytes([base[at] ^ 1]) + base[at + 1 :])
        pairs.git("commit", "-qam", branch)
    undriven()
    clone = pairs.clone("clone")
    clone.run("git", "merge", "origin/topic", ok=(1,))
    assert clone.status() == f"UU {MODEL}\0".encode()


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["git", "wtxtgit"])
def test_a_conflict_made_without_the_driver_is_settled_with_it(
    diverged: Repo, undriven: Callable[[], None], tool: str
) -> None:
    undriven()
    clone = diverged.clone("clone")
    clone.run("git", "merge", "origin/topic", ok=(1,))
    clone.wtxtgit("install")
    if tool == "git":
        clone.git("checkout", "--theirs", "--", NAME)
        assert (clone.path / NAME).read_bytes() == THEIRS
        clone.git("add", "--", NAME)
    else:
        clone.wtxtgit("resolve", NAME, "--take", "*embed.weight=theirs")
        clone.wtxtgit("verify", NAME)
        assert clone.blob(NAME) not in (clone.blob(NAME, "HEAD"), clone.blob(NAME, "origin/topic"))
    clone.git("commit", "-q", "--no-edit")
    assert_clean(clone)


def test_a_blend_that_git_made_is_found(diverged: Repo, undriven: Callable[[], None]) -> None:
    """A driverless merge that prefers a side leaves a text of both generations."""
    config = Path(os.environ["HOME"], ".gitconfig")
    before = config.read_bytes()
    undriven()
    diverged.git("checkout", "-q", "--", ".")
    clone = diverged.clone("clone")
    clone.git("merge", "-q", "--no-edit", "-Xtheirs", "origin/topic")
    blend = (clone.path / NAME).read_bytes()
    assert blend not in (clone.blob(NAME, "origin/topic"), clone.blob(NAME, "origin/main"))
    config.write_bytes(before)
    again = clone.clone("again")
    assert (again.path / NAME).read_bytes() == blend
    assert states(again)[NAME] == "corrupt"
    assert again.wtxtgit("doctor", ok=(1,)).stdout.count(NAME.encode()) >= 1
    again.git("checkout", "v2", "--", NAME)
    assert (again.path / NAME).read_bytes() == THEIRS


@pytest.mark.slow
def test_a_merge_in_a_subfolder_and_with_a_strange_name(pairs: Repo) -> None:
    name = "sub/it's $(id).fold"
    pairs.git("checkout", "-q", "-B", "base", "v1")
    pairs.write(name, BASE)
    pairs.add()
    pairs.commit("base")
    for branch, data in (("topic", THEIRS), ("main", OURS)):
        pairs.git("checkout", "-q", "-B", branch, "base")
        pairs.write(name, data)
        pairs.git("commit", "-qam", branch)
    merge = pairs.run("git", "merge", "topic", ok=(1,), cwd="sub")
    assert b"wtxtgit: error: sub/it's $(id).fold: both sides changed it" in merge.stderr
    assert (pairs.path / name).read_bytes() == OURS
