from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit import Repo
from wtxtgit.filter import content
from wtxtgit.filter.content import ArtifactFacts, ContentCache, content_digest, file_digest
from wtxtgit.git.repository import Repository
from wtxtgit.model.array import EPOCH, Meta

OID = "0123456789abcdef" * 2 + "01234567"
LONG = "0123456789abcdef" * 4
META = Meta("weights/v1", EPOCH, 3, "b", "h", "c")
FACTS = [
    ArtifactFacts(7, True, bytes(range(32)), "fold/v1"),
    ArtifactFacts(0, False, bytes(32), "opaque/v1"),
    ArtifactFacts(7, True, None, "", fault="line 4: \ud800 \x00 \u2028"),
    ArtifactFacts(7, True, bytes(32), "weights/v1", is_canonical=False, meta=META),
]
DIGEST = bytes(range(32))


@pytest.fixture
def here(repo: Repo) -> Repository:
    return repo.repository


@pytest.fixture
def key(home: Path) -> Path:
    return home / "state" / "facts.key"


@pytest.mark.parametrize("facts", FACTS, ids=range(len(FACTS)))
def test_facts(here: Repository, key: Path, facts: ArtifactFacts) -> None:
    with ContentCache(here, key) as one:
        assert one.facts([OID]) == {}
        one.put_facts({OID: facts})
        assert one.facts([OID]) == {OID: facts}
    with ContentCache(here, key) as one:
        assert one.facts([OID, LONG]) == {OID: facts}


@pytest.mark.parametrize("oid", [OID, LONG])
def test_blobs_of_files(here: Repository, key: Path, oid: str) -> None:
    with ContentCache(here, key) as one:
        assert one.blob_of(DIGEST, 5) is None
        one.put_blob(DIGEST, 5, oid)
        assert one.blob_of(DIGEST, 5) == oid
    with ContentCache(here, key) as one:
        assert one.blob_of(DIGEST, 5) == oid
        assert one.blob_of(DIGEST, 6) is None
        assert one.blob_of(bytes(32), 5) is None
        # It may be a text's, of which another file has the blob as well.
        assert one.file_of(oid) is None
        one.put_blob(DIGEST, 5, oid, is_binary=True)
    with ContentCache(here, key) as one:
        assert one.file_of(oid) == (DIGEST, 5)


def test_nothing_is_made_before_it_is_needed(here: Repository, key: Path) -> None:
    with ContentCache(here, key) as one:
        assert one.facts([OID]) == {}
        assert one.blob_of(DIGEST, 5) is None
    assert not key.parent.exists()
    assert not (here.common_dir / "wtxtgit").exists()


def test_without_a_secret_nothing_is_known(here: Repository, key: Path) -> None:
    with ContentCache(here, key) as one:
        one.put_facts({OID: FACTS[0]})
    with ContentCache(here, None) as one:
        assert one.facts([OID]) == {}
        one.put_facts({LONG: FACTS[0]})
        one.put_blob(DIGEST, 5, OID)
        assert one.facts([LONG]) == {}
    with ContentCache(here, key) as one:
        assert one.facts([OID, LONG]).keys() == {OID}
        assert one.blob_of(DIGEST, 5) is None


def test_the_secret_of_another_user_or_machine(here: Repository, key: Path) -> None:
    with ContentCache(here, key) as one:
        one.put_facts({OID: FACTS[0]})
    with ContentCache(here, key.with_name("other")) as one:
        assert one.facts([OID]) == {}


def test_facts_of_one_blob_are_no_other_ones(here: Repository, key: Path) -> None:
    """A row under another name does not have that name's MAC."""
    import sqlite3
    from contextlib import closing

    with ContentCache(here, key) as one:
        one.put_facts({OID: FACTS[0]})
    with closing(sqlite3.connect(here.common_dir / "wtxtgit" / content.FILE_NAME)) as db, db:
        (name,) = db.execute("SELECT name FROM kept").fetchone()
        moved = name.replace(OID.encode(), b"f" * 40)
        assert moved != name
        db.execute("UPDATE kept SET name = ?", (moved,))
    with ContentCache(here, key) as one:
        assert one.facts([OID, "f" * 40]) == {}


def test_what_the_program_wrote_in_another_state(
    here: Repository, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one version there may be several states while it is made."""
    for value in (b"", b"{}", b"[]", b"null", b'{"sha256_all": 5}', b"\xff", b'{"size": 1}'):
        monkeypatch.setattr(content, "_row_of", lambda _facts, value=value: value)
        with ContentCache(here, key) as one:
            one.put_facts({OID: FACTS[0]})
            assert one.facts([OID]) == {}


def test_linked_worktrees_share_it(repo: Repo, key: Path) -> None:
    repo.commit()
    repo.git("worktree", "add", "-q", "../linked")
    with ContentCache(repo.repository, key) as one:
        one.put_facts({OID: FACTS[0]})
    with ContentCache(Repository.discover(repo.path.parent / "linked"), key) as one:
        assert one.facts([OID]) == {OID: FACTS[0]}


def test_many_rows(here: Repository, key: Path) -> None:
    oids = [f"{number:040x}" for number in range(2_000)]
    with ContentCache(here, key) as one:
        for oid in oids:
            one.put_facts({oid: FACTS[0]})
        assert one.facts(oids).keys() == set(oids)
    with ContentCache(here, key) as one:
        assert one.facts(oids).keys() == set(oids)


def test_what_was_found_before_an_interruption_is_kept(here: Repository, key: Path) -> None:
    def interrupted() -> None:
        with ContentCache(here, key) as one:
            one.put_facts({OID: FACTS[0]})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with ContentCache(here, key) as one:
        assert one.facts([OID]) == {OID: FACTS[0]}


def test_threads_share_one(here: Repository, key: Path) -> None:
    oids = [f"{number:040x}" for number in range(200)]
    with ContentCache(here, key) as one, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda oid: one.put_facts({oid: FACTS[0]}), oids))
        found = list(pool.map(lambda oid: one.facts([oid]), oids))
    assert found == [{oid: FACTS[0]} for oid in oids]


@pytest.mark.parametrize("size", [0, 1, 1024, 100_000, (16 << 20) - 1, (16 << 20) + 1])
def test_digests(tmp_path: Path, size: int) -> None:
    from blake3 import blake3

    content = os.urandom(1000) * (size // 1000) + os.urandom(size % 1000)
    file = tmp_path / "file"
    file.write_bytes(content)
    wanted = blake3(content).digest()
    assert content_digest(memoryview(content)) == wanted
    assert content_digest(memoryview(content), threads=1) == wanted
    with file.open("rb") as opened:
        opened.seek(size // 2)
        assert file_digest(opened.fileno()) == (wanted, size)


def test_importing_it_loads_little() -> None:
    code = """
import sys
import wtxtgit.filter.content
print({"numpy", "sqlite3", "json", "blake3", "click", "nacl"} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"set()\n"
