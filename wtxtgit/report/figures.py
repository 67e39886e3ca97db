"""Numbers as people read them, in reports."""

from __future__ import annotations

NONE = "\u2013"
"""What stands where there is no number."""
_MOST_PERCENT = 10
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_THOUSANDS = ("", " k", " M", " G", " T")


def percent(share: float) -> str:
    """A share to three digits, however small; from ten times on as a factor."""
    if not share:
        return "0"
    return f"{100 * share:.3g}%" if share < _MOST_PERCENT else f"{share:.3g}x"


def number(value: float | None) -> str:
    """A value to three digits; a dash where there is none."""
    return NONE if value is None else f"{value:.3g}".replace("-", "\u2212")


def count(value: int) -> str:
    """An exact count, in groups of three digits."""
    return f"{value:,}"


def rounded(value: int) -> str:
    """A count to three digits: `3.15 M`."""
    scaled, unit = float(value), 0
    # 999.5 is where three digits become 1000.
    while scaled >= 999.5 and unit < len(_THOUSANDS) - 1:
        scaled, unit = scaled / 1000, unit + 1
    return f"{scaled:.3g}{_THOUSANDS[unit]}" if unit else str(value)


def size(nbytes: int) -> str:
    """Bytes: exact below 1 KiB, else three digits and a binary unit."""
    value, unit = float(nbytes), 0
    while value >= 1023.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    # Three digits, or the four below 1024.
    return f"{nbytes} B" if unit == 0 else f"{value:.{3 if value < 999.5 else 4}g} {_UNITS[unit]}"


def extents(shape: tuple[int, ...]) -> str:
    """A shape: `700 \u00d7 64`."""
    return " \u00d7 ".join(map(str, shape)) if shape else "scalar"
