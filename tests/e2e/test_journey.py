"""Real files through everything that people do with git, and every byte back."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.data import fixture, golden
from tests.e2e.conftest import (
    KIB,
    MODEL,
    MORE_PAIRS,
    PAIRS,
    PATTERNS,
    SPOOLED,
    assert_clean,
    assert_clean_when_touched,
    assert_version,
    states,
    version,
    work_tree,
    write_version,
)
from tests.kit import Repo, safetensors

EMPTY, BYTE = "checkpoints/empty", "checkpoints/byte"


@pytest.mark.true_start
@pytest.mark.slow
def test_every_real_file_add_commit_clone(repo: Repo) -> None:
    repo.wtxtgit("install")
    repo.wtxtgit("track", "checkpoints/**")
    files = {f"checkpoints/{path}" if path else EMPTY: fixture(path) for path in golden()}
    for name, content in {**files, BYTE: b"\x07"}.items():
        repo.write(name, content)
    repo.add()
    for path, expected in golden().items():
        name = f"checkpoints/{path}" if path else EMPTY
        wanted = expected["sha256"] if path else sha256().hexdigest()
        assert sha256(repo.blob(name)).hexdigest() == wanted, name
    assert b"\n_layout" not in repo.blob(BYTE)
    assert repo.blob(BYTE).startswith(b"WTXT 1\n")
    repo.commit("all")
    assert_clean(repo)

    clone = repo.clone("clone")
    for name, content in {**files, BYTE: b"\x07"}.items():
        assert (clone.path / name).read_bytes() == content, name
    assert work_tree(clone) == {*files, BYTE, ".gitattributes"}
    assert_clean(clone)
    assert clone.git("diff", "--stat") == b""
    assert_clean_when_touched(clone, [*files, BYTE])
    assert clone.git("diff", "--stat") == b""
    assert set(states(clone).values()) == {"ok"}


@pytest.mark.slow
@pytest.mark.true_start
def test_pairs_of_all_writers(repo: Repo, driver: None) -> None:
    repo.track(*PATTERNS)
    names = {**PAIRS, **MORE_PAIRS}
    for number in (1, 2):
        write_version(repo, number, names)
        repo.add()
        repo.commit(f"version {number}")
    for revision, number in (("HEAD~1", 1), ("main", 2)):
        repo.git("checkout", "-q", revision)
        assert_version(repo, number, names)
        assert_clean_when_touched(repo, names)
    listed = repo.git("grep", "-l", "^arr name=embed_weight ", "HEAD", "--", "*.aero")
    assert listed == b"HEAD:hashed.aero\nHEAD:head.aero\nHEAD:single.aero\n"


def test_checkout_of_an_old_commit_and_back(pairs: Repo) -> None:
    pairs.git("checkout", "-q", "v1")
    assert_version(pairs, 1)
    assert_clean_when_touched(pairs, PAIRS)
    pairs.git("checkout", "-q", "main")
    assert_version(pairs, 2)


@pytest.mark.slow
def test_switch_between_branches(pairs: Repo) -> None:
    pairs.git("branch", "old", "v1")
    for branch, number in (("old", 1), ("main", 2), ("old", 1)):
        pairs.git("switch", "-q", branch)
        assert_version(pairs, number)


@pytest.mark.slow
def test_one_file_of_an_old_commit(pairs: Repo) -> None:
    pairs.git("checkout", "v1", "--", "none.fold")
    assert (pairs.path / "none.fold").read_bytes() == version("none.fold", 1)
    assert pairs.status() == b"M  none.fold\0"
    pairs.git("restore", "--staged", "--worktree", "none.fold")
    assert_version(pairs, 2)
    assert pairs.git("cat-file", "--filters", "v1:none.fold") == version("none.fold", 1)


@pytest.mark.slow
def test_reset_and_restore_drop_changes(pairs: Repo) -> None:
    write_version(pairs, 1)
    (pairs.path / "single.aero").unlink()
    pairs.git("reset", "-q", "--hard")
    assert_version(pairs, 2)
    write_version(pairs, 1)
    pairs.git("restore", ".")
    assert_version(pairs, 2)


@pytest.mark.slow
def test_stash_and_pop(pairs: Repo) -> None:
    write_version(pairs, 1)
    pairs.write("untracked.fold", version("none.fold", 1))
    pairs.git("stash", "push", "-q", "--include-untracked")
    assert_version(pairs, 2)
    assert not (pairs.path / "untracked.fold").exists()
    pairs.git("stash", "pop", "-q")
    for name in PAIRS:
        assert (pairs.path / name).read_bytes() == version(name, 1), name
    assert (pairs.path / "untracked.fold").read_bytes() == version("none.fold", 1)


def test_amend_and_commit_all(pairs: Repo) -> None:
    write_version(pairs, 1, ["none.fold"])
    pairs.git("commit", "-q", "-a", "--amend", "-m", "amended")
    assert_version(pairs, 1, ["none.fold"])
    assert pairs.git("diff", "--name-only", "v2", "HEAD") == b"none.fold\n"


@pytest.mark.slow
def test_rebase_while_the_other_side_touches_other_files(pairs: Repo) -> None:
    pairs.git("checkout", "-q", "-b", "upstream", "v1")
    pairs.write("readme", "about the model\n")
    pairs.add()
    pairs.commit("readme")
    pairs.git("checkout", "-q", "main")
    pairs.git("rebase", "-q", "upstream")
    assert_version(pairs, 2)
    assert (pairs.path / "readme").read_bytes() == b"about the model\n"


@pytest.mark.slow
def test_rebase_while_the_other_side_changed_the_checkpoints(pairs: Repo) -> None:
    pairs.git("checkout", "-q", "-b", "topic", "v1")
    pairs.write("readme", "about the model\n")
    pairs.add()
    pairs.commit("readme")
    pairs.git("rebase", "-q", "main")
    assert_version(pairs, 2)
    assert pairs.git("log", "--format=%s", "-2") == b"readme\nversion 2\n"


def test_cherry_pick(pairs: Repo) -> None:
    pairs.git("checkout", "-q", "-b", "topic", "v1")
    pairs.commit("something else")
    pairs.git("cherry-pick", "v2")
    assert_version(pairs, 2)


def test_revert(pairs: Repo) -> None:
    pairs.commit("something else")
    pairs.git("revert", "--no-edit", "v2")
    assert_version(pairs, 1)
    pairs.git("revert", "--no-edit", "HEAD")
    assert_version(pairs, 2)


@pytest.mark.slow
def test_squash_merge_and_fast_forward(pairs: Repo) -> None:
    pairs.git("checkout", "-q", "-b", "squashed", "v1")
    pairs.git("merge", "-q", "--squash", "v2")
    pairs.commit("squashed")
    assert_version(pairs, 2)
    pairs.git("checkout", "-q", "-b", "forward", "v1")
    pairs.git("merge", "-q", "--ff-only", "v2")
    assert_version(pairs, 2)


def test_rename_keeps_the_history(pairs: Repo) -> None:
    pairs.git("mv", "none.fold", "renamed.fold")
    assert pairs.status() == b"R  renamed.fold\0none.fold\0"
    pairs.commit("rename")
    assert (pairs.path / "renamed.fold").read_bytes() == version("none.fold", 2)
    shown = pairs.git("show", "-M", "--name-status", "--format=")
    assert shown == b"R100\tnone.fold\trenamed.fold\n"
    followed = pairs.git("log", "--follow", "--format=%s", "--", "renamed.fold")
    assert followed == b"rename\nversion 2\nversion 1\n"


def test_rename_and_change_in_one_commit_is_still_a_rename(pairs: Repo) -> None:
    pairs.git("mv", "none.fold", "renamed.fold")
    pairs.write("renamed.fold", version("none.fold", 1))
    pairs.git("commit", "-qam", "rename and change")
    kind, before, after = pairs.git("show", "-M", "--name-status", "--format=").split()
    assert (before, after) == (b"none.fold", b"renamed.fold")
    assert int(kind.removeprefix(b"R")) > 90


@pytest.mark.slow
def test_linked_worktree(pairs: Repo, tmp_path: Path) -> None:
    pairs.git("worktree", "add", "-q", str(tmp_path / "linked"), "v1")
    linked = Repo(tmp_path / "linked")
    assert_version(linked, 1)
    linked.write("big.fold", bytes(SPOOLED))
    linked.add()
    linked.commit("a file that is spooled")
    assert (pairs.path / ".git/wtxtgit").is_dir()
    left = {file.name for file in (pairs.path / ".git/wtxtgit").iterdir()}
    assert left == {"facts.sqlite"}
    assert not (pairs.path / ".git/worktrees/linked/wtxtgit").exists()
    assert work_tree(linked) == {*PAIRS, ".gitattributes", "big.fold"}
    assert_version(pairs, 2)
    assert work_tree(pairs) == {*PAIRS, ".gitattributes"}


@pytest.mark.slow
def test_submodule_that_holds_checkpoints(pairs: Repo, tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    outer = Repo(tmp_path / "outer")
    outer.git("init", "-q")
    outer.git("submodule", "add", "-q", str(pairs.path), "models")
    outer.commit("models")
    inner = Repo(outer.path / "models")
    assert_version(inner, 2)
    inner.git("checkout", "-q", "v1")
    assert outer.status() == b" M models\0"
    outer.git("submodule", "update", "-q")
    assert_version(inner, 2)
    assert_clean(outer)
    assert states(outer) == {}
    assert set(states(inner).values()) == {"ok"}

    clone = outer.clone("clone", "--recurse-submodules")
    assert_version(Repo(clone.path / "models"), 2)
    assert_clean(clone)
    inner.write("big.fold", bytes(SPOOLED))
    inner.add()
    assert (outer.path / ".git/modules/models/wtxtgit").is_dir()
    assert work_tree(inner) == {*PAIRS, ".gitattributes", "big.fold"}


@pytest.mark.parametrize("cone", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_sparse_checkout(pairs: Repo, cone: bool) -> None:
    clone = pairs.clone("clone", "--no-checkout")
    if cone:
        clone.git("sparse-checkout", "set", "--cone", "sub")
        there = set(PAIRS)
        clone.git("sparse-checkout", "set", "--cone", "--sparse-index", "none")
        there.remove("sub/train.taridx")
    else:
        clone.git("sparse-checkout", "set", "--no-cone", "/.gitattributes", "*.fold")
        there = {name for name in PAIRS if name.endswith(".fold")}
    clone.git("checkout", "-q", "main")
    assert_version(clone, 2, there)
    assert work_tree(clone) == {*there, ".gitattributes"}
    clone.wtxtgit("install")
    found = states(clone)
    assert {name for name, state in found.items() if state == "sparse"} == set(PAIRS) - there
    assert {found[name] for name in there} == {"ok"}
    assert work_tree(clone) == {*there, ".gitattributes"}
    clone.git("checkout", "-q", "v1")
    assert_version(clone, 1, there)
    clone.git("sparse-checkout", "disable")
    assert_version(clone, 1)


def test_partial_clone_fetches_what_a_checkout_needs(pairs: Repo, tmp_path: Path) -> None:
    pairs.git("config", "uploadpack.allowFilter", "true")
    pairs.git("config", "uploadpack.allowAnySHA1InWant", "true")
    url = f"file://{pairs.path}"
    pairs.git("clone", "-q", "--filter=blob:none", url, str(tmp_path / "partial"))
    partial = Repo(tmp_path / "partial")
    assert_version(partial, 2)
    old = partial.git("rev-list", "--objects", "--all", "--missing=print", "--filter=tree:0")
    missing = partial.git("rev-list", "--objects", "--all", "--missing=print")
    assert old
    assert sum(line.startswith(b"?") for line in missing.splitlines()) == len(PAIRS)
    partial.git("checkout", "-q", "v1")
    assert_version(partial, 1)
    assert set(states(partial).values()) == {"ok"}
    assert b"?" not in partial.git("rev-list", "--objects", "--all", "--missing=print")


@pytest.mark.slow
def test_status_fetches_nothing_that_a_sparse_partial_clone_left_out(
    pairs: Repo, tmp_path: Path
) -> None:
    pairs.git("config", "uploadpack.allowFilter", "true")
    pairs.git("config", "uploadpack.allowAnySHA1InWant", "true")
    url = f"file://{pairs.path}"
    pairs.git("clone", "-q", "--filter=blob:none", "--sparse", url, str(tmp_path / "partial"))
    partial = Repo(tmp_path / "partial")
    count = ("rev-list", "--objects", "--all", "--missing=print")
    before = partial.git(*count)
    assert states(partial)["sub/train.taridx"] == "sparse"
    partial.wtxtgit("install")
    partial.wtxtgit("doctor")
    partial.wtxtgit("ls-files")
    assert partial.git(*count) == before


@pytest.mark.parametrize(
    "settings",
    [
        {"core.autocrlf": "true"},
        pytest.param({"core.eol": "crlf"}, marks=pytest.mark.slow),
        pytest.param({"core.autocrlf": "input"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_line_ending_settings(repo: Repo, driver: None, settings: dict[str, str]) -> None:
    for key, value in settings.items():
        repo.git("config", "--global", key, value)
    repo.write(".gitattributes", "* text=auto\n")
    repo.wtxtgit("track", *PATTERNS)
    repo.write("notes", "a\nb\n")
    names = [MODEL, "none.fold"]
    write_version(repo, 1, names)
    repo.git("add", ".")
    repo.commit()
    clone = repo.clone("clone")
    assert_version(clone, 1, names)
    assert_clean_when_touched(clone, names)
    converted = "core.autocrlf" not in settings or settings["core.autocrlf"] == "true"
    assert (clone.path / "notes").read_bytes() == (b"a\r\nb\r\n" if converted else b"a\nb\n")
    clone.wtxtgit("doctor")


def test_archive_holds_the_files_where_the_driver_is(
    pairs: Repo, undriven: Callable[[], None]
) -> None:
    with tarfile.open(fileobj=io.BytesIO(pairs.git("archive", "v1"))) as archive:
        for name in PAIRS:
            member = archive.extractfile(name)
            assert member is not None
            assert member.read() == version(name, 1), name
    undriven()
    with tarfile.open(fileobj=io.BytesIO(pairs.git("archive", "v1"))) as archive:
        for name in PAIRS:
            member = archive.extractfile(name)
            assert member is not None
            assert member.read() == pairs.blob(name, "v1"), name


def test_format_patch_and_am(pairs: Repo) -> None:
    patch = pairs.git("format-patch", "--stdout", "-1", "v2")
    assert b"GIT binary patch" not in patch
    assert max(len(line) for line in patch.splitlines()) < 998, "longer lines break in the mail"
    clone = pairs.clone("clone", "-b", "v1")
    clone.git("checkout", "-q", "-b", "topic")
    clone.git("am", "-q", stdin=patch)
    assert_version(clone, 2)
    assert clone.git("rev-parse", "HEAD^{tree}") == pairs.git("rev-parse", "v2^{tree}")


@pytest.mark.slow
def test_a_patch_of_a_new_and_of_a_removed_file(pairs: Repo) -> None:
    pairs.write("new.fold", version("none.fold", 1))
    pairs.git("rm", "-q", "single.aero")
    pairs.add()
    pairs.commit("one comes, one goes")
    patch = pairs.git("format-patch", "--stdout", "-1")
    clone = pairs.clone("clone", "-b", "v2")
    clone.git("am", "-q", stdin=patch)
    assert (clone.path / "new.fold").read_bytes() == version("none.fold", 1)
    assert not (clone.path / "single.aero").exists()
    assert_clean(clone)


@pytest.mark.slow
def test_apply_without_the_driver_makes_texts_that_install_restores(
    pairs: Repo, undriven: Callable[[], None]
) -> None:
    patch = pairs.git("diff", "--no-ext-diff", "--full-index", "v1", "v2")
    undriven()
    clone = pairs.clone("clone", "-b", "v1")
    clone.git("apply", "--index", stdin=patch)
    clone.commit("applied")
    assert clone.git("rev-parse", "HEAD^{tree}") == pairs.git("rev-parse", "v2^{tree}")
    clone.wtxtgit("install")
    assert_version(clone, 2)


def three_tensors(first: float, last: float) -> bytes:
    """A FOLD-sized text needs several tensors: concatenate three in one safetensors file."""
    import json
    import struct

    rows = [first] * 64, [0.5] * 64, [last] * 64
    data = b"".join(struct.pack("<64f", *row) for row in rows)
    header = {
        name: {"dtype": "F32", "shape": [64], "data_offsets": [i * 256, i * 256 + 256]}
        for i, name in enumerate(("alpha", "beta.weight", "gamma"))
    }
    spelled = json.dumps(header).encode()
    spelled += b" " * (-len(spelled) % 8)
    return struct.pack("<Q", len(spelled)) + spelled + data


def test_log_L_follows_one_tensor(pairs: Repo) -> None:
    subjects = ("log", "-s", "--format=%s", "-L")
    assert pairs.git(*subjects, f":name=embed :{MODEL}") == b"version 2\nversion 1\n"
    # Its own text did not change, and the commit that made it is the only one.
    assert pairs.git(*subjects, f":name=w :{MODEL}") == b"version 1\n"


@pytest.mark.slow
def test_log_L_of_one_tensor_of_several(repo: Repo, driver: None) -> None:
    repo.track(*PATTERNS)
    for subject, values in (("one", (1.0, 1.0)), ("alpha", (2.0, 1.0)), ("gamma", (2.0, 2.0))):
        repo.write(MODEL, three_tensors(*values))
        repo.add()
        repo.commit(subject)
    subjects = ("log", "-s", "--format=%s", "-L")
    assert repo.git(*subjects, f":name=alpha :{MODEL}") == b"alpha\none\n"
    assert repo.git(*subjects, f":name=beta_weight :{MODEL}") == b"one\n"
    assert repo.git(*subjects, f":name=gamma :{MODEL}") == b"gamma\none\n"


def test_hunk_headers_name_the_tensor(repo: Repo, driver: None) -> None:
    repo.track(*PATTERNS)
    for values in ((1.0, 1.0), (2.0, 3.0)):
        repo.write(MODEL, three_tensors(*values))
        repo.add()
        repo.commit()
    shown = repo.git("diff", "--no-ext-diff", "-U0", "HEAD~1", "HEAD").splitlines()
    named = {line.rpartition(b"@@ ")[2] for line in shown if line.startswith(b"@@ ")}
    assert {b"alpha", b"gamma"} <= named
    assert not any(line.endswith(b"@@ beta_weight") and b"arr" in line for line in shown)


def test_blame_gives_each_line_its_commit(pairs: Repo) -> None:
    first, second = (pairs.git("rev-parse", tag).strip() for tag in ("v1", "v2"))
    blamed = pairs.git("blame", "-l", "-s", "-L", ":name=embed ", "HEAD", "--", MODEL).splitlines()
    commits = {line.split()[0].lstrip(b"^") for line in blamed}
    assert len(blamed) > 1000
    assert {commit[:39] for commit in commits} == {first[:39], second[:39]}
    changed = [line for line in blamed if line.startswith(second)]
    assert 0 < len(changed) < 100
    # The work tree's file is cleaned for it.
    assert pairs.git("blame", "-s", "--", MODEL) == pairs.git("blame", "-s", "HEAD", "--", MODEL)


def test_grep_finds_tensors_of_a_commit(pairs: Repo) -> None:
    found = pairs.git("grep", "-h", "-o", "^arr name=[A-Za-z0-9_]*", "v1", "--", MODEL)
    assert found == (b"arr name=_header\narr name=_layout\narr name=embed\narr name=w\n")


def test_gc_and_fsck(pairs: Repo) -> None:
    pairs.git("gc", "-q", "--prune=now")
    assert pairs.git("fsck", "--full", "--strict") == b""
    pairs.git("checkout", "-q", "v1")
    assert_version(pairs, 1)


def test_a_second_version_costs_a_delta(repo: Repo, driver: None) -> None:
    """Two versions with two changed rows of 700 pack into little more than one."""
    repo.track(*PATTERNS)
    sizes = []
    for number in (1, 2):
        write_version(repo, number, [MODEL])
        repo.add()
        repo.commit()
        repo.git("gc", "-q", "--prune=now")
        sizes.append(sum(p.stat().st_size for p in repo.path.glob(".git/objects/pack/*.pack")))
    assert sizes[1] - sizes[0] < 8 * KIB


@pytest.mark.slow
def test_push_to_a_bare_repository_and_clone_from_it(pairs: Repo, tmp_path: Path) -> None:
    pairs.git("init", "-q", "--bare", str(tmp_path / "bare.git"))
    bare = Repo(tmp_path / "bare.git")
    pairs.git("push", "-q", str(bare.path), "main", "v1", "v2")
    assert bare.git("fsck", "--full", "--strict") == b""
    clone = bare.clone("from-bare")
    assert_version(clone, 2)
    clone.git("checkout", "-q", "v1")
    assert_version(clone, 1)
    clone.git("checkout", "-q", "main")
    write_version(clone, 1)
    clone.git("commit", "-qam", "back")
    clone.git("push", "-q")
    pairs.git("pull", "-q", str(bare.path), "main")
    assert_version(pairs, 1)


@pytest.mark.slow
def test_fetch_and_pull_with_rebase(pairs: Repo) -> None:
    clone = pairs.clone("clone")
    clone.write("readme", "mine\n")
    clone.add()
    clone.commit("mine")
    write_version(pairs, 1)
    pairs.git("commit", "-qam", "theirs")
    clone.git("pull", "-q", "--rebase")
    assert_version(clone, 1)
    assert (clone.path / "readme").read_bytes() == b"mine\n"


def test_shallow_clone(pairs: Repo, tmp_path: Path) -> None:
    pairs.git("clone", "-q", "--depth=1", f"file://{pairs.path}", str(tmp_path / "shallow"))
    assert_version(Repo(tmp_path / "shallow"), 2)


@pytest.mark.slow
def test_bundle(pairs: Repo, tmp_path: Path) -> None:
    pairs.git("bundle", "create", "-q", str(tmp_path / "all.bundle"), "--all")
    pairs.git("clone", "-q", "-b", "main", str(tmp_path / "all.bundle"), str(tmp_path / "copy"))
    assert_version(Repo(tmp_path / "copy"), 2)


@pytest.mark.slow
def test_bisect_run(pairs: Repo) -> None:
    for subject in ("a", "b"):
        pairs.commit(subject)
    wanted = sha256(version("none.fold", 1)).hexdigest()
    script = f'test "$(sha256sum < none.fold)" = "{wanted}  -"'
    pairs.git("bisect", "start", "HEAD", "v1")
    pairs.git("bisect", "run", "sh", "-c", script)
    assert pairs.git("rev-parse", "refs/bisect/bad") == pairs.git("rev-parse", "v2")
    pairs.git("bisect", "reset")
    assert_version(pairs, 2)


@pytest.mark.slow
def test_a_sha256_repository(tmp_path: Path, driver: None) -> None:
    (tmp_path / "repo").mkdir()
    repo = Repo(tmp_path / "repo")
    repo.git("init", "-q", "--object-format=sha256")
    repo.track(*PATTERNS)
    write_version(repo, 1)
    repo.add()
    repo.commit()
    clone = repo.clone("clone")
    assert_version(clone, 1)
    assert set(states(clone).values()) == {"ok"}


@pytest.mark.parametrize("arguments", [["status"], ["track"], ["track", "*.x"],
                                       ["untrack", "*.x"]], ids=" ".join)  # fmt: skip
def test_commands_that_need_a_work_tree_say_so_in_a_bare_repository(
    tmp_path: Path, arguments: list[str]
) -> None:
    Repo(tmp_path).git("init", "-q", "--bare", "bare.git")
    failed = Repo(tmp_path / "bare.git").wtxtgit(*arguments, ok=(5,))
    assert failed.stderr.startswith(b"wtxtgit: error: this needs a work tree")
    assert failed.stdout == b""


@pytest.mark.slow
def test_commands_that_work_in_a_bare_repository(pairs: Repo, tmp_path: Path) -> None:
    pairs.git("clone", "-q", "--bare", str(pairs.path), str(tmp_path / "bare.git"))
    bare = Repo(tmp_path / "bare.git")
    before = (bare.path / "config").read_bytes()
    listed = bare.wtxtgit("ls-files", "v1").stdout.decode()
    assert all(name in listed for name in PAIRS)
    bare.wtxtgit("install", "--local")
    bare.wtxtgit("doctor")
    bare.wtxtgit("uninstall", "--local")
    assert (bare.path / "config").read_bytes() == before


def test_removing_and_deleting(pairs: Repo) -> None:
    (pairs.path / "none.fold").unlink()
    assert pairs.status() == b" D none.fold\0"
    assert states(pairs)["none.fold"] == "missing"
    pairs.git("checkout", "-q", "--", "none.fold")
    assert_version(pairs, 2)
    pairs.git("rm", "-q", "none.fold")
    pairs.commit("gone")
    assert_clean(pairs)
    pairs.git("checkout", "-q", "v2")
    assert_version(pairs, 2)


def test_an_executable_checkpoint_keeps_its_mode(repo: Repo, driver: None) -> None:
    repo.track(*PATTERNS)
    repo.write(MODEL, safetensors(1.0)).chmod(0o755)
    repo.add()
    repo.commit()
    clone = repo.clone("clone")
    assert (clone.path / MODEL).stat().st_mode & 0o100
    assert_clean(clone)


@pytest.mark.slow
def test_a_wtxt_file_is_a_text_in_the_work_tree_too(repo: Repo, driver: None) -> None:
    repo.git("config", "--global", "core.autocrlf", "true")
    repo.wtxtgit("track", *PATTERNS)
    write_version(repo, 1, [MODEL])
    repo.add()
    text = repo.blob(MODEL)
    repo.write("model.wtxt", text)
    repo.add()
    repo.commit()
    clone = repo.clone("clone")
    assert (clone.path / "model.wtxt").read_bytes() == text
    assert (clone.path / MODEL).read_bytes() == version(MODEL, 1)
    assert_clean(clone)
