"""age files are those of other tools, and nothing of a damaged one is taken for content."""

from __future__ import annotations

import shutil
import subprocess
from itertools import repeat
from pathlib import Path

import pyrage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trust.age_files import armored as armored_by_another
from tests.trust.age_files import encrypted as encrypted_by_another
from wtxtgit.errors import AgeError
from wtxtgit.io.view import Windowed, mapped, pieces
from wtxtgit.trust.age import armor, header, identities, payload, recipients, scrypt
from wtxtgit.trust.age.identities import AgeIdentity, NoIdentityError, Passphrase, opened
from wtxtgit.trust.openssh import (
    KeyFileError,
    PublicKey,
    format_public,
    format_secret_key,
    generate,
)

WORDS = Passphrase("correct horse")
SECRET = pyrage.x25519.Identity.generate()
OTHER = pyrage.x25519.Identity.generate()
SSH = generate("tests")
(KEY,) = identities.parse_file(str(SECRET).encode(), "k")
(OTHER_KEY,) = identities.parse_file(str(OTHER).encode(), "k")
(SSH_KEY,) = identities.parse_file(format_secret_key(SSH), "k")
CHUNK = 64 * 1024
PUBLIC = format_public(PublicKey(SSH.public_key, "tests"))
TWO = recipients.parse_file(f"# team\n\n{SECRET.to_public()}\n{PUBLIC}\n".encode(), "list")
SIZES = (0, 1, 47, 48, 49, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 5)
"""Around the ends of lines and chunks."""


def content(size: int) -> bytes:
    return bytes(number * 7 % 251 for number in range(size))


def encrypted(plain: bytes) -> bytes:
    """For both keys."""
    written: list[bytes] = []
    recipients.encrypt([plain[:10], b"", plain[10:]], TWO, written.append)
    return b"".join(written)


def behind_words(plain: bytes, work: int = 2) -> bytes:
    return b"".join(scrypt.encrypted([plain], WORDS.words, work))


def plain_of(data: bytes, *keys: AgeIdentity) -> bytes:
    return b"".join(pieces(opened(memoryview(data), keys, "f"), 1000))


@pytest.mark.parametrize("size", SIZES)
def test_what_is_encrypted_is_opened_by_each_key(size: int) -> None:
    plain = content(size)
    data = encrypted(plain)
    for key in (KEY, SSH_KEY):
        assert plain_of(data, OTHER_KEY, key) == plain
    assert plain_of(behind_words(plain), WORDS) == plain


@pytest.mark.parametrize("size", SIZES)
def test_another_library_reads_and_writes_the_same_files(size: int) -> None:
    plain = content(size)
    assert pyrage.decrypt(encrypted(plain), [SECRET]) == plain
    assert pyrage.passphrase.decrypt(behind_words(plain), WORDS.words) == plain
    for is_armored in (True, False):
        data = pyrage.encrypt(plain, [OTHER.to_public(), SECRET.to_public()], armored=is_armored)
        assert plain_of(data, KEY) == plain
    if size <= CHUNK:
        theirs = encrypted_by_another(plain, WORDS.words)
        assert plain_of(theirs, WORDS) == plain_of(armored_by_another(theirs), WORDS) == plain


@pytest.mark.skipif(
    shutil.which("age") is None, reason="age, the program, is not installed: apt install age"
)
def test_the_program_reads_and_writes_the_same_files(tmp_path: Path) -> None:
    def age(*arguments: str, stdin: bytes) -> bytes:
        done = subprocess.run(["age", *arguments], input=stdin, capture_output=True, check=True)
        return done.stdout

    key, ssh, listed = tmp_path / "key", tmp_path / "ssh", tmp_path / "list"
    key.write_text(f"# created: today\n{SECRET}\n")
    ssh.touch(mode=0o600)
    ssh.write_bytes(format_secret_key(SSH))
    listed.write_text(f"{SECRET.to_public()}\n{PUBLIC}\n")
    plain = content(2 * CHUNK + 3)
    for file in (key, ssh):
        assert age("-d", "-i", str(file), stdin=encrypted(plain)) == plain
    for armors in ([], ["-a"]):
        data = age(*armors, "-R", str(listed), stdin=plain)
        assert plain_of(data, KEY) == plain_of(data, SSH_KEY) == plain


def test_a_part_is_opened_without_the_rest() -> None:
    plain = content(4 * CHUNK)
    data = bytearray(encrypted(plain))
    # In the second chunk's lines.
    data[len(data) // 4 + 40_000] ^= 1
    view = opened(memoryview(data), [KEY], "f")
    assert isinstance(view, Windowed)
    assert bytes(view[3 * CHUNK - 9 : 3 * CHUNK + 9]) == plain[3 * CHUNK - 9 : 3 * CHUNK + 9]
    assert len(view) == len(plain)
    with pytest.raises(AgeError, match=r"chunk 2 of 4|armor"):
        bytes(view[CHUNK : CHUNK + 1])


def test_who_is_no_recipient_is_told_so() -> None:
    with pytest.raises(NoIdentityError, match="f: no identity matched any of the recipients"):
        plain_of(encrypted(b"x"), OTHER_KEY)
    with pytest.raises(NoIdentityError, match="f: it opens with a key, not a passphrase"):
        plain_of(encrypted(b"x"), WORDS)
    with pytest.raises(NoIdentityError, match="f: it opens with a passphrase, not a key"):
        plain_of(behind_words(b"x"), KEY)
    with pytest.raises(NoIdentityError, match="f: the passphrase is wrong"):
        plain_of(behind_words(b"x"), Passphrase("other"))


def parts(size: int) -> tuple[bytes, int, list[bytes]]:
    """A file without armor, where its payload begins, and the sealed chunks."""
    binary = bytes(mapped(armor.dearmored(memoryview(encrypted(content(size))), "f")))
    start = header.parse(memoryview(binary), "f").nbytes + 16
    step = CHUNK + 16
    return binary, start, [binary[at : at + step] for at in range(start, len(binary), step)]


DAMAGE = {
    "cut after a chunk": lambda chunks: chunks[:-1],
    "cut within a chunk": lambda chunks: [*chunks[:-1], chunks[-1][:-1]],
    "nothing but the nonce": lambda _: [],
    "two chunks swapped": lambda chunks: [chunks[1], chunks[0], *chunks[2:]],
    "a chunk twice": lambda chunks: [chunks[0], *chunks],
    "a byte more": lambda chunks: [*chunks, b"x"],
    "another file behind it": lambda chunks: [*chunks, encrypted(b"x")],
    "a changed byte": lambda chunks: [*chunks[:-1], bytes([chunks[-1][0] ^ 1]) + chunks[-1][1:]],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("size", [3 * CHUNK, 2 * CHUNK + 100])
def test_nothing_of_a_damaged_file_counts(damage: str, size: int) -> None:
    binary, start, chunks = parts(size)
    bad = binary[:start] + b"".join(DAMAGE[damage](chunks))
    for data in (bad, b"".join(armor.armored([bad]))):
        with pytest.raises(AgeError, match="f: "):
            plain_of(data, KEY)


def test_a_header_that_was_changed_is_refused() -> None:
    binary, *_ = parts(10)
    head, mac, rest = binary.partition(b"\n---")
    more = head + b"\n-> other a b\nAAAA" + mac + rest
    with pytest.raises(AgeError, match="changed after it was written"):
        plain_of(more, KEY)
    for bad in (
        binary.replace(b"-> X25519", b"-> X25519 a", 1),
        binary.replace(b"/v1", b"/v2", 1),
        head + b"\n\n" + mac + rest,
        binary[: len(head) // 2],
        b"age-encryption.org/v1\n" + b"-> a\n\n" * 200_000,
        b"age-encryption.org/v1\n" + b"-> a\n" + b"A" * 64_000_000,
        b"age-encryption.org/v1\n--- " + b"A" * 43 + b"\n" + bytes(40),
    ):
        with pytest.raises(AgeError, match="f: "):
            plain_of(bad, KEY)


def test_a_passphrase_beside_keys_is_refused() -> None:
    data = bytes(mapped(armor.dearmored(memoryview(behind_words(b"x")), "f")))
    stanza = header.format_stanza(header.Stanza("X25519", ("A" * 43,), bytes(32)))
    with pytest.raises(AgeError, match="age does not allow"):
        plain_of(data.replace(b"\n--- ", b"\n" + stanza + b"--- ", 1), WORDS)


@pytest.mark.parametrize("work", ["22", "23", "63", "99", "100", "0", "018", "-1", "1e1", "\u0661"])
def test_too_much_work_is_refused_before_it_is_done(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrypt, "Scrypt", None)
    stanza = header.Stanza("scrypt", ("A" * 22, work), bytes(32))
    with pytest.raises(AgeError, match=r"f: (its scrypt cost|the age header)"):
        scrypt.unwrapped(stanza, "x", "f")


def test_a_point_that_has_no_secret_is_refused() -> None:
    stanza = header.Stanza("X25519", ("A" * 43,), bytes(32))
    with pytest.raises(AgeError, match="without a secret"):
        KEY.unwrapped(stanza, "f")


SPACE = b" \t\r\n"
# Headers have a part of a random length: one that leaves the last line with padding.
ARMOR = next(one for one in map(encrypted, repeat(content(5000))) if b"=\n" in one)
LINES = ARMOR.splitlines(keepends=True)


def test_what_mail_and_git_change_of_an_armor_is_undone() -> None:
    for data in (
        ARMOR.replace(b"\n", b"\r\n"),
        b" \n\t\n" + ARMOR + b"\r\n \n",
        ARMOR.removesuffix(b"\n"),
    ):
        assert plain_of(data, KEY) == content(5000)


BAD_ARMOR = {
    "no end": ARMOR.rpartition(b"-----END")[0],
    "words before": b"hello\n" + ARMOR,
    "words after": ARMOR + b"hello\n",
    "a second armor": ARMOR + ARMOR,
    "much space": ARMOR + b" " * 2000,
    "headers": b"".join([LINES[0], b"Version: 1\n", *LINES[1:]]),
    "an empty line": b"".join([*LINES[:5], b"\n", *LINES[5:]]),
    "a space at a line's end": b"".join([*LINES[:5], LINES[5][:-1] + b" \n", *LINES[6:]]),
    "a space before a line": b"".join([*LINES[:5], b" " + LINES[5], *LINES[6:]]),
    "76 columns": LINES[0]
    + b"".join(ARMOR[35:-34].replace(b"\n", b"")[at : at + 76] + b"\n" for at in range(0, 6000, 76))
    + LINES[-1],
    "two lines in one": b"".join([*LINES[:5], LINES[5][:-1], *LINES[6:]]),
    "a line less": b"".join([*LINES[:5], *LINES[6:]]),
    "lines swapped": b"".join([*LINES[:40], LINES[41], LINES[40], *LINES[42:]]),
    "some CRLF": b"".join([*LINES[:5], LINES[5][:-1] + b"\r\n", *LINES[6:]]),
    "no padding": ARMOR.replace(b"=", b""),
    "padding within": b"".join([*LINES[:5], LINES[5][:-3] + b"==\n", *LINES[6:]]),
    "another character": b"".join([*LINES[:5], b"_" + LINES[5][1:], *LINES[6:]]),
    "another type": ARMOR.replace(b"AGE ENCRYPTED", b"PGP ENCRYPTED"),
    "a checksum": b"".join([*LINES[:-1], b"=aBcD\n", LINES[-1]]),
    "nothing": LINES[0] + LINES[-1],
    "one line": LINES[0],
}


@pytest.mark.parametrize("kind", BAD_ARMOR)
def test_armor_that_is_not_strict_is_refused(kind: str) -> None:
    with pytest.raises(AgeError, match="f: "):
        plain_of(BAD_ARMOR[kind], KEY)


def test_an_armor_of_any_length_has_one_spelling() -> None:
    for size in range(90, 240):
        plain = content(size)
        data = b"".join(armor.armored([plain[:50], plain[50:]]))
        view = armor.dearmored(memoryview(data), "f")
        assert bytes(view) == plain, size
        assert bytes(view[49:90]) == plain[49:90], size
        last = data.splitlines()[-2]
        # Bits that stand for nothing, in the last line.
        if last.endswith(b"="):
            at = last.rstrip(b"=")[-1:]
            other = bytes([at[0] + 1]) if at not in b"Zz9/" else b"B"
            bad = data.replace(last, last.rstrip(b"=")[:-1] + other + b"=" * last.count(b"="))
            assert is_refused(bad), size


def is_refused(data: bytes) -> bool:
    try:
        bytes(armor.dearmored(memoryview(data), "f"))
    except AgeError:
        return True
    return False


@given(st.integers(0, len(ARMOR) - 1), st.integers(1, 255))
def test_a_changed_byte_raises_our_error_alone(at: int, bits: int) -> None:
    data = bytearray(ARMOR)
    data[at] ^= bits
    # White space around the armor may become other white space, and nothing else.
    if bytes(data).strip(SPACE) == ARMOR.strip(SPACE):
        assert plain_of(bytes(data), KEY, SSH_KEY) == content(5000)
        return
    with pytest.raises(AgeError, match="f: "):
        plain_of(bytes(data), KEY, SSH_KEY)


def test_identity_files_have_several_keys_and_comments() -> None:
    found = identities.parse_file(f"# a\n{SECRET}\r\n\n{OTHER}\n".encode(), "k")
    assert [one.kind for one in found] == ["X25519", "X25519"]
    assert plain_of(encrypted(b"x"), *reversed(found)) == b"x"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "has no identity"),
        (b"# nothing\n", "has no identity"),
        (str(SECRET).encode()[:-1] + b"Q\n", "line 1: not an identity"),
        (str(SECRET.to_public()).encode(), "line 1: not an identity"),
        (b"AGE-PLUGIN-YUBIKEY-1X\n", "which wtxtgit does not run"),
        (b"\xff\xfe", "not an identity file"),
        (b"#\xff\n\xff", "not an identity"),
    ],
    ids=["nothing", "a comment", "mistyped", "public", "plugin", "bytes", "more bytes"],
)
def test_what_is_no_identity_is_refused_and_not_shown(content: bytes, match: str) -> None:
    with pytest.raises(KeyFileError, match=match) as caught:
        identities.parse_file(content, "k")
    assert "AGE-SECRET" not in str(caught.value).replace("AGE-SECRET-KEY-1...", "")


def test_secrets_are_in_no_repr() -> None:
    assert str(SECRET)[16:] not in repr(KEY)
    assert repr(KEY.secret)[2:-1] not in repr(KEY)
    assert repr(SSH.seed)[2:-1] not in repr(SSH_KEY)
    assert WORDS.words not in repr(WORDS)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("age1", "not a recipient"),
        ("", "not a recipient"),
        (f"{SECRET.to_public()}x", "not a recipient"),
        ("age1yubikey1qwt50d05nh5vutpdzmlg5wn80xq5negm4uj9ghv0snvdd3yysf5yw3rhl3t", "plugin"),
        ("ssh-rsa AAAAB3Nza", "ssh-rsa"),
        ("ssh-ed25519 AAAA", "ed25519"),
        (str(SECRET), "a secret key"),
    ],
    ids=["cut", "empty", "longer", "plugin", "rsa", "damaged", "secret"],
)
def test_what_is_no_recipient_is_refused(line: str, match: str) -> None:
    with pytest.raises(KeyFileError, match=match) as caught:
        recipients.parse(line, "list: line 1")
    assert str(SECRET)[16:] not in str(caught.value)
    assert caught.value.message.startswith("list: line 1: ")


def test_what_reading_and_writing_raise_is_raised() -> None:
    def broken() -> object:
        yield b"x"
        raise OSError(5, "read")

    def full(_: bytes) -> None:
        raise OSError(28, "written")

    with pytest.raises(OSError, match="read"):
        recipients.encrypt(broken(), TWO, lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="written"):
        recipients.encrypt([b"x"], TWO, full)


def test_the_size_is_told_without_a_key() -> None:
    for size in SIZES:
        binary = armor.dearmored(memoryview(encrypted(content(size))), "f")
        head = header.parse(binary, "f")
        assert payload.plain_size(len(binary) - head.nbytes, "f") == size
        assert dict(head.counts()) == {"X25519": 1, "ssh-ed25519": 1}
