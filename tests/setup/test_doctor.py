from __future__ import annotations

import json
import tomllib
from fcntl import LOCK_EX, flock
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from tests.data import fixture
from tests.docs.pages import ROOT
from tests.kit import ATTRIBUTES, Repo, safetensors
from wtxtgit.git import held
from wtxtgit.git.repository import Config
from wtxtgit.io.temporary import aside_folder
from wtxtgit.remotes.lfs_pointer import LfsObject, format_pointer
from wtxtgit.setup import doctor as ops
from wtxtgit.setup import install
from wtxtgit.setup.diagnosis import CheckResult, Level

pytestmark = pytest.mark.slow

MODEL = safetensors(1.0, 2.0, 3.0)


def checks(repo: Repo) -> dict[str, CheckResult]:
    return {check.name: check for check in ops.examine(repo.repository).checks}


def test_a_healthy_repository(tracked: Repo) -> None:
    found = ops.examine(tracked.repository)
    assert found.ok
    assert {check.level for check in found.checks} == {Level.OK}


def test_no_driver(repo: Repo) -> None:
    found = checks(repo)
    assert found["driver"].level is Level.ERROR
    assert found["driver"].fixable
    assert "start" not in found


def test_a_foreign_driver_is_told_and_not_mended(tracked: Repo) -> None:
    tracked.git("config", "filter.wtxt.process", "other-tool")
    found = ops.repair(tracked.repository)
    assert not found.ok
    assert Config(tracked.path).get("filter.wtxt.process") == "other-tool"


def test_a_driver_that_does_not_start_is_mended(tracked: Repo) -> None:
    old = "/gone/python -E -P -m wtxtgit filter-process"
    tracked.git("config", "--global", "filter.wtxt.process", old)
    assert "/gone/python" in checks(tracked)["start"].message
    assert ops.repair(tracked.repository).ok


def test_a_diff_driver_of_another_install_that_is_gone(tracked: Repo) -> None:
    old = "'/gone/bin/git-wtxt' diff-driver --"
    tracked.git("config", "--global", "diff.wtxt.command", old)
    assert "/gone/bin/git-wtxt" in checks(tracked)["start"].message
    assert ops.repair(tracked.repository).ok
    assert Config(tracked.path).get("diff.wtxt.command") != old


def test_missing_text_attribute_is_mended(tracked: Repo) -> None:
    tracked.write(".gitattributes", "*.safetensors filter=wtxt\n")
    found = checks(tracked)["attributes"]
    assert (found.level, found.fixable) == (Level.ERROR, True)
    ops.repair(tracked.repository)
    assert (tracked.path / ".gitattributes").read_text() == f"*.safetensors {ATTRIBUTES}\n"
    assert checks(tracked)["attributes"].level is Level.OK


def test_an_attribute_that_a_later_line_takes_back(tracked: Repo) -> None:
    tracked.write(".gitattributes", f"*.safetensors {ATTRIBUTES}\n* text=auto\n")
    found = checks(tracked)["attributes"]
    assert (found.level, found.paths) == (Level.ERROR, (b"model.safetensors",))
    tracked.write(".gitattributes", f"*.safetensors {ATTRIBUTES}\n*.safetensors -diff\n")
    assert checks(tracked)["attributes"].level is Level.WARN


def test_attributes_outside_of_a_sparse_checkout(tracked: Repo) -> None:
    # A merge of git's takes them from the work tree alone.
    tracked.git("sparse-checkout", "set", "--no-cone", "/*.safetensors")
    found = checks(tracked)["attributes"]
    assert (found.level, found.paths) == (Level.WARN, (b".gitattributes",))
    tracked.git("sparse-checkout", "add", "/.gitattributes")
    assert checks(tracked)["attributes"].level is Level.OK


def test_text_files_without_eol(tracked: Repo) -> None:
    tracked.write("a.wsum", "x\n")
    tracked.add()
    assert checks(tracked)["eol"].level is Level.WARN
    tracked.git("config", "core.autocrlf", "true")
    assert checks(tracked)["eol"].level is Level.ERROR
    tracked.wtxtgit("track", "*.safetensors")
    assert checks(tracked)["eol"].level is Level.OK


def test_a_nested_file_that_takes_the_filter_back(tracked: Repo) -> None:
    tracked.write("vendor/[x]/a.safetensors", b"x")
    tracked.write("vendor/[x]/.gitattributes", "*.safetensors -filter\n")
    tracked.add()
    found = checks(tracked)["nested"]
    assert (found.level, found.paths) == (Level.WARN, (b"vendor/[x]/a.safetensors",))


def test_raw_binaries_are_staged_as_text(tracked: Repo) -> None:
    names = ["raw.safetensors", "a\nb.safetensors", ":(top)x.safetensors", "*.safetensors"]
    for name in names:
        tracked.add_raw(name, MODEL)
    tracked.commit("raw", "--no-verify")
    assert checks(tracked)["raw-binary"].level is Level.ERROR
    assert ops.repair(tracked.repository).ok
    for name in names:
        assert tracked.blob(name).startswith(b"WTXT 1\n")


def test_edits_of_raw_binaries_are_not_staged(tracked: Repo) -> None:
    edited = safetensors(9.0)
    for name in ("edited one.safetensors", "same.safetensors"):
        tracked.add_raw(name, MODEL)
    tracked.commit("raw", "--no-verify")
    tracked.write("edited one.safetensors", edited)
    found = ops.repair(tracked.repository)
    assert found.mended == ("staged same.safetensors as text",)
    assert tracked.blob("edited one.safetensors") == MODEL
    assert (tracked.path / "edited one.safetensors").read_bytes() == edited
    (left,) = [check for check in found.checks if check.name == "raw-binary"]
    assert (left.level, left.fixable) == (Level.ERROR, False)
    assert left.fix is not None
    assert "git add --renormalize -- 'edited one.safetensors', then commit" in left.fix
    assert "--fix skips 'edited one.safetensors'" in left.fix
    (check,) = (c for c in ops.repair(tracked.repository).checks if c.name == "raw-binary")
    assert check == left


def test_pointers_of_git_lfs_are_no_content(tracked: Repo) -> None:
    pointer = format_pointer(LfsObject("00" * 32, 5))
    tracked.add_raw("p.safetensors", pointer)
    tracked.commit("pointer", "--no-verify")
    assert checks(tracked)["raw-binary"].level is Level.OK
    check = checks(tracked)["lfs-pointer"]
    assert (check.level, check.fixable) == (Level.ERROR, False)
    assert check.message == "committed as git-lfs pointers, not as files: p.safetensors"
    assert check.fix == "wtxtgit fetch, then git add --renormalize -- p.safetensors, then commit"
    ops.repair(tracked.repository)
    assert tracked.blob("p.safetensors") == pointer
    said = tracked.wtxtgit("track", "p.*").stderr.decode()
    assert "warning: committed as pointers of git-lfs: p.safetensors\n" in said
    assert "hint: wtxtgit fetch, then git add --renormalize -- p.safetensors stages" in said
    assert "raw binary" not in said


def test_files_that_git_lfs_keeps_are_counted(tracked: Repo) -> None:
    assert checks(tracked)["lfs-pointer"].message == (
        "no file that wtxtgit tracks is a git-lfs pointer"
    )
    lines = (tracked.path / ".gitattributes").read_text("utf-8")
    tracked.write(".gitattributes", lines + "*.big filter=lfs diff=lfs merge=lfs -text\n")
    for name in ("a.big", "b.big"):
        tracked.add_raw(name, format_pointer(LfsObject("00" * 32, 5)))
    check = checks(tracked)["lfs-pointer"]
    assert check.level is Level.OK
    assert check.message.startswith("git-lfs keeps 2 files here, which wtxtgit does not track")


def test_paths_with_intent_to_add_are_no_raw_binaries(tracked: Repo) -> None:
    tracked.write("new.safetensors", MODEL)
    tracked.git("add", "-N", "--", "new.safetensors")
    assert ops.examine(tracked.repository).ok
    assert ops.repair(tracked.repository).mended == ()
    assert tracked.status() == b" A new.safetensors\0"


def test_damaged_text_has_a_hint_that_works(tracked: Repo) -> None:
    tracked.write("a b.safetensors", MODEL)
    tracked.add()
    tracked.commit()
    damaged = tracked.blob("a b.safetensors").replace(b"crc32c=", b"crc32c=0", 1)
    tracked.write("a b.safetensors", damaged)
    found = checks(tracked)["work-tree"]
    assert found.fix is not None
    assert "wtxtgit recover -- 'a b.safetensors'" in found.fix
    assert "git checkout COMMIT -- 'a b.safetensors'" in found.fix
    tracked.run("sh", "-c", "git checkout HEAD -- 'a b.safetensors'")
    assert checks(tracked)["work-tree"].level is Level.OK


def test_commands_in_hints_leave_names_out_visibly(tracked: Repo) -> None:
    for number in range(7):
        tracked.add_raw(f"raw{number}.safetensors", MODEL)
    found = checks(tracked)["raw-binary"]
    assert found.fix is not None
    assert "raw4.safetensors ..., then commit" in found.fix
    assert "raw4.safetensors and 2 more" in found.message


def test_files_that_stand_as_text_are_restored(tracked: Repo) -> None:
    install.unset_driver(scope="global")
    clone = tracked.clone("clone")
    assert checks(clone)["work-tree"].level is Level.WARN
    found = ops.repair(clone.repository)
    assert found.ok
    assert found.mended
    assert (clone.path / "model.safetensors").read_bytes() == MODEL
    assert clone.status() == b""


def test_large_texts_are_told_and_git_is_set_for_them(tracked: Repo) -> None:
    for number in range(3):
        tracked.write("model.safetensors", safetensors(*range(2000), number))
        tracked.add()
        tracked.commit()
    before = (tracked.path / ".git/config").read_bytes()
    tracked.git("config", "core.bigFileThreshold", "1k")
    tracked.git("repack", "-adfq")
    assert deltas(tracked) == 0
    found = checks(tracked)["deltas"]
    assert (found.level, found.fixable, found.paths) == (Level.WARN, True, (b"model.safetensors",))
    assert found.fix == "git config core.bigFileThreshold 32k"
    mended = ops.repair(tracked.repository)
    assert mended.mended == ("set core.bigFileThreshold to 32k for this repository",)
    assert checks(tracked)["deltas"].level is Level.OK
    tracked.git("repack", "-adfq")
    assert deltas(tracked) == 3
    assert b"put back core.bigFileThreshold" in tracked.wtxtgit("uninstall", "--local").stdout
    assert tracked.git("config", "core.bigFileThreshold") == b"1k\n"
    tracked.git("config", "--unset", "core.bigFileThreshold")
    assert (tracked.path / ".git/config").read_bytes() == before


def deltas(repo: Repo) -> int:
    """Blobs of the pack that stand as deltas."""
    (index,) = repo.path.glob(".git/objects/pack/*.idx")
    listed = repo.git("verify-pack", "-v", str(index)).split(b"\n")
    return sum(len(words) == 7 and words[1] == b"blob" for words in map(bytes.split, listed))


def test_texts_over_what_a_forge_takes(tracked: Repo) -> None:
    tracked.git("config", "wtxtgit.maxBlob", "10k")
    found = checks(tracked)["sizes"]
    assert (found.level, found.fixable, found.paths) == (Level.OK, False, ())
    tracked.git("config", "wtxtgit.maxBlob", "1k")
    found = checks(tracked)["sizes"]
    assert (found.level, found.fixable, found.paths) == (Level.WARN, False, (b"model.safetensors",))
    assert "over 1024 bytes as text, the limit in wtxtgit.maxBlob" in found.message


def test_compressed_files(tracked: Repo) -> None:
    assert checks(tracked)["compression"].level is Level.OK
    tracked.track("*.fold", "*.npz")
    np.savez_compressed(tracked.path / "m.npz", w=np.zeros(9))
    np.savez(tracked.path / "plain.npz", w=np.zeros(9))
    tracked.write("m.fold", fixture("fold/zstd3_sten_npz_a.fold"))
    tracked.write("plain.fold", fixture("fold/none_sten_alldtypes_a.fold"))
    tracked.add()
    found = checks(tracked)["compression"]
    assert (found.level, found.paths) == (Level.WARN, (b"m.fold", b"m.npz"))
    assert found.fix is not None
    tracked.wtxtgit("repack", "m.fold")
    tracked.wtxtgit("repack", "m.npz")
    tracked.add()
    assert checks(tracked)["compression"].level is Level.OK


def test_all_libraries_that_are_declared_are_tried() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = (Requirement(line) for line in declared)
    here = {one.name for one in wanted if one.marker is None or one.marker.evaluate()}
    assert ops.MODULES.keys() == here


def test_outside_a_repository(tmp_path: Path, driver: None) -> None:
    assert ops.examine(None).ok
    done = Repo(tmp_path).wtxtgit("doctor", "--json")
    assert done.stderr == b""
    told = json.loads(done.stdout)
    said = Repo(tmp_path).wtxtgit("doctor").stderr
    assert said.startswith(b"wtxtgit: note: not in a git repository, so only")
    assert [check["name"] for check in told["checks"]] == ["git", "python", "driver", "start"]


def test_the_command_line(repo: Repo) -> None:
    failed = repo.wtxtgit("doctor", ok=(1,))
    assert b"wtxtgit doctor --fix" in failed.stdout
    assert b"mended: set filter.wtxt.process" in repo.wtxtgit("doctor", "--fix").stdout
    assert repo.wtxtgit("doctor").returncode == 0


def test_what_was_killed_is_named_and_removed(tracked: Repo) -> None:
    aside = aside_folder(tracked.path / ".git")
    aside.mkdir(parents=True)
    left = [
        tracked.write("sub/.wtxtgit-0123456789abcdef", b"whole file"),
        tracked.write(".wtxtgit-abcdef0123456789", b"ignored"),
        aside / ".wtxtgit-0123456789abcdee",
        tracked.path / ".git/index.lock",
        tracked.path / ".git/objects/pack/pack-1.keep",
    ]
    tracked.write(".gitignore", ".wtxtgit-a*\n")
    left[2].mkdir()
    (left[2] / "index").write_bytes(b"x")
    left[3].write_bytes(held._OURS)
    left[4].write_bytes(held._OURS)
    of_user = tracked.write(".git/objects/pack/pack-2.keep", b"")
    kept = tracked.write(".wtxtgit-settings/file", b"x")
    tracked.write(".wtxtgit-0000000000000000", b"tracked")
    found = checks(tracked)["leftovers"]
    assert found.level is Level.WARN
    names = {
        "sub/.wtxtgit-0123456789abcdef",
        ".wtxtgit-abcdef0123456789",
        ".wtxtgit-0000000000000000",
    }
    assert {path.decode() for path in found.paths} == {
        *names,
        ".git/wtxtgit/tmp/.wtxtgit-0123456789abcdee",
        ".git/index.lock",
        ".git/objects/pack/pack-1.keep",
    }
    ops.repair(tracked.repository)
    assert checks(tracked)["leftovers"].level is Level.OK
    assert not any(path.exists() for path in left)
    assert kept.exists()
    assert of_user.exists()


def test_blobs_that_are_missing_are_written_again(tracked: Repo) -> None:
    tracked.write("model.safetensors", MODEL)
    tracked.write("plain.txt", "plain")
    tracked.add()
    commands = {"model.safetensors": "wtxtgit add", "plain.txt": "git hash-object -w"}
    for name, command in commands.items():
        oid = tracked.git("rev-parse", f":{name}").decode().strip()
        (tracked.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
        found = checks(tracked)["blobs"]
        assert found.level is Level.ERROR
        assert found.paths == (name.encode(),)
        assert found.fix == f"{command} -- {name} writes them again"
        run = tracked.wtxtgit if command.startswith("wtxtgit") else tracked.git
        run(*command.split()[1:], "--", name)
        assert checks(tracked)["blobs"].level is Level.OK
        assert tracked.git("cat-file", "-e", oid) == b""


def test_what_is_tracked_or_being_written_is_no_leftover(tracked: Repo) -> None:
    tracked.write(".wtxtgit-0123456789abcdef", b"tracked")
    tracked.add(".wtxtgit-0123456789abcdef")
    with tracked.write(".wtxtgit-0123456789abcdee", b"written").open() as written:
        flock(written, LOCK_EX)
        (tracked.path / ".git/index.lock").write_bytes(b"of git")
        assert checks(tracked)["leftovers"].level is Level.OK
