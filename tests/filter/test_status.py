from __future__ import annotations

import json

import pytest

from tests.kit import Repo, safetensors
from wtxtgit.filter import status as ops
from wtxtgit.filter.status import State
from wtxtgit.git.repository import Repository
from wtxtgit.remotes.lfs_pointer import LfsObject, format_pointer
from wtxtgit.setup import doctor, install

MODEL = safetensors(1.0, 2.0, 3.0)


def states(repo: Repo) -> dict[str, str]:
    return {f.path.decode("utf-8", "replace"): f.state for f in ops.status(repo.repository).files}


@pytest.mark.slow
def test_a_clean_file(tracked: Repo) -> None:
    found = ops.status(tracked.repository)
    (file,) = found.files
    assert found.ok
    assert (file.path, file.state, file.format) == (b"model.safetensors", State.OK, "safetensors")
    assert file.file_size == len(MODEL)
    assert file.blob_size == len(tracked.blob("model.safetensors"))


def test_modified_and_missing(tracked: Repo) -> None:
    tracked.write("model.safetensors", safetensors(4.0, 5.0, 6.0))
    assert states(tracked) == {"model.safetensors": State.MODIFIED}
    (tracked.path / "model.safetensors").unlink()
    assert states(tracked) == {"model.safetensors": State.MISSING}


def test_raw_binaries_of_the_index(tracked: Repo) -> None:
    tracked.add_raw("raw.safetensors", MODEL)
    assert states(tracked)["raw.safetensors"] == State.RAW
    assert not ops.status(tracked.repository).ok


@pytest.mark.slow
def test_paths_with_intent_to_add(tracked: Repo) -> None:
    for name in ("new.safetensors", "gone.safetensors"):
        tracked.write(name, MODEL)
        tracked.git("add", "-N", "--", name)
    (tracked.path / "gone.safetensors").unlink()
    tracked.add_raw("empty.safetensors", b"")
    assert states(tracked) == {
        "empty.safetensors": State.OK,
        "gone.safetensors": State.MISSING,
        "model.safetensors": State.OK,
        "new.safetensors": State.MODIFIED,
    }
    listed = {file.path: file.format for file in ops.list_files(tracked.repository).files}
    assert listed[b"new.safetensors"] is None
    assert listed[b"empty.safetensors"] == "opaque"


def test_text_in_the_work_tree(tracked: Repo) -> None:
    install.unset_driver(scope="global")
    assert states(tracked.clone("clone")) == {"model.safetensors": State.TEXT}


def test_the_text_of_the_blob_in_the_place_of_its_file(tracked: Repo) -> None:
    """Git says modified, by the size, and `git add` would find nothing to add."""
    tracked.write("model.safetensors", tracked.blob("model.safetensors"))
    assert states(tracked) == {"model.safetensors": State.TEXT}
    doctor.repair(tracked.repository)
    assert (tracked.path / "model.safetensors").read_bytes() == MODEL
    assert tracked.status() == b""


def test_damaged_text(tracked: Repo) -> None:
    damaged = tracked.blob("model.safetensors").replace(b"crc32c=", b"crc32c=0", 1)
    tracked.write("model.safetensors", damaged)
    tracked.add()
    assert states(tracked) == {"model.safetensors": State.CORRUPT}


@pytest.mark.slow
def test_a_conflict_is_one_file(tracked: Repo) -> None:
    tracked.git("checkout", "-qb", "other")
    tracked.write("model.safetensors", safetensors(7.0, 2.0, 3.0))
    tracked.git("commit", "-qam", "theirs")
    tracked.git("checkout", "-q", "main")
    ours = safetensors(8.0, 2.0, 3.0)
    tracked.write("model.safetensors", ours)
    tracked.git("commit", "-qam", "ours")
    merge = tracked.run("git", "merge", "other", ok=(1,))
    assert b"both sides changed it" in merge.stderr
    assert b"git checkout --theirs -- model.safetensors" in merge.stderr
    assert states(tracked) == {"model.safetensors": State.CONFLICT}
    (told,) = [line for line in tracked.wtxtgit("status").stdout.splitlines() if b": " in line]
    assert told.startswith(b"conflict: wtxtgit resolve PATH ")
    about = {check.name: check.message for check in doctor.examine(tracked.repository).checks}
    assert about["attributes"] == "-text is set for 1 tracked file"
    assert about["raw-binary"] == "1 tracked file, none is raw binary"
    assert (tracked.path / "model.safetensors").read_bytes() == ours
    tracked.git("checkout", "--theirs", "--", "model.safetensors")
    assert (tracked.path / "model.safetensors").read_bytes() == safetensors(7.0, 2.0, 3.0)
    tracked.add("model.safetensors")
    assert states(tracked) == {"model.safetensors": State.OK}


@pytest.mark.slow
def test_both_sides_added_the_file(tracked: Repo) -> None:
    tracked.git("checkout", "-qb", "other")
    tracked.write("new.safetensors", safetensors(1.0))
    tracked.add()
    tracked.commit()
    tracked.git("checkout", "-q", "main")
    tracked.write("new.safetensors", safetensors(2.0))
    tracked.add()
    tracked.commit()
    tracked.run("git", "merge", "other", ok=(1,))
    assert (tracked.path / "new.safetensors").read_bytes() == safetensors(2.0)


@pytest.mark.slow
def test_a_change_of_one_side_merges_without_asking(tracked: Repo) -> None:
    tracked.git("checkout", "-qb", "other")
    tracked.write("model.safetensors", safetensors(7.0, 2.0, 3.0))
    tracked.git("commit", "-qam", "theirs")
    tracked.git("checkout", "-q", "main")
    tracked.commit("ours")
    tracked.git("merge", "-q", "other")
    assert (tracked.path / "model.safetensors").read_bytes() == safetensors(7.0, 2.0, 3.0)


@pytest.mark.slow
def test_changes_far_apart_are_merged_to_a_text_that_holds(tracked: Repo) -> None:
    base = [float(i) for i in range(60_000)]
    tracked.write("model.safetensors", safetensors(*base))
    tracked.git("commit", "-qam", "base")
    tracked.git("checkout", "-qb", "other")
    tracked.write("model.safetensors", safetensors(*base[:-1], 0.5))
    tracked.git("commit", "-qam", "theirs")
    tracked.git("checkout", "-q", "main")
    tracked.write("model.safetensors", safetensors(0.5, *base[1:]))
    tracked.git("commit", "-qam", "ours")
    tracked.git("merge", "-q", "--no-edit", "other")
    merged = safetensors(0.5, *base[1:-1], 0.5)
    assert (tracked.path / "model.safetensors").read_bytes() == merged
    assert states(tracked) == {"model.safetensors": State.OK}


@pytest.mark.slow
def test_sparse_files(tracked: Repo) -> None:
    tracked.write("sub/x.safetensors", MODEL)
    tracked.add()
    tracked.commit()
    tracked.git("sparse-checkout", "set", "--cone", "--sparse-index", "none")
    assert states(tracked) == {
        "model.safetensors": State.OK,
        "sub/x.safetensors": State.SPARSE,
    }


@pytest.mark.slow
def test_nothing_else_is_listed(tracked: Repo) -> None:
    tracked.write("readme", "x")
    (tracked.path / "link.safetensors").symlink_to("model.safetensors")
    tracked.add()
    assert states(tracked) == {"model.safetensors": State.OK}


@pytest.mark.slow
def test_ls_files_of_the_index_and_of_a_revision(tracked: Repo) -> None:
    first = tracked.commit()
    tracked.write("later.safetensors", MODEL)
    tracked.track("later.*")
    tracked.add()
    second = tracked.commit()
    repository = tracked.repository
    assert [f.path for f in ops.list_files(repository).files] == [b"later.safetensors"]
    assert [f.path for f in ops.list_files(repository, first).files] == [b"model.safetensors"]
    (listed,) = ops.list_files(repository, second).files
    assert listed.oid == tracked.git("rev-parse", ":later.safetensors").decode().strip()
    assert (listed.size, listed.format) == (len(tracked.blob("later.safetensors")), "safetensors")
    assert tracked.status() == b""


def test_formats_by_the_first_lines() -> None:
    meta = (
        b"WTXT 1\nmeta schema=%b gen=000000 ts=1970-01-01T00:00:00Z build=none "
        b"endian=LE host=any cuda=off\n"
    )
    assert ops.format_of(meta % b"fold/v1" + b"cap ext=crc32c,layout\n") == "fold"
    assert ops.format_of(meta % b"fold/v1" + b"cap ext=crc32c\n") == "wtxt"
    assert ops.format_of(meta % b"weights/v1" + b"cap ext=crc32c,layout\n") == "wtxt"
    assert ops.format_of(b"WTXT 9\n") == "wtxt"
    assert ops.format_of(b"") == "opaque"
    assert ops.format_of(b"W") == "raw"
    assert ops.format_of(MODEL) == "raw"
    pointer = format_pointer(LfsObject("00" * 32, 5))
    assert ops.format_of(pointer) == ops.format_of(pointer, len(pointer)) == "lfs-pointer"
    assert ops.format_of(pointer, 2000) == "raw"


@pytest.mark.slow
def test_the_command_line(tracked: Repo) -> None:
    name = "evil\x1b[31m\n.safetensors"
    tracked.write(name, MODEL)
    tracked.add()
    shown = tracked.wtxtgit("status").stdout
    assert b"\x1b" not in shown
    assert b"evil\\x1b[31m\\x0a.safetensors" in shown
    told = json.loads(tracked.wtxtgit("status", "--json").stdout)
    assert told["ok"] is True
    assert {file["path"] for file in told["files"]} == {name, "model.safetensors"}
    assert tracked.wtxtgit("ls-files").stdout.splitlines()[1].endswith(b"\\x0a.safetensors")
    assert (
        json.loads(tracked.wtxtgit("ls-files", "HEAD", "--json").stdout)["files"][0]["path"]
        == "model.safetensors"
    )
    assert tracked.wtxtgit("ls-files", "no-such", ok=(5,)).stdout == b""


@pytest.mark.slow
def test_an_empty_repository(repo: Repo) -> None:
    assert ops.status(repo.repository).files == ()
    assert b"no tracked files" in repo.wtxtgit("status").stdout
    assert repo.wtxtgit("ls-files").stdout == b""


def test_a_file_that_is_not_what_its_ending_says(tracked: Repo) -> None:
    tracked.track("*.safetensors", "*.gguf", "*.npz", "*.bin")
    cut = {
        "cut.safetensors": MODEL[:-1],
        "cut.gguf": b"GGUF\3\0\0\0",
        "cut.npz": b"PK\3\4cut",
        "empty.npz": b"",
    }
    for name, content in {**cut, "weights.bin": b"of no known format"}.items():
        tracked.write(name, content)
    tracked.add()
    told = {file.path.decode(): file for file in ops.status(tracked.repository).files}
    assert {name: told[name].claims for name in cut} == {
        name: name.partition(".")[2] for name in cut
    }
    # Of an ending that says nothing, and a whole one.
    assert told["weights.bin"].format == "opaque"
    assert (told["weights.bin"].claims, told["model.safetensors"].claims) == (None, None)
    said = tracked.wtxtgit("status").stdout.decode()
    assert f"odd: cut.safetensors: cut at {len(MODEL) - 1} of {len(MODEL)} bytes: download" in said
    assert "odd: cut.gguf: cut at 8 of at least 16 bytes: download it again" in said
    assert "odd: cut.npz: a zip archive, cut at 7 bytes, before the list of its members" in said
    assert "odd: empty.npz: empty" in said
    assert said.count("odd: ") == len(cut)
    assert b"odd: " not in tracked.wtxtgit("status", "model.safetensors").stdout
    # What it says tells why.
    assert b"FAILED" in tracked.wtxtgit("verify", "--", "cut.safetensors", ok=(1,)).stdout


def test_only_what_pathspecs_match(tracked: Repo) -> None:
    tracked.write("sub/a.safetensors", MODEL)
    tracked.write("sub/notes.txt", "1")
    tracked.write("b.safetensors", MODEL)
    tracked.add()

    def listed(*asked: str, folder: str = ".") -> list[str]:
        found = ops.status(Repository.discover(tracked.path / folder), pathspecs=asked).files
        return [file.path.decode() for file in found]

    assert listed("sub") == listed(".", folder="sub") == ["sub/a.safetensors"]
    assert listed("*.safetensors") == listed() == listed(".")
    assert listed(":!sub", "b*") == ["b.safetensors"]
    told = json.loads(tracked.wtxtgit("status", "--json", "--", "b.safetensors").stdout)
    assert [file["path"] for file in told["files"]] == ["b.safetensors"]
    assert b"no checkpoint is tracked there" in tracked.wtxtgit("status", "sub/notes.txt").stdout
    said = tracked.wtxtgit("status", "none", ok=(2,)).stderr
    assert b"no tracked file matches 'none'" in said
    said = tracked.wtxtgit("status", "../none", ok=(2,)).stderr
    assert said.startswith(b"wtxtgit: error: ../none: '../none' is outside")
    (tracked.path / ".git/index").write_bytes(b"nonsense")
    assert b"git ls-files" in tracked.wtxtgit("status", "none", ok=(5,)).stderr
