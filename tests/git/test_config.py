from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.kit import LAUNCHER, Repo
from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.git import driver
from wtxtgit.git.driver import Launcher
from wtxtgit.git.repository import Config, values_in
from wtxtgit.setup import install


def test_install_sets_all_and_uninstall_leaves_nothing(repo: Repo, home: Path) -> None:
    before = (home / ".gitconfig").read_bytes()
    done = install.set_driver(LAUNCHER, scope="global")
    assert set(done.keys) == set(driver.KEYS)
    for key, value in LAUNCHER.values().items():
        assert repo.git("config", "--get", key).decode() == value + "\n"
    again = install.set_driver(LAUNCHER, scope="global")
    assert again.keys == ()
    gone = install.unset_driver(scope="global")
    assert set(gone.keys) == set(driver.KEYS)
    assert (home / ".gitconfig").read_bytes() == before


def test_the_local_scope_is_another(repo: Repo) -> None:
    install.set_driver(LAUNCHER, scope="local", cwd=repo.path)
    assert values_in("filter.wtxt.required", scope="local", cwd=repo.path) == ["true"]
    assert values_in("filter.wtxt.required", scope="global", cwd=repo.path) == []
    assert install.unset_driver(scope="global", cwd=repo.path).keys == ()


def test_a_foreign_value_stays_unless_forced(repo: Repo) -> None:
    repo.git("config", "filter.wtxt.clean", "other-tool clean")
    with pytest.raises(CheckError, match="other-tool") as caught:
        install.set_driver(LAUNCHER, scope="local", cwd=repo.path)
    assert "--force" in str(caught.value.hint)
    assert Config(repo.path).get("filter.wtxt.process") is None
    left = install.unset_driver(scope="local", cwd=repo.path)
    assert left.foreign == {"filter.wtxt.clean": "other-tool clean"}
    assert Config(repo.path).get("filter.wtxt.clean") == "other-tool clean"
    forced = install.set_driver(LAUNCHER, scope="local", force=True, cwd=repo.path)
    assert forced.foreign == {"filter.wtxt.clean": "other-tool clean"}
    assert Config(repo.path).get("filter.wtxt.clean").endswith("clean -- %f")


def test_keys_of_others_and_without_a_value_are_read_as_git_has_them(repo: Repo) -> None:
    (repo.path / ".git/config").write_bytes(
        b'[filter]\n\twtxt = x\n[Filter "wtxt"]\n\tRequired\n\tclean = a\n\tclean = b\n'
        b'[filter "WTXT"]\n\tclean = c\n[diff "wtxt=y"]\n\tcommand = d\n'
    )
    found = install.driver_values(scope="local", cwd=repo.path)
    assert {key: values for key, values in found.items() if values} == {
        key: values_in(key, scope="local", cwd=repo.path)
        for key in ("filter.wtxt.required", "filter.wtxt.clean")
    }
    assert found["filter.wtxt.clean"] == ["a", "b"]


def test_git_is_asked_once_for_what_is_set(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.set_driver(LAUNCHER, scope="local", cwd=repo.path)
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(trace))
    install.set_driver(LAUNCHER, scope="local", cwd=repo.path)
    assert trace.read_bytes().count(b'"event":"start"') == 1


def test_an_older_install_of_ours_is_replaced(repo: Repo) -> None:
    repo.git("config", "filter.wtxt.process", "/old/python -E -P -m wtxtgit filter-process")
    repo.git("config", "filter.wtxt.smudge", "'/o l d/bin/git-wtxt' smudge -- %f")
    done = install.set_driver(LAUNCHER, scope="local", cwd=repo.path)
    assert "filter.wtxt.process" in done.keys
    assert done.foreign == {}


@pytest.mark.parametrize(
    "value",
    ["", "'", "wtxtgit", "evil wtxtgit filter-process", "wtxtgit-fork filter-process",
     "git lfs filter-process", "python -m wtxtgit2 filter-process"],
)  # fmt: skip
def test_values_that_are_not_ours(value: str) -> None:
    assert not driver.is_ours("filter.wtxt.process", value)


@pytest.mark.parametrize("value", ["diff-driver --", "wtxtgit diff-driver", "wtxtgit diff --"])
def test_diff_drivers_that_are_not_ours(value: str) -> None:
    assert driver.is_ours("diff.wtxt.command", "/bin/wtxtgit diff-driver --")
    assert not driver.is_ours("diff.wtxt.command", value)


def test_the_command_survives_sh(tmp_path: Path) -> None:
    program = tmp_path / 'it\'s $HOME; a "p"' / "wtxtgit"
    command = Launcher((str(program),)).command("filter-process")
    assert shlex.split(command) == [str(program), "filter-process"]
    assert driver.is_ours("filter.wtxt.process", command)


@pytest.mark.true_start
def test_the_launcher_ignores_the_folder_and_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(99)")
    (tmp_path / "wtxtgit.py").write_text("raise SystemExit(99)")
    (tmp_path / "site.py").write_text("raise SystemExit(99)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = install.find_launcher()
    assert found.arguments == (sys.executable, "-E", "-P", "-m", "wtxtgit")


@pytest.mark.true_start
def test_a_repository_of_hostile_modules_is_not_imported(tracked: Repo) -> None:
    for name in ("numpy", "wtxtgit", "pybase64", "hashlib", "json", "sitecustomize"):
        tracked.write(f"{name}.py", "open('executed', 'w')\nraise SystemExit(99)\n")
    tracked.write("b.safetensors", (tracked.path / "model.safetensors").read_bytes())
    tracked.add("b.safetensors")
    assert tracked.blob("b.safetensors").startswith(b"WTXT 1\n")
    assert not (tracked.path / "executed").exists()


def test_a_command_that_does_not_start_is_told() -> None:
    with pytest.raises(EnvironmentFailure, match="no-such-program"):
        install.check_start("/no-such-program filter-process")
    with pytest.raises(EnvironmentFailure, match="greets"):
        install.check_start("echo 0000")
    with pytest.raises(EnvironmentFailure):
        install.check_start("true")


def test_sizes_have_gits_suffixes(repo: Repo) -> None:
    assert Config(repo.path).size("core.bigFileThreshold", 7) == 7
    repo.git("config", "core.bigFileThreshold", "2m")
    assert Config(repo.path).size("core.bigFileThreshold", 7) == 2 << 20
    repo.git("config", "core.bigFileThreshold", "much")
    assert Config(repo.path).size("core.bigFileThreshold", 7) == 7
