"""`wtxtgit delta`: what changed sent as text, and put on the old checkpoint."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import wtxtgit as api
from tests.cli.command import Command
from tests.data import case_named, delta_named, edge_delta_named, fixture, fixture_path
from tests.kit import Repo
from wtxtgit.text.verify import verify

pytestmark = pytest.mark.slow

V1, V2 = "plain/pair_v1.safetensors", "plain/pair_v2.safetensors"
PAIRS = [
    (V1, V2),
    ("fold/pair_none_v1.fold", "fold/pair_none_v2.fold"),
    ("fold/pair_zstd3_v1.fold", "fold/pair_zstd3_v2.fold"),
    ("aero/pair_single_v1.aero", "aero/pair_single_v2.aero"),
    ("mlcp/pair_v1_a.checkpoint", "mlcp/pair_v2_a.checkpoint"),
    ("taridx/pair_v1/train.taridx", "taridx/pair_v2/train.taridx"),
]
ONE = delta_named("one_chunk")
PLAIN = delta_named("plain")


def write(wtxtgit: Command, **files: bytes) -> None:
    for name, content in files.items():
        (wtxtgit.folder / name.replace("__", ".")).write_bytes(content)


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_checkpoint_is_made_of_the_one_before(before: str, after: str, wtxtgit: Command) -> None:
    base, target = fixture_path(before), fixture_path(after)
    name = f"{Path(after).name}.wtxtdelta"
    piped = wtxtgit("delta", "make", base, target)
    assert piped.code == 0
    assert wtxtgit("delta", "make", base, target, "-o", name).out == b""
    assert (wtxtgit.folder / name).read_bytes() == piped.out
    assert wtxtgit.names() == [name]

    done = wtxtgit("delta", "apply", base, name)
    assert (done.code, done.out, done.err) == (0, b"", "")
    made = wtxtgit.folder / Path(after).name
    assert made.read_bytes() == fixture(after)
    assert wtxtgit("delta", "apply", base, name, "-o", "-").out == fixture(after)
    assert wtxtgit.names() == [made.name, name]


def test_applying_replaces_the_base_but_not_the_delta(wtxtgit: Command) -> None:
    write(wtxtgit, a=fixture(V1), b=fixture(V2))
    assert wtxtgit("delta", "make", "a", "b", "-o", "d").code == 0
    made = (wtxtgit.folder / "d").read_bytes()
    done = wtxtgit("delta", "apply", "a", "d", "-o", "./d")
    assert (done.code, done.complaint()) == (
        2,
        "d: the output would replace the file that is read",
    )
    assert (wtxtgit.folder / "d").read_bytes() == made
    assert wtxtgit("delta", "apply", "a", "d", "-o", "a").code == 0
    assert (wtxtgit.folder / "a").read_bytes() == fixture(V2)


@pytest.mark.parametrize("out", ["a", "b"])
def test_it_replaces_neither_side(out: str, wtxtgit: Command) -> None:
    """Only a delta would be left, to nothing or of nothing."""
    write(wtxtgit, a=fixture(V1), b=fixture(V2))
    done = wtxtgit("delta", "make", "a", "b", "-o", out)
    assert (done.code, done.complaint()) == (
        2,
        f"{out}: the output would replace the file that is read",
    )
    assert (wtxtgit.folder / "a").read_bytes() == fixture(V1)
    assert (wtxtgit.folder / "b").read_bytes() == fixture(V2)


@pytest.mark.parametrize("case", [ONE, delta_named("signed"), delta_named("audit")])
def test_a_text_is_made_of_a_text(case: object, wtxtgit: Command) -> None:
    assert isinstance(case, type(ONE))
    write(wtxtgit, base__wtxt=case.base, target__wtxt=case.target)
    piped = wtxtgit("delta", "make", "base.wtxt", "target.wtxt")
    assert (piped.code, piped.out) == (0, case.delta)
    write(wtxtgit, new__wtxt__wtxtdelta=case.delta)
    assert wtxtgit("delta", "apply", "base.wtxt", "new.wtxt.wtxtdelta").code == 0
    assert (wtxtgit.folder / "new.wtxt").read_bytes() == case.target


def test_a_checkpoint_and_its_text_are_the_same_base(wtxtgit: Command) -> None:
    for name, path in (("a", V1), ("b", V2)):
        assert wtxtgit("emit", fixture_path(path), "-o", f"{name}.wtxt").code == 0
    of_texts = wtxtgit("delta", "make", "a.wtxt", "b.wtxt").out
    assert of_texts == wtxtgit("delta", "make", fixture_path(V1), "b.wtxt").out
    write(wtxtgit, d__wtxtdelta=of_texts)
    assert wtxtgit("delta", "apply", fixture_path(V1), "d.wtxtdelta", "-o", "-").out == fixture(V2)
    text = wtxtgit("delta", "apply", "a.wtxt", "d.wtxtdelta", "-o", "-").out
    assert text == (wtxtgit.folder / "b.wtxt").read_bytes()


def test_a_text_has_no_delta_to_a_checkpoint(wtxtgit: Command) -> None:
    write(wtxtgit, native__wtxt=ONE.base, new__safetensors=fixture(V2))
    assert wtxtgit("emit", fixture_path(V1), "-o", "old.wtxt").code == 0
    for base in ("native.wtxt", "old.wtxt"):
        done = wtxtgit("delta", "make", base, "new.safetensors", "-o", "d.wtxtdelta")
        assert (done.code, done.out) == (2, b"")
        assert "but both must be texts" in done.complaint()
    # As the hint says.
    assert wtxtgit("emit", "-o", "new.wtxt", "--", "new.safetensors").code == 0
    made = wtxtgit("delta", "make", "native.wtxt", "new.wtxt", "-o", "d.wtxtdelta")
    assert made.code == 0
    applied = wtxtgit("delta", "apply", "native.wtxt", "d.wtxtdelta", "-o", "-")
    assert applied.out == (wtxtgit.folder / "new.wtxt").read_bytes()


def test_what_no_hash_covers_is_told(wtxtgit: Command) -> None:
    write(wtxtgit, base__wtxt=ONE.base, d__wtxtdelta=ONE.delta.replace(b"cuda=off", b"cuda=on"))
    done = wtxtgit("delta", "apply", "base.wtxt", "d.wtxtdelta", "-o", "-")
    assert done.code == 0
    note = "wtxtgit: note: no hash covers cuda=on: it is known only from the delta"
    assert done.err.splitlines() == [note]


def test_a_native_target_stays_a_text(wtxtgit: Command) -> None:
    write(wtxtgit, n__wtxt=ONE.base)
    assert wtxtgit("delta", "make", fixture_path(V1), "n.wtxt", "-o", "d").code == 0
    assert wtxtgit("delta", "apply", fixture_path(V1), "d", "-o", "-").out == ONE.base


@pytest.mark.parametrize("threads", ["1", "7"])
def test_threads_do_not_change_what_is_made(threads: str, wtxtgit: Command) -> None:
    write(wtxtgit, base=ONE.base, target=ONE.target)
    env = {"WTXTGIT_THREADS": threads}
    assert wtxtgit("delta", "make", "base", "target", env=env).out == ONE.delta


class TestPlain:
    def test_made_and_applied(self, wtxtgit: Command) -> None:
        write(wtxtgit, base=PLAIN.base, target=PLAIN.target)
        done = wtxtgit("delta", "make", "base", "target", "--plain", "-o", "d")
        assert (done.code, done.err) == (0, "")
        assert (wtxtgit.folder / "d").read_bytes() == PLAIN.delta
        options = ("--ts", PLAIN.ts, "--build", PLAIN.build)
        assert wtxtgit("delta", "apply", "base", "d", "-o", "-", *options).out == PLAIN.target

    def test_hmacs_are_made_anew_with_the_key(self, wtxtgit: Command, tmp_path: Path) -> None:
        case = delta_named("hmac")
        assert case.hmac_key is not None
        (tmp_path / "key").write_bytes(case.hmac_key)
        write(wtxtgit, base=case.base, target=case.target)
        assert wtxtgit("delta", "make", "base", "target", "--plain", "-o", "d").code == 0
        key = ("--hmac-key", tmp_path / "key")
        made = wtxtgit("delta", "apply", "base", "d", "-o", "-", *key).out
        assert verify(memoryview(made), hmac_key=case.hmac_key).authenticated
        made = wtxtgit("delta", "apply", "base", "d", "-o", "-").out
        assert not verify(memoryview(made), hmac_key=case.hmac_key).ok

    def test_no_generation_follows_the_last_one(self, wtxtgit: Command) -> None:
        case = edge_delta_named("plain_of_the_last_generation")
        write(wtxtgit, base__wtxt=case.base, d__wtxtdelta=case.delta)
        done = wtxtgit("delta", "apply", "base.wtxt", "d.wtxtdelta", "-o", "-")
        assert (done.code, done.out) == (1, b"")
        assert f"no generation follows {'9' * 20}" in done.err

    @pytest.mark.parametrize("options", [["--ts", "now"], ["--build", "two words"], ["--build=ä"]])
    def test_what_no_text_can_hold(self, options: list[str], wtxtgit: Command) -> None:
        write(wtxtgit, base=PLAIN.base, d=PLAIN.delta)
        done = wtxtgit("delta", "apply", "base", "d", "-o", "x", *options)
        assert (done.code, done.out) == (2, b"")
        done.complaint()
        assert wtxtgit.names() == ["base", "d"]

    @pytest.mark.parametrize("options", [["--ts", "2026-01-02T00:00:00Z"], ["--build", "b"]])
    def test_what_a_bound_delta_says_itself(self, options: list[str], wtxtgit: Command) -> None:
        write(wtxtgit, base=ONE.base, d=ONE.delta)
        done = wtxtgit("delta", "apply", "base", "d", "-o", "x", *options)
        assert done.code == 2
        assert "plain" in done.complaint()

    def test_containers_have_none(self, wtxtgit: Command) -> None:
        done = wtxtgit("delta", "make", fixture_path(V1), fixture_path(V2), "--plain", "-o", "x")
        assert done.code == 2
        assert "_layout" in done.complaint()
        assert "leave out --plain" in done.err
        assert wtxtgit.names() == []


class TestRefused:
    def test_another_base(self, wtxtgit: Command) -> None:
        write(wtxtgit, base=ONE.base, other=ONE.target, d=ONE.delta)
        done = wtxtgit("delta", "apply", "other", "d", "-o", "x")
        assert (done.code, done.out) == (1, b"")
        for text in (ONE.base, ONE.target):
            said = verify(memoryview(text)).sha256_all
            assert said is not None
            assert said.hex()[:16] in done.complaint()
        assert wtxtgit.names() == ["base", "d", "other"]

    @pytest.mark.slow
    def test_a_truncated_delta(self, wtxtgit: Command) -> None:
        for end in (0, 8, 12, 100, 700, 5000, len(ONE.delta) - 1):
            write(wtxtgit, base=ONE.base, d=ONE.delta[:end])
            done = wtxtgit("delta", "apply", "base", "d", "-o", "x")
            assert (done.code, done.out) == (3 if end < 12 else 1, b"")
            done.complaint()
        assert wtxtgit.names() == ["base", "d"]

    def test_unknown_arrays(self, wtxtgit: Command) -> None:
        changed = PLAIN.delta.replace(b"arr name=R", b"arr name=Q")
        write(wtxtgit, base=PLAIN.base, d=changed)
        done = wtxtgit("delta", "apply", "base", "d", "-o", "x")
        assert done.code == 1
        assert 'no array "Q"' in done.complaint()
        assert wtxtgit.names() == ["base", "d"]

    def test_another_version(self, wtxtgit: Command) -> None:
        write(wtxtgit, base=ONE.base, d=ONE.delta.replace(b"DELTA 2", b"DELTA 1"))
        done = wtxtgit("delta", "apply", "base", "d", "-o", "x")
        assert done.code == 1
        assert "WTXT-DELTA 1" in done.complaint()
        assert "the only version that is supported" in done.complaint()

    def test_damage_of_the_delta_or_the_base(self, wtxtgit: Command) -> None:
        at = ONE.delta.index(b"lines=1150\n") + 100
        bad = ONE.delta[:at] + b"!" + ONE.delta[at + 1 :]
        at = ONE.base.rindex(b"lines=396\n") + 100
        bad_base = ONE.base[:at] + b"!" + ONE.base[at + 1 :]
        write(wtxtgit, base=ONE.base, bad_base=bad_base, d=ONE.delta, bad=bad)
        for base, delta, culprit in (("base", "bad", "bad"), ("bad_base", "d", "bad_base")):
            done = wtxtgit("delta", "apply", base, delta, "-o", "x")
            assert done.code == 1
            assert done.complaint().startswith(f"{culprit}: line ")
            assert f"wtxtgit verify -- {culprit} lists" in done.err
        for pair in (("bad_base", "base"), ("base", "bad_base")):
            done = wtxtgit("delta", "make", *pair, "-o", "x")
            assert (done.code, done.out) == (1, b"")
            assert done.complaint().startswith("bad_base: line ")
        assert "x" not in wtxtgit.names()

    def test_a_target_that_is_not_what_the_delta_says(self, wtxtgit: Command) -> None:
        fastxor = ONE.delta.split(b"fastxor=")[1][:16]
        write(wtxtgit, base=ONE.base, d=ONE.delta.replace(fastxor, b"0" * 16), x=b"kept")
        done = wtxtgit("delta", "apply", "base", "d", "-o", "x")
        assert done.code == 1
        assert "fastxor" in done.complaint()
        assert (wtxtgit.folder / "x").read_bytes() == b"kept"
        assert wtxtgit("delta", "apply", "base", "d", "-o", "-").out == b""

    def test_a_pending_text(self, wtxtgit: Command) -> None:
        pending = case_named("valid/pending_with_wsum.wtxt").text
        write(wtxtgit, p=pending, base=ONE.base, d=ONE.delta)
        for arguments in (("make", "p", "base"), ("make", "base", "p"), ("apply", "p", "d")):
            done = wtxtgit("delta", *arguments, "-o", "x")
            assert (done.code, done.out) == (3, b"")
            assert "pending" in done.complaint()

    def test_what_is_no_delta(self, wtxtgit: Command) -> None:
        write(wtxtgit, base=ONE.base, d=ONE.delta)
        done = wtxtgit("delta", "apply", "d", "base", "-o", "x")
        assert done.code == 3
        assert "not a WTXT delta: it starts with" in done.complaint()

    @pytest.mark.parametrize("missing", [("none", "d"), ("base", "none")])
    def test_what_is_not_there(self, missing: tuple[str, str], wtxtgit: Command) -> None:
        write(wtxtgit, base=ONE.base, d=ONE.delta)
        for command in ("make", "apply"):
            done = wtxtgit("delta", command, *missing, "-o", "x")
            assert done.code == 3
            assert "none" in done.complaint()
        assert "x" not in wtxtgit.names()

    def test_a_huge_header(self, wtxtgit: Command) -> None:
        """Such a file is stored whole; a delta of it is one of its bytes."""
        header = b'{"a":' + b"[" * 200_000 + b" " * 7
        huge = struct.pack("<Q", 2**62) + header
        deep = struct.pack("<Q", len(header)) + header
        write(wtxtgit, huge=huge, deep=deep)
        assert wtxtgit("delta", "make", "huge", "deep", "-o", "d").code == 0
        assert wtxtgit("delta", "apply", "huge", "d", "-o", "-").out == deep
        long = ONE.delta.replace(b"cap ext=crc32c", b"cap ext=" + b"c," * 500_000 + b"c")
        write(wtxtgit, base=ONE.base, d=long.replace(b"arr name=R", b"arr name=" + b"R" * 500_000))
        done = wtxtgit("delta", "apply", "base", "d", "-o", "x")
        assert done.code == 1
        assert len(done.complaint()) < 1000
        assert "x" not in wtxtgit.names()


class TestOutput:
    def test_a_name_is_derived_and_nothing_overwritten(self, wtxtgit: Command) -> None:
        write(wtxtgit, base=ONE.base, t__wtxt__wtxtdelta=ONE.delta, t__wtxt=b"kept")
        done = wtxtgit("delta", "apply", "base", "t.wtxt.wtxtdelta")
        assert done.code == 2
        assert "already exists" in done.complaint()
        assert "mv -i -- t.wtxt t.wtxt.old keeps it" in done.err
        assert (wtxtgit.folder / "t.wtxt").read_bytes() == b"kept"
        assert wtxtgit("delta", "apply", "base", "t.wtxt.wtxtdelta", "-o", "t.wtxt").code == 0
        assert (wtxtgit.folder / "t.wtxt").read_bytes() == ONE.target

    @pytest.mark.parametrize("name", ["d", "d.txt", ".wtxtdelta"])
    def test_no_name_can_be_derived(self, name: str, wtxtgit: Command) -> None:
        (wtxtgit.folder / name).write_bytes(ONE.delta)
        write(wtxtgit, base=ONE.base)
        done = wtxtgit("delta", "apply", "base", name)
        assert done.code == 2
        assert "-o" in done.complaint()

    def test_the_base_itself_can_be_replaced(self, wtxtgit: Command) -> None:
        write(wtxtgit, base=fixture(V1))
        assert wtxtgit("delta", "make", "base", fixture_path(V2), "-o", "d").code == 0
        assert wtxtgit("delta", "apply", "base", "d", "-o", "base").code == 0
        assert (wtxtgit.folder / "base").read_bytes() == fixture(V2)

    def test_a_delta_that_takes_nothing_of_its_base_says_so(self, wtxtgit: Command) -> None:
        write(wtxtgit, a=api.dumps({"a": np.ones(3)}), b=api.dumps({"b": np.ones(4)}))
        done = wtxtgit("delta", "make", "a", "b", "-o", "d")
        assert done.code == 0
        told = "wtxtgit: note: a and b share nothing: the delta holds all of the target\n"
        assert done.err == told
        applied = wtxtgit("delta", "apply", "a", "d", "-o", "-")
        assert applied.out == (wtxtgit.folder / "b").read_bytes()


class TestVerify:
    def test_a_delta_alone(self, wtxtgit: Command) -> None:
        write(wtxtgit, d__wtxtdelta=ONE.delta)
        done = wtxtgit("verify", "d.wtxtdelta")
        assert (done.code, done.err) == (0, "")
        first, second = done.out.decode().splitlines()
        assert first == "ok      d.wtxtdelta  (delta, bound, 1 chunk, signature absent)"
        assert "wtxtgit delta apply" in second
        (file,) = json.loads(wtxtgit("verify", "--json", "d.wtxtdelta").out)["files"]
        base, target = (verify(memoryview(text)).sha256_all for text in (ONE.base, ONE.target))
        assert base is not None
        assert target is not None
        assert (file["format"], file["ok"], file["signature"]) == ("delta", True, "absent")
        assert file["delta"] == {
            "form": "bound",
            "base_sha256_all": base.hex(),
            "target_sha256_all": target.hex(),
            "gen": 6,
            "changed": ["R"],
            "removed": [],
            "chunks": 1,
        }

    def test_a_plain_one(self, wtxtgit: Command) -> None:
        write(wtxtgit, d=PLAIN.delta)
        (file,) = json.loads(wtxtgit("verify", "--json", "d").out)["files"]
        assert file["delta"]["form"] == "plain"
        assert not {"gen", "target_sha256_all"} & set(file["delta"])

    def test_damage_is_located(self, wtxtgit: Command) -> None:
        at = ONE.delta.index(b"lines=1150\n") + 11 + 79 * 3 + 5
        write(wtxtgit, d=ONE.delta[:at] + b"!" + ONE.delta[at + 1 :])
        done = wtxtgit("verify", "d")
        assert done.code == 1
        assert b'line 10, array "R", chunk 1: ' in done.out
        write(wtxtgit, d=ONE.delta[:-1])
        assert wtxtgit("verify", "d").code == 1

    def test_demands(self, wtxtgit: Command, tmp_path: Path) -> None:
        (tmp_path / "key").write_bytes(b"key")
        write(wtxtgit, d=ONE.delta, signed=delta_named("signed").delta)
        assert wtxtgit("verify", "d", "--require-signed").code == 4
        assert wtxtgit("verify", "signed", "--require-signed").code == 4
        assert wtxtgit("verify", "d", "--hmac-key", tmp_path / "key").code == 1
        options = ("--hmac-key", tmp_path / "key", "--allow-unauthenticated")
        assert wtxtgit("verify", "d", *options).code == 0


class TestBlobs:
    @pytest.fixture
    def history(self, tracked: Repo) -> Repo:
        """model.safetensors in two versions, the first of them tagged v1."""
        tracked.write("model.safetensors", fixture(V1))
        tracked.commit("one", "-a")
        tracked.git("tag", "v1")
        tracked.write("model.safetensors", fixture(V2))
        tracked.commit("two", "-a")
        return tracked

    def out(self, done: subprocess.CompletedProcess[bytes]) -> bytes:
        assert done.stderr == b""
        return done.stdout

    def test_a_checkpoint_of_a_commit(self, history: Repo) -> None:
        delta = self.out(
            history.wtxtgit("delta", "make", "v1:model.safetensors", str(fixture_path(V2)))
        )
        assert history.blob("model.safetensors", "v1").startswith(b"WTXT 1\n")
        others = (
            ("v1:model.safetensors", "HEAD:model.safetensors"),
            ("v1:model.safetensors", "model.safetensors"),
            (str(fixture_path(V1)), ":model.safetensors"),
        )
        for pair in others:
            assert self.out(history.wtxtgit("delta", "make", *pair)) == delta
        history.write("d.wtxtdelta", delta)
        made = history.wtxtgit("delta", "apply", "v1:model.safetensors", "d.wtxtdelta", "-o", "-")
        assert self.out(made) == fixture(V2)

    def test_a_delta_of_a_commit(self, history: Repo) -> None:
        history.wtxtgit(
            "delta", "make", "v1:model.safetensors", "model.safetensors", "-o", "d.wtxtdelta"
        )
        history.add("d.wtxtdelta")
        history.commit("delta")
        history.git("checkout", "-q", "v1", "--", "model.safetensors")
        assert (history.path / "model.safetensors").read_bytes() == fixture(V1)
        refused = history.wtxtgit(
            "delta", "apply", "model.safetensors", "HEAD:d.wtxtdelta", ok=(2,)
        )
        assert b"-o" in refused.stderr
        history.wtxtgit(
            "delta", "apply", "model.safetensors", "HEAD:d.wtxtdelta", "-o", "model.safetensors"
        )
        assert (history.path / "model.safetensors").read_bytes() == fixture(V2)

    def test_a_native_text_and_a_raw_binary(self, history: Repo) -> None:
        history.write("n.wtxt", ONE.base)
        history.add("n.wtxt")
        history.add_raw("raw.npy", fixture("plain/pair_v1.safetensors"))
        history.commit("native and raw")
        history.write("t.wtxt", ONE.target)
        assert self.out(history.wtxtgit("delta", "make", "HEAD:n.wtxt", "t.wtxt")) == ONE.delta
        history.write("d", ONE.delta)
        made = history.wtxtgit("delta", "apply", "HEAD:n.wtxt", "d", "-o", "-")
        assert self.out(made) == ONE.target
        raw, tracked = (
            history.wtxtgit("delta", "make", base, "model.safetensors")
            for base in ("HEAD:raw.npy", "v1:model.safetensors")
        )
        assert self.out(raw) == self.out(tracked)

    def test_what_git_does_not_have(self, history: Repo) -> None:
        done = history.wtxtgit(
            "delta", "make", "v9:model.safetensors", "model.safetensors", ok=(5,)
        )
        assert done.stdout == b""
        assert done.stderr.startswith(b"wtxtgit: error: ")
