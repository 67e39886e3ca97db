"""Pictures: axes, shades and steps."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.markup import parsed
from wtxtgit.report.html import svg
from wtxtgit.report.html.svg import Lane, StepChart, Tick, ticks

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


class TestTicks:
    @pytest.mark.parametrize(
        ("low", "high", "labels"),
        [
            (0, 100, ["0", "20", "40", "60", "80", "100"]),
            (-1, 1, ["\u22121", "\u22120.5", "0", "0.5", "1"]),
            (-0.24, 0.24, ["\u22120.2", "\u22120.1", "0", "0.1", "0.2"]),
            (0, 3e-7, ["0", "1e\u221207", "2e\u221207", "3e\u221207"]),
            (5, 5, ["5", "5"]),
            (3, 1, ["3", "1"]),
            (1e18, 1e18 + 256, ["1e+18", "1e+18"]),
            (nan, 1, ["nan", "1"]),
            (-inf, inf, ["\u2212inf", "inf"]),
        ],
    )
    def test_round_values(self, low: float, high: float, labels: list[str]) -> None:
        assert [tick.label for tick in ticks(low, high)] == labels

    @given(FLOATS, FLOATS)
    def test_any_ends(self, low: float, high: float) -> None:
        found = ticks(low, high)
        assert 2 <= len(found) <= svg.MOST_TICKS + 1
        assert all(-1e-9 <= tick.at <= 1 + 1e-9 for tick in found)
        assert [tick.at for tick in found] == sorted(tick.at for tick in found)


class TestHistogram:
    def test_steps_are_as_high_as_their_counts(self) -> None:
        drawn = svg.histogram("t", [StepChart("a", (0, 4, 2))], [])
        assert 'd="M0 110V110H333V2H667V56H1000V110Z"' in drawn

    def test_all_are_of_one_scale(self) -> None:
        drawn = svg.histogram("t", [StepChart("a", (4,)), StepChart("b", (2,), filled=False)], [])
        assert 'class="b" d="M0 110V56H1000V110"' in drawn

    @pytest.mark.parametrize("counts", [(), (0, 0)])
    def test_nothing(self, counts: tuple[int, ...]) -> None:
        assert "path" not in svg.histogram("t", [StepChart("a", counts)], ticks(0, 1))


class TestHeatMap:
    def shades(self, *values: float) -> list[str]:
        cells = [(1 / len(values), f"cell {n}") for n in range(len(values))]
        drawn = parsed(svg.heat_map("t", [Lane("lane", "", values)], cells, []))
        cells_drawn = [one for one in drawn.of("path") if one.attributes["d"][1] != "-"]
        return [one.attributes["class"] for one in cells_drawn]

    def test_nothing_has_no_shade_and_anything_has_one(self) -> None:
        assert self.shades(0, 1e-9, 0.5, 1) == ["h1", "h4", "h8"]

    def test_all_the_same(self) -> None:
        assert self.shades(3, 3) == ["h8", "h8"]
        assert self.shades(0, 0) == []

    def test_what_is_no_number_is_darkest(self) -> None:
        assert self.shades(nan, 1, inf) == ["h8", "h8", "h8"]


def test_columns_leave_out_what_is_empty() -> None:
    drawn = parsed(svg.columns("t", [(1, "a"), (0, "b"), (1_000_000, "c")], []))
    columns = drawn.of("rect", "column")
    assert [one.text for one in columns] == ["a", "c"]
    assert [one.attributes["height"] for one in columns] == ["1", "110"]


@pytest.mark.parametrize(
    ("share", "width"), [(0.25, ["25%"]), (0.0, []), (1e-9, ["0.5%"]), (7.0, ["100%"])]
)
def test_bars(share: float, width: list[str]) -> None:
    drawn = parsed(svg.bar(share))
    assert [one.attributes["width"] for one in drawn.of("rect", "fill")] == width


def test_labels_at_the_ends_stay_inside() -> None:
    drawn = parsed(svg.histogram("t", [], [Tick(0, "a"), Tick(0.5, "b"), Tick(1, "c")]))
    anchors = [one.attributes["text-anchor"] for one in drawn.of("text")]
    assert anchors == ["start", "middle", "end"]


def test_titles_are_text() -> None:
    hostile = "\"'></svg><script>\n"
    drawn = parsed(svg.columns(hostile, [(1, hostile)], [Tick(0, hostile)]))
    assert {one.tag for one in drawn.elements} == {"svg", "rect", "title", "line", "text"}
    assert drawn.of("svg")[0].attributes["aria-label"] == "\"'></svg><script>\\x0a"
