"""Reviews of quantised models: by value, and without alarm at what quantising does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.containers.gguf_files import quantised_file
from tests.kit import Repo, text_of
from tests.review.repos import only, reviewed, risks
from wtxtgit.report.diff import ScaleStates
from wtxtgit.report.review import Reviewed, Risk

gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.slow

Weights = dict[str, NDArray[np.float32]]
MIXED = {"q": "Q8_0", "k": "Q4_0", "down": "Q5_1"}
"""The types of a mixed model; in every third layer `down` is of a coarser one."""


def weights() -> Weights:
    rng = np.random.default_rng(0)
    return {
        f"blk.{layer}.{role}.weight": rng.standard_normal((16, 256)).astype("f4") * np.float32(0.05)
        for layer in range(9)
        for role in MIXED
    }


def stepped(old: Weights, by: float = 0.02) -> Weights:
    """The weights after a step of training."""
    rng = np.random.default_rng(1)
    steps = {name: rng.standard_normal(w.shape).astype("f4") for name, w in old.items()}
    return {name: w + np.float32(0.05 * by) * steps[name] for name, w in old.items()}


def kind_of(name: str) -> str:
    _, layer, role, _ = name.split(".")
    return "Q4_0" if role == "down" and int(layer) % 3 == 2 else MIXED[role]


def model(held: Weights, *, as_they_are: bool = False) -> bytes:
    tensors = {}
    for name, w in held.items():
        word = "F32" if as_they_are else kind_of(name)
        raw = gguf.quants.quantize(w, gguf.GGMLQuantizationType[word])
        tensors[name] = word, raw.tobytes()
    return quantised_file(**tensors)


def change(repo: Repo, before: bytes, after: bytes) -> Reviewed:
    repo.track("*.gguf")
    for number, content in enumerate((before, after)):
        repo.write("a.gguf", text_of(content))
        repo.add()
        repo.commit(str(number))
        if not number:
            repo.git("checkout", "-q", "-b", "topic")
    return only(reviewed(repo))


@pytest.mark.parametrize("by", [0.02, 0.002, 0.0002])
def test_a_step_of_training(repo: Repo, by: float) -> None:
    """After a small one most blocks have the same numbers, and scales that differ a little."""
    old = weights()
    one = change(repo, model(old), model(stepped(old, by)))
    assert one.flags == ()
    assert one.diff is not None
    assert by / 3 < (one.diff.summary.relative_l2 or 0) < 0.2


def test_weights_that_decay_alone(repo: Repo) -> None:
    old = weights()
    one = change(repo, model(old), model({name: w * np.float32(0.999) for name, w in old.items()}))
    assert one.flags == ()


@pytest.mark.parametrize(
    ("least", "most", "message"),
    [
        (0.95, 1.05, None),
        (0.89, 1.05, "in 6 of 8 blocks only the scales changed, by factors from 0.89 to 1.05"),
        (0.95, 1.2, "in 6 of 8 blocks only the scales changed, by factors from 0.95 to 1.2"),
        (-1.0, 1.0, "in 6 of 8 blocks only the scales changed, by factors from -1 to 1"),
    ],
)
def test_by_how_much_scales_may_change_alone(
    least: float, most: float, message: str | None
) -> None:
    states = ScaleStates(80, 8, 8, 0, 0, 0, 0, changed=8, scaled=6, factors=(least, most))
    concern = states.by_factor()
    assert (None if concern is None else concern.message) == message
    whole = replace(states, scaled=8, factors=(1.05, 1.05)).by_factor()
    assert whole is not None
    assert whole.message == "all items were multiplied by 1.05"


def test_quantising_has_the_risk_of_other_dtypes_alone(repo: Repo) -> None:
    old = weights()
    one = change(repo, model(old, as_they_are=True), model(old))
    assert risks(one) == {Risk.DTYPE}


def test_a_new_tensor_with_nan(repo: Repo) -> None:
    repo.track("*.gguf")
    repo.commit("base")
    repo.git("checkout", "-q", "-b", "topic")
    raw = bytearray(bytes(100) * 84)
    raw[80:82] = b"\xff\x7f"
    repo.write("a.gguf", text_of(quantised_file(w=("Q2_K", bytes(raw)))))
    repo.add()
    repo.commit("new")
    one = next(one for one in reviewed(repo).artifacts if one.path == b"a.gguf")
    assert [(flag.risk, flag.message) for flag in one.flags if flag.tensor == "w"] == [
        (Risk.NEW_NAN, "1 of 100 blocks of a new tensor are NaN")
    ]


def test_one_tensor_that_changed_more_than_those_of_other_layers(repo: Repo) -> None:
    old = weights()
    new = stepped(old)
    name = "blk.4.q.weight"
    new[name] = old[name] + (new[name] - old[name]) * np.float32(30)
    one = change(repo, model(old), model(new))
    assert [(flag.risk, flag.tensor) for flag in one.flags] == [(Risk.UNUSUAL, name)]
