from __future__ import annotations

import pytest

from wtxtgit.filter.process import is_adding, is_merging, merges, stores


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
        "git commit -m message path",
        "git commit -mmessage path",
        "git commit --message text --author me path",
        "git commit --message=text --only path",
        "git commit -qm message -- path",
        "git commit -uno -m message path",
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
        "git commit -F file",
        "git commit --message text",
        "git commit --author me --date now -m message",
        "git commit --unknown value",
        "git commit --mess text",
        "git commit --dry-run path",
        "git commit -p path",
        "git commit -m message --",
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


@pytest.mark.parametrize("command", ["merge", "rebase", "cherry-pick", "revert", "stash", "am"])
def test_what_stores_merges(command: str) -> None:
    assert merges(["/usr/bin/git", "-c", "a.b=show", command, "x"])


@pytest.mark.parametrize(
    "line", ["git show --remerge-diff", "git log merge", "git", "", "notgit merge x"]
)
def test_what_merges_to_show(line: str) -> None:
    assert not merges(line.split())


def test_this_is_no_git() -> None:
    assert not is_adding()
    assert not is_merging()
