"""A branch that snapshots are delivered to, in real bare repositories: audit, log and verify."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyrage
import pytest

from tests.kit import Repo
from tests.stream.rings import KEY, arrays
from wtxtgit.git.remote_branch import RemoteBranch
from wtxtgit.model.ledger import Ledger
from wtxtgit.remotes.git_target import Git
from wtxtgit.remotes.spelling import parse_target
from wtxtgit.stream import Snapshots, upkeep
from wtxtgit.stream.emission import EmissionOptions, Emitter, SnapshotRequest
from wtxtgit.stream.pull import pull
from wtxtgit.stream.ranks import Rank
from wtxtgit.stream.ring import Ring
from wtxtgit.stream.sealing import sealing
from wtxtgit.stream.state import DeliveryState, read_state
from wtxtgit.stream.upkeep import OpenTarget, Sent
from wtxtgit.text import ledger as text
from wtxtgit.trust.age.recipients import parse as recipient
from wtxtgit.trust.openssh import format_secret_key, generate
from wtxtgit.trust.signing import SeedKey, SigningKey

pytestmark = pytest.mark.slow

OTHER = SeedKey("mallory", generate("mallory"))
TARGET = "git:origin#snapshots:exp1"
PLACE = "exp1/snapshot.wtxt"


@pytest.fixture
def bare(repo: Repo) -> Repo:
    made = Repo(repo.path.parent / "bare.git")
    repo.git("init", "-q", "--bare", str(made.path))
    repo.git("remote", "add", "origin", str(made.path))
    return made


def emitted(ring: Path, gens: Sequence[int], key: SigningKey | None = KEY, **options: Any) -> None:
    """Generations of a ring, which no target is to get yet."""
    with Ring(ring) as opened:
        emitter = Emitter(opened, EmissionOptions(key=key, threads=1, **options), [])
        for gen in gens:
            request = SnapshotRequest(gen, f"2026-01-31T12:{gen % 60:02}:00Z")
            opened.emitted(emitter.emit(request, arrays(gen)))


def opener(repo: Repo, key: SigningKey | None) -> OpenTarget:
    return lambda spelled: sealing(parse_target(spelled, repo.path), key, 1)


def pushed(
    ring: Path, repo: Repo, key: SigningKey | None = KEY, spelled: str = TARGET
) -> list[Sent]:
    return list(upkeep.push(ring, opener(repo, key), [spelled]))


def cloned(bare: Repo, name: str = "clone") -> Repo:
    return bare.clone(name, "-b", "snapshots")


def ledger_of(clone: Repo, path: str = PLACE) -> Ledger:
    report = text.read((clone.path / f"{path}.wsum").read_bytes())
    assert report.ledger is not None, report.problems
    assert report.ok
    return report.ledger


def audited(clone: Repo, *more: str) -> dict[str, Any]:
    """What an audit of all commits says, which has to find nothing."""
    said = clone.wtxtgit("audit", "snapshots", "--every", "--json", *more).stdout
    told: dict[str, Any] = json.loads(said)
    assert told["findings"] == []
    return told


def test_audit_log_diff_and_verify_accept_the_branch(
    repo: Repo, bare: Repo, tmp_path: Path
) -> None:
    ring = tmp_path / "ring"
    emitted(ring, (500, 510, 520))
    assert [one.state for one in pushed(ring, repo)] == [DeliveryState.DELIVERED] * 3
    clone = cloned(bare)
    audited(clone, "--require-signed")
    assert sorted(
        path.relative_to(clone.path).as_posix()
        for path in clone.path.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(clone.path).parts
    ) == [
        ".wtxt/.gitattributes",
        ".wtxt/signers",
        ".wtxt/signers.wsum",
        "exp1/.gitattributes",
        PLACE,
        f"{PLACE}.wsum",
    ]
    told = json.loads(clone.wtxtgit("log", PLACE, "--json").stdout)["generations"]
    assert [(one["gen"], one["signers"], one["verdict"]) for one in told] == [
        (gen, ["alice"], "ok") for gen in (520, 510, 500)
    ]
    assert [record.meta.gen for record in ledger_of(clone).records] == [500, 510, 520]
    verified = ("--signers", ".wtxt/signers", "--require-signed")
    clone.wtxtgit("verify", PLACE, f"{PLACE}.wsum", *verified)
    subjects = clone.git("log", "--format=%s", "--", PLACE).decode().splitlines()
    assert subjects == [f"deliver gen-{gen:06}.wtxt" for gen in (520, 510, 500)]
    compared = clone.wtxtgit("diff", f"HEAD~2:{PLACE}", f"HEAD:{PLACE}", ok=(0, 1)).stdout
    assert b"layer.w" in compared
    # What was delivered is found by its own name, in the history.
    target = Git("origin", "snapshots", "exp1", repository=repo.path)
    state = read_state(ring)
    for one in state.generations:
        assert target.has(one.file, one.sha256.hex())
    assert {"gen-000500.wtxt", "gen-000520.wtxt"} <= {one.name for one in target.list("gen-")}
    out = tmp_path / "out.wtxt"
    pulled = pull(target, 510, out, public_keys=[KEY.public_key], require_signed=True)
    assert (pulled.gen, pulled.follows) == (510, 500)
    assert out.read_bytes() == (ring / "gen-000510.wtxt").read_bytes()
    assert pushed(ring, repo) == []
    bare.git("fsck", "--strict", "--full")


def test_others_push_meanwhile(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    emitted(one, (1, 2))
    pushed(one, repo)
    # A second repository, which has never seen the branch, and a person, who clones it.
    other = Repo(tmp_path / "other")
    repo.git("init", "-q", str(other.path))
    other.git("remote", "add", "origin", str(bare.path))
    emitted(two, (3, 4))
    assert len(pushed(two, other)) == 2
    person = cloned(bare, "person")
    person.write("NOTES", "of a person\n")
    person.add()
    person.commit("notes\n\nfile: exp1/gen-000009.wtxt " + 40 * "0")
    person.git("push", "-q", "origin", "snapshots")
    # What the first one saw last is out of date: its push is rejected, and made anew.
    emitted(one, (5,))
    assert [sent.why for sent in pushed(one, repo)] == [None]
    clone = cloned(bare)
    audited(clone, "--require-signed")
    assert [record.meta.gen for record in ledger_of(clone).records] == [1, 2, 3, 4, 5]
    assert clone.git("rev-list", "--count", "HEAD") == b"6\n"
    target = Git("origin", "snapshots", "exp1", repository=repo.path)
    assert [file.name for file in target.list("gen-")] == [
        f"gen-00000{gen}.wtxt" for gen in range(1, 6)
    ]


@pytest.mark.parametrize("when", ["before the push", "after the push"])
def test_killed_around_the_push(
    repo: Repo, bare: Repo, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = tmp_path / "ring"
    emitted(ring, (1, 2))

    def die(*_: object) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return False

    child = os.fork()
    if not child:
        where = "push" if when == "before the push" else "_set_local_ref"
        monkeypatch.setattr(RemoteBranch, where, die)
        pushed(ring, repo)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert [one.state for one in pushed(ring, repo)] == [DeliveryState.DELIVERED] * 2
    clone = cloned(bare)
    audited(clone)
    assert [record.meta.gen for record in ledger_of(clone).records] == [1, 2]
    assert clone.git("rev-list", "--count", "HEAD") == b"2\n"


def test_encrypted_texts(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    identity = pyrage.x25519.Identity.generate()
    whom = (recipient(str(identity.to_public()), "-r"),)
    emitted(ring, (1, 2), recipients=whom)
    pushed(ring, repo)
    clone = cloned(bare)
    keys = tmp_path / "identity"
    keys.write_text(f"{identity}\n")
    keys.chmod(0o600)
    audited(clone, "--require-signed")
    audited(clone, "--require-signed", "-i", str(keys))
    assert [record.meta.gen for record in ledger_of(clone, f"{PLACE}.age").records] == [1, 2]
    told = clone.wtxtgit("pull", TARGET, "--gen", "1", "-o", "out.wtxt", "-i", str(keys)).stdout
    assert told.startswith(b"generation 1, ")


def test_deltas_and_texts_with_a_wsum_are_sealed(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    emitted(ring, (1, 2, 3, 4), full_every=3)
    pushed(ring, repo)
    emitted(ring, (5, 6), wsum=True)
    pushed(ring, repo)
    clone = cloned(bare)
    audited(clone, "--require-signed")
    assert [record.meta.gen for record in ledger_of(clone).records] == [1, 4, 5, 6]
    delta = "exp1/gen-000003.from-000001.wtxtdelta"
    assert [record.meta.gen for record in ledger_of(clone, delta).records] == [3]
    clone.wtxtgit("verify", PLACE, "--wsum", f"{PLACE}.root.wsum")
    for gen in (3, 5):
        clone.wtxtgit("pull", TARGET, "--gen", str(gen), "-o", "out.wtxt")


def test_a_generation_before_the_last_one_stands_by_its_own_name(
    repo: Repo, bare: Repo, tmp_path: Path
) -> None:
    late, ring = tmp_path / "late", tmp_path / "ring"
    emitted(ring, (5,))
    pushed(ring, repo)
    emitted(late, (4,))
    assert [one.why for one in pushed(late, repo)] == [None]
    clone = cloned(bare)
    audited(clone, "--require-signed")
    assert [record.meta.gen for record in ledger_of(clone).records] == [5]
    own = ledger_of(clone, "exp1/gen-000004.wtxt")
    assert [record.meta.gen for record in own.records] == [4]
    # Both again, of another ring that has the same: that is no delivery.
    emitted(tmp_path / "again", (5,))
    assert [one.why for one in pushed(tmp_path / "again", repo)] == [None]
    assert bare.git("rev-list", "--count", "snapshots") == b"2\n"


def test_only_its_signers_may_deliver(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    emitted(ring, (1,))
    pushed(ring, repo)
    emitted(ring, (2,))
    assert ".wtxt/signers" in str(pushed(ring, repo, OTHER)[0].why)
    for key, why in ((OTHER, "mallory"), (None, "no key signs")):
        (sent,) = upkeep.retry(ring, opener(repo, key))
        assert why in str(sent.why)
    secret = tmp_path / "alice"
    secret.write_bytes(format_secret_key(KEY.secret))
    secret.chmod(0o600)
    told = repo.wtxtgit("ring", "retry", str(ring), "--key", str(secret)).stdout
    assert told == f"delivered  generation 2 to {TARGET}\n".encode()
    audited(cloned(bare), "--require-signed")


def test_without_a_key_nobody_is_trusted_until_there_is_one(
    repo: Repo, bare: Repo, tmp_path: Path
) -> None:
    ring = tmp_path / "ring"
    emitted(ring, (1,), None)
    pushed(ring, repo, None)
    clone = cloned(bare)
    audited(clone)
    assert not (clone.path / ".wtxt").exists()
    emitted(ring, (2,))
    pushed(ring, repo)
    clone = cloned(bare, "later")
    audited(clone, "--require-signed")
    assert [len(record.signatures) for record in ledger_of(clone).records] == [0, 1]


def test_what_others_keep_there_stays(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    repo.git("checkout", "-q", "-b", "snapshots")
    repo.write(PLACE, "a person's own\n")
    repo.add()
    repo.commit("mine")
    repo.git("push", "-q", "origin", "snapshots")
    emitted(ring, (1,))
    pushed(ring, repo)
    clone = cloned(bare)
    audited(clone)
    assert (clone.path / PLACE).read_text() == "a person's own\n"
    # Nor does a checkout convert what is sealed, or anything of theirs otherwise than before.
    asked = ("check-attr", "text", "--", "exp1/gen-000001.wtxt", "exp1/notes", "notes")
    said = clone.git(*asked).decode().splitlines()
    assert [line.rpartition(" ")[2] for line in said] == ["unset", "unspecified", "unspecified"]
    assert ledger_of(clone, "exp1/gen-000001.wtxt").last.meta.gen == 1


def test_an_audit_finds_what_was_not_delivered(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    emitted(tmp_path / "ring", (1, 2))
    pushed(tmp_path / "ring", repo)
    clone = cloned(bare)
    (clone.path / PLACE).write_bytes(clone.blob(PLACE, "HEAD~"))
    clone.add()
    clone.commit("back to the first one")
    told = json.loads(clone.wtxtgit("audit", "snapshots", "--json", ok=(1,)).stdout)
    assert {one["kind"] for one in told["findings"]} == {"content-mismatch"}


def test_snapshots_sign_what_a_branch_gets(
    repo: Repo, bare: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo.path)
    with Snapshots(tmp_path / "ring", sign=KEY, to=[Git("origin", "snapshots")]) as snapshots:
        for gen in (10, 20):
            snapshots.publish({"w": np.full(8, gen)}, gen=gen, pin=True)
    clone = cloned(bare)
    audited(clone, "--require-signed")
    assert [record.meta.gen for record in ledger_of(clone, "snapshot.wtxt").records] == [10, 20]


def test_parts_of_ranks_and_their_index_are_sealed(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    for gen in (1, 2):
        for rank in Rank(0, 2).all():
            with Ring(ring, rank=rank) as opened:
                emitter = Emitter(opened, EmissionOptions(key=KEY, threads=1), [])
                request = SnapshotRequest(gen, "2026-01-31T12:00:00Z")
                opened.emitted(emitter.emit(request, arrays(gen)))
        assert {one.why for one in pushed(ring, repo)} == {None}
    clone = cloned(bare)
    audited(clone, "--require-signed")
    for name in ("0-of-2.wtxt", "1-of-2.wtxt", "index"):
        ledger = ledger_of(clone, f"exp1/snapshot.{name}")
        assert [record.meta.gen for record in ledger.records] == [1, 2]
    target = Git("origin", "snapshots", "exp1", repository=repo.path)
    assert pull(target, 1, tmp_path / "out.npz").gen == 1


def test_pointers_are_not_sealed(repo: Repo, bare: Repo) -> None:
    repo.git("config", "lfs.url", "http" + "://127.0.0.1:1/")
    target = parse_target("lfs:origin#snapshots", repo.path)
    assert sealing(target, KEY) is target


def test_several_ranks_have_a_path_each(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    """And one of the index, which is committed last."""
    ring = tmp_path / "ring"
    for rank in Rank(0, 2).all():
        with Ring(ring, rank=rank) as opened:
            emitter = Emitter(opened, EmissionOptions(key=KEY, threads=1), [])
            for gen in (1, 2):
                request = SnapshotRequest(gen, f"2026-01-31T12:0{gen}:00Z")
                opened.emitted(emitter.emit(request, arrays(gen)))
    assert [one.state for one in pushed(ring, repo)] == [DeliveryState.DELIVERED] * 4
    clone = cloned(bare)
    audited(clone, "--require-signed")
    subjects = clone.git("log", "--reverse", "--format=%s", "--", "exp1").decode().splitlines()
    assert subjects == [
        f"deliver gen-{gen:06}.{what}"
        for gen in (1, 2)
        for what in ("0-of-2.wtxt", "1-of-2.wtxt", "index")
    ]
    for place in ("snapshot.0-of-2.wtxt", "snapshot.1-of-2.wtxt", "snapshot.index"):
        assert [one.meta.gen for one in ledger_of(clone, f"exp1/{place}").records] == [1, 2]
    target = Git("origin", "snapshots", "exp1", repository=repo.path)
    for gen in (1, 2):
        out = tmp_path / f"{gen}.npz"
        pull(target, gen, out, public_keys=[KEY.public_key], require_signed=True)
        with np.load(out) as found:
            assert found["layer.w"].tobytes() == bytes(arrays(gen)[0].data)
    assert pushed(ring, repo) == []
