"""Ratios against what is aimed at, as bars in an SVG that needs nothing beside it.

A bar is as long as the share of the target that is used up: what reaches over
the line misses it, whatever the target's own scale is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from bench.measure import Ratio, Row
from bench.report import said

WIDTH = 960
_ROW, _HEAD, _BAR, _FOOT = 46, 64, 12, 20
_LEFT, _TARGET = 24, 480
"""Where bars start, and where the line of all targets is."""
_MOST = 1.75
"""Shares above this are cut off, and marked."""
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.small { font-size: 12px; fill: #59636e }
.back { fill: #ffffff }
.met { fill: #1a7f37 }
.missed { fill: #bc4c00 }
.target { stroke: #1f2328; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .small { fill: #9198a1 }
  .back { fill: #0d1117 }
  .met { fill: #3fb950 }
  .missed { fill: #db6d28 }
  .target { stroke: #e6edf3 }
}
"""


def chart(parts: Mapping[str, Sequence[Row]]) -> str:
    """The SVG of all ratios that have a target."""
    bars = [
        (f"{part}: {row.name}", ratio)
        for part, rows in parts.items()
        for row in rows
        for ratio in row.ratios
        if ratio.target is not None
    ]
    height = _HEAD + _ROW * len(bars) + _FOOT
    title = "Share of each target that is used up"
    size = f"{WIDTH} {height}"
    sides = f'width="{WIDTH}" height="{height}"'
    told = f'role="img" aria-label="{title}"'
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" {sides} {told}>',
        f"<style>{_STYLE}</style>",
        f'<rect class="back" {sides}/>',
        f'<text class="title" x="{_LEFT}" y="28">{title}</text>',
        f'<text class="small" x="{_TARGET}" y="54" text-anchor="middle">target</text>',
    ]
    for number, (name, ratio) in enumerate(bars):
        pieces += _bar(name, ratio, _HEAD + _ROW * number)
    return "\n".join([*pieces, "</svg>"]) + "\n"


def used(ratio: Ratio) -> float:
    """The share of a target that is used up: over 1 it is missed."""
    if ratio.target is None:
        raise ValueError("a ratio without a target")
    if ratio.kind == "rate":
        return ratio.target / ratio.value if ratio.value > 0 else _MOST
    return max(ratio.value, 0.0) / ratio.target


def _bar(name: str, ratio: Ratio, top: int) -> Iterator[str]:
    share = used(ratio)
    is_cut = share > _MOST
    width = (_TARGET - _LEFT) * min(share, _MOST)
    style = "met" if ratio.is_met else "missed"
    yield f'<text x="{_LEFT}" y="{top + 14}">{escape(name)}</text>'
    yield (
        f'<text class="small" x="{WIDTH - _LEFT}" y="{top + 14}" text-anchor="end">'
        f"{escape(said(ratio))}</text>"
    )
    yield (
        f'<rect class="{style}" x="{_LEFT}" y="{top + 20}" width="{width:.1f}" '
        f'height="{_BAR}" rx="2"/>'
    )
    place = f'x1="{_TARGET}" x2="{_TARGET}" y1="{top + 18}" y2="{top + 34}"'
    yield f'<line class="target" {place}/>'
    if is_cut:
        yield (
            f'<text class="small" x="{_LEFT + width + 6:.1f}" y="{top + 31}">'
            f"{share:.1f} of the target</text>"
        )
