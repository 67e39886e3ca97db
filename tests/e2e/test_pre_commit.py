"""Our hooks run by the pre-commit framework: <https://pre-commit.com>."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.e2e.sealed import MODEL, ROOT, Sealed, checkpoint
from tests.kit import LAUNCHER, Repo
from wtxtgit.git import run

MANIFEST = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"
PRE_COMMIT = Path(sys.executable).with_name("pre-commit")
TYPES = ("pre-commit", "pre-merge-commit", "pre-push")
CONFIG = """\
repos:
  - repo: {folder}
    rev: {commit}
    hooks:
      # As in the manifest, but for the environment, which would be installed from the net.
      - id: wtxtgit-check
        language: system
      - id: wtxtgit-audit
        language: system
"""

pytestmark = pytest.mark.slow


def test_the_manifest_is_valid(repo: Repo) -> None:
    repo.run(PRE_COMMIT, "validate-manifest", MANIFEST)


@pytest.fixture
def framed(chain: Sealed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sealed:
    """A sealed repository whose hooks are the framework's."""
    (tmp_path / "manifest").mkdir()
    shipped = Repo(tmp_path / "manifest")
    shipped.git("init", "-q")
    shipped.write(MANIFEST.name, MANIFEST.read_bytes())
    shipped.add()
    commit = shipped.commit()
    folder = Path(LAUNCHER.arguments[0]).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "cache"))
    chain.write(".pre-commit-config.yaml", CONFIG.format(folder=shipped.path, commit=commit))
    chain.add()
    chain.commit("config")
    chain.run(PRE_COMMIT, "install", *(f"--hook-type={name}" for name in TYPES))
    chain.git("config", "wtxtgit.trustRoot", ROOT)
    return chain


def test_commits_merges_and_pushes(framed: Sealed, tmp_path: Path) -> None:
    run.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    framed.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    framed.put(2.0)
    said = framed.run("git", "commit", "-m", "two", ok=(1,)).stderr.decode()
    assert f"{MODEL}: content-mismatch" in said
    assert f"hint: wtxtgit seal --staged -- {MODEL}" in said
    framed.seal(MODEL)
    framed.commit("two")
    framed.git("push", "-q", "origin", "main")

    framed.branch("side")
    framed.put(3.0)
    framed.commit("unsealed", "--no-verify")
    framed.switch("main")
    framed.commit("later")
    said = framed.run("git", "merge", "--no-edit", "side", ok=(1, 128)).stderr.decode()
    assert f"{MODEL}: content-mismatch" in said
    assert "wtxtgit seal --reseal" in said
    framed.git("merge", "--abort")

    framed.add_raw(MODEL, checkpoint(4.0))
    framed.commit("raw", "--no-verify")
    for branch in ("main", "new"):
        framed.git("branch", "-f", "new")
        done = framed.run("git", "push", "origin", branch, ok=(1,))
        said = (done.stdout + done.stderr).decode()
        assert f"refs/heads/{branch}: {framed.head[:12]}: {MODEL}: raw-binary" in said
