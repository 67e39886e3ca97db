"""`wtxtgit encrypt`, `decrypt` and `rekey`: files, keys, passphrases, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyrage
import pytest

from tests.cli.command import Command, Done
from tests.kit import safetensors
from tests.trust.age_files import encrypted
from wtxtgit.trust.age import scrypt
from wtxtgit.trust.keyring import protect
from wtxtgit.trust.openssh import PublicKey, format_public, format_secret_key, generate

RAW = safetensors(*range(5000))
MODEL, TEXT, SECRET = "m.safetensors", "m.safetensors.wtxt", "m.safetensors.wtxt.age"
WORDS = "correct horse"


class Person:
    """Somebody with a key: its file, and what others need of it."""

    def __init__(self, folder: Path, name: str) -> None:
        identity = pyrage.x25519.Identity.generate()
        self.secret, self.recipient = str(identity), str(identity.to_public())
        self.file = folder / f"{name}.key"
        self.file.touch(mode=0o600)
        self.file.write_text(f"# {name}\n{self.secret}\n")


@pytest.fixture
def alice(wtxtgit: Command) -> Person:
    return Person(wtxtgit.folder.parent, "alice")


@pytest.fixture
def bob(wtxtgit: Command) -> Person:
    return Person(wtxtgit.folder.parent, "bob")


@pytest.fixture(autouse=True)
def model(wtxtgit: Command, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A checkpoint; gives its text."""
    monkeypatch.setattr(scrypt.encrypted, "__defaults__", (2,))
    wtxtgit.folder.joinpath(MODEL).write_bytes(RAW)
    return wtxtgit("emit", MODEL).out


def content(wtxtgit: Command, name: str) -> bytes:
    return wtxtgit.folder.joinpath(name).read_bytes()


def with_words(
    wtxtgit: Command, *arguments: str | Path, words: str = WORDS, env: dict[str, str] | None = None
) -> Done:
    """Run a command that reads a passphrase from a descriptor."""
    reading, writing = os.pipe()
    os.write(writing, f"{words}\n".encode())
    os.close(writing)
    try:
        return wtxtgit(*arguments, "--passphrase-fd", str(reading))
    finally:
        os.close(reading)


def test_a_checkpoint_goes_and_comes(wtxtgit: Command, alice: Person, model: bytes) -> None:
    done = wtxtgit("encrypt", MODEL, "-r", alice.recipient, "-o", SECRET)
    assert (done.code, done.out, done.err) == (0, b"", "")
    data = content(wtxtgit, SECRET)
    assert data.startswith(b"-----BEGIN AGE ENCRYPTED FILE-----\n")
    assert model[200:240] not in data
    assert wtxtgit("decrypt", SECRET, "-i", alice.file).out == model
    assert wtxtgit("decrypt", SECRET, "-i", alice.file, "-o", TEXT).code == 0
    assert content(wtxtgit, TEXT) == model
    done = wtxtgit("decrypt", SECRET, "-i", alice.file, "--restore", "-o", "back")
    assert (done.code, content(wtxtgit, "back")) == (0, RAW)
    # Of the text, and to a pipe.
    piped = wtxtgit("encrypt", TEXT, "-r", alice.recipient, "-o", "-").out
    assert pyrage.decrypt(piped, [pyrage.x25519.Identity.from_str(alice.secret)]) == model


@pytest.mark.skipif(
    shutil.which("age") is None, reason="age, the program, is not installed: apt install age"
)
def test_the_program_age_takes_the_same_files_and_options(
    wtxtgit: Command, alice: Person, bob: Person, model: bytes
) -> None:
    team = wtxtgit.folder / "team"
    team.write_text(f"# the team\n\n{alice.recipient}\n{bob.recipient}\n")
    assert wtxtgit("encrypt", MODEL, "-R", team, "-o", SECRET).code == 0
    for person in (alice, bob):
        argv = ["age", "-d", "-i", str(person.file), str(wtxtgit.folder / SECRET)]
        assert subprocess.run(argv, capture_output=True, check=True).stdout == model
    wtxtgit.folder.joinpath(TEXT).write_bytes(model)
    for armor in ([], ["-a"]):
        argv = ["age", *armor, "-R", str(team), "-o", "theirs", TEXT]
        subprocess.run(argv, cwd=wtxtgit.folder, check=True)
        assert wtxtgit("decrypt", "theirs", "-i", bob.file).out == model


def test_a_passphrase(wtxtgit: Command, model: bytes) -> None:
    assert with_words(wtxtgit, "encrypt", MODEL, "-p", "-o", SECRET).code == 0
    assert with_words(wtxtgit, "decrypt", SECRET, "-p").out == model
    done = with_words(wtxtgit, "decrypt", SECRET, "-p", words="wrong")
    assert done.code == 3
    assert "the passphrase is wrong" in done.complaint()
    assert "wrong\n" not in done.err
    for words in ("", "x" * 2000):
        done = with_words(wtxtgit, "encrypt", MODEL, "-p", words=words)
        assert (done.code, done.out) == (3, b"")
        assert "a passphrase has" in done.complaint()


def test_without_a_terminal_no_passphrase_is_taken_from_standard_input(wtxtgit: Command) -> None:
    done = wtxtgit("encrypt", MODEL, "-p", stdin=b"words\n", start_new_session=True)
    assert done.code == 2
    assert "no terminal" in done.complaint()


@pytest.mark.parametrize("kind", ["age", "age, no armor", "ssh", "ssh behind words", "stdin"])
def test_identity_files(wtxtgit: Command, alice: Person, kind: str, model: bytes) -> None:
    key = generate("tests")
    public = format_public(PublicKey(key.public_key, "tests"))
    assert wtxtgit("encrypt", MODEL, "-r", alice.recipient, "-r", public, "-o", SECRET).code == 0
    file = wtxtgit.folder.parent / "identity"
    file.touch(mode=0o600)
    plain = alice.file.read_bytes()
    makes: dict[str, Callable[[], bytes]] = {
        "age": lambda: protect(plain, WORDS),
        "age, no armor": lambda: encrypted(plain, WORDS),
        "ssh": lambda: format_secret_key(key),
        "ssh behind words": lambda: protect(format_secret_key(key), WORDS),
        "stdin": lambda: b"",
    }
    file.write_bytes(makes[kind]())
    if kind == "stdin":
        done = wtxtgit("decrypt", SECRET, "-i", "-", stdin=plain)
    else:
        done = with_words(wtxtgit, "decrypt", SECRET, "-i", file)
    assert (done.err, done.out) == ("", model)


def test_a_secret_that_others_may_read_is_refused(wtxtgit: Command, alice: Person) -> None:
    assert wtxtgit("encrypt", MODEL, "-r", alice.recipient, "-o", SECRET).code == 0
    alice.file.chmod(0o644)
    done = wtxtgit("decrypt", SECRET, "-i", alice.file)
    assert done.code == 5
    assert "others can read" in done.complaint()


def test_what_is_wrong_is_said_in_a_line(wtxtgit: Command, alice: Person, bob: Person) -> None:
    assert wtxtgit("encrypt", MODEL, "-r", alice.recipient, "-o", SECRET).code == 0
    wtxtgit.folder.joinpath("other").write_bytes(b"hello")
    key = pyrage.x25519.Recipient.from_str(alice.recipient)
    wtxtgit.folder.joinpath("words.age").write_bytes(pyrage.encrypt(b"hello", [key]))
    broken = content(wtxtgit, SECRET)
    wtxtgit.folder.joinpath("cut.age").write_bytes(broken[: len(broken) // 2])
    for arguments, code, words in (
        (("decrypt", SECRET, "-i", bob.file), 3, "no identity matched any of the recipients"),
        (("decrypt", SECRET), 2, "a key is needed to decrypt the file"),
        (("decrypt", "other", "-i", bob.file), 3, "other: not an age file"),
        # No passphrase is asked for in vain, nor a key.
        (("decrypt", "other"), 3, "other: not an age file"),
        (("decrypt", "other", "-p"), 3, "other: not an age file"),
        (("decrypt", "gone", "-p"), 3, "no such file"),
        (("decrypt", "words.age", "-i", alice.file), 3, "the encrypted content is not a WTXT text"),
        (("decrypt", "cut.age", "-i", alice.file), 3, "the armor is damaged"),
        (("decrypt", SECRET, "-i", MODEL), 3, "others can read|no identity"),
        (("decrypt", "gone", "-i", alice.file), 3, "no such file"),
        (("encrypt", MODEL), 2, "no recipients to encrypt for"),
        (("encrypt", MODEL, "-r", "age1x"), 3, "is not a recipient"),
        (("encrypt", SECRET, "-r", alice.recipient), 3, "already encrypted"),
        (
            ("encrypt", MODEL, "-p", "-r", alice.recipient),
            2,
            "-p cannot be combined with recipients",
        ),
        (("rekey", SECRET), 2, "a key is needed to decrypt the files"),
    ):
        done = wtxtgit(*arguments)
        assert any(one in done.complaint() for one in words.split("|")), done.err
        assert done.code in (code, 5), done.err
        assert done.out == b""


def test_nothing_is_written_unless_the_text_is_whole(
    wtxtgit: Command, alice: Person, model: bytes
) -> None:
    key = pyrage.x25519.Recipient.from_str(alice.recipient)
    bad = model.replace(b"meta schema=", b"meta schemA=", 1)
    late = model[:-30] + (b"0" if model[-30:-29] != b"0" else b"1") + model[-29:]
    for text in (bad, late, model[:-1], model + b"x"):
        wtxtgit.folder.joinpath("bad.age").write_bytes(pyrage.encrypt(text, [key], armored=True))
        done = wtxtgit("decrypt", "bad.age", "-i", alice.file, "-o", "out")
        assert (done.code, done.out) == (1, b"")
        assert "bad.age: the encrypted text: " in done.complaint()
        wtxtgit.folder.joinpath("bad.wtxt").write_bytes(text)
        assert wtxtgit("encrypt", "bad.wtxt", "-r", alice.recipient, "-o", "out").code == 1
    assert "out" not in wtxtgit.names()


def test_the_same_text_for_the_same_keys_stays(
    wtxtgit: Command, alice: Person, bob: Person
) -> None:
    to_alice = ("encrypt", MODEL, "-r", alice.recipient, "-o", SECRET)
    assert wtxtgit(*to_alice).code == 0
    first = content(wtxtgit, SECRET)
    done = wtxtgit(*to_alice, "-i", alice.file)
    assert "left alone" in done.err
    assert content(wtxtgit, SECRET) == first
    # Nobody can know without a key; nor does another's tell.
    for more in ((), ("-i", bob.file)):
        assert wtxtgit(*to_alice, *more).code == 0
        assert content(wtxtgit, SECRET) != first
        first = content(wtxtgit, SECRET)
    # One in the other's place shows the same header.
    assert wtxtgit(*to_alice[:3], bob.recipient, *to_alice[4:], "-i", alice.file).err == ""
    assert wtxtgit("decrypt", SECRET, "-i", bob.file).code == 0
    assert wtxtgit("decrypt", SECRET, "-i", alice.file).code == 3
    assert wtxtgit(*to_alice[:3], bob.recipient, *to_alice[4:], "-i", bob.file).err != ""
    before = content(wtxtgit, SECRET)
    wtxtgit.folder.joinpath(MODEL).write_bytes(safetensors(*range(4999)))
    assert wtxtgit(*to_alice[:3], bob.recipient, *to_alice[4:], "-i", bob.file).err == ""
    assert content(wtxtgit, SECRET) != before


def test_the_same_text_with_the_same_passphrase_stays(wtxtgit: Command) -> None:
    assert with_words(wtxtgit, "encrypt", MODEL, "-p", "-o", SECRET).code == 0
    first = content(wtxtgit, SECRET)
    assert "left alone" in with_words(wtxtgit, "encrypt", MODEL, "-p", "-o", SECRET).err
    assert content(wtxtgit, SECRET) == first
    assert with_words(wtxtgit, "encrypt", MODEL, "-p", "-o", SECRET, words="x").err == ""
    assert content(wtxtgit, SECRET) != first


def test_rekey_takes_a_key_out_and_says_what_that_is_worth(
    wtxtgit: Command, alice: Person, bob: Person, model: bytes
) -> None:
    both = ("-r", alice.recipient, "-r", bob.recipient)
    assert wtxtgit("encrypt", MODEL, *both, "-o", SECRET).code == 0
    assert wtxtgit("rekey", SECRET, *both, "-i", alice.file, "-i", bob.file).out == (
        b"unchanged m.safetensors.wtxt.age\n"
    )
    done = wtxtgit("rekey", SECRET, "-r", alice.recipient, "-i", alice.file)
    assert done.out == b"encrypted m.safetensors.wtxt.age\n"
    assert "can still decrypt earlier generations" in done.err
    assert wtxtgit("decrypt", SECRET, "-i", bob.file).code == 3
    assert wtxtgit("decrypt", SECRET, "-i", alice.file).out == model
    done = wtxtgit("rekey", SECRET, "-r", alice.recipient, "-i", alice.file, "--json")
    assert b'"outcome": "unchanged"' in done.out
    forced = wtxtgit("rekey", SECRET, "-r", alice.recipient, "-i", alice.file, "--force")
    assert forced.out.startswith(b"encrypted")


def test_rekey_writes_none_where_one_does_not_open(
    wtxtgit: Command, alice: Person, bob: Person
) -> None:
    for name, person in (("a.wtxt.age", alice), ("b.wtxt.age", bob)):
        assert wtxtgit("encrypt", MODEL, "-r", person.recipient, "-o", name).code == 0
    before = content(wtxtgit, "a.wtxt.age")
    rekeyed = ("rekey", "a.wtxt.age", "b.wtxt.age", "-r", bob.recipient, "-i", alice.file)
    done = wtxtgit(*rekeyed)
    assert done.code == 3
    assert done.complaint().startswith("b.wtxt.age: no identity matched")
    assert content(wtxtgit, "a.wtxt.age") == before


def test_no_secret_is_shown(wtxtgit: Command, alice: Person, bob: Person) -> None:
    bob.file.write_text(bob.secret[:-1] + "x\n")
    said = []
    for arguments in (
        ("encrypt", MODEL, "-r", alice.secret),
        ("encrypt", MODEL, "-R", alice.file),
        ("encrypt", MODEL, "-r", alice.recipient, "-i", bob.file),
        ("decrypt", MODEL, "-i", bob.file),
    ):
        done = wtxtgit(*arguments)
        assert done.code == 3
        said.append(done.complaint())
    for person in (alice, bob):
        assert all(person.secret[16:30] not in words for words in said)
