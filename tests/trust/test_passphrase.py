"""Secret files behind a passphrase."""

from __future__ import annotations

from base64 import b64decode

import pyrage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trust.age_files import armored, encrypted
from tests.trust.secrets_shown import assert_not_shown
from tests.trust.test_keys import KEY, SEED
from wtxtgit.trust.age import scrypt
from wtxtgit.trust.age.scrypt import MAX_WORK
from wtxtgit.trust.keyring import PassphraseError, is_protected, protect, unprotect
from wtxtgit.trust.openssh import KeyFileError, format_secret_key

pytestmark = pytest.mark.slow

WORDS = "correct horse battery"
PLAIN = format_secret_key(KEY)


@pytest.fixture(scope="module")
def protected() -> bytes:
    return protect(PLAIN, WORDS)


def test_what_is_protected_is_opened_with_the_passphrase_alone(protected: bytes) -> None:
    assert is_protected(protected)
    assert not is_protected(PLAIN)
    assert_not_shown(SEED, protected, b64decode(b"".join(protected.splitlines()[1:-1])))
    assert unprotect(protected, WORDS, "k") == PLAIN
    with pytest.raises(PassphraseError, match="k: the passphrase is wrong") as caught:
        unprotect(protected, WORDS + "!", "k")
    assert WORDS not in str(caught.value)
    assert_not_shown(SEED, str(caught.value), repr(caught.value))


def test_it_is_a_file_of_age(protected: bytes) -> None:
    opened: bytes = pyrage.passphrase.decrypt(protected, WORDS)
    assert opened == PLAIN
    assert protected.startswith(b"-----BEGIN AGE ENCRYPTED FILE-----\n")
    assert max(map(len, protected.splitlines())) == 64


def test_the_file_of_another_writer_is_read() -> None:
    content = armored(encrypted(PLAIN, WORDS))
    assert unprotect(content, WORDS, "k") == PLAIN
    assert unprotect(b"\n" + content.replace(b"\n", b"\r\n"), WORDS, "k") == PLAIN


@pytest.mark.parametrize("claimed", [MAX_WORK + 1, 23, 30, 63, 99])
def test_a_file_that_asks_for_too_much_work_is_refused_at_once(
    claimed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> bytes:
        raise AssertionError("the work is done")

    monkeypatch.setattr(scrypt, "Scrypt", never)
    with pytest.raises(KeyFileError, match=f"2\\^{claimed}"):
        unprotect(armored(encrypted(PLAIN, WORDS, claimed=claimed)), WORDS, "k")


def test_files_for_other_recipients_are_refused() -> None:
    identity = pyrage.x25519.Identity.generate()
    binary: bytes = pyrage.encrypt(PLAIN, [identity.to_public()])
    two = encrypted(PLAIN, WORDS).replace(b"\n---", b"\n-> scrypt x 1\nx\n---", 1)
    for content in (binary, two, b"", b"age-encryption.org/v1\n"):
        with pytest.raises(KeyFileError, match=r"k: (it opens with a key|.*age)"):
            unprotect(armored(content), WORDS, "k")


@pytest.mark.parametrize("content", [b"", PLAIN, armored(b"x")[:-5], armored(bytes(70_000))])
def test_what_is_no_armored_file_is_refused(content: bytes) -> None:
    with pytest.raises(KeyFileError, match=r"k: the (age header|armor) is damaged"):
        unprotect(content, WORDS, "k")


@pytest.mark.parametrize("words", ["", "x" * 1025, "\udcff"])
def test_what_is_no_passphrase_is_refused(words: str) -> None:
    with pytest.raises(PassphraseError):
        protect(PLAIN, words)
    with pytest.raises(PassphraseError):
        unprotect(armored(encrypted(PLAIN, WORDS)), words, "k")


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_raises_our_error_alone(at: int, bits: int) -> None:
    content = bytearray(encrypted(PLAIN, WORDS, 1))
    content[at % len(content)] ^= bits
    if b" 1\n" not in bytes(content[:60]):
        return  # another cost; that it is bounded is tested above
    with pytest.raises(KeyFileError) as caught:
        unprotect(armored(bytes(content)), WORDS, "k")
    assert_not_shown(SEED, str(caught.value))
