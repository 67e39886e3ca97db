"""A committed delta is reviewed as the change that it makes to its base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit import Repo, text_of
from tests.review.repos import MODEL, file, only, put, reviewed, risks, started, weights
from tests.text.deltas import made
from tests.text.naive_detached import detached
from wtxtgit.report.html.review import page
from wtxtgit.report.markdown import comment
from wtxtgit.report.review import DeltaState, Reviewed, Risk

pytestmark = pytest.mark.slow

DELTA = "step.wtxtdelta"
NAN = weights()["layers.2.q"].copy()
NAN[3, 4] = np.nan
AFTER = weights(layers__2__q=NAN, layers__4__k=np.zeros((40, 25), "f4"))


def text(tensors: dict[str, Any]) -> bytes:
    return text_of(file(tensors))


def delta_of(before: dict[str, Any], after: dict[str, Any], **options: Any) -> bytes:
    return made(text(before), text(after), **options)


def with_delta(repo: Repo, delta: bytes, name: str = DELTA) -> Reviewed:
    """The review of a branch that brings one."""
    repo.write(name, delta)
    repo.add(name)
    repo.commit("a delta")
    return only(reviewed(repo))


def as_a_change(one: Reviewed) -> dict[str, Any]:
    """What the review of a checkpoint says of its weights."""
    assert one.diff is not None
    told = one.as_dict()
    told["diff"].pop("a")
    told["diff"].pop("b")
    told["sizes"] = told["sizes"]["file_before"], told["sizes"]["file_after"]
    told["flags"] = [flag for flag in told["flags"] if flag["risk"] != "unsealed"]
    return {key: told[key] for key in ("flags", "groups", "diff", "distributions", "sizes")}


def test_it_is_reviewed_as_the_change_of_the_checkpoint_itself(repo: Repo, tmp_path: Path) -> None:
    started(repo)
    shutil.copytree(repo.path, tmp_path / "other")
    other = Repo(tmp_path / "other")
    put(other, AFTER)
    other.commit("change")
    wanted = as_a_change(only(reviewed(other, with_distributions=True)))

    repo.write(DELTA, delta_of(weights(), AFTER))
    repo.add(DELTA)
    repo.commit("a delta")
    one = only(reviewed(repo, with_distributions=True))
    assert as_a_change(one) == wanted
    assert {Risk.NEW_NAN, Risk.ZERO} <= risks(one)
    assert one.path == DELTA.encode()
    assert one.delta is not None
    assert one.delta.state is DeltaState.APPLIED
    tip = repo.git("rev-parse", "main").decode()[:12]
    assert one.delta.base == f"{tip}:{MODEL}"
    assert repo.git("cat-file", "-t", one.delta.base) == b"blob\n"


class TestTheBase:
    def test_is_found_at_another_path_and_in_a_subfolder(self, repo: Repo) -> None:
        repo.track("*.safetensors")
        put(repo, weights(layers=1), "other.safetensors")
        put(repo, weights(), "deep/er/model.safetensors")
        repo.commit("base")
        repo.git("checkout", "-q", "-b", "topic")
        one = with_delta(repo, delta_of(weights(), AFTER), "deltas/a.wtxtdelta")
        assert one.delta is not None
        assert (one.delta.base or "").endswith(":deep/er/model.safetensors")
        assert Risk.NEW_NAN in risks(one)

    def test_is_found_in_a_commit_that_neither_end_has_anything_of(self, repo: Repo) -> None:
        repo.track("*.safetensors")
        put(repo, weights())
        first = repo.commit("base")
        put(repo, weights(layers=2))
        repo.commit("other")
        repo.git("checkout", "-q", "-b", "topic")
        one = with_delta(repo, delta_of(weights(), AFTER))
        assert one.delta is not None
        assert one.delta.base == f"{first[:12]}:{MODEL}"
        assert Risk.NEW_NAN in risks(one)

    def test_may_be_a_binary_that_no_filter_saw(self, repo: Repo) -> None:
        repo.write("raw.safetensors", file(weights()))
        repo.add()
        repo.commit("base")
        repo.git("checkout", "-q", "-b", "topic")
        one = with_delta(repo, delta_of(weights(), AFTER))
        assert one.delta is not None
        assert (one.delta.base or "").endswith(":raw.safetensors")
        assert Risk.NEW_NAN in risks(one)

    def test_may_be_what_another_delta_makes(self, repo: Repo) -> None:
        started(repo)
        repo.write("a.wtxtdelta", delta_of(weights(), weights(head=weights()["head"] * 2)))
        repo.write("b.wtxtdelta", delta_of(weights(head=weights()["head"] * 2), AFTER))
        repo.add()
        repo.commit("two deltas")
        first, second = sorted(reviewed(repo).artifacts, key=lambda one: one.path)
        assert first.delta is not None
        assert second.delta is not None
        assert (first.delta.base or "").endswith(f":{MODEL}")
        assert (second.delta.base or "").endswith(":a.wtxtdelta")
        assert [tensor.name for tensor in first.changed] == ["head"]
        assert {tensor.name for tensor in second.changed} == {"layers.2.q", "layers.4.k", "head"}

    def test_that_goes_in_a_circle_is_none(self, repo: Repo) -> None:
        started(repo, weights(layers=1))
        repo.write("a.wtxtdelta", delta_of(weights(), AFTER))
        repo.write("b.wtxtdelta", delta_of(AFTER, weights()))
        repo.add()
        repo.commit("each on what the other makes")
        states = {one.delta and one.delta.state for one in reviewed(repo).artifacts}
        assert states == {DeltaState.VERIFIED}

    def test_that_is_not_there_is_told_and_the_delta_verified(self, repo: Repo) -> None:
        started(repo, weights(layers=1))
        one = with_delta(repo, delta_of(weights(), AFTER))
        assert one.delta is not None
        assert (one.delta.state, one.delta.base) == (DeltaState.VERIFIED, None)
        assert risks(one) == {Risk.UNREAD}
        assert one.diff is None
        assert f"sha256_all {(one.delta.base_sha256_all or '')[:16]}" in one.delta.message
        assert "is not in the repository" in one.delta.message


class TestADamagedOne:
    @pytest.mark.parametrize("is_there", [True, False], ids=["with base", "without"])
    def test_is_named(self, is_there: bool, repo: Repo) -> None:
        started(repo, weights() if is_there else weights(layers=1))
        delta = bytearray(delta_of(weights(), AFTER))
        at = delta.index(b"lines=") + 200
        delta[at] = ord("B") if delta[at] != ord("B") else ord("C")
        one = with_delta(repo, bytes(delta))
        assert one.delta is not None
        assert one.delta.state is DeltaState.DAMAGED
        assert risks(one) == {Risk.DAMAGED}
        assert "array" in one.delta.message

    def test_that_is_forged_is_found_out_on_its_base(self, repo: Repo) -> None:
        """By itself nothing is wrong with it: the array whose change it drops is not there."""
        started(repo)
        true = delta_of(weights(), AFTER)
        blocks = true.split(b"arr name=")
        forged = b"arr name=".join([*blocks[:1], *blocks[2:]])
        assert forged != true
        one = with_delta(repo, forged)
        assert one.delta is not None
        assert one.delta.state is DeltaState.DAMAGED
        assert "applied to its base" in one.delta.message
        assert risks(one) == {Risk.DAMAGED}

    def test_base_is_named(self, repo: Repo) -> None:
        base = bytearray(text(weights()))
        base[-200] = ord("B") if base[-200] != ord("B") else ord("C")
        repo.write("base.wtxt", bytes(base))
        repo.add()
        first = repo.commit("base")
        repo.git("checkout", "-q", "-b", "topic")
        one = with_delta(repo, delta_of(weights(), AFTER))
        assert one.delta is not None
        assert one.delta.state is DeltaState.DAMAGED
        assert f"{first[:12]}:base.wtxt: line " in one.delta.message
        assert risks(one) == {Risk.DAMAGED}
        refused = repo.wtxtgit("diff", DELTA, ok=(1,)).stderr.decode()
        assert "base.wtxt: line " in refused
        assert "lists all problems" in refused

    @pytest.mark.parametrize("content", [b"", b"WTXT-DELTA 1 x\n", b"something else\n"])
    def test_that_is_none_at_all(self, content: bytes, repo: Repo) -> None:
        started(repo)
        one = with_delta(repo, content)
        assert one.delta is not None
        assert one.delta.state is DeltaState.DAMAGED


def test_what_no_hash_covers_is_told(repo: Repo) -> None:
    native = made(*(_native(value) for value in (1.0, 2.0)), plain=True)
    repo.write("base.wtxt", _native(1.0))
    repo.add()
    repo.commit("base")
    repo.git("checkout", "-q", "-b", "topic")
    one = with_delta(repo, native)
    assert one.diff is not None
    assert any("no hash covers" in note for note in one.diff.notes)
    assert [tensor.name for tensor in one.changed] == ["w"]


def _native(value: float) -> bytes:
    from wtxtgit.api.functions import dumps

    return dumps({"w": np.full(8, value, "f4")})


def test_one_that_is_gone(repo: Repo) -> None:
    started(repo)
    repo.write(DELTA, delta_of(weights(), AFTER))
    repo.add()
    repo.commit("a delta")
    repo.git("rm", "-q", DELTA)
    repo.commit("gone")
    one = only(reviewed(repo, "HEAD~1..HEAD"))
    assert one.delta is None
    assert risks(one) == {Risk.REMOVED}
    assert one.reason == "a delta, which is gone"


def test_all_forms_tell_it(repo: Repo) -> None:
    started(repo, weights(layers=1))
    repo.write("a\x1b[31m.wtxtdelta", delta_of(weights(), AFTER))
    repo.write(
        "b.wtxtdelta", delta_of(weights(layers=1), weights(layers=1, head=AFTER["head"] * 2))
    )
    repo.add()
    repo.commit("deltas")
    found = reviewed(repo)
    shown = repo.wtxtgit("review", "main...topic").stdout.decode()
    assert "delta: verified by itself" in shown
    assert "delta: applied to " in shown
    told = json.loads(repo.wtxtgit("review", "main...topic", "--json").stdout)
    assert {one["delta"]["state"] for one in told["artifacts"]} == {"verified", "applied"}
    for form in (comment(found), page(found)):
        assert "verified by itself" in form
        assert "applied to " in form
        assert "\x1b" not in form


def test_a_base_whose_payload_is_not_here(repo: Repo) -> None:
    """The hint fetches that of the commit that has the base, which the branch has replaced."""
    before = {"w": np.arange(200_000, dtype="f4")}
    repo.track("*.safetensors")
    repo.write(MODEL, detached(text(before))[0])
    repo.add()
    repo.commit("base")
    repo.git("checkout", "-q", "-b", "topic")
    put(repo, weights())
    repo.commit("another model")
    repo.write(DELTA, delta_of(before, {"w": before["w"] + 1}))
    repo.add(DELTA)
    repo.commit("a delta")
    one = next(one for one in reviewed(repo).artifacts if one.path == DELTA.encode())
    (flag,) = (flag for flag in one.flags if flag.risk is Risk.UNREAD)
    tip = repo.git("rev-parse", "main").decode()[:12]
    assert flag.message.endswith(f"are not available here; wtxtgit fetch {tip} fetches it")
