"""The hook's short way: what it passes over has nothing wrong, by the check that it leaves out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Repo, safetensors
from wtxtgit.chain import already_checked
from wtxtgit.chain.check import CheckRequest, check
from wtxtgit.cli import environment
from wtxtgit.git.history import Head

MODEL = "model.safetensors"
HARMLESS = "notes.txt"


@pytest.fixture
def noted(repo: Repo, driver: None) -> Repo:
    """A repository whose last commit was checked, and a change of a note that is staged."""
    repo.track("*.safetensors")
    repo.write(MODEL, safetensors(1.0))
    repo.write("sub/a.safetensors", safetensors(2.0))
    for name in (HARMLESS, "sealed.bin", "gone.txt"):
        repo.write(name, "one\n")
    repo.add()
    repo.commit("base")
    write(repo, HARMLESS, "two\n")
    assert not is_settled(repo)
    committed(repo)
    write(repo, HARMLESS, "three\n")
    return repo


def write(repo: Repo, name: str, content: str | bytes) -> None:
    repo.write(name, content)
    repo.add(name)


def committed(repo: Repo) -> str:
    """Commit what is staged as git does with the hook."""
    repo.wtxtgit("hook", "pre-commit")
    return repo.commit()


def is_settled(repo: Repo) -> bool:
    """What the short way says; where it holds, the full check has to find nothing."""
    key = environment.facts_key()
    held = already_checked.is_settled(Head(repo.repository), key)
    if held:
        report = check(Head(repo.repository), CheckRequest(), lambda: 1, key)
        assert (report.findings, report.notes) == ((), ())
    return held


def test_a_commit_that_touches_nothing_of_ours(noted: Repo) -> None:
    assert is_settled(noted)
    committed(noted)
    # The short way goes on from what it passed itself.
    write(noted, HARMLESS, "four\n")
    noted.git("rm", "-q", "gone.txt")
    assert is_settled(noted)


def is_checked(repo: Repo, log: Path, **env: str) -> bool:
    """Whether the hook makes the full check: that lists the whole index."""
    log.unlink(missing_ok=True)
    repo.wtxtgit("hook", "pre-commit", env={"GIT_TRACE": str(log), **env})
    return "git ls-files -s -t" in log.read_text()


def test_by_the_command_that_git_starts(noted: Repo, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert not is_checked(noted, log)
    noted.git("config", "wtxtgit.autoSeal", "false")
    assert is_checked(noted, log)
    noted.git("config", "--unset", "wtxtgit.autoSeal")
    oid = noted.git("rev-parse", "HEAD").decode().strip()
    assert is_checked(noted, log, **{f"GITHEAD_{oid}": "topic"})


def test_before_the_first_commit(repo: Repo, tmp_path: Path) -> None:
    assert is_checked(repo, tmp_path / "log")
    repo.write(HARMLESS, "one\n")
    repo.add()
    assert is_checked(repo, tmp_path / "log")


def unnoted(repo: Repo) -> None:
    (repo.path / ".git/wtxtgit/checked").unlink()


def forged(repo: Repo) -> None:
    file = repo.path / ".git/wtxtgit/checked"
    file.write_bytes(bytes(len(file.read_bytes())))


def unchecked(repo: Repo) -> None:
    """HEAD was committed without the hook."""
    repo.commit()
    write(repo, HARMLESS, "unseen\n")


def by_another_secret(repo: Repo) -> None:
    key = environment.facts_key()
    assert key is not None
    key.write_bytes(os.urandom(32))


def linked(repo: Repo) -> None:
    (repo.path / HARMLESS).unlink()
    (repo.path / HARMLESS).symlink_to(MODEL)
    repo.add(HARMLESS)


def sealed(repo: Repo) -> None:
    """Its ledger already exists, and stays."""
    write(repo, "sealed.bin.wsum", "WSUM\n")
    repo.commit("a ledger that the hook never saw")
    committed(repo) if repo.status() else None
    write(repo, "sealed.bin", "two\n")


RULES: dict[str, Callable[[Repo], object]] = {
    "1 no note": unnoted,
    "1 a forged note": forged,
    "1 another secret": by_another_secret,
    "1 HEAD was not checked": unchecked,
    "1 an older commit": lambda repo: repo.git("reset", "-q", "--soft", "HEAD~1"),
    "1 another trust root": lambda repo: repo.git("config", "wtxtgit.trustRoot", "0" * 40),
    "1 a trust root that moves": lambda repo: repo.git("config", "wtxtgit.trustRoot", "main"),
    "2 a merge": lambda repo: repo.write(".git/MERGE_HEAD", repo.git("rev-parse", "HEAD~1")),
    "2 a pick": lambda repo: repo.write(".git/CHERRY_PICK_HEAD", repo.git("rev-parse", "HEAD")),
    "3 a new name": lambda repo: write(repo, "MODEL.SAFETENSORS", "twin\n"),
    "3 a link": linked,
    "4 gitattributes": lambda repo: write(repo, ".gitattributes", "*.txt filter=wtxt -text\n"),
    "4 below": lambda repo: write(repo, "sub/.gitattributes", "* -filter\n"),
    "4 signers": lambda repo: write(repo, ".wtxt/signers", "nobody\n"),
    "4 a ledger": lambda repo: write(repo, MODEL + ".wsum", "WSUM\n"),
    "4 a text": lambda repo: write(repo, "native.wtxt", "WTXT 1\n"),
    "5 beside a ledger": sealed,
    "6 a checkpoint": lambda repo: write(repo, MODEL, safetensors(3.0)),
    "6 a checkpoint goes": lambda repo: repo.git("rm", "-q", "sub/a.safetensors"),
    "6 a raw binary": lambda repo: repo.add_raw(MODEL, b"raw"),
    "7 a graft": lambda repo: repo.write(".git/info/grafts", repo.git("rev-parse", "HEAD")),
    "7 replaced": lambda repo: repo.git("replace", "HEAD", "HEAD~1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_what_breaks_a_rule_is_checked(noted: Repo, rule: str) -> None:
    RULES[rule](noted)
    assert not is_settled(noted)


@pytest.mark.slow
def test_attributes_of_the_clone_decide_nothing(noted: Repo) -> None:
    """The check knows the commit's own gitattributes files alone; so does the short way."""
    (noted.path / ".git/info").mkdir(exist_ok=True)
    noted.write(".git/info/attributes", "*.safetensors -filter\n")
    noted.add_raw(MODEL, b"raw")
    assert not is_settled(noted)


@pytest.mark.slow
def test_what_head_has_wrong_is_told_again(noted: Repo) -> None:
    """A finding is no note: whoever commits past it is told at the next commit, too."""
    noted.add_raw(MODEL, b"raw")
    noted.wtxtgit("hook", "pre-commit", ok=(1,))
    noted.commit("past the hook")
    write(noted, HARMLESS, "three\n")
    assert not is_settled(noted)


@pytest.mark.slow
def test_of_named_paths(noted: Repo, tmp_path: Path) -> None:
    """`git commit PATH` has an index of its own."""
    noted.add_raw(MODEL, b"raw")
    repo = noted.path
    index = tmp_path / "index"
    noted.git("read-tree", "HEAD", env={"GIT_INDEX_FILE": str(index)})
    noted.git("add", HARMLESS, env={"GIT_INDEX_FILE": str(index)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_INDEX_FILE", str(index))
        assert is_settled(Repo(repo))
    assert not is_settled(noted)
