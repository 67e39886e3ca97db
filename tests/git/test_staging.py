from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.git.histories import new_repo
from tests.kit import Repo, safetensors
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import index, run, staging
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeEntry

NAMES = [b"a.wsum", b"-n.wsum", b"x/new\nline.wsum", b"\xff\xfe.wsum", b":(top)s.wsum", b"*.wsum"]


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_what_is_staged_is_what_was_given(tmp_path: Path, kind: str) -> None:
    repo = new_repo(tmp_path / "r", kind)
    repository = repo.repository
    contents = {name: b"ledger of %b\n" % name for name in NAMES}
    files = [
        TreeEntry(name, 0o100644, staging.write_blob(repository, content))
        for name, content in contents.items()
    ]
    staging.stage(repository, files)
    staged = {entry.path: entry for entry in index.entries(repository)}
    assert staged.keys() == contents.keys()
    for name, content in contents.items():
        assert repo.git("cat-file", "blob", staged[name].oid) == content
        repo.write(name, content)
    staging.add(repository, NAMES, "--refresh")
    repo.commit()
    assert repo.status() == b""
    staging.stage(repository, [])
    staging.add(repository, [], "--refresh")


def test_no_filter_touches_a_blob(tracked: Repo) -> None:
    tracked.git("config", "core.autocrlf", "true")
    data = safetensors(4.0) + b"\r\n"
    oid = staging.write_blob(tracked.repository, data)
    assert tracked.git("cat-file", "blob", oid) == data


def test_after_a_refresh_no_file_is_read_again(repo: Repo) -> None:
    mark = repo.path.parent / "mark"
    command = (
        f"{sys.executable} -c \"import sys;open('{mark}','a');sys.stdout.write(sys.stdin.read())\""
    )
    repo.git("config", "filter.told.clean", command)
    repo.write(".gitattributes", "*.wsum filter=told\n")
    repo.add()
    repo.write("a.wsum", "1\n")
    oid = staging.write_blob(repo.repository, b"1\n")
    staging.stage(repo.repository, [TreeEntry(b"a.wsum", 0o100644, oid)])
    # Long ago: git takes no file that is as new as the index for unchanged.
    os.utime(repo.path / "a.wsum", (10**9, 10**9))
    staging.add(repo.repository, [b"a.wsum"], "--refresh")
    mark.unlink()
    assert repo.status() == b"A  .gitattributes\0A  a.wsum\0"
    assert not mark.exists()


def test_a_refresh_stages_nothing(repo: Repo) -> None:
    oid = staging.write_blob(repo.repository, b"staged")
    staging.stage(repo.repository, [TreeEntry(b"a", 0o100644, oid)])
    repo.write("a", b"in the work tree")
    staging.add(repo.repository, [b"a"], "--refresh")
    assert repo.blob("a") == b"staged"


def test_a_conflict_ends_with_what_is_staged(repo: Repo) -> None:
    oids = [staging.write_blob(repo.repository, b"%d" % i) for i in range(4)]
    lines = [b"100644 %b %d\ta" % (oid.encode(), i) for i, oid in enumerate(oids) if i]
    repo.git("update-index", "-z", "--index-info", stdin=run.joined(lines))
    assert [entry.stage for entry in index.entries(repo.repository)] == [1, 2, 3]
    staging.stage(repo.repository, [TreeEntry(b"a", 0o100644, oids[0])])
    (entry,) = index.entries(repo.repository)
    assert (entry.stage, entry.oid) == (0, oids[0])


def test_a_locked_index_is_told(repo: Repo) -> None:
    oid = staging.write_blob(repo.repository, b"1")
    (repo.path / ".git/index.lock").write_bytes(b"")
    with pytest.raises(EnvironmentFailure, match=r"index\.lock"):
        staging.stage(repo.repository, [TreeEntry(b"a", 0o100644, oid)])


def test_the_index_is_the_one_of_the_environment(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_INDEX_FILE", str(repo.path / "other"))
    oid = staging.write_blob(repo.repository, b"1")
    staging.stage(repo.repository, [TreeEntry(b"a", 0o100644, oid)])
    assert [entry.path for entry in index.entries(repo.repository)] == [b"a"]
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert index.entries(repo.repository) == []


_HOOK = """\
#!{python}
import sys
sys.path.insert(0, {package!r})
from wtxtgit.git import staging, trees
from wtxtgit.git.repository import Repository
repo = Repository.discover()
with open({told!r}, "a") as file:
    print(staging.is_partial_commit(repo), staging.stages_by_itself(repo), file=file)
oid = staging.write_blob(repo, b"ledger")
staging.stage(repo, [trees.TreeEntry(b"a.wsum", 0o100644, oid)])
"""


@pytest.mark.parametrize(
    ("arguments", "partial", "stages"),
    [
        ((), False, False),
        (("--amend", "--no-edit"), False, False),
        (("-a",), False, True),
        (("-i", "f"), False, True),
        (("f",), True, True),
        (("-o", "f"), True, True),
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_a_hook_of_a_partial_commit(
    repo: Repo, arguments: tuple[str, ...], partial: bool, stages: bool, linked: bool
) -> None:
    repo.write("f", b"1")
    repo.add()
    repo.commit()
    told = repo.path.parent / "told"
    package = str(Path(staging.__file__).parents[2])
    hook = repo.write(
        ".git/hooks/pre-commit",
        _HOOK.format(python=sys.executable, package=package, told=str(told)),
    )
    hook.chmod(0o755)
    if linked:
        repo.git("worktree", "add", "-q", "../linked")
        repo = Repo(repo.path.parent / "linked")
    repo.write("f", b"2")
    if arguments in ((), ("--amend", "--no-edit")):
        repo.add()
    repo.git("commit", "-q", "-m", "c", *arguments)
    assert told.read_text() == f"{partial} {stages}\n"
    # What the hook staged is in the commit; after a partial one the index has lost it.
    assert repo.blob("a.wsum", "HEAD") == b"ledger"
    staged = {entry.path for entry in index.entries(repo.repository)}
    assert (b"a.wsum" in staged) is not partial


def test_a_checkout_that_is_interrupted_leaves_no_file_out(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [repo.write(name, name) for name in ("a", "b", "gone")]
    repo.add()
    files.pop().unlink()
    checked_out = staging._checkout

    def interrupted(repository: Repository, paths: Iterable[bytes]) -> None:
        """As git does that is told to end: what it was to write next is away."""
        files[0].unlink()
        monkeypatch.setattr(staging, "_checkout", checked_out)
        raise KeyboardInterrupt

    monkeypatch.setattr(staging, "_checkout", interrupted)
    with pytest.raises(KeyboardInterrupt):
        staging.checkout(repo.repository, [b"a", b"b", b"gone"])
    assert repo.status() == b"A  a\0A  b\0AD gone\0"
