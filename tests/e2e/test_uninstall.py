"""Install, uninstall and leaving: everything is as it was, to the byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.conftest import (
    PAIRS,
    PATTERNS,
    assert_clean,
    assert_version,
    states,
    version,
)
from tests.kit import ATTRIBUTES, Repo

pytestmark = pytest.mark.slow

FOREIGN = """\
# mine
[user]
\tname = A U Thor   # a comment
\temail = author@example.com
[filter "lfs"]
\tclean = git-lfs clean -- %f
[diff "wtxt"]
\tbinary = false
[merge "wtxt"]
\tverbosity = 3
[alias]
\tco = checkout
"""


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("content", [None, "", FOREIGN, FOREIGN.rstrip("\n")])
def test_the_global_config_is_as_it_was(repo: Repo, home: Path, content: str | None) -> None:
    config = home / ".gitconfig"
    config.unlink()
    if content is not None:
        config.write_text(content)
    before = files_of(home)
    local = (repo.path / ".git/config").read_bytes()
    repo.wtxtgit("install")
    assert b"filter-process" in config.read_bytes()
    repo.wtxtgit("uninstall")
    after = files_of(home)
    if content is None:
        # Git leaves the file that it made, empty.
        assert after.pop(".gitconfig", b"") == b""
    elif not content.endswith("\n") and content:
        before[".gitconfig"] += b"\n"
    assert after == before
    assert (repo.path / ".git/config").read_bytes() == local
    assert not (repo.path / ".git/wtxtgit").exists()


def test_the_local_config_is_as_it_was(repo: Repo, home: Path) -> None:
    with (repo.path / ".git/config").open("a") as file:
        file.write(FOREIGN)
    before, everywhere = files_of(repo.path / ".git"), files_of(home)
    repo.wtxtgit("install", "--local", "--hooks")
    assert files_of(home) == everywhere
    repo.wtxtgit("uninstall", "--local")
    assert files_of(repo.path / ".git") == before
    assert files_of(home) == everywhere


def test_uninstall_where_nothing_is_installed(repo: Repo, home: Path) -> None:
    before = files_of(home), files_of(repo.path)
    for scope in ("--local", "--global"):
        assert b"nothing to remove from the" in repo.wtxtgit("uninstall", scope).stdout
    assert (files_of(home), files_of(repo.path)) == before


def test_the_scopes_are_apart(repo: Repo, home: Path) -> None:
    repo.wtxtgit("install", "--local")
    local = (repo.path / ".git/config").read_bytes()
    repo.wtxtgit("install", "--global")
    repo.wtxtgit("uninstall", "--global")
    assert (repo.path / ".git/config").read_bytes() == local


def test_the_config_under_xdg(repo: Repo, home: Path) -> None:
    """Git writes there where no ~/.gitconfig is."""
    (home / ".config/git").mkdir(parents=True)
    (home / ".gitconfig").rename(home / ".config/git/config")
    before = files_of(home)
    repo.wtxtgit("install")
    assert not (home / ".gitconfig").exists()
    repo.wtxtgit("uninstall")
    assert files_of(home) == before


def test_a_linked_global_config_stays_linked(repo: Repo, home: Path, tmp_path: Path) -> None:
    """Dotfiles are often links into a repository of their own."""
    (home / ".gitconfig").rename(tmp_path / "dotfile")
    (home / ".gitconfig").symlink_to(tmp_path / "dotfile")
    before = (tmp_path / "dotfile").read_bytes()
    repo.wtxtgit("install")
    repo.wtxtgit("uninstall")
    assert (home / ".gitconfig").is_symlink()
    assert (tmp_path / "dotfile").read_bytes() == before


def test_values_of_others_stop_install_and_stay(repo: Repo, home: Path) -> None:
    repo.git("config", "--global", "filter.wtxt.clean", "other-tool clean")
    before = files_of(home), files_of(repo.path)
    failed = repo.wtxtgit("install", "--hooks", ok=(1,))
    assert b"filter.wtxt.clean is set to 'other-tool clean'" in failed.stderr
    assert b"wtxtgit install --global --force replaces it" in failed.stderr
    assert (files_of(home), files_of(repo.path)) == before
    done = repo.wtxtgit("uninstall")
    assert b"left filter.wtxt.clean, which wtxtgit did not set: other-tool clean" in done.stdout
    assert (files_of(home), files_of(repo.path)) == before


def test_force_replaces_values_of_others_and_says_so(repo: Repo, home: Path) -> None:
    repo.git("config", "--global", "filter.wtxt.clean", "other-tool clean")
    repo.git("config", "--global", "--add", "filter.wtxt.clean", "another")
    done = repo.wtxtgit("install", "--force")
    assert b"replaced filter.wtxt.clean, which was" in done.stdout
    assert repo.git("config", "--global", "--get-all", "filter.wtxt.clean").count(b"\n") == 1
    repo.wtxtgit("uninstall")
    assert repo.git("config", "--global", "--get-regexp", "wtxt", ok=(1,)) == b""


def test_a_key_that_changed_since_stays(repo: Repo, home: Path) -> None:
    repo.wtxtgit("install")
    repo.git("config", "--global", "merge.wtxt.driver", "my-merge %A")
    repo.wtxtgit("uninstall")
    left = repo.git("config", "--global", "--get-regexp", "wtxt")
    assert left == b"merge.wtxt.driver my-merge %A\n"


@pytest.mark.parametrize("mode", [0o755, pytest.param(0o644, marks=pytest.mark.slow)])
def test_a_hook_is_chained_and_restored(pairs: Repo, mode: int) -> None:
    hook = pairs.path / ".git/hooks/pre-commit"
    script = b'#!/bin/sh\necho "$0 $#" >> ran\ntest ! -e refuse\n'
    hook.write_bytes(script)
    hook.chmod(mode)
    pairs.write(".gitignore", "ran\nrefuse\n")
    pairs.add(".gitignore")
    pairs.wtxtgit("install", "--hooks")
    pairs.commit("runs")
    runs = bool(mode & 0o100)
    assert (pairs.path / "ran").exists() == runs
    pairs.write("refuse", "")
    pairs.run("git", "commit", "--allow-empty", "-qm", "refused", ok=(1 if runs else 0,))
    (pairs.path / "refuse").unlink()
    pairs.add_raw("raw.fold", b"FOLD")
    assert b"raw.fold: raw-binary" in pairs.run("git", "commit", "-qm", "raw", ok=(1,)).stderr
    pairs.wtxtgit("uninstall", "--local")
    assert hook.read_bytes() == script
    assert hook.stat().st_mode & 0o777 == mode
    hooks = {p.name for p in hook.parent.iterdir() if p.suffix != ".sample"}
    assert hooks == {"pre-commit"}


@pytest.mark.parametrize(
    "content",
    [None, "", "*.py text\n", "# models\n*.bin binary\n\n", "*.py text\r\n*.sh eol=lf\r\n"],
)
def test_untrack_gives_the_attributes_back(repo: Repo, content: str | None) -> None:
    file = repo.path / ".gitattributes"
    if content is not None:
        file.write_bytes(content.encode())
    repo.wtxtgit("track", "*.fold", "my models/*.bin")
    assert file.read_bytes() != (content or "").encode()
    repo.wtxtgit("untrack", "*.fold", "my models/*.bin")
    assert (file.read_bytes() if file.exists() else b"") == (content or "").encode()


def test_untrack_of_one_pattern_leaves_the_others(repo: Repo) -> None:
    repo.wtxtgit("track", "*.fold", "*.aero")
    repo.wtxtgit("untrack", "*.fold")
    lines = (repo.path / ".gitattributes").read_text().splitlines()
    assert f"*.aero {ATTRIBUTES}" in lines
    assert not any(line.startswith("*.fold") for line in lines)


def leave(repo: Repo) -> None:
    """The steps of docs/git.md, "Leaving"."""
    repo.wtxtgit("untrack", *PATTERNS)
    repo.git("add", "--renormalize", ".")
    repo.git("commit", "-qm", "store checkpoints as plain binaries")


def test_leaving_as_the_manual_says(pairs: Repo) -> None:
    leave(pairs)
    for name in PAIRS:
        assert pairs.blob(name, "HEAD") == version(name, 2), name
    assert_version(pairs, 2)


def test_leaving_where_gitattributes_has_other_lines(pairs: Repo) -> None:
    attributes = pairs.path / ".gitattributes"
    attributes.write_text("*.md text\n" + attributes.read_text())
    pairs.add()
    pairs.commit()
    leave(pairs)
    for name in PAIRS:
        assert pairs.blob(name, "HEAD") == version(name, 2), name
    assert_version(pairs, 2)
    assert attributes.read_text() == "*.md text\n"
    pairs.wtxtgit("uninstall")
    assert pairs.git("config", "--get-regexp", "wtxt", ok=(1,)) == b""
    clone = pairs.clone("clone")
    assert_version(clone, 2)
    # Old commits keep their texts, and a text gives its file back without git.
    clone.git("checkout", "-q", "v1")
    for name in PAIRS:
        assert (clone.path / name).read_bytes().startswith(b"WTXT 1\n")
        clone.wtxtgit("restore", name, "-o", "restored")
        assert (clone.path / "restored").read_bytes() == version(name, 1), name


@pytest.mark.slow
def test_after_uninstall_files_stay_and_git_works_on(pairs: Repo) -> None:
    pairs.wtxtgit("uninstall")
    for name in PAIRS:
        assert (pairs.path / name).read_bytes() == version(name, 2)
    pairs.git("checkout", "-q", "v1")
    for name in PAIRS:
        assert (pairs.path / name).read_bytes() == pairs.blob(name, "v1")
    assert_clean(pairs)
    # And back: nothing was lost.
    pairs.wtxtgit("install")
    assert_version(pairs, 1)
    assert set(states(pairs).values()) == {"ok"}


@pytest.mark.slow
def test_untracking_one_file_in_git(pairs: Repo) -> None:
    """A later line of gitattributes takes the filter from one file."""
    with (pairs.path / ".gitattributes").open("a") as file:
        file.write("none.fold !filter !diff !merge\n")
    pairs.git("add", "--renormalize", ".")
    pairs.add(".gitattributes")
    pairs.commit()
    assert pairs.blob("none.fold", "HEAD") == version("none.fold", 2)
    assert_version(pairs, 2)
    assert os.path.lexists(pairs.path / "none.fold")
