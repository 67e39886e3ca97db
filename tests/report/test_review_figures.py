"""Figures of a review: no zero where nothing was measured, and one meaning in all forms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.markup import parsed
from tests.report.reviews import BASE, HEAD, PACKED, changed_tensor, reviewed
from tests.report.test_review_markdown import inline
from wtxtgit.report.diff import DiffReport, MetadataChange, Numbers, TensorDiff, TensorStatus
from wtxtgit.report.figures import NONE
from wtxtgit.report.html.review import page
from wtxtgit.report.markdown import MOST_ROWS, comment
from wtxtgit.report.review import Review, Sizes
from wtxtgit.report.tables import (
    layer_change,
    layer_tensors,
    parameters_changed,
    relative_change,
    sizes_told,
    tensors_changed,
)
from wtxtgit.review.flags import groups

ADDED = TensorDiff("l.1.new", TensorStatus.ADDED, "f32", (2, 3))
REMOVED = TensorDiff("l.2.old", TensorStatus.REMOVED, "f32", (5,))
RENAMED = TensorDiff("l.3.to", TensorStatus.RENAMED, "f32", (5,), base_name="l.3.from")
RESHAPED = TensorDiff("l.4.q", TensorStatus.CHANGED, "f32", (4,), base_shape=(2, 3))
SAME = TensorDiff("l.5.q", TensorStatus.SAME, "f32", (7,))
NUMBERS = changed_tensor(1, "l.0.q", (4, 4), 0.5)
assert isinstance(NUMBERS.change, Numbers)
CHANGED = NUMBERS.change.changed
FROM_0 = replace(NUMBERS, change=replace(NUMBERS.change, relative_l2=None, base_norm=0.0))
RECAST = replace(
    NUMBERS, base_dtype="f64", change=replace(NUMBERS.change, changed=0, l2=0.0, relative_l2=0.0)
)


def diff(*tensors: TensorDiff) -> DiffReport:
    return DiffReport("a", "b", "npz", "npz", tensors)


@pytest.mark.parametrize(
    ("tensors", "parameters", "relative"),
    [
        ((), "0", "0"),
        ((SAME, RENAMED), "0", "0"),
        ((NUMBERS, SAME), str(CHANGED), "50%"),
        ((FROM_0,), str(CHANGED), "from 0"),
        ((RECAST,), "0", "0"),
        ((PACKED,), NONE, NONE),
        ((ADDED,), "+6/-0", NONE),
        ((REMOVED, SAME), "+0/-5", NONE),
        ((RESHAPED,), "+4/-6", NONE),
        ((NUMBERS, ADDED, REMOVED, RESHAPED), f"{CHANGED}, +10/-11", "50%"),
    ],
)
def test_totals(tensors: tuple[TensorDiff, ...], parameters: str, relative: str) -> None:
    assert parameters_changed(diff(*tensors)) == parameters
    assert relative_change(diff(*tensors)) == relative


def test_of_several() -> None:
    assert parameters_changed() == "0"
    assert parameters_changed(diff(ADDED), diff(NUMBERS)) == f"{CHANGED}, +6/-0"


def test_counts() -> None:
    tensors = (NUMBERS, ADDED, REMOVED, RENAMED, RESHAPED, SAME)
    assert tensors_changed(diff(*tensors)) == "2 of 6, +1/-1"
    assert tensors_changed(diff(NUMBERS, SAME)) == "1 of 2"


def test_layers() -> None:
    found = groups(diff(SAME, ADDED, REMOVED, RESHAPED, RECAST, replace(PACKED, name="l.6.q")))
    told = {group.name: (layer_change(group), layer_tensors(group)) for group in found}
    assert told == {
        "l.0": ("0", "1 of 1"),
        "l.1": (NONE, "0 of 1, +1/-0"),
        "l.2": (NONE, "0 of 1, +0/-1"),
        "l.4": (NONE, "1 of 1"),
        "l.5": ("0", "0 of 1"),
        "l.6": (NONE, "1 of 1"),
    }
    # What came or went is told before what stayed as it was.
    assert found[-1].name == "l.5"
    assert [group.name for group in found if not group.is_touched] == ["l.5"]


def test_sizes() -> None:
    told = sizes_told(Sizes(1024, 2048, None, 5, 4096), "to")
    assert told == "file 1 KiB to 2 KiB, text 5 B, limit 4 KiB per blob"


class TestAllForms:
    def review(self) -> Review:
        tensors = [NUMBERS, ADDED, REMOVED, RENAMED, RESHAPED, SAME]
        one = reviewed(b"m", tensors)
        assert one.diff is not None
        changes = (
            MetadataChange("/step", TensorStatus.CHANGED, "20", "5"),
            MetadataChange("/new", TensorStatus.ADDED, None, 1),
        )
        compared = replace(one.diff, metadata=changes)
        one = replace(one, diff=compared, groups=tuple(groups(compared)))
        return Review("main", "topic", BASE, HEAD, 1, (one,))

    def test_markdown(self) -> None:
        found = inline(comment(self.review()))
        start = found.index("changed tensors") - 2
        assert found[start + 7 : start + 12] == [
            "m", "changed", "2 of 6, +1/-1", f"{CHANGED}, +10/-11", "50%",
        ]  # fmt: skip
        text = " | ".join(found)
        assert "removed | l.2.old | f32 | 5 | added | l.1.new | f32 | 2 x 3" in text
        assert "renamed | l.3.from to l.3.to | f32 | 5" in text
        assert f'/step | "20" | "5" | /new | {NONE} | 1' in text
        assert f"l.4 | {NONE} | {NONE} | 1 of 1 | {NONE}" in text
        assert f"l.1 | {NONE} | {NONE} | 0 of 1, +1/-0 | {NONE}" in text
        assert "| l.5 |" not in text

    def test_markdown_is_bounded(self) -> None:
        one = self.review().artifacts[0]
        assert one.diff is not None
        many = replace(
            one.diff,
            tensors=one.diff.tensors * (MOST_ROWS + 1),
            metadata=one.diff.metadata * MOST_ROWS,
        )
        review = replace(self.review(), artifacts=(replace(one, diff=many),))
        found = inline(comment(review))
        assert found.count("l.2.old") == MOST_ROWS
        assert f"and {2 * MOST_ROWS + 3} more such tensors" in found
        assert f"and {MOST_ROWS} more metadata changes" in found

    def test_html(self) -> None:
        found = parsed(page(self.review()))
        header = " ".join(found.the("header").text.split())
        assert f"Parameters changed {CHANGED}, +10/-11" in header
        rows = [
            " ".join(line.split()) for line in found.of("table", "bars")[0].text.split("\n") if line
        ]
        assert f"l.1{NONE}{NONE}0 of 1, +1/-0" in rows
        assert f"l.4{NONE}{NONE}1 of 1" in rows
        assert "l.5000 of 1" in rows
