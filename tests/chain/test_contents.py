"""Facts are of what git gives, and of nothing that has another hash."""

from __future__ import annotations

import pytest

from tests.git.histories import History, put_in_place
from tests.kit import Repo
from wtxtgit.chain import reader
from wtxtgit.chain.reader import Facts
from wtxtgit.errors import EnvironmentFailure

LARGE = 17 << 20


@pytest.mark.parametrize("size", [9, LARGE])
@pytest.mark.parametrize("processes", [1, 2])
def test_bytes_of_another_hash_have_no_facts(
    repo: Repo, size: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "FEW_BYTES", 0)
    oids = [History(repo).blob(content).decode() for content in (b"honest", b"small", b"other")]
    put_in_place(repo, oids[0], b"blob", bytes(size))
    with pytest.raises(EnvironmentFailure, match=f"blob {oids[0]}: .* have another hash"):
        Facts(repo.repository, processes).of(oids)
    assert Facts(repo.repository, processes).of(oids[1:]).keys() == {*oids[1:]}
