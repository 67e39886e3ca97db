"""Keys in OpenSSH's files, written and read, beside ssh-keygen."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from tests.data import signature_cases
from tests.text import edwards
from tests.trust.peers import keygen, needs_keygen, new_key
from tests.trust.secrets_shown import assert_not_shown
from wtxtgit.trust.openssh import (
    KeyFileError,
    PublicKey,
    SecretKey,
    fingerprint,
    format_public,
    format_secret_key,
    generate,
    is_small_order,
    number,
    parse_public,
    parse_public_file,
    parse_secret_key,
    public_blob,
    string,
)

SEED = bytes(range(32))
KEY = SecretKey(SEED, bytes(SigningKey(SEED).verify_key), "alice")
BEGIN, END = b"-----BEGIN OPENSSH PRIVATE KEY-----\n", b"-----END OPENSSH PRIVATE KEY-----\n"
COMMENTS = st.text(st.characters(categories=["L", "N", "P"]), max_size=40)


def blob(inner: bytes, public: bytes = KEY.public_key, count: int = 1, more: bytes = b"") -> bytes:
    """A private key file around a private part."""
    head = b"openssh-key-v1\0" + string(b"none") * 2 + string(b"") + number(count)
    return (
        BEGIN + b64encode(head + string(public_blob(public)) + string(inner) + more) + b"\n" + END
    )


def inner(
    seed: bytes = SEED,
    public: bytes = KEY.public_key,
    check: bytes = b"abcdabcd",
    comment: bytes = b"x",
    padding: bytes | None = None,
) -> bytes:
    held = check + string(b"ssh-ed25519") + string(public) + string(seed + public) + string(comment)
    return held + (bytes(range(1, -len(held) % 8 + 1)) if padding is None else padding)


def typed(kind: bytes) -> bytes:
    """A private key file whose key is of this type."""
    return blob(b"abcdabcd" + string(kind) + bytes(100))


class TestSecretKeys:
    @given(st.binary(min_size=32, max_size=32), COMMENTS)
    def test_what_is_written_is_read_back(self, seed: bytes, comment: str) -> None:
        key = SecretKey(seed, bytes(SigningKey(seed).verify_key), comment)
        assert parse_secret_key(format_secret_key(key), "k") == key

    def test_generated_keys_differ_and_fit(self) -> None:
        one, two = generate("a"), generate("a")
        assert one.seed != two.seed
        assert bytes(SigningKey(one.seed).verify_key) == one.public_key

    @needs_keygen
    def test_ssh_keygen_reads_it(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        path.write_bytes(format_secret_key(KEY))
        path.chmod(0o600)
        public = keygen("-y", "-f", path).decode().strip()
        assert public == format_public(PublicKey(KEY.public_key, "alice"))
        told = keygen("-l", "-f", path).decode().split()
        assert told[:3] == ["256", fingerprint(KEY.public_key), "alice"]

    @needs_keygen
    def test_it_reads_what_ssh_keygen_writes(self, tmp_path: Path) -> None:
        path = new_key(tmp_path / "key")
        key = parse_secret_key(path.read_bytes(), "k")
        public = parse_public_file(path.with_suffix(".pub").read_bytes(), "k.pub")
        assert (key.public_key, key.comment) == (public.key, public.comment)
        assert key.comment == "a b@c"
        assert format_public(public) + "\n" == path.with_suffix(".pub").read_text()

    def test_the_spelling_that_the_tests_change_is_read(self) -> None:
        assert parse_secret_key(blob(inner()), "k") == replace(KEY, comment="x")
        assert parse_secret_key(blob(inner(comment=b"\xff\n")), "k").comment == ""

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (blob(inner(check=b"abcdabce")), "check numbers"),
            (blob(inner(seed=bytes(32))), "does not belong to the secret"),
            (blob(inner(), public=bytes(32)), "does not belong to the secret"),
            (blob(inner(), count=2), "exactly one"),
            (blob(inner(), more=b"x"), "extra data follows"),
            (blob(inner(padding=b"\1\2\3\4\5\6\7\x08")), "extra data follows"),
            (blob(inner(padding=b"\2")), "extra data follows"),
            (blob(inner(seed=bytes(31))), "wrong size"),
            (blob(inner()[:-30]), "cut short"),
            (typed(b"sk-ssh-ed25519@openssh.com"), "is a key on a token"),
            (typed(b"ssh-rsa"), "ssh-rsa is another type of key"),
            (typed(b"\xff\n"), "not an ed25519 key"),
            (BEGIN + b"****" + END, "base64"),
            (BEGIN + END, "openssh-key-v1"),
            (b"", "not an OpenSSH private key"),
            (b"\xff" * 99, "not an OpenSSH private key"),
        ],
    )
    def test_what_is_refused(self, content: bytes, said: str) -> None:
        with pytest.raises(KeyFileError, match=said) as caught:
            parse_secret_key(content, "FILE")
        assert caught.value.message.startswith("FILE: ")
        assert_not_shown(SEED, str(caught.value), repr(caught.value), str(caught.value.hint))

    @given(st.binary(max_size=300))
    def test_anything_inside_raises_our_error_alone(self, data: bytes) -> None:
        content = BEGIN + b64encode(b"openssh-key-v1\0" + data) + b"\n" + END
        with pytest.raises(KeyFileError):
            parse_secret_key(content, "k")

    @given(st.integers(0, 10_000), st.integers(1, 255))
    def test_a_changed_byte_raises_our_error_or_leaves_the_key(self, at: int, bits: int) -> None:
        content = bytearray(blob(inner()))
        body = bytearray(b64decode(content[len(BEGIN) : -len(END)]))
        body[at % len(body)] ^= bits
        try:
            key = parse_secret_key(BEGIN + b64encode(body) + b"\n" + END, "k")
        except KeyFileError as error:
            assert_not_shown(SEED, str(error), repr(error))
        else:
            assert key.seed == SEED

    def test_no_secret_is_shown(self) -> None:
        for said in (repr(KEY), str(KEY), f"{KEY}", repr([KEY])):
            assert_not_shown(SEED, said)
        assert "alice" in repr(KEY)


class TestSmallOrder:
    def spellings(self) -> list[bytes]:
        """All 32 bytes that a library may take for a point of small order."""
        ys = {y for _, y in edwards.torsion()}
        ys |= {y + edwards.P for y in ys if y + edwards.P < 2**255}
        return [(y | sign).to_bytes(32, "little") for y in ys for sign in (0, 2**255)]

    def test_each_is_refused_by_name(self) -> None:
        assert len(self.spellings()) == 14
        for key in self.spellings():
            assert is_small_order(key)
            with pytest.raises(KeyFileError, match="k: a key of small order"):
                parse_public(format_public(PublicKey(key)), "k")

    def test_so_are_those_of_the_vectors(self) -> None:
        cases = [case for case in signature_cases() if case.name.startswith("a_small_")]
        assert len(cases) == 8
        for case in cases:
            with pytest.raises(KeyFileError, match="small order"):
                parse_public(format_public(PublicKey(case.public_key)), "k")

    @given(st.binary(min_size=32, max_size=32))
    def test_no_other_key_is(self, seed: bytes) -> None:
        assert not is_small_order(bytes(SigningKey(seed).verify_key))
        assert is_small_order(seed) is (seed in self.spellings())


class TestPublicKeys:
    @given(st.binary(min_size=32, max_size=32).filter(lambda k: not is_small_order(k)), COMMENTS)
    def test_what_is_written_is_read_back(self, key: bytes, comment: str) -> None:
        public = PublicKey(key, comment)
        assert parse_public(format_public(public), "k") == public

    @needs_keygen
    def test_the_fingerprint_is_that_of_ssh_keygen(self, tmp_path: Path) -> None:
        for _ in range(3):
            key = os.urandom(32)
            (tmp_path / "k.pub").write_text(format_public(PublicKey(key, "c")) + "\n")
            assert keygen("-l", "-f", tmp_path / "k.pub").decode().split()[1] == fingerprint(key)

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "neither ssh-ed25519 nor an option"),
            (b"ssh-ed25519\n", "not of the form"),
            (b"ssh-rsa AAAA\n", "FILE: ssh-rsa is another type of key"),
            (b"sk-ssh-ed25519@openssh.com AAAA\n", "FILE: .* is a key on a token"),
            (b"ssh-ed25519-cert-v01@openssh.com AAAA\n", "FILE: .* is a certificate"),
            (b"ssh-ed25519 ****\n", "base64"),
            (b"ssh-ed25519 \xc3\xa9\n", "base64"),
            (b"ssh-ed25519 AAAA\n", "not an ed25519"),
            (b"\xff\n", "UTF-8"),
            (b"a\nb\n", "single line"),
            (format_secret_key(KEY), "a secret key"),
        ],
    )
    def test_what_is_refused(self, content: bytes, said: str) -> None:
        with pytest.raises(KeyFileError, match=said) as caught:
            parse_public_file(content, "FILE")
        assert_not_shown(SEED, str(caught.value))

    @pytest.mark.parametrize("comment", ["a\nb", "\x1b[2J", " a", "a ", "x" * 201, "\u202e"])
    def test_a_comment_that_no_line_should_hold(self, comment: str) -> None:
        with pytest.raises(KeyFileError, match="comment"):
            generate(comment)
