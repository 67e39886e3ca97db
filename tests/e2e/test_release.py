"""`wtxtgit release` and `verify` of its bundles; docs/spec/release.md has the claim."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.e2e.sealed import LEDGER, MODEL, OTHER, Sealed, checkpoint, text

pytestmark = pytest.mark.slow

PYTHON = str(Path(sys.prefix, "bin", "python"))
"""Not what tests start in its place, which has wtxtgit alone."""
TAG = "v1.0"
PAGE = Path(__file__).parents[2] / "docs/sealing.md"
PEM_PASSPHRASE = b"open"


@pytest.fixture
def tagged(chain: Sealed) -> Sealed:
    """Sealed checkpoints and a README at a tag, beside it the folder `model` with the files."""
    chain.generation(2.0)
    chain.generation(3.0, name=OTHER)
    chain.generation(4.0, name=f"sub/{OTHER}")
    chain.write("README.md", b"a model\n")
    chain.add("README.md")
    chain.commit("readme")
    chain.git("tag", TAG)
    folder = chain.path.parent / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / MODEL).write_bytes(checkpoint(2.0))
    (folder / OTHER).write_bytes(checkpoint(3.0))
    (folder / "sub" / OTHER).write_bytes(checkpoint(4.0))
    return chain


def ec_key(folder: Path, curve: ec.EllipticCurve, passphrase: bytes | None = None) -> Path:
    """A key in PEM, with its public one beside it, in `.pub`."""
    key = ec.generate_private_key(curve)
    protection = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    file = folder / "release.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection))
    file.chmod(0o600)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    file.with_suffix(".pub").write_bytes(public)
    return file


def released(repo: Sealed, *arguments: str, ok: tuple[int, ...] = (0,)) -> Path:
    out = repo.path.parent / "v1.sig"
    repo.call("release", TAG, "--trust-root", "root", "-o", str(out), *arguments, ok=ok)
    return out


def verdict(repo: Sealed, *arguments: str, ok: tuple[int, ...] = (0, 1, 3, 4)) -> dict[str, Any]:
    (told,) = repo.call("verify", "--json", *arguments, ok=ok).report["files"]
    return dict(told)


def kinds(told: dict[str, Any]) -> list[str]:
    return [error["kind"] for error in told["errors"]]


def test_signed_by_a_signer_it_names_what_a_checkout_writes(tagged: Sealed) -> None:
    bundle = released(tagged, "--key", "alice")
    signers = ("--signers", ".wtxt/signers")
    for against in (TAG, str(tagged.path.parent / "model")):
        told = verdict(tagged, str(bundle), *signers, "--against", against, ok=(0,))
        assert told["format"] == "release bundle"
        assert told["warnings"] == []
        assert told["release"] == {
            "tag": TAG,
            "commit": tagged.oid(TAG),
            "files": [
                {"path": MODEL, "sha256": sha256(checkpoint(2.0)).hexdigest()},
                {"path": OTHER, "sha256": sha256(checkpoint(3.0)).hexdigest()},
                {"path": f"sub/{OTHER}", "sha256": sha256(checkpoint(4.0)).hexdigest()},
            ],
        }


@pytest.mark.remote
@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP521R1()], ids=["P-256", "P-521"])
def test_model_signing_verifies_what_an_ec_key_signed(
    tagged: Sealed, tmp_path: Path, curve: ec.EllipticCurve
) -> None:
    key = ec_key(tmp_path, curve)
    bundle = released(tagged, "--key", str(key))
    folder = tagged.path.parent / "model"

    def model_signing() -> int:
        command = [PYTHON, "-m", "model_signing", "verify", "key", str(folder)]
        options = ["--signature", str(bundle), "--public_key", str(key.with_suffix(".pub"))]
        return subprocess.run([*command, *options], capture_output=True, check=False).returncode

    assert model_signing() == 0
    public = ("--public-key", str(key.with_suffix(".pub")))
    verdict(tagged, str(bundle), *public, "--against", str(folder), ok=(0,))
    (folder / MODEL).write_bytes(checkpoint(2.5))
    assert model_signing() != 0
    told = verdict(tagged, str(bundle), *public, "--against", str(folder), ok=(1,))
    assert kinds(told) == ["sha256"]


@pytest.mark.remote
def test_the_line_of_the_page_verifies_a_release_of_all_files(
    tagged: Sealed, tmp_path: Path
) -> None:
    (line,) = re.findall(r"^model_signing verify .*$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert b".gitattributes" in tagged.git("ls-files")
    key = ec_key(tmp_path, ec.SECP256R1())
    bundle = released(tagged, "--key", str(key), "--all-files")
    bundle.rename(tmp_path / "v1.0.sig")
    tagged.git("clone", "-q", "-b", TAG, str(tagged.path), str(tmp_path / "FOLDER"))
    for oid, content in ((MODEL, 2.0), (OTHER, 3.0), (f"sub/{OTHER}", 4.0)):
        (tmp_path / "FOLDER" / oid).write_bytes(checkpoint(content))

    def run() -> subprocess.CompletedProcess[bytes]:
        words = [PYTHON, "-m", *shlex.split(line)]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)

    done = run()
    assert done.returncode == 0, done
    (tmp_path / "FOLDER/.gitattributes").write_bytes(b"* -filter\n")
    assert run().returncode != 0


@pytest.mark.remote
def test_what_model_signing_signs_is_verified(tagged: Sealed, tmp_path: Path) -> None:
    key = ec_key(tmp_path, ec.SECP384R1())
    folder, bundle = tagged.path.parent / "model", tmp_path / "theirs.sig"
    command = [PYTHON, "-m", "model_signing", "sign", "key", str(folder)]
    options = ["--signature", str(bundle), "--private_key", str(key)]
    subprocess.run([*command, *options], capture_output=True, check=True)
    public = ("--public-key", str(key.with_suffix(".pub")))
    for against in (TAG, str(folder)):
        verdict(tagged, str(bundle), *public, "--against", against, ok=(0,))


def test_all_files_are_named_if_that_is_asked_for(tagged: Sealed) -> None:
    bundle = released(tagged, "--key", "alice", "--all-files")
    told = verdict(tagged, str(bundle), "--signers", ".wtxt/signers", "--against", TAG, ok=(0,))
    names = [file["path"] for file in told["release"]["files"]]
    assert {"README.md", LEDGER, MODEL, ".wtxt/signers", ".gitattributes"} <= {*names}
    assert names == sorted(names, key=lambda name: name.split("/"))


def test_a_protected_key_in_pem_is_opened(tagged: Sealed, tmp_path: Path) -> None:
    key = ec_key(tmp_path, ec.SECP256R1(), PEM_PASSPHRASE)
    passphrase = tmp_path / "passphrase"
    passphrase.write_bytes(PEM_PASSPHRASE)
    with passphrase.open("rb") as file:
        released(tagged, "--key", str(key), "--passphrase-fd", str(file.fileno()))
    passphrase.write_bytes(b"another")
    with passphrase.open("rb") as file:
        released(tagged, "--key", str(key), "--passphrase-fd", str(file.fileno()), ok=(3,))


def test_a_dry_run_signs_nothing(tagged: Sealed) -> None:
    out = tagged.path.parent / "v1.sig"
    said = tagged.call("release", TAG, "--trust-root", "root", "-n", "--json", "-o", str(out))
    assert [file["gen"] for file in said.report["files"]] == [2, 2, 1]
    assert "key" not in said.report
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("main", "--trust-root", "root"), 2, "'main' is not a tag"),
        (("", "--trust-root", "root"), 2, "'' is not a tag"),
        (("v9", "--trust-root", "root"), 2, "is not a tag"),
        ((TAG,), 2, "no trust root is given"),
        ((TAG, "--trust-root", "root", "--key", "mallory"), 4, "this key is not trusted"),
    ],
)
def test_what_is_refused(
    tagged: Sealed, arguments: tuple[str, ...], code: int, message: str
) -> None:
    out = tagged.path.parent / "v1.sig"
    said = tagged.call("release", *arguments, "-o", str(out), ok=(code,))
    assert message in said.err
    assert not out.exists()


def test_a_history_that_does_not_hold_is_not_signed(tagged: Sealed) -> None:
    tagged.put(3.0)
    tagged.commit("not sealed")
    tagged.git("tag", "-f", TAG)
    assert not released(tagged, "--key", "alice", ok=(1,)).exists()


def test_a_history_without_signers_is_not_signed(tagged: Sealed) -> None:
    tagged.git("checkout", "-q", "--orphan", "lone")
    tagged.git("rm", "-q", "-r", "--cached", ".wtxt")
    tagged.commit("nobody seals")
    tagged.git("tag", "-f", TAG)
    out = tagged.path.parent / "v1.sig"
    tagged.call("release", TAG, "--trust-root", TAG, "--key", "alice", "-o", str(out), ok=(1, 4))
    assert not out.exists()


def _payload(bundle: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    return told


def _with_payload(bundle: dict[str, Any], payload: dict[str, Any]) -> None:
    spelled = base64.b64encode(json.dumps(payload).encode()).decode()
    bundle["dsseEnvelope"]["payload"] = spelled


def _other_digest(bundle: dict[str, Any]) -> None:
    payload = _payload(bundle)
    payload["predicate"]["resources"][0]["digest"] = sha256(checkpoint(6.6)).hexdigest()
    _with_payload(bundle, payload)


def _spelled_anew(bundle: dict[str, Any]) -> None:
    _with_payload(bundle, _payload(bundle))


def _other_type(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["payloadType"] = "text/plain"


def _two_signatures(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["signatures"] *= 2


def _no_signature(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["signatures"] = []


def _certificate(bundle: dict[str, Any]) -> None:
    bundle["mediaType"] = "application/vnd.dev.sigstore.bundle+json;version=0.2"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (_other_digest, "signature"),
        (_spelled_anew, "signature"),
        (_other_type, "structure"),
        (_two_signatures, "structure"),
        (_no_signature, "structure"),
        (_certificate, "structure"),
    ],
)
def test_a_bundle_that_was_changed_is_refused(
    tagged: Sealed, change: Callable[[dict[str, Any]], None], kind: str
) -> None:
    file = released(tagged, "--key", "alice")
    bundle = json.loads(file.read_bytes())
    change(bundle)
    file.write_bytes(json.dumps(bundle).encode())
    told = verdict(tagged, str(file), "--signers", ".wtxt/signers", "--against", TAG)
    assert kinds(told) == [kind]


def test_a_key_has_to_be_named_and_be_the_signers(tagged: Sealed) -> None:
    bundle = str(released(tagged, "--key", "alice"))
    assert kinds(verdict(tagged, bundle, "--against", TAG, ok=(4,))) == ["signature"]
    mallory = tagged.path.parent / "mallory.pub"
    mallory.write_text(tagged.call("key", "show", "mallory").out)
    other = ("--public-key", str(mallory))
    assert kinds(verdict(tagged, bundle, *other, "--against", TAG, ok=(4,))) == ["signature"]


def test_files_are_those_that_are_named_and_no_links(tagged: Sealed, tmp_path: Path) -> None:
    bundle = str(released(tagged, "--key", "alice"))
    folder = tagged.path.parent / "model"
    asked = (bundle, "--signers", ".wtxt/signers", "--against", str(folder))
    (folder / "code.py").write_bytes(b"import this\n")
    assert [note["kind"] for note in verdict(tagged, *asked, ok=(0,))["warnings"]] == ["unnamed"]
    assert kinds(verdict(tagged, *asked, "--strict", ok=(1,))) == ["unnamed"]
    elsewhere = tmp_path / "elsewhere"
    (folder / "sub").rename(elsewhere)
    (folder / "sub").symlink_to(elsewhere)
    assert kinds(verdict(tagged, *asked, ok=(1,))) == ["missing"]
    (folder / "sub").unlink()
    assert kinds(verdict(tagged, *asked, ok=(1,))) == ["missing"]


def test_what_is_beside_is_seen_in_all_its_forms(tagged: Sealed, tmp_path: Path) -> None:
    bundle = released(tagged, "--key", "alice")
    folder = tagged.path.parent / "model"
    (folder / ".git").mkdir()
    (folder / ".git/config").write_bytes(b"[core]\n")
    shutil.copy(bundle, folder / "v1.sig")
    asked = ("--signers", ".wtxt/signers", "--against", str(folder), "--strict")
    verdict(tagged, str(folder / "v1.sig"), *asked, ok=(0,))

    def is_seen() -> None:
        told = verdict(tagged, str(folder / "v1.sig"), *asked, ok=(1,))
        assert kinds(told) == ["unnamed"]

    # A link to a folder is walked into by nobody, and by whoever imports what is in it.
    (folder / "code").symlink_to(tmp_path)
    is_seen()
    (folder / "code").unlink()
    (folder / "sub/.git").mkdir()
    (folder / "sub/.git/config").write_bytes(b"[core]\n")
    is_seen()
    shutil.rmtree(folder / "sub/.git")
    (folder / "other.sig").symlink_to("v1.sig")
    is_seen()


def test_a_commit_is_as_a_checkout_writes_it(tagged: Sealed) -> None:
    """The blobs are those that were released, and attributes came that change what is written."""
    bundle = str(released(tagged, "--key", "alice", "--all-files"))
    asked = ("--signers", ".wtxt/signers", "--against", "HEAD")
    tagged.write(".git/info/attributes", b"README.md ident\n")
    verdict(tagged, bundle, *asked, ok=(0,))
    # Not read again when attributes change: git has seen it, and it is older than the index.
    os.utime(tagged.path / "README.md", (1_700_000_000, 1_700_000_000))
    tagged.git("add", "README.md")
    for attribute in ("eol=crlf", "ident", "working-tree-encoding=UTF-16", "filter=lfs"):
        tagged.write("sub/.gitattributes", b"other.safetensors -text\n")
        tagged.write(
            ".gitattributes",
            tagged.blob(".gitattributes", TAG) + b"README.md %b\n" % attribute.encode(),
        )
        tagged.commit_all()
        told = verdict(tagged, bundle, *asked, ok=(1,))
        assert sorted(kinds(told)) == ["sha256", "structure"]


def test_what_nobody_sealed_is_not_signed_beside_a_checkpoint(tagged: Sealed) -> None:
    """A contributor adds a file of the name that a WSUM would have."""
    tagged.write(f"{MODEL}.root.wsum", b"WSUM 1 of nothing\n")
    tagged.commit_all()
    tagged.git("tag", "-f", TAG)
    bundle = str(released(tagged, "--key", "alice"))
    told = verdict(tagged, bundle, "--signers", ".wtxt/signers", "--against", TAG, ok=(0,))
    assert f"{MODEL}.root.wsum" not in [file["path"] for file in told["release"]["files"]]


def test_a_bundle_names_the_root_that_the_audit_took(tagged: Sealed) -> None:
    """A commit comes first: whoever can add a file must not be able to take its place."""
    tagged.write("root", b"a file\n")
    bundle = json.loads(released(tagged, "--key", "alice").read_bytes())
    assert _payload(bundle)["predicate"]["wtxtgit"]["trust_root"] == tagged.oid("root")


def test_a_commit_with_other_content_is_told(tagged: Sealed) -> None:
    bundle = str(released(tagged, "--key", "alice"))
    tagged.write(MODEL, text(2.5))
    tagged.commit_all()
    told = verdict(tagged, bundle, "--signers", ".wtxt/signers", "--against", "HEAD", ok=(1,))
    assert kinds(told) == ["sha256"]
    told = verdict(tagged, bundle, "--signers", ".wtxt/signers", "--against", "root", ok=(1,))
    assert kinds(told) == ["sha256", "sha256", "missing"]
