"""The README's first minutes, line for line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.shell import Done, Step, assert_as_shown, run, steps
from tests.kit import Repo


def test_the_tour_does_what_it_shows(tmp_path: Path) -> None:
    done = run(steps(*blocks("README.md", "console", "A tour")), tmp_path)
    assert_as_shown(done)
    assert sum(bool(one.step.output) for one in done) >= 9
    assert sum(one.step.fails for one in done) == 1

    repo = Repo(tmp_path / "demo")
    log = repo.git("log", "--format=%s").decode().splitlines()
    assert log == ["sealed", "step 2: query", "step 1"]
    assert (
        repo.git("ls-remote", "--heads", "origin").split()[0]
        == repo.git("rev-parse", "HEAD").strip()
    )
    assert repo.blob("model.safetensors", "HEAD").startswith(b"WTXT 1\n")
    assert (repo.path / "model.safetensors").read_bytes()[8:9] == b"{"


@pytest.mark.true_start
def test_what_install_sets_up_uninstall_takes_back(tmp_path: Path, home: Path) -> None:
    config = home / ".gitconfig"
    before = config.read_bytes()
    todo = [
        step
        for step in steps(*blocks("README.md", "console", "Install"))
        if not step.command.startswith("pip ")
    ]
    assert [step.command for step in todo] == ["wtxtgit install"]
    assert_as_shown(run(todo, tmp_path))
    assert b'[filter "wtxt"]' in config.read_bytes()
    assert_as_shown(run([Step("README.md", "wtxtgit uninstall", ())], tmp_path))
    assert config.read_bytes() == before


@pytest.mark.true_start
def test_the_command_is_gits_too(tmp_path: Path) -> None:
    (done,) = run([Step("README.md", "git wtxt --version", ())], tmp_path)
    assert done.code == 0
    assert done.output.startswith("wtxtgit ")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_has_the_targets_that_pages_name(page: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"[`$] ?make ([a-z-]+)", (ROOT / page).read_text())
    assert named
    assert set(named) <= set(targets)


class TestTheComparison:
    """A page that says something else than the program is noticed."""

    def compare(self, *shown: str, real: str = "one\ntwo\nthree\n", code: int = 0) -> None:
        assert_as_shown([Done(Step("page", "command", shown), code, real)])

    def test_equal(self) -> None:
        self.compare("one", "two", "three")
        self.compare("one", "...", "three")
        self.compare("on...", "two", "three")
        self.compare("one", "...")
        self.compare("...", "three")
        self.compare("one", "...", "one", "two", real="one\ntwo\nx\none\ntwo\n")
        self.compare()

    @pytest.mark.parametrize(
        "shown",
        [
            ("one", "three", "two"),
            ("one", "two", "three", "four"),
            ("...", "four"),
            ("one", "three"),
            ("one", "two"),
            ("two", "three"),
            ("On...", "..."),
        ],
    )
    def test_not_equal(self, shown: tuple[str, ...]) -> None:
        with pytest.raises(AssertionError):
            self.compare(*shown)

    def test_a_command_that_fails(self) -> None:
        with pytest.raises(AssertionError):
            self.compare(code=1)
        with pytest.raises(AssertionError):
            self.compare("wtxtgit: error: no", real="wtxtgit: error: no\n")

    def test_commits(self) -> None:
        self.compare("abcdef0 a", "abcdef1 b", real="1234567 a\n89abcde b\n")
        with pytest.raises(AssertionError):
            self.compare("abcdef0 a", "abcdef0 b", real="1234567 a\n89abcde b\n")
