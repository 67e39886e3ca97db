"""Numbers and names formatted for people to read, whatever a file claims that they are."""

from __future__ import annotations

import re

OID_SHOWN = 12
"""Digits of a commit's id that reports show."""
DATE_SHOWN = len("2025-05-04")
"""Characters of a date that a table shows."""
HASH_SHOWN = 12
"""Digits of a SHA-256 that a table shows."""
NONE = "\u2013"
"""Stands for a missing number."""
_MOST_PERCENT = 10
_CONTEXT = 10
"""Characters that two texts share and that are shown before the first difference."""
_NUMBER = re.compile("([0-9]+)")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_THOUSANDS = ("", " k", " M", " G", " T")


def percent(share: float) -> str:
    """Format a share with three digits, however small; from ten times on as a factor."""
    if not share:
        return "0"
    return f"{100 * share:.3g}%" if share < _MOST_PERCENT else f"{share:.3g}x"


def relative(change: float | None, *, measured: bool = True) -> str:
    """Format a relative change; None would divide by 0, and what is not `measured` is a dash."""
    if not measured:
        return NONE
    return "from 0" if change is None else percent(change)


def digits(value: float | None) -> str:
    """Format a value with three digits, in ASCII; "" for None."""
    return "" if value is None else f"{value:.3g}"


def number(value: float | None) -> str:
    """Format a value with three digits for a page; a dash for None."""
    return digits(value).replace("-", "\u2212") or NONE


def count(value: int) -> str:
    """Format an exact count, with its digits in groups of three."""
    return f"{value:,}"


def rounded(value: int) -> str:
    """Format a count with three digits: `3.15 M`."""
    scaled, unit = float(value), 0
    # From 999.5 on, rounding to three digits gives 1000.
    while scaled >= 999.5 and unit < len(_THOUSANDS) - 1:
        scaled, unit = scaled / 1000, unit + 1
    return f"{scaled:.3g}{_THOUSANDS[unit]}" if unit else str(value)


def size(nbytes: int) -> str:
    """Format a number of bytes: exact below 1 KiB, else with three digits and a binary unit."""
    value, unit = float(nbytes), 0
    while value >= 1023.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    # Three digits, or four for 1000 to 1023.
    return f"{nbytes} B" if unit == 0 else f"{value:.{3 if value < 999.5 else 4}g} {_UNITS[unit]}"


def extents(shape: tuple[int, ...]) -> str:
    """Format a shape for people to read: `700 x 64`."""
    return " x ".join(map(str, shape)) if shape else "scalar"


def in_natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key for names by which layer 2 comes before layer 10."""
    # Runs of digits compare by length first, so that no int is made of a million digits.
    return [
        (len(part.lstrip("0")) + 1, part.lstrip("0")) if part.isdigit() else (0, part)
        for part in _NUMBER.split(name)
    ]


def apart(before: str, after: str, most: int) -> tuple[str, str]:
    """Return two texts, without what they begin with alike if one has over `most` characters.

    They still show where they differ when their middle is left out.
    """
    pairs = enumerate(zip(before, after, strict=False))
    differs = next((at for at, (old, new) in pairs if old != new), min(len(before), len(after)))
    alike = differs - _CONTEXT
    if max(len(before), len(after)) <= most or alike <= _CONTEXT:
        return before, after
    return f"...{before[alike:]}", f"...{after[alike:]}"
