"""What `make structure` counts stays as low as it is."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile

import pytest

from bench.structure import PACKAGE, Structure, in_circles, structure, with_packages
from tests.docs.pages import lines

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def counted() -> Structure:
    return structure()


def test_no_module_leads_back_to_itself(counted: Structure) -> None:
    assert counted.circles == ()


def test_a_package_that_imports_its_own_modules_is_a_circle_for_them() -> None:
    source = {
        PACKAGE / "a" / "__init__.py": "from wtxtgit.a.b import C",
        PACKAGE / "a" / "b.py": "import os\nfrom wtxtgit.io import view",
        PACKAGE / "a" / "c.py": "def f():\n    from wtxtgit.a import b",
        PACKAGE / "io" / "__init__.py": "",
        PACKAGE / "io" / "view.py": "",
    }
    assert {*in_circles(with_packages(source))} == {"wtxtgit.a", "wtxtgit.a.b"}


def test_formats_are_known_by_their_records_alone(counted: Structure) -> None:
    assert counted.formats_from_outside == ()


def test_a_class_name_means_one_thing(counted: Structure) -> None:
    assert counted.class_names == {}


def named_in_steps(journey: str) -> list[str]:
    """Modules that the steps of a journey of `docs/architecture.md` name, each once; not of `io`.

    Rooms above use those for all that they do.
    """
    own = (line for line in lines("docs/architecture.md") if journey in line.section)
    begun = dropwhile(lambda line: not line.text.startswith("1."), own)
    steps = takewhile(lambda line: line.text, begun)
    spans = [span for line in steps for span in line.spans if re.fullmatch(r"[a-z_/]+\.py", span)]
    return [span for span in dict.fromkeys(spans) if not span.startswith("io/")]


@pytest.mark.parametrize(
    ("command", "journey", "most_not_met"),
    [("clean", "git add", 0), ("audit", "wtxtgit audit", 2), ("merge", "git merge", 4),
     ("diff", "wtxtgit diff", 6)],
)  # fmt: skip
def test_a_journey_comes_to_modules_in_the_order_of_the_page(
    counted: Structure, command: str, journey: str, most_not_met: int
) -> None:
    """Some are met only on another file, merge or report than the one that is traced."""
    walked = counted.journeys[command].walked
    places = {name.partition(".")[2].replace(".", "/") + ".py": n for n, name in enumerate(walked)}
    named = named_in_steps(journey)
    met = [places[name] for name in named if name in places]
    assert met == sorted(met), named
    assert 0 < len(met) >= len(named) - most_not_met
