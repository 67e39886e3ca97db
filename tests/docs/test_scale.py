"""What docs/scale.md says of detached texts is what was measured, and what follows from it."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import lines

SCALE, PERFORMANCE = "docs/scale.md", "docs/performance.md"
FILE, ALL, COMMITS = 256 << 20, 1e14, 1e6


def cells(page: str, column: int) -> dict[str, list[str]]:
    """The rows of a page by one of their cells; of equal ones the first counts."""
    rows = [line.cells for line in lines(page) if len(line.cells) > column]
    return {row[column]: row for row in reversed(rows)}


def numbers(cell: str) -> list[float]:
    return [float(number) for number in re.findall(r"[0-9]+(?:\.[0-9]+)?", cell)]


def figures(letter: str) -> list[float]:
    return numbers(cells(SCALE, 0)[letter][2])


@pytest.mark.parametrize(
    ("letter", "place", "dtypes", "share", "versions"),
    [
        ("s", "all tuned a little", ("f32", "bf16"), "for the first", 1),
        ("e", "1% of rows changed", ("f32",), "for the others", 9),
        ("f", "all tuned a little", ("f32", "bf16"), "for the others", 9),
    ],
)
def test_shares_of_the_store_are_those_of_the_bench(
    letter: str, place: str, dtypes: tuple[str, ...], share: str, versions: int
) -> None:
    measured = [
        re.search(rf"([0-9.]+)(?: of a version)? {share}", cells(PERFORMANCE, 0)[row][-1])
        for row in (f"{dtype}, {place}: added" for dtype in dtypes)
    ]
    told = cells(SCALE, 0)[letter][2].split("; ")
    for found, spelled in zip(measured, told, strict=True):
        assert found is not None
        places = len(spelled.partition(".")[2])
        assert f"{float(found[1]) / versions:.{places}f}" == spelled


def test_what_follows() -> None:
    s, e, f, g, h, x, y, z, c = map(figures, "sefghxyzc")
    rows = cells(SCALE, 1)
    follows = {
        "g F": [g[0] * ALL / 1e9],
        "s F": [share * ALL / 1e12 for share in s],
        "F / x": [ALL / (x[0] * 1e9) / 3600],
        "y F": [y[0] * 1e-9 * ALL / 60],
        "10^6 g 256 MiB": [COMMITS * g[0] * FILE / 1e9],
        "10^6 h 256 MiB, and 1.4 KB a commit": [COMMITS * (h[0] * FILE + 1400) / 1e9],
        "10^6 e 256 MiB": [COMMITS * e[0] * FILE / 1e12],
        "10^6 f 256 MiB": [COMMITS * share * FILE / 1e12 for share in f],
        "10^6 (c + y 256 MiB)": [COMMITS * (c[0] / 1e3 + y[0] * 1e-9 * FILE) / 3600],
        "the longer of F / (T z) and s F / B": [ALL / (256 * z[0] * 1e9) / 60],
    }
    for formula, values in follows.items():
        told = rows[formula][2]
        assert numbers(told)[: len(values)] == pytest.approx(values, rel=0.02), formula
