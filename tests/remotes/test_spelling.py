"""Targets by their spelling."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.cluster.stores import HTTP
from tests.kit import Repo
from tests.remotes.behaviour import SECRET
from wtxtgit.errors import UsageError
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.git_target import Git
from wtxtgit.remotes.lfs_target import LFS
from wtxtgit.remotes.registry import Registry
from wtxtgit.remotes.release import Release
from wtxtgit.remotes.spelling import parse_target

HTTPS = HTTP.replace("p:", "ps:")


@pytest.mark.parametrize(
    ("spelled", "kind", "label"),
    [
        ("git:origin#snapshots", Git, None),
        ("git:origin#a/b:runs/1", Git, None),
        (f"git:{HTTPS}example.com/x.git#b", Git, None),
        ("git:git@example.com:o/r.git#b:x", Git, None),
        (f"lfs:{HTTPS}example.com/x.git#b:x", LFS, None),
        ("release:o/r@v1", Release, None),
        ("release:o/r@runs/1", Release, None),
        ("oci:example.com/o/r:last", Registry, None),
        ("oci:localhost:5000/r", Registry, "oci:localhost:5000/r:latest"),
        ("memory://x/y", Folder, None),
        (f"{HTTP}user:{SECRET}@example.com/x", Folder, f"{HTTP}example.com/x"),
    ],
)
def test_each_kind(repo: Repo, spelled: str, kind: type, label: str | None) -> None:
    target = parse_target(spelled, repo.path)
    assert type(target) is kind
    # What it calls itself is what it is called by.
    assert target.label == (label or spelled)
    assert pickle.loads(pickle.dumps(target)).label == target.label  # noqa: S301 - our own


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for spelled in ("x", "./git:x", str(tmp_path / "x"), "C:x"):
        target = parse_target(spelled)
        assert type(target) is Folder
        assert target.label == str(tmp_path / Path(spelled))


@pytest.mark.parametrize(
    "spelled",
    [
        "",
        "git:origin",
        "git:#b",
        "git:origin#",
        "git:origin#b:",
        "git:origin#b:../x",
        f"git:{HTTPS}user:{SECRET}@example.com/x",
        f"git:{HTTPS}user:{SECRET}@example.com/x#b",
        "lfs:origin",
        "release:o/r",
        "release:@v1",
        "oci:",
        "oci:x",
    ],
)
def test_what_is_none(repo: Repo, spelled: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_target(spelled, repo.path)
    assert SECRET not in str(raised.value)
