"""`wtxtgit ring` and `pull`: what was made of a training's snapshots, and back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyrage
import pytest

from tests.cli.command import Command
from tests.stream.rings import KEY, arrays, filled
from wtxtgit.api.functions import load
from wtxtgit.stream import log
from wtxtgit.stream.emission import EmissionOptions, Emitter, SnapshotRequest
from wtxtgit.stream.ranks import Rank
from wtxtgit.stream.ring import Ring
from wtxtgit.stream.state import DeliveryState
from wtxtgit.trust.age import recipients
from wtxtgit.trust.openssh import PublicKey, format_public, generate


@pytest.fixture
def exp1(wtxtgit: Command) -> Path:
    filled(wtxtgit.folder / "exp1", wtxtgit.folder / "target")
    return wtxtgit.folder / "exp1"


def test_ls(wtxtgit: Command, exp1: Path) -> None:
    lines = wtxtgit("ring", "ls", "exp1").out.decode().splitlines()
    assert lines[0].split() == ["gen", "time", "kind", "size", "merkle_this", "targets"]
    assert [line.split()[0] for line in lines[1:6]] == list("01234")
    assert "delta of 0, pinned" in lines[2]
    assert lines[-1] == "5 emitted"
    told = json.loads(wtxtgit("ring", "ls", "exp1", "--json").out)
    assert [one["gen"] for one in told["generations"]] == [0, 1, 2, 3, 4]
    assert told["generations"][2]["base"] == 0


def test_what_came_to_nothing_is_told(wtxtgit: Command, exp1: Path) -> None:
    with Ring(exp1) as ring:
        ring.failed(5, "no space\x1b[31m left")
        (one,) = ring.state.generations_by_number[3].deliveries
        ring.delivery(3, replace(one, state=DeliveryState.REFUSED, why="you may\nnot"))
    (exp1 / "requests").write_bytes(b"requested gen=6 ts=x crc32c=00000000\n")
    out = wtxtgit("ring", "ls", "exp1").out.decode()
    assert "generation 5 could not be written: no space\\x1b[31m left" in out
    assert "target: refused: you may\\x0anot" in out


def test_several_ranks(wtxtgit: Command) -> None:
    folder = wtxtgit.folder / "exp1"
    label = str(wtxtgit.folder / "target")
    for rank in Rank(0, 3).all():
        with Ring(folder, rank=rank) as ring:
            emitter = Emitter(ring, EmissionOptions(), [label])
            for gen in (1, 2):
                if gen == 1 or rank.number == 1:
                    request = SnapshotRequest(gen, "2026-01-31T12:00:00Z")
                    ring.emitted(emitter.emit(request, arrays(gen)))
            if rank.number == 2:
                ring.failed(2, "no space left")
    lines = wtxtgit("ring", "ls", "exp1").out.decode().splitlines()
    assert lines[0].split() == ["gen", "time", "size", "parts", "targets"]
    assert [re.split("  +", line)[-2:] for line in lines[1:3]] == [
        ["all 3", "3 queued"],
        ["incomplete: no ranks 0, 2", "1 queued"],
    ]
    assert lines[-1] == "rank 2: generation 2 could not be written: no space left"
    told = json.loads(wtxtgit("ring", "ls", "exp1", "--json").out)
    assert (told["world"], [one["whole"] for one in told["generations"]]) == (3, [True, False])
    assert told["generations"][1]["parts"]["1"]["file"] == "gen-000002.1-of-3.wtxt"
    done = wtxtgit("ring", "verify", "exp1")
    assert (done.code, done.out.count(b"ok ")) == (0, 5)
    assert b"incomplete  gen-000002.index: no ranks 0, 2\n" in done.out
    verdict = json.loads(wtxtgit("ring", "verify", "exp1", "--json").out)
    assert verdict["generations"][-1]["missing"] == [0, 2]
    done = wtxtgit("ring", "push", "exp1")
    assert done.out.count(b"delivered  generation 1 of rank") == 3
    done = wtxtgit("pull", "target", "-o", "a.npz")
    assert done.out.startswith(b"generation 1, 3 parts, signature absent\n")
    told = json.loads(wtxtgit("pull", "target", "-o", "a.npz", "--json").out)
    assert [one["rank"] for one in told["parts"]] == [0, 1, 2]
    index = folder / "gen-000001.index"
    index.write_bytes(index.read_bytes().replace(b"size=", b"size=1", 1))
    done = wtxtgit("ring", "verify", "exp1")
    assert done.code == 1
    assert b"failed  gen-000001.index: gen-000001.index: not the index of a generation" in done.out
    assert wtxtgit("ring", "prune", "exp1", "1").out == b"1 generation removed: 1\n"


def test_push_then_retry(wtxtgit: Command, exp1: Path) -> None:
    (wtxtgit.folder / "target").write_bytes(b"a file in its place")
    done = wtxtgit("ring", "push", "exp1")
    assert done.code == 1
    assert "generation 0: " in done.err
    (wtxtgit.folder / "target").unlink()
    assert wtxtgit("ring", "push", "exp1").out == b"nothing to send\n"
    done = wtxtgit("ring", "retry", "exp1")
    assert (done.code, done.err) == (0, "")
    assert done.out.count(b"delivered") == 5
    assert len(list((wtxtgit.folder / "target").iterdir())) == 5
    done = wtxtgit("ring", "push", "exp1", "--to", "other", "--json")
    assert [one["state"] for one in json.loads(done.out)["sent"]] == ["delivered"] * 5
    files = sorted((wtxtgit.folder / "other").iterdir())
    assert [file.read_bytes() for file in files] == [
        (exp1 / file.name).read_bytes() for file in files
    ]


def test_prune(wtxtgit: Command, exp1: Path) -> None:
    assert wtxtgit("ring", "prune", "exp1").code == 2
    # A target is to get them.
    assert wtxtgit("ring", "prune", "exp1", "--keep", "1").out == b"0 generations removed\n"
    assert wtxtgit("ring", "prune", "exp1", "1").code == 2
    wtxtgit("ring", "push", "exp1")
    assert wtxtgit("ring", "prune", "exp1", "--keep", "1").out == b"1 generation removed: 2\n"
    assert wtxtgit("ring", "prune", "exp1", "0").code == 2
    assert wtxtgit("ring", "prune", "exp1", "1").out == b"1 generation removed: 1\n"
    assert "no generation 9" in wtxtgit("ring", "prune", "exp1", "9").complaint()
    names = {path.name for path in exp1.iterdir() if path.name.startswith("gen-")}
    assert names == {"gen-000000.wtxt", "gen-000003.wtxt", "gen-000004.from-000003.wtxtdelta"}


def test_verify(wtxtgit: Command, exp1: Path) -> None:
    done = wtxtgit("ring", "verify", "exp1")
    assert (done.code, done.out.count(b"ok ")) == (0, 5)
    for name, words in (
        ("gen-000003.wtxt", "its SHA-256"),
        ("gen-000001.from-000000.wtxtdelta", "its SHA-256"),
    ):
        content = (exp1 / name).read_bytes()
        (exp1 / name).write_bytes(content.replace(b"A", b"B", 1))
        told = wtxtgit("ring", "verify", "exp1")
        assert told.code == 1
        assert f"failed  {name}: {words}" in told.out.decode()
        (exp1 / name).write_bytes(content)
    (exp1 / "gen-000000.wtxt").unlink()
    told = wtxtgit("ring", "verify", "exp1")
    assert told.out.count(b"failed") == 3


def test_a_log_that_was_made_up_reaches_no_other_file(wtxtgit: Command, exp1: Path) -> None:
    secret = wtxtgit.folder / "secret"
    secret.write_bytes(b"mine")
    lines = log.read(exp1 / "wal")
    made_up = [
        replace(line, fields={**line.fields, "file": "../secret"})
        for line in lines
        if line.word == "emitted"
    ]
    (exp1 / "wal").write_bytes(b"".join(line.line() for line in made_up))
    for command in ("ls", "verify", "push"):
        assert b"secret" not in wtxtgit("ring", command, "exp1").out
    assert secret.read_bytes() == b"mine"


@pytest.mark.parametrize("command", ["ls", "verify", "push", "retry"])
def test_a_folder_that_is_no_ring(command: str, wtxtgit: Command) -> None:
    (wtxtgit.folder / "d").mkdir()
    assert wtxtgit("ring", command, "d").complaint() == "d: not a ring of snapshots"
    assert wtxtgit("ring", command, "nowhere").complaint() == "nowhere: no such folder"
    assert list((wtxtgit.folder / "d").iterdir()) == []


def test_a_ring_that_is_taken(wtxtgit: Command, exp1: Path) -> None:
    with Ring(exp1):
        assert wtxtgit("ring", "ls", "exp1").code == 0
        assert wtxtgit("ring", "verify", "exp1").code == 0
        assert wtxtgit("ring", "push", "exp1").code == 5
        assert "is using this ring" in wtxtgit("ring", "prune", "exp1", "1").complaint()


@pytest.fixture
def target(wtxtgit: Command, exp1: Path) -> Path:
    assert wtxtgit("ring", "push", "exp1").code == 0
    (wtxtgit.folder / "signers.pub").write_text(format_public(PublicKey(KEY.public_key, "alice")))
    return wtxtgit.folder / "target"


@pytest.mark.parametrize("gen", [0, 2, 4])
def test_pull(gen: int, wtxtgit: Command, target: Path) -> None:
    signed = ("--signers", "signers.pub", "--require-signed")
    done = wtxtgit("pull", "target", "--gen", str(gen), *signed, "--json")
    told = json.loads(done.out)
    assert (told["gen"], told["signature"]) == (gen, "valid")
    assert told.get("follows") == (gen - 1 if gen else None)
    weights = load(wtxtgit.folder / f"gen-{gen:06}.wtxt", public_keys=[KEY.public_key])
    assert weights["layer.w"].tobytes() == bytes(arrays(gen)[0].data)
    again = wtxtgit("pull", "target", "--gen", str(gen))
    assert "already exists" in again.complaint()


def test_pull_the_latest_in_another_format(wtxtgit: Command, target: Path) -> None:
    done = wtxtgit("pull", "target", "-o", "model.npz")
    assert done.out.splitlines()[0] == b"generation 4, signature unknown-key, follows 3"
    with np.load(wtxtgit.folder / "model.npz") as model:
        assert model["layer.w"].tobytes() == bytes(arrays(4)[0].data)


def test_what_is_encrypted(wtxtgit: Command) -> None:
    """Nothing of it is in the ring or at the target; with an identity it is proved, and pulled."""
    secret = pyrage.x25519.Identity.generate()
    (wtxtgit.folder / "identity").write_text(f"{secret}\n")
    (wtxtgit.folder / "identity").chmod(0o600)
    whom = (recipients.parse(str(secret.to_public()), "here"),)
    with Ring(wtxtgit.folder / "exp1") as ring:
        options = EmissionOptions(full_every=3, recipients=whom)
        emitter = Emitter(ring, options, ["target"])
        for gen in range(3):
            request = SnapshotRequest(gen, "2026-01-31T12:00:00Z")
            ring.emitted(emitter.emit(request, arrays(gen)))
    assert wtxtgit("ring", "push", "exp1").code == 0
    names = {path.name for path in (wtxtgit.folder / "target").iterdir()}
    assert names == {
        "gen-000000.wtxt.age",
        "gen-000001.from-000000.wtxtdelta.age",
        "gen-000002.from-000000.wtxtdelta.age",
    }
    for folder in ("exp1", "target"):
        for path in (wtxtgit.folder / folder).glob("gen-*"):
            assert b"layer" not in path.read_bytes()
    for given in ([], ["-i", "identity"]):
        assert wtxtgit("ring", "verify", "exp1", *given).out.count(b"ok ") == 3
    assert "no identity" in wtxtgit("pull", "target").complaint()
    done = wtxtgit("pull", "target", "-i", "identity")
    assert done.out.startswith(b"generation 2, signature absent, follows 1")
    assert load(wtxtgit.folder / "gen-000002.wtxt")["layer.w"].tobytes() == bytes(arrays(2)[0].data)


def test_pull_gives_nothing_that_does_not_hold(wtxtgit: Command, target: Path) -> None:
    assert "no generation 9" in wtxtgit("pull", "target", "--gen", "9").complaint()
    assert wtxtgit("pull", "target", "--gen", "new").code == 2
    assert wtxtgit("pull", "target", "--require-signed").code == 2
    other = format_public(PublicKey(generate("bob").public_key, "bob"))
    (wtxtgit.folder / "bob.pub").write_text(other)
    done = wtxtgit("pull", "target", "--signers", "bob.pub", "--require-signed")
    assert "a known signer's is required" in done.complaint()
    text = (target / "gen-000003.wtxt").read_bytes()
    (target / "gen-000003.wtxt").write_bytes(text.replace(b"AAAA", b"BAAA", 1))
    for gen in ("3", "4"):
        assert wtxtgit("pull", "target", "--gen", gen).code in (1, 3)
    # Another generation's text under this one's name.
    (target / "gen-000003.wtxt").write_bytes((target / "gen-000000.wtxt").read_bytes())
    assert "holds generation 0" in wtxtgit("pull", "target", "--gen", "3").complaint()
    assert sorted(wtxtgit.names()) == ["bob.pub", "exp1", "signers.pub", "target"]


def test_pull_refuses_another_chain(wtxtgit: Command, target: Path) -> None:
    other = wtxtgit.folder / "other"
    with Ring(other) as ring:
        emitter = Emitter(ring, EmissionOptions(build="other"), [])
        for gen in (2, 3):
            request = SnapshotRequest(gen, "2026-01-31T12:00:00Z")
            ring.emitted(emitter.emit(request, arrays(9)))
    # The first of another chain, in the place of the fourth of this one.
    (target / "gen-000003.wtxt").write_bytes((other / "gen-000003.wtxt").read_bytes())
    assert wtxtgit("pull", "target", "--gen", "3", "-o", "a.wtxt").code == 0
    (target / "gen-000002.from-000000.wtxtdelta").unlink()
    (target / "gen-000002.wtxt").write_bytes((other / "gen-000002.wtxt").read_bytes())
    done = wtxtgit("pull", "target", "--gen", "2", "-o", "b.wtxt")
    assert done.complaint() == "generation 2 does not follow generation 1, which is already there"


def test_a_push_names_what_sends_refused_files_again(wtxtgit: Command, exp1: Path) -> None:
    with Ring(exp1) as ring:
        for generation in ring.state.generations:
            (one,) = generation.deliveries
            ring.delivery(generation.gen, replace(one, state=DeliveryState.DELIVERED))
        ring.delivery(3, replace(one, state=DeliveryState.REFUSED, why="no"))
    done = wtxtgit("ring", "push", "exp1")
    assert done.out == b"nothing to send\n"
    assert "1 file refused or expired earlier" in done.err
    assert "hint: wtxtgit ring retry -- exp1 sends them again\n" in done.err
    assert wtxtgit("ring", "retry", "exp1").code == 0
    assert "retry" not in wtxtgit("ring", "push", "exp1").err
