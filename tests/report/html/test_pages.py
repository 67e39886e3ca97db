"""Pages of inspect, diff and history: made of the same elements, and hostile text stays text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.report.html.test_page import ATTRIBUTES, TAGS
from tests.report.markup import parsed
from tests.report.reviews import HOSTILE_NAMES, changed_tensor, groups
from wtxtgit.errors import clipped, escaped
from wtxtgit.report.diff import DiffReport
from wtxtgit.report.history import History, PastVersion, Point, Series
from wtxtgit.report.html import diff, history, inspect
from wtxtgit.report.html.bounds import MOST_NAME
from wtxtgit.report.inspect import FilePart, Inspection, Statistics, TensorFacts, TensorPicture
from wtxtgit.report.review import Flag, Histogram, Risk


def of_inspect(names: tuple[str, ...]) -> str:
    values = Statistics(4, 0.0, 3.0, 1.5, 1.1, 1, 0, 0)
    picture = TensorPicture(Histogram(0.0, 3.0, (1, 2, 1)), 2, 2, ((0.5, None), (1.0, 2.0)))
    tensors = [
        TensorFacts(name, name, (2, 2), 16, "ab" * 32, 8, name, "C", values, None, picture)
        for name in names
    ]
    parts = [FilePart(0, 8, "part", name, name, detail=name) for name in names]
    metadata: dict[str, object] = {name: {name: name} for name in names}
    path = names[0]
    told = Inspection(path, path, 99, "x", names[1], tuple(parts), tuple(tensors), metadata, names)
    return inspect.page(told)


def of_diff(names: tuple[str, ...]) -> str:
    tensors = tuple(changed_tensor(n, name, (4, 4)) for n, name in enumerate(names))
    report = DiffReport(names[0], names[1], names[0], names[1], tensors, (), names)
    flags = [Flag(Risk.UNUSUAL, name, name) for name in names]
    return diff.page(report, flags, groups(report), {})


def of_history(names: tuple[str, ...]) -> str:
    versions = [
        PastVersion(
            name,
            name,
            name,
            name,
            name.encode("utf-8", "surrogateescape"),
            99,
            gen=1,
            signers=(name,),
            verdict=name,
            reason=name,
        )
        for name in names
    ]
    points = tuple(Point(4, float(n), 0, 0, 0, 0.1 * n, 1.0) for n in range(len(names)))
    series = tuple(Series(name, points, name, (2, 2)) for name in names)
    path = names[0].encode("utf-8", "surrogateescape")
    return history.page(History(path, names[1], tuple(versions), series[:3], series, True))


@pytest.mark.parametrize("made", [of_inspect, of_diff, of_history])
def test_hostile_text_is_text(made: Callable[[tuple[str, ...]], str]) -> None:
    page = made(HOSTILE_NAMES)
    assert all(c.isprintable() or c == "\n" for c in page)
    found = parsed(page)
    assert {element.tag for element in found.elements} <= TAGS
    assert {name for element in found.elements for name in element.attributes} <= ATTRIBUTES
    names = [element.text for element in found.of("bdi")]
    for name in HOSTILE_NAMES:
        assert escaped(clipped(name, MOST_NAME)) in names
    plain = parsed(made(("a", "b", "c", "d")))
    for tag in ("script", "style"):
        assert found.the(tag).text == plain.the(tag).text, "none of it gets in there"


@pytest.mark.parametrize("made", [of_inspect, of_diff, of_history])
def test_links_lead_into_the_page(made: Callable[[tuple[str, ...]], str]) -> None:
    found = parsed(made(("a.0.x", "a.0.y", "b", "c")))
    ids = [one.attributes["id"] for one in found.elements if "id" in one.attributes]
    assert len(set(ids)) == len(ids)
    links = [link.attributes["href"].removeprefix("#") for link in found.of("a")]
    assert len(links) >= 4
    assert set(links) <= set(ids)
