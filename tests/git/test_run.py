from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.git.histories import SUBMODULE, History, put_in_place
from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import blobs, history, index, run, work_tree
from wtxtgit.git.repository import Repository
from wtxtgit.git.store import reader


def test_a_failure_says_command_code_and_stderr(repo: Repo) -> None:
    with pytest.raises(run.GitFailure) as caught:
        run.git("cat-file", "blob", "no such", cwd=repo.path)
    assert caught.value.code == 128
    assert caught.value.exit_code == 5
    assert caught.value.message.startswith("git cat-file blob 'no such' ended with 128: fatal: ")


def test_git_is_never_taken_from_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "git"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join((".", "", os.environ["PATH"])))
    run.executable.cache_clear()
    found = Path(run.executable())
    run.executable.cache_clear()
    assert found.is_absolute()
    assert found != fake


def test_no_git_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    run.executable.cache_clear()
    with pytest.raises(EnvironmentFailure, match="not on PATH"):
        run.executable()
    run.executable.cache_clear()


def test_no_git_is_started_whose_exit_code_is_lost(repo: Repo) -> None:
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(EnvironmentFailure, match="this program ignores SIGCHLD"):
            run.git("cat-file", "blob", "no such", cwd=repo.path)
    finally:
        signal.signal(signal.SIGCHLD, usual)


def test_only_known_variables_pass_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "evil")
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    monkeypatch.setenv("GIT_DIR", "x/.git")
    env = run.environment()
    assert "GIT_EXTERNAL_DIFF" not in env
    assert "GIT_LITERAL_PATHSPECS" not in env
    assert env["GIT_INDEX_FILE"] == ".git/index"
    assert env["GIT_DIR"] == str(Path.cwd() / "x/.git")
    assert env["GIT_OPTIONAL_LOCKS"] == "0"


def test_a_stream_that_is_not_read_to_its_end_does_not_hang(repo: Repo) -> None:
    repo.write("big", bytes(8 << 20))
    repo.add()
    oid = repo.git("rev-parse", ":big").decode().strip()
    with repo.repository.stream("cat-file", "blob", oid) as blob:
        assert blob.stdout.read(10) == bytes(10)


class _TerminatedHereError(Exception):
    pass


@contextmanager
def _terminated() -> Iterator[None]:
    """What is done in here is interrupted by a SIGTERM."""

    def terminated(*_: object) -> None:
        raise _TerminatedHereError

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        with pytest.raises(_TerminatedHereError):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _terminated_at(event: str, function: str) -> Iterator[None]:
    """It is, once Python calls (`c_call`) or has called (`c_return`) a function written in C.

    No child is left behind then.
    """

    def happened(_frame: object, what: str, called: object) -> None:
        if what == event and getattr(called, "__name__", "") == function:
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGTERM)

    children = _CHILDREN.read_bytes()
    try:
        with _terminated():
            sys.setprofile(happened)
            yield
    finally:
        sys.setprofile(None)
    assert _CHILDREN.read_bytes() == children


@pytest.mark.parametrize("stdin", [b"", b"file\0"])
def test_a_git_that_has_no_input_may_end_what_it_is_at(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stdin: bytes
) -> None:
    def communicate(self: subprocess.Popen[bytes], given: bytes) -> tuple[bytes, bytes]:
        if not stdin:
            gate.write_text("go on\n")
        return usual(self, given)

    usual = subprocess.Popen.communicate
    # Far more than it takes.
    monkeypatch.setattr(run, "_MOMENT", 60)
    monkeypatch.setattr(subprocess.Popen, "communicate", communicate)
    # The hook has this process told to end while it waits, and git ends once the hook has.
    gate, trace = tmp_path / "gate", tmp_path / "trace"
    os.mkfifo(gate)
    steps = [f"read line < {gate}", f"kill -TERM {os.getpid()}"]
    hook = repo.path / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("\n".join(["#!/bin/sh", *(reversed(steps) if stdin else steps), ""]))
    hook.chmod(0o755)
    repo.path.joinpath("file").write_text("content")
    asked = ("-z", "--stdin") if stdin else ("file",)
    env = {"GIT_TRACE2_EVENT": str(trace)}
    try:
        with _terminated():
            run.call("update-index", "--add", *asked, cwd=repo.path, stdin=stdin, env=env)
    finally:
        if stdin:
            gate.write_text("go on\n")
    assert (b'"event":"exit"' in trace.read_bytes()) == (not stdin)


_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")
_LISTS_CHILDREN = pytest.mark.skipif(
    not _CHILDREN.exists(), reason="/proc has no children here: run it on Linux"
)


@_LISTS_CHILDREN
@pytest.mark.parametrize("start", [run.call, run.GitStream])
def test_a_signal_while_git_starts_leaves_none_behind(
    repo: Repo, start: Callable[..., object]
) -> None:
    with _terminated_at("c_return", "fork_exec"):
        start("cat-file", "--batch", cwd=repo.path)


@_LISTS_CHILDREN
def test_a_signal_while_a_stream_ends_leaves_none_behind(repo: Repo) -> None:
    """It would go on writing into a folder that is removed meanwhile."""
    # Nobody writes into it: git waits, whatever becomes of its input.
    os.mkfifo(repo.path / "pipe")
    command = ("hash-object", "pipe")
    with _terminated_at("c_call", "waitpid"), run.GitStream(*command, cwd=repo.path):
        pass


def test_outside_a_repository(tmp_path: Path) -> None:
    assert Repository.find(tmp_path) is None
    with pytest.raises(EnvironmentFailure, match="not in a git repository") as caught:
        Repository.discover(tmp_path)
    assert caught.value.exit_code == 5


def test_a_broken_repository_is_no_missing_one(repo: Repo) -> None:
    (repo.path / ".git/config").write_text("[core\n")
    with pytest.raises(run.GitFailure, match="bad config"):
        Repository.find(repo.path)


def test_a_linked_worktree_shares_state_and_hooks(repo: Repo, tmp_path: Path) -> None:
    repo.commit()
    repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
    linked = Repository.discover(tmp_path / "linked")
    assert linked.top == tmp_path / "linked"
    assert linked.common_dir == repo.path / ".git"
    assert linked.git_dir == repo.path / ".git/worktrees/linked"
    assert linked.hooks_dir == repo.path / ".git/hooks"
    state = linked.state_dir()
    assert state == repo.path / ".git/wtxtgit"
    assert state.stat().st_mode & 0o777 == 0o700


def test_a_bare_repository(tmp_path: Path) -> None:
    run.git("init", "-q", "--bare", "bare", cwd=tmp_path)
    bare = Repository.discover(tmp_path / "bare")
    assert bare.is_bare
    assert bare.state_dir() == tmp_path / "bare/wtxtgit"
    with pytest.raises(EnvironmentFailure, match="work tree"):
        _ = bare.worktree


def test_a_folder_with_a_newline_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb \udcff\n"
    folder.mkdir()
    run.git("init", "-q", cwd=folder)
    (folder / "sub").mkdir()
    found = Repository.discover(folder / "sub")
    assert (found.top, found.prefix) == (folder, b"sub/")


def test_index_entries_with_hostile_names(repo: Repo) -> None:
    names = [b"-rf", b"a\nb", b'q"uote', b"tab\there", b"\xff\xfe", b"\x1b[31m", b":(top)x", b"*"]
    for name in names:
        repo.write(name, b"x")
    repo.git("--literal-pathspecs", "add", "--", *names)
    assert sorted(entry.path for entry in index.entries(repo.repository)) == sorted(names)


def test_blob_heads_of_small_and_big_blobs(repo: Repo) -> None:
    contents = [b"", b"x", os.urandom(5000), os.urandom(3 << 20)]
    for i, content in enumerate(contents):
        repo.write(str(i), content)
    repo.add()
    entries = index.entries(repo.repository)
    heads = reader.blob_heads(repo.repository, (entry.oid for entry in entries))
    for entry, content in zip(entries, contents, strict=True):
        assert heads[entry.oid].size == len(content)
        assert heads[entry.oid].head == content[: work_tree.HEAD_SIZE]
        with blobs.BlobReader(repo.repository) as whole:
            assert b"".join(whole.chunks(entry.oid)) == content


def test_a_blob_that_is_not_there(repo: Repo) -> None:
    with pytest.raises(EnvironmentFailure, match="no blob"):
        blobs.sizes(repo.repository, ["0" * 40])
    with pytest.raises(EnvironmentFailure, match="names nothing"):
        history.resolve(repo.repository, "--all")


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_a_file_is_compared_with_a_blob(tmp_path: Path, kind: str) -> None:
    run.git("init", "-q", f"--object-format={kind}", "r", cwd=tmp_path)
    repo = Repo(tmp_path / "r")
    file = repo.write("f", b"content")
    repo.add()
    (entry,) = index.entries(repo.repository)
    assert work_tree.file_is_blob(file, entry.oid)
    file.write_bytes(b"Content")
    assert not work_tree.file_is_blob(file, entry.oid)


def test_links_and_fifos_are_no_files(repo: Repo) -> None:
    (repo.path / "link").symlink_to(repo.write("f", b"x"))
    os.mkfifo(repo.path / "fifo")
    assert work_tree.file_head(repo.path / "f") == b"x"
    for name in ("link", "fifo", "nothing", "."):
        assert work_tree.file_head(repo.path / name) is None
        assert work_tree.file_size(repo.path / name) is None


def test_a_blob_is_found_by_the_tree_itself(repo: Repo) -> None:
    make = History(repo)
    tree = make.tree({b"x/a": b"1", b"b:c": b"2", b"sub": (SUBMODULE, b"1" * 40)})
    repo.git("tag", "t", repo.git("commit-tree", "-m", "about: {a", tree).decode().strip())
    found = history.resolve_blob(repo.repository, "t:x/a")
    assert found == make.blob(b"1").decode()
    for name in ("t^{tree}:x/a", f"{tree}:x/a", "t^{/about: }:x/a", "t~0:x/a"):
        assert history.resolve_blob(repo.repository, name) == found
    assert history.resolve_blob(repo.repository, "t:b:c") == make.blob(b"2").decode()
    for name, fault in (("t:x", "names a tree"), ("t:sub", "names a commit"), ("t", "a commit"),
                        ("t:no", "'t' has no 'no'"), ("no:x/a", "names nothing")):  # fmt: skip
        with pytest.raises(EnvironmentFailure, match=fault):
            history.resolve_blob(repo.repository, name)
    # Git takes the first of the two.
    one, two = (b"100644 a\0" + bytes.fromhex(make.blob(c).decode()) for c in (b"1", b"2"))
    options = ("-t", "tree", "-w", "--stdin", "--literally")
    crooked = repo.git("hash-object", *options, stdin=one + two).decode().strip()
    assert repo.git("cat-file", "blob", f"{crooked}:a") == b"1"
    with pytest.raises(EnvironmentFailure, match="has 'a' twice"):
        history.resolve_blob(repo.repository, f"{crooked}:a")


def test_before_the_first_commit(repo: Repo) -> None:
    for name in ("HEAD", "HEAD~1", "HEAD^{tree}", "HEAD:file"):
        with pytest.raises(EnvironmentFailure, match="no commits yet"):
            history.resolve_path(repo.repository, name)
    for name in ("HEADS", "main:file", "HEAD-1"):
        with pytest.raises(EnvironmentFailure, match="names nothing"):
            history.resolve_path(repo.repository, name)
    with pytest.raises(EnvironmentFailure, match="no commits yet"):
        history.resolve_commit(repo.repository, "HEAD")


def test_a_tree_is_told_by_the_commit_itself(repo: Repo) -> None:
    make = History(repo)
    commit, other = make.commit({b"a": b"1"}), make.commit({b"a": b"2"})
    repo.git("replace", commit, other)
    assert history.resolve_tree(repo.repository, commit) == make.tree({b"a": b"1"})
    repo.git("replace", "-d", commit)
    put_in_place(repo, commit, b"commit", repo.git("cat-file", "commit", other))
    with pytest.raises(EnvironmentFailure, match="names nothing"):
        history.resolve_tree(repo.repository, commit)
