from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.kit import LAUNCHER, Repo, safetensors
from tests.kit.refusals import REFUSED, is_possible
from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.git import driver
from wtxtgit.setup import hooks
from wtxtgit.setup import install as ops

MODEL = safetensors(1.0, 2.0, 3.0)


@pytest.fixture
def text_clone(tracked: Repo) -> Repo:
    """A clone made where the driver was not configured: its models are text."""
    ops.unset_driver(scope="global")
    clone = tracked.clone("clone")
    assert (clone.path / "model.safetensors").read_bytes().startswith(b"WTXT 1\n")
    return clone


def install(repo: Repo) -> ops.Installed:
    return ops.install(scope="global", with_hooks=False, force=False, repo=repo.repository)


@pytest.mark.slow
def test_install_writes_text_files_again(text_clone: Repo) -> None:
    model = text_clone.path / "model.safetensors"
    model.chmod(0o755)
    text_clone.git("update-index", "--refresh", ok=(0, 1))
    model.chmod(0o644)
    done = install(text_clone)
    assert done.files.written == (b"model.safetensors",)
    assert model.read_bytes() == MODEL
    assert text_clone.status() == b""
    # The index holds the stat of the file that was written: nothing is filtered again.
    assert model.stat().st_mtime > 1
    assert install(text_clone).files == ops.Resmudged()


@pytest.mark.slow
def test_changed_files_are_left_and_listed(text_clone: Repo) -> None:
    model = text_clone.path / "model.safetensors"
    changed = model.read_bytes() + b"more\n"
    model.write_bytes(changed)
    done = install(text_clone)
    assert done.files.changed == (b"model.safetensors",)
    assert done.files.written == ()
    assert model.read_bytes() == changed


def test_a_same_sized_change_is_a_change(text_clone: Repo) -> None:
    model = text_clone.path / "model.safetensors"
    facts = model.stat()
    changed = model.read_bytes().replace(b"endwtxt", b"ENDWTXT")
    model.write_bytes(changed)
    os.utime(model, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert install(text_clone).files.changed == (b"model.safetensors",)
    assert model.read_bytes() == changed


@pytest.mark.slow
def test_damaged_text_stays_and_is_listed(tracked: Repo) -> None:
    damaged = tracked.blob("model.safetensors").replace(b"crc32c=", b"crc32c=0", 1)
    tracked.write("model.safetensors", damaged)
    tracked.add()
    tracked.commit()
    ops.unset_driver(scope="global")
    clone = tracked.clone("clone")
    assert install(clone).files.left == (b"model.safetensors",)
    assert (clone.path / "model.safetensors").read_bytes() == damaged


@pytest.mark.slow
def test_hostile_names_are_written_again(tracked: Repo) -> None:
    names = [b"a\nb.safetensors", b"-f.safetensors", b'"q\\.safetensors', b"\xff.safetensors",
             b"\x1b[31m.safetensors", b"sub dir/x.safetensors"]  # fmt: skip
    for name in names:
        tracked.write(name, MODEL)
    tracked.add()
    tracked.commit()
    ops.unset_driver(scope="global")
    clone = tracked.clone("clone")
    sub = Repo(clone.path / "sub dir")
    done = install(sub)
    assert sorted(done.files.written) == sorted([*names, b"model.safetensors"])
    assert all((clone.path / os.fsdecode(name)).read_bytes() == MODEL for name in names)
    assert clone.status() == b""


def test_a_link_in_the_work_tree_is_not_followed(text_clone: Repo, tmp_path: Path) -> None:
    model = text_clone.path / "model.safetensors"
    outside = tmp_path / "outside"
    model.rename(outside)
    model.symlink_to(outside)
    before = outside.read_bytes(), outside.stat().st_mtime_ns
    assert install(text_clone).files.written == ()
    assert (outside.read_bytes(), outside.stat().st_mtime_ns) == before


@pytest.mark.slow
def test_a_linked_folder_is_not_followed(tracked: Repo, tmp_path: Path) -> None:
    tracked.write("sub/x.safetensors", MODEL)
    tracked.add()
    tracked.commit()
    ops.unset_driver(scope="global")
    clone = tracked.clone("clone")
    outside = tmp_path / "outside"
    (clone.path / "sub").rename(outside)
    (clone.path / "sub").symlink_to(outside)
    done = install(clone)
    assert done.files.written == (b"model.safetensors",)
    assert done.files.changed == (b"sub/x.safetensors",)
    assert (outside / "x.safetensors").read_bytes().startswith(b"WTXT ")
    assert (outside / "x.safetensors").stat().st_mtime > 1


@pytest.mark.slow
def test_sparse_files_stay_away(tracked: Repo) -> None:
    tracked.write("sub/x.safetensors", MODEL)
    tracked.add()
    tracked.commit()
    ops.unset_driver(scope="global")
    clone = tracked.clone("clone", "--no-checkout")
    clone.git("sparse-checkout", "set", "--cone", "--sparse-index", "none")
    clone.git("checkout", "-q", "main")
    assert install(clone).files.written == (b"model.safetensors",)
    assert not (clone.path / "sub").exists()
    assert clone.status() == b""


@pytest.mark.slow
def test_partial_clones_fetch_what_they_need(tracked: Repo) -> None:
    tracked.git("config", "uploadpack.allowFilter", "true")
    ops.unset_driver(scope="global")
    target = tracked.path.parent / "partial"
    tracked.git("clone", "-q", "--filter=blob:none", f"file://{tracked.path}", str(target))
    partial = Repo(target)
    assert install(partial).files.written == (b"model.safetensors",)
    assert (target / "model.safetensors").read_bytes() == MODEL


@pytest.mark.slow
def test_paths_with_intent_to_add_are_no_concern_of_install(text_clone: Repo) -> None:
    text = (text_clone.path / "model.safetensors").read_bytes()
    text_clone.write("new.safetensors", text)
    text_clone.git("add", "-N", "--", "new.safetensors")
    assert install(text_clone).files == ops.Resmudged(written=(b"model.safetensors",))
    assert (text_clone.path / "new.safetensors").read_bytes() == text


def test_an_uninstall_that_keeps_an_edited_hook_changes_nothing(repo: Repo, home: Path) -> None:
    ops.install(scope="global", with_hooks=True, force=False, repo=repo.repository)
    hook = repo.path / ".git/hooks/pre-commit"
    hook.write_bytes(hook.read_bytes().replace(b"\nexec ", b"\nmake lint || exit\nexec "))
    before = (home / ".gitconfig").read_bytes(), hook.read_bytes()
    with pytest.raises(CheckError, match="was edited"):
        ops.uninstall(scope="global", repo=repo.repository)
    assert ((home / ".gitconfig").read_bytes(), hook.read_bytes()) == before


@pytest.mark.slow
def test_native_text_is_no_concern_of_install(tracked: Repo) -> None:
    vectors = Path(__file__).parents[1] / "data/vectors/valid"
    native = sorted(path for path in vectors.iterdir() if path.suffix == ".wtxt")[0].read_bytes()
    tracked.write("native.safetensors", native)
    tracked.add()
    tracked.commit()
    done = install(tracked)
    assert done.files.written == ()
    assert (tracked.path / "native.safetensors").read_bytes() == native
    assert tracked.status() == b""


def test_linked_worktrees(text_clone: Repo, tmp_path: Path) -> None:
    text_clone.git("worktree", "add", "-q", str(tmp_path / "linked"), "-b", "other")
    linked = Repo(tmp_path / "linked")
    assert install(linked).files.written == (b"model.safetensors",)
    assert linked.status() == b""


def test_no_file_is_lost_to_a_driver_that_does_not_start(text_clone: Repo) -> None:
    text = (text_clone.path / "model.safetensors").read_bytes()
    text_clone.git("config", "filter.wtxt.process", "/gone/wtxtgit filter-process")
    with pytest.raises(EnvironmentFailure, match="/gone/wtxtgit"):
        install(text_clone)
    assert (text_clone.path / "model.safetensors").read_bytes() == text


def test_outside_a_repository(tmp_path: Path) -> None:
    done = ops.install(scope="global", with_hooks=False, force=False, repo=None)
    assert set(done.keys) == set(driver.KEYS)
    for arguments in (
        {"scope": "local", "with_hooks": False},
        {"scope": "global", "with_hooks": True},
    ):
        with pytest.raises(EnvironmentFailure):
            ops.install(**arguments, force=False, repo=None)
    assert set(ops.uninstall(scope="global", repo=None).keys) == set(driver.KEYS)


def test_a_refused_install_changes_nothing(repo: Repo, home: Path) -> None:
    before = (home / ".gitconfig").read_bytes()
    repo.git("config", "core.hooksPath", "hooks")
    with pytest.raises(CheckError, match=r"core\.hooksPath is .*, a folder of the work tree"):
        ops.install(scope="global", with_hooks=True, force=False, repo=repo.repository)
    assert (home / ".gitconfig").read_bytes() == before


@pytest.mark.slow
def test_the_command_line(text_clone: Repo) -> None:
    done = text_clone.wtxtgit("install", "--hooks", "--json")
    told = json.loads(done.stdout)
    assert told["scope"] == "global"
    assert told["command"] == LAUNCHER.command()
    assert told["files"]["written"] == ["model.safetensors"]
    folder = text_clone.path / ".git/hooks"
    assert told["hooks"] == [str(folder / name) for name in hooks.NAMES]
    gone = text_clone.wtxtgit("uninstall")
    assert gone.stdout.count(b"removed the hook: ") == 4
    assert not any((folder / name).exists() for name in hooks.NAMES)
    assert (text_clone.path / "model.safetensors").read_bytes() == MODEL


def test_exit_code_5_outside_a_repository(repo: Repo, tmp_path: Path) -> None:
    for arguments in (["install", "--local"], ["status"], ["track", "*.x"], ["ls-files"]):
        failed = Repo(tmp_path).wtxtgit(*arguments, ok=(5,))
        assert failed.stderr.startswith(b"wtxtgit: error: not in a git repository\n")


def test_everyday_use(tracked: Repo, tmp_path: Path) -> None:
    second = safetensors(1.0, 2.5, 3.0)
    tracked.write("model.safetensors", second)
    tracked.git("commit", "-qam", "second")
    assert tracked.blob("model.safetensors").startswith(b"WTXT 1\n")
    assert b"\nw  " in tracked.git("diff", "HEAD~1")
    assert b"arr name=w" in tracked.git("diff", "--no-ext-diff", "HEAD~1")
    tracked.git("checkout", "-q", "HEAD~1")
    assert (tracked.path / "model.safetensors").read_bytes() == MODEL
    tracked.git("checkout", "-q", "main")
    clone = tracked.clone("clone")
    assert (clone.path / "model.safetensors").read_bytes() == second
    assert clone.status() == b""
    shutil.rmtree(clone.path)


@pytest.mark.parametrize("autocrlf", ["true", "input"])
def test_line_ending_conversion_leaves_models_alone(tracked: Repo, autocrlf: str) -> None:
    tracked.git("config", "--global", "core.autocrlf", autocrlf)
    clone = tracked.clone("clone")
    assert (clone.path / "model.safetensors").read_bytes() == MODEL
    assert clone.status() == b""


@pytest.mark.skipif(not is_possible(), reason="this system's calls are not known: run it on Linux")
def test_a_config_that_may_not_be_written(repo: Repo) -> None:
    folder = repo.path / "locked"
    folder.mkdir(mode=0o555)
    env = {"GIT_CONFIG_GLOBAL": str(folder / "config"), REFUSED: "rights"}
    done = repo.wtxtgit("install", env=env, ok=[5])
    assert done.stderr.decode().splitlines() == [
        f"wtxtgit: error: {folder}/config: can't be written: permission denied",
        f"wtxtgit: hint: run it as a user who may write to {folder}",
    ]


def test_a_config_that_may_not_grow(repo: Repo) -> None:
    limited = ("bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *LAUNCHER.arguments)
    done = repo.run(*limited, "store", "use", "file:///x", ok=[5])
    config = repo.path / ".git/config"
    assert done.stderr.decode() == f"wtxtgit: error: {config}: can't be written\n"
    assert not config.with_name("config.lock").exists()
