"""Detached texts by the commands: made, read with and without their payload, and made whole."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import wtxtgit as api
from tests.cli.command import Command
from tests.kit import safetensors, text_of
from tests.text.naive_detached import detached
from wtxtgit.errors import TextError

MODEL = safetensors(*range(50_000))
NATIVE = {"W": np.arange(20_000, dtype="f8").reshape(100, 200), "b": np.arange(3, dtype="f4")}


@pytest.fixture
def in_repo(wtxtgit: Command) -> Command:
    """The command in an empty repository, with a checkpoint and a native text."""
    subprocess.run(["git", "init", "-q", wtxtgit.folder], check=True)
    (wtxtgit.folder / "m.safetensors").write_bytes(MODEL)
    (wtxtgit.folder / "n.wtxt").write_bytes(api.dumps(NATIVE))
    return wtxtgit


def packs(folder: Path) -> list[Path]:
    return sorted((folder / ".git/wtxt/store/packs").glob("*.pack"))


def test_a_text_is_emitted_detached_and_restored(in_repo: Command) -> None:
    assert in_repo("emit", "--detached", "m.safetensors", "-o", "m.wtxt").code == 0
    text = (in_repo.folder / "m.wtxt").read_bytes()
    assert text == detached(text_of(MODEL))[0]
    assert len(packs(in_repo.folder)) == 1
    assert in_repo("emit", "--detached", "m.safetensors").out == text
    # What already exists is not kept again.
    assert len(packs(in_repo.folder)) == 1
    assert in_repo("restore", "m.wtxt", "-o", "r.safetensors").code == 0
    assert (in_repo.folder / "r.safetensors").read_bytes() == MODEL
    assert in_repo("restore", "m.wtxt", "-o", "-").out == MODEL
    assert in_repo("emit", "m.wtxt").out == text_of(MODEL)


def test_a_generation_is_emitted_detached(in_repo: Command) -> None:
    options = ("--gen", "7", "--build", "b", "--audit", "by=me")
    whole = in_repo("emit", "m.safetensors", *options).out
    assert in_repo("emit", "--detached", "m.safetensors", *options).out == detached(whole)[0]
    done = in_repo("emit", "--detached", "--pending", "m.safetensors", "-o", "p.wtxt")
    assert (done.code, "p.wtxt" in in_repo.names()) == (2, False)


def test_a_text_is_detached_and_attached(in_repo: Command) -> None:
    before = (in_repo.folder / "n.wtxt").read_bytes()
    assert in_repo("detach", "n.wtxt").code == 0
    text = (in_repo.folder / "n.wtxt").read_bytes()
    assert text == detached(before)[0]
    for _ in range(2):
        # What is in that form already stays as it is.
        assert in_repo("detach", "n.wtxt").code == 0
        assert (in_repo.folder / "n.wtxt").read_bytes() == text
    assert in_repo("attach", "n.wtxt", "-o", "-").out == before
    for _ in range(2):
        assert in_repo("attach", "n.wtxt").code == 0
        assert (in_repo.folder / "n.wtxt").read_bytes() == before
    assert in_repo.names() == [".git", "m.safetensors", "n.wtxt"]


def test_verify_says_how_much_is_at_hand(in_repo: Command) -> None:
    in_repo("detach", "n.wtxt")

    def verdict(*options: str) -> tuple[int, dict[str, object]]:
        done = in_repo("verify", "--json", *options, "n.wtxt")
        return done.code, json.loads(done.out)["files"][0]

    code, file = verdict("--require-payload")
    assert (code, file["payload"], file["errors"]) == (0, "complete", [])
    assert "sha256_all" in file
    shutil.rmtree(in_repo.folder / ".git/wtxt")
    code, file = verdict()
    assert (code, file["payload"], file["errors"]) == (0, "absent", [])
    assert "sha256_all" not in file
    code, file = verdict("--require-payload")
    assert code == 1
    assert [error["kind"] for error in file["errors"]] == ["payload-missing"]  # type: ignore[attr-defined]
    assert "payload absent" in in_repo("verify", "n.wtxt").out.decode()


def test_a_damaged_pack_is_told_by_its_chunks(in_repo: Command) -> None:
    in_repo("detach", "n.wtxt")
    (pack,) = packs(in_repo.folder)
    content = bytearray(pack.read_bytes())
    content[len(content) // 4] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(content)
    done = in_repo("verify", "--json", "n.wtxt")
    (file,) = json.loads(done.out)["files"]
    assert (done.code, file["payload"]) == (1, "partly")
    assert {error["kind"] for error in file["errors"]} == {"payload"}
    assert {error["array"] for error in file["errors"]} == {"W"}
    assert in_repo("attach", "n.wtxt", "-o", "out.wtxt").code == 1
    assert "out.wtxt" not in in_repo.names()


def test_nothing_is_made_without_the_payload(in_repo: Command) -> None:
    in_repo("detach", "n.wtxt")
    in_repo("emit", "--detached", "m.safetensors", "-o", "m.wtxt")
    shutil.rmtree(in_repo.folder / ".git")
    text = (in_repo.folder / "n.wtxt").read_bytes()
    for words in (
        ("restore", "m.wtxt", "-o", "out"),
        ("attach", "n.wtxt"),
        ("emit", "m.wtxt", "-o", "out"),
        ("delta", "make", "n.wtxt", "n.wtxt", "-o", "out"),
        ("diff", "n.wtxt", "m.wtxt"),
    ):
        done = in_repo(*words)
        assert done.code == 1, words
        assert "not available here" in done.complaint()
    assert in_repo("encrypt", "m.wtxt", "-o", "out").code != 0
    assert in_repo.names() == ["m.safetensors", "m.wtxt", "n.wtxt"]
    assert (in_repo.folder / "n.wtxt").read_bytes() == text
    shown = in_repo("inspect", "n.wtxt")
    assert shown.code == 0
    assert "detached" in shown.out.decode()
    # Without a repository nothing keeps what would be left out.
    api.dump(NATIVE, in_repo.folder / "whole.wtxt")
    assert in_repo("detach", "whole.wtxt").code == 5
    assert api.load(in_repo.folder / "whole.wtxt")["W"].shape == (100, 200)


def test_looking_takes_no_more_than_it_needs(in_repo: Command) -> None:
    in_repo("emit", "--detached", "m.safetensors", "-o", "m.wtxt")
    shown = in_repo("inspect", "--json", "m.wtxt")
    assert json.loads(shown.out)["tensors"][0]["name"] == "w"
    report = json.loads(in_repo("diff", "--json", "m.safetensors", "m.wtxt").out)
    assert [tensor["status"] for tensor in report["tensors"]] == ["same"]
    in_repo("emit", "m.safetensors", "-o", "whole.wtxt")
    delta = in_repo("delta", "make", "whole.wtxt", "m.wtxt")
    assert delta.code == 0
    # Without its payload, two texts of the same chunks are the same.
    shutil.copy(in_repo.folder / "m.wtxt", in_repo.folder / "again.wtxt")
    shutil.rmtree(in_repo.folder / ".git/wtxt")
    report = json.loads(in_repo("diff", "--json", "again.wtxt", "m.wtxt").out)
    assert [tensor["status"] for tensor in report["tensors"]] == ["same"]


class TestRecover:
    def test_what_mail_did_is_undone(self, in_repo: Command) -> None:
        in_repo("detach", "n.wtxt")
        text = (in_repo.folder / "n.wtxt").read_bytes()
        (in_repo.folder / "mailed.wtxt").write_bytes(text.replace(b"\n", b"\r\n"))
        assert in_repo("recover", "mailed.wtxt", "-o", "again.wtxt").code == 0
        assert (in_repo.folder / "again.wtxt").read_bytes() == text

    def test_what_the_store_has_is_not_healed(self, in_repo: Command) -> None:
        in_repo("detach", "n.wtxt")
        done = in_repo("recover", "n.wtxt")
        assert (done.code, done.out) == (0, b"n.wtxt: nothing is damaged\n")

    def test_a_text_that_is_in_no_repository(self, in_repo: Command, tmp_path: Path) -> None:
        """Its data are in the one around the command, as for `restore`."""
        in_repo("detach", "n.wtxt")
        (in_repo.folder / "n.wtxt").rename(tmp_path / "n.wtxt")
        done = in_repo("recover", str(tmp_path / "n.wtxt"))
        assert (done.code, done.out) == (0, f"{tmp_path}/n.wtxt: nothing is damaged\n".encode())

    def test_a_repository_around_that_is_damaged(self, in_repo: Command, tmp_path: Path) -> None:
        """It has nothing to do with a text that is elsewhere."""
        (in_repo.folder / "n.wtxt").rename(tmp_path / "n.wtxt")
        (in_repo.folder / ".git/config").write_text("[core\n")
        done = in_repo("recover", str(tmp_path / "n.wtxt"))
        assert (done.code, done.out) == (0, f"{tmp_path}/n.wtxt: nothing is damaged\n".encode())

    def test_a_damaged_line_loses_its_chunk_and_no_other(self, in_repo: Command) -> None:
        in_repo("detach", "n.wtxt")
        text = (in_repo.folder / "n.wtxt").read_bytes()
        at = text.index(b"ch ix=000001") + len(b"ch ix=000001 off=000000064000 len=64000 sha256=")
        (in_repo.folder / "bad.wtxt").write_bytes(text[:at] + b"!" + text[at + 1 :])
        done = in_repo("recover", "--json", "bad.wtxt")
        report = json.loads(done.out)
        states = {array["name"]: array for array in report["arrays"]}
        assert (done.code, report["state"]) == (1, "partial")
        assert (states["W"]["intact"], states["W"]["lost"]) == (3, 1)
        assert states["b"]["intact"] == 1
        # The array as a whole is somewhere else.
        api.dump(NATIVE, in_repo.folder / "copy.wtxt")
        assert in_repo("recover", "bad.wtxt", "--from", "copy.wtxt", "-o", "good.wtxt").code == 0
        assert (in_repo.folder / "good.wtxt").read_bytes() == text

    def test_without_a_store_it_says_what_is_lost(self, in_repo: Command) -> None:
        in_repo("detach", "n.wtxt")
        shutil.rmtree(in_repo.folder / ".git/wtxt")
        done = in_repo("recover", "--json", "n.wtxt")
        report = json.loads(done.out)
        assert done.code == 1
        assert [(a["name"], a["intact"], a["lost"]) for a in report["arrays"]] == [
            ("W", 0, 4),
            ("b", 1, 0),
        ]


class TestPython:
    def test_arrays_are_loaded(self, in_repo: Command) -> None:
        in_repo("detach", "n.wtxt")
        weights = api.load(in_repo.folder / "n.wtxt")
        assert (weights["W"] == NATIVE["W"]).all()
        assert api.dumps(weights) == api.dumps(NATIVE)
        with api.open(in_repo.folder / "n.wtxt") as snapshot:
            assert (snapshot["W"][3:5] == NATIVE["W"][3:5]).all()
            assert (snapshot["b"][...] == NATIVE["b"]).all()
        assert api.verify(in_repo.folder / "n.wtxt").ok

    def test_without_payload(self, in_repo: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        in_repo("detach", "n.wtxt")
        # No repository is around the text, or the process, whose remote could have the data.
        monkeypatch.chdir(in_repo.folder)
        shutil.rmtree(in_repo.folder / ".git")
        with pytest.raises(TextError, match="not available here"):
            api.load(in_repo.folder / "n.wtxt")
        report = api.verify(in_repo.folder / "n.wtxt")
        assert (report.ok, report.lacks_payload) == (False, True)
        with api.open(in_repo.folder / "n.wtxt") as snapshot:
            assert (snapshot["b"][...] == NATIVE["b"]).all()
            with pytest.raises(TextError, match="not available here"):
                snapshot["W"][0]
