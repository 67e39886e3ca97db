"""The folder of keys: names, permissions, nothing overwritten."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.interrupts import interrupted
from tests.trust.test_keys import KEY
from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.trust.keyring import Keyring, check_name, is_name, read_secret_file
from wtxtgit.trust.openssh import KeyFileError, PublicKey, format_secret_key

PUBLIC = PublicKey(KEY.public_key, "alice")
SECRET = format_secret_key(KEY)


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "config" / "keys")


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_key_is_written_and_read(ring: Keyring) -> None:
    assert ring.names() == ()
    ring.add("alice", SECRET, PUBLIC)
    assert ring.names() == ("alice",)
    assert (ring.secret("alice"), ring.public("alice")) == (SECRET, PUBLIC)


def test_one_that_is_interrupted_is_made_or_not(ring: Keyring) -> None:
    for when in range(1, 40):
        is_interrupted = interrupted(lambda: ring.add("alice", SECRET, PUBLIC), when)
        there = {path.name for path in ring.folder.iterdir()} if ring.folder.exists() else set()
        # Without its public one a secret file is finished by the next run, or taken for none.
        assert there in ({"alice", "alice.pub"}, {"alice"}, set()), when
        for name in there:
            (ring.folder / name).unlink()
        if not is_interrupted:
            break
    assert when > 4


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_only_the_user_may_touch_it(ring: Keyring, mask: int) -> None:
    before = os.umask(mask)
    try:
        ring.add("alice", SECRET, PUBLIC)
    finally:
        os.umask(before)
    assert modes(ring.folder) == {"alice": 0o600, "alice.pub": 0o644}
    assert stat.S_IMODE(ring.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("there", ["alice", "alice.pub"])
def test_nothing_is_overwritten(ring: Keyring, there: str) -> None:
    ring.folder.mkdir(parents=True)
    (ring.folder / there).write_text("kept")
    with pytest.raises(UsageError, match="already"):
        ring.add("alice", SECRET, PUBLIC)
    assert [path.name for path in ring.folder.iterdir()] == [there]
    assert (ring.folder / there).read_text() == "kept"


def test_a_dangling_link_is_not_written_through(ring: Keyring, tmp_path: Path) -> None:
    ring.folder.mkdir(parents=True)
    (ring.folder / "alice").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="already"):
        ring.add("alice", SECRET, PUBLIC)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("late", ["alice", "alice.pub"])
def test_what_comes_up_in_between_stays_and_nothing_else_is_left(
    ring: Keyring, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process makes a key of the same name at the same moment."""
    link = os.link

    def racing(source: str, target: bytes, **options: int) -> None:
        if os.fsdecode(target) == late:
            (ring.folder / late).write_text("theirs")
        link(source, target, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", racing)
    with pytest.raises(UsageError, match="already"):
        ring.add("alice", SECRET, PUBLIC)
    assert [path.name for path in ring.folder.iterdir()] == [late]
    assert (ring.folder / late).read_text() == "theirs"


@pytest.mark.parametrize("name", ["a", "A9", "a.b", "a_b-c", "id_ed25519", "x" * 64, "a..b"])
def test_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".a", "-a", "_a", "a/b", "../a", "a\n", "a b", "x" * 65, "a.pub", "é", "a\0"],
)
def test_what_is_no_name(ring: Keyring, name: str) -> None:
    assert not is_name(name)
    calls: list[Callable[[], object]] = [
        lambda: ring.path(name),
        lambda: ring.secret(name),
        lambda: ring.public(name),
        lambda: ring.add(name, SECRET, PUBLIC),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="not a key name"):
            call()
    assert not ring.folder.exists()


def test_what_is_no_key_is_not_listed(ring: Keyring) -> None:
    ring.add("alice", SECRET, PUBLIC)
    for name in ("lone", "lone2.pub", ".x", ".x.pub", "-y", "-y.pub"):
        (ring.folder / name).write_text("")
    assert ring.names() == ("alice",)
    with pytest.raises(UsageError, match='no key "bob"'):
        ring.public("bob")
    with pytest.raises(UsageError, match='no key "bob"'):
        ring.secret("bob")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666, 0o440])
def test_a_secret_that_others_may_touch_is_refused(ring: Keyring, mode: int) -> None:
    ring.add("alice", SECRET, PUBLIC)
    path = ring.path("alice")
    path.chmod(mode)
    link = ring.folder / "link"
    link.symlink_to(path)
    for call in (lambda: ring.secret("alice"), lambda: read_secret_file(link)):
        with pytest.raises(EnvironmentFailure, match=f"mode {mode:04o}") as caught:
            call()
        assert str(caught.value.hint).startswith("chmod 600 ")
    path.chmod(0o400)
    assert read_secret_file(link) == SECRET


def test_a_secret_of_somebody_else_is_refused_but_for_root(
    ring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring.add("alice", SECRET, PUBLIC)
    path = ring.path("alice")
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(EnvironmentFailure, match="belongs to another user"):
        read_secret_file(path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert read_secret_file(path) == SECRET


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o720, 0o777])
def test_a_folder_that_others_may_write_is_refused(ring: Keyring, mode: int) -> None:
    ring.add("alice", SECRET, PUBLIC)
    ring.folder.chmod(mode)
    calls: list[Callable[[], object]] = [
        lambda: ring.public("alice"),
        lambda: ring.secret("alice"),
        lambda: ring.add("bob", SECRET, PUBLIC),
    ]
    for call in calls:
        with pytest.raises(EnvironmentFailure, match="others can write"):
            call()
    ring.folder.chmod(0o755)
    assert ring.public("alice") == PUBLIC


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (pipe, tmp_path, Path(os.devnull)):
        with pytest.raises(KeyFileError, match="regular file"):
            read_secret_file(path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(bytes(64 * 1024))
    assert len(read_secret_file(path)) == 64 * 1024
    path.write_bytes(bytes(64 * 1024 + 1))
    with pytest.raises(KeyFileError, match="over 65536 bytes"):
        read_secret_file(path)
