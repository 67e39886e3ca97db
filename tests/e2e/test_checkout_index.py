"""What `wtxtgit checkout` and `install` write is noted in the index, or they say that it is not."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tests.e2e.conftest import traced
from tests.e2e.sealed import Sealed
from tests.e2e.test_checkout import aged
from tests.git.histories import new_repo
from tests.kit import Repo, safetensors
from wtxtgit.git import held, index_file

pytestmark = pytest.mark.slow
MODEL = "model.safetensors"
WHOLE = safetensors(*range(3000))


@pytest.fixture(params=["sha1", "sha256"])
def texts(tmp_path: Path, driver: None, request: pytest.FixtureRequest) -> Sealed:
    """A clone in which a checkpoint stands as text."""
    origin = new_repo(tmp_path / "origin", request.param)
    origin.track("*.safetensors")
    origin.write(MODEL, WHOLE)
    origin.add()
    origin.commit()
    origin.git("clone", "-q", ".", "../clone", env={"WTXTGIT_SKIP_SMUDGE": "1"})
    return Sealed(tmp_path / "clone")


def assert_noted(repo: Repo) -> None:
    """The file is whole, and git knows it without reading it."""
    assert (repo.path / MODEL).read_bytes() == WHOLE
    aged(repo)
    told = traced(repo, "status", "--porcelain")
    assert (told.done.stdout, told.filters) == (b"", 0)
    assert repo.git("fsck", "--no-dangling") == b""


@pytest.mark.parametrize("command", [("checkout",), ("install", "--local")])
def test_a_lock_that_stays_is_told(
    texts: Sealed, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(index_file, "_WAITS", (0.0,))
    lock = texts.path / ".git/index.lock"
    lock.write_text("another's")
    said = texts.call(*command, ok=(5,))
    assert "index.lock exists" in said.err
    assert "wtxtgit: hint: run wtxtgit checkout again; until then" in said.err
    assert (texts.path / MODEL).read_bytes() == WHOLE
    assert lock.read_text() == "another's"
    # It is not forgotten, though there is nothing left to write.
    said = texts.call("checkout", "--json", ok=(5,))
    assert "index.lock exists" in json.loads(said.out)["unnoted"]
    lock.unlink()
    assert texts.call("checkout").out == "0 files written\n"
    assert_noted(texts)


def test_a_lock_that_goes_is_waited_for(texts: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = texts.path / ".git/index.lock"
    lock.write_text("another's")
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            lock.unlink()

    monkeypatch.setattr(index_file.time, "sleep", sleep)
    assert texts.call("checkout").out == "1 file written\n"
    assert waits == sorted(waits)
    assert len(waits) == 3
    assert_noted(texts)


def test_what_only_saves_time_waits_for_no_lock(
    texts: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts.call("checkout")
    os.utime(texts.path / MODEL, (1, 1))
    (texts.path / ".git/index.lock").write_text("another's")
    monkeypatch.setattr(index_file.time, "sleep", lambda _: pytest.fail("waits"))
    assert "ok" in texts.call("status").out


def test_locks_that_are_optional_leave_those_that_are_not(
    texts: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_OPTIONAL_LOCKS", "0")
    assert texts.call("checkout").out == "1 file written\n"
    assert_noted(texts)


@pytest.mark.parametrize("is_configured", [True, False])
def test_a_split_index_is_written(texts: Sealed, is_configured: bool) -> None:
    if is_configured:
        texts.git("config", "core.splitIndex", "true")
    texts.git("update-index", "--split-index")
    texts.write("other", b"x")
    texts.add("other")
    assert list((texts.path / ".git").glob("sharedindex.*"))
    texts.git("commit", "-q", "-m", "other")
    assert texts.call("checkout").out == "1 file written\n"
    assert_noted(texts)
    texts.write("other", b"longer")
    texts.add("other")
    assert texts.status() == b"M  other\0"


@pytest.mark.parametrize("failing", ["open", "read"])
def test_a_text_that_cannot_be_read_is_told(
    texts: Sealed, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    true = getattr(os, failing)
    text = (texts.path / MODEL).read_bytes()

    def without(first: object, *more: object, **options: object) -> object:
        name = first if failing == "open" else Path(f"/proc/self/fd/{first}").readlink()
        if os.fspath(name).endswith(MODEL):  # type: ignore[call-overload]
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)
        return true(first, *more, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, without)
        said = texts.call("checkout", ok=(5,))
    assert said.out == "0 files written\n"
    assert f"{MODEL}: too many open files" in said.err
    assert (texts.path / MODEL).read_bytes() == text


def test_a_folder_that_cannot_be_written_is_told(
    texts: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, pieces: tuple[object, ...]) -> None:
        assert isinstance(pieces[0], bytearray)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = (texts.path / ".git/index").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(index_file, "write_all", full)
        said = texts.call("checkout", ok=(5,))
    assert "index: can't be written: no space left on device" in said.err
    assert (texts.path / ".git/index").read_bytes() == before
    assert not (texts.path / ".git/index.lock").exists()
    texts.call("checkout")
    assert_noted(texts)


@pytest.mark.parametrize("command", [("checkout",), ("add", "other.safetensors"), ("seal",)])
def test_a_lock_of_ours_that_a_kill_left_is_removed(
    texts: Sealed, command: tuple[str, ...]
) -> None:
    texts.call("install", "--local")
    texts.call("key", "new", "--name", "a", "--no-passphrase")
    texts.write("other.safetensors", WHOLE)
    lock = texts.path / ".git/index.lock"
    lock.write_bytes(held._OURS)
    more = ("--staged", "--key", "a", MODEL) if command == ("seal",) else ()
    texts.path.joinpath(MODEL).unlink()
    texts.call(*command, *more)
    assert not lock.exists()
