"""Layers out of names."""

from __future__ import annotations

from math import hypot

import pytest

from tests.review.diffs import changed, in_bytes, numbers, report, same
from wtxtgit.report.diff import TensorDiff, TensorStatus
from wtxtgit.review.flags import group_of, groups, role_of


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("model.layers.3.attn.q", "model.layers.3"),
        ("model.layers.13.mlp.0.w", "model.layers.13"),
        ("layers/3/attn/q", "layers/3"),
        ("0.weight", "0"),
        ("blocks.7", "blocks.7"),
        ("h3.attn.q", "h3"),
        ("layer_12_attn.q", "layer_12"),
        # A whole component that is a number is a better sign of a layer.
        ("params_v2/model.layers.3.q", "params_v2/model.layers.3"),
        ("lm_head.weight", "lm_head"),
        ("model.embed_tokens.weight", "model.embed_tokens"),
        ("weights/embed", "weights"),
        ("embed", "embed"),
        ("", ""),
        (".", "."),
        ("model.layers.\u0663.q", "model.layers.\u0663"),
    ],
)
def test_the_group_of_a_name(name: str, group: str) -> None:
    assert group_of(name) == group


def test_the_role_of_a_name() -> None:
    assert role_of("model.layers.13.attn.q2") == "model.layers.#.attn.q#"


def test_a_group_sums_up_its_tensors() -> None:
    found = groups(
        report(
            changed("layers.0.q", 0.5, norm=2.0),
            changed("layers.0.k", 0.1, norm=4.0),
            same("layers.0.norm"),
            TensorDiff("layers.0.new", TensorStatus.ADDED, "f32", (2, 3)),
            changed("layers.1.q", 0.9),
            same("embed"),
        )
    )
    assert [group.name for group in found] == ["layers.1", "layers.0", "embed"]
    layer = found[1]
    assert (layer.tensors, layer.changed, layer.elements, layer.changed_elements) == (4, 2, 36, 20)
    assert layer.l2 == pytest.approx(hypot(1.0, 0.4))
    assert layer.relative_l2 == pytest.approx(hypot(1.0, 0.4) / hypot(2.0, 4.0))
    assert (found[2].changed, found[2].l2, found[2].relative_l2) == (0, 0.0, 0.0)


def test_what_has_no_relative_change_comes_first() -> None:
    found = groups(report(changed("a", 0.5), in_bytes("b.w"), changed("c", None), same("d")))
    assert [(group.name, group.relative_l2) for group in found] == [
        ("c", None), ("b", None), ("a", 0.5), ("d", 0.0),
    ]  # fmt: skip


def test_a_change_of_nothing_is_no_change() -> None:
    (group,) = groups(
        report(TensorDiff("a", TensorStatus.CHANGED, "f32", (1,), change=numbers(0.0)))
    )
    assert (group.changed, group.l2, group.relative_l2) == (1, 0.0, 0.0)
