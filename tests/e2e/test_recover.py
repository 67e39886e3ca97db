"""A damaged text in git is mended from itself, its history, and other files of the repository."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import assert_clean, checks, hash_object, stage_blob
from tests.kit import Repo, safetensors

NAME = "model.safetensors"
FIRST = safetensors(*range(40_000))
SECOND = safetensors(*range(20_000), *([3.0] * 20_000))


def text_of(repo: Repo, name: str) -> bytes:
    return repo.git("cat-file", "blob", f":{name}")


def with_lost_chunk(text: bytes) -> bytes:
    at = text.index(b"lines=1150\n") + 500
    return text[:at] + text[at + 79 * 400 :]


def with_wrong_character(text: bytes) -> bytes:
    at = text.index(b"lines=1150\n") + 500
    return text[:at] + (b"A" if text[at : at + 1] != b"A" else b"B") + text[at + 1 :]


@pytest.fixture
def damaged(repo: Repo, driver: None) -> Repo:
    """Two generations, the second one's first chunk lost on the way into git."""
    repo.track("*.safetensors")
    repo.write(NAME, FIRST)
    repo.add()
    repo.commit()
    repo.write(NAME, SECOND)
    repo.add()
    stage_blob(repo, NAME, with_lost_chunk(text_of(repo, NAME)))
    repo.commit()
    (repo.path / NAME).unlink()
    told = repo.run("git", "checkout", "--", NAME).stderr.decode()
    assert "wtxtgit recover -- model.safetensors" in told
    return repo


@pytest.mark.slow
def test_healed_from_history_and_committed(damaged: Repo) -> None:
    told = json.loads(damaged.wtxtgit("recover", NAME, "--json").stdout)
    assert told["state"] == "whole"
    (chunk,) = [chunk for array in told["arrays"] for chunk in array["chunks"]]
    first = damaged.git("rev-parse", "HEAD^").decode()[:12]
    assert (chunk["state"], chunk["source"]) == ("healed", f"{first}:{NAME}")
    before = damaged.git("rev-parse", "HEAD")
    done = damaged.wtxtgit("recover", NAME, "--as-commit")
    assert b"1 chunk healed" in done.stdout
    assert (damaged.path / NAME).read_bytes() == SECOND
    assert damaged.git("rev-parse", "HEAD^") == before
    assert damaged.git("log", "-1", "--format=%s") == b"Recover model.safetensors\n"
    assert_clean(damaged)


@pytest.mark.slow
def test_doctor_mends_it(damaged: Repo) -> None:
    assert checks(damaged)["work-tree"]["level"] == "error"
    done = damaged.wtxtgit("doctor", "--fix", ok=(0, 1))
    assert b"mended model.safetensors: staged, commit it" in done.stdout
    assert (damaged.path / NAME).read_bytes() == SECOND
    assert damaged.git("diff", "--cached", "--name-only") == b"model.safetensors\n"
    assert checks(damaged)["work-tree"]["level"] == "ok"


@pytest.mark.slow
def test_what_is_not_the_damaged_text_is_not_written_over(damaged: Repo) -> None:
    damaged.write(NAME, b"my own work")
    done = damaged.wtxtgit("recover", NAME, "--as-commit", ok=(1,))
    assert b"would be lost" in done.stderr
    assert (damaged.path / NAME).read_bytes() == b"my own work"
    damaged.git("checkout", "--", NAME)
    damaged.write("other", b"other")
    damaged.add()
    assert b"is staged" in damaged.wtxtgit("recover", NAME, "--as-commit", ok=(2,)).stderr


@pytest.mark.slow
def test_from_another_file_and_a_revision(repo: Repo, driver: None) -> None:
    repo.track("*.safetensors")
    repo.write("a.safetensors", FIRST)
    repo.add()
    repo.commit()
    text = text_of(repo, "a.safetensors")
    oid = hash_object(repo, with_lost_chunk(text))
    repo.git("update-ref", "refs/tags/damaged", oid)
    repo.write("bad.wtxt", with_lost_chunk(text))
    # Another file of the repository has it.
    done = repo.wtxtgit("recover", "bad.wtxt", "-o", "good.wtxt")
    assert b"a.safetensors" in done.stdout
    assert (repo.path / "good.wtxt").read_bytes() == text
    (repo.path / "good.wtxt").unlink()
    repo.git("rm", "-q", "-f", "a.safetensors")
    repo.commit()
    repo.wtxtgit("recover", "bad.wtxt", ok=(1,))
    named = repo.wtxtgit("recover", "bad.wtxt", "--from", "HEAD^:a.safetensors")
    assert b"HEAD^:a.safetensors" in named.stdout
