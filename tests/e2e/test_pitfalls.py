"""What has broken tools of this kind, each with the real git."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data import fixture, golden
from tests.e2e.conftest import (
    MODEL,
    PAIRS,
    PATTERNS,
    SPOOLED,
    assert_clean,
    assert_clean_when_touched,
    assert_version,
    checks,
    set_launch,
    stage_blob,
    states,
    traced,
    version,
    work_tree,
    write_version,
)
from tests.kit import ATTRIBUTES, LAUNCHER, Repo, safetensors
from wtxtgit.git import run

HOOK_REFUSES = 1


def damaged(text: bytes) -> bytes:
    """Change one character of the payload."""
    lines = text.split(b"\n")
    number = max(i for i, line in enumerate(lines) if len(line) == 78)
    lines[number] = (b"B" if lines[number][:1] == b"A" else b"A") + lines[number][1:]
    return b"\n".join(lines)


# 1. Line endings are converted before smudge.


@pytest.mark.slow
@pytest.mark.parametrize("with_minus_text", [True, False])
def test_pitfall_1_autocrlf(repo: Repo, driver: None, with_minus_text: bool) -> None:
    repo.write(".gitattributes", f"{MODEL} {ATTRIBUTES if with_minus_text else 'filter=wtxt'}\n")
    repo.write(MODEL, version(MODEL, 1))
    repo.add()
    repo.commit()
    repo.git("config", "--global", "core.autocrlf", "true")
    (repo.path.parent / "clone").mkdir()
    clone = Repo(repo.path.parent / "clone")
    said = repo.run("git", "clone", "-q", str(repo.path), str(clone.path)).stderr
    found = checks(clone)
    if with_minus_text:
        assert said == b""
        assert (clone.path / MODEL).read_bytes() == version(MODEL, 1)
        assert_clean_when_touched(clone, [MODEL])
        assert found["attributes"]["level"] == "ok"
    else:
        assert f"wtxtgit: warning: {MODEL}: damaged, left as text".encode() in said
        assert found["attributes"]["level"] == "error"
        assert found["attributes"]["fixable"]
        assert "lacks an attribute" in found["attributes"]["message"]


@pytest.mark.slow
def test_pitfall_1_doctor_leads_from_a_line_without_minus_text_to_the_file(
    repo: Repo, driver: None
) -> None:
    repo.write(".gitattributes", f"{MODEL} filter=wtxt\n")
    repo.write(MODEL, version(MODEL, 1))
    repo.add()
    repo.commit()
    repo.git("config", "--global", "core.autocrlf", "true")
    clone = repo.clone("clone")
    assert (clone.path / MODEL).read_bytes().startswith(b"WTXT 1\r\n")
    clone.wtxtgit("doctor", "--fix", ok=(0, 1))
    assert (clone.path / ".gitattributes").read_text().strip() == f"{MODEL} {ATTRIBUTES}"
    # The blob was never damaged, so a checkout is all that it takes.
    (clone.path / MODEL).unlink()
    clone.git("checkout", "-q", "--", MODEL)
    assert (clone.path / MODEL).read_bytes() == version(MODEL, 1)
    assert checks(clone)["work-tree"]["level"] == "ok"


@pytest.mark.slow
def test_pitfall_1_a_text_with_converted_line_endings_is_told_as_damage(
    repo: Repo, driver: None
) -> None:
    """Where a line without -text was completed, what was checked out before stays damaged.

    To add it, as is right for a change, would commit the damage.
    """
    repo.track("*.safetensors")
    repo.write(MODEL, version(MODEL, 1))
    repo.add()
    repo.commit()
    repo.write(MODEL, repo.blob(MODEL).replace(b"\n", b"\r\n"))
    assert checks(repo)["work-tree"]["level"] == "error"
    assert states(repo) == {MODEL: "corrupt"}


# 2. A restored file of another size is modified for ever.


@pytest.mark.slow
def test_pitfall_2_no_file_is_modified_for_ever(pairs: Repo) -> None:
    clone = pairs.clone("clone")
    for name in PAIRS:
        assert (clone.path / name).stat().st_size == len(version(name, 2))
    assert_clean_when_touched(clone, PAIRS)
    assert clone.git("diff-files") == b""
    assert clone.git("diff-index", "HEAD") == b""
    write_version(pairs, 1)
    pairs.git("commit", "-qam", "upstream")
    clone.commit("mine")
    clone.git("pull", "-q", "--rebase")
    assert_version(clone, 1)


@pytest.fixture
def with_empty(repo: Repo, driver: None) -> Repo:
    """Two branches that changed other files than the empty checkpoint; topic checked out."""
    repo.track("*.fold")
    repo.write("empty.fold", b"")
    repo.add()
    repo.commit("base")
    for branch, start in (("main", "main"), ("topic", "main~1")):
        repo.git("checkout", "-q", "-B", branch, start)
        repo.write(branch, "x\n")
        repo.add(branch)
        repo.commit(branch)
    assert_clean(repo)
    return repo


@pytest.mark.slow
def test_pitfall_2_an_empty_checkpoint_does_not_block_a_rebase(with_empty: Repo) -> None:
    with_empty.git("rebase", "-q", "main")
    assert_clean(with_empty)


@pytest.mark.slow
def test_pitfall_2_an_empty_checkpoint_does_not_block_a_merge_nor_a_stash(with_empty: Repo) -> None:
    """Git takes an empty file whose blob is a text for changed, and refuses to merge over it."""
    assert with_empty.blob("empty.fold") == b""
    assert b"empty" not in with_empty.wtxtgit("doctor").stdout
    with_empty.git("stash", ok=(0,))
    with_empty.git("merge", "-q", "--no-edit", "main")
    assert_clean(with_empty)
    with_empty.write("main", "changed\n")
    with_empty.git("stash")
    with_empty.git("stash", "pop")
    assert (with_empty.path / "empty.fold").read_bytes() == b""


@pytest.mark.slow
def test_pitfall_2_a_merge_fills_and_empties_a_checkpoint(with_empty: Repo) -> None:
    """Of an empty blob nothing tells that its file is stored as text otherwise."""
    with_empty.git("checkout", "-q", "-B", "fills", "main")
    with_empty.write("empty.fold", version(next(iter(PAIRS)), 1))
    with_empty.add("empty.fold")
    filled = with_empty.commit("filled")
    with_empty.git("checkout", "-q", "topic")
    with_empty.git("merge", "-q", "--no-edit", filled)
    assert with_empty.blob("empty.fold").startswith(b"WTXT 1\n")
    assert_clean(with_empty)
    with_empty.write("empty.fold", b"")
    with_empty.git("commit", "-qam", "emptied")
    assert with_empty.blob("empty.fold") == b""
    assert_clean(with_empty)


@pytest.mark.slow
def test_pitfall_2_a_text_that_is_not_canonical_is_told_and_settled(
    repo: Repo, driver: None
) -> None:
    """Without the driver somebody commits a good text that clean would spell otherwise."""
    repo.track("*.safetensors")
    repo.write(MODEL, version(MODEL, 1))
    repo.wtxtgit("emit", MODEL, "-o", "sealed.wtxt", "--gen", "7", "--build", "nightly")
    stage_blob(repo, MODEL, (repo.path / "sealed.wtxt").read_bytes())
    (repo.path / "sealed.wtxt").unlink()
    repo.commit()
    clone = repo.clone("clone")
    assert (clone.path / MODEL).read_bytes() == version(MODEL, 1)
    os.utime(clone.path / MODEL, (1, 1))
    assert clone.status() == f" M {MODEL}\0".encode()
    clone.git("add", "--renormalize", ".")
    clone.commit("canonical")
    assert_clean_when_touched(clone, [MODEL])
    assert (clone.path / MODEL).read_bytes() == version(MODEL, 1)


# 3. A failing smudge leaves half a checkout.


def test_pitfall_3_damaged_texts_do_not_stop_a_checkout(repo: Repo, driver: None) -> None:
    repo.track("*.safetensors")
    repo.write("readme", "before\n")
    repo.add()
    repo.commit("before")
    repo.git("checkout", "-q", "-b", "after")
    files = {f"f{i:02}.safetensors": safetensors(float(i), 2.0) for i in range(30)}
    for name, content in files.items():
        repo.write(name, content)
    repo.write("readme", "after\n")
    repo.add()
    good = repo.blob("f12.safetensors")
    bad = {
        "f12.safetensors": damaged(good),
        "f13.safetensors": good[: len(good) // 2],
        "f14.safetensors": good.replace(b"\n", b"\r\n"),
        "f15.safetensors": good.replace(b"root sha256_all=", b"root sha256_all=f", 1),
        "f16.safetensors": b"WTXT 9\n",
        "f17.safetensors": b"WTXT ",
        "f18.safetensors": good + b"\n",
    }
    for name, content in bad.items():
        stage_blob(repo, name, content)
    repo.commit("after")
    after = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "-f", "main")
    assert work_tree(repo) == {"readme", ".gitattributes"}

    said = repo.run("git", "checkout", "-q", "after").stderr.decode()
    assert repo.git("rev-parse", "HEAD") == after
    assert (repo.path / "readme").read_text() == "after\n"
    for name, content in {**files, **bad}.items():
        assert (repo.path / name).read_bytes() == content, name
    warned = {line.split(": ")[2] for line in said.splitlines() if "warning: " in line}
    assert warned == set(bad)
    assert said.count("wtxtgit recover -- f12.safetensors shows what can be mended") == 1
    assert_clean_when_touched(repo, files)
    found = states(repo)
    assert {name for name, state in found.items() if state == "corrupt"} == warned
    assert checks(repo)["work-tree"]["level"] == "error"


@pytest.mark.slow
def test_pitfall_3_switching_away_from_damage_and_back(pairs: Repo) -> None:
    bad = damaged(pairs.blob(MODEL))
    stage_blob(pairs, MODEL, bad)
    pairs.commit("damage")
    pairs.git("reset", "-q", "--hard")
    assert (pairs.path / MODEL).read_bytes() == bad
    pairs.git("checkout", "-q", "v1")
    assert_version(pairs, 1)
    pairs.git("checkout", "-q", "main")
    assert (pairs.path / MODEL).read_bytes() == bad
    assert_clean(pairs)
    # The repair that the warning names.
    pairs.git("checkout", "v2", "--", MODEL)
    assert (pairs.path / MODEL).read_bytes() == version(MODEL, 2)


# 4. Required protects nobody whose driver is not configured.


@pytest.fixture
def with_raw(pairs: Repo, undriven: Callable[[], None]) -> Repo:
    """A clone, the driver set up, of what somebody without the driver committed raw."""
    config = Path(os.environ["HOME"], ".gitconfig").read_bytes()
    undriven()
    pairs.write("raw.fold", version("none.fold", 1))
    pairs.add("raw.fold")
    pairs.commit("raw")
    assert pairs.blob("raw.fold") == version("none.fold", 1)
    Path(os.environ["HOME"], ".gitconfig").write_bytes(config)
    return pairs.clone("clone")


@pytest.mark.slow
def test_pitfall_4_a_raw_binary_is_found_and_mended_by_doctor(with_raw: Repo) -> None:
    assert (with_raw.path / "raw.fold").read_bytes() == version("none.fold", 1)
    assert states(with_raw)["raw.fold"] == "raw-binary"
    told = with_raw.wtxtgit("doctor", ok=(1,)).stdout.decode()
    assert "raw.fold" in told
    assert "wtxtgit doctor --fix fixes" in told
    with_raw.wtxtgit("doctor", "--fix")
    assert with_raw.blob("raw.fold") == with_raw.blob("none.fold", "v1")
    with_raw.commit("text")
    assert_version(with_raw, 2)
    assert_clean_when_touched(with_raw, ["raw.fold"])
    assert set(states(with_raw).values()) == {"ok"}


def test_pitfall_4_renormalize_mends_it_too(with_raw: Repo) -> None:
    with_raw.git("add", "--renormalize", ".")
    assert with_raw.git("diff", "--cached", "--name-only") == b"raw.fold\n"
    with_raw.commit("text")
    assert with_raw.blob("raw.fold").startswith(b"WTXT 1\n")
    assert (with_raw.path / "raw.fold").read_bytes() == version("none.fold", 1)
    assert_clean_when_touched(with_raw, ["raw.fold"])


@pytest.mark.slow
def test_pitfall_4_the_hook_refuses_a_raw_binary(pairs: Repo) -> None:
    pairs.wtxtgit("install", "--local", "--hooks")
    head = pairs.git("rev-parse", "HEAD")
    pairs.add_raw("raw.fold", version("none.fold", 1))
    failed = pairs.run("git", "commit", "-m", "raw", ok=(HOOK_REFUSES,))
    assert b"wtxtgit: error: raw.fold: raw-binary" in failed.stderr
    assert b"git add --renormalize -- raw.fold" in failed.stderr
    assert pairs.git("rev-parse", "HEAD") == head
    pairs.git("add", "--renormalize", "--", "raw.fold")
    pairs.git("commit", "-qm", "text")
    assert_clean(pairs)


# 5. A clean that refuses makes status, diff and stash die.


@pytest.mark.slow
def test_pitfall_5_invalid_text_breaks_no_command(pairs: Repo) -> None:
    pairs.wtxtgit("install", "--hooks")
    bad = damaged(pairs.blob("none.fold"))
    pairs.write("none.fold", bad)
    assert pairs.status() == b" M none.fold\0"
    assert b"\nnot compared: after: line " in pairs.git("diff", "--", "none.fold")
    assert b"+A" in pairs.git("diff", "--no-ext-diff", "--", "none.fold")
    said = pairs.run("git", "add", "none.fold").stderr
    assert b"wtxtgit: warning: none.fold: not a valid text" in said
    assert pairs.blob("none.fold") == bad
    assert pairs.status() == b"M  none.fold\0"
    pairs.git("diff", "--cached", "--stat")
    pairs.git("stash", "push", "-q")
    assert_version(pairs, 2)
    pairs.git("stash", "pop", "-q", "--index")
    assert (pairs.path / "none.fold").read_bytes() == bad
    refused = pairs.run("git", "commit", "-qm", "bad", ok=(HOOK_REFUSES,)).stderr
    assert b"wtxtgit: error: none.fold: corrupt-text: line " in refused
    pairs.git("restore", "--staged", "--worktree", "none.fold")
    assert_version(pairs, 2)


@pytest.mark.slow
def test_pitfall_5_conflict_markers_are_refused_by_the_hook(pairs: Repo) -> None:
    """A conflict that was settled without the driver, by committing its markers."""
    pairs.wtxtgit("install", "--hooks")
    text = pairs.blob("none.fold").split(b"\n")
    text[4:4] = [b"<<<<<<< HEAD", text[3], b"=======", text[3], b">>>>>>> theirs"]
    pairs.write("none.fold", b"\n".join(text))
    pairs.add()
    refused = pairs.run("git", "commit", "-qm", "bad", ok=(HOOK_REFUSES,)).stderr
    assert b"none.fold: corrupt-text" in refused


# 7. Reading history costs no filter.


@pytest.mark.parametrize(
    ("arguments", "filters"),
    [
        (("log", "--oneline", "-L", f":name=embed :{MODEL}"), 0),
        (("log", "-p", "--stat"), 0),
        (("diff", "--no-ext-diff", "HEAD~1", "HEAD"), 0),
        (("diff", "--stat", "HEAD~1", "HEAD"), 0),
        (("diff", "HEAD~1", "HEAD"), 1),
        (("show", "v1"), 0),
        (("blame", "HEAD", "--", MODEL), 0),
        (("grep", "-c", "^arr ", "HEAD"), 0),
        (("status",), 0),
        (("diff",), 0),
        (("commit", "-q", "--allow-empty", "-m", "x"), 0),
        (("checkout", "-q", "v1"), 1),
        (("blame", MODEL), 1),
        (("archive", "-o", os.devnull, "--format=tar", "HEAD"), 1),
    ],
    ids=lambda value: " ".join(value)[:24] if isinstance(value, tuple) else str(value),
)
def test_pitfall_7_how_many_filters_a_command_starts(
    pairs: Repo, arguments: tuple[str, ...], filters: int
) -> None:
    assert traced(pairs, *arguments).filters == filters


# 10. Nothing is smudged again when the driver appears.


@pytest.fixture
def texts(pairs: Repo, undriven: Callable[[], None]) -> Repo:
    """A clone made without the driver."""
    undriven()
    clone = pairs.clone("clone")
    for name in PAIRS:
        assert (clone.path / name).read_bytes() == pairs.blob(name)
    assert_clean(clone)
    return clone


@pytest.mark.parametrize("scope", ["--global", "--local"])
def test_pitfall_10_install_after_the_clone(texts: Repo, scope: str) -> None:
    changed = texts.blob("none.fold") + b"edited\n"
    texts.write("none.fold", changed)
    (texts.path / "single.aero").unlink()
    done = texts.wtxtgit("install", scope)
    written = {MODEL, "a.checkpoint", "sub/train.taridx"}
    assert f"restored from text: {', '.join(sorted(written))}\n".encode() in done.stdout
    assert b"left alone, changed since the last commit: none.fold\n" in done.stderr
    assert (texts.path / "none.fold").read_bytes() == changed
    for name in written:
        assert (texts.path / name).read_bytes() == version(name, 2)
    assert not (texts.path / "single.aero").exists()
    assert texts.status() == b" M none.fold\0 D single.aero\0"
    texts.git("checkout", "--", "none.fold", "single.aero")
    assert_version(texts, 2)
    assert_clean_when_touched(texts, PAIRS)


def test_pitfall_10_the_index_knows_the_files_that_install_wrote(texts: Repo) -> None:
    """Also where all happens within one tick of the file system's clock."""
    texts.wtxtgit("install")
    assert texts.git("diff-files") == b""
    assert_version(texts, 2)
    assert texts.wtxtgit("install").stdout.startswith(b"already set up")


@pytest.mark.slow
def test_pitfall_10_a_change_staged_before_install(texts: Repo) -> None:
    """What is staged is a text already: the file that it stands for is written."""
    old = texts.blob("none.fold", "v1")
    texts.write("none.fold", old)
    texts.add("none.fold")
    texts.wtxtgit("install")
    assert texts.blob("none.fold") == old
    assert (texts.path / "none.fold").read_bytes() == version("none.fold", 1)
    assert texts.status() == b"M  none.fold\0"


def test_pitfall_10_a_binary_that_was_changed_by_training_is_not_lost(texts: Repo) -> None:
    """The work tree's file is a new binary, not the text: install must leave it."""
    texts.write("none.fold", version("none.fold", 1))
    texts.wtxtgit("install")
    assert (texts.path / "none.fold").read_bytes() == version("none.fold", 1)
    assert texts.status() == b" M none.fold\0"


@pytest.mark.slow
def test_pitfall_10_in_a_linked_worktree_of_its_own_branch(texts: Repo, tmp_path: Path) -> None:
    texts.git("worktree", "add", "-q", str(tmp_path / "linked"), "v1")
    linked = Repo(tmp_path / "linked")
    linked.wtxtgit("install", "--local")
    assert_version(linked, 1)
    # The other worktree has the driver now, and its files are written when asked for.
    assert set(states(texts).values()) == {"text"}
    texts.wtxtgit("install", "--local")
    assert_version(texts, 2)


def test_pitfall_10_with_a_sparse_checkout(texts: Repo) -> None:
    texts.git("sparse-checkout", "set", "--cone", "none")
    texts.wtxtgit("install")
    there = set(PAIRS) - {"sub/train.taridx"}
    assert_version(texts, 2, there)
    assert work_tree(texts) == {*there, ".gitattributes"}


@pytest.mark.slow
def test_pitfall_10_while_a_merge_waits(pairs: Repo, undriven: Callable[[], None]) -> None:
    """A conflicted file has no one blob: it is left to whoever settles it."""
    pairs.git("checkout", "-q", "-b", "topic", "v1")
    pairs.write("none.fold", version("none.fold", 2) + b"x")
    pairs.git("commit", "-qam", "topic")
    undriven()
    clone = pairs.clone("clone")
    clone.run("git", "merge", "-q", "origin/main", ok=(1,))
    before = (clone.path / "none.fold").read_bytes()
    assert b"<<<<<<<" in before
    clone.wtxtgit("install")
    assert (clone.path / "none.fold").read_bytes() == before
    assert states(clone)["none.fold"] == "conflict"
    assert (clone.path / MODEL).read_bytes() == version(MODEL, 2)


# 13. A filter runs in the untrusted repository.

HOSTILE = [
    "numpy.py", "numpy/__init__.py", "wtxtgit/__init__.py", "wtxtgit/__main__.py", "wtxtgit.py",
    "click.py", "sitecustomize.py", "usercustomize.py", "pickle.py", "json.py", "struct.py",
    "encodings/__init__.py", "msgpack.py", "zstandard.py", "crc32c.py", "pybase64/__init__.py",
    "pygit2.py", "site.py", "os.py", "rich.py", "_bootlocale.py",
]  # fmt: skip


@pytest.mark.true_start
@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {
            "PYTHONPATH": ":",
            "PYTHONSAFEPATH": "",
            "PYTHONINSPECT": "1",
            "PYTHONSTARTUP": "numpy.py",
            "PYTHONUSERBASE": ".",
        },
        {"PYTHONPATH": ".", "PYTHONHOME": ".", "PYTHONPLATLIBDIR": "."},
    ],
    ids=str,
)
def test_pitfall_13_no_code_of_the_repository_runs(
    repo: Repo, environment: dict[str, str], tmp_path: Path
) -> None:
    repo.wtxtgit("install", "--hooks")
    marker = tmp_path / "marker"
    evil = f"open({os.fspath(marker)!r}, 'a').write(__file__ + '\\n')\n"
    for name in HOSTILE:
        repo.write(name, evil)
    program = f"#!/bin/sh\necho git >> {shlex.quote(os.fspath(marker))}\nexit 1\n"
    for name in ("git", "python", "python3", "wtxtgit"):
        if not (repo.path / name).exists():
            repo.write(name, program).chmod(0o755)
    repo.track(*PATTERNS)
    env = {**environment, "PATH": f".:{os.environ['PATH']}:."}
    repo.git("config", "wtxtgit.smudgeExclude", "nothing")
    for number in (1, 2):
        write_version(repo, number, [MODEL, "none.fold"])
        repo.git("add", ".", env=env)
        repo.git("commit", "-qm", f"version {number}", env=env)
        repo.git("branch", f"v{number}", env=env)
    repo.git("checkout", "-q", "v1", env=env)
    assert (repo.path / MODEL).read_bytes() == version(MODEL, 1)
    os.utime(repo.path / MODEL, (1, 1))
    repo.git("status", env=env)
    repo.git("diff", "v2", env=env)
    repo.write(MODEL, safetensors(1.0))
    repo.git("commit", "-qam", "other", env=env)
    repo.git("merge", "-q", "v2", env=env, ok=(1,))
    assert not marker.exists(), marker.read_text()


def test_pitfall_13_the_hostile_modules_would_run(repo: Repo, tmp_path: Path) -> None:
    """The test above sees something: started in the plain way, they do run."""
    repo.write("numpy.py", f"open({os.fspath(tmp_path / 'marker')!r}, 'w')\n")
    repo.run(sys.executable, "-c", "import numpy")
    assert (tmp_path / "marker").exists()


# 15. State belongs under the common dir.


@pytest.mark.slow
def test_pitfall_15_git_dir_in_the_environment(pairs: Repo, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    env = {"GIT_DIR": str(pairs.path / ".git"), "GIT_WORK_TREE": str(pairs.path)}
    pairs.write("big.fold", bytes(SPOOLED))
    elsewhere = Repo(outside)
    elsewhere.git("add", "--", "big.fold", env=env)
    assert (pairs.path / ".git/wtxtgit").is_dir()
    assert list(outside.iterdir()) == []
    relative = {"GIT_DIR": ".git"}
    assert states(pairs, env=relative)["big.fold"] == "ok"
    below = {"GIT_DIR": "../.git", "GIT_WORK_TREE": ".."}
    assert states(pairs, cwd="sub", env=below)["big.fold"] == "ok"


def test_pitfall_15_status_from_outside_of_the_work_tree(pairs: Repo, tmp_path: Path) -> None:
    """As `git --git-dir=... --work-tree=... status` works from everywhere."""
    env = {"GIT_DIR": str(pairs.path / ".git"), "GIT_WORK_TREE": str(pairs.path)}
    assert states(Repo(tmp_path), env=env) == dict.fromkeys(sorted(PAIRS), "ok")


def test_pitfall_15_separate_git_dir(tmp_path: Path, driver: None) -> None:
    (tmp_path / "repo").mkdir()
    repo = Repo(tmp_path / "repo")
    repo.git("init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere.git"))
    repo.track("*.fold")
    repo.write("big.fold", bytes(SPOOLED))
    repo.add()
    assert (tmp_path / "elsewhere.git/wtxtgit").is_dir()
    assert work_tree(repo) == {"big.fold", ".gitattributes"}


@pytest.mark.slow
def test_pitfall_15_hooks_in_a_linked_worktree(pairs: Repo, tmp_path: Path) -> None:
    pairs.git("worktree", "add", "-q", "-b", "linked", str(tmp_path / "linked"))
    linked = Repo(tmp_path / "linked")
    linked.wtxtgit("install", "--hooks")
    assert (pairs.path / ".git/hooks/pre-commit").exists()
    linked.add_raw("raw.fold", b"FOLD")
    assert b"raw.fold: raw-binary" in linked.run("git", "commit", "-qm", "x", ok=(1,)).stderr
    linked.git("reset", "-q")
    linked.write("again.fold", version("none.fold", 1))
    linked.git("add", "again.fold")
    linked.git("commit", "-qm", "good")


# 17. A filter takes no lock and starts nothing that writes.


def test_pitfall_17_a_filter_starts_only_commands_that_read(pairs: Repo) -> None:
    pairs.git("config", "wtxtgit.smudgeExclude", "nothing")
    pairs.write("big.fold", bytes(SPOOLED))
    write_version(pairs, 1)
    added = traced(pairs, "add", ".")
    pairs.commit("big")
    (pairs.path / "big.fold").unlink()
    restored = traced(pairs, "checkout", "--", ".")
    assert added.filters == restored.filters == 1
    commands = [*added.commands_of_filters, *restored.commands_of_filters]
    assert commands
    assert {command.split()[0] for command in commands} <= {"config", "rev-parse"}


def test_pitfall_17_status_works_while_git_add_holds_the_lock(
    pairs: Repo, home: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    words = " ".join(map(shlex.quote, LAUNCHER.arguments))
    script = tmp_path / "filter"
    script.write_text(
        "#!/bin/sh\n"
        f'if [ -z "$INSIDE" ]; then export INSIDE=1; test -e .git/index.lock || exit 9\n'
        f"{words} status > {said} 2>&1 || exit 8\n"
        f"{words} doctor >> {said} 2>&1\n"
        f"fi\nexec {words} filter-process\n"
    )
    script.chmod(0o755)
    set_launch(home, shlex.quote(str(script)))
    write_version(pairs, 1)
    for number in range(50):
        pairs.write(f"many/{number}.safetensors", safetensors(float(number)))
    pairs.add()
    told = said.read_text()
    assert "modified" in told
    # Doctor sees the lock, and who holds it.
    assert re.search(r"(?m)^ok +locks +may be held: process [0-9]+ \(\.git/index\.lock", told)
    assert told.count("lock") == 2
    assert not (pairs.path / ".git/index.lock").exists()
    assert pairs.blob(MODEL) == pairs.blob(MODEL, "v1")


# 24. Hostile files.


def test_pitfall_24_a_link_with_a_tracked_name_stays_a_link(pairs: Repo, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(version("none.fold", 1))
    (pairs.path / "model.fold").symlink_to(outside)
    pairs.add()
    assert pairs.blob("model.fold") == os.fsencode(outside)
    pairs.commit("link")
    clone = pairs.clone("clone")
    assert (clone.path / "model.fold").readlink() == outside
    clone.wtxtgit("install")
    assert "model.fold" not in states(clone)
    assert (clone.path / "model.fold").is_symlink()
    assert outside.read_bytes() == version("none.fold", 1)
    assert_clean(clone)


def test_pitfall_24_a_checkout_over_a_link_does_not_follow_it(pairs: Repo, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (pairs.path / "none.fold").unlink()
    (pairs.path / "none.fold").symlink_to(outside)
    pairs.git("checkout", "--", "none.fold")
    assert_version(pairs, 2)
    assert outside.read_bytes() == b"mine"


def test_pitfall_24_restore_replaces_a_link(pairs: Repo, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    pairs.write("text.wtxt", pairs.blob("none.fold"))
    (pairs.path / "out.fold").symlink_to(outside)
    pairs.wtxtgit("restore", "text.wtxt", "-o", "out.fold")
    assert outside.read_bytes() == b"mine"
    assert not (pairs.path / "out.fold").is_symlink()
    assert (pairs.path / "out.fold").read_bytes() == version("none.fold", 2)
    (pairs.path / "emitted.wtxt").symlink_to(outside)
    pairs.wtxtgit("emit", "none.fold", "-o", "emitted.wtxt")
    assert outside.read_bytes() == b"mine"


LITTLE_MEMORY = "ulimit -v 3000000; exec "


def test_pitfall_24_huge_claims_allocate_nothing(repo: Repo, home: Path) -> None:
    set_launch(home, LITTLE_MEMORY + LAUNCHER.command("filter-process"))
    run.git("config", "--global", "filter.wtxt.required", "true", cwd=home)
    repo.track("*.bin")
    huge = b'{"w":{"dtype":"F32","shape":[1073741824,1073741824],"data_offsets":[0,%d]}}'
    spelled = huge % (1 << 62)
    fold, aero, mlcp = (
        bytearray(fixture(PAIRS[name].replace("?", "1")))
        for name in ("none.fold", "single.aero", "a.checkpoint")
    )
    taridx = bytearray(fixture("taridx/pair_v1/train.taridx"))
    files = {
        "header.bin": struct.pack("<Q", (1 << 63) - 1) + b"{" + bytes(100),
        "tensor.bin": struct.pack("<Q", len(spelled)) + spelled,
        "fold.bin": bytes(fold[:12]) + b"\xff" * 16 + bytes(fold[28:]),
        "aero.bin": bytes(aero[:16]) + b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 8 + bytes(aero[80:]),
        "mlcp.bin": bytes(mlcp[:4]) + b"\xff\xff\xff\x7f" + bytes(mlcp[8:]),
        "taridx.bin": bytes(taridx[:16]) + b"\xff" * 40 + bytes(taridx[56:]),
    }
    for name, content in files.items():
        repo.write(name, content)
    repo.add()
    for name in files:
        assert repo.blob(name).startswith(b"WTXT 1\nmeta schema=opaque/v1 "), name

    good = repo.blob("tensor.bin")
    huge_texts = {
        "bytes.bin": good.replace(b" bytes=", b" bytes=99999999999999", 1),
        "chunk.bin": good.replace(b" len=", b" len=99999999999", 1),
        "shape.bin": good.replace(b" shape=", b" shape=4294967295,4294967295,", 1),
    }
    for name, content in huge_texts.items():
        assert content != good
        stage_blob(repo, name, content)
    for name, field in (("rows.bin", b"rows_per_chunk="), ("row.bin", b"row_size=")):
        stage_blob(repo, name, good.replace(field, field + b"9999999999", 1))
    repo.commit()
    clone = repo.clone("clone")
    for name, content in {**files, **huge_texts}.items():
        assert (clone.path / name).read_bytes() == content, name
    # Larger blocks of rows than the array has are good, though not canonical.
    for name in ("rows.bin", "row.bin"):
        assert (clone.path / name).read_bytes() == files["tensor.bin"]


class _Bomb:
    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, (f"touch {shlex.quote(self.marker)}",))


@pytest.mark.slow
def test_pitfall_24_pickles_are_never_loaded(repo: Repo, driver: None, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    bomb = pickle.dumps(_Bomb(os.fspath(marker)), protocol=2)
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (64 - (11 + len(header)) % 64) + b"\n"
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bomb
    repo.track("*.pt", "*.npy", "*.npz", "*.fold", "*.pkl")
    repo.write("plain.pkl", bomb)
    repo.write("object.npy", npy)
    for name, member in (("torch.pt", "archive/data.pkl"), ("object.npz", "w.npy")):
        with zipfile.ZipFile(repo.path / name, "w") as archive:
            archive.writestr(member, bomb if name == "torch.pt" else npy)
    legacy = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps(1001, protocol=2)
    repo.write("legacy.pt", legacy + bomb)
    pickled = [path for path in golden() if "tsav" in path or "object" in path or ".pt" in path]
    assert {Path(path).suffix for path in pickled} == {".fold", ".npy", ".pt"}
    for path in pickled:
        repo.write(f"real/{path}", fixture(path))
    names = sorted(work_tree(repo) - {".gitattributes"})
    before = {name: (repo.path / name).read_bytes() for name in names}
    repo.add()
    repo.commit()
    for name in names:
        (repo.path / name).unlink()
    repo.git("checkout", "--", ".")
    assert {name: (repo.path / name).read_bytes() for name in names} == before
    for name in ("plain.pkl", "object.npy", "object.npz", "torch.pt", "legacy.pt"):
        repo.wtxtgit("inspect", name, ok=(0, 1, 3))
    repo.wtxtgit("verify", *names, ok=(0, 1, 3))
    repo.wtxtgit("doctor")
    assert not marker.exists()
    assert json.loads(repo.wtxtgit("status", "--json").stdout)["ok"]
    # The bomb would go off.
    pickle.loads(bomb)  # noqa: S301
    assert marker.exists()
