"""What doctor says of how git starts wtxtgit, and that its hints and `--fix` end it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.kit import LAUNCHER, Repo, safetensors
from wtxtgit.git.driver import KEYS, Launcher
from wtxtgit.setup import doctor as ops
from wtxtgit.setup import hooks, install
from wtxtgit.setup.diagnosis import CheckResult, Level

pytestmark = pytest.mark.slow

MODEL = safetensors(1.0, 2.0, 3.0)


def check(repo: Repo, name: str) -> CheckResult:
    return {one.name: one for one in ops.examine(repo.repository).checks}[name]


@pytest.fixture
def gone(tmp_path: Path) -> Launcher:
    """An installation that was removed."""
    return Launcher((str(tmp_path / "it's gone/bin/wtxtgit"),))


@pytest.fixture
def pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a shell find wtxtgit."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "wtxtgit"
    program.write_text(f'#!/bin/sh\nexec {LAUNCHER.command()} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def told(repo: Repo, name: str) -> str:
    """Return the command that doctor says for a finding."""
    lines = repo.wtxtgit("doctor", ok=(0, 1)).stdout.decode().splitlines()
    (line,) = [one for one in lines if one.startswith(f"{name}: ")]
    return line.removeprefix(f"{name}: ")


def set_in(where: str, launcher: Launcher, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the driver in one scope of git's configuration."""
    values = launcher.values()
    for key in KEYS:
        repo.git("config", "--global", "--unset-all", key, ok=(0, 5))
    file = repo.path.parent / "other config"
    options: tuple[str, ...] = (f"--{where}",)
    if where == "system":
        monkeypatch.delenv("GIT_CONFIG_NOSYSTEM")
        monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(file))
    elif where == "worktree":
        repo.git("config", "extensions.worktreeConfig", "true")
    elif where == "include":
        options = ("--file", str(file))
        for key, value in values.items():
            repo.git("config", "--global", key, value)
        repo.git("config", "--global", "include.path", str(file))
    for key, value in values.items():
        repo.git("config", *options, key, value)


SCOPES = ("local", "global", "system", "worktree", "include")


@pytest.mark.parametrize("scope", SCOPES)
def test_what_is_told_of_a_python_that_is_gone_ends_it(
    tracked: Repo,
    scope: str,
    gone: Launcher,
    pasted: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_in(scope, gone, tracked, monkeypatch)
    assert check(tracked, "start").level is Level.ERROR
    tracked.run("sh", "-c", told(tracked, "start"))
    assert check(tracked, "start").level is Level.OK
    tracked.write("model.safetensors", safetensors(9.0))
    tracked.add()


@pytest.mark.parametrize("scope", SCOPES)
def test_a_python_that_is_gone_is_mended(
    tracked: Repo, scope: str, gone: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_in(scope, gone, tracked, monkeypatch)
    assert ops.repair(tracked.repository).ok


@pytest.mark.parametrize("scope", SCOPES)
def test_what_is_told_of_another_tools_driver_ends_it(
    tracked: Repo, scope: str, pasted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_in(scope, Launcher(("other-tool", "wtxt")), tracked, monkeypatch)
    tracked.run("sh", "-c", told(tracked, "driver"))
    assert check(tracked, "driver").level is Level.OK


def test_a_driver_on_the_command_line_is_told(
    tracked: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "diff.wtxt.command")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "/gone/wtxtgit diff-driver --")
    found = check(tracked, "start")
    assert found.fix is not None
    assert "GIT_CONFIG_COUNT" in found.fix


def test_install_renews_the_hooks_of_an_installation_that_is_gone(
    repo: Repo, gone: Launcher, pasted: None
) -> None:
    install.set_driver(gone, scope="local", cwd=repo.path)
    repo.write(".git/hooks/pre-commit", "#!/bin/sh\necho >>called\n").chmod(0o755)
    hooks.install(repo.repository, gone)
    repo.run("sh", "-c", told(repo, "start"))
    repo.commit()
    assert (repo.path / "called").read_text() == "\n"
    assert check(repo, "hook").level is Level.OK


def test_hooks_of_an_installation_that_is_gone_are_mended(tracked: Repo, gone: Launcher) -> None:
    hooks.install(tracked.repository, gone)
    edited = tracked.path / ".git/hooks/pre-push"
    edited.write_bytes(edited.read_bytes() + b"make lint\n")
    tracked.run("git", "commit", "-qm", "x", "--allow-empty", ok=(1, 127))
    found = check(tracked, "hook")
    assert (found.level, len(found.paths)) == (Level.ERROR, len(hooks.NAMES))
    tracked.run("sh", "-c", f"{LAUNCHER.command()} {told(tracked, 'hook').partition(' ')[2]}")
    assert check(tracked, "hook").level is Level.OK
    tracked.commit()
    assert edited.read_bytes().endswith(b"make lint\n")


def test_hooks_that_git_ignores_are_told_and_mended(tracked: Repo) -> None:
    hooks.install(tracked.repository, LAUNCHER)
    ignored = tracked.path / ".git/hooks/pre-commit"
    ignored.chmod(0o644)
    found = check(tracked, "hook")
    assert (found.level, found.paths) == (Level.WARN, (b".git/hooks/pre-commit",))
    ops.repair(tracked.repository)
    assert check(tracked, "hook").level is Level.OK
    tracked.add_raw("raw.safetensors", MODEL)
    tracked.run("git", "commit", "-qm", "x", ok=(1,))


@pytest.fixture
def husky(tracked: Repo) -> Path:
    """Hooks that were installed, before husky set a folder of its own; returns that folder."""
    hooks.install(tracked.repository, LAUNCHER)
    folder = tracked.path / ".husky/_"
    for name in hooks.NAMES:
        # As husky writes them: the user's own hook is beside the folder.
        script = f'#!/bin/sh\n[ ! -f .husky/{name} ] || exec sh -e .husky/{name} "$@"\n'
        tracked.write(f".husky/_/{name}", script).chmod(0o755)
    tracked.git("config", "core.hooksPath", ".husky/_")
    return folder


def refuses_raw(repo: Repo) -> bool:
    repo.add_raw("raw.safetensors", MODEL)
    done = repo.run("git", "commit", "-qm", "raw", ok=(0, 1))
    return b"raw-binary" in done.stderr


def test_hooks_that_another_folder_bypasses_are_told(
    tracked: Repo, husky: Path, pasted: None
) -> None:
    found = check(tracked, "hook")
    assert (found.level, len(found.paths)) == (Level.WARN, len(hooks.NAMES))
    command, words, _ = told(tracked, "hook").partition(" puts ours there too")
    assert words
    tracked.run("sh", "-c", command)
    assert check(tracked, "hook").level is Level.OK
    assert refuses_raw(tracked)


def test_a_hook_of_husky_may_call_ours(tracked: Repo, husky: Path, pasted: None) -> None:
    for name in hooks.NAMES:
        (husky.parent / name).write_text(f'wtxtgit hook {name} "$@"\n')
    assert check(tracked, "hook").level is Level.OK
    assert refuses_raw(tracked)


@pytest.mark.parametrize("names", [("pre-commit",), hooks.NAMES])
def test_hooks_that_others_replaced_are_told(
    tracked: Repo, names: tuple[str, ...], pasted: None
) -> None:
    """As lefthook does, which keeps what was there and does not run it."""
    hooks.install(tracked.repository, LAUNCHER)
    folder = tracked.path / ".git/hooks"
    for name in names:
        (folder / name).rename(folder / f"{name}.old")
        (folder / name).write_text("#!/bin/sh\nexit 0\n")
        (folder / name).chmod(0o755)
    found = check(tracked, "hook")
    paths = tuple(f".git/hooks/{name}".encode() for name in names)
    assert (found.level, found.paths) == (Level.WARN, paths)
    tracked.run("sh", "-c", told(tracked, "hook").partition(" puts ours there too")[0])
    assert check(tracked, "hook").level is Level.OK
    assert refuses_raw(tracked)


@pytest.mark.parametrize("file", ["lefthook.yml", ".git/hooks/pre-commit.legacy"])
def test_a_manager_of_hooks_may_call_ours(tracked: Repo, file: str) -> None:
    hooks.install(tracked.repository, LAUNCHER)
    tracked.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n")
    tracked.write(file, "run: wtxtgit hook pre-commit\n")
    assert check(tracked, "hook").level is Level.OK


@pytest.mark.parametrize("scope", ["local", "global"])
def test_hooks_that_are_switched_off(tracked: Repo, scope: str) -> None:
    hooks.install(tracked.repository, LAUNCHER)
    tracked.git("config", f"--{scope}", "core.hooksPath", "/dev/null")
    assert check(tracked, "hook").level is Level.WARN
    tracked.run(*shlex.split(told(tracked, "hook")))
    assert check(tracked, "hook").level is Level.OK


def test_uninstall_finds_the_hooks_wherever_they_are(tracked: Repo, husky: Path) -> None:
    before = {one: one.read_bytes() for one in husky.iterdir()}
    tracked.wtxtgit("install", "--local", "--hooks", "--force")
    assert {one.read_bytes() for one in husky.glob("*.before-wtxtgit")} == {*before.values()}
    tracked.commit()
    tracked.git("worktree", "add", "-q", "../linked")
    tracked.git("config", "core.hooksPath", "elsewhere")
    tracked.wtxtgit("uninstall", "--local", cwd="../linked")
    assert {one: one.read_bytes() for one in husky.iterdir()} == before
    left = {one.name for one in (tracked.path / ".git/hooks").iterdir()}
    assert left.isdisjoint(hooks.NAMES)
    assert b"wtxtgit" not in tracked.git("config", "--local", "--list")
