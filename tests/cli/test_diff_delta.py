"""`wtxtgit diff` of a delta: the change that it makes to its base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data import fixture, fixture_path
from tests.kit import Repo, text_of
from tests.text.deltas import made

pytestmark = pytest.mark.slow

V1, V2 = "plain/pair_v1.safetensors", "plain/pair_v2.safetensors"
MODEL = "model.safetensors"


@pytest.fixture
def delta() -> bytes:
    return made(text_of(fixture(V1)), text_of(fixture(V2)))


def without_names(out: bytes) -> dict[str, object]:
    told = json.loads(out)
    del told["a"], told["b"]
    return told  # type: ignore[no-any-return]


def test_alone_it_is_compared_with_its_base_wherever_that_is(repo: Repo, delta: bytes) -> None:
    wanted = without_names(
        repo.wtxtgit("diff", str(fixture_path(V1)), str(fixture_path(V2)), "--json").stdout
    )
    repo.track("*.safetensors")
    repo.write("old/" + MODEL, text_of(fixture(V1)))
    repo.add()
    first = repo.commit("base")
    repo.git("rm", "-q", "-r", "old")
    repo.commit("gone")
    repo.write("sub/step.wtxtdelta", delta)
    shown = repo.wtxtgit("diff", "step.wtxtdelta", cwd="sub").stdout.decode()
    assert shown.startswith(f"{first[:12]}:old/{MODEL} -> step.wtxtdelta\n")
    assert without_names(repo.wtxtgit("diff", "sub/step.wtxtdelta", "--json").stdout) == wanted
    repo.add()
    repo.commit("delta")
    told = repo.wtxtgit("diff", "HEAD:sub/step.wtxtdelta", "--json").stdout
    assert without_names(told) == wanted
    # On another branch, too.
    repo.git("checkout", "-q", "--orphan", "other")
    repo.git("rm", "-q", "-r", "--cached", ".")
    repo.commit("nothing")
    assert without_names(repo.wtxtgit("diff", "sub/step.wtxtdelta", "--json").stdout) == wanted
    repo.wtxtgit("diff", "sub/step.wtxtdelta", "--html", "page.html")
    assert f"{first[:12]}:old/{MODEL}" in (repo.path / "page.html").read_text("utf-8")


def test_the_other_side_may_be_its_base_outside_of_any_repository(
    repo: Repo, delta: bytes, tmp_path: Path
) -> None:
    for base in (fixture(V1), text_of(fixture(V1))):
        repo.write("base", base)
        repo.write("step.wtxtdelta", delta)
        shown = repo.wtxtgit("diff", "base", "step.wtxtdelta").stdout.decode()
        assert "1 changed" in shown or "changed" in shown
    same = repo.wtxtgit("diff", "step.wtxtdelta", str(fixture_path(V2)), ok=(1,))
    assert b"its base, with sha256_all" in same.stderr


def test_one_whose_base_is_not_there_is_verified_and_that_is_said(repo: Repo, delta: bytes) -> None:
    repo.write("step.wtxtdelta", delta)
    refused = repo.wtxtgit("diff", "step.wtxtdelta", ok=(1,))
    assert b"verified by itself; its base, with sha256_all" in refused.stderr
    damaged = repo.write("broken.wtxtdelta", delta[:-20])
    refused = repo.wtxtgit("diff", damaged.name, ok=(1,))
    assert b"verified" not in refused.stderr
    assert b"broken.wtxtdelta: line" in refused.stderr
