from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import MORE_PAIRS, PAIRS, stage_blob, version
from tests.kit import Repo
from wtxtgit.cli.environment import facts_key
from wtxtgit.comparison.diff import diff, same_content
from wtxtgit.errors import EnvironmentFailure, InputError
from wtxtgit.filter.clean import clean
from wtxtgit.filter.content import ContentCache, content_digest
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.model.tensor import ReadOptions

NAME = "model.safetensors"


def put(repo: Repo, name: str, content: bytes) -> str:
    """Have a file, and the blob that clean makes of it in the index."""
    text = b"".join(clean(memoryview(content), threads=1).pieces())
    stage_blob(repo, name, text)
    repo.write(name, content)
    return repo.git("rev-parse", f":{name}").decode().strip()


def know(repo: Repo, content: bytes, oid: str) -> None:
    with ContentCache(repo.repository, facts_key()) as known:
        digest = content_digest(memoryview(content))
        known.put_blob(digest, len(content), oid, is_binary=True)


@pytest.fixture
def stored(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """A repository with a checkpoint of which file and blob are known to be one."""
    monkeypatch.chdir(repo.path)
    know(repo, version(NAME, 1), put(repo, NAME, version(NAME, 1)))
    return repo


@pytest.mark.parametrize("name", [*PAIRS, *MORE_PAIRS])
def test_a_report_is_the_same(stored: Repo, name: str) -> None:
    content = version(name, 1)
    oid = put(stored, name, content)
    for sides in ((f":{name}", name), (name, f":{name}"), (f":{name}", f":{name}")):
        plain = diff(*sides, ReadOptions(), threads=1)
        know(stored, content, oid)
        assert same_content(*sides, facts_key()) is not None
        known = diff(*sides, ReadOptions(), key_file=facts_key(), threads=1)
        assert known.as_dict() == plain.as_dict()
        assert known.as_dict()["tensors"] or name.endswith(".taridx")


def test_the_blob_is_not_read(stored: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = diff(f":{NAME}", NAME, ReadOptions(), threads=1)
    monkeypatch.setattr(ObjectStore, "blob", None)
    known = diff(f":{NAME}", NAME, ReadOptions(), key_file=facts_key(), threads=1)
    assert known == plain
    with pytest.raises(TypeError):
        diff(f":{NAME}", NAME, ReadOptions(), threads=1)


def test_another_content(stored: Repo) -> None:
    assert same_content(f":{NAME}", NAME, facts_key()) is not None
    stored.write(NAME, version(NAME, 2))
    assert same_content(f":{NAME}", NAME, facts_key()) is None
    stored.write(NAME, version(NAME, 1) + b"x")
    assert same_content(f":{NAME}", NAME, facts_key()) is None


def test_what_is_not_known(stored: Repo, home: Path) -> None:
    assert same_content(f":{NAME}", NAME, None) is None
    assert same_content(f":{NAME}", NAME, home / "another.key") is None
    assert same_content(NAME, NAME, facts_key()) is None
    put(stored, "other.safetensors", version(NAME, 2))
    assert same_content(":other.safetensors", NAME, facts_key()) is None
    assert same_content(":other.safetensors", f":{NAME}", facts_key()) is None


def test_what_is_not_there(stored: Repo) -> None:
    with pytest.raises(EnvironmentFailure, match="names nothing"):
        same_content(":none", NAME, facts_key())
    with pytest.raises(InputError):
        diff(f":{NAME}", "none", ReadOptions(), key_file=facts_key())
