"""Signatures, authentication and pending texts, through what users call."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacl.signing import SigningKey

import wtxtgit
from tests.data import FIXTURES, signers_lines, ssh_wire
from wtxtgit.checkpoint.emit import NewGeneration, emit, write_text
from wtxtgit.checkpoint.verify import demands, verify_files
from wtxtgit.checkpoint.wsum import write_wsum, wsum_path
from wtxtgit.errors import InputError, TextError, WtxtgitError
from wtxtgit.model.array import Meta, Signature
from wtxtgit.text import digest
from wtxtgit.text.digest import SignatureState, keyid
from wtxtgit.text.verify import verify
from wtxtgit.trust.openssh import KeyFileError, SecretKey, parse_secret_key, parse_signers

SEED = bytes(range(32))
PUBLIC = bytes(SigningKey(SEED).verify_key)
OTHER = bytes(SigningKey(bytes(32)).verify_key)
ARRAYS = {"W": np.arange(6.0).reshape(2, 3)}
MODEL = FIXTURES / "plain" / "mixed_meta_a.safetensors"
KEYGEN = shutil.which("ssh-keygen")
needs_keygen = pytest.mark.skipif(
    KEYGEN is None, reason="ssh-keygen is not installed: apt install openssh-client"
)


def sign(message: bytes) -> Signature:
    return digest.sign(SEED, message)


TEXT = wtxtgit.dumps(ARRAYS, sign=sign)


@pytest.mark.parametrize(
    ("keys", "state"),
    [
        ([], SignatureState.UNKNOWN_KEY),
        ([OTHER], SignatureState.UNKNOWN_KEY),
        ([PUBLIC], SignatureState.VALID),
        ([OTHER, PUBLIC], SignatureState.VALID),
    ],
)
def test_a_signature_is_valid_only_with_its_key(keys: list[bytes], state: SignatureState) -> None:
    report = verify(memoryview(TEXT), public_keys=keys)
    assert report.ok
    assert report.signature is state
    assert report.keyid == keyid(PUBLIC)


def test_a_signature_is_what_nacl_checks() -> None:
    head = TEXT[: TEXT.index(b"sign ")]
    SigningKey(SEED).verify_key.verify(head, sign(head).signature)


@pytest.mark.parametrize("field", [b"schema=weights", b"host=any", b"cuda=off", b"cap ext=crc32c"])
def test_header_fields_that_no_hash_covers_are_covered_by_the_signature(field: bytes) -> None:
    changed = TEXT.replace(field, field[:-1] + b"x", 1)
    assert changed != TEXT
    assert verify(memoryview(changed)).ok
    report = verify(memoryview(changed), public_keys=[PUBLIC])
    assert report.signature is SignatureState.INVALID
    assert [problem.kind for problem in report.problems] == ["signature"]


def test_a_signature_of_another_text_is_invalid() -> None:
    line = TEXT[TEXT.index(b"sign ") : TEXT.index(b"arr ")]
    other = wtxtgit.dumps({"W": np.ones((2, 3))}, sign=sign)
    moved = other.replace(other[other.index(b"sign ") : other.index(b"arr ")], line)
    report = verify(memoryview(moved), public_keys=[PUBLIC])
    assert [problem.kind for problem in report.problems] == ["signature"]


def test_a_key_that_borrows_the_keyid_does_not_pass() -> None:
    line = TEXT[TEXT.index(b"sign ") : TEXT.index(b"arr ")]
    forged = line.replace(keyid(PUBLIC).encode(), keyid(OTHER).encode())
    report = verify(memoryview(TEXT.replace(line, forged)), public_keys=[OTHER, PUBLIC])
    assert report.signature is SignatureState.INVALID


def test_another_generation_is_not_signed_with_the_old_signature() -> None:
    weights = wtxtgit.loads(TEXT, public_keys=[PUBLIC])
    assert weights.snapshot.signature is not None
    again = wtxtgit.loads(wtxtgit.dumps(weights, meta=Meta(gen=9)))
    assert again.snapshot.signature is None


def test_a_wrong_hmac_key_is_an_error_and_the_right_one_authenticates() -> None:
    text = wtxtgit.dumps(ARRAYS, hmac_key=b"right")
    assert wtxtgit.loads(text, hmac_key=b"right").report.authenticated
    assert not wtxtgit.loads(text).report.authenticated
    with pytest.raises(TextError) as caught:
        wtxtgit.loads(text, hmac_key=b"wrong")
    assert caught.value.kind == "hmac"


def test_a_generation_that_is_rotated_has_other_salts() -> None:
    one = wtxtgit.dumps(ARRAYS, hmac_key=b"k", meta=Meta(gen=1))
    two = wtxtgit.dumps(ARRAYS, hmac_key=b"k", meta=Meta(gen=2))
    salts = [text[text.index(b"salt=") :][:21] for text in (one, two)]
    assert salts[0] != salts[1]


def pending(tmp_path: Path, **more: Any) -> tuple[bytes, bytes, Path]:
    out = tmp_path / "m.wtxt"
    emission = emit(MODEL, NewGeneration(gen=4, pending=True, **more))
    write_text(emission, out)
    assert emission.writer is not None
    write_wsum(wsum_path(out), emission.writer.wsum())
    return out.read_bytes(), wsum_path(out).read_bytes(), out


def test_a_pending_text_holds_with_its_wsum_and_never_alone(tmp_path: Path) -> None:
    text, wsum, out = pending(tmp_path)
    assert [p.kind for p in verify(memoryview(text)).problems] == ["pending"]
    report = verify(memoryview(text), wsum=wsum)
    assert report.ok
    assert report.signature is SignatureState.ABSENT
    assert report.is_container
    assert wsum.startswith(b"WSUM 1 sha256_all=")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.wtxt", "m.wtxt.root.wsum"]
    assert verify_files([out], demands(wsum=wsum_path(out))).ok


def test_the_wsum_of_a_pending_text_is_the_root_of_the_finished_one(tmp_path: Path) -> None:
    _, wsum, _ = pending(tmp_path)
    done = emit(MODEL, NewGeneration(gen=4))
    assert done.writer is not None
    root = done.writer.root
    assert wsum == (
        b"WSUM 1 sha256_all=%b merkle_prev=%b merkle_this=%b\n"
        % tuple(
            part.hex().encode() for part in (root.sha256_all, root.merkle_prev, root.merkle_this)
        )
    )


@pytest.mark.parametrize("field", [b"sha256_all=", b"merkle_prev=", b"merkle_this="])
def test_a_changed_wsum_is_refused(field: bytes, tmp_path: Path) -> None:
    text, wsum, _ = pending(tmp_path)
    at = wsum.index(field) + len(field)
    changed = wsum[:at] + (b"0" if wsum[at : at + 1] != b"0" else b"1") + wsum[at + 1 :]
    assert not verify(memoryview(text), wsum=changed).ok


def test_the_wsum_of_another_text_is_refused(tmp_path: Path) -> None:
    _, wsum, _ = pending(tmp_path)
    other = wtxtgit.dumps(ARRAYS, pending=True, meta=Meta(gen=4))
    assert "root" in {p.kind for p in verify(memoryview(other), wsum=wsum).problems}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A secret key as ssh-keygen writes it."""
    if KEYGEN is None:
        pytest.skip("ssh-keygen is not installed: apt install openssh-client")
    return keygen(tmp_path / "id_ed25519", "ed25519")


def keygen(path: Path, kind: str, passphrase: str = "", *more: str) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "a b@c", "-f", str(path), *more],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return path


def test_a_pending_text_is_signed_in_its_wsum(tmp_path: Path, key_file: Path) -> None:
    text, wsum, out = pending(tmp_path, sign=key_file)
    assert b"\nsign " not in text
    assert b" sign=" in wsum
    public = key_file.with_suffix(".pub")
    for given, state in (((), "unknown-key"), ((public,), "valid")):
        keys = demands(wsum=wsum_path(out), signers=given[0] if given else None)
        verdict = verify_files([out], keys)
        assert verdict.ok
        assert verdict.files[0].signature == state
    (tmp_path / "others").write_bytes(signers_lines((OTHER,)))
    verdict = verify_files([out], demands(wsum=wsum_path(out), signers=tmp_path / "others"))
    assert verdict.exit_code == 4


def test_a_key_of_ssh_keygen_signs_and_its_pub_file_verifies(
    tmp_path: Path, key_file: Path
) -> None:
    out = tmp_path / "m.wtxt"
    write_text(emit(MODEL, NewGeneration(gen=1, sign=key_file)), out)
    verdict = verify_files(
        [out], demands(signers=key_file.with_suffix(".pub"), require_signed=True)
    )
    assert verdict.ok
    assert verdict.files[0].signature == "valid"
    secret = parse_secret_key(key_file.read_bytes(), "k")
    (signer,) = parse_signers(key_file.with_suffix(".pub").read_bytes(), "k")
    assert signer.public_key == secret.public_key
    assert bytes(SigningKey(secret.seed).verify_key) == secret.public_key
    assert signer.comment == "a b@c"


@needs_keygen
def test_a_key_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    path = keygen(tmp_path / "locked", "ed25519", "secret words")
    with pytest.raises(KeyFileError, match="passphrase"):
        parse_secret_key(path.read_bytes(), "locked")


@needs_keygen
@pytest.mark.parametrize(("kind", "bits"), [("rsa", "1024"), ("ecdsa", "256")])
def test_a_key_of_another_type_is_refused(kind: str, bits: str, tmp_path: Path) -> None:
    path = keygen(tmp_path / "other", kind, "", "-b", bits)
    with pytest.raises(KeyFileError, match="ed25519"):
        parse_secret_key(path.read_bytes(), "other")
    with pytest.raises(KeyFileError, match="another type"):
        parse_signers(path.with_suffix(".pub").read_bytes(), "other")


@needs_keygen
def test_a_pem_key_and_a_public_key_are_no_secret_keys(tmp_path: Path) -> None:
    path = keygen(tmp_path / "pem", "rsa", "", "-b", "1024", "-m", "PEM")
    for content in (path.read_bytes(), path.with_suffix(".pub").read_bytes(), b"", b"\xff" * 99):
        with pytest.raises(KeyFileError):
            parse_secret_key(content, "k")


def test_no_error_about_a_damaged_key_shows_any_of_it(key_file: Path) -> None:
    content = key_file.read_bytes()
    lines = content.splitlines()
    body = b"".join(lines[1:-1])
    seed = parse_secret_key(content, "k").seed
    shown = []
    for at in range(0, len(content), 3):
        for changed in (content[:at] + content[at + 1 :], content[:at] + b"A" + content[at + 1 :]):
            try:
                key = parse_secret_key(changed, "k")
            except KeyFileError as error:
                shown += [str(error), repr(error), str(error.hint)]
            else:
                shown.append(repr(key))
    for said in shown:
        for start in range(0, len(body) - 12):
            assert body[start : start + 12].decode() not in said
        for start in range(0, len(seed) - 4):
            assert seed[start : start + 4].hex() not in said
            assert repr(seed[start : start + 4])[2:-1] not in said


def test_a_secret_key_is_not_shown() -> None:
    key = SecretKey(SEED, PUBLIC)
    for said in (repr(key), str(key), repr(replace(key)), f"{key}"):
        assert repr(SEED)[2:20] not in said
        assert "seed" not in said


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n# nothing\n",
        b"a ssh-ed25519 %b\n",
        b"a ssh-ed25519 %b comment with spaces\n",
        b"ssh-ed25519 %b\n",
        b"  a   ssh-ed25519   %b  \n",
        b"a ssh-ed25519 %b\r\n",
        b"a ssh-ed25519 %b",
    ],
)
def test_signers_lines_are_read_as_openssh_writes_them(content: bytes) -> None:
    import base64

    key = base64.b64encode(ssh_wire(PUBLIC))
    signers = parse_signers(content.replace(b"%b", key), "s")
    assert [signer.public_key for signer in signers] == [PUBLIC] * content.count(b"%b")


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"a\n",
        b"a ssh-ed25519\n",
        b"a ssh-rsa AAAA\n",
        b"a ssh-ed25519 ****\n",
        b"a ssh-ed25519 AAAA\n",
        b'a namespaces="git" ssh-ed25519 %b\n',
        b"a cert-authority ssh-ed25519 %b\n",
        b'"a" ssh-ed25519 %b\n',
        b"a ssh-ed25519 %s\n",
        b"a ssh-ed25519 %l\n",
    ],
)
def test_a_line_that_is_no_ed25519_signer_is_refused(content: bytes) -> None:
    import base64

    for sign_, wire in (
        (b"%b", ssh_wire(PUBLIC)),
        (b"%s", ssh_wire(PUBLIC[:31])),
        (b"%l", ssh_wire(PUBLIC) + b"x"),
    ):
        content = content.replace(sign_, base64.b64encode(wire))
    with pytest.raises(KeyFileError) as caught:
        parse_signers(content, "signers")
    assert "signers" in caught.value.message


def test_a_container_is_not_signed_and_a_demand_for_a_signature_says_so() -> None:
    verdict = verify_files([MODEL], demands(require_signed=True))
    assert not verdict.ok


def test_an_empty_or_huge_key_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    for content in (b"", bytes(2**20 + 1)):
        path.write_bytes(content)
        with pytest.raises(InputError):
            verify_files([MODEL], demands(hmac_key=path))


def test_a_text_that_is_emitted_again_is_another_generation(tmp_path: Path) -> None:
    path, out = tmp_path / "a.wtxt", tmp_path / "b.wtxt"
    path.write_bytes(TEXT)
    write_text(emit(path, NewGeneration(gen=5, build="x", audit="a=1")), out)
    weights = wtxtgit.load(out)
    assert (weights.meta.gen, weights.meta.build) == (5, "x")
    assert weights.snapshot.signature is None
    np.testing.assert_array_equal(weights["W"], ARRAYS["W"])


def test_a_pending_text_is_not_emitted_again(tmp_path: Path) -> None:
    _, _, out = pending(tmp_path)
    with pytest.raises(WtxtgitError):
        emit(out, NewGeneration(gen=5))
