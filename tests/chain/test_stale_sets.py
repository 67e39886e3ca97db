"""Sets whose index has other hashes than the staged files: what they may cost a commit hook."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from tests.kit import Repo
from wtxtgit.chain import stale_sets
from wtxtgit.checkpoint import members
from wtxtgit.errors import NotRead
from wtxtgit.git import index
from wtxtgit.git.repository import Repository
from wtxtgit.io.view import ByteView

PART, SETS = b"AERO of many names", 5


def test_files_that_are_one_blob_are_read_once(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    true, false = sha256(PART).hexdigest(), "0" * 64
    for number in range(SETS):
        for name, digest in (("a", true), ("b", true), ("z", false if number == 1 else true)):
            repo.write(f"{number}/{name}.aero", PART)
            files = [{"path": f"{one}.aero", "sha256": true, "shards": []} for one in "ab"]
            text = json.dumps(
                {
                    "format": {"name": "AEROSET", "version": [0, 2]},
                    "parts": files,
                    "global_tidx": {"path": "z.aero", "sha256": digest},
                }
            )
            repo.write(f"{number}/{name}.aeroset.json", text.encode())
    repo.git("add", "-A")
    read = []

    def counted(repository: Repository, oid: str, threads: int | None = None) -> ByteView:
        read.append(oid)
        return of_git(repository, oid, threads)

    of_git = stale_sets.blob
    monkeypatch.setattr(stale_sets, "blob", counted)
    monkeypatch.setattr(members, "blob", counted)
    entries = {one.path: one for one in index.entries(repo.repository)}
    indexes = [path for path in entries if path.endswith(b".json")]
    found = list(stale_sets.stale_sets(repo.repository, entries, indexes, set(entries)))
    assert [path for path, _ in found] == [b"1/z.aeroset.json"]
    assert "for z.aero does not match" in found[0][1]
    # Two kinds of indexes, and one part.
    assert sorted(read) == sorted({entry.oid for entry in entries.values()})
    assert len(read) == 3


def test_a_file_that_can_not_be_read_is_told(repo: Repo) -> None:
    part = {"path": "a.aero", "sha256": "0" * 64, "shards": []}
    about = {"format": {"name": "AEROSET", "version": [0, 2]}, "parts": [part]}
    index_of = {"path": "z.aero", "sha256": sha256(PART).hexdigest()}
    repo.write("m.aeroset.json", json.dumps({**about, "global_tidx": index_of}).encode())
    repo.write("z.aero", PART)
    repo.write(
        "a.aero",
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'1' * 64}\nsize 1\n".encode(),
    )
    repo.git("add", "-A")
    entries = {one.path: one for one in index.entries(repo.repository)}
    names = [b"m.aeroset.json"]
    ((path, message),) = stale_sets.stale_sets(repo.repository, entries, names, set(entries))
    assert path == names[0]
    assert isinstance(message, NotRead)
    assert "a.aero was not compared" in message
