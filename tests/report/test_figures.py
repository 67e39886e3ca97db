"""Numbers as people read them."""

from __future__ import annotations

import pytest

from wtxtgit.report import figures


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0"), (0.5, "50%"), (1.234e-5, "0.00123%"), (9.99, "999%"), (10.0, "10x")],
)
def test_percent(share: float, text: str) -> None:
    assert figures.percent(share) == text


def test_digits() -> None:
    assert [figures.digits(value) for value in (None, 0.12345, -1e-9)] == ["", "0.123", "-1e-09"]


def test_relative() -> None:
    assert [figures.relative(value) for value in (None, 0.0, 0.5)] == ["from 0", "0", "50%"]
    assert figures.relative(None, measured=False) == "\u2013"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "\u2013"), (0.12345, "0.123"), (-1e-9, "\u22121e\u221209")]
)
def test_number(value: float | None, text: str) -> None:
    assert figures.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1000, "1 k"), (999_600, "1 M"), (34_373_353, "34.4 M")],
)
def test_rounded(value: int, text: str) -> None:
    assert figures.rounded(value) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1000 * 1024, "1000 KiB"),
        (1024 * 1024 - 1, "1 MiB"),
        (100 * 1024 * 1024, "100 MiB"),
    ],
)
def test_size(nbytes: int, text: str) -> None:
    assert figures.size(nbytes) == text


@pytest.mark.parametrize(("shape", "text"), [((), "scalar"), ((7,), "7"), ((7, 8), "7 x 8")])
def test_extents(shape: tuple[int, ...], text: str) -> None:
    assert figures.extents(shape) == text
