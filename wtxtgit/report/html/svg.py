"""Pictures for HTML pages: inline SVG as wide as its container, with text of constant size.

Colours are classes, which a page's style sheet defines for light and dark. All text is escaped.
Lengths in percent are relative to the width, others are pixels (SVG 2, section "Units").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from markupsafe import Markup

from wtxtgit.errors import escaped

SHADES = 8
"""Shades of a heat map, besides that of zero."""
MOST_TICKS = 5
_HEIGHT = 110
"""Height of a plot in pixels, without its axis."""
_MARGIN = 2
"""Space in pixels above the highest value, so that its line is not cut."""
_AXIS = 20
_LANE = 24
_CELLS = 1000
"""Units of the width that cells are drawn in."""
_LANE_LABEL = 16
_LANE_GAP = 8
_EDGE = 0.06
"""Share of the width that half a label may take: closer to an end it is aligned with that end."""
_LEAST_SPAN = 1e-290
_GRID_ROW, _LEAST_GRID, _MOST_GRID = 14, 28, 160
"""Height in pixels of a row of a grid, and the least and greatest height of a grid."""
_SPARK = 20
_LINE_LABEL = 18
"""Pixels above a line, for the label of its highest value."""
_DASH = 40
"""The width divided by this is the length of the dash for a single value."""
_LEAST_BAR = 0.5
"""The least width of a bar in percent, so that it can be seen."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of an axis; `at` is its share of the axis's length."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of a heat map with a value for each cell; `scale` describes the darkest shade."""

    label: str
    scale: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class StepChart:
    """Counts drawn as steps in the colours of a class; `filled` down to the axis, or as a line."""

    kind: str
    counts: Sequence[int]
    filled: bool = True


def bar(share: float, kind: str = "fill", mark: float | None = None) -> Markup:
    """Draw a horizontal bar over `share` of the width, with a mark across it at `mark`, if given.

    It is hidden from screen readers: the number stands beside it.
    """
    parts = [Markup('<rect class="track" width="100%" height="100%"/>')]
    if share > 0:
        width = max(_percent(share), _LEAST_BAR)
        parts.append(_rect(kind, 0, width, "0", "100%"))
    if mark is not None:
        line = Markup('<line class="mark" x1="{0}%" x2="{0}%" y1="0" y2="100%"/>')
        parts.append(line.format(_short(_percent(mark))))
    return Markup('<svg class="bar" aria-hidden="true">{}</svg>').format(_joined(parts))


def histogram(title: str, steps: Sequence[StepChart], ticks: Sequence[Tick]) -> Markup:
    """Draw counts in bins of equal width, several series over one another in the same bins."""
    highest = max((max(step.counts, default=0) for step in steps), default=0)
    paths = _joined(
        Markup('<path class="{}" d="{}"/>').format(step.kind, _path(step, highest))
        for step in steps
        if highest and step.counts
    )
    plot = Markup(
        '<svg class="plot" width="100%" height="{0}" viewBox="0 0 1000 {0}"'
        ' preserveAspectRatio="none">{1}</svg>'
    ).format(_HEIGHT, paths)
    return _chart(title, _HEIGHT, _joined((_grid(ticks), plot)), ticks)


def columns(title: str, bars: Sequence[tuple[int, str]], ticks: Sequence[Tick]) -> Markup:
    """Draw a column for each count, with the label of the count as its title."""
    highest = max((count for count, _ in bars), default=0)
    drawn = []
    for n, (count, title_of_bar) in enumerate(bars):
        if count:
            height = max(_HEIGHT * count / highest, 1.0)
            x, width = 100 * n / len(bars), 100 / len(bars)
            y, tall = _short(_HEIGHT - height), _short(height)
            drawn.append(_rect("column", x + width * 0.1, width * 0.8, y, tall, title_of_bar))
    return _chart(title, _HEIGHT, _joined(drawn), ticks)


def heat_map(
    title: str, lanes: Sequence[Lane], cells: Sequence[tuple[float, str]], ticks: Sequence[Tick]
) -> Markup:
    """Draw lanes of cells; each cell has its share of the width, and a title.

    Each lane is shaded from nothing to its own largest value.
    """
    pitch = _LANE_LABEL + _LANE + _LANE_GAP
    labels = [_lane_label(lane, n * pitch) for n, lane in enumerate(lanes)]
    tracks = [
        Markup('<rect class="track" width="100%" y="{}" height="{}"/>').format(
            n * pitch + _LANE_LABEL, _LANE
        )
        for n in range(len(lanes))
    ]
    tops = [max((v for v in lane.values if isfinite(v)), default=0.0) for lane in lanes]
    height = len(lanes) * pitch - _LANE_GAP
    cells_drawn, share = [], 0.0
    others: defaultdict[int, list[str]] = defaultdict(list)
    for n, (width, title_of_cell) in enumerate(cells):
        shades = [_shade(lane.values[n], top) for lane, top in zip(lanes, tops, strict=True)]
        start, end = (round(_CELLS * at) for at in (share, share + width))
        # There are many of them, and paths are shorter than rectangles.
        places = [
            f"M{start} {i * pitch + _LANE_LABEL}h{end - start}v{_LANE}h-{end - start}"
            for i in range(len(lanes))
        ]
        if shades[0]:
            cell = Markup('<path class="h{}" d="{}"><title>{}</title></path>')
            cells_drawn.append(cell.format(shades[0], places[0], escaped(title_of_cell)))
        for shade, place in zip(shades[1:], places[1:], strict=True):
            if shade:
                others[shade].append(place)
        share += width
    # The titles of the first lane's cells serve for all lanes: the others need no elements.
    joined = (
        Markup('<path class="h{}" d="{}"/>').format(shade, "".join(places))
        for shade, places in sorted(others.items())
    )
    drawn = [*cells_drawn, *joined]
    shown = Markup(
        '<svg width="100%" height="{0}" viewBox="0 0 {1} {0}" preserveAspectRatio="none">{2}</svg>'
    ).format(height, _CELLS, _joined(drawn))
    return _chart(title, height, _joined((*labels, *tracks, shown)), ticks)


def grid(title: str, cells: Sequence[Sequence[float | None]], ends: tuple[str, str]) -> Markup:
    """Draw rows of cells, shaded from the least to the largest value; None draws nothing.

    `ends` label the left and the right end of a row.
    """
    known = [value for row in cells for value in row if value is not None and isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    tall, wide = len(cells), max(map(len, cells), default=0)
    paths: defaultdict[int, list[str]] = defaultdict(list)
    for y, row in enumerate(cells):
        shades = [_shade_between(value, low, high) for value in row]
        x = 0
        while x < len(shades):
            end = next((n for n in range(x, len(shades)) if shades[n] != shades[x]), len(shades))
            if shades[x]:
                # A run of one shade is one piece.
                paths[shades[x]].append(f"M{x} {y}h{end - x}v1h-{end - x}")
            x = end
    drawn = _joined(
        Markup('<path class="h{}" d="{}"/>').format(shade, "".join(pieces))
        for shade, pieces in sorted(paths.items())
    )
    height = min(max(tall * _GRID_ROW, _LEAST_GRID), _MOST_GRID)
    shown = Markup(
        '<rect class="track" width="100%" height="{0}"/>'
        '<svg class="cells" width="100%" height="{0}" viewBox="0 0 {1} {2}"'
        ' preserveAspectRatio="none">{3}</svg>'
    ).format(height, max(wide, 1), max(tall, 1), drawn)
    return _chart(title, height, shown, [Tick(0, ends[0]), Tick(1, ends[1])])


def line(title: str, values: Sequence[float | None], ticks: Sequence[Tick], top: str) -> Markup:
    """Draw a line through values, with gaps at None; `top` describes the highest value.

    The scale begins at 0, or at the least value if that is negative.
    """
    path, zero = _line_path(values, 1000, _HEIGHT, _LINE_LABEL)
    drawn = Markup(
        '<line class="zero" x1="0" x2="100%" y1="{0}" y2="{0}"/>'
        '<svg class="plot" width="100%" height="{1}" viewBox="0 0 1000 {1}"'
        ' preserveAspectRatio="none"><path class="after" d="{2}"/></svg>'
        '<text x="0" y="10">{3}</text>'
    ).format(_short(zero), _HEIGHT, path, escaped(top))
    return _chart(title, _HEIGHT, drawn, ticks)


def spark(values: Sequence[float | None]) -> Markup:
    """Draw a line for a table cell, scaled from least to largest; the number stands beside it."""
    known = [value for value in values if value is not None and isfinite(value)]
    path, _ = _line_path(values, 100, _SPARK, _MARGIN, least=min(known, default=0.0))
    return Markup(
        '<svg class="spark" aria-hidden="true" viewBox="0 0 100 {}" preserveAspectRatio="none">'
        '<path class="after" d="{}"/></svg>'
    ).format(_SPARK, path)


def _line_path(
    values: Sequence[float | None], width: int, height: int, top: int, least: float | None = None
) -> tuple[str, float]:
    """Return the path of lines through values, the largest at `top` pixels, and where 0 is."""
    known = [value for value in values if value is not None and isfinite(value)]
    low = min(0.0, *known) if least is None and known else least or 0.0
    high = max(known, default=low)
    # A single value is drawn in the middle.
    low, high = (low, high) if high > low else (low - 1, low + 1)
    bottom = height - _MARGIN

    def y(value: float) -> float:
        return bottom - (bottom - top) * ((value - low) / (high - low))

    step = width / max(len(values) - 1, 1)
    path: list[str] = []
    is_down = False
    for n, value in enumerate(values):
        if value is None or not isfinite(value):
            is_down = False
            continue
        path.append(f"{'L' if is_down else 'M'}{_short(n * step)} {_short(y(value))}")
        is_alone = not is_down and (n + 1 == len(values) or values[n + 1] is None)
        if is_alone:
            # A dash inside the picture.
            length = width // _DASH
            path.append(f"h{-length if n else length}")
        is_down = True
    return "".join(path), y(0.0)


def ticks(low: float, high: float, most: int = MOST_TICKS) -> list[Tick]:
    """Return at most `most` labels at round values between two bounds.

    If there are no round values, as between values that are equal in six digits, the two bounds
    alone are labelled.
    """
    span = high - low
    ends = [Tick(0, _label(low)), Tick(1, _label(high))]
    if not isfinite(span) or span < _LEAST_SPAN:
        return ends
    step = next(step for step in _round_steps(span / most) if span / step <= most)
    inner = [n * step for n in range(ceil(low / step), floor(high / step) + 1)]
    rounded = [Tick((value - low) / span, _label(value)) for value in inner]
    told_apart = len({tick.label for tick in rounded}) == len(rounded) > 1
    return rounded if told_apart else ends


def _round_steps(least: float) -> Iterator[float]:
    exponent = floor(log10(least))
    for power in (exponent, exponent + 1):
        for factor in (1, 2, 5):
            yield factor * 10.0**power


def _chart(title: str, height: int, drawn: Markup, ticks: Sequence[Tick]) -> Markup:
    shown = Markup(
        '<svg class="chart" role="img" aria-label="{}" width="100%" height="{}">{}{}{}</svg>'
    )
    line = Markup('<line class="axis" x1="0" x2="100%" y1="{0}" y2="{0}"/>').format(height + 0.5)
    labels = _joined(_text(tick, height + _AXIS - 6) for tick in ticks)
    return shown.format(escaped(title), height + _AXIS, drawn, line, labels)


def _text(tick: Tick, y: int) -> Markup:
    at = min(max(tick.at, 0.0), 1.0)
    anchor = "start" if at < _EDGE else "end" if at > 1 - _EDGE else "middle"
    return Markup('<text x="{}%" y="{}" text-anchor="{}">{}</text>').format(
        _short(100 * at), y, anchor, escaped(tick.label)
    )


def _grid(ticks: Sequence[Tick]) -> Markup:
    return _joined(
        Markup('<line class="{1}" x1="{0}%" x2="{0}%" y1="0" y2="{2}"/>').format(
            _short(100 * tick.at), "zero" if tick.label == "0" else "grid", _HEIGHT
        )
        for tick in ticks
        if 0 < tick.at < 1
    )


def _lane_label(lane: Lane, y: int) -> Markup:
    """Return the lane's name and, at the right end, its shades with the meaning of the darkest."""
    shades = _joined(
        Markup('<path class="h{}" d="M{} 2h9v9h-9z"/>').format(shade, -9 * (SHADES - n))
        for n, shade in enumerate(range(1, SHADES + 1))
    )
    return Markup(
        '<text x="0" y="{0}">{1}</text>'
        '<svg x="100%" y="{2}" overflow="visible">{3}'
        '<text x="{4}" y="11" text-anchor="end">{5}</text></svg>'
    ).format(y + 11, escaped(lane.label), y, shades, -9 * SHADES - 6, escaped(lane.scale))


def _path(steps: StepChart, highest: int) -> str:
    width = 1000 / len(steps.counts)
    path = [f"M0 {_HEIGHT}"]
    for n, count in enumerate(steps.counts):
        y = _HEIGHT - (_HEIGHT - _MARGIN) * count / highest
        path.append(f"V{y:.0f}H{width * (n + 1):.0f}")
    return "".join((*path, f"V{_HEIGHT}", "Z" if steps.filled else ""))


def _rect(kind: str, x: float, width: float, y: str, height: str, title: str = "") -> Markup:
    """A rectangle; `x` and `width` are in percent."""
    tooltip = Markup("<title>{}</title>").format(escaped(title)) if title else ""
    return Markup('<rect class="{}" x="{}%" width="{}%" y="{}" height="{}">{}</rect>').format(
        kind, _short(x), _short(width), y, height, tooltip
    )


def _shade(value: float, top: float) -> int:
    """Return the shade of a value: 0 for nothing, at least 1 for anything else, darkest for NaN."""
    if not isfinite(value):
        return SHADES
    return min(ceil(SHADES * (value / top)), SHADES) if value > 0 else 0


def _shade_between(value: float | None, low: float, high: float) -> int:
    if value is None or not isfinite(value):
        return 0
    # A constant is neither dark nor light.
    return min(floor(SHADES * (value - low) / (high - low)), SHADES - 1) + 1 if high > low else 3


def _percent(share: float) -> float:
    return 100 * min(max(share, 0.0), 1.0)


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _label(value: float) -> str:
    # Adding up steps may give -0 or 0.30000000000000004.
    return f"{value + 0:.6g}".replace("-", "\u2212")


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)
