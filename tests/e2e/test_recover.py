"""A damaged text in git is mended from itself, its history, and other files of the repository."""

from __future__ import annotations

import json
from pathlib import Path

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
    assert b"\nmodel.safetensors: all of it was recovered: 1 chunk healed\n" in done.stdout
    assert done.stdout.endswith(b"\nmodel.safetensors: committed, and the file is written\n")
    assert (damaged.path / NAME).read_bytes() == SECOND
    assert damaged.git("rev-parse", "HEAD^") == before
    assert damaged.git("log", "-1", "--format=%s") == b"Recover model.safetensors\n"
    assert_clean(damaged)


@pytest.mark.slow
def test_doctor_mends_it(damaged: Repo) -> None:
    assert checks(damaged)["work-tree"]["level"] == "error"
    damaged.write("other.safetensors", FIRST)
    damaged.add("other.safetensors")
    damaged.write("other.safetensors", text_of(damaged, "other.safetensors"))
    done = damaged.wtxtgit("doctor", "--fix", ok=(0, 1))
    assert b"restored other.safetensors" in done.stdout
    assert (damaged.path / "other.safetensors").read_bytes() == FIRST
    assert b"mended model.safetensors: staged; commit it" in done.stdout
    assert (damaged.path / NAME).read_bytes() == SECOND
    staged = damaged.git("diff", "--cached", "--name-only", "--diff-filter=M")
    assert staged == b"model.safetensors\n"
    assert checks(damaged)["work-tree"]["level"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("is_written", [False, True], ids=["staged", "written"])
def test_what_was_staged_and_not_committed_is_committed(damaged: Repo, is_written: bool) -> None:
    """As it is where the command was killed: its file is written, or the damaged text stands."""
    before = damaged.git("rev-parse", "HEAD")
    damaged_text = (damaged.path / NAME).read_bytes()
    damaged.wtxtgit("recover", NAME, "--as-commit")
    damaged.git("reset", "-q", "--soft", before.decode().strip())
    if not is_written:
        damaged.write(NAME, damaged_text)
    done = damaged.wtxtgit("recover", NAME, "--as-commit")
    assert b"1 chunk healed" in done.stdout
    assert (damaged.path / NAME).read_bytes() == SECOND
    assert damaged.git("rev-parse", "HEAD^") == before
    assert_clean(damaged)


@pytest.mark.slow
def test_what_is_staged_and_no_recovery_is_not_committed(damaged: Repo) -> None:
    before = damaged.git("rev-parse", "HEAD")
    damaged.write(NAME, FIRST)
    damaged.add()
    assert b"nothing is damaged" in damaged.wtxtgit("recover", NAME, "--as-commit").stdout
    assert damaged.git("rev-parse", "HEAD") == before
    assert damaged.status() == b"M  model.safetensors\0"


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


@pytest.fixture
def alone(repo: Repo, driver: None) -> tuple[Repo, bytes]:
    """A repository without the file of a damaged text, and the text as it was."""
    repo.track("*.safetensors")
    repo.write(NAME, FIRST)
    repo.wtxtgit("emit", NAME, "-o", "good.wtxt")
    good = (repo.path / "good.wtxt").read_bytes()
    (repo.path / "good.wtxt").unlink()
    repo.write("bad.wtxt", with_lost_chunk(good))
    return repo, good


def healed_from(repo: Repo, good: bytes, *options: str) -> str:
    """Where the lost chunk is from, in the end of which the text is as it was."""
    told = json.loads(
        repo.wtxtgit("recover", "bad.wtxt", "-o", "again.wtxt", "--json", *options).stdout
    )
    assert (repo.path / "again.wtxt").read_bytes() == good
    (chunk,) = [chunk for array in told["arrays"] for chunk in array["chunks"]]
    assert chunk["state"] == "healed"
    source: str = chunk["source"]
    return source


@pytest.mark.slow
def test_from_a_delta_and_a_text_that_the_repository_tracks(alone: tuple[Repo, bytes]) -> None:
    repo, good = alone
    repo.write("old.safetensors", safetensors(*([0.5] * 40_000)))
    repo.wtxtgit("delta", "make", "old.safetensors", NAME, "-o", "change.wtxtdelta")
    (repo.path / NAME).unlink()
    repo.wtxtgit("recover", "bad.wtxt", ok=(1,))
    repo.add("change.wtxtdelta")
    assert healed_from(repo, good) == "change.wtxtdelta"
    (repo.path / "again.wtxt").rename(repo.path / "copy.wtxt")
    repo.git("rm", "-q", "-f", "change.wtxtdelta")
    repo.add("copy.wtxt")
    assert healed_from(repo, good) == "copy.wtxt"


@pytest.mark.slow
def test_from_a_url(alone: tuple[Repo, bytes]) -> None:
    repo, good = alone
    (repo.path / NAME).rename(repo.path.parent / "elsewhere.safetensors")
    url = (repo.path.parent / "elsewhere.safetensors").as_uri()
    assert healed_from(repo, good, "--from", url) == url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "object_format", "is_partial"),
    [("", "sha1", "true"), ("git+", "sha1", "false"), ("", "sha256", "true")],
)
def test_from_the_url_of_a_repository(
    alone: tuple[Repo, bytes], tmp_path: Path, begin: str, object_format: str, is_partial: str
) -> None:
    repo, good = alone
    elsewhere = Repo(tmp_path / "elsewhere")
    repo.git("init", "-q", f"--object-format={object_format}", str(elsewhere.path))
    elsewhere.write("bad.wtxt", good)
    elsewhere.git("add", "bad.wtxt")
    commit = elsewhere.commit("whole")
    elsewhere.git("rm", "-q", "bad.wtxt")
    elsewhere.commit("gone")
    bare = elsewhere.clone("bare.git", "--bare")
    bare.git("config", "uploadpack.allowFilter", is_partial)
    (repo.path / NAME).unlink()
    url = begin + bare.path.as_uri()
    source = f"{bare.path.as_uri()} {commit[:12]}:bad.wtxt"
    assert healed_from(repo, good, "--from", url) == source
    # Again by the clone that is there; a branch where another one was a folder is no obstacle.
    bare.git("branch", "-m", "main", "main/new")
    assert healed_from(repo, good, "--from", url) == source
    file = f"git+{bare.path.as_uri()}#{commit}:bad.wtxt"
    assert healed_from(repo, good, "--from", file) == file


@pytest.mark.slow
def test_from_a_repository_that_is_not_there(alone: tuple[Repo, bytes]) -> None:
    repo, _ = alone
    for url, word in (
        ((repo.path / "none.git").as_uri(), "none.git"),
        ("ssh://a:secret@localhost/x.git", "credentials"),
    ):
        done = repo.wtxtgit("recover", "bad.wtxt", "--from", url, ok=(2, 5))
        assert word in done.stderr.decode()
        assert "secret" not in done.stderr.decode()


@pytest.mark.slow
def test_of_a_commit_from_the_file_in_the_work_tree(damaged: Repo) -> None:
    """Which was written again after it was committed in vain."""
    damaged.write(NAME, SECOND)
    damaged.git("checkout", "-q", "--orphan", "new")
    damaged.git("branch", "-q", "-D", "main")
    damaged.git("commit", "-q", "-m", "one generation alone")
    told = json.loads(damaged.wtxtgit("recover", f"HEAD:{NAME}", "--json").stdout)
    assert told["state"] == "whole"
    (chunk,) = [chunk for array in told["arrays"] for chunk in array["chunks"]]
    assert (chunk["state"], chunk["source"]) == ("healed", NAME)
