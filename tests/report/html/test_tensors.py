"""A changed tensor in words and pictures."""

from __future__ import annotations

from dataclasses import replace

from tests.report.markup import parsed
from tests.report.reviews import big, changed_tensor, distributions
from wtxtgit.report.diff import ByteChange, Numbers, RowBlocks, RowFacts, TensorDiff, TensorStatus
from wtxtgit.report.html import tensors
from wtxtgit.report.html.checkpoint import group_chart, spread
from wtxtgit.report.html.review import page
from wtxtgit.report.html.tensors import Cell, Picture
from wtxtgit.report.review import LayerGroup

TENSOR = changed_tensor(1, "w", (768, 64), 0.02)
BYTES = ByteChange(1152, 37, RowFacts(5, 2, ((1, 2), (4, 5)), True, RowBlocks(2, (1, 0, 1))))
PACKED = TensorDiff("q", TensorStatus.CHANGED, "q4_0", (5, 32), change=BYTES)


def pictures(tensor: TensorDiff) -> list[Picture]:
    values = distributions(1, tensor.change) if isinstance(tensor.change, Numbers) else None
    return list(tensors.detail(tensor, (), values, "t")["pictures"])


def test_numbers() -> None:
    assert [one.title for one in pictures(TENSOR)] == [
        "Where it changed: blocks of 32 rows",
        "Values",
        "Element changes",
        "Distance in ULPs",
    ]
    assert tensors.row(TENSOR, (), None)["cells"][0] == Cell("2%", 0.02)


def test_bytes() -> None:
    (heat,) = pictures(PACKED)
    titles = [one.text for one in parsed(heat.svg).of("title")]
    assert titles == ["rows 0\u20131: 1 changed", "row 4: 1 changed"]
    assert heat.notes == ("Rows 1, 4",)
    row = tensors.row(PACKED, (), None)
    assert [cell.text for cell in row["cells"]] == [
        "bytes", "3.21%", "2 / 5", "\u2013", "\u2013",
    ]  # fmt: skip


def test_rows_that_are_not_exact() -> None:
    rows = replace(BYTES.rows, ranges=tuple((n, n + 2) for n in range(0, 40, 4)), exact=False)
    (heat,) = pictures(replace(PACKED, change=replace(BYTES, rows=rows)))
    (note,) = heat.notes
    assert note.startswith("Within rows 0\u20131, 4\u20135")
    assert note.endswith("28\u201329 and 2 more ranges")


def test_a_single_row() -> None:
    one = RowFacts(5, 1, ((3, 4),), True, RowBlocks(1, (0, 0, 0, 1, 0)))
    (heat,) = pictures(replace(PACKED, change=replace(BYTES, rows=one)))
    assert heat.title == "Where it changed: row by row"
    assert heat.notes == ("Row 3",)
    assert [one.text for one in parsed(heat.svg).of("title")] == ["row 3: 1 changed"]


def test_a_change_from_zero_is_sorted_first() -> None:
    assert isinstance(TENSOR.change, Numbers)
    zero = replace(TENSOR, change=replace(TENSOR.change, relative_l2=None, cosine=None))
    assert tensors.row(zero, (), None)["cells"][0] == Cell("from 0", float("inf"))
    assert ("Cosine", "\u2013") in tensors.detail(zero, (), None, "t")["facts"]


def test_ulp_distances() -> None:
    assert isinstance(TENSOR.change, Numbers)
    far = replace(TENSOR.change, ulp=((0, 5), (1, 2), (2**40, 1)))
    drawn = parsed(pictures(replace(TENSOR, change=far))[-1].svg)
    titles = [one.text for one in drawn.of("title")]
    assert titles == ["0: 5", "1: 2", "1099511627776\u20132199023255551: 1"]
    assert [one.text for one in drawn.of("text")] == [
        "0", "2\u2078", "2\u00b9\u2077", "2\u00b2\u2076", "2\u00b3\u2075",
    ]  # fmt: skip


class TestSpread:
    def titles(self, *relatives: float) -> list[str]:
        picture = spread([changed_tensor(1, "w", (4, 4), relative) for relative in relatives])
        assert picture is not None
        return [one.text for one in parsed(picture.svg).of("title")]

    def test_ends_are_powers_of_ten(self) -> None:
        assert self.titles(0.01, 0.02, 0.5) == [
            "1% to 1.78%: 1 tensor",
            "1.78% to 3.16%: 1 tensor",
            "31.6% to 56.2%: 1 tensor",
        ]

    def test_what_is_tiny_is_in_the_lowest_column(self) -> None:
        assert self.titles(1e-300, 1e-30, 1.0) == [
            "1e-09% to 1.78e-09%: 2 tensors",
            "100% to 178%: 1 tensor",
        ]

    def test_one_is_no_distribution(self) -> None:
        assert spread([TENSOR, PACKED]) is None


def test_groups_that_are_not_measured() -> None:
    groups = [
        LayerGroup("a", 2, 1, 10, 5, 0.3, 0.5),
        LayerGroup("bytes", 1, 1, 10, 0, 0.0, None),
        LayerGroup("zero", 1, 1, 10, 5, 0.3, None),
        LayerGroup("same", 1, 0, 10, 0, 0.0, 0.0),
    ]
    lines = group_chart(groups, 4).lines
    assert [cells[0].text for _, _, cells in lines] == ["50%", "\u2013", "from 0", "0"]
    assert [cells[1].text for _, _, cells in lines] == ["50%", "\u2013", "50%", "0"]
    assert ["fill" in bar for _, bar, _ in lines] == [True, False, True, False]


def test_bars_of_layers_are_logarithmic() -> None:
    """One layer that changed far more than all others leaves them bars that can be compared."""
    groups = [LayerGroup(str(n), 1, 1, 9, 9, 1.0, relative) for n, relative in enumerate(
        (10.0, 0.1, 0.01, 0.001)
    )]  # fmt: skip
    bars = [parsed(bar).of("rect", "fill")[0] for _, bar, _ in group_chart(groups, 4).lines]
    assert [bar.attributes["width"] for bar in bars] == ["100%", "60%", "40%", "20%"]


def test_a_picture_of_rows_has_few_cells() -> None:
    blocks = RowBlocks(1, (1,) * 64, (3.0, 4.0) * 32)
    rows = RowFacts(64, 64, ((0, 64),), True, blocks)
    (heat,) = pictures(replace(PACKED, change=replace(BYTES, rows=rows)))
    titles = [one.text for one in parsed(heat.svg).of("title")]
    assert len(titles) == 32
    assert titles[0] == "rows 0\u20131: 2 changed, L2 5"


def test_a_page_of_87_tensors_is_well_under_a_mebibyte() -> None:
    assert len(page(big(87)).encode()) < 900_000
