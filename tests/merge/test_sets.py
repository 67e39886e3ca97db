"""A set whose parts merged: its index is rebuilt by the merge itself, as reseal would make it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.test_reseal import change
from tests.data import FIXTURES
from tests.e2e.conftest import assert_clean_when_touched
from tests.kit import Repo
from tests.kit.templates import Templates, copyable
from wtxtgit.containers.aero import read

SOURCE = FIXTURES / "aero/aeroset_multi_a"
LISTING, INDEX, FIRST, SECOND = (
    f"set/{name}" for name in ("model.aeroset.json", "index.aero", "part-000.aero", "part-001.aero")
)


def names(repo: Repo, path: str) -> list[str]:
    return [one.name for one in read.read(memoryview((repo.path / path).read_bytes())).entries]


def changed(repo: Repo, path: str, place: int, by: int = 1) -> None:
    """Other bytes in a tensor of a part; the set's index is rebuilt."""
    change(repo.path / path, names(repo, path)[place], by)
    repo.wtxtgit("reseal", "set")


def committed(repo: Repo, message: str) -> None:
    repo.git("add", "-A")
    repo.git("commit", "-qm", message)


def base(repo: Repo, *options: str) -> None:
    repo.wtxtgit("track", *options, "*.aero")
    (repo.path / "set").mkdir()
    for file in SOURCE.iterdir():
        shutil.copyfile(file, repo.path / "set" / file.name)
    committed(repo, "base")
    repo.git("branch", "topic")


def both_sides(repo: Repo) -> None:
    """Topic and main change tensors of the same part, topic also one of the other part."""
    repo.git("checkout", "-q", "topic")
    changed(repo, FIRST, 0)
    changed(repo, SECOND, 0)
    committed(repo, "topic")
    repo.git("checkout", "-q", "main")
    changed(repo, FIRST, -1)
    committed(repo, "main")


def with_sides(templates: Templates, folder: Path, form: tuple[str, ...] = ()) -> Repo:
    def make(made: Path) -> None:
        repo = copyable(made)
        base(repo, *form)
        both_sides(repo)
        assert_clean_when_touched(repo, repo.git("ls-files", "-z").decode().split("\0")[:-1])

    return Repo(templates.copy(" ".join(("sides of a set", *form)), make, folder))


@pytest.fixture
def sides(templates: Templates, tmp_path: Path, driver: None) -> Repo:
    """What `both_sides` makes of a set; main is checked out."""
    return with_sides(templates, tmp_path / "repo")


def is_right(repo: Repo) -> None:
    """The index in work tree and commit is the one that reseal makes, and nothing is left to do."""
    assert repo.git("ls-files", "-u") == b""
    assert repo.git("status", "--porcelain") == b""
    before = {file.name: file.read_bytes() for file in (repo.path / "set").iterdir()}
    assert b"already matched its files" in repo.wtxtgit("reseal", "set").stdout
    assert {file.name: file.read_bytes() for file in (repo.path / "set").iterdir()} == before
    assert repo.wtxtgit("verify", "HEAD:set").returncode == 0


DETACHED = ("--detached",)
WAYS = {
    "merge": ("merge", "--no-edit", "topic"),
    "squash": ("merge", "--squash", "topic"),
    "rebase": ("rebase", "topic"),
    "pick": ("cherry-pick", "topic"),
    "picks": ("cherry-pick", "main..topic"),
}


@pytest.mark.parametrize(
    ("way", "form"),
    [
        ("merge", ()),
        *(
            pytest.param(way, form, marks=pytest.mark.slow)
            for way, form in (
                *((way, ()) for way in (*WAYS, "revert") if way != "merge"),
                ("merge", DETACHED),
                ("rebase", DETACHED),
            )
        ),
    ],
)
def test_the_index_is_made_anew(
    way: str, form: tuple[str, ...], templates: Templates, tmp_path: Path, driver: None
) -> None:
    repo = with_sides(templates, tmp_path / "repo", form)
    if way in ("picks", "rebase"):
        side = "topic" if way == "picks" else "main"
        repo.git("checkout", "-q", side)
        changed(repo, FIRST, 0 if way == "picks" else -1, by=2)
        committed(repo, "again")
        repo.git("checkout", "-q", "main")
    if way == "revert":
        repo.git("checkout", "-q", "topic")
        changed(repo, FIRST, -1)
        committed(repo, "on top")
    said = repo.run("git", *WAYS.get(way, ("revert", "--no-edit", "HEAD^"))).stderr
    assert b"set/model.aeroset.json: rebuilt" in said
    assert b"old hashes" not in said
    if way == "squash":
        repo.git("commit", "-qm", "squashed")
    is_right(repo)


@pytest.mark.parametrize("side", ["main", "topic"])
def test_an_index_with_hashes_of_tensors(side: str, repo: Repo, driver: None) -> None:
    repo.wtxtgit("track", "*.aero")
    (repo.path / "set").mkdir()
    source = FIXTURES / "aero/from_gguf_a.aero"
    repo.wtxtgit("convert", source, "set/m.aero", "--max-shard", "4000", "--hash-b3")
    committed(repo, "base")
    repo.git("branch", "topic")
    part = "set/m-part-000.aero"
    for branch, place in (("topic", 0), ("main", -1)):
        repo.git("checkout", "-q", branch)
        assert len(names(repo, part)) > 1
        changed(repo, part, place)
        committed(repo, branch)
    other = "main" if side == "topic" else "topic"
    repo.git("checkout", "-q", side)
    said = repo.run("git", "merge", "--no-commit", other).stderr
    repo.git("commit", "-qm", "merged")
    for name in ("m.aeroset.json", "m-index.aero"):
        assert f"set/{name}: rebuilt".encode() in said
    is_right(repo)


def listing(repo: Repo) -> dict[str, object]:
    value: dict[str, object] = json.loads((repo.path / LISTING).read_bytes())
    return value


def without_last(repo: Repo) -> None:
    """The last part leaves the set."""
    value = listing(repo)
    parts = value["parts"]
    assert isinstance(parts, list)
    (repo.path / "set" / parts.pop()["path"]).unlink()
    (repo.path / LISTING).write_text(json.dumps(value, indent=2))
    repo.wtxtgit("reseal", "set")


def last_renamed(repo: Repo) -> None:
    """The last part gets another name."""
    value = listing(repo)
    parts = value["parts"]
    assert isinstance(parts, list)
    (repo.path / "set" / parts[-1]["path"]).rename(repo.path / "set/part-new.aero")
    parts[-1]["path"] = "part-new.aero"
    (repo.path / LISTING).write_text(json.dumps(value, indent=2))


@pytest.mark.slow
@pytest.mark.parametrize("side", ["main", "topic"])
@pytest.mark.parametrize("what", ["added", "removed", "renamed", "no renames"])
def test_one_side_has_other_parts(what: str, side: str, repo: Repo, driver: None) -> None:
    base(repo)
    if what == "added":
        without_last(repo)
        committed(repo, "one part less")
        repo.git("branch", "-f", "topic")
    both_sides(repo)
    if what == "added":
        # As an earlier commit had it.
        last = "set/part-004.aero"
        repo.git("checkout", "-q", "main~2", "--", last, LISTING, INDEX)
        repo.wtxtgit("reseal", "set")
    elif what == "removed":
        without_last(repo)
    else:
        last_renamed(repo)
    committed(repo, what)
    other = "main" if side == "topic" else "topic"
    repo.git("checkout", "-q", side)
    options = ("-c", "merge.renames=false") if what == "no renames" else ()
    said = repo.run("git", *options, "merge", "--no-edit", other).stderr
    assert b"rebuilt" in said
    is_right(repo)
    count = {"added": 5, "removed": 4}.get(what, 5)
    parts = listing(repo)["parts"]
    assert isinstance(parts, list)
    assert len(parts) == count


def is_open(repo: Repo, said: bytes, why: bytes) -> None:
    """The index is in conflict, ours and whole, and the way on is told."""
    told = b"model.aeroset.json: both sides changed it; ours (HEAD) is kept for now: "
    assert told + b"not rebuilt from the files of its set: " + why in said
    assert b"wtxtgit reseal --stage -- set/model.aeroset.json" in said
    assert LISTING.encode() in repo.git("ls-files", "-u")
    assert listing(repo)["parts"]


def test_a_part_that_moved_and_changed_is_for_people_to_decide(sides: Repo) -> None:
    changed(sides, "set/part-004.aero", 0)
    committed(sides, "the last part")
    sides.git("checkout", "-q", "topic")
    last_renamed(sides)
    committed(sides, "renamed")
    said = sides.run("git", "merge", "main", ok=(1,)).stderr
    is_open(sides, said, b"only one side lists set/part-004.aero")


def test_a_part_in_conflict_leaves_the_index_in_conflict(sides: Repo) -> None:
    changed(sides, FIRST, 0, by=2)
    committed(sides, "the same rows")
    said = sides.run("git", "merge", "topic", ok=(1,)).stderr
    is_open(sides, said, b"set/part-000.aero is in conflict")
    sides.wtxtgit("resolve", FIRST, "--strategy", "theirs")
    sides.wtxtgit("reseal", "--stage", LISTING)
    sides.git("commit", "-qm", "merged")
    is_right(sides)


def test_a_strategy_that_settles_the_part_gives_the_index(sides: Repo) -> None:
    changed(sides, FIRST, 0, by=2)
    committed(sides, "the same rows")
    sides.git("-c", "wtxtgit.mergeStrategy=theirs", "merge", "-q", "--no-edit", "topic")
    is_right(sides)


def test_a_crosswise_merge_is_left_to_reseal(sides: Repo) -> None:
    sides.git("branch", "old")
    sides.git("merge", "-q", "--no-edit", "topic")
    sides.git("checkout", "-q", "topic")
    sides.git("merge", "-q", "--no-edit", "old")
    for branch, place in (("topic", 0), ("main", -1)):
        sides.git("checkout", "-q", branch)
        changed(sides, "set/part-002.aero", place)
        committed(sides, branch)
    said = sides.run("git", "merge", "topic", ok=(1,)).stderr
    is_open(sides, said, b"it is unknown which trees git merges, or a file of the set")
    sides.wtxtgit("reseal", "--stage", LISTING)
    sides.git("commit", "-qm", "merged")
    is_right(sides)


def test_trees_that_do_not_hold_what_the_driver_was_given(sides: Repo) -> None:
    sides.git("checkout", "-q", "-b", "other", "topic")
    changed(sides, FIRST, 1)
    committed(sides, "other")
    sides.git("checkout", "-q", "main")
    other = sides.git("rev-parse", "other").decode().strip()
    said = sides.run("git", "cherry-pick", "topic", ok=(1,), env={f"GITHEAD_{other}": "x"}).stderr
    is_open(sides, said, b"it is unknown which trees git merges")


def test_a_staged_part_is_not_that_of_the_commit(sides: Repo) -> None:
    change(sides.path / FIRST, names(sides, FIRST)[1])
    sides.git("add", "-A")
    said = sides.run("git", "cherry-pick", "-n", "topic", ok=(1,)).stderr
    is_open(sides, said, b"changes of it are staged")


def test_a_stash(repo: Repo, driver: None) -> None:
    base(repo)
    changed(repo, FIRST, 0)
    repo.git("stash", "-q")
    changed(repo, FIRST, -1)
    committed(repo, "main")
    assert b"model.aeroset.json: rebuilt" in repo.run("git", "stash", "pop").stderr
    assert b"already matched its files" in repo.wtxtgit("reseal", "set").stdout
