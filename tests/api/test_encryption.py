"""Age files through the Python interface: what is encrypted, by any of its names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyrage
import pytest

import wtxtgit
from tests.kit import Repo
from wtxtgit.errors import UsageError

WEIGHTS = np.arange(12, dtype="f4").reshape(3, 4)
WORDS = "correct horse battery"


@pytest.mark.parametrize("track", [("track",), ("track", "--detached")])
def test_a_revision_is_encrypted_and_decrypted(
    repo: Repo, track: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repo.wtxtgit("install")
    repo.wtxtgit(*track, "*.safetensors")
    for step in (1, 2):
        wtxtgit.dump({"w": WEIGHTS * step}, repo.path / "m.safetensors")
        repo.add()
        repo.commit()
    monkeypatch.chdir(repo.path)
    identity = pyrage.x25519.Identity.generate()
    whom, key = [str(identity.to_public())], [str(identity).encode()]
    wtxtgit.encrypt("HEAD~1:m.safetensors", "old.wtxt.age", recipients=whom)
    text = wtxtgit.decrypt("old.wtxt.age", identities=key)
    assert text is not None
    assert np.array_equal(wtxtgit.loads(text)["w"], WEIGHTS)
    repo.add()
    repo.commit()
    assert wtxtgit.decrypt("HEAD:old.wtxt.age", identities=key) == text
    out = tmp_path / "old.safetensors"
    (tmp_path / "key.txt").touch(mode=0o600)
    (tmp_path / "key.txt").write_text(f"{identity}\n")
    file = str(tmp_path / "key.txt")
    repo.wtxtgit("decrypt", "--restore", "-i", file, "-o", str(out), "HEAD:old.wtxt.age")
    assert np.array_equal(wtxtgit.load(out)["w"], WEIGHTS)
    again = str(tmp_path / "cli.age")
    repo.wtxtgit("encrypt", "-r", whom[0], "-o", again, "HEAD~2:m.safetensors")
    assert wtxtgit.decrypt(again, identities=key) == text


def test_a_generation_is_encrypted(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.wtxtgit("install")
    repo.wtxtgit("track", "*.safetensors")
    repo.wtxtgit("key", "new", "--no-passphrase")
    for step in (1, 2):
        wtxtgit.dump({"w": WEIGHTS * step}, repo.path / "m.safetensors")
        repo.add()
        repo.wtxtgit("seal", "--staged", "m.safetensors")
        repo.commit()
    monkeypatch.chdir(repo.path)
    made = wtxtgit.encrypt("m.safetensors@gen:1", passphrase=WORDS)
    assert made is not None
    (repo.path / "one.age").write_bytes(made)
    text = wtxtgit.decrypt("one.age", passphrase=WORDS)
    assert text is not None
    assert np.array_equal(wtxtgit.loads(text)["w"], WEIGHTS)
    with pytest.raises(UsageError, match="a path is expected"):
        wtxtgit.encrypt(made, passphrase=WORDS)  # type: ignore[arg-type]
