"""wtxtgit.decodeLimit: what commands decode of files that are next to nothing once compressed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from tests.e2e.sealed import Sealed
from tests.kit import Repo
from wtxtgit.filter.clean import clean

NAME = "model.npz"


def packed() -> bytes:
    """Three arrays of 2 MiB of zeros each."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: np.zeros(2**18) for name in "abc"})
    return buffer.getvalue()


def test_verify_inspect_and_review_say_so_with_the_setting(repo: Repo) -> None:
    sealed = Sealed(repo.path)
    sealed.track("*.npz")
    before = sealed.commit("tracked")
    # What git stores; the filter is not set up here.
    sealed.write(NAME, b"".join(clean(memoryview(packed()), threads=1).pieces()))
    sealed.add(NAME)
    sealed.commit("model")
    (Path(sealed.path) / NAME).write_bytes(packed())
    assert "ok " in sealed.call("verify", NAME).out
    sealed.git("config", "wtxtgit.decodeLimit", "3m")
    said = sealed.call("verify", NAME, ok=(5,)).out
    assert f"not checked {NAME}" in said
    assert said.count("git config wtxtgit.decodeLimit SIZE allows more") == 2
    assert "over 3145728 bytes" in said
    for arguments, code in ((("inspect", NAME), 5), (("review", f"{before}..HEAD"), 0)):
        said = sealed.call(*arguments, ok=(code,)).out
        assert "wtxtgit.decodeLimit" in said
    sealed.git("config", "wtxtgit.decodeLimit", "1g")
    assert "ok " in sealed.call("verify", NAME).out
    assert "decodeLimit" not in sealed.call("review", f"{before}..HEAD").out
