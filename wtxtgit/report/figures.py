"""Numbers and names as people read them in reports, whatever a file says that they are."""

from __future__ import annotations

import re

OID_SHOWN = 12
"""Digits of a commit's id that a report shows."""
DATE_SHOWN = len("2025-05-04")
"""Characters of a date that a table shows."""
HASH_SHOWN = 12
"""Digits of a SHA-256 that a table shows."""
NONE = "\u2013"
"""What stands where there is no number."""
_MOST_PERCENT = 10
_NUMBER = re.compile("([0-9]+)")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_THOUSANDS = ("", " k", " M", " G", " T")


def percent(share: float) -> str:
    """A share to three digits, however small; from ten times on as a factor."""
    if not share:
        return "0"
    return f"{100 * share:.3g}%" if share < _MOST_PERCENT else f"{share:.3g}x"


def relative(change: float | None, *, measured: bool = True) -> str:
    """A relative change, None for one that would be divided by 0; a dash where none is measured."""
    if not measured:
        return NONE
    return "from 0" if change is None else percent(change)


def digits(value: float | None) -> str:
    """A value to three digits, in ASCII; nothing where there is none."""
    return "" if value is None else f"{value:.3g}"


def number(value: float | None) -> str:
    """The same as a page has it; a dash where there is none."""
    return digits(value).replace("-", "\u2212") or NONE


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
    """A shape as people read it: `700 x 64`."""
    return " x ".join(map(str, shape)) if shape else "scalar"


def in_natural_order(name: str) -> list[tuple[int, str]]:
    """What names are sorted by so that layer 2 comes before layer 10."""
    # Digits compare by how many there are first, and no int is made of a million of them.
    return [
        (len(part.lstrip("0")) + 1, part.lstrip("0")) if part.isdigit() else (0, part)
        for part in _NUMBER.split(name)
    ]
