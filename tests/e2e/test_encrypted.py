"""Encrypted texts in git: what is said, sealed and judged without a key, and with one."""

from __future__ import annotations

import json
from pathlib import Path

import pyrage
import pytest

from tests.e2e.sealed import Sealed, assert_holds, text
from wtxtgit.filter.content import opaque_hash
from wtxtgit.text import ledger as text_ledger

NAME = "model.wtxt.age"
ALICE, BOB = pyrage.x25519.Identity.generate(), pyrage.x25519.Identity.generate()
WITHOUT = "1 encrypted text: only the ciphertext of 1 was checked, because no identity was given"
WITH = "1 encrypted text: the content of 1 was decrypted and verified"
NOT_WITH = (
    "1 encrypted text: only the ciphertext of 1 was checked, because no identity decrypts them"
)


def encrypted(content: bytes, *whom: pyrage.x25519.Identity) -> bytes:
    keys = [one.to_public() for one in whom or (ALICE,)]
    data: bytes = pyrage.encrypt(content, keys, armored=True)
    return data


def put(repo: Sealed, content: bytes, name: str = NAME) -> None:
    repo.write(name, content)
    repo.add(name)


def identity(tmp_path: Path, who: pyrage.x25519.Identity) -> str:
    file = tmp_path / "identity"
    file.touch(mode=0o600)
    file.write_text(f"{who}\n")
    return str(file)


@pytest.fixture
def key(tmp_path: Path) -> str:
    return identity(tmp_path, ALICE)


@pytest.fixture
def repo(chain: Sealed) -> Sealed:
    """One with an encrypted text that is sealed."""
    put(chain, encrypted(text(1.0)))
    chain.seal(NAME)
    chain.commit()
    return chain


def test_a_seal_is_of_the_ciphertext(repo: Sealed) -> None:
    read = text_ledger.read(repo.blob(f"{NAME}.wsum", "")).ledger
    assert read is not None
    assert read.last.sha256_all == opaque_hash(memoryview(repo.blob(NAME, "")))
    assert read.last.meta.schema == "opaque/v1"


def test_the_verdict_says_what_was_done(repo: Sealed, key: str, tmp_path: Path) -> None:
    assert WITHOUT in assert_holds(repo).report["notes"]
    assert WITH in assert_holds(repo, "-i", key).report["notes"]
    assert f"note: {WITHOUT}\n" in repo.call("check", "--staged").out
    assert f"note: {WITH}\n" in repo.call("check", "--staged", "-i", key).out
    assert WITH in repo.seal(NAME, "-i", key).err
    # Who has another key knows no more than who has none.
    bob = identity(tmp_path, BOB)
    assert NOT_WITH in assert_holds(repo, "-i", bob).report["notes"]


def test_another_ciphertext_of_the_same_text_is_not_what_was_sealed(repo: Sealed, key: str) -> None:
    put(repo, encrypted(text(1.0)))
    repo.commit()
    for options in ((), ("-i", key)):
        said = repo.audit(*options)
        assert (said.code, said.kinds) == (1, {"content-mismatch"})


@pytest.mark.parametrize(
    "content", [b"hello", text(1.0)[:-1], text(1.0) + b"x", b""], ids=["words", "cut", "more", "no"]
)
def test_what_is_no_whole_text_is_found_with_a_key(chain: Sealed, key: str, content: bytes) -> None:
    put(chain, encrypted(content))
    said = chain.call("seal", "--staged", "--key", "alice", NAME, "-i", key, ok=(1,))
    assert NAME in said.err
    chain.seal(NAME)
    chain.commit()
    assert_holds(chain)
    said = chain.audit("-i", key)
    assert (said.code, said.kinds) == (1, {"corrupt-text"})
    assert "corrupt-text" in chain.call("check", "--staged", "-i", key, ok=(1,)).out


DAMAGED = {
    "plain": text(1.0),
    "no armor": pyrage.encrypt(text(1.0), [ALICE.to_public()]),
    "cut": encrypted(text(1.0))[:2000],
    "a line gone": encrypted(text(1.0)).replace(b"\n", b"", 5),
    "words": b"hello\n",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_what_is_not_encrypted_is_found_without_a_key(chain: Sealed, kind: str) -> None:
    put(chain, DAMAGED[kind])
    assert "corrupt-text" in chain.call("check", "--staged", ok=(1,)).out
    assert NAME in chain.call("seal", "--staged", "--key", "alice", NAME, ok=(1,)).err


def test_an_artifact_that_lost_its_encryption_is_found(repo: Sealed) -> None:
    put(repo, text(1.0))
    repo.commit()
    said = repo.audit()
    assert {"corrupt-text", "content-mismatch"} <= said.kinds


def test_status_knows_what_is_not_encrypted(repo: Sealed) -> None:
    def state() -> tuple[str, str]:
        report = json.loads(repo.call("status", "--json", ok=(0, 1)).out)
        (file,) = (one for one in report["files"] if one["path"] == NAME)
        return file["state"], file["format"]

    assert state() == ("ok", "age")
    repo.write(NAME, encrypted(text(2.0)))
    assert state() == ("modified", "age")
    repo.write(NAME, text(2.0))
    assert state() == ("not-encrypted", "raw")
    repo.path.joinpath(NAME).unlink()
    assert state() == ("missing", "age")


def test_what_a_file_shows_without_a_key(repo: Sealed, key: str, tmp_path: Path) -> None:
    shown = json.loads(repo.call("inspect", NAME, "--json").out)
    size = len(text(1.0))
    assert shown["format"] == "age"
    assert shown["metadata"] == {
        "recipients": {"X25519": 1}, "content_size": size, "is_armored": True,
    }  # fmt: skip
    said = repo.call("verify", NAME)
    assert "the age file is well-formed; -i FILE checks the content" in said.out
    said = repo.call("verify", f"HEAD:{NAME}", "-i", key)
    assert "(wtxt in age, " in said.out
    bob = identity(tmp_path, BOB)
    assert "no identity matched" in repo.call("verify", NAME, "-i", bob, ok=(1,)).out
    put(repo, encrypted(text(1.0)[:-1]))
    repo.call("verify", NAME)
    repo.call("verify", NAME, "-i", key, ok=(1,))
    put(repo, encrypted(text(1.0))[:2000])
    assert "the armor is damaged" in repo.call("verify", NAME, ok=(1,)).out


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (encrypted(text(1.0)), encrypted(text(1.0)), "for 1 recipient (1 X25519), as before"),
        (
            encrypted(text(1.0)),
            encrypted(text(1.0), ALICE, BOB),
            "for 2 recipients (2 X25519), was encrypted for 1 recipient (1 X25519): without",
        ),
        (encrypted(b"x"), encrypted(b"xy"), "the text has changed, 2 bytes, was 1: only a key"),
        (text(1.0), encrypted(text(1.0)), "was not encrypted"),
        (encrypted(text(1.0)), text(1.0), "not encrypted, was encrypted for 1 recipient"),
    ],
)
def test_what_is_said_of_a_change(chain: Sealed, before: bytes, after: bytes, told: str) -> None:
    put(chain, before)
    chain.commit()
    put(chain, after)
    chain.commit()
    said = chain.call("diff", f"HEAD~1:{NAME}", f"HEAD:{NAME}", ok=(3,))
    assert told in said.err
    assert told in chain.call("review", "HEAD~1", ok=(0, 1)).out


def test_git_never_merges_nor_converts_one(chain: Sealed) -> None:
    chain.call("track", "*.fold")
    attributes = chain.git("check-attr", "text", "merge", "diff", "filter", "--", NAME).decode()
    assert [line.rpartition(": ")[2] for line in attributes.splitlines()] == [
        "unset", "binary", "wtxt", "unspecified",
    ]  # fmt: skip


def test_the_repositorys_list_is_whom_files_are_for(chain: Sealed, key: str) -> None:
    chain.write(".wtxt/recipients", f"{ALICE.to_public()}\n{BOB.to_public()}\n")
    chain.write("model.wtxt", text(1.0))
    chain.call("encrypt", "model.wtxt", "-o", NAME)
    chain.add()
    chain.commit()
    first = chain.path.joinpath(NAME).read_bytes()
    # Bob is known by the list alone, which was the same when the file came.
    assert chain.call("rekey", "-i", key).out == f"unchanged {NAME}\n"
    assert "left alone" in chain.call("encrypt", "model.wtxt", "-o", NAME, "-i", key).err
    assert chain.path.joinpath(NAME).read_bytes() == first
    # One for another; the header shows the same.
    other = pyrage.x25519.Identity.generate()
    chain.write(".wtxt/recipients", f"{ALICE.to_public()}\n{other.to_public()}\n")
    assert chain.call("rekey", "-i", key).out == f"encrypted {NAME}\n"
    assert pyrage.decrypt(chain.path.joinpath(NAME).read_bytes(), [other]) == text(1.0)
    with pytest.raises(pyrage.DecryptError):
        pyrage.decrypt(chain.path.joinpath(NAME).read_bytes(), [BOB])
    # Not yet committed: nothing says for whom it is.
    assert chain.call("rekey", "-i", key).out == f"encrypted {NAME}\n"
    chain.add()
    chain.commit()
    assert chain.call("rekey", "-i", key).out == f"unchanged {NAME}\n"
    # The list moves on by itself, then the commit that brought the file has another one.
    chain.write(".wtxt/recipients", f"{ALICE.to_public()}\n{BOB.to_public()}\n")
    chain.add()
    chain.commit()
    assert chain.call("rekey", "-i", key).out == f"encrypted {NAME}\n"
