"""Differences made up for tests: a tensor with the relative change that a test is about."""

from __future__ import annotations

from typing import Any

from wtxtgit.report.diff import (
    ByteChange,
    DiffReport,
    Numbers,
    RowBlocks,
    RowFacts,
    SideFacts,
    TensorDiff,
    TensorStatus,
)

_ROWS = RowFacts(1, 1, ((0, 1),), True, RowBlocks(1, (1,), (1.0,)))
_SIDE = SideFacts(10, 0.0, 1.0, 0, 0, 0)


def numbers(relative: float | None, norm: float = 1.0, **more: Any) -> Numbers:
    l2 = 1.0 if relative is None else relative * norm
    base = 0.0 if relative is None else norm
    given = {
        "elements": 10, "changed": 10, "rows": _ROWS, "l2": l2, "base_norm": base,
        "relative_l2": relative, "max_abs": l2, "max_abs_at": (0,), "cosine": 1.0,
        "before": _SIDE, "after": _SIDE, "new_nan": 0, "new_inf": 0, "sign_flips": 0, "ulp": None,
    }  # fmt: skip
    return Numbers(**{**given, **more})  # type: ignore[arg-type]


def changed(name: str, relative: float | None = 0.01, **more: Any) -> TensorDiff:
    return TensorDiff(name, TensorStatus.CHANGED, "f32", (10,), change=numbers(relative, **more))


def in_bytes(name: str) -> TensorDiff:
    return TensorDiff(name, TensorStatus.CHANGED, "q4_0", (10,), change=ByteChange(10, 5, None))


def same(name: str) -> TensorDiff:
    return TensorDiff(name, TensorStatus.SAME, "f32", (10,))


def report(*tensors: TensorDiff) -> DiffReport:
    return DiffReport("a", "b", "safetensors", "safetensors", tensors)
