"""`wtxtgit reseal`: the index of a set, made anew from its files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.test_inspect import inspected
from tests.data import FIXTURES
from tests.kit import Repo
from wtxtgit.containers.aero import read, reseal
from wtxtgit.model.tensor import NewContent, PlacedEntry, ReadOptions

SETS = ["aeroset_multi_a", "aeroset_onepart_a", "aeroset_from_sharded_a"]


def copied(wtxtgit: Command, name: str) -> Path:
    shutil.copytree(FIXTURES / "aero" / name, wtxtgit.folder / "set")
    return wtxtgit.folder / "set"


def changed(wtxtgit: Command, part: Path) -> None:
    """Other bytes in the largest tensor of a part."""
    listed = inspected(wtxtgit, part)["tensors"]
    change(part, max(listed, key=lambda tensor: tensor["size"])["name"])


def change(part: Path, name: str, by: int = 1) -> None:
    """Other bytes in a tensor of a part, whose hashes are made anew."""
    container = read.read(memoryview(part.read_bytes()))
    placed = []
    for n, entry in enumerate(reseal.entries(container, ReadOptions())):
        new = None
        if entry.name == name and entry.tensor is not None:
            content = bytes(b ^ by for b in entry.tensor.data)
            new = NewContent(len(content), lambda content=content: iter([content]))
        placed.append(PlacedEntry(container, n, new))
    part.write_bytes(b"".join(reseal.reseal(container, placed, None, ReadOptions())))


@pytest.mark.parametrize("name", SETS)
def test_an_original_set_stays_as_it_is(name: str, wtxtgit: Command) -> None:
    folder = copied(wtxtgit, name)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    done = wtxtgit("reseal", folder)
    assert (done.code, b"already matched its files" in done.out) == (0, True), done
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize("name", SETS)
def test_the_index_follows_changed_parts(name: str, wtxtgit: Command) -> None:
    folder = copied(wtxtgit, name)
    part = sorted(folder.glob("part-*.aero"))[-1]
    before = {t["name"]: t["sha256"] for t in inspected(wtxtgit, folder)["tensors"]}
    changed(wtxtgit, part)
    assert wtxtgit("verify", folder).code == 1
    done = json.loads(wtxtgit("reseal", folder, "--json").out)
    assert str(folder / "model.aeroset.json") in done["changed"]
    assert wtxtgit("verify", folder).code == 0
    after = {t["name"]: t["sha256"] for t in inspected(wtxtgit, folder)["tensors"]}
    assert list(after) == list(before)
    assert sum(after[key] != before[key] for key in before) == 1
    assert wtxtgit("convert", folder, "whole.safetensors").code == 0
    assert b"already matched its files" in wtxtgit("reseal", folder / "model.aeroset.json").out


def test_a_set_that_convert_wrote(wtxtgit: Command) -> None:
    source = FIXTURES / "aero/from_gguf_a.aero"
    assert wtxtgit("convert", source, "m.aero", "--max-shard", "100").code == 0
    assert b"already matched its files" in wtxtgit("reseal", "m.aeroset.json").out
    part = sorted(wtxtgit.folder.glob("m-part-*.aero"))[0]
    changed(wtxtgit, part)
    assert wtxtgit("verify", "m.aeroset.json").code == 1
    assert wtxtgit("reseal", "m.aeroset.json").code == 0
    assert wtxtgit("verify", "m.aeroset.json").code == 0


def test_a_part_that_does_not_hold_is_not_sealed(wtxtgit: Command) -> None:
    folder = copied(wtxtgit, "aeroset_multi_a")
    part = folder / "part-001.aero"
    data = bytearray(part.read_bytes())
    data[-3] ^= 1
    part.write_bytes(data)
    before = (folder / "model.aeroset.json").read_bytes()
    done = wtxtgit("reseal", folder)
    assert (done.code, "blake3" in done.complaint() or "BLAKE3" in done.err) == (1, True)
    assert (folder / "model.aeroset.json").read_bytes() == before
    part.unlink()
    assert wtxtgit("reseal", folder).code == 3


def test_other_sets_and_files_are_refused(wtxtgit: Command) -> None:
    assert wtxtgit("reseal", FIXTURES / "aero/single_a.aero").code == 3
    assert wtxtgit("reseal", "HEAD:x").code == 2
    assert wtxtgit("reseal", "none").code == 3


def test_a_merge_says_that_a_set_is_to_be_resealed(repo: Repo, driver: None) -> None:
    repo.track("*.aero")
    for file in (FIXTURES / "aero/aeroset_multi_a").iterdir():
        repo.write(f"set/{file.name}", file.read_bytes())
    repo.add()
    repo.commit()
    part = repo.path / "set/part-000.aero"
    container = read.read(memoryview(part.read_bytes()))
    first, last = container.entries[0].name, container.entries[-1].name
    repo.git("checkout", "-q", "-b", "topic")
    change(part, first)
    repo.git("commit", "-qam", "topic")
    repo.git("checkout", "-q", "main")
    change(part, last)
    repo.git("commit", "-qam", "main")
    done = repo.run("git", "merge", "--no-edit", "topic")
    assert b"set/model.aeroset.json lists its old hashes" in done.stderr
    assert b"wtxtgit reseal --stage -- set/model.aeroset.json" in done.stderr
    assert repo.wtxtgit("verify", "set", ok=(1,)).returncode == 1
    repo.wtxtgit("reseal", "set")
    assert repo.wtxtgit("verify", "set").returncode == 0


def set_of_two(repo: Repo) -> None:
    """An AEROSET of which both branches changed the same part, and made the index anew."""
    repo.track("*.aero")
    for file in (FIXTURES / "aero/aeroset_multi_a").iterdir():
        repo.write(f"set/{file.name}", file.read_bytes())
    repo.add()
    repo.commit("base")
    part = repo.path / "set/part-000.aero"
    entries = read.read(memoryview(part.read_bytes())).entries
    for branch, entry in (("topic", entries[0]), ("main", entries[-1])):
        repo.git("checkout", "-q", "-B", branch, "main" if branch == "main" else "HEAD")
        change(part, entry.name)
        repo.wtxtgit("reseal", "set")
        repo.git("commit", "-qam", branch)
        if branch == "topic":
            repo.git("branch", "-f", "main", "HEAD^")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["merge", "rebase", "cherry-pick"])
def test_one_command_ends_the_conflict_of_a_set_whose_parts_merged(
    way: str, repo: Repo, driver: None
) -> None:
    set_of_two(repo)
    how = {
        "merge": ("merge", "--no-edit", "topic"),
        "rebase": ("rebase", "topic"),
        "cherry-pick": ("cherry-pick", "topic"),
    }[way]
    done = repo.run("git", *how, ok=(1,))
    assert b"wtxtgit reseal --stage -- set/model.aeroset.json" in done.stderr
    said = repo.wtxtgit("reseal", "set").stdout
    assert b"model.aeroset.json: rewritten, staged" in said
    assert repo.git("ls-files", "-u") == b""
    assert repo.wtxtgit("verify", "set").returncode == 0
    if way == "merge":
        repo.git("commit", "-q", "--no-edit")
    else:
        repo.git("-c", "core.editor=true", way, "--continue")
    assert repo.git("status", "--porcelain") == b""
    assert repo.wtxtgit("verify", "HEAD:set").returncode == 0
    listed = json.loads((repo.path / "set/model.aeroset.json").read_text())
    assert listed["parts"][0]["sha256"] != ""


def test_what_follows_from_no_file_is_for_people_to_decide(repo: Repo, driver: None) -> None:
    set_of_two(repo)
    listing = repo.path / "set/model.aeroset.json"
    value = json.loads(listing.read_text())
    listing.write_text(json.dumps({**value, "model": {"name": "another"}}, indent=2))
    repo.git("commit", "-qam", "another name")
    repo.run("git", "merge", "topic", ok=(1,))
    said = repo.wtxtgit("reseal", "set", ok=(1,)).stderr
    assert b"describe the model differently" in said
    repo.git("checkout", "--ours", "--", "set/model.aeroset.json")
    repo.git("add", "set/model.aeroset.json")
    repo.wtxtgit("reseal", "set")
    assert repo.wtxtgit("verify", "set").returncode == 0


def test_a_part_in_conflict_is_settled_first(repo: Repo, driver: None) -> None:
    set_of_two(repo)
    # Main changes what topic changed.
    part = repo.path / "set/part-000.aero"
    change(part, read.read(memoryview(part.read_bytes())).entries[0].name, by=2)
    repo.git("commit", "-qam", "the same rows")
    repo.run("git", "merge", "topic", ok=(1,))
    said = repo.wtxtgit("reseal", "set", ok=(1,)).stderr
    assert b"set/part-000.aero: in conflict" in said
    repo.wtxtgit("resolve", "set/part-000.aero", "--strategy", "theirs")
    repo.wtxtgit("reseal", "set")
    assert repo.git("ls-files", "-u") == b""
    assert repo.wtxtgit("verify", "set").returncode == 0
