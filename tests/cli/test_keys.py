"""`wtxtgit key` and `wtxtgit signers`: what users type, and what is never shown."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Command, Done
from tests.trust.age_files import armored, encrypted
from tests.trust.peers import keygen, needs_keygen, new_key
from tests.trust.secrets_shown import assert_not_shown
from wtxtgit.trust.keyring import unprotect
from wtxtgit.trust.openssh import format_secret_key, generate, parse_secret_key

WORDS = "pass words, zwölf"


def ring(wtxtgit: Command) -> Path:
    return Path(wtxtgit.options()["env"]["HOME"]) / ".config/wtxtgit/keys"


def with_fd(wtxtgit: Command, content: bytes, *arguments: str | Path) -> Done:
    """The command with a descriptor from which it can read."""
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    try:
        return wtxtgit(*arguments, "--passphrase-fd", str(read), pass_fds=(read,))
    finally:
        os.close(read)


def private(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


@pytest.fixture
def repository(wtxtgit: Command) -> Command:
    subprocess.run(["git", "init", "-q"], check=True, **wtxtgit.options())
    return wtxtgit


def test_the_session_that_the_documents_promise(repository: Command) -> None:
    made = repository("key", "new", "--name", "alice", "--no-passphrase")
    assert made.code == 0, made
    added = repository("signers", "add", "alice@example.com", "alice")
    assert added.code == 0, added
    facts = json.loads(repository("key", "show", "alice", "--json").out)
    for done in (made, added):
        assert facts["fingerprint"] in done.out.decode()
        assert f"keyid {facts['keyid']}" in done.out.decode()
    for step in ("git add -- :/.wtxt", "wtxtgit seal --staged", "git commit"):
        assert step in added.err
    lines = (repository.folder / ".wtxt/signers").read_text().splitlines()
    assert lines[-1] == f"alice@example.com {facts['public']}"
    listed = json.loads(repository("signers", "list", "--json").out)
    assert listed["signers"] == [
        {
            "principal": "alice@example.com",
            "fingerprint": facts["fingerprint"],
            "keyid": facts["keyid"],
            "comment": "alice",
        }
    ]
    text = repository("signers", "list").out.decode().splitlines()
    assert text[1].split() == ["alice@example.com", facts["fingerprint"], facts["keyid"], "alice"]
    assert text[2:] == ["", "threshold: 1"]
    repository("key", "new", "--name", "bob", "--no-passphrase")
    repository("signers", "add", "bob@example.com", "bob")
    raised = repository("signers", "threshold", "2")
    assert (raised.code, raised.out) == (0, b"threshold: 2\n")
    assert "git add -- :/.wtxt" in raised.err
    assert repository("signers", "list").out.decode().splitlines()[-1] == "threshold: 2"
    assert repository("signers", "remove", facts["keyid"]).code == 1
    lowered = repository("signers", "threshold", "1", "--json")
    assert json.loads(lowered.out)["threshold"] == 1
    gone = repository("signers", "remove", facts["keyid"])
    assert gone.code == 0
    assert "needs a countersignature" in gone.err
    assert "wtxtgit seal --countersign" in gone.err
    assert b"alice" not in repository("signers", "list").out


def test_a_threshold_that_can_not_be(repository: Command) -> None:
    repository("key", "new", "--name", "alice", "--no-passphrase")
    repository("signers", "add", "alice@example.com", "alice")
    for number, code, said in (
        ("0", 2, "a threshold must be from 1 to 8, not 0"),
        ("9", 2, "a threshold must be from 1 to 8, not 9"),
        ("2", 1, "a threshold of 2 needs as many principals, but .wtxt/signers has 1"),
    ):
        done = repository("signers", "threshold", number)
        assert (done.code, done.complaint()) == (code, said)
        assert "wtxtgit: hint: " in done.err
    assert repository("signers", "threshold", "two").code == 2


@needs_keygen
def test_a_key_without_a_passphrase_is_one_of_openssh(wtxtgit: Command) -> None:
    wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
    shown = wtxtgit("key", "show", "alice")
    assert keygen("-y", "-f", ring(wtxtgit) / "alice") == shown.out
    fingerprint = keygen("-l", "-f", ring(wtxtgit) / "alice.pub").decode().split()[1]
    assert fingerprint in shown.err
    assert fingerprint in wtxtgit("key", "list").out.decode()


@pytest.mark.parametrize("passphrase", [None, pytest.param(WORDS, marks=pytest.mark.slow)])
def test_a_key_whose_making_was_broken_off_is_finished(
    wtxtgit: Command, passphrase: str | None
) -> None:
    """Killed between its two files: no command knows of such a key, and `key new` makes it."""

    def new() -> Done:
        if passphrase is None:
            return wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
        return with_fd(wtxtgit, passphrase.encode(), "key", "new", "--name", "alice")

    new()
    public, secret = ring(wtxtgit) / "alice.pub", ring(wtxtgit) / "alice"
    whole = public.read_bytes(), secret.read_bytes()
    public.unlink()
    assert wtxtgit("key", "list").out == b"no keys; wtxtgit key new makes one\n"
    assert new().code == 0
    assert (public.read_bytes(), secret.read_bytes()) == whole
    assert new().complaint() == 'a key "alice" already exists'
    # What another passphrase, or none, does not open may be the only copy of somebody's key.
    public.unlink()
    other = with_fd(wtxtgit, b"other", "key", "new", "--name", "alice")
    assert other.complaint() == 'a key "alice" already exists'
    assert [path.name for path in ring(wtxtgit).iterdir()] == ["alice"]
    assert secret.read_bytes() == whole[1]


def test_a_key_whose_import_was_broken_off_is_finished(wtxtgit: Command) -> None:
    for name in ("mine", "other"):
        assert wtxtgit("key", "new", "--name", name, "--no-passphrase").code == 0

    def imported(name: str) -> Done:
        file = ring(wtxtgit) / name
        return wtxtgit("key", "import", file, "--name", "copy", "--no-passphrase")

    assert imported("mine").code == 0
    public, secret = ring(wtxtgit) / "copy.pub", ring(wtxtgit) / "copy"
    whole = public.read_bytes(), secret.read_bytes()
    public.unlink()
    assert imported("other").complaint() == 'a key "copy" already exists'
    assert imported("mine").code == 0
    assert (public.read_bytes(), secret.read_bytes()) == whole


def test_the_default_name_is_that_of_the_user(wtxtgit: Command) -> None:
    for login, name in (("alice", "alice"), ("no name/", "default")):
        env = {"LOGNAME": login}
        assert wtxtgit("key", "new", "--no-passphrase", env=env).code == 0
        assert (ring(wtxtgit) / name).is_file()


def test_keys_are_where_the_configuration_is(wtxtgit: Command, tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    wtxtgit("key", "new", "--name", "a", "--no-passphrase", env=env)
    assert (tmp_path / "xdg/wtxtgit/keys/a").is_file()
    for relative in ("", "xdg"):
        env = {"XDG_CONFIG_HOME": relative}
        wtxtgit("key", "new", "--name", f"b{relative}", "--no-passphrase", env=env)
        assert (ring(wtxtgit) / f"b{relative}").is_file()


@pytest.mark.slow
def test_the_passphrase_comes_from_a_descriptor(wtxtgit: Command) -> None:
    done = with_fd(wtxtgit, f"{WORDS}\nmore\n".encode(), "key", "new", "--name", "alice")
    assert done.code == 0, done
    content = (ring(wtxtgit) / "alice").read_bytes()
    key = parse_secret_key(unprotect(content, WORDS, "alice"), "alice")
    (row,) = json.loads(wtxtgit("key", "list", "--json").out)["keys"]
    assert row["protected"] is True
    assert row["public"].endswith(" alice")
    assert_not_shown(key.seed, content, done.out, done.err)
    assert WORDS not in done.err + done.out.decode()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b"\nx", "empty"), (b"\xff\n", "not UTF-8"), (b"x" * 1025, "1 to 1024")],
)
def test_what_is_no_passphrase(wtxtgit: Command, content: bytes, said: str) -> None:
    done = with_fd(wtxtgit, content, "key", "new", "--name", "alice")
    assert said in done.complaint()
    assert not ring(wtxtgit).exists()


def test_a_descriptor_that_is_not_open(wtxtgit: Command) -> None:
    done = wtxtgit("key", "new", "--passphrase-fd", "77")
    assert (done.code, done.complaint()) == (2, "--passphrase-fd 77: bad file descriptor")


def test_options_that_contradict_each_other(wtxtgit: Command) -> None:
    done = wtxtgit("key", "new", "--no-passphrase", "--passphrase-fd", "0")
    assert done.code == 2
    assert "cannot be combined" in done.complaint()


def test_without_a_terminal_there_is_nobody_to_ask(wtxtgit: Command) -> None:
    done = wtxtgit("key", "new", "--name", "a", stdin=b"words\n", start_new_session=True)
    assert (done.code, done.complaint()) == (2, "no terminal to ask for the passphrase")
    assert "--passphrase-fd" in done.err
    assert not ring(wtxtgit).exists()


def on_terminal(wtxtgit: Command, answers: list[str], *arguments: str | Path) -> tuple[int, str]:
    """The command on a terminal of its own, where each answer is typed at a prompt."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        wtxtgit.argv(*arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        **wtxtgit.options(),
    )
    os.close(theirs)
    said = b""
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        while True:
            try:
                piece = terminal.read(1024)
            except OSError:  # how Linux tells that nobody has the other end open
                break
            if not piece:
                break
            said += piece
            if said.endswith(b": ") and answers:
                terminal.write(answers.pop(0).encode() + b"\n")
    return process.wait(), said.decode()


class TestOnATerminal:
    @pytest.mark.slow
    def test_a_passphrase_is_asked_for_twice_and_not_shown(self, wtxtgit: Command) -> None:
        code, said = on_terminal(wtxtgit, [WORDS, WORDS], "key", "new", "--name", "alice")
        assert code == 0, said
        assert "new passphrase for alice: " in said
        assert "again: " in said
        assert WORDS not in said
        assert b"OPENSSH" in unprotect((ring(wtxtgit) / "alice").read_bytes(), WORDS, "k")

    @pytest.mark.parametrize(
        ("answers", "told"),
        [([WORDS, "other"], "do not match"), ([""], "empty"), (["\x04"], "no pass")],
    )
    def test_what_leaves_no_key(self, wtxtgit: Command, answers: list[str], told: str) -> None:
        code, said = on_terminal(wtxtgit, answers, "key", "new", "--name", "alice")
        assert code == 2, said
        assert told in said
        assert WORDS not in said
        assert not ring(wtxtgit).exists()

    def test_a_name_that_is_taken_is_told_before_anybody_is_asked(self, wtxtgit: Command) -> None:
        wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
        code, said = on_terminal(wtxtgit, [], "key", "new", "--name", "alice")
        assert code == 2
        assert "already" in said
        assert "passphrase" not in said


class TestImport:
    @needs_keygen
    def test_a_key_of_ssh_keygen(self, wtxtgit: Command) -> None:
        file = new_key(wtxtgit.folder / "id_ed25519")
        before = file.read_bytes()
        done = wtxtgit("key", "import", file, "--no-passphrase")
        assert done.code == 0, done
        assert file.read_bytes() == before
        public = file.with_suffix(".pub").read_bytes()
        assert wtxtgit("key", "show", "id_ed25519").out == public
        assert keygen("-y", "-f", ring(wtxtgit) / "id_ed25519") == public
        assert_not_shown(parse_secret_key(before, "k").seed, done.out, done.err)

    @pytest.mark.slow
    @needs_keygen
    def test_the_copy_gets_a_passphrase(self, wtxtgit: Command) -> None:
        file = new_key(wtxtgit.folder / "id_ed25519")
        done = with_fd(wtxtgit, WORDS.encode(), "key", "import", file, "--name", "alice")
        assert done.code == 0, done
        content = (ring(wtxtgit) / "alice").read_bytes()
        seed = parse_secret_key(file.read_bytes(), "k").seed
        assert parse_secret_key(unprotect(content, WORDS, "k"), "k").seed == seed

    @needs_keygen
    def test_what_is_refused(self, wtxtgit: Command) -> None:
        locked = new_key(wtxtgit.folder / "locked", "ed25519", WORDS)
        other = new_key(wtxtgit.folder / "other", "ecdsa")
        loose = new_key(wtxtgit.folder / "loose")
        loose.chmod(0o644)
        hidden = new_key(wtxtgit.folder / ".hidden")
        for file, code, told in (
            (locked, 3, "passphrase of OpenSSH's own"),
            (other, 3, "ecdsa-sha2-nistp256 is another type of key"),
            (locked.with_suffix(".pub"), 2, "cannot name the key after"),
            (loose, 5, "others can read the secret key (mode 0644)"),
            (hidden, 2, "cannot name the key after"),
            (wtxtgit.folder / "missing", 3, "no such file"),
        ):
            done = wtxtgit("key", "import", file, start_new_session=True)
            assert (done.code, told in done.complaint()) == (code, True), done
        assert not ring(wtxtgit).exists()


class TestSigning:
    """`emit --sign` reads keys as all commands do."""

    @pytest.fixture
    def emit(self, wtxtgit: Command) -> Callable[..., Done]:
        (wtxtgit.folder / "x.bin").write_bytes(b"x")

        def run(key: Path, content: bytes = b"") -> Done:
            return with_fd(wtxtgit, content, "emit", "x.bin", "-o", "x.wtxt", "--sign", key)

        return run

    def test_a_key_behind_a_passphrase(self, wtxtgit: Command, emit: Callable[..., Done]) -> None:
        key = generate("k")
        plain = format_secret_key(key)
        file = private(wtxtgit.folder / "k", armored(encrypted(plain, WORDS)))
        done = emit(file, WORDS.encode())
        assert done.code == 0, done
        public = private(wtxtgit.folder / "k.pub", keygen_line(key.public_key))
        verified = wtxtgit("verify", "x.wtxt", "--signers", public, "--require-signed")
        assert verified.code == 0, verified
        wrong = emit(file, b"other words")
        assert wrong.code == 3
        assert wrong.complaint() == f"{file}: the passphrase is wrong or the file is damaged"
        assert_not_shown(key.seed, done.out, done.err, wrong.err)

    def test_a_key_that_others_may_read(self, wtxtgit: Command, emit: Callable[..., Done]) -> None:
        key = generate("k")
        file = private(wtxtgit.folder / "k", format_secret_key(key))
        assert emit(file).code == 0
        file.chmod(0o644)
        done = emit(file)
        assert (done.code, "others can read" in done.complaint()) == (5, True)
        assert f"hint: chmod 600 {file}" in done.err
        assert_not_shown(key.seed, done.err)


def keygen_line(public_key: bytes) -> bytes:
    from wtxtgit.trust.openssh import PublicKey, format_public

    return format_public(PublicKey(public_key)).encode() + b"\n"


class TestList:
    def test_nothing(self, repository: Command) -> None:
        assert b"wtxtgit key new" in repository("key", "list").out
        assert json.loads(repository("key", "list", "--json").out) == {"keys": []}
        assert b"wtxtgit signers add" in repository("signers", "list").out
        shown = repository("key", "show")
        assert (shown.code, shown.complaint()) == (2, "no keys")

    def test_a_secret_that_others_may_read_does_not_hide_the_rest(self, wtxtgit: Command) -> None:
        for name in ("a", "b"):
            wtxtgit("key", "new", "--name", name, "--no-passphrase")
        (ring(wtxtgit) / "a").chmod(0o644)
        rows = wtxtgit("key", "list").out.decode().splitlines()[1:]
        assert [(row.split()[0], row.split()[-1]) for row in rows] == [("a", "?"), ("b", "no")]

    def test_of_several_keys_one_is_named(self, wtxtgit: Command) -> None:
        for name in ("a", "b"):
            wtxtgit("key", "new", "--name", name, "--no-passphrase")
        assert wtxtgit("key", "show").code == 2
        assert wtxtgit("key", "show", "a").out.endswith(b" a\n")
        assert wtxtgit("key", "show", "c").complaint() == 'no key "c"'


def test_outside_of_a_repository_there_are_no_signers(wtxtgit: Command) -> None:
    done = wtxtgit("signers", "list")
    assert (done.code, done.complaint()) == (5, "not in a git repository")
