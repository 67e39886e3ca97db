"""Strict: what would be a note or a warning fails commits, pushes, checks and audits."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.test_limits import many
from tests.data import DATA, fixture
from tests.e2e.sealed import MODEL, ROOT, Sealed, checkpoint
from tests.kit import Repo
from wtxtgit.filter.clean import clean

ODD = [(MODEL, "odd-checkpoint")]


def unpadded() -> bytes:
    """A checkpoint of which `verify` has a note: its header is not a multiple of 8 bytes."""
    good = checkpoint(2.0)
    length = int.from_bytes(good[:8], "little")
    return (length + 1).to_bytes(8, "little") + good[8 : 8 + length] + b" " + good[8 + length :]


def put(repo: Sealed, data: bytes) -> None:
    """Stage a checkpoint's text, sealed."""
    repo.write(MODEL, b"".join(clean(memoryview(data), threads=1).pieces()))
    repo.add(MODEL)
    repo.seal(MODEL)


def found(repo: Sealed, *arguments: str, code: int = 0) -> list[tuple[str, str]]:
    said = repo.call(*arguments, "--json", ok=(code,))
    return [(one.path, one.kind) for one in said.found]


def test_check_and_hook_look_into_what_is_staged(chain: Sealed) -> None:
    put(chain, unpadded())
    assert found(chain, "check", "--staged") == []
    assert found(chain, "hook", "pre-commit") == []
    assert found(chain, "check", "--staged", "--strict", code=1) == ODD
    chain.git("config", "wtxtgit.strict", "true")
    assert found(chain, "check", "--staged", code=1) == ODD
    assert found(chain, "hook", "pre-commit", code=1) == ODD
    said = chain.call("hook", "pre-commit", ok=(1,))
    assert "not padded to 8" in said.err
    assert "wtxtgit verify --strict" in said.err
    assert f"git reset -q -- {MODEL}" in said.err
    chain.git("restore", "--staged", "--", MODEL, f"{MODEL}.wsum")
    assert found(chain, "hook", "pre-commit") == []
    put(chain, unpadded())
    assert "git config --unset wtxtgit.strict" in said.err
    chain.git("config", "--unset", "wtxtgit.strict")
    assert found(chain, "hook", "pre-commit") == []


def test_an_audit_looks_into_its_tip(chain: Sealed) -> None:
    put(chain, unpadded())
    chain.commit("odd")
    root = f"--trust-root={ROOT}"
    assert found(chain, "audit", root) == []
    assert found(chain, "audit", root, "--strict", code=1) == ODD
    chain.git("config", "wtxtgit.strict", "true")
    assert found(chain, "audit", root, code=1) == ODD
    assert found(chain, "audit", root, "--no-cache", code=1) == ODD
    put(chain, checkpoint(3.0))
    chain.commit("good")
    assert found(chain, "audit", root) == []


def test_a_push_is_looked_into(chain: Sealed) -> None:
    put(chain, unpadded())
    chain.commit("odd")
    chain.git("config", "wtxtgit.trustRoot", ROOT)
    chain.git("init", "-q", "--bare", "../origin.git")
    chain.git("remote", "add", "origin", "../origin.git")
    line = f"refs/heads/main {chain.head} refs/heads/main {'0' * 40}\n".encode()
    hook = ("hook", "pre-push", "--json", "origin")
    assert not json.loads(chain.wtxtgit(*hook, stdin=line).stdout)["refs"][0]["audit"]["findings"]
    chain.git("config", "wtxtgit.strict", "true")
    (told,) = json.loads(chain.wtxtgit(*hook, stdin=line, ok=(1,)).stdout)["refs"]
    assert [(one["path"], one["kind"]) for one in told["audit"]["findings"]] == ODD


def test_what_is_unsealed_stays_a_warning_where_nobody_is_trusted(repo: Repo, keys: None) -> None:
    sealed = Sealed(repo.path)
    sealed.track("*.safetensors")
    sealed.put(1.0)
    assert found(sealed, "check", "--staged", "--strict") == [(MODEL, "unsealed")]


def test_verify_makes_notes_errors(repo: Repo) -> None:
    sealed = Sealed(repo.path)
    odd = Path(sealed.path) / "odd.safetensors"
    odd.write_bytes(unpadded())
    good = Path(sealed.path) / "good.safetensors"
    good.write_bytes(checkpoint(1.0))
    assert sealed.call("verify", str(odd), str(good)).out.count("ok ") == 2
    said = sealed.call("verify", "--strict", str(odd), str(good), ok=(1,))
    assert said.out.count("ok ") == 1
    assert "structure: byte 0: header of" in said.out
    text = Path(sealed.path) / "x.wtxtdelta"
    text.write_bytes(fixture("plain/nested_a.pt"))
    assert "FAILED" not in sealed.call("verify", str(text)).out


def test_files_of_sets_are_left_to_verify(chain: Sealed) -> None:
    # Several archives, one after another: by itself no checkpoint that torch loads.
    shard = (DATA / "distributed/ranks/__1_0.distcp").read_bytes()
    chain.write("__1_0.distcp", b"".join(clean(memoryview(shard), threads=1).pieces()))
    chain.write(".gitattributes", chain.blob(".gitattributes", "HEAD") + b"*.distcp filter=wtxt\n")
    chain.add("__1_0.distcp", ".gitattributes")
    chain.seal("__1_0.distcp")
    assert ("__1_0.distcp", "odd-checkpoint") not in found(chain, "check", "--staged", "--strict")


def test_strict_checks_and_audits_refuse_it_as_not_checked(repo: Repo, keys: None) -> None:
    sealed = Sealed(repo.path)
    sealed.track("*.safetensors")
    sealed.write("m.safetensors", b"".join(clean(memoryview(many()), threads=1).pieces()))
    sealed.add("m.safetensors")
    said = sealed.call("check", "--staged", "--strict", ok=(5,))
    assert "unchecked-checkpoint: byte 8: header lists more items" in said.out
    assert "not checked: 1 file checked, 1 error" in said.out
    sealed.commit("many")
    said = sealed.call("audit", "--strict", ok=(5,))
    assert "FAILED" not in said.out
