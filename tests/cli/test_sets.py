"""A checkpoint in several files, named by its folder: in the work tree and in commits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import Command
from tests.data import DATA, FIXTURES
from tests.kit import Repo, safetensors, text_of

SAMPLES = DATA / "distributed"
INDEX = "model.safetensors.index.json"
SHARDS = {"one.safetensors": safetensors(1, 2, name="a"), "two.safetensors": safetensors(3)}
WEIGHT_MAP = {"a": "one.safetensors", "w": "two.safetensors"}


def put(folder: Path, weight_map: dict[str, str] = WEIGHT_MAP, **more: bytes) -> None:
    """Sharded safetensors with an index."""
    folder.mkdir(exist_ok=True)
    for name, content in SHARDS.items():
        (folder / name).write_bytes(content)
    for name, content in more.items():
        (folder / f"{name}.safetensors").write_bytes(content)
    index = {"metadata": {"total_size": 12}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index))


def listed(command: Command, target: str) -> dict[str, Any]:
    done = command("inspect", "--json", target)
    assert (done.code, done.err) == (0, "")
    told: dict[str, Any] = json.loads(done.out)
    return {tensor["name"]: tensor["sha256"] for tensor in told["tensors"]}


@pytest.fixture
def folders(wtxtgit: Command) -> Command:
    for sample in ("single", "ranks", "hf"):
        shutil.copytree(SAMPLES / sample, wtxtgit.folder / sample)
    put(wtxtgit.folder / "sharded")
    return wtxtgit


@pytest.fixture
def commits(folders: Command, repo: Repo) -> Command:
    """Two commits of the same: texts in place of files, the second with another shard."""
    for source in folders.folder.iterdir():
        for file in source.iterdir():
            name = f"{source.name}/{file.name}"
            repo.write(
                name, file.read_bytes() if file.name == INDEX else text_of(file.read_bytes())
            )
    repo.git("add", "-f", ".")
    repo.commit("1")
    repo.write("sharded/two.safetensors", text_of(safetensors(4)))
    repo.git("add", ".")
    repo.commit("2")
    return Command(repo.path, folders.folder.parent / "home")


def test_a_folder_is_one_checkpoint(folders: Command) -> None:
    aeroset = FIXTURES / "aero/aeroset_multi_a"
    done = folders("verify", "single", "ranks/", "hf", "./sharded", aeroset)
    assert (done.code, done.out.count(b"ok  ")) == (0, 5)
    assert listed(folders, "ranks") == listed(folders, "ranks/.metadata")
    assert listed(folders, "sharded") == listed(folders, f"./sharded/{INDEX}")


def test_checkpoints_of_two_kinds_are_compared(folders: Command) -> None:
    told = json.loads(folders("diff", "--json", "ranks", "hf").out)
    assert {tensor["status"] for tensor in told["tensors"]} == {"same"}
    assert folders("convert", "ranks", "whole.safetensors").code == 0
    told = json.loads(folders("diff", "--json", "whole.safetensors", "hf").out)
    assert {tensor["status"] for tensor in told["tensors"]} == {"same"}


@pytest.mark.slow
def test_folders_of_a_commit(commits: Command, folders: Command) -> None:
    # No file of the work tree comes in.
    shutil.rmtree(commits.folder / "sharded")
    everything = [f"HEAD~1:{folder}" for folder in ("single", "ranks", "./hf/", "sharded")]
    assert commits("verify", *everything, f"HEAD:sharded/{INDEX}").code == 0
    assert listed(commits, "HEAD:ranks") == listed(folders, "ranks")
    for folder, names in (("sharded", {"w"}), ("hf", set())):
        told = json.loads(commits("diff", "--json", f"HEAD~1:{folder}", f"HEAD:{folder}").out)
        assert {t["name"] for t in told["tensors"] if t["status"] != "same"} == names


def errors_of(command: Command, folder: str) -> str:
    done = command("verify", "--json", folder)
    assert done.code == 1
    (file,) = json.loads(done.out)["files"]
    return "; ".join(error["message"] for error in file["errors"])


def test_a_shard_that_is_missing(folders: Command) -> None:
    (folders.folder / "sharded/two.safetensors").unlink()
    assert "'two.safetensors' can't be opened" in errors_of(folders, "sharded")
    (folders.folder / "ranks/__1_0.distcp").unlink()
    assert "'__1_0.distcp' can't be opened" in errors_of(folders, "ranks")


def test_a_tensor_in_two_shards_or_in_none(folders: Command) -> None:
    put(folders.folder / "sharded", two=safetensors(1, name="a"))
    told = errors_of(folders, "sharded")
    assert "tensor 'w' is not in 'two.safetensors'" in told
    assert "tensor 'a' is in 'two.safetensors', but the index lists it in" in told


def test_a_total_size_that_is_wrong_is_a_note(folders: Command) -> None:
    index = folders.folder / "sharded" / INDEX
    index.write_text(index.read_text().replace("12", "13"))
    done = folders("verify", "sharded")
    assert done.code == 0
    assert b"total_size is 13, but the tensors have 12 bytes" in done.out


def test_damage_in_a_shard(folders: Command) -> None:
    shard = folders.folder / "ranks/__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[-700] ^= 1
    shard.write_bytes(content)
    assert errors_of(folders, "ranks")
    shard.write_bytes(content[:-10])
    assert errors_of(folders, "ranks")


@pytest.mark.parametrize("path", ["../out.safetensors", "link.safetensors", "up/out.safetensors"])
def test_no_file_outside_of_the_folder_is_opened(folders: Command, path: str) -> None:
    outside = folders.folder / "out.safetensors"
    outside.write_bytes(safetensors(1, name="a"))
    put(folders.folder / "sharded", {"a": path})
    (folders.folder / "sharded/link.safetensors").symlink_to(outside)
    (folders.folder / "sharded/up").symlink_to(folders.folder)
    told = errors_of(folders, "sharded")
    assert "leads out of the set's folder" in told or "not a path in the index's folder" in told


def test_a_shard_by_itself_says_what_it_is(folders: Command) -> None:
    shard = "ranks/__1_0.distcp"
    done = folders("verify", shard)
    assert (done.code, done.out.split()[0]) == (3, b"unknown")
    assert b"a shard of a torch-distributed checkpoint" in done.out
    assert b"a shard of a torch-distributed checkpoint" in folders("inspect", shard).out
    done = folders("diff", shard, shard)
    assert done.code == 3
    assert "a shard of a torch-distributed checkpoint" in done.complaint()


def test_metadata_that_would_have_to_be_run(folders: Command) -> None:
    metadata = folders.folder / "single/.metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b"_get_layout", b"_set_layout"))
    why = "can't be read without running a pickle: it names 'torch.serialization._set_layout'"
    done = folders("verify", "single")
    assert (done.code, done.out.split()[0]) == (3, b"unknown")
    assert why in done.out.decode()
    for command in (
        ("inspect", "single"),
        ("diff", "single", "ranks"),
        ("diff", "ranks", "single"),
    ):
        done = folders(*command)
        assert done.code == 3
        assert why in done.complaint()


def test_folders_with_no_set_or_with_several(folders: Command) -> None:
    (folders.folder / "empty").mkdir()
    done = folders("inspect", "empty")
    assert done.code == 3
    assert "without an index that lists a checkpoint's files" in done.complaint()
    shutil.copy(folders.folder / "sharded" / INDEX, folders.folder / "ranks")
    done = folders("verify", "ranks")
    assert done.code == 3
    assert f"a folder with 2 indexes: .metadata, {INDEX}" in done.err
    assert "hint: name the index, such as ranks/.metadata" in done.err


@pytest.mark.slow
def test_git_diff_of_shards_is_no_error(folders: Command, repo: Repo) -> None:
    repo.track("*.distcp")
    repo.wtxtgit("install", "--local")
    shutil.copytree(SAMPLES / "ranks", repo.path / "ranks")
    repo.add(".")
    repo.commit("1")
    assert repo.status() == b""
    shutil.copy(SAMPLES / "single/__0_0.distcp", repo.path / "ranks")
    assert b"a shard of a torch-distributed checkpoint" in repo.git("diff")


def put_mlcp(command: Command, folder: str, value: float = 1) -> None:
    """An MLCP checkpoint in two shards."""
    (command.folder / "one.safetensors").write_bytes(safetensors(value, 2))
    (command.folder / folder).mkdir(exist_ok=True)
    path = f"{folder}/m.checkpoint"
    assert command("convert", "one.safetensors", path, "--max-shard", "8").code == 0


def test_shards_of_mlcp_are_one_checkpoint(wtxtgit: Command, repo: Repo) -> None:
    put_mlcp(wtxtgit, "a")
    put_mlcp(wtxtgit, "b", 3)
    # Others call files so, too.
    (wtxtgit.folder / "a/tokenizer.metadata.json").write_text("{}")
    with pytest.raises(AssertionError):
        listed(wtxtgit, "a")
    (wtxtgit.folder / "a/tokenizer.metadata.json").unlink()
    assert wtxtgit("verify", "a", "b/m.metadata.json").out.count(b"ok  ") == 2
    told = json.loads(wtxtgit("diff", "--json", "a", "b").out)
    assert [tensor["status"] for tensor in told["tensors"]] == ["changed"]
    shutil.copytree(wtxtgit.folder / "a", repo.path / "a")
    repo.add(".")
    repo.commit("1")
    here = Command(repo.path, wtxtgit.folder.parent / "home")
    shutil.rmtree(repo.path / "a")
    for name in ("HEAD:a", "HEAD:a/m.metadata.json"):
        assert listed(here, name) == listed(wtxtgit, "a")
    done = wtxtgit("verify", "a/m_shard_0.shard")
    assert (done.code, done.out.split()[0]) == (3, b"unknown")
    assert b"a shard of a sharded-mlcp checkpoint" in done.out


def test_two_checkpoints_of_mlcp_in_one_folder(wtxtgit: Command) -> None:
    """Neither is taken for the folder; each is there under the name of its index."""
    (wtxtgit.folder / "raw").mkdir()
    for name, value in (("a", 1), ("b", 3)):
        content = np.full(2, value, "i4").tobytes()
        tensor = {"name": "w", "shape": [2], "dataType": 5, "offset": 0, "size": len(content)}
        shard = {"rank": 0, "filePath": "s.bin", "fileSize": len(content), "tensors": [tensor]}
        index = {"ddpRank": 0, "shards": [shard]}
        (wtxtgit.folder / f"raw/{name}_shard_0.bin").write_bytes(content)
        (wtxtgit.folder / f"raw/{name}.metadata.json").write_text(json.dumps(index))
        assert wtxtgit("cat", f"raw/{name}.metadata.json", "w").out == content
    for command in ("verify", "inspect"):
        done = wtxtgit(command, "raw")
        assert (done.code, done.out) == (3, b"")
        assert "2 indexes: a.metadata.json, b.metadata.json" in done.complaint()
        assert "name the index, such as raw/a.metadata.json" in done.err


def test_a_name_alone_makes_no_index(folders: Command) -> None:
    for folder in ("sharded", "hf"):
        (folders.folder / folder / "tokenizer.metadata.json").write_text("{}")
    assert folders("verify", "sharded", "hf").out.count(b"ok  ") == 2
