from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tests.kit import LAUNCHER, Repo, safetensors
from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.setup import hooks as ops

MODEL = safetensors(1.0, 2.0, 3.0)
BEFORE = "pre-commit.before-wtxtgit"


@pytest.fixture
def hooked(tracked: Repo) -> Repo:
    ops.install(tracked.repository, LAUNCHER)
    return tracked


def hook_path(repo: Repo) -> Path:
    return repo.path / ".git/hooks/pre-commit"


def hook_paths(repo: Repo) -> tuple[Path, ...]:
    return tuple(hook_path(repo).with_name(name) for name in ops.NAMES)


def refused(repo: Repo, *arguments: str) -> bytes:
    return repo.run("git", "commit", "-qm", "x", *arguments, ok=(1,)).stderr


@pytest.mark.slow
def test_a_good_commit_passes(hooked: Repo) -> None:
    hooked.write("new.safetensors", MODEL)
    hooked.add()
    hooked.commit()


def test_the_first_commit_is_checked(repo: Repo, driver: None) -> None:
    ops.install(repo.repository, LAUNCHER)
    repo.track("*.safetensors")
    repo.add_raw("raw.safetensors", MODEL)
    assert b"raw.safetensors: raw-binary" in refused(repo)


def test_a_raw_binary_is_refused(hooked: Repo) -> None:
    hooked.add_raw("raw.safetensors", MODEL)
    said = refused(hooked)
    assert b"wtxtgit: error: raw.safetensors: raw-binary: " in said
    assert b"git add --renormalize -- raw.safetensors" in said
    hooked.git("add", "--renormalize", "--", "raw.safetensors")
    hooked.commit()


def test_damaged_text_is_refused(hooked: Repo) -> None:
    text = hooked.blob("model.safetensors")
    hooked.write("model.safetensors", text.replace(b"crc32c=", b"crc32c=f", 1))
    hooked.add()
    assert b"corrupt-text" in refused(hooked)


@pytest.mark.slow
def test_a_wtxt_file_is_checked_without_a_filter(hooked: Repo) -> None:
    hooked.write("good.wtxt", hooked.blob("model.safetensors"))
    hooked.add()
    hooked.commit()
    hooked.write("bad.wtxt", b"no text\n")
    hooked.add()
    assert b"bad.wtxt: corrupt-text" in refused(hooked)


@pytest.mark.slow
def test_the_index_is_checked_not_the_work_tree(hooked: Repo) -> None:
    hooked.add_raw("raw.safetensors", MODEL)
    (hooked.path / "raw.safetensors").unlink()
    assert b"raw-binary" in refused(hooked)
    hooked.git("rm", "-q", "--cached", "--", "raw.safetensors")
    hooked.add_raw("later.safetensors", MODEL)
    hooked.git("reset", "-q")
    hooked.write("readme", "x")
    hooked.add("readme")
    hooked.commit()


@pytest.mark.slow
def test_the_attributes_are_those_of_the_index(hooked: Repo) -> None:
    hooked.write(".gitattributes", "")
    hooked.add_raw("raw.safetensors", MODEL)
    assert b"raw-binary" in refused(hooked)


@pytest.mark.slow
def test_a_commit_of_paths_has_an_index_of_its_own(hooked: Repo) -> None:
    hooked.add_raw("raw.safetensors", MODEL)
    hooked.write("readme", "x")
    hooked.add("readme")
    hooked.commit("only the readme", "--", "readme")
    hooked.git("config", "filter.wtxt.required", "false")
    hooked.git("config", "filter.wtxt.process", "")
    hooked.git("config", "filter.wtxt.clean", "")
    hooked.write("model.safetensors", safetensors(9.0))
    assert b"model.safetensors: raw-binary" in refused(hooked, "--", "model.safetensors")


@pytest.mark.slow
def test_a_commit_from_a_subfolder_and_a_linked_worktree(hooked: Repo, tmp_path: Path) -> None:
    hooked.git("worktree", "add", "-q", str(tmp_path / "linked"))
    linked = Repo(tmp_path / "linked")
    linked.add_raw("sub/raw.safetensors", MODEL)
    sub = Repo(linked.path / "sub")
    assert b"sub/raw.safetensors: raw-binary" in refused(sub)


@pytest.mark.slow
def test_hostile_names(hooked: Repo) -> None:
    for name in (
        "-rf.safetensors",
        "a\nb.safetensors",
        "\x1b[31m.safetensors",
        "\udcff.safetensors",
    ):
        hooked.add_raw(name, MODEL)
    said = refused(hooked)
    assert said.count(b"raw-binary") == 4
    assert b"\x1b" not in said


@pytest.mark.slow
def test_unchanged_raw_files_do_not_stop_other_commits(hooked: Repo) -> None:
    hooked.add_raw("raw.safetensors", MODEL)
    hooked.commit("before", "--no-verify")
    hooked.write("readme", "x")
    hooked.add("readme")
    hooked.commit()


@pytest.mark.slow
def test_removals_pass_and_links_do_not(hooked: Repo) -> None:
    hooked.git("rm", "-q", "--", "model.safetensors")
    hooked.commit()
    (hooked.path / "link.safetensors").symlink_to("model.safetensors")
    hooked.add()
    assert b"link.safetensors: untracked-artifact" in refused(hooked)


def test_install_and_uninstall_leave_nothing(repo: Repo) -> None:
    ops.install(repo.repository, LAUNCHER)
    ops.install(repo.repository, LAUNCHER)
    script = hook_path(repo).read_text()
    assert script.endswith(f"exec {LAUNCHER.command()} hook pre-commit\n")
    assert hook_path(repo).stat().st_mode & 0o777 == 0o755
    assert ops.uninstall(repo.repository) == hook_paths(repo)
    assert ops.uninstall(repo.repository) == ()
    assert not [p for p in hook_path(repo).parent.iterdir() if p.suffix != ".sample"]


@pytest.mark.slow
def test_a_foreign_hook_runs_first_and_comes_back(tracked: Repo) -> None:
    foreign = "#!/bin/sh\necho ran >> ran\nexit $(cat code)\n"
    tracked.write("code", "0")
    tracked.write(".git/hooks/pre-commit", foreign).chmod(0o755)
    ops.install(tracked.repository, LAUNCHER)
    ops.install(tracked.repository, LAUNCHER)
    tracked.commit()
    assert (tracked.path / "ran").read_text() == "ran\n"
    tracked.write("code", "3")
    refused(tracked, "--allow-empty")
    tracked.write("code", "0")
    tracked.add_raw("raw.safetensors", MODEL)
    assert b"raw-binary" in refused(tracked)
    ops.uninstall(tracked.repository)
    assert hook_path(tracked).read_text() == foreign
    assert hook_path(tracked).stat().st_mode & 0o777 == 0o755
    assert not hook_path(tracked).with_name(BEFORE).exists()


def test_an_older_installation_gets_the_other_hooks(repo: Repo) -> None:
    ops.install(repo.repository, type(LAUNCHER)(("/old/wtxtgit",)))
    for name in set(ops.NAMES) - {"pre-commit"}:
        hook_path(repo).with_name(name).unlink()
    assert ops.installed(repo.repository) == ("pre-commit",)
    ops.install(repo.repository, LAUNCHER)
    assert ops.installed(repo.repository) == ops.NAMES
    for path in hook_paths(repo):
        assert f"exec {LAUNCHER.command()} hook {path.name}" in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o755


def test_an_edited_hook_of_any_name_stops_all(repo: Repo) -> None:
    ops.install(repo.repository, LAUNCHER)
    edited = hook_path(repo).with_name("pre-push")
    edited.write_text(edited.read_text() + "echo more\n")
    before = {path: path.read_bytes() for path in hook_paths(repo)}
    for change in (ops.uninstall, lambda repository: ops.install(repository, LAUNCHER)):
        with pytest.raises(CheckError, match="pre-push was edited"):
            change(repo.repository)
    assert {path: path.read_bytes() for path in hook_paths(repo)} == before


@pytest.mark.slow
def test_a_hook_that_is_not_run_is_kept_too(tracked: Repo) -> None:
    tracked.write(".git/hooks/pre-commit", "exit 1\n").chmod(0o644)
    ops.install(tracked.repository, LAUNCHER)
    tracked.commit()
    ops.uninstall(tracked.repository)
    assert hook_path(tracked).read_text() == "exit 1\n"
    assert hook_path(tracked).stat().st_mode & 0o777 == 0o644


def test_a_hook_that_replaced_ours_stays(repo: Repo) -> None:
    ops.install(repo.repository, LAUNCHER)
    hook_path(repo).write_text("#!/bin/sh\n# somebody else's\n")
    assert hook_path(repo) not in ops.uninstall(repo.repository)
    assert hook_path(repo).exists()


@pytest.mark.parametrize(
    ("step", "hook"), [("fsync", "pre-commit"), ("replace", "pre-commit"), ("replace", "pre-push")]
)
def test_a_failed_install_leaves_the_foreign_hook(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, step: str, hook: str
) -> None:
    repo.write(".git/hooks/pre-commit", "#!/bin/sh\n").chmod(0o755)
    before = sorted(hook_path(repo).parent.iterdir())
    real = Path.replace

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_at_last(source: Path, target: Path) -> Path:
        return full() if target.name == hook else real(source, target)  # type: ignore[return-value]

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full_at_last)
    with pytest.raises(EnvironmentFailure, match="no space left"):
        ops.install(repo.repository, LAUNCHER)
    assert hook_path(repo).read_text() == "#!/bin/sh\n"
    assert hook_path(repo).stat().st_mode & 0o777 == 0o755
    assert sorted(hook_path(repo).parent.iterdir()) == before


def test_lines_added_to_our_hook_are_not_deleted(repo: Repo) -> None:
    foreign = "#!/bin/sh\nexit 0\n"
    repo.write(".git/hooks/pre-commit", foreign).chmod(0o755)
    ops.install(repo.repository, LAUNCHER)
    edited = hook_path(repo).read_text() + "make lint\n"
    hook_path(repo).write_text(edited)
    for change in (ops.uninstall, lambda repository: ops.install(repository, LAUNCHER, force=True)):
        with pytest.raises(CheckError, match="was edited") as refusal:
            change(repo.repository)
        assert hook_path(repo).read_text() == edited
    assert refusal.value.hint is not None
    repo.run("sh", "-c", refusal.value.hint.partition(" keeps")[0])
    assert ops.uninstall(repo.repository) == hook_paths(repo)
    assert hook_path(repo).read_text() == foreign
    assert hook_path(repo).with_name("pre-commit.edited").read_text() == edited


def test_another_command_in_our_hook_is_no_edit(repo: Repo) -> None:
    ops.install(repo.repository, type(LAUNCHER)(("/it's a/wtxtgit",)))
    ops.install(repo.repository, LAUNCHER)
    assert ops.uninstall(repo.repository) == hook_paths(repo)


@pytest.mark.slow
def test_intent_to_add_does_not_stop_a_commit(hooked: Repo) -> None:
    hooked.write("new.safetensors", MODEL)
    hooked.git("add", "-N", "--", "new.safetensors")
    hooked.write("readme", "x")
    hooked.add("readme")
    hooked.commit()


def test_an_interrupted_install_is_taken_back(repo: Repo) -> None:
    repo.write(f".git/hooks/{BEFORE}", "exit 0\n")
    assert ops.uninstall(repo.repository) == (hook_path(repo),)
    assert hook_path(repo).read_text() == "exit 0\n"


def test_two_foreign_hooks_are_one_too_many(repo: Repo) -> None:
    repo.write(".git/hooks/pre-commit", "one")
    repo.write(f".git/hooks/{BEFORE}", "two")
    with pytest.raises(CheckError, match="already exists"):
        ops.install(repo.repository, LAUNCHER)
    assert hook_path(repo).read_text() == "one"


def test_a_shared_hooks_folder_is_not_touched(repo: Repo, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    repo.git("config", "core.hooksPath", str(shared))
    with pytest.raises(CheckError, match=r"core\.hooksPath is .*, a folder outside this repo"):
        ops.install(repo.repository, LAUNCHER)
    assert not shared.exists()
    placed = tuple(shared / name for name in ops.NAMES)
    assert ops.install(repo.repository, LAUNCHER, force=True) == placed
    assert ops.uninstall(repo.repository) == placed


def test_a_command_with_spaces_and_quotes(repo: Repo, tmp_path: Path) -> None:
    folder = tmp_path / "it's a $HOME"
    folder.mkdir()
    program = folder / "wtxtgit"
    program.write_text('#!/bin/sh\necho "$*" > called\n')
    program.chmod(0o755)
    ops.install(repo.repository, type(LAUNCHER)((str(program),)))
    repo.commit()
    assert (repo.path / "called").read_text() == "hook pre-commit\n"


@pytest.mark.slow
def test_the_report_as_data(tracked: Repo) -> None:
    tracked.add_raw("raw.safetensors", MODEL)
    told = json.loads(tracked.wtxtgit("hook", "pre-commit", "--json", ok=(1,)).stdout)
    assert [file["path"] for file in told["files"]] == ["raw.safetensors"]
    assert told["findings"][0]["kind"] == "raw-binary"


@pytest.mark.slow
def test_a_pending_text_needs_its_wsum_in_the_index(hooked: Repo) -> None:
    vectors = Path(__file__).parents[1] / "data/vectors"
    cases = json.loads((vectors / "manifest.json").read_bytes())["cases"]
    case = next(c for c in cases if c.get("wsum") and c["valid"] and not c.get("public_keys"))
    text = (vectors / case["file"]).read_bytes()
    assert b"\nroot_pending " in text
    hooked.write("step.wtxt", text)
    hooked.add()
    assert b"step.wtxt: corrupt-text" in refused(hooked)
    hooked.write("step.wtxt.root.wsum", (vectors / case["wsum"]).read_bytes())
    hooked.add()
    hooked.commit()


def test_data_is_sent_by_our_hook_or_one_that_calls_it(tracked: Repo) -> None:
    assert not ops.calls_us(tracked.repository, "pre-push")
    ops.install(tracked.repository, LAUNCHER)
    assert ops.calls_us(tracked.repository, "pre-push")
    own = hook_path(tracked).with_name("pre-push")
    own.write_bytes(b"#!/bin/sh\nexec git lfs pre-push\n")
    assert not ops.calls_us(tracked.repository, "pre-push")
    own.write_bytes(b'#!/bin/sh\nexec wtxtgit hook pre-push "$@"\n')
    assert ops.calls_us(tracked.repository, "pre-push")
