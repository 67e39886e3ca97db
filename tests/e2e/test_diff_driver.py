"""`git diff` and all that shows diffs, through the driver."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import wtxtgit as api
from tests.e2e.conftest import FOLD, MODEL, PAIRS, states, traced, version
from tests.kit import Repo, safetensors
from wtxtgit.git import run

HEADER = re.compile(rb"^diff --wtxt (.*)$", re.MULTILINE)
ROWS = {
    "single.aero": b"3 of 500: 3-4, 200",
    FOLD: b"4 of 600: 3-5, 300",
    MODEL: b"2 of 700: 2, 600",
}
"""Rows of the one tensor that version 2 changes, where a file has bytes of tensors."""


def headers(shown: bytes) -> list[str]:
    return [line.decode() for line in HEADER.findall(shown)]


def changed_rows(shown: bytes) -> list[bytes]:
    """Of the tables the rows that changed in the tensor for embeddings."""
    found = rb"^\S*embed\S*  .*  (\d+ of \d+: [-\d, ]+\d)  "
    return re.findall(found, shown, re.MULTILINE)


@pytest.fixture
def models(repo: Repo, driver: None) -> Repo:
    """Two commits of one small file."""
    repo.track("*.safetensors")
    for values in ((1.0, 2.0, 3.0), (1.0, -2.0, 3.0)):
        repo.write(MODEL, safetensors(*values))
        repo.add()
        repo.commit()
    return repo


FLIPPED = "1 tensor: 1 changed; 1 element, L2 4 "


@pytest.mark.true_start
@pytest.mark.slow
def test_the_work_tree_the_index_and_commits(models: Repo) -> None:
    assert models.git("diff") == b""
    models.write(MODEL, safetensors(1.0, 2.0, 3.0))
    told = models.git("diff")
    assert headers(told) == [f"{MODEL}: changed, safetensors"]
    assert told.splitlines()[1].decode().startswith(FLIPPED)
    assert models.git("diff", "--cached") == b""
    models.add()
    assert models.git("diff") == b""
    assert models.git("diff", "--cached") == told
    assert models.git("diff", "HEAD") == told
    between = models.git("diff", "HEAD~1", "HEAD")
    assert between.splitlines()[1].decode().startswith(FLIPPED)
    assert b"2 -> 0.667" in between, "the other way round"


@pytest.mark.slow
def test_history_shows_it_when_it_is_asked_to(models: Repo) -> None:
    with_table = models.git("log", "-p", "--ext-diff", "--format=%s%n")
    assert headers(with_table) == [
        f"{MODEL}: changed, safetensors",
        f"{MODEL}: added, safetensors, 76 B",
    ]
    assert headers(models.git("show", "--ext-diff")) == [f"{MODEL}: changed, safetensors"]
    for command in (("log", "-p"), ("show",)):
        text = models.git(*command)
        assert headers(text) == []
        assert b"\n+arr name=w " in text


@pytest.mark.slow
def test_the_text_is_a_word_away(models: Repo) -> None:
    shown = models.git("diff", "--no-ext-diff", "-U0", "HEAD~1")
    assert shown.startswith(b"diff --git a/model.safetensors b/model.safetensors\n")
    assert re.search(rb"^@@ .* @@ w$", shown, re.MULTILINE)
    assert b"\n-arr name=w " in shown
    assert models.git("diff", "--stat", "HEAD~1").startswith(b" model.safetensors | ")
    assert models.git("diff", "--numstat", "HEAD~1").endswith(b"\tmodel.safetensors\n")
    assert models.git("diff", "--name-only", "HEAD~1") == b"model.safetensors\n"


@pytest.mark.slow
def test_what_fails_does_not_end_the_diff(models: Repo) -> None:
    """Git stops at a file whose driver fails, and would not show the next ones."""
    names = ("a.safetensors", MODEL, "z.safetensors")
    for name in names:
        models.write(name, b"junk" if name != MODEL else safetensors(1.0, 2.0, 3.0))
    models.git("add", "-N", ".")
    told = models.run(run.executable(), "diff")
    assert told.stderr == b""
    assert [line.partition(":")[0] for line in headers(told.stdout)] == list(names)
    assert told.stdout.count(b"\nnot listed: ") == 2
    assert b"\nw  " in told.stdout


@pytest.mark.slow
class TestFormats:
    def test_every_format(self, pairs: Repo) -> None:
        told = pairs.git("diff", "v1", "v2")
        assert [line.partition(":")[0] for line in headers(told)] == sorted(PAIRS)
        formats = ["mlcp", "safetensors", "fold", "aero", "taridx"]
        assert sorted(line.rpartition(", ")[2] for line in headers(told)) == sorted(formats)
        assert b"not compared" not in told
        assert sorted(changed_rows(told)) == sorted(ROWS.values())
        assert b"\na: 4 x 4 -> 8 x 4, no bytes on either side: " in told, "MLCP"
        assert b"\nmetadata /n_rows: 30 -> 42\n" in told, "TARIDX"

    def test_one_filter_for_all(self, pairs: Repo) -> None:
        assert traced(pairs, "diff", "v1", "v2").filters == 1

    def test_another_format_under_another_name(self, pairs: Repo) -> None:
        pairs.wtxtgit("convert", MODEL, "model.npz")
        pairs.write(
            ".gitattributes",
            (pairs.path / ".gitattributes").read_bytes() + b"*.npz diff=wtxt filter=wtxt -text\n",
        )
        pairs.add()
        pairs.commit("converted")
        told = pairs.git("diff", f"HEAD:{MODEL}", "HEAD:model.npz")
        assert headers(told) == [f"{MODEL} -> model.npz: changed, safetensors -> npz"]
        assert b"\n2 tensors, all identical" in told

    def test_native_texts(self, repo: Repo, driver: None) -> None:
        repo.write(".gitattributes", "*.wtxt text eol=lf diff=wtxt\n")
        for value in (1.0, 2.0):
            api.dump({"w": np.full(4, value)}, repo.path / "a.wtxt")
            repo.add()
            repo.commit()
        told = repo.git("diff", "HEAD~1")
        assert headers(told) == ["a.wtxt: changed, wtxt"]
        assert b"4 elements, L2 2 (100% of the changed tensors)" in told


@pytest.mark.slow
class TestPaths:
    def test_renames(self, pairs: Repo) -> None:
        pairs.git("mv", MODEL, "sub/moved.safetensors")
        assert headers(pairs.git("diff", "-M", "HEAD")) == [
            f"{MODEL} -> sub/moved.safetensors: renamed (similarity 100%)"
        ]
        pairs.write("sub/moved.safetensors", version(MODEL, 1))
        pairs.add()
        told = pairs.git("diff", "-M", "HEAD")
        (header,) = headers(told)
        assert re.fullmatch(
            rf"{MODEL} -> sub/moved.safetensors: renamed \(similarity 9\d%\), safetensors", header
        )
        assert len(changed_rows(told)) == 1
        assert [
            line.rpartition(": ")[2] for line in headers(pairs.git("diff", "--no-renames", "HEAD"))
        ] == [
            "removed, safetensors, 183 KiB",
            "added, safetensors, 183 KiB",
        ]

    def test_copies(self, pairs: Repo) -> None:
        pairs.write("copy.safetensors", version(MODEL, 2))
        pairs.add()
        assert headers(pairs.git("diff", "-C", "--find-copies-harder", "HEAD")) == [
            f"{MODEL} -> copy.safetensors: copied (similarity 100%)"
        ]

    def test_in_a_folder(self, pairs: Repo) -> None:
        pairs.write("sub/train.taridx", version("sub/train.taridx", 1))
        for arguments in ((), ("--relative",)):
            told = pairs.git("diff", *arguments, cwd="sub")
            name = "train.taridx" if arguments else "sub/train.taridx"
            assert headers(told) == [f"{name}: changed, taridx"]

    @pytest.mark.parametrize(
        "name",
        ["a b.safetensors", "-x.safetensors", "é:\"'$(x)\t.safetensors", "HEAD:m.safetensors"],
    )
    def test_odd_names(self, name: str, models: Repo) -> None:
        models.write(name, safetensors(1.0))
        models.git("add", "--", f"./{name}")
        models.commit()
        models.write(name, safetensors(2.0))
        told = models.git("diff")
        assert headers(told) == [f"{name}: changed, safetensors".replace("\t", "\\x09")]
        assert b"1 element, L2 1 " in told

    def test_modes(self, models: Repo) -> None:
        (models.path / MODEL).chmod(0o755)
        told = models.git("diff")
        assert headers(told) == [f"{MODEL}: changed, safetensors, mode 100644 -> 100755"]
        assert b"\n1 tensor, all identical\n" in told
        models.add()
        models.commit()
        assert headers(models.git("diff", "HEAD~1", "HEAD")) == [
            f"{MODEL}: changed, mode 100644 -> 100755"
        ]

    def test_links_are_not_followed(self, models: Repo, tmp_path: Path) -> None:
        secret = tmp_path / "secret.safetensors"
        secret.write_bytes(safetensors(42.0, name="secret"))
        (models.path / "link.safetensors").symlink_to(secret)
        models.git("add", "-N", ".")
        told = models.git("diff")
        assert headers(told) == ["link.safetensors: added, symbolic link"]
        models.add()
        models.commit()
        assert headers(models.git("diff", "HEAD~1", "HEAD")) == [
            "link.safetensors: added, symbolic link"
        ]
        (models.path / MODEL).unlink()
        (models.path / MODEL).symlink_to(secret)
        told += models.git("diff")
        assert b"secret" not in told
        assert b"removed, safetensors" in told
        assert b": added, symbolic link" in told

    def test_submodules(self, models: Repo, tmp_path: Path) -> None:
        commit = models.git("rev-parse", "HEAD").decode().strip()
        models.git("update-index", "--add", "--cacheinfo", f"160000,{commit},sub.safetensors")
        assert headers(models.git("diff", "--cached")) == ["sub.safetensors: added, submodule"]

    def test_unmerged_paths(self, diverged: Repo) -> None:
        diverged.run("git", "merge", "topic", ok=(1,))
        told = diverged.git("diff", "--", FOLD)
        assert f"* Unmerged path {FOLD}\n".encode() in told or told.startswith(b"diff --cc ")
        assert b"* Unmerged path none.fold\n" in diverged.git("diff", "--cached")
        for side in ("--ours", "--theirs", "--base"):
            diverged.git("diff", side)


def damaged(text: bytes) -> bytes:
    lines = text.split(b"\n")
    number = max(i for i, line in enumerate(lines) if len(line) == 78)
    lines[number] = (b"B" if lines[number][:1] == b"A" else b"A") + lines[number][1:]
    return b"\n".join(lines)


@pytest.mark.slow
class TestTexts:
    """Sides that are no files: what was not smudged, or can't be."""

    def test_files_that_stay_text(self, pairs: Repo) -> None:
        told = pairs.git("diff", "v1", "v2")
        skipped = pairs.git("diff", "v1", "v2", env={"WTXTGIT_SKIP_SMUDGE": "1"})
        assert skipped == told

    def test_a_text_in_the_work_tree(self, pairs: Repo) -> None:
        pairs.write(MODEL, pairs.blob(MODEL, "v1"))
        told = pairs.git("diff")
        assert headers(told) == [f"{MODEL}: changed, safetensors"]
        assert len(changed_rows(told)) == 1

    def test_damaged_texts(self, pairs: Repo) -> None:
        for name in (FOLD, MODEL):
            oid = pairs.git("hash-object", "-w", "--stdin", stdin=damaged(pairs.blob(name, "v2")))
            pairs.git("update-index", "--cacheinfo", f"100644,{oid.decode().strip()},{name}")
        done = pairs.run(run.executable(), "diff", "--cached", "v1")
        assert f"wtxtgit: warning: {FOLD}: damaged, left as text" in done.stderr.decode()
        assert len(headers(done.stdout)) == len(PAIRS)
        assert done.stdout.count(b"\nnot compared: after: line ") == 2
        assert changed_rows(done.stdout) == [ROWS["single.aero"]]

    def test_conflict_markers(self, pairs: Repo) -> None:
        lines = pairs.blob(MODEL).split(b"\n")
        lines[4:4] = [b"<<<<<<< HEAD", lines[3], b"=======", lines[3], b">>>>>>> theirs"]
        pairs.write(MODEL, b"\n".join(lines))
        assert b"\nnot compared: after: line " in pairs.git("diff")

    def test_no_driver_for_the_filter(self, pairs: Repo) -> None:
        """The texts are compared, as they are, where only the diff driver is there."""
        told = pairs.git("diff", "v1", "v2")
        off = [("-c", f"filter.wtxt.{key}=") for key in ("process", "clean", "smudge")]
        words = [word for pair in (*off, ("-c", "filter.wtxt.required=false")) for word in pair]
        assert pairs.git(*words, "diff", "v1", "v2") == told


@pytest.mark.slow
class TestOtherCommands:
    """Git's own patches stay texts, which `git apply` and `git am` take."""

    def test_patches(self, pairs: Repo) -> None:
        patch = pairs.git("format-patch", "--stdout", "-1")
        assert headers(patch) == []
        clone = pairs.clone("clone", "-b", "v1")
        clone.git("am", "-q", stdin=patch)
        assert (clone.path / MODEL).read_bytes() == version(MODEL, 2)

    def test_stash(self, pairs: Repo) -> None:
        pairs.write(MODEL, version(MODEL, 1))
        pairs.git("stash", "push", "-q")
        for arguments in ((), ("-p",)):
            assert headers(pairs.git("stash", "show", *arguments)) == []
        assert b"\n+arr name=embed " in pairs.git("stash", "show", "-p")
        pairs.git("stash", "pop", "-q")
        assert (pairs.path / MODEL).read_bytes() == version(MODEL, 1)

    def test_add_patch(self, pairs: Repo) -> None:
        pairs.write(MODEL, version(MODEL, 1))
        shown = pairs.git("add", "-p", stdin=b"a\n")
        assert headers(shown) == []
        assert b"\n@@ -" in shown
        assert b"Stage this hunk" in shown
        assert pairs.blob(MODEL) == pairs.blob(MODEL, "v1")

    def test_commit_verbose_blame_and_range_diff(self, pairs: Repo) -> None:
        pairs.write(MODEL, version(MODEL, 1))
        pairs.git("commit", "-qavm", "back", env={"GIT_EDITOR": "true"})
        assert b"arr name=embed " in pairs.git("blame", "-s", "HEAD", "--", MODEL)
        pairs.git("range-diff", "v1..v2", "v1..HEAD")
        pairs.git("difftool", "--no-prompt", "-x", "true", "HEAD~1")

    def test_exit_codes(self, pairs: Repo) -> None:
        assert pairs.run(run.executable(), "diff", "--exit-code", "v1", "v2", ok=(1,)).stdout
        pairs.git("diff", "--exit-code", "v2", "v2")
        pairs.run(run.executable(), "diff", "--quiet", "v1", "v2", ok=(1,))

    def test_no_index(self, models: Repo) -> None:
        models.write("other.safetensors", safetensors(5.0, -2.0, 3.0))
        shown = models.run(
            run.executable(), "diff", "--no-index", MODEL, "other.safetensors", ok=(1,)
        )
        assert headers(shown.stdout) == [f"{MODEL} -> other.safetensors: changed, safetensors"]


@pytest.mark.slow
def test_in_gits_pager(models: Repo, tmp_path: Path) -> None:
    """Git starts a pager on a terminal alone."""
    log = tmp_path / "seen"
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\necho "$COLUMNS" >{log}\ncat >>{log}\n')
    pager.chmod(0o755)
    leader, follower = pty.openpty()
    _resize(follower, 64)
    given = {**os.environ, "GIT_PAGER": str(pager), "TERM": "xterm"}
    # It would count for more than the terminal.
    given.pop("COLUMNS", None)
    argv = [run.executable(), "diff", "HEAD~1"]
    with subprocess.Popen(argv, cwd=models.path, env=given, stdout=follower) as process:
        os.close(follower)
        assert process.wait(60) == 0
    os.close(leader)
    columns, *lines = log.read_text().splitlines()
    assert columns == "64"
    tables = [line for line in lines if "  " in line]
    assert sum(line.startswith("tensor ") for line in tables) > 1
    assert max(map(len, tables)) <= 64
    assert "\x1b" not in log.read_text()


def _resize(terminal: int, columns: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


@pytest.mark.slow
def test_a_pager_that_is_left_early(pairs: Repo) -> None:
    done = subprocess.run(
        ["sh", "-c", "git diff v1 v2 | head -n 1"], cwd=pairs.path, capture_output=True, check=True
    )
    assert len(headers(done.stdout)) == 1
    assert b"external diff died" not in done.stderr


@pytest.mark.slow
def test_the_driver_of_another_machine_is_named(models: Repo, undriven: Callable[[], None]) -> None:
    """Without the driver `git diff` is the text; with one that is gone doctor says so."""
    undriven()
    assert b"arr name=w " in models.git("diff", "HEAD~1", "HEAD")
    models.wtxtgit("install")
    gone = "/gone/bin/wtxtgit diff-driver --"
    models.git("config", "--global", "diff.wtxt.command", gone)
    died = models.run(run.executable(), "diff", "HEAD~1", "HEAD", ok=(128,))
    assert b"external diff died" in died.stderr
    assert b"/gone/bin/wtxtgit" in models.wtxtgit("doctor", ok=(1,)).stdout
    models.wtxtgit("doctor", "--fix")
    assert headers(models.git("diff", "HEAD~1", "HEAD")) == [f"{MODEL}: changed, safetensors"]
    assert states(models)[MODEL] == "ok"
