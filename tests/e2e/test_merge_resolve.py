"""`wtxtgit resolve`: conflicts listed, settled in steps, staged; and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import assert_clean
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
from tests.e2e.sealed import Sealed
from tests.e2e.weights import FOLD, SAFETENSORS, base, edited
from tests.kit import Repo
from tests.kit.templates import Templates

pytestmark = pytest.mark.usefixtures("driver")
slow = pytest.mark.slow

NAME = SAFETENSORS.name
OURS = edited(base(), {"embed": {3: -1.0, 9: -1.0}, "head": {0: -2.0}, "norm": {1: 3.0}})
THEIRS = edited(base(), {"embed": {3: -4.0, 9: -4.0, 63: -4.0}, "head": {0: -5.0}})
SIDES: Sides = tuple(SAFETENSORS.make(model) for model in (base(), OURS, THEIRS))  # type: ignore[assignment]
OURS_FILE = SIDES[1]


@pytest.fixture
def conflict(templates: Templates, tmp_path: Path, driver: None) -> Repo:
    """Embed and head are in conflict, norm and the rest are not; the merge is under way."""

    def make(folder: Path) -> None:
        repo = Repo(folder)
        folder.mkdir()
        repo.git("init", "-q")
        diverge(repo, {NAME: SIDES})
        bring(repo, "merge", ok=(1,))

    return Repo(templates.copy("merging", make, tmp_path / "repo"))


@pytest.mark.slow
def test_in_steps(conflict: Repo) -> None:
    listed = resolve(conflict, NAME, ok=(1,))
    assert "1 change made by only one side merged without a conflict\n" in listed.out
    assert "embed  tensor  rows 3, 9  both sides changed the same rows" in listed.out
    assert listed.out.endswith(
        f"{NAME}: 2 conflicts open, ours (HEAD) against theirs (incoming)\n"
        f"wtxtgit diff :2:{NAME} :3:{NAME} shows how the two differ\n"
        f"wtxtgit resolve {NAME} --take NAME=SIDE settles one: ours, theirs, base, average or "
        "task\n"
    )
    assert listed.err == ""
    assert open_names(conflict, NAME) == {"embed": [[3, 4], [9, 10]], "head": [[0, 1]]}

    first = resolve(conflict, NAME, "--take", "embed=theirs", ok=(1,))
    assert f"{NAME}: 1 conflict open" in first.out
    assert file_of(conflict, NAME) == OURS_FILE
    assert unmerged(conflict) == [NAME]
    assert open_names(conflict, NAME) == {"head": [[0, 1]]}
    # One that was killed and is run again adds nothing.
    resolve(conflict, NAME, "--take", "embed=theirs", ok=(1,))
    assert records(conflict)[NAME]["taken"] == [["embed", "theirs"]]

    last = resolve(conflict, NAME, "--take", "head=average")
    assert last.out.endswith(" staged\n")
    wanted = edited(OURS, {"embed": {3: -4.0, 9: -4.0, 63: -4.0}, "head": {0: -3.5}})
    assert_merged(conflict, SAFETENSORS, wanted)
    assert list((conflict.path / ".git").glob("wtxt-conflicts*")) == []
    conflict.git("commit", "-q", "--no-edit")
    assert len(conflict.git("log", "-1", "--format=%P").split()) == 2
    assert_clean(conflict)


@slow
def test_a_name_wins_over_a_pattern_and_later_over_earlier(conflict: Repo) -> None:
    takes = ("--take", "embed=base", "--take", "*=ours", "--take", "h*=theirs")
    resolve(conflict, NAME, *takes)
    wanted = edited(base(), {"embed": {63: -4.0}, "head": {0: -5.0}, "norm": {1: 3.0}})
    assert_merged(conflict, SAFETENSORS, wanted)


@slow
def test_one_strategy_for_all(conflict: Repo) -> None:
    resolve(conflict, NAME, "--take", "head=base", "--strategy", "theirs")
    wanted = edited(base(), {"norm": {1: 3.0}, "embed": {3: -4.0, 9: -4.0, 63: -4.0}})
    assert_merged(conflict, SAFETENSORS, wanted)


@slow
def test_as_data(conflict: Repo) -> None:
    found = json.loads(resolve(conflict, NAME, "--json", ok=(1,)).out)
    assert {key: found[key] for key in ("path", "staged", "ok", "format", "taken")} == {
        "path": NAME,
        "staged": False,
        "ok": False,
        "format": "safetensors",
        "taken": None,
    }
    assert found["conflicts"] == records(conflict)[NAME]["conflicts"]
    assert found["conflicts"][0] == {
        "name": "embed",
        "kind": "tensor",
        "reason": "both sides changed the same rows",
        "rows": 2,
        "row_ranges": [[3, 4], [9, 10]],
        "row_ranges_exact": True,
    }
    assert found["merged"] == [{"name": "norm", "kind": "tensor", "how": "ours"}]
    done = json.loads(resolve(conflict, NAME, "--take", "*=ours", "--json").out)
    assert (done["staged"], done["ok"], done["conflicts"]) == (True, True, [])


@slow
@pytest.mark.parametrize(
    ("take", "told"),
    [
        ("nothing=theirs", "'nothing'"),
        ("embe=theirs", "'embe'"),
        ("x*=ours", "'x*'"),
        ("=ours", "''"),
        ("embed=mine", "'embed=mine'"),
        ("embed=fail", "'embed=fail'"),
        ("embed", "'embed'"),
    ],
)
def test_a_name_or_a_side_that_there_is_not(conflict: Repo, take: str, told: str) -> None:
    before = records(conflict)
    said = resolve(conflict, NAME, "--take", "head=theirs", "--take", take, ok=(2,))
    assert said.out == ""
    assert told in said.err
    assert records(conflict) == before
    assert file_of(conflict, NAME) == OURS_FILE
    assert unmerged(conflict) == [NAME]


@slow
def test_a_strategy_that_there_is_not(conflict: Repo) -> None:
    for strategy in ("base", "blend"):
        said = resolve(conflict, NAME, "--strategy", strategy, ok=(2,))
        assert f"merge strategy '{strategy}' is not one of fail, ours" in said.err
    assert unmerged(conflict) == [NAME]


@slow
def test_a_path_without_a_conflict(conflict: Repo) -> None:
    for path in (".gitattributes", "missing", "../outside", "/etc/passwd"):
        assert "no conflict" in resolve(conflict, path, ok=(3,)).err
    resolve(conflict, NAME, "--strategy", "ours")
    assert "no conflict" in resolve(conflict, NAME, ok=(3,)).err


@slow
def test_one_side_removed_the_file(repo: Repo) -> None:
    diverge(repo, {"one.safetensors": SIDES, "two.safetensors": SIDES})
    repo.git("rm", "-q", "one.safetensors")
    repo.git("commit", "-qm", "removed")
    repo.git("checkout", "-q", "topic")
    repo.git("rm", "-q", "two.safetensors")
    repo.git("commit", "-qm", "removed")
    repo.git("checkout", "-q", "main")
    bring(repo, "merge", ok=(1,))
    assert records(repo) == {}
    for name, side in (("one", "ours"), ("two", "theirs")):
        said = resolve(repo, f"{name}.safetensors", ok=(3,))
        assert f"{name}.safetensors: {side} deleted it, so there is nothing to merge" in said.err
        assert f"hint: git add -- {name}.safetensors keeps it, git rm --cached -- " in said.err


@slow
def test_in_a_subfolder(repo: Repo) -> None:
    diverge(repo, {f"sub/{NAME}": SIDES})
    bring(repo, "merge", ok=(1,))
    assert list(records(repo)) == [f"sub/{NAME}"]
    here = Sealed(repo.path / "sub")
    assert "no conflict" in here.call("resolve", f"sub/{NAME}", ok=(3,)).err
    here.call("resolve", NAME, "--strategy", "theirs")
    assert_merged(repo, SAFETENSORS, edited(THEIRS, {"norm": {1: 3.0}}), f"sub/{NAME}")
    assert not (repo.path / ".git/wtxt-conflicts").exists()


@slow
def test_a_rebase_names_the_sides_as_git_does(repo: Repo) -> None:
    diverge(repo, {NAME: SIDES})
    said = bring(repo, "rebase", ok=(1,)).stderr.decode()
    assert f"{NAME}: both sides changed it; ours (what you rebase onto) is kept for now: " in said
    listed = resolve(repo, NAME, ok=(1,))
    assert "ours (what you rebase onto) against theirs (your own commit)" in listed.out
    resolve(repo, NAME, "--take", "*=theirs")
    assert_merged(repo, SAFETENSORS, edited(THEIRS, {"norm": {1: 3.0}}))
    repo.git("rebase", "--continue", env={"GIT_EDITOR": "true"})
    assert repo.git("log", "-2", "--format=%s") == b"topic\nmain\n"
    assert_clean(repo)


@slow
def test_am_names_the_patch(repo: Repo) -> None:
    diverge(repo, {NAME: SIDES})
    patch = repo.git("format-patch", "--stdout", "--full-index", "-1", "topic")
    repo.run("git", "am", "-q", "-3", stdin=patch, ok=(1, 128))
    listed = resolve(repo, NAME, ok=(1,))
    assert "ours (HEAD) against theirs (the patch)" in listed.out
    resolve(repo, NAME, "--take", "*=theirs")
    repo.git("am", "--continue")
    assert_clean(repo)


class TestRecords:
    """They belong to one conflict."""

    pytestmark = slow

    def test_what_was_settled_in_a_merge_that_was_taken_back_is_forgotten(
        self, conflict: Repo
    ) -> None:
        resolve(conflict, NAME, "--take", "embed=theirs", ok=(1,))
        conflict.git("merge", "--abort")
        bring(conflict, "merge", ok=(1,))
        assert records(conflict)[NAME]["taken"] == []
        assert sorted(open_names(conflict, NAME)) == ["embed", "head"]

    @pytest.mark.parametrize("why", ["no driver", "no strategy"])
    def test_it_is_no_record_of_another_conflict(self, conflict: Repo, why: str) -> None:
        resolve(conflict, NAME, "--take", "embed=theirs", ok=(1,))
        conflict.git("merge", "--abort")
        conflict.write(NAME, SAFETENSORS.make(edited(OURS, {"embed": {4: 1.0}})))
        conflict.git("commit", "-qam", "on")
        if why == "no driver":
            conflict.git("config", "merge.wtxt.driver", "false")
        else:
            conflict.git("config", "wtxtgit.mergeStrategy", "blend")
        bring(conflict, "merge", ok=(1,))
        conflict.run("git", "config", "--unset", "wtxtgit.mergeStrategy", ok=(0, 5))
        resolve(conflict, NAME, ok=(1,))
        assert sorted(open_names(conflict, NAME)) == ["embed", "head"]

    def test_a_record_that_is_none(self, conflict: Repo) -> None:
        record = conflict.path / f".git/wtxt-conflicts/{NAME}.json"
        for content in (b"", b"[]", b'{"taken": [[1]], "strategy": "fail"}', b"\xff", b"[" * 9999):
            record.write_bytes(content)
            said = resolve(conflict, NAME, "--take", "*=ours", ok=(3,))
            assert f"{record}: not a record of conflicts" in said.err
            assert "hint: remove it; it will be written again" in said.err
        record.unlink()
        resolve(conflict, NAME, "--take", "*=ours")
        assert unmerged(conflict) == []

    def test_a_merge_that_git_took_back_to_one_side(self, conflict: Repo) -> None:
        """Settled without us: the record is no longer of anything, and does no harm."""
        conflict.git("checkout", "--theirs", "--", NAME)
        conflict.add(NAME)
        conflict.git("commit", "-q", "--no-edit")
        assert "no conflict" in resolve(conflict, NAME, ok=(3,)).err
        assert_clean(conflict)


@slow
def test_it_never_leaves_the_work_tree(repo: Repo, tmp_path: Path) -> None:
    """The folder of the file has become a link since."""
    (tmp_path / "elsewhere").mkdir()
    diverge(repo, {f"sub/{FOLD.name}": (None, FOLD.make(OURS), FOLD.make(THEIRS))})
    bring(repo, "merge", ok=(1,))
    shutil.rmtree(repo.path / "sub")
    (repo.path / "sub").symlink_to(tmp_path / "elsewhere")
    resolve(repo, f"sub/{FOLD.name}", "--strategy", "theirs")
    assert not (repo.path / "sub").is_symlink(), "as git checkout does"
    assert list((tmp_path / "elsewhere").iterdir()) == []
