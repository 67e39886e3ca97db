from __future__ import annotations

import pytest

from wtxtgit.filter.process import is_adding, stores


@pytest.mark.parametrize(
    "line",
    [
        "git add .",
        "/usr/bin/git stage a b",
        "git -C x -c a.b=n --git-dir y --no-pager add -v -- -n",
        "git add -A",
        "git add -u --verbose",
        "git --git-dir=a --work-tree=b add --force c",
        "git --exec-path=/x add c",
        "git commit -a",
        "git commit -qam message",
        "git commit --all -m text",
        "git commit -am pz --no-verify",
        "git update-index -z --add --remove --stdin",
    ],
)
def test_what_stores(line: str) -> None:
    assert stores(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "git diff --cached add",
        "git -c add=1 status",
        "git -C add diff",
        "git add -n .",
        "git add -vn .",
        "git add --dry-run .",
        "git add --dry .",
        "git add -N .",
        "git add --intent-to-add .",
        "git add --refresh .",
        "git add --ref .",
        "git add -p",
        "git commit -m message",
        "git commit -ma",
        "git commit -qFa",
        "git commit --amend --no-edit",
        "git commit -a --dry-run",
        "git commit -a --dry",
        "git commit -ap",
        "git commit --all --short",
        "git commit -m x -- -a",
        "git update-index --refresh",
        "git update-index --really-refresh --add",
        "git hash-object --path=add x",
        "notgit add .",
        "git",
        "git -C",
        "",
    ],
)
def test_what_only_looks(line: str) -> None:
    assert not stores(line.split())


def test_this_is_no_git() -> None:
    assert not is_adding()
