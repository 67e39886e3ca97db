"""Payload that is damaged, here or at the remote: named, and mended from where it is whole."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.e2e.sealed import Sealed
from tests.e2e.test_detached import drop_store
from tests.kit import safetensors
from tests.kit.templates import Templates, copyable
from tests.store.chunks import damage, lie
from wtxtgit.git import run
from wtxtgit.store.place import store_of

NAME = "model.safetensors"
ATTRIBUTES = "*.safetensors filter=wtxt-detached diff=wtxt merge=wtxt -text\n"
CHANCE = random.Random(7)  # noqa: S311 - the same in every run
MODEL = safetensors(*(CHANCE.gauss(0, 1) for _ in range(30_000)))


def _make(folder: Path) -> None:
    """A repository with a checkpoint, whose data are at a git remote and in a folder as well."""
    folder.mkdir()
    run.git("init", "-q", "--bare", "--initial-branch=main", str(folder / "bare.git"))
    repo = Sealed(copyable(folder / "own").path)
    repo.git("symbolic-ref", "HEAD", "refs/heads/main")
    repo.git("remote", "add", "origin", "../bare.git")
    repo.write(".gitattributes", ATTRIBUTES)
    repo.write(NAME, MODEL)
    repo.add()
    repo.commit()
    repo.git("push", "-q", "origin", "main")
    repo.call("push")
    repo.call("store", "use", (folder / "there").as_uri())
    repo.call("push")
    repo.git("config", "--unset", "wtxtgit.store")


@pytest.fixture
def world(templates: Templates, tmp_path: Path, driver: None) -> Path:
    folder = templates.copy("damaged-payload", _make, tmp_path / "world")
    (folder / "own" / NAME).touch()
    return folder


@pytest.fixture
def own(world: Path) -> Sealed:
    return Sealed(world / "own")


@pytest.fixture
def other(world: Path) -> Sealed:
    """Another clone, where nothing was fetched."""
    skipped = {"WTXTGIT_SKIP_SMUDGE": "1"}
    Sealed(world).git("clone", "-q", str(world / "bare.git"), "other", env=skipped)
    return Sealed(world / "other")


def pack_of(repo: Sealed) -> Path:
    (pack,) = (repo.path / ".git/wtxt/store/packs").glob("*.pack")
    pack.chmod(0o600)
    return pack


def again(repo: Sealed) -> bytes:
    """What a checkout makes of the checkpoint; gives what it said."""
    (repo.path / NAME).unlink()
    return repo.run(run.executable(), "checkout", "--", NAME).stderr


def fetch(repo: Sealed, ok: Sequence[int] = (0,)) -> str:
    """What a fetch complains of; a process of its own knows no other repository."""
    return repo.wtxtgit("fetch", ok=ok).stderr.decode()


def holds(repo: Sealed) -> bool:
    return (repo.path / NAME).read_bytes() == MODEL and repo.status() == b""


def test_a_forged_pack_ends_no_checkout(own: Sealed) -> None:
    assert not again(own)
    # It has the SHA-256 that names it, and chunks that have not.
    lie(store_of(own.repository))
    said = again(own).decode()
    assert (own.path / NAME).read_bytes() == own.blob(NAME)
    assert f"{NAME}: left as a detached text" in said
    assert "wtxtgit fetch" in said
    assert "damaged and was set aside" in fetch(own)
    assert holds(own)


@pytest.mark.parametrize("command", ["git add", "wtxtgit add"])
def test_a_forged_pack_keeps_nothing_from_being_added(own: Sealed, command: str) -> None:
    # Before the file is added: it may be the only copy that there is.
    lie(store_of(own.repository))
    own.git("rm", "-q", "--cached", NAME)
    if command == "git add":
        own.git("add", NAME)
    else:
        own.call("add", NAME)
    assert not again(own)
    assert holds(own)


@pytest.mark.slow
class TestHere:
    """A pack of the clone itself is damaged."""

    @pytest.mark.parametrize("place", [20, -100, -1])
    def test_a_fetch_mends_it(self, own: Sealed, place: int) -> None:
        pack = pack_of(own)
        damage(pack, place % pack.stat().st_size)
        said = again(own).decode()
        if place == 20:
            # Nothing says that data are lacking: a chunk is not what it should be.
            assert pack.name in said
            assert "wtxtgit fetch" in said
        assert (own.path / NAME).read_bytes() != MODEL or holds(own)
        said = fetch(own)
        if place == 20:
            assert f"pack {pack.stem} is damaged and was set aside" in said
            assert pack.with_name(pack.name + ".damaged").exists()
        assert holds(own)
        assert own.call("store", "verify").code == 0

    def test_a_pack_that_ends_early(self, own: Sealed) -> None:
        pack = pack_of(own)
        pack.write_bytes(pack.read_bytes()[:-1000])
        # Its chunks are not at hand then: they come with the checkout.
        again(own)
        assert holds(own)

    def test_a_repack_sets_it_aside(self, own: Sealed) -> None:
        pack = pack_of(own)
        damage(pack, 20)
        assert own.call("store", "verify", ok=(1,)).code == 1
        own.call("store", "repack", ok=(0, 1))
        assert pack.with_name(pack.name + ".damaged").exists()
        assert own.call("store", "verify").code == 0
        # From a checkpoint that has it, or from the remote.
        own.git("rm", "-q", "--cached", NAME)
        own.add(NAME)
        names = list(store_of(own.repository).own.names)
        assert len(names) >= 1
        again(own)
        assert holds(own)

    def test_no_remote_has_it(self, own: Sealed, world: Path) -> None:
        damage(pack_of(own), 20)
        again(own)
        shutil.rmtree(world / "bare.git/refs/wtxt", ignore_errors=True)
        (world / "bare.git/packed-refs").unlink(missing_ok=True)
        text = (own.path / NAME).read_bytes()
        assert NAME in fetch(own, ok=(5,))
        assert (own.path / NAME).read_bytes() == text


Change = Callable[[bytes], bytes]
LIES: dict[str, Change] = {
    "a changed byte": lambda pack: pack[:40] + bytes([pack[40] ^ 1]) + pack[41:],
    "an early end": lambda pack: pack[:-1],
    "an index that is changed": lambda pack: pack[:-300] + bytes([pack[-300] ^ 1]) + pack[-299:],
    "nothing": lambda pack: pack[:0],
}


class TestThere:
    """A pack at the remote is damaged; the clone that sent it still has its data."""

    def lie(self, world: Path, kind: str, change: Change) -> str:
        """Change the pack of a remote behind its back; gives its name."""
        if kind == "folder":
            (pack,) = (world / "there").glob("*.pack")
            pack.write_bytes(change(pack.read_bytes()))
            return pack.stem
        bare = world / "bare.git"
        said = run.git("for-each-ref", "--format=%(refname)", "refs/wtxt/store", cwd=bare)
        (ref,) = (name for name in said.decode().split() if name.endswith(".pack"))
        content = change(run.git("cat-file", "blob", ref, cwd=bare))
        oid = run.git("hash-object", "-w", "--stdin", stdin=content, cwd=bare).decode().strip()
        run.git("update-ref", ref, oid, cwd=bare)
        return ref.rpartition("/")[2].removesuffix(".pack")

    def use(self, repo: Sealed, world: Path, kind: str) -> None:
        if kind == "folder":
            repo.git("config", "wtxtgit.store", (world / "there").as_uri())

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("kind", "lie"), [*(("folder", lie) for lie in LIES), ("git", "a changed byte")]
    )
    def test_it_is_named_and_sent_again(
        self, own: Sealed, other: Sealed, world: Path, kind: str, lie: str
    ) -> None:
        for repo in (own, other):
            self.use(repo, world, kind)
        name = self.lie(world, kind, LIES[lie])
        said = fetch(other, ok=(5,))
        assert name in said
        assert "wtxtgit push --check" in said
        assert other.status() == b""
        assert (other.path / NAME).read_bytes().startswith(b"WTXT-DETACHED ")
        assert not store_of(other.repository).own.names
        # Who has the data mends it, and once.
        mended = own.call("push", "--check")
        assert name in mended.err
        assert "sent to" in mended.out
        assert own.call("push", "--check").err == ""
        assert fetch(other) == ""
        again(other)
        assert holds(other)

    def test_who_lacks_the_data_takes_nothing_away(
        self, own: Sealed, other: Sealed, world: Path
    ) -> None:
        self.use(other, world, "folder")
        other.git("remote", "remove", "origin")
        name = self.lie(world, "folder", LIES["a changed byte"])
        said = other.call("push", "--check", ok=(5,))
        assert name in said.err
        assert (world / "there" / f"{name}.pack").exists()

    def test_who_lacks_the_data_sends_what_another_remote_has(
        self, own: Sealed, other: Sealed, world: Path
    ) -> None:
        self.use(other, world, "folder")
        name = self.lie(world, "folder", LIES["a changed byte"])
        said = other.call("push", "--check")
        assert name in said.err
        assert "sent to" in said.out
        assert own.call("push", "--check").err == ""
        # No longer at any remote but that one.
        other.git("remote", "remove", "origin")
        drop_store(other)
        assert fetch(other) == ""
        again(other)
        assert holds(other)

    def test_a_look_changes_nothing(self, own: Sealed, world: Path) -> None:
        self.use(own, world, "folder")
        name = self.lie(world, "folder", LIES["a changed byte"])
        before = sorted((world / "there").iterdir())
        said = own.call("push", "--check", "--dry-run")
        assert name in said.err
        assert "would be sent" in said.out
        assert sorted((world / "there").iterdir()) == before
